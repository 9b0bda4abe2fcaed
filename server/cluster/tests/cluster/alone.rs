//! A server alone that remembers.

use std::time::Instant;

use ticketing_cluster::{DataDirError, Stage, StartError};
use ticketing_engine::Fate;

use crate::lab::{Held, Lab, Memory, Node, fate, grant};

#[test]
fn it_comes_back_with_all_that_it_held() {
    let folder = tempfile::tempdir().unwrap();
    let mut held = Held::default();
    let mut identity = None;
    let mut first_token = None;
    for run in 0..5 {
        let start = Instant::now();
        let node = Node::alone_again(folder.path()).unwrap();
        let office = node.in_office();
        println!("in office after {:?}", start.elapsed());
        held.assert_is_held_by(&node);
        let status = node.status();
        assert_eq!(*identity.get_or_insert(status.identity.clone().unwrap()), status.identity.unwrap());
        let place = node.cluster.replica().unwrap().place();
        assert_eq!(*first_token.get_or_insert(place.first_token), place.first_token);
        assert!(place.first_token > 1 << 60, "tokens begin at the wall clock");
        assert_eq!((status.role.as_str(), node.stage()), ("leader", Stage::Member));
        assert_eq!(node.fill(&mut held, 100), 100);
        if run % 2 == 0 {
            node.runtime.as_ref().unwrap().block_on(node.cluster.shutdown());
            assert_eq!(fate(&node.propose(office, 101, &[grant(b"late", 1 << 62)])), Fate::Unknown);
        }
    }
}

#[test]
fn it_gives_an_office_up_and_takes_another() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::alone(folder.path()).unwrap();
    let office = node.in_office();
    let never = node.propose(office, 2, &[]);
    node.cluster.renounce(office);
    let next =
        crate::lab::eventually("another office is taken", || node.office().filter(|next| *next != office));
    assert_eq!((next.term, next.run), (office.term, office.run + 1));
    assert_eq!(fate(&never), Fate::Refused, "the first of that office never came");
    assert_eq!(fate(&node.propose(next, 1, &[])), Fate::Applied);
}

#[test]
fn one_directory_is_one_server() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::alone(folder.path()).unwrap();
    let error = Node::alone(folder.path()).err().unwrap();
    assert!(matches!(error, StartError::DataDir(DataDirError::InUse(_))), "{error}");
    drop(node);
    drop(Node::alone_again(folder.path()).unwrap());

    let mut lab = Lab::with(3, Memory::Log);
    lab.init(false).unwrap();
    lab.leader();
    lab.kill_all();
    let error = Node::alone_again(&lab.folder(0)).err().unwrap().to_string();
    assert!(
        error.contains("of a cluster of n0, n1, n2, and this process is to be of a server in single mode"),
        "{error}"
    );
    std::fs::remove_dir_all(lab.folder(0)).unwrap();
    std::fs::rename(folder.path().join("node"), lab.folder(0)).unwrap();
    std::fs::create_dir(folder.path().join("moved")).unwrap();
    std::fs::rename(lab.folder(0), folder.path().join("moved/node")).unwrap();
    drop(Node::alone_again(&folder.path().join("moved")).unwrap());
    std::fs::rename(folder.path().join("moved"), lab.folder(0)).unwrap();
    let error = lab.try_restart(0).unwrap_err().to_string();
    assert!(error.contains("is of a server in single mode"), "{error}");
}

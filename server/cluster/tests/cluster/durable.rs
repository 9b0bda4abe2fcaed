//! Nodes that remember everything, and come back as themselves.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ticketing_cluster::{DataDirError, InitError, Stage, StartError};
use ticketing_engine::{Effect, Fate};

use crate::lab::{Held, Lab, Memory, eventually, fate, grant, wait};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(file.file_name());
        if file.file_type().unwrap().is_dir() {
            copy(&file.path(), &to);
        } else {
            fs::copy(file.path(), to).unwrap();
        }
    }
}

#[test]
fn all_nodes_end_at_once_and_come_back_with_everything() {
    let mut lab = Lab::with(3, Memory::Log);
    let identity = lab.init(false).unwrap();
    let mut held = Held::default();
    for round in 0..4 {
        lab.fill(&mut held, 100);
        lab.kill_all();
        lab.restart_all();
        lab.leader();
        let status = lab.wait_for_agreement();
        assert_eq!(status.identity.as_ref(), Some(&identity), "round {round}");
        let ids = status.voters.iter().map(|voter| voter.node).collect::<Vec<_>>();
        assert_eq!(ids, [1, 2, 3], "round {round}");
        for (slot, node) in (1..).zip(lab.up()) {
            assert_eq!(node.status().node, Some(slot));
            held.assert_is_held_by(node);
        }
    }
}

#[test]
fn a_node_that_was_down_comes_back_as_itself() {
    let mut lab = Lab::with(3, Memory::Log);
    lab.init(false).unwrap();
    let mut held = Held::default();
    for leads in [false, true, false] {
        let (leader, _) = lab.leader();
        let slot = if leads { leader } else { (leader + 1) % 3 };
        lab.fill(&mut held, 10);
        lab.kill(slot);
        lab.fill(&mut held, 10);
        // Longer than it takes to find that it is down.
        std::thread::sleep(Duration::from_secs(3));
        assert!(lab.up().all(|node| node.stage() == Stage::Member));
        lab.restart(slot);
        let status = lab.wait_for_agreement();
        assert_eq!(status.voters.iter().map(|voter| voter.node).collect::<Vec<_>>(), [1, 2, 3]);
        held.assert_is_held_by(lab.node(slot));
    }
}

#[test]
fn an_emptied_place_gets_a_new_node_and_the_old_one_cannot_return() {
    let mut lab = Lab::with(3, Memory::Log);
    lab.init(false).unwrap();
    let mut held = Held::default();
    let (leader, _) = lab.leader();
    lab.fill(&mut held, 10);
    let slot = (leader + 1) % 3;
    let old = lab.node(slot).status().node.unwrap();
    lab.kill(slot);
    let (folder, kept) = (lab.folder(slot), lab.folder(7));
    fs::rename(&folder, &kept).unwrap();
    lab.restart(slot);
    wait("a new node has the vote of the old one", || {
        let voters = lab.node(leader).status().voters;
        voters.len() == 3 && voters.iter().all(|voter| voter.node != old)
    });
    lab.wait_for_agreement();
    held.assert_is_held_by(lab.node(slot));
    let new = lab.node(slot).status().node.unwrap();
    assert!(new > 5);

    // The new one remembers too.
    lab.kill(slot);
    lab.restart(slot);
    lab.wait_for_agreement();
    assert_eq!(lab.node(slot).status().node, Some(new));

    lab.kill(slot);
    copy(&kept, &lab.folder(8));
    fs::rename(&folder, lab.folder(9)).unwrap();
    fs::rename(&kept, &folder).unwrap();
    lab.restart(slot);
    wait("the old one learns that it was replaced", || lab.node(slot).stage() == Stage::Superseded);
    lab.kill(slot);
    let error = lab.try_restart(slot).unwrap_err();
    assert!(
        matches!(error, StartError::DataDir(DataDirError::Superseded { node, .. }) if node == old),
        "{error}"
    );
    assert!(error.to_string().contains("has been replaced"), "{error}");
    assert!(folder.join("node/log.redb").exists(), "nothing was thrown away");
    fs::remove_dir_all(&folder).unwrap();
    fs::rename(lab.folder(9), &folder).unwrap();
    lab.restart(slot);
    lab.wait_for_agreement();
}

#[test]
fn a_cluster_whose_data_is_lost_ends_and_another_one_begins() {
    let mut lab = Lab::with(3, Memory::Log);
    let first = lab.init(false).unwrap();
    let mut held = Held::default();
    let (leader, _) = lab.leader();
    lab.fill(&mut held, 10);
    let survivor = (leader + 1) % 3;
    lab.kill_all();
    for slot in (0..3).filter(|slot| *slot != survivor) {
        fs::remove_dir_all(lab.folder(slot)).unwrap();
    }
    lab.restart_all();
    wait("the survivor says that it is over", || lab.node(survivor).stage() == Stage::Over);
    assert!(matches!(lab.init(false), Err(InitError::Ended { .. })));
    let second = lab.init(true).unwrap();
    assert_ne!(first, second);
    lab.leader();
    lab.wait_for_agreement();
    let aside = lab.folder(survivor).join(format!("ended-{first}/log.redb"));
    assert!(aside.exists(), "what was left of the old one is kept");
    lab.kill_all();
    lab.restart_all();
    lab.leader();
    assert_eq!(lab.wait_for_agreement().identity, Some(second));
}

/// Some megabytes of batches, after which nothing is held that was not before.
fn write_much(lab: &Lab) {
    let (leader, office) = lab.leader();
    let node = lab.node(leader);
    let replica = node.cluster.replica().unwrap();
    let (mut seq, mut token) = (replica.place().batches, replica.table().last_token());
    let long = [b'k'; 200];
    for _ in 0..20 {
        let mut effects = Vec::new();
        for _ in 0..500 {
            token += 1;
            effects.push(grant(&long, token));
            effects.push(Effect::Release { key: &long, token });
        }
        seq += 1;
        if fate(&node.propose(office, seq, &effects)) != Fate::Applied {
            // The office was lost; another one is looked for.
            return;
        }
    }
}

fn has_snapshot(folder: &Path) -> bool {
    let mut files = fs::read_dir(folder.join("node")).unwrap().map(|file| file.unwrap().file_name());
    files.any(|name| name.to_str().unwrap().starts_with("snapshot-"))
}

#[test]
fn a_snapshot_stands_for_the_log_after_all_nodes_have_ended() {
    let mut lab = Lab::with(3, Memory::Log);
    lab.init(false).unwrap();
    let mut held = Held::default();
    lab.fill(&mut held, 50);
    lab.wait_for_agreement();
    let slot = (lab.leader().0 + 1) % 3;
    lab.kill(slot);
    eventually("the log is replaced by a snapshot", || {
        write_much(&lab);
        let (leader, _) = lab.leader();
        let is_short = lab.node(leader).status().log_bytes < 40 << 20;
        (has_snapshot(&lab.folder(leader)) && is_short).then_some(())
    });
    lab.restart(slot);
    lab.wait_for_agreement();
    assert!(has_snapshot(&lab.folder(slot)), "it was sent the snapshot, and has kept it");
    lab.kill_all();
    lab.restart_all();
    lab.leader();
    lab.wait_for_agreement();
    lab.up().for_each(|node| held.assert_is_held_by(node));
}

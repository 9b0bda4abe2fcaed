//! A disk that is full: the server ends and says why, and all that was acknowledged
//! is there when there is room again.

use std::path::Path;
use std::process::Command;

use ticketing_cluster::Stage;
use ticketing_engine::{Effect, Fate};

use crate::lab::{Node, fate, grant};

const FOLDER: &str = "TICKETING_TEST_FOLDER";

/// A server alone that writes until it cannot, and says what was applied.
#[test]
#[ignore = "it is run by another test, as a process of its own"]
fn the_server_whose_disk_is_full() {
    let folder = std::env::var(FOLDER).expect("it is run by another test");
    let node = Node::alone(Path::new(&folder)).unwrap();
    let office = node.in_office();
    let mut token = node.cluster.replica().unwrap().place().first_token;
    let long = [b'k'; 200];
    for seq in 1.. {
        let mut effects = Vec::new();
        for _ in 0..500 {
            effects.push(grant(&long, token));
            effects.push(Effect::Release { key: &long, token });
            token += 1;
        }
        let key = token.to_string();
        effects.push(grant(key.as_bytes(), token));
        if fate(&node.propose(office, seq, &effects)) != Fate::Applied {
            break;
        }
        println!("\ngranted {token}");
        token += 1;
    }
    node.runtime.as_ref().unwrap().block_on(node.cluster.ended());
    assert_eq!(node.stage(), Stage::Broken);
    println!("\nended");
}

#[test]
#[cfg(unix)]
fn nothing_that_was_acknowledged_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    // Files of this process may not become larger than a few megabytes; to try is an
    // error, as on a full disk.
    let limited = "trap '' XFSZ; ulimit -f 16000; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "full::the_server_whose_disk_is_full", "--ignored", "--nocapture"]);
    let output = command.env(FOLDER, folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("\nended"), "{said}");
    let granted = said.lines().filter_map(|line| line.strip_prefix("granted ")).collect::<Vec<_>>();
    assert!(granted.len() > 5, "{said}");
    let node = Node::alone(folder.path()).unwrap();
    node.in_office();
    let replica = node.cluster.replica().unwrap();
    for token in &granted {
        assert!(replica.table().get(token.as_bytes()).is_some(), "the grant of {token} is lost");
    }
    // The one that was under way may be there, or not.
    assert!(replica.table().held() <= granted.len() + 1);
}

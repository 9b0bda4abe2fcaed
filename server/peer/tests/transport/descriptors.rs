//! Without file descriptors: in a process of its own, as the limit is one for
//! all of it.
#![cfg(unix)]

use std::fs::File;
use std::process::Command;
use std::time::Duration;

use tokio::time::sleep;

use crate::logs::Logs;
use crate::node::*;
use crate::wire::Wire;

#[test]
fn e97_without_descriptors_those_who_are_connected_stay_and_others_come_later() {
    let test = std::env::current_exe().unwrap();
    let script = r#"ulimit -n 64 && exec "$0" --exact descriptors::starved --ignored --nocapture"#;
    let child = Command::new("sh").args(["-c", script]).arg(test).output().unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && text.contains("1 passed"), "{text}");
}

#[tokio::test]
#[ignore = "needs a low limit of open files, which the test above sets"]
async fn starved() {
    let logs = Logs::collect();
    let node = Node::start(config()).await;
    let peer = node.peer(config());
    echo(&peer, "before").await.unwrap();
    // A socket that waits to be connected has its descriptor already.
    let waiting = tokio::net::TcpSocket::new_v4().unwrap();
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    let mut wire = Wire(waiting.connect(node.at).await.unwrap());
    until("the shortage to be noticed", || !logs.with("no peer can connect").is_empty()).await;
    // The loop sleeps between its attempts, and says it once.
    sleep(Duration::from_millis(300)).await;
    assert_eq!(logs.with("no peer can connect").len(), 1);
    assert_eq!(echo(&peer, "meanwhile").await.unwrap(), "meanwhile");
    taken.clear();
    assert_eq!(wire.dial(SECRET, ONE, TWO, usize::MAX).await[0], 0);
    assert_eq!(logs.with("peers can connect again").len(), 1);
}

//! Nodes that forget everything but the identity that their place was in.

use std::fs;

use ticketing_cluster::{InitError, Stage};

use crate::lab::{Lab, Memory};

fn noted(lab: &Lab, slot: usize, name: &str) -> String {
    let marker = fs::read_to_string(lab.folder(slot).join("marker")).unwrap();
    marker.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
}

#[test]
fn a_second_identity_is_begun_on_purpose_only_and_above_the_first() {
    let mut lab = Lab::with(3, Memory::Marker);
    let first = lab.init(false).unwrap();
    lab.leader();
    lab.kill_all();
    lab.restart_all();
    assert!(lab.up().all(|node| node.stage() == Stage::Blank));
    let error = lab.init(false).unwrap_err();
    assert!(matches!(error, InitError::Used { .. }), "{error}");
    assert!(error.to_string().contains(&first), "{error}");
    let floor = (0..3).map(|slot| noted(&lab, slot, "token_floor").parse::<u64>().unwrap()).max().unwrap();
    let second = lab.init(true).unwrap();
    let (leader, _) = lab.leader();
    let first_token = lab.node(leader).cluster.replica().unwrap().place().first_token;
    assert!(first_token > floor, "{first_token}, {floor}");
    assert!((0..3).all(|slot| noted(&lab, slot, "identity") == second));
}

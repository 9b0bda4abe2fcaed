//! Signs of life: sent, expected, and missed.

use super::*;

/// Steps through time and counts the empty frames that go out.
fn keep_alives(rig: &mut Rig, secs: u64) -> Vec<u64> {
    let mut at = Vec::new();
    for step in 1..=secs * 10 {
        rig.now += 100 * MILLISECOND;
        rig.session.on_time(rig.now).unwrap();
        let bytes = rig.session.transmit(rig.now).to_vec();
        if !bytes.is_empty() {
            assert_eq!(bytes, b"\n");
            rig.session.wrote(1);
            at.push(step * 100);
        }
    }
    at
}

#[test]
fn an_idle_session_sends_one_every_15_seconds() {
    let mut rig = Rig::new(true);
    assert_eq!(keep_alives(&mut rig, 50), [15_000, 30_000, 45_000]);
}

#[test]
fn with_requests_pending_one_goes_out_every_2_seconds() {
    let mut rig = Rig::new(true);
    rig.acquire(1, 30);
    rig.write_all();
    assert_eq!(keep_alives(&mut rig, 5), [2000, 4000]);
    rig.hear(busy(1)).unwrap();
    assert_eq!(keep_alives(&mut rig, 20), [14_000]);
}

#[test]
fn records_count_as_pending_since_the_server_still_has_them() {
    let mut rig = Rig::new(false);
    rig.acquire(1, 30);
    rig.write_all();
    rig.session.give_up(1, KEY);
    assert_eq!(keep_alives(&mut rig, 5), [2000, 4000]);
}

#[test]
fn a_server_that_does_not_lead_owes_no_answer_to_a_release() {
    let moved = ServerFrame::Moved { address: "b:1" };
    for overdue in [false, true] {
        let mut rig = Rig::new(true);
        rig.session.read(rig.now, b"\n").unwrap();
        rig.release(1, 11);
        rig.verify(2, 22, START);
        rig.write_all();
        if overdue {
            rig.pass(5 * SEC).unwrap();
        }
        rig.hear(moved).unwrap();
        // It may be silent for as long as it likes, and then lead.
        rig.pass(3600 * SEC).unwrap();
        rig.acquire(3, 30);
        rig.write_all();
        rig.pass(6 * SEC - 1).unwrap();
        assert!(matches!(rig.pass(1), Err(Trouble::Silent)), "overdue: {overdue}");
    }
}

#[test]
fn other_traffic_takes_its_place() {
    let mut rig = Rig::new(true);
    rig.acquire(1, 255);
    rig.write_all();
    for id in 2..8 {
        assert_eq!(keep_alives(&mut rig, 1), [0; 0]);
        rig.release(id, id);
        rig.write_all();
    }
}

#[test]
fn the_next_deadline_is_never_behind_a_keep_alive_or_a_timer() {
    let mut rig = Rig::new(true);
    assert_eq!(rig.session.next_deadline(), START + 15 * SEC);
    rig.acquire(1, 1);
    assert_eq!(rig.session.next_deadline(), START + SEC);
    rig.write_all();
    assert_eq!(rig.session.next_deadline(), START + 2 * SEC);
    rig.session.write_blocked(rig.now);
    assert_eq!(rig.session.next_deadline(), START + 5 * SEC);
}

#[test]
fn silence_counts_only_where_the_server_has_sent_a_keep_alive() {
    let spoken: [(&[u8], bool); 6] = [
        (b"", false),
        (b"L\n", false),
        (b"L\nLa:1\n", false),
        (b"\n", true),
        (b"\nLa:1\n", true),
        (b"L\n\n", true),
    ];
    for (bytes, silent) in spoken {
        let mut rig = Rig::new(true);
        rig.session.read(rig.now, bytes).unwrap();
        rig.acquire(1, 30);
        rig.write_all();
        rig.pass(6 * SEC - 1).unwrap();
        assert_eq!(matches!(rig.pass(1), Err(Trouble::Silent)), silent, "{bytes:?}");
    }
}

#[test]
fn a_newline_inside_a_frame_is_no_keep_alive() {
    let mut rig = Rig::new(true);
    rig.acquire(10, 30);
    rig.write_all();
    // T with the owner 10 = 0x0a, cut just before that byte.
    let mut frame = Vec::new();
    timed_out(10).encode(&mut frame);
    rig.session.read(rig.now, &frame[..8]).unwrap();
    rig.session.read(rig.now, &frame[8..]).unwrap();
    assert_eq!(rig.told(), ["10 timed out"]);
    rig.acquire(1, 30);
    rig.write_all();
    rig.pass(7 * SEC).unwrap();
}

#[test]
fn silence_begins_when_there_is_something_to_answer() {
    let mut rig = Rig::new(true);
    rig.session.read(rig.now, b"\n").unwrap();
    // Nothing pending: silent for as long as it likes.
    rig.pass(3600 * SEC).unwrap();
    rig.acquire(1, 30);
    rig.write_all();
    rig.pass(5 * SEC).unwrap();
    // Any byte is a sign of life.
    rig.session.read(rig.now, b"\n").unwrap();
    rig.pass(6 * SEC - 1).unwrap();
    assert!(matches!(rig.pass(1), Err(Trouble::Silent)));
    rig.end();
    assert_eq!(rig.told(), [format!("1 lost sent {}", 3_600_000)]);
}

#[test]
fn a_request_that_waits_to_be_sent_makes_no_silence() {
    let mut rig = Rig::new(true);
    rig.session.read(rig.now, b"\n").unwrap();
    rig.acquire(1, 30);
    rig.pass(20 * SEC).unwrap();
}

#[test]
fn a_write_without_progress_ends_the_session() {
    let mut rig = Rig::new(false);
    rig.acquire(1, 30);
    rig.acquire(2, 30);
    rig.write(3);
    rig.session.write_blocked(rig.now);
    rig.pass(4 * SEC).unwrap();
    rig.session.write_blocked(rig.now);
    // One byte is progress.
    rig.write(1);
    rig.session.write_blocked(rig.now);
    rig.pass(5 * SEC - 1).unwrap();
    assert!(matches!(rig.pass(1), Err(Trouble::Stuck)));
    rig.end();
    assert_eq!(rig.told(), ["1 lost sent 0", "2 unsent"]);
}

#[test]
fn a_socket_with_nothing_to_take_is_not_stuck() {
    let mut rig = Rig::new(true);
    rig.acquire(1, 30);
    rig.session.write_blocked(rig.now);
    rig.session.give_up(1, KEY);
    assert!(rig.session.transmit(rig.now).is_empty());
    rig.session.write_idle();
    rig.pass(10 * SEC).unwrap();
}

//! What binds an answer to a request, and what ends a session.

use super::*;

#[test]
fn an_answer_that_is_bound_to_nothing_is_fatal() {
    let other = Key::new("seat:13").unwrap();
    let wrong: [ServerFrame<'_>; 10] = [
        granted_until(2, 7, 1),
        granted(2, 7),
        ServerFrame::Granted { token: 7, owner: 1, key: other },
        ServerFrame::TimedOut { owner: 1, key: other },
        busy(44),
        timed_out(2),
        released(1),
        not_held(45),
        ServerFrame::Released { token: 44, key: other },
        ServerFrame::Place { owner: 1, place: 1, waiters: 1, key: key() },
    ];
    for frame in wrong {
        let mut rig = Rig::new(true);
        rig.acquire(1, 30);
        rig.release(4, 44);
        rig.write_all();
        assert!(matches!(rig.hear(frame), Err(Trouble::Unbound(_))), "{frame:?}");
        rig.end();
        assert_eq!(rig.told(), ["1 lost sent 0", "4 lost sent 0"], "{frame:?}");
    }
}

#[test]
fn an_answer_to_what_was_not_sent_is_fatal() {
    let mut rig = Rig::new(true);
    rig.acquire(1, 30);
    assert!(matches!(rig.hear(granted_until(1, 7, 1)), Err(Trouble::Unbound(_))));
    rig.end();
    assert_eq!(rig.told(), ["1 unsent"]);
}

#[test]
fn frames_before_a_fatal_one_count_and_frames_behind_it_do_not() {
    let fatal: [&[u8]; 7] = [
        b"Eoverloaded\n",
        b"Esomething_new\n",
        b"E\n",
        b"Zwhat\n",
        b"T12345678two words\n",
        b"M\xff\n",
        &[b'L'; 193],
    ];
    for frame in fatal {
        let mut rig = Rig::new(true);
        rig.acquire(1, 30);
        rig.acquire(2, 30);
        rig.write_all();
        let mut bytes = Vec::new();
        granted_until(1, 7, 1000).encode(&mut bytes);
        bytes.extend_from_slice(frame);
        granted_until(2, 8, 1000).encode(&mut bytes);
        let outcome = rig.session.read(rig.now, &bytes);
        assert!(outcome.is_err(), "{}", String::from_utf8_lossy(frame));
        rig.end();
        assert_eq!(rig.told(), ["1 granted 7 ends 995", "2 lost sent 0"]);
    }
}

#[test]
fn the_reason_of_an_error_frame_is_kept() {
    let mut rig = Rig::new(true);
    let outcome = rig.hear(ServerFrame::Error { reason: "shutting_down" });
    assert!(matches!(outcome, Err(Trouble::Refused(reason)) if &*reason == "shutting_down"));
    let outcome = Rig::new(true).hear(ServerFrame::Error { reason: "auth_failed" });
    assert!(matches!(outcome, Err(Trouble::AuthFailed)));
}

#[test]
fn without_the_extension_its_frames_are_unknown() {
    for frame in [granted_until(1, 7, 1), ServerFrame::Place { owner: 1, place: 1, waiters: 1, key: key() }] {
        let mut rig = Rig::new(false);
        rig.acquire(1, 30);
        rig.write_all();
        assert!(matches!(rig.hear(frame), Err(Trouble::Malformed(_))));
    }
}

#[test]
fn releases_of_one_lock_are_answered_in_their_order() {
    let mut rig = Rig::new(true);
    for id in 1..=4 {
        rig.release(id, 9);
    }
    rig.write_all();
    rig.hear(released(9)).unwrap();
    for _ in 0..3 {
        rig.hear(not_held(9)).unwrap();
    }
    assert_eq!(rig.told(), ["1 released", "2 not held", "3 not held", "4 not held"]);
    assert!(matches!(rig.hear(not_held(9)), Err(Trouble::Unbound(_))));
}

#[test]
fn one_token_with_two_keys_is_two_requests() {
    let mut rig = Rig::new(true);
    rig.release(1, 9);
    let request = Request { key: "other".into(), kind: Kind::Release { token: 9 }, until: START + 5 * SEC };
    rig.session.submit(rig.now, request, rig.recorder(2));
    rig.write_all();
    rig.hear(ServerFrame::NotHeld { token: 9, key: Key::new("other").unwrap() }).unwrap();
    rig.hear(released(9)).unwrap();
    assert_eq!(rig.told(), ["2 not held", "1 released"]);
}

#[test]
fn a_node_that_does_not_lead_sends_releases_elsewhere() {
    let mut rig = Rig::new(true);
    rig.release(1, 9);
    rig.verify(2, 77, START);
    rig.acquire(3, 30);
    rig.write_all();
    // Behind a B it concerns that acquire only.
    rig.hear(busy(3)).unwrap();
    rig.hear(ServerFrame::Moved { address: "b:1" }).unwrap();
    assert_eq!(rig.told(), ["3 busy"]);
    assert_eq!(rig.session.take_word(), Some(Word::Moved("b:1".into())));
    rig.hear(ServerFrame::Moved { address: "c:1" }).unwrap();
    assert_eq!(rig.told(), ["1 moved sent 0", "2 moved sent 0"]);
    assert_eq!(rig.session.take_word(), Some(Word::Moved("c:1".into())));
    assert_eq!(rig.session.take_word(), None);
    // Asked again here, the answer goes to whoever still waits for one.
    rig.release(4, 9);
    rig.write_all();
    rig.hear(released(9)).unwrap();
    assert_eq!(rig.told(), ["4 released"]);
    // And the record of the first one keeps its answer bound.
    rig.hear(not_held(9)).unwrap();
    assert_eq!(rig.told(), ["1 not held"]);
}

#[test]
fn a_notice_about_the_leader_touches_no_request() {
    let mut rig = Rig::new(true);
    rig.release(1, 9);
    rig.acquire(2, 30);
    rig.write_all();
    rig.hear(ServerFrame::Leader { address: "b:1" }).unwrap();
    assert_eq!(rig.told(), [""; 0]);
    assert_eq!(rig.session.take_word(), Some(Word::Leader("b:1".into())));
}

#[test]
fn what_is_not_sent_is_given_back_and_what_is_stays() {
    let mut rig = Rig::new(true);
    rig.acquire(1, 30);
    rig.write(5);
    rig.acquire(2, 30);
    rig.release(3, 9);
    rig.session.give_back_unsent();
    assert_eq!(rig.told(), ["2 unsent", "3 unsent"]);
    assert_eq!(rig.write_all(), ["A 1 wait 30 lease 10"]);
    rig.hear(granted_until(1, 7, 1000)).unwrap();
    assert_eq!(rig.told(), ["1 granted 7 ends 995"]);
}

#[test]
fn a_verify_ends_by_the_lease_of_its_acquire() {
    let mut rig = Rig::new(true);
    rig.now += 5 * SEC;
    rig.verify(1, 77, START + SEC);
    rig.verify(2, 78, START + SEC);
    assert_eq!(rig.write_all(), ["V 77", "V 78"]);
    rig.hear(granted_until(77, 7, 0)).unwrap();
    rig.hear(busy(78)).unwrap();
    assert_eq!(rig.told(), ["1 granted 7 ends 10950", "2 busy"]);
}

#[test]
fn a_verify_is_not_answered_by_a_wait_that_ran_out() {
    let mut rig = Rig::new(true);
    rig.verify(1, 77, START);
    rig.write_all();
    assert!(matches!(rig.hear(timed_out(77)), Err(Trouble::Unbound(_))));
}

#[test]
fn a_verify_never_meets_its_acquire() {
    let mut rig = Rig::new(true);
    rig.acquire(77, 1);
    rig.write_all();
    rig.verify(1, 77, START);
    assert_eq!(rig.told(), ["1 unsent"]);
    // Nor the record of it.
    rig.pass(6 * SEC).unwrap();
    assert_eq!(rig.told(), ["77 overdue sent 0"]);
    rig.verify(2, 77, START);
    assert_eq!(rig.told(), ["2 unsent"]);
    rig.hear(timed_out(77)).unwrap();
    rig.verify(3, 77, START);
    assert_eq!(rig.told(), ["77 timed out"]);
    assert!(rig.write_all().contains(&"V 77".to_owned()));
}

#[test]
fn a_request_that_is_late_already_is_not_taken() {
    let mut rig = Rig::new(true);
    rig.submit(1, Kind::Release { token: 9 }, rig.now);
    assert_eq!(rig.told(), ["1 unsent"]);
    assert_eq!(rig.write_all(), [""; 0]);
}

//! How each request ends when nothing is lost: by its answer, its deadline or
//! its caller.

use super::*;

#[test]
fn a_grant_ends_a_margin_before_its_lease_counted_from_before_the_hand_over() {
    let mut rig = Rig::new(true);
    for owner in 1..=3 {
        rig.acquire(owner, 30);
    }
    rig.now += 250 * MILLISECOND;
    rig.write_all();
    rig.now += 20 * SEC;
    // By G: 0.995 of the time that the server counted, from the hand-over.
    rig.hear(granted_until(1, 71, 30_000)).unwrap();
    // By A, and where the end is not known: 0.995 of the lease.
    rig.hear(granted(2, 72)).unwrap();
    rig.hear(granted_until(3, 73, 0)).unwrap();
    assert_eq!(rig.told(), ["1 granted 71 ends 30100", "2 granted 72 ends 10200", "3 granted 73 ends 10200"]);
}

#[test]
fn the_hand_over_is_stamped_before_the_write_and_not_after() {
    let mut rig = Rig::new(false);
    rig.acquire(1, 30);
    let bytes = rig.session.transmit(START).len();
    // The write itself took a second.
    rig.now += SEC;
    rig.session.wrote(bytes);
    rig.hear(granted(1, 7)).unwrap();
    assert_eq!(rig.told(), ["1 granted 7 ends 9950"]);
}

#[test]
fn every_answer_ends_its_request_once() {
    let mut rig = Rig::new(true);
    rig.acquire(1, 30);
    rig.acquire(2, 0);
    rig.acquire(3, 30);
    rig.release(4, 44);
    rig.release(5, 55);
    rig.submit(6, Kind::Place { owner: 1 }, START + 5 * SEC);
    let sent = rig.write_all();
    assert_eq!(
        sent,
        ["A 1 wait 30 lease 10", "A 2 wait 0 lease 10", "A 3 wait 30 lease 10", "R 44", "R 55", "P 1"]
    );
    // Answers may come in any order.
    rig.hear(not_held(55)).unwrap();
    rig.hear(ServerFrame::Place { owner: 1, place: 2, waiters: 9, key: key() }).unwrap();
    rig.hear(busy(3)).unwrap();
    rig.hear(timed_out(2)).unwrap();
    rig.hear(released(44)).unwrap();
    rig.hear(granted_until(1, 9, 1)).unwrap();
    rig.end();
    assert_eq!(
        rig.told(),
        ["5 not held", "6 place 2/9", "3 busy", "2 timed out", "4 released", "1 granted 9 ends 0"]
    );
}

#[test]
fn an_acquire_that_cannot_be_sent_ends_at_its_own_deadline() {
    let mut rig = Rig::new(true);
    rig.acquire(1, 2);
    rig.acquire(2, 0);
    rig.release(3, 33);
    rig.session.write_blocked(rig.now);
    rig.pass(SEC - 1).unwrap();
    assert_eq!(rig.told(), [""; 0]);
    rig.pass(1).unwrap();
    assert_eq!(rig.told(), ["2 unsent"]);
    rig.pass(SEC).unwrap();
    assert_eq!(rig.told(), ["1 unsent"]);
    // What is over is not sent any more.
    assert_eq!(rig.write_all(), ["R 33"]);
}

#[test]
fn an_acquire_without_an_answer_is_lost_five_seconds_after_its_wait() {
    for (wait, lost_after) in [(0, 5), (30, 35), (255, 260)] {
        let mut rig = Rig::new(true);
        rig.acquire(1, wait);
        rig.write_all();
        rig.pass(lost_after * SEC - 1).unwrap();
        assert_eq!(rig.told(), [""; 0]);
        rig.pass(1).unwrap();
        assert_eq!(rig.told(), ["1 overdue sent 0"]);
        // Its record keeps the late answer bound: the core must release that grant.
        rig.hear(granted_until(1, 7, 1000)).unwrap();
        assert_eq!(rig.told(), ["1 granted 7 ends 995"]);
        assert!(matches!(rig.hear(granted_until(1, 7, 1000)), Err(Trouble::Unbound(_))));
    }
}

#[test]
fn a_release_has_five_seconds_from_its_request_wherever_it_stands() {
    let mut rig = Rig::new(false);
    rig.release(1, 11);
    rig.release(2, 22);
    rig.pass(3 * SEC).unwrap();
    rig.write(17); // The first one only.
    rig.pass(2 * SEC - 1).unwrap();
    assert_eq!(rig.told(), [""; 0]);
    rig.pass(1).unwrap();
    assert_eq!(rig.told(), ["1 overdue sent 3000", "2 unsent"]);
}

#[test]
fn the_wait_on_the_wire_is_what_is_left_rounded_up() {
    for (late_ms, expected) in [(0, 30), (1, 30), (999, 30), (1000, 29), (1001, 29), (29_900, 1)] {
        let mut rig = Rig::new(false);
        rig.acquire(1, 30);
        rig.now += late_ms * MILLISECOND;
        assert_eq!(rig.write_all(), [format!("A 1 wait {expected} lease 10")], "{late_ms} ms late");
    }
}

#[test]
fn a_wait_that_is_longer_on_the_wire_is_cut_at_the_callers_deadline() {
    let mut rig = Rig::new(true);
    rig.acquire(1, 3);
    rig.acquire(2, 3);
    rig.now += 1500 * MILLISECOND;
    assert_eq!(rig.write_all(), ["A 1 wait 2 lease 10", "A 2 wait 2 lease 10"]);
    rig.pass(1500 * MILLISECOND - 1).unwrap();
    assert_eq!(rig.write_all(), [""; 0]);
    rig.pass(1).unwrap();
    assert_eq!(rig.write_all(), ["C 1", "C 2"]);
    // Out of the queue: its wait has run out.
    rig.hear(busy(1)).unwrap();
    // Granted before the cancel came: welcome all the same.
    rig.hear(granted_until(2, 8, 10_000)).unwrap();
    assert_eq!(rig.told(), ["1 timed out", "2 granted 8 ends 11450"]);
}

#[test]
fn no_cut_for_less_than_100_ms_nor_without_the_extension() {
    for (extension, late_ms) in [(true, 0), (true, 50), (false, 500)] {
        let mut rig = Rig::new(extension);
        rig.acquire(1, 3);
        rig.now += late_ms * MILLISECOND;
        rig.write_all();
        rig.pass(3 * SEC - late_ms * MILLISECOND).unwrap();
        assert_eq!(rig.write_all(), [""; 0], "{extension} {late_ms}");
        // After a cut that was not made, B means busy.
        rig.hear(busy(1)).unwrap();
        assert_eq!(rig.told(), ["1 busy"]);
    }
}

#[test]
fn a_cut_without_an_answer_is_lost_as_any_other() {
    let mut rig = Rig::new(true);
    rig.acquire(1, 1);
    rig.now += 500 * MILLISECOND;
    rig.write_all();
    rig.pass(500 * MILLISECOND).unwrap();
    assert_eq!(rig.write_all(), ["C 1"]);
    rig.pass(5500 * MILLISECOND - 1).unwrap();
    assert_eq!(rig.told(), [""; 0]);
    rig.pass(1).unwrap();
    assert_eq!(rig.told(), ["1 overdue sent 500"]);
}

#[test]
fn given_up_before_the_first_byte_nothing_is_sent() {
    let mut rig = Rig::new(true);
    rig.acquire(1, 30);
    rig.acquire(2, 30);
    // Encoded, offered, and not taken.
    assert!(!rig.session.transmit(rig.now).is_empty());
    rig.session.write_blocked(rig.now);
    rig.session.give_up(1, KEY);
    assert_eq!(rig.write_all(), ["A 2 wait 30 lease 10"]);
    rig.end();
    assert_eq!(rig.told(), ["2 lost sent 0"]);
}

#[test]
fn given_up_after_the_first_byte_the_waiter_leaves_the_queue() {
    for taken in 1..=18 {
        let mut rig = Rig::new(true);
        rig.acquire(1, 30);
        rig.write(taken);
        rig.session.give_up(1, KEY);
        let last = rig.write_all().pop();
        assert_eq!(last.as_deref(), Some("C 1"), "{taken} bytes taken");
        assert_eq!(rig.told(), [""; 0]);
        rig.hear(busy(1)).unwrap();
        assert!(matches!(rig.hear(busy(1)), Err(Trouble::Unbound(_))));
    }
}

#[test]
fn given_up_without_the_extension_the_record_waits_for_the_grant() {
    let mut rig = Rig::new(false);
    rig.acquire(1, 30);
    rig.acquire(2, 30);
    rig.write_all();
    rig.session.give_up(1, KEY);
    assert_eq!(rig.write_all(), [""; 0]);
    // It has no deadline any more, and the other one is not disturbed.
    rig.hear(granted(2, 8)).unwrap();
    rig.pass(100 * SEC).unwrap();
    rig.hear(granted(1, 9)).unwrap();
    assert_eq!(rig.told(), ["2 granted 8 ends 9950", "1 granted 9 ends 9950"]);
}

#[test]
fn giving_up_what_is_not_there_is_harmless() {
    let mut rig = Rig::new(true);
    rig.acquire(1, 30);
    rig.session.give_up(2, KEY);
    rig.session.give_up(1, "another");
    rig.write_all();
    rig.hear(granted_until(1, 7, 1000)).unwrap();
    rig.session.give_up(1, KEY);
    assert_eq!(rig.write_all(), [""; 0]);
    assert_eq!(rig.told(), ["1 granted 7 ends 995"]);
}

#[test]
fn many_that_were_given_up_unsent_leave_nothing_behind() {
    let mut rig = Rig::new(true);
    rig.session.write_blocked(rig.now);
    for owner in 0..10_000 {
        rig.acquire(owner, 30);
        rig.session.give_up(owner, KEY);
        assert!(rig.session.book.outbox.entries().count() <= 200);
    }
    rig.acquire(10_000, 30);
    assert_eq!(rig.write_all(), ["A 10000 wait 30 lease 10"]);
    assert_eq!(rig.told(), [""; 0]);
}

#[test]
fn closing_ends_what_waits_and_lets_releases_through() {
    let mut rig = Rig::new(true);
    rig.acquire(1, 30);
    rig.release(2, 22);
    rig.write_all();
    rig.acquire(3, 30);
    rig.release(4, 44);
    rig.verify(5, 77, START);
    rig.session.wind_down();
    assert_eq!(rig.told(), ["3 unsent", "5 unsent"]);
    assert_eq!(rig.write_all(), ["R 44", "C 1"]);
    rig.hear(busy(1)).unwrap();
    rig.hear(released(22)).unwrap();
    rig.hear(released(44)).unwrap();
    assert_eq!(rig.told(), ["1 busy", "2 released", "4 released"]);
    // What was on its way to the session when it was told.
    rig.acquire(6, 30);
    rig.release(7, 77);
    assert_eq!((rig.told(), rig.write_all()), (vec!["6 unsent".to_owned()], vec!["R 77".to_owned()]));
}

#[test]
fn a_wait_on_the_wire_is_never_longer_than_was_asked_for() {
    let mut rig = Rig::new(true);
    // The session read its clock a little before the acquire began.
    let kind = Kind::Acquire { owner: 1, wait_secs: 20, lease_secs: 10 };
    rig.submit(1, kind, rig.now + 20 * SEC + MILLISECOND);
    let wait = rig.session.transmit(START)[1];
    assert_eq!(wait, 20);
}

//! Connections that end before their answer, and clients that ask what became of it.

use ticketing_engine::{Input, SECOND};

use super::{OTHER, one_holds_and_three_wait};
use crate::machine::Machine;
use crate::scene::{K, NOTHING, Scene, roomy};

stories![
    a_grant_in_flight_of_a_closed_connection_goes_on_to_the_next,
    a_grant_that_committed_but_was_not_said_goes_on_to_the_next,
    a_grant_that_a_verify_was_told_of_stays_when_its_connection_closes,
    a_grant_that_a_verify_was_told_of_stays_when_it_was_not_delivered,
    a_grant_that_was_not_delivered_is_given_back_only_by_its_own_token,
    a_tombstone_refuses_late_acquires_for_ten_minutes_from_its_commit,
    a_second_verify_needs_no_second_tombstone,
    without_room_for_a_tombstone_the_connection_is_closed,
    no_connection_takes_all_tombstones,
    a_verify_takes_the_owner_out_of_the_queue_everywhere,
];

fn a_grant_in_flight_of_a_closed_connection_goes_on_to_the_next<M: Machine>() {
    let mut scene = Scene::<M>::new(&roomy());
    scene.acquire(1, K, 1, 0);
    scene.acquire(2, K, 2, 30);
    scene.acquire(1, OTHER, 3, 0);
    scene.seal();
    scene.close(1);
    assert_eq!(scene.seal(), NOTHING);
    scene.commit();
    assert_eq!(scene.seal(), "release k 1 and grant 3 to 2 for 10 s; release other 2");
    assert_eq!(scene.said(), NOTHING);
    scene.commit();
    assert_eq!(scene.said(), "c2: granted k to 2 under 3 for 10000 ms");
}

fn a_grant_that_committed_but_was_not_said_goes_on_to_the_next<M: Machine>() {
    let mut scene = Scene::<M>::new(&roomy());
    scene.acquire(1, K, 1, 0);
    scene.acquire(2, K, 2, 30);
    scene.seal();
    scene.commit();
    scene.close(1);
    assert_eq!(scene.seal(), "release k 1 and grant 2 to 2 for 10 s");
    scene.commit();
    assert_eq!(scene.said(), "c2: granted k to 2 under 2 for 10000 ms");
}

/// A client that lost its connection finds out by a verify on another one. The
/// server may notice the loss before the verify or after.
fn a_grant_that_a_verify_was_told_of_stays_when_its_connection_closes<M: Machine>() {
    for closed_first in [true, false] {
        let mut scene = Scene::<M>::new(&roomy());
        scene.acquire(1, K, 1, 0);
        scene.acquire(2, K, 2, 30);
        scene.seal();
        if closed_first {
            scene.close(1);
            scene.verify(9, K, 1);
        } else {
            scene.verify(9, K, 1);
            scene.close(1);
        }
        assert_eq!(scene.seal(), "barrier");
        scene.commit();
        assert_eq!(scene.said(), "c9: verified k of 1 under 1");
        assert_eq!(scene.seal(), NOTHING, "the lock stays");
        scene.release(9, K, 1);
        assert_eq!(scene.settle(), "c9: released k 1; c2: granted k to 2 under 2 for 10000 ms");
    }
}

fn a_grant_that_a_verify_was_told_of_stays_when_it_was_not_delivered<M: Machine>() {
    let mut scene = Scene::<M>::new(&roomy());
    scene.acquire(1, K, 1, 0);
    scene.settle();
    scene.verify(9, K, 1);
    scene.close(1);
    scene.handle(Input::Undelivered { token: 1, key: K });
    assert_eq!(scene.seal(), "barrier");
    scene.commit();
    assert_eq!(scene.said(), "c9: verified k of 1 under 1");
    scene.handle(Input::Undelivered { token: 1, key: K });
    assert_eq!(scene.seal(), NOTHING);
}

fn a_grant_that_was_not_delivered_is_given_back_only_by_its_own_token<M: Machine>() {
    let mut scene = one_holds_and_three_wait::<M>();
    scene.handle(Input::Undelivered { token: 1, key: K });
    assert_eq!(scene.seal(), "release k 1 and grant 2 to 2 for 10 s");
    for (token, key) in [(1, K), (3, K), (2, OTHER)] {
        scene.handle(Input::Undelivered { token, key });
    }
    assert_eq!(scene.seal(), NOTHING);
}

fn a_tombstone_refuses_late_acquires_for_ten_minutes_from_its_commit<M: Machine>() {
    let mut scene = Scene::<M>::new(&roomy());
    scene.verify(9, K, 1);
    assert_eq!(scene.seal(), "bury 1 for k");
    scene.acquire(1, K, 1, 30);
    assert_eq!(scene.said(), "c1: busy k for 1", "it stands before it has committed");
    scene.pass(1_000 * SECOND);
    scene.commit();
    assert_eq!(scene.said(), "c9: verified that k never is of 1");
    scene.acquire(2, K, 2, 0);
    scene.acquire(2, OTHER, 1, 0);
    scene.acquire(2, K, 1, 0);
    assert_eq!(
        scene.settle(),
        "c2: granted k to 2 under 1 for 10000 ms; c2: granted other to 1 under 2 for 10000 ms; \
         c2: busy k for 1"
    );
    scene.pass(600 * SECOND - 1);
    scene.tick();
    assert_eq!(scene.seal(), "expire k 1; expire other 2");
    scene.acquire(2, K, 1, 0);
    assert_eq!(scene.settle(), "c2: busy k for 1");
    scene.pass(1);
    scene.tick();
    assert_eq!(scene.seal(), "forget 1 for k");
    scene.acquire(2, K, 1, 0);
    assert_eq!(scene.settle(), "c2: granted k to 1 under 3 for 10000 ms");
}

fn a_second_verify_needs_no_second_tombstone<M: Machine>() {
    let mut scene = Scene::<M>::new(&roomy());
    scene.verify(9, K, 1);
    scene.settle();
    scene.pass(300 * SECOND);
    scene.verify(8, K, 1);
    assert_eq!(scene.seal(), "barrier");
    scene.commit();
    assert_eq!(scene.said(), "c8: verified that k never is of 1");
    scene.pass(300 * SECOND);
    scene.tick();
    assert_eq!(scene.seal(), "forget 1 for k");
}

fn without_room_for_a_tombstone_the_connection_is_closed<M: Machine>() {
    let mut config = roomy();
    config.limits.tombstones = 1;
    let mut scene = Scene::<M>::new(&config);
    scene.acquire(1, K, 1, 0);
    scene.acquire(2, K, 2, 30);
    scene.settle();
    scene.verify(9, OTHER, 7);
    scene.verify(9, K, 2);
    scene.verify(9, OTHER, 7);
    assert_eq!(scene.seal(), "bury 7 for other");
    assert_eq!(scene.said(), "c2: busy k for 2; c9: close, overloaded");
    scene.commit();
    assert_eq!(scene.said(), "c9: verified that other never is of 7; c9: verified that other never is of 7");
}

/// A flood of verifies costs its own connection, and the next ones get less and less.
fn no_connection_takes_all_tombstones<M: Machine>() {
    let mut config = roomy();
    config.limits.tombstones = 64;
    let mut scene = Scene::<M>::new(&config);
    let mut owner = 0;
    // A quarter of all, of what is left then, and so on.
    for (conn, share) in [(1, 16), (2, 12), (3, 9)] {
        for _ in 0..share {
            owner += 1;
            scene.verify(conn, K, owner);
            assert!(!scene.settle().contains("overloaded"), "the verify of {owner}");
        }
        owner += 1;
        scene.verify(conn, K, owner);
        assert_eq!(scene.said(), format!("c{conn}: close, overloaded"));
    }
    scene.verify(9, OTHER, 7);
    assert_eq!(scene.settle(), "c9: verified that other never is of 7");
    // Its share comes back with the tombstones.
    scene.pass(600 * SECOND);
    scene.tick();
    scene.settle();
    scene.verify(1, OTHER, 8);
    assert_eq!(scene.settle(), "c1: verified that other never is of 8");
}

fn a_verify_takes_the_owner_out_of_the_queue_everywhere<M: Machine>() {
    let mut scene = Scene::<M>::new(&roomy());
    scene.acquire(1, K, 1, 0);
    for (conn, owner) in [(2, 7), (3, 8), (4, 7), (2, 7)] {
        scene.acquire(conn, K, owner, 30);
    }
    scene.acquire(2, OTHER, 6, 0);
    scene.acquire(2, OTHER, 7, 30);
    scene.settle();
    scene.verify(9, K, 7);
    assert_eq!(scene.said(), "c2: busy k for 7; c4: busy k for 7; c2: busy k for 7");
    assert_eq!(scene.settle(), "c9: verified that k never is of 7");
    scene.release(1, K, 1);
    scene.release(2, OTHER, 2);
    assert_eq!(
        scene.settle(),
        "c1: released k 1; c3: granted k to 8 under 3 for 10000 ms; \
         c2: released other 2; c2: granted other to 7 under 4 for 10000 ms"
    );
}

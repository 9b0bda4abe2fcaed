//! Leases and waits, to the nanosecond.

use ticketing_engine::{Input, Request, SECOND};

use super::{LEASE, OTHER, THIRD, one_holds_and_three_wait};
use crate::machine::Machine;
use crate::scene::{K, NOTHING, Scene, roomy};

stories![
    a28_a_wait_that_is_over_is_not_granted_in_the_same_instant,
    a28_a_wait_that_is_not_over_is_granted_and_never_times_out,
    a29_a_release_that_comes_before_the_expiry_wins,
    a29_an_expiry_that_comes_before_the_release_wins,
    a_lease_starts_when_its_grant_commits,
    a_lease_that_was_released_before_its_grant_committed_never_starts,
    a_wait_is_counted_from_the_arrival_of_the_frame,
    waiters_whose_wait_is_over_are_passed_over,
    a_tick_does_a_bounded_number_of_things,
    the_next_deadline_is_the_earliest_of_all,
];

/// The holder's lease outlasts the wait.
fn one_waits_for_five_seconds<M: Machine>() -> Scene<M> {
    let mut scene = Scene::<M>::new(&roomy());
    scene.acquire(1, K, 1, 0);
    scene.acquire(2, K, 2, 5);
    scene.settle();
    scene
}

fn a28_a_wait_that_is_over_is_not_granted_in_the_same_instant<M: Machine>() {
    for tick_first in [true, false] {
        let mut scene = one_waits_for_five_seconds::<M>();
        scene.pass(5 * SECOND);
        if tick_first {
            scene.tick();
        }
        scene.release(1, K, 1);
        scene.tick();
        assert_eq!(scene.seal(), "release k 1");
        assert_eq!(scene.said(), "c2: timed out k for 2");
        scene.commit();
        assert_eq!(scene.said(), "c1: released k 1");
        assert_eq!(scene.next_deadline(), None, "nothing is left of the waiter");
    }
}

fn a28_a_wait_that_is_not_over_is_granted_and_never_times_out<M: Machine>() {
    let mut scene = one_waits_for_five_seconds::<M>();
    scene.pass(5 * SECOND - 1);
    scene.tick();
    scene.release(1, K, 1);
    assert_eq!(scene.seal(), "release k 1 and grant 2 to 2 for 10 s");
    scene.pass(1);
    scene.tick();
    scene.ask(2, Request::Cancel { owner: 2, key: K });
    assert_eq!(scene.said(), NOTHING);
    scene.commit();
    assert_eq!(scene.said(), "c1: released k 1; c2: granted k to 2 under 2 for 14999 ms");
}

fn a29_a_release_that_comes_before_the_expiry_wins<M: Machine>() {
    let mut scene = one_holds_and_three_wait::<M>();
    scene.pass(LEASE);
    scene.release(1, K, 1);
    scene.tick();
    assert_eq!(scene.seal(), "release k 1 and grant 2 to 2 for 10 s");
    scene.commit();
    assert_eq!(scene.said(), "c1: released k 1; c2: granted k to 2 under 2 for 20000 ms");
}

fn a29_an_expiry_that_comes_before_the_release_wins<M: Machine>() {
    let mut scene = one_holds_and_three_wait::<M>();
    scene.pass(LEASE);
    scene.tick();
    scene.release(1, K, 1);
    assert_eq!(scene.seal(), "expire k 1 and grant 2 to 2 for 10 s");
    scene.commit();
    assert_eq!(scene.said(), "c2: granted k to 2 under 2 for 20000 ms; c1: not held k 1");
}

fn a_lease_starts_when_its_grant_commits<M: Machine>() {
    let mut scene = Scene::<M>::new(&roomy());
    scene.acquire(1, K, 1, 0);
    scene.seal();
    scene.pass(100 * SECOND);
    scene.tick();
    assert_eq!((scene.seal().as_str(), scene.next_deadline()), (NOTHING, None));
    scene.commit();
    assert_eq!(scene.said(), "c1: granted k to 1 under 1 for 10000 ms");
    let over = scene.now + LEASE;
    assert_eq!(scene.next_deadline(), Some(over));
    scene.now = over - 1;
    scene.tick();
    assert_eq!(scene.seal(), NOTHING);
    scene.now = over;
    scene.tick();
    assert_eq!(scene.seal(), "expire k 1");
    assert_eq!(scene.next_deadline(), None);
}

fn a_lease_that_was_released_before_its_grant_committed_never_starts<M: Machine>() {
    let mut scene = Scene::<M>::new(&roomy());
    scene.acquire(1, K, 1, 0);
    scene.release(1, K, 1);
    scene.acquire(2, K, 2, 0);
    scene.release(2, K, 2);
    assert_eq!(scene.seal(), "grant k 1 to 1 for 10 s; release k 1; grant k 2 to 2 for 10 s; release k 2");
    scene.commit();
    assert_eq!(scene.next_deadline(), None);
}

fn a_wait_is_counted_from_the_arrival_of_the_frame<M: Machine>() {
    let mut scene = one_waits_for_five_seconds::<M>();
    let received = scene.now;
    scene.pass(3 * SECOND);
    for (owner, wait_secs) in [(3, 3), (4, 4)] {
        scene.ask(3, Request::Acquire { wait_secs, lease_secs: 1, owner, key: K, received });
    }
    assert_eq!(scene.said(), "c3: timed out k for 3", "its wait was over when it was looked at");
    scene.ask(3, Request::Acquire { wait_secs: 0, lease_secs: 1, owner: 5, key: OTHER, received });
    assert_eq!(scene.settle(), "c3: granted other to 5 under 2 for 4000 ms");
    assert_eq!(scene.next_deadline(), Some(received + 4 * SECOND));
}

fn waiters_whose_wait_is_over_are_passed_over<M: Machine>() {
    let mut scene = Scene::<M>::new(&roomy());
    scene.acquire(1, K, 1, 0);
    for (id, wait_secs) in [(2, 3), (3, 5), (4, 20), (5, 3)] {
        scene.acquire(id, K, id, wait_secs);
    }
    scene.settle();
    scene.pass(6 * SECOND);
    scene.release(1, K, 1);
    assert_eq!(scene.seal(), "release k 1 and grant 2 to 4 for 10 s");
    scene.commit();
    assert_eq!(
        scene.said(),
        "c1: released k 1; c2: timed out k for 2; c3: timed out k for 3; c4: granted k to 4 under 2 for 16000 ms"
    );
    scene.tick();
    assert_eq!(scene.said(), "c5: timed out k for 5");
}

fn a_tick_does_a_bounded_number_of_things<M: Machine>() {
    let mut config = roomy();
    config.limits.timers_per_tick = 2;
    let mut scene = Scene::<M>::new(&config);
    for key in [K, OTHER, THIRD] {
        scene.acquire(1, key, 1, 0);
    }
    scene.settle();
    scene.pass(LEASE);
    scene.tick();
    assert_eq!(scene.seal(), "expire k 1; expire other 2");
    assert_eq!(scene.next_deadline(), Some(scene.now), "there is more to do");
    scene.tick();
    assert_eq!(scene.seal(), "expire third 3");
    assert_eq!(scene.next_deadline(), None);
}

fn the_next_deadline_is_the_earliest_of_all<M: Machine>() {
    let mut scene = Scene::<M>::new(&roomy());
    assert_eq!(scene.next_deadline(), None);
    let start = scene.now;
    scene.verify(1, K, 1);
    scene.settle();
    assert_eq!(scene.next_deadline(), Some(start + 600 * SECOND));
    scene.acquire(1, K, 2, 0);
    scene.settle();
    assert_eq!(scene.next_deadline(), Some(start + LEASE));
    scene.acquire(2, K, 3, 9);
    assert_eq!(scene.next_deadline(), Some(start + 9 * SECOND));
    scene.close(2);
    assert_eq!(scene.next_deadline(), Some(start + LEASE));
    scene.release(1, K, 1);
    assert_eq!(scene.next_deadline(), Some(start + 600 * SECOND));
    scene.handle(Input::Retire);
    assert_eq!(scene.next_deadline(), None);
}

//! What the rules mean where it hurts: same instants, lost connections, limits
//! just reached, the last token. Each story is told to the engine and to the model.

use ticketing_engine::{Config, Engine, Input, Request, SECOND};

use crate::machine::Machine;
use crate::model::{Key, Model};
use crate::scene::{K, LEASE_SECS, NOTHING, Scene, roomy};

const LEASE: u64 = LEASE_SECS as u64 * SECOND;
const OTHER: Key = b"other";
const THIRD: Key = b"third";

macro_rules! stories {
    ($($name:ident),* $(,)?) => {
        mod of_the_engine {
            $(#[test] fn $name() { super::$name::<super::Engine>(); })*
        }
        mod of_the_model {
            $(#[test] fn $name() { super::$name::<super::Model>(); })*
        }
    };
}

stories![
    a23_a_release_hands_the_key_to_the_head_and_nobody_barges_in,
    a25_of_many_releases_of_one_token_one_is_right,
    a26_a_stale_token_does_not_touch_the_next_holder,
    a27_equal_owners_are_two_waiters_with_two_tokens,
    a28_a_wait_that_is_over_is_not_granted_in_the_same_instant,
    a28_a_wait_that_is_not_over_is_granted_and_never_times_out,
    a29_a_release_that_comes_before_the_expiry_wins,
    a29_an_expiry_that_comes_before_the_release_wins,
    a31_who_releases_and_acquires_again_queues_behind,
    a32_what_is_said_at_once_does_not_overtake_an_earlier_answer_about_the_key,
    a32_a_wait_that_runs_out_does_not_wait_for_a_commit,
    a33_the_queue_of_a_key_is_bounded,
    a33_all_waiters_together_are_bounded,
    a33_held_locks_are_bounded,
    a33_acquires_of_a_connection_are_bounded,
    a33_waiters_of_one_owner_are_bounded,
    a_lease_starts_when_its_grant_commits,
    a_lease_that_was_released_before_its_grant_committed_never_starts,
    a_wait_is_counted_from_the_arrival_of_the_frame,
    waiters_whose_wait_is_over_are_passed_over,
    a_tick_does_a_bounded_number_of_things,
    the_next_deadline_is_the_earliest_of_all,
    the_last_token_is_given_once,
    without_tokens_a_release_refuses_the_queue,
    a_grant_in_flight_of_a_closed_connection_goes_on_to_the_next,
    a_grant_that_committed_but_was_not_said_goes_on_to_the_next,
    a_grant_that_a_verify_was_told_of_stays_when_its_connection_closes,
    a_grant_that_a_verify_was_told_of_stays_when_it_was_not_delivered,
    a_grant_that_was_not_delivered_is_given_back_only_by_its_own_token,
    a_tombstone_refuses_late_acquires_for_ten_minutes_from_its_commit,
    a_second_verify_needs_no_second_tombstone,
    without_room_for_a_tombstone_the_connection_is_closed,
    a_verify_takes_the_owner_out_of_the_queue_everywhere,
    a_cancel_takes_out_only_what_is_of_that_connection_owner_and_key,
    a_draining_server_refuses_who_waits_and_serves_the_rest,
    an_engine_out_of_office_decides_nothing,
    batches_in_flight_are_answered_when_their_fate_is_known,
];

fn one_holds_and_three_wait<M: Machine>() -> Scene<M> {
    let mut scene = Scene::<M>::new(&roomy());
    scene.acquire(1, K, 1, 0);
    for id in 2..=4 {
        scene.acquire(id, K, id, 30);
    }
    assert_eq!(scene.settle(), "c1: granted k to 1 under 1 for 10000 ms");
    scene
}

fn a23_a_release_hands_the_key_to_the_head_and_nobody_barges_in<M: Machine>() {
    let mut scene = one_holds_and_three_wait::<M>();
    scene.release(1, K, 1);
    scene.acquire(5, K, 5, 0);
    assert_eq!(scene.seal(), "release k 1 and grant 2 to 2 for 10 s");
    assert_eq!(scene.said(), "c5: timed out k for 5");
    scene.commit();
    assert_eq!(scene.said(), "c1: released k 1; c2: granted k to 2 under 2 for 10000 ms");
}

fn a25_of_many_releases_of_one_token_one_is_right<M: Machine>() {
    let mut scene = Scene::<M>::new(&roomy());
    scene.acquire(1, K, 1, 0);
    scene.settle();
    scene.release(2, K, 1);
    scene.release(1, K, 1);
    scene.seal();
    scene.release(2, K, 1);
    assert_eq!(scene.settle(), "c2: released k 1; c1: not held k 1; c2: not held k 1");
}

fn a26_a_stale_token_does_not_touch_the_next_holder<M: Machine>() {
    let mut scene = one_holds_and_three_wait::<M>();
    scene.pass(LEASE);
    scene.tick();
    assert_eq!(scene.settle(), "c2: granted k to 2 under 2 for 20000 ms");
    scene.release(1, K, 1);
    assert_eq!(scene.settle(), "c1: not held k 1");
    scene.release(2, K, 2);
    assert_eq!(scene.settle(), "c2: released k 2; c3: granted k to 3 under 3 for 20000 ms");
}

fn a27_equal_owners_are_two_waiters_with_two_tokens<M: Machine>() {
    let mut scene = Scene::<M>::new(&roomy());
    scene.acquire(1, K, 7, 0);
    scene.acquire(1, K, 7, 30);
    scene.acquire(2, K, 7, 30);
    scene.acquire(2, OTHER, 7, 30);
    assert_eq!(
        scene.settle(),
        "c1: granted k to 7 under 1 for 10000 ms; c2: granted other to 7 under 2 for 10000 ms"
    );
    scene.release(1, K, 1);
    assert_eq!(scene.settle(), "c1: released k 1; c1: granted k to 7 under 3 for 10000 ms");
    scene.release(1, K, 3);
    assert_eq!(scene.settle(), "c1: released k 3; c2: granted k to 7 under 4 for 10000 ms");
}

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

fn a31_who_releases_and_acquires_again_queues_behind<M: Machine>() {
    let mut scene = one_holds_and_three_wait::<M>();
    scene.release(1, K, 1);
    scene.acquire(1, K, 9, 30);
    assert_eq!(scene.settle(), "c1: released k 1; c2: granted k to 2 under 2 for 10000 ms");
    scene.ask(1, Request::Place { owner: 9, key: K });
    assert_eq!(scene.said(), "c1: place 3 of 3 in k for 9");
}

fn a32_what_is_said_at_once_does_not_overtake_an_earlier_answer_about_the_key<M: Machine>() {
    let mut scene = Scene::<M>::new(&roomy());
    scene.acquire(1, K, 1, 0);
    scene.ask(1, Request::Place { owner: 1, key: K });
    assert_eq!(scene.said(), NOTHING);
    scene.seal();
    scene.acquire(1, K, 2, 0);
    scene.ask(1, Request::Place { owner: 2, key: K });
    scene.ask(1, Request::Place { owner: 1, key: OTHER });
    scene.acquire(2, K, 3, 0);
    assert_eq!(scene.seal(), NOTHING);
    assert_eq!(scene.said(), "c1: place 0 of 0 in other for 1; c2: timed out k for 3");
    scene.commit();
    assert_eq!(
        scene.said(),
        "c1: granted k to 1 under 1 for 10000 ms; c1: place 0 of 0 in k for 1; \
         c1: timed out k for 2; c1: place 0 of 0 in k for 2"
    );
}

fn a32_a_wait_that_runs_out_does_not_wait_for_a_commit<M: Machine>() {
    let mut scene = Scene::<M>::new(&roomy());
    scene.acquire(1, K, 1, 0);
    scene.acquire(1, K, 2, 5);
    scene.seal();
    scene.pass(5 * SECOND);
    scene.tick();
    assert_eq!(scene.said(), "c1: timed out k for 2");
}

/// Whoever comes when it is full is refused, and a place that gets free can be taken at once.
fn a33_the_queue_of_a_key_is_bounded<M: Machine>() {
    let mut config = roomy();
    config.limits.waiters_per_key = 2;
    let mut scene = Scene::<M>::new(&config);
    for id in 1..=4 {
        scene.acquire(id, K, id, 30);
    }
    assert_eq!(scene.settle(), "c1: granted k to 1 under 1 for 10000 ms; c4: busy k for 4");
    scene.ask(2, Request::Cancel { owner: 2, key: K });
    scene.acquire(4, K, 4, 30);
    scene.acquire(5, K, 5, 30);
    assert_eq!(scene.said(), "c2: busy k for 2; c5: busy k for 5");
    scene.close(3);
    scene.acquire(5, K, 5, 30);
    assert_eq!(scene.said(), NOTHING);
    scene.ask(5, Request::Place { owner: 5, key: K });
    assert_eq!(scene.said(), "c5: place 2 of 2 in k for 5");
}

fn a33_all_waiters_together_are_bounded<M: Machine>() {
    let mut config = roomy();
    config.limits.waiters = 2;
    let mut scene = Scene::<M>::new(&config);
    for key in [K, OTHER, THIRD] {
        scene.acquire(1, key, 1, 30);
    }
    scene.settle();
    for (id, key) in [(2, K), (3, OTHER), (4, THIRD)] {
        scene.acquire(id, key, id, 30);
    }
    assert_eq!(scene.said(), "c4: busy third for 4");
    scene.release(1, K, 1);
    scene.acquire(4, THIRD, 4, 30);
    assert_eq!(scene.settle(), "c1: released k 1; c2: granted k to 2 under 4 for 10000 ms");
}

fn a33_held_locks_are_bounded<M: Machine>() {
    let mut config = roomy();
    config.limits.held = 1;
    let mut scene = Scene::<M>::new(&config);
    scene.acquire(1, K, 1, 0);
    scene.acquire(1, OTHER, 1, 30);
    scene.acquire(2, K, 2, 30);
    assert_eq!(scene.settle(), "c1: granted k to 1 under 1 for 10000 ms; c1: busy other for 1");
    scene.release(1, K, 1);
    scene.acquire(1, OTHER, 1, 30);
    scene.release(2, K, 2);
    scene.acquire(1, OTHER, 1, 30);
    assert_eq!(
        scene.settle(),
        "c1: released k 1; c2: granted k to 2 under 2 for 10000 ms; c1: busy other for 1; \
         c2: released k 2; c1: granted other to 1 under 3 for 10000 ms"
    );
}

fn a33_acquires_of_a_connection_are_bounded<M: Machine>() {
    let mut config = roomy();
    config.limits.in_flight_per_connection = 2;
    let mut scene = Scene::<M>::new(&config);
    scene.acquire(1, K, 1, 30);
    scene.acquire(1, K, 2, 30);
    scene.acquire(1, OTHER, 3, 30);
    scene.acquire(1, K, 4, 0);
    scene.acquire(2, OTHER, 5, 30);
    assert_eq!(
        scene.settle(),
        "c1: granted k to 1 under 1 for 10000 ms; c1: busy other for 3; c1: timed out k for 4; \
         c2: granted other to 5 under 2 for 10000 ms"
    );
    scene.acquire(1, THIRD, 6, 30);
    scene.acquire(1, K, 7, 30);
    assert_eq!(scene.settle(), "c1: granted third to 6 under 3 for 10000 ms; c1: busy k for 7");
}

fn a33_waiters_of_one_owner_are_bounded<M: Machine>() {
    let mut scene = Scene::<M>::new(&roomy());
    scene.acquire(1, K, 1, 0);
    scene.settle();
    for conn in 0..64 {
        scene.acquire(2 + conn % 2, K, 7, 30);
    }
    assert_eq!(scene.said(), NOTHING);
    scene.acquire(4, K, 7, 30);
    assert_eq!(scene.said(), "c4: busy k for 7");
    scene.acquire(4, K, 8, 30);
    scene.ask(4, Request::Place { owner: 8, key: K });
    assert_eq!(scene.said(), "c4: place 65 of 65 in k for 8");
    scene.release(1, K, 1);
    scene.acquire(4, K, 7, 30);
    assert_eq!(scene.settle(), "c1: released k 1; c2: granted k to 7 under 2 for 10000 ms");
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

fn the_last_token_is_given_once<M: Machine>() {
    let mut scene = Scene::<M>::new(&Config { next_token: u64::MAX, ..roomy() });
    scene.acquire(1, K, 1, 0);
    scene.acquire(1, OTHER, 2, 30);
    scene.acquire(2, K, 3, 30);
    scene.acquire(2, K, 4, 0);
    assert_eq!(
        scene.settle(),
        "c1: granted k to 1 under 18446744073709551615 for 10000 ms; c1: busy other for 2; \
         c2: busy k for 3; c2: timed out k for 4"
    );
    scene.release(1, K, u64::MAX);
    scene.acquire(2, K, 5, 30);
    scene.handle(Input::TokenCeiling(u64::MAX));
    scene.acquire(2, K, 6, 0);
    assert_eq!(scene.settle(), "c1: released k 18446744073709551615; c2: busy k for 5; c2: busy k for 6");
}

fn without_tokens_a_release_refuses_the_queue<M: Machine>() {
    let mut scene = Scene::<M>::new(&Config { token_ceiling: 2, ..roomy() });
    scene.acquire(1, K, 1, 0);
    scene.acquire(2, K, 2, 5);
    scene.acquire(3, K, 3, 30);
    scene.acquire(1, OTHER, 4, 0);
    scene.settle();
    scene.pass(5 * SECOND);
    scene.release(1, K, 1);
    scene.acquire(1, K, 5, 30);
    assert_eq!(scene.seal(), "release k 1");
    scene.commit();
    assert_eq!(scene.said(), "c1: released k 1; c2: busy k for 2; c3: busy k for 3; c1: busy k for 5");
    scene.handle(Input::TokenCeiling(3));
    scene.handle(Input::TokenCeiling(1));
    scene.acquire(1, K, 6, 30);
    assert_eq!(scene.settle(), "c1: granted k to 6 under 3 for 10000 ms");
}

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

fn a_cancel_takes_out_only_what_is_of_that_connection_owner_and_key<M: Machine>() {
    let mut scene = Scene::<M>::new(&roomy());
    scene.acquire(1, K, 1, 0);
    scene.acquire(1, OTHER, 1, 0);
    for (conn, key, owner) in [(2, K, 7), (3, K, 7), (2, K, 8), (2, OTHER, 7), (2, K, 7)] {
        scene.acquire(conn, key, owner, 30);
    }
    scene.settle();
    scene.ask(2, Request::Cancel { owner: 7, key: K });
    assert_eq!(scene.said(), "c2: busy k for 7; c2: busy k for 7");
    scene.ask(2, Request::Cancel { owner: 7, key: K });
    assert_eq!(scene.said(), NOTHING);
    scene.ask(9, Request::Place { owner: 8, key: K });
    scene.ask(9, Request::Place { owner: 7, key: K });
    scene.ask(9, Request::Place { owner: 7, key: OTHER });
    assert_eq!(
        scene.said(),
        "c9: place 2 of 2 in k for 8; c9: place 1 of 2 in k for 7; c9: place 1 of 1 in other for 7"
    );
}

fn a_draining_server_refuses_who_waits_and_serves_the_rest<M: Machine>() {
    let mut scene = one_holds_and_three_wait::<M>();
    scene.verify(9, K, 7);
    scene.settle();
    scene.handle(Input::Drain);
    assert_eq!(scene.said(), "c2: busy k for 2; c3: busy k for 3; c4: busy k for 4");
    scene.acquire(2, K, 2, 30);
    scene.acquire(2, K, 3, 0);
    scene.acquire(2, K, 7, 0);
    scene.acquire(2, OTHER, 4, 0);
    assert_eq!(
        scene.said(),
        "c2: busy k for 2; c2: timed out k for 3; c2: busy k for 7; c2: busy other for 4"
    );
    scene.verify(9, K, 1);
    scene.release(1, K, 1);
    assert_eq!(scene.settle(), "c9: verified k of 1 under 1; c1: released k 1");
}

fn an_engine_out_of_office_decides_nothing<M: Machine>() {
    let mut scene = one_holds_and_three_wait::<M>();
    scene.acquire(1, OTHER, 5, 0);
    scene.verify(9, K, 1);
    scene.handle(Input::Retire);
    assert_eq!(scene.seal(), NOTHING, "what was not sealed never will be");
    assert_eq!(
        scene.said(),
        "c1: busy other for 5; c9: not leader; c2: busy k for 2; c3: busy k for 3; c4: busy k for 4"
    );
    scene.pass(LEASE);
    scene.tick();
    scene.acquire(1, K, 1, 0);
    scene.acquire(1, OTHER, 2, 30);
    scene.release(1, K, 1);
    scene.verify(9, K, 1);
    scene.ask(2, Request::Cancel { owner: 2, key: K });
    scene.ask(2, Request::Place { owner: 2, key: K });
    scene.handle(Input::Undelivered { token: 1, key: K });
    scene.handle(Input::Drain);
    scene.close(1);
    assert_eq!((scene.seal().as_str(), scene.next_deadline()), (NOTHING, None));
    assert_eq!(scene.said(), "c9: not leader; c2: place 0 of 0 in k for 2");
}

fn batches_in_flight_are_answered_when_their_fate_is_known<M: Machine>() {
    let mut scene = Scene::<M>::new(&roomy());
    for key in [K, OTHER, THIRD] {
        scene.acquire(1, key, 1, 0);
        scene.release(2, key, 99);
        scene.verify(3, key, 1);
        scene.verify(3, key, 2);
        scene.release(4, key, 1);
        scene.seal();
    }
    scene.handle(Input::Retire);
    assert_eq!(scene.said(), NOTHING);
    scene.handle(Input::Refused(3));
    assert_eq!(
        scene.said(),
        "c1: busy third for 1; c2: not leader; c3: not leader; c3: not leader; c4: not leader"
    );
    scene.handle(Input::Committed(1));
    assert_eq!(
        scene.said(),
        "c1: granted k to 1 under 1 for 10000 ms; c2: not held k 99; c3: verified k of 1 under 1; \
         c3: verified that k never is of 2; c4: released k 1"
    );
    scene.handle(Input::Unknown(2));
    assert_eq!(
        scene.said(),
        "c1: close, unknown; c2: close, unknown; c3: close, unknown; c3: close, unknown; c4: close, unknown"
    );
}

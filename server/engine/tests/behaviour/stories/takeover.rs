//! An engine that takes office on what others decided.

use ticketing_engine::{Config, Effect, Input, SECOND};

use super::{LEASE, OTHER, THIRD};
use crate::machine::Machine;
use crate::model::Key;
use crate::scene::{K, LEASE_SECS, NOTHING, Scene, roomy};

stories![
    a_lease_goes_on_from_its_grant,
    leases_that_are_over_are_due_at_the_first_tick_in_their_order,
    leases_that_began_together_end_in_the_order_of_their_tokens,
    a_tombstone_goes_on_from_its_burial,
    tokens_go_on_behind_the_last_one,
    a_lock_of_an_earlier_office_is_not_given_back,
    a_lock_of_an_earlier_office_is_released_verified_and_queued_for_as_any_other,
    locks_and_tombstones_of_an_earlier_office_count_against_the_limits,
];

fn grant(key: Key, owner: u64, token: u64) -> Effect<'static> {
    Effect::Grant { key, owner, token, lease_secs: LEASE_SECS }
}

fn a_lease_goes_on_from_its_grant<M: Machine>() {
    let hand_off =
        Effect::HandOff { key: OTHER, ended: 2, expired: false, owner: 3, token: 3, lease_secs: LEASE_SECS };
    let applied = [(LEASE - 1, grant(K, 1, 1)), (LEASE, grant(OTHER, 2, 2)), (LEASE - 2, hand_off)];
    let mut scene = Scene::<M>::after(&roomy(), &applied);
    scene.tick();
    assert_eq!((scene.seal().as_str(), scene.next_deadline()), (NOTHING, Some(scene.now + 1)));
    scene.pass(1);
    scene.tick();
    assert_eq!((scene.seal().as_str(), scene.next_deadline()), ("expire k 1", Some(scene.now + 1)));
    scene.pass(1);
    scene.tick();
    assert_eq!((scene.seal().as_str(), scene.next_deadline()), ("expire other 3", None));
}

fn leases_that_are_over_are_due_at_the_first_tick_in_their_order<M: Machine>() {
    let long = Effect::Grant { key: THIRD, owner: 3, token: 3, lease_secs: 200 };
    let applied = [(LEASE + 9, grant(K, 1, 1)), (LEASE + 7, grant(OTHER, 2, 2)), (LEASE, long)];
    let mut scene = Scene::<M>::after(&roomy(), &applied);
    // Their times were in the order of their grants, but a snapshot may tell otherwise.
    scene.tick();
    assert_eq!(scene.seal(), "expire k 1; expire other 2");
    assert_eq!(scene.next_deadline(), Some(scene.now + 190 * SECOND));
}

fn leases_that_began_together_end_in_the_order_of_their_tokens<M: Machine>() {
    let keys: [Key; 4] = [THIRD, K, OTHER, b"a"];
    let applied = (1u64..).zip(keys).map(|(token, key)| (LEASE, grant(key, 9, token))).collect::<Vec<_>>();
    let mut scene = Scene::<M>::after(&roomy(), &applied);
    scene.tick();
    assert_eq!(scene.seal(), "expire third 1; expire k 2; expire other 3; expire a 4");
}

fn a_tombstone_goes_on_from_its_burial<M: Machine>() {
    let bury = |owner| Effect::Bury { key: K, owner };
    let applied = [(599 * SECOND, bury(1)), (1, bury(2))];
    let mut scene = Scene::<M>::after(&roomy(), &applied);
    scene.acquire(1, K, 1, 30);
    scene.acquire(1, K, 2, 30);
    scene.verify(2, K, 1);
    assert_eq!(scene.said(), "c1: busy k for 1; c1: busy k for 2");
    assert_eq!(scene.seal(), "barrier", "it is written down already");
    scene.pass(SECOND);
    scene.tick();
    assert_eq!(scene.seal(), "forget 1 for k");
    assert_eq!(scene.next_deadline(), Some(scene.now + 599 * SECOND - 1));
    scene.acquire(1, K, 1, 30);
    assert_eq!(scene.seal(), "grant k 1 to 1 for 10 s");
}

fn tokens_go_on_behind_the_last_one<M: Machine>() {
    let of = |next_token, last: u64| {
        let applied = [(0, grant(K, 1, last)), (0, Effect::Release { key: K, token: last })];
        let mut scene = Scene::<M>::after(&Config { next_token, ..roomy() }, &applied);
        scene.acquire(1, K, 1, 0);
        scene.seal()
    };
    assert_eq!(of(1, 7), "grant k 8 to 1 for 10 s");
    assert_eq!(of(8, 7), "grant k 8 to 1 for 10 s");
    assert_eq!(of(100, 7), "grant k 100 to 1 for 10 s");
    assert_eq!(of(1, u64::MAX - 1), format!("grant k {} to 1 for 10 s", u64::MAX));
    assert_eq!(of(1, u64::MAX), NOTHING);
    let mut scene = Scene::<M>::after(&roomy(), &[(0, grant(K, 1, u64::MAX))]);
    scene.acquire(1, OTHER, 1, 0);
    assert_eq!(scene.said(), "c1: busy other for 1");
}

fn a_lock_of_an_earlier_office_is_not_given_back<M: Machine>() {
    let mut scene = Scene::<M>::after(&roomy(), &[(SECOND, grant(K, 1, 1))]);
    scene.acquire(2, K, 2, 30);
    scene.handle(Input::Undelivered { token: 1, key: K });
    scene.close(1);
    assert_eq!(scene.seal(), NOTHING, "another node may have told of it");
    scene.pass(LEASE - SECOND);
    scene.tick();
    assert_eq!(scene.seal(), "expire k 1 and grant 2 to 2 for 10 s");
    scene.handle(Input::Undelivered { token: 2, key: K });
    assert_eq!(scene.seal(), "release k 2", "but this one was granted here");
}

fn a_lock_of_an_earlier_office_is_released_verified_and_queued_for_as_any_other<M: Machine>() {
    let mut scene = Scene::<M>::after(&roomy(), &[(SECOND, grant(K, 1, 1))]);
    scene.acquire(2, K, 2, 0);
    scene.acquire(2, K, 3, 30);
    scene.verify(2, K, 1);
    scene.release(2, K, 2);
    scene.release(2, K, 1);
    scene.release(2, K, 1);
    assert_eq!(
        scene.settle(),
        "c2: timed out k for 2; c2: verified k of 1 under 1; c2: not held k 2; c2: released k 1; \
         c2: granted k to 3 under 2 for 10000 ms; c2: not held k 1"
    );
}

fn locks_and_tombstones_of_an_earlier_office_count_against_the_limits<M: Machine>() {
    let mut config = roomy();
    (config.limits.held, config.limits.tombstones) = (1, 1);
    let buried = Effect::Bury { key: OTHER, owner: 9 };
    let mut scene = Scene::<M>::after(&config, &[(SECOND, grant(K, 1, 1)), (SECOND, buried)]);
    scene.acquire(2, OTHER, 2, 30);
    scene.verify(2, OTHER, 3);
    assert_eq!(scene.said(), "c2: busy other for 2; c2: close, overloaded");
}

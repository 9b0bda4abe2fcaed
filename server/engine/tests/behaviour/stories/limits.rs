//! Limits just reached: whoever comes then is refused, and a place that gets free can
//! be taken at once.

use ticketing_engine::{Config, Request, SECOND};

use super::{OTHER, THIRD};
use crate::machine::Machine;
use crate::scene::{K, NOTHING, Scene, roomy};

stories![
    a33_the_queue_of_a_key_is_bounded,
    a33_all_waiters_together_are_bounded,
    a33_held_locks_are_bounded,
    a33_acquires_of_a_connection_are_bounded,
    a33_waiters_of_one_owner_are_bounded,
    the_last_token_is_given_once,
    without_tokens_a_release_refuses_the_queue,
];

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
    scene.acquire(2, K, 6, 0);
    assert_eq!(scene.settle(), "c1: released k 18446744073709551615; c2: busy k for 5; c2: busy k for 6");
}

fn without_tokens_a_release_refuses_the_queue<M: Machine>() {
    let mut scene = Scene::<M>::new(&Config { next_token: u64::MAX - 1, ..roomy() });
    scene.acquire(1, K, 1, 0);
    scene.acquire(2, K, 2, 5);
    scene.acquire(3, K, 3, 30);
    scene.acquire(1, OTHER, 4, 0);
    scene.settle();
    scene.pass(5 * SECOND);
    let first = u64::MAX - 1;
    scene.release(1, K, first);
    scene.acquire(1, K, 5, 30);
    assert_eq!(scene.seal(), format!("release k {first}"));
    scene.commit();
    let released = format!("c1: released k {first}; ");
    assert_eq!(scene.said(), released + "c2: busy k for 2; c3: busy k for 3; c1: busy k for 5");
}

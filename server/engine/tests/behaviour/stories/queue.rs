//! Who gets the key next, and in which order it is said.

use ticketing_engine::{Request, SECOND};

use super::{LEASE, OTHER, one_holds_and_three_wait};
use crate::machine::{Machine, name};
use crate::scene::{K, NOTHING, Scene, roomy};

stories![
    a23_a_release_hands_the_key_to_the_head_and_nobody_barges_in,
    a25_of_many_releases_of_one_token_one_is_right,
    a26_a_stale_token_does_not_touch_the_next_holder,
    a27_equal_owners_are_two_waiters_with_two_tokens,
    keys_that_begin_alike_are_different_keys,
    a31_who_releases_and_acquires_again_queues_behind,
    a32_what_is_said_at_once_does_not_overtake_an_earlier_answer_about_the_key,
    a32_a_wait_that_runs_out_does_not_wait_for_a_commit,
    a_cancel_takes_out_only_what_is_of_that_connection_owner_and_key,
];

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

fn keys_that_begin_alike_are_different_keys<M: Machine>() {
    static ALIKE: [u8; 128] = [b'k'; 128];
    let mut scene = Scene::<M>::new(&roomy());
    for length in 1..=128 {
        scene.acquire(1, &ALIKE[..length], 1, 0);
    }
    assert!(!scene.settle().contains("timed out"));
    for length in (1..=128).rev() {
        let token = length as u64;
        scene.release(1, &ALIKE[..length], token);
        assert_eq!(scene.seal(), format!("release {} {token}", name(&ALIKE[..length])));
    }
    scene.commit();
    assert_eq!(scene.next_deadline(), None);
}

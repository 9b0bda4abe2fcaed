//! Draining, and the loss of office.

use ticketing_engine::{Input, Request};

use super::{LEASE, OTHER, THIRD, one_holds_and_three_wait};
use crate::machine::Machine;
use crate::scene::{K, NOTHING, Scene, roomy};

stories![
    a_draining_server_refuses_who_waits_and_serves_the_rest,
    an_engine_out_of_office_decides_nothing,
    batches_in_flight_are_answered_when_their_fate_is_known,
    a_commit_that_is_told_early_waits_for_those_before_it,
    a_commit_behind_a_batch_that_was_lost_is_not_believed,
    a_second_word_about_a_batch_changes_nothing,
    a_batch_that_is_not_applied_ends_the_office,
    a_node_that_never_led_refuses_what_only_a_leader_can_say,
];

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

/// Three batches in flight: each grants a key to connection 1 and tells connection 2
/// that a token does not hold it.
fn three_in_flight<M: Machine>() -> Scene<M> {
    let mut scene = Scene::<M>::new(&roomy());
    for key in [K, OTHER, THIRD] {
        scene.acquire(1, key, 1, 0);
        scene.release(2, key, 99);
        scene.seal();
    }
    scene
}

fn a_commit_that_is_told_early_waits_for_those_before_it<M: Machine>() {
    let mut scene = three_in_flight::<M>();
    scene.handle(Input::Committed(3));
    scene.handle(Input::Committed(2));
    assert_eq!((scene.said().as_str(), scene.next_deadline()), (NOTHING, None), "no lease has begun");
    scene.pass(5);
    scene.handle(Input::Committed(1));
    assert_eq!(scene.next_deadline(), Some(scene.now + LEASE));
    assert_eq!(
        scene.said(),
        "c1: granted k to 1 under 1 for 10000 ms; c2: not held k 99; \
         c1: granted other to 1 under 2 for 10000 ms; c2: not held other 99; \
         c1: granted third to 1 under 3 for 10000 ms; c2: not held third 99"
    );
}

fn a_commit_behind_a_batch_that_was_lost_is_not_believed<M: Machine>() {
    for fate in [Input::Refused, Input::Unknown] {
        for commits_first in [true, false] {
            let mut scene = three_in_flight::<M>();
            let mut told = [fate(2), Input::Committed(3)];
            if commits_first {
                told.reverse();
            }
            told.into_iter().for_each(|input| scene.handle(input));
            scene.said();
            scene.handle(Input::Committed(1));
            assert_eq!(
                scene.said(),
                "c1: granted k to 1 under 1 for 10000 ms; c2: not held k 99",
                "what came before the lost one counts"
            );
            let mut scene = three_in_flight::<M>();
            scene.handle(Input::Committed(1));
            scene.handle(fate(2));
            scene.said();
            scene.handle(Input::Committed(3));
            assert_eq!(scene.said(), "c1: close, unknown; c2: close, unknown");
        }
    }
}

fn a_second_word_about_a_batch_changes_nothing<M: Machine>() {
    let mut scene = three_in_flight::<M>();
    for nobody in [0, 4, 5, u64::MAX] {
        for word in [Input::Committed, Input::Refused, Input::Unknown] {
            scene.handle(word(nobody));
        }
    }
    scene.handle(Input::Committed(1));
    scene.handle(Input::Committed(3));
    for word in [Input::Committed, Input::Refused, Input::Unknown] {
        scene.handle(word(1));
        scene.handle(word(3));
    }
    assert_eq!(scene.said(), "c1: granted k to 1 under 1 for 10000 ms; c2: not held k 99");
    scene.handle(Input::Committed(2));
    assert_eq!(
        scene.said(),
        "c1: granted other to 1 under 2 for 10000 ms; c2: not held other 99; \
         c1: granted third to 1 under 3 for 10000 ms; c2: not held third 99"
    );
    scene.acquire(1, b"ab", 1, 0);
    assert_eq!(scene.seal(), "grant ab 4 to 1 for 10 s", "it is in office as before");
    scene.handle(Input::Refused(4));
    scene.handle(Input::Committed(4));
    assert_eq!(scene.said(), "c1: busy ab for 1");
}

fn a_batch_that_is_not_applied_ends_the_office<M: Machine>() {
    for (fate, word) in [(Input::Refused(2), "busy other for 5"), (Input::Unknown(2), "close, unknown")] {
        let mut scene = one_holds_and_three_wait::<M>();
        scene.acquire(1, OTHER, 5, 0);
        scene.seal();
        scene.acquire(1, THIRD, 6, 0);
        scene.handle(fate);
        assert_eq!(
            scene.said(),
            format!("c1: {word}; c1: busy third for 6; c2: busy k for 2; c3: busy k for 3; c4: busy k for 4")
        );
        assert_eq!((scene.seal().as_str(), scene.next_deadline()), (NOTHING, None));
        scene.acquire(1, THIRD, 7, 0);
        scene.release(1, K, 1);
        assert_eq!(scene.said(), "c1: busy third for 7; c1: not leader");
    }
}

fn a_node_that_never_led_refuses_what_only_a_leader_can_say<M: Machine>() {
    let mut scene = Scene::<M>::new(&roomy());
    scene.handle(Input::Retire);
    scene.acquire(1, K, 1, 0);
    scene.acquire(1, K, 1, 30);
    scene.release(1, K, 1);
    scene.verify(1, K, 1);
    scene.ask(1, Request::Cancel { owner: 1, key: K });
    scene.ask(1, Request::Place { owner: 1, key: K });
    scene.tick();
    assert_eq!((scene.seal().as_str(), scene.next_deadline()), (NOTHING, None));
    assert_eq!(
        scene.said(),
        "c1: busy k for 1; c1: busy k for 1; c1: not leader; c1: not leader; c1: place 0 of 0 in k for 1"
    );
}

//! Every request in every state of its key, against the table in `matrix.txt`.

use ticketing_engine::{Engine, Input, Request, SECOND};

use crate::machine::Machine;
use crate::model::{Key, Model};
use crate::scene::{K, LEASE_SECS, NOTHING, Scene, roomy};

const OTHER_KEY: Key = b"z";
const LONG_WAIT_SECS: u8 = 30;

#[test]
fn a22_the_engine_does_what_the_table_says() {
    check::<Engine>();
}

#[test]
fn a22_the_model_does_what_the_table_says() {
    check::<Model>();
}

fn check<M: Machine>() {
    let mut request = "";
    let mut cells = 0;
    let mut wrong = String::new();
    for line in include_str!("matrix.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        if !line.starts_with(' ') {
            request = line;
            continue;
        }
        let columns = line.split('|').map(str::trim).collect::<Vec<_>>();
        let (state, expected) = (columns[0], &columns[1..]);
        let happened = cell::<M>(state, request);
        cells += 1;
        if happened != expected {
            wrong += &format!("{request}: {state}\n  expected {expected:?}\n  happened {happened:?}\n");
        }
    }
    assert_eq!(cells, 11 * 8, "11 requests in 8 states");
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// The columns of the table.
fn cell<M: Machine>(state: &str, request: &str) -> [String; 4] {
    let mut scene = in_state::<M>(state);
    make(&mut scene, request);
    let replicated = scene.seal();
    let at_once = scene.said();
    scene.commit();
    let committed = scene.said();
    scene.ask(8, Request::Place { owner: 1, key: K });
    let place = scene.said().replace("c8: place ", "").replace(" in k for 1", "");
    assert_eq!(scene.seal(), NOTHING, "one turn was enough");
    [replicated, at_once, committed, place]
}

fn in_state<M: Machine>(state: &str) -> Scene<M> {
    let mut config = roomy();
    if state == "queue full" {
        config.limits.waiters_per_key = 2;
    }
    let mut scene = Scene::<M>::new(&config);

    let stale_of = if state == "free" { OTHER_KEY } else { K };
    scene.acquire(3, stale_of, 3, 0);
    scene.settle();
    scene.release(3, stale_of, 1);
    scene.settle();

    let (holder, queue): (Option<u64>, &[u64]) = match state {
        "free" => (None, &[]),
        "held by me" | "just expired" | "just released" => (Some(1), &[]),
        "held by other" => (Some(2), &[]),
        "held by me, queue" => (Some(1), &[2, 3]),
        "held, I am in queue" => (Some(2), &[3, 1]),
        "queue full" => (Some(2), &[3, 4]),
        _ => panic!("no such state: {state}"),
    };
    for &id in holder.iter().chain(queue) {
        scene.acquire(id, K, id, LONG_WAIT_SECS);
    }
    scene.settle();
    match state {
        "just expired" => {
            scene.pass(u64::from(LEASE_SECS) * SECOND);
            scene.tick();
            assert_eq!(scene.seal(), "expire k 2");
        }
        "just released" => {
            scene.release(1, K, 2);
            assert_eq!(scene.seal(), "release k 2");
        }
        _ => scene.pass(SECOND),
    }
    scene
}

fn make<M: Machine>(scene: &mut Scene<M>, request: &str) {
    match request {
        "acquire, wait 0" => scene.acquire(1, K, 1, 0),
        "acquire, wait 5" => scene.acquire(1, K, 1, 5),
        "release, right token" => scene.release(1, K, 2),
        "release, wrong token" => scene.release(1, K, 99),
        "release, stale token" => scene.release(1, K, 1),
        "the lease ends" => {
            scene.pass(u64::from(LEASE_SECS - 1) * SECOND);
            scene.tick();
        }
        "cancel" => scene.ask(1, Request::Cancel { owner: 1, key: K }),
        "connection gone" => scene.close(1),
        "the grant was not delivered" => scene.handle(Input::Undelivered { token: 2, key: K }),
        "place" => scene.ask(1, Request::Place { owner: 1, key: K }),
        "verify" => scene.verify(9, K, 1),
        _ => panic!("no such request: {request}"),
    }
}

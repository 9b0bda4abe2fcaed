//! What the rules mean where it hurts: same instants, lost connections, limits
//! just reached, the last token. Each story is told to the engine and to the model.

use ticketing_engine::SECOND;

use crate::machine::Machine;
use crate::model::Key;
use crate::scene::{K, LEASE_SECS, Scene, roomy};

macro_rules! stories {
    ($($name:ident),* $(,)?) => {
        mod of_the_engine {
            $(#[test] fn $name() { super::$name::<ticketing_engine::Engine>(); })*
        }
        mod of_the_model {
            $(#[test] fn $name() { super::$name::<crate::model::Model>(); })*
        }
    };
}

mod limits;
mod lost;
mod office;
mod queue;
mod takeover;
mod time;

const LEASE: u64 = LEASE_SECS as u64 * SECOND;
pub(crate) const OTHER: Key = b"other";
pub(crate) const THIRD: Key = b"third";

fn one_holds_and_three_wait<M: Machine>() -> Scene<M> {
    let mut scene = Scene::<M>::new(&roomy());
    scene.acquire(1, K, 1, 0);
    for id in 2..=4 {
        scene.acquire(id, K, id, 30);
    }
    assert_eq!(scene.settle(), "c1: granted k to 1 under 1 for 10000 ms");
    scene
}

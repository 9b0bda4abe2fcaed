//! An engine that is built from a table.

use ticketing_engine::{Config, Effect, Engine, Input, SECOND, Table};

#[test]
fn leases_and_tombstones_go_on_from_when_they_were_applied() {
    let mut table = Table::new([1, 2]);
    table.apply(100 * SECOND, Effect::Grant { key: b"a", owner: 1, token: 7, lease_secs: 10 }).unwrap();
    table.apply(105 * SECOND, Effect::Bury { key: b"b", owner: 3 }).unwrap();
    let mut engine = Engine::restore(Config::default(), &table);
    assert_eq!((engine.next_token(), engine.next_deadline()), (8, Some(110 * SECOND)));
    engine.handle(109 * SECOND, Input::Tick);
    assert!(engine.seal().is_none());
    engine.handle(800 * SECOND, Input::Tick);
    let batch = engine.seal().unwrap();
    let forget = Effect::Forget { key: b"b", owner: 3 };
    assert!(batch.effects().eq([Effect::Expire { key: b"a", token: 7 }, forget]));
}

//! Any order of requests, writes, cuts, cancels, answers and time, against a
//! server that keeps a plain list of what it read.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Acquire { wait: u64 },
    Release,
    GiveUp(prop::sample::Index),
    Write(usize),
    Answer(prop::sample::Index, u8),
    Pass { ms: u64 },
    GiveBack,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4_u64).prop_map(|wait| Step::Acquire { wait }),
        2 => Just(Step::Release),
        2 => any::<prop::sample::Index>().prop_map(Step::GiveUp),
        6 => (0..60_usize).prop_map(Step::Write),
        6 => (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(which, how)| Step::Answer(which, how)),
        2 => (0..2500_u64).prop_map(|ms| Step::Pass { ms }),
        1 => Just(Step::GiveBack),
    ]
}

/// A request that the server has read and not answered.
#[derive(Clone, Copy, Debug)]
enum Open {
    Acquire(u64),
    Release(u64),
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn each_request_has_one_truthful_fate(extension: bool, steps in prop::collection::vec(step(), 1..120)) {
        let mut rig = Rig::new(extension);
        let mut id = 0;
        let mut owners = Vec::new();
        let mut given_up = Vec::new();
        let mut open = Vec::new();
        // What the server was asked, by owner or token, which are never used twice.
        let mut read = BTreeMap::<u64, u32>::new();
        let mut began = BTreeMap::<u64, bool>::new();
        for step in steps {
            match step {
                Step::Acquire { wait } => {
                    id += 1;
                    owners.push(id);
                    began.insert(id, false);
                    rig.acquire(id, wait);
                }
                Step::Release => {
                    id += 1;
                    began.insert(id, false);
                    rig.release(id, id);
                }
                Step::GiveUp(which) if !owners.is_empty() => {
                    let owner = *which.get(&owners);
                    rig.session.give_up(owner, KEY);
                    given_up.push(owner);
                }
                Step::Write(most) => {
                    let bytes = rig.session.transmit(rig.now).to_vec();
                    let taken = bytes.len().min(most);
                    if taken > 0 {
                        rig.session.wrote(taken);
                    } else if !bytes.is_empty() {
                        rig.session.write_blocked(rig.now);
                    } else {
                        rig.session.write_idle();
                    }
                    rig.server.feed(&bytes[..taken], |frame| match frame {
                        ClientFrame::Acquire { owner, .. } => {
                            *read.entry(owner).or_default() += 1;
                            open.push(Open::Acquire(owner));
                        }
                        ClientFrame::Release { token, .. } => {
                            *read.entry(token).or_default() += 1;
                            open.push(Open::Release(token));
                        }
                        ClientFrame::Cancel { owner, .. } => assert!(read.contains_key(&owner)),
                        ClientFrame::Place { .. } | ClientFrame::Verify { .. } => unreachable!(),
                    }).unwrap();
                }
                Step::Answer(which, how) if !open.is_empty() => {
                    let frame = match open.swap_remove(which.index(open.len())) {
                        Open::Acquire(owner) => match how % 3 {
                            0 if extension => granted_until(owner, owner + 1000, 500),
                            0 => granted(owner, owner + 1000),
                            1 => busy(owner),
                            _ => timed_out(owner),
                        },
                        Open::Release(token) if how % 2 == 0 => released(token),
                        Open::Release(token) => not_held(token),
                    };
                    prop_assert!(rig.hear(frame).is_ok(), "{frame:?}");
                }
                Step::Pass { ms } => {
                    let alive = rig.pass(ms * MILLISECOND);
                    if alive.is_err() {
                        break;
                    }
                }
                Step::GiveBack => rig.session.give_back_unsent(),
                Step::GiveUp(_) | Step::Answer(..) => {}
            }
        }
        rig.end();

        // No request was ever written twice.
        prop_assert!(read.values().all(|&times| times == 1), "{read:?}");
        let mut fates = BTreeMap::<u64, Vec<Fate>>::new();
        for (id, fate) in rig.told.borrow_mut().drain(..) {
            fates.entry(id).or_default().push(fate);
        }
        for &id in began.keys() {
            let told = fates.remove(&id).unwrap_or_default();
            let was_read = read.contains_key(&id);
            match told.as_slice() {
                // Only a caller that has gone hears nothing.
                [] => prop_assert!(given_up.contains(&id), "{id} was told nothing"),
                [Fate::Unsent] => prop_assert!(!was_read, "{id} was sent"),
                [Fate::Unanswered { .. }] => {}
                // The late answer to a record.
                [Fate::Unanswered { why: Why::Overdue, .. }, late] => {
                    let answer = !matches!(late, Fate::Unsent | Fate::Unanswered { .. });
                    prop_assert!(was_read && answer, "{id} was told {late:?} late");
                }
                [answer] => prop_assert!(was_read, "{id} has {answer:?} out of nothing"),
                more => prop_assert!(false, "{id} was told {more:?}"),
            }
        }
        prop_assert!(fates.is_empty());
        let book = &rig.session.book;
        prop_assert_eq!((book.owed, book.timers.len(), book.ledger.indices().len()), (0, 0, 0));
    }
}

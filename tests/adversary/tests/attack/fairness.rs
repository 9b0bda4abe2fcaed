//! Queues: who is next, and who must not be.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use ticketing_test_support::{PATIENCE, Raw, Reply, Server, wait_for_queue, wire};

#[test]
fn c23_a_lock_is_handed_on_directly() {
    let server = Server::start(&[]);
    let addr = server.addr();
    let over = AtomicBool::new(false);
    let mut raws: Vec<Raw> = (0..4).map(|_| Raw::open(addr)).collect();
    let mut token = raws[0].take("k", 0, 250);
    let mut watcher = Raw::open_extended(addr);
    thread::scope(|scope| {
        let barger = scope.spawn(|| {
            let mut raw = Raw::open(addr);
            let (start, mut tries) = (Instant::now(), 0_u64);
            // It must end too when the other side has failed.
            while !over.load(Ordering::Relaxed) && start.elapsed() < 3 * PATIENCE {
                // Many at a time, so that one is there at every moment.
                raw.send(wire::acquire("k", 99, 0, 60).repeat(50));
                for _ in 0..50 {
                    raw.expect(&Reply::timed_out(99, "k"));
                    tries += 1;
                }
            }
            tries
        });
        for round in 0..100_u64 {
            let holder = (round % 4) as usize;
            for waiter in 1..4 {
                let index = (holder + waiter) % 4;
                raws[index].acquire("k", round * 4 + waiter as u64, 30, 60);
                wait_for_queue(&mut watcher, "k", waiter);
            }
            // Down the queue; the last one keeps the lock for the next round.
            for waiter in 1..4 {
                let (from, to) = ((holder + waiter - 1) % 4, (holder + waiter) % 4);
                raws[from].release("k", token);
                raws[from].expect(&Reply::released(token, "k"));
                let next = raws[to].expect_granted("k", round * 4 + waiter as u64);
                assert_eq!(next, token + 1, "a grant that nobody saw");
                token = next;
            }
            // Whoever holds now is the next round's holder.
            raws.swap((holder + 3) % 4, (holder + 1) % 4);
        }
        over.store(true, Ordering::Relaxed);
        assert!(barger.join().unwrap() > 100);
    });
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stays,
    Cancels,
    TimesOut,
    /// Its whole connection goes.
    HangsUp,
}

#[test]
fn c24_fifo_under_churn() {
    let server = Server::start(&[]);
    let addr = server.addr();
    for seed in 0..4 {
        let mut random = StdRng::seed_from_u64(seed);
        let key = format!("k-{seed}");
        let mut holder = Raw::open(addr);
        let token = holder.take(&key, 1000, 250);
        let mut watcher = Raw::open_extended(addr);
        // Twenty connections with ten waiters each, in an order that is known.
        let mut raws: Vec<Option<Raw>> = (0..20).map(|_| Some(Raw::open_extended(addr))).collect();
        let mut order: Vec<u64> = (0..200).collect();
        order.shuffle(&mut random);
        let fates: Vec<Fate> = (0..200)
            .map(|owner| match (owner / 10, random.random_range(0..4)) {
                (0..4, _) => Fate::HangsUp,
                (_, 0) => Fate::Cancels,
                (_, 1) => Fate::TimesOut,
                _ => Fate::Stays,
            })
            .collect();
        for (queued, &owner) in order.iter().enumerate() {
            let wait = if fates[owner as usize] == Fate::TimesOut { 2 } else { 120 };
            raws[owner as usize / 10].as_mut().unwrap().acquire(&key, owner, wait, 250);
            wait_for_queue(&mut watcher, &key, queued + 1);
        }
        let mut survivors: Vec<u64> =
            order.into_iter().filter(|&owner| fates[owner as usize] == Fate::Stays).collect();
        // All at once: cancels, ends of waits, ends of connections.
        for owner in (0..200_u64).filter(|&owner| fates[owner as usize] == Fate::Cancels) {
            raws[owner as usize / 10].as_mut().unwrap().send(wire::cancel(&key, owner));
        }
        for raw in &mut raws[..4] {
            *raw = None;
        }
        wait_for_queue(&mut watcher, &key, survivors.len());
        for (number, raw) in raws.iter_mut().enumerate().skip(4) {
            let owners = number as u64 * 10..number as u64 * 10 + 10;
            for _ in owners.clone().filter(|&owner| fates[owner as usize] != Fate::Stays) {
                match raw.as_mut().unwrap().read() {
                    Reply::Busy { owner, .. } => assert_eq!(fates[owner as usize], Fate::Cancels),
                    Reply::TimedOut { owner, .. } => assert_eq!(fates[owner as usize], Fate::TimesOut),
                    other => panic!("{other:?}"),
                }
            }
        }
        // Somebody joins late, and the survivors go in their order.
        let mut late = Raw::open_extended(addr);
        late.acquire(&key, 999, 120, 250);
        wait_for_queue(&mut watcher, &key, survivors.len() + 1);
        survivors.push(999);
        let mut token = token;
        holder.release(&key, token);
        for owner in survivors {
            let raw = if owner == 999 { &mut late } else { raws[owner as usize / 10].as_mut().unwrap() };
            let (next, _) = raw.expect_granted_until(&key, owner);
            assert_eq!(next, token + 1);
            token = next;
            raw.release(&key, token);
            raw.expect(&Reply::released(token, &key));
        }
    }
}

#[test]
fn c31_a_release_with_an_acquire_behind_it_queues_behind_the_others() {
    let server = Server::start(&[]);
    let mut me = Raw::open(server.addr());
    let mut other = Raw::open(server.addr());
    let mut watcher = Raw::open_extended(server.addr());
    let mut token = me.take("k", 0, 60);
    for round in 1..100 {
        other.acquire("k", round, 60, 60);
        wait_for_queue(&mut watcher, "k", 1);
        me.send(
            [wire::release("k", token), wire::acquire("k", round, 0, 60), wire::acquire("k", round, 60, 60)]
                .concat(),
        );
        me.expect(&Reply::released(token, "k"));
        me.expect(&Reply::timed_out(round, "k"));
        let others = other.expect_granted("k", round);
        assert_eq!(others, token + 1);
        other.release("k", others);
        other.expect(&Reply::released(others, "k"));
        token = me.expect_granted("k", round);
        assert_eq!(token, others + 1);
    }
    // With nobody else waiting it comes back to the same connection.
    me.send([wire::release("k", token), wire::acquire("k", 7, 0, 60)].concat());
    me.expect(&Reply::released(token, "k"));
    let _ = me.expect_granted("k", 7);
}

#[test]
fn c32_answers_about_one_key_keep_their_order() {
    let server = Server::start(&[]);
    let mut raw = Raw::open(server.addr());
    let keys: Vec<String> = (0..200).map(|number| format!("k-{number}")).collect();
    // Waiters first, so that each release decides two things about its key at once.
    let tokens: Vec<u64> = keys.iter().map(|key| raw.take(key, 1, 60)).collect();
    let mut stream = Vec::new();
    for (key, &token) in keys.iter().zip(&tokens) {
        stream.extend(wire::acquire(key, 2, 60, 60));
        stream.extend(wire::acquire(key, 3, 0, 60));
        stream.extend(wire::release(key, token - 1));
        stream.extend(wire::release(key, token));
        stream.extend(wire::release(key, token));
        stream.extend(wire::acquire(key, 4, 0, 60));
    }
    raw.send(stream);
    let mut replies = Vec::new();
    for _ in 0..6 * keys.len() {
        replies.push(raw.read());
    }
    for (key, token) in keys.iter().zip(tokens) {
        let mut own = replies.iter().filter(|reply| reply.key() == Some(key.as_bytes()));
        assert_eq!(own.next(), Some(&Reply::timed_out(3, key)));
        assert_eq!(own.next(), Some(&Reply::not_held(token - 1, key)));
        assert_eq!(own.next(), Some(&Reply::released(token, key)));
        assert!(matches!(own.next(), Some(Reply::Granted { owner: 2, .. })));
        assert_eq!(own.next(), Some(&Reply::not_held(token, key)));
        assert_eq!(own.next(), Some(&Reply::timed_out(4, key)));
    }
    raw.expect_silence(Duration::from_millis(200));
}

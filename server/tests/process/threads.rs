//! Many clients at a time, with one thread that serves and with several.

use std::collections::HashSet;
use std::thread;

use ticketing_test_support::{Raw, Reply, Server, wire};

const CLIENTS: u64 = 8;
const ROUNDS: u64 = 200;

#[test]
fn every_request_is_answered_and_no_token_is_given_twice() {
    for threads in ["1", "4"] {
        let server = Server::builder().admin().args(["--threads", threads]).start();
        let tokens = thread::scope(|scope| {
            let addr = server.addr();
            let clients = (0..CLIENTS).map(|client| scope.spawn(move || contend(addr, client)));
            let clients = clients.collect::<Vec<_>>();
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(tokens.len() as u64, CLIENTS * ROUNDS);
        assert_eq!(tokens.iter().collect::<HashSet<_>>().len(), tokens.len());
        assert_eq!(server.metric("ticketing_waiters"), Some(0.0));
    }
}

/// All clients want the same key and one of their own, in one segment.
fn contend(addr: std::net::SocketAddr, client: u64) -> Vec<u64> {
    let mut raw = Raw::open(addr);
    let own = format!("own{client}");
    let mut tokens = Vec::new();
    for round in 0..ROUNDS / 2 {
        let owner = client * ROUNDS + round;
        raw.send([wire::acquire("shared", owner, 60, 60), wire::acquire(&own, owner, 60, 60)].concat());
        let mut released = 0;
        while released < 2 {
            let reply = raw.read();
            if let Reply::Granted { token, owner: told, key } = reply {
                assert_eq!(told, owner);
                tokens.push(token);
                raw.release(&key, token);
            } else {
                assert!(matches!(reply, Reply::Released { .. }), "{reply:?}");
                released += 1;
            }
        }
    }
    tokens
}

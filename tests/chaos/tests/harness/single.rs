//! One server under faults: what its clients see is explained by them.

use std::net::SocketAddr;
use std::time::Duration;

use ticketing_chaos::{Cut, Host, Load, Loopback, Network, Node, Place, Way};
use ticketing_history::{Call, Event, History, Op, Rule, Rules, SECOND, Summary, check};
use ticketing_test_support::{PATIENCE, Server};

const SERVER: Host = Host(0);
const CLIENT: Host = Host(1);
const PORT: u16 = 5225;

fn node(network: &Network) -> Node {
    let listen = SocketAddr::new(network.ip(SERVER), PORT);
    let builder = Server::builder().arg("--insecure-no-auth");
    let mut node = Node::new(network.place(SERVER), listen, builder);
    node.start();
    node
}

#[track_caller]
fn judge(history: &History, rules: &Rules) -> Summary {
    let violations = check(history, rules);
    assert!(violations.is_empty(), "{} violations, the first: {}", violations.len(), violations[0]);
    history.summary()
}

#[test]
fn a_server_that_is_left_alone() {
    let network = Network::new(2);
    let node = node(&network);
    let load = Load { forget: 1, oversleep: 1, leases: &[1, 2], keys: 100, ..Load::default() };
    let running = load.start(&network.place(CLIENT), &[network.route(CLIENT, SERVER, PORT)], 0);
    running.wait_granted(3000, PATIENCE);
    assert_eq!(node.admin("/healthz").unwrap().0, 200);
    let history = running.finish();
    let in_queue = |op: &&Op| matches!(op.call, Call::Acquire { queued: Some(_), .. });
    assert!(history.ops.iter().filter(in_queue).count() > 10, "nobody was seen in a queue");
    let summary = judge(&history, &Rules::default());
    let Summary { timed_out, given_back, released, not_held, indeterminate, busy, not_sent, .. } = summary;
    for some in [timed_out, given_back, released, not_held] {
        assert!(some > 0, "{summary:?}");
    }
    assert_eq!((indeterminate, busy, not_sent), (0, 0, 0), "{summary:?}");
}

#[test]
fn a_server_that_is_killed() {
    let network = Network::new(2);
    let mut node = node(&network);
    let running = Load::default().start(&network.place(CLIENT), &[network.route(CLIENT, SERVER, PORT)], 0);
    for _ in 0..3 {
        running.wait_granted(500, PATIENCE);
        running.noting(Event::Forgot, || node.kill());
        node.start();
    }
    running.wait_granted(500, PATIENCE);
    let history = running.finish();
    let summary = judge(&history, &Rules { late_expiry: Some(30 * SECOND), ..Rules::default() });
    assert!(summary.indeterminate > 0 && summary.busy == 0, "{summary:?}");
    // The note is what explains it: without it, locks were lost.
    let mut unexplained = history;
    unexplained.notes.retain(|note| note.event == Event::End);
    assert!(!check(&unexplained, &Rules::default()).is_empty(), "nothing was held when it was killed");
}

#[test]
fn a_server_that_is_told_to_stop() {
    let network = Network::new(2);
    let mut node = node(&network);
    let running = Load::default().start(&network.place(CLIENT), &[network.route(CLIENT, SERVER, PORT)], 0);
    running.wait_granted(500, PATIENCE);
    running.noting(Event::Forgot, || node.stop());
    node.start();
    running.wait_granted(500, PATIENCE);
    let summary = judge(&running.finish(), &Rules { busy: true, ..Rules::default() });
    assert!(summary.busy > 0, "{summary:?}");
}

#[test]
fn a_server_that_is_paused() {
    let network = Network::new(2);
    let node = node(&network);
    let load = Load { leases: &[1, 2], oversleep: 2, keys: 20, ..Load::default() };
    let running = load.start(&network.place(CLIENT), &[network.route(CLIENT, SERVER, PORT)], 0);
    for _ in 0..3 {
        running.wait_granted(300, PATIENCE);
        running.remarking("paused", || {
            node.pause();
            std::thread::sleep(Duration::from_millis(1500));
            node.resume();
        });
    }
    running.wait_granted(300, PATIENCE);
    judge(&running.finish(), &Rules::default());
}

/// Nothing is decided twice, whichever way is cut, and all goes on when it is healed.
fn cut_and_heal(network: &Network) {
    let _node = node(network);
    let load = Load { leases: &[1, 2], waits: &[0, 1, 3], ..Load::default() };
    let running = load.start(&network.place(CLIENT), &[network.route(CLIENT, SERVER, PORT)], 0);
    let (there, back) = (Cut::one_way(CLIENT, SERVER), Cut::one_way(SERVER, CLIENT));
    for (cut, secs) in [(there.clone(), 2), (back.clone(), 2), (there | back, 8)] {
        running.wait_granted(300, 2 * PATIENCE);
        network.cut(&cut);
        // What was on its way may still arrive.
        running.remarking(&format!("{cut:?}"), || std::thread::sleep(Duration::from_millis(200)));
        let before = running.granted();
        running.remarking(&format!("{cut:?}"), || std::thread::sleep(Duration::from_secs(secs)));
        // Answers still come where they can: leases end, and the next in the queue is told.
        if cut.is_cut(SERVER, CLIENT) {
            assert_eq!(running.granted(), before, "{cut:?}");
        }
        network.heal();
    }
    running.wait_granted(300, 2 * PATIENCE);
    let rules = Rules { late_answer: Some(20 * SECOND), ..Rules::default() };
    let summary = judge(&running.finish(), &rules);
    assert!(summary.indeterminate > 0, "{summary:?}");
}

#[test]
fn a_network_that_is_cut() {
    cut_and_heal(&Network::new(2));
}

#[test]
fn a_network_of_proxies_that_is_cut() {
    cut_and_heal(&Network::loopback(2));
}

#[test]
fn connections_that_are_cut_at_any_byte_and_slow() {
    let network = Loopback::new(2);
    let addr = SocketAddr::new(network.ip(SERVER), PORT);
    let _server = Server::builder().listen(addr).arg("--insecure-no-auth").start();
    let any = SocketAddr::new(network.ip(CLIENT), 0);
    let proxy = ticketing_chaos::Proxy::start(any, addr, &Place::default());
    for way in [Way::There, Way::Back] {
        proxy.delay(way, Duration::from_millis(1), Duration::from_millis(10));
    }
    let load = Load { pause: Duration::from_millis(50), ..Load::default() };
    let running = load.start(&Place::default(), &[proxy.addr()], 0);
    for bytes in 0..16 {
        let way = if bytes % 2 == 0 { Way::There } else { Way::Back };
        running.wait_granted(10, PATIENCE);
        running.remarking("a connection is cut", || proxy.cut_after(way, bytes * 31));
    }
    running.wait_granted(100, PATIENCE);
    let summary = judge(&running.finish(), &Rules::default());
    assert!(summary.indeterminate > 0 && summary.not_acquired > 0, "{summary:?}");
}

/// The judge is not asleep: two servers that do not know each other are no lock service.
#[test]
fn a_service_that_is_split_in_two() {
    let servers = [Server::start(&[]), Server::start(&[])];
    let load = Load { brokers: 2, ..Load::default() };
    let running =
        [0, 1].map(|half| load.start(&Place::default(), &[servers[half].addr()], 100 * half as u64));
    running.iter().for_each(|running| running.wait_granted(500, PATIENCE));
    let mut history = History::default();
    for half in running.map(ticketing_chaos::Running::finish) {
        history.ops.extend(half.ops);
        history.notes.extend(half.notes);
    }
    let rules: Vec<Rule> =
        check(&history, &Rules::default()).iter().map(|violation| violation.rule).collect();
    for broken in [Rule::Exclusion, Rule::TokenOrder] {
        assert!(rules.contains(&broken), "{broken:?} was not seen, but {rules:?}");
    }
}

//! How sessions are opened, chosen, lost and opened again.

use std::time::Instant;

use ticketing::{Domain, ErrorKind, TicketBroker, TicketError};
use ticketing_protocol::ServerFrame;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::common::lock_server::{Behaviour, LockServer};
use crate::common::scripted::{Asked, Intro, Scripted};
use crate::common::{PATIENCE, millis, secs, soon, wait_until};

fn is_open(broker: &TicketBroker, connection: usize) -> bool {
    broker.connections()[connection].open
}

/// An address that nobody listens on, for now.
async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

#[tokio::test]
async fn a_single_address_has_two_connections_and_survives_the_loss_of_one() {
    let server = Scripted::bind().await;
    let broker = TicketBroker::connect([&server.address, &server.address]).unwrap();
    let mut first = server.accept_leading().await;
    let second = server.accept_leading().await;
    wait_until("both are open", || {
        broker.connections().iter().all(|connection| connection.leads == Some(true))
    })
    .await;
    assert_eq!(broker.connections().len(), 2);
    drop(second);
    wait_until("one is lost", || broker.connections().iter().any(|connection| !connection.open)).await;
    for token in 1..5 {
        let acquire = tokio::spawn(broker.acquire("k", secs(5), secs(5)));
        let owner = first.next_acquire().await;
        first.grant(owner, token, 5000, "k").await;
        let _ = soon("a ticket", acquire).await.unwrap().unwrap().detach();
    }
}

#[tokio::test]
async fn a_release_is_tried_again_when_its_connection_ends_and_only_r_means_released() {
    let server = Scripted::bind().await;
    let broker = TicketBroker::connect([&server.address]).unwrap();
    let mut peers = vec![server.accept_leading().await, server.accept_leading().await];
    wait_until("both are open", || is_open(&broker, 0) && is_open(&broker, 1)).await;
    let release = {
        let broker = broker.clone();
        tokio::spawn(async move { broker.release("k", 7).await })
    };
    let [one, two] = &mut peers[..] else { unreachable!() };
    let asked = tokio::select! { asked = one.next() => (0, asked), asked = two.next() => (1, asked) };
    assert_eq!(asked.1, Asked::Release { token: 7, key: "k".to_owned() });
    drop(peers.remove(asked.0));
    let mut other = peers.remove(0);
    assert_eq!(other.next_release().await, 7);
    // It may have been ours, the first time; all that is sure is that it is not held now.
    other.send(ServerFrame::NotHeld { token: 7, key: ticketing_protocol::Key::new("k").unwrap() }).await;
    let error = soon("the release", release).await.unwrap().unwrap_err();
    assert!(error.is_not_held() && error.may_have_released(), "{error}");
}

#[tokio::test]
async fn a_release_without_any_answer_is_never_a_success() {
    let server = Scripted::bind().await;
    let broker = TicketBroker::connect([&server.address]).unwrap();
    let (mut one, mut two) = (server.accept_leading().await, server.accept_leading().await);
    broker.wait_ready(PATIENCE).await.unwrap();
    let start = Instant::now();
    let release = broker.release("k", 7);
    let asked = async {
        tokio::select! { asked = one.next() => asked, asked = two.next() => asked }
    };
    let (error, asked) = tokio::join!(soon("the release", release), asked);
    assert_eq!(asked, Asked::Release { token: 7, key: "k".to_owned() });
    let (error, took) = (error.unwrap_err(), start.elapsed());
    assert_eq!((error.kind(), error.token()), (ErrorKind::ReleaseUnconfirmed, Some(7)));
    assert!(took >= secs(5) && took < secs(15), "{took:?}");
}

#[tokio::test]
async fn without_a_server_the_wait_is_kept_and_the_cause_is_told() {
    let broker = TicketBroker::connect([nobody().await]).unwrap();
    for (wait, least) in [(secs(0), millis(1000)), (secs(2), millis(2000))] {
        let start = Instant::now();
        let error = soon("an outcome", broker.acquire("k", wait, secs(5))).await.unwrap_err();
        let took = start.elapsed();
        assert!(error.is_not_connected(), "{error}");
        assert!(took >= least && took < least + secs(5), "{took:?}");
        let cause = std::error::Error::source(&error).expect("a cause").to_string();
        assert!(cause.contains("cannot connect"), "{cause}");
    }
    let error = broker.wait_ready(millis(10)).await.unwrap_err();
    assert!(error.is_not_connected());
    assert!(broker.connections()[0].last_error.as_ref().unwrap().contains("refused"));
}

#[tokio::test]
async fn a_server_that_comes_late_is_found_within_the_wait() {
    let address = nobody().await;
    let broker = TicketBroker::connect([&address]).unwrap();
    let acquire = tokio::spawn(broker.acquire("k", secs(60), secs(5)));
    tokio::time::sleep(millis(300)).await;
    let listener = TcpListener::bind(&address).await.unwrap();
    let (stream, _) = soon("a connection", listener.accept()).await.unwrap();
    let mut peer = crate::common::scripted::Peer::greet(Box::new(stream), &Intro::leader(&address)).await;
    let owner = peer.next_acquire().await;
    peer.grant(owner, 1, 5000, "k").await;
    let ticket = soon("the ticket", acquire).await.unwrap().unwrap();
    assert_eq!(ticket.owner(), owner);
    let _ = ticket.detach();
}

#[tokio::test]
async fn a_release_waits_for_a_session() {
    let address = nobody().await;
    let broker = TicketBroker::connect([&address]).unwrap();
    let release = {
        let broker = broker.clone();
        tokio::spawn(async move { broker.release("k", 7).await })
    };
    tokio::time::sleep(millis(150)).await;
    let listener = TcpListener::bind(&address).await.unwrap();
    let (stream, _) = soon("a connection", listener.accept()).await.unwrap();
    let mut peer = crate::common::scripted::Peer::greet(Box::new(stream), &Intro::leader(&address)).await;
    assert_eq!(peer.next_release().await, 7);
    peer.released(7, "k").await;
    soon("the release", release).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_lost_session_comes_back_after_a_pause() {
    let server = Scripted::bind().await;
    let broker = TicketBroker::connect([&server.address, &nobody().await]).unwrap();
    let mut at = Vec::new();
    for _ in 0..4 {
        // Each session is far shorter than a second, so the pauses double.
        drop(server.accept_leading().await);
        at.push(Instant::now());
    }
    for (gap, least) in at.windows(2).zip([100, 200, 400]) {
        assert!(gap[1] - gap[0] >= millis(least), "{:?} is less than {least} ms", gap[1] - gap[0]);
    }
    drop(broker);
}

#[tokio::test]
async fn a_wrong_token_is_told_as_such_and_soon() {
    let server = LockServer::with(Behaviour { token: "the right one", ..Behaviour::default() });
    let broker = TicketBroker::builder().address(&server.address).token("a wrong one").build().unwrap();
    let error = soon("an outcome", broker.acquire("k", secs(60), secs(5))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth, "{error:?}");
    assert_eq!(broker.wait_ready(secs(60)).await.unwrap_err().kind(), ErrorKind::Auth);
    assert_eq!(broker.release("k", 1).await.unwrap_err().kind(), ErrorKind::Auth);
    assert_eq!(server.counts().acquires, 0);
    let right = TicketBroker::builder().address(&server.address).token("the right one").build().unwrap();
    right.acquire("k", secs(60), secs(5)).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn one_address_that_works_hides_the_wrong_configuration_of_another() {
    let right = LockServer::start();
    let wrong = LockServer::with(Behaviour { token: "another", ..Behaviour::default() });
    let broker = TicketBroker::connect([&wrong.address, &right.address]).unwrap();
    broker.acquire("k", secs(60), secs(5)).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn another_domain_is_refused_by_name() {
    let server = LockServer::start();
    let expected = Domain([9; 16]);
    let broker = TicketBroker::builder().address(&server.address).expect_domain(expected).build().unwrap();
    let error = soon("an outcome", broker.acquire("k", secs(60), secs(5))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongDomain);
    let told = format!("{error:?}");
    assert!(told.contains(&"09".repeat(16)) && told.contains(&"07".repeat(16)), "{told}");
    let broker = TicketBroker::builder()
        .address(&server.address)
        .expect_domain(crate::common::lock_server::DOMAIN)
        .build()
        .unwrap();
    broker.acquire("k", secs(60), secs(5)).await.unwrap().release().await.unwrap();
}

/// What a broker says about a server that does this with its first connection.
async fn opened_by(script: impl AsyncFnOnce(TcpStream)) -> TicketError {
    let server = Scripted::bind().await;
    let broker = TicketBroker::connect([&server.address, &nobody().await]).unwrap();
    let stream = server.accept_raw().await;
    let failed = async {
        wait_until("it failed", || broker.connections()[0].last_error.is_some()).await;
    };
    tokio::join!(script(stream), failed);
    soon("an outcome", broker.wait_ready(millis(1))).await.map(|()| panic!("it is open")).unwrap_err()
}

#[tokio::test]
async fn refusals_during_the_handshake_are_told() {
    let in_place_of_the_greeting = |reason: &'static [u8]| {
        opened_by(async move |mut stream: TcpStream| stream.write_all(reason).await.unwrap())
    };
    for reason in [&b"Etoo_many_connections\n"[..], b"Eshutting_down\n", b"Esomething_new\n"] {
        let told = format!("{:?}", in_place_of_the_greeting(reason).await);
        let word = std::str::from_utf8(&reason[1..reason.len() - 1]).unwrap();
        assert!(told.contains("NotConnected"), "{told}");
        // The last trouble may be that of the other address; its own is shown by connections().
        let _ = word;
    }
    for nonsense in [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"TICKETING/2 nonce\n", &[b'x'; 300]] {
        assert!(in_place_of_the_greeting(nonsense).await.is_not_connected());
    }
    let not_active = opened_by(async |mut stream: TcpStream| {
        stream.write_all(b"TICKETING/1;node=1 nonce\n").await.unwrap();
        while stream.read_u8().await.unwrap() != b'\n' {}
        tokio::time::sleep(millis(500)).await;
        stream.write_all(b"Enot_active\n").await.unwrap();
    });
    assert!(not_active.await.is_not_connected());
}

#[tokio::test]
async fn what_a_connection_waits_for_is_told_when_nobody_waits_any_longer() {
    let server = Scripted::bind().await;
    let broker = TicketBroker::connect([&server.address]).unwrap();
    let (_one, _two) = (server.accept_raw().await, server.accept_raw().await);
    for wait in [0, 1] {
        let error = soon("an outcome", broker.acquire("k", secs(wait), secs(5))).await.unwrap_err();
        assert!(error.is_not_connected());
        let told = format!("{error:?}");
        assert!(told.contains("no greeting (does that port want TLS?) so far"), "{told}");
    }
    // A server without a certificate that gives up says the same.
    drop((_one, _two));
    wait_until("the next attempt", || {
        let told = broker.connections()[0].last_error.clone().unwrap_or_default();
        told.contains("closed the connection before its greeting (does that port want TLS?)")
    })
    .await;
}

#[tokio::test]
async fn a_server_without_a_first_frame_is_used_after_a_silence() {
    let server = Scripted::bind().await;
    let broker = TicketBroker::connect([&server.address, &nobody().await]).unwrap();
    let mut peer = server.accept(&Intro::base()).await;
    let greeted = Instant::now();
    let acquire = tokio::spawn(broker.acquire("k", secs(60), secs(5)));
    let owner = peer.next_acquire().await;
    // Measured from the response, which came a moment after the greeting.
    assert!(greeted.elapsed() >= millis(250), "{:?}", greeted.elapsed());
    peer.busy(owner, "k").await;
    assert!(soon("an outcome", acquire).await.unwrap().unwrap_err().is_busy());
}

#[tokio::test]
async fn no_request_is_sent_before_the_first_frame() {
    let server = Scripted::bind().await;
    let broker = TicketBroker::connect([&server.address, &nobody().await]).unwrap();
    let acquire = tokio::spawn(broker.acquire("k", secs(60), secs(5)));
    let silent = Intro { leader: None, ..Intro::leader("me:1") };
    let mut peer = server.accept(&silent).await;
    // Longer than the patience with servers that announce nothing, and than the
    // pause of a refusal: whoever announces itself may still refuse us.
    peer.quiet_for(millis(500)).await;
    peer.send(ServerFrame::Leader { address: "me:1" }).await;
    let owner = peer.next_acquire().await;
    peer.busy(owner, "k").await;
    assert!(soon("an outcome", acquire).await.unwrap().unwrap_err().is_busy());
}

#[tokio::test]
async fn a_session_gone_silent_is_given_up_and_opened_anew() {
    let server = Scripted::bind().await;
    let broker = TicketBroker::connect([&server.address, &nobody().await]).unwrap();
    let mut peer = server.accept_leading().await;
    peer.send_raw(b"\n").await;
    let start = Instant::now();
    let error = soon("an outcome", broker.acquire("k", secs(200), secs(5))).await.unwrap_err();
    let took = start.elapsed();
    assert!(error.is_indeterminate(), "{error:?}");
    assert!(took >= secs(6) && took < secs(16), "{took:?}");
    let mut again = server.accept_leading().await;
    let acquire = tokio::spawn(broker.acquire("k", secs(60), secs(5)));
    let owner = again.next_acquire().await;
    again.busy(owner, "k").await;
    assert!(soon("an outcome", acquire).await.unwrap().unwrap_err().is_busy());
}

//! TLS: who is trusted, what is told when nobody is, and the same fates as
//! without it.

use std::error::Error;
use std::iter;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use ticketing::{ErrorKind, TicketBroker, TlsOptions};
use ticketing_protocol::{Key, ServerFrame};
use ticketing_test_support::{Authority, Identity};
use tokio_rustls::TlsAcceptor;

use crate::common::scripted::{Intro, Peer, Scripted};
use crate::common::{secs, soon, wait_until};

fn acceptor(identity: &Identity) -> TlsAcceptor {
    let chain = CertificateDer::pem_file_iter(&identity.certificate).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(&identity.key).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    Arc::new(config).into()
}

fn broker(address: &str, tls: TlsOptions) -> TicketBroker {
    TicketBroker::builder().addresses([address, "localhost:1"]).tls(tls).build().unwrap()
}

async fn accept(server: &Scripted, acceptor: &TlsAcceptor) -> Peer {
    let stream = server.accept_raw().await;
    let stream = soon("a TLS handshake", acceptor.accept(stream)).await.unwrap();
    Peer::greet(Box::new(stream), &Intro::leader("me:1")).await
}

/// The one acquire that a good configuration lets through.
async fn serves(address: &str, tls: TlsOptions, server: &Scripted, acceptor: &TlsAcceptor) {
    let broker = broker(address, tls);
    let mut peer = accept(server, acceptor).await;
    let acquire = tokio::spawn(broker.acquire("k", secs(20), secs(20)));
    let owner = peer.next_acquire().await;
    peer.grant(owner, 1, 20_000, "k").await;
    let _ = soon("a ticket", acquire).await.unwrap().unwrap().detach();
    broker.close().await;
    peer.ended().await;
}

#[tokio::test]
async fn a_private_ca_is_trusted_for_the_names_that_it_signed() {
    let authority = Authority::new();
    let server = Scripted::bind().await;
    let port = server.address.rsplit_once(':').unwrap().1.to_owned();
    let acceptor = acceptor(&authority.issue("server", &["localhost", "127.0.0.1", "locks.internal"]));
    let file = TlsOptions::default().with_ca_file(authority.root_file());
    let pem = TlsOptions::default().with_ca_pem(std::fs::read(authority.root_file()).unwrap());
    serves(&server.address, file.clone(), &server, &acceptor).await;
    serves(&format!("localhost:{port}"), pem, &server, &acceptor).await;
    serves(&server.address, file.with_server_name("locks.internal"), &server, &acceptor).await;
}

/// What an acquire says when every connection fails in this way.
async fn refusal(server: &Scripted, acceptor: &TlsAcceptor, tls: TlsOptions) -> ticketing::TicketError {
    let broker = TicketBroker::builder().address(&server.address).tls(tls).build().unwrap();
    let acceptor = acceptor.clone();
    let refuse = async {
        loop {
            // The client is the one that says no.
            let _ = acceptor.accept(server.accept_raw().await).await;
        }
    };
    tokio::select! {
        outcome = soon("an outcome", broker.acquire("k", secs(60), secs(20))) => outcome.unwrap_err(),
        () = refuse => unreachable!(),
    }
}

#[tokio::test]
async fn whoever_is_not_trusted_is_refused_as_tls() {
    let authority = Authority::new();
    let server = Scripted::bind().await;
    let good = acceptor(&authority.issue("server", &["127.0.0.1"]));
    let other_name = acceptor(&authority.issue("other", &["elsewhere.internal"]));
    let ours = TlsOptions::default().with_ca_file(authority.root_file());
    let stranger = Authority::new();
    let theirs = TlsOptions::default().with_ca_file(stranger.root_file());
    let both = authority.issue_self_signed("both", &["127.0.0.1"]);
    let both_trusted = TlsOptions::default().with_ca_file(&both.certificate);
    for (what, acceptor, tls, told) in [
        ("another CA", &good, theirs, "not signed by a CA that is trusted here"),
        ("the system's roots", &good, TlsOptions::default(), "not signed by a CA that is trusted here"),
        ("another name", &other_name, ours.clone(), "for another name"),
        (
            "the name that was asked for",
            &good,
            ours.with_server_name("elsewhere.internal"),
            "for another name",
        ),
        ("a CA as a server", &acceptor(&both), both_trusted, "the certificate of a CA as its own"),
    ] {
        let error = refusal(&server, acceptor, tls).await;
        assert_eq!(error.kind(), ErrorKind::Tls, "{what}: {error:?}");
        let causes = iter::successors(error.source(), |cause| Error::source(*cause));
        let text = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
        assert!(text.contains(told) && !text.contains("OtherError"), "{what}: {text}");
    }
}

#[tokio::test]
async fn verification_is_off_only_when_it_is_called_dangerous() {
    let authority = Authority::new();
    let server = Scripted::bind().await;
    let acceptor = acceptor(&authority.issue("server", &["elsewhere.internal"]));
    let tls = TlsOptions::default().dangerously_accept_any_certificate();
    serves(&server.address, tls, &server, &acceptor).await;
}

#[tokio::test]
async fn tls_to_a_plain_server_is_told_as_tls() {
    let server = crate::common::lock_server::LockServer::start();
    let tls = TlsOptions::default().dangerously_accept_any_certificate();
    let broker = TicketBroker::builder().address(&server.address).tls(tls).build().unwrap();
    let error = soon("an outcome", broker.acquire("k", secs(60), secs(20))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tls, "{error:?}");
}

#[tokio::test]
async fn plain_to_a_tls_server_hints_at_tls() {
    let server = Scripted::bind().await;
    let broker = TicketBroker::connect([&server.address, "localhost:1"]).unwrap();
    // It waits for a hello that never comes, and gives up.
    let stream = server.accept_raw().await;
    drop(stream);
    wait_until("it failed", || broker.connections()[0].last_error.is_some()).await;
    let told = broker.connections()[0].last_error.clone().unwrap();
    assert!(told.contains("TLS"), "{told}");
}

#[tokio::test]
async fn a_stream_cut_inside_a_grant_is_no_grant() {
    let authority = Authority::new();
    let server = Scripted::bind().await;
    let acceptor = acceptor(&authority.issue("server", &["127.0.0.1"]));
    let broker = broker(&server.address, TlsOptions::default().with_ca_file(authority.root_file()));
    let mut peer = accept(&server, &acceptor).await;
    let acquire = tokio::spawn(broker.acquire("k", secs(60), secs(20)));
    let owner = peer.next_acquire().await;
    let mut frame = Vec::new();
    let key = Key::new("k").unwrap();
    ServerFrame::GrantedUntil { token: 1, owner, ends_ms: 20_000, key }.encode(&mut frame);
    peer.send_raw(&frame[..frame.len() - 1]).await;
    // Without a farewell of TLS.
    drop(peer);
    assert!(soon("an outcome", acquire).await.unwrap().unwrap_err().is_indeterminate());
    // What was not sent by then goes on, on the next connection.
    let acquire = tokio::spawn(broker.acquire("k", secs(60), secs(20)));
    let mut peer = accept(&server, &acceptor).await;
    let owner = peer.next_acquire().await;
    peer.busy(owner, "k").await;
    assert!(soon("an outcome", acquire).await.unwrap().unwrap_err().is_busy());
}

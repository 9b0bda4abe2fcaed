//! Connections under TLS, and attempts at them.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tempfile::TempDir;
use ticketing_peer::{CallError, CallResult, Config, Limits, Peer, PeerTls, PeerTlsFiles, Refusal};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::logs::Logs;
use crate::node::*;
use crate::wire::Wire;

/// A CA in a folder.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // By its name a verifier finds the CA of a certificate.
        params.distinguished_name.push(DnType::CommonName, hex(&key));
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Self { issuer: Issuer::new(params, key), folder }
    }

    /// A certificate for this host.
    fn files(&self, host: &str) -> PeerTlsFiles {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([host.to_owned()]).unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let path = |name: &str| self.folder.path().join(format!("{host}.{name}"));
        fs::write(path("cert"), cert.pem()).unwrap();
        fs::write(path("key"), key.serialize_pem()).unwrap();
        PeerTlsFiles { cert: path("cert"), key: path("key"), ca: Some(self.folder.path().join("ca.pem")) }
    }

    fn tls(&self, host: &str) -> PeerTls {
        PeerTls::load(self.files(host)).unwrap()
    }
}

fn hex(key: &KeyPair) -> String {
    key.public_key_raw().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn over(tls: PeerTls) -> Config {
    Config { tls: Some(tls), ..config() }
}

#[track_caller]
fn unreachable(result: CallResult, reasons: &[&str]) {
    let Err(CallError::Unreachable(why)) = result else { panic!("{result:?}") };
    assert!(reasons.iter().all(|reason| why.contains(reason)), "{why}");
}

#[tokio::test]
async fn nodes_with_certificates_of_one_ca_talk() {
    let ca = Authority::new();
    let node = Node::start(over(ca.tls("127.0.0.1"))).await;
    let peer = node.peer(over(ca.tls("127.0.0.1")));
    for size in [0, 1, 16_384, 100_000, 8 << 20] {
        let body = (0..=250).cycle().take(size).collect::<Vec<u8>>();
        assert!(peer.call(ECHO, body.clone(), soon()).await.unwrap() == body, "{size} bytes");
    }
    let calls = (0..1000_u32).map(|number| peer.call(ECHO, number.to_string(), soon())).collect::<Vec<_>>();
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap(), number.to_string());
    }
    // By name, as the address has it.
    let named = over(ca.tls("localhost"));
    let node = Node::start(named.clone()).await;
    let peer = Peer::new(format!("localhost:{}", node.at.port()), ONE, TWO, named);
    echo(&peer, "x").await.unwrap();
}

#[tokio::test]
async fn tls_at_one_end_only_is_found_out_at_both() {
    let ca = Authority::new();
    let logs = Logs::collect();
    let node = Node::start(over(ca.tls("127.0.0.1"))).await;
    unreachable(echo(&node.peer(config()), "x").await, &["the other side speaks TLS"]);
    until("the listener to tell", || logs.with("the TLS handshake of a peer failed").len() == 1).await;

    let logs = Logs::collect();
    let node = Node::start(config()).await;
    let peer = node.peer(over(ca.tls("127.0.0.1")));
    unreachable(echo(&peer, "x").await, &["TLS failed", "is TLS on at both ends"]);
    let told = || logs.with("a connection to the peer port was refused");
    until("the listener to tell", || told().len() == 1).await;
    assert!(told()[0].contains("the other side speaks TLS"));
}

#[tokio::test]
async fn a_certificate_that_does_not_fit_is_refused_by_whoever_sees_it() {
    let (ca, other) = (Authority::new(), Authority::new());
    let node = Node::start(over(ca.tls("127.0.0.1"))).await;
    let logs = Logs::collect();
    // Each end sees a certificate of another CA; the dialler is the first to say so.
    unreachable(echo(&node.peer(over(other.tls("127.0.0.1"))), "x").await, &["UnknownIssuer"]);
    until("the listener to tell", || logs.with("the TLS handshake of a peer failed").len() == 1).await;

    // Only the listener does.
    let logs = Logs::collect();
    let mut files = other.files("127.0.0.1");
    files.ca = ca.files("127.0.0.1").ca;
    let node = Node::start(over(ca.tls("127.0.0.1"))).await;
    let peer = node.peer(over(PeerTls::load(files).unwrap()));
    unreachable(echo(&peer, "x").await, &["TLS failed"]);
    until("the listener to tell", || logs.with("UnknownIssuer").len() == 1).await;

    // The right CA, the wrong host.
    let node = Node::start(over(ca.tls("localhost"))).await;
    unreachable(echo(&node.peer(over(ca.tls("127.0.0.1"))), "x").await, &["not valid for name"]);
    assert_eq!(node.state.links(), 0);
}

/// Whoever knows the secret and has no certificate at all.
#[tokio::test]
async fn with_a_ca_the_listener_wants_a_certificate() {
    let ca = Authority::new();
    let node = Node::start(over(ca.tls("127.0.0.1"))).await;
    let logs = Logs::collect();
    let connector = TlsConnector::from(Arc::new(client(&ca, None)));
    let tcp = TcpStream::connect(node.at).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    // Under TLS 1.3 the dialler hears of it when it reads.
    if let Ok(mut stream) = connector.connect(name, tcp).await {
        let read = tokio::io::AsyncReadExt::read(&mut stream, &mut [0]).await;
        assert!(read.unwrap_err().to_string().contains("CertificateRequired"));
    }
    until("the listener to tell", || logs.with("peer sent no certificates").len() == 1).await;
}

/// Then the system's own CAs decide, which know nothing of ours. The listener
/// knows a dialler by the secret.
#[tokio::test]
async fn without_a_ca_a_dialler_does_not_trust_just_any_certificate() {
    let ca = Authority::new();
    let files = PeerTlsFiles { ca: None, ..ca.files("127.0.0.1") };
    match PeerTls::load(files) {
        Ok(tls) => {
            let node = Node::start(over(tls.clone())).await;
            unreachable(echo(&node.peer(over(tls.clone())), "x").await, &["UnknownIssuer"]);
            echo(&node.peer(over(ca.tls("127.0.0.1"))), "x").await.unwrap();
        }
        // A system without any CA.
        Err(error) => assert!(error.to_string().contains("no peer CA is given"), "{error}"),
    }
}

/// In a process of its own, whose system trusts our CA.
#[test]
#[cfg(target_os = "linux")]
fn without_a_ca_a_dialler_trusts_what_the_system_trusts() {
    let ca = Authority::new();
    ca.files("127.0.0.1");
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tls::trusting", "--ignored", "--nocapture"])
        .env("SSL_CERT_FILE", ca.folder.path().join("ca.pem"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && text.contains("1 passed"), "{text}");
}

#[tokio::test]
#[ignore = "needs a system that trusts a CA of ours, as the test above makes it"]
async fn trusting() {
    let folder = std::path::PathBuf::from(std::env::var_os("SSL_CERT_FILE").unwrap());
    let path = |name: &str| folder.with_file_name(format!("127.0.0.1.{name}"));
    let tls = PeerTls::load(PeerTlsFiles { cert: path("cert"), key: path("key"), ca: None }).unwrap();
    let node = Node::start(over(tls.clone())).await;
    echo(&node.peer(over(tls)), "x").await.unwrap();
}

/// A proxy with certificates that both ends trust ends TLS and passes on what is
/// inside. The proofs are of two different TLS connections.
#[tokio::test]
async fn a_good_certificate_between_two_nodes_is_found_out() {
    let ca = Authority::new();
    let tls = ca.tls("127.0.0.1");
    let node = Node::start(over(tls.clone())).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (between, files) = (listener.local_addr().unwrap(), ca.files("127.0.0.1"));
    let (chain, key) = pair(&files);
    let server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let (acceptor, connector) =
        (TlsAcceptor::from(Arc::new(server)), TlsConnector::from(Arc::new(client(&ca, Some(&files)))));
    let at = node.at;
    tokio::spawn(async move {
        let mut near = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let mut far = connector.connect(name, TcpStream::connect(at).await.unwrap()).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
    });
    assert_eq!(echo(&peer_at(between, over(tls)), "x").await, Err(CallError::Refused(Refusal::Secret)));
    assert_eq!(node.state.links(), 0);
}

#[tokio::test]
async fn e18_a_tls_handshake_that_stalls_is_ended_and_holds_nobody_up() {
    let ca = Authority::new();
    let logs = Logs::collect();
    let limits = Limits { handshake_timeout: Duration::from_millis(400), ..Limits::default() };
    let node = Node::start(Config { limits, ..over(ca.tls("127.0.0.1")) }).await;
    let start = Instant::now();
    let mut stalled = Wire::connect(node.at).await;
    stalled.send(b"\x16\x03\x01\x02\x00\x01", usize::MAX).await;
    echo(&node.peer(over(ca.tls("127.0.0.1"))), "x").await.unwrap();
    assert!(stalled.rest().await.is_empty());
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(400) && took < Duration::from_secs(20), "{took:?}");
    let lines = logs.with("the TLS handshake of a peer failed");
    assert!(lines.len() == 1 && lines[0].contains("it took too long"), "{lines:?}");
}

/// And a listener that stalls is given up, in time for the next attempt.
#[tokio::test]
async fn a_listener_that_stalls_under_tls_is_given_up() {
    let ca = Authority::new();
    let limits = Limits { connect_timeout: Duration::from_millis(300), ..Limits::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = Config { limits, ..over(ca.tls("127.0.0.1")) };
    let peer = peer_at(listener.local_addr().unwrap(), config);
    unreachable(echo(&peer, "x").await, &["no connection within 300ms"]);
}

/// New files count for new connections; bad files change nothing.
#[tokio::test]
async fn certificates_can_be_read_again() {
    let (old, new) = (Authority::new(), Authority::new());
    let files = old.files("127.0.0.1");
    let tls = PeerTls::load(files.clone()).unwrap();
    let node = Node::start(over(tls.clone())).await;
    let peer = node.peer(over(old.tls("127.0.0.1")));
    echo(&peer, "x").await.unwrap();

    let bad = fs::read(&files.key).unwrap();
    fs::write(&files.key, "no key at all").unwrap();
    assert!(tls.reload().unwrap_err().to_string().contains("private key"));
    fs::write(&files.key, bad).unwrap();

    let fresh = new.files("127.0.0.1");
    for (from, to) in
        [(&fresh.cert, &files.cert), (&fresh.key, &files.key), (&fresh.ca.unwrap(), &files.ca.unwrap())]
    {
        fs::copy(from, to).unwrap();
    }
    tls.reload().unwrap();
    echo(&peer, "an open connection stays").await.unwrap();
    echo(&node.peer(over(new.tls("127.0.0.1"))), "x").await.unwrap();
    assert_eq!(node.state.links(), 2);
}

#[test]
fn each_fault_of_the_files_names_its_file() {
    let ca = Authority::new();
    let files = ca.files("127.0.0.1");
    let text = |files: &PeerTlsFiles| PeerTls::load(files.clone()).unwrap_err().to_string();
    let missing = ca.folder.path().join("missing");
    for (files, parts) in [
        (PeerTlsFiles { cert: missing.clone(), ..files.clone() }, ["missing", "certificate chain"]),
        (PeerTlsFiles { key: missing.clone(), ..files.clone() }, ["missing", "private key"]),
        (PeerTlsFiles { ca: Some(missing.clone()), ..files.clone() }, ["missing", "CA certificate"]),
        (PeerTlsFiles { cert: files.key.clone(), ..files.clone() }, ["127.0.0.1.key", "no certificate"]),
        (PeerTlsFiles { ca: Some(files.key.clone()), ..files.clone() }, ["127.0.0.1.key", "no certificate"]),
        (
            PeerTlsFiles { key: ca.files("localhost").key, ..files.clone() },
            ["localhost.key", "127.0.0.1.cert"],
        ),
    ] {
        let text = text(&files);
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}

fn pair(files: &PeerTlsFiles) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = CertificateDer::pem_file_iter(&files.cert).unwrap().map(Result::unwrap).collect();
    (chain, PrivateKeyDer::from_pem_file(&files.key).unwrap())
}

/// A client that trusts the CA, with these files or without a certificate.
fn client(ca: &Authority, files: Option<&PeerTlsFiles>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca.folder.path().join("ca.pem")).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    match files.map(pair) {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
        None => builder.with_no_client_auth(),
    }
}

//! Bytes that are held back, come late, or end a connection.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ticketing_chaos::{Cut, Host, Loopback, Place, Proxy, Way};

const PATIENCE: Duration = Duration::from_secs(20);

/// A proxy, and the listener behind it.
fn proxy() -> (Proxy, TcpListener) {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = TcpListener::bind(any).unwrap();
    (Proxy::start(any, listener.local_addr().unwrap(), &Place::default()), listener)
}

/// The two ends of a connection through it.
fn connect(addr: SocketAddr, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let near = TcpStream::connect(addr).unwrap();
    let far = listener.accept().unwrap().0;
    for end in [&near, &far] {
        end.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    (near, far)
}

fn read(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// What comes until the end, however it ends.
fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 64];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..length]);
    }
    bytes
}

#[track_caller]
fn silent(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    stream.read_exact(&mut [0]).expect_err("silence");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
}

#[test]
fn bytes_and_ends_pass() {
    let (proxy, listener) = proxy();
    let (mut near, mut far) = connect(proxy.addr(), &listener);
    near.write_all(b"there").unwrap();
    assert_eq!(read(&mut far, 5), b"there");
    near.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&mut far), b"");
    // The other direction is still open.
    far.write_all(b"and back").unwrap();
    drop(far);
    assert_eq!(read_to_end(&mut near), b"and back");
    assert_eq!((proxy.passed(Way::There), proxy.passed(Way::Back)), (5, 8));
}

#[test]
fn a_connection_ends_after_any_byte() {
    let (proxy, listener) = proxy();
    let text = b"0123456789";
    for cut in 0..=9 {
        let (mut near, mut far) = connect(proxy.addr(), &listener);
        proxy.cut_after(Way::There, cut);
        near.write_all(text).unwrap();
        assert_eq!(read_to_end(&mut far), &text[..usize::try_from(cut).unwrap()], "cut after {cut}");
        assert_eq!(read_to_end(&mut near), b"");
    }
    // Each cut is for one connection.
    let (mut near, mut far) = connect(proxy.addr(), &listener);
    near.write_all(text).unwrap();
    assert_eq!(read(&mut far, 10), text);
    proxy.cut_after(Way::Back, 3);
    far.write_all(text).unwrap();
    assert_eq!(read_to_end(&mut near), b"012");
}

#[test]
fn one_direction_stalls() {
    let (proxy, listener) = proxy();
    let (mut near, mut far) = connect(proxy.addr(), &listener);
    proxy.stall(Way::Back, true);
    near.write_all(b"question").unwrap();
    assert_eq!(read(&mut far, 8), b"question");
    far.write_all(b"answer").unwrap();
    silent(&mut near);
    proxy.stall(Way::Back, false);
    assert_eq!(read(&mut near, 6), b"answer");
}

#[test]
fn bytes_come_late() {
    let (proxy, listener) = proxy();
    let (mut near, mut far) = connect(proxy.addr(), &listener);
    proxy.delay(Way::There, Duration::from_millis(300), Duration::from_millis(50));
    let start = Instant::now();
    near.write_all(b"slow").unwrap();
    read(&mut far, 4);
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
}

#[test]
fn all_connections_end() {
    let (proxy, listener) = proxy();
    let (mut near, mut far) = connect(proxy.addr(), &listener);
    proxy.cut();
    assert_eq!((read_to_end(&mut near), read_to_end(&mut far)), (vec![], vec![]));
    proxy.refuse(true);
    assert_eq!(read_to_end(&mut TcpStream::connect(proxy.addr()).unwrap()), b"");
    proxy.refuse(false);
    connect(proxy.addr(), &listener);
}

#[test]
fn hosts_on_loopback_can_be_cut_off() {
    let network = Loopback::new(3);
    let [a, b, c] = [0, 1, 2].map(Host);
    let listener = TcpListener::bind((network.ip(b), 7000)).unwrap();
    network.cut(&Cut::one_way(b, a));
    // A way that is asked for later is cut too.
    let (mut of_a, mut to_a) = connect(network.route(a, b, 7000), &listener);
    let (mut of_c, mut to_c) = connect(network.route(c, b, 7000), &listener);
    of_a.write_all(b"1").unwrap();
    assert_eq!(read(&mut to_a, 1), b"1");
    to_a.write_all(b"2").unwrap();
    to_c.write_all(b"3").unwrap();
    silent(&mut of_a);
    assert_eq!(read(&mut of_c, 1), b"3");
    network.cut(&Cut::isolate(c, &[a, b, c]));
    assert_eq!(read(&mut of_a, 1), b"2");
    to_c.write_all(b"4").unwrap();
    silent(&mut of_c);
    network.cut(&Cut::none());
    assert_eq!(read(&mut of_c, 1), b"4");
}

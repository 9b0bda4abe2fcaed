//! The scripted server itself, with a client played by hand: what is right
//! passes, and each way to be wrong is seen. An oracle that cannot fail is none.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

const SERVER: &str = env!("CARGO_BIN_EXE_ticketing-scripted-server");
const PATIENCE: Duration = Duration::from_secs(20);

/// The bytes of an acquire of key `k`, wait 5, lease 30, by owner 1.
const ACQUIRE: &[u8] = b"A\x05\x1e\0\0\0\0\0\0\0\x01k\n";
const RELEASE: &[u8] = b"R\0\0\0\0\0\0\0\x07k\n";

/// A table with one scenario `s`, and a process that plays it.
struct Play {
    _table: tempfile::TempDir,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

fn table(scenario: &Value) -> tempfile::TempDir {
    let table = tempfile::tempdir().unwrap();
    let file = json!({ "about": "a test", "scenarios": [scenario] });
    std::fs::write(table.path().join("table.json"), file.to_string()).unwrap();
    table
}

fn list(table: &Path) -> Result<String, String> {
    let output = Command::new(SERVER).arg("list").arg(table).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// A scenario with this script for the first connection of node `a`, and these
/// steps of the client after its broker.
fn scenario(script: &Value, client: &Value) -> Value {
    let mut steps = vec![json!({ "do": { "call": { "broker": { "addresses": ["{addr:a}"] } } } })];
    steps.extend(client.as_array().unwrap().iter().cloned());
    json!({
        "name": "s",
        "protects": "Something.",
        "limit_s": 3,
        "nodes": { "a": { "connections": [script], "max_connections": 2 } },
        "client": steps,
    })
}

impl Play {
    fn start(scenario: &Value) -> Self {
        let table = table(scenario);
        let mut command = Command::new(SERVER);
        command.arg("play").arg(table.path()).arg("s").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { _table: table, child, input, output: BufReader::new(output) }
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// The next call must be this one; gives its line.
    fn call(&mut self, kind: &str) -> Value {
        let line = self.line();
        assert_eq!(line["call"], kind, "{line:#}");
        line
    }

    fn reply(&mut self, call: &Value, mut outcome: Value) {
        outcome["id"] = call["id"].clone();
        if outcome.get("elapsed_ms").is_none() {
            outcome["elapsed_ms"] = 1.into();
        }
        writeln!(self.input, "{outcome}").unwrap();
    }

    /// Takes the `broker` call and connects to its address.
    fn connect(&mut self) -> Raw {
        let call = self.call("broker");
        self.reply(&call, json!({ "kind": "done" }));
        Raw::connect(call["addresses"][0].as_str().unwrap())
    }

    /// Takes the last `close`, and with it the connection.
    fn close(&mut self, raw: Raw) {
        let call = self.call("close");
        drop(raw);
        self.reply(&call, json!({ "kind": "done" }));
    }

    fn passes(mut self) {
        let verdict = self.line();
        assert_eq!(verdict["end"], "ok", "{verdict:#}");
        assert!(self.child.wait().unwrap().success());
    }

    fn fails(mut self, why: &str) -> Value {
        let mut verdict = self.line();
        while verdict.get("end").is_none() {
            if verdict["call"] == "close" {
                self.reply(&verdict, json!({ "kind": "done" }));
            }
            verdict = self.line();
        }
        assert_eq!(verdict["end"], "failed", "{verdict:#}");
        let told = verdict["why"].as_str().unwrap();
        assert!(told.contains(why), "{told:?} does not say {why:?}");
        assert!(!self.child.wait().unwrap().success());
        verdict
    }
}

/// A client's end of a connection.
struct Raw(TcpStream);

impl Raw {
    fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    fn expect(&mut self, bytes: &[u8]) {
        let mut got = vec![0; bytes.len()];
        self.0.read_exact(&mut got).unwrap();
        assert_eq!(got.escape_ascii().to_string(), bytes.escape_ascii().to_string());
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }

    /// Greeting, response, first frame.
    fn handshake(&mut self) {
        let greeting = self.line();
        let (head, nonce) = greeting.trim_end().split_once(' ').unwrap();
        assert!(
            head.starts_with("TICKETING/1;domain=000102030405060708090a0b0c0d0e0f;node=1;self=127.0.0.1:")
        );
        assert_eq!(nonce.len(), 22);
        let mut response = Vec::new();
        ticketing_protocol::handshake::encode_response(b"", nonce, head.ends_with(";ext=1"), &mut response);
        self.send(&response);
        let first = self.line();
        assert!(first.starts_with("L127.0.0.1:"), "{first:?}");
    }

    /// Everything up to the end of the stream, which may be a reset.
    fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest);
        rest
    }
}

fn grant() -> Value {
    scenario(
        &json!([
            { "open": {} },
            { "expect": { "acquire": {} } },
            { "send": [{ "granted": {} }] },
            { "expect": { "release": {} } },
            { "send": [{ "released": {} }] }
        ]),
        &json!([
            { "do": { "call": { "acquire": {} }, "is": "ticket" } },
            { "do": { "call": { "release": "acquire" }, "is": "released" } }
        ]),
    )
}

fn ticket() -> Value {
    json!({
        "kind": "ticket", "token": "7", "owner": "1", "remaining_ms": 29000.5,
        "domain": "000102030405060708090a0b0c0d0e0f"
    })
}

/// Up to the grant of `grant()`; gives the acquire's call.
fn granted(play: &mut Play) -> (Raw, Value) {
    let mut raw = play.connect();
    let call = play.call("acquire");
    assert_eq!((&call["key"], &call["wait"], &call["lease"]), (&json!("k"), &json!("30"), &json!("30")));
    raw.handshake();
    raw.send(b"\n\n");
    raw.send(ACQUIRE);
    raw.expect(b"A\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x01k\n");
    (raw, call)
}

#[test]
fn right_client_passes() {
    let mut play = Play::start(&grant());
    let (mut raw, acquire) = granted(&mut play);
    play.reply(&acquire, ticket());
    let release = play.call("release");
    assert_eq!(release["of"], acquire["id"]);
    // A frame may come in pieces, with keep-alives before it.
    raw.send(b"\n");
    raw.send(&RELEASE[..4]);
    raw.send(&RELEASE[4..]);
    raw.expect(RELEASE);
    play.reply(&release, json!({ "kind": "released" }));
    raw.send(b"\n");
    play.close(raw);
    play.passes();
}

#[test]
fn wrong_outcomes_are_seen() {
    for (field, value, why) in [
        ("token", json!("8"), "token: expected Some(\"7\")"),
        ("owner", json!("2"), "owner"),
        ("domain", json!(null), "domain"),
        ("kind", json!("timeout"), "kind: expected Ticket, got Timeout"),
        ("kind", json!("inexpressible"), "kind: expected Ticket, got Inexpressible"),
        ("kind", json!("nonsense"), "unknown variant `nonsense`"),
        ("surprise", json!(1), "unknown field `surprise`"),
        ("id", json!(77), "no call with this number"),
    ] {
        let mut play = Play::start(&grant());
        let (_raw, call) = granted(&mut play);
        let mut outcome = ticket();
        outcome[field] = value;
        if field == "id" {
            writeln!(play.input, "{}", json!({ "id": 77, "kind": "done", "elapsed_ms": 1 })).unwrap();
        } else {
            play.reply(&call, outcome);
        }
        play.fails(why);
    }
}

#[test]
fn times_are_compared() {
    for (elapsed_ms, why) in [(999.9, "duration"), (2000.1, "duration"), (1000.0, "")] {
        let step =
            json!([{ "do": { "call": { "wait_ready": {} }, "is": "ready", "within_ms": [1000, 2000] } }]);
        let mut play = Play::start(&scenario(&json!([{ "open": {} }]), &step));
        let mut raw = play.connect();
        raw.handshake();
        let call = play.call("wait_ready");
        play.reply(&call, json!({ "kind": "ready", "elapsed_ms": elapsed_ms }));
        if why.is_empty() {
            play.close(raw);
            play.passes();
        } else {
            play.fails(why);
        }
    }
}

#[test]
fn wrong_bytes_are_seen() {
    for (bytes, why) in [
        (&b"A\x1f\x1e\0\0\0\0\0\0\0\x01k\n"[..], "expected Acquire"),
        (b"A\x05\x1d\0\0\0\0\0\0\0\x01k\n", "expected Acquire"),
        (b"A\x05\x1e\0\0\0\0\0\0\0\x01kk\n", "expected Acquire"),
        (RELEASE, "expected Acquire"),
        (b"Z\n", "0x5a is no op of a client"),
    ] {
        let mut play = Play::start(&grant());
        let mut raw = play.connect();
        play.call("acquire");
        raw.handshake();
        raw.send(bytes);
        let verdict = play.fails(why);
        assert_eq!(verdict["connections"][0]["received_bytes"], 50 + bytes.len(), "{verdict:#}");
    }
}

#[test]
fn bytes_after_the_script_are_seen() {
    let step = json!([{ "do": { "call": { "wait_ready": {} }, "is": "ready" } }]);
    let mut play = Play::start(&scenario(&json!([{ "open": {} }]), &step));
    let mut raw = play.connect();
    raw.handshake();
    play.call("wait_ready");
    raw.send(b"\n");
    raw.send(&ACQUIRE[..1]);
    play.fails("nothing more was to come, got \"A\"");
}

#[test]
fn acquire_that_is_sent_again_is_seen() {
    let script = json!([{ "open": {} }, { "cut": { "frame": { "acquire": {} }, "after": 3, "how": "fin" } }]);
    let mut again =
        scenario(&script, &json!([{ "do": { "call": { "acquire": {} }, "is": "indeterminate" } }]));
    let next = json!([{ "open": {} }, { "expect": { "acquire": { "owner": "p" } } }, { "send": [{ "busy": { "owner": "p" } }] }]);
    again["nodes"]["a"]["connections"].as_array_mut().unwrap().push(next);

    let mut play = Play::start(&again);
    let mut raw = play.connect();
    let address = raw.0.peer_addr().unwrap().to_string();
    play.call("acquire");
    raw.handshake();
    raw.send(ACQUIRE);
    assert_eq!(raw.rest(), b"");
    drop(raw);
    let mut next = Raw::connect(&address);
    next.handshake();
    next.send(ACQUIRE);
    play.fails("the acquire of \"o\" again");
}

#[test]
fn cut_takes_so_many_bytes_and_no_more_than_the_frame() {
    let script = json!([{ "open": {} }, { "cut": { "frame": { "acquire": {} }, "after": 3, "how": "fin" } }]);
    let step = json!([{ "do": { "call": { "acquire": {} }, "is": "indeterminate" } }]);
    for (bytes, right) in [(ACQUIRE.to_vec(), true), ([ACQUIRE, ACQUIRE].concat(), false)] {
        let mut play = Play::start(&scenario(&script, &step));
        let mut raw = play.connect();
        let call = play.call("acquire");
        raw.handshake();
        raw.send(&bytes);
        assert_eq!(raw.rest(), b"");
        if right {
            drop(raw);
            play.reply(&call, json!({ "kind": "indeterminate", "message": "lost" }));
            let close = play.call("close");
            play.reply(&close, json!({ "kind": "done" }));
            play.passes();
        } else {
            drop(raw);
            play.fails("nothing more was to come");
        }
    }
}

#[test]
fn silent_client_fails_at_the_limit_and_is_located() {
    let mut play = Play::start(&grant());
    let mut raw = play.connect();
    play.call("acquire");
    raw.handshake();
    let verdict = play.fails("not over after 3 s");
    let why = verdict["why"].as_str().unwrap();
    assert!(why.contains("client: step 2") && why.contains("a#1 (open): step 2, Expect(Acquire"), "{why}");
}

#[test]
fn one_connection_too_many_is_seen() {
    let mut play = Play::start(&grant());
    let raw = play.connect();
    let address = raw.0.peer_addr().unwrap().to_string();
    let _more = [Raw::connect(&address), Raw::connect(&address)];
    play.fails("a#3: one connection too many");
}

#[test]
fn connection_that_stays_open_is_seen() {
    let mut play = Play::start(&scenario(&json!([{ "open": {} }]), &json!([])));
    let mut raw = play.connect();
    raw.handshake();
    let close = play.call("close");
    play.reply(&close, json!({ "kind": "done" }));
    play.fails("a#1 (open): its script is over");
}

#[test]
fn secrets_in_outcomes_are_seen() {
    let mut secret = grant();
    secret["client"][0]["do"]["call"]["broker"]["token"] = "a secret of this test".into();
    let mut play = Play::start(&secret);
    let _raw = play.connect();
    let call = play.call("acquire");
    play.reply(&call, json!({ "kind": "auth", "message": "refused: a secret of this test" }));
    play.fails("the client's token shows up");
}

#[test]
fn what_a_language_cannot_say_is_not_applicable() {
    let step = json!([{
        "do": { "call": { "acquire": { "wait": "nan" } }, "is": "invalid_input", "may_be_inexpressible": true }
    }]);
    let mut play = Play::start(&scenario(&json!([{ "open": {} }]), &step));
    let mut raw = play.connect();
    raw.handshake();
    let call = play.call("acquire");
    assert_eq!(call["wait"], "nan");
    play.reply(&call, json!({ "kind": "inexpressible" }));
    play.close(raw);
    let verdict = play.line();
    assert_eq!(verdict["end"], "n/a", "{verdict:#}");
}

#[test]
fn answers_are_cut_as_the_script_says() {
    let script = json!([
        { "send_pieces": { "frames": [{ "text": "abcdef" }, { "hex": "0a 0d" }, { "error": "bad_op" }], "bytes": 3, "only_first": 11 } },
        { "close": "fin" }
    ]);
    let mut play = Play::start(&scenario(&script, &json!([])));
    let mut raw = play.connect();
    assert_eq!(raw.rest(), b"abcdef\n\rEba");
    play.close(raw);
    play.passes();
}

#[test]
fn port_that_never_listens_refuses() {
    let mut refused = scenario(&json!([]), &json!([]));
    refused["nodes"]["a"] = json!({ "listen": "never" });
    let mut play = Play::start(&refused);
    let call = play.call("broker");
    play.reply(&call, json!({ "kind": "done" }));
    let error = TcpStream::connect(call["addresses"][0].as_str().unwrap()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    let close = play.call("close");
    play.reply(&close, json!({ "kind": "done" }));
    play.passes();
}

#[test]
fn mistakes_in_a_table_are_told_with_their_place() {
    let right = grant();
    assert_eq!(list(table(&right).path()).unwrap(), "s\n");
    for (pointer, value, why) in [
        ("/name", json!("Not Snake"), "snake_case"),
        ("/protects", json!("no sentence"), "full stop"),
        ("/surprise", json!(1), "unknown field `surprise`"),
        ("/nodes/a/connections/0/1/expect/acquire", json!({ "keys": "k" }), "unknown field `keys`"),
        ("/nodes/a/connections/0/2/send/0/granted", json!({ "token": -1 }), "not an unsigned 64-bit number"),
        ("/nodes/a/connections/0/2/send/0/granted", json!({ "owner": "q" }), "brings the owner \"q\""),
        ("/nodes/a/connections/0/0", json!({ "await": "never" }), "nobody gives the signal \"never\""),
        ("/client/1/do/is", json!("tickets"), "unknown variant `tickets`"),
        ("/client/1/do/is", json!({ "kind": "ticket", "tokens": "7" }), "unknown field `tokens`"),
        ("/client/2/do/call/release", json!("other"), "names \"other\""),
        ("/client/2/do/call", json!({ "acquire": {} }), "two calls are called \"acquire\""),
        ("/client/2/do/call", json!({ "acquire": { "broker": "b" } }), "uses \"b\""),
        ("/client/0/do/call/broker/addresses/0", json!("{addr:b}"), "no node \"b\""),
        ("/client/0/do/call/broker/addresses/0", json!("{k}"), "nothing gives {k} a value"),
        (
            "/client/2/do",
            json!({ "call": { "release": "acquire" } }),
            "nothing is expected of the call \"release\"",
        ),
    ] {
        let mut wrong = right.clone();
        match wrong.pointer_mut(pointer) {
            Some(place) => *place = value,
            None => wrong[&pointer[1..]] = value,
        }
        let told = list(table(&wrong).path()).unwrap_err();
        assert!(
            told.contains(why) && told.contains("table.json"),
            "{pointer}: {told:?} does not say {why:?}"
        );
    }
}

use std::pin::pin;
use std::time::Duration;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, duplex};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::messages::{CHALLENGE, JUDGEMENT, MAGIC, PREFIX, VERDICT};
use super::*;
use crate::identity::{ClusterId, Link, Party};
use crate::refusal::{Refusal, VERSION, WELCOME};
use crate::secret::{PROOF, Role, Secret};

const CLUSTER: ClusterId = ClusterId([0x11; 16]);
const ONE: Party = Party { cluster: CLUSTER, node: 1 };
const TWO: Party = Party { cluster: CLUSTER, node: 2 };
const THREE: Party = Party { cluster: CLUSTER, node: 3 };
const PLAIN: Binding = [0; 32];

fn secret() -> Secret {
    Secret::new(b"a golden secret of many bytes").unwrap()
}

fn another_secret() -> Secret {
    Secret::new(b"another secret of many bytes").unwrap()
}

type Dialled = Result<Party, NoLink>;
type Answered = Result<Welcomed<()>, Unfit>;

/// Node 1 dials.
fn dials(mut stream: DuplexStream, meant: Party, secret: Secret, binding: Binding) -> JoinHandle<Dialled> {
    tokio::spawn(async move { dial(&mut stream, ONE, meant, &secret, &binding).await })
}

/// `me` listens, and takes whom the ids do not speak against.
fn listens(mut stream: DuplexStream, me: Party, secret: Secret, binding: Binding) -> JoinHandle<Answered> {
    tokio::spawn(async move {
        let mut hello = Incoming::new();
        let answered = answer(&mut stream, &mut hello, &secret, &binding, |from, meant| {
            (me, Link { from, meant, answering: me }.check())
        })
        .await;
        if answered.is_err() {
            part(&mut stream).await;
        }
        answered
    })
}

/// Both sides are done, in a time that is virtual and yet no excuse.
async fn both(dialled: JoinHandle<Dialled>, answered: JoinHandle<Answered>) -> (Dialled, Answered) {
    let both = async { (dialled.await.unwrap(), answered.await.unwrap()) };
    timeout(Duration::from_secs(60), both).await.expect("an end that does not come")
}

/// Node 1 dials and means `meant`, `me` answers.
async fn meet(meant: Party, me: Party) -> (Dialled, Answered) {
    let (left, right) = duplex(1024);
    both(dials(left, meant, secret(), PLAIN), listens(right, me, secret(), PLAIN)).await
}

#[track_caller]
fn refused(dialled: &Dialled, expected: Refusal) {
    assert!(matches!(dialled, Err(NoLink::Refused(refusal)) if *refusal == expected), "{dialled:?}");
}

#[track_caller]
fn turned_away(answered: &Answered, expected: Refusal) {
    assert!(matches!(answered, Err(Unfit::Refused { refusal, .. }) if *refusal == expected), "{answered:?}");
}

#[tokio::test(start_paused = true)]
async fn two_nodes_meet_and_agree_on_who_they_are() {
    for pipe in [1, 2, 7, 1024] {
        for meant in [TWO, Party { node: 0, ..TWO }, Party::NOBODY] {
            let (left, right) = duplex(pipe);
            let (dialled, answered) =
                both(dials(left, meant, secret(), PLAIN), listens(right, TWO, secret(), PLAIN)).await;
            assert_eq!(dialled.unwrap(), TWO);
            assert_eq!(answered.unwrap().link, Link { from: ONE, meant, answering: TWO });
        }
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_ids_are_refused_and_both_sides_know_why() {
    let elsewhere = Party { cluster: ClusterId([0x22; 16]), node: 2 };
    for (meant, me, expected) in [
        (TWO, elsewhere, Refusal::Cluster { dialler: CLUSTER, listener: elsewhere.cluster }),
        (elsewhere, TWO, Refusal::Cluster { dialler: elsewhere.cluster, listener: CLUSTER }),
        (TWO, THREE, Refusal::Node { meant: 2, answering: 3 }),
        (TWO, Party::NOBODY, Refusal::Node { meant: 2, answering: 0 }),
        (Party::NOBODY, ONE, Refusal::Oneself { node: 1 }),
        (ONE, ONE, Refusal::Oneself { node: 1 }),
    ] {
        let (dialled, answered) = meet(meant, me).await;
        refused(&dialled, expected);
        turned_away(&answered, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_judge_says_reaches_the_dialler() {
    for expected in [Refusal::Retired, Refusal::NotNow, Refusal::Full] {
        let (left, mut right) = duplex(1024);
        let dialled = dials(left, TWO, secret(), PLAIN);
        let answered = answer(&mut right, &mut Incoming::new(), &secret(), &PLAIN, |from, meant| {
            assert_eq!((from, meant), (ONE, TWO));
            (TWO, Err(expected))
        })
        .await;
        turned_away(&answered, expected);
        refused(&dialled.await.unwrap(), expected);
    }
}

/// And the judge, who knows who belongs to the cluster, does not even hear of it.
#[tokio::test(start_paused = true)]
async fn who_does_not_know_the_secret_learns_nothing() {
    let (mut left, mut right) = duplex(1024);
    let answered = tokio::spawn(async move {
        let mut judged = false;
        let judge = |_, _| {
            judged = true;
            (TWO, Ok(()))
        };
        let answered = answer(&mut right, &mut Incoming::new(), &secret(), &PLAIN, judge).await;
        assert!(!judged);
        answered
    });
    let hello = messages::hello(ONE, TWO, &[1; 32]);
    left.write_all(&hello).await.unwrap();
    let mut challenge = [0; CHALLENGE];
    left.read_exact(&mut challenge).await.unwrap();
    assert_eq!(challenge[..PREFIX], messages::prefix());
    left.write_all(&another_secret().prove(Role::Dialler, &said(&hello, &challenge, &PLAIN))).await.unwrap();
    let mut rest = Vec::new();
    turned_away(&answered.await.unwrap(), Refusal::Secret);
    left.read_to_end(&mut rest).await.unwrap();
    let mut nothing = [0; VERDICT];
    nothing[0] = Refusal::Secret.code();
    assert_eq!(rest, nothing);
}

#[tokio::test(start_paused = true)]
async fn different_secrets_are_found_out_by_both() {
    let (left, right) = duplex(1024);
    let (dialled, answered) =
        both(dials(left, TWO, another_secret(), PLAIN), listens(right, TWO, secret(), PLAIN)).await;
    refused(&dialled, Refusal::Secret);
    turned_away(&answered, Refusal::Secret);
}

/// Someone between the two, with a TLS connection to each.
#[tokio::test(start_paused = true)]
async fn the_proofs_hold_for_one_tls_connection() {
    for (mine, theirs) in [([1; 32], [2; 32]), ([1; 32], PLAIN), (PLAIN, [2; 32])] {
        let (left, right) = duplex(1024);
        let (dialled, answered) =
            both(dials(left, TWO, secret(), mine), listens(right, TWO, secret(), theirs)).await;
        refused(&dialled, Refusal::Secret);
        turned_away(&answered, Refusal::Secret);
    }
}

/// A listener that does not know the secret can say what it likes.
#[tokio::test(start_paused = true)]
async fn nothing_is_believed_from_a_listener_without_proof() {
    for code in (0..=u8::MAX).filter(|code| *code != Refusal::Secret.code()) {
        let (left, mut right) = duplex(1024);
        let dialled = dials(left, TWO, secret(), PLAIN);
        let mut hello = [0; HELLO];
        right.read_exact(&mut hello).await.unwrap();
        let challenge = messages::challenge(&[2; 32]);
        right.write_all(&challenge).await.unwrap();
        right.read_exact(&mut [0; PROOF]).await.unwrap();
        let judgement = messages::judgement(code, TWO);
        let words = [&said(&hello, &challenge, &PLAIN)[..], &judgement].concat();
        let proof = another_secret().prove(Role::Listener, &words);
        right.write_all(&[&judgement[..], &proof].concat()).await.unwrap();
        let dialled = dialled.await.unwrap();
        assert!(matches!(dialled, Err(NoLink::Unproven)), "{code}: {dialled:?}");
    }
}

/// A listener with the secret that welcomes whoever comes, as no listener of ours does.
#[tokio::test(start_paused = true)]
async fn the_dialler_checks_the_ids_itself() {
    let (left, mut right) = duplex(1024);
    let dialled = dials(left, TWO, secret(), PLAIN);
    let welcomed = answer(&mut right, &mut Incoming::new(), &secret(), &PLAIN, |_, _| (THREE, Ok(()))).await;
    assert!(welcomed.is_ok());
    refused(&dialled.await.unwrap(), Refusal::Node { meant: 2, answering: 3 });
}

#[tokio::test(start_paused = true)]
async fn other_versions_are_refused_whatever_they_say_next() {
    let mut newer = messages::prefix();
    newer[8..].copy_from_slice(&0x0203_u16.to_le_bytes());
    let expected = Refusal::Version { other: 0x0203 };

    for rest in [0, 5, 3000] {
        let (mut left, right) = duplex(10_000);
        let answered = listens(right, TWO, secret(), PLAIN);
        left.write_all(&[&newer[..], &vec![7; rest]].concat()).await.unwrap();
        let mut answer = [0; PREFIX];
        left.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, messages::prefix());
        drop(left);
        turned_away(&answered.await.unwrap(), expected);
    }

    let (left, mut right) = duplex(1024);
    let dialled = dials(left, TWO, secret(), PLAIN);
    right.write_all(&newer).await.unwrap();
    refused(&dialled.await.unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn strangers_are_named() {
    let tls = b"\x16\x03\x01\x00\xf0\x01\x00\x00\xec\x03\x03";
    for (first, expected) in [
        (&b"TICKETING/1;domain=00;ext=1 aB3dEf_g\n"[..], Stranger::ClientPort),
        (b"Etoo_many_connections\n", Stranger::ClientPort),
        (b"Ebusy\n", Stranger::ClientPort),
        (tls, Stranger::Tls),
        (b"\x15\x03\x03\x00\x02\x02\x0a", Stranger::Tls),
        (b"GET / HTTP/1.1\r\n", Stranger::Unknown(Box::from(&b"GET / HTTP"[..]))),
        (b"\xff", Stranger::Unknown(Box::from(&b"\xff"[..]))),
        (b"\xfeTICKPS\n\x01\x00", Stranger::Unknown(Box::from(&b"\xfeTICKPS\n\x01\x00"[..]))),
    ] {
        for pipe in [1, 1024] {
            let (left, mut right) = duplex(pipe);
            let dialled = dials(left, TWO, secret(), PLAIN);
            let (mut read, mut write) = tokio::io::split(&mut right);
            // The dialler's hello is read, as the system's buffers would take it.
            let drain = async { drop(tokio::io::copy(&mut read, &mut tokio::io::sink()).await) };
            let talk = async {
                let _ = write.write_all(first).await;
                let _ = write.shutdown().await;
            };
            tokio::join!(drain, talk);
            let dialled = dialled.await.unwrap();
            assert!(matches!(&dialled, Err(NoLink::Stranger(s)) if *s == expected), "{dialled:?}");

            let (mut left, right) = duplex(1024);
            let answered = listens(right, TWO, secret(), PLAIN);
            left.write_all(first).await.unwrap();
            drop(left);
            let answered = answered.await.unwrap();
            assert!(matches!(&answered, Err(Unfit::Stranger(s)) if *s == expected), "{answered:?}");
        }
    }
    let shown = Stranger::Unknown(Box::from(&b"\x00\xffab"[..])).to_string();
    assert!(shown.ends_with(r#"it began with "\x00\xffab""#), "{shown}");
}

/// What happens to the bytes between the two ends.
#[derive(Clone, Copy)]
enum Tamper {
    /// The connection is cut after so many bytes.
    Cut(usize),
    /// This byte gets another value.
    Flip(usize),
    None,
}

impl Tamper {
    /// Carries bytes until their sender ends, and keeps a record of those that arrived.
    async fn carry(
        self,
        mut from: ReadHalf<DuplexStream>,
        mut to: WriteHalf<DuplexStream>,
        carried: &mut Vec<u8>,
    ) {
        while !matches!(self, Self::Cut(after) if carried.len() == after) {
            let Ok(mut byte) = from.read_u8().await else { break };
            if matches!(self, Self::Flip(at) if carried.len() == at) {
                byte ^= 0x10;
            }
            carried.push(byte);
            if to.write_u8(byte).await.is_err() {
                break;
            }
        }
    }
}

/// Nodes 1 and 2 meet through someone between them; also returns the bytes of both directions.
async fn through(there: Tamper, back: Tamper) -> (Dialled, Answered, [Vec<u8>; 2]) {
    let (left, near) = duplex(1024);
    let (far, right) = duplex(1024);
    let dialled = dials(left, TWO, secret(), PLAIN);
    let answered = listens(right, TWO, secret(), PLAIN);
    let carrier = tokio::spawn(async move {
        let (near_read, near_write) = tokio::io::split(near);
        let (far_read, far_write) = tokio::io::split(far);
        // Whichever direction ends first ends the connection, once the other had its time.
        let mut words = [Vec::new(), Vec::new()];
        {
            let [said, answered] = &mut words;
            let mut there = pin!(there.carry(near_read, far_write, said));
            let mut back = pin!(back.carry(far_read, near_write, answered));
            tokio::select! {
                () = &mut there => drop(timeout(Duration::from_secs(1), back).await),
                () = &mut back => drop(timeout(Duration::from_secs(1), there).await),
            }
        }
        words
    });
    let (dialled, answered) = both(dialled, answered).await;
    (dialled, answered, carrier.await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_is_cut_anywhere_ends_both_sides() {
    for bytes in 0..HELLO + PROOF {
        let (dialled, answered, _) = through(Tamper::Cut(bytes), Tamper::None).await;
        assert!(matches!(dialled, Err(NoLink::Ended(_))), "{bytes}: {dialled:?}");
        assert!(matches!(answered, Err(Unfit::Gone(_))), "{bytes}: {answered:?}");
    }
    for bytes in 0..CHALLENGE + VERDICT {
        let (dialled, answered, _) = through(Tamper::None, Tamper::Cut(bytes)).await;
        assert!(matches!(dialled, Err(NoLink::Ended(_))), "{bytes}: {dialled:?}");
        // The listener can be sure of the dialler as soon as it has its proof.
        assert_eq!(answered.is_ok(), bytes >= CHALLENGE, "{bytes}: {answered:?}");
    }
}

/// Versions, ids, nonces, proofs and verdict: whichever is changed on the way,
/// there is no connection.
#[tokio::test(start_paused = true)]
async fn a_handshake_that_is_changed_anywhere_fails() {
    for at in 0..HELLO + PROOF {
        let (dialled, answered, _) = through(Tamper::Flip(at), Tamper::None).await;
        assert!(dialled.is_err() && answered.is_err(), "{at}: {dialled:?} {answered:?}");
    }
    for at in 0..CHALLENGE + VERDICT {
        let (dialled, answered, _) = through(Tamper::None, Tamper::Flip(at)).await;
        assert!(dialled.is_err(), "{at}: {dialled:?}");
        assert_eq!(answered.is_ok(), at >= CHALLENGE, "{at}: {answered:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_recorded_handshake_proves_nothing() {
    let (dialled, answered, [said, answers]) = through(Tamper::None, Tamper::None).await;
    assert!(dialled.is_ok() && answered.is_ok());
    assert_eq!((said.len(), answers.len()), (HELLO + PROOF, CHALLENGE + VERDICT));

    let (mut left, right) = duplex(1024);
    let answered = listens(right, TWO, secret(), PLAIN);
    left.write_all(&said).await.unwrap();
    left.shutdown().await.unwrap();
    turned_away(&answered.await.unwrap(), Refusal::Secret);

    let (left, mut right) = duplex(1024);
    let dialled = dials(left, TWO, secret(), PLAIN);
    right.write_all(&answers).await.unwrap();
    let dialled = dialled.await.unwrap();
    assert!(matches!(dialled, Err(NoLink::Unproven)), "{dialled:?}");
}

/// The dialler's own words come back to it as if they were a listener's.
#[tokio::test(start_paused = true)]
async fn a_proof_that_comes_back_proves_nothing() {
    for code in [WELCOME, Refusal::Retired.code()] {
        let (left, mut right) = duplex(1024);
        let dialled = dials(left, TWO, secret(), PLAIN);
        let mut hello = [0; HELLO];
        right.read_exact(&mut hello).await.unwrap();
        let (_, nonce) = hello.split_last_chunk().unwrap();
        right.write_all(&messages::challenge(nonce)).await.unwrap();
        let mut proof = [0; PROOF];
        right.read_exact(&mut proof).await.unwrap();
        right.write_all(&[&messages::judgement(code, TWO)[..], &proof].concat()).await.unwrap();
        let dialled = dialled.await.unwrap();
        assert!(matches!(dialled, Err(NoLink::Unproven)), "{dialled:?}");
    }
}

/// Computed by another implementation of HMAC.
#[test]
fn the_bytes_of_a_handshake_are_fixed() {
    let two = Party { node: 0x1_0000_0002, ..TWO };
    let hello = messages::hello(ONE, two, &[0xaa; 32]);
    let text = "fe5449434b50520a0100111111111111111111111111111111110100000000000000\
                111111111111111111111111111111110200000001000000\
                aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    assert_eq!(hex(&hello), text);
    assert_eq!(messages::read_hello(&hello), (ONE, two));
    assert_eq!((&hello[..8], VERSION), (&MAGIC[..], 1));
    let mut words = said(&hello, &messages::challenge(&[0xbb; 32]), &[0xcc; 32]);
    assert_eq!(
        hex(&secret().prove(Role::Dialler, &words)),
        "3375e3b20d2087a01d1f8b0476c71596072155daeb4dbd0f1367dd7b9e3415a8"
    );
    let judgement = messages::judgement(WELCOME, two);
    words.extend_from_slice(&judgement);
    let proof = secret().prove(Role::Listener, &words);
    assert_eq!(hex(&proof), "940b1bde147cd18e8a9869b7a434d86a13704a2decc85bafb233a72908e8766f");
    let verdict: [u8; VERDICT] = [&judgement[..], &proof].concat().try_into().unwrap();
    assert_eq!(verdict[..JUDGEMENT], judgement);
    assert_eq!(messages::read_verdict(&verdict), (WELCOME, two, proof));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// However it goes on, whoever does not know the secret never gets in.
    #[test]
    fn garbage_never_opens(words in prop::collection::vec(any::<u8>(), 0..400), polite in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let words = if polite { [&messages::prefix()[..], &words].concat() } else { words };
            let (mut left, right) = duplex(1024);
            let answered = listens(right, TWO, secret(), PLAIN);
            let _ = left.write_all(&words).await;
            drop(left);
            assert!(timeout(Duration::from_secs(60), answered).await.unwrap().unwrap().is_err());

            let (left, mut right) = duplex(1024);
            let dialled = dials(left, TWO, secret(), PLAIN);
            let _ = right.write_all(&words).await;
            drop(right);
            assert!(timeout(Duration::from_secs(60), dialled).await.unwrap().unwrap().is_err());
        });
    }
}

//! The listener's side.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::incoming::Broken;
use super::messages::{self, HELLO};
use super::{Binding, Incoming, Stranger, nonce, said};
use crate::identity::{Link, Party};
use crate::refusal::{Refusal, VERSION, WELCOME};
use crate::secret::{PROOF, Role, Secret};

/// The most bytes that are read and thrown away after a refusal.
const LEFTOVER: usize = 4 * 1024;

/// A dialler that has proved the secret and is welcome.
#[derive(Debug)]
pub(crate) struct Welcomed<T> {
    pub(crate) link: Link,
    /// What the judge gave it.
    pub(crate) place: T,
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// The dialler was told why. It says that it is `from`, and nobody if it has
    /// not come so far.
    Refused { refusal: Refusal, from: Party, meant: Party },
    /// Not a peer.
    Stranger(Stranger),
    /// The connection ended.
    Gone(io::Error),
    /// No random bytes for a challenge.
    Random(getrandom::Error),
}

impl From<Broken> for Unfit {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Stranger(stranger) => Self::Stranger(stranger),
            Broken::Io(error) => Self::Gone(error),
        }
    }
}

impl From<io::Error> for Unfit {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

/// Has a dialler prove the secret, asks `judge` who answers it and whether it is
/// welcome, and tells it. The judge hears of nobody who does not know the secret.
pub(crate) async fn answer<S: AsyncRead + AsyncWrite + Unpin, T>(
    stream: &mut S,
    hello: &mut Incoming<HELLO>,
    secret: &Secret,
    binding: &Binding,
    judge: impl FnOnce(Party, Party) -> (Party, Result<T, Refusal>),
) -> Result<Welcomed<T>, Unfit> {
    let version = hello.version(stream).await?;
    if version != VERSION {
        stream.write_all(&messages::prefix()).await?;
        let refusal = Refusal::Version { other: version };
        return Err(Unfit::Refused { refusal, from: Party::NOBODY, meant: Party::NOBODY });
    }
    let hello = hello.whole(stream).await?;
    let (from, meant) = messages::read_hello(hello);
    let challenge = messages::challenge(&nonce().map_err(Unfit::Random)?);
    send(stream, &challenge).await?;

    let mut proof = Incoming::<PROOF>::new();
    let proof = proof.whole(stream).await?;
    let mut said = said(hello, &challenge, binding);
    let (answering, place) = if secret.verifies(Role::Dialler, &said, proof) {
        judge(from, meant)
    } else {
        (Party::NOBODY, Err(Refusal::Secret))
    };
    let code = place.as_ref().map_or_else(|refusal| refusal.code(), |_| WELCOME);
    let judgement = messages::judgement(code, answering);
    said.extend_from_slice(&judgement);
    // Whoever has not proved the secret gets nothing that guesses could be tried on.
    let proof = match place {
        Err(Refusal::Secret) => [0; PROOF],
        Ok(_) | Err(_) => secret.prove(Role::Listener, &said),
    };
    send(stream, &[&judgement[..], &proof].concat()).await?;
    match place {
        Ok(place) => Ok(Welcomed { link: Link { from, meant, answering }, place }),
        Err(refusal) => Err(Unfit::Refused { refusal, from, meant }),
    }
}

async fn send<S: AsyncWrite + Unpin>(stream: &mut S, message: &[u8]) -> io::Result<()> {
    stream.write_all(message).await?;
    stream.flush().await
}

/// Closes so that a refusal arrives: ends our direction, and reads on until the dialler ends its own: to close
/// over bytes that were not read would reset the connection, and the reset would
/// overtake the refusal.
pub(crate) async fn part<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) {
    if stream.shutdown().await.is_ok() {
        // Whether it goes in peace makes no difference any more.
        let _ = tokio::io::copy(&mut stream.take(LEFTOVER as u64), &mut tokio::io::sink()).await;
    }
}

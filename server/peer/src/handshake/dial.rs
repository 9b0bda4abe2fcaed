//! The dialler's side.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use super::incoming::Broken;
use super::messages::{self, CHALLENGE, JUDGEMENT, VERDICT};
use super::{Binding, Incoming, Stranger, nonce, said};
use crate::identity::{Link, Party};
use crate::refusal::{Refusal, VERSION, WELCOME};
use crate::secret::{Role, Secret};

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoLink {
    #[error("{0:?} is not an address of the form host:port")]
    Address(String),
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error(
        "TLS failed: {0} (is TLS on at both ends, and each certificate good for its host and signed by a CA that the other end trusts?)"
    )]
    Tls(io::Error),
    #[error("no connection within {0:?}")]
    Late(Duration),
    #[error("{0}")]
    Stranger(Stranger),
    #[error("the connection ended in the middle of the handshake: {0}")]
    Ended(io::Error),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("whoever answers there does not prove that it knows the peer secret")]
    Unproven,
    #[error("the system gives no random bytes: {0}")]
    Random(getrandom::Error),
}

impl NoLink {
    /// A listener that verifies certificates says no when TLS is open already.
    fn ended(error: io::Error) -> Self {
        let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).is_some();
        if of_tls { Self::Tls(error) } else { Self::Ended(error) }
    }

    /// In a word, by which log lines are counted.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Address(_) => "address",
            Self::Connect(_) => "connect",
            Self::Tls(_) => "TLS failed",
            Self::Late(_) => "late",
            Self::Stranger(stranger) => stranger.kind(),
            Self::Ended(_) => "ended",
            Self::Refused(refusal) => refusal.kind(),
            Self::Unproven => "unproven",
            Self::Random(_) => "random",
        }
    }
}

impl From<Broken> for NoLink {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Stranger(stranger) => Self::Stranger(stranger),
            Broken::Io(error) => Self::ended(error),
        }
    }
}

/// Proves the secret to a listener and has it proved. Returns who answers.
pub(crate) async fn dial<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    from: Party,
    meant: Party,
    secret: &Secret,
    binding: &Binding,
) -> Result<Party, NoLink> {
    let hello = messages::hello(from, meant, &nonce().map_err(NoLink::Random)?);
    send(stream, &hello).await?;

    let mut challenge = Incoming::<CHALLENGE>::new();
    let version = challenge.version(stream).await?;
    if version != VERSION {
        return Err(Refusal::Version { other: version }.into());
    }
    let challenge = challenge.whole(stream).await.map_err(NoLink::ended)?;
    let mut said = said(&hello, challenge, binding);
    send(stream, &secret.prove(Role::Dialler, &said)).await?;

    let mut verdict = Incoming::<VERDICT>::new();
    let verdict = verdict.whole(stream).await.map_err(NoLink::ended)?;
    let (code, answering, proof) = messages::read_verdict(verdict);
    if code == Refusal::Secret.code() {
        return Err(Refusal::Secret.into());
    }
    said.extend_from_slice(verdict.get(..JUDGEMENT).unwrap_or_default());
    if !secret.verifies(Role::Listener, &said, &proof) {
        return Err(NoLink::Unproven);
    }
    let link = Link { from, meant, answering };
    if code != WELCOME {
        return Err(Refusal::from_code(code, &link).into());
    }
    link.check()?;
    Ok(answering)
}

async fn send<S: AsyncWrite + Unpin>(stream: &mut S, message: &[u8]) -> Result<(), NoLink> {
    stream.write_all(message).await.map_err(NoLink::ended)?;
    stream.flush().await.map_err(NoLink::ended)
}

//! The peer secret, and proofs that one knows it.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// A shorter one could be guessed: whoever a node dials, and every peer, sees
/// proofs on which guesses can be tried.
const MIN_SECRET_BYTES: usize = 16;

/// Bytes of a proof.
pub(crate) const PROOF: usize = 32;

/// What the nodes of a cluster know and nobody else does. Never shown.
///
/// ```
/// use ticketing_peer::{Secret, SecretTooShort};
/// assert!(Secret::new(b"sixteen bytes or more, from a random source").is_ok());
/// assert_eq!(Secret::new(b"guess me").unwrap_err(), SecretTooShort(8));
/// ```
#[derive(Clone)]
pub struct Secret(Hmac<Sha256>);

/// Why a secret is refused: how many bytes it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a peer secret has {0} bytes; it needs at least {MIN_SECRET_BYTES}, from a random source")]
pub struct SecretTooShort(pub usize);

/// The end of a connection that gives a proof. Each has a label of its own, so
/// that a proof sent back to its maker proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Dialler,
    Listener,
}

impl Role {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::Dialler => b"ticketing peer proof: dialler\0",
            Self::Listener => b"ticketing peer proof: listener\0",
        }
    }
}

impl Secret {
    /// Takes the bytes of a secret.
    ///
    /// # Errors
    /// [`SecretTooShort`] below 16 bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, SecretTooShort> {
        if bytes.len() < MIN_SECRET_BYTES {
            return Err(SecretTooShort(bytes.len()));
        }
        // HMAC takes keys of every length.
        Hmac::new_from_slice(bytes).map(Self).map_err(|_| SecretTooShort(bytes.len()))
    }

    /// HMAC-SHA-256 over the label of the role and everything that was said.
    pub(crate) fn prove(&self, role: Role, said: &[u8]) -> [u8; PROOF] {
        self.over(role, said).finalize().into_bytes().into()
    }

    /// Whether the other end proves the secret, in a time that does not depend
    /// on how near the proof is.
    pub(crate) fn verifies(&self, role: Role, said: &[u8], proof: &[u8; PROOF]) -> bool {
        self.over(role, said).verify(&(*proof).into()).is_ok()
    }

    fn over(&self, role: Role, said: &[u8]) -> Hmac<Sha256> {
        self.0.clone().chain_update(role.label()).chain_update(said)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_secret_role_and_words_alone() {
        let secret = Secret::new(b"a secret of many bytes").unwrap();
        let other = Secret::new(b"another secret of many bytes").unwrap();
        let proof = secret.prove(Role::Dialler, b"said");
        assert!(secret.verifies(Role::Dialler, b"said", &proof));
        assert!(!secret.verifies(Role::Listener, b"said", &proof));
        assert!(!secret.verifies(Role::Dialler, b"Said", &proof));
        assert!(!other.verifies(Role::Dialler, b"said", &proof));
        for bit in 0..PROOF * 8 {
            let mut forged = proof;
            forged[bit / 8] ^= 1 << (bit % 8);
            assert!(!secret.verifies(Role::Dialler, b"said", &forged));
        }
    }

    #[test]
    fn a_secret_is_never_shown() {
        let shown = format!("{:?}", Secret::new(b"0123456789abcdef").unwrap());
        assert_eq!(shown, "Secret(hidden)");
        assert_eq!(Secret::new(&[7; 15]).unwrap_err(), SecretTooShort(15));
    }
}

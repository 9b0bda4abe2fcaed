//! A certificate and the key that belongs to it.

use std::path::{Path, PathBuf};

use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::files::{FileError, read_certificates, read_private_key};

/// A certificate, with those between it and its CA, and its private key, from two PEM files.
#[derive(Debug)]
pub struct CertifiedPair {
    cert: PathBuf,
    key: PathBuf,
    chain: Vec<CertificateDer<'static>>,
    private: PrivateKeyDer<'static>,
}

/// Why the two files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// One of them cannot be read as what it should be.
    #[error(transparent)]
    File(#[from] FileError),
    /// They do not belong together, or are of a kind that is not known.
    #[error("{} and {}: {}", cert.display(), key.display(), in_words(source))]
    Unfit {
        /// File of the chain.
        cert: PathBuf,
        /// File of the key.
        key: PathBuf,
        /// What is wrong.
        source: rustls::Error,
    },
}

fn in_words(error: &rustls::Error) -> String {
    if let rustls::Error::InconsistentKeys(_) = error {
        return "the private key is not that of the first certificate in the chain".to_owned();
    }
    error.to_string()
}

impl CertifiedPair {
    /// Reads the files.
    ///
    /// # Errors
    /// [`FileError`] names the file and says what is wrong with it.
    pub fn read(cert: &Path, key: &Path) -> Result<Self, FileError> {
        let chain = read_certificates(cert, "certificate chain (PEM)")?;
        let private = read_private_key(key)?;
        Ok(Self { cert: cert.to_owned(), key: key.to_owned(), chain, private })
    }

    /// A copy for whoever shows them.
    #[must_use]
    pub fn parts(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        (self.chain.clone(), self.private.clone_key())
    }

    /// Why TLS does not take them.
    #[must_use]
    pub fn unfit(&self, source: rustls::Error) -> PairError {
        PairError::Unfit { cert: self.cert.clone(), key: self.key.clone(), source }
    }
}

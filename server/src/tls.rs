//! The server's certificate.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use ticketing_peer::{FileError, read_certificates, read_private_key};

use crate::config::TlsFiles;

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read as what it should be.
    #[error(transparent)]
    File(#[from] FileError),
    /// The two files do not belong together, or are of a kind that is not known.
    #[error("{} and {}: {}", cert.display(), key.display(), in_words(source))]
    Pair {
        /// File of the chain.
        cert: PathBuf,
        /// File of the key.
        key: PathBuf,
        /// What is wrong.
        source: rustls::Error,
    },
}

fn in_words(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            "the private key is not that of the first certificate in the chain".to_owned()
        }
        other => other.to_string(),
    }
}

/// Reads the files and makes what a connection needs of them.
///
/// # Errors
/// [`TlsError`] names the file and says what is wrong with it.
pub(crate) fn load(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let TlsFiles { cert, key } = files;
    let chain = read_certificates(cert, "certificate chain (PEM)")?;
    let private = read_private_key(key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
        .map_err(|source| TlsError::Pair { cert: cert.clone(), key: key.clone(), source })?;
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn each_fault_names_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = (folder.path().join("chain.pem"), folder.path().join("key.pem"));
        let files = TlsFiles { cert: cert.clone(), key: key.clone() };
        let refused = |path: &Path, what: &str| {
            let error = load(&files).unwrap_err().to_string();
            assert!(error.contains(path.to_str().unwrap()) && error.contains(what), "{error}");
        };
        refused(&cert, "No such file");
        fs::write(&cert, "not PEM at all").unwrap();
        refused(&cert, "no certificate");

        let ours = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(&cert, ours.cert.pem()).unwrap();
        refused(&key, "No such file");
        fs::write(&key, ours.cert.pem()).unwrap();
        refused(&key, "private key");
        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(&key, other.signing_key.serialize_pem()).unwrap();
        refused(&key, "the private key is not that of");
        fs::write(&key, ours.signing_key.serialize_pem()).unwrap();
        assert!(load(&files).is_ok());
    }
}

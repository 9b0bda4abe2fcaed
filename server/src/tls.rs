//! The server's certificate.

use std::sync::Arc;

use rustls::ServerConfig;
use ticketing_peer::{CertifiedPair, PairError};

use crate::config::TlsFiles;

/// Reads the files and makes what a connection needs of them.
pub(crate) fn load(files: &TlsFiles) -> Result<Arc<ServerConfig>, PairError> {
    let pair = CertifiedPair::read(&files.cert, &files.key)?;
    let (chain, private) = pair.parts();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
        .map_err(|source| pair.unfit(source))?;
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
        refused(&key, "key");
        fs::write(&key, ours.signing_key.serialize_pem()).unwrap();
        assert!(load(&files).is_ok());
    }
}

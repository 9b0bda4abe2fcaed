//! The files of a node: secrets, certificates, keys. A path may lead anywhere, so
//! what is read is a regular file and has an end; a mistake is told in words.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The most bytes of a file with a secret, far more than one needs.
pub const SECRET_BYTES: u64 = 64 * 1024;

/// The most bytes of a PEM file: room for every CA of a system.
const PEM_BYTES: u64 = 1024 * 1024;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct FileError {
    path: PathBuf,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    Read { what: &'static str, error: io::Error },
    Pem { what: &'static str, error: pem::Error },
    NoCertificate,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { what, error } => write!(f, "no {what} could be read from it: {error}"),
            Self::NoCertificate => f.write_str("there is no certificate (BEGIN CERTIFICATE) in it"),
            Self::Pem { what, error } => {
                write!(f, "no {what} could be read from it: ")?;
                match error {
                    // Of this one the library shows the bytes.
                    pem::Error::MissingSectionEnd { end_marker } => {
                        write!(
                            f,
                            "it ends before its line -----END {}-----",
                            String::from_utf8_lossy(end_marker)
                        )
                    }
                    pem::Error::IllegalSectionStart { .. } => f.write_str("a line BEGIN in it is broken"),
                    pem::Error::NoItemsFound => f.write_str("there is none in it"),
                    pem::Error::Base64Decode(_) | pem::Error::Io(_) | pem::Error::SectionTooLarge | _ => {
                        write!(f, "{error}")
                    }
                }
            }
        }
    }
}

/// Reads a regular file of at most so many bytes.
///
/// # Errors
/// Those of the system, and what else is wrong with the file.
pub fn read_file(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    // Before it is opened: to open a pipe waits for whoever writes to it.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(most_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most_bytes {
        return Err(io::Error::other(format!("it has more than {} KiB", most_bytes / 1024)));
    }
    Ok(bytes)
}

/// Reads a chain of certificates, at least one.
pub(crate) fn read_certificates(
    path: &Path,
    what: &'static str,
) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let pem = read_pem(path, what)?;
    let chain = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    match chain {
        Ok(chain) if chain.is_empty() => Err(FileError::new(path, Problem::NoCertificate)),
        Ok(chain) => Ok(chain),
        Err(error) => Err(FileError::new(path, Problem::Pem { what, error })),
    }
}

/// Reads a private key.
pub(crate) fn read_private_key(path: &Path) -> Result<PrivateKeyDer<'static>, FileError> {
    let what = "private key (PEM)";
    let pem = read_pem(path, what)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| FileError::new(path, Problem::Pem { what, error }))
}

fn read_pem(path: &Path, what: &'static str) -> Result<Vec<u8>, FileError> {
    read_file(path, PEM_BYTES).map_err(|error| FileError::new(path, Problem::Read { what, error }))
}

impl FileError {
    fn new(path: &Path, problem: Problem) -> Self {
        Self { path: path.to_owned(), problem }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_has_no_end_or_nobody_writes_to_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [Path::new("/dev/zero"), &pipe, folder.path()] {
            let error = read_file(path, SECRET_BYTES).unwrap_err().to_string();
            assert!(error.contains("no regular file"), "{}: {error}", path.display());
            let error = read_private_key(path).unwrap_err().to_string();
            assert!(error.contains("no regular file") && error.contains(path.to_str().unwrap()), "{error}");
        }
    }

    #[test]
    fn a_file_may_have_so_many_bytes_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, [7; 100]).unwrap();
        assert_eq!(read_file(&path, 100).unwrap(), [7; 100]);
        assert!(read_file(&path, 99).is_err());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(read_file(&link, 100).unwrap(), [7; 100]);
    }

    #[test]
    fn broken_pem_is_told_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.pem");
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (pair.cert.pem(), pair.signing_key.serialize_pem());
        let half = |text: &str| text[..text.len() / 2].to_owned();
        for (text, told) in [
            (half(&key), "ends before its line -----END PRIVATE KEY-----"),
            (key.replace("KEY-----\n", "KEY-\n"), "a line BEGIN in it is broken"),
            (certificate.clone(), "there is none in it"),
            (String::new(), "there is none in it"),
        ] {
            fs::write(&path, text).unwrap();
            let error = read_private_key(&path).unwrap_err().to_string();
            assert!(error.contains(told) && !error.contains("[45"), "{error}");
        }
        fs::write(&path, half(&certificate)).unwrap();
        let error = read_certificates(&path, "chain").unwrap_err().to_string();
        assert!(error.contains("ends before its line -----END CERTIFICATE-----"), "{error}");
        fs::write(&path, certificate).unwrap();
        assert_eq!(read_certificates(&path, "chain").unwrap().len(), 1);
    }
}

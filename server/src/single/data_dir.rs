//! The data directory: one small file that says which tokens may have been given out.
//!
//! ```text
//! ticketing-data 1
//! domain 8d2f…
//! reserved 1876543210123456789
//! check 5e884898…
//! ```
//!
//! `reserved` is written, and on disk, before a token up to it is used; so
//! whatever happens, the next run starts above every token of this one. The
//! file is replaced as a whole, and its last line is the SHA-256 of the others.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use ticketing_protocol::handshake::Domain;

const VERSION: u32 = 1;

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) domain: Domain,
    /// Every token that may have been given out is this or less.
    pub(super) reserved: u64,
}

/// A data directory that is ours alone as long as this value lives.
#[derive(Debug)]
pub(super) struct DataDir {
    folder: PathBuf,
    file: PathBuf,
    /// The system gives the lock up with the file, however the process ends.
    _lock: File,
}

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// The system said no.
    #[error("{}: cannot {what} it: {source}", path.display())]
    Io {
        /// What it was about.
        path: PathBuf,
        /// What could not be done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Two servers on one directory would give out the same tokens.
    #[error(
        "{}: another ticketing-server uses this data directory; stop it, or give this one a folder of its own",
        .0.display()
    )]
    InUse(PathBuf),
    /// Not what was written.
    #[error(
        "{}: the file is damaged. Restore it from a backup that is not older than the last run; or move it away: \
         the server then begins a new fencing domain, whose tokens do not compare with those of the old one",
        .0.display()
    )]
    Damaged(PathBuf),
    /// The last token that there is may have been given out.
    #[error(
        "{}: every token of this fencing domain is used up. Move the file away: the server then begins a new \
         domain, whose tokens do not compare with those of the old one",
        .0.display()
    )]
    Exhausted(PathBuf),
    /// Written by a server that came later.
    #[error(
        "{}: written by a newer ticketing-server (format {found}; this one reads format {VERSION}): upgrade this one",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
}

impl DataDir {
    /// Takes the folder, made if it is not there, and reads its file; `None`: there is none yet.
    pub(super) fn open(folder: &Path) -> Result<(Self, Option<Record>), DataDirError> {
        let at = |path: &Path, what| {
            let path = path.to_owned();
            move |source| DataDirError::Io { path, what, source }
        };
        fs::create_dir_all(folder).map_err(at(folder, "make"))?;
        let lock_path = folder.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
        let lock = lock.map_err(at(&lock_path, "open"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => DataDirError::InUse(folder.to_owned()),
            TryLockError::Error(error) => at(&lock_path, "lock")(error),
        })?;
        let dir = Self { folder: folder.to_owned(), file: folder.join("tokens"), _lock: lock };
        let record = match fs::read(&dir.file) {
            Ok(bytes) => Some(Record::parse(&bytes).map_err(|bad| dir.bad(bad))?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(dir.error("read", error)),
        };
        Ok((dir, record))
    }

    /// Replaces the file; when this returns, it is on disk.
    pub(super) fn write(&self, record: &Record) -> Result<(), DataDirError> {
        self.try_write(record).map_err(|error| self.error("write", error))
    }

    fn try_write(&self, record: &Record) -> io::Result<()> {
        let new = self.folder.join("tokens.new");
        let mut file = File::create(&new)?;
        file.write_all(record.text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.file)?;
        // The name too must be on disk.
        #[cfg(unix)]
        File::open(&self.folder)?.sync_all()?;
        Ok(())
    }

    pub(super) fn error(&self, what: &'static str, source: io::Error) -> DataDirError {
        DataDirError::Io { path: self.file.clone(), what, source }
    }

    pub(super) fn exhausted(&self) -> DataDirError {
        DataDirError::Exhausted(self.file.clone())
    }

    fn bad(&self, bad: BadRecord) -> DataDirError {
        match bad {
            BadRecord::Damaged => DataDirError::Damaged(self.file.clone()),
            BadRecord::Newer(found) => DataDirError::Newer { path: self.file.clone(), found },
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BadRecord {
    Damaged,
    Newer(u32),
}

impl Record {
    fn text(&self) -> String {
        let body = format!("ticketing-data {VERSION}\ndomain {}\nreserved {}\n", self.domain, self.reserved);
        let check = Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        format!("{body}check {check}\n")
    }

    fn parse(bytes: &[u8]) -> Result<Self, BadRecord> {
        let text = std::str::from_utf8(bytes).map_err(|_| BadRecord::Damaged)?;
        let mut lines = text.lines();
        let mut value = |name| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let version = value("ticketing-data").and_then(|version| version.parse().ok());
        match version {
            Some(VERSION) => {}
            Some(newer) if newer > VERSION => return Err(BadRecord::Newer(newer)),
            _ => return Err(BadRecord::Damaged),
        }
        let domain = value("domain").and_then(Domain::parse);
        let reserved = value("reserved").and_then(|number| number.parse().ok());
        let (Some(domain), Some(reserved)) = (domain, reserved) else {
            return Err(BadRecord::Damaged);
        };
        // There is one way to write a record, so this compares the check line and everything else.
        let record = Self { domain, reserved };
        if record.text() == text { Ok(record) } else { Err(BadRecord::Damaged) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: Record = Record { domain: Domain([0xa5; 16]), reserved: 1_876_543_210_123_456_789 };

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, record) = DataDir::open(folder.path()).unwrap();
        assert_eq!(record, None);
        dir.write(&RECORD).unwrap();
        // A torn temporary file of a crash is no hindrance.
        fs::write(folder.path().join("tokens.new"), "tick").unwrap();
        drop(dir);
        let (dir, record) = DataDir::open(folder.path()).unwrap();
        assert_eq!(record, Some(RECORD));
        let next = Record { reserved: u64::MAX, ..RECORD };
        dir.write(&next).unwrap();
        drop(dir);
        assert_eq!(DataDir::open(folder.path()).unwrap().1, Some(next));
    }

    #[test]
    fn every_truncation_is_refused() {
        let text = RECORD.text();
        for bytes in 0..text.len() {
            assert!(Record::parse(&text.as_bytes()[..bytes]).is_err(), "cut to {bytes} bytes");
        }
        assert_eq!(Record::parse(text.as_bytes()), Ok(RECORD));
    }

    #[test]
    fn every_flipped_bit_and_every_extra_byte_is_refused() {
        let text = RECORD.text().into_bytes();
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut damaged = text.clone();
                damaged[at] ^= 1 << bit;
                assert!(Record::parse(&damaged).is_err(), "bit {bit} of byte {at}");
            }
            for byte in [b'\n', b'0', b' ', 0] {
                let mut longer = text.clone();
                longer.insert(at, byte);
                assert!(Record::parse(&longer).is_err(), "{byte:#04x} at {at}");
            }
        }
        assert!(Record::parse(&[&text[..], b"\n"].concat()).is_err());
    }

    #[test]
    fn a_newer_file_is_told_apart() {
        let newer = RECORD.text().replace("data 1", "data 2") + "whatever it holds\n";
        assert_eq!(Record::parse(newer.as_bytes()), Err(BadRecord::Newer(2)));
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens");
        let refused = |what: &str| {
            let error = DataDir::open(folder.path()).unwrap_err().to_string();
            assert!(error.contains(file.to_str().unwrap()) && error.contains(what), "{error}");
        };
        fs::write(&file, "ticketing-data 1\n").unwrap();
        refused("damaged");
        fs::write(&file, "ticketing-data 7\n").unwrap();
        refused("upgrade");
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        refused("cannot read");
        fs::remove_dir(&file).unwrap();
        fs::create_dir(folder.path().join("tokens.new")).unwrap();
        let (dir, _) = DataDir::open(folder.path()).unwrap();
        assert!(dir.write(&RECORD).unwrap_err().to_string().contains("cannot write"));
        assert!(!file.exists(), "a write that failed left the file as it was");
    }

    #[test]
    fn two_servers_cannot_share_it() {
        let folder = tempfile::tempdir().unwrap();
        let (first, _) = DataDir::open(folder.path()).unwrap();
        assert!(matches!(DataDir::open(folder.path()), Err(DataDirError::InUse(_))));
        drop(first);
        assert!(DataDir::open(folder.path()).is_ok());
    }
}

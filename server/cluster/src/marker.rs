//! What a place remembers although its nodes forget: the identity that it was in, and
//! which tokens may have been given out there.
//!
//! ```text
//! ticketing-marker 1
//! identity 8d2f…
//! token_floor 1876543210123456789
//! check 5e884898
//! ```
//!
//! With it, `ticketing-server init` does not begin a second identity by mistake where
//! all nodes have been restarted, and the tokens of one that is begun on purpose lie
//! above those of the one before, even if the wall clock has gone back.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ticketing_peer::ClusterId;

use crate::calls::Form;
use crate::durable::{make, sync};

const VERSION: u32 = 1;

/// The floor is noted this far ahead of the last token, so that it is seldom written
/// and never behind: an hour of grants at a million a second, or four seconds of the
/// wall clock that tokens begin with.
const AHEAD: u64 = 1 << 32;

/// Why the directory of the marker cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
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
    /// Every node needs one of its own.
    #[error("{}: another process uses this state directory; give this one a directory of its own", .0.display())]
    InUse(PathBuf),
    /// Not what was written.
    #[error(
        "{}: the marker is damaged. Delete it if no cluster of this place has ever run; otherwise delete it and begin the next \
         identity with --new-identity and a --token-floor that no token of the last one exceeds",
        .0.display()
    )]
    Damaged(PathBuf),
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

/// What the marker says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    /// Zero: none.
    pub(crate) identity: u128,
    /// Every token that may have been given out until now is this or less.
    pub(crate) token_floor: u64,
}

/// The marker of one place.
#[derive(Debug)]
pub(crate) struct Marker {
    folder: PathBuf,
    noted: Mutex<Noted>,
    /// The system gives the lock up with the file, however the process ends.
    _lock: File,
}

impl Marker {
    /// Takes the marker in this folder, which is made if it is not there.
    pub(crate) fn open(folder: &Path) -> Result<Self, StateDirError> {
        make(folder).map_err(failed(folder, "make"))?;
        let lock_path = folder.join("marker.lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
        let lock = lock.map_err(failed(&lock_path, "open"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StateDirError::InUse(folder.to_owned()),
            TryLockError::Error(error) => failed(&lock_path, "lock")(error),
        })?;
        let path = folder.join("marker");
        let noted = match fs::read(&path) {
            Ok(bytes) => Noted::parse(&bytes).map_err(|bad| match bad {
                Bad::Damaged => StateDirError::Damaged(path),
                Bad::Newer(found) => StateDirError::Newer { path, found },
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Noted::default(),
            Err(error) => return Err(failed(&path, "read")(error)),
        };
        Ok(Self { folder: folder.to_owned(), noted: Mutex::new(noted), _lock: lock })
    }

    pub(crate) fn noted(&self) -> Noted {
        *self.lock()
    }

    /// Notes that this place is in this identity, whose tokens begin here; on disk
    /// when it returns.
    pub(crate) fn enter(&self, identity: u128, first_token: u64) -> Result<(), StateDirError> {
        self.change(|noted| Noted {
            identity,
            token_floor: noted.token_floor.max(first_token.saturating_add(AHEAD)),
        })
    }

    /// Notes that this token has been given out.
    pub(crate) fn saw(&self, token: u64) -> Result<(), StateDirError> {
        self.change(|noted| {
            let is_far = noted.token_floor >= token.saturating_add(AHEAD / 2);
            let token_floor = if is_far { noted.token_floor } else { token.saturating_add(AHEAD) };
            Noted { token_floor, ..noted }
        })
    }

    fn change(&self, change: impl FnOnce(Noted) -> Noted) -> Result<(), StateDirError> {
        let mut noted = self.lock();
        let next = change(*noted);
        if next != *noted {
            self.write(next).map_err(failed(&self.folder.join("marker"), "write"))?;
            *noted = next;
        }
        Ok(())
    }

    fn write(&self, noted: Noted) -> Result<(), io::Error> {
        let new = self.folder.join("marker.new");
        let mut file = File::create(&new)?;
        file.write_all(noted.text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, self.folder.join("marker"))?;
        sync(&self.folder)
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        // It is replaced as a whole.
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> StateDirError {
    let path = path.to_owned();
    move |source| StateDirError::Io { path, what, source }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bad {
    Damaged,
    Newer(u32),
}

impl Noted {
    /// Why this place must not take part in a formation.
    pub(crate) fn objection_to(&self, form: &Form) -> Option<String> {
        if self.identity != 0 && self.identity != form.cluster && !form.new_identity {
            let former = ClusterId(self.identity.to_be_bytes());
            return Some(format!("it was in cluster {former}; --new-identity begins a new one in its place"));
        }
        if form.first_token <= self.token_floor {
            let floor = self.token_floor;
            return Some(format!(
                "tokens up to {floor} may have been given out here: a new identity begins above"
            ));
        }
        None
    }

    fn text(self) -> String {
        let Self { identity, token_floor } = self;
        let body =
            format!("ticketing-marker {VERSION}\nidentity {identity:032x}\ntoken_floor {token_floor}\n");
        let check = crc32fast::hash(body.as_bytes());
        format!("{body}check {check:08x}\n")
    }

    fn parse(bytes: &[u8]) -> Result<Self, Bad> {
        let text = std::str::from_utf8(bytes).map_err(|_| Bad::Damaged)?;
        let mut lines = text.lines();
        let mut value = |name| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        match value("ticketing-marker").and_then(|version| version.parse().ok()) {
            Some(VERSION) => {}
            Some(newer) if newer > VERSION => return Err(Bad::Newer(newer)),
            _ => return Err(Bad::Damaged),
        }
        let identity = value("identity").and_then(|text| u128::from_str_radix(text, 16).ok());
        let token_floor = value("token_floor").and_then(|text| text.parse().ok());
        let (Some(identity), Some(token_floor)) = (identity, token_floor) else { return Err(Bad::Damaged) };
        // There is one way to write it, so this compares the check line and everything else.
        let noted = Self { identity, token_floor };
        if noted.text() == text { Ok(noted) } else { Err(Bad::Damaged) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTED: Noted = Noted { identity: 0xa5 << 120 | 7, token_floor: 1_876_543_210_123_456_789 };

    #[test]
    fn what_is_noted_is_found_by_the_next_process() {
        let folder = tempfile::tempdir().unwrap();
        let marker = Marker::open(folder.path()).unwrap();
        assert_eq!(marker.noted(), Noted::default());
        marker.enter(7, 1000).unwrap();
        // A torn temporary file of a crash is no hindrance.
        fs::write(folder.path().join("marker.new"), "tick").unwrap();
        assert!(matches!(Marker::open(folder.path()), Err(StateDirError::InUse(_))));
        drop(marker);
        let marker = Marker::open(folder.path()).unwrap();
        assert_eq!(marker.noted(), Noted { identity: 7, token_floor: 1000 + AHEAD });
        marker.enter(8, 5).unwrap();
        assert_eq!(marker.noted(), Noted { identity: 8, token_floor: 1000 + AHEAD }, "a floor never sinks");
    }

    #[test]
    fn the_floor_is_above_every_token_and_seldom_written() {
        let folder = tempfile::tempdir().unwrap();
        let marker = Marker::open(folder.path()).unwrap();
        marker.enter(7, 1).unwrap();
        let mut floors = std::collections::BTreeSet::new();
        for token in (0..10 * AHEAD).step_by(1 << 25) {
            marker.saw(token).unwrap();
            let floor = marker.noted().token_floor;
            assert!(floor >= token + AHEAD / 2);
            floors.insert(floor);
        }
        assert!(floors.len() < 25, "{}", floors.len());
        marker.saw(u64::MAX).unwrap();
        assert_eq!(marker.noted().token_floor, u64::MAX);
    }

    #[test]
    fn damage_is_refused_and_a_newer_one_is_told_apart() {
        let text = NOTED.text();
        assert_eq!(Noted::parse(text.as_bytes()), Ok(NOTED));
        for at in 0..text.len() {
            assert!(Noted::parse(&text.as_bytes()[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut damaged = text.clone().into_bytes();
                damaged[at] ^= 1 << bit;
                assert!(Noted::parse(&damaged).is_err(), "bit {bit} of byte {at}");
            }
        }
        let newer = text.replace("marker 1", "marker 2") + "whatever it holds\n";
        assert_eq!(Noted::parse(newer.as_bytes()), Err(Bad::Newer(2)));
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("marker"), "ticketing-marker 1\n").unwrap();
        let error = Marker::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("marker is damaged") && error.contains("--token-floor"), "{error}");
    }

    #[test]
    fn a_formation_must_be_meant_and_begin_above() {
        let form = |cluster, first_token, new_identity| {
            NOTED.objection_to(&Form {
                cluster,
                first_token,
                founders: Vec::new(),
                instead_of: 0,
                new_identity,
            })
        };
        let above = NOTED.token_floor + 1;
        assert!(form(9, above, false).unwrap().contains("--new-identity"));
        assert!(form(9, above - 1, true).unwrap().contains("a new identity begins above"));
        assert_eq!(form(9, above, true), None);
        assert_eq!(form(NOTED.identity, above, false), None);
        let unmarked = Noted::default();
        let first =
            Form { cluster: 9, first_token: 1, founders: Vec::new(), instead_of: 0, new_identity: false };
        assert_eq!(unmarked.objection_to(&first), None);
    }

    #[test]
    fn what_cannot_be_written_is_not_noted() {
        let folder = tempfile::tempdir().unwrap();
        let marker = Marker::open(folder.path()).unwrap();
        fs::create_dir(folder.path().join("marker.new")).unwrap();
        assert!(marker.enter(7, 1).unwrap_err().to_string().contains("cannot write"));
        assert_eq!(marker.noted(), Noted::default());
    }
}

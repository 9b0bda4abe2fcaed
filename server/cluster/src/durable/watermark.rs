//! How many commits were acknowledged. Not synced itself: it need not be there after
//! a loss of power, but what it says is true whenever it is, as it is written when
//! the commit is on disk.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;

use super::record::{seal, unseal};

const NAME: &[u8] = b"acknowledged";

/// The file that says so.
#[derive(Debug)]
pub(super) struct Watermark(File);

impl Watermark {
    /// The file, and what it says; `None`: nothing that can be relied upon.
    pub(super) fn open(path: &Path) -> Result<(Self, Option<u64>), io::Error> {
        let mut file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)?;
        let mut bytes = [0; 12];
        let said = match file.read_exact(&mut bytes) {
            Ok(()) => unseal::<[u8; 8]>(NAME, &bytes).ok().map(u64::from_le_bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(error) => return Err(error),
        };
        Ok((Self(file), said))
    }

    /// Says that this many commits are on disk.
    pub(super) fn set(&mut self, commits: u64) -> Result<(), io::Error> {
        let bytes = seal(NAME, &commits.to_le_bytes()).map_err(io::Error::other)?;
        self.0.rewind()?;
        self.0.write_all(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_it_was_told_or_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("acknowledged");
        let (mut mark, said) = Watermark::open(&path).unwrap();
        assert_eq!(said, None);
        for commits in [1, 300, u64::MAX] {
            mark.set(commits).unwrap();
            assert_eq!(Watermark::open(&path).unwrap().1, Some(commits));
        }
        let bytes = std::fs::read(&path).unwrap();
        for cut in 0..bytes.len() {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            assert_eq!(Watermark::open(&path).unwrap().1, None, "cut at {cut}");
        }
    }
}

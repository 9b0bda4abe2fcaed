//! What the lock protects: a ledger, one numbered line for each turn.

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

/// Adds a line `number token who`, numbered one higher than the last.
///
/// Reading the last number and writing the next is two steps: without a lock,
/// two programs would write the same number. With one, a program that froze
/// between the steps could still come back after its lease and write late; so
/// the ledger refuses a token that is smaller than the last. (The same one again is
/// the same holder, who may write more than once.)
///
/// # Errors
/// If the token is out of date, or the file cannot be read or written.
pub fn add_line(ledger: &Path, token: u64, who: &str) -> Result<(), Box<dyn Error>> {
    let text = if ledger.exists() { fs::read_to_string(ledger)? } else { String::new() };
    let mut last = text.lines().last().unwrap_or("0 0").split(' ');
    let mut number = || last.next().unwrap_or_default().parse::<u64>();
    let (last_number, last_token) = (number()?, number()?);
    if token < last_token {
        return Err(format!("token {token} is out of date: the ledger has seen {last_token}").into());
    }
    let mut file = OpenOptions::new().create(true).append(true).open(ledger)?;
    writeln!(file, "{} {token} {who}", last_number + 1)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_writer_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("ledger");
        add_line(&ledger, 7, "first").unwrap();
        add_line(&ledger, 9, "second").unwrap();
        assert!(add_line(&ledger, 8, "late").is_err());
        add_line(&ledger, 9, "second").unwrap();
        assert_eq!(fs::read_to_string(&ledger).unwrap(), "1 7 first\n2 9 second\n3 9 second\n");
    }
}

//! What single mode has in place of a cluster: a fencing domain, and a source
//! of tokens that a restart does not wind back. A commit needs nobody else.

mod data_dir;
mod tokens;

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ticketing_protocol::handshake::Domain;

pub use data_dir::DataDirError;
pub(crate) use tokens::Tokens;

use data_dir::{DataDir, Record};

/// How far the wall clock is shifted to make a token: there is room for a
/// million grants in each millisecond, so that a run never catches up with the
/// clock from which the next one starts.
const CLOCK_SHIFT: u32 = 20;

/// Where a server of single mode starts from.
#[derive(Debug)]
pub(crate) struct Single {
    pub(crate) domain: Domain,
    /// The first token of this run.
    pub(crate) first_token: u64,
    pub(crate) tokens: Tokens,
}

impl Single {
    /// Without a data directory: successive runs share one domain, and their
    /// tokens grow with the wall clock.
    pub(crate) fn in_memory() -> Self {
        Self { domain: Domain::default(), first_token: wall_clock_token(), tokens: Tokens::unlimited() }
    }

    /// With a data directory, which is made if it is not there.
    pub(crate) fn durable(folder: &Path) -> Result<Self, DataDirError> {
        let (dir, record) = DataDir::open(folder)?;
        let record = match record {
            Some(record) => record,
            None => {
                let mut domain = [0; 16];
                getrandom::fill(&mut domain).map_err(|error| {
                    dir.error("draw a random fencing domain for", std::io::Error::other(error.to_string()))
                })?;
                // Above what a run without this folder may have given out.
                Record { domain: Domain(domain), reserved: wall_clock_token() }
            }
        };
        let first_token = record.reserved.checked_add(1).ok_or_else(|| dir.exhausted())?;
        let ceiling = tokens::next_ceiling(record.reserved);
        dir.write(&Record { reserved: ceiling, ..record })?;
        Ok(Self {
            domain: record.domain,
            first_token,
            tokens: Tokens::reserved(Arc::new(dir), record.domain, ceiling),
        })
    }
}

fn wall_clock_token() -> u64 {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis());
    // Until the year 2527.
    u64::try_from(millis << CLOCK_SHIFT).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_folder_tokens_follow_the_clock() {
        let (first, second) = (Single::in_memory(), wall_clock_token());
        assert_eq!(first.domain.to_string(), "0".repeat(32));
        assert!(first.first_token <= second);
        // They fit a signed 64-bit column.
        assert!(i64::try_from(second).is_ok());
    }

    #[tokio::test]
    async fn with_a_folder_every_run_starts_above_the_last_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made/when/missing");
        let before = wall_clock_token();
        let mut last: Option<(Domain, u64)> = None;
        for _ in 0..3 {
            let run = Single::durable(&path).unwrap();
            assert!(run.first_token > before);
            assert!(run.tokens.ceiling() > run.first_token);
            if let Some((domain, ceiling)) = last {
                assert_eq!(run.domain, domain);
                assert!(run.first_token > ceiling, "a token of the last run could be given again");
            }
            last = Some((run.domain, run.tokens.ceiling()));
        }
    }
}

//! Files are read beside what serves: a file system that hangs holds nobody up.

use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// How long files may take to be read.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why nothing came of it.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// The file system hangs.
    #[error("cannot be read: it took longer than {PATIENCE:?}")]
    Slow,
    /// The file system hung before, and still does.
    #[error("cannot be read: the last attempt has not come to an end")]
    Hangs,
    /// A defect.
    #[error("cannot be read: {0}")]
    Defect(String),
}

/// Runs `read` on a thread of its own, and waits for it that long. It is not ended
/// with the wait: it keeps what was moved into it, which can so show that it goes on.
pub(crate) async fn beside<T: Send + 'static>(
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unread> {
    match timeout(PATIENCE, spawn_blocking(read)).await {
        Ok(Ok(outcome)) => Ok(outcome),
        Ok(Err(error)) => Err(Unread::Defect(error.to_string())),
        Err(_) => Err(Unread::Slow),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn what_hangs_is_given_up_and_goes_on_alone() {
        assert_eq!(beside(|| 7).await.unwrap(), 7);
        let (release, released) = channel::<()>();
        let (tell, told) = channel();
        let hanging = move || {
            let _ = released.recv();
            tell.send(()).unwrap();
        };
        assert!(matches!(beside(hanging).await, Err(Unread::Slow)));
        drop(release);
        told.recv().unwrap();
        assert!(matches!(beside(|| panic!("a defect")).await, Err::<(), _>(Unread::Defect(_))));
    }
}

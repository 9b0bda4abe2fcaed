//! Who is told what became of a proposal.

use std::fmt;

use openraft::raft::responder::Responder;

use crate::types::Types;

type Callback<T> = Box<dyn FnOnce(Option<T>) + Send + Sync>;

/// Calls back exactly once: with the result, or with `None` when whoever should
/// have known it is gone.
pub(crate) struct Report<T>(Option<Callback<T>>);

impl<T> Report<T> {
    pub(crate) fn to(callback: impl FnOnce(Option<T>) + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(callback)))
    }
}

impl<T> fmt::Debug for Report<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Report")
    }
}

impl<T: Send + 'static> Responder<Types, T> for Report<T> {
    fn on_complete(mut self, result: T) {
        if let Some(callback) = self.0.take() {
            callback(Some(result));
        }
    }
}

impl<T> Drop for Report<T> {
    fn drop(&mut self) {
        if let Some(callback) = self.0.take() {
            callback(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn it_is_called_once_whatever_happens() {
        let (sender, calls) = mpsc::channel();
        let report = |name: &'static str| {
            let sender = sender.clone();
            Report::to(move |result: Option<u8>| sender.send((name, result)).unwrap_or_default())
        };
        report("done").on_complete(1);
        drop(report("dropped"));
        assert_eq!(calls.try_iter().collect::<Vec<_>>(), [("done", Some(1)), ("dropped", None)]);
    }
}

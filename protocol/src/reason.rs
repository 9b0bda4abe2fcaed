//! Why a server closes a connection.

use std::fmt;

/// The reason text of an `E` frame. Every one closes the connection.
///
/// A client must survive a reason that it does not know, so it reads the text
/// of an [`Error`](crate::ServerFrame::Error) frame and asks [`Reason::parse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A frame has more than 192 bytes.
    LineTooLong,
    /// An op that is not known, or not switched on for this connection.
    BadOp,
    /// The key breaks a rule of [`Key`](crate::Key).
    BadKey,
    /// A lease outside 1 to 250 seconds.
    BadLease,
    /// A frame was not complete 5 s after its first byte.
    FrameTimeout,
    /// The handshake's answer was wrong, late or too long.
    AuthFailed,
    /// The server has no room for another connection.
    TooManyConnections,
    /// The client does not read its answers.
    Overloaded,
    /// A learner, or a node that is starting.
    NotActive,
    /// The server is draining.
    ShuttingDown,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 10] = [
        Self::LineTooLong,
        Self::BadOp,
        Self::BadKey,
        Self::BadLease,
        Self::FrameTimeout,
        Self::AuthFailed,
        Self::TooManyConnections,
        Self::Overloaded,
        Self::NotActive,
        Self::ShuttingDown,
    ];

    /// The text on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LineTooLong => "line_too_long",
            Self::BadOp => "bad_op",
            Self::BadKey => "bad_key",
            Self::BadLease => "bad_lease",
            Self::FrameTimeout => "frame_timeout",
            Self::AuthFailed => "auth_failed",
            Self::TooManyConnections => "too_many_connections",
            Self::Overloaded => "overloaded",
            Self::NotActive => "not_active",
            Self::ShuttingDown => "shutting_down",
        }
    }

    /// The reason with this text, or `None` for one of a later server.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_reads_back() {
        for reason in Reason::ALL {
            assert_eq!(Reason::parse(reason.as_str()), Some(reason));
        }
        assert_eq!(Reason::parse("from_the_future"), None);
    }
}

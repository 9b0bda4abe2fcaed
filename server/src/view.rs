//! What this server is to its clients at the moment.

use std::sync::Arc;

use ticketing_protocol::handshake::Domain;

/// Where the leader is, as clients are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lead {
    /// Here.
    Here,
    /// There, `host:port`.
    There(Arc<str>),
    /// Nobody knows.
    Unknown,
}

impl Lead {
    /// As a frame names it to a client that knows this server as `own`.
    pub(crate) fn address<'a>(&'a self, own: &'a str) -> &'a str {
        match self {
            Self::Here => own,
            Self::There(address) => address,
            Self::Unknown => "",
        }
    }
}

/// What this server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// The fencing domain; `None`: this server takes part in nothing, and no client
    /// is served.
    pub(crate) domain: Option<Domain>,
    pub(crate) lead: Lead,
}

//! What a scenario file may say.
//!
//! Everything is strict: a field that is not known here is an error, so a
//! misspelt expectation can never pass as one that holds.

mod client;
mod server;
mod values;

use std::collections::BTreeMap;

use serde::Deserialize;

pub(crate) use client::*;
pub(crate) use server::*;
pub(crate) use values::*;

/// The fencing domain that a greeting names unless it says otherwise.
pub(crate) const DOMAIN: &str = "000102030405060708090a0b0c0d0e0f";

/// One promise, one way to try it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// `snake_case`, unique in the table.
    pub(crate) name: String,
    /// The promise, in one sentence.
    pub(crate) protects: String,
    pub(crate) nodes: BTreeMap<String, Node>,
    pub(crate) client: Vec<ClientStep>,
    /// A scenario that is not over by then has failed.
    #[serde(default = "default_limit_s")]
    pub(crate) limit_s: u64,
}

const fn default_limit_s() -> u64 {
    60
}

/// One scripted server: a port and what its connections do.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Node {
    /// The n-th connection plays the n-th script; all of them must be played.
    #[serde(default)]
    pub(crate) connections: Vec<Vec<Step>>,
    /// What connections do for which there is no script.
    #[serde(default)]
    pub(crate) then: Then,
    #[serde(default)]
    pub(crate) listen: Listen,
    /// The address to listen on; a machine without it skips the scenario.
    #[serde(default = "default_host")]
    pub(crate) host: std::net::IpAddr,
    #[serde(default)]
    pub(crate) tls: Option<NodeTls>,
    /// More connections than this are a failure.
    #[serde(default)]
    pub(crate) max_connections: Option<usize>,
}

const fn default_host() -> std::net::IpAddr {
    std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Then {
    /// A healthy leader with extension 1 on which nothing may be sent.
    #[default]
    Idle,
    /// The last script again; it need not come to its end.
    RepeatLast,
    /// A reset right after the accept.
    Reset,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Listen {
    #[default]
    AtStart,
    /// Connections are refused until the signal.
    After(String),
    /// Connections are refused.
    Never,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeTls {
    #[serde(default)]
    pub(crate) issuer: Ca,
    /// Names and addresses that the certificate is for.
    #[serde(default = "default_names")]
    pub(crate) names: Vec<String>,
    #[serde(default)]
    pub(crate) expired: bool,
}

fn default_names() -> Vec<String> {
    vec!["127.0.0.1".into(), "localhost".into()]
}

/// Certificate authorities, made anew for each run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ca {
    #[default]
    Known,
    Other,
}

/// A signal lies between these numbers of milliseconds in the past.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Since {
    pub(crate) signal: String,
    pub(crate) ms: Range,
}

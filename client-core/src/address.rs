//! A server's address as it was configured.

use std::fmt;
use std::sync::Arc;

use ticketing_protocol::limits::DEFAULT_PORT;

/// `host:port`, resolved anew at each attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// The text with its port, as hints about the leader would name it.
    pub(crate) text: Arc<str>,
    /// The host alone, an IPv6 address without its brackets.
    pub(crate) host: Box<str>,
    pub(crate) port: u16,
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the address {text:?} is not host:port: {rule}")]
pub(crate) struct BadAddress {
    text: String,
    rule: &'static str,
}

impl Address {
    /// Reads `host`, `host:port`, `[v6]` or `[v6]:port`; without a port it is 5225.
    pub(crate) fn parse(text: &str) -> Result<Self, BadAddress> {
        let bad = |rule| BadAddress { text: text.to_owned(), rule };
        if text.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err(bad("it has a space or a character that is not ASCII"));
        }
        if text.contains("//") {
            return Err(bad("leave the scheme (what ends in ://) and what follows the port out"));
        }
        let (host, port, bracketed) = if let Some(rest) = text.strip_prefix('[') {
            let (host, after) = rest.split_once(']').ok_or_else(|| bad("a bracket is not closed"))?;
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err(bad("there is no IPv6 address in the brackets"));
            }
            match after.strip_prefix(':') {
                Some(port) => (host, Some(port), true),
                None if after.is_empty() => (host, None, true),
                None => return Err(bad("after the bracket only :port may follow")),
            }
        } else {
            match text.split_once(':') {
                Some((_, port)) if port.contains(':') => return Err(bad("put an IPv6 address in brackets")),
                Some((host, port)) => (host, Some(port), false),
                None => (text, None, false),
            }
        };
        if host.is_empty() {
            return Err(bad("the host is missing"));
        }
        let port = match port {
            None => DEFAULT_PORT,
            // `parse` would take a sign.
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => match digits.parse() {
                Ok(port) if port != 0 => port,
                _ => return Err(bad("the port must be 1 to 65535")),
            },
            Some(_) => return Err(bad("the port must be 1 to 65535")),
        };
        let text = if bracketed { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        Ok(Self { text: text.into(), host: host.into(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        for (text, host, port, normal) in [
            ("localhost:1", "localhost", 1, "localhost:1"),
            ("locks.example", "locks.example", 5225, "locks.example:5225"),
            ("127.0.0.1:65535", "127.0.0.1", 65535, "127.0.0.1:65535"),
            ("[::1]:7", "::1", 7, "[::1]:7"),
            ("[fe80::1]", "fe80::1", 5225, "[fe80::1]:5225"),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!((&*address.host, address.port, &*address.text), (host, port, normal));
        }
    }

    #[test]
    fn a_hint_fits_the_mistake() {
        for (text, hint) in [
            ("http://x:5225", "scheme"),
            ("tcp://[::1]:5225/", "scheme"),
            ("::1:5225", "brackets"),
            ("x:https", "port"),
        ] {
            let told = Address::parse(text).unwrap_err().to_string();
            assert!(told.contains(hint), "{told}");
        }
    }

    #[test]
    fn what_is_no_address_is_told() {
        let bad = [
            "", ":1", "a:", "a:0", "a:65536", "a:+1", "a:b", "::1", "[::1", "[]:1", "[x]:1", "[::1]1",
            "a b:1", "ä:1",
        ];
        for text in bad {
            assert!(Address::parse(text).is_err(), "{text:?}");
        }
    }
}

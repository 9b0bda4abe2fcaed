//! The configured places of a cluster.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// The most bytes of an address: with it a greeting that names it is never too long.
pub const MAX_ADDRESS_BYTES: usize = 128;

/// One configured place: it stays, whichever process fills it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its name, for people.
    pub name: String,
    /// Where the node that fills it is reached by its peers, `host:port`.
    pub peer: String,
    /// Where it is reached by clients, `host:port`.
    pub client: String,
}

/// All places of a cluster, 3 or 5. (A server alone is a cluster of one.)
///
/// ```
/// use ticketing_cluster::Slots;
///
/// let text = "a=10.0.0.1:5235@10.0.0.1:5225,b=10.0.0.2:5235@10.0.0.2:5225,c=10.0.0.3:5235@10.0.0.3:5225";
/// let slots = text.parse::<Slots>()?;
/// assert_eq!(slots.index_of("b"), Some(1));
/// # Ok::<(), ticketing_cluster::BadSlots>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots(Vec<Slot>);

/// Why a list of places cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSlots {
    /// Only 3 and 5 voters survive the loss of a minority at no wasted cost.
    #[error(
        "{0} nodes are named; a cluster has 3 or 5 (with any other number it would not survive more failures)"
    )]
    Number(usize),
    /// A part that is not `name=peer@client`.
    #[error("{0:?}: expected NAME=PEER_HOST:PORT@CLIENT_HOST:PORT")]
    Form(String),
    /// A name that cannot be one.
    #[error("{0:?} is no name for a node: 1 to 32 letters, digits, '-', '_' or '.'")]
    Name(String),
    /// An address that cannot be one.
    #[error("node {name}: {address:?} is no address: expected HOST:PORT with a port from 1 to 65535")]
    Address {
        /// The node.
        name: String,
        /// What stands there.
        address: String,
    },
    /// One name twice.
    #[error("{0:?} is named twice: every node needs a name of its own")]
    NameTwice(String),
    /// One address twice.
    #[error("{0} is used twice: every node needs a peer address and a client address of its own")]
    AddressTwice(String),
}

impl Slots {
    /// Checks and takes a list of places.
    ///
    /// # Errors
    /// [`BadSlots`] says what is wrong.
    pub fn new(slots: Vec<Slot>) -> Result<Self, BadSlots> {
        if !matches!(slots.len(), 3 | 5) {
            return Err(BadSlots::Number(slots.len()));
        }
        let (mut names, mut addresses) = (BTreeSet::new(), BTreeSet::new());
        for Slot { name, peer, client } in &slots {
            if name.is_empty() || name.len() > 32 || !name.chars().all(is_part_of_a_name) {
                return Err(BadSlots::Name(name.clone()));
            }
            if !names.insert(name) {
                return Err(BadSlots::NameTwice(name.clone()));
            }
            for address in [peer, client] {
                if !is_address(address) {
                    return Err(BadSlots::Address { name: name.clone(), address: address.clone() });
                }
                if !addresses.insert(address) {
                    return Err(BadSlots::AddressTwice(address.clone()));
                }
            }
        }
        Ok(Self(slots))
    }

    /// The only place of a server alone.
    pub(crate) fn alone(client: String) -> Self {
        Self(vec![Slot { name: "single".to_owned(), peer: "nowhere".to_owned(), client }])
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never: there are 3 or 5.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their names, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.iter().map(|slot| slot.name.clone()).collect()
    }

    /// The place of this name.
    #[must_use]
    pub fn index_of(&self, name: &str) -> Option<u8> {
        self.iter().find(|(_, slot)| slot.name == name).map(|(index, _)| index)
    }

    /// The place of this index.
    #[must_use]
    pub fn get(&self, index: u8) -> Option<&Slot> {
        self.0.get(usize::from(index))
    }

    /// All of them, with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &Slot)> {
        (0..).zip(&self.0)
    }

    /// How many make a majority.
    #[must_use]
    pub fn majority(&self) -> usize {
        self.0.len() / 2 + 1
    }
}

/// Whether clients and nodes can be told this address: `host:port`, an IPv6
/// address in brackets.
///
/// ```
/// use ticketing_cluster::is_address;
///
/// assert!(is_address("locks.example:5225") && is_address("[::1]:5225"));
/// assert!(!is_address("http://locks.example:5225") && !is_address("::1:5225"));
/// ```
#[must_use]
pub fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match bracketed {
        Some(host) => host.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(is_part_of_a_name),
    };
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    is_host && digits && text.len() <= MAX_ADDRESS_BYTES && port.parse::<u16>().is_ok_and(|port| port != 0)
}

fn is_part_of_a_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.')
}

impl FromStr for Slots {
    type Err = BadSlots;

    fn from_str(text: &str) -> Result<Self, BadSlots> {
        let slots = text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(|part| {
            let form = || BadSlots::Form(part.to_owned());
            let (name, addresses) = part.split_once('=').ok_or_else(form)?;
            let (peer, client) = addresses.split_once('@').ok_or_else(form)?;
            Ok(Slot { name: name.to_owned(), peer: peer.to_owned(), client: client.to_owned() })
        });
        Self::new(slots.collect::<Result<_, _>>()?)
    }
}

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Slot { name, peer, client }) in self.iter() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{name}={peer}@{client}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: &str = "a=h1:1@h1:2,b=h2:1@h2:2,c=[::1]:1@[::1]:2";

    #[test]
    fn a_list_is_read_and_written() {
        let slots = THREE.parse::<Slots>().unwrap();
        assert_eq!((slots.len(), slots.majority(), slots.index_of("c")), (3, 2, Some(2)));
        assert_eq!(slots.to_string(), THREE);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = |text: &str| text.parse::<Slots>().unwrap_err().to_string();
        for number in ["", "a=h:1@h:2", "a=h:1@h:2,b=h:3@h:4", "a=h:1@h:2,b=h:3@h:4,c=h:5@h:6,d=h:7@h:8"] {
            assert!(wrong(number).contains("3 or 5"), "{number}");
        }
        assert!(wrong("a=h:1,b=h:3@h:4,c=h:5@h:6").contains("expected NAME=PEER"));
        assert!(wrong("a b=h:1@h:2,b=h:3@h:4,c=h:5@h:6").contains("no name"));
        assert!(wrong("a=h:1@h:2,a=h:3@h:4,c=h:5@h:6").contains("named twice"));
        assert!(wrong("a=h:1@h:2,b=h:3@h:1,c=h:5@h:6").contains("h:1 is used twice"));
        assert!(wrong("a=h:1@h:1,b=h:3@h:4,c=h:5@h:6").contains("h:1 is used twice"));
        for address in ["h", "h:0", "h:65536", ":1", "::1:5", "[]:1", "h:x", "h h:1"] {
            let text = format!("a={address}@h:2,b=h:3@h:4,c=h:5@h:6");
            assert!(wrong(&text).contains("no address"), "{address}");
        }
    }
}

//! What the words of the servers mean: which of the open sessions lead, and
//! which say that another node does.
//!
//! An address in a word is matched through what the servers called themselves
//! in their greetings, since configured names and advertised ones may differ;
//! a server that did not introduce itself is known by its configured address.

use super::directory::Connection;
use crate::session::Word;

/// What the server of a session says of its own part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It leads: its last word is an `L` with its own address.
    Leads,
    /// Another node leads. A request could only be turned away.
    Elsewhere,
    /// Nothing is known.
    Unknown,
}

/// The name by which words about the leader call a connection.
fn name(connection: &Connection) -> &str {
    let introduced = connection.greeted.as_ref().and_then(|greeted| greeted.own_address.as_deref());
    introduced.unwrap_or(&connection.address)
}

fn is_introduced(connection: &Connection) -> bool {
    connection.greeted.as_ref().is_some_and(|greeted| greeted.own_address.is_some())
}

pub(super) fn standing(connections: &[Connection], index: usize) -> Standing {
    let Some(connection) = connections.get(index) else { return Standing::Unknown };
    let (Some((word, _)), Some(_)) = (&connection.word, &connection.link) else {
        return Standing::Unknown;
    };
    match word {
        Word::Leader(named) | Word::Moved(named) if named.is_empty() => Standing::Unknown,
        Word::Leader(named) if **named == *name(connection) => Standing::Leads,
        // It turned us away with its own name: that says nothing.
        Word::Moved(named) if **named == *name(connection) => Standing::Unknown,
        Word::Moved(_) => Standing::Elsewhere,
        // A server that never introduced itself may mean itself by a name that
        // we do not know, unless that is the name of another one.
        Word::Leader(named) => {
            let other = connections.iter().any(|other| **named == *name(other));
            if other || is_introduced(connection) { Standing::Elsewhere } else { Standing::Unknown }
        }
    }
}

/// The sessions that requests go to, and whether they are known to lead.
///
/// First those that lead. If several nodes say so, one of them is an old leader
/// that has not noticed yet: the last one to say it counts. Then the one that
/// was named last, then all of which nothing is known.
pub(super) fn candidates(connections: &[Connection], leader: Option<&str>) -> (Vec<usize>, bool) {
    let with = |wanted: Standing| {
        let open = (0..connections.len()).filter(|&index| connections[index].link.is_some());
        open.filter(move |&index| standing(connections, index) == wanted)
    };
    let said_at = |index: usize| connections[index].word.as_ref().map(|(_, at)| *at);
    if let Some(newest) = with(Standing::Leads).max_by_key(|&index| said_at(index)) {
        let node = name(&connections[newest]);
        return (with(Standing::Leads).filter(|&index| name(&connections[index]) == node).collect(), true);
    }
    let is_named = |index: usize| leader.is_some_and(|leader| *name(&connections[index]) == *leader);
    let named = with(Standing::Unknown).filter(|&index| is_named(index)).collect::<Vec<_>>();
    if named.is_empty() { (with(Standing::Unknown).collect(), false) } else { (named, false) }
}

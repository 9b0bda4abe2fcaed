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

#[cfg(test)]
mod tests {
    use super::super::directory::Directory;
    use super::*;
    use crate::link::{Command, Greeted, Link};
    use std::sync::Arc;
    use tokio::sync::mpsc::UnboundedReceiver;

    type Open = (Arc<Link>, UnboundedReceiver<Command>);

    fn directory() -> Directory {
        Directory::new(["a:1".into(), "b:1".into(), "c:1".into()])
    }

    fn open(directory: &Directory, connection: usize, own: Option<&str>, word: Option<Word>) -> (Open, bool) {
        let address = ["a:1", "b:1", "c:1"][connection];
        let greeted = Greeted { own_address: own.map(Into::into), ..Greeted::default() };
        let open = Link::new(connection, address.into(), greeted);
        let elsewhere = directory.opened(&open.0, word).unwrap();
        (open, elsewhere)
    }

    /// The connections that requests go to, by turns.
    fn chosen(directory: &Directory) -> Vec<usize> {
        let route = directory.route();
        let mut chosen =
            (0..6).filter_map(|turn| route.pick(turn)).map(|link| link.connection).collect::<Vec<_>>();
        chosen.sort_unstable();
        chosen.dedup();
        chosen
    }

    fn leader(address: &str) -> Option<Word> {
        Some(Word::Leader(address.into()))
    }

    fn moved(address: &str) -> Word {
        Word::Moved(address.into())
    }

    #[test]
    fn where_nothing_is_known_all_take_turns() {
        let directory = directory();
        let _a = open(&directory, 0, Some("x:1"), None);
        let _b = open(&directory, 1, None, leader(""));
        let c = open(&directory, 2, None, None);
        directory.heard(&c.0.0, moved(""));
        assert_eq!(chosen(&directory), [0, 1, 2]);
        assert!(!directory.route().leads);
    }

    #[test]
    fn one_that_leads_comes_first_and_one_that_denies_never() {
        let directory = directory();
        let (_a, elsewhere) = open(&directory, 0, Some("x:1"), leader("y:1"));
        assert!(elsewhere);
        let b = open(&directory, 1, Some("y:1"), leader("y:1"));
        let _c = open(&directory, 2, Some("z:1"), None);
        assert_eq!((chosen(&directory), directory.route().leads), (vec![1], true));
        directory.failed(
            1,
            &Arc::new(crate::trouble::At { address: "b:1".into(), what: crate::trouble::Trouble::Closed }),
        );
        drop(b);
        assert_eq!(chosen(&directory), [2], "the one that denies is not asked");
    }

    #[test]
    fn of_two_that_claim_to_lead_the_last_word_counts() {
        let directory = directory();
        let a = open(&directory, 0, Some("x:1"), leader("x:1"));
        let _b = open(&directory, 1, Some("y:1"), leader("y:1"));
        assert_eq!(chosen(&directory), [1]);
        directory.heard(&a.0.0, Word::Leader("x:1".into()));
        assert_eq!(chosen(&directory), [0]);
    }

    #[test]
    fn two_connections_to_one_node_that_leads_take_turns() {
        let directory = directory();
        let _a = open(&directory, 0, Some("x:1"), leader("x:1"));
        let _b = open(&directory, 1, Some("x:1"), leader("x:1"));
        assert_eq!(chosen(&directory), [0, 1]);
    }

    #[test]
    fn servers_without_an_introduction_are_matched_literally() {
        let directory = directory();
        let (a, elsewhere) = open(&directory, 0, None, leader("a:1"));
        assert!(!elsewhere);
        assert_eq!((chosen(&directory), directory.route().leads), (vec![0], true));
        // Another one that we know.
        assert!(directory.heard(&a.0, Word::Leader("b:1".into())));
        // One that we do not know may be itself, by another name.
        assert!(!directory.heard(&a.0, Word::Leader("elsewhere:1".into())));
        // But not if it sent us away.
        assert!(directory.heard(&a.0, moved("elsewhere:1")));
    }

    #[test]
    fn the_leader_that_was_named_last_is_preferred_among_the_unknown() {
        let directory = directory();
        let a = open(&directory, 0, None, None);
        let _b = open(&directory, 1, Some("y:1"), None);
        let _c = open(&directory, 2, None, None);
        assert!(directory.heard(&a.0.0, moved("y:1")));
        assert_eq!((chosen(&directory), directory.route().leads), (vec![1], false));
    }

    #[test]
    fn a_server_that_moves_to_itself_says_nothing() {
        let directory = directory();
        let a = open(&directory, 0, Some("x:1"), leader("x:1"));
        assert!(!directory.heard(&a.0.0, moved("x:1")));
        assert_eq!((chosen(&directory), directory.route().leads), (vec![0], false));
    }

    #[test]
    fn two_that_point_at_each_other_are_both_left_alone() {
        let directory = directory();
        let _a = open(&directory, 0, Some("x:1"), leader("y:1"));
        let _b = open(&directory, 1, Some("y:1"), leader("x:1"));
        assert_eq!(chosen(&directory), [0; 0]);
        assert!(directory.route().trouble.is_some(), "and the reason is told");
    }

    #[test]
    fn a_word_ends_with_its_session() {
        let directory = directory();
        let _a = open(&directory, 0, Some("x:1"), leader("y:1"));
        let (_a, elsewhere) = open(&directory, 0, Some("x:1"), None);
        assert!(!elsewhere);
        assert_eq!(chosen(&directory), [0]);
    }
}

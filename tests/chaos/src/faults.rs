//! Which hosts do not hear which others: plain values, carried out by a
//! [`Network`](crate::Network).

use std::collections::BTreeSet;
use std::ops::BitOr;

use crate::Host;

/// Pairs of hosts of which the second hears nothing from the first.
///
/// ```
/// use ticketing_chaos::{Cut, Host};
///
/// let [a, b, c] = [0, 1, 2].map(Host);
/// // b hears both sides, and a and c do not hear each other.
/// let bridge = Cut::bridge(&[a], b, &[c]);
/// assert!(bridge.is_cut(a, c) && bridge.is_cut(c, a));
/// assert!(!bridge.is_cut(a, b) && !bridge.is_cut(b, c));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut(BTreeSet<(Host, Host)>);

impl Cut {
    /// Everybody hears everybody.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// What `from` sends does not reach `to`; the other way is open.
    #[must_use]
    pub fn one_way(from: Host, to: Host) -> Self {
        Self(BTreeSet::from([(from, to)]))
    }

    /// Nothing passes between two groups, in either direction.
    #[must_use]
    pub fn between(left: &[Host], right: &[Host]) -> Self {
        let pairs = left.iter().flat_map(|&from| right.iter().map(move |&to| (from, to)));
        Self(pairs.flat_map(|(from, to)| [(from, to), (to, from)]).collect())
    }

    /// One host is cut off from these others.
    #[must_use]
    pub fn isolate(host: Host, from: &[Host]) -> Self {
        let others: Vec<Host> = from.iter().copied().filter(|&other| other != host).collect();
        Self::between(&[host], &others)
    }

    /// Two groups that only one host between them hears.
    #[must_use]
    pub fn bridge(left: &[Host], bridge: Host, right: &[Host]) -> Self {
        let side = |hosts: &[Host]| hosts.iter().copied().filter(|&host| host != bridge).collect::<Vec<_>>();
        Self::between(&side(left), &side(right))
    }

    /// Each host hears only its neighbours in the row.
    #[must_use]
    pub fn chain(row: &[Host]) -> Self {
        let far = |index: usize| row.get(index + 2..).unwrap_or_default();
        let cuts = row.iter().enumerate().map(|(index, &host)| Self::between(&[host], far(index)));
        cuts.fold(Self::none(), BitOr::bitor)
    }

    /// Whether `to` does not hear `from`.
    #[must_use]
    pub fn is_cut(&self, from: Host, to: Host) -> bool {
        self.0.contains(&(from, to))
    }

    /// Whom a host does not hear.
    pub(crate) fn unheard_by(&self, to: Host) -> impl Iterator<Item = Host> {
        self.0.iter().filter(move |(_, listener)| *listener == to).map(|(from, _)| *from)
    }
}

/// Both cuts together.
impl BitOr for Cut {
    type Output = Self;

    fn bitor(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Host; 5] = [Host(0), Host(1), Host(2), Host(3), Host(4)];

    /// Who hears whom, a row for each speaker.
    fn heard(cut: &Cut) -> String {
        let row = |from: Host| -> String {
            ALL.iter()
                .map(|&to| {
                    if from == to {
                        '.'
                    } else if cut.is_cut(from, to) {
                        '-'
                    } else {
                        'x'
                    }
                })
                .collect()
        };
        ALL.map(row).join(" ")
    }

    #[test]
    fn cuts_are_what_they_are_called() {
        let [a, b, c, d, e] = ALL;
        assert_eq!(heard(&Cut::none()), ".xxxx x.xxx xx.xx xxx.x xxxx.");
        assert_eq!(heard(&Cut::one_way(a, c)), ".x-xx x.xxx xx.xx xxx.x xxxx.");
        assert_eq!(heard(&Cut::isolate(b, &ALL)), ".-xxx -.--- x-.xx x-x.x x-xx.");
        assert_eq!(heard(&Cut::between(&[a, b], &[c, d, e])), ".x--- x.--- --.xx --x.x --xx.");
        assert_eq!(heard(&Cut::bridge(&[a, b], c, &[d, e])), ".xx-- x.x-- xx.xx --x.x --xx.");
        assert_eq!(heard(&Cut::chain(&ALL)), ".x--- x.x-- -x.x- --x.x ---x.");
        let both = Cut::one_way(a, b) | Cut::one_way(b, a);
        assert_eq!(both, Cut::between(&[a], &[b]));
    }
}

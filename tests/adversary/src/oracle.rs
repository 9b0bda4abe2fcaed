//! What a lock service promises, checked against what clients saw.
//!
//! Everything is told from the clients' own clocks, so each rule is stated with what
//! a client can be certain of: it holds a lock from the moment at which it had read
//! the grant until it hands the release to its socket, or until a lease counted from
//! before the acquire was sent is over, whichever comes first.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::record::{Acquire, Outcome, Release, Session};

/// How late an answer or an expiry may be before it counts as lost: far more than any
/// promise, because a test shares its machine.
const LATE: Duration = Duration::from_secs(15);

/// What the run allowed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expect {
    /// Limits were in reach, so `B` is an honest answer to any acquire.
    pub busy: bool,
    /// Every grant reached a client, so the tokens have no gap.
    pub dense: bool,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise.
    pub rule: &'static str,
    /// What was seen.
    pub seen: String,
}

/// What a history that breaks no promise was made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Acquires that were granted.
    pub granted: usize,
    /// Acquires whose wait ran out.
    pub timed_out: usize,
    /// Acquires that were refused.
    pub busy: usize,
    /// Acquires without an answer, on connections that their clients ended.
    pub unanswered: usize,
    /// Releases that were confirmed.
    pub released: usize,
    /// Releases that came too late, twice, or under a wrong token.
    pub not_held: usize,
}

/// Checks a whole history: every connection that touched its keys.
///
/// # Errors
/// Every broken promise that was found.
pub fn check(sessions: &[Session], expect: Expect) -> Result<Summary, Vec<Violation>> {
    let mut found = Findings::default();
    for session in sessions {
        one_answer_each(session, &mut found);
        fifo_on_one_connection(session, &mut found);
        waits_are_kept(session, expect, &mut found);
    }
    let grants = grants(sessions);
    tokens_are_unique_and_grow(sessions, &grants, expect, &mut found);
    let holds = holds(&grants, sessions);
    exclusion(&holds, &mut found);
    releases_are_honest(sessions, &holds, &mut found);
    immediate_refusals_are_true(sessions, &holds, &mut found);
    if found.0.is_empty() { Ok(summary(sessions)) } else { Err(found.0) }
}

#[derive(Default)]
struct Findings(Vec<Violation>);

impl Findings {
    fn add(&mut self, rule: &'static str, seen: String) {
        self.0.push(Violation { rule, seen });
    }
}

fn one_answer_each(session: &Session, found: &mut Findings) {
    for stray in &session.strays {
        found.add("an answer answers an open request", format!("{stray:?}"));
    }
    if !session.cut_short {
        for acquire in session.acquires.iter().filter(|acquire| acquire.outcome.is_none()) {
            found.add("every acquire is answered", format!("{acquire:?}"));
        }
        for release in session.releases.iter().filter(|release| release.outcome.is_none()) {
            found.add("every release is answered", format!("{release:?}"));
        }
    }
}

/// Whoever asked first on one connection is served first: a grant follows every earlier one of its key.
fn fifo_on_one_connection(session: &Session, found: &mut Findings) {
    let mut last: HashMap<&[u8], u64> = HashMap::new();
    for acquire in &session.acquires {
        if let Some((Outcome::Granted(token), _)) = acquire.outcome
            && let Some(before) = last.insert(&acquire.key, token)
            && before >= token
        {
            found.add("first in, first out", format!("token {before} went before {acquire:?}"));
        }
    }
}

fn waits_are_kept(session: &Session, expect: Expect, found: &mut Findings) {
    for acquire in &session.acquires {
        let Some((outcome, at)) = acquire.outcome else { continue };
        let wait = Duration::from_secs(acquire.wait_secs.into());
        let took = at - acquire.sent;
        if took > wait + LATE {
            found.add("an answer comes within the wait", format!("after {took:?}: {acquire:?}"));
        }
        match outcome {
            Outcome::TimedOut if took < wait => {
                found.add("a wait never ends early", format!("after {took:?}: {acquire:?}"));
            }
            Outcome::Busy if !expect.busy && !acquire.cancelled => {
                found.add("busy has a cause", format!("{acquire:?}"));
            }
            Outcome::TimedOut | Outcome::Busy | Outcome::Granted(_) => {}
        }
    }
}

/// A grant that its client saw.
#[derive(Clone, Copy)]
struct Grant<'a> {
    acquire: &'a Acquire,
    token: u64,
    received: Instant,
}

fn grants(sessions: &[Session]) -> Vec<Grant<'_>> {
    let acquires = sessions.iter().flat_map(|session| &session.acquires);
    acquires
        .filter_map(|acquire| match acquire.outcome {
            Some((Outcome::Granted(token), received)) => Some(Grant { acquire, token, received }),
            Some((Outcome::TimedOut | Outcome::Busy, _)) | None => None,
        })
        .collect()
}

fn tokens_are_unique_and_grow(
    sessions: &[Session],
    grants: &[Grant<'_>],
    expect: Expect,
    found: &mut Findings,
) {
    let mut tokens: Vec<u64> = grants.iter().map(|grant| grant.token).collect();
    tokens.sort_unstable();
    for pair in tokens.windows(2) {
        if pair[0] == pair[1] {
            found.add("a token is given out once", format!("{}", pair[0]));
        }
    }
    if expect.dense
        && let (Some(first), Some(last)) = (tokens.first(), tokens.last())
        && last - first + 1 != tokens.len() as u64
    {
        found.add("tokens have no gap", format!("{first} to {last} for {} grants", tokens.len()));
    }
    if tokens.first() == Some(&0) {
        found.add("a token is never 0", String::new());
    }
    // In real time: an acquire sent after a grant had been read gets a greater token.
    let mut read: Vec<(Instant, u64)> = grants.iter().map(|grant| (grant.received, grant.token)).collect();
    read.sort_unstable();
    let mut sent: Vec<&Grant<'_>> = grants.iter().collect();
    sent.sort_unstable_by_key(|grant| grant.acquire.sent);
    let (mut read, mut greatest) = (read.into_iter().peekable(), 0);
    for grant in sent {
        while let Some((_, token)) = read.next_if(|&(at, _)| at < grant.acquire.sent) {
            greatest = greatest.max(token);
        }
        if grant.token <= greatest {
            let seen = format!("{greatest} had been seen before token {} was asked for", grant.token);
            found.add("tokens grow in real time", seen);
        }
    }
    let granted: HashSet<(&[u8], u64)> =
        grants.iter().map(|grant| (&*grant.acquire.key, grant.token)).collect();
    for release in sessions.iter().flat_map(|session| &session.releases) {
        if matches!(release.outcome, Some((true, _))) && !granted.contains(&(&*release.key, release.token)) {
            found.add("only a grant can be released", format!("{release:?}"));
        }
    }
}

/// A grant with the times between which its holder was certain of it.
struct Hold<'a> {
    grant: Grant<'a>,
    certain_end: Instant,
    /// When a release of it was confirmed, and when the first one was sent.
    released: Option<Instant>,
    first_release_sent: Option<Instant>,
}

impl Hold<'_> {
    fn lease_end(&self) -> Instant {
        self.grant.acquire.sent + Duration::from_secs(self.grant.acquire.lease_secs.into())
    }
}

/// The holds of each key, in the order of their tokens.
fn holds<'a>(grants: &[Grant<'a>], sessions: &'a [Session]) -> HashMap<&'a [u8], Vec<Hold<'a>>> {
    let mut releases: HashMap<(&[u8], u64), Vec<&Release>> = HashMap::new();
    for release in sessions.iter().flat_map(|session| &session.releases) {
        releases.entry((&release.key, release.token)).or_default().push(release);
    }
    let mut holds: HashMap<&[u8], Vec<Hold<'_>>> = HashMap::new();
    for &grant in grants {
        let key = grant.acquire.key.as_slice();
        let own = releases.get(&(key, grant.token)).map_or(&[][..], Vec::as_slice);
        let first_release_sent = own.iter().map(|release| release.sent).min();
        let released =
            own.iter().find_map(|release| release.outcome.filter(|outcome| outcome.0)).map(|(_, at)| at);
        let mut hold = Hold { grant, certain_end: grant.received, released, first_release_sent };
        hold.certain_end = first_release_sent.map_or(hold.lease_end(), |sent| sent.min(hold.lease_end()));
        holds.entry(key).or_default().push(hold);
    }
    for holds in holds.values_mut() {
        holds.sort_unstable_by_key(|hold| hold.grant.token);
    }
    holds
}

/// No two clients are certain of one key at one time, and a greater token is the later one.
fn exclusion(holds: &HashMap<&[u8], Vec<Hold<'_>>>, found: &mut Findings) {
    for holds in holds.values() {
        let mut latest: Option<&Hold<'_>> = None;
        for hold in holds {
            if let Some(before) = latest
                && hold.grant.received < before.certain_end
            {
                let seen =
                    format!("{:?} was granted while {:?} held", hold.grant.acquire, before.grant.acquire);
                found.add("one holder at a time", seen);
            }
            if hold.grant.received < hold.certain_end
                && latest.is_none_or(|before| before.certain_end < hold.certain_end)
            {
                latest = Some(hold);
            }
        }
    }
}

fn releases_are_honest(sessions: &[Session], holds: &HashMap<&[u8], Vec<Hold<'_>>>, found: &mut Findings) {
    let by_token: HashMap<(&[u8], u64), &Hold<'_>> = holds
        .iter()
        .flat_map(|(&key, holds)| holds.iter().map(move |hold| ((key, hold.grant.token), hold)))
        .collect();
    let mut confirmed = HashSet::new();
    for release in sessions.iter().flat_map(|session| &session.releases) {
        match release.outcome {
            Some((true, _)) if confirmed.insert((&release.key, release.token)) => {}
            Some((true, _)) => found.add("a lock is released once", format!("{release:?}")),
            // The first release of a lease that cannot be over finds its lock.
            Some((false, at)) => {
                if let Some(hold) = by_token.get(&(&*release.key, release.token))
                    && hold.first_release_sent == Some(release.sent)
                    && hold.released.is_none()
                    && at < hold.lease_end()
                {
                    found
                        .add("a held lock is never lost", format!("{release:?} of {:?}", hold.grant.acquire));
                }
            }
            None => {}
        }
    }
}

/// A wait of 0 is refused only if somebody may have held the key at that time.
fn immediate_refusals_are_true(
    sessions: &[Session],
    holds: &HashMap<&[u8], Vec<Hold<'_>>>,
    found: &mut Findings,
) {
    let mut possible: HashMap<&[u8], Vec<(Instant, Instant)>> = HashMap::new();
    for (key, holds) in holds {
        let spans = possible.entry(key).or_default();
        for hold in holds {
            let expired =
                hold.grant.received + Duration::from_secs(hold.grant.acquire.lease_secs.into()) + LATE;
            spans.push((hold.grant.acquire.sent, hold.released.unwrap_or(expired)));
        }
    }
    // A lost answer may have been a grant.
    for lost in
        sessions.iter().flat_map(|session| &session.acquires).filter(|acquire| acquire.outcome.is_none())
    {
        let longest = u64::from(lost.wait_secs) + u64::from(lost.lease_secs);
        possible
            .entry(&lost.key)
            .or_default()
            .push((lost.sent, lost.sent + Duration::from_secs(longest) + LATE));
    }
    for spans in possible.values_mut() {
        spans.sort_unstable();
        let mut latest = None;
        for (_, end) in spans.iter_mut() {
            latest = latest.max(Some(*end));
            *end = latest.unwrap_or(*end);
        }
    }
    for acquire in sessions.iter().flat_map(|session| &session.acquires) {
        if let (0, Some((Outcome::TimedOut, at))) = (acquire.wait_secs, acquire.outcome) {
            let spans = possible.get(&*acquire.key).map_or(&[][..], Vec::as_slice);
            // Of the spans that began before the answer, the latest end.
            let begun = spans.partition_point(|&(start, _)| start <= at);
            if begun == 0 || spans[begun - 1].1 < acquire.sent {
                found.add("a free key is granted", format!("{acquire:?}"));
            }
        }
    }
}

fn summary(sessions: &[Session]) -> Summary {
    let mut summary = Summary::default();
    for session in sessions {
        for acquire in &session.acquires {
            match acquire.outcome {
                Some((Outcome::Granted(_), _)) => summary.granted += 1,
                Some((Outcome::TimedOut, _)) => summary.timed_out += 1,
                Some((Outcome::Busy, _)) => summary.busy += 1,
                None => summary.unanswered += 1,
            }
        }
        for release in &session.releases {
            match release.outcome {
                Some((true, _)) => summary.released += 1,
                Some((false, _)) => summary.not_held += 1,
                None => {}
            }
        }
    }
    summary
}

#[cfg(test)]
mod tests;

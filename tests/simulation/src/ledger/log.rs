//! What is in the log, and what nodes make of it.

use std::rc::Rc;

use ticketing_engine::{Effect, Office, Place, Replica, record};

use super::{End, Grant, Ledger, PROMPT};
use crate::cluster::{Command, Entry};
use crate::time::{SECOND, Time};
use crate::trace::{Line, Trace};

impl Ledger {
    /// A node has applied an entry.
    pub(crate) fn applied(
        &mut self,
        now: Time,
        trace: &mut Trace,
        (index, slot): (u64, u8),
        entry: &Entry,
        counts: bool,
        replica: &Replica,
    ) {
        if counts {
            self.run(now, slot, entry);
        }
        let (hash, place) = (replica.table().hash(), replica.place());
        let seen = usize::try_from(index - 1).ok().and_then(|before| self.entries.get(before));
        if let Some((other, other_hash, other_place)) = seen {
            let same = Rc::ptr_eq(&other.command, &entry.command) || other.command == entry.command;
            if !same || other.term != entry.term {
                let text = format!("node {slot} has {entry:?} at {index}, others have {other:?}");
                self.fail("Log", text);
            } else if (*other_hash, *other_place) != (hash, place) {
                self.fail("Replica", format!("node {slot} differs from others at {index}: {place:?}"));
            }
            return;
        }
        if index != self.entries.len() as u64 + 1 {
            return self.fail("Log", format!("node {slot} applies {index}, and nobody the one before"));
        }
        self.entries.push((entry.clone(), hash, place));
        self.count.committed += 1;
        trace.note(now, Line::Committed { index, term: entry.term, what: describe(&entry.command, counts) });
        if self.is_over {
            self.fail("Identity", format!("entry {index} commits although a majority has lost its memory"));
        }
        match &*entry.command {
            Command::Batch { office, record, .. } if counts => self.book(now, *office, place, record),
            Command::Batch { .. } => self.count.skipped += 1,
            Command::Office { .. } => {}
        }
    }

    /// A node has begun anew from a snapshot of this entry.
    pub(crate) fn installed(&mut self, index: u64, slot: u8, replica: &Replica) {
        self.count.snapshots += 1;
        let state = (replica.table().hash(), replica.place());
        let entry = usize::try_from(index).ok().and_then(|index| self.entries.get(index.checked_sub(1)?));
        if entry.is_some_and(|(_, hash, place)| (*hash, *place) != state) {
            self.fail("Replica", format!("node {slot} got a snapshot that is not the state of {index}"));
        }
    }

    /// Books the effects of a batch, when it is applied for the first time.
    fn book(&mut self, now: Time, office: Office, place: Place, record: &[u8]) {
        let effects = match record::decode(record) {
            Ok(effects) => effects,
            Err(bad) => return self.fail("Log", format!("{office}: {bad}")),
        };
        for effect in effects {
            match effect {
                Effect::Grant { key, owner, token, lease_secs } => {
                    if let Some(current) = self.held.get(key) {
                        self.fail("Exclusion", format!("{token} is granted while {current} holds the key"));
                    }
                    self.grant(key, owner, token, lease_secs, office, place);
                }
                Effect::Release { key, token } => self.end(now, key, token, false, office),
                Effect::Expire { key, token } => self.end(now, key, token, true, office),
                Effect::HandOff { key, ended, expired, owner, token, lease_secs } => {
                    self.count.handed_off += 1;
                    self.end(now, key, ended, expired, office);
                    self.grant(key, owner, token, lease_secs, office, place);
                }
                Effect::Bury { .. } | Effect::Forget { .. } => {}
            }
        }
    }

    fn grant(&mut self, key: &[u8], owner: u64, token: u64, lease_secs: u8, office: Office, place: Place) {
        let expected = (self.last_token + 1).max(place.first_token);
        if token != expected {
            self.fail("Tokens", format!("{token} is granted, the next one is {expected}"));
        }
        self.last_token = token;
        match self.asks.get_mut(&owner) {
            None => self.fail("Owner", format!("{token} is granted to {owner:x}, who never asked")),
            Some(ask) => {
                let (refused, before) = (ask.refused, ask.token.replace(token));
                if let Some(no) = refused {
                    self.fail("Answer", format!("{token} is granted to {owner:x}, who was told {no:?}"));
                }
                if let Some(before) = before {
                    let text = format!("{owner:x} asked once and is granted {before} and {token}");
                    self.fail("Once", text);
                }
            }
        }
        self.held.insert(key.into(), token);
        let lease = u64::from(lease_secs) * SECOND;
        let grant = Grant {
            key: key.into(),
            owner,
            lease,
            office,
            ended: None,
            heard_at: None,
            run_out_at: None,
            release_at: None,
            undelivered: None,
            unwanted: false,
            holder: None,
        };
        self.grants.insert(token, grant);
    }

    fn end(&mut self, now: Time, key: &[u8], token: u64, expired: bool, office: Office) {
        if self.held.remove(key) != Some(token) {
            self.fail("Log", format!("{token} ends and does not hold the key"));
        }
        let Some(grant) = self.grants.get_mut(&token) else { return };
        grant.ended = Some(End { expired });
        let held = grant.holder.is_some_and(|(_, until)| until > now) && grant.release_at.is_none();
        if expired {
            self.count.expired += 1;
            if grant.undelivered == Some(office) && grant.office == office {
                self.fail("Orphan", format!("{token} never left the server, and its lease had to end it"));
            } else if grant.unwanted && grant.release_at.is_none() {
                self.fail("Orphan", format!("nobody wanted {token}, and its lease had to end it"));
            }
        } else if held {
            self.fail("Lost lock", format!("{token} is given back while its holder may act"));
        }
    }

    /// A node's own lease of each grant in this entry begins, or ends.
    fn run(&mut self, now: Time, slot: u8, entry: &Entry) {
        let Command::Batch { record, .. } = &*entry.command else { return };
        let running = self.running.entry(slot).or_default();
        for effect in record::decode(record).into_iter().flatten() {
            match effect {
                Effect::Grant { token, .. } => {
                    running.insert(token, now);
                }
                Effect::Release { token, .. } | Effect::Expire { token, .. } => {
                    running.remove(&token);
                }
                Effect::HandOff { ended, token, .. } => {
                    running.remove(&ended);
                    running.insert(token, now);
                }
                Effect::Bury { .. } | Effect::Forget { .. } => {}
            }
        }
    }

    /// How long each lease has been running at a node: what a snapshot carries.
    pub(crate) fn ages(&self, now: Time, slot: u8) -> Vec<(u64, Time)> {
        let running = self.running.get(&slot).into_iter().flatten();
        running.map(|(&token, &since)| (token, now - since)).collect()
    }

    /// A node has begun anew with a snapshot: its leases go on from there.
    pub(crate) fn resumed(&mut self, now: Time, slot: u8, ages: &[(u64, Time)]) {
        let running = ages.iter().map(|&(token, age)| (token, now.saturating_sub(age)));
        self.running.insert(slot, running.collect());
    }

    /// The engine that granted it hears that it was applied, from when on it counts.
    pub(crate) fn begins(&mut self, now: Time, token: u64) {
        if let Some(grant) = self.grants.get_mut(&token) {
            grant.heard_at.get_or_insert(now);
        }
    }

    /// The node in office decides that a lease is over. It could do so since `ready`.
    pub(crate) fn expires(
        &mut self,
        now: Time,
        (slot, office): (u8, Option<Office>),
        token: u64,
        ready: Time,
    ) {
        let since = self.running.get(&slot).and_then(|running| running.get(&token)).copied();
        let Some(grant) = self.grants.get_mut(&token) else { return };
        grant.run_out_at.get_or_insert(now);
        if let Some((_, until)) = grant.holder.filter(|&(_, until)| until > now && grant.release_at.is_none())
        {
            let early = (until - now) / 1_000_000;
            return self.fail("Lease", format!("{token} ends {early} ms before its holder's own end"));
        }
        // It may have been granted by this office, and not be applied yet.
        let Some(since) = since else { return };
        let (least, most) = (grant.lease / 10_000 * 9_974, grant.lease / 1_000 * 1_011);
        if now < since + least {
            self.fail("Lease", format!("{token} ends after {} ms", (now - since) / 1_000_000));
            return;
        }
        let since = grant.heard_at.filter(|_| office == Some(grant.office)).unwrap_or(since);
        if now > (since + most).max(ready) + PROMPT {
            let late = (now - (since + most).max(ready)) / 1_000_000;
            self.fail("Lease", format!("{token} ends {late} ms after it could have been ended"));
        }
    }
}

/// A command, for people.
fn describe(command: &Command, counts: bool) -> String {
    let what = match command {
        Command::Office { office, .. } => office.to_string(),
        Command::Batch { office, seq, record } => {
            let effects = record::decode(record).into_iter().flatten().map(|effect| match effect {
                Effect::Grant { owner, token, lease_secs, .. } => {
                    format!(" grant {token} to {owner:x} for {lease_secs} s;")
                }
                Effect::Release { token, .. } => format!(" release {token};"),
                Effect::Expire { token, .. } => format!(" expire {token};"),
                Effect::HandOff { ended, expired, owner, token, lease_secs, .. } => {
                    let how = if expired { "expire" } else { "release" };
                    format!(" {how} {ended}, grant {token} to {owner:x} for {lease_secs} s;")
                }
                Effect::Bury { owner, .. } => format!(" bury {owner:x};"),
                Effect::Forget { owner, .. } => format!(" forget {owner:x};"),
            });
            format!("{office} batch {seq}:{}", effects.collect::<String>())
        }
    };
    if counts { what } else { what + " (skipped)" }
}

//! What the engine and the model have in common, and both put into words.

use ticketing_engine::{Answer, Config, ConnId, Effect, Engine, Input, Nanos, Request, Seq, Table};

use crate::model::{Key, Model};
use crate::plain::Plain;

/// An engine, or the model of one.
pub(crate) trait Machine {
    fn new(config: &Config) -> Self;
    /// One that takes over; table and plain table hold the same.
    fn restore(config: &Config, table: &Table, plain: &Plain) -> Self;
    fn handle(&mut self, now: Nanos, input: Input<'static>);
    /// Number and effects of the batch, in words.
    fn seal(&mut self) -> Option<(Seq, Vec<String>)>;
    /// Answers, in words.
    fn drain(&mut self) -> Vec<String>;
    fn next_deadline(&self) -> Option<Nanos>;
}

impl Machine for Engine {
    fn new(config: &Config) -> Self {
        Self::new(*config)
    }

    fn restore(config: &Config, table: &Table, _: &Plain) -> Self {
        Self::restore(*config, table)
    }

    fn handle(&mut self, now: Nanos, input: Input<'static>) {
        Self::handle(self, now, input);
    }

    fn seal(&mut self) -> Option<(Seq, Vec<String>)> {
        let batch = Self::seal(self)?;
        let sealed = (batch.seq(), batch.effects().map(effect).collect());
        self.recycle(batch);
        Some(sealed)
    }

    fn drain(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        Self::drain(self, |to, what| said.push(answer(to, what)));
        said
    }

    fn next_deadline(&self) -> Option<Nanos> {
        Self::next_deadline(self)
    }
}

impl Machine for Model {
    fn new(config: &Config) -> Self {
        Self::new(config)
    }

    fn restore(config: &Config, _: &Table, plain: &Plain) -> Self {
        Self::restore(config, plain)
    }

    fn handle(&mut self, now: Nanos, input: Input<'static>) {
        Self::handle(self, now, input);
    }

    fn seal(&mut self) -> Option<(Seq, Vec<String>)> {
        let (seq, effects) = Self::seal(self)?;
        Some((seq, effects.into_iter().map(effect).collect()))
    }

    fn drain(&mut self) -> Vec<String> {
        Self::drain(self).into_iter().map(|said| answer(said.to, said.answer)).collect()
    }

    fn next_deadline(&self) -> Option<Nanos> {
        Self::next_deadline(self)
    }
}

/// "c1: granted k to 7 under 3 for 10000 ms".
pub(crate) fn answer(ConnId(conn): ConnId, answer: Answer<'_>) -> String {
    let said = match answer {
        Answer::Granted { token, owner, ends_ms, key } => {
            format!("granted {} to {owner} under {token} for {ends_ms} ms", name(key))
        }
        Answer::TimedOut { owner, key } => format!("timed out {} for {owner}", name(key)),
        Answer::Busy { owner, key } => format!("busy {} for {owner}", name(key)),
        Answer::Released { token, key } => format!("released {} {token}", name(key)),
        Answer::NotHeld { token, key } => format!("not held {} {token}", name(key)),
        Answer::Place { owner, place, waiters, key } => {
            format!("place {place} of {waiters} in {} for {owner}", name(key))
        }
        Answer::Verified { token, owner, key } => format!("verified {} of {owner} under {token}", name(key)),
        Answer::VerifiedBusy { owner, key } => format!("verified that {} never is of {owner}", name(key)),
        Answer::NotLeader => "not leader".to_owned(),
        Answer::CloseUnknown => "close, unknown".to_owned(),
        Answer::CloseOverloaded => "close, overloaded".to_owned(),
    };
    format!("c{conn}: {said}")
}

/// "grant k 3 to 7 for 10 s".
pub(crate) fn effect(effect: Effect<'_>) -> String {
    match effect {
        Effect::Grant { key, owner, token, lease_secs } => {
            format!("grant {} {token} to {owner} for {lease_secs} s", name(key))
        }
        Effect::Release { key, token } => format!("release {} {token}", name(key)),
        Effect::Expire { key, token } => format!("expire {} {token}", name(key)),
        Effect::HandOff { key, ended, expired, owner, token, lease_secs } => {
            let why = if expired { "expire" } else { "release" };
            format!("{why} {} {ended} and grant {token} to {owner} for {lease_secs} s", name(key))
        }
        Effect::Bury { key, owner } => format!("bury {owner} for {}", name(key)),
        Effect::Forget { key, owner } => format!("forget {owner} for {}", name(key)),
    }
}

/// "c1 acquires k as 7, wait 5 s, lease 10 s".
pub(crate) fn input(now: Nanos, input: Input<'_>) -> String {
    match input {
        Input::Request(ConnId(conn), request) => format!("c{conn} {}", self::request(now, request)),
        Input::Leaving(ConnId(conn)) => format!("c{conn} has said its last word"),
        Input::Closed(ConnId(conn)) => format!("c{conn} closes"),
        Input::Undelivered { token, key } => format!("grant {token} of {} was not delivered", name(key)),
        Input::Tick => "tick".to_owned(),
        Input::Committed(seq) => format!("batch {seq} commits"),
        Input::Refused(seq) => format!("batch {seq} is refused"),
        Input::Unknown(seq) => format!("the fate of batch {seq} stays unknown"),
        Input::Drain => "the server drains".to_owned(),
        Input::Retire => "the engine retires".to_owned(),
    }
}

fn request(now: Nanos, request: Request<'_>) -> String {
    match request {
        Request::Acquire { wait_secs, lease_secs, owner, key, received } => {
            let late = now.abs_diff(received);
            let when = match received.cmp(&now) {
                std::cmp::Ordering::Less => format!(", received {late} ns ago"),
                std::cmp::Ordering::Equal => String::new(),
                std::cmp::Ordering::Greater => format!(", received {late} ns from now"),
            };
            format!("acquires {} as {owner}, wait {wait_secs} s, lease {lease_secs} s{when}", name(key))
        }
        Request::Release { token, key } => format!("releases {} {token}", name(key)),
        Request::Cancel { owner, key } => format!("cancels {owner} on {}", name(key)),
        Request::Place { owner, key } => format!("asks for the place of {owner} in {}", name(key)),
        Request::Verify { owner, key } => format!("verifies {owner} on {}", name(key)),
    }
}

pub(crate) fn kind_of_effect(effect: Effect<'_>) -> &'static str {
    match effect {
        Effect::Grant { .. } => "grant",
        Effect::Release { .. } => "release",
        Effect::Expire { .. } => "expire",
        Effect::HandOff { expired: true, .. } => "expire and hand off",
        Effect::HandOff { expired: false, .. } => "release and hand off",
        Effect::Bury { .. } => "bury",
        Effect::Forget { .. } => "forget",
    }
}

pub(crate) fn kind_of_answer(answer: &Answer<'_>) -> &'static str {
    match answer {
        Answer::Granted { .. } => "granted",
        Answer::TimedOut { .. } => "timed out",
        Answer::Busy { .. } => "busy",
        Answer::Released { .. } => "released",
        Answer::NotHeld { .. } => "not held",
        Answer::Place { .. } => "place",
        Answer::Verified { .. } => "verified",
        Answer::VerifiedBusy { .. } => "verified busy",
        Answer::NotLeader => "not leader",
        Answer::CloseUnknown => "close unknown",
        Answer::CloseOverloaded => "close overloaded",
    }
}

pub(crate) fn name(key: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(key)
}

/// The key as the tests write it.
pub(crate) fn known(keys: &[Key], key: &[u8]) -> Key {
    keys.iter().copied().find(|known| *known == key).expect("an output names a key that was never used")
}

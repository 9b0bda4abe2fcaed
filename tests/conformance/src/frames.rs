//! Frames as bytes, built by hand from the tables of the specification.
//!
//! The client's own codec is not used here on purpose: the same mistake on both
//! sides would cancel out, and no correct codec can say what a broken server says.

use std::collections::HashMap;

use crate::scenario::{Answer, ByteRange, Key, Owner, Request, from_hex};

/// The owners that scripts have given a name.
#[derive(Debug, Default)]
pub(crate) struct Owners(HashMap<String, u64>);

impl Owners {
    /// The owner of that name, or the number that it is.
    pub(crate) fn get(&self, owner: &Owner) -> Option<u64> {
        match owner {
            Owner::Number(number) => Some(*number),
            Owner::Named(name) => self.0.get(name).copied(),
        }
    }

    fn of(&self, owner: &Owner) -> Result<[u8; 8], String> {
        let number = self.get(owner).ok_or_else(|| format!("no acquire brought the owner {owner:?} yet"))?;
        Ok(number.to_be_bytes())
    }

    /// Gives an owner that came in an acquire its name. An owner stands for one
    /// acquire for ever: to see it again is to see a request sent again.
    fn bind(&mut self, name: &str, number: u64) -> Result<(), String> {
        match self.0.iter().find(|&(_, &known)| known == number) {
            Some((known, _)) => {
                Err(format!("the acquire of {known:?} again (same owner), where {name:?} should be new"))
            }
            None => {
                self.0.insert(name.to_owned(), number);
                Ok(())
            }
        }
    }
}

/// The bytes of an answer.
pub(crate) fn answer(answer: &Answer, owners: &Owners) -> Result<Vec<u8>, String> {
    let frame = |op: u8, parts: &[&[u8]], text: &[u8]| {
        let mut bytes = vec![op];
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes.extend_from_slice(text);
        bytes.push(b'\n');
        bytes
    };
    Ok(match answer {
        Answer::Granted { token, owner, key } => {
            frame(b'A', &[&token.0.to_be_bytes(), &owners.of(owner)?], key.bytes())
        }
        Answer::GrantedUntil { token, owner, ends_ms, key } => {
            frame(b'G', &[&token.0.to_be_bytes(), &owners.of(owner)?, &ends_ms.to_be_bytes()], key.bytes())
        }
        Answer::TimedOut { owner, key } => frame(b'T', &[&owners.of(owner)?], key.bytes()),
        Answer::Busy { owner, key } => frame(b'B', &[&owners.of(owner)?], key.bytes()),
        Answer::Released { token, key } => frame(b'R', &[&token.0.to_be_bytes()], key.bytes()),
        Answer::NotHeld { token, key } => frame(b'N', &[&token.0.to_be_bytes()], key.bytes()),
        Answer::Place { owner, place, waiters, key } => {
            frame(b'P', &[&owners.of(owner)?, &place.to_be_bytes(), &waiters.to_be_bytes()], key.bytes())
        }
        Answer::Moved(address) => frame(b'M', &[], address.as_bytes()),
        Answer::Leader(address) => frame(b'L', &[], address.as_bytes()),
        Answer::Error(reason) => frame(b'E', &[], reason.as_bytes()),
        Answer::KeepAlive(count) => vec![b'\n'; *count],
        Answer::Text(text) => text.clone().into_bytes(),
        Answer::Hex(digits) => from_hex(digits)?,
    })
}

/// What the bytes of a request must be.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// `None`: any byte, it belongs to a new owner.
    bytes: Vec<Option<ByteRange>>,
    /// Name of the new owner and where its bytes start.
    new_owner: Option<(String, usize)>,
}

impl Pattern {
    pub(crate) fn new(request: &Request, owners: &Owners) -> Self {
        let mut pattern = Self { bytes: Vec::new(), new_owner: None };
        match request {
            Request::Acquire { owner, key, wait, lease } => {
                pattern.exactly(b"A");
                pattern.bytes.extend([Some(*wait), Some(*lease)]);
                pattern.owner(owner, owners);
                pattern.key(key);
            }
            Request::Release { token, key } => {
                pattern.exactly(b"R");
                pattern.exactly(&token.0.to_be_bytes());
                pattern.key(key);
            }
            Request::Cancel { owner, key } => pattern.about_owner(b"C", owner, key, owners),
            Request::Place { owner, key } => pattern.about_owner(b"P", owner, key, owners),
            Request::Verify { owner, key } => pattern.about_owner(b"V", owner, key, owners),
        }
        pattern
    }

    fn about_owner(&mut self, op: &[u8], owner: &Owner, key: &Key, owners: &Owners) {
        self.exactly(op);
        self.owner(owner, owners);
        self.key(key);
    }

    fn exactly(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes.iter().map(|&byte| Some(ByteRange::Exactly(byte))));
    }

    fn owner(&mut self, owner: &Owner, owners: &Owners) {
        match (owners.get(owner), owner) {
            (Some(number), _) => self.exactly(&number.to_be_bytes()),
            (None, Owner::Number(number)) => self.exactly(&number.to_be_bytes()),
            (None, Owner::Named(name)) => {
                self.new_owner = Some((name.clone(), self.bytes.len()));
                self.bytes.extend([None; 8]);
            }
        }
    }

    fn key(&mut self, key: &Key) {
        self.exactly(key.bytes());
        self.exactly(b"\n");
    }

    /// Whether `bytes` are how such a request starts.
    pub(crate) fn begins_with(&self, bytes: &[u8]) -> bool {
        let fits =
            |(wanted, &byte): (&Option<ByteRange>, &u8)| wanted.is_none_or(|wanted| wanted.contains(byte));
        bytes.len() <= self.bytes.len() && self.bytes.iter().zip(bytes).all(fits)
    }

    /// Whether `frame` is such a request.
    pub(crate) fn is(&self, frame: &[u8]) -> bool {
        frame.len() == self.bytes.len() && self.begins_with(frame)
    }

    /// Remembers the owner that `frame`, which is such a request, brought.
    pub(crate) fn bind(&self, frame: &[u8], owners: &mut Owners) -> Result<(), String> {
        let Some((name, at)) = &self.new_owner else { return Ok(()) };
        match frame.get(*at..*at + 8).and_then(|bytes| bytes.try_into().ok()) {
            Some(bytes) => owners.bind(name, u64::from_be_bytes(bytes)),
            None => Ok(()),
        }
    }
}

/// Length, LF included, of the frame at the start of `bytes`; `None`: it is not
/// complete.
pub(crate) fn length(bytes: &[u8]) -> Result<Option<usize>, String> {
    let header = match bytes.first() {
        None => return Ok(None),
        Some(b'A') => 10,
        Some(b'R' | b'C' | b'P' | b'V') => 8,
        Some(op) => return Err(format!("{op:#04x} is no op of a client")),
    };
    let text = bytes.get(1 + header..).unwrap_or_default();
    Ok(text.iter().position(|&byte| byte == b'\n').map(|at| 1 + header + at + 1))
}

/// Bytes for a reader: visible ASCII as it is, the rest in hexadecimal.
pub(crate) fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Number;

    #[test]
    fn answers_are_what_the_specification_draws() {
        let mut owners = Owners::default();
        owners.bind("o", 0x0a0b).unwrap();
        let (token, owner, key) = (Number(7), Owner::default(), Key::default());
        let granted = Answer::Granted { token, owner: owner.clone(), key: key.clone() };
        assert_eq!(answer(&granted, &owners).unwrap(), b"A\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\x0a\x0bk\n");
        let until = Answer::GrantedUntil { token, owner: owner.clone(), ends_ms: 258, key: key.clone() };
        assert_eq!(
            answer(&until, &owners).unwrap(),
            b"G\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\x0a\x0b\0\0\x01\x02k\n"
        );
        let place = Answer::Place { owner, place: 1, waiters: 2, key };
        assert_eq!(answer(&place, &owners).unwrap(), b"P\0\0\0\0\0\0\x0a\x0b\0\0\0\x01\0\0\0\x02k\n");
        assert_eq!(answer(&Answer::Error("bad_op".into()), &owners).unwrap(), b"Ebad_op\n");
        assert!(
            answer(&Answer::Busy { owner: Owner::Named("p".into()), key: Key::default() }, &owners).is_err()
        );
    }

    #[test]
    fn an_acquire_brings_its_owner_once() {
        let acquire = |name: &str| Request::Acquire {
            owner: Owner::Named(name.into()),
            key: Key::default(),
            wait: ByteRange::Between(4, 5),
            lease: ByteRange::Exactly(10),
        };
        let mut owners = Owners::default();
        let frame = b"A\x04\x0a\n\n\n\n\n\n\n\nk\n";
        let pattern = Pattern::new(&acquire("o"), &owners);
        assert!(pattern.is(frame));
        assert!(pattern.begins_with(&frame[..5]) && !pattern.is(&frame[..5]));
        assert!(!pattern.is(b"A\x06\x0a\n\n\n\n\n\n\n\nk\n") && !pattern.is(b"A\x04\x0a\n\n\n\n\n\n\n\nl\n"));
        pattern.bind(frame, &mut owners).unwrap();
        assert_eq!(owners.get(&Owner::default()), Some(0x0a0a_0a0a_0a0a_0a0a));

        let again = Pattern::new(&acquire("p"), &owners);
        assert!(again.bind(frame, &mut owners).is_err());
        assert!(!Pattern::new(&acquire("o"), &owners).is(b"A\x04\x0a\0\0\0\0\0\0\0\0k\n"));
    }

    #[test]
    fn frames_are_counted_before_their_end_is_sought() {
        assert_eq!(length(b""), Ok(None));
        assert_eq!(length(b"A\n\n\n\n\n\n\n\n\n\nk"), Ok(None));
        assert_eq!(length(b"A\n\n\n\n\n\n\n\n\n\nk\nR"), Ok(Some(13)));
        assert_eq!(length(b"R\n\n\n\n\n\n\n\nk\n"), Ok(Some(11)));
        assert!(length(b"G").is_err());
    }
}

//! Compares an outcome with one that is right.

use std::fmt::Debug;

use crate::runner::Reply;
use crate::scenario::{DOMAIN, Detail, Kind, Number, Owner};

impl Detail {
    /// The owner that the outcome must name; of a ticket the usual one.
    pub(crate) fn wanted_owner(&self) -> Option<Owner> {
        self.owner.clone().or((self.kind == Kind::Ticket).then(Owner::default))
    }

    /// What is wrong with an outcome of the right kind. `owner` is the wanted one.
    pub(crate) fn differences(&self, owner: Option<u64>, reply: &Reply) -> Vec<String> {
        let is_ticket = self.kind == Kind::Ticket;
        let mut wrong = Vec::new();

        let token = self.token.or(is_ticket.then(Number::default)).map(|token| token.0.to_string());
        differ(&mut wrong, "token", &token, &reply.token);
        differ(&mut wrong, "owner", &owner.map(|owner| owner.to_string()), &reply.owner);
        differ(&mut wrong, "place", &self.place, &reply.place);
        differ(&mut wrong, "waiters", &self.waiters, &reply.waiters);
        let domain = self.domain.clone().or(is_ticket.then(|| DOMAIN.into()));
        let told = reply.domain.clone().or(Some("none".into()));
        differ(&mut wrong, "domain", &domain, &told);

        if let Some(range) = self.remaining_ms
            && !reply.remaining_ms.is_some_and(|ms| range.contains_ms(ms))
        {
            wrong.push(format!("remaining: expected {range}, got {:?} ms", reply.remaining_ms));
        }
        let message = reply.message.as_deref().unwrap_or_default();
        if self.kind.is_error() && message.is_empty() {
            wrong.push("message: an error without a text".into());
        }
        for text in self.says.iter().filter(|text| !message.contains(text.as_str())) {
            wrong.push(format!("message: {message:?} does not say {text:?}"));
        }
        wrong
    }
}

/// Notes a value that is not the wanted one; `None`: any is right.
fn differ<T: PartialEq + Debug>(wrong: &mut Vec<String>, what: &str, wanted: &Option<T>, got: &Option<T>) {
    if wanted.is_some() && wanted != got {
        wrong.push(format!("{what}: expected {wanted:?}, got {got:?}"));
    }
}

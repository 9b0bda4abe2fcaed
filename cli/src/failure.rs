//! How a failure is told: one line for people, one object for programs.

use std::error::Error as _;

use serde_json::json;
use ticketing::TicketError;

use crate::exit::{self, Exit};
use crate::output::{self, Format};

/// Why a command could not do what it was asked for.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    kind: &'static str,
    message: String,
    key: Option<String>,
    owner: Option<u64>,
    token: Option<u64>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            code: exit.code(),
            kind: exit.name(),
            message: message.into(),
            key: None,
            owner: None,
            token: None,
        }
    }

    /// This machine refused something.
    pub(crate) fn system(what: &str, error: impl std::fmt::Display) -> Self {
        Self::new(Exit::System, format!("{what}: {error}"))
    }

    /// A signal ended `ticketing` before it was done.
    pub(crate) fn interrupted(signal: i32, what: &str) -> Self {
        Self {
            code: exit::of_signal(signal),
            kind: "interrupted",
            ..Self::new(Exit::System, format!("signal {signal} ended {what}"))
        }
    }

    /// Says which lock it is about.
    pub(crate) fn about(mut self, key: &str, token: u64) -> Self {
        self.key = Some(key.to_owned());
        self.token = Some(token);
        self
    }

    /// The line for people, without the program's name.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Tells it: always a line on stderr; in JSON an object on stdout too.
    pub(crate) fn report(&self, format: Format) {
        output::note(&self.message);
        if format == Format::Json {
            output::line(&self.to_json());
        }
    }

    /// Tells it on stderr only, where the standard output belongs to a command.
    pub(crate) fn report_aside(&self, format: Format) {
        match format {
            Format::Human => output::note(&self.message),
            Format::Json => output::aside(&self.to_json()),
        }
    }

    fn to_json(&self) -> String {
        // As text: a token does not fit the numbers of many JSON readers.
        let number = |number: Option<u64>| number.map(|number| number.to_string());
        let mut object = json!({
            "error": self.kind,
            "exit_code": self.code,
            "message": self.message,
        });
        for (name, value) in
            [("key", self.key.clone()), ("owner", number(self.owner)), ("token", number(self.token))]
        {
            if let Some(value) = value {
                object[name] = value.into();
            }
        }
        object.to_string()
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &TicketError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        text += &format!(": {deeper}");
        cause = deeper.source();
    }
    text
}

impl From<TicketError> for Failure {
    fn from(error: TicketError) -> Self {
        let exit = Exit::from(error.kind());
        let mut message = chain(&error);
        if !exit.advice().is_empty() {
            message += &format!("; {}", exit.advice());
        }
        Self {
            key: error.key().map(str::to_owned),
            owner: error.owner(),
            token: error.token(),
            ..Self::new(exit, message)
        }
    }
}

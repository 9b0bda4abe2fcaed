//! From flags and environment to a broker.

use std::{env, fs};

use ticketing::{Domain, TicketBroker, TlsOptions, Token};

use crate::args::Connection;
use crate::exit::Exit;
use crate::failure::Failure;

const TOKEN_VARIABLE: &str = "TICKETING_CLIENT_TOKEN";

impl Connection {
    /// A broker for all servers; it connects in the background.
    ///
    /// # Errors
    /// A setting that is not valid, or a file that cannot be read.
    pub(crate) fn broker(&self) -> Result<TicketBroker, Failure> {
        self.broker_for(&self.servers)
    }

    /// A broker for these servers, with all other settings as given.
    ///
    /// # Errors
    /// A setting that is not valid, or a file that cannot be read.
    pub(crate) fn broker_for(&self, servers: &[String]) -> Result<TicketBroker, Failure> {
        let mut builder = TicketBroker::builder().addresses(servers);
        if let Some(token) = self.token()? {
            builder = builder.token(token);
        }
        if let Some(tls) = self.tls_options() {
            builder = builder.tls(tls);
        }
        if let Some(domain) = &self.expect_domain {
            let domain = Domain::parse(domain).ok_or_else(|| {
                Failure::new(
                    Exit::Usage,
                    format!("--expect-domain {domain:?} is not a domain: it needs 32 hexadecimal digits"),
                )
            })?;
            builder = builder.expect_domain(domain);
        }
        Ok(builder.build()?)
    }

    fn token(&self) -> Result<Option<Token>, Failure> {
        if let Some(path) = &self.token_file {
            let content = fs::read(path).map_err(|error| {
                Failure::new(Exit::Usage, format!("--token-file {}: {error}", path.display()))
            })?;
            // The servers' file may name two tokens, one a line, while one replaces the other.
            let line = content.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                return Err(Failure::new(
                    Exit::Usage,
                    format!("--token-file {}: its first line is empty", path.display()),
                ));
            }
            return Ok(Some(Token::from(line.to_vec())));
        }
        match env::var(TOKEN_VARIABLE) {
            Ok(token) => Ok(Some(Token::from(token))),
            Err(env::VarError::NotPresent) => Ok(None),
            Err(env::VarError::NotUnicode(_)) => {
                Err(Failure::new(Exit::Usage, format!("{TOKEN_VARIABLE} is not UTF-8; use --token-file")))
            }
        }
    }

    fn tls_options(&self) -> Option<TlsOptions> {
        if !self.tls && self.tls_ca.is_none() && self.tls_name.is_none() {
            return None;
        }
        let mut options = TlsOptions::default();
        if let Some(path) = &self.tls_ca {
            options = options.with_ca_file(path);
        }
        if let Some(name) = &self.tls_name {
            options = options.with_server_name(name);
        }
        Some(options)
    }
}

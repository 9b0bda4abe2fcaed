//! The Ticketing lock server.
//!
//! A connection is a `session` that owns the socket. All sessions feed one
//! `driver`, which owns the lock engine and works in turns: everything that
//! arrived meanwhile is decided together, committed together, and answered with
//! one write a connection.
//!
//! ```text
//! listener ─▶ connection: TLS, handshake ─▶ session ──requests──▶ driver ─▶ engine
//!                                              ▲                     │
//!                                              └──answers──  conn  ◀─┘
//! ```
//!
//! [`Config`] says what to serve, [`Server`] serves it.
//!
//! ```no_run
//! use ticketing_server::config::Secrets;
//! use ticketing_server::{Config, Options, Server};
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let options = Options { listen: Some("127.0.0.1:0".parse()?), ..Options::default() };
//! let server = Server::start(Config::new(options, Secrets::default())?).await?;
//! println!("serving on {}", server.client_addr());
//! server.shutdown(std::future::pending()).await;
//! # Ok(())
//! # }
//! ```

mod admin;
mod auth;
mod clock;
mod commit;
pub mod config;
mod conn;
mod connection;
mod counters;
mod driver;
mod farewell;
mod files;
mod handshake;
mod hub;
mod listener;
mod metrics;
mod requests;
mod server;
mod session;
#[cfg(test)]
mod testing;
mod tls;
mod unsent;
mod view;

pub use admin::OPERATOR_HEADER;
pub use auth::{BadToken, ClientTokens};
pub use config::{Config, ConfigError, Options, PeerConfigError};
pub use files::Unread;
pub use hub::CredentialsError;
pub use server::{Server, StartError};

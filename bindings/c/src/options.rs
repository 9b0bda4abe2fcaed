//! What a broker and an acquire are told.

#![allow(unsafe_code, reason = "pointers in structs of the caller are followed here")]

use std::ffi::{c_char, c_int, c_uint};
use std::slice;

use ticketing::{Builder, Domain, TicketBroker, TlsOptions, Token};

use crate::failure::Failure;
use crate::raw::{bytes, seconds, text};
use crate::sized::{self, Growing};

/// The version of this interface. It changes when programs must be compiled again.
pub const TICKETING_ABI_VERSION: c_uint = 1;

/// More was never a list of servers.
const MAX_ADDRESSES: usize = 1024;

/// How to reach the servers. Begin with TICKETING_BROKER_OPTIONS_INIT.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BrokerOptions {
    /// sizeof(ticketing_broker_options).
    pub size: usize,
    /// TICKETING_ABI_VERSION; a library of another one refuses it.
    pub abi_version: c_uint,
    /// Whether to speak TLS. 0: plain TCP.
    pub tls: c_int,
    /// The servers, each as "host:port" with a NUL at its end; without a port it is 5225.
    /// Name all nodes of a cluster.
    pub addresses: *const *const c_char,
    /// How many addresses there are.
    pub address_count: usize,
    /// The secret shared with the servers. NULL: none.
    pub token: *const u8,
    /// How many bytes it has.
    pub token_len: usize,
    /// With TLS: a PEM file of the certificates to trust. NULL: the system's.
    pub ca_file: *const c_char,
    /// The same as bytes; both may be given.
    pub ca_pem: *const u8,
    /// How many bytes it has.
    pub ca_pem_len: usize,
    /// With TLS: the name that the certificate must have. NULL: the host of each address.
    pub server_name: *const c_char,
    /// Turns every check of the certificate off: anyone on the path can then hand out locks.
    pub dangerously_accept_any_certificate: c_int,
    /// Whether expect_domain is set.
    pub has_expect_domain: c_int,
    /// The one fencing domain whose servers are talked to.
    pub expect_domain: [u8; 16],
    /// How many acquires, and how many releases, may be pending at once. 0: 16,384.
    pub max_pending: usize,
}

/// What an acquire asks for. Begin with TICKETING_ACQUIRE_OPTIONS_INIT. Times are in seconds;
/// fractions are rounded up to whole seconds, and nothing is clamped.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AcquireOptions {
    /// sizeof(ticketing_acquire_options).
    pub size: usize,
    /// How long to wait in the queue, up to 255 s. 0: one immediate try. Default: 30.
    pub wait: f64,
    /// After how long the server takes the lock back by itself, 1 s to 250 s. Default: 60.
    pub lease: f64,
    /// The least time that must be left of the lease at the grant; with less, the lock is
    /// released and TICKETING_INSUFFICIENT_LEASE is returned. Default: 0, any time at all.
    pub min_remaining: f64,
}

// SAFETY: C layout, its size first, and every bit pattern of its fields is a value.
unsafe impl Growing for BrokerOptions {
    fn size(&mut self) -> &mut usize {
        &mut self.size
    }
}

// SAFETY: as above.
unsafe impl Growing for AcquireOptions {
    fn size(&mut self) -> &mut usize {
        &mut self.size
    }
}

impl AcquireOptions {
    /// # Safety
    /// The pointer is NULL, for the defaults, or as [`sized::read`] needs it.
    pub(crate) unsafe fn read(from: *const Self) -> Result<ticketing::AcquireOptions, Failure> {
        if from.is_null() {
            return Ok(ticketing::AcquireOptions::default());
        }
        // SAFETY: as the caller says.
        let given = unsafe { sized::read(from, "options") }?;
        Ok(ticketing::AcquireOptions {
            wait: seconds(given.wait, "wait")?,
            lease: seconds(given.lease, "lease")?,
            min_remaining: Some(seconds(given.min_remaining, "min_remaining")?),
        })
    }
}

impl BrokerOptions {
    /// # Safety
    /// The pointer is as [`sized::read`] needs it, and so is what its fields point to.
    pub(crate) unsafe fn read(from: *const Self) -> Result<Builder, Failure> {
        // SAFETY: as the caller says.
        let given = unsafe { sized::read(from, "options") }?;
        if given.abi_version != TICKETING_ABI_VERSION {
            return Err(Failure::invalid(format!(
                "the program was compiled for version {} of the interface, and this library has version {TICKETING_ABI_VERSION}; \
                 compile it again with the header of this library",
                given.abi_version
            )));
        }
        let mut builder = TicketBroker::builder();
        // SAFETY: as the caller says.
        for address in unsafe { given.addresses() }? {
            // SAFETY: as the caller says.
            let address = unsafe { text(*address, "an address") }?;
            builder = builder.address(address.ok_or_else(|| Failure::null("an address"))?);
        }
        // SAFETY: as the caller says.
        let secret = unsafe { bytes(given.token, given.token_len, "token") }?;
        if !secret.is_empty() {
            builder = builder.token(Token::from(secret.to_vec()));
        }
        // SAFETY: as the caller says.
        if let Some(tls) = unsafe { given.tls() }? {
            builder = builder.tls(tls);
        }
        if given.has_expect_domain != 0 {
            builder = builder.expect_domain(Domain(given.expect_domain));
        }
        if given.max_pending != 0 {
            builder = builder.max_pending(given.max_pending);
        }
        Ok(builder)
    }

    /// # Safety
    /// NULL, or as many pointers as are said.
    unsafe fn addresses<'a>(&self) -> Result<&'a [*const c_char], Failure> {
        match (self.addresses.is_null(), self.address_count) {
            // The core says what is wrong with no address.
            (_, 0) => Ok(&[]),
            (true, _) => Err(Failure::null("addresses")),
            (false, count) if count > MAX_ADDRESSES => {
                Err(Failure::invalid(format!("{count} addresses; at most {MAX_ADDRESSES} are read")))
            }
            // SAFETY: as the caller says.
            (false, count) => Ok(unsafe { slice::from_raw_parts(self.addresses, count) }),
        }
    }

    /// # Safety
    /// What the fields point to is as they say.
    unsafe fn tls(&self) -> Result<Option<TlsOptions>, Failure> {
        let mut options = TlsOptions::default();
        // SAFETY: as the caller says.
        let (ca_file, server_name) =
            unsafe { (text(self.ca_file, "ca_file")?, text(self.server_name, "server_name")?) };
        options.ca_file = ca_file.map(Into::into);
        options.server_name = server_name.map(str::to_owned);
        if !self.ca_pem.is_null() {
            // SAFETY: as the caller says.
            options.ca_pem = Some(unsafe { bytes(self.ca_pem, self.ca_pem_len, "ca_pem") }?.to_vec());
        }
        let any = self.dangerously_accept_any_certificate != 0;
        if self.tls == 0 {
            // Who names a certificate must not talk in the clear by mistake.
            let set = ca_file.is_some() || server_name.is_some() || options.ca_pem.is_some() || any;
            return if set {
                Err(Failure::invalid("settings of TLS are given, but tls is 0; set it to 1"))
            } else {
                Ok(None)
            };
        }
        Ok(Some(if any { options.dangerously_accept_any_certificate() } else { options }))
    }
}

//! Every number of the wire contract.

use std::ops::RangeInclusive;
use std::time::Duration;

/// TCP port on which a server listens for clients.
pub const DEFAULT_PORT: u16 = 5225;

/// The most bytes of one frame, counting its op and not counting its LF.
pub const MAX_FRAME_BYTES: usize = 192;

/// The most bytes of a key.
pub const MAX_KEY_BYTES: usize = 128;

/// Leases that a server accepts, in seconds. Others are refused, never clamped.
pub const LEASE_SECS: RangeInclusive<u8> = 1..=250;

/// The longest wait of an acquire, in seconds. There is no unlimited wait.
pub const MAX_WAIT_SECS: u8 = 255;

/// The most bytes of the server's greeting line, not counting its LF.
pub const MAX_GREETING_BYTES: usize = 256;

/// The most bytes of the client's answer line, not counting its LF.
pub const MAX_RESPONSE_BYTES: usize = 128;

/// From a frame's first byte to its LF.
pub const FRAME_TIMEOUT: Duration = Duration::from_secs(5);

/// From the accept of a connection to the client's complete answer.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a server lets a refused client wait, so that published clients,
/// which come back without a pause, cannot spin.
pub const REFUSAL_DELAY: Duration = Duration::from_millis(500);

/// How long a client waits for the first frame before it goes on with a server
/// of this family that sends none.
pub const FIRST_FRAME_PATIENCE: Duration = Duration::from_millis(300);

/// Pause after which an end with pending requests sends an empty frame.
pub const PENDING_KEEP_ALIVE: Duration = Duration::from_secs(2);

/// Pause after which a client without pending requests sends an empty frame.
pub const IDLE_KEEP_ALIVE: Duration = Duration::from_secs(15);

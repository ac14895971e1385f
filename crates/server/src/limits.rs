//! The limits of one client: constants, each with its reason.

use std::time::Duration;

/// A request's head, and an idle connection.
pub const HEAD: Duration = Duration::from_secs(30);
/// A whole body, and any silence within it or before an answer is read.
pub const WHOLE_BODY: Duration = Duration::from_mins(1);
pub const SILENCE: Duration = Duration::from_secs(15);
/// Connections at once; more wait in the kernel's queue.
pub const CONNECTIONS: usize = 1024;
/// Of those from one address that have shown no token yet. A browser opens six, an agent's senders one each for the moment
/// until they have shown theirs; an office behind one address has room, and four hostile addresses leave half of all slots.
pub const ANONYMOUS_PER_ADDRESS: usize = 128;
/// A head, and an idle connection, while few connections are free.
pub const HEAD_WHEN_SCARCE: Duration = Duration::from_secs(5);
/// How long requests that are under way may go on after the server was asked to end.
pub const DRAIN: Duration = Duration::from_secs(20);
/// How long a live feed lasts before its client must show again that it may see it.
pub const WATCH: Duration = Duration::from_mins(15);

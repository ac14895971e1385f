//! Speaking with the host of a background session: where its socket is, the frames, the client's side.
//!
//! A host serves one run. Its socket is `$CODEMIE_HOME/run/<run id>.sock`; the folder belongs to the user alone, and both sides
//! check that the other is the same user.

pub mod address;
pub mod attach;
pub mod client;
pub mod frames;
pub mod protocol;
pub mod send;

pub use client::{Connection, RemoteError};

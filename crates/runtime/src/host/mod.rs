//! Background sessions: a host process per run, which owns the program's terminal and outlives the process that started it.
//!
//! `codemie run --detach` forks. The child becomes the host: the same pump and the same tracker as in the foreground, with a
//! front end of its own and a server thread beside them. The parent waits until the agent runs, prints the session's id and
//! leaves. There is no central daemon: nothing is shared between hosts but the store.

mod answers;
mod client;
mod front_end;
mod handoff;
mod live;
mod notes;
mod send;
mod sends;
mod server;
mod start;
mod stop;
mod waits;

pub use live::Limits;
pub use start::{Detached, NotDetached, detach};

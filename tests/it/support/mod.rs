//! What the tests stand on: terminals to start programs in, and a look at the processes that run there.
pub(crate) mod answers;
pub(crate) mod mailbox;
pub(crate) mod processes;
pub(crate) mod pty;
pub(crate) mod wrapper;

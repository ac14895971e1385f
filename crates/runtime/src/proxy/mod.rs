//! The proxy beside a run: the processes that pass an agent's calls on, what they store of them, and how long they live.
//!
//! Promises: an agent is led here only once the listener is bound, so that no call of it can fail for want of one. Whatever dies
//! is started again on the same port with the same secret, as long as anything lives that was given the address. The secret is
//! in the agent's environment or arguments, in memory, and nowhere else.
//!
//! Modules use only those before them: `settings`, `listeners`, `clients`; `ledger`; `worker`; `keeper`; `companion`, the wrapper's end,
//! and `standalone`.

pub mod companion;
pub mod keeper;
mod ledger;
pub mod listeners;
pub mod settings;
pub mod standalone;
pub mod worker;

use std::io;
use std::os::fd::AsFd;
use std::process::Command;

pub use companion::{Companion, CompanionThread};
pub use settings::{ProxySettings, RouteSettings};

/// The hidden commands of the proxy's own processes.
pub const KEEPER: &str = "proxy-keeper";
pub const WORKER: &str = "proxy-worker";

/// Our own program, as it was when this process began: an upgrade meanwhile must not mix two versions.
fn ourselves(command: &str) -> io::Result<Command> {
    use std::os::unix::process::CommandExt;
    let program = if cfg!(target_os = "linux") { "/proc/self/exe".into() } else { std::env::current_exe()? };
    let mut ourselves = Command::new(program);
    ourselves.arg0("codemie").arg(command);
    Ok(ourselves)
}

/// The descriptors that such a process was handed in place of its standard input and output.
fn handed_over() -> io::Result<(std::os::unix::net::UnixStream, std::net::TcpListener)> {
    let control = io::stdin().as_fd().try_clone_to_owned()?;
    let listener = io::stdout().as_fd().try_clone_to_owned()?;
    Ok((control.into(), listener.into()))
}

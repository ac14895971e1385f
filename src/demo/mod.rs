//! The demonstration: everything codemie does, without any agent installed.
//!
//! A scripted agent, this same binary under a hidden command, plays its part in a real PTY through the very path that
//! runs Claude Code, and leaves files in Claude Code's own format. Promises: it writes nowhere but in `$CODEMIE_HOME`,
//! calls no model, and ends by itself within seconds.

mod frame;
mod journal;
mod play;
pub mod report;
pub mod script;
mod stage;

use std::io;
use std::path::PathBuf;

pub use play::play;
pub use stage::{in_outer_terminal, take_terminal};

use agents::demo::folder;
use os::file::create_private;
use os::home::Home;

/// Makes the folder that the scripted agent works in.
pub fn workshop(home: &Home) -> io::Result<PathBuf> {
    let folder = folder(home).join(script::PROJECT);
    create_private(&folder)?;
    std::fs::canonicalize(&folder)
}

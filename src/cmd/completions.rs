//! `codemie completions SHELL`.

use std::io::Write;
use std::process::ExitCode;

use crate::cli::Completions;

/// `command` is the whole command line of codemie.
pub fn run(args: &Completions, command: &mut clap::Command, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    out.write_all(&script(args.shell, command))?;
    Ok(ExitCode::SUCCESS)
}

/// Made in memory first, because clap_complete panics when its output goes away.
pub(super) fn script(shell: clap_complete::Shell, command: &mut clap::Command) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, command, "codemie", &mut script);
    script
}

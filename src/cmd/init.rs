//! `codemie init SHELL`: what `eval "$(codemie init bash)"` evaluates.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

use crate::cli::{Init, InitShell};
use os::home::Home;
use runtime::shim::files::{DiskFiles, OwnBinary};
use runtime::shim::shell::{self, Places, Shell};

pub fn run(args: &Init, home: &Home, agents: &[&str], out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let binary =
        OwnBinary::of_this_process(&DiskFiles).canonical.context("cannot find codemie's own binary")?;
    let shims = std::path::absolute(home.shims())?;
    let completions = std::path::absolute(home.completions())?;
    let bin = binary.parent().unwrap_or(Path::new("/"));
    let places = Places { shims: &shims, completions: &completions, bin, agents };
    let (shell, completion_shell) = match args.shell {
        InitShell::Bash => (Shell::Bash, clap_complete::Shell::Bash),
        InitShell::Zsh => (Shell::Zsh, clap_complete::Shell::Zsh),
        InitShell::Fish => (Shell::Fish, clap_complete::Shell::Fish),
    };
    let script = if args.path_only {
        shell::path_setup(shell, places)
    } else {
        shell::init(shell, places, &super::completions::script(completion_shell))
    };
    out.write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

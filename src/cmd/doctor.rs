//! `codemie doctor`.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::Context;

use crate::cli::Doctor;
use crate::doctor::{self, Machine, examine};
use format::output::Style;
use os::home::Home;
use runtime::shim::files::{DiskFiles, OwnBinary};

pub fn run(
    args: &Doctor,
    home: Option<Home>,
    agents: &[&str],
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    if let [program, rest @ ..] = args.in_own_session.as_slice() {
        return in_own_session(program, rest);
    }
    let ourselves = OwnBinary::of_this_process(&DiskFiles);
    let machine = Machine {
        home,
        agents,
        codemie: ourselves.canonical.clone().context("cannot find codemie's own binary")?,
        ourselves,
        path: std::env::var_os("PATH"),
        shell: std::env::var_os("SHELL").filter(|shell| !shell.is_empty()),
        timeout: args.timeout,
    };
    let style = Style::of_stdout();
    let diagnosis = examine(&machine, &mut |part| {
        if args.json {
            return Ok(());
        }
        out.write_all(doctor::list(part, style).as_bytes())?;
        out.flush()
    })?;
    let end = if args.json { doctor::json(&diagnosis.findings) } else { doctor::summary(&diagnosis) };
    out.write_all(end.as_bytes())?;
    Ok(if doctor::healthy(&diagnosis.findings) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs `program` where no terminal can stop it, and not beyond the doctor that asked.
fn in_own_session(program: &OsString, args: &[OsString]) -> anyhow::Result<ExitCode> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    rustix::process::setsid().context("cannot begin a session")?;
    let error = Command::new(program).args(args).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

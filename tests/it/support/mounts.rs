//! Scripts that mount: on a full disk, on a read-only one.

use std::process::Command;

use super::agents::left_out;
use crate::sandbox::{CODEMIE, CommandOutput, Sandbox, output_of};

/// Runs a script as root of a mount namespace of its own, with `$codemie`; `None`, said why, where that is not permitted.
pub(crate) fn with_mounts(sandbox: &Sandbox, script: &str) -> Option<CommandOutput> {
    let way = ["-m", "-Urm"].into_iter().find(|way| {
        let tried =
            Command::new("unshare").args([way, "--", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
        tried.is_ok_and(|output| output.status.success())
    });
    let Some(way) = way else {
        left_out("mounting is not permitted here");
        return None;
    };
    let mut command = sandbox.command("unshare");
    command.args([way, "--", "sh", "-euc", script]).env("codemie", CODEMIE).env("CODEMIE_QUIET", "1");
    Some(output_of(&mut command))
}

//! `codemie shim install|uninstall|status`.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::json;

use crate::cli::{Init, Shim, ShimAction};
use format::output::json;
use format::output::table::padded;
use os::home::Home;
use runtime::shim::files::{DiskFiles, OwnBinary};
use runtime::shim::install;
use runtime::shim::install::{Error, Places, Reach, Shell, ShimChange, ShimState, Shims};
use runtime::shim::resolve::Query;

pub fn run(args: &Shim, home: &Home, agents: &[&str], out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let ourselves = OwnBinary::of_this_process(&DiskFiles);
    let binary = ourselves.canonical.clone().context("cannot find codemie's own binary")?;
    let shims = Shims::new(std::path::absolute(home.shims())?, binary);
    let path = std::env::var_os("PATH");
    match &args.action {
        ShimAction::Install => {
            home.create().with_context(|| format!("cannot make {}", home.path().display()))?;
            each(agents, &shims, out, Shims::install)?;
            if !on_path(&shims, path.as_ref()) {
                writeln!(out, "To use them, add this to your shell's start-up file:")?;
                writeln!(
                    out,
                    "  eval \"$(codemie init bash)\"    (or zsh; fish: codemie init fish | source)"
                )?;
            }
        }
        ShimAction::Uninstall => {
            each(agents, &shims, out, Shims::uninstall)?;
            shims.remove_empty_folder();
        }
        ShimAction::Status { json } => status(agents, &shims, &ourselves, path.as_ref(), *json, out)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Does all that can be done, then fails for the rest.
fn each(
    agents: &[&str],
    shims: &Shims,
    out: &mut dyn Write,
    act: fn(&Shims, &str) -> Result<ShimChange, Error>,
) -> anyhow::Result<()> {
    let mut failures = Vec::new();
    for name in agents {
        match act(shims, name) {
            Ok(done) => {
                let done = match done {
                    ShimChange::Created => "created",
                    ShimChange::Replaced => "replaced",
                    ShimChange::Unchanged => "unchanged",
                    ShimChange::Removed => "removed",
                    ShimChange::Absent => "not there",
                };
                writeln!(out, "{done:9}  {}", shims.path(name).display())?;
            }
            Err(error) => failures.push(error.to_string()),
        }
    }
    if failures.is_empty() { Ok(()) } else { bail!(failures.join("\n")) }
}

fn status(
    agents: &[&str],
    shims: &Shims,
    ourselves: &OwnBinary,
    path: Option<&OsString>,
    as_json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let on_path = on_path(shims, path);
    let mut rows = Vec::new();
    let width = agents.iter().map(|name| name.len()).max().unwrap_or(0);
    for name in agents {
        let state = shims.state(name)?;
        let places = Query { name, explicit: None, path: path.map(AsRef::as_ref), folder: None, ourselves }
            .survey(&DiskFiles);
        let reach = Reach::of(&places);
        let (state, target) = match &state {
            ShimState::Current => ("current", None),
            ShimState::Stale { target } => ("stale", Some(target)),
            ShimState::Foreign => ("foreign", None),
            ShimState::Missing => ("missing", None),
        };
        let (runs, by) = match &reach {
            Reach::Wrapped(path) => ("codemie", Some(path)),
            Reach::Bare(path) => ("the agent, not wrapped", Some(path)),
            Reach::Nothing => ("nothing", None),
        };
        if as_json {
            rows.push(json!({
                "name": name, "path": text(&shims.path(name)), "state": state, "target": target.map(|path| text(path)),
                "wrapped": matches!(reach, Reach::Wrapped(_)), "runs": by.map(|path| text(path)),
            }));
            continue;
        }
        let target = target.map_or(String::new(), |target| format!(" (points at {})", target.display()));
        let by = by.map_or(String::new(), |by| format!(" ({})", by.display()));
        let padded = padded(name, width);
        // Scripts know the word, people do not.
        let state = if state == "foreign" { "not codemie's" } else { state };
        writeln!(out, "{padded}  shim {state}{target}; `{name}` runs {runs}{by}")?;
    }
    if as_json {
        let report = json!({"folder": text(shims.folder()), "onPath": on_path, "shims": rows});
        out.write_all(json::pretty(&report)?.as_bytes())?;
    } else {
        let is = if on_path { "is" } else { "is not" };
        writeln!(out, "{} {is} on PATH", shims.folder().display())?;
    }
    Ok(())
}

/// JSON has no form for a path that is not UTF-8.
fn text(path: &Path) -> String {
    path.display().to_string()
}

fn on_path(shims: &Shims, path: Option<&OsString>) -> bool {
    path.is_some_and(|path| std::env::split_paths(path).any(|folder| folder == shims.folder()))
}

// `codemie init SHELL`: what `eval "$(codemie init bash)"` evaluates.

pub fn init(args: &Init, home: &Home, agents: &[&str], out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let binary =
        OwnBinary::of_this_process(&DiskFiles).canonical.context("cannot find codemie's own binary")?;
    let shims = std::path::absolute(home.shims())?;
    let completions = std::path::absolute(home.completions())?;
    let bin = binary.parent().unwrap_or(Path::new("/"));
    let places = Places { shims: &shims, completions: &completions, bin, agents };
    let (shell, completion_shell) = match args.shell {
        Shell::Bash => (Shell::Bash, clap_complete::Shell::Bash),
        Shell::Zsh => (Shell::Zsh, clap_complete::Shell::Zsh),
        Shell::Fish => (Shell::Fish, clap_complete::Shell::Fish),
    };
    let script = if args.path_only {
        install::path_setup(shell, places)
    } else {
        install::init(shell, places, &super::completions::script(completion_shell))
    };
    out.write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

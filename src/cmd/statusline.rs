//! `codemie statusline`: one line for Claude Code's status line.
//!
//! Whatever goes wrong, the line is shorter or empty and the exit code is 0: an error would stand in the user's terminal.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use crate::cli::Statusline;
use agents::registry;
use config::Config;
use format::shell;
use format::text::clean;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use report::statusline::{AgentStatus, StatusLine};
use store::Store;
use types::Timestamp;

/// Some kilobytes are usual.
const MAX_BYTES: u64 = 1 << 20;

pub fn run(args: &Statusline, home: Option<&Home>, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    if args.install {
        out.write_all(installation().as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    Ok(print(home, out))
}

/// Reads standard input and prints the line. It is called before the command line is parsed, which takes longer.
pub fn print(home: Option<&Home>, out: &mut dyn Write) -> ExitCode {
    let mut input = Vec::new();
    if !pty::is_terminal(&io::stdin()) {
        let _ = io::stdin().lock().take(MAX_BYTES).read_to_end(&mut input);
    }
    let line = line(home, &AgentStatus::read(&input), SystemClock.now());
    let _ = writeln!(out, "{}", clean(&line));
    ExitCode::SUCCESS
}

fn line(home: Option<&Home>, status: &AgentStatus, now: Timestamp) -> String {
    let file = home.map(Home::config_file);
    let config = Config::load(file.as_deref(), |_| None, &[]);
    let line = home.and_then(|home| recorded(home, status, &config, now));
    line.unwrap_or_else(|| StatusLine::of_agent(status)).fill(&config.statusline_format, now)
}

/// `None` where there is no store, or none that can be read now.
fn recorded(home: &Home, status: &AgentStatus, config: &Config, now: Timestamp) -> Option<StatusLine> {
    let mut store = Store::open_to_read(home).ok()?;
    let zone = os::zone::local();
    let agent = registry::with_status_line()?.name();
    store.read(|view| StatusLine::of(view, agent, status, &config.budgets, now, &zone)).ok()
}

/// What to add, and where. Nothing is written: the file is the user's.
fn installation() -> String {
    let agent = registry::with_status_line();
    let file = agent.and_then(|agent| agent.status_line_settings(&|name| std::env::var_os(name)));
    let command = format!("{} statusline", this_program());
    let line = serde_json::json!({"type": "command", "command": command});
    format!(
        "Add this line to {}, inside the outer braces; codemie does not change the file:\n\n  \"statusLine\": {line}\n\n\
         `codemie config set statusline.format TEXT` changes what is shown.\n",
        clean(&file.unwrap_or_default())
    )
}

/// By name where that leads here, else by its path.
fn this_program() -> String {
    let Ok(here) = std::env::current_exe() else { return "codemie".to_owned() };
    let same = |path: &Path| path.canonicalize().ok() == here.canonicalize().ok();
    let path = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&path).map(|folder| folder.join("codemie")).find(|found| found.is_file()) {
        Some(found) if same(&found) => "codemie".to_owned(),
        _ => shell::word(&here.to_string_lossy()).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_store_the_agents_own_numbers_are_shown() {
        let status =
            AgentStatus::read(br#"{"cost":{"total_cost_usd":0.25},"context_window":{"used_percentage":12}}"#);
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path().join("absent"));
        for home in [None, Some(&home)] {
            assert_eq!(line(home, &status, Timestamp(0)), "$0.2500 session | 12 % context");
        }
        assert!(!home.path().exists(), "nothing is made");
        std::fs::create_dir(home.path()).unwrap();
        std::fs::write(home.database(), "rubbish").unwrap();
        assert_eq!(line(Some(&home), &status, Timestamp(0)), "$0.2500 session | 12 % context");
        std::fs::write(home.config_file(), "[statusline]\nformat = 'ctx {context}'\n").unwrap();
        assert_eq!(line(Some(&home), &status, Timestamp(0)), "ctx 12 % context");
        assert_eq!(std::fs::read_to_string(home.database()).unwrap(), "rubbish", "nothing is repaired");
    }

    #[test]
    fn installing_prints_a_line_of_json() {
        let text = installation();
        let line = text.lines().find_map(|line| line.trim().strip_prefix("\"statusLine\": ")).unwrap();
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(value["type"], "command");
        assert!(value["command"].as_str().unwrap().ends_with(" statusline"), "{text}");
    }
}

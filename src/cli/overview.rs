//! The commands as `codemie help` lists them: in groups, by what they are for. `codemie` alone shows those that matter most.

use std::fmt::Write;

use clap::Command;
use clap::builder::StyledStr;

use super::{LINES, Refusal, STYLES, USAGE, command, usage_code};
use format::output::Colour;

/// Every command that is seen, in the order of its group. The agents stand before the first.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Run", &["run", "resume", "attach", "top", "demo"]),
    ("Look", &["list", "show", "view", "search", "explain", "current", "dashboard"]),
    ("Money", &["usage", "limits", "budget", "prices", "statusline", "commit-note"]),
    ("In the background, for scripts and agents", &["send", "wait", "answer", "stop", "mcp"]),
    ("Keep order", &["rename", "tag", "untag", "group", "archive", "unarchive", "prune", "export", "import"]),
    ("Team", &["backend", "proxy", "sync"]),
    ("Set up", &["doctor", "config", "shim", "init", "completions", "help"]),
];

/// What most people need.
const MOST_USED: [&str; 9] =
    ["resume", "list", "search", "top", "view", "usage", "budget", "dashboard", "doctor"];

const MORE: &str = "All commands: codemie help. One of them: codemie help COMMAND.";

fn heading(text: &str) -> String {
    let style = Colour::Heading.ansi();
    format!("{style}{text}:{style:#}\n")
}

fn line(command: &Command) -> String {
    let (name, style) = (command.get_name(), Colour::Note.ansi());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    format!("  {style}{name:<12}{style:#}{about}\n")
}

fn agents(command: &Command) -> String {
    let agents =
        command.get_subcommands().filter(|command| agents::registry::called(command.get_name()).is_some());
    agents.map(line).collect()
}

/// The template of the whole help.
pub(super) fn template(command: &Command) -> String {
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for (number, (name, commands)) in GROUPS.iter().enumerate() {
        text += &heading(name);
        if number == 0 {
            text += &agents(command);
        }
        text.extend(commands.iter().filter_map(|name| command.find_subcommand(name)).map(line));
        text.push('\n');
    }
    text + "{options}{after-help}"
}

/// What `codemie` alone prints.
pub(super) fn short() -> Refusal {
    let all = command();
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    text += &heading("Most used");
    text += &agents(&all);
    text.extend(MOST_USED.iter().filter_map(|name| all.find_subcommand(name)).map(line));
    let _ = write!(text, "\n{MORE}");
    let about = all.get_about().cloned().unwrap_or_else(StyledStr::new);
    let mut command = Command::new("codemie").about(about).override_usage(LINES).styles(STYLES);
    command = command.help_template(text).arg(clap::Arg::new("command")).arg_required_else_help(true);
    match command.try_get_matches_from(["codemie"]) {
        Err(text) => Refusal { code: usage_code(&text, USAGE), text },
        Ok(_) => super::refusal(USAGE, MORE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_stands_in_one_group() {
        let all = super::super::visible();
        let mut known: Vec<&str> = GROUPS.iter().flat_map(|(_, commands)| commands.iter().copied()).collect();
        known.extend(agents::registry::names());
        known.sort_unstable();
        let mut expected: Vec<&str> = all.get_subcommands().map(Command::get_name).collect();
        expected.sort_unstable();
        assert_eq!(known, expected);
        assert!(MOST_USED.iter().all(|name| expected.contains(name)));
    }

    #[test]
    fn a_bare_call_shows_what_matters_and_where_more_is() {
        let refusal = short();
        let text = refusal.text.to_string();
        assert_eq!(refusal.code, USAGE);
        for part in ["Usage: codemie", "claude      Run Claude Code", "resume ", "doctor ", MORE] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        assert!(!text.contains("untag") && text.lines().count() < 25, "{text}");
    }
}

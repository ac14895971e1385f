//! `codemie completions SHELL`, and the words that only the store and the settings know.
//!
//! clap makes the scripts; names of sessions and of settings are asked for when they are wanted (`codemie complete`).

use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;

use clap_complete::Shell;

use crate::cli::{self, Completable, Completions};
use crate::config::keys::KEYS;
use crate::home::Home;
use crate::store::{Filter, Store};
use human::text::clean;
use system::clock::{Clock, SystemClock};

/// A longer list helps nobody who presses a key for one name.
const NAMES: usize = 500;

pub fn run(args: &Completions, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    out.write_all(&script(args.shell))?;
    Ok(ExitCode::SUCCESS)
}

/// Made in memory first, because clap_complete panics when its output goes away.
pub(super) fn script(shell: Shell) -> Vec<u8> {
    let mut command = cli::visible();
    let asking = Asking::of(&command);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "codemie", &mut script);
    match String::from_utf8(script) {
        Ok(text) => asking.added(shell, &text).into_bytes(),
        Err(script) => script.into_bytes(),
    }
}

/// Which commands take a session as their first word, which take several, and which of `config` take a setting.
struct Asking {
    one: Vec<String>,
    many: Vec<String>,
    settings: Vec<String>,
}

impl Asking {
    fn of(command: &clap::Command) -> Self {
        let taking = |command: &clap::Command, id: &str| -> Vec<String> {
            let takes = |command: &&clap::Command| command.get_positionals().any(|arg| arg.get_id() == id);
            command.get_subcommands().filter(takes).map(|command| command.get_name().to_owned()).collect()
        };
        let config = command.find_subcommand("config");
        Self {
            one: taking(command, "session"),
            many: taking(command, "sessions"),
            settings: config.map_or_else(Vec::new, |config| taking(config, "key")),
        }
    }

    fn added(&self, shell: Shell, script: &str) -> String {
        match shell {
            Shell::Bash => self.bash(script),
            Shell::Zsh => zsh(script),
            Shell::Fish => self.fish(script),
            _ => script.to_owned(),
        }
    }

    fn bash(&self, script: &str) -> String {
        let (one, many, settings) = (self.one.join("|"), self.many.join("|"), self.settings.join("|"));
        let words = format!(
            r#"
_codemie_words() {{
    local what=""
    case "${{COMP_WORDS[1]}}" in
        {one}) [[ "${{COMP_CWORD}}" -eq 2 ]] && what=sessions ;;
        {many}) [[ "${{COMP_CWORD}}" -ge 2 ]] && what=sessions ;;
        config)
            case "${{COMP_WORDS[2]}}" in
                {settings}) [[ "${{COMP_CWORD}}" -eq 3 ]] && what=settings ;;
            esac
            ;;
    esac
    if [[ -n "${{what}}" && "$2" != -* ]]; then
        COMPREPLY=( $(compgen -W "$(codemie complete "${{what}}" 2>/dev/null)" -- "$2") )
    else
        _codemie "$@"
    fi
}}

"#
        );
        let end = script.rfind("if [[ \"${BASH_VERSINFO").unwrap_or(script.len());
        let registered = script[end..].replace("complete -F _codemie ", "complete -F _codemie_words ");
        script[..end].to_owned() + &words + &registered
    }

    fn fish(&self, script: &str) -> String {
        let mut script = script.to_owned();
        for (condition, what) in [
            (
                format!("__fish_codemie_using_subcommand {} {}", self.one.join(" "), self.many.join(" ")),
                "sessions",
            ),
            (
                format!(
                    "__fish_codemie_using_subcommand config; and __fish_seen_subcommand_from {}",
                    self.settings.join(" ")
                ),
                "settings",
            ),
        ] {
            let _ = writeln!(
                script,
                "complete -c codemie -n \"{condition}\" -f -a \"(codemie complete {what} 2>/dev/null)\""
            );
        }
        script
    }
}

/// zsh names the function that completes a word at the end of a line: `':session -- what it is:_default'`. That function gets
/// arguments for `compadd` before its own.
fn zsh(script: &str) -> String {
    let mut text = String::new();
    for line in script.lines() {
        let what = [("':session ", "sessions"), ("'*::sessions ", "sessions"), ("':key ", "settings")]
            .into_iter()
            .find(|(begin, _)| line.starts_with(begin));
        if line.starts_with("_codemie() {") {
            text += "_codemie_words() {\n    compadd \"${@[1,-2]}\" -- ${(f)\"$(codemie complete ${@[-1]} 2>/dev/null)\"}\n}\n\n";
        }
        match what {
            Some((_, what)) => text += &line.replace(":_default'", &format!(":_codemie_words {what}'")),
            None => text += line,
        }
        text.push('\n');
    }
    text
}

/// `codemie complete`: recovers and sends nothing, because somebody has pressed a key and waits.
pub fn words(
    what: Completable,
    home: &Home,
    agents: &[&str],
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let words = match what {
        Completable::Settings => KEYS.iter().flat_map(|key| key.names(agents, |_| Vec::new())).collect(),
        Completable::Sessions if home.database().exists() => {
            let rows = Store::open(home, SystemClock.now())?.read(|view| view.list(&Filter::default()))?;
            rows.into_iter().map(|row| row.name).filter(|name| is_word(name)).take(NAMES).collect()
        }
        Completable::Sessions => Vec::new(),
    };
    for word in words {
        writeln!(out, "{}", clean(&word))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether every shell takes it as one word, unquoted.
fn is_word(name: &str) -> bool {
    name.chars().all(|letter| letter.is_alphanumeric() || "-_./@+".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(shell: Shell) -> String {
        String::from_utf8(script(shell)).unwrap()
    }

    #[test]
    fn hidden_commands_are_not_offered() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            for hidden in ["in-own", "demo-agent", "demo-backend", "deliver)", "'deliver", "\"deliver\""] {
                assert!(!of(shell).contains(hidden), "{shell} {hidden}");
            }
        }
    }

    #[test]
    fn the_options_of_a_run_are_offered_where_they_are_ours() {
        let bash = of(Shell::Bash);
        let options = |command: &str| {
            let (_, rest) = bash.split_once(&format!("        {command})\n            opts=\"")).unwrap();
            rest.split_once('"').unwrap().0.to_owned()
        };
        assert!(
            options("codemie").starts_with("-h -V --name --tag --group --quiet --detach --help --version")
        );
        assert!(options("codemie__subcmd__run").contains("--name"));
        assert!(!options("codemie__subcmd__claude").contains("--"));
    }

    #[test]
    fn names_are_asked_for_where_a_name_is_wanted() {
        for (shell, wanted) in [
            (Shell::Bash, "        resume|attach|stop|show|view|send|explain|rename|tag|untag|group) "),
            (Shell::Bash, "        wait|archive|unarchive|export) "),
            (Shell::Bash, "                get|set|unset) "),
            (Shell::Bash, "complete -F _codemie_words "),
            (Shell::Zsh, ":_codemie_words sessions'"),
            (Shell::Zsh, ":_codemie_words settings'"),
            (Shell::Fish, "-a \"(codemie complete sessions 2>/dev/null)\""),
            (Shell::Fish, "and __fish_seen_subcommand_from get set unset"),
        ] {
            assert!(of(shell).contains(wanted), "{shell} {wanted}\n{}", of(shell));
        }
    }
}

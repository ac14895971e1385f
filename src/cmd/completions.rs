//! `codemie completions SHELL`, and the words that only the store and the settings know.
//!
//! clap makes the scripts; names of sessions and of settings are asked for when they are wanted (`codemie complete`).

use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;

use clap_complete::Shell;

use crate::cli::{self, Completable, Complete, Completions};
use config::keys::KEYS;
use format::text::{clean, shorten};
use os::clock::{Clock, SystemClock};
use os::home::Home;
use store::{Labelled, SessionQuery, Store};

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

/// Options whose values only the store knows, and what is asked for them.
const OPTIONS: [(&str, &str); 5] = [
    ("project", "projects"),
    ("branch", "branches"),
    ("group", "groups"),
    ("tag", "tags"),
    ("model", "models"),
];

/// Which commands take a session as their first word, which take several, which of `config` take a setting, and which have
/// options whose values are asked for.
struct Asking {
    one: Vec<String>,
    many: Vec<String>,
    settings: Vec<String>,
    /// By command: the options of [`OPTIONS`] that it has.
    options: Vec<(String, Vec<(&'static str, &'static str)>)>,
}

impl Asking {
    fn of(command: &clap::Command) -> Self {
        let taking = |command: &clap::Command, id: &str| -> Vec<String> {
            let takes = |command: &&clap::Command| command.get_positionals().any(|arg| arg.get_id() == id);
            command.get_subcommands().filter(takes).map(|command| command.get_name().to_owned()).collect()
        };
        let config = command.find_subcommand("config");
        let options = command.get_subcommands().filter_map(|command| {
            let has = |name: &str| command.get_opts().any(|option| option.get_long() == Some(name));
            let known: Vec<_> = OPTIONS.into_iter().filter(|(name, _)| has(name)).collect();
            (!known.is_empty()).then(|| (command.get_name().to_owned(), known))
        });
        Self {
            options: options.collect(),
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
        let mut options = String::new();
        for (command, known) in &self.options {
            for (option, what) in known {
                let _ = writeln!(options, "        \"{command} --{option}\") what={what} ;;");
            }
        }
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
    case "${{COMP_WORDS[1]}} $3" in
{options}    esac
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
                "complete -c codemie -n \"{condition}\" -f -a \"(codemie complete {what} --hints 2>/dev/null)\""
            );
        }
        for (command, known) in &self.options {
            for (option, what) in known {
                let _ = writeln!(
                    script,
                    "complete -c codemie -n \"__fish_codemie_using_subcommand {command}\" -l {option} -x -a \"(codemie complete {what} 2>/dev/null)\""
                );
            }
        }
        script
    }
}

/// zsh names the function that completes a word at the end of a line: `':session -- what it is:_default'`,
/// `'--project=[what it is]:PROJECT:_default'`. That function gets arguments for `compadd` before its own. What a word is about
/// stands behind a tab.
fn zsh(script: &str) -> String {
    let mut text = String::new();
    for line in script.lines() {
        let words = [
            ("':session ", "sessions"),
            ("'::session ", "sessions"),
            ("'*::sessions ", "sessions"),
            ("':key ", "settings"),
        ];
        let named = || words.into_iter().find(|(begin, _)| line.starts_with(begin));
        let option = || OPTIONS.into_iter().find(|(name, _)| line.starts_with(&format!("'--{name}=[")));
        let what = named().or_else(option);
        if line.starts_with("_codemie() {") {
            text += ZSH_WORDS;
        }
        match what {
            Some((_, what)) => text += &line.replace(":_default'", &format!(":_codemie_words {what}'")),
            None => text += line,
        }
        text.push('\n');
    }
    text
}

const ZSH_WORDS: &str = r#"_codemie_words() {
    local -a lines words shown
    lines=(${(f)"$(codemie complete ${@[-1]} --hints 2>/dev/null)"})
    words=(${lines%%$'\t'*})
    shown=(${lines//$'\t'/  -- })
    compadd "${@[1,-2]}" -l -d shown -- $words
}

"#;

/// `codemie complete`: recovers and sends nothing, because somebody has pressed a key and waits.
pub fn words(args: &Complete, home: &Home, agents: &[&str], out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let words = match args.what {
        Completable::Settings => {
            KEYS.iter().flat_map(|key| key.names(agents, |_| Vec::new())).map(|name| (name, None)).collect()
        }
        _ if !home.database().exists() => Vec::new(),
        Completable::Sessions => sessions(home)?,
        Completable::Projects => labels(home, Labelled::Project)?,
        Completable::Branches => labels(home, Labelled::Branch)?,
        Completable::Groups => labels(home, Labelled::Group)?,
        Completable::Tags => labels(home, Labelled::Tag)?,
        Completable::Models => labels(home, Labelled::Model)?,
    };
    for (word, hint) in words {
        match hint.filter(|_| args.hints) {
            Some(hint) => writeln!(out, "{}\t{}", clean(&word), shorten(&hint, HINT))?,
            None => writeln!(out, "{}", clean(&word))?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A longer one would be folded by the shell.
const HINT: usize = 50;

/// Words, each with what it is about.
type Words = Vec<(String, Option<String>)>;

fn sessions(home: &Home) -> anyhow::Result<Words> {
    let rows = Store::open(home, SystemClock.now())?
        .read(|view| view.list_first(&SessionQuery::default(), NAMES))?;
    Ok(rows.into_iter().map(|row| (row.name, row.title)).filter(|(name, _)| is_word(name)).collect())
}

fn labels(home: &Home, what: Labelled) -> anyhow::Result<Words> {
    let labels = Store::open(home, SystemClock.now())?.read(|view| view.values_of(what, NAMES))?;
    Ok(labels.into_iter().filter(|label| is_word(label)).map(|label| (label, None)).collect())
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
            options("codemie")
                .starts_with("-h -V --name --tag --group --quiet --proxy --detach --json --help --version")
        );
        assert!(options("codemie__subcmd__run").contains("--name"));
        assert!(!options("codemie__subcmd__claude").contains("--"));
    }

    #[test]
    fn names_are_asked_for_where_a_name_is_wanted() {
        for (shell, wanted) in [
            (
                Shell::Bash,
                "        resume|attach|stop|show|view|send|answer|explain|rename|tag|untag|group) ",
            ),
            (Shell::Bash, "        wait|archive|unarchive|export) "),
            (Shell::Bash, "                get|set|unset) "),
            (Shell::Bash, "complete -F _codemie_words "),
            (Shell::Zsh, ":_codemie_words sessions'"),
            (Shell::Zsh, ":_codemie_words settings'"),
            (Shell::Fish, "-a \"(codemie complete sessions --hints 2>/dev/null)\""),
            (
                Shell::Fish,
                "__fish_codemie_using_subcommand search\" -l project -x -a \"(codemie complete projects ",
            ),
            (Shell::Bash, "        \"list --branch\") what=branches ;;"),
            (Shell::Zsh, ":PROJECT:_codemie_words projects'"),
            (Shell::Fish, "and __fish_seen_subcommand_from get set unset"),
        ] {
            assert!(of(shell).contains(wanted), "{shell} {wanted}\n{}", of(shell));
        }
    }
}

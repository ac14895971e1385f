//! What the user's own shell would run for an agent's name, its start-up files read: PATH there may be another, and an
//! alias or a function may stand before PATH.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::agents::{Answer, ask};
use super::{Finding, Machine};

/// How a shell is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As by a login: nothing of our environment but who the user is.
    Login,
    /// As a new window or tab inside this session.
    Interactive,
}

impl Mode {
    /// A shell that is started so, in words.
    pub fn of(self, shell: &str) -> String {
        format!("{} ({shell})", self.name())
    }

    fn name(self) -> &'static str {
        match self {
            Self::Login => "login shell",
            Self::Interactive => "interactive shell",
        }
    }
}

/// What a shell says a name is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    File(PathBuf),
    Alias(String),
    Function,
    Nothing,
}

/// The answer of one shell in one mode.
#[derive(Debug)]
pub struct ShellAnswer {
    pub shell: String,
    pub mode: Mode,
    /// For each agent, in order; or why there is no answer.
    pub meanings: Result<Vec<Meaning>, Finding>,
}

/// Start-up files print what they like; this marks the answer.
const MARK: &str = "codemie-doctor-answer:";

/// What a login keeps; everything else comes from the start-up files.
const KEPT_BY_LOGIN: [&str; 11] = [
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "CODEMIE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
];

/// What login(1) starts with.
const LOGIN_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// `None` when `$SHELL` is not set or no shell we know how to ask.
pub fn interview(machine: &Machine<'_>, mode: Mode) -> Option<ShellAnswer> {
    let shell = machine.shell.as_deref()?;
    let name = Path::new(shell).file_name()?.to_str()?.to_owned();
    let script = question(&name, machine.agents)?;
    let flags = match mode {
        Mode::Login => "-lic",
        Mode::Interactive => "-ic",
    };
    // In a session of its own: an interactive shell that finds a terminal it is not in the foreground of stops itself.
    let mut command = Command::new(&machine.codemie);
    command.args([OsStr::new("doctor"), OsStr::new("--in-own-session"), shell]).arg(flags).arg(script);
    if mode == Mode::Login {
        command.env_clear().env("PATH", LOGIN_PATH);
        command.envs(KEPT_BY_LOGIN.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    }
    let area = "shell";
    let meanings = match ask(&mut command, machine.timeout) {
        Answer::Given { stdout, .. } => read(&stdout, machine.agents).ok_or_else(|| {
            Finding::warn(
                area,
                format!("the {} ({name}) did not answer", mode.name()),
                format!("run `{name} {flags} true` and see what its start-up files do"),
            )
        }),
        Answer::TimedOut => Err(Finding::warn(
            area,
            format!("the {} ({name}) did not start within {} s", mode.name(), machine.timeout.as_secs()),
            format!(
                "run `{name} {flags} true </dev/null` and see which start-up file waits, or give --timeout"
            ),
        )),
        Answer::NotStarted(error) => Err(Finding::warn(
            area,
            format!("{} cannot be started: {error}", shell.display()),
            "set SHELL to your shell",
        )),
    };
    Some(ShellAnswer { shell: name, mode, meanings })
}

/// The script that makes the shell say what each name is. `None` for a shell we cannot speak to.
fn question(shell: &str, agents: &[&str]) -> Option<String> {
    let each = |agent: &&str| match shell {
        // To fish a word with an empty list in it is no word at all, hence the empty line.
        "fish" => Some(format!(
            "if functions -q {agent}; echo {MARK}{agent}; else; echo {MARK}(command -v {agent}; or echo); end"
        )),
        "bash" | "zsh" | "sh" | "dash" | "ksh" | "mksh" | "ash" => {
            Some(format!("printf '%s\\n' \"{MARK}$(command -v {agent})\""))
        }
        _ => None,
    };
    agents.iter().map(each).collect::<Option<Vec<_>>>().map(|lines| lines.join("\n"))
}

fn read(output: &str, agents: &[&str]) -> Option<Vec<Meaning>> {
    let answers: Vec<&str> = output.lines().filter_map(|line| Some(line.split_once(MARK)?.1)).collect();
    if answers.len() != agents.len() {
        return None;
    }
    Some(answers.into_iter().map(meaning).collect())
}

/// `command -v` prints a path, an alias as it would be defined, or a bare name for a function.
fn meaning(answer: &str) -> Meaning {
    let answer = answer.trim();
    if answer.is_empty() {
        Meaning::Nothing
    } else if let Some(alias) = answer.strip_prefix("alias ") {
        let text = alias.split_once('=').map_or(alias, |(_, text)| text);
        Meaning::Alias(text.trim_matches(['\'', '"']).to_owned())
    } else if answer.contains('/') {
        Meaning::File(answer.into())
    } else {
        Meaning::Function
    }
}

/// What to do so that `shell` finds the shims first.
pub fn set_up(shell: &str) -> String {
    match shell {
        "fish" => "end ~/.config/fish/config.fish with: codemie init fish | source".to_owned(),
        "zsh" => "end ~/.zshrc with: eval \"$(codemie init zsh)\"".to_owned(),
        "bash" => "end ~/.bashrc with: eval \"$(codemie init bash)\"".to_owned(),
        _ => "end ~/.profile with: eval \"$(codemie init bash --path-only)\"".to_owned(),
    }
}

/// Judges the answer of one shell about one agent. `wrapped`: whether a path is codemie.
pub fn judge(
    agent: &str,
    shell: &str,
    mode: Mode,
    meaning: &Meaning,
    wrapped: impl Fn(&Path) -> bool,
) -> Option<Finding> {
    let who = mode.of(shell);
    Some(match meaning {
        Meaning::Nothing => return None,
        Meaning::File(path) if wrapped(path) => {
            Finding::ok(agent, format!("{who} runs codemie ({})", path.display()))
        }
        Meaning::File(path) => Finding::warn(
            agent,
            format!("{who} runs {} without codemie", path.display()),
            format!("{}; then open a new shell, or run `hash -r` in this one", set_up(shell)),
        ),
        Meaning::Alias(text) if text.split_whitespace().any(|word| word.ends_with("codemie")) => {
            Finding::ok(agent, format!("{who} runs codemie by an alias ({text})"))
        }
        Meaning::Alias(text) => Finding::warn(
            agent,
            format!("{who} has an alias in front of codemie: {text}"),
            format!(
                "remove the alias from the shell's start-up file; if only it knows where {agent} is, \
                 run: codemie config set agent.{agent}.path PATH"
            ),
        ),
        Meaning::Function => Finding::warn(
            agent,
            format!("{who} has a function {agent} in front of codemie"),
            format!("remove the function, or let it call: codemie {agent}"),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn answers_of_all_shells_are_parsed() {
        let cases = [
            ("/usr/bin/claude", Meaning::File("/usr/bin/claude".into())),
            ("alias claude='~/.claude/local/claude'", Meaning::Alias("~/.claude/local/claude".into())), // bash, dash
            ("alias claude=codemie", Meaning::Alias("codemie".into())),                                 // zsh
            ("claude", Meaning::Function),
            ("", Meaning::Nothing),
        ];
        for (answer, expected) in cases {
            assert_eq!(meaning(answer), expected, "{answer}");
        }
    }

    #[test]
    fn output_of_start_up_files_is_ignored() {
        let output = format!("Welcome back\n\x1b[1m{MARK}/a/claude\nfortune: {MARK}\nbye\n");
        assert_eq!(
            read(&output, &["claude", "codex"]),
            Some(vec![Meaning::File("/a/claude".into()), Meaning::Nothing])
        );
        assert_eq!(read("Welcome back\n", &["claude"]), None);
    }

    #[test]
    fn only_an_agent_that_runs_codemie_is_fine() {
        let cases = [
            (Meaning::File("/shims/claude".into()), Some(Level::Ok)),
            (Meaning::File("/usr/bin/claude".into()), Some(Level::Warn)),
            (Meaning::Alias("codemie claude".into()), Some(Level::Ok)),
            (Meaning::Alias("/opt/bin/codemie claude".into()), Some(Level::Ok)),
            (Meaning::Alias("~/.claude/local/claude".into()), Some(Level::Warn)),
            (Meaning::Function, Some(Level::Warn)),
            (Meaning::Nothing, None),
        ];
        for (meaning, level) in cases {
            let finding = judge("claude", "bash", Mode::Login, &meaning, |path| path.starts_with("/shims"));
            assert_eq!(finding.as_ref().map(|finding| finding.level), level, "{meaning:?}");
            assert!(finding.is_none_or(|finding| (finding.level == Level::Ok) == finding.fix.is_none()));
        }
    }
}

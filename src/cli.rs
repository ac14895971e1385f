//! The command line: every clap struct, and the split between codemie's own options and what belongs to the agent.

mod budget;
mod overview;
mod services;
mod sessions;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, Styles, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, FromArgMatches, Parser, Subcommand, ValueEnum};

use agents::registry;
pub use budget::{Budget, BudgetAction, Prices};
use format::output::Colour;
use format::shell;
use format::since::length;
use mcp::Scope;
pub use runtime::launch::LaunchTarget;
use runtime::shim::install::Shell;
pub use services::{Backend, BackendAction, Serve, Store as BackendStore, TokenAction};
pub use services::{Proxy, ProxyAction, ProxyServe};
pub use services::{Sync, SyncAction};
pub use sessions::{
    Answer, Archive, Attach, Current, Explain, Export, Group, Import, ImportFound, Limits, List, Prune,
    Rename, Resume, Search, Send, Show, StatusName, Statusline, Stop, Tags, Usage, View, Wait,
};
use store::session::names;
use types::SessionId;

/// The forms of a command line. Lines of a run are split before clap sees them ([`split`]), so clap cannot make this text.
const LINES: &str = "codemie [--name N] [--tag T]… [--group G] [--quiet] [--proxy] [--detach] AGENT [ARGS…]
       codemie run [OPTIONS] -- PROGRAM [ARGS…]
       codemie COMMAND";

/// What can be typed in `codemie top`.
const TOP_KEYS: &str = "Keys: up and down (or k and j) choose a session, Enter shows its conversation or screen, a attaches to one in the background, \
                        m sends it a text, s stops it after a question, / filters, d opens the dashboard, ? shows all keys, q leaves. Without a \
                        terminal `codemie list --active` prints what runs.";

/// Help in the colours of everything else; clap leaves them out where they are not wanted.
const STYLES: Styles = Styles::plain()
    .header(Colour::Heading.ansi())
    .usage(Colour::Heading.ansi())
    .literal(Colour::Note.ansi())
    .placeholder(Colour::Faint.ansi())
    .error(Colour::Bad.ansi())
    .invalid(Colour::Warning.ansi())
    .valid(Colour::Good.ansi());

/// Runs coding agents and knows what happened in each session.
#[derive(Debug, Parser)]
#[command(name = "codemie", version, about, disable_help_subcommand = true, arg_required_else_help = true, styles = STYLES)]
#[command(
    override_usage = LINES,
    after_help = "Everything after the agent's name belongs to the agent; codemie's own options stand before it."
)]
pub struct Cli {
    #[command(flatten)]
    pub options: RunOptions,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an agent by name, or any other program after `--`
    Run(Run),
    /// Continue a session's conversation, in its own folder
    Resume(Resume),
    /// Show a background session in this terminal and type into it
    Attach(Attach),
    /// End a session: its agent and everything that the agent started
    Stop(Stop),
    /// List sessions, the last used first
    List(List),
    /// Watch what runs now, live, on the whole terminal
    #[command(after_help = TOP_KEYS)]
    Top,
    /// Find words in every conversation on this machine, wrapped or not
    Search(Search),
    /// Show one session: what it was, what came before and after, what it cost
    Show(Show),
    /// Read a session's conversation
    View(View),
    /// Type a text into a background session, and say what became of it
    Send(Send),
    /// Answer the dialog that is on a background session's screen: a permission, a question
    Answer(Answer),
    /// Wait until a session's turn ends, it needs input, or it ends
    Wait(Wait),
    /// Show which evidence bound a session to a conversation, and what was rejected
    Explain(Explain),
    /// Show the session that this process runs in
    Current(Current),
    /// Rename a session
    Rename(Rename),
    /// Add tags to a session
    Tag(Tags),
    /// Remove tags from a session
    Untag(Tags),
    /// Put a session into a group
    Group(Group),
    /// Hide sessions from the list
    Archive(Archive),
    /// Put sessions back into the list
    Unarchive(Archive),
    /// Remove sessions that ended long ago
    Prune(Prune),
    /// Write sessions to a file that another machine can import
    Export(Export),
    /// Import exported sessions, or those of an old store
    Import(Import),
    /// Show tokens and cost by hour, day, week, month, session, model, project and more
    Usage(Usage),
    /// Set amounts to keep to, per session, day, week or month, and show how much of them is spent
    Budget(Budget),
    /// Show what models cost, and what prices of your own were used for
    Prices(Prices),
    /// Show the running five-hour window and the week: what is used, and where it will end
    Limits(Limits),
    /// Print a trailer for a commit message: what was spent here since the last commit
    CommitNote,
    /// Print one line for Claude Code's status line
    Statusline(Statusline),
    /// Run the metrics backend: receive events from any number of machines and show them
    Backend(Backend),
    /// Count the calls of editors and desktop apps: the API proxy on its own
    Proxy(Proxy),
    /// Send pending events now, or show what is pending
    Sync(Sync),
    /// Install shims on PATH, so that an agent called by its own name is wrapped
    Shim(Shim),
    /// Print what a shell needs at its start: PATH, aliases, completions
    Init(Init),
    /// Open sessions, cost and delivery in the browser
    Dashboard(Dashboard),
    /// Serve sessions as tools for agents (MCP) on standard input and output
    Mcp(Mcp),
    /// Check the set-up and say how to fix what is wrong
    Doctor(Doctor),
    /// Read and change settings
    Config(Config),
    /// Print the completion script of a shell
    Completions(Completions),
    /// Show codemie at work on a scripted agent: a /clear, and what was recorded
    Demo(Demo),
    /// Show the help of a command
    Help(Help),
    /// Words for the completion of a shell, one a line
    #[command(hide = true)]
    Complete(Complete),
    /// Finishes sending what a run or a command left
    #[command(hide = true)]
    Deliver,
    /// Takes in old stores that were found where an agent was started
    #[command(hide = true)]
    ImportFound(ImportFound),
    /// Holds a proxy's listener, and starts its worker again when that dies
    #[command(hide = true)]
    ProxyKeeper,
    /// Passes the calls of a proxied agent on
    #[command(hide = true)]
    ProxyWorker,
    /// The scripted agent of the demonstration
    #[command(hide = true)]
    DemoAgent(DemoAgent),
    /// The backend of the demonstration
    #[command(hide = true)]
    DemoBackend(DemoBackend),
}

/// For help, completions and error messages only: a valid line of a run is split before clap sees it.
#[derive(Debug, Args)]
#[command(
    override_usage = "codemie run [OPTIONS] AGENT [ARGS…]\n       codemie run [OPTIONS] -- PROGRAM [ARGS…]"
)]
pub struct Run {
    #[command(flatten)]
    pub options: RunOptions,
    #[arg(trailing_var_arg = true, value_name = "AGENT", help_heading = "Arguments", help = run_help())]
    pub args: Vec<OsString>,
}

fn run_help() -> String {
    let names = registry::names().join(", ");
    format!("An agent ({names}) and its arguments, or `--` and any other program with its own")
}

#[derive(Debug, Args)]
pub struct Help {
    /// The command; without it all are listed
    #[arg(value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Complete {
    pub what: Completable,
    /// With what each is about, behind a tab
    #[arg(long)]
    pub hints: bool,
}

/// Words that only the store and the settings know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Completable {
    Sessions,
    Settings,
    Projects,
    Branches,
    Groups,
    Tags,
    Models,
}

/// codemie's own options of a run.
#[derive(Clone, Debug, Default, Args, PartialEq, Eq)]
#[command(next_help_heading = "Options of a run, before the agent's name")]
pub struct RunOptions {
    /// Name of the session; by default agent and time
    #[arg(long, value_name = "NAME", value_parser = checked(names::check))]
    pub name: Option<String>,
    /// A tag to find it by; may be given several times
    #[arg(long, value_name = "TAG", value_parser = checked(names::check_tag))]
    pub tag: Vec<String>,
    /// The group to put it in
    #[arg(long, value_name = "GROUP", value_parser = checked(names::check_group))]
    pub group: Option<String>,
    /// Print nothing after the agent has ended: no time, tokens, cost (at list price)
    #[arg(long)]
    pub quiet: bool,
    /// Send its calls through the proxy: every one is counted, also those that no session file shows
    #[arg(long)]
    pub proxy: bool,
    /// Run it in the background and print the session's id; `codemie attach` connects to it
    #[arg(long)]
    pub detach: bool,
    /// With --detach: print the id as JSON, with a cursor for `codemie wait`
    #[arg(long, requires = "detach")]
    pub json: bool,
    /// The id of the session, chosen by the caller
    #[arg(long, hide = true, requires = "detach", value_name = "ID")]
    pub session: Option<SessionId>,
    /// `codemie mcp` starts it: it ends when nobody needs it any more
    #[arg(long, hide = true, requires = "detach")]
    pub through_mcp: bool,
}

/// How long something may take; a bare number is seconds.
fn time(text: &str) -> Result<Duration, String> {
    let seconds = || text.bytes().all(|byte| byte.is_ascii_digit()).then(|| length(&format!("{text}s")))?;
    length(text).or_else(seconds).ok_or_else(|| "write it like 30s, 500ms or 2m".to_owned())
}

/// One of a few words: each with the value that it stands for, and its help or nothing.
fn one_of<T: Copy + std::marker::Send + std::marker::Sync + 'static>(
    words: impl IntoIterator<Item = (&'static str, T, &'static str)>,
) -> impl TypedValueParser<Value = T> {
    let words: Vec<_> = words.into_iter().collect();
    let shown = |&(word, _, help): &(&'static str, T, &'static str)| {
        let value = PossibleValue::new(word);
        if help.is_empty() { value } else { value.help(help) }
    };
    let parser = PossibleValuesParser::new(words.iter().map(shown));
    parser.try_map(move |given| {
        let meant = words.iter().find(|(word, ..)| *word == given);
        meant.map(|&(_, value, _)| value).ok_or("not one of the words")
    })
}

/// What the store would refuse is refused before the agent starts.
fn checked(
    check: fn(&str) -> Result<&str, names::NameError>,
) -> impl Fn(&str) -> Result<String, names::NameError> + Clone {
    move |text| check(text).map(str::to_owned)
}

#[derive(Debug, Args)]
pub struct Shim {
    #[command(subcommand)]
    pub action: ShimAction,
}

#[derive(Debug, Subcommand)]
pub enum ShimAction {
    /// Put a symlink per agent into $CODEMIE_HOME/shims
    Install,
    /// Remove those symlinks, and nothing else
    Uninstall,
    /// Show for each agent whether its shim is there and comes first on PATH
    Status {
        /// Print JSON, for scripts
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub struct Init {
    /// The shell to print it for
    #[arg(value_parser = init_shell())]
    pub shell: Shell,
    /// Only the lines that set PATH, no aliases and no completions
    #[arg(long)]
    pub path_only: bool,
}

fn init_shell() -> impl TypedValueParser<Value = Shell> {
    one_of([("bash", Shell::Bash, ""), ("zsh", Shell::Zsh, ""), ("fish", Shell::Fish, "")])
}

#[derive(Debug, Args)]
pub struct Dashboard {
    /// Only print the address, open no browser
    #[arg(long)]
    pub no_open: bool,
    /// Port of loopback to serve on; by default always the same one, if it is free
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
}

#[derive(Debug, Args)]
pub struct Mcp {
    /// The most that a caller may see and do; calls can narrow it
    #[arg(long, value_enum, default_value_t)]
    pub scope: Scope,
    /// Add the tools of another server under their names there: run, resume, view, stop
    #[arg(long, value_enum)]
    pub compat: Option<McpCompat>,
}

/// Other servers whose tools' names are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum McpCompat {
    Genie,
}

#[derive(Debug, Args)]
pub struct Doctor {
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
    /// How long a shell or an agent may take to answer
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = time)]
    pub timeout: Duration,
    /// Become the leader of a session without a terminal, then exec COMMAND (how the doctor asks interactive shells)
    #[arg(long, hide = true, num_args = 1.., allow_hyphen_values = true, value_name = "COMMAND")]
    pub in_own_session: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Config {
    /// Without it every setting is shown
    #[command(subcommand)]
    pub action: Option<ConfigAction>,
}

#[derive(Debug, Subcommand)]
pub enum ConfigAction {
    /// Print where the file is
    Path,
    /// Show every setting, its value, where that comes from and what it is for
    Show {
        /// Print JSON, for scripts
        #[arg(long)]
        json: bool,
    },
    /// Print one setting's value
    Get {
        /// Its name, as `codemie config show` lists it
        key: String,
    },
    /// Write a setting to the file
    Set {
        /// Its name, as `codemie config show` lists it
        key: String,
        /// Its new value; nothing ("") removes it from the file
        value: String,
    },
    /// Remove a setting from the file, so that its default applies
    Unset {
        /// Its name, as `codemie config show` lists it
        key: String,
    },
}

#[derive(Debug, Args)]
pub struct Completions {
    /// The shell to print it for
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub struct Demo {
    /// Print only what was recorded, without the agent at work and the next steps
    #[arg(long)]
    pub quiet: bool,
    /// Open the dashboard in the browser at the end
    #[arg(long)]
    pub open: bool,
    /// Take the terminal on standard input and record this session (how the demonstration runs without a terminal)
    #[arg(long, hide = true, value_name = "SESSION")]
    pub in_own_terminal: Option<SessionId>,
}

#[derive(Debug, Args)]
pub struct DemoBackend {
    /// What its note is called
    pub nonce: String,
}

#[derive(Debug, Args)]
pub struct DemoAgent {
    /// The id of its first conversation
    #[arg(long, value_name = "ID")]
    pub session_id: String,
    /// Waste no time: nobody watches
    #[arg(long)]
    pub swift: bool,
}

/// What a command line asks for.
#[derive(Debug)]
pub enum CommandLine {
    Run { options: RunOptions, target: LaunchTarget, args: Vec<OsString> },
    Manage(Command),
}

/// A command line that cannot be obeyed, or only asked for help: the text, and the exit code.
#[derive(Debug)]
pub struct Refusal {
    pub text: clap::error::Error,
    pub code: u8,
}

impl Refusal {
    /// clap repeats what was typed as it is, and on a terminal that takes colours a sequence in it would be obeyed.
    pub fn print(&self) -> std::io::Result<()> {
        if std::env::args_os().skip(1).all(|arg| is_harmless(&arg.to_string_lossy())) {
            return self.text.print();
        }
        let text = self.in_plain_words();
        if self.text.use_stderr() {
            std::io::stderr().write_all(text.as_bytes())
        } else {
            std::io::stdout().write_all(text.as_bytes())
        }
    }

    fn in_plain_words(&self) -> String {
        format::text::clean_lines(&self.text.render().to_string()).into_owned()
    }
}

fn is_harmless(text: &str) -> bool {
    !text.chars().any(format::text::is_harmful)
}

/// Usage errors before an agent started, as `env` and `nohup` have it.
const RUN_USAGE: u8 = 125;
const USAGE: u8 = 2;

/// Options before the agent's name that take a value in the next argument.
const WITH_VALUE: [&str; 4] = ["--name", "--tag", "--group", "--session"];

/// Reads the arguments after our own name. What belongs to the agent is never looked at.
pub fn parse(mut args: Vec<OsString>) -> Result<CommandLine, Refusal> {
    if let Some(command) = attachment(&args) {
        return Ok(CommandLine::Manage(command));
    }
    if let Some(Split { own, target, rest }) = split(&args) {
        let options = own_options(&args[..own])?;
        return Ok(CommandLine::Run { options, target, args: args.split_off(rest) });
    }
    // A line that begins with an option, or with `run`, was meant to run something.
    let runs = args.first().is_some_and(|first| is_option(first) || first == "run");
    let code = if runs { RUN_USAGE } else { USAGE };
    if args.is_empty() {
        return Err(overview::short());
    }
    let cli = by_clap(&args).map_err(|text| match text.kind() {
        ErrorKind::MissingSubcommand => refusal(RUN_USAGE, &missing()),
        _ => Refusal { code: usage_code(&text, code), text },
    })?;
    match cli.command {
        Command::Help(Help { command }) => Err(help(&command)),
        Command::Run(Run { args, .. }) => Err(match args.first() {
            Some(program) => {
                let name = program.to_string_lossy();
                refusal(
                    RUN_USAGE,
                    &format!(
                        "{name} is no agent; any other program stands after --: codemie run -- {}",
                        shell::word(&name)
                    ),
                )
            }
            None => refusal(RUN_USAGE, &missing()),
        }),
        _ if cli.options != RunOptions::default() => Err(refusal(
            RUN_USAGE,
            "--name, --tag, --group, --quiet and --detach belong to a run; an agent's name follows them",
        )),
        command => Ok(CommandLine::Manage(command)),
    }
}

/// `attach NAME`, without clap: building its whole tree of commands takes longer than the host takes to draw the screen (0.4 of
/// 3.3 ms were measured), and somebody waits for that screen.
fn attachment(args: &[OsString]) -> Option<Command> {
    let [verb, session] = args else { return None };
    let session = session.to_str().filter(|session| !session.starts_with('-') && !session.is_empty())?;
    (verb == "attach").then(|| Command::Attach(Attach { session: session.to_owned(), read_only: false }))
}

fn missing() -> String {
    let names = match registry::names() {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        names => names.concat(),
    };
    format!("which agent? Its name is missing: {names} (or run, -- and any other program)")
}

/// The whole command line as clap knows it. The agents stand in it only for help and completions: a line that names one
/// is split before clap sees it ([`split`]), and takes none of our options after the name.
fn command() -> clap::Command {
    let agents = registry::AGENTS.iter().map(|agent| {
        let own = clap::Arg::new("args").help("The agent's own").value_parser(clap::value_parser!(OsString));
        let own = own.num_args(0..).action(clap::ArgAction::Append);
        clap::Command::new(agent.name())
            .about(format!("Run {}", agent.product()))
            .disable_help_flag(true)
            .arg(own.trailing_var_arg(true).allow_hyphen_values(true))
    });
    let command = Cli::augment_args(clap::Command::new("codemie").subcommands(agents));
    let template = overview::template(&command);
    command.help_template(template)
}

fn by_clap(args: &[OsString]) -> Result<Cli, clap::Error> {
    let line = std::iter::once(OsString::from("codemie")).chain(args.iter().cloned());
    let mut command = command();
    let parsed = command.try_get_matches_from_mut(line).and_then(|matches| match matches.subcommand_name() {
        Some(name) if registry::called(name).is_some() => Err(clap::Error::new(ErrorKind::MissingSubcommand)),
        _ => Cli::from_arg_matches(&matches),
    });
    parsed.map_err(|error| {
        let mut error = error.with_cmd(&command);
        // clap suggests hidden commands as well.
        if let Some(ContextValue::Strings(offered)) = error.remove(ContextKind::SuggestedSubcommand) {
            let shown =
                |name: &String| !command.find_subcommand(name).is_some_and(clap::Command::is_hide_set);
            let offered: Vec<String> = offered.into_iter().filter(shown).collect();
            if !offered.is_empty() {
                error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(offered));
            }
        }
        error
    })
}

fn refusal(code: u8, message: &str) -> Refusal {
    Refusal { text: command().error(ErrorKind::MissingRequiredArgument, message), code }
}

/// What `codemie help COMMAND` says: the same as `codemie COMMAND --help`, but of the agents, whose `--help` is their own.
fn help(command: &[OsString]) -> Refusal {
    let agent = command.first().and_then(|name| name.to_str()).and_then(registry::called);
    let of = if agent.is_some() { &[OsString::from("run")][..] } else { command };
    let line: Vec<OsString> = of.iter().cloned().chain([OsString::from("--help")]).collect();
    match by_clap(&line) {
        Err(text) => Refusal { code: usage_code(&text, USAGE), text },
        Ok(_) => refusal(USAGE, "there is no such command; codemie --help lists them"),
    }
}

/// The command line without hidden commands and options, from which completions are made.
pub fn visible() -> clap::Command {
    fn shown(command: &clap::Command) -> clap::Command {
        let about = command.get_about().cloned().unwrap_or_default();
        clap::Command::new(command.get_name().to_owned())
            .about(about)
            .disable_help_flag(command.is_disable_help_flag_set())
            .disable_help_subcommand(true)
            .allow_missing_positional(command.is_allow_missing_positional_set())
            .args(command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned())
            .subcommands(command.get_subcommands().filter(|command| !command.is_hide_set()).map(shown))
    }
    shown(&command()).version(env!("CARGO_PKG_VERSION"))
}

/// Help and version are no errors.
fn usage_code(error: &clap::Error, otherwise: u8) -> u8 {
    if error.use_stderr() { otherwise } else { 0 }
}

struct Split {
    /// Options of ours stand before this index, with `run` perhaps among them.
    own: usize,
    target: LaunchTarget,
    /// From here on everything is the agent's.
    rest: usize,
}

/// Finds the agent or command on the line without interpreting anything after it.
fn split(args: &[OsString]) -> Option<Split> {
    let mut at = 0;
    let mut by_verb = false;
    while let Some(arg) = args.get(at) {
        if arg == "run" && !by_verb {
            by_verb = true;
        } else if arg == "--" && by_verb {
            let command = args.get(at + 1)?;
            return Some(Split { own: at, target: LaunchTarget::Command(command.clone()), rest: at + 2 });
        } else if let Some(agent) = arg.to_str().and_then(registry::called) {
            return Some(Split { own: at, target: LaunchTarget::Agent(agent), rest: at + 1 });
        } else if !is_option(arg) {
            return None;
        } else if WITH_VALUE.iter().any(|option| arg == option) {
            at += 1;
        }
        at += 1;
    }
    None
}

fn is_option(arg: &OsStr) -> bool {
    arg.as_encoded_bytes().starts_with(b"-") && arg != "--" && arg != "-"
}

fn own_options(own: &[OsString]) -> Result<RunOptions, Refusal> {
    let mut options = own.iter().filter(|arg| *arg != "run").peekable();
    if options.peek().is_none() {
        return Ok(RunOptions::default()); // the usual case does not build clap's tables
    }
    let command = clap::Command::new("codemie").styles(STYLES).no_binary_name(true).override_usage(LINES);
    let command = RunOptions::augment_args(command.version(env!("CARGO_PKG_VERSION")));
    let parsed =
        command.try_get_matches_from(options).and_then(|matches| RunOptions::from_arg_matches(&matches));
    parsed.map_err(|text| match text.kind() {
        ErrorKind::DisplayHelp => help(&[]),
        _ => Refusal { code: usage_code(&text, RUN_USAGE), text },
    })
}

#[cfg(test)]
mod tests;

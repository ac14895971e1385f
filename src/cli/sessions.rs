//! The options of the commands about sessions that exist already.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};

use super::time;
use crate::agent::Agent;
use crate::demo::Demo;
use crate::launch::conflict::OnConflict;
use crate::live::events::Cursor;
use crate::registry;
use human::since::Since;

/// Any name: other programs have sessions, too. Completions offer the agents, and no files.
#[derive(Clone)]
struct AgentName;

impl TypedValueParser for AgentName {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let demo: &dyn Agent = &Demo;
        Some(Box::new(
            registry::AGENTS.iter().copied().chain([demo]).map(|agent| PossibleValue::new(agent.name())),
        ))
    }
}

#[derive(Debug, Default, Args)]
pub struct List {
    /// Include archived sessions
    #[arg(long, conflicts_with = "active")]
    pub all: bool,
    /// Only sessions running now
    #[arg(long)]
    pub active: bool,
    /// Only of this agent
    #[arg(long, value_name = "AGENT", value_parser = AgentName, hide_possible_values = true)]
    pub agent: Option<String>,
    /// Only of this project: a folder's name or path, or owner/name of the repository
    #[arg(long, value_name = "PROJECT")]
    pub project: Option<String>,
    /// Only with this tag
    #[arg(long, value_name = "TAG")]
    pub tag: Option<String>,
    /// Only in this group
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Only sessions open since then: 30m, 12h, 7d, today, yesterday, or a date like 2026-11-01
    #[arg(long, value_name = "TIME")]
    pub since: Option<Since>,
    /// At most this many, 0 for all; by default as many as fit the terminal, or all without one
    #[arg(short = 'n', long, value_name = "NUMBER")]
    pub limit: Option<usize>,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Ctrl-\\ and then d leaves the session running; the setting attach.detachKeys names other keys. The first of them pressed twice reaches the session once."
)]
pub struct Attach {
    /// Session id, name, the agent's session id, or the beginning of an id
    pub session: String,
    /// Look on, and type nothing
    #[arg(long)]
    pub read_only: bool,
}

#[derive(Debug, Args)]
pub struct Show {
    /// Session id, name, the agent's session id, or the beginning of an id
    pub session: String,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct View {
    /// Session id, name, the agent's session id, or the beginning of an id
    pub session: String,
    /// At most this much text: the end of the conversation, or what follows --since
    #[arg(long, value_name = "BYTES", default_value_t = 49_152)]
    pub tail_bytes: usize,
    /// Begin after this cursor of an earlier page; `start` begins at the beginning
    #[arg(long, value_name = "CURSOR")]
    pub since: Option<String>,
    /// Keep printing until the session ends
    #[arg(long)]
    pub follow: bool,
    /// Print JSON, one object per page; with --follow one line each
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The text is typed into the agent's composer once the agent is ready, and Enter is pressed. The answer says what \
                  became of it: accepted, queued (the agent is busy), turn_started (it stands in the conversation), rejected \
                  (exit code 1) or unknown (5). Nothing is typed twice."
)]
pub struct Send {
    /// Session id, name, the agent's session id, or the beginning of an id
    pub session: String,
    /// What to send; - reads it from standard input
    #[arg(allow_hyphen_values = true)]
    pub text: String,
    /// A name for this text: asked again with the same one within 24 hours, it is not typed again
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// How long to wait for the agent to take it
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = super::time)]
    pub timeout: Duration,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Of several sessions the first one that has something is printed. When the time is up it prints `pending` and a \
                  cursor (exit code 5); --cursor goes on from there, also after a restart or a /clear. Without a cursor, what \
                  holds already counts: an agent that is idle after a turn, a question that stands there, a session that has \
                  ended."
)]
pub struct Wait {
    /// Session id, name, the agent's session id, or the beginning of an id
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// What to wait for, several separated by commas; by default any of them. The session's end always ends it
    #[arg(long, value_delimiter = ',', value_name = "MOMENT")]
    pub until: Vec<Moment>,
    /// How long to wait
    #[arg(long, default_value = "50s", value_name = "TIME", value_parser = super::time)]
    pub timeout: Duration,
    /// Only what came after this: what an earlier `wait` or `send` printed
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<Cursor>,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

/// What can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Moment {
    /// The agent has finished its turn
    TurnEnd,
    /// It asks something: a permission, a question, a dialog
    NeedsInput,
    /// The session has ended
    Exit,
}

impl From<Moment> for wire::Moment {
    fn from(moment: Moment) -> Self {
        match moment {
            Moment::TurnEnd => Self::TurnEnd,
            Moment::NeedsInput => Self::NeedsInput,
            Moment::Exit => Self::Exit,
        }
    }
}

#[derive(Debug, Args)]
pub struct Explain {
    /// Session id, name, the agent's session id, or the beginning of an id
    pub session: String,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Current {
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Rename {
    /// Session id, name, the agent's session id, or the beginning of an id
    pub session: String,
    /// Its new name
    pub name: String,
}

#[derive(Debug, Args)]
pub struct Tags {
    /// Session id, name, the agent's session id, or the beginning of an id
    pub session: String,
    /// Tags to find it by
    #[arg(required = true, value_name = "TAG")]
    pub tags: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Group {
    /// Session id, name, the agent's session id, or the beginning of an id
    pub session: String,
    /// The group to put it in; --none takes it out
    #[arg(required_unless_present = "none")]
    pub group: Option<String>,
    /// Take it out of its group
    #[arg(long, conflicts_with = "group")]
    pub none: bool,
}

#[derive(Debug, Args)]
pub struct Archive {
    /// Session id, name, the agent's session id, or the beginning of an id
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Their tokens and cost stay in `codemie usage`; everything else about them is deleted. On a terminal it \
                  shows them and asks first; without one, or with --json, it removes them at once."
)]
pub struct Prune {
    /// Sessions that ended before then: 90d, 2w, or a date like 2026-11-01
    #[arg(long, value_name = "TIME")]
    pub older_than: Option<Since>,
    /// Only of this agent; those of `demo`, the demonstration, are removed whatever their age
    #[arg(long, value_name = "AGENT", value_parser = AgentName, hide_possible_values = true)]
    pub agent: Option<String>,
    /// Only show what would be removed
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Export {
    /// Session id, name, the agent's session id, or the beginning of an id
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// Write to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Import {
    /// What `codemie export` wrote, or a file or folder of an old store
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ImportFound {
    /// Where the agent was started
    pub folder: PathBuf,
}

#[derive(Debug, Args)]
pub struct Usage {
    /// What each line adds up
    #[arg(long, value_enum, value_name = "KEY", default_value = "day")]
    pub by: UsageBy,
    /// Only calls since then: 30m, 12h, 7d, today, yesterday, or a date like 2026-11-01
    #[arg(long, value_name = "TIME")]
    pub since: Option<Since>,
    /// Read all session files of the agents on this machine, wrapped or not
    #[arg(long)]
    pub scan: bool,
    /// Print JSON, for scripts
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print CSV; a text that a spreadsheet would take for a formula begins with an apostrophe
    #[arg(long)]
    pub csv: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UsageBy {
    Day,
    Session,
    Model,
    Project,
    Agent,
    Branch,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Everything that the session's host or wrapper started is ended, but for daemons that an agent shares between its \
                  sessions. --all-mine means every session that runs now, was started by you (the user you are logged in as) with \
                  this home of codemie's, and can be seen from here; the session this command runs in comes last."
)]
pub struct Stop {
    /// Session id, name, the agent's session id, or the beginning of an id
    #[arg(required_unless_present = "all_mine")]
    pub session: Option<String>,
    /// Stop every running session of yours
    #[arg(long, conflicts_with = "session")]
    pub all_mine: bool,
    /// How long its processes may take to end by themselves, before they are killed
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = time)]
    pub grace: Duration,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Resume {
    /// Session id, name, the agent's session id, or the beginning of an id
    #[arg(value_name = "SESSION")]
    pub session: String,
    /// What to do if it is running already
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    pub on_conflict: OnConflict,
    /// Run it in the background
    #[arg(long)]
    pub detach: bool,
    /// Further arguments for the agent
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub args: Vec<OsString>,
}

impl ValueEnum for OnConflict {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Fail, Self::Attach, Self::Takeover, Self::Fork]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::Fail => PossibleValue::new("fail").help("Report it and do nothing"),
            Self::Attach => PossibleValue::new("attach").help("Connect to it, if it runs in the background"),
            Self::Takeover => PossibleValue::new("takeover").help("End it, then continue here"),
            Self::Fork => PossibleValue::new("fork").help("Continue in a copy"),
        })
    }
}

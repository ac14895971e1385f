//! The options of the commands about sessions that exist already.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};

use super::{one_of, time};
use agents::Agent;
use agents::demo::Demo;
use agents::registry;
use format::since::Since;
use jiff::tz::TimeZone;
use runtime::launch::conflict::OnConflict;
use runtime::live::events::Cursor;
use scan::search::Role;
use store::Sort;
use types::{Activity, EndReason, Moment, Status};
use usage::{By, Order};

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
    /// Only sessions with all of these words in their name, title, project, branch or tags
    pub words: Vec<String>,
    /// Include archived sessions
    #[arg(long, conflicts_with = "active")]
    pub all: bool,
    /// Also conversations that never ran through codemie, read from the agents' own files: "not wrapped"
    #[arg(long)]
    pub scan: bool,
    /// Only sessions running now
    #[arg(long)]
    pub active: bool,
    /// Only of this agent
    #[arg(long, value_name = "AGENT", value_parser = AgentName, hide_possible_values = true)]
    pub agent: Option<String>,
    /// Only of this project: a folder's name or path, owner/name of the repository, or a part of a name
    #[arg(long, value_name = "PROJECT")]
    pub project: Option<String>,
    /// Only on this branch, or one whose name contains it
    #[arg(long, value_name = "BRANCH")]
    pub branch: Option<String>,
    /// Only those of which the column STATUS shows this word; `active` are all that run, `completed` also those that were cleared,
    /// switched or stopped
    #[arg(long, value_name = "STATUS")]
    pub status: Option<StatusName>,
    /// Only those that used this model, or one whose name contains it
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Only with this tag
    #[arg(long, value_name = "TAG")]
    pub tag: Option<String>,
    /// Only in this group
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Only sessions open since then: 30m, 12h, 7d, today, yesterday, or a date like 2026-11-01
    #[arg(long, value_name = "TIME")]
    pub since: Option<Since>,
    /// What comes first
    #[arg(long, value_name = "KEY", value_parser = sort(), default_value = "used")]
    pub sort: Sort,
    /// At most this many, 0 for all; by default as many as fit the terminal, or all without one
    #[arg(short = 'n', long, value_name = "NUMBER")]
    pub limit: Option<usize>,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

/// Every word that the column STATUS of `list` can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatusName {
    Active,
    Starting,
    Dialog,
    Working,
    NeedsInput,
    Idle,
    Completed,
    Cleared,
    Switched,
    Stopped,
    Failed,
    Interrupted,
    Archived,
    /// With --scan, which it implies
    #[value(alias = "not wrapped")]
    NotWrapped,
}

impl StatusName {
    /// The record's `status`, for words that stand for one.
    pub fn status(self) -> Option<Status> {
        Some(match self {
            Self::Active | Self::Starting | Self::Dialog | Self::Working | Self::NeedsInput | Self::Idle => {
                Status::Active
            }
            Self::Completed => Status::Completed,
            Self::Failed => Status::Failed,
            Self::Interrupted => Status::Interrupted,
            Self::Cleared | Self::Switched | Self::Stopped | Self::Archived | Self::NotWrapped => {
                return None;
            }
        })
    }

    /// Why the session ended, for words that say so.
    pub fn end_reason(self) -> Option<EndReason> {
        Some(match self {
            Self::Cleared => EndReason::Clear,
            Self::Switched => EndReason::Switch,
            Self::Stopped => EndReason::Stopped,
            _ => return None,
        })
    }

    /// What the session does, for words that no store holds: it is found out when somebody asks.
    pub fn activity(self) -> Option<Activity> {
        Some(match self {
            Self::Starting => Activity::Starting,
            Self::Dialog => Activity::Dialog,
            Self::Working => Activity::Working,
            Self::NeedsInput => Activity::NeedsInput,
            Self::Idle => Activity::Idle,
            _ => return None,
        })
    }
}

fn sort() -> impl TypedValueParser<Value = Sort> {
    one_of([
        ("used", Sort::LastUsed, "The last used"),
        ("started", Sort::Started, "The last begun"),
        ("cost", Sort::Cost, "The dearest"),
        ("tokens", Sort::Tokens, "Those with the most tokens"),
        ("name", Sort::Name, "By name"),
    ])
}

#[derive(Debug, Args)]
#[command(
    after_help = "All words must be in one message; capital letters do not count. Words in quotation marks are searched for as they are. On a \
                  terminal the hits are a list to choose from: Enter opens the conversation there."
)]
pub struct Search {
    /// What to look for
    #[arg(required = true)]
    pub words: Vec<String>,
    /// Only of this agent
    #[arg(long, value_name = "AGENT", value_parser = AgentName, hide_possible_values = true)]
    pub agent: Option<String>,
    /// Only of this project: a folder's name or path, owner/name of the repository, or a part of a name
    #[arg(long, value_name = "PROJECT")]
    pub project: Option<String>,
    /// Only what was said since then: 30m, 12h, 7d, today, yesterday, or a date like 2026-11-01
    #[arg(long, value_name = "TIME")]
    pub since: Option<Since>,
    /// Only what this one said
    #[arg(long, value_name = "WHO", value_parser = role())]
    pub role: Option<Role>,
    /// At most this many of the newest, 0 for all
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = 100)]
    pub limit: usize,
    /// Print the hits on a terminal, too, instead of a list to choose from
    #[arg(long)]
    pub print: bool,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

fn role() -> impl TypedValueParser<Value = Role> {
    one_of([
        ("user", Role::User, "The person"),
        ("assistant", Role::Assistant, "The model"),
        ("tool", Role::Tool, "Calls of tools, and their failures"),
    ])
}

#[derive(Debug, Args)]
#[command(
    after_help = "Ctrl-\\ and then d leaves the session running; the setting attach.detachKeys names other keys. The first of them pressed twice reaches the session once."
)]
pub struct Attach {
    /// Session id, name, the agent's session id, or the beginning of one of them
    pub session: String,
    /// Look on, and type nothing
    #[arg(long)]
    pub read_only: bool,
}

#[derive(Debug, Args)]
pub struct Show {
    /// Session id, name, the agent's session id, or the beginning of one of them
    pub session: String,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct View {
    /// Session id, name, the agent's session id, or the beginning of one of them
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
    /// Print it on a terminal, too, instead of showing it in $PAGER
    #[arg(long)]
    pub no_pager: bool,
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
    /// Session id, name, the agent's session id, or the beginning of one of them
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
    after_help = "Without --dialog and CHOICE it shows what is asked, the choices and the hash. The choice is typed only while that \
                  very dialog is on the screen. The answer says what became of it: accepted (the dialog has left the screen), \
                  rejected (exit code 1; no choice was made) or unknown (5). An agent never answers its own dialogs; those of \
                  other sessions it answers only with the setting mcp.allowAnswers."
)]
pub struct Answer {
    /// Session id, name, the agent's session id, or the beginning of one of them
    pub session: String,
    /// The dialog that is answered: its hash, as shown here and by `show` and `view`
    #[arg(long, value_name = "HASH")]
    pub dialog: Option<String>,
    /// The number of a choice
    #[arg(requires = "dialog")]
    pub choice: Option<u32>,
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
    /// Session id, name, the agent's session id, or the beginning of one of them
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// What to wait for, several separated by commas; by default any of them. The session's end always ends it
    #[arg(long, value_delimiter = ',', value_name = "MOMENT", value_parser = moment())]
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

fn moment() -> impl TypedValueParser<Value = Moment> {
    one_of(Moment::ALL.iter().map(|&moment| {
        let help = match moment {
            Moment::TurnEnd => "The agent has finished its turn",
            Moment::NeedsInput => "It asks something: a permission, a question, a dialog",
            Moment::Exit => "The session has ended",
        };
        (moment.as_str(), moment, help)
    }))
}

#[derive(Debug, Args)]
pub struct Explain {
    /// Session id, name, the agent's session id, or the beginning of one of them
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
    /// Session id, name, the agent's session id, or the beginning of one of them
    pub session: String,
    /// Its new name
    pub name: String,
}

#[derive(Debug, Args)]
pub struct Tags {
    /// Session id, name, the agent's session id, or the beginning of one of them
    pub session: String,
    /// Tags to find it by
    #[arg(required = true, value_name = "TAG")]
    pub tags: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Group {
    /// Session id, name, the agent's session id, or the beginning of one of them
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
    /// Session id, name, the agent's session id, or the beginning of one of them
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
    /// Session id, name, the agent's session id, or the beginning of one of them
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// Write to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Include titles, which may be words of the conversations
    #[arg(long)]
    pub with_titles: bool,
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
    #[arg(long, value_name = "KEY", value_parser = usage_key(), default_value = "day")]
    pub by: By,
    /// Only calls since then: 30m, 12h, 7d, today, yesterday, or a date like 2026-11-01
    #[arg(long, value_name = "TIME")]
    pub since: Option<Since>,
    /// Only calls until then; a day counts with all of its hours
    #[arg(long, value_name = "TIME")]
    pub until: Option<Since>,
    /// Only of this project: a folder's name or path, owner/name of the repository, or a part of the name
    #[arg(long, value_name = "PROJECT")]
    pub project: Option<String>,
    /// Only of this agent
    #[arg(long, value_name = "AGENT", value_parser = AgentName, hide_possible_values = true)]
    pub agent: Option<String>,
    /// Only of this model, or of those whose names have this in them
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Only of sessions with this tag
    #[arg(long, value_name = "TAG")]
    pub tag: Option<String>,
    /// Only of sessions in this group
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Only calls made on this branch
    #[arg(long, value_name = "BRANCH")]
    pub branch: Option<String>,
    /// Only calls that went into these commits of the repository here: a revision, or a range like main..fix
    #[arg(long, value_name = "REV")]
    pub commit: Option<String>,
    /// Rows below each row
    #[arg(long, value_name = "KEY", value_parser = breakdown_key())]
    pub breakdown: Option<By>,
    /// The order of rows: by time where they are times or sessions, else by cost
    #[arg(long, value_name = "ORDER", value_parser = usage_order())]
    pub order: Option<Order>,
    /// At most this many rows, 0 for all: the latest, or those that cost most
    #[arg(short = 'n', long, value_name = "NUMBER")]
    pub limit: Option<usize>,
    /// The time zone of hours, days, weeks and months, like Europe/Berlin; by default this machine's
    #[arg(long, value_name = "ZONE", value_parser = zone)]
    pub timezone: Option<TimeZone>,
    /// Whole numbers instead of 12.3k and 4.56M
    #[arg(long)]
    pub exact: bool,
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

#[derive(Debug, Args)]
#[command(
    after_help = "Counts all calls that this machine knows, wrapped or not: a limit is shared by all of them. Where the vendor \
                  reports the used part itself (SOURCE), that is shown; otherwise windows are computed."
)]
pub struct Limits {
    /// Every window, not only those that run now
    #[arg(long)]
    pub all: bool,
    /// Print JSON, for scripts
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Reads Claude Code's status as JSON from standard input. The setting statusline.format is the text that is \
                  printed, with {session} {chain} {today} {window} {context} {budget} in it."
)]
pub struct Statusline {
    /// Print the line to add to Claude Code's settings; nothing is written there
    #[arg(long, visible_alias = "print-setting")]
    pub install: bool,
}

fn zone(name: &str) -> Result<TimeZone, String> {
    let unknown =
        || format!("no time zone of this machine has that name: {name}; write it like Europe/Berlin, or UTC");
    os::zone::of_name(name).ok_or_else(unknown)
}

fn usage_key() -> impl TypedValueParser<Value = By> {
    one_of(By::ALL.iter().map(|&by| {
        let help = match by {
            By::Week => "From Monday on, as ISO 8601 counts them: 2026-W47",
            By::Chain => "Sessions that followed each other by /clear, together",
            By::Root => "A session and all that it has started, at any depth, together",
            By::Commit => "The commit that was made next where a call was made",
            By::Tag => "A session with several tags counts for each of them",
            _ => "",
        };
        (by.as_str(), by, help)
    }))
}

fn breakdown_key() -> impl TypedValueParser<Value = By> {
    one_of([By::Model, By::Project, By::Agent].map(|by| (by.as_str(), by, "")))
}

fn usage_order() -> impl TypedValueParser<Value = Order> {
    one_of([("asc", Order::Ascending, ""), ("desc", Order::Descending, "")])
}

#[derive(Debug, Args)]
#[command(
    after_help = "Everything that the session's host or wrapper started is ended, but for daemons that an agent shares between its \
                  sessions. --all-mine means every session that runs now, was started by you (the user you are logged in as) with \
                  this home of codemie's, and can be seen from here; the session this command runs in comes last."
)]
pub struct Stop {
    /// Session id, name, the agent's session id, or the beginning of one of them
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

#[derive(Debug, Default, Args)]
pub struct Resume {
    /// Session id, name, the agent's session id, or the beginning of one of them; without it a list to choose from
    #[arg(value_name = "SESSION")]
    pub session: Option<String>,
    /// The one that was used last in this project
    #[arg(long)]
    pub last: bool,
    /// What to do if it is running already
    #[arg(long, value_parser = on_conflict(), default_value = "fail", value_name = "WHAT")]
    pub on_conflict: OnConflict,
    /// Run it in the background and print the session's id
    #[arg(long)]
    pub detach: bool,
    /// With --detach: print the id as JSON, with a cursor for `codemie wait`
    #[arg(long, requires = "detach")]
    pub json: bool,
    /// `codemie mcp` starts it: it ends when nobody needs it any more
    #[arg(long, hide = true, requires = "detach")]
    pub through_mcp: bool,
    /// Send its calls through the proxy
    #[arg(long)]
    pub proxy: bool,
    /// Further arguments for the agent
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub args: Vec<OsString>,
}

fn on_conflict() -> impl TypedValueParser<Value = OnConflict> {
    one_of([
        ("fail", OnConflict::Fail, "Report it and do nothing"),
        ("attach", OnConflict::Attach, "Connect to it, if it runs in the background"),
        ("takeover", OnConflict::Takeover, "End it, then continue here"),
        ("fork", OnConflict::Fork, "Continue in a copy"),
    ])
}

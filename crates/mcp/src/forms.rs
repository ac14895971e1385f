//! The tools' arguments and answers, from which their JSON schemas are made.

use std::sync::Arc;

use rmcp::handler::server::tool::{schema_for_input, schema_for_output};
use rmcp::model::JsonObject;
use rmcp::schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::error::ToolError;
use super::scope::Scope;
use super::tools::LiveRun;
use runtime::remote::protocol::{Dialog, SendAnswer};
use types::{LiveState, Moment, SessionRecord};

/// A tool's arguments: `$(#[doc])* Name { fields }`. An argument that is not known is refused, so that nobody believes it did
/// something.
macro_rules! arguments {
    ($($(#[$about:meta])* $name:ident { $($(#[$field_about:meta])* $field:ident: $type:ty),* $(,)? })+) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        #[schemars(crate = "rmcp::schemars")]
        pub struct $name { $($(#[$field_about])* pub $field: $type),* }
    )+};
}

/// A tool's answer, spelled as all JSON of codemie.
macro_rules! answers {
    ($($(#[$about:meta])* $name:ident { $($(#[$field_about:meta])* $field:ident: $type:ty),* $(,)? })+) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, Serialize, JsonSchema)]
        #[serde(rename_all = "camelCase")]
        #[schemars(crate = "rmcp::schemars")]
        pub struct $name { $($(#[$field_about])* pub $field: $type),* }
    )+};
}

arguments! {
    StartSession {
        /// The agent, like "claude", "codex" or "gemini"
        agent: String,
        /// Its first prompt
        prompt: Option<String>,
        /// The session's name; by default agent and time
        name: Option<String>,
        /// The folder to work in, within the caller's project; by default the caller's
        cwd: Option<String>,
        /// Arguments for the agent; only those that the user allows (mcp.allowArgs)
        args: Option<Vec<String>>,
        /// A repeated call with the same key starts nothing and answers with the same session
        idempotency_key: Option<String>,
    }
    ListSessions {
        /// Only those that run now
        active: Option<bool>,
        /// Narrower than the server's own scope
        scope: Option<Scope>,
    }
    GetSessionData {
        /// Id, name, the agent's session id, or at least 4 characters of an id
        session: String,
        /// From an earlier answer: `cursor` for what came after it, `before` for what came before; "start" for the beginning;
        /// without one, the end of the conversation
        cursor: Option<String>,
        /// The longest answer, in characters: 2,000 by default, 48,000 at most
        #[schemars(range(min = 1, max = 48_000))]
        max_chars: Option<u32>,
    }
    SendMessage {
        /// Id, name, the agent's session id, or at least 4 characters of an id
        session: String,
        /// The message, typed and entered as the user would
        text: String,
        /// A repeated call with the same key sends nothing again
        idempotency_key: Option<String>,
    }
    AnswerDialog {
        /// Id, name, the agent's session id, or at least 4 characters of an id
        session: String,
        /// The hash of the dialog that is answered, from get_session_data
        dialog: String,
        /// The number of a choice of that dialog
        choice: u32,
    }
    WaitForSession {
        /// Id, name, the agent's session id, or at least 4 characters of an id; this, or `sessions`
        session: Option<String>,
        /// The same for several sessions: the answer is about the first of them that has something, and its cursor goes on with all
        sessions: Option<Vec<String>>,
        /// What to wait for; by default any of them
        #[serde(default)]
        #[schemars(with = "Option<Vec<MomentSchema>>")]
        until: Option<OneOrMore>,
        /// At most 600,000; 50,000 by default
        #[schemars(range(max = 600_000))]
        timeout_ms: Option<u64>,
        /// From an earlier answer: only what happened after it counts
        cursor: Option<String>,
    }
    ResumeSession {
        /// Id, name, the agent's session id, or at least 4 characters of an id
        session: String,
        /// What to go on with
        prompt: Option<String>,
    }
    EndSession {
        /// Id, name, the agent's session id, or at least 4 characters of an id
        session: String,
        /// How long its processes have to end by themselves; 10,000 by default, 60,000 at most
        #[schemars(range(max = 60_000))]
        grace_ms: Option<u64>,
    }
    ExplainSession {
        /// Id, name, the agent's session id, or at least 4 characters of an id
        session: String,
    }
    GenieRun {
        /// An agent, or a name from mcp.genie in codemie's settings
        agent: String,
        /// Its first prompt
        prompt: Option<String>,
        /// The session's name; by default agent and time
        name: Option<String>,
    }
    GenieResume {
        /// The session to go on with
        #[serde(alias = "sessionId")]
        session: String,
        /// What to go on with
        prompt: Option<String>,
    }
    GenieView {
        /// The session to read
        #[serde(alias = "sessionId")]
        session: String,
        /// As much as one answer may hold, not only the end
        full: Option<bool>,
    }
    GenieStop {
        /// The session to end
        #[serde(alias = "sessionId")]
        session: String,
    }
}

/// Several moments, or one without the brackets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore {
    One(Moment),
    More(Vec<Moment>),
}

impl OneOrMore {
    pub fn into_list(self) -> Vec<Moment> {
        match self {
            Self::One(moment) => vec![moment],
            Self::More(moments) => moments,
        }
    }
}

// How a schema spells a `Moment`. What documents these two types is read by callers.
#[derive(JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(crate = "rmcp::schemars", rename = "Moment")]
#[expect(dead_code, reason = "only its schema is used")]
enum MomentSchema {
    /// Its agent has ended a turn, and the answer can be read
    TurnEnd,
    /// It asks its user something
    NeedsInput,
    /// It has ended
    Exit,
}

// How a schema spells a `LiveState`.
/// What a session does
#[derive(JsonSchema)]
#[schemars(crate = "rmcp::schemars", rename = "State")]
#[expect(dead_code, reason = "only its schema is used")]
struct StateSchema {
    /// starting, dialog, working, needs-input, idle, unknown
    is: String,
    /// Milliseconds since 1970
    since: i64,
    /// The reason to believe it, in words
    why: String,
    /// Where that is seen
    source: Option<String>,
}

/// What a session asks
#[derive(JsonSchema)]
#[schemars(crate = "rmcp::schemars", rename = "Dialog")]
#[expect(dead_code, reason = "only its schema is used")]
struct DialogSchema {
    /// Stands for this dialog alone; answer_dialog and `codemie answer` want it
    hash: String,
    text: String,
    /// Empty where it cannot be answered by a number
    choices: Vec<ChoiceSchema>,
}

#[derive(JsonSchema)]
#[schemars(crate = "rmcp::schemars", rename = "Choice")]
#[expect(dead_code, reason = "only its schema is used")]
struct ChoiceSchema {
    number: u32,
    label: String,
}

answers! {
    StartedSession {
        session_id: String,
        name: Option<String>,
        agent: String,
        working_directory: String,
        /// False where an earlier call with the same key started it
        created: bool,
        /// It was started and is not recorded yet; it can be asked for all the same
        pending: bool,
    }
    SessionList {
        /// Newest first
        sessions: Vec<ListedSession>,
        /// How many more there are
        more: usize,
        scope: Scope,
    }
    ListedSession {
        session_id: String,
        name: String,
        agent: String,
        status: String,
        /// Whether it runs in the background and can be sent messages
        background: bool,
        /// What it does at this moment; null where that cannot be known
        #[schemars(with = "Option<StateSchema>")]
        state: Option<LiveState>,
        end_reason: Option<String>,
        /// Milliseconds since 1970
        start_time: i64,
        end_time: Option<i64>,
        working_directory: String,
        project: Option<String>,
        branch: Option<String>,
        parent_session_id: Option<String>,
        agent_session_id: Option<String>,
        cost_usd: f64,
    }
    SessionData {
        session_id: Option<String>,
        agent_session_id: Option<String>,
        name: String,
        agent: String,
        /// active, completed, failed, interrupted; null for a conversation that never ran through codemie
        status: Option<String>,
        /// There is no conversation yet; `screen` shows what the agent shows
        pending: bool,
        #[schemars(with = "Option<StateSchema>")]
        state: Option<LiveState>,
        items: Vec<DataItem>,
        /// The lines of its screen, where there is no conversation or the agent asks something
        screen: Option<Vec<String>>,
        /// What the agent asks at this moment
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<DialogSchema>")]
        dialog: Option<Dialog>,
        /// For the next page, with what comes later
        cursor: Option<String>,
        /// For the page before this one; null at the beginning
        before: Option<String>,
        /// Something did not fit
        truncated: bool,
    }
    DataItem {
        /// user, assistant, tool, note
        role: String,
        /// Of a tool
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// Of a tool that failed
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        #[schemars(default)]
        failed: bool,
        text: String,
        /// Milliseconds since 1970
        time: Option<i64>,
    }
    SentMessage {
        /// accepted, queued, turn_started, rejected, unknown
        result: String,
        why: String,
        session_id: String,
        /// The session that was asked for, where its process has gone on to another one
        redirected_from: Option<String>,
        /// For wait_for_session: the end of the turn that this message begins comes after it
        cursor: String,
    }
    WaitedForSession {
        /// turn-end, needs-input, exit, pending
        result: String,
        session_id: String,
        redirected_from: Option<String>,
        #[schemars(with = "Option<StateSchema>")]
        state: Option<LiveState>,
        cursor: Option<String>,
        /// missing: the turn has ended, and no answer can be read
        #[serde(skip_serializing_if = "Option::is_none")]
        answer: Option<String>,
    }
    EndedSession {
        session_id: String,
        redirected_from: Option<String>,
        /// Nothing of it runs any more
        ended: bool,
        /// It had ended before
        already: bool,
        /// Processes that could not be ended
        survivors: Vec<String>,
    }
}

impl SentMessage {
    pub fn of(answer: SendAnswer, run: &LiveRun) -> Self {
        let session = answer.session.map_or_else(|| run.session.shown_id(), |session| session.to_string());
        Self {
            result: answer.result.to_string(),
            why: answer.why,
            session_id: session,
            redirected_from: run.redirected_from.clone(),
            cursor: answer.cursor,
        }
    }
}

impl ListedSession {
    pub fn of(record: SessionRecord, background: bool, state: Option<LiveState>) -> Self {
        Self {
            session_id: record.session_id,
            name: record.name,
            agent: record.agent,
            status: record.status.to_string(),
            background,
            state,
            end_reason: record.end_reason.map(|reason| reason.to_string()),
            start_time: record.start_time.0,
            end_time: record.end_time.map(|at| at.0),
            working_directory: record.working_directory,
            project: record.project,
            branch: record.branch,
            parent_session_id: record.parent_session_id,
            agent_session_id: record.correlation.agent_session_id.map(|id| id.0),
            cost_usd: record.usage.cost_usd,
        }
    }
}

/// The schema of a tool's arguments.
pub fn input<T: JsonSchema + 'static>() -> Arc<JsonObject> {
    // Arguments are structs, so this always is an object's schema.
    let mut schema = Value::Object(schema_for_input::<T>().unwrap_or_default().as_ref().clone());
    forget_names(&mut schema);
    Arc::new(schema.as_object().cloned().unwrap_or_default())
}

/// The schema of a tool's answer. An error is an answer, too, and some clients check both by the same schema.
pub fn output<T: JsonSchema + 'static>() -> Arc<JsonObject> {
    either(schema_for_output::<T>().as_ref().clone())
}

/// The same for an answer that is described elsewhere.
pub fn any_output() -> Arc<JsonObject> {
    either(JsonObject::new())
}

fn either(mut schema: JsonObject) -> Arc<JsonObject> {
    let error = schema_for_output::<ToolError>();
    let mut answer = JsonObject::new();
    answer.extend(schema.remove("required").map(|required| ("required".to_owned(), required)));
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let (Value::Object(properties), Some(Value::Object(of_error))) = (properties, error.get("properties"))
    {
        for (name, property) in of_error {
            properties.entry(name).or_insert_with(|| property.clone());
        }
    }
    schema.insert("type".to_owned(), json!("object"));
    let fields = ["code", "message", "next"];
    schema.insert("anyOf".to_owned(), json!([answer, { "required": fields }]));
    let mut schema = Value::Object(schema);
    forget_names(&mut schema);
    Arc::new(schema.as_object().cloned().unwrap_or_default())
}

/// What is of the source alone: formats of numbers (`uint32`), titles, which are names of types, and where a text was broken into
/// lines. Clients complain about formats that they do not know.
fn forget_names(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.retain(|name, value| !matches!(name.as_str(), "format" | "title") || !value.is_string());
            if let Some(Value::String(about)) = fields.get_mut("description") {
                *about = about.replace('\n', " ");
            }
            fields.values_mut().for_each(forget_names);
        }
        Value::Array(values) => values.iter_mut().for_each(forget_names),
        _ => {}
    }
}

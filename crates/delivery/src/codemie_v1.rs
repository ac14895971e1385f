//! The metrics endpoint of CodeMie v1: one metric per lifecycle event, `POST {base}/v1/metrics`.
//!
//! That server keeps no event ids and adds up everything it gets. So each START and END is sent once and never amended: a
//! START when the agent's session is known (or with the END), an END when its files have been quiet. After a crash between
//! the server's answer and our record of it, one is sent again. Nothing here can prevent that, and `doctor` says so.

use reqwest::Url;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::answer::{self, Answer, Verdict};
use super::http::{Request, join};
use super::identity::Identity;
use super::sink::{Due, Sink, Triage};
use config::delivery::Secret;
use store::session::state::Phase;
use store::{Error, EventRow, Fate, Outgoing, SessionRow, UndeliveredEvent, View};
use types::{Attributes, Timestamp, redact};
use types::{EndReason, EventType, StartReason, Status};

/// An ended session's files are read until they have been quiet for two seconds; one more is for the reading itself.
const QUIET: std::time::Duration = std::time::Duration::from_secs(3);

/// The server's name as a sink.
pub const CODEMIE_V1: &str = "codemie-v1";

const CLIENT: &str = concat!("codemie-cli/", env!("CARGO_PKG_VERSION"));

#[derive(Debug)]
pub struct CodemieV1 {
    base: Url,
    auth: Option<(String, Secret)>,
    identity: Identity,
}

#[derive(Deserialize)]
struct Receipt {
    success: bool,
}

impl CodemieV1 {
    pub fn new(settings: &config::delivery::CodemieV1, identity: Identity) -> Self {
        Self { base: settings.url.clone(), auth: settings.auth.clone(), identity }
    }

    fn request(&self, session: &SessionRow, metric: &str, attributes: &Map<String, Value>) -> Request {
        let mut headers =
            vec![("x-codemie-cli", CLIENT.to_owned()), ("x-codemie-client", client(&session.agent))];
        let workspace = &session.workspace;
        headers.extend(
            workspace
                .repository
                .as_deref()
                .and_then(redact::repository)
                .map(|value| ("x-codemie-repository", value.to_owned())),
        );
        headers.extend(workspace.branch.as_ref().map(|value| ("x-codemie-branch", value.clone())));
        Request {
            url: join(&self.base, "/v1/metrics"),
            credentials: self.auth.iter().cloned().collect(),
            headers,
            content_type: "application/json",
            body: json!({"name": metric, "attributes": attributes}).to_string().into_bytes(),
            encoding: None,
        }
    }

    /// The attributes that all metrics of a session have.
    fn common(&self, view: &View<'_>, session: &SessionRow) -> Result<Map<String, Value>, Error> {
        let agent_session = session.agent_session.as_ref().map(|id| redact::key(&id.0).into_owned());
        let id = session.shown_id();
        let model = view.model_sums(session.n)?.pop().map(|sum| sum.model);
        let attributes = json!({
            "agent": session.agent,
            "agent_version": session.agent_version.as_deref().map(redact::name),
            "codemie_client": client(&session.agent),
            "llm_model": redact::model(&model.unwrap_or_default()),
            "repository": session.workspace.repository.as_deref().and_then(redact::repository),
            "branch": session.workspace.branch,
            "session_id": agent_session.unwrap_or_else(|| id.clone()),
            "codemie_session_id": id,
            "codemie_machine": self.identity.machine,
            "count": 1,
            "schema_version": 2,
        });
        let Value::Object(mut attributes) = attributes else { return Ok(Map::new()) };
        attributes.retain(|_, value| !value.is_null());
        Ok(attributes)
    }

    fn start(&self, view: &View<'_>, session: &SessionRow, event: &Outgoing) -> Result<Request, Error> {
        let mut attributes = self.common(view, session)?;
        let reason = match &event.attributes {
            Attributes::Start(start) => start.reason,
            _ => None,
        };
        attributes.insert("status".into(), "started".into());
        attributes.insert("reason".into(), start_reason(reason).into());
        attributes.insert("session_duration_ms".into(), 0.into());
        attributes.insert("had_errors".into(), false.into());
        Ok(self.request(session, "codemie_cli_session_total", &attributes))
    }

    fn end(&self, view: &View<'_>, session: &SessionRow, event: &EventRow) -> Result<Vec<Request>, Error> {
        let opening = view.openings(session.n)?.into_iter().find(|opening| opening.number == event.opening);
        let started = opening.as_ref().map_or(session.started_at, |opening| opening.opened_at);
        let ended = opening.and_then(|opening| opening.closed_at).unwrap_or(event.time);
        let json = event.attributes.as_deref().unwrap_or_default();
        let ending = match Attributes::written(EventType::End.into(), json) {
            Attributes::End(end) => Some(end),
            _ => None,
        };
        let totals = view.opening_totals(session.n, event.opening)?;
        let duration = u64::try_from(ended.since(started).as_millis()).unwrap_or(u64::MAX);
        let mut attributes = self.common(view, session)?;
        attributes.insert("had_errors".into(), (totals.api_errors > 0).into());
        attributes.insert("session_duration_ms".into(), duration.into());

        let mut usage = attributes.clone();
        let status = ending.as_ref().map_or(Status::Completed, |end| end.status);
        let reason = ending.and_then(|end| end.end_reason);
        attributes.insert("status".into(), status.as_str().into());
        attributes.insert("reason".into(), end_reason(reason).into());
        attributes.insert("start_time".into(), started.0.into());
        attributes.insert("end_time".into(), ended.0.into());
        let mut requests = vec![self.request(session, "codemie_cli_session_total", &attributes)];

        if totals.tool_calls + totals.prompts + totals.calls.api_calls > 0 {
            let (tools, created, modified) = view.opening_tools(session.n, event.opening)?;
            let tools: Vec<_> = tools.iter().map(|tool| redact::name(tool)).collect();
            let sums = json!({
                "total_user_prompts": totals.prompts,
                "tool_names": tools,
                "total_tool_calls": totals.tool_calls,
                "successful_tool_calls": totals.tool_calls - totals.tool_errors,
                "failed_tool_calls": totals.tool_errors,
                "files_created": created,
                "files_modified": modified,
                "files_deleted": 0,
                "total_lines_added": totals.lines_added,
                "total_lines_removed": totals.lines_removed,
                "input_tokens": totals.calls.input,
                "output_tokens": totals.calls.output,
                "cache_read_input_tokens": totals.calls.cache_read,
                "cache_creation_tokens": totals.calls.cache_write,
            });
            if let Value::Object(sums) = sums {
                usage.extend(sums);
            }
            requests.push(self.request(session, "codemie_cli_tool_usage_total", &usage));
        }
        Ok(requests)
    }
}

fn client(agent: &str) -> String {
    format!("codemie-{agent}")
}

fn start_reason(reason: Option<StartReason>) -> &'static str {
    match reason {
        Some(StartReason::Clear) => "clear",
        Some(StartReason::Resume | StartReason::Switch) => "resume",
        Some(StartReason::Startup) | None => "startup",
    }
}

fn end_reason(reason: Option<EndReason>) -> &'static str {
    match reason {
        Some(EndReason::Clear) => "clear",
        Some(EndReason::Exit) => "prompt_input_exit",
        Some(EndReason::Crash) => "interrupted",
        Some(EndReason::Switch | EndReason::Signal | EndReason::Stopped) | None => "other",
    }
}

impl Sink for CodemieV1 {
    fn name(&self) -> &'static str {
        CODEMIE_V1
    }

    fn url(&self) -> &Url {
        &self.base
    }

    fn max_batch(&self) -> usize {
        1
    }

    fn counts_duplicates(&self) -> bool {
        true
    }

    fn triage(&self, view: &View<'_>, event: &Outgoing) -> Result<Triage, Error> {
        let why = match event.event_type() {
            Some(EventType::Start) => "until the agent's session is known",
            Some(EventType::End) => "until its files are quiet",
            _ => return Ok(Triage::Skip),
        };
        let done = view.letter(CODEMIE_V1, event.n)? == Some(Fate::Done);
        Ok(if done { Triage::Skip } else { Triage::Defer(why) })
    }

    fn due(&self, view: &View<'_>, letter: &UndeliveredEvent, now: Timestamp) -> Result<Due, Error> {
        let after_quiet = |then: Timestamp| {
            let at = then.after(QUIET);
            // A clock set back since would make it wait for ever.
            if at <= now || now < then { Due::Now } else { Due::At(at) }
        };
        if letter.event.event_type() == Some(EventType::End) {
            return Ok(after_quiet(letter.at));
        }
        let event = view.event(letter.event.n)?;
        let session = event.map(|event| view.session_number(event.session)).transpose()?.flatten();
        Ok(match session {
            Some(row) if row.agent_session.is_some() => Due::Now,
            // It goes with its END, and not while the shell waits for the run to end: a request that is cut off is sent again.
            Some(row) if row.phase == Phase::Closed => row.ended_at.map_or(Due::Now, after_quiet),
            Some(_) => Due::Unknown,
            None => Due::Now,
        })
    }

    fn requests(&self, view: &View<'_>, events: &[Outgoing]) -> Result<Vec<Request>, Error> {
        let mut requests = Vec::new();
        for event in events {
            let Some(row) = view.event(event.n)? else { continue };
            let Some(session) = view.session_number(row.session)? else { continue };
            match event.event_type() {
                Some(EventType::Start) => requests.push(self.start(view, &session, event)?),
                Some(EventType::End) => requests.extend(self.end(view, &session, &row)?),
                _ => {}
            }
        }
        Ok(requests)
    }

    fn judge(&self, _: &[Outgoing], _: &Request, answer: &Answer) -> Verdict {
        answer::by_status(answer).unwrap_or_else(|| match serde_json::from_slice::<Receipt>(&answer.body) {
            Ok(Receipt { success: true }) => Verdict::Accepted { rejected: Vec::new() },
            Ok(Receipt { success: false }) => {
                Verdict::Unconfirmed { why: answer::refusal(answer), retry_after: answer.retry_after }
            }
            // The login page in front of that server is answered with 200.
            Err(_) => Verdict::CredentialsRefused("asks to log in (answered with no receipt)".to_owned()),
        })
    }
}

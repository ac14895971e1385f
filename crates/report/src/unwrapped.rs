//! Conversations that never ran through codemie, as lists of sessions show them: what a scan knows of them, and their titles.

use std::time::Duration;

use serde_json::json;

use super::list::SessionLine;
use super::title;
use agents::UnwrappedConversation;
use runtime::launch::Origin;
use scan::{self, ForeignSession, Scanner};
use store::{ListedSession, SessionQuery, Show, Store, View};
use types::{AgentSessionId, Filter, Status};

/// Those of a scan that belong to no session. What went on without codemie of a session's conversation is the session's.
pub fn unwrapped(
    store: Option<&mut Store>,
    scanner: &Scanner<'_>,
) -> Result<Vec<ForeignSession>, scan::Error> {
    let found = |view: Option<&View<'_>>| -> Result<_, scan::Error> {
        let mut found = Vec::new();
        for session in scanner.foreign(view)?.sessions {
            let known = match view {
                Some(view) => view.session_by_agent_session(&session.agent, &session.conversation)?,
                None => None,
            };
            found.extend(known.is_none().then_some(session));
        }
        Ok(found)
    };
    match store {
        Some(store) => store.read(|view| found(Some(view))),
        None => found(None),
    }
}

/// Whether a list of this query shows it. It has no tags, no group, no status that a session can have, and is never archived.
pub fn is_wanted(session: &ForeignSession, query: &SessionQuery) -> bool {
    let Filter {
        agent,
        without_agent,
        project: wanted_project,
        branch: wanted_branch,
        user: _,
        machine: _,
        model,
        tag,
        group,
        status,
        span,
        words,
    } = &query.filter;
    let has = |text: Option<&str>, part: &str| {
        text.is_some_and(|text| text.to_lowercase().contains(&part.to_lowercase()))
    };
    let (project, repository) = (session.project.as_deref(), session.repository.as_deref());
    let branch = session.branch.as_deref();
    tag.is_none()
        && group.is_none()
        && status.is_none()
        && query.ended_by.is_none()
        && matches!(query.show, Show::NotArchived | Show::All)
        && agent.as_ref().is_none_or(|agent| *agent == session.agent)
        && without_agent.as_ref().is_none_or(|agent| *agent != session.agent)
        && wanted_project
            .as_deref()
            .is_none_or(|part| has(if part.contains('/') { repository } else { project }, part))
        && wanted_branch.as_deref().is_none_or(|part| has(branch, part))
        && span.since.is_none_or(|since| session.sums.last >= since)
        && span.until.is_none_or(|until| session.sums.first < until)
        && model
            .as_deref()
            .is_none_or(|part| session.models.iter().any(|model| has(Some(model.as_str()), part)))
        && words.iter().all(|word| {
            [Some(&*session.conversation.0), project, branch].into_iter().any(|text| has(text, word))
        })
}

impl SessionLine {
    /// Its first call and its last are all that is known of when it was open.
    pub fn of_unwrapped(session: ForeignSession) -> Self {
        let row = ListedSession {
            n: 0,
            id: session.conversation.0.clone(),
            name: session.conversation.0,
            agent: session.agent,
            status: Status::Completed,
            archived: false,
            project: session.project,
            branch: session.branch,
            opening: 1,
            started_at: session.sums.first,
            ended_at: Some(session.sums.last),
            active_at: session.sums.last,
            end_reason: None,
            title: None,
            title_sought: true,
            cwd: None,
            bound: true,
            api_calls: session.sums.calls.api_calls,
            tokens: u64::try_from(session.sums.calls.tokens()).unwrap_or(0),
            cost: session.sums.calls.cost,
        };
        Self {
            row,
            tags: Vec::new(),
            open: Duration::ZERO,
            unpriced_models: session.unpriced_models.into_iter().collect(),
            models: session.models.into_iter().collect(),
            state: None,
            budget: None,
            runaway: None,
            unwrapped: Some(session.file),
        }
    }
}

/// Finds the titles of those among these lines that never ran through codemie.
pub fn add_titles<'a>(lines: impl Iterator<Item = &'a mut SessionLine>, origin: &Origin) {
    for line in lines {
        let Some(file) = &line.unwrapped else { continue };
        let conversation = UnwrappedConversation {
            agent: line.row.agent.clone(),
            agent_session: AgentSessionId(line.row.id.clone()),
            file: file.clone(),
            cwd: None,
        };
        line.row.title = title::of_beginning(&conversation, origin);
    }
}

/// As programs get it in a list, beside the records of sessions: what of a record is known.
pub fn record(session: &ForeignSession) -> serde_json::Value {
    let (sums, calls) = (&session.sums, &session.sums.calls);
    json!({
        "foreign": true,
        "agent": session.agent,
        "agentVersion": session.version,
        "startTime": sums.first,
        "lastCallTime": sums.last,
        "project": session.project,
        "repository": session.repository,
        "branch": session.branch,
        "models": session.models,
        "correlation": {
            "agentSessionId": session.conversation,
            "agentSessionFile": session.file.to_string_lossy(),
        },
        "usage": {
            "apiCalls": calls.api_calls,
            "inputTokens": calls.input,
            "outputTokens": calls.output,
            "cacheReadTokens": calls.cache_read,
            "cacheWriteTokens": calls.cache_write,
            "reasoningTokens": calls.reasoning,
            "costUsd": calls.cost.dollars(),
            "unpricedModels": session.unpriced_models,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{CallSums, EndReason, PicoDollars, Span, Timestamp};
    use usage::DatedSums;

    fn session() -> ForeignSession {
        ForeignSession {
            agent: "claude".into(),
            conversation: AgentSessionId("7a276c6b-0000".into()),
            project: Some("widgets".into()),
            repository: Some("acme/widgets".into()),
            branch: Some("fix-login".into()),
            version: None,
            file: "/f".into(),
            sums: DatedSums {
                calls: CallSums {
                    api_calls: 2,
                    input: 10,
                    output: 5,
                    cost: PicoDollars(7),
                    ..CallSums::default()
                },
                first: Timestamp(1000),
                last: Timestamp(5000),
                ..DatedSums::default()
            },
            models: ["claude-opus-4-8".to_owned()].into(),
            unpriced_models: [].into(),
        }
    }

    #[test]
    fn filters_choose_among_them_by_what_is_known() {
        let text = |text: &str| Some(text.to_owned());
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let all = Filter::default();
        let until = |at| Span { since: None, until: Some(Timestamp(at)) };
        for (filter, wanted) in [
            (all.clone(), true),
            (Filter { agent: text("claude"), ..all.clone() }, true),
            (Filter { agent: text("codex"), ..all.clone() }, false),
            (Filter { without_agent: text("claude"), ..all.clone() }, false),
            (Filter { without_agent: text("codex"), ..all.clone() }, true),
            (Filter { project: text("WIDG"), ..all.clone() }, true),
            (Filter { project: text("acme/wid"), ..all.clone() }, true),
            (Filter { project: text("/home/dev/widgets"), ..all.clone() }, false),
            (Filter { branch: text("login"), ..all.clone() }, true),
            (Filter { model: text("opus"), ..all.clone() }, true),
            (Filter { model: text("haiku"), ..all.clone() }, false),
            (Filter { span: Span::since(Timestamp(5000)), ..all.clone() }, true),
            (Filter { span: Span::since(Timestamp(5001)), ..all.clone() }, false),
            (Filter { span: until(1001), ..all.clone() }, true),
            (Filter { span: until(1000), ..all.clone() }, false),
            (Filter { words: words(&["widgets", "7A27"]), ..all.clone() }, true),
            (Filter { words: words(&["widgets", "other"]), ..all.clone() }, false),
            (Filter { tag: text("night"), ..all.clone() }, false),
            (Filter { group: text("team"), ..all.clone() }, false),
            (Filter { status: Some(Status::Completed), ..all }, false),
        ] {
            let query = SessionQuery::of(filter);
            assert_eq!(is_wanted(&session(), &query), wanted, "{query:?}");
        }
        for (query, wanted) in [
            (SessionQuery::showing(Show::Active), false),
            (SessionQuery::showing(Show::Archived), false),
            (SessionQuery::showing(Show::All), true),
            (SessionQuery { ended_by: Some(EndReason::Clear), ..SessionQuery::default() }, false),
        ] {
            assert_eq!(is_wanted(&session(), &query), wanted, "{query:?}");
        }
    }

    #[test]
    fn a_line_and_a_record_have_its_numbers() {
        let line = SessionLine::of_unwrapped(session());
        assert_eq!((line.row.tokens, line.row.cost, line.row.api_calls), (15, PicoDollars(7), 2));
        assert_eq!((line.row.started_at, line.row.active_at), (Timestamp(1000), Timestamp(5000)));
        let record = record(&session());
        assert_eq!(record["correlation"]["agentSessionId"], "7a276c6b-0000");
        assert_eq!((&record["usage"]["inputTokens"], &record["foreign"]), (&10.into(), &true.into()));
    }
}

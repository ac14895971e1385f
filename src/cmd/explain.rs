//! `codemie explain`: which evidence bound a session to which conversation of the agent's, and what was rejected.

use std::io::Write;
use std::process::ExitCode;

use jiff::tz::TimeZone;
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use super::find;
use super::open::open;
use super::words::{date, instant};
use crate::agent;
use crate::cli::Explain;
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::home::Home;
use crate::output::table::shorten;
use crate::output::wrap::wrap;
use crate::output::{Colour, Style};
use crate::session::id::AgentSessionId;
use crate::session::record::{Correlation, record};
use crate::session::state::{EndReason, EvidenceKind, Link};
use crate::store::{Evidence, SessionRow, Verdict, View};

/// The sources of what codemie itself did to the agent, as opposed to what it saw.
const ADDITIONS: [&str; 2] = ["arguments", "environment"];

/// Narrower than this, reasons are folded by the terminal.
const LEAST_DETAIL: usize = 24;

pub fn run(args: &Explain, home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let mut store = open(home)?;
    let account =
        store.read(|view| Account::of(view, &find::session(view, &args.session)?, SystemClock.now()))?;
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&account)?)?;
    } else {
        out.write_all(account.draw(Style::of_stdout(), &crate::zone::local()).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Account {
    session_id: String,
    name: String,
    agent: String,
    correlation: Correlation,
    /// The session before it in the same process, and why that ended.
    follows: Option<Follows>,
    /// What was added to the agent's arguments and environment or taken away when its process was started, which may
    /// have been in an earlier session of the run.
    additions: Vec<Evidence>,
    /// What was seen, in order; where it follows another, beginning with what led from there to here.
    evidence: Vec<Evidence>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Follows {
    session_id: String,
    name: String,
    end_reason: Option<EndReason>,
}

impl Account {
    fn of(view: &View<'_>, row: &SessionRow, now: Timestamp) -> anyhow::Result<Self> {
        let record = record(view, row, now)?;
        let is_addition = |evidence: &Evidence| ADDITIONS.contains(&evidence.source.as_str());
        let before = earlier_of_run(view, row)?;
        let (mut additions, own): (Vec<_>, Vec<_>) = view.evidence(row.n)?.into_iter().partition(is_addition);
        if let Some(first) = before.last() {
            additions = view.evidence(first.n)?.into_iter().filter(is_addition).collect();
        }
        let mut evidence = match (before.first(), &row.agent_session) {
            (Some(last), Some(here)) => {
                let mut led_here = view.evidence(last.n)?;
                led_here.retain(|seen| names(seen, here));
                led_here
            }
            _ => Vec::new(),
        };
        evidence.extend(own);
        Ok(Self {
            session_id: record.session_id,
            name: record.name,
            agent: record.agent,
            correlation: record.correlation,
            follows: before.first().map(|last| Follows {
                session_id: last.shown_id(),
                name: last.name.clone(),
                end_reason: last.end_reason,
            }),
            additions,
            evidence,
        })
    }

    fn draw(&self, style: Style, zone: &TimeZone) -> String {
        let name = style.paint(&shorten(&self.name, usize::MAX), Colour::Heading);
        let mut text = format!("{name}  {}  {}\n", self.session_id, self.agent);
        let follows = self.follows.as_ref().map(|before| {
            let reason = before.end_reason.map_or(String::new(), |reason| format!(" by {reason}"));
            format!("It follows {} in the same process{reason}.", before.name)
        });
        for line in follows.iter().chain([&self.conclusion(zone)]).flat_map(|said| wrap(said, style.columns))
        {
            text += &(line + "\n");
        }
        if let Some(file) = &self.correlation.agent_session_file {
            text += &["Its file: ", &shorten(file, usize::MAX), "\n"].concat();
        }
        text += &style.paint("\nAdded to the agent and taken away\n", Colour::Faint);
        text += &lines(&self.additions, "Nothing.", style, zone);
        text += &style.paint("\nEvidence\n", Colour::Faint);
        text += &lines(&self.evidence, "None.", style, zone);
        text
    }

    fn conclusion(&self, zone: &TimeZone) -> String {
        let Correlation { status, agent_session_id, agent_session_file, evidence, bound_at } =
            &self.correlation;
        match (agent_session_id, status) {
            (Some(id), _) => {
                let why = evidence.map_or("how is not known", reason);
                let at = bound_at.map_or(String::new(), |at| format!(" at {}", date(at, zone)));
                let silent =
                    if agent_session_file.is_none() { " It has no file: nothing was said yet." } else { "" };
                format!("Bound to {id}{at}: {why}.{silent}")
            }
            (None, _) if agent::by_name(&self.agent).is_none() => {
                format!("Not bound, and never to be: {} is no agent.", self.agent)
            }
            (None, Link::Ambiguous) => {
                "Not bound: the evidence allows more than one conversation. Later evidence may decide.".into()
            }
            (None, Link::Failed) => "Not bound: it ended without any evidence that names its process.".into(),
            (None, _) => format!("Not bound yet: {} has not shown a conversation.", self.agent),
        }
    }
}

/// Whether a piece of evidence speaks of a conversation.
fn names(seen: &Evidence, conversation: &AgentSessionId) -> bool {
    seen.agent_session_id.as_ref() == Some(conversation) || seen.detail.contains(&conversation.0)
}

fn reason(kind: EvidenceKind) -> &'static str {
    match kind {
        EvidenceKind::Assigned => "assigned, the id stood in the agent's arguments",
        EvidenceKind::Registry => "registry, the agent itself named it for this process",
        EvidenceKind::Log => "log, the agent's own log leads to it from the conversation before",
    }
}

/// The sessions before this one in the same run, by `/clear` or switch, last first.
fn earlier_of_run(view: &View<'_>, row: &SessionRow) -> anyhow::Result<Vec<SessionRow>> {
    let mut earlier: Vec<SessionRow> = Vec::new();
    while let Some(id) = earlier.last().unwrap_or(row).transitioned_from {
        // A switch can lead back to where it came from.
        if id == row.id || earlier.iter().any(|seen| seen.id == id) {
            break;
        }
        match view.session(id)? {
            Some(before) if before.run == row.run => earlier.push(before),
            _ => break,
        }
    }
    Ok(earlier)
}

/// Time, verdict, source, and the reason folded beside them.
fn lines(evidence: &[Evidence], none: &str, style: Style, zone: &TimeZone) -> String {
    if evidence.is_empty() {
        return format!("  {none}\n");
    }
    let source = evidence.iter().map(|row| row.source.width()).max().unwrap_or(0);
    let margin = 2 + "00:00:00.000".len() + 2 + "accepted".len() + 2 + source + 2;
    let width = style.columns.saturating_sub(margin).max(LEAST_DETAIL);
    let mut text = String::new();
    for row in evidence {
        let colour = match row.verdict {
            Verdict::Accepted => Colour::Good,
            Verdict::Rejected => Colour::Warning,
            Verdict::Noted => Colour::Plain,
        };
        let verdict = style.paint(&format!("{:8}", row.verdict.as_str()), colour);
        let at = style.paint(&instant(row.at, zone), Colour::Faint);
        let detail = match &row.agent_session_id {
            Some(id) => format!("{id}: {}", row.detail),
            None => row.detail.clone(),
        };
        let mut detail = wrap(&detail, width).into_iter();
        let first = detail.next().unwrap_or_default();
        let name = shorten(&row.source, usize::MAX);
        text += format!("  {at}  {verdict}  {name:source$}  {first}").trim_end();
        text.push('\n');
        for line in detail {
            text += &[" ".repeat(margin), line, "\n".into()].concat();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::words::sample;

    fn seen(at: i64, source: &str, verdict: Verdict, detail: &str) -> Evidence {
        let id = (source == "registry").then(|| AgentSessionId("7a276c6b".into()));
        Evidence {
            at: Timestamp(at),
            source: source.into(),
            verdict,
            agent_session_id: id,
            detail: detail.into(),
        }
    }

    fn account() -> Account {
        let record = sample();
        Account {
            session_id: record.session_id,
            name: record.name,
            agent: record.agent,
            correlation: record.correlation,
            follows: None,
            additions: vec![seen(
                1_794_819_900_001,
                "arguments",
                Verdict::Noted,
                "added: --session-id 7a276c6b",
            )],
            evidence: vec![
                seen(1_794_819_900_100, "assigned", Verdict::Accepted, "the id that stands in the arguments"),
                seen(
                    1_794_819_900_900,
                    "registry",
                    Verdict::Rejected,
                    "another process wrote it, which began before this one",
                ),
            ],
        }
    }

    #[test]
    fn an_account_says_what_was_done_and_seen_and_why() {
        assert_eq!(
            account().draw(Style { colour: false, columns: 80 }, &TimeZone::UTC),
            "\
fix-auth  01a1e2f3-0000-4000-8000-000000000001  claude
Bound to 7a276c6b-0000-4000-8000-000000000003 at 2026-11-16 09:05:00: assigned,
the id stood in the agent's arguments.
Its file: /home/dev/.claude/projects/-home-dev-project/7a276c6b.jsonl

Added to the agent and taken away
  09:05:00.001  noted     arguments  added: --session-id 7a276c6b

Evidence
  09:05:00.100  accepted  assigned  the id that stands in the arguments
  09:05:00.900  rejected  registry  7a276c6b: another process wrote it, which
                                    began before this one
"
        );
    }

    #[test]
    fn what_is_not_known_is_said() {
        let mut account = account();
        account.correlation.agent_session_id = None;
        account.evidence.clear();
        account.additions.clear();
        for (status, expected) in [
            (Link::Pending, "Not bound yet: claude has not shown"),
            (Link::Ambiguous, "allows more than one"),
            (Link::Failed, "without any evidence"),
        ] {
            account.correlation.status = status;
            let text = account.draw(Style { colour: false, columns: 80 }, &TimeZone::UTC);
            assert!(text.contains(expected), "{text}");
            assert!(text.contains("Nothing.") && text.contains("None."), "{text}");
        }
    }
}

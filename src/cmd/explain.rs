//! `codemie explain`: which evidence bound a session to which conversation of the agent's, and what was rejected.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::ExitCode;

use jiff::tz::TimeZone;
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use super::find;
use super::format::{date, instant};
use super::open::open;
use crate::agent;
use crate::cli::Explain;
use crate::home::Home;
use crate::output::table::padded;
use crate::output::tilde::at_home;
use crate::output::wrap::{INDENT, hanging, wrap};
use crate::output::{Colour, Style, json};
use crate::session::record::record;
use crate::store::{Evidence, SessionRow, Verdict, View};
use human::text::shorten;
use system::clock::{Clock, SystemClock};
use wire::Correlation;
use wire::Timestamp;
use wire::{AgentSessionId, RunId, SessionId};
use wire::{EvidenceKind, Link, StartReason};

/// The sources of what codemie itself did to the agent, as opposed to what it saw.
const ADDITIONS: [&str; 2] = ["arguments", "environment"];

/// Sources are words of ours; what an import calls one may be anything.
const WIDEST_SOURCE: usize = 40;

/// Narrower than this, reasons are folded by the terminal.
const LEAST_DETAIL: usize = 24;

pub fn run(args: &Explain, home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let mut store = open(home)?;
    let account =
        store.read(|view| Account::of(view, &find::session(view, &args.session)?, SystemClock.now()))?;
    if args.json {
        out.write_all(json::pretty(&account)?.as_bytes())?;
    } else {
        out.write_all(account.draw(Style::of_stdout(), &system::zone::local()).as_bytes())?;
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
    /// The session it came from within a process, and how.
    follows: Option<Follows>,
    /// The runs that were in it, in order; more than one where it was resumed.
    runs: Vec<OneRun>,
    /// What was added to the agent's arguments and environment or taken away when its process was started, which may
    /// have been in an earlier session of the run.
    additions: Vec<Seen>,
    /// What was seen, in order; where it follows another, beginning with what led from there to here.
    evidence: Vec<Seen>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Follows {
    session_id: String,
    name: String,
    end_reason: StartReason,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OneRun {
    #[serde(skip)]
    n: Option<i64>,
    run_id: Option<RunId>,
    start_time: Option<Timestamp>,
}

/// A piece of evidence, and in which run it was seen.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Seen {
    #[serde(skip)]
    run: Option<i64>,
    run_id: Option<RunId>,
    #[serde(flatten)]
    evidence: Evidence,
}

impl Account {
    fn of(view: &View<'_>, row: &SessionRow, now: Timestamp) -> anyhow::Result<Self> {
        let record = record(view, row, now)?;
        let is_addition = |evidence: &Evidence| ADDITIONS.contains(&evidence.source.as_str());
        let (own_additions, own): (Vec<_>, Vec<_>) =
            view.evidence_by_run(row.n)?.into_iter().partition(|(_, seen)| is_addition(seen));
        let mut evidence = led_here(view, row)?;
        evidence.extend(own);

        let mut numbers: BTreeSet<Option<i64>> =
            evidence.iter().chain(&own_additions).map(|(run, _)| *run).collect();
        numbers.extend(row.run.map(Some));
        let (mut runs, mut additions) = (Vec::new(), Vec::new());
        for n in numbers {
            let of_run: Vec<Evidence> = match n {
                Some(n) => view.evidence_of_run(n)?,
                None => first_of_chain(view, row)?,
            };
            additions.extend(of_run.into_iter().filter(is_addition).map(|seen| (n, seen)));
            let run = n.map(|n| view.run_number(n)).transpose()?.flatten();
            runs.push(OneRun {
                n,
                run_id: run.as_ref().map(|run| run.id),
                start_time: run.as_ref().map(|run| run.started_at),
            });
        }
        // A stable sort: within a run the order is that in which things were seen.
        evidence.sort_by_key(|(run, _)| *run);
        let seen = |(run, evidence): (Option<i64>, Evidence)| Seen {
            run,
            run_id: runs.iter().find(|known| known.n == run).and_then(|known| known.run_id),
            evidence,
        };
        let (additions, evidence) =
            (additions.into_iter().map(seen).collect(), evidence.into_iter().map(seen).collect());
        Ok(Self {
            session_id: record.session_id,
            name: record.name,
            agent: record.agent,
            correlation: record.correlation,
            follows: follows(view, row)?,
            runs,
            additions,
            evidence,
        })
    }

    fn draw(&self, style: Style, zone: &TimeZone) -> String {
        let plain = Colour::Plain;
        let words = [(&*self.name, Colour::Heading), (&*self.session_id, plain), (&*self.agent, plain)];
        let mut text = style.heading(&words);
        let follows = self.follows.as_ref().map(|before| {
            format!("It follows {} in the same process by {}.", before.name, before.end_reason)
        });
        let file = self.correlation.agent_session_file.as_ref();
        let file = file.map(|file| format!("Its file: {}", at_home(file, style)));
        for said in follows.iter().chain([&self.conclusion(zone)]).chain(&file) {
            text += &hanging(said, style.columns, INDENT);
        }
        for run in &self.runs {
            let of_run = |all: &[Seen]| -> Vec<Evidence> {
                all.iter().filter(|seen| seen.run == run.n).map(|seen| seen.evidence.clone()).collect()
            };
            let which = match run.start_time {
                _ if self.runs.len() == 1 => String::new(),
                Some(at) => format!("In the run of {}: ", date(at, zone)),
                None => "In earlier runs: ".into(),
            };
            text += &title(&which, "Added to the agent and taken away", style);
            text += &lines(&of_run(&self.additions), "Nothing.", style, zone);
            text += &title(&which, "Evidence", style);
            text += &lines(&of_run(&self.evidence), "None.", style, zone);
        }
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

fn title(which: &str, what: &str, style: Style) -> String {
    let lines = wrap(&format!("{which}{what}"), style.columns);
    let lines = lines.iter().map(|line| style.paint(line, Colour::Faint) + "\n");
    format!("\n{}", lines.collect::<String>())
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

/// The session it came from, whatever runs have been in it since.
fn follows(view: &View<'_>, row: &SessionRow) -> anyhow::Result<Option<Follows>> {
    let Some((from, end_reason)) = view.came_from(row.n)? else { return Ok(None) };
    Ok(view.session(from)?.map(|before| Follows {
        session_id: before.shown_id(),
        name: before.name,
        end_reason,
    }))
}

/// What was seen in the sessions before it that speaks of its conversation.
fn led_here(view: &View<'_>, row: &SessionRow) -> anyhow::Result<Vec<(Option<i64>, Evidence)>> {
    let Some(here) = &row.agent_session else { return Ok(Vec::new()) };
    let from: BTreeSet<SessionId> =
        view.openings(row.n)?.iter().filter_map(|opening| opening.transitioned_from).collect();
    let mut led = Vec::new();
    for id in from {
        if let Some(before) = view.session(id)?.filter(|before| before.n != row.n) {
            led.extend(view.evidence_by_run(before.n)?.into_iter().filter(|(_, seen)| names(seen, here)));
        }
    }
    Ok(led)
}

/// What an older version noted of a process stands with its first session, and names no run.
fn first_of_chain(view: &View<'_>, row: &SessionRow) -> anyhow::Result<Vec<Evidence>> {
    let (mut first, mut seen) = (row.clone(), vec![row.n]);
    while let Some((from, _)) = view.came_from(first.n)?
        && let Some(before) = view.session(from)?.filter(|before| !seen.contains(&before.n))
    {
        seen.push(before.n);
        first = before;
    }
    let noted = view.evidence_by_run(first.n)?;
    Ok(noted.into_iter().filter(|(run, _)| run.is_none()).map(|(_, seen)| seen).collect())
}

/// Time, verdict, source, and the reason folded beside them.
fn lines(evidence: &[Evidence], none: &str, style: Style, zone: &TimeZone) -> String {
    if evidence.is_empty() {
        return format!("  {none}\n");
    }
    let source_of = |row: &Evidence| shorten(&row.source, WIDEST_SOURCE);
    let source = evidence.iter().map(|row| source_of(row).width()).max().unwrap_or(0);
    let margin = 2 + "00:00:00.000".len() + 2 + "accepted".len() + 2 + source + 2;
    // Where there is no room beside them, the reason stands below.
    let below = style.columns < margin + LEAST_DETAIL;
    // An id with its colon is whole on 40 columns.
    let margin = if below { 3 } else { margin };
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
            Some(id) => format!("{id}: {}", at_home(&row.detail, style)),
            None => at_home(&row.detail, style),
        };
        let mut detail = wrap(&detail, width).into_iter();
        let first = if below { String::new() } else { detail.next().unwrap_or_default() };
        let name = padded(&source_of(row), source);
        text += format!("  {at}  {verdict}  {name}  {first}").trim_end();
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
    use crate::cmd::format::sample;

    fn seen(at: i64, source: &str, verdict: Verdict, detail: &str) -> Seen {
        let id = (source == "registry").then(|| AgentSessionId("7a276c6b".into()));
        let evidence = Evidence {
            at: Timestamp(at),
            source: source.into(),
            verdict,
            agent_session_id: id,
            detail: detail.into(),
        };
        Seen { run: Some(1), run_id: None, evidence }
    }

    fn run(n: i64, start: i64) -> OneRun {
        OneRun { n: Some(n), run_id: None, start_time: Some(Timestamp(start)) }
    }

    fn account() -> Account {
        let record = sample();
        Account {
            session_id: record.session_id,
            name: record.name,
            agent: record.agent,
            correlation: record.correlation,
            follows: None,
            runs: vec![run(1, 1_794_819_900_000)],
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
    fn whatever_stands_in_the_evidence_is_drawn() {
        crate::output::hostile::draw_everywhere(|text, style| {
            let mut account = account();
            (account.session_id, account.name, account.agent) = (text.into(), text.into(), text.into());
            account.correlation.agent_session_id = Some(AgentSessionId(text.into()));
            account.correlation.agent_session_file = Some(text.into());
            account.follows =
                Some(Follows { session_id: text.into(), name: text.into(), end_reason: StartReason::Clear });
            for seen in account.evidence.iter_mut().chain(&mut account.additions) {
                (seen.evidence.source, seen.evidence.detail) = (text.into(), text.into());
                seen.evidence.agent_session_id = Some(AgentSessionId(text.into()));
            }
            account.draw(style, &TimeZone::UTC)
        });
    }

    #[test]
    fn each_run_has_its_own_evidence() {
        let mut account = account();
        account.runs.push(run(2, 1_794_823_500_000));
        let resumed = seen(1_794_823_500_200, "assigned", Verdict::Accepted, "named by --resume");
        account.evidence.push(Seen { run: Some(2), ..resumed });
        let text = account.draw(Style { colour: false, columns: 100 }, &TimeZone::UTC);
        let (first, second) = text.split_once("\nIn the run of 2026-11-16 10:05:00: Added").unwrap();
        assert!(first.contains("In the run of 2026-11-16 09:05:00: Evidence\n  09:05:00.100"), "{text}");
        assert!(second.contains("Nothing.") && second.contains("10:05:00.200  accepted  assigned"), "{text}");
        assert!(!first.contains("named by --resume") && !second.contains("added:"), "{text}");
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

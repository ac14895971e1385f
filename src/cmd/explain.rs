//! `codemie explain`: which evidence bound a session to which conversation of the agent's, and what was rejected.

use std::io::Write;
use std::process::ExitCode;

use jiff::tz::TimeZone;
use unicode_width::UnicodeWidthStr;

use super::session_text::{date, instant};
use crate::cli::Explain;
use agents::registry;
use format::output::table::padded;
use format::output::wrap::at_home;
use format::output::wrap::{INDENT, hanging, wrap};
use format::output::{Colour, Style, json};
use format::text::shorten;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use report::explain::{Explanation, RunEvidence};
use report::find;
use report::open::open;
use runtime::launch::Origin;
use types::{Correlation, EvidenceKind, Link};
use types::{Evidence, EvidenceVerdict};

/// Sources are words of ours; what an import calls one may be anything.
const WIDEST_SOURCE: usize = 40;

/// Narrower than this, reasons are folded by the terminal.
const LEAST_DETAIL: usize = 24;

pub fn run(args: &Explain, home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let mut store = open(home)?;
    let origin = Origin::of_this_process();
    let explanation = store.read(|view| {
        let row = find::session(view, &args.session, &origin)?;
        anyhow::Ok(Explanation::of(view, &row, SystemClock.now())?)
    })?;
    if args.json {
        out.write_all(json::pretty(&explanation)?.as_bytes())?;
    } else {
        out.write_all(draw(&explanation, Style::of_stdout(), &os::zone::local()).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn draw(explanation: &Explanation, style: Style, zone: &TimeZone) -> String {
    let plain = Colour::Plain;
    let words = [
        (&*explanation.name, Colour::Heading),
        (&*explanation.session_id, plain),
        (&*explanation.agent, plain),
    ];
    let mut text = style.heading(&words);
    let follows = explanation
        .follows
        .as_ref()
        .map(|before| format!("It follows {} in the same process by {}.", before.name, before.end_reason));
    let file = explanation.correlation.agent_session_file.as_ref();
    let file = file.map(|file| format!("Its file: {}", at_home(file, style)));
    for line in follows.iter().chain([&conclusion(explanation, zone)]).chain(&file) {
        text += &hanging(line, style.columns, INDENT);
    }
    for run in &explanation.runs {
        let of_run = |all: &[RunEvidence]| -> Vec<Evidence> {
            all.iter().filter(|seen| seen.run == run.n).map(|seen| seen.evidence.clone()).collect()
        };
        let which = match run.start_time {
            _ if explanation.runs.len() == 1 => String::new(),
            Some(at) => format!("In the run of {}: ", date(at, zone)),
            None => "In earlier runs: ".into(),
        };
        text += &title(&which, "Added to the agent and taken away", style);
        text += &lines(&of_run(&explanation.additions), "Nothing.", style, zone);
        text += &title(&which, "Evidence", style);
        text += &lines(&of_run(&explanation.evidence), "None.", style, zone);
    }
    text
}

fn conclusion(explanation: &Explanation, zone: &TimeZone) -> String {
    let Correlation { status, agent_session_id, agent_session_file, evidence, bound_at } =
        &explanation.correlation;
    match (agent_session_id, status) {
        (Some(id), _) => {
            let why = evidence.map_or("how is not known", reason);
            let at = bound_at.map_or(String::new(), |at| format!(" at {}", date(at, zone)));
            let silent = if agent_session_file.is_none() {
                " It has no file yet: nobody has written in it."
            } else {
                ""
            };
            format!("Bound to {id}{at}: {why}.{silent}")
        }
        (None, _) if registry::by_name(&explanation.agent).is_none() => {
            format!("Not bound: {} is no agent and has no conversation.", explanation.agent)
        }
        (None, Link::Ambiguous) => {
            "Not bound: the evidence allows more than one conversation. Later evidence may decide.".into()
        }
        (None, Link::Failed) => "Not bound: it ended without any evidence that names its process.".into(),
        (None, _) => format!("Not bound yet: {} has not shown a conversation.", explanation.agent),
    }
}

fn title(which: &str, what: &str, style: Style) -> String {
    let lines = wrap(&format!("{which}{what}"), style.columns);
    let lines = lines.iter().map(|line| style.paint(line, Colour::Faint) + "\n");
    format!("\n{}", lines.collect::<String>())
}

fn reason(kind: EvidenceKind) -> &'static str {
    match kind {
        EvidenceKind::Assigned => "assigned, the id stood in the agent's arguments",
        EvidenceKind::Registry => "registry, the agent itself named it for this process",
        EvidenceKind::Log => "log, the agent's own log leads to it from the conversation before",
    }
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
            EvidenceVerdict::Accepted => Colour::Good,
            EvidenceVerdict::Rejected => Colour::Warning,
            EvidenceVerdict::Noted => Colour::Plain,
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
    use crate::cmd::session_text::sample;
    use report::explain::{Predecessor, RunSeen};
    use types::{AgentSessionId, StartReason, Timestamp};

    fn seen(at: i64, source: &str, verdict: EvidenceVerdict, detail: &str) -> RunEvidence {
        let id = (source == "registry").then(|| AgentSessionId("7a276c6b".into()));
        let evidence = Evidence {
            at: Timestamp(at),
            source: source.into(),
            verdict,
            agent_session_id: id,
            detail: detail.into(),
        };
        RunEvidence { run: Some(1), run_id: None, evidence }
    }

    fn run(n: i64, start: i64) -> RunSeen {
        RunSeen { n: Some(n), run_id: None, start_time: Some(Timestamp(start)) }
    }

    fn explanation() -> Explanation {
        let record = sample();
        Explanation {
            session_id: record.session_id,
            name: record.name,
            agent: record.agent,
            correlation: record.correlation,
            follows: None,
            runs: vec![run(1, 1_794_819_900_000)],
            additions: vec![seen(
                1_794_819_900_001,
                "arguments",
                EvidenceVerdict::Noted,
                "added: --session-id 7a276c6b",
            )],
            evidence: vec![
                seen(
                    1_794_819_900_100,
                    "assigned",
                    EvidenceVerdict::Accepted,
                    "the id that stands in the arguments",
                ),
                seen(
                    1_794_819_900_900,
                    "registry",
                    EvidenceVerdict::Rejected,
                    "another process wrote it, which began before this one",
                ),
            ],
        }
    }

    #[test]
    fn an_explanation_lists_changes_evidence_and_the_reason() {
        assert_eq!(
            draw(&explanation(), Style { colour: false, columns: 80 }, &TimeZone::UTC),
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
    fn hostile_text_in_evidence_is_drawn_harmlessly() {
        crate::cmd::hostile::draw_everywhere(|text, style| {
            let mut explanation = explanation();
            (explanation.session_id, explanation.name, explanation.agent) =
                (text.into(), text.into(), text.into());
            explanation.correlation.agent_session_id = Some(AgentSessionId(text.into()));
            explanation.correlation.agent_session_file = Some(text.into());
            explanation.follows = Some(Predecessor {
                session_id: text.into(),
                name: text.into(),
                end_reason: StartReason::Clear,
            });
            for seen in explanation.evidence.iter_mut().chain(&mut explanation.additions) {
                (seen.evidence.source, seen.evidence.detail) = (text.into(), text.into());
                seen.evidence.agent_session_id = Some(AgentSessionId(text.into()));
            }
            draw(&explanation, style, &TimeZone::UTC)
        });
    }

    #[test]
    fn each_run_has_its_own_evidence() {
        let mut explanation = explanation();
        explanation.runs.push(run(2, 1_794_823_500_000));
        let resumed = seen(1_794_823_500_200, "assigned", EvidenceVerdict::Accepted, "named by --resume");
        explanation.evidence.push(RunEvidence { run: Some(2), ..resumed });
        let text = draw(&explanation, Style { colour: false, columns: 100 }, &TimeZone::UTC);
        let (first, second) = text.split_once("\nIn the run of 2026-11-16 10:05:00: Added").unwrap();
        assert!(first.contains("In the run of 2026-11-16 09:05:00: Evidence\n  09:05:00.100"), "{text}");
        assert!(second.contains("Nothing.") && second.contains("10:05:00.200  accepted  assigned"), "{text}");
        assert!(!first.contains("named by --resume") && !second.contains("added:"), "{text}");
    }

    #[test]
    fn an_unbound_session_says_why() {
        let mut explanation = explanation();
        explanation.correlation.agent_session_id = None;
        explanation.evidence.clear();
        explanation.additions.clear();
        for (status, expected) in [
            (Link::Pending, "Not bound yet: claude has not shown"),
            (Link::Ambiguous, "allows more than one"),
            (Link::Failed, "without any evidence"),
        ] {
            explanation.correlation.status = status;
            let text = draw(&explanation, Style { colour: false, columns: 80 }, &TimeZone::UTC);
            assert!(text.contains(expected), "{text}");
            assert!(text.contains("Nothing.") && text.contains("None."), "{text}");
        }
    }
}

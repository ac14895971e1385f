//! `codemie show`: one session, with what came before and after it, what it cost and what was sent of it.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::session_text::{Sheet, cost, date, number, tokens};
use super::{answer, session_text};
use crate::cli::Show;
use agents::{UnwrappedConversation, registry};
use format::output::table::{Column, Table};
use format::output::{Colour, Style, json};
use format::shell;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use pricing::unpriced;
use report::bill::{Bill, BilledSum};
use report::details::{Chain, SessionDetails, TreeUsage, foreign_record};
use report::find::{FindError, find};
use report::open::open;
use report::question::{Question, asks};
use report::state::Asked;
use report::title;
use runtime::launch::{Origin, settings};
use store::session::lookup::Found;
use store::session::quota_use::QuotaUse;
use types::{Coverage, Link, LiveState, SessionRecord, Utilization};

pub fn run(args: &Show, home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let (now, origin) = (SystemClock.now(), Origin::of_this_process());
    let limits = settings(Some(home), &origin).runaway;
    let mut store = open(home)?;
    let found = store.read(|view| match find(view, &args.session, &origin)? {
        Found::Session(row) => SessionDetails::of(view, &row, limits, now)
            .map(Box::new)
            .map(Known::Session)
            .map_err(FindError::from),
        Found::Unwrapped(foreign) => Ok(Known::Unwrapped(foreign)),
    })?;
    let text = match found {
        Known::Session(mut details) => {
            Asked { home, origin: &origin, now }.fill(std::slice::from_mut(&mut details.record));
            if details.record.state.as_ref().is_some_and(asks) {
                details.question = details.record.run_id.and_then(|run| Question::of_runs(home, &[run]));
            }
            if args.json {
                json::pretty(&details)?
            } else {
                Sheets(&details).draw(Style::of_stdout(), &os::zone::local())
            }
        }
        Known::Unwrapped(foreign) => {
            let title = title::of_foreign(&foreign, &origin);
            if args.json {
                json::pretty(&foreign_record(&foreign, title.as_deref()))?
            } else {
                draw_foreign(&foreign, title.as_deref(), Style::of_stdout())
            }
        }
    };
    out.write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// What is known of the session that was asked for.
enum Known {
    Session(Box<SessionDetails>),
    /// A conversation that codemie never wrapped.
    Unwrapped(UnwrappedConversation),
}

/// Neighbours shown on each side; further ones are counted.
const NEIGHBOURS: usize = 4;

/// Details on their way to a terminal.
struct Sheets<'a>(&'a SessionDetails);

impl Sheets<'_> {
    fn draw(&self, style: Style, zone: &TimeZone) -> String {
        let record = &self.0.record;
        let status = session_text::status(record);
        let mut text = style.heading(&[
            (&record.name, Colour::Heading),
            (&status, session_text::colour(record.status, record.end_reason)),
        ]);
        text += &self.identity(zone).render(style);
        text.push('\n');
        if metered(record) {
            text += &usage_table(record).render(style);
            text.push('\n');
            if let Some(bill) = &self.0.bill {
                text += &table(bill, &record.usage.unpriced_models).render(style);
                text.push('\n');
            }
        }
        text += &self.activity(zone).render(style);
        if let Some(asked) = &self.0.question {
            text.push('\n');
            text += &answer::draw_question(asked, &record.name, style);
        }
        text
    }

    fn identity(&self, zone: &TimeZone) -> Sheet {
        let record = &self.0.record;
        let mut sheet = Sheet::default();
        sheet.maybe("state", record.state.as_ref().map(|state| state_line(state, zone)));
        sheet.maybe("sign", self.0.runaway.as_ref().map(|runaway| runaway.in_words()));
        sheet.maybe("title", record.title.as_ref());
        sheet.line("session", &record.session_id);
        let version = record.agent_version.as_deref().map(|version| format!(" {version}"));
        sheet.line("agent", record.agent.clone() + version.as_deref().unwrap_or(""));
        let several = if record.models.len() > 1 { "models" } else { "model" };
        sheet.maybe(several, (!record.models.is_empty()).then(|| record.models.join(", ")));
        sheet.line("started", date(record.start_time, zone));
        sheet.maybe("ended", record.end_time.map(|at| date(at, zone)));
        sheet.maybe("limit", self.0.limit.as_ref());
        let open = format::duration(Duration::from_millis(record.duration_ms));
        sheet.line(
            "open for",
            if self.0.openings > 1 { format!("{open} in {} openings", self.0.openings) } else { open },
        );
        sheet.line("folder", &record.working_directory);
        let project = [&record.project, &record.repository, &record.branch];
        let project: Vec<&str> = project.into_iter().filter_map(|part| part.as_deref()).collect();
        sheet.maybe("project", (!project.is_empty()).then(|| project.join(" · ")));
        sheet.maybe("chain", chain(&self.0.chain, &record.name));
        sheet.maybe("started in", self.0.parent.as_ref());
        sheet.maybe("started from it", (!self.0.children.is_empty()).then(|| self.0.children.join(", ")));
        sheet.maybe("with those", self.0.tree.as_ref().map(tree));
        sheet.maybe("process", process(record));
        let correlation = &record.correlation;
        sheet.line("conversation", conversation(record));
        if let (Some(evidence), Some(at)) = (correlation.evidence, correlation.bound_at) {
            sheet.line("bound", format!("by {} ({evidence}), {}", evidence.in_words(), date(at, zone)));
        }
        sheet.maybe("file", correlation.agent_session_file.as_ref());
        sheet.maybe("tags", (!record.tags.is_empty()).then(|| record.tags.join(", ")));
        sheet.maybe("group", record.group.as_ref());
        sheet.maybe("archived", self.0.archived.then_some("yes"));
        sheet.maybe("imported from", self.0.imported_from.as_ref());
        sheet
    }

    fn activity(&self, zone: &TimeZone) -> Sheet {
        let usage = &self.0.record.usage;
        let mut sheet = Sheet::default();
        if !metered(&self.0.record) {
            sheet.line("delivery", self.delivery(zone));
            return sheet;
        }
        if !usage.unpriced_models.is_empty() {
            sheet.line("no price for", unpriced::named(&usage.unpriced_models, &usage.unpriced_calls));
        }
        sheet.line("prompts", format::grouped(number(usage.prompts)));
        let failed = Some(usage.tool_errors).filter(|failed| *failed > 0);
        let failed =
            failed.map_or(String::new(), |failed| format!(", {} failed", format::grouped(number(failed))));
        sheet.line("tool calls", format::grouped(number(usage.tool_calls)) + &failed);
        sheet.line(
            "files changed",
            format!(
                "{} (+{} -{} lines)",
                format::grouped(number(usage.files_changed)),
                format::grouped(number(usage.lines_added)),
                format::grouped(number(usage.lines_removed))
            ),
        );
        sheet.maybe(
            "API errors",
            Some(usage.api_errors).filter(|n| *n > 0).map(|n| format::grouped(number(n))),
        );
        let missing = match usage.coverage {
            Coverage::None | Coverage::Complete => "",
            Coverage::Transcript => " (titles, compaction, classifiers and aborted answers are not in it)",
        };
        sheet.line("coverage", format!("{}{missing}", usage.coverage));
        sheet.maybe(
            "usage not read",
            Some(self.0.unread_calls).filter(|calls| *calls > 0).map(|calls| {
                let calls = format::counted(usize::try_from(calls).unwrap_or(usize::MAX), "call");
                format!("of {calls}, or not all of it: what the proxy could read is counted")
            }),
        );
        lines(self.0, zone, &mut sheet);
        sheet.line("delivery", self.delivery(zone));
        sheet
    }

    fn delivery(&self, zone: &TimeZone) -> String {
        let sync = &self.0.record.sync;
        if !self.0.sends {
            return "nothing is sent: no backend is set up".into();
        }
        let mut parts = vec![format!("{} delivered", sync.delivered), format!("{} waiting", sync.pending)];
        if sync.dead > 0 {
            parts.push(format!("{} refused", sync.dead));
        }
        if let Some(at) = sync.last_delivered_at {
            parts.push(format!("last {}", date(at, zone)));
        }
        parts.join(", ")
    }
}

/// `2 before → fix → [here] → next`; `None` for a session without neighbours.
pub(super) fn chain(chain: &Chain, here: &str) -> Option<String> {
    if chain.before.is_empty() && chain.after.is_empty() {
        return None;
    }
    let mut links = Vec::new();
    let earlier = chain.before.len().saturating_sub(NEIGHBOURS);
    if earlier > 0 {
        links.push(format!("{earlier} before"));
    }
    links.extend(chain.before.iter().skip(earlier).cloned());
    links.push(format!("[{here}]"));
    links.extend(chain.after.iter().take(NEIGHBOURS).cloned());
    let later = chain.after.len().saturating_sub(NEIGHBOURS);
    if later > 0 {
        links.push(format!("{later} after"));
    }
    Some(links.join(" → "))
}

/// `3 sessions · 12 calls · 34.5k tokens · $0.1234`: a session together with all that it has started.
fn tree(tree: &TreeUsage) -> String {
    [
        format::counted(tree.sessions, "session"),
        format::counted(usize::try_from(tree.sums.api_calls).unwrap_or_default(), "call"),
        format!("{} tokens", format::count(number(tree.sums.tokens()))),
        cost(tree.sums.cost.dollars(), &tree.unpriced_models),
    ]
    .join(" · ")
}

/// `needs-input since 2026-11-16 09:05:00: permission to run a command (screen)`.
fn state_line(state: &LiveState, zone: &TimeZone) -> String {
    let source = state.source.map_or(String::new(), |source| format!(" ({source})"));
    format!("{} since {}: {}{source}", state.is, date(state.since, zone), state.why)
}

fn process(record: &SessionRecord) -> Option<String> {
    let wrapper = record.wrapper_pid?;
    let agent = record.pid.map_or("not started".to_owned(), |pid| pid.to_string());
    let run = record.run_id.map_or(String::new(), |run| format!(", run {run}"));
    Some(format!("{agent}, wrapped by {wrapper}{run}"))
}

fn conversation(record: &SessionRecord) -> String {
    match (&record.correlation.agent_session_id, record.correlation.status) {
        (Some(id), _) => id.to_string(),
        (None, _) if registry::by_name(&record.agent).is_none() => {
            format!("none: {} is no agent", record.agent)
        }
        (None, Link::Ambiguous) => "ambiguous: the evidence allows two; `codemie explain` shows it".into(),
        (None, Link::Failed) => "unknown: no evidence named it; `codemie explain` shows what was seen".into(),
        (None, _) => format!("pending: {} has not shown one yet", record.agent),
    }
}

/// A program that is no agent calls nobody: there is nothing to count.
fn metered(record: &SessionRecord) -> bool {
    let usage = &record.usage;
    registry::by_name(&record.agent).is_some() || usage.api_calls + usage.prompts + usage.tool_calls > 0
}

fn usage_table(record: &SessionRecord) -> Table {
    let usage = &record.usage;
    let mut table = Table::new([
        Column::number("CALLS").dispensable(1),
        Column::number("INPUT"),
        Column::number("OUTPUT"),
        Column::number("CACHE READ").dispensable(2),
        Column::number("CACHE WRITE").dispensable(3),
        Column::number("REASONING").dispensable(5),
        Column::number("TOKENS").dispensable(4),
        Column::number("COST"),
    ]);
    let counts = [
        usage.api_calls,
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
    ];
    let counts = counts.into_iter().map(number).chain([tokens(usage)]).map(format::grouped);
    table.row(counts.chain([cost(usage.cost_usd, &usage.unpriced_models)]).map(Into::into));
    table
}

fn draw_foreign(foreign: &UnwrappedConversation, title: Option<&str>, style: Style) -> String {
    let mut sheet = Sheet::default();
    sheet.maybe("title", title);
    sheet.line("agent", &foreign.agent);
    sheet.maybe("folder", foreign.cwd.as_ref().map(|folder| folder.to_string_lossy()));
    sheet.line("file", foreign.file.to_string_lossy());
    sheet.line(
        "next",
        format!("`codemie resume {}` continues and adopts it", shell::word(&foreign.agent_session.0)),
    );
    let title = (foreign.agent_session.0.as_str(), Colour::Heading);
    let words = [title, ("not wrapped: it never ran through codemie", Colour::Plain)];
    style.heading(&words) + &sheet.render(style)
}

// The part of `show` about what the proxy saw: the bill, how long answers took, what was used of limits.

/// What the transcript holds, and below it what only the proxy saw, by kind.
pub(super) fn table(bill: &Bill, unpriced: &[String]) -> Table {
    let mut table = Table::new([
        Column::text("BILL", 12),
        Column::number("CALLS"),
        Column::number("INPUT").dispensable(2),
        Column::number("OUTPUT").dispensable(1),
        Column::number("CACHE READ").dispensable(3),
        Column::number("CACHE WRITE").dispensable(4),
        Column::number("COST"),
    ]);
    let mut row = |name: String, sum: &BilledSum| {
        let counts = [
            sum.calls.api_calls,
            sum.calls.input,
            sum.calls.output,
            sum.calls.cache_read,
            sum.calls.cache_write,
        ];
        let counts = counts.into_iter().map(|count| format::grouped(number(count)));
        let cells = [name].into_iter().chain(counts).chain([cost(sum.calls.cost.dollars(), unpriced)]);
        table.row(cells.map(Into::into));
    };
    row("transcript".into(), &bill.transcript);
    row("proxy only".into(), &bill.proxy_only);
    for kind in &bill.by_kind {
        row(format!("  {}{}", kind.kind, marks(&kind.sum)), &kind.sum);
    }
    table
}

/// `, 1 aborted, 2 repeated`.
fn marks(sum: &BilledSum) -> String {
    let mark = |count: i64, word: &str| {
        if count > 0 { format!(", {} {word}", format::grouped(number(count))) } else { String::new() }
    };
    mark(sum.aborted, "aborted") + &mark(sum.repeated, "repeated")
}

pub(super) fn lines(details: &SessionDetails, zone: &TimeZone, sheet: &mut Sheet) {
    if let Some(bill) = &details.bill {
        let part = percent(bill.difference);
        sheet.line("difference", format!("{part} of the bill is not in the transcript"));
        if let Some(latency) = &bill.latency {
            let time = |ms| format::grouped(ms) + " ms";
            let first = latency.ttft_p50_ms.map(|ms| format!(", first token after {}", time(ms)));
            let first = first.unwrap_or_default();
            sheet.line(
                "answers",
                format!("p50 {}, p95 {}{first}", time(latency.p50_ms), time(latency.p95_ms)),
            );
        }
    }
    for quota in &details.quotas {
        sheet.line("limit", limit(quota, zone));
    }
    if details.waiting_calls > 0 {
        sheet.line(
            "waiting calls",
            format!("{} of its run, of conversations that are no sessions", details.waiting_calls),
        );
    }
}

fn limit(quota: &QuotaUse, zone: &TimeZone) -> String {
    let share = if quota.computed { " (computed: its share by tokens)" } else { "" };
    let resets = quota.resets_at.map(|at| format!(", resets {}", date(at, zone))).unwrap_or_default();
    format!(
        "{} {}: used {}{share}, {} to {}{resets}",
        quota.provider,
        quota.window,
        percent(quota.used.part()),
        percent(quota.first.part()),
        percent(quota.last.part())
    )
}

/// `12.5 %`, to a tenth.
fn percent(part: f64) -> String {
    let millionths = Utilization::of(part).unwrap_or_default().millionths();
    let tenths = (millionths + 500) / 1000;
    match tenths % 10 {
        0 => format!("{} %", tenths / 10),
        rest => format!("{}.{rest} %", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::*;
    use crate::cmd::session_text::sample;
    use store::session::record::summary;
    use types::{CallSums, PicoDollars, Sums};

    fn details() -> SessionDetails {
        let mut record = sample();
        record.tags = vec!["bug".into()];
        record.usage.unpriced_models = vec!["brand-new".into(), "claude-opus-4-5".into()];
        record.usage.unpriced_calls = [("brand-new".to_owned(), 1), ("claude-opus-4-5".to_owned(), 2)].into();
        SessionDetails {
            record,
            openings: 2,
            archived: false,
            imported_from: None,
            chain: Chain {
                before: (1..=6).map(|n| format!("earlier-{n}")).collect(),
                after: vec!["fix-auth.2".into()],
            },
            parent: None,
            children: Vec::new(),
            tree: None,
            limit: None,
            sends: true,
            bill: None,
            quotas: Vec::new(),
            waiting_calls: 0,
            unread_calls: 0,
            runaway: None,
            question: None,
        }
    }

    #[test]
    fn a_session_is_drawn_in_aligned_lines() {
        assert_eq!(
            Sheets(&details()).draw(Style { colour: false, columns: 100 }, &TimeZone::UTC),
            "\
fix-auth  cleared
  session       01a1e2f3-0000-4000-8000-000000000001
  agent         claude 2.1.197
  started       2026-11-16 09:05:00
  ended         2026-11-16 09:05:47
  open for      47s in 2 openings
  folder        /home/dev/project
  project       project · acme/widgets · main
  chain         2 before → earlier-3 → earlier-4 → earlier-5 → earlier-6 → [fix-auth] → fix-auth.2
  process       4243, wrapped by 4242, run 00000000-0000-4000-8000-000000000009
  conversation  7a276c6b-0000-4000-8000-000000000003
  bound         by the id it was given (assigned), 2026-11-16 09:05:00
  file          /home/dev/.claude/projects/-home-dev-project/7a276c6b.jsonl
  tags          bug

CALLS  INPUT  OUTPUT  CACHE READ  CACHE WRITE  REASONING  TOKENS      COST
    6     92     152       6,032          632          0   6,908  $0.0123+

  no price for   brand-new, claude-opus-4-5 in fast mode (2 calls)
  prompts        3
  tool calls     4, 1 failed
  files changed  2 (+12 -3 lines)
  coverage       transcript (titles, compaction, classifiers and aborted answers are not in it)
  delivery       9 delivered, 0 waiting, last 2026-11-16 09:05:47
"
        );
    }

    #[test]
    fn calls_whose_usage_was_not_read_are_named_beside_the_coverage() {
        let mut details = details();
        details.unread_calls = 2;
        let text = Sheets(&details).draw(Style { colour: false, columns: 100 }, &TimeZone::UTC);
        assert!(text.contains("\n  usage not read  of 2 calls, or not all of it: "), "{text}");
        assert_eq!(serde_json::to_value(&details).unwrap()["unreadCalls"], 2);
    }

    #[test]
    fn a_session_that_started_others_is_drawn_with_the_sum_of_all() {
        let mut details = details();
        details.children = vec!["worker".into()];
        details.limit = Some("mcp.idleLimit is reached: the session was stopped".into());
        details.tree = Some(TreeUsage {
            sessions: 3,
            sums: CallSums {
                api_calls: 12,
                input: 4_000,
                cost: PicoDollars(250_000_000_000),
                ..CallSums::default()
            },
            unpriced_models: vec!["new".into()],
        });
        let text = Sheets(&details).draw(Style { colour: false, columns: 100 }, &TimeZone::UTC);
        for line in [
            "  limit            mcp.idleLimit is reached: the session was stopped\n",
            "  started from it  worker\n  with those       3 sessions · 12 calls · 4.00k tokens · $0.2500+\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn the_state_of_a_running_session_is_drawn_with_its_reason() {
        let mut details = details();
        let state = serde_json::json!({"is": "needs-input", "since": 1_794_819_900_000_i64,
            "why": "permission to run a command", "source": "screen"});
        details.record.state = Some(serde_json::from_value(state).unwrap());
        let text = Sheets(&details).draw(Style { colour: false, columns: 100 }, &TimeZone::UTC);
        let line =
            "  state         needs-input since 2026-11-16 09:05:00: permission to run a command (screen)\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn hostile_text_in_a_record_is_drawn_harmlessly() {
        crate::cmd::hostile::draw_everywhere(|text, style| {
            let mut details = details();
            let some = || Some(text.to_owned());
            let record = &mut details.record;
            for field in
                [&mut record.session_id, &mut record.name, &mut record.agent, &mut record.working_directory]
            {
                *field = text.into();
            }
            (record.agent_version, record.project, record.repository, record.branch) =
                (some(), some(), some(), some());
            (record.tags, record.group) = (vec![text.into()], some());
            (record.title, record.models) = (some(), vec![text.into()]);
            record.state = Some(LiveState {
                is: types::Activity::Working,
                since: record.start_time,
                why: text.into(),
                source: None,
            });
            record.correlation.agent_session_id = Some(types::AgentSessionId(text.into()));
            record.correlation.agent_session_file = some();
            record.usage.unpriced_models = vec![text.into()];
            (details.imported_from, details.parent, details.children) = (some(), some(), vec![text.into()]);
            details.chain.before = [text.to_owned()].into();
            let foreign = UnwrappedConversation {
                agent: text.into(),
                agent_session: types::AgentSessionId(text.into()),
                file: text.into(),
                cwd: Some(text.into()),
            };
            Sheets(&details).draw(style, &TimeZone::UTC) + &draw_foreign(&foreign, Some(text), style)
        });
    }

    #[test]
    fn a_program_that_is_no_agent_has_nothing_to_count() {
        let mut details = details();
        details.record.agent = "make".into();
        details.record.usage = summary(Sums::default(), std::collections::BTreeMap::new(), Coverage::None);
        let text = Sheets(&details).draw(Style { colour: false, columns: 100 }, &TimeZone::UTC);
        assert!(
            text.ends_with("\n\n  delivery  9 delivered, 0 waiting, last 2026-11-16 09:05:47\n"),
            "{text}"
        );
        assert!(!text.contains("CALLS") && !text.contains("prompts"), "{text}");
    }

    #[test]
    fn every_line_fits() {
        for columns in [40, 60, 80, 120, 200] {
            let text = Sheets(&details()).draw(Style { colour: false, columns }, &TimeZone::UTC);
            assert!(text.lines().all(|line| line.width() <= columns), "{columns}:\n{text}");
        }
    }

    #[test]
    fn large_numbers_fit_a_narrow_terminal() {
        let mut record = sample();
        record.usage.api_calls = 12_345;
        record.usage.input_tokens = 123_456_789;
        record.usage.output_tokens = 12_345_678;
        record.usage.cost_usd = 12_345.67;
        let text = usage_table(&record).render(Style { colour: false, columns: 40 });
        assert_eq!(text, "      INPUT      OUTPUT        COST\n123,456,789  12,345,678  $12,345.67\n");
    }
}

#[cfg(test)]
mod bill_tests {
    use super::*;

    #[test]
    fn parts_are_shown_to_a_tenth_of_a_percent() {
        for (part, shown) in [
            (0.0, "0 %"),
            (0.125, "12.5 %"),
            (0.15, "15 %"),
            (0.0004, "0 %"),
            (0.0006, "0.1 %"),
            (1.0, "100 %"),
        ] {
            assert_eq!(percent(part), shown);
        }
    }
}

//! `codemie list`.

use agents::registry::EXAMPLE;
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use jiff::tz::TimeZone;
use serde::Serialize;

use super::budget;
use super::scanner::with_scanner;
use super::session_text::{self, ShortIds, costs, state_or_status};
use crate::cli::{List, StatusName};
use format::output::table::{Cell, Column, Table};
use format::output::{Colour, Style, json};
use os::clock::{Clock, SystemClock};
use os::home::Home;
use report::list::{self, ListedRecord, Listing, SessionLine};
use report::open::open_existing;
use report::state::Asked;
use report::title;
use report::unwrapped;
use runtime::launch::{Origin, settings};
use scan::ForeignSession;
use store::{SessionQuery, Show};
use types::{Activity, Filter, LiveState, Span, Timestamp};

pub fn run(args: &List, home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let (now, zone) = (SystemClock.now(), os::zone::local());
    let query = query(args, now, &zone);
    let mut store = open_existing(home)?;
    let origin = Origin::of_this_process();
    let asked = Asked { home, origin: &origin, now };
    // What a session does is found out by asking it, and what a scan finds stands among the sessions: all are looked at before the
    // first ones are chosen.
    let activity = args.status.and_then(StatusName::activity);
    let not_wrapped = args.status == Some(StatusName::NotWrapped);
    let scan = args.scan || not_wrapped;
    let first = |count, lines| match () {
        () if not_wrapped => 0,
        () if scan || activity.is_some() => count,
        () => fitting(count, args.limit, lines),
    };
    let unwrapped: Vec<ForeignSession> = if scan {
        let mut found =
            with_scanner(home, !args.json, |scanner| unwrapped::unwrapped(store.as_mut(), scanner))?;
        found.retain(|session| unwrapped::is_wanted(session, &query));
        found
    } else {
        Vec::new()
    };
    if args.json {
        let mut listing = list::recorded(store.as_mut(), &query, |count| first(count, None), now)?;
        asked.fill(&mut listing.sessions);
        if let Some(activity) = activity {
            listing.sessions.retain(|record| does(record.state.as_ref(), activity));
        }
        let limits = settings(Some(home), &origin).runaway;
        let records = ListedRecord::of(store.as_mut(), listing.sessions, limits, now)?;
        let mut records: Vec<(String, ListedItem)> = records
            .into_iter()
            .map(|record| (record.record.session_id.clone(), ListedItem::Session(Box::new(record))))
            .collect();
        if scan {
            let item = |session: &ForeignSession| ListedItem::Unwrapped(unwrapped::record(session));
            records.extend(unwrapped.iter().map(|session| (session.conversation.0.clone(), item(session))));
            // Records do not hold what they are ordered by; lines do.
            let all = |count| first(count, None);
            let mut order = list::summarised(store.as_mut(), &query, all, now, false)?.sessions;
            order.extend(unwrapped.into_iter().map(SessionLine::of_unwrapped));
            list::sort(&mut order, args.sort);
            let place: HashMap<&str, usize> =
                order.iter().enumerate().map(|(place, line)| (line.row.id.as_str(), place)).collect();
            records.sort_by_key(|(id, _)| place.get(id.as_str()).copied());
        }
        let mut records: Vec<_> = records.into_iter().map(|(_, record)| record).collect();
        records.truncate(fitting(records.len(), args.limit, None));
        out.write_all(json::pretty(&records)?.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let style = Style::of_stdout();
    let rows = Style::rows_of_stdout();
    let mut listing =
        list::summarised(store.as_mut(), &query, |count| first(count, rows), now, is_wide(style))?;
    if not_wrapped {
        listing.more = 0;
    }
    let mut folded = false;
    if let Some(store) = &mut store {
        if list::holds_unattributed(store, &listing.sessions)? {
            // The one row is of all of them, not of those alone that fit.
            if listing.more > 0 {
                listing = list::summarised(Some(store), &query, |count| count, now, is_wide(style))?;
            }
            list::fold_unattributed(store, &mut listing.sessions)?;
            folded = true;
        }
        list::add_states(store, &mut listing.sessions, &asked)?;
    }
    if scan {
        listing.sessions.extend(unwrapped.into_iter().map(SessionLine::of_unwrapped));
    }
    if scan || folded {
        list::sort(&mut listing.sessions, args.sort);
    }
    if scan || folded || activity.is_some() {
        let wanted = |line: &SessionLine| activity.is_none_or(|activity| does(line.state.as_ref(), activity));
        listing.keep(wanted, |count| fitting(count, args.limit, rows));
    }
    let Listing { sessions: mut lines, more } = listing;
    unwrapped::add_titles(lines.iter_mut().take(TITLED), &origin);
    let mut used = Vec::new();
    if let Some(store) = &mut store {
        let config = settings(Some(home), &origin);
        list::add_runaways(store, &mut lines, config.runaway, now)?;
        used = list::add_budgets(store, &mut lines, &config.budgets, now, &zone)?;
        title::add_missing(store, lines.iter_mut().take(TITLED), &origin)?;
    }
    if lines.is_empty() {
        let files = if scan { 0 } else { with_scanner(home, false, |scanner| scanner.count_files()) };
        write!(out, "{}", style.fold(&nothing(args, files)))?;
    } else {
        out.write_all(drawn(&lines, now, &zone, style).as_bytes())?;
    }
    if more > 0 {
        let more = format::grouped(more as u64);
        let line = format!("… {more} more, `--limit 0` shows all");
        writeln!(out, "{}", style.paint(&line, Colour::Faint))?;
    }
    for line in signs(&lines) {
        write!(out, "{}", style.fold(&line))?;
    }
    for status in used {
        write!(out, "{}", style.fold(&format!("Budget {}.", status.in_words(now, &zone))))?;
    }
    if let Some(store) = &mut store {
        for row in store.read(|view| view.sinks())? {
            if let Some(why) = row.paused {
                let name = row.name;
                let line =
                    format!("Delivery to {name} is paused: it {why}. `codemie doctor` says what to do.");
                write!(out, "{}", style.fold(&line))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What `--json` has in its array.
#[derive(Serialize)]
#[serde(untagged)]
enum ListedItem {
    Session(Box<ListedRecord>),
    Unwrapped(serde_json::Value),
}

fn does(state: Option<&LiveState>, activity: Activity) -> bool {
    state.is_some_and(|state| state.is == activity)
}

/// What the sign of each session that shows one means.
fn signs(lines: &[SessionLine]) -> impl Iterator<Item = String> + '_ {
    lines.iter().filter_map(|line| {
        let runaway = line.runaway.as_ref()?;
        Some(format!("{} shows a sign: {}.", line.row.name, runaway.in_words()))
    })
}

/// Titles are looked for in so many sessions at once: a screen full.
const TITLED: usize = 50;

/// How many of `count` sessions are shown: the limit, else as many as fit the terminal's lines.
fn fitting(count: usize, limit: Option<usize>, lines: Option<usize>) -> usize {
    /// Titles, and the shell's prompt below.
    const AROUND: usize = 2;
    let most = match (limit, lines) {
        (Some(0), _) | (None, None) => count,
        (Some(limit), _) => limit,
        (None, Some(lines)) if count + AROUND <= lines => count,
        // One line less for "… more"; five are shown on the lowest of terminals.
        (None, Some(lines)) => lines.saturating_sub(AROUND + 1).max(5),
    };
    most.min(count)
}

fn query(args: &List, now: Timestamp, zone: &TimeZone) -> SessionQuery {
    SessionQuery {
        filter: Filter {
            agent: args.agent.clone(),
            project: args.project.as_deref().map(project),
            branch: args.branch.clone(),
            model: args.model.clone(),
            tag: args.tag.clone(),
            group: args.group.clone(),
            status: args.status.and_then(StatusName::status),
            span: Span { since: args.since.map(|since| since.before(now, zone)), until: None },
            words: args.words.clone(),
            ..Filter::default()
        },
        show: match args.status {
            Some(StatusName::Archived) => Show::Archived,
            _ if args.all => Show::All,
            _ if args.active => Show::Active,
            _ => Show::NotArchived,
        },
        ended_by: args.status.and_then(StatusName::end_reason),
        sort: args.sort,
    }
}

/// A path as the store holds it; a name stays what it is, whatever lies in this folder.
pub(super) fn project(wanted: &str) -> String {
    let path = Path::new(wanted);
    if !(wanted.starts_with('.') || path.is_absolute()) {
        return wanted.to_owned();
    }
    path.canonicalize().map_or_else(|_| wanted.to_owned(), |path| path.to_string_lossy().into_owned())
}

/// `files`: so many session files of agents are on this machine.
fn nothing(args: &List, files: usize) -> String {
    let List { words, active, agent, project, tag, group, since, branch, status, model, .. } = args;
    let narrowed = [agent, project, tag, group, branch, model].iter().any(|filter| filter.is_some())
        || since.is_some()
        || status.is_some()
        || !words.is_empty();
    if narrowed {
        "No session matches. `codemie list --all` shows every one there is.".to_owned()
    } else if *active {
        format!(
            "No session is running. `codemie {EXAMPLE}` starts one; `codemie list` shows those that ended."
        )
    } else if args.scan {
        format!(
            "No sessions yet, and no conversation of an agent on this machine. Run your agent through codemie, for example `codemie {EXAMPLE}`, and it is listed here."
        )
    } else {
        let first = format!(
            "No sessions yet. Run your agent through codemie, for example `codemie {EXAMPLE}`, and it is listed here."
        );
        match files {
            0 => first,
            files => format!(
                "{first} There {} {} from before: `codemie list --scan` lists their conversations, `codemie usage --scan` counts them.",
                if files == 1 { "is" } else { "are" },
                format::counted(files, "session file"),
            ),
        }
    }
}

/// Whether there is room for what more is known of sessions: branch, tags, model. Without a terminal it is not
/// shown.
fn is_wide(style: Style) -> bool {
    (100..usize::MAX).contains(&style.columns)
}

/// On 80 columns the fields that distinguish sessions stay: name, title, status, time, cost and the id to name it by; on 40 the name
/// (a usual one whole), the status (`interrup…`) and the id. Of a running one the status says what it does, if that is known. An archived one is marked by its status where there is no room
/// for a column.
fn drawn(lines: &[SessionLine], now: Timestamp, zone: &TimeZone, style: Style) -> String {
    const ARCHIVED: &str = "ARCHIVED";
    let table = |archived| table(lines, now, zone, archived, style);
    let marked = Column::text(ARCHIVED, usize::MAX).dispensable(1);
    let any = lines.iter().any(|line| line.row.archived);
    let separate = table(any.then_some(marked));
    if any && !separate.shows(ARCHIVED, style) { table(None).render(style) } else { separate.render(style) }
}

/// `archived`: the column that marks them, where it is not their status.
fn table(
    lines: &[SessionLine],
    now: Timestamp,
    zone: &TimeZone,
    archived: Option<Column>,
    style: Style,
) -> Table {
    let wide = is_wide(style);
    let titles = lines.iter().any(|line| line.row.title.is_some());
    let models = wide && lines.iter().any(|line| !line.models.is_empty());
    let called = |line: &SessionLine| line.row.api_calls > 0;
    let metered = lines.iter().any(called);
    let (branches, tags) =
        (lines.iter().any(|line| line.row.branch.is_some()), lines.iter().any(|line| !line.tags.is_empty()));
    let mut columns = vec![Column::text("NAME", session_text::NAME)];
    // Where there is more room, other columns go before a title is cut to a word or two.
    let least = if wide { 30 } else { 16 };
    columns.extend(titles.then(|| Column::text("TITLE", least).dispensable(2)));
    columns.extend([
        Column::text("AGENT", 6).dispensable(6),
        Column::text("STATUS", usize::MAX).at_worst(9),
        Column::text("PROJECT", 7).dispensable(5),
    ]);
    columns.extend(branches.then(|| Column::text("BRANCH", 12).dispensable(9)));
    columns.extend(models.then(|| Column::text("MODEL", 15).dispensable(10)));
    columns.push(Column::text("LAST USED", usize::MAX).dispensable(4));
    columns.push(Column::number("TIME").dispensable(8));
    if metered {
        columns.extend([Column::number("TOKENS").dispensable(7), Column::number("COST").dispensable(3)]);
    }
    let budgets = lines.iter().any(|line| line.budget.is_some());
    columns.extend(budgets.then(|| Column::number("BUDGET").dispensable(1)));
    let any_signs = lines.iter().any(|line| line.runaway.is_some());
    columns.extend(any_signs.then(|| Column::text("SIGN", 10).dispensable(1)));
    columns.push(Column::text("ID", session_text::ID));
    columns.extend(archived);
    columns.extend(tags.then(|| Column::text("TAGS", 12).dispensable(11)));
    let mut table = Table::new(columns);
    let ids: ShortIds<'_> = lines.iter().map(|line| line.row.id.as_str()).collect();
    let moments = format::Moments::until(now, zone);
    let amounts = lines.iter().map(|line| called(line).then_some((line.row.cost, &*line.unpriced_models)));
    for (line, cost) in lines.iter().zip(costs(amounts)) {
        let row = &line.row;
        let is_wrapped = line.unwrapped.is_none();
        let status = match archived {
            _ if !is_wrapped => Cell::painted(session_text::NOT_WRAPPED, Colour::Faint),
            None if row.archived => Cell::painted("archived", Colour::Faint),
            _ => {
                let (word, colour) = state_or_status(line.state.as_ref(), row.status, row.end_reason);
                Cell::painted(word, colour)
            }
        };
        // Its id is all that it can be named by.
        let name =
            if is_wrapped { row.name.as_str().into() } else { Cell::painted(ids.of(&row.id), Colour::Faint) };
        let mut cells: Vec<Cell<'_>> = vec![name];
        cells.extend(titles.then(|| row.title.as_deref().unwrap_or("").into()));
        cells.extend([row.agent.as_str().into(), status, row.project.as_deref().unwrap_or("").into()]);
        cells.extend(branches.then(|| line.row.branch.as_deref().unwrap_or("").into()));
        cells.extend(models.then(|| model(&line.models).into()));
        cells.push(moments.moment(row.active_at).into());
        cells.push(if is_wrapped { format::duration(line.open) } else { String::new() }.into());
        if metered {
            let tokens = if called(line) { format::count(row.tokens) } else { String::new() };
            cells.extend([tokens.into(), cost.into()]);
        }
        if budgets {
            let mark =
                line.budget.map(|percent| Cell::painted(format!("{percent} %"), budget::colour(percent)));
            cells.push(mark.unwrap_or_default());
        }
        if any_signs {
            let mark = line.runaway.as_ref().map(|runaway| Cell::painted(runaway.in_short(), Colour::Bad));
            cells.push(mark.unwrap_or_default());
        }
        cells.push(Cell::painted(ids.of(&row.id), Colour::Faint));
        cells.extend(archived.map(|_| if row.archived { "yes" } else { "" }.into()));
        cells.extend(tags.then(|| line.tags.join(", ").into()));
        table.row(cells);
    }
    table
}

/// The model used most, without the date of its version, and how many others there are.
pub(super) fn model(models: &[String]) -> String {
    let Some(first) = models.first() else { return String::new() };
    let undated = first.rsplit_once('-').filter(|(_, date)| {
        date.len() == 8 && date.starts_with("20") && date.bytes().all(|byte| byte.is_ascii_digit())
    });
    let name = undated.map_or(first.as_str(), |(name, _)| name);
    match models.len() - 1 {
        0 => name.to_owned(),
        others => format!("{name} +{others}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use clap::ValueEnum;
    use store::ListedSession;
    use store::PicoDollars;
    use store::session::runaway::Runaway;
    use types::{EndReason, Status};

    fn line(id: &str, name: &str, status: Status, started: &str, api_calls: i64) -> SessionLine {
        SessionLine {
            row: ListedSession {
                n: 1,
                id: id.into(),
                name: name.into(),
                agent: "claude".into(),
                status,
                archived: false,
                project: Some("project".into()),
                branch: None,
                opening: 1,
                started_at: Timestamp::parse(started).unwrap(),
                ended_at: None,
                active_at: Timestamp::parse(started).unwrap(),
                end_reason: None,
                title: None,
                title_sought: false,
                cwd: None,
                bound: true,
                api_calls,
                tokens: 6908,
                cost: PicoDollars(12_300_000_000),
            },
            tags: Vec::new(),
            open: Duration::from_millis(47_792),
            unpriced_models: Vec::new(),
            models: Vec::new(),
            state: None,
            budget: None,
            runaway: None,
            unwrapped: None,
        }
    }

    fn lines() -> Vec<SessionLine> {
        let first = line("01a1e2f3-0000", "fix-auth", Status::Completed, "2026-11-16T09:05:00Z", 6);
        let mut second = line("9f3c77aa-0000", "fix-auth.2", Status::Interrupted, "2026-10-02T08:00:00Z", 0);
        second.row.project = Some("a-rather-long-name-of-a-project".into());
        vec![first, second]
    }

    #[test]
    fn the_limit_wins_over_the_height_of_the_terminal() {
        for (count, limit, lines, shown) in [
            (100, None, None, 100),
            (100, None, Some(24), 21),
            (22, None, Some(24), 22),
            (23, None, Some(24), 21),
            (100, None, Some(3), 5),
            (2, None, Some(3), 2),
            (100, Some(0), Some(24), 100),
            (100, Some(7), Some(24), 7),
            (100, Some(50), Some(24), 50),
            (3, Some(7), None, 3),
            (0, None, Some(24), 0),
        ] {
            assert_eq!(fitting(count, limit, lines), shown, "{count} {limit:?} {lines:?}");
        }
    }

    fn drawn(columns: usize) -> String {
        of(&lines(), columns)
    }

    fn of(lines: &[SessionLine], columns: usize) -> String {
        let now = Timestamp::parse("2026-11-16T12:00:00Z").unwrap();
        super::drawn(lines, now, &TimeZone::UTC, Style { colour: false, columns })
    }

    #[test]
    fn a_wide_terminal_shows_everything() {
        assert_eq!(
            drawn(200),
            "\
NAME        AGENT   STATUS       PROJECT                          LAST USED     TIME  TOKENS     COST  ID
fix-auth    claude  completed    project                          09:05          47s   6.91k  $0.0123  01a1e2f3
fix-auth.2  claude  interrupted  a-rather-long-name-of-a-project  Oct 02 08:00   47s                   9f3c77aa
"
        );
    }

    #[test]
    fn eighty_columns_keep_the_fields_that_distinguish_sessions() {
        assert_eq!(
            drawn(80),
            "\
NAME        AGENT   STATUS       PROJECT         LAST USED        COST  ID
fix-auth    claude  completed    project         09:05         $0.0123  01a1e2f3
fix-auth.2  claude  interrupted  a-rather-long…  Oct 02 08:00           9f3c77aa
"
        );
    }

    fn titled() -> Vec<SessionLine> {
        let mut lines = lines();
        for (line, title) in lines.iter_mut().zip(["Fix the login of the admin pages", "Meter the proxy"]) {
            line.row.title = Some(title.into());
            line.row.branch = Some("feature/login".into());
            line.models = vec!["claude-opus-4-5-20251101".into(), "claude-haiku-4-5".into()];
            line.tags = vec!["bug".into()];
        }
        lines[0].row.end_reason = Some(EndReason::Clear);
        lines
    }

    #[test]
    fn titles_are_shown_on_every_terminal_and_more_where_there_is_room() {
        for (columns, headings) in [
            (56, "NAME TITLE STATUS ID"),
            (80, "NAME TITLE STATUS LAST USED COST ID"),
            (100, "NAME TITLE STATUS PROJECT LAST USED COST ID"),
            (140, "NAME TITLE AGENT STATUS PROJECT BRANCH LAST USED TIME TOKENS COST ID"),
            (200, "NAME TITLE AGENT STATUS PROJECT BRANCH MODEL LAST USED TIME TOKENS COST ID TAGS"),
        ] {
            let text = of(&titled(), columns);
            let first = text.lines().next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(first, headings, "{columns}:\n{text}");
            assert!(text.contains("Fix the login of"), "{columns}:\n{text}");
            assert!(text.contains("  cleared  "), "{columns}:\n{text}");
        }
        assert!(of(&titled(), 200).contains("  claude-opus-4-5 +1  "));
        let piped = of(&titled(), usize::MAX);
        assert!(piped.contains("  TITLE  ") && piped.contains("  Fix the login of"), "{piped}");
        assert!(piped.contains("  cleared  "), "the same word as on a terminal:\n{piped}");
    }

    #[test]
    fn the_model_used_most_is_named_without_its_date() {
        for (models, shown) in [
            (&[][..], ""),
            (&["claude-opus-4-5-20251101"], "claude-opus-4-5"),
            (&["gpt-5", "gpt-5-mini", "x"], "gpt-5 +2"),
            (&["model-12345678"], "model-12345678"),
        ] {
            let models: Vec<String> = models.iter().map(|model| (*model).to_owned()).collect();
            assert_eq!(model(&models), shown);
        }
    }

    #[test]
    fn archived_ones_are_marked_where_there_are_any() {
        let mut lines = lines();
        lines[1].row.archived = true;
        let text = of(&lines, 80);
        let ends: Vec<_> = text.lines().map(|line| line.split_whitespace().next_back().unwrap()).collect();
        assert_eq!(ends, ["ARCHIVED", "01a1e2f3", "yes"], "{text}");
        assert!(!drawn(200).contains("ARCHIVED"));
        let narrow = of(&lines, 40);
        assert!(
            narrow.contains("fix-auth    completed  ") && narrow.contains("fix-auth.2  archived "),
            "{narrow}"
        );
    }

    #[test]
    fn running_ones_show_what_they_do() {
        let mut lines = lines();
        for line in &mut lines {
            line.row.status = Status::Active;
        }
        let state = |is| LiveState { is, since: Timestamp(0), why: String::new(), source: None };
        lines[0].state = Some(state(Activity::NeedsInput));
        lines[1].state = Some(state(Activity::Unknown));
        let text = of(&lines, 80);
        assert!(text.contains("fix-auth    claude  needs-input  project"), "{text}");
        assert!(text.contains("fix-auth.2  claude  active       a-rather"), "{text}");
    }

    #[test]
    fn every_word_of_the_column_can_be_asked_for() {
        let shown = |status, reason, state, archived| {
            let mut line = lines().remove(0);
            (line.row.status, line.row.end_reason, line.row.archived) = (status, reason, archived);
            line.state = state;
            let text = of(&[line], 40);
            text.lines().nth(1).unwrap().split_whitespace().nth(1).unwrap().to_owned()
        };
        let state = |is| LiveState { is, since: Timestamp(0), why: String::new(), source: None };
        let mut words: Vec<String> = Activity::ALL
            .iter()
            .map(|is| shown(Status::Active, None, Some(state(*is)), false))
            .chain([shown(Status::Completed, None, None, true), session_text::NOT_WRAPPED.to_owned()])
            .collect();
        for status in Status::ALL {
            words.push(shown(*status, None, None, false));
            words.extend(EndReason::ALL.iter().map(|reason| shown(*status, Some(*reason), None, false)));
        }
        for word in words {
            // On forty columns the longest one is cut.
            let word = word.replace("interrup…", "interrupted").replace("needs-in…", "needs-input");
            assert!(StatusName::from_str(&word, false).is_ok(), "{word}");
        }
    }

    #[test]
    fn conversations_that_never_ran_through_codemie_are_marked() {
        let mut lines = lines();
        lines[1].unwrapped = Some("/f".into());
        let text = of(&lines, 120);
        let second = text.lines().nth(2).unwrap();
        assert!(second.starts_with("9f3c77aa  claude  not wrapped  a-rather-long"), "{text}");
        assert!(second.ends_with("9f3c77aa") && !second.contains("47s"), "{text}");
        assert!(of(&lines, 40).lines().all(|line| line.chars().count() <= 40));
    }

    #[test]
    fn an_empty_list_names_what_was_there_before() {
        let plain = List::default();
        assert!(!nothing(&plain, 0).contains("--scan"));
        assert!(
            nothing(&plain, 226).contains("There are 226 session files from before: `codemie list --scan`")
        );
        assert!(nothing(&plain, 1).contains("There is 1 session file from before"));
        let narrowed = List { agent: Some("codex".into()), ..List::default() };
        assert!(!nothing(&narrowed, 226).contains("--scan"));
    }

    #[test]
    fn words_for_what_sessions_do_choose_before_the_limit() {
        let mut all: Vec<SessionLine> = lines().into_iter().chain(lines()).collect();
        for (line, is) in
            all.iter_mut().zip([Activity::Working, Activity::Idle, Activity::Working, Activity::Working])
        {
            line.state = Some(LiveState { is, since: Timestamp(0), why: String::new(), source: None });
        }
        all.extend(lines());
        let mut listing = Listing { sessions: all, more: 0 };
        listing
            .keep(|line| does(line.state.as_ref(), Activity::Working), |count| fitting(count, Some(2), None));
        assert_eq!((listing.sessions.len(), listing.more), (2, 1));
        assert!(listing.sessions.iter().all(|line| does(line.state.as_ref(), Activity::Working)));
    }

    #[test]
    fn running_ones_show_a_budget_that_is_nearly_spent() {
        let mut lines = lines();
        lines[1].budget = Some(104);
        let text = of(&lines, 80);
        let of_budget: Vec<_> =
            text.lines().map(|line| line.contains("BUDGET") || line.contains("104 %")).collect();
        assert_eq!(of_budget, [true, false, true], "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(!of(&lines, 40).contains("BUDGET"));
    }

    #[test]
    fn running_ones_show_their_signs() {
        let mut lines = lines();
        lines[1].runaway = Some(Runaway::Failing { tool: "Bash".into(), times: 6 });
        let text = of(&lines, 80);
        let marked: Vec<_> =
            text.lines().map(|line| line.contains("SIGN") || line.contains("Bash ×6")).collect();
        assert_eq!(marked, [true, false, true], "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(!of(&lines, 40).contains("SIGN"), "the line below the table says it");
        assert_eq!(
            signs(&lines).collect::<Vec<_>>(),
            ["fix-auth.2 shows a sign: Bash failed 6 times in a row."]
        );
    }

    #[test]
    fn columns_that_would_be_empty_are_not_there() {
        let mut lines = lines();
        lines.truncate(1);
        lines[0].row.api_calls = 0;
        let text = of(&lines, 80);
        assert!(!text.contains("TOKENS") && !text.contains("COST") && text.contains(" TIME  ID"), "{text}");
        assert!(!text.contains("BRANCH") && !text.contains("TAGS"), "{text}");
        lines[0].row.branch = Some("main".into());
        lines[0].tags = vec!["bug".into(), "ui".into()];
        let text = of(&lines, 200);
        assert!(text.contains("  project  main    ") && text.contains("  01a1e2f3  bug, ui\n"), "{text}");
        for (columns, wide) in [(80, false), (99, false), (100, true), (usize::MAX, false)] {
            assert_eq!(is_wide(Style { colour: false, columns }), wide);
        }
    }

    #[test]
    fn hostile_names_are_drawn_harmlessly() {
        crate::cmd::hostile::draw_everywhere(|text, style| {
            let mut lines = lines();
            for line in &mut lines {
                for field in [&mut line.row.id, &mut line.row.name, &mut line.row.agent] {
                    *field = text.into();
                }
                (line.row.project, line.row.branch) = (Some(text.into()), Some(text.into()));
                (line.row.title, line.models) = (Some(text.into()), vec![text.into()]);
                (line.tags, line.unpriced_models) = (vec![text.into()], vec![text.into()]);
                line.runaway = Some(Runaway::Failing { tool: text.into(), times: 6 });
            }
            super::drawn(&lines, Timestamp(0), &TimeZone::UTC, style)
        });
    }

    #[test]
    fn forty_columns_keep_name_status_and_id() {
        let mut lines = lines();
        lines[1].row.name = "claude-2611160731.2".into();
        let text = of(&lines, 40);
        assert_eq!(
            text,
            "\
NAME                 STATUS     ID
fix-auth             completed  01a1e2f3
claude-2611160731.2  interrup…  9f3c77aa
"
        );
    }
}

//! What the view looks like on a terminal of any size: which columns fit, the rows, more of the chosen session, the footer. Pure.

use agents::registry::EXAMPLE;
use jiff::tz::TimeZone;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Modifier, Style};
use ratatui_core::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::board::{Board, Input};
use crate::cmd::budget;
use crate::cmd::list::model;
use crate::cmd::session_text::{clock, colour_of_activity, costs};
use crate::cmd::show::chain;
use crate::fullscreen::{key_line, put, style};
use format::output::Colour;
use format::output::table::padded;
use format::text::{clean, shorten};
use report::context::ContextFill;
use report::statusline::Amount;
use report::top::{TopDetails, TopSession};
use types::{Activity, Status, Timestamp};

/// With fewer rows nothing more is shown of the chosen session.
const ROWS_WITH_DETAILS: u16 = 14;
/// So many rows are for it at least.
const LEAST_DETAILS: u16 = 8;

/// Everything that is drawn besides the board itself.
#[derive(Debug)]
pub(super) struct Shown<'a> {
    pub(super) details: Option<&'a TopDetails>,
    pub(super) today: Amount,
    /// Where the dashboard is served, once it is.
    pub(super) dashboard: Option<&'a str>,
    pub(super) now: Timestamp,
    pub(super) zone: &'a TimeZone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Name,
    State,
    Since,
    Title,
    Agent,
    Project,
    Cost,
    Rate,
    Context,
    Budget,
}

/// From left to right.
const COLUMNS: [Column; 10] = [
    Column::Name,
    Column::State,
    Column::Since,
    Column::Title,
    Column::Agent,
    Column::Project,
    Column::Cost,
    Column::Rate,
    Column::Context,
    Column::Budget,
];

/// What is left out first where there is no room.
const DISPENSABLE: [Column; 8] = [
    Column::Project,
    Column::Agent,
    Column::Rate,
    Column::Context,
    Column::Since,
    Column::Budget,
    Column::Title,
    Column::Cost,
];

/// Between two columns.
const GAP: usize = 2;
/// A usual name stays whole.
const LONGEST_NAME: usize = 22;
/// Where more is shown than is needed to know a session, its title is not cut to a word.
const LEAST_TITLE: usize = 15;

impl Column {
    fn heading(self) -> &'static str {
        match self {
            Self::Name => "NAME",
            Self::State => "STATE",
            Self::Since => "FOR",
            Self::Title => "TITLE",
            Self::Agent => "AGENT",
            Self::Project => "PROJECT",
            Self::Cost => "COST",
            Self::Rate => "TOK/MIN",
            Self::Context => "CONTEXT",
            Self::Budget => "BUDGET",
        }
    }

    /// How many cells it needs; the title takes what is left.
    fn cells(self, name: usize) -> usize {
        match self {
            Self::Name => name,
            Self::State => 11,
            Self::Since => 4,
            Self::Title => LEAST_TITLE,
            Self::Agent => 8,
            Self::Project => 14,
            Self::Cost => 9,
            Self::Rate | Self::Context => 7,
            Self::Budget => 6,
        }
    }

    /// How much wider than at the least the title has to be for this column to be there: what is not asked for cuts no title.
    fn spared(self) -> usize {
        match self {
            Self::Project => 15,
            Self::Agent => 9,
            _ => 0,
        }
    }

    fn is_number(self) -> bool {
        matches!(self, Self::Since | Self::Cost | Self::Rate | Self::Context | Self::Budget)
    }
}

/// What any of the sessions has something to show for.
#[derive(Clone, Copy, Debug)]
struct Filled {
    calls: bool,
    budgets: bool,
}

impl Filled {
    fn of(sessions: &[TopSession]) -> Self {
        Self {
            calls: sessions.iter().any(|session| session.line.row.api_calls > 0),
            budgets: sessions.iter().any(|session| session.budget.is_some()),
        }
    }

    fn has(self, column: Column) -> bool {
        match column {
            Column::Cost | Column::Rate | Column::Context => self.calls,
            Column::Budget => self.budgets,
            _ => true,
        }
    }
}

/// The columns that fit, with their widths. The title has what the others leave.
fn fitting(width: usize, longest_name: usize, filled: Filled) -> Vec<(Column, usize)> {
    let name = longest_name.clamp(4, LONGEST_NAME).min(width.saturating_sub(11 + GAP).max(4));
    let mut columns: Vec<Column> = COLUMNS.into_iter().filter(|column| filled.has(*column)).collect();
    let needed = |columns: &[Column]| {
        columns.iter().map(|column| column.cells(name) + GAP).sum::<usize>().saturating_sub(GAP)
    };
    for dispensable in DISPENSABLE {
        if needed(&columns) + dispensable.spared() <= width {
            break;
        }
        columns.retain(|column| *column != dispensable);
    }
    let left = width.saturating_sub(needed(&columns));
    let wide = |column: Column| column.cells(name) + if column == Column::Title { left } else { 0 };
    columns.into_iter().map(|column| (column, wide(column))).collect()
}

/// Paints everything.
pub(super) fn paint(buffer: &mut Buffer, board: &mut Board, shown: &Shown<'_>) {
    let (width, rows) = (usize::from(buffer.area.width), rows(buffer.area, board.sessions.len()));
    board.scroll(rows.into());
    put(buffer, 0, &header(board, shown, width), 1);
    if board.help {
        paint_help(buffer);
    } else if board.sessions.is_empty() {
        paint_nothing(buffer, board);
    } else {
        paint_sessions(buffer, board, shown, rows);
        if let Some((details, from)) = shown.details.zip(details_from(buffer.area, rows)) {
            paint_details(buffer, board, details, shown, from);
        }
        paint_hidden(buffer, board, rows);
    }
    put(buffer, buffer.area.height.saturating_sub(1), &footer(board, width.saturating_sub(1)), 1);
}

/// How many rows there are for sessions.
pub(super) fn rows(area: Rect, sessions: usize) -> u16 {
    // Header, headings and footer.
    let free = area.height.saturating_sub(4);
    let sessions = u16::try_from(sessions).unwrap_or(u16::MAX);
    if area.height < ROWS_WITH_DETAILS {
        // One less where it is said how many are not seen.
        return free.saturating_sub(u16::from(sessions > free)).max(1);
    }
    sessions.clamp(1, free.saturating_sub(LEAST_DETAILS + 1).max(1))
}

/// Below the sessions, on the rule above the details if there is one: how many are not seen.
fn paint_hidden(buffer: &mut Buffer, board: &Board, rows: u16) {
    let below = board.sessions.len().saturating_sub(board.first + usize::from(rows));
    let y = 3 + rows;
    if let Some(text) = hidden(board.first, below).filter(|_| y + 1 < buffer.area.height) {
        put(buffer, y, &Line::styled(format!(" {text} "), style(Colour::Faint)), 1);
    }
}

fn hidden(above: usize, below: usize) -> Option<String> {
    match (above, below) {
        (0, 0) => None,
        (0, below) => Some(format!("… {below} more below")),
        (above, 0) => Some(format!("… {above} more above")),
        (above, below) => Some(format!("… {above} more above, {below} below")),
    }
}

/// The row of the rule above the details.
fn details_from(area: Rect, rows: u16) -> Option<u16> {
    (area.height >= ROWS_WITH_DETAILS).then_some(3 + rows)
}

fn header(board: &Board, shown: &Shown<'_>, width: usize) -> Line<'static> {
    let waiting = board.all().filter(|session| waits(session)).count();
    let signs = board.all().filter(|session| session.line.runaway.is_some()).count();
    let mut parts = vec![(format!("{} active", board.all().count()), Colour::Plain)];
    if waiting > 0 {
        parts.push((format!("{waiting} waiting for you"), Colour::Warning));
    }
    if signs > 0 {
        parts.push((format!("{signs} with a sign"), Colour::Bad));
    }
    if shown.today.cost.0 > 0 {
        let plus = if shown.today.incomplete { "+" } else { "" };
        parts.push((format!("{}{plus} today", format::dollars(shown.today.cost.0)), Colour::Plain));
    }
    let title = "codemie top";
    let mut spans = vec![Span::styled(title, style(Colour::Heading))];
    let room = width.saturating_sub(2);
    let used = |parts: &[(String, Colour)]| {
        parts.iter().map(|(text, _)| text.width() + 3).sum::<usize>().saturating_sub(3)
    };
    while title.width() + GAP + used(&parts) > room && parts.pop().is_some() {}
    if !parts.is_empty() {
        let right = used(&parts);
        spans.push(Span::raw(" ".repeat(room - title.width() - right)));
        for (at, (text, colour)) in parts.into_iter().enumerate() {
            if at > 0 {
                spans.push(Span::styled(" · ", style(Colour::Faint)));
            }
            spans.push(Span::styled(text, style(colour)));
        }
    }
    Line::from(spans)
}

fn waits(session: &TopSession) -> bool {
    let is = session.line.state.as_ref().map(|state| state.is);
    matches!(is, Some(Activity::NeedsInput | Activity::Dialog))
}

/// What each key does.
const KEYS: [(&str, &str); 11] = [
    ("↑ ↓, k j", "choose a session; PgUp PgDn, g G and Home End go further"),
    ("Enter", "read its conversation, or its screen where there is none yet"),
    ("a", "attach this terminal to it, if it runs in the background"),
    ("m", "send it a text, if it runs in the background"),
    ("s", "stop it, after a question"),
    ("d", "open its page in the dashboard"),
    ("/", "list only sessions with these words; Esc lists all again"),
    ("?", "show these keys"),
    ("q, Esc, ^C", "leave"),
    ("", ""),
    ("", "A text that is pasted is never a command."),
];

fn paint_help(buffer: &mut Buffer) {
    const NAMES: usize = 12;
    for (y, (key, does)) in (2..buffer.area.height.saturating_sub(1)).zip(KEYS) {
        let key = Span::styled(padded(key, NAMES), style(Colour::Note));
        put(buffer, y, &Line::from(vec![key, Span::raw(does)]), 1);
    }
}

fn paint_nothing(buffer: &mut Buffer, board: &Board) {
    if !board.filtered_out.is_empty() {
        let text = format!("No session has \"{}\" in it; Esc lists all.", board.filter);
        put(buffer, 2, &Line::styled(shorten(&text, buffer.area.width.into()), style(Colour::Heading)), 1);
        return;
    }
    put(buffer, 2, &Line::styled("No session is running.", style(Colour::Heading)), 1);
    let command = |command: &str, what: &str| format!("codemie {command:<23}{what}");
    for (y, text) in [
        (4, command(EXAMPLE, "starts one in a terminal")),
        (5, command(&format!("run --detach {EXAMPLE}"), "starts one in the background")),
        (6, command("resume", "goes on with an earlier one")),
        (8, "It is shown here as soon as it runs.".to_owned()),
    ] {
        put(buffer, y, &Line::styled(text, style(Colour::Faint)), 1);
    }
}

fn paint_sessions(buffer: &mut Buffer, board: &Board, shown: &Shown<'_>, rows: u16) {
    let area = buffer.area;
    let longest = board.sessions.iter().map(|session| session.line.row.name.width()).max().unwrap_or(0);
    let filled = Filled::of(&board.sessions);
    let columns = fitting(usize::from(area.width).saturating_sub(3), longest, filled);
    let headings = columns.iter().map(|(column, cells)| cell(*column, column.heading(), *cells));
    put(buffer, 2, &Line::from(headings.map(Span::raw).collect::<Vec<_>>()).style(style(Colour::Heading)), 2);
    let amount = |session: &TopSession| (session.line.row.api_calls > 0).then_some(session.line.row.cost);
    let costs =
        costs(board.sessions.iter().map(|one| amount(one).map(|cost| (cost, &*one.line.unpriced_models))));
    let seen = board.sessions.iter().zip(&costs).enumerate().skip(board.first).take(rows.into());
    for (y, (place, (session, cost))) in (3..).zip(seen) {
        put(buffer, y, &row(session, cost, &columns, shown), 2);
        if place == board.selected {
            put(buffer, y, &Line::raw("▸"), 0);
            let whole = Rect::new(0, y, area.width, 1).intersection(area);
            buffer.set_style(whole, Style::new().add_modifier(Modifier::REVERSED));
        }
    }
}

/// A text in its column, with the gap after it.
fn cell(column: Column, text: &str, cells: usize) -> String {
    let text = shorten(text, cells);
    if column.is_number() {
        " ".repeat(cells.saturating_sub(text.width())) + &text + "  "
    } else {
        padded(&text, cells) + "  "
    }
}

fn row(session: &TopSession, cost: &str, columns: &[(Column, usize)], shown: &Shown<'_>) -> Line<'static> {
    let titled = columns.iter().any(|(column, _)| *column == Column::Title);
    let row = &session.line.row;
    let mut spans = Vec::new();
    for (column, cells) in columns {
        let (text, colour) = match column {
            Column::Name => (row.name.clone(), Colour::Plain),
            Column::State => state(session, titled),
            Column::Since => (since(session, shown.now), Colour::Faint),
            Column::Title => {
                spans.extend(title(session, *cells));
                continue;
            }
            Column::Agent => (row.agent.clone(), Colour::Faint),
            Column::Project => (row.project.clone().unwrap_or_default(), Colour::Faint),
            Column::Cost => (cost.trim_end().to_owned(), Colour::Plain),
            Column::Rate => (number(session.rate), Colour::Plain),
            Column::Context => {
                (session.context.map(ContextFill::in_short).unwrap_or_default(), Colour::Plain)
            }
            Column::Budget => match &session.budget {
                Some(status) => (format!("{} %", status.percent()), budget::colour(status.percent())),
                None => (String::new(), Colour::Plain),
            },
        };
        spans.push(Span::styled(cell(*column, &text, *cells), style(colour)));
    }
    Line::from(spans)
}

fn number(count: u64) -> String {
    if count == 0 { String::new() } else { format::count(count) }
}

/// Where there is no title column that shows a sign, the state column does.
fn state(session: &TopSession, titled: bool) -> (String, Colour) {
    if session.line.runaway.is_some() && !titled {
        return ("sign".to_owned(), Colour::Bad);
    }
    match session.line.state.as_ref().map(|state| state.is).filter(|is| *is != Activity::Unknown) {
        Some(is) => (is.as_str().to_owned(), colour_of_activity(is)),
        None => (Status::Active.as_str().to_owned(), Colour::Faint),
    }
}

fn since(session: &TopSession, now: Timestamp) -> String {
    let state = session.line.state.as_ref().filter(|state| state.is != Activity::Unknown);
    age(now, state.map_or(session.line.row.started_at, |state| state.since))
}

/// In the largest unit, so that it is right for a minute at the least.
fn age(now: Timestamp, since: Timestamp) -> String {
    let minutes = now.since(since).as_secs() / 60;
    match minutes {
        0 => "<1m".to_owned(),
        1..60 => format!("{minutes}m"),
        60..1440 => format!("{}h", minutes / 60),
        _ => format!("{}d", minutes / 1440),
    }
}

/// The title, behind the session's sign if it shows one.
fn title(session: &TopSession, cells: usize) -> Vec<Span<'static>> {
    let mark = session.line.runaway.as_ref().map(|runaway| format!("sign: {}  ", runaway.in_short()));
    let mark = shorten(mark.as_deref().unwrap_or(""), cells);
    let left = cells - mark.width();
    let title = session.line.row.title.as_deref().unwrap_or("");
    let title = if left < 4 { String::new() } else { shorten(title, left) };
    vec![Span::styled(mark, style(Colour::Bad)), Span::raw(padded(&title, left) + "  ")]
}

fn paint_details(buffer: &mut Buffer, board: &Board, details: &TopDetails, shown: &Shown<'_>, from: u16) {
    let Some(session) = board.chosen() else { return };
    let (area, width) = (buffer.area, usize::from(buffer.area.width));
    put(buffer, from, &Line::styled("─".repeat(width), style(Colour::Faint)), 0);
    let rows = usize::from(area.height.saturating_sub(from + 2));
    let lines = detail_lines(session, details, shown, width.saturating_sub(2));
    for (y, line) in (from + 1..).zip(lines.iter().take(rows)) {
        put(buffer, y, line, 1);
    }
}

/// What is known of the chosen one, what matters most first.
fn detail_lines(
    session: &TopSession,
    details: &TopDetails,
    shown: &Shown<'_>,
    width: usize,
) -> Vec<Line<'static>> {
    const NAMES: usize = 9;
    let room = width.saturating_sub(NAMES);
    let mut lines = Vec::new();
    let mut line = |name: &'static str, text: &str, colour: Colour| {
        if !text.is_empty() {
            let name = Span::styled(padded(name, NAMES), style(Colour::Faint));
            lines.push(Line::from(vec![name, Span::styled(shorten(text, room), style(colour))]));
        }
    };
    let row = &session.line.row;
    line("", &row.name, Colour::Heading);
    line("title", row.title.as_deref().unwrap_or(""), Colour::Plain);
    if let Some(state) = &session.line.state {
        let why = format!("{} for {}: {}", state.is, age(shown.now, state.since), state.why);
        line("state", &why, colour_of_activity(state.is));
    }
    let runaway = session.line.runaway.as_ref().map(|runaway| runaway.in_words());
    line("sign", runaway.as_deref().unwrap_or(""), Colour::Bad);
    let where_ = details.place.as_deref().unwrap_or("in the background; a attaches this terminal");
    line("runs", where_, Colour::Plain);
    let about =
        [Some(row.agent.clone()), Some(model(&session.line.models)), row.project.clone(), row.branch.clone()];
    let about: Vec<String> = about.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    line("agent", &about.join(" · "), Colour::Plain);
    line("tokens", &tokens(session), Colour::Plain);
    for status in details.budgets.iter().take(2) {
        let words = status.in_words(shown.now, shown.zone);
        line("budget", &words, budget::colour(status.percent()));
    }
    if let Some(links) = chain(&details.chain, &row.name) {
        let spent = &details.spent;
        let plus = if spent.unpriced { "+" } else { "" };
        let all = format!(
            "{links}  {}{plus} in {}",
            format::dollars(spent.cost.0),
            format::counted(usize::try_from(spent.sessions).unwrap_or(0), "session")
        );
        line("chain", &all, Colour::Plain);
    }
    if let Some(address) = shown.dashboard {
        line("page", &format!("{address}sessions/{}", row.id), Colour::Note);
    }
    for (at, tool) in details.tools.iter().enumerate() {
        let file = tool.file.as_deref().map(|file| format!("  {}", file_name(file))).unwrap_or_default();
        let time = clock(tool.at, shown.zone);
        let (failed, colour) = if tool.ok { ("", Colour::Plain) } else { ("  failed", Colour::Bad) };
        line(if at == 0 { "tools" } else { "" }, &format!("{time}  {}{file}{failed}", tool.name), colour);
    }
    lines
}

/// Those of the columns that a narrow terminal has no room for, too. Nothing for a session without calls.
fn tokens(session: &TopSession) -> String {
    let row = &session.line.row;
    if row.api_calls == 0 {
        return String::new();
    }
    let mut parts = vec![format!("{} in all", format::count(row.tokens))];
    parts.extend(session.context.map(|context| format!("{} in its context", context.whole())));
    parts.push(format!("{} a minute of late", format::count(session.rate)));
    parts.join(", ")
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn footer(board: &Board, width: usize) -> Line<'static> {
    if let Some((_, name)) = &board.question {
        let question = format!("Stop {name}, with everything it started? y/n");
        return Line::styled(shorten(&question, width), style(Colour::Warning));
    }
    if let Some((message, colour)) = &board.message {
        return Line::styled(shorten(message, width), style(*colour));
    }
    match &board.input {
        Some(Input::Filter) => return typed("/", &board.filter, width),
        Some(Input::Message { name, text, .. }) => return typed(&format!("to {name}: "), text, width),
        None if board.help => return Line::styled("any key goes back", style(Colour::Faint)),
        None if !board.filter.is_empty() => {
            let shown = format!("only \"{}\"", shorten(&board.filter, 20));
            return key_line(&[("Esc".to_owned(), "all"), ("Enter".to_owned(), "read"), (shown, "")], width);
        }
        None => {}
    }
    // How to leave, and where the other keys are named, is seen on the narrowest terminal.
    let keys: &[(&str, &str)] = &[
        ("Enter", "read"),
        ("a", "attach"),
        ("q", "leave"),
        ("?", "keys"),
        ("m", "send"),
        ("s", "stop"),
        ("/", "filter"),
        ("d", "dashboard"),
        ("↑↓", "choose"),
    ];
    let keys = keys.iter().filter(|(key, _)| matches!(*key, "q" | "?") || !board.sessions.is_empty());
    let keys: Vec<(String, &str)> = keys.map(|(key, does)| ((*key).to_owned(), *does)).collect();
    key_line(&keys, width)
}

/// A text that is typed, with its end seen and a mark where the next letter goes.
fn typed(what: &str, text: &str, width: usize) -> Line<'static> {
    let what = shorten(what, width / 2);
    let room = width.saturating_sub(what.width() + 1);
    let mut shown = text;
    while shown.width() > room {
        shown = shown.char_indices().nth(1).map_or("", |(at, _)| &shown[at..]);
    }
    Line::from(vec![
        Span::styled(what, style(Colour::Note)),
        Span::raw(clean(shown).into_owned()),
        Span::raw("▏"),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::board::tests::{NOW, board, session};
    use super::*;
    use crate::cmd::hostile;
    use report::details::Chain;
    use store::session::runaway::Runaway;
    use store::{ChainSpent, PicoDollars, ToolRow};

    fn details() -> TopDetails {
        let tool = |ok| ToolRow { at: NOW, name: "Edit".into(), ok, file: Some("/w/src/lib.rs".into()) };
        TopDetails {
            chain: Chain { before: ["first".to_owned()].into(), after: Vec::new() },
            spent: ChainSpent { sessions: 2, cost: PicoDollars(1_500_000_000_000), unpriced: false },
            tools: vec![tool(false), tool(true)],
            budgets: Vec::new(),
            place: None,
        }
    }

    fn drawn(board: &mut Board, details: &TopDetails, width: u16, height: u16) -> Vec<String> {
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
        let today = Amount { cost: PicoDollars(3_000_000_000_000), incomplete: false };
        let shown = Shown {
            details: Some(details),
            today,
            dashboard: Some("http://127.0.0.1:8790/"),
            now: NOW,
            zone: &TimeZone::UTC,
        };
        paint(&mut buffer, board, &shown);
        let row = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| row(y).trim_end().to_owned()).collect()
    }

    #[test]
    fn columns_are_left_out_before_a_title_is_cut_to_a_word() {
        let headings = |width: usize, budgets: bool| {
            let columns = fitting(width, 12, Filled { calls: true, budgets });
            let used: usize = columns.iter().map(|(_, cells)| cells + GAP).sum::<usize>() - GAP;
            assert!(used <= width.max(13 + GAP + 4), "{width}: {used}");
            columns.iter().map(|(column, _)| column.heading()).collect::<Vec<_>>().join(" ")
        };
        for (width, budgets, expected) in [
            (16, true, "NAME STATE"),
            (37, true, "NAME STATE COST"),
            (57, true, "NAME STATE TITLE COST"),
            (77, false, "NAME STATE FOR TITLE COST TOK/MIN CONTEXT"),
            (77, true, "NAME STATE FOR TITLE COST CONTEXT BUDGET"),
            (97, true, "NAME STATE FOR TITLE COST TOK/MIN CONTEXT BUDGET"),
            (97, false, "NAME STATE FOR TITLE AGENT COST TOK/MIN CONTEXT"),
            (137, true, "NAME STATE FOR TITLE AGENT PROJECT COST TOK/MIN CONTEXT BUDGET"),
        ] {
            assert_eq!(headings(width, budgets), expected, "{width} {budgets}");
        }
        for width in 1..200 {
            headings(width, true);
        }
    }

    #[test]
    fn sessions_stand_in_columns_and_the_chosen_one_is_described() {
        let mut board = board();
        board.sessions[1].line.runaway = Some(Runaway::Failing { tool: "Bash".into(), times: 6 });
        let lines = drawn(&mut board, &details(), 100, 24);
        let right = "4 active · 1 waiting for you · 1 with a sign · $3.00 today";
        assert_eq!(lines[0], format!(" codemie top{}{right}", " ".repeat(29)));
        let words = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            lines[2..7].iter().map(words).collect::<Vec<_>>(),
            [
                "NAME STATE FOR TITLE AGENT COST TOK/MIN CONTEXT",
                "▸ asks needs-input 3m About asks claude $0.4123 12.3k 42 %",
                "works working 2m sign: Bash ×6 About works claude $0.4123 12.3k 42 %",
                "idle idle 1m About idle claude $0.4123 12.3k 42 %",
                "program active 59m About program claude $0.4123 12.3k 42 %",
            ]
        );
        let ends: Vec<_> = lines[2..7].iter().map(|line| line.chars().count()).collect();
        assert_eq!(ends, [99; 5], "numbers stand below each other");
        let text = lines.join("\n");
        for part in [
            " state    needs-input for 3m: a reason",
            " chain    first → [asks]  $1.50 in 2 sessions",
            " agent    claude · claude-opus-4-8 · widgets · main",
            " page     http://127.0.0.1:8790/sessions/3a1e2f3-0000-4000-8000-000000000001",
            " tokens   6.91k in all, 84.2k (42 %) in its context, 12.3k a minute of late",
            "Edit  lib.rs  failed",
            " Enter read  a attach  q leave  ? keys  m send  s stop  / filter  d dashboard  ↑↓ choose",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn a_small_terminal_keeps_what_matters() {
        let mut board = board();
        board.sessions[1].line.runaway = Some(Runaway::Failing { tool: "Bash".into(), times: 6 });
        let lines = drawn(&mut board, &details(), 30, 9);
        assert_eq!(
            lines[3..7],
            ["▸ asks     needs-input", "  works    sign", "  idle     idle", "  program  active"]
                .map(str::to_owned)
        );
        board.selected = 3;
        let lines = drawn(&mut board, &details(), 30, 6);
        assert!(lines[3].starts_with("▸ program"), "{lines:?}");
        for (width, height) in [(1, 1), (2, 3), (8, 2), (500, 5), (20, 100)] {
            drawn(&mut board, &details(), width, height);
        }
    }

    #[test]
    fn sessions_that_are_not_seen_are_counted() {
        let mut board = Board::default();
        board.show((1..=20).map(|n| session(n, &format!("s{n}"), Activity::Idle)).collect());
        for (height, selected, seen, line) in [
            (9, 0, 4, "… 16 more below"),
            (9, 10, 4, "… 7 more above, 9 below"),
            (9, 19, 4, "… 16 more above"),
            (14, 0, 1, "… 19 more below"),
            (20, 0, 7, "… 13 more below"),
            (33, 0, 20, ""),
            (5, 0, 1, ""), // no room to say it
        ] {
            board.selected = selected;
            let lines = drawn(&mut board, &details(), 80, height);
            let listed = lines.iter().skip(3).filter(|line| line.contains("  idle  ")).count();
            let said = lines.iter().find(|line| line.contains(" more ")).cloned().unwrap_or_default();
            let said = said.trim_matches([' ', '─']);
            assert_eq!((listed, said), (seen, line), "{height} {selected}:\n{}", lines.join("\n"));
        }
    }

    #[test]
    fn questions_and_messages_stand_below_and_nothing_says_what_to_do() {
        let mut board = board();
        board.question = Some(("id".into(), "asks".into()));
        let last = |board: &mut Board| drawn(board, &details(), 80, 20).pop().unwrap();
        assert_eq!(last(&mut board), " Stop asks, with everything it started? y/n");
        board.question = None;
        board.note("asks has been stopped.");
        assert_eq!(last(&mut board), " asks has been stopped.");
        let mut empty = Board::default();
        let text = drawn(&mut empty, &details(), 80, 20).join("\n");
        assert!(
            text.contains("No session is running.") && text.contains("codemie run --detach claude"),
            "{text}"
        );
        assert!(!text.contains("attach") && text.ends_with(" q leave  ? keys"), "{text}");
    }

    #[test]
    fn keys_are_explained_and_typed_texts_stand_below() {
        for (width, height) in [(80, 20), (100, 30), (140, 40), (40, 12), (1, 1)] {
            let mut board = board();
            board.help = true;
            let text = drawn(&mut board, &details(), width, height).join("\n");
            assert!(
                width < 80 || KEYS.iter().all(|(key, does)| text.contains(key) && text.contains(does)),
                "{text}"
            );
        }
        let mut board = board();
        let last = |board: &mut Board, width| drawn(board, &details(), width, 20).pop().unwrap();
        board.input = Some(Input::Filter);
        board.filter = "asks".to_owned();
        assert_eq!(last(&mut board, 80), " /asks▏");
        let text = format!("{}and the end", "word ".repeat(30));
        board.input = Some(Input::Message { id: "id".into(), name: "asks".into(), text });
        assert!(
            last(&mut board, 80).starts_with(" to asks: ") && last(&mut board, 80).ends_with("and the end▏")
        );
        assert!(last(&mut board, 20).ends_with("end▏"), "{}", last(&mut board, 20));
        board.input = None;
        assert_eq!(last(&mut board, 80), " Esc all  Enter read  only \"asks\"");
        board.filter = "nothing".to_owned();
        board.filtered_out = std::mem::take(&mut board.sessions);
        let text = drawn(&mut board, &details(), 80, 20).join("\n");
        assert!(
            text.contains("4 active") && text.contains("No session has \"nothing\" in it; Esc lists all."),
            "{text}"
        );
    }

    #[test]
    fn ages_are_in_the_largest_unit() {
        for (seconds, shown) in [(0, "<1m"), (59, "<1m"), (60, "1m"), (3600, "1h"), (86_400 * 3, "3d")] {
            assert_eq!(age(NOW, Timestamp(NOW.0 - seconds * 1000)), shown);
        }
    }

    #[test]
    fn hostile_texts_are_drawn_harmlessly() {
        hostile::draw_everywhere(|text, style| {
            let mut one = session(1, text, Activity::NeedsInput);
            one.line.row.title = Some(text.into());
            one.line.row.agent = text.into();
            (one.line.row.project, one.line.row.branch) = (Some(text.into()), Some(text.into()));
            one.line.models = vec![text.into()];
            one.line.runaway = Some(Runaway::Failing { tool: text.into(), times: 6 });
            if let Some(state) = &mut one.line.state {
                state.why = text.into();
            }
            let mut details = details();
            details.place = Some(text.into());
            details.chain.before = [text.to_owned()].into();
            details.tools[0].name = text.into();
            details.tools[1].file = Some(text.into());
            let mut board = Board::default();
            board.show(vec![one]);
            board.note(text);
            drawn(&mut board, &details, u16::try_from(style.columns).unwrap_or(300), 24).join("\n")
        });
    }
}

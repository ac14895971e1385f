//! The sessions as a list on the terminal, to resume one: those of this folder first, the last used before the others.

use agents::registry::EXAMPLE;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use ratatui_core::text::{Line, Span};

use crate::cli::{Archive, Rename};
use crate::cmd::scanner::with_scanner;
use crate::cmd::session_text::{NOT_WRAPPED, ShortIds, costs, state_or_status};
use crate::cmd::view::Drawing;
use crate::cmd::{Failure, USAGE, labels};
use crate::fullscreen::choose::{Choice, Choices, Chooser, KeyResult, choose};
use crate::fullscreen::{Fullscreen, folded, style};
use agents::registry;
use format::output::table::padded;
use format::output::{Colour, Style};
use format::text::shorten;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use os::project;
use report::conversation::{PageStart, ReadableConversation};
use report::list::{self, SessionLine};
use report::open::open;
use report::state::Asked;
use report::title;
use report::unwrapped;
use runtime::launch::Origin;
use store::{ListedSession, SessionQuery, Sort, Store};
use types::{Status, Timestamp};
use unicode_width::UnicodeWidthStr;

/// What was chosen: a session, by its id.
pub(super) enum Picked {
    Resume(String),
    Show(String),
    Nothing,
    /// A signal is to end us.
    End(i32),
}

/// Nobody looks through more; typing searches all of them.
const MOST: usize = 20_000;

/// Titles are looked for in so many sessions at once.
const TITLED: usize = 50;

/// How much of a conversation's end is read for the preview.
const PREVIEWED: usize = 6 * 1024;

pub(super) fn pick(home: &Home) -> anyhow::Result<Picked> {
    let without_terminal = || {
        Failure {
        code: USAGE,
        message: "which session? Give a name or an id, or --last for the one used last in this project; `codemie list` shows them \
                  (a list to choose from needs a terminal)"
            .to_owned(),
    }
    };
    let mut sessions = SessionList::load(home)?;
    if !pty::on_terminal() {
        return Err(without_terminal().into());
    }
    if sessions.is_empty() {
        let message = format!("there is no session to resume yet; `codemie {EXAMPLE}` starts one");
        return Err(Failure { code: 1, message }.into());
    }
    let Some(mut screen) = Fullscreen::open()? else { return Err(without_terminal().into()) };
    let mut chooser = Chooser::new(&sessions);
    let choice = choose(&mut screen, &mut chooser, &mut sessions)?;
    drop(screen);
    let id = |place: usize| sessions.lines[place].row.id.clone();
    Ok(match choice {
        Choice::Enter(place) => Picked::Resume(id(place)),
        Choice::Key(_, place) => Picked::Show(id(place)),
        Choice::None => Picked::Nothing,
        Choice::End(signal) => Picked::End(signal),
    })
}

/// Sessions of this folder's project, then all others; in each the order stays.
pub(super) fn of_folder_first<T>(lines: Vec<T>, here: &Path, folder: impl Fn(&T) -> Option<&Path>) -> Vec<T> {
    let (here, elsewhere): (Vec<T>, Vec<T>) =
        lines.into_iter().partition(|line| folder(line).is_some_and(|folder| folder.starts_with(here)));
    here.into_iter().chain(elsewhere).collect()
}

/// Whether there is something to continue: a conversation, of an agent that people can start. The demonstration's are over.
pub(super) fn is_resumable(row: &ListedSession) -> bool {
    row.bound && registry::called(&row.agent).is_some()
}

/// The project that this process is in.
pub(super) fn here() -> PathBuf {
    let folder = Origin::of_this_process().folder();
    project::root(&folder.canonicalize().unwrap_or(folder))
}

struct SessionList<'a> {
    home: &'a Home,
    store: Store,
    now: Timestamp,
    lines: Vec<SessionLine>,
    costs: Vec<String>,
    previews: HashMap<String, String>,
}

impl<'a> SessionList<'a> {
    fn load(home: &'a Home) -> anyhow::Result<Self> {
        let (now, origin) = (SystemClock.now(), Origin::of_this_process());
        let mut store = open(home)?;
        let fitting = |count: usize| count.min(MOST);
        let mut lines =
            list::summarised(Some(&mut store), &SessionQuery::default(), fitting, now, false)?.sessions;
        lines.retain(|line| is_resumable(&line.row));
        let here = here();
        match with_scanner(home, true, |scanner| unwrapped::unwrapped(Some(&mut store), scanner)) {
            Ok(found) => {
                let name = here.file_name().map(|name| name.to_string_lossy());
                lines.extend(found.into_iter().map(|session| {
                    let mut line = SessionLine::of_unwrapped(session);
                    // Its folder is found when it is resumed; for the order of the list the folder's name suffices.
                    let is_here =
                        line.row.project.is_some() && line.row.project.as_deref() == name.as_deref();
                    line.row.cwd = is_here.then(|| here.to_string_lossy().into_owned());
                    line
                }));
                list::sort(&mut lines, Sort::LastUsed);
                lines.truncate(MOST);
            }
            Err(error) => tracing::warn!("conversations from before are not offered: {error}"),
        }
        let mut lines = of_folder_first(lines, &here, |line| line.row.cwd.as_deref().map(Path::new));
        name_unwrapped(&mut lines);
        unwrapped::add_titles(lines.iter_mut().take(TITLED), &origin);
        list::add_states(&mut store, &mut lines, &Asked { home, origin: &origin, now })?;
        title::add_missing(&mut store, lines.iter_mut().take(TITLED), &origin)?;
        let costs = amounts(&lines);
        Ok(Self { home, store, now, lines, costs, previews: HashMap::new() })
    }

    fn state(line: &SessionLine) -> (&'static str, Colour) {
        if line.unwrapped.is_some() {
            return (NOT_WRAPPED, Colour::Faint);
        }
        state_or_status(line.state.as_ref(), line.row.status, line.row.end_reason)
    }

    /// The end of its conversation.
    fn conversation(&mut self, id: &str) -> String {
        if let Some(known) = self.previews.get(id) {
            return known.clone();
        }
        let (origin, now) = (Origin::of_this_process(), self.now);
        let read = self.store.read(|view| ReadableConversation::of(view, id, &origin, now));
        let text = match read.map(|subject| (subject.page(PageStart::Last, PREVIEWED), subject.agent)) {
            Ok((Ok(Some(page)), agent)) => {
                let style = Style { colour: false, columns: usize::MAX };
                Drawing::new(style, os::zone::local(), &agent).page(&page.items, now)
            }
            Ok((Ok(None), _)) => "Nothing has been said yet.".to_owned(),
            Ok((Err(error), _)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        self.previews.insert(id.to_owned(), text.clone());
        text
    }
}

/// Those that never ran through codemie have their id for a name, as much of it as is needed.
fn name_unwrapped(lines: &mut [SessionLine]) {
    let names: Vec<String> = {
        let ids: ShortIds<'_> = lines.iter().map(|line| line.row.id.as_str()).collect();
        lines.iter().map(|line| ids.of(&line.row.id).to_owned()).collect()
    };
    for (line, name) in lines.iter_mut().zip(names).filter(|(line, _)| line.unwrapped.is_some()) {
        line.row.name = name;
    }
}

fn amounts(lines: &[SessionLine]) -> Vec<String> {
    let amount = |line: &SessionLine| (line.row.api_calls > 0).then_some(line.row.cost);
    costs(lines.iter().map(|line| amount(line).map(|cost| (cost, &*line.unpriced_models))))
}

/// The cells of a line, for a width. Name and title share what the others leave; the less important are left out first.
#[derive(Debug, PartialEq, Eq)]
struct Widths {
    name: usize,
    title: usize,
    project: usize,
    age: usize,
    cost: usize,
    state: usize,
}

impl Widths {
    fn of(width: usize) -> Self {
        let cell = |needed: usize, cells: usize| if width >= needed { cells } else { 0 };
        let (project, age) = (cell(96, if width >= 130 { 20 } else { 14 }), cell(50, 8));
        let (cost, state) = (cell(70, 9), cell(56, 11));
        let others: usize =
            [project, age, cost, state].into_iter().filter(|cells| *cells > 0).map(|cells| cells + 2).sum();
        let left = width.saturating_sub(others);
        let name = if left < 44 { left.min(19) } else { 22 };
        Self { name, title: left.saturating_sub(name + 2), project, age, cost, state }
    }

    fn line(&self, [name, title, project, age, cost]: [&str; 5], state: (&str, Colour)) -> Line<'static> {
        let left = |text: &str, cells: usize| padded(&shorten(text, cells), cells) + "  ";
        let right = |text: &str, cells: usize| {
            let text = shorten(text, cells);
            " ".repeat(cells.saturating_sub(text.width())) + &text + "  "
        };
        let mut spans = vec![Span::raw(left(name, self.name))];
        if self.title >= 8 {
            spans.push(Span::styled(left(title, self.title), style(Colour::Heading)));
        }
        for (text, cells, colour) in [(project, self.project, Colour::Plain), (age, self.age, Colour::Faint)]
        {
            if cells > 0 {
                spans.push(Span::styled(left(text, cells), style(colour)));
            }
        }
        if self.cost > 0 {
            spans.push(Span::raw(right(cost, self.cost)));
        }
        if self.state > 0 {
            spans.push(Span::styled(shorten(state.0, self.state), style(state.1)));
        }
        Line::from(spans)
    }
}

impl Choices for SessionList<'_> {
    fn len(&self) -> usize {
        self.lines.len()
    }

    fn text(&self, place: usize) -> String {
        let row = &self.lines[place].row;
        let parts = [
            Some(&row.name),
            row.title.as_ref(),
            row.project.as_ref(),
            row.branch.as_ref(),
            Some(&row.agent),
        ];
        let mark = self.lines[place].unwrapped.as_ref().map(|_| NOT_WRAPPED);
        parts.into_iter().flatten().map(String::as_str).chain(mark).collect::<Vec<_>>().join(" ")
    }

    fn heading(&self, width: usize) -> Line<'static> {
        Widths::of(width).line(["NAME", "TITLE", "PROJECT", "USED", "COST"], ("STATE", Colour::Plain))
    }

    fn line(&self, place: usize, width: usize) -> Line<'static> {
        let line = &self.lines[place];
        let row = &line.row;
        let age = age(self.now.since(row.active_at));
        let (title, project) = (row.title.as_deref().unwrap_or(""), row.project.as_deref().unwrap_or(""));
        Widths::of(width)
            .line([&row.name, title, project, &age, self.costs[place].trim_end()], Self::state(line))
    }

    fn preview(&mut self, place: usize, width: usize, rows: usize) -> Vec<Line<'static>> {
        let id = self.lines[place].row.id.clone();
        let text = self.conversation(&id);
        let lines = folded(text.trim_end(), width);
        lines[lines.len().saturating_sub(rows)..].iter().map(|line| Line::raw(line.clone())).collect()
    }

    fn enter(&self) -> &'static str {
        "resume"
    }

    fn keys(&self) -> &'static [(char, &'static str)] {
        &[('s', "show"), ('x', "archive"), ('r', "rename")]
    }

    fn on_key(&mut self, key: char, place: usize) -> KeyResult {
        let row = &self.lines[place].row;
        match key {
            's' => KeyResult::Chosen,
            'r' | 'x' if self.lines[place].unwrapped.is_some() => KeyResult::Failed(format!(
                "{} is not wrapped: it has no name and no archive until it is resumed",
                row.name
            )),
            'r' => KeyResult::Ask("new name: ", row.name.clone()),
            'x' if row.status == Status::Active => KeyResult::Failed(format!("{} is running", row.name)),
            'x' => {
                let args = Archive { sessions: vec![row.id.clone()] };
                match labels::archive(&args, true, self.home, &mut io::sink()) {
                    Ok(_) => {
                        self.lines.remove(place);
                        self.costs.remove(place);
                        KeyResult::Changed
                    }
                    Err(error) => KeyResult::Failed(error.to_string()),
                }
            }
            _ => KeyResult::Nothing,
        }
    }

    fn on_text(&mut self, _key: char, place: usize, text: &str) -> Result<(), String> {
        let row = &mut self.lines[place].row;
        let args = Rename { session: row.id.clone(), name: text.to_owned() };
        labels::rename(&args, self.home, &mut io::sink()).map_err(|error| error.to_string())?;
        text.clone_into(&mut row.name);
        Ok(())
    }
}

/// How long ago, in the largest unit.
fn age(time: std::time::Duration) -> String {
    let minutes = time.as_secs() / 60;
    match minutes {
        0 => "now".to_owned(),
        1..60 => format!("{minutes}m ago"),
        60..1440 => format!("{}h ago", minutes / 60),
        _ => format!("{}d ago", minutes / 1440),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_line_fits_every_width() {
        for width in 1..200 {
            let long = "x".repeat(300);
            let line = Widths::of(width)
                .line([&long, &long, &long, "12d ago", "$1,234.56"], ("needs-input", Colour::Plain));
            assert!(line.width() <= width.max(4) + 2, "{width}: {}", line.width());
        }
        let shown = |width: usize| {
            let Widths { name, title, project, age, cost, state } = Widths::of(width);
            (name > 0, title >= 8, project > 0, age > 0, cost > 0, state > 0)
        };
        assert_eq!(shown(38), (true, true, false, false, false, false));
        assert_eq!(shown(60), (true, true, false, true, false, true));
        assert_eq!(shown(78), (true, true, false, true, true, true));
        assert_eq!(shown(98), (true, true, true, true, true, true));
        assert_eq!(shown(138), (true, true, true, true, true, true));
    }

    #[test]
    fn sessions_of_this_folder_come_first() {
        let lines = ["/b/x", "/a/x", "/ab", "/a", "/b"].map(PathBuf::from).to_vec();
        let ordered = of_folder_first(lines, Path::new("/a"), |line| Some(line.as_path()));
        assert_eq!(ordered, ["/a/x", "/a", "/b/x", "/ab", "/b"].map(PathBuf::from));
    }

    #[test]
    fn only_conversations_of_agents_that_people_start_are_offered() {
        use store::session::lifecycle::{ConversationStart, RunStart};
        use store::session::testing::World;
        let mut world = World::new();
        for (agent, conversation, offered) in [
            ("claude", Some("a"), true),
            ("claude", None, false),
            (types::DEMO, Some("b"), false),
            ("an-agent-of-another-codemie", Some("c"), false),
        ] {
            let begin = RunStart { agent: agent.into(), ..world.begin(ConversationStart::Fresh) };
            let (_, started) = world.start_as(&begin);
            if let Some(conversation) = conversation {
                world.bind(started.session, conversation).unwrap();
            }
            let rows = world.store.read(|view| view.listed(&SessionQuery::default(), usize::MAX)).unwrap();
            let row = rows.iter().find(|row| row.id == started.session.to_string()).unwrap();
            assert_eq!(is_resumable(row), offered, "{agent} {conversation:?}");
        }
    }

    #[test]
    fn ages_are_given_in_the_largest_unit() {
        for (seconds, shown) in [
            (0, "now"),
            (59, "now"),
            (60, "1m ago"),
            (3599, "59m ago"),
            (7200, "2h ago"),
            (172_800, "2d ago"),
        ] {
            assert_eq!(age(Duration::from_secs(seconds)), shown);
        }
    }
}

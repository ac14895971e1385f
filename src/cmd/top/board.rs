//! The view's state: which sessions there are, in which order, which one is chosen, and what a key does. No terminal, no store.

use std::time::Duration;

use crate::fullscreen::{Key, edit};
use format::output::Colour;
use report::top::TopSession;
use types::{Activity, RunId, Timestamp};

/// What a key asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    /// Another session is chosen.
    Moved,
    Leave,
    /// This session, by its id.
    Attach(String),
    Read(String),
    /// This text, to this session.
    Send(String, String),
    Stop(String),
    Page(String),
}

#[derive(Debug, Default)]
pub(super) struct Board {
    /// Those that are listed: all, or those that the filter leaves.
    pub(super) sessions: Vec<TopSession>,
    /// The others.
    pub(super) filtered_out: Vec<TopSession>,
    /// Words of which each is in a listed session's name, title, agent, project, branch or state.
    pub(super) filter: String,
    /// What is typed now.
    pub(super) input: Option<Input>,
    /// The keys are explained, instead of the list.
    pub(super) help: bool,
    pub(super) selected: usize,
    /// The first session that is seen.
    pub(super) first: usize,
    /// The session that is to be stopped, if that is confirmed: its id and its name.
    pub(super) question: Option<(String, String)>,
    pub(super) message: Option<(String, Colour)>,
}

/// A text that is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Filter,
    /// For a session: its id, its name, the text so far.
    Message {
        id: String,
        name: String,
        text: String,
    },
}

/// What a session that waits for its user says first, then those that work, then the others.
fn rank(session: &TopSession) -> u8 {
    match session.line.state.as_ref().map(|state| state.is) {
        Some(Activity::NeedsInput | Activity::Dialog) => 0,
        Some(Activity::Working) => 1,
        Some(Activity::Starting) => 2,
        Some(Activity::Idle) => 3,
        Some(Activity::Unknown) | None => 4,
    }
}

impl Board {
    pub(super) fn chosen(&self) -> Option<&TopSession> {
        self.sessions.get(self.selected)
    }

    /// Takes in what runs now. The chosen session stays chosen; after a `/clear` it is the one that its run is in then.
    pub(super) fn show(&mut self, sessions: Vec<TopSession>) {
        let before = self.chosen().map(|chosen| (chosen.line.row.id.clone(), chosen.run));
        self.arrange(sessions, before);
    }

    /// Sorts and filters the sessions. `before`: the one that was chosen, and its run.
    fn arrange(&mut self, mut sessions: Vec<TopSession>, before: Option<(String, Option<RunId>)>) {
        sessions.sort_by(|a, b| {
            let key = |session: &TopSession| (rank(session), session.line.row.started_at, session.line.row.n);
            key(a).cmp(&key(b))
        });
        let words: Vec<String> = self.filter.split_whitespace().map(str::to_lowercase).collect();
        (self.sessions, self.filtered_out) =
            sessions.into_iter().partition(|session| has_all(session, &words));
        let found = before.and_then(|(id, run)| self.place_of(&id, run));
        self.selected = found.unwrap_or(self.selected).min(self.sessions.len().saturating_sub(1));
        // Nobody is asked to stop what has ended, or is not seen any more.
        self.question.take_if(|(id, _)| !self.sessions.iter().any(|session| session.line.row.id == *id));
    }

    /// All that run, whether the filter leaves them or not.
    pub(super) fn all(&self) -> impl Iterator<Item = &TopSession> {
        self.sessions.iter().chain(&self.filtered_out)
    }

    fn filter_again(&mut self) -> Action {
        let before = self.chosen().map(|chosen| (chosen.line.row.id.clone(), chosen.run));
        let mut all = std::mem::take(&mut self.sessions);
        all.append(&mut self.filtered_out);
        self.arrange(all, before);
        Action::Moved
    }

    fn place_of(&self, id: &str, run: Option<RunId>) -> Option<usize> {
        let by_id = self.sessions.iter().position(|session| session.line.row.id == id);
        by_id.or_else(|| self.sessions.iter().position(|session| run.is_some() && session.run == run))
    }

    /// Has the chosen one among those that are seen. `rows`: so many.
    pub(super) fn scroll(&mut self, rows: usize) {
        let rows = rows.max(1);
        self.first = self.first.clamp((self.selected + 1).saturating_sub(rows), self.selected);
        self.first = self.first.min(self.sessions.len().saturating_sub(rows));
    }

    pub(super) fn fail(&mut self, why: impl Into<String>) {
        self.message = Some((why.into(), Colour::Bad));
    }

    pub(super) fn note(&mut self, what: impl Into<String>) {
        self.message = Some((what.into(), Colour::Note));
    }

    /// `page`: how many sessions a page has.
    pub(super) fn on_key(&mut self, key: Key, page: usize) -> Action {
        self.message = None;
        if let Some((id, _)) = self.question.take() {
            return match key {
                Key::Letter('y' | 'Y') => Action::Stop(id),
                Key::Control('c') => Action::Leave,
                _ => Action::Nothing,
            };
        }
        if std::mem::take(&mut self.help) {
            return if key == Key::Control('c') { Action::Leave } else { Action::Nothing };
        }
        match self.input.take() {
            Some(Input::Filter) => return self.on_filter_key(key, page),
            Some(Input::Message { id, name, text }) => return self.on_message_key(key, id, name, text),
            None => {}
        }
        match key {
            Key::Escape if !self.filter.is_empty() => {
                self.filter.clear();
                self.filter_again()
            }
            Key::Letter('/') => {
                self.input = Some(Input::Filter);
                Action::Nothing
            }
            Key::Letter('?') => {
                self.help = true;
                Action::Nothing
            }
            Key::Letter('m') => {
                self.input = self.chosen().map(|one| Input::Message {
                    id: one.line.row.id.clone(),
                    name: one.line.row.name.clone(),
                    text: String::new(),
                });
                Action::Nothing
            }
            Key::Escape | Key::Letter('q') | Key::Control('c' | 'd') => Action::Leave,
            Key::Up | Key::Letter('k') | Key::Control('p') => self.go_to(self.selected.saturating_sub(1)),
            Key::Down | Key::Letter('j') | Key::Control('n') => self.go_to(self.selected + 1),
            Key::PageUp => self.go_to(self.selected.saturating_sub(page)),
            Key::PageDown => self.go_to(self.selected + page),
            Key::Home | Key::Letter('g') => self.go_to(0),
            Key::End | Key::Letter('G') => self.go_to(usize::MAX),
            Key::Enter => self.chosen_id().map_or(Action::Nothing, Action::Read),
            Key::Letter('a') => self.chosen_id().map_or(Action::Nothing, Action::Attach),
            Key::Letter('d') => self.chosen_id().map_or(Action::Nothing, Action::Page),
            Key::Letter('s') => {
                let names = self.chosen().map(|one| (one.line.row.id.clone(), one.line.row.name.clone()));
                self.question = names;
                Action::Nothing
            }
            _ => Action::Nothing,
        }
    }

    fn on_filter_key(&mut self, key: Key, page: usize) -> Action {
        match key {
            Key::Enter => return Action::Nothing,
            Key::Escape => self.filter.clear(),
            Key::Control('c') => return Action::Leave,
            Key::Up => return self.stay_in_filter(self.selected.saturating_sub(1)),
            Key::Down => return self.stay_in_filter(self.selected + 1),
            Key::PageUp => return self.stay_in_filter(self.selected.saturating_sub(page)),
            Key::PageDown => return self.stay_in_filter(self.selected + page),
            key => {
                self.input = Some(Input::Filter);
                if !edit(&mut self.filter, key) {
                    return Action::Nothing;
                }
            }
        }
        self.filter_again()
    }

    fn stay_in_filter(&mut self, place: usize) -> Action {
        self.input = Some(Input::Filter);
        self.go_to(place)
    }

    fn on_message_key(&mut self, key: Key, id: String, name: String, mut text: String) -> Action {
        match key {
            Key::Enter if !text.trim().is_empty() => return Action::Send(id, text),
            Key::Escape => return Action::Nothing,
            Key::Control('c') => return Action::Leave,
            key => edit(&mut text, key),
        };
        self.input = Some(Input::Message { id, name, text });
        Action::Nothing
    }

    fn chosen_id(&self) -> Option<String> {
        self.chosen().map(|session| session.line.row.id.clone())
    }

    fn go_to(&mut self, place: usize) -> Action {
        let place = place.min(self.sessions.len().saturating_sub(1));
        if std::mem::replace(&mut self.selected, place) == place { Action::Nothing } else { Action::Moved }
    }

    /// How long what is shown stays right while nothing happens: ages are shown in minutes, hours and days, and a rate is that of
    /// the last minutes.
    pub(super) fn stays_for(&self, now: Timestamp) -> Duration {
        /// A rate that falls is shown this often.
        const RATE: Duration = Duration::from_secs(10);
        /// Sessions whose wrapper was killed are found by then.
        const LONGEST: Duration = Duration::from_secs(30);
        let falls = self.sessions.iter().any(|session| session.rate > 0);
        let states = self.sessions.iter().filter_map(|session| session.line.state.as_ref());
        let ages = states.map(|state| next_minute(now.since(state.since)));
        ages.chain(falls.then_some(RATE)).fold(LONGEST, Duration::min)
    }
}

/// Whether each of the words is somewhere in what is shown of a session. `words`: in small letters.
fn has_all(session: &TopSession, words: &[String]) -> bool {
    let row = &session.line.row;
    let state = session.line.state.as_ref().map(|state| state.is.as_str());
    let title = row.title.as_deref();
    let parts =
        [Some(&*row.name), title, Some(&*row.agent), row.project.as_deref(), row.branch.as_deref(), state];
    let parts: Vec<String> = parts.into_iter().flatten().map(str::to_lowercase).collect();
    words.iter().all(|word| parts.iter().any(|part| part.contains(word)))
}

/// How long until an age is a minute more.
fn next_minute(age: Duration) -> Duration {
    const MINUTE: u64 = 60_000;
    let passed = u64::try_from(age.as_millis()).unwrap_or(0) % MINUTE;
    Duration::from_millis(MINUTE - passed)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use report::context::ContextFill;
    use report::list::SessionLine;
    use store::{ListedSession, PicoDollars};
    use types::{LiveState, Status};

    pub(in crate::cmd::top) const NOW: Timestamp = Timestamp(1_794_830_400_000);

    pub(in crate::cmd::top) fn session(number: u8, name: &str, is: Activity) -> TopSession {
        let minutes = i64::from(number);
        let started_at = Timestamp(NOW.0 - 3_600_000 + minutes);
        let since = Timestamp(NOW.0 - minutes * 60_000);
        let row = ListedSession {
            n: number.into(),
            id: format!("{number}a1e2f3-0000-4000-8000-000000000001"),
            name: name.into(),
            agent: "claude".into(),
            status: Status::Active,
            archived: false,
            project: Some("widgets".into()),
            branch: Some("main".into()),
            opening: 1,
            started_at,
            ended_at: None,
            active_at: started_at,
            end_reason: None,
            title: Some(format!("About {name}")),
            title_sought: true,
            cwd: Some("/home/dev/widgets".into()),
            bound: true,
            api_calls: 3,
            tokens: 6908,
            cost: PicoDollars(412_300_000_000),
        };
        let line = SessionLine {
            row,
            tags: Vec::new(),
            open: Duration::from_hours(1),
            unpriced_models: Vec::new(),
            models: vec!["claude-opus-4-8".into()],
            state: Some(LiveState { is, since, why: "a reason".into(), source: None }),
            budget: None,
            runaway: None,
            unwrapped: None,
        };
        let run = Some(RunId(uuid::Uuid::from_u128(number.into())));
        let context = Some(ContextFill { tokens: 84_200, percent: Some(42) });
        TopSession { line, run, hosted: true, rate: 12_345, context, budget: None }
    }

    pub(in crate::cmd::top) fn board() -> Board {
        let mut board = Board::default();
        board.show(vec![
            session(1, "idle", Activity::Idle),
            session(2, "works", Activity::Working),
            session(3, "asks", Activity::NeedsInput),
            session(4, "program", Activity::Unknown),
        ]);
        board
    }

    fn names(board: &Board) -> Vec<&str> {
        board.sessions.iter().map(|session| session.line.row.name.as_str()).collect()
    }

    #[test]
    fn who_waits_for_the_user_comes_first_and_the_chosen_one_stays_chosen() {
        let mut board = board();
        assert_eq!(names(&board), ["asks", "works", "idle", "program"]);
        board.on_key(Key::Down, 5);
        assert_eq!(board.chosen().map(|one| one.line.row.name.as_str()), Some("works"));
        let mut cleared = session(2, "works.2", Activity::Idle);
        cleared.line.row.id = "other".into();
        board.show(vec![session(1, "idle", Activity::NeedsInput), cleared]);
        assert_eq!(names(&board), ["idle", "works.2"]);
        let chosen = board.chosen().map(|one| one.line.row.name.as_str());
        assert_eq!(chosen, Some("works.2"), "the session that its run is in after a /clear");
        board.show(Vec::new());
        assert_eq!((board.selected, board.chosen().is_none()), (0, true));
    }

    #[test]
    fn keys_have_one_meaning_each() {
        let first = || "3a1e2f3-0000-4000-8000-000000000001".to_owned();
        for (keys, action, selected) in [
            (&[Key::Down][..], Action::Moved, 1),
            (&[Key::Letter('j'), Key::Letter('k')], Action::Moved, 0),
            (&[Key::Up], Action::Nothing, 0),
            (&[Key::End], Action::Moved, 3),
            (&[Key::Letter('G'), Key::Down], Action::Nothing, 3),
            (&[Key::PageDown, Key::PageUp], Action::Moved, 0),
            (&[Key::PageDown], Action::Moved, 2),
            (&[Key::Letter('q')], Action::Leave, 0),
            (&[Key::Escape], Action::Leave, 0),
            (&[Key::Control('c')], Action::Leave, 0),
            (&[Key::Enter], Action::Read(first()), 0),
            (&[Key::Letter('a')], Action::Attach(first()), 0),
            (&[Key::Letter('d')], Action::Page(first()), 0),
            (&[Key::Letter('s')], Action::Nothing, 0),
            (&[Key::Letter('s'), Key::Letter('y')], Action::Stop(first()), 0),
            (&[Key::Letter('s'), Key::Letter('n')], Action::Nothing, 0),
            (&[Key::Letter('s'), Key::Escape], Action::Nothing, 0),
            (&[Key::Letter('s'), Key::Control('c')], Action::Leave, 0),
            (&[Key::Letter('s'), Key::Letter('x'), Key::Letter('y')], Action::Nothing, 0),
            (&[Key::Letter('x')], Action::Nothing, 0),
            (&[Key::Pasted('s'), Key::Pasted('y')], Action::Nothing, 0),
            (&[Key::Letter('s'), Key::Pasted('y')], Action::Nothing, 0),
            (&[Key::Pasted('q')], Action::Nothing, 0),
            (&[Key::Letter('?'), Key::Letter('s'), Key::Letter('y')], Action::Nothing, 0),
            (&[Key::Letter('?'), Key::Letter('q')], Action::Nothing, 0),
            (&[Key::Letter('?'), Key::Letter('?'), Key::Enter], Action::Read(first()), 0),
            (
                &[Key::Letter('m'), Key::Letter('s'), Key::Pasted('y'), Key::Enter],
                Action::Send(first(), "sy".into()),
                0,
            ),
            (&[Key::Letter('m'), Key::Letter('q'), Key::Backspace, Key::Enter], Action::Nothing, 0),
            (&[Key::Letter('m'), Key::Letter('x'), Key::Escape], Action::Nothing, 0),
            (&[Key::Letter('m'), Key::Letter('s'), Key::Enter, Key::Pasted('y')], Action::Nothing, 0),
            (&[Key::Letter('m'), Key::Control('c')], Action::Leave, 0),
            (&[Key::Letter('s'), Key::Letter('m'), Key::Letter('y')], Action::Nothing, 0),
            (&[Key::Letter('/'), Key::Letter('q'), Key::Letter('s')], Action::Moved, 0),
            (&[Key::Letter('/'), Key::Control('c')], Action::Leave, 0),
        ] {
            let mut board = board();
            let last = keys.iter().fold(Action::Nothing, |_, key| board.on_key(*key, 2));
            assert_eq!((last, board.selected), (action, selected), "{keys:?}");
        }
        let mut empty = Board::default();
        for key in [Key::Enter, Key::Down, Key::Letter('s'), Key::Letter('d'), Key::End] {
            assert_eq!(empty.on_key(key, 5), Action::Nothing, "{key:?}");
        }
    }

    #[test]
    fn a_filter_lists_sessions_with_all_of_its_words_until_it_is_cleared() {
        let mut board = board();
        let keys = |board: &mut Board, keys: &str| {
            keys.chars().for_each(|letter| drop(board.on_key(Key::Letter(letter), 5)));
        };
        keys(&mut board, "/ABOUT w");
        assert_eq!(
            (names(&board), board.all().count()),
            (vec!["asks", "works", "idle", "program"], 4),
            "widgets"
        );
        keys(&mut board, "orks");
        assert_eq!((names(&board), board.all().count()), (vec!["works"], 4));
        assert_eq!(board.on_key(Key::Enter, 5), Action::Nothing);
        assert_eq!(board.on_key(Key::Letter('s'), 5), Action::Nothing);
        assert_eq!(board.question.as_ref().map(|(_, name)| name.as_str()), Some("works"));
        board.on_key(Key::Letter('n'), 5);
        board.on_key(Key::Escape, 5);
        let chosen = board.chosen().map(|one| one.line.row.name.as_str());
        assert_eq!((chosen, names(&board).len()), (Some("works"), 4), "the chosen one stays chosen");
        keys(&mut board, "/works");
        board.on_key(Key::Enter, 5);
        board.show(vec![session(1, "idle", Activity::Idle), session(7, "works-too", Activity::Working)]);
        assert_eq!(names(&board), ["works-too"], "what is new is filtered, too");
        assert_eq!(board.on_key(Key::Escape, 5), Action::Moved);
        assert_eq!(names(&board), ["works-too", "idle"]);
        assert_eq!(board.on_key(Key::Escape, 5), Action::Leave);
        keys(&mut board, "/working");
        assert_eq!(names(&board), ["works-too"], "a state");
        board.on_key(Key::Escape, 5);
        assert_eq!(names(&board).len(), 2);
    }

    #[test]
    fn nobody_is_asked_to_stop_what_has_ended() {
        let mut board = board();
        board.on_key(Key::Letter('s'), 5);
        assert!(board.question.is_some());
        board.show(vec![session(1, "idle", Activity::Idle)]);
        assert_eq!(board.question, None);
    }

    #[test]
    fn the_chosen_one_is_seen() {
        let mut board = board();
        for (key, first) in [(Key::End, 2), (Key::Up, 2), (Key::Up, 1), (Key::Home, 0)] {
            board.on_key(key, 2);
            board.scroll(2);
            assert_eq!(board.first, first, "{key:?}");
        }
        board.on_key(Key::End, 2);
        board.scroll(10);
        assert_eq!(board.first, 0, "there is room for all");
    }

    #[test]
    fn a_quiet_screen_is_left_alone_until_an_age_changes() {
        let mut one = session(2, "a", Activity::Idle);
        let stays = |sessions: Vec<TopSession>| {
            let mut board = Board::default();
            board.show(sessions);
            board.stays_for(NOW)
        };
        assert_eq!(stays(Vec::new()), Duration::from_secs(30));
        assert_eq!(stays(vec![one.clone()]), Duration::from_secs(10), "the rate falls");
        one.rate = 0;
        assert_eq!(stays(vec![one.clone()]), Duration::from_secs(30));
        let state = one.line.state.as_mut().unwrap();
        state.since = Timestamp(NOW.0 - 58_000);
        assert_eq!(stays(vec![one]), Duration::from_secs(2));
    }
}

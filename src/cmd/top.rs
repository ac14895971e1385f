//! `codemie top`: what runs now, live, on the whole terminal.
//!
//! Promises: it sleeps until something changes ([`Changes`]), a key is pressed, or an age that is shown is a minute more; however fast
//! things change, it looks a few times a second at the most.

mod board;
mod draw;
mod pages;

use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use jiff::tz::TimeZone;

use super::{Failure, USAGE, attach, stop};
use crate::budget::CurrentBudgets;
use crate::fullscreen::{Event, Fullscreen};
use crate::home::Home;
use crate::launch::Origin;
use crate::report::changes::Changes;
use crate::report::open::{OpenStore, open};
use crate::report::state::Asked;
use crate::report::statusline::Amount;
use crate::report::stop::stop_one;
use crate::report::top::{Looked, TopDetails};
use board::{Action, Board};
use draw::Shown;
use pages::Pages;
use system::clock::{Clock, SystemClock};
use wire::Timestamp;

/// Agents write many lines a second; nobody reads faster than this.
const PACE: Duration = Duration::from_millis(250);
/// How often sessions are ended whose wrapper has vanished, as every command does at its start.
const RECOVER: Duration = Duration::from_secs(30);
/// More tools are never shown.
const TOOLS: usize = 50;
/// As `codemie stop` has it.
const GRACE: Duration = Duration::from_secs(10);

pub fn run(home: &Home) -> anyhow::Result<ExitCode> {
    let without_terminal = || Failure {
        code: USAGE,
        message:
            "top needs a terminal; `codemie list --active` prints what runs now, with --json for programs"
                .to_owned(),
    };
    if !terminal::on_terminal() {
        return Err(without_terminal().into());
    }
    let mut top = Top::open(home)?;
    loop {
        let Some(mut screen) = Fullscreen::open()? else { return Err(without_terminal().into()) };
        let left = top.watch(&mut screen)?;
        drop(screen);
        match left {
            Left::Done => return Ok(ExitCode::SUCCESS),
            Left::ToAttach(session) => top.attach(&session),
            Left::Signal(signal) => {
                drop(top);
                terminal::die_of(signal);
                return Ok(ExitCode::FAILURE);
            }
        }
    }
}

/// Why the screen was left.
enum Left {
    Done,
    ToAttach(String),
    Signal(i32),
}

struct Top<'a> {
    home: &'a Home,
    origin: Origin,
    zone: TimeZone,
    store: OpenStore,
    settings: CurrentBudgets,
    changes: Changes,
    board: Board,
    details: Option<TopDetails>,
    today: Amount,
    /// As of the last look.
    now: Timestamp,
    looked: Option<Instant>,
    /// What became of sessions that were to be stopped.
    stopped: (Sender<Result<String, String>>, Receiver<Result<String, String>>),
    pages: Option<Pages>,
}

impl<'a> Top<'a> {
    fn open(home: &'a Home) -> anyhow::Result<Self> {
        let origin = Origin::of_this_process();
        Ok(Self {
            home,
            zone: system::zone::local(),
            store: OpenStore::open(home, &origin)?,
            origin,
            settings: CurrentBudgets::of(home),
            changes: Changes::new(home)?,
            board: Board::default(),
            details: None,
            today: Amount::default(),
            now: SystemClock.now(),
            looked: None,
            stopped: channel(),
            pages: None,
        })
    }

    /// Shows what runs until a key or a signal leaves.
    fn watch(&mut self, screen: &mut Fullscreen) -> anyhow::Result<Left> {
        let mut due = true;
        loop {
            if due && self.until_look().is_zero() {
                due = false;
                self.look();
            }
            self.take_reports();
            self.draw(screen);
            // What comes before the next look is taken by it.
            let (other, time) = if due {
                (None, self.until_look())
            } else {
                (Some(self.changes.as_fd()), self.board.stays_for(SystemClock.now()))
            };
            match screen.next_or_woken(other, Some(time))? {
                Event::Key(key) => {
                    let rows = draw::rows(screen.area(), self.board.sessions.len());
                    let action = self.board.on_key(key, rows.into());
                    if let Some(left) = self.act(action) {
                        return Ok(left);
                    }
                }
                Event::Woken => {
                    self.changes.drain();
                    due = true;
                }
                Event::TimeUp => due = true,
                Event::Repaint => {}
                Event::End(signal) => return Ok(Left::Signal(signal)),
                Event::Gone => return Ok(Left::Done),
            }
        }
    }

    fn until_look(&self) -> Duration {
        self.looked.map_or(Duration::ZERO, |looked| PACE.saturating_sub(looked.elapsed()))
    }

    /// Looks at everything. A store that cannot be read now is read with the next look.
    fn look(&mut self) {
        (self.now, self.looked) = (SystemClock.now(), Some(Instant::now()));
        self.store.catch_up_every(if self.changes.take_gone() { Duration::ZERO } else { RECOVER });
        let Self { home, origin, zone, store, settings, changes, now, .. } = self;
        let looked = Looked { asked: Asked { home, origin, now: *now }, zone };
        let found = looked.sessions(store.store(), settings, changes);
        let today = looked.today(store.store());
        match found.and_then(|sessions| Ok((sessions, today?))) {
            Ok((sessions, today)) => {
                self.board.show(sessions);
                self.today = today;
                self.look_at_chosen();
            }
            Err(error) => self.board.fail(error.to_string()),
        }
    }

    fn look_at_chosen(&mut self) {
        let Self { home, origin, zone, store, settings, board, now, .. } = self;
        let looked = Looked { asked: Asked { home, origin, now: *now }, zone };
        let details = board.chosen().map(|session| looked.details(store.store(), session, TOOLS, settings));
        self.details = details.and_then(Result::ok);
    }

    /// What other threads have to say.
    fn take_reports(&mut self) {
        while let Ok(report) = self.stopped.1.try_recv() {
            match report {
                Ok(done) => self.board.note(done),
                Err(why) => self.board.fail(why),
            }
        }
        match self.pages.as_mut().and_then(|pages| pages.take_report(self.home)) {
            Some(Ok(done)) => self.board.note(done),
            Some(Err(why)) => {
                self.pages = None;
                self.board.fail(why);
            }
            None => {}
        }
    }

    fn draw(&mut self, screen: &mut Fullscreen) {
        let Self { board, details, today, now, zone, pages, .. } = self;
        let shown = Shown {
            details: details.as_ref(),
            today: *today,
            dashboard: pages.as_ref().and_then(Pages::address),
            now: *now,
            zone,
        };
        screen.draw(|buffer| {
            draw::paint(buffer, board, &shown);
            None
        });
    }

    fn act(&mut self, action: Action) -> Option<Left> {
        match action {
            Action::Nothing => {}
            Action::Moved => self.look_at_chosen(),
            Action::Leave => return Some(Left::Done),
            Action::Attach(id) => match self.place_of_chosen() {
                None => return Some(Left::ToAttach(id)),
                Some(why) => self.board.fail(why),
            },
            Action::Stop(id) => self.stop(id),
            Action::Page(id) => self.open_page(&id),
        }
        None
    }

    /// Why the chosen session cannot be attached to: where it runs.
    fn place_of_chosen(&self) -> Option<String> {
        let session = self.board.chosen().filter(|session| !session.hosted)?;
        let place = self.details.as_ref().and_then(|details| details.place.as_deref());
        let place = place.unwrap_or("in a terminal of its own");
        Some(format!("{} runs {place}; go there", session.line.row.name))
    }

    fn attach(&mut self, session: &str) {
        let mut said = Vec::new();
        match attach::attach_to(session, false, self.home, &mut said) {
            Ok(_) => self.board.note(String::from_utf8_lossy(&said).trim().to_owned()),
            Err(error) => self.board.fail(error.to_string()),
        }
        self.looked = None;
    }

    /// In a thread: it takes as long as the agent takes to end.
    fn stop(&mut self, session: String) {
        let name = self.board.chosen().map(|chosen| chosen.line.row.name.clone()).unwrap_or_default();
        self.board.note(format!("{name} is being stopped …"));
        let (home, origin, bell) = (self.home.clone(), self.origin.clone(), self.changes.bell());
        let report = self.stopped.0.clone();
        let work = move || {
            let stopped =
                open(&home).and_then(|mut store| Ok(stop_one(&mut store, &home, &session, &origin, GRACE)?));
            let _ = report.send(match stopped {
                Ok(done) => Ok(stop::line(&done)),
                Err(error) => Err(error.to_string()),
            });
            bell.ring();
        };
        if let Err(error) = std::thread::Builder::new().name("stop".to_owned()).spawn(work) {
            self.board.fail(format!("nothing was stopped: {error}"));
        }
    }

    fn open_page(&mut self, session: &str) {
        let opened = match &mut self.pages {
            Some(pages) => Ok(pages.open(session, self.home)),
            none => Pages::start(self.changes.bell()).map(|started| {
                *none = Some(started);
                "the dashboard is being started …".to_owned()
            }),
        };
        match opened {
            Ok(done) => self.board.note(done),
            Err(error) => self.board.fail(format!("the dashboard was not started: {error}")),
        }
    }
}

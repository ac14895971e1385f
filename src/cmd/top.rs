//! `codemie top`: what runs now, live, on the whole terminal.
//!
//! Promises: it sleeps until something changes ([`Changes`]), a key is pressed, or an age that is shown is a minute more; however fast
//! things change, it looks a few times a second at the most.

use std::io;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use board::{Action, Board};
use draw::Shown;
use jiff::tz::TimeZone;
use rustix::process::{Pid, Signal, kill_process};

use super::view::Paging;
use super::{Failure, USAGE, attach, send, stop, view};
use crate::cli::View;
use crate::cmd::browser;
use crate::fullscreen::{Event, Fullscreen};
use format::text::clean;
use os::clock::{Clock, SystemClock};
use os::home::{Home, own_var};
use report::changes::Changes;
use report::open::{OpenStore, open};
use report::state::Asked;
use report::statusline::Amount;
use report::stop::stop_one;
use report::top::{Looked, TopDetails};
use report::wake::Bell;
use runtime::budget::CurrentBudgets;
use runtime::launch::Origin;
use types::{Delivery, Timestamp};

mod board;
mod draw;

/// Agents write many lines a second; nobody reads faster than this.
const PACE: Duration = Duration::from_millis(250);
/// How often sessions are ended whose wrapper has vanished, as every command does at its start.
const RECOVER: Duration = Duration::from_secs(30);
/// More tools are never shown.
const TOOLS: usize = 50;
/// As much of a conversation's end as a person reads at once.
const READ: usize = 256 * 1024;
/// As `codemie send` has it.
const SEND_WITHIN: Duration = Duration::from_secs(30);
/// As `codemie stop` has it.
const GRACE: Duration = Duration::from_secs(10);

pub fn run(home: &Home) -> anyhow::Result<ExitCode> {
    let without_terminal = || Failure {
        code: USAGE,
        message:
            "top needs a terminal; `codemie list --active` prints what runs now, with --json for programs"
                .to_owned(),
    };
    if !pty::on_terminal() {
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
            Left::ToRead(session) => top.read(&session),
            Left::Signal(signal) => {
                drop(top);
                pty::die_of(signal);
                return Ok(ExitCode::FAILURE);
            }
        }
    }
}

/// Why the screen was left.
enum Left {
    Done,
    ToAttach(String),
    ToRead(String),
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
    /// What became of sessions that were to be stopped, and of texts that were sent.
    reports: (Sender<Result<String, String>>, Receiver<Result<String, String>>),
    pages: Option<Pages>,
}

impl<'a> Top<'a> {
    fn open(home: &'a Home) -> anyhow::Result<Self> {
        let origin = Origin::of_this_process();
        Ok(Self {
            home,
            zone: os::zone::local(),
            store: OpenStore::open(home, &origin)?,
            origin,
            settings: CurrentBudgets::of(home),
            changes: Changes::new(home)?,
            board: Board::default(),
            details: None,
            today: Amount::default(),
            now: SystemClock.now(),
            looked: None,
            reports: channel(),
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
        while let Ok(report) = self.reports.1.try_recv() {
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
            Action::Attach(id) => match self.place_of(&id) {
                None => return Some(Left::ToAttach(id)),
                Some(why) => self.board.fail(why),
            },
            Action::Read(id) => return Some(Left::ToRead(id)),
            Action::Send(id, text) => match self.place_of(&id) {
                None => self.send(id, text),
                Some(why) => self.board.fail(why),
            },
            Action::Stop(id) => self.stop(id),
            Action::Page(id) => self.open_page(&id),
        }
        None
    }

    /// Why a session can neither be attached to nor spoken to: where it runs.
    fn place_of(&self, id: &str) -> Option<String> {
        let session = self.board.all().find(|session| session.line.row.id == id && !session.hosted)?;
        let chosen = self.board.chosen().is_some_and(|chosen| chosen.line.row.id == id);
        let place = self.details.as_ref().filter(|_| chosen).and_then(|details| details.place.as_deref());
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

    /// The conversation in the user's pager, or the screen where there is none yet.
    fn read(&mut self, session: &str) {
        let args = View {
            session: session.to_owned(),
            tail_bytes: READ,
            since: None,
            follow: false,
            no_pager: false,
            json: false,
        };
        let mut printed = Vec::new();
        let shown = view::show(&args, self.home, Paging::Always, &mut printed, &mut std::io::sink());
        let printed = String::from_utf8_lossy(&printed);
        match shown {
            Ok(true) => {}
            // Of one line it is a remark.
            Ok(false) if printed.lines().count() < 2 => self.board.note(printed.trim()),
            Ok(false) => self.board.fail("there is no pager to show it with; set PAGER, or install less"),
            Err(error) => self.board.fail(error.to_string()),
        }
        self.looked = None;
    }

    fn name_of(&self, id: &str) -> String {
        let session = self.board.all().find(|session| session.line.row.id == id);
        session.map(|session| session.line.row.name.clone()).unwrap_or_default()
    }

    /// As `codemie stop` does.
    fn stop(&mut self, session: String) {
        self.board.note(format!("{} is being stopped …", self.name_of(&session)));
        let (home, origin) = (self.home.clone(), self.origin.clone());
        self.in_thread("stop", move || {
            let mut store = open(&home)?;
            Ok(Ok(stop::line(&stop_one(&mut store, &home, &session, &origin, GRACE)?)))
        });
    }

    /// As `codemie send` does.
    fn send(&mut self, session: String, text: String) {
        let name = self.name_of(&session);
        self.board.note(format!("{name} is being sent a text …"));
        let (home, origin) = (self.home.clone(), self.origin.clone());
        self.in_thread("send", move || {
            let (_, answer) = send::to_session(&home, &origin, &session, text, None, SEND_WITHIN)?;
            let line = format!("{name}: {}: {}", answer.result, clean(&answer.why));
            Ok(if matches!(answer.result, Delivery::Rejected | Delivery::Unknown) {
                Err(line)
            } else {
                Ok(line)
            })
        });
    }

    /// In a thread, because it takes as long as an agent takes. What it returns is shown.
    fn in_thread(
        &mut self,
        name: &str,
        work: impl FnOnce() -> anyhow::Result<Result<String, String>> + Send + 'static,
    ) {
        let (report, bell) = (self.reports.0.clone(), self.changes.bell());
        let work = move || {
            let _ = report.send(work().unwrap_or_else(|error| Err(error.to_string())));
            bell.ring();
        };
        if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(work) {
            self.board.fail(format!("nothing was done: {error}"));
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

// The dashboard beside the view: the one that runs, else a `codemie dashboard` of its own, from the first time it is asked for
// until the view is left.

/// How long it may take to end.
const PAGES_GRACE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Pages {
    child: Child,
    /// The first line that it prints: the address that lets a browser in.
    first_line: Receiver<String>,
    entrance: Option<String>,
}

impl Pages {
    /// `bell` is rung when there is a [report](Self::take_report).
    pub(super) fn start(bell: Bell) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["dashboard", "--no-open"]).stdin(Stdio::null()).stderr(Stdio::null());
        // What is typed to leave the view is not meant for it.
        let mut child = command.stdout(Stdio::piped()).process_group(0).spawn()?;
        let out = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let (found, first_line) = channel();
        std::thread::Builder::new().name("dashboard".to_owned()).spawn(move || {
            let mut line = String::new();
            let mut out = BufReader::new(out);
            let _ = out.read_line(&mut line);
            let _ = found.send(line.trim().to_owned());
            bell.ring();
            // So that its pipe never fills up.
            let _ = io::copy(&mut out, &mut io::sink());
        })?;
        Ok(Self { child, first_line, entrance: None })
    }

    /// Its address has become known, or it has not started. To be asked for when the bell has rung.
    pub(super) fn take_report(&mut self, home: &Home) -> Option<Result<String, String>> {
        let line = self.first_line.try_recv().ok()?;
        if !line.starts_with("http://") {
            return Some(Err("the dashboard did not start; `codemie dashboard` says why".to_owned()));
        }
        let entrance = self.entrance.insert(line);
        // The code in it lets one browser in, once.
        Some(Ok(if show(entrance, home) {
            "the dashboard is open in the browser; d again opens a session's page".to_owned()
        } else {
            format!("dashboard: {entrance}")
        }))
    }

    /// Where it is served, with a slash at the end.
    pub(super) fn address(&self) -> Option<&str> {
        let entrance = self.entrance.as_deref()?;
        entrance.split_once("enter?").map(|(address, _)| address)
    }

    /// Opens a session's page in a browser that was let in before; where there is none, its address is shown.
    pub(super) fn open(&self, session: &str, home: &Home) -> String {
        let Some(address) = self.address() else { return "the dashboard is being started …".to_owned() };
        let page = format!("{address}sessions/{session}");
        if show(&page, home) { "its page is open in the browser".to_owned() } else { page }
    }
}

fn show(url: &str, home: &Home) -> bool {
    browser::show(url, home, own_var)
}

impl Drop for Pages {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        let deadline = Instant::now() + PAGES_GRACE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! The host's server: one thread, one loop. It keeps the screen, serves the socket, and lets viewers type.
//!
//! Promises: no client can make the program wait; memory is bounded per client and in their number; a client that misbehaves
//! costs its own connection and nothing else.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::client::{Client, Role};
use super::front_end::PumpLink;
use super::handoff::Handoffs;
use super::live::LiveSession;
use super::notes::{Note, Notes, Reporter};
use super::start;
use super::stop::Stopping;
use crate::remote::address;
use crate::remote::frames::Frame;
use crate::remote::protocol::{
    Attach, Ended, FromHost, ScreenText, Size, StopAnswer, StopRequest, ToHost, VERSION, Welcome,
};
use os::home::Home;
use pty::PtySize;
use pty::screen::Screen;
use types::RunId;

/// Clients at once. Each is a person's terminal or a command that waits; more is a mistake in a loop.
const MAX_CLIENTS: usize = 100;

/// Lines above the screen that a new viewer gets.
const SCROLLBACK: usize = 2000;

/// Bytes of output taken at once.
const CHUNK: usize = 16 * 1024;

/// Chunks of output that are taken before a choice is typed. A flood of more is no screen that asks something.
const MOST_CHUNKS: usize = 64;

/// How long clients have to take their last frames when the host ends.
const LAST_FRAMES: Duration = Duration::from_secs(2);

/// Keys held while a text is typed: a few seconds of the fastest typing, or a paste.
const MAX_HELD: usize = 64 * 1024;

/// How often adopted processes that have ended are collected. A zombie costs a line in a listing.
const REAP_EVERY: Duration = Duration::from_secs(5);

/// When connections are accepted again after that failed.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// The largest terminal a viewer may ask for. Larger ones exist on nobody's desk, and a screen's memory grows with it.
const MAX_SIDE: u16 = 1000;

/// What a server is made of.
pub(super) struct Parts {
    pub(super) home: Home,
    pub(super) run: RunId,
    pub(super) listener: Option<UnixListener>,
    pub(super) pump: PumpLink,
    pub(super) notes: Notes,
    pub(super) reporter: Reporter,
    pub(super) size: Size,
    pub(super) live: LiveSession,
    pub(super) stopping: Stopping,
}

pub(super) struct Server {
    pub(super) parts: Parts,
    pub(super) screen: Screen,
    /// The size without viewers, and the present one.
    own_size: Size,
    size: Size,
    pub(super) clients: Vec<Client>,
    pub(super) handoffs: Handoffs,
    /// Counts clients, and the order in which they typed.
    counter: u64,
    /// The exit code, once the agent has ended.
    ended: Option<u8>,
    /// The END is stored.
    recorded: bool,
    finished: bool,
    /// Keys of viewers that wait until a text has been typed.
    held_keys: Vec<u8>,
    /// Notices that wait until the program is between two sequences.
    notices: Vec<u8>,
    /// When adopted processes that have ended are looked for.
    reap_at: Instant,
    /// From when on connections are accepted.
    listen_at: Instant,
}

impl Server {
    pub(super) fn new(parts: Parts) -> Self {
        let size = parts.size;
        Self {
            screen: Screen::new(pty_size(size), SCROLLBACK),
            own_size: size,
            size,
            clients: Vec::new(),
            handoffs: Handoffs::default(),
            counter: 0,
            ended: None,
            recorded: false,
            finished: false,
            held_keys: Vec::new(),
            notices: Vec::new(),
            reap_at: Instant::now() + REAP_EVERY,
            listen_at: Instant::now(),
            parts,
        }
    }

    /// Serves until the run is over and its clients have taken their last frames.
    pub(super) fn serve(mut self) {
        let mut last = None;
        loop {
            let now = Instant::now();
            if self.finished {
                let until = *last.get_or_insert(now + LAST_FRAMES);
                if now >= until || !self.clients.iter().any(Client::lags) {
                    break;
                }
            }
            if now >= self.reap_at {
                self.reap_at = now + REAP_EVERY;
                self.parts.stopping.reap();
            }
            if let Err(error) = self.step(now, last) {
                tracing::error!("the host's server ends: {error}");
                break;
            }
        }
        let _ = std::fs::remove_file(address::path(&self.parts.home, self.parts.run));
    }

    fn step(&mut self, now: Instant, last: Option<Instant>) -> io::Result<()> {
        let held = self.handoffs.due();
        let hello = self.clients.iter().filter_map(Client::hello_due).min();
        let due = self.parts.live.due().into_iter().chain(last).chain(held).chain(hello);
        let timeout = due.chain([self.reap_at]).min();
        let timeout = timeout.map(|at| at.saturating_duration_since(now));
        let ready = self.wait(timeout)?;
        if ready.output {
            self.take_output();
        }
        if ready.notes {
            for note in self.parts.notes.take() {
                self.heed(note);
            }
        }
        if ready.listener {
            self.accept();
        }
        // One that was just accepted comes behind these, and has its turn next time.
        for (at, (readable, writable)) in ready.clients.into_iter().enumerate() {
            if writable {
                self.clients[at].flush();
            }
            let frames = if readable { self.clients[at].receive() } else { self.clients[at].arrived() };
            for frame in frames {
                self.answer(at, frame);
            }
        }
        self.flush_handed(&ready.handed);
        self.release_held_keys();
        self.work_on_live();
        for client in &mut self.clients {
            client.drop_if_silent(now);
        }
        let viewers = self.viewers();
        for client in self.clients.extract_if(.., |client| client.is_gone()) {
            self.parts.live.forget(client.id);
            if client.handed_over {
                self.parts.pump.give_back(client.id);
            }
        }
        if self.viewers() != viewers {
            self.settle_size();
        }
        self.settle_direct();
        Ok(())
    }

    fn wait(&self, timeout: Option<Duration>) -> io::Result<Ready> {
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.parts.notes.stream().as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(
                self.parts.pump.stream().as_fd(),
                if self.ended.is_none() { PollFlags::IN } else { PollFlags::empty() },
            ),
        ];
        let listens = self.parts.listener.as_ref().filter(|_| {
            self.clients.len() < MAX_CLIENTS && !self.finished && Instant::now() >= self.listen_at
        });
        fds.extend(listens.map(|listener| PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)));
        let lagging = if self.has_handed_terminals() { self.parts.pump.lagging() } else { Vec::new() };
        let first_client = fds.len();
        for client in &self.clients {
            let mut wanted = PollFlags::empty();
            wanted.set(PollFlags::IN, !client.closing);
            wanted.set(PollFlags::OUT, client.lags());
            fds.push(PollFd::from_borrowed_fd(client.stream().as_fd(), wanted));
        }
        let first_handed = fds.len();
        fds.extend(lagging.iter().map(|(_, fd)| PollFd::new(&**fd, PollFlags::OUT)));
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |at: usize, flag: PollFlags| {
            fds.get(at).is_some_and(|fd| fd.revents().intersects(flag | PollFlags::HUP | PollFlags::ERR))
        };
        Ok(Ready {
            notes: is_ready(0, PollFlags::IN),
            output: self.ended.is_none() && is_ready(1, PollFlags::IN),
            listener: first_client == 3 && is_ready(2, PollFlags::IN),
            handed: (first_handed..fds.len())
                .zip(&lagging)
                .filter_map(|(at, (client, _))| is_ready(at, PollFlags::OUT).then_some(*client))
                .collect(),
            clients: (first_client..first_handed)
                .map(|at| (is_ready(at, PollFlags::IN), is_ready(at, PollFlags::OUT)))
                .collect(),
        })
    }

    /// Passes output on to the viewers, then into the screen. False: there was none.
    fn take_output(&mut self) -> bool {
        let mut bytes = [0; CHUNK];
        let Some(count) = self.parts.pump.take_output(&mut bytes) else { return false };
        self.follow_output(&bytes[..count]);
        true
    }

    pub(super) fn follow_output(&mut self, bytes: &[u8]) {
        self.show(bytes.to_vec());
        self.screen.feed(bytes);
        self.report_undo();
        let answers = self.screen.take_answers();
        // A viewer's terminal answers by itself; without one the host answers as a terminal would, or the agent waits.
        if self.size_owner().is_none() && !answers.is_empty() {
            self.parts.pump.type_keys(&answers);
        }
        self.parts.live.output_came(Instant::now());
    }

    /// On the terminals of all viewers that write to it themselves.
    fn show(&mut self, bytes: Vec<u8>) {
        if self.clients.iter().any(|client| client.is_viewer() && !client.handed_over) {
            let frame = FromHost::Output(bytes).to_bytes();
            let viewers = self.clients.iter_mut().filter(|client| client.is_viewer() && !client.handed_over);
            viewers.for_each(|client| client.say_bytes(&frame));
        }
    }

    fn heed(&mut self, note: Note) {
        match note {
            Note::Started(pid) => {
                self.parts.live.started(pid);
                self.parts.stopping.started(pid);
            }
            Note::News(news) => self.parts.live.tracked(news),
            Note::Ended(code) => {
                while self.take_output() {}
                self.give_back_all();
                self.ended = Some(code);
                self.parts.live.ended();
            }
            Note::NotRecorded => {
                self.parts.stopping.stop(None, start::END_GRACE, &self.parts.reporter);
            }
            Note::TreeEnded(survivors) => self.parts.stopping.tree_ended(survivors),
            Note::Finished => self.recorded = true,
            Note::Terminal(client, note) => self.heed_terminal(client, &note),
        }
        // The program may be gone long before the last of what it started: the host stays until all of it is.
        if self.recorded && !self.finished && !self.parts.stopping.is_going_on() {
            self.finished = true;
            self.finish_clients();
        }
    }

    /// The run is over: everybody gets the answer that is left to give.
    fn finish_clients(&mut self) {
        for (client, answer) in self.parts.live.last_answers() {
            self.say_to(client, &answer);
        }
        for (client, survivors) in self.parts.stopping.finished() {
            self.say_to(client, &FromHost::Stopped(StopAnswer { survivors }));
        }
        let ended = FromHost::Ended(Ended { code: self.ended.unwrap_or_default(), ..Ended::default() });
        for client in &mut self.clients {
            if client.is_viewer() {
                client.say(&ended);
            }
            client.closing = true;
        }
    }

    fn accept(&mut self) {
        let Some(accepted) = self.parts.listener.as_ref().map(UnixListener::accept) else { return };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Without a free descriptor it would be ready at once, again and again.
                if error.kind() != io::ErrorKind::WouldBlock {
                    self.listen_at = Instant::now() + LISTEN_AGAIN;
                }
                return;
            }
        };
        if let Err(error) = address::check_peer(&stream) {
            tracing::warn!("a connection was refused: {error}");
            return;
        }
        self.counter += 1;
        if let Ok(client) = Client::new(self.counter, stream, Instant::now()) {
            self.clients.push(client);
        }
    }

    fn answer(&mut self, at: usize, frame: ToHost) {
        if !self.clients[at].welcomed {
            match frame {
                ToHost::Hello(_) => {
                    let welcome = Welcome {
                        version: VERSION,
                        build: env!("CARGO_PKG_VERSION").to_owned(),
                        session: Some(self.parts.live.session()),
                        name: self.parts.live.name().to_owned(),
                        takes_terminals: self.parts.pump.takes_terminals(),
                        answers: true,
                    };
                    self.clients[at].welcomed = true;
                    self.clients[at].say(&FromHost::Welcome(welcome));
                }
                _ => self.clients[at].refuse("a client says hello first".to_owned()),
            }
            return;
        }
        let client = self.clients[at].id;
        match frame {
            ToHost::Hello(_) => {}
            ToHost::Attach(attach) => self.attach(at, attach),
            ToHost::Keys(keys) => self.type_keys(at, &keys),
            ToHost::Resize(size) => self.resize_viewer(at, size),
            ToHost::HandOff(request) => self.take_terminal(at, &request),
            ToHost::Shown => self.parts.pump.begin(client),
            ToHost::Detach => {
                self.give_back(at);
                self.clients[at].role = Role::Asking;
                self.clients[at].closing = true;
                self.settle_size();
            }
            ToHost::State => {
                let state = self.parts.live.state(&self.screen);
                self.clients[at].say(&FromHost::State(state));
            }
            ToHost::Screen => {
                let dialog = self.parts.live.dialog(&self.screen);
                let rows = self.screen.view().rows;
                self.clients[at].say(&FromHost::Screen(ScreenText { rows, dialog }));
            }
            ToHost::Send(request) => {
                // From here on keys of viewers come through here: a text is not mixed with them.
                self.hold_keys();
                let answer = self.parts.live.send(client, &request, self.parts.pump.unwritten());
                if let Some(answer) = answer {
                    self.clients[at].say(&answer);
                }
            }
            ToHost::Answer(request) => {
                self.hold_keys();
                if let Some(answer) = self.parts.live.answer(client, &request) {
                    self.clients[at].say(&answer);
                }
            }
            ToHost::Wait(request) => {
                let answer = self.parts.live.wait(client, &request);
                if let Some(answer) = answer {
                    self.clients[at].say(&answer);
                }
            }
            ToHost::Stop(StopRequest { grace_ms }) => {
                self.parts.stopping.stop(Some(client), Duration::from_millis(grace_ms), &self.parts.reporter);
            }
        }
    }

    fn say_to(&mut self, client: u64, message: &FromHost) {
        if let Some(client) = self.clients.iter_mut().find(|known| known.id == client) {
            client.say(message);
        }
    }

    /// Texts on their way, waits, limits: whatever is due.
    fn work_on_live(&mut self) {
        if self.parts.live.has_answer() {
            // A choice is made in the dialog that is on the screen now, not in one that was there some output ago.
            for _ in 0..MOST_CHUNKS {
                if !self.take_output() {
                    break;
                }
            }
        }
        let now = Instant::now();
        let attached = self.viewers() > 0;
        let step = self.parts.live.step(now, &self.screen, self.parts.pump.unwritten(), attached);
        if !step.keys.is_empty() {
            self.parts.pump.type_keys(&step.keys);
        }
        if !self.held_keys.is_empty() && !self.parts.live.holds_keys(now) {
            let keys = std::mem::take(&mut self.held_keys);
            self.parts.live.viewer_typed();
            self.parts.pump.type_keys(&keys);
        }
        for (client, answer) in &step.answers {
            self.say_to(*client, answer);
        }
        self.notices.extend(step.notices);
        if self.screen.is_between_sequences() {
            let notices = std::mem::take(&mut self.notices);
            if !notices.is_empty() {
                if self.has_handed_terminals() {
                    self.parts.pump.notify(&notices);
                }
                self.show(notices);
            }
        }
        if let Some(why) = step.limit
            && self.ended.is_none()
        {
            tracing::info!("{why}: the session is stopped");
            let of = (self.parts.live.session(), self.parts.run);
            self.parts.stopping.stop_at_limit(of, why, &self.parts.reporter);
        }
    }

    fn attach(&mut self, at: usize, attach: Attach) {
        self.give_back(at);
        self.counter += 1;
        let size = self.known(attach.size);
        self.clients[at].role = Role::Viewing { size, read_only: attach.read_only, typed: self.counter };
        self.settle_size();
        let frame = self.screen.key_frame();
        self.clients[at].say(&FromHost::KeyFrame(frame));
        if let Some(code) = self.ended {
            self.clients[at].say(&FromHost::Ended(Ended { code, ..Ended::default() }));
        }
    }

    pub(super) fn type_keys(&mut self, at: usize, keys: &[u8]) {
        // A terminal's own answers and reports are nobody's typing, and one answer to a question is enough.
        if is_report(keys) {
            if self.size_owner() == Some(self.clients[at].id) {
                self.parts.pump.type_keys(keys);
            }
            return;
        }
        let Role::Viewing { read_only: false, typed, .. } = &mut self.clients[at].role else { return };
        let was = *typed;
        self.counter += 1;
        *typed = self.counter;
        if was != self.counter - 1 {
            self.settle_size();
        }
        if self.parts.live.holds_keys(Instant::now()) || !self.held_keys.is_empty() {
            if self.held_keys.len() + keys.len() <= MAX_HELD {
                self.held_keys.extend_from_slice(keys);
            }
            return;
        }
        self.parts.live.viewer_typed();
        self.parts.pump.type_keys(keys);
    }

    /// Whether keys of viewers wait until a text has been typed.
    pub(super) fn has_held_keys(&self) -> bool {
        !self.held_keys.is_empty()
    }

    /// A terminal that does not know its size leaves the session's as it is.
    fn known(&self, size: Size) -> Size {
        if size.rows == 0 || size.cols == 0 { self.size } else { bounded(size) }
    }

    fn resize_viewer(&mut self, at: usize, new: Size) {
        if let Role::Viewing { size, .. } = &mut self.clients[at].role {
            if new.rows > 0 && new.cols > 0 {
                *size = bounded(new);
            }
            self.settle_size();
        }
    }

    fn viewers(&self) -> usize {
        self.clients.iter().filter(|client| client.is_viewer()).count()
    }

    pub(super) fn size_owner(&self) -> Option<u64> {
        self.owner().map(|(client, _)| client)
    }

    /// The viewer that typed last, and its size.
    fn owner(&self) -> Option<(u64, Size)> {
        let viewers = self.clients.iter().filter(|client| !client.is_gone());
        let owners = viewers.filter_map(|client| match client.role {
            Role::Viewing { size, read_only: false, typed } => Some((typed, client.id, size)),
            _ => None,
        });
        owners.max_by_key(|(typed, ..)| *typed).map(|(_, client, size)| (client, size))
    }

    /// The size belongs to the viewer that typed last; to attach is to type. Without viewers it is the host's own.
    fn settle_size(&mut self) {
        let size = self.owner().map_or(self.own_size, |(_, size)| size);
        if size != self.size {
            self.size = size;
            self.screen.resize(pty_size(size));
            self.parts.pump.resize(size);
        }
    }
}

struct Ready {
    notes: bool,
    output: bool,
    listener: bool,
    clients: Vec<(bool, bool)>,
    /// HandedOver terminals that take more.
    handed: Vec<u64>,
}

fn pty_size(size: Size) -> PtySize {
    PtySize { rows: size.rows, cols: size.cols, pixel_width: 0, pixel_height: 0 }
}

/// What a terminal sends by itself: where its cursor stands, what it is, that it has the focus.
fn is_report(keys: &[u8]) -> bool {
    match keys {
        b"\x1b[I" | b"\x1b[O" | [0x1b, b']' | b'P', ..] => true,
        [0x1b, b'[', middle @ .., b'R' | b'c' | b'n' | b'y'] => {
            !middle.is_empty()
                && middle.iter().all(|byte| matches!(byte, b'0'..=b'9' | b';' | b'?' | b'>' | b'=' | b'$'))
        }
        [0x1b, b'[', b'?', middle @ .., b'u'] => middle.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

fn bounded(size: Size) -> Size {
    Size { rows: size.rows.clamp(2, MAX_SIDE), cols: size.cols.clamp(2, MAX_SIDE) }
}

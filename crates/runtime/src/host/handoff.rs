//! The server's part in terminals that are handed over: taking them, giving them back, and deciding about keys that the pump leaves
//! to it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use super::client::{MAX_UNTAKEN, Role};
use super::notes::{Note, Reporter, TerminalNote};
use super::server::Server;
use crate::remote::protocol::{FromHost, HandOff, HandedOver};
use pty::handoff::{HandedTerminal, Typed};

#[derive(Debug, Default)]
pub(super) struct Handoffs {
    /// Clients whose terminal holds keys back, and until when.
    held: Vec<(u64, Instant)>,
    /// What viewers know of how their terminals are given back.
    undo: Vec<u8>,
    /// What the pump knows: whose keys it may pass on, and whether a text is on its way.
    direct: (Option<u64>, bool),
}

impl Handoffs {
    /// When a key is passed on that may have been the beginning of a sequence.
    pub(super) fn due(&self) -> Option<Instant> {
        self.held.iter().map(|(_, until)| *until).min()
    }
}

impl Server {
    /// Whether any terminal is handed over.
    pub(super) fn has_handed_terminals(&self) -> bool {
        self.clients.iter().any(|client| client.handed_over)
    }

    /// Takes the terminal that came with the frame. What the viewer is still to show by itself stands before the answer.
    pub(super) fn take_terminal(&mut self, at: usize, request: &HandOff) {
        let descriptor = self.clients[at].take_descriptor();
        let Role::Viewing { read_only, .. } = self.clients[at].role else { return };
        let viewer = pty::peer_process(self.clients[at].stream());
        let chord = request.detach_keys.parse().unwrap_or_default();
        let mut modes = self.screen.modes().clone();
        let (pending, taken) = match descriptor.zip(viewer) {
            Some((descriptor, viewer)) if self.parts.pump.takes_terminals() => {
                self.parts.pump.take_terminal(self.clients[at].id, read_only, |pending| {
                    modes.feed(pending);
                    HandedTerminal::new(descriptor, viewer, chord, modes)
                })
            }
            _ => (Vec::new(), Err(std::io::ErrorKind::Unsupported.into())),
        };
        if !pending.is_empty() {
            self.follow_output(&pending);
        }
        if let Err(error) = &taken {
            tracing::debug!("a viewer's terminal is not taken: {error}");
        }
        let handed_over = taken.is_ok();
        let undo = self.screen.modes().undo_lasting();
        let client = &mut self.clients[at];
        client.handed_over = handed_over;
        if handed_over {
            client.say(&FromHost::Undo(undo));
        }
        client.say(&FromHost::HandedOver(HandedOver { taken: handed_over }));
    }

    /// The viewer has its terminal again, and knows how to leave it.
    pub(super) fn give_back(&mut self, at: usize) {
        let client = &mut self.clients[at];
        if !std::mem::take(&mut client.handed_over) {
            return;
        }
        if let Some(terminal) = self.parts.pump.give_back(client.id) {
            client.say(&FromHost::Undo(terminal.undo()));
        }
    }

    /// The agent has ended: viewers show the last of its output themselves.
    pub(super) fn give_back_all(&mut self) {
        for client in &mut self.clients {
            if std::mem::take(&mut client.handed_over)
                && let Some(terminal) = self.parts.pump.give_back(client.id)
            {
                let (rest, undo) = terminal.into_rest();
                if !rest.is_empty() {
                    client.say(&FromHost::Output(rest));
                }
                client.say(&FromHost::Undo(undo));
            }
        }
    }

    pub(super) fn heed_terminal(&mut self, client: u64, note: &TerminalNote) {
        let at = self.clients.iter().position(|known| known.id == client);
        if let TerminalNote::Keys(keys) = note {
            if let Some(at) = at {
                self.type_keys(at, keys);
            }
            return self.parts.pump.handled();
        }
        let Some(at) = at else { return };
        match note {
            TerminalNote::Keys(_) => {}
            TerminalNote::HoldsKeys => self.handoffs.held.push((client, Instant::now())),
            TerminalNote::Left => {
                self.give_back(at);
                self.clients[at].say(&FromHost::Left);
                self.clients[at].closing = true;
            }
            TerminalNote::Withdrawn => {
                self.give_back(at);
                self.clients[at].say(&FromHost::HandedOver(HandedOver { taken: false }));
                let frame = self.screen.key_frame();
                self.clients[at].say(&FromHost::KeyFrame(frame));
            }
            TerminalNote::Lags => {
                tracing::info!("a viewer that does not keep up is disconnected");
                self.give_back(at);
                self.clients[at].closing = true;
            }
            TerminalNote::Gone => self.clients[at].drop_connection(),
        }
    }

    pub(super) fn flush_handed(&self, clients: &[u64]) {
        for client in clients {
            self.parts.pump.flush(*client);
        }
    }

    /// Keys that may have been the beginning of a sequence, once nothing has followed.
    pub(super) fn release_held_keys(&mut self) {
        let now = Instant::now();
        for (client, until) in std::mem::take(&mut self.handoffs.held) {
            if until > now {
                self.handoffs.held.push((client, until));
                continue;
            }
            let (keys, again) = self.parts.pump.time_up(client, now);
            let at = self.clients.iter().position(|known| known.id == client);
            if let Some(at) = at
                && !keys.is_empty()
            {
                self.type_keys(at, &keys);
            }
            self.handoffs.held.extend(again.map(|until| (client, until)));
        }
    }

    /// A viewer whose host is killed has to know what to undo.
    pub(super) fn report_undo(&mut self) {
        if !self.has_handed_terminals() {
            return;
        }
        let undo = self.screen.modes().undo_lasting();
        if undo != self.handoffs.undo {
            for client in self.clients.iter_mut().filter(|client| client.handed_over) {
                client.say(&FromHost::Undo(undo.clone()));
            }
            self.handoffs.undo = undo;
        }
    }

    pub(super) fn hold_keys(&mut self) {
        self.set_direct(self.handoffs.direct.0, true);
    }

    /// Tells the pump whose keys it may pass on by itself.
    pub(super) fn settle_direct(&mut self) {
        self.set_direct(self.size_owner(), self.parts.live.has_sends() || self.has_held_keys());
    }

    fn set_direct(&mut self, owner: Option<u64>, held: bool) {
        if self.handoffs.direct != (owner, held) {
            self.handoffs.direct = (owner, held);
            self.parts.pump.set_direct(owner, held);
        }
    }
}

// Terminals that viewers have handed over to this host, and which of their keys the pump may pass on by itself.
//
// A key goes straight to the program if its viewer owns the size already and no text is on its way. Every other one is left to
// the server, which decides; and as long as the server has not handled such a key, none overtakes it.

#[derive(Debug)]
struct Viewer {
    client: u64,
    terminal: HandedTerminal,
    read_only: bool,
    /// Its own process has written what came before.
    begun: bool,
    /// It is reported that it must be given back.
    dropped: bool,
}

#[derive(Debug)]
pub(super) struct HandedTerminals {
    viewers: Vec<Viewer>,
    sources: Arc<Sources>,
    /// For viewers' terminals, between two sequences of the program's.
    notices: Vec<u8>,
    /// The viewer that owns the size.
    owner: Option<u64>,
    /// A text is on its way: keys must not get into it.
    held: bool,
    /// Keys that the server has not handled yet.
    left_to_server: usize,
}

impl HandedTerminals {
    pub(super) fn new(sources: Arc<Sources>) -> Self {
        Self {
            viewers: Vec::new(),
            sources,
            notices: Vec::new(),
            owner: None,
            held: false,
            left_to_server: 0,
        }
    }

    pub(super) fn is_possible(&self) -> bool {
        self.sources.as_fd().is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.viewers.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.viewers.clear();
    }

    pub(super) fn add(&mut self, client: u64, read_only: bool, terminal: HandedTerminal) {
        self.give_back(client);
        self.viewers.push(Viewer { client, terminal, read_only, begun: false, dropped: false });
    }

    pub(super) fn begin(&mut self, client: u64) {
        let sources = Arc::clone(&self.sources);
        if let Some(viewer) = self.viewer(client)
            && !viewer.begun
        {
            viewer.begun = true;
            viewer.terminal.flush();
            sources.add(client, viewer.terminal.as_fd());
        }
    }

    pub(super) fn give_back(&mut self, client: u64) -> Option<HandedTerminal> {
        let at = self.viewers.iter().position(|viewer| viewer.client == client)?;
        let Viewer { terminal, .. } = self.viewers.swap_remove(at);
        self.sources.remove(terminal.as_fd());
        Some(terminal)
    }

    pub(super) fn set_direct(&mut self, owner: Option<u64>, held: bool) {
        (self.owner, self.held) = (owner, held);
    }

    pub(super) fn handled(&mut self) {
        self.left_to_server = self.left_to_server.saturating_sub(1);
    }

    fn viewer(&mut self, client: u64) -> Option<&mut Viewer> {
        self.viewers.iter_mut().find(|viewer| viewer.client == client)
    }

    /// Reads a terminal: how many bytes of `buffer` are for the program now.
    pub(super) fn read(&mut self, client: u64, buffer: &mut [u8], reporter: &Reporter) -> Option<usize> {
        let sources = Arc::clone(&self.sources);
        let viewer = self.viewer(client)?;
        let report = |note| reporter.report(Note::Terminal(client, note));
        let mut keys = Vec::new();
        let typed = viewer.terminal.read(&mut keys);
        if typed != Typed::Keys {
            sources.remove(viewer.terminal.as_fd());
        }
        if viewer.terminal.held_until().is_some() {
            report(TerminalNote::HoldsKeys);
        }
        let read_only = viewer.read_only;
        let passed = if keys.is_empty() || read_only {
            None
        } else if self.owner == Some(client) && !self.held && self.left_to_server == 0 {
            let count = keys.len().min(buffer.len());
            buffer[..count].copy_from_slice(&keys[..count]);
            Some(count)
        } else {
            self.left_to_server += 1;
            report(TerminalNote::Keys(keys));
            None
        };
        match typed {
            Typed::Keys => {}
            Typed::Withdrawn => report(TerminalNote::Withdrawn),
            Typed::Chord => report(TerminalNote::Left),
            Typed::Gone => report(TerminalNote::Gone),
        }
        passed
    }

    /// Output on all terminals.
    pub(super) fn show(&mut self, bytes: &[u8], reporter: &Reporter) {
        for viewer in &mut self.viewers {
            if viewer.dropped {
                continue;
            }
            if viewer.begun {
                viewer.terminal.show(bytes);
            } else {
                viewer.terminal.keep(bytes);
            }
            let note = match viewer.terminal.unwritten() {
                0 => continue,
                bytes if bytes > MAX_UNTAKEN => TerminalNote::Lags,
                _ if viewer.begun && viewer.terminal.is_withdrawn() => TerminalNote::Withdrawn,
                _ => continue,
            };
            viewer.dropped = true;
            reporter.report(Note::Terminal(viewer.client, note));
        }
        if !self.notices.is_empty() {
            self.notify(&[]);
        }
    }

    pub(super) fn notify(&mut self, bytes: &[u8]) {
        self.notices.extend_from_slice(bytes);
        // One that lags, or pauses in the middle of a sequence, goes without: a notice is no part of the screen.
        if self.viewers.iter().any(|viewer| viewer.begun && viewer.terminal.is_between_sequences()) {
            let notices = std::mem::take(&mut self.notices);
            for viewer in &mut self.viewers {
                if viewer.begun && viewer.terminal.is_between_sequences() {
                    viewer.terminal.show(&notices);
                }
            }
        }
    }

    pub(super) fn time_up(&mut self, client: u64, now: Instant) -> (Vec<u8>, Option<Instant>) {
        let mut keys = Vec::new();
        let Some(viewer) = self.viewer(client) else { return (keys, None) };
        viewer.terminal.time_up(now, &mut keys);
        (keys, viewer.terminal.held_until())
    }

    pub(super) fn lagging(&self) -> Vec<(u64, Arc<OwnedFd>)> {
        let lagging = self.viewers.iter().filter(|viewer| {
            let lags = viewer.begun && !viewer.dropped && viewer.terminal.unwritten() > 0;
            // One that nobody may write to is writable all the time.
            lags && !viewer.terminal.is_withdrawn()
        });
        lagging.map(|viewer| (viewer.client, viewer.terminal.descriptor())).collect()
    }

    pub(super) fn flush(&mut self, client: u64) {
        if let Some(viewer) = self.viewer(client) {
            viewer.terminal.flush();
        }
    }
}

/// What the pump waits for: the server's wake-ups and all these terminals, behind one descriptor.
#[derive(Debug)]
pub(super) struct Sources {
    #[cfg(target_os = "linux")]
    epoll: Option<OwnedFd>,
}

/// What there is to be read.
#[derive(Debug, Default)]
pub(super) struct Ready {
    pub(super) woken: bool,
    terminals: [u64; MOST_READY],
    count: usize,
}

/// Others are ready still at the next look.
const MOST_READY: usize = 8;

impl Ready {
    pub(super) fn terminals(&self) -> impl Iterator<Item = u64> + '_ {
        self.terminals[..self.count].iter().copied()
    }
}

#[cfg(target_os = "linux")]
mod with_epoll {
    use rustix::event::Timespec;
    use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

    use super::{AsFd, BorrowedFd, MOST_READY, Ready, Sources};

    /// No client has this number.
    const WAKE_UPS: u64 = 0;

    impl Sources {
        /// Without a descriptor for it no terminal is taken.
        pub(in crate::host) fn new(wake_ups: BorrowedFd<'_>) -> Self {
            let epoll = epoll::create(CreateFlags::CLOEXEC).ok();
            let epoll = epoll.filter(|epoll| {
                epoll::add(epoll, wake_ups, EventData::new_u64(WAKE_UPS), EventFlags::IN).is_ok()
            });
            Self { epoll }
        }

        pub(in crate::host) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
            self.epoll.as_ref().map(AsFd::as_fd)
        }

        pub(super) fn add(&self, client: u64, terminal: BorrowedFd<'_>) {
            if let Some(epoll) = &self.epoll {
                let _ = epoll::add(epoll, terminal, EventData::new_u64(client), EventFlags::IN);
            }
        }

        pub(super) fn remove(&self, terminal: BorrowedFd<'_>) {
            if let Some(epoll) = &self.epoll {
                let _ = epoll::delete(epoll, terminal);
            }
        }

        pub(in crate::host) fn ready(&self) -> Ready {
            let Some(epoll) = &self.epoll else { return Ready { woken: true, ..Ready::default() } };
            let nothing = Event { flags: EventFlags::empty(), data: EventData::new_u64(WAKE_UPS) };
            let mut events = [nothing; MOST_READY];
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            let count = epoll::wait(epoll, &mut events, Some(&at_once)).unwrap_or(0);
            let mut ready = Ready::default();
            for event in &events[..count] {
                let data = event.data;
                match data.u64() {
                    WAKE_UPS => ready.woken = true,
                    client => {
                        ready.terminals[ready.count] = client;
                        ready.count += 1;
                    }
                }
            }
            ready
        }
    }
}

/// Elsewhere viewers pass keys and output on themselves.
#[cfg(not(target_os = "linux"))]
impl Sources {
    pub(super) fn new(_: BorrowedFd<'_>) -> Self {
        Self {}
    }

    pub(super) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn add(&self, _: u64, _: BorrowedFd<'_>) {}

    fn remove(&self, _: BorrowedFd<'_>) {}

    pub(super) fn ready(&self) -> Ready {
        Ready { woken: true, ..Ready::default() }
    }
}

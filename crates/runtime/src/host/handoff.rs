//! The server's part in terminals that are handed over: taking them, giving them back, and deciding about keys that the pump leaves
//! to it.

use std::time::Instant;

use super::client::Role;
use super::notes::TerminalNote;
use super::server::Server;
use crate::remote::protocol::{FromHost, HandOff, HandedOver};
use pty::handoff::HandedTerminal;

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

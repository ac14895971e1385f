//! Where the events of a run are sent: receivers may be set up, moved or taken away while the agent runs, and the store shows
//! it.

use delivery::{Hint, Sender, Sinks, Target, register};
use os::home::Home;
use store::{SinkRow, Store};

#[derive(Debug, Default)]
pub(super) struct Receivers {
    /// The receivers that the store names, as last seen.
    named: Vec<Receiver>,
    /// The targets that the sender has.
    targets: Vec<Target>,
    /// Runs beside us, where there is somewhere to send to.
    sender: Option<Sender>,
}

impl Receivers {
    /// Starts to send to the targets that were settled with the START; the store named `rows` then.
    pub(super) fn begin(sinks: Option<Sinks>, targets: Vec<Target>, rows: &[SinkRow]) -> Self {
        Self { named: receivers(rows), targets, sender: sinks.and_then(Sender::start) }
    }

    /// Sends to others from here on, if the store names others and the settings do so as well.
    pub(super) fn follow(&mut self, store: &mut Store, home: &Home, configured: fn(&Home) -> Option<Sinks>) {
        let Ok(rows) = store.read(|view| view.sinks()) else { return };
        let (named, retired) = (receivers(&rows), rows.iter().any(SinkRow::is_retired));
        if named == self.named {
            return;
        }
        self.named = named;
        let sinks = configured(home);
        let targets = sinks.as_ref().map(Sinks::targets).unwrap_or_default();
        if targets == self.targets {
            // Taken out of the configuration elsewhere, but this run has it from its environment.
            if retired {
                let _ = store.write(|tx| register(tx, &targets)); // or with the next call
            }
        } else {
            self.targets = targets;
            // The one before sends what it is at, and ends.
            self.sender = sinks.and_then(Sender::start);
        }
    }

    pub(super) fn wake(&self, hint: Hint) {
        if let Some(sender) = &self.sender {
            sender.hint(hint);
        }
    }

    /// Gives the sender to the caller, which waits until all is sent.
    pub(super) fn into_sender(self) -> Option<Sender> {
        self.sender
    }
}

/// A sink's name, and what stands for its address and for who sends there.
type Receiver = (String, Option<String>, Option<String>);

fn receivers(rows: &[SinkRow]) -> Vec<Receiver> {
    rows.iter().map(|row| (row.name.clone(), row.address.clone(), row.credentials.clone())).collect()
}

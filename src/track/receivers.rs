//! Where the events of a run are sent: receivers may be set up, moved or taken away while the agent runs, and whoever does
//! it tells the store.

use crate::forward::{Hint, Sender, Sinks, Target, register};
use crate::home::Home;
use crate::store::{SinkRow, Store};

#[derive(Debug, Default)]
pub(super) struct Receivers {
    /// What the store leads to, as last seen.
    led: Vec<Lead>,
    /// What the sender knows.
    targets: Vec<Target>,
    /// Beside us, where there is somewhere to send to.
    sender: Option<Sender>,
}

impl Receivers {
    /// Starts to send to what was settled with the START; the store led to `led` then.
    pub(super) fn begin(sinks: Option<Sinks>, targets: Vec<Target>, led: &[SinkRow]) -> Self {
        Self { led: leading(led), targets, sender: sinks.and_then(Sender::start) }
    }

    /// Sends to others from here on, if the store leads to others and the settings say so as well.
    pub(super) fn follow(&mut self, store: &mut Store, home: &Home, configured: fn(&Home) -> Option<Sinks>) {
        let Ok(rows) = store.read(|view| view.sinks()) else { return };
        let (led, retired) = (leading(&rows), rows.iter().any(SinkRow::is_retired));
        if led == self.led {
            return;
        }
        self.led = led;
        let sinks = configured(home);
        let targets = sinks.as_ref().map(Sinks::targets).unwrap_or_default();
        if targets == self.targets {
            // Taken out of the configuration elsewhere, but this run has it from its environment.
            if retired {
                let _ = store.write(|tx| register(tx, &targets)); // or with the next word
            }
        } else {
            self.targets = targets;
            // The one before sends what it is at, and ends.
            self.sender = sinks.and_then(Sender::start);
        }
    }

    pub(super) fn say(&self, hint: Hint) {
        if let Some(sender) = &self.sender {
            sender.hint(hint);
        }
    }

    /// For whoever waits until all is sent.
    pub(super) fn into_sender(self) -> Option<Sender> {
        self.sender
    }
}

/// A sink's name, and what stands for its address and for who sends there.
type Lead = (String, Option<String>, Option<String>);

fn leading(rows: &[SinkRow]) -> Vec<Lead> {
    rows.iter().map(|row| (row.name.clone(), row.address.clone(), row.credentials.clone())).collect()
}

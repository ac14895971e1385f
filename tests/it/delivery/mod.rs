//! Delivery from end to end: the real loop and the real binary against receivers of every character.

mod answers;
mod canary;
mod changes;
mod chaos;
mod codemie_v1;
mod commands;
mod crossing;
mod one_history;
mod otlp;
pub(crate) mod play;
mod recording;
mod run;
mod surroundings;

use std::sync::Arc;

use config::Config;
use delivery::{Drain, Idle, Pace, Sinks, register};
use os::clock::SystemClock;
use store::{Fate, SinkRow, Store};

use crate::commands::World;
use crate::support::ledger::Ledger;
use crate::support::receiver::{Received, Receiver, Reply};

/// A receiver that keeps everything.
fn honest() -> (Receiver, Arc<Ledger>) {
    let ledger = Arc::<Ledger>::default();
    let kept = Arc::clone(&ledger);
    (Receiver::start(move |received| kept.take(received)), ledger)
}

/// A receiver that answers the first requests by the list and is honest afterwards.
fn first(replies: Vec<Reply>) -> (Receiver, Arc<Ledger>) {
    let ledger = Arc::<Ledger>::default();
    let (kept, left) = (Arc::clone(&ledger), std::sync::Mutex::new(replies.into_iter()));
    let answer = move |received: &Received| {
        let next = left.lock().unwrap().next();
        next.unwrap_or_else(|| kept.take(received))
    };
    (Receiver::start(answer), ledger)
}

fn sinks(world: &World, config: &str) -> Sinks {
    std::fs::write(world.home.config_file(), config).unwrap();
    let config = Config::load(Some(&world.home.config_file()), |_| None, &[]);
    assert_eq!(config.problems, [""; 0]);
    let sinks = Sinks::of(&world.home, &config.delivery).unwrap();
    Store::open(&world.home, world.now).unwrap().write(|tx| register(tx, &sinks.targets())).unwrap();
    sinks
}

fn backend(receiver: &Receiver) -> String {
    format!("[backend]\nurl = '{}'\ntoken = 'canary-token'\n", receiver.url())
}

/// Runs the only sink's loop until it has nothing more to do now.
fn drain(sinks: &Sinks, pace: Pace) -> Idle {
    let mut drains = Drain::open_all(sinks, pace).unwrap();
    assert_eq!(drains.len(), 1);
    run(&mut drains[0])
}

fn run(drain: &mut Drain) -> Idle {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(drain.run(&SystemClock)).unwrap()
}

impl World {
    fn sink(&mut self, name: &str) -> SinkRow {
        self.store.read(|view| view.sink(name)).unwrap().unwrap()
    }

    fn dead(&mut self, name: &str) -> Vec<String> {
        let letters = self.store.read(|view| view.letters(name, Fate::Dead, i64::MAX, 1000)).unwrap();
        letters.into_iter().map(|letter| letter.reason).collect()
    }

    /// A session with this many calls, ended.
    fn spoken(&mut self, name: &str, calls: usize) {
        let run = self.start(name);
        self.bind(run, &format!("agent-of-{name}"), None);
        for call in 0..calls {
            self.call(run, &format!("{name}-{call}"), "claude-sonnet-4-5", Some(2_000_000_000));
        }
        self.end(run, 0);
    }
}

//! Everything on this machine: the store's sessions, and beside them the conversations that never ran through codemie, as the events
//! that `sync --backfill --scan` would send of them describe them.
//!
//! A call counts once: a scan leaves out the calls that a session of the store owns. The store's sessions are looked at before the
//! scan, so a call that becomes theirs in between is missing for a moment, and never there twice.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex};

use agents::registry;
use config::prices::price_list;
use delivery::foreign::{life, session_id};
use os::clock::{Clock, SystemClock};
use os::home::Home;
use scan::{Days, ForeignSession, ForeignSessions, Scanner};
use store::Store;

use super::entry::{Entry, EntryBuilder, ModelNames};
use super::index::Index;
use super::{LocalReader, LocalSessions, Machine};

#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error("the store: {0}")]
    Store(#[from] store::Error),
    #[error(transparent)]
    Scan(#[from] scan::Error),
}

/// Scans the machine, and remembers the conversations of the last time.
#[derive(Debug)]
pub struct HistoryScan {
    home: Home,
    store: Store,
    sessions: Arc<LocalSessions>,
    models: ModelNames,
    /// By the id that its session would have.
    known: HashMap<String, (ForeignSession, Arc<Entry>)>,
}

impl HistoryScan {
    pub fn new(home: Home, store: Store, sessions: Arc<LocalSessions>) -> Self {
        Self { home, store, sessions, models: ModelNames::default(), known: HashMap::new() }
    }

    /// Everything there is now. The calls of those conversations are read that are new or have changed.
    pub fn read(&mut self, var: &dyn Fn(&str) -> Option<OsString>) -> Result<LocalReader, HistoryError> {
        self.sessions.catch_up()?;
        let wrapped = self.sessions.current()?;
        let foreign = self.scan(var)?;
        self.take_in(&foreign)?;
        let mut index = Index::default();
        for (_, entry) in self.known.values() {
            index.put(entry.clone());
        }
        let machine = Machine { indexes: [wrapped, Arc::new(index)], foreign: Mutex::new(foreign) };
        Ok(LocalReader { sessions: self.sessions.clone(), history: Some(Arc::new(machine)) })
    }

    fn scan(&mut self, var: &dyn Fn(&str) -> Option<OsString>) -> Result<ForeignSessions, HistoryError> {
        let prices = price_list(&self.home.config_file());
        let scanner = Scanner {
            folder: self.home.scans(),
            agents: registry::AGENTS,
            var,
            days: Days::of(os::zone::local()),
            prices: &prices,
            watch: None,
        };
        self.store.read(|view| {
            let mut foreign = scanner.foreign(Some(view))?;
            // Calls that a session's conversation had before it was wrapped are of the session's project, as `usage` has them.
            for session in &mut foreign.sessions {
                if let Some(known) = view.session_by_agent_session(&session.agent, &session.conversation)? {
                    session.project = known.workspace.project;
                }
            }
            Ok(foreign)
        })
    }

    fn take_in(&mut self, foreign: &ForeignSessions) -> Result<(), HistoryError> {
        let mut before = std::mem::take(&mut self.known);
        for session in &foreign.sessions {
            let id = session_id(session).to_string();
            if let Some(known) = before.remove(&id).filter(|(known, _)| known == session) {
                self.known.insert(id, known);
            }
        }
        let (known, at) = (&self.known, SystemClock.now());
        let is_new = |session: &ForeignSession| !known.contains_key(&session_id(session).to_string());
        let mut read = Vec::new();
        for conversation in foreign.calls_of(is_new) {
            let (session, calls) = conversation.map_err(scan::Error::from)?;
            if let Some(entry) = EntryBuilder::foreign(&life(session, &calls), &mut self.models, at) {
                read.push((session_id(session).to_string(), (session.clone(), Arc::new(entry))));
            }
        }
        self.known.extend(read);
        Ok(())
    }
}

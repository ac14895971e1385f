//! `codemie dashboard`: the backend's pages on this user's own store, for as long as the command runs.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::browser;
use crate::cli;
use crate::former_copies;
use crate::history::HistoryFeed;
use agents::registry;
use dashboard::{Conversation, Dashboard, Gate, History, KnownAgents, LocalFacts, Outbox, Titles, router};
use format::output::screen::Unread;
use os::clock::{Clock, SystemClock};
use os::home::{Home, own_var};
use pty::process;
use reader::token::new_key;
use report::open::{open, recover};
use report::read_model::{HistoryScan, LocalSessions};
use server::Clients;
use store::{self, Store, View};

/// How soon the pages show a change. Each look reads a counter in shared memory.
const LOOK: Duration = Duration::from_millis(400);
/// How often sessions are ended whose wrapper has vanished, as every command does at its start.
const RECOVER: Duration = Duration::from_secs(30);

pub fn run(args: &cli::Dashboard, home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let mut out = Unread(out);
    let lock = process::lock(home, LOCK);
    if lock.is_none()
        && let Some(address) = running(home, args.port)
    {
        let url = entrance(address, &Gate::entry(&cookie_key(home)?, SystemClock.now()));
        write!(
            out,
            "{url}\nThe dashboard runs already, at http://{address}/. The code lets one browser in, once, for ten minutes.\n"
        )?;
        out.flush()?;
        show(args, &url, home);
        return Ok(ExitCode::SUCCESS);
    }
    // The port of one that ran before would be taken for ours.
    lock.as_ref().map_or(Ok(()), |lock| lock.set_len(0))?;
    let store = open(home)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let served = runtime.block_on(serve(args, home, store, lock.as_ref(), &mut out));
    // The thread that follows the store sleeps most of the time; nothing in it is worth waiting for.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

async fn serve(
    args: &cli::Dashboard,
    home: &Home,
    store: Store,
    lock: Option<&File>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    // Before the address is printed: its reader may end us at once.
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let connect = || Store::open(home, SystemClock.now());
    let sessions = LocalSessions::new(connect()?, connect()?);
    let listener = listen(args.port).await?;
    let address = listener.local_addr()?;
    let (gate, code) = Gate::once(address.port(), cookie_key(home)?)?;
    let (closing, closed) = watch::channel(false);
    let facts = Arc::new(ThisMachine {
        store: Mutex::new(connect()?),
        history: HistoryFeed::start(HistoryScan::new(home.clone(), connect()?, sessions.clone()))?,
    });
    let reader = Arc::new(sessions.reader());
    let dashboard = Dashboard::local(reader, gate, facts, Arc::new(SystemClock), closed.clone());
    let url = entrance(address, &code);
    write!(
        out,
        "{url}\nThe code lets one browser in, once; after that it is known at http://{address}/. ^C ends the dashboard.\n"
    )?;
    out.flush()?;
    if let Some(lock) = lock {
        // Without it, a second dashboard finds none that runs, and serves on a port of its own.
        let _ = lock.write_all_at(format!("{:05}\n", address.port()).as_bytes(), 0);
    }
    show(args, &url, home);
    let (home, kept, alone) = (home.clone(), home, lock.is_some());
    let follower = std::thread::Builder::new().name("dashboard store".to_owned());
    follower.spawn(move || {
        if alone {
            former_copies::remove(&home);
        }
        follow(&sessions, store, &home, &closed);
    })?;
    let asked_to_end = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    server::serve(listener, router(dashboard), Clients::default(), closing, asked_to_end).await;
    browser::forget(&url, kept, own_var);
    Ok(())
}

/// Opens the page where that is wanted. Without a browser the address is on the terminal.
fn show(args: &cli::Dashboard, url: &str, home: &Home) {
    if !args.no_open {
        let _opened = browser::show(url, home, own_var);
    }
}

/// Held by the dashboard that others of this home open, with its port in it.
const LOCK: &str = "dashboard";
/// How long it may take to start, and to answer.
const STARTS_WITHIN: Duration = Duration::from_secs(3);

/// The dashboard that holds the lock, if it answers on this port (on any, if none is asked for). One that runs where its
/// port cannot be reached, as in a container, is none.
fn running(home: &Home, wanted: Option<u16>) -> Option<SocketAddr> {
    let begun = Instant::now();
    let file = process::lock_file(home, LOCK);
    let port = loop {
        let noted = os::file::text_at_most(&file, 16).ok()?;
        match noted.trim().parse::<u16>() {
            Ok(port) => break port,
            // It starts at this moment.
            Err(_) if begun.elapsed() < STARTS_WITHIN => std::thread::sleep(Duration::from_millis(20)),
            Err(_) => return None,
        }
    };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    (wanted.is_none_or(|wanted| wanted == port) && answers(address).is_ok_and(|answers| answers))
        .then_some(address)
}

fn answers(address: SocketAddr) -> io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&address, STARTS_WITHIN)?;
    stream.set_read_timeout(Some(STARTS_WITHIN))?;
    write!(stream, "GET /login HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut begin = [0; 9];
    stream.read_exact(&mut begin)?;
    Ok(&begin == b"HTTP/1.1 ")
}

/// Keeps the pages up to date. An error is logged, and the next look tries again; the pages show what was read so far.
fn follow(sessions: &LocalSessions, mut store: Store, home: &Home, closing: &watch::Receiver<bool>) {
    let mut recovered = Instant::now();
    while !*closing.borrow() {
        if let Err(error) = sessions.catch_up() {
            tracing::warn!(%error, "the dashboard is not up to date");
        }
        std::thread::sleep(LOOK);
        if recovered.elapsed() >= RECOVER {
            recover(&mut store, home);
            recovered = Instant::now();
        }
    }
}

/// The port of the dashboard, so that its address can be kept as a bookmark. The one before is that of `codemie proxy serve`.
const PORT: u16 = 8790;

/// On the port that was asked for; else on the usual one, or where that is taken on any other.
async fn listen(port: Option<u16>) -> anyhow::Result<TcpListener> {
    let on = async |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    if let Some(port) = port {
        return on(port).await.with_context(|| {
            format!("cannot listen on port {port} of loopback; leave --port out, and any free port is taken")
        });
    }
    match on(PORT).await {
        Ok(listener) => Ok(listener),
        Err(_) => on(0).await.context("cannot listen on loopback"),
    }
}

/// The key that signs this user's cookies. It is kept, so that a browser is let in again tomorrow.
fn cookie_key(home: &Home) -> anyhow::Result<[u8; 32]> {
    let file = home.run().join("dashboard.key");
    let kept = os::file::read_at_most(&file, 32).ok().and_then(|key| <[u8; 32]>::try_from(key).ok());
    if let Some(key) = kept {
        return Ok(key);
    }
    let key = new_key()?;
    // Without a place to keep it, browsers have to be let in again next time.
    let written = os::file::create_private(&home.run())
        .and_then(|()| tempfile::NamedTempFile::new_in(home.run()))
        .and_then(|mut new| new.write_all(&key).map(|()| new))
        .and_then(|new| new.persist(&file).map_err(|error| error.error));
    if let Err(error) = written {
        tracing::warn!(%error, "the key of the dashboard's cookies is not kept");
    }
    Ok(key)
}

fn entrance(address: SocketAddr, code: &str) -> String {
    format!("http://{address}/enter?code={code}")
}

/// Sessions that a search finds by their titles. Why 2,000: nobody pages through more, and each is a value of the query.
const TITLED: usize = 2000;

/// What this machine knows beyond the read model.
struct ThisMachine {
    store: Mutex<Store>,
    history: Arc<HistoryFeed>,
}

impl ThisMachine {
    /// What the store answers; nothing, and a line in the log, if it cannot be read.
    fn ask<T: Default>(&self, ask: impl FnOnce(&View<'_>) -> Result<T, store::Error>) -> T {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        store.read(ask).unwrap_or_else(|error| {
            tracing::warn!(%error, "the store cannot be read");
            T::default()
        })
    }
}

impl LocalFacts for ThisMachine {
    fn agents(&self) -> KnownAgents {
        KnownAgents(registry::names())
    }

    fn command(&self) -> &'static str {
        "codemie dashboard"
    }

    fn has_history(&self) -> bool {
        true
    }

    fn history(&self) -> Option<History> {
        Some(self.history.ask())
    }

    fn titles(&self, sessions: &[Conversation]) -> Titles {
        let ids: Vec<String> = sessions.iter().map(|session| session.session.clone()).collect();
        let mut titles: HashMap<_, _> = self.ask(|view| view.titles(&ids)).into_iter().collect();
        let unwrapped = sessions.iter().filter(|session| session.foreign);
        let unwrapped: HashSet<&str> = unwrapped.map(|session| &*session.session).collect();
        if !unwrapped.is_empty() {
            titles.extend(self.history.titles().of(&unwrapped));
        }
        Titles(titles)
    }

    fn titled(&self, text: &str, history: bool) -> Vec<String> {
        let mut found = self.ask(|view| view.titled(text, TITLED));
        if history {
            found.extend(self.history.titles().with(text, TITLED));
        }
        found
    }

    fn outbox(&self) -> Option<Vec<Outbox>> {
        Some(self.ask(|view| {
            let receivers = view.sinks()?.into_iter().map(|sink| {
                let count = view.sink_count(&sink)?;
                let retry_at = sink.again_at();
                Ok(Outbox {
                    pending: count.pending,
                    dead: count.dead,
                    deferred: count.deferred,
                    paused: sink.paused,
                    trouble: sink.trouble,
                    failures: sink.failures,
                    retry_at,
                    last_delivered: sink.last_delivered_at,
                    sink: sink.name,
                })
            });
            receivers.collect::<Result<_, store::Error>>()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_loopback_and_whole() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 4000));
        assert_eq!(entrance(address, "K7QF-3M2X"), "http://127.0.0.1:4000/enter?code=K7QF-3M2X");
    }
}

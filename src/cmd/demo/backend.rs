//! The demonstration's own backend: the real one, in a detached process that ends by itself, so that its pages can be looked
//! at after the demonstration has ended.

use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::super::browser;
use agents::registry;
use backend::sqlite::Sqlite;
use backend::storage::Storage;
use backend::{Backend, Options};
use config::delivery::{Secret, User};
use dashboard::{Dashboard, Gate, KnownAgents, LocalFacts, router};
use delivery::http::Http;
use delivery::{Credential, Identity, Native, post};
use os::clock::{Clock, SystemClock};
use os::file::{read_at_most, text_at_most};
use os::home::{Home, own_var};
use pty::process;
use reader::token::{Owner, Role, Token, TokenHash, new_key, new_secret};
use server::Clients;
use store::{Outgoing, Store};
use types::SessionRecord;

/// The hidden command that the detached process runs.
const COMMAND: &str = "demo-backend";
/// How long the pages can be looked at.
const LINGERS: Duration = Duration::from_mins(10);
/// How often it looks whether its folder is still there.
const LOOK: Duration = Duration::from_secs(2);
/// Bounds failures only: it starts within milliseconds.
const TIMEOUT: Duration = Duration::from_secs(10);
const START_POLL: Duration = Duration::from_millis(5);

/// What the detached process reports of itself, once, to the process that started it.
#[derive(Serialize, Deserialize)]
pub(super) struct Embedded {
    address: String,
    token: String,
    /// Lets one browser in, once.
    pub(super) entrance: String,
}

/// The notes that demonstrations leave for each other are one line.
const MAX_NOTE: u64 = 64 << 10;

fn note(home: &Home, nonce: &str) -> PathBuf {
    agents::demo::folder(home).join(format!("backend-{nonce}.json"))
}

/// Starts it and waits until it listens.
pub(super) fn start(home: &Home) -> anyhow::Result<Embedded> {
    let nonce = uuid::Uuid::new_v4().to_string();
    process::start(home, [COMMAND, &nonce])?;
    let (file, deadline) = (note(home, &nonce), Instant::now() + TIMEOUT);
    loop {
        match read_at_most(&file, MAX_NOTE) {
            Ok(text) => {
                std::fs::remove_file(&file)?;
                return Ok(serde_json::from_slice(&text)?);
            }
            Err(_) if Instant::now() < deadline => std::thread::sleep(START_POLL),
            Err(error) => return Err(error).context("it did not start"),
        }
    }
}

/// Sends it the sessions of the demonstration, and waits until it has committed them. Returns how many events.
pub(super) fn send_events(
    home: &Home,
    embedded: &Embedded,
    chain: &[SessionRecord],
) -> anyhow::Result<usize> {
    let mut store = Store::open(home, SystemClock.now())?;
    let identity = Identity::of(&mut store, &User::Login)?;
    let events: Vec<Outgoing> = store.read(|view| {
        let mut events = Vec::new();
        for record in chain {
            let row = record.session_id.parse().ok().map(|id| view.session(id)).transpose()?.flatten();
            if let Some(row) = row {
                events.extend(view.outgoing_of(row.n)?);
            }
        }
        Ok::<_, store::Error>(events)
    })?;
    let address = embedded.address.parse().context("no address")?;
    let sink = Native::new(&address, Credential::Given(Secret::new(&embedded.token)), identity);
    let http = Http::new(&address, None)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let sent = runtime
        .block_on(post(&sink, &http, &events, Instant::now() + TIMEOUT))
        .map_err(|why| anyhow::anyhow!("it {why}"))?;
    anyhow::ensure!(sent.delivered == events.len(), "it refused {} of {} events", sent.refused, events.len());
    Ok(events.len())
}

/// `codemie demo-backend`: the detached process.
pub(super) fn serve(home: &Home, nonce: &str) -> anyhow::Result<()> {
    let folder = agents::demo::folder(home);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let storage: Arc<dyn Storage> = Arc::new(Sqlite::open(&folder.join("backend.db"))?);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (gate, code) = Gate::once(address.port(), new_key()?)?;
        let (role, token) = (Role::Ingest, new_secret(Role::Ingest)?);
        let (hash, created_at) = (TokenHash::of(&token), SystemClock.now());
        let (name, owner) = (format!("demo-{nonce}"), Owner::default());
        storage.add_token(Token { name, role, owner, hash, created_at, revoked_at: None }).await?;
        let (close, closing) = watch::channel(false);
        let (facts, clock) = (Arc::new(Demonstration), Arc::new(SystemClock));
        let pages = Dashboard::local(storage.clone(), gate, facts, clock, closing.clone());
        let routes = Backend::new(storage, &Options::default(), closing).router().merge(router(pages));
        let entrance = format!("http://{address}/enter?code={code}");
        write_note(
            &folder,
            &note(home, nonce),
            &Embedded { address: format!("http://{address}"), token, entrance: entrance.clone() },
        )?;
        std::fs::write(newest(&folder), nonce)?;
        server::serve(listener, routes, Clients::default(), close, ended(folder, nonce)).await;
        browser::forget(&entrance, home, own_var);
        Ok(())
    })
}

/// The demonstration's pages show no outbox: everything is sent to the backend behind them.
struct Demonstration;

impl LocalFacts for Demonstration {
    fn agents(&self) -> KnownAgents {
        KnownAgents(registry::names())
    }

    fn command(&self) -> &'static str {
        "codemie demo"
    }
}

/// Written whole or not at all, for its owner alone.
fn write_note(folder: &Path, file: &Path, embedded: &Embedded) -> anyhow::Result<()> {
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    new.write_all(&serde_json::to_vec(embedded)?)?;
    new.persist(file)?;
    Ok(())
}

/// Names the latest demonstration: its backend has everything that earlier ones had.
fn newest(folder: &Path) -> PathBuf {
    folder.join("backend-newest")
}

/// When it is of no use any more: its time is up, its folder is gone, or another demonstration has one.
async fn ended(folder: PathBuf, nonce: &str) {
    let deadline = Instant::now() + LINGERS;
    let ours = || text_at_most(&newest(&folder), MAX_NOTE).is_ok_and(|newest| newest == nonce);
    while Instant::now() < deadline && ours() {
        tokio::time::sleep(LOOK).await;
    }
}

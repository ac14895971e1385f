//! The metrics backend: its storages, its API, nodes that die.
mod api;
pub(crate) mod client;
mod conformance;
mod crowd;
mod events;
mod nodes;
mod owners;
mod postgres;
mod schema;
mod slow;
mod upgrade;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use backend::storage::Storage;
use backend::{postgres::Postgres, sqlite::Sqlite};

use crate::support::http::ask;
use crate::support::postgres::Cluster;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(work)
}

/// Which storage a test is about.
enum Kind<'a> {
    Sqlite,
    Postgres(&'a Cluster),
}

/// A new database, and two nodes before it.
struct World {
    one: Arc<dyn Storage>,
    other: Arc<dyn Storage>,
    _folder: Option<tempfile::TempDir>,
}

impl Kind<'_> {
    async fn world(&self) -> World {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        match self {
            Kind::Sqlite => {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("backend.db");
                let open = || Arc::new(Sqlite::open(&path).unwrap());
                World { one: open(), other: open(), _folder: Some(folder) }
            }
            Kind::Postgres(cluster) => {
                let url = cluster.database(&format!("world{}", COUNT.fetch_add(1, Ordering::Relaxed)));
                let one = Arc::new(Postgres::connect(&url).await.unwrap());
                let other = Arc::new(Postgres::connect(&url).await.unwrap());
                World { one, other, _folder: None }
            }
        }
    }
}

#[test]
fn a_backend_goes_on_when_nobody_reads_what_it_prints() {
    let folder = tempfile::tempdir().unwrap();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(crate::sandbox::CODEMIE);
    command.args(["backend", "serve", "--listen", "127.0.0.1:0"]).env("CODEMIE_HOME", folder.path());
    let mut server = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(server.stderr.take().unwrap()).lines().map(Result::unwrap);
    let address = log.find_map(|line| {
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        line["address"].as_str().map(|address| format!("http://{address}"))
    });
    drop(log);
    // Each request is logged, where nobody reads any more.
    for _ in 0..3 {
        let (status, _, _) = ask(&address.clone().unwrap(), "GET", "/v1/sessions", &[], &[]).unwrap();
        assert_eq!(status, 401);
    }
    assert_eq!(server.try_wait().unwrap(), None);
    server.kill().unwrap();
    server.wait().unwrap();
}

//! Live feeds on one node show what other nodes take in: `NOTIFY`, sent after the commit, gathered for a moment.
//!
//! It is a hint, not a record: changes that are lost while a connection is down are seen with the next query.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use futures_util::future::poll_fn;
use serde::{Deserialize, Serialize};
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Config};
use tokio_postgres_rustls::MakeRustlsConnect;
use uuid::Uuid;

use crate::sqlite::FEED;
use reader::Touched;
use types::EventType;

const CHANNEL: &str = "codemie_live";
/// PostgreSQL takes at most 8000 bytes in one notification; a session's id is at most 1 KiB, nearly always 36 bytes.
const AT_ONCE: usize = 64;
const MOST_BYTES: usize = 7900;
/// Batches within this time are one notification.
const GATHER: Duration = Duration::from_millis(100);
const RECONNECT: Duration = Duration::from_secs(1);

/// One notification.
#[derive(Serialize, Deserialize)]
struct Note {
    node: Uuid,
    touched: Vec<(String, EventType)>,
}

#[derive(Debug)]
pub(super) struct Feed {
    local: broadcast::Sender<Arc<[Touched]>>,
    others: mpsc::Sender<Vec<Touched>>,
    tasks: [JoinHandle<()>; 2],
}

impl Feed {
    pub(super) fn start(pool: Pool, config: Config, tls: MakeRustlsConnect) -> Self {
        let node = Uuid::new_v4();
        let local = broadcast::Sender::new(FEED);
        let (others, notes) = mpsc::channel(FEED);
        let tasks = [
            tokio::spawn(notify_other_nodes(pool, node, notes)),
            tokio::spawn(listen_to_other_nodes(config, tls, node, local.clone())),
        ];
        Self { local, others, tasks }
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Arc<[Touched]>> {
        self.local.subscribe()
    }

    pub(super) fn publish(&self, touched: Vec<Touched>) {
        if touched.is_empty() {
            return;
        }
        // A full queue drops the hint.
        let _ = self.others.try_send(touched.clone());
        let _ = self.local.send(touched.into());
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn notify_other_nodes(pool: Pool, node: Uuid, mut notes: mpsc::Receiver<Vec<Touched>>) {
    while let Some(mut touched) = notes.recv().await {
        tokio::time::sleep(GATHER).await;
        while let Ok(more) = notes.try_recv() {
            touched.extend(more);
        }
        touched.sort_by(|a, b| a.session.cmp(&b.session));
        touched.dedup_by(|a, b| a.session == b.session);
        for some in touched.chunks(AT_ONCE) {
            let touched = some.iter().map(|touched| (touched.session.clone(), touched.latest)).collect();
            let Ok(note) = serde_json::to_string(&Note { node, touched }) else { continue };
            if note.len() > MOST_BYTES {
                continue;
            }
            let Ok(client) = pool.get().await else { continue };
            if let Err(error) = client.execute("SELECT pg_notify($1, $2)", &[&CHANNEL, &note]).await {
                tracing::debug!("other nodes were not notified: {error}");
            }
        }
    }
}

async fn listen_to_other_nodes(
    config: Config,
    tls: MakeRustlsConnect,
    node: Uuid,
    local: broadcast::Sender<Arc<[Touched]>>,
) {
    loop {
        if let Ok((client, mut connection)) = config.connect(tls.clone()).await {
            let pump = async {
                while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                    if let AsyncMessage::Notification(note) = message {
                        pass_on(note.payload(), node, &local);
                    }
                }
            };
            let listen = async {
                let begun = client.batch_execute(&format!("LISTEN {CHANNEL}")).await;
                if begun.is_ok() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! { () = pump => {}, () = listen => {} }
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

fn pass_on(payload: &str, node: Uuid, local: &broadcast::Sender<Arc<[Touched]>>) {
    // Any client of this database can send anything here.
    let Ok(note) = serde_json::from_str::<Note>(payload) else { return };
    if note.node != node {
        let touched = note.touched.into_iter().map(|(session, latest)| Touched { session, latest });
        let _ = local.send(touched.collect());
    }
}

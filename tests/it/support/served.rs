//! The real backend, as a process of its own.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::http::ask;
use super::ledger::{FIELDS, Told};

pub(crate) struct Served {
    child: Child,
    url: String,
    home: tempfile::TempDir,
}

impl Served {
    pub(crate) fn start(database: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut child = Command::new(crate::sandbox::CODEMIE)
            .args(["backend", "serve", "--listen", "127.0.0.1:0", "--database", database])
            .env("CODEMIE_HOME", home.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
        assert!(url.starts_with("http://127.0.0.1:"), "{url}");
        Self { child, url: url.trim().to_owned(), home }
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// One of those it made for this user.
    pub(crate) fn token(&self, role: &str) -> String {
        let file = std::fs::read(self.home.path().join("backend/tokens.json")).unwrap();
        serde_json::from_slice::<Value>(&file).unwrap()[role].as_str().unwrap().to_owned()
    }

    fn ask(&self, path: &str) -> Option<Value> {
        let bearer = ("authorization".to_owned(), format!("Bearer {}", self.token("read")));
        let (status, _, body) = ask(&self.url, "GET", path, &[bearer], &[]).unwrap();
        (status == 200).then(|| serde_json::from_slice(&body).unwrap())
    }

    /// A session as it tells it.
    pub(crate) fn session(&self, id: &str) -> Option<Told> {
        let record = self.ask(&format!("/v1/sessions/{id}"))?;
        let sums = |of: &Value| FIELDS.map(|field| of[field].as_i64().unwrap_or(-1));
        let last_end = self.events(id).into_iter().rfind(|event| event["type"] == "session.end");
        Some(Told {
            agent_session: record["correlation"]["agentSessionId"].as_str().map(str::to_owned),
            // What it added up itself, and what the END says.
            usage: sums(&record["usage"]),
            totals: last_end.map(|event| sums(&event["attributes"]["totals"])),
            complete: record["complete"].as_bool().unwrap() && record["missingSeq"] == serde_json::json!([]),
        })
    }

    /// How many there are.
    pub(crate) fn sessions(&self) -> usize {
        self.pages("/v1/sessions", "sessions", "cursor").len()
    }

    /// All events of a session, by `seq`.
    fn events(&self, session: &str) -> Vec<Value> {
        self.pages(&format!("/v1/sessions/{session}/events"), "events", "after")
    }

    /// The items of all pages; `from` is how the next one is asked for.
    fn pages(&self, path: &str, items: &str, from: &str) -> Vec<Value> {
        let (mut all, mut place) = (Vec::new(), String::new());
        loop {
            let mut page = self.ask(&format!("{path}?limit=100{place}")).unwrap();
            all.append(page[items].as_array_mut().unwrap_or_else(|| panic!("no {items} in {path}")));
            match &page["next"] {
                Value::Null => return all,
                Value::String(next) => place = format!("&{from}={next}"),
                next => place = format!("&{from}={next}"),
            }
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

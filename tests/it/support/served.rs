//! The real backend, as a process of its own.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::http::ask;
use super::ledger::{FIELDS, ReportedSession};

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

    /// What its API answers, if that is no refusal.
    pub(crate) fn ask(&self, path: &str) -> Option<Value> {
        let bearer = ("authorization".to_owned(), format!("Bearer {}", self.token("read")));
        let (status, _, body) = ask(&self.url, "GET", path, &[bearer], &[]).unwrap();
        (status == 200).then(|| serde_json::from_slice(&body).unwrap())
    }

    /// A session as its API describes it.
    pub(crate) fn session(&self, id: &str) -> Option<ReportedSession> {
        let record = self.ask(&format!("/v1/sessions/{id}"))?;
        Some(ReportedSession {
            agent_session: record["correlation"]["agentSessionId"].as_str().map(str::to_owned),
            usage: FIELDS.map(|field| record["usage"][field].as_i64().unwrap_or(-1)),
            // It adds up the calls itself, and does not keep what an END says of them.
            totals: None,
            complete: record["complete"].as_bool().unwrap() && record["missingSeq"] == serde_json::json!([]),
        })
    }

    /// How many there are.
    pub(crate) fn sessions(&self) -> usize {
        let (mut count, mut cursor) = (0, String::new());
        loop {
            let page = self.ask(&format!("/v1/sessions?limit=100{cursor}")).unwrap();
            count += page["sessions"].as_array().unwrap_or_else(|| panic!("{page}")).len();
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return count,
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

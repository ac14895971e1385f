//! Our own backend: `POST {backend}/v1/events`, a JSON array of events, answered after commit.

use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use super::answer::{self, Answer, Verdict};
use super::http::{Encoding, Request, is_loopback, join};
use super::identity::Identity;
use super::sink::Sink;
use config::delivery::Secret;
use os::file::text_at_most;
use os::home::Home;
use store::{Error, Outgoing, View};

/// The backend's name as a sink.
pub const NATIVE: &str = "backend";

/// The backend's answer to a batch.
#[derive(Debug, Deserialize)]
struct Receipt {
    accepted: usize,
    duplicates: usize,
    #[serde(default)]
    rejected: Vec<Rejected>,
}

#[derive(Debug, Deserialize)]
struct Rejected {
    id: String,
    #[serde(default)]
    error: String,
}

#[derive(Debug)]
pub struct Native {
    base: Url,
    token: Credential,
    identity: Identity,
}

/// The token that requests carry.
#[derive(Clone, Debug)]
pub enum Credential {
    Given(Secret),
    /// The one that a backend on this machine has left in our home. That backend may be started for the first time while a
    /// run goes on, so the file is read for every request.
    Found(Home),
    /// None: for requests that are only shown.
    None,
}

impl Credential {
    /// The token at this moment.
    pub fn secret(&self, base: &Url) -> Option<Secret> {
        match self {
            Self::Given(secret) => Some(secret.clone()),
            Self::Found(home) => local_token(home, base),
            Self::None => None,
        }
    }
}

impl Native {
    pub fn new(base: &Url, token: Credential, identity: Identity) -> Self {
        Self { base: base.clone(), token, identity }
    }

    pub fn request(&self, events: &[Outgoing]) -> Request {
        let bearer = |token: &Secret| Secret::new(format!("Bearer {}", token.reveal()));
        let token = self.token.secret(&self.base);
        Request {
            url: join(&self.base, "/v1/events"),
            credentials: token.iter().map(|token| ("authorization".to_owned(), bearer(token))).collect(),
            headers: Vec::new(),
            content_type: "application/json",
            body: self.body(events),
            encoding: Some(Encoding::Zstd),
        }
    }

    /// One event per line: readable as it is, so that a preview shows exactly the bytes that are sent.
    fn body(&self, events: &[Outgoing]) -> Vec<u8> {
        let mut body = b"[".to_vec();
        for (at, event) in events.iter().enumerate() {
            body.extend_from_slice(if at == 0 { b"\n" } else { b",\n" });
            let sent = event.sent(&self.identity.machine, self.identity.user.as_deref());
            // Texts and numbers always have a JSON form, and writing to memory cannot fail.
            let _ = serde_json::to_writer(&mut body, &sent);
        }
        body.extend_from_slice(b"\n]\n");
        body
    }
}

impl Sink for Native {
    fn name(&self) -> &'static str {
        NATIVE
    }

    fn url(&self) -> &Url {
        &self.base
    }

    fn requests(&self, _: &View<'_>, events: &[Outgoing]) -> Result<Vec<Request>, Error> {
        Ok(vec![self.request(events)])
    }

    /// A batch without events is answered like any other, so the answer shows whether address and token are right.
    fn question(&self) -> Option<Request> {
        Some(self.request(&[]))
    }

    fn judge(&self, events: &[Outgoing], _: &Request, answer: &Answer) -> Verdict {
        match answer::by_status(answer) {
            // The backend knows the token, but it is one for reading.
            Some(Verdict::CredentialsRefused(_)) if answer.status == 403 => Verdict::CredentialsRefused(
                "refused the token (403): one of role ingest is needed".to_owned(),
            ),
            Some(verdict) => verdict,
            None => receipt(events, answer),
        }
    }
}

/// A 200 counts only with a receipt for exactly the events that were sent. Anything else may be a captive portal, a proxy's
/// page or a broken receiver, and all events are sent again later.
fn receipt(events: &[Outgoing], answer: &Answer) -> Verdict {
    if answer.truncated {
        return answer::unusable("more than anybody reads");
    }
    let Ok(receipt) = serde_json::from_slice::<Receipt>(&answer.body) else {
        return answer::unusable("something that is no receipt");
    };
    let counted = receipt
        .accepted
        .checked_add(receipt.duplicates)
        .and_then(|sum| sum.checked_add(receipt.rejected.len()));
    if counted != Some(events.len()) {
        return answer::unusable("a receipt for another number of events");
    }
    let mut rejected = Vec::new();
    for one in receipt.rejected {
        let Ok(id) = one.id.parse::<Uuid>() else { return answer::unusable("a receipt for other events") };
        let sent = events.iter().filter(|event| event.id == id).count();
        if rejected.iter().filter(|(known, _)| *known == id).count() >= sent {
            return answer::unusable("a receipt for other events");
        }
        rejected.push((id, format!("rejected: {}", answer::in_one_line(&one.error))));
    }
    Verdict::Accepted { rejected }
}

/// The token that `backend serve` left for this user, for an address on this machine.
pub fn local_token(home: &Home, url: &Url) -> Option<Secret> {
    if !is_loopback(url) {
        return None;
    }
    let text = text_at_most(&home.backend_tokens(), 64 << 10).ok()?;
    let tokens: Value = serde_json::from_str(&text).ok()?;
    tokens["ingest"].as_str().map(Secret::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use types::event::{Dimension, Key, Prompt, Text};
    use types::{Attributes, Event, Timestamp};

    fn event(n: u128) -> Outgoing {
        let event = Event {
            id: Uuid::from_u128(n),
            rev: 2,
            session: Text::cut("s".into()),
            seq: 3,
            time: Timestamp(0),
            agent: Dimension::cut("claude".into()),
            machine: None,
            user: None,
            attributes: Attributes::Prompt(Prompt { key: Key(Some("k".into())) }),
        };
        Outgoing { n: 1, change: Some(1), event }
    }

    fn native(user: Option<&str>) -> Native {
        let identity = Identity { machine: "m".into(), user: user.map(str::to_owned) };
        Native::new(&Url::parse("http://h").unwrap(), Credential::Given(Secret::new("t")), identity)
    }

    #[test]
    fn an_event_as_the_contract_spells_it() {
        let body = native(Some("dev")).body(&[event(1), event(2)]);
        let parsed: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(parsed.as_array().unwrap().len(), 2);
        assert_eq!(
            parsed[0],
            json!({"id": "00000000-0000-0000-0000-000000000001", "rev": 2, "type": "prompt", "sessionId": "s", "seq": 3,
                "time": "1970-01-01T00:00:00.000Z", "agent": "claude", "machine": "m", "user": "dev",
                "attributes": {"key": "k"}})
        );
        let nobody: Value = serde_json::from_slice(&native(None).body(&[event(1)])).unwrap();
        assert!(nobody[0].get("user").is_none());
    }

    #[test]
    fn only_a_receipt_for_exactly_the_sent_events_counts() {
        let events = [event(1), event(2)];
        let second = "00000000-0000-0000-0000-000000000002";
        let verdict = |body: &str| {
            let answer = Answer { status: 200, body: body.as_bytes().to_vec(), ..Answer::default() };
            receipt(&events, &answer)
        };
        let accepted = Verdict::Accepted { rejected: vec![] };
        assert_eq!(verdict(r#"{"accepted":2,"duplicates":0,"rejected":[]}"#), accepted);
        assert_eq!(verdict(r#"{"accepted":1,"duplicates":1}"#), accepted);
        assert_eq!(
            verdict(&format!(
                r#"{{"accepted":1,"duplicates":0,"rejected":[{{"id":"{second}","error":"no\u0007"}}]}}"#
            )),
            Verdict::Accepted { rejected: vec![(Uuid::from_u128(2), "rejected: no".into())] }
        );
        for lie in [
            "",
            "{}",
            "<html>please log in</html>",
            "[]",
            "null",
            r#"{"accepted":2}"#,
            r#"{"accepted":0,"duplicates":0,"rejected":[]}"#,
            r#"{"accepted":3,"duplicates":0,"rejected":[]}"#,
            r#"{"accepted":-2,"duplicates":4,"rejected":[]}"#,
            r#"{"accepted":18446744073709551615,"duplicates":3,"rejected":[]}"#,
            r#"{"accepted":1,"duplicates":0,"rejected":[{"id":"00000000-0000-0000-0000-000000000009"}]}"#,
            r#"{"accepted":1,"duplicates":0,"rejected":[{"id":"x"}]}"#,
            &format!(
                r#"{{"accepted":0,"duplicates":0,"rejected":[{{"id":"{second}"}},{{"id":"{second}"}}]}}"#
            ),
        ] {
            assert!(matches!(verdict(lie), Verdict::Unconfirmed { retry_after: None, .. }), "{lie}");
        }
        let endless = Answer { status: 200, truncated: true, ..Answer::default() };
        assert!(matches!(receipt(&events, &endless), Verdict::Unconfirmed { .. }));
    }
}

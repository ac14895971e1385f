//! Our own backend: `POST {backend}/v1/events`, a JSON array of events, answered after commit.

use std::borrow::Cow;

use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::answer::{self, Answer, Verdict};
use super::http::{Encoding, Request, is_loopback, join};
use super::identity::Identity;
use super::sink::Sink;
use crate::config::delivery::Secret;
use crate::home::Home;
use crate::store::{Error, Outgoing, View};
use system::file::text_at_most;
use wire::EventKind;

/// An event as it crosses the wire.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    id: Uuid,
    rev: i64,
    r#type: &'a EventKind,
    session_id: &'a str,
    seq: i64,
    time: String,
    agent: &'a str,
    machine: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    attributes: &'a Value,
}

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
            let event = Event {
                id: event.id,
                rev: event.rev,
                r#type: &event.kind,
                session_id: &event.session,
                seq: event.seq,
                time: event.time.to_string(),
                agent: &event.agent,
                machine: &self.identity.machine,
                user: self.identity.user.as_deref(),
                attributes: &fitting(&event.attributes),
            };
            // Strings, numbers and JSON values always have a JSON form.
            body.extend_from_slice(&serde_json::to_vec(&event).unwrap_or_default());
        }
        body.extend_from_slice(b"\n]\n");
        body
    }
}

/// The longest text of an attribute that is taken, and the longest list: a branch may be longer, and one that is refused
/// takes the START of its session with it.
const LONGEST_TEXT: usize = 1024;
const LONGEST_LIST: usize = 100;

/// Attributes as the receiver takes them.
fn fitting(attributes: &Value) -> Cow<'_, Value> {
    fn fits(value: &Value) -> bool {
        match value {
            Value::String(text) => text.len() <= LONGEST_TEXT && !text.contains('\0'),
            Value::Array(list) => list.len() <= LONGEST_LIST && list.iter().all(fits),
            Value::Object(fields) => fields.values().all(fits),
            _ => true,
        }
    }
    fn fit(value: &mut Value) {
        match value {
            Value::String(text) => {
                text.retain(|c| c != '\0');
                text.truncate(text.floor_char_boundary(LONGEST_TEXT));
            }
            Value::Array(list) => {
                list.truncate(LONGEST_LIST);
                list.iter_mut().for_each(fit);
            }
            Value::Object(fields) => fields.values_mut().for_each(fit),
            _ => {}
        }
    }
    if fits(attributes) {
        return Cow::Borrowed(attributes);
    }
    let mut cut = attributes.clone();
    fit(&mut cut);
    Cow::Owned(cut)
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
    use wire::Timestamp;

    fn event(n: u128) -> Outgoing {
        Outgoing {
            n: 1,
            id: Uuid::from_u128(n),
            rev: 2,
            kind: wire::EventType::Usage.into(),
            session: "s".into(),
            seq: 3,
            time: Timestamp(0),
            agent: "claude".into(),
            attributes: json!({"key": "k"}),
            change: Some(1),
        }
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
            json!({"id": "00000000-0000-0000-0000-000000000001", "rev": 2, "type": "usage", "sessionId": "s", "seq": 3,
                "time": "1970-01-01T00:00:00.000Z", "agent": "claude", "machine": "m", "user": "dev",
                "attributes": {"key": "k"}})
        );
        let nobody: Value = serde_json::from_slice(&native(None).body(&[event(1)])).unwrap();
        assert!(nobody[0].get("user").is_none());
    }

    #[test]
    fn what_is_too_long_is_cut_rather_than_refused() {
        let fine = json!({"branch": "main", "tags": ["a"], "totals": {"unpricedModels": ["x"]}, "n": 5});
        assert_eq!(fitting(&fine), Cow::Borrowed(&fine));
        let long = "é".repeat(600);
        let many: Vec<String> = (0..101).map(|n| n.to_string()).collect();
        let cut = fitting(&json!({"branch": long, "tags": many, "totals": {"unpricedModels": ["a\0b"]}}))
            .into_owned();
        assert_eq!(cut["branch"].as_str().unwrap().len(), 1024);
        assert_eq!(cut["tags"].as_array().unwrap().len(), 100);
        assert_eq!(cut["totals"]["unpricedModels"][0], "ab");
        let odd = fitting(&json!({"branch": format!("x{long}")})).into_owned();
        assert_eq!(odd["branch"].as_str().unwrap().len(), 1023, "no letter is cut in two");
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

//! Evidence in the agent's log and in the lines of its files of which process is in which conversation. Bytes in, traces out.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::shape::{self, Line};
use crate::correlate::{TextFingerprint, Typed};
use types::AgentSessionId;
use types::Timestamp;

/// The file is being rewritten, or is not the agent's.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Torn;

/// One entry of the log of typed prompts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) under: AgentSessionId,
    pub(super) at: Timestamp,
    pub(super) what: Typed,
}

/// How far a log has been read: per process, because processes overwrite each other's log and lines may come back.
#[derive(Debug, Default)]
pub(super) struct LogReader {
    last: BTreeMap<String, Timestamp>,
    /// Older entries are not new when the log is read for the first time.
    since: Timestamp,
    was_read: bool,
}

impl LogReader {
    pub(super) fn since(since: Timestamp) -> Self {
        Self { since, ..Self::default() }
    }

    /// The new entries of the log, which is one JSON document, in the order of time. An unreadable entry is skipped.
    pub(super) fn read(&mut self, log: &[u8]) -> Result<Vec<Entry>, Torn> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Logged<'a> {
            #[serde(borrow)]
            session_id: Cow<'a, str>,
            #[serde(borrow)]
            message: Cow<'a, str>,
            #[serde(borrow)]
            timestamp: Cow<'a, str>,
        }
        let logged: Vec<&RawValue> = serde_json::from_slice(log).map_err(|_| Torn)?;
        let mut new = Vec::new();
        for entry in logged {
            let Ok(Logged { session_id, message, timestamp }) = serde_json::from_str(entry.get()) else {
                continue;
            };
            let Some(at) = Timestamp::parse(&timestamp) else { continue };
            if self.last.get(session_id.as_ref()).is_some_and(|last| *last >= at) {
                continue;
            }
            new.push(Entry {
                under: AgentSessionId(session_id.clone().into_owned()),
                at,
                what: typed(&message),
            });
            self.last.insert(session_id.into_owned(), at);
        }
        if !std::mem::replace(&mut self.was_read, true) {
            new.retain(|entry| entry.at >= self.since);
        }
        new.sort_by_key(|entry| entry.at);
        Ok(new)
    }
}

/// The agent logs the command it runs, completed and without spaces around it.
fn typed(message: &str) -> Typed {
    match message.split_whitespace().next() {
        Some("/clear" | "/new") => Typed::Clear,
        _ => Typed::Prompt(TextFingerprint::of(message)),
    }
}

/// The evidence in one line of a session file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LineEvidence {
    /// The conversation begins, or a process announces that it will continue it.
    Header { id: AgentSessionId, at: Timestamp },
    /// A process continues it.
    Entered(AgentSessionId),
    /// A prompt, in each form in which the log may hold it.
    Prompt { at: Timestamp, forms: Vec<TextFingerprint> },
}

/// `None`: no evidence. Most lines are not even parsed.
pub(super) fn line_evidence(line: &[u8]) -> Option<LineEvidence> {
    const MARKS: [&[u8]; 2] = [b"{\"sessionId\"", b"{\"$set\":{\"sessionId\""];
    let marked = MARKS.iter().any(|mark| line.starts_with(mark));
    // Documents have a space there.
    let by_the_user = || {
        [&b"\"type\":\"user\""[..], b"\"type\": \"user\""]
            .iter()
            .any(|mark| memchr::memmem::find(line, mark).is_some())
    };
    if !marked && (line.starts_with(b"{\"$set\"") || !by_the_user()) {
        return None;
    }
    let line: Line = serde_json::from_slice(line).ok()?;
    if let Some(id) = line.session_id.0 {
        let at = line.start_time.0.as_deref().and_then(Timestamp::parse)?;
        let main = line.kind.0.as_deref() != Some("subagent");
        return main.then(|| LineEvidence::Header { id: AgentSessionId(id.into_owned()), at });
    }
    if let Some(id) = line.set.as_ref().and_then(|set| set.session_id.0.as_deref()) {
        return Some(LineEvidence::Entered(AgentSessionId(id.to_owned())));
    }
    let at = line.timestamp.0.as_deref().and_then(Timestamp::parse)?;
    let whole = line.prompt()?;
    let first = line.content.map(shape::texts).and_then(|texts| texts.into_iter().next());
    let shown = line.display_content.map(|content| shape::texts(content).concat());
    let mut forms: Vec<TextFingerprint> = Vec::new();
    for text in [Some(whole), first, shown].into_iter().flatten() {
        let text = TextFingerprint::of(&text);
        if !forms.contains(&text) {
            forms.push(text);
        }
    }
    Some(LineEvidence::Prompt { at, forms })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/gemini");

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    #[test]
    fn the_recorded_log_is_read_once_and_in_order() {
        let log = std::fs::read(format!("{FIXTURES}/clear/logs.json")).unwrap();
        let mut reader = LogReader::default();
        let entries = reader.read(&log).unwrap();
        let prompt = |text| Typed::Prompt(TextFingerprint::of(text));
        let what: Vec<Typed> = entries.iter().map(|entry| entry.what).collect();
        let clear = Typed::Clear;
        assert_eq!(
            what,
            [
                prompt("alpha one"),
                clear,
                prompt("beta one"),
                clear,
                clear,
                prompt("gamma one"),
                clear,
                prompt("/quit")
            ]
        );
        assert!(entries.iter().all(|entry| entry.under.0 == "22222222-2222-4333-8444-555555555555"));
        assert_eq!(entries[1].at, at("2026-11-15T23:45:44.931Z"));
        assert_eq!(reader.read(&log), Ok(Vec::new()));
        assert_eq!(reader.read(&log[..log.len() / 2]), Err(Torn));
        assert_eq!(reader.read(b"{}"), Err(Torn));
    }

    #[test]
    fn a_line_that_another_process_overwrote_is_not_waited_for() {
        let line = |session: &str, number: u32, text: &str, time: &str| {
            format!(
                r#"{{"sessionId":"{session}","messageId":{number},"type":"user","message":"{text}","timestamp":"2026-11-16T00:00:{time}Z"}}"#
            )
        };
        let mut reader = LogReader::default();
        let first = format!("[{}]", line("a", 0, "one", "01.000"));
        assert_eq!(reader.read(first.as_bytes()).unwrap().len(), 1);
        // The same number again: `b` overwrote the second line of `a` without having seen it.
        let lost = format!("[{},{}]", line("a", 0, "one", "01.000"), line("a", 1, "two", "02.000"));
        assert_eq!(reader.read(lost.as_bytes()).unwrap().len(), 1);
        let again = format!(
            "[{},{},{}]",
            line("a", 0, "one", "01.000"),
            line("b", 0, "/new", "02.500"),
            line("a", 1, "/clear now", "03.000")
        );
        let new = reader.read(again.as_bytes()).unwrap();
        let who: Vec<&str> = new.iter().map(|entry| entry.under.0.as_str()).collect();
        assert_eq!(who, ["b", "a"]);
        assert!(new.iter().all(|entry| entry.what == Typed::Clear));
    }

    #[test]
    fn a_broken_entry_hides_no_other_and_old_ones_are_not_new() {
        let line = |text: &str, time: &str| {
            format!(r#"{{"sessionId":"a","message":{text},"timestamp":"2026-11-16T00:00:{time}Z"}}"#)
        };
        let log = [
            line(r#""before""#, "01.000"),
            line(r#""half of an emoji \ud83d""#, "03.000"),
            line("7", "04.000"),
            "null".to_owned(),
            line(r#""/clear""#, "05.000"),
        ];
        let log = format!("[{}]", log.join(","));
        let mut reader = LogReader::since(at("2026-11-16T00:00:02.000Z"));
        assert_eq!(reader.read(b""), Err(Torn));
        let what: Vec<Typed> = reader.read(log.as_bytes()).unwrap().iter().map(|entry| entry.what).collect();
        assert_eq!(what, [Typed::Clear]);
        // After the first reading every entry is new, also after the clock was set back.
        let later = br#"[{"sessionId":"b","message":"x","timestamp":"2026-11-15T00:00:00.000Z"}]"#;
        assert_eq!(reader.read(later).unwrap().len(), 1);
    }

    #[test]
    fn lines_are_evidence_of_the_process_that_wrote_them() {
        let id = AgentSessionId("i".into());
        let header =
            br#"{"sessionId":"i","projectHash":"h","startTime":"2026-11-16T00:00:01.000Z","kind":"main"}"#;
        let then = at("2026-11-16T00:00:01.000Z");
        assert_eq!(line_evidence(header), Some(LineEvidence::Header { id: id.clone(), at: then }));
        assert_eq!(line_evidence(br#"{"$set":{"sessionId":"i"}}"#), Some(LineEvidence::Entered(id)));
        let prompt = br#"{"id":"m","timestamp":"2026-11-16T00:00:01.000Z","type":"user","content":[{"text":"see @a"},{"text":" more"}],"displayContent":[{"text":"see it"}]}"#;
        let forms = ["see @a more", "see @a", "see it"].map(TextFingerprint::of).to_vec();
        assert_eq!(line_evidence(prompt), Some(LineEvidence::Prompt { at: then, forms }));
        for nothing in [
            &br#"{"sessionId":"s","startTime":"2026-11-16T00:00:01.000Z","kind":"subagent"}"#[..],
            br#"{"$set":{"summary":"x"}}"#,
            br#"{"$set":{"lastUpdated":"2026-11-16T00:00:01.000Z"}}"#,
            br#"{"$set":{"messages":[{"id":"m","type":"user","content":"old"}]}}"#,
            br#"{"id":"m","timestamp":"2026-11-16T00:00:01.000Z","type":"gemini","content":"\"type\":\"user\""}"#,
            br#"{"id":"m","timestamp":"2026-11-16T00:00:01.000Z","type":"user","content":[{"functionResponse":{}}]}"#,
            b"{\"sessionId\"",
            b"",
        ] {
            assert_eq!(line_evidence(nothing), None, "{}", String::from_utf8_lossy(nothing));
        }
    }
}

use super::*;
use crate::meter::tail::{FileId, Source, Tail};

const HEADER: &str = r#"{"sessionId":"s1","projectHash":"h","startTime":"2026-11-16T00:00:00.000Z","lastUpdated":"x","kind":"main"}"#;

fn read(lines: &[&str]) -> (ParsedLines, usize) {
    let (mut reader, mut parsed, mut unreadable) = (GeminiLines::new(None), ParsedLines::default(), 0);
    for line in lines {
        unreadable += usize::from(reader.read(line.as_bytes(), &mut parsed).is_err());
    }
    (parsed, unreadable)
}

fn keys(parsed: &ParsedLines) -> Vec<&str> {
    parsed.records.iter().map(|record| record.key.as_str()).collect()
}

fn user(id: &str, content: &str) -> String {
    format!(r#"{{"id":"{id}","timestamp":"2026-11-16T00:00:01.000Z","type":"user","content":{content}}}"#)
}

#[test]
fn tokens_are_made_disjoint() {
    let line = r#"{"id":"m","timestamp":"2026-11-16T00:00:01.000Z","type":"gemini","content":"x","tokens":{"input":1020,"output":102,"cached":502,"thoughts":12,"tool":3,"total":1137},"model":"gemini-3.8-flash"}"#;
    let (parsed, unreadable) = read(&[HEADER, line]);
    assert_eq!(unreadable, 0);
    let Fact::Usage(usage) = &parsed.records[0].fact else { panic!() };
    let expected = Tokens { input: 521, output: 114, cache_read: 502, reasoning: 12, ..Tokens::default() };
    assert_eq!((usage.tokens, usage.model.as_str()), (expected, "gemini-3.8-flash"));
    assert_eq!(usage.tokens.total(), 1137, "as the agent itself adds up");
    assert_eq!(parsed.facts.session, Some(AgentSessionId("s1".into())));
}

#[test]
fn only_submitted_texts_are_prompts() {
    for (content, prompt) in [
        (r#"[{"text":"hello"}]"#, true),
        (r#""hello""#, true),
        (r#"{"text":"hello"}"#, true),
        (r#"[{"text":"? really"}]"#, true),
        (r#"[{"text":"/clear"}]"#, false),
        (r#"[{"text":"/chat save x"}]"#, false),
        (r#"[{"text":"/home/dev/x is broken"}]"#, true),
        (r#"[{"text":"  "}]"#, false),
        ("[]", false),
        ("null", false),
        ("7", false),
        (r#"[{"functionResponse":{"id":"c","name":"glob","response":{"output":"x"}}}]"#, false),
        (r#"[{"text":"<session_context>\nThis"}]"#, false),
        (r#"[{"text":"<hook_context>x</hook_context>"}]"#, false),
        (r#"[{"text":"I ran the following shell command:\n```sh\nls\n```"}]"#, false),
        (r#"[{"text":"Here is the user's editor context as a JSON object."}]"#, false),
        (r#"[{"text":"thinking","thought":true}]"#, false),
    ] {
        let (parsed, unreadable) = read(&[HEADER, &user("m", content)]);
        assert_eq!((parsed.records.len(), unreadable), (usize::from(prompt), 0), "{content}");
    }
}

/// `/chat resume` writes the old messages again, under new ids, and then all of them at once.
#[test]
fn messages_written_again_by_chat_resume_are_no_prompts() {
    let replay = r#"{"$set":{"messages":[{"id":"c1","type":"user","content":[{"text":"<session_context>x"},{"text":"one"}]},{"id":"c2","type":"gemini","content":[{"text":"pong"}],"tokens":null},{"id":"c3","type":"user","content":[{"text":"two"}]}]}}"#;
    let lines = [
        HEADER.to_owned(),
        user("p1", r#"[{"text":"one"}]"#),
        user("c1", r#"[{"text":"<session_context>x"},{"text":"one"}]"#),
        r#"{"$set":{"lastUpdated":"x"}}"#.to_owned(),
        r#"{"id":"c2","timestamp":"2026-11-16T00:00:01.000Z","type":"gemini","content":[{"text":"pong"}],"thoughts":[],"tokens":null}"#.to_owned(),
        user("c3", r#"[{"text":"two"}]"#),
        replay.to_owned(),
        user("p2", r#"[{"text":"three"}]"#),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(keys(&read(&lines).0), ["p1", "p2"]);
    // A reader that starts in the middle of it remembers.
    for at in 1..lines.len() {
        let (mut first, mut parsed) = (GeminiLines::new(None), ParsedLines::default());
        for line in &lines[..at] {
            first.read(line.as_bytes(), &mut parsed).unwrap();
        }
        let mut second = GeminiLines::new(first.state().as_deref());
        for line in &lines[at..] {
            second.read(line.as_bytes(), &mut parsed).unwrap();
        }
        assert_eq!(keys(&parsed), ["p1", "p2"], "restarted before line {at}");
    }
}

#[test]
fn errors_of_the_api_are_distinguished_from_others() {
    for (content, expected) in [
        (
            r#""[API Error: {\"error\":{\"code\":400,\"message\":\"fake error 400\",\"status\":\"INVALID_ARGUMENT\"}}]""#,
            Some((Some(400), "INVALID_ARGUMENT")),
        ),
        (r#""[API Error: quota exceeded for dev@example.com]""#, Some((None, "unknown"))),
        (r#""Model stream ended without a finish reason.""#, Some((None, "stream_ended"))),
        (
            r#""The model returned an empty response with no text or thoughts.""#,
            Some((None, "empty_response")),
        ),
        (r#""Unknown command: /foo""#, None),
        ("null", None),
    ] {
        let line = format!(
            r#"{{"id":"e","timestamp":"2026-11-16T00:00:01.000Z","type":"error","content":{content}}}"#
        );
        let (parsed, _) = read(&[HEADER, &line]);
        let error = parsed.records.first().map(|record| match &record.fact {
            Fact::Error(error) => (error.status, error.kind.as_str()),
            other => panic!("{other:?}"),
        });
        assert_eq!(error, expected, "{content}");
    }
}

#[test]
fn broken_lines_are_reported_and_hide_no_others() {
    let good = r#"{"id":"g","timestamp":"2026-11-16T00:00:01.000Z","type":"gemini","content":"x","tokens":{"input":1}}"#;
    let bad = r#"{"id":"b","timestamp":"2026-11-16T00:00:01.000Z","type":"gemini","content":"x","tokens":{"input":"1"}}"#;
    for (lines, expected, unreadable) in [
        (vec!["{"], &[][..], 1),
        (vec!["[]", "7", "\"x\""], &[], 3),
        (vec!["", "  ", "{}", r#"{"id":7}"#, r#"{"$rewindTo":"x"}"#, r#"{"kind":[]}"#], &[], 0),
        (vec![r#"{"$set":7}"#], &[], 1),
        (vec![bad], &[], 1),
        (vec![&format!(r#"{{"$set":{{"messages":[{bad},7,{good}]}}}}"#)], &["g"], 1),
        (vec![&format!(r#"{{"sessionId":"s","projectHash":"h","messages":[{good}]}}"#)], &["g"], 0),
    ] {
        let (parsed, count) = read(&lines);
        assert_eq!((keys(&parsed), count), (expected.to_vec(), unreadable), "{lines:?}");
    }
}

/// A replay of everything can be longer than the limit of a line: its numbers are in the lines before it, and skipping it is
/// reported.
#[test]
fn a_replay_over_the_limit_loses_no_numbers_and_is_reported() {
    struct Memory(Vec<u8>);
    impl Source for Memory {
        fn identity(&self) -> std::io::Result<(FileId, u64)> {
            Ok((FileId { device: 1, inode: 1 }, self.0.len() as u64))
        }
        fn read_at(&self, into: &mut [u8], offset: u64) -> std::io::Result<usize> {
            let rest = &self.0[usize::try_from(offset).unwrap()..];
            let got = rest.len().min(into.len());
            into[..got].copy_from_slice(&rest[..got]);
            Ok(got)
        }
    }
    let call = |id: &str| {
        format!(
            r#"{{"id":"{id}","timestamp":"2026-11-16T00:00:01.000Z","type":"gemini","content":"x","tokens":{{"input":1}}}}"#
        )
    };
    let long = format!(
        r#"{{"$set":{{"messages":[{},{{"id":"l","type":"user","content":"{}"}}]}}}}"#,
        call("m1"),
        "y".repeat(17 << 20)
    );
    let file = Memory([HEADER, &call("m1"), &long, &call("m2"), ""].join("\n").into_bytes());
    let mut tail = Tail::new(None, GeminiLines::new(None));
    let (mut found, mut unreadable) = (Vec::new(), 0);
    while let Some(batch) = tail.next(&file).unwrap() {
        found.extend(batch.parsed.records.into_iter().map(|record| record.key));
        unreadable += batch.unreadable;
    }
    assert_eq!((found, unreadable), (vec!["m1".to_owned(), "m2".to_owned()], 1));
}

//! Where the turns of a conversation begin and end, from the end of its file.
//!
//! Promises: the first look reads a bounded part of the end, later ones only what is new; a torn last line waits; a
//! conversation is followed by its identity, so that one that is moved goes on and another one in its place is read from its own end.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::events::EventLog;
use agents::Agent;
use agents::live::TurnMark;
use agents::meter::form::{Form, FormReader};
use agents::meter::line::{Lines, ParsedLines, Unreadable};
use agents::meter::tail::Restart;
use os::file::{FileId, is_absent};
use types::Timestamp;

/// How much of a file's end is read at first. Why 256 KiB: a prompt, its tool calls and its answer fit; where a single tool's
/// result does not, the turn it belongs to is found as soon as anything is added.
const TAIL_BYTES: u64 = 256 * 1024;
const TAIL_ROWS: u64 = 512;

/// Follows the turns of whatever conversation an agent is in.
#[derive(Debug)]
pub struct Turns {
    agent: &'static dyn Agent,
    path: Option<PathBuf>,
    followed: Option<FollowedTurns>,
    last: Option<TurnMark>,
}

#[derive(Debug)]
struct FollowedTurns {
    id: FileId,
    form: Form,
    lines: FormReader<MarkedLines>,
    marks: Receiver<TurnMark>,
    /// How many marks were read of a document: it is rewritten whole, and the first of them come again.
    known: usize,
}

impl Turns {
    pub fn of(agent: &'static dyn Agent) -> Self {
        Self { agent, path: None, followed: None, last: None }
    }

    /// The marks that are new since the last look, in the order of the file. The first look at a conversation finds those of its
    /// end. `file`: the conversation that the agent is in now, `None` where it has none yet.
    pub fn look(&mut self, file: Option<&Path>) -> io::Result<Vec<TurnMark>> {
        let moved = self.path.as_deref() != file;
        self.path = file.map(Path::to_owned);
        let opened = file.map(|file| (self.agent.form(file), self.agent.form(file).open(file)));
        let (form, content) = match opened {
            Some((form, Ok(content))) => (form, content),
            Some((_, Err(error))) if !is_absent(&error) => return Err(error),
            Some(_) | None => {
                // One that is only being moved is found again at its new place.
                if moved {
                    (self.followed, self.last) = (None, None);
                }
                return Ok(Vec::new());
            }
        };
        let id = content.id()?;
        if self.followed.as_ref().is_none_or(|followed| followed.id != id) {
            let (sender, marks) = channel();
            let lines = MarkedLines { agent: self.agent, marks: sender };
            let lines = FormReader::near_end(form, &content, TAIL_BYTES, TAIL_ROWS, lines)?;
            self.followed = Some(FollowedTurns { id, form, lines, marks, known: 0 });
            self.last = None;
        }
        let mut new = Vec::new();
        if let Some(followed) = &mut self.followed {
            while let Some(batch) = followed.lines.next(&content)? {
                let mut marks: Vec<TurnMark> = followed.marks.try_iter().collect();
                if matches!(followed.form, Form::Document { .. }) {
                    let count = marks.len();
                    marks.drain(..followed.known.min(count));
                    followed.known = count;
                } else if batch.restart == Some(Restart::Truncated) {
                    self.last = None;
                }
                new.extend(marks);
            }
        }
        for mark in &new {
            self.note(mark);
        }
        Ok(new)
    }

    /// The latest mark of the conversation.
    pub fn last(&self) -> Option<&TurnMark> {
        self.last.as_ref()
    }

    /// Lines are not always written in the order of what they describe: an answer may stand before its prompt.
    fn note(&mut self, mark: &TurnMark) {
        let last_at = self.last.as_ref().and_then(|last| last.at);
        let earlier = mark.at.zip(last_at).is_some_and(|(mark, last)| mark < last);
        if !earlier {
            self.last = Some(mark.clone());
        }
    }
}

/// Hands out the marks of each line.
#[derive(Debug)]
struct MarkedLines {
    agent: &'static dyn Agent,
    marks: Sender<TurnMark>,
}

impl Lines for MarkedLines {
    fn read(&mut self, line: &[u8], _: &mut ParsedLines) -> Result<(), Unreadable> {
        if let Some(mark) = self.agent.read_turn(line) {
            // The receiver lives as long as this.
            let _ = self.marks.send(mark);
        }
        Ok(())
    }

    fn state(&self) -> Option<String> {
        None
    }

    fn forget(&mut self) {}
}

// Feeds the marks of a conversation's turns into the log of a run's moments.
//
// Marks that were there before the run came to a conversation say how it stands; those that come later are moments.

/// A mark this much older than the look before may still be of that time: agents date a line before they write it.
const LATE: Duration = Duration::from_secs(2);

/// Follows the conversation that a run is in.
#[derive(Debug)]
pub struct TurnFeed {
    turns: Turns,
    /// When the run began that is followed from its beginning.
    begun: Option<Timestamp>,
    /// The conversation's file, and when it was looked at last.
    looked: Option<(Option<PathBuf>, Timestamp)>,
}

impl TurnFeed {
    pub fn of(agent: &'static dyn Agent) -> Self {
        Self { turns: Turns::of(agent), begun: None, looked: None }
    }

    /// Of a run that begins now: what its conversation has from before is older.
    pub fn of_new_run(agent: &'static dyn Agent, begun: Timestamp) -> Self {
        Self { begun: Some(begun), ..Self::of(agent) }
    }

    /// Looks at the file of the conversation that the run is in now, and puts the marks that are new into `log`. Returns them.
    pub fn look(
        &mut self,
        file: Option<&Path>,
        now: Timestamp,
        log: &mut EventLog,
    ) -> io::Result<Vec<TurnMark>> {
        let mut marks = self.turns.look(file)?;
        match self.looked.replace((file.map(Path::to_owned), now)) {
            None => {
                let is_new = |mark: &TurnMark| self.begun.is_some_and(|begun| mark.at >= Some(begun));
                let (new, old): (Vec<_>, Vec<_>) = marks.into_iter().partition(is_new);
                if let Some(last) = old.iter().max_by_key(|mark| mark.at) {
                    log.begin_with(last);
                }
                marks = new;
            }
            Some((before, looked_at)) if before.as_deref() != file => {
                let since =
                    Timestamp(looked_at.0.saturating_sub(i64::try_from(LATE.as_millis()).unwrap_or(0)));
                let since = self.begun.map_or(since, |begun| since.max(begun));
                let (new, old): (Vec<_>, Vec<_>) =
                    marks.into_iter().partition(|mark| mark.at.is_none_or(|at| at >= since));
                if before.is_some() {
                    log.leave();
                }
                log.enter(old.last());
                marks = new;
            }
            Some(_) => {}
        }
        for mark in &marks {
            log.mark(now, mark);
        }
        Ok(marks)
    }

    /// The latest mark of the conversation.
    pub fn last(&self) -> Option<&TurnMark> {
        self.turns.last()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    use super::*;
    use agents::claude::Claude;
    use agents::live::TurnKind;

    fn prompt(second: u32, text: &str) -> String {
        format!(
            r#"{{"type":"user","timestamp":"2026-11-17T10:00:{second:02}.000Z","promptSource":"typed","message":{{"role":"user","content":"{text}"}}}}"#
        ) + "\n"
    }

    fn answer(second: u32, stop: &str) -> String {
        format!(
            r#"{{"type":"assistant","timestamp":"2026-11-17T10:00:{second:02}.000Z","message":{{"id":"m","role":"assistant","content":[],"stop_reason":"{stop}"}}}}"#
        ) + "\n"
    }

    fn append(path: &Path, text: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn kinds(marks: &[TurnMark]) -> Vec<TurnKind> {
        marks.iter().map(|mark| mark.kind.clone()).collect()
    }

    #[test]
    fn turns_are_followed_as_they_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let mut turns = Turns::of(&Claude);
        assert!(turns.look(None).unwrap().is_empty());
        assert!(turns.look(Some(&path)).unwrap().is_empty(), "it is not there yet");
        append(&path, &prompt(1, "one"));
        assert_eq!(kinds(&turns.look(Some(&path)).unwrap()), [TurnKind::Prompt("one".into())]);
        let (torn, end) = (answer(2, "tool_use"), answer(3, "end_turn"));
        append(&path, &torn[..40]);
        assert!(turns.look(Some(&path)).unwrap().is_empty(), "a torn line waits");
        append(&path, &torn[40..]);
        append(&path, &end);
        assert_eq!(kinds(&turns.look(Some(&path)).unwrap()), [TurnKind::Goes, TurnKind::Ended]);
        assert_eq!(turns.last().unwrap().kind, TurnKind::Ended);
        assert!(turns.look(Some(&path)).unwrap().is_empty());
    }

    #[test]
    fn an_answer_that_stands_before_its_prompt_is_the_later_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        append(&path, &(answer(3, "end_turn") + &prompt(2, "one")));
        let mut turns = Turns::of(&Claude);
        assert_eq!(turns.look(Some(&path)).unwrap().len(), 2);
        assert_eq!(turns.last().unwrap().kind, TurnKind::Ended);
    }

    #[test]
    fn only_the_end_of_a_long_conversation_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let long = prompt(1, &"x".repeat(10_000));
        append(&path, &long.repeat(100));
        append(&path, &prompt(2, "last"));
        let mut turns = Turns::of(&Claude);
        let marks = turns.look(Some(&path)).unwrap();
        assert!((10..30).contains(&marks.len()), "{}", marks.len());
        assert_eq!(turns.last().unwrap().kind, TurnKind::Prompt("last".into()));
        append(&path, &answer(3, "end_turn"));
        assert_eq!(kinds(&turns.look(Some(&path)).unwrap()), [TurnKind::Ended]);
    }

    #[test]
    fn a_moved_conversation_goes_on_and_another_one_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let [path, moved, other] = ["a.jsonl", "b.jsonl", "c.jsonl"].map(|name| folder.path().join(name));
        append(&path, &prompt(1, "one"));
        let mut turns = Turns::of(&Claude);
        turns.look(Some(&path)).unwrap();
        fs::rename(&path, &moved).unwrap();
        append(&moved, &answer(2, "end_turn"));
        assert_eq!(kinds(&turns.look(Some(&moved)).unwrap()), [TurnKind::Ended]);
        assert!(turns.look(Some(&other)).unwrap().is_empty());
        assert_eq!(turns.last(), None, "a cleared conversation has no file yet");
        append(&other, &prompt(3, "two"));
        assert_eq!(kinds(&turns.look(Some(&other)).unwrap()), [TurnKind::Prompt("two".into())]);
        turns.look(None).unwrap();
        assert_eq!(turns.last(), None);
    }

    #[test]
    fn rows_of_a_database_are_followed_too() {
        use agents::scribe::{Scribe, write_rows};
        let folder = tempfile::tempdir().unwrap();
        let path = write_rows(folder.path(), "one", &["u p1 1 Dear Ada", "a m1 2 10 20 I remain"]);
        let mut turns = Turns::of(&Scribe);
        let marks = turns.look(Some(&path)).unwrap();
        assert_eq!(kinds(&marks), [TurnKind::Prompt("Dear Ada".into()), TurnKind::Ended]);
        write_rows(folder.path(), "one", &["u p2 3 More"]);
        assert_eq!(kinds(&turns.look(Some(&path)).unwrap()), [TurnKind::Prompt("More".into())]);
    }
}

#[cfg(test)]
mod feed_tests {
    use std::fs::OpenOptions;
    use std::io::Write;

    use super::*;
    use agents::claude::Claude;
    use types::Moment;

    fn line(kind: &str, second: i64) -> String {
        let at = Timestamp(1_768_135_000_000 + second * 1000);
        match kind {
            "prompt" => format!(
                r#"{{"type":"user","timestamp":"{at}","promptSource":"typed","message":{{"role":"user","content":"hi"}}}}"#
            ),
            _ => format!(
                r#"{{"type":"assistant","timestamp":"{at}","message":{{"id":"m","role":"assistant","content":[],"stop_reason":"end_turn"}}}}"#
            ),
        }
    }

    fn append(path: &Path, line: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "{line}").unwrap();
    }

    fn at(second: i64) -> Timestamp {
        Timestamp(1_768_135_000_000 + second * 1000)
    }

    fn ends(log: &EventLog) -> Vec<i64> {
        let ends = log.after(Timestamp(0)).filter(|event| event.moment == Moment::TurnEnd);
        ends.map(|event| (event.at.0 - at(0).0) / 1000).collect()
    }

    #[test]
    fn turns_from_before_are_how_it_stands_and_later_ones_are_moments() {
        let folder = tempfile::tempdir().unwrap();
        let [first, old, fresh] = ["a.jsonl", "b.jsonl", "c.jsonl"].map(|name| folder.path().join(name));
        append(&first, &line("prompt", 1));
        append(&first, &line("end", 2));
        append(&old, &line("prompt", 3));
        append(&old, &line("end", 4));
        let (mut feed, mut log) = (TurnFeed::of(&Claude), EventLog::default());
        assert_eq!(feed.look(Some(&first), at(100), &mut log).unwrap(), []);
        assert_eq!(ends(&log), [2], "the last end, at its own time");
        append(&first, &line("prompt", 101));
        append(&first, &line("end", 102));
        assert_eq!(feed.look(Some(&first), at(103), &mut log).unwrap().len(), 2);
        assert_eq!(ends(&log), [2, 103]);
        feed.look(Some(&old), at(110), &mut log).unwrap();
        assert_eq!(ends(&log), [2, 103], "a conversation that was picked ends nothing now");
        append(&old, &line("prompt", 111));
        append(&old, &line("end", 112));
        feed.look(Some(&old), at(112), &mut log).unwrap();
        assert_eq!(ends(&log), [2, 103, 112]);
        feed.look(None, at(113), &mut log).unwrap();
        append(&fresh, &line("prompt", 114));
        append(&fresh, &line("end", 115));
        feed.look(Some(&fresh), at(115), &mut log).unwrap();
        assert_eq!(ends(&log), [2, 103, 112, 115], "the first turn after a clear counts");
    }

    #[test]
    fn a_run_that_is_followed_from_its_beginning_misses_no_turn_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        for (kind, second) in [("prompt", 1), ("end", 2), ("prompt", 11), ("end", 12)] {
            append(&path, &line(kind, second));
        }
        let (mut feed, mut log) = (TurnFeed::of_new_run(&Claude, at(10)), EventLog::of_agent(true));
        assert_eq!(feed.look(Some(&path), at(20), &mut log).unwrap().len(), 2);
        assert_eq!(ends(&log), [2, 20]);
        // Its conversation is found only with the second look, and just before the run its last turn ended.
        let (mut feed, mut log) = (TurnFeed::of_new_run(&Claude, at(13)), EventLog::of_agent(true));
        log.give(at(13));
        feed.look(None, at(13), &mut log).unwrap();
        assert_eq!(feed.look(Some(&path), at(14), &mut log).unwrap(), []);
        assert_eq!(ends(&log), Vec::<i64>::new());
    }
}

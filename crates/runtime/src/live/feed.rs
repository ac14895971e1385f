//! Feeds the marks of a conversation's turns into the log of a run's moments.
//!
//! Marks that were there before the run came to a conversation say how it stands; those that come later are moments.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Turns;
use super::events::EventLog;
use agents::Agent;
use agents::live::TurnMark;
use types::Timestamp;

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

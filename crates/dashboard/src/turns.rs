//! A session's events as a list of steps: it starts, each prompt with the calls that follow it is a turn, it ends.
//! Pure: events in, steps out.

use reader::Numbers;
use reader::TimelineEvent;
use types::EvidenceKind;
use types::Timestamp;
use types::event::{Attributes, End, Start};

#[derive(Debug, PartialEq)]
pub enum TimelineStep<'a> {
    Start(&'a Start),
    Bound(Option<EvidenceKind>),
    Turn(Turn<'a>),
    End(&'a End),
}

/// A prompt, and the calls that follow it.
#[derive(Debug, Default, PartialEq)]
pub struct Turn<'a> {
    /// `None` for calls before the first prompt, and for calls after the end.
    pub number: Option<usize>,
    pub until: Timestamp,
    pub sums: Numbers,
    /// Tools in the order of their first call: calls, and failed ones.
    pub tools: Vec<(&'a str, Tally)>,
    pub errors: Vec<String>,
    pub subagent_calls: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub calls: i64,
    pub errors: i64,
}

/// Sorts by time. Lines that were written late have a late `seq`; of events of one moment the END comes last, because
/// it is sent before the calls of a conversation that never ran through codemie. An opening after it stays after it.
pub fn order(events: &mut [TimelineEvent]) {
    events.sort_by_key(|event| (event.time, event.seq));
    let mut at = 0;
    while let Some(event) = events.get(at) {
        let moment = event.time;
        let later = events[at + 1..].iter().take_while(|other| {
            other.time == moment && !matches!(other.attributes, Attributes::Start(_) | Attributes::End(_))
        });
        let later = later.count();
        if matches!(event.attributes, Attributes::End(_)) {
            events[at..=at + later].rotate_left(1);
            at += later;
        }
        at += 1;
    }
}

/// The steps, each with the time it began.
pub fn steps(events: &[TimelineEvent]) -> Vec<(Timestamp, TimelineStep<'_>)> {
    let mut turns = TurnBuilder::default();
    for event in events {
        let step = match &event.attributes {
            Attributes::Start(start) => TimelineStep::Start(start),
            Attributes::Bound(bound) => TimelineStep::Bound(bound.evidence),
            Attributes::End(end) => TimelineStep::End(end),
            Attributes::Prompt(_) => {
                turns.close();
                turns.prompts += 1;
                let turn = Turn { number: Some(turns.prompts), until: event.time, ..Turn::default() };
                turns.open = Some((event.time, turn));
                continue;
            }
            Attributes::Quota(_) | Attributes::Other(_) => continue,
            what => {
                let fresh = || (event.time, Turn { until: event.time, ..Turn::default() });
                turns.open.get_or_insert_with(fresh).1.add(event.time, what);
                continue;
            }
        };
        // The agent's session is often known only after the first prompt; that ends no turn.
        if !matches!(step, TimelineStep::Bound(_)) {
            turns.close();
        }
        turns.steps.push((event.time, step));
    }
    turns.close();
    // A turn is pushed when it is over, and belongs where it began.
    turns.steps.sort_by_key(|(time, _)| *time);
    turns.steps
}

#[derive(Default)]
struct TurnBuilder<'a> {
    steps: Vec<(Timestamp, TimelineStep<'a>)>,
    open: Option<(Timestamp, Turn<'a>)>,
    prompts: usize,
}

impl TurnBuilder<'_> {
    fn close(&mut self) {
        if let Some((time, turn)) = self.open.take() {
            self.steps.push((time, TimelineStep::Turn(turn)));
        }
    }
}

impl<'a> Turn<'a> {
    /// A prompt without any call after it.
    pub fn unanswered(&self) -> bool {
        self.number.is_some() && self.sums.api_calls == 0 && self.tools.is_empty() && self.errors.is_empty()
    }

    fn add(&mut self, time: Timestamp, what: &'a Attributes) {
        self.until = self.until.max(time);
        match what {
            Attributes::Usage(usage) => {
                self.sums.add(&Numbers::of_call(usage));
                self.subagent_calls += i64::from(usage.subagent.is_set());
            }
            Attributes::Tool(tool) => {
                let name: &str = &tool.name;
                let at = self.tools.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
                    self.tools.push((name, Tally::default()));
                    self.tools.len() - 1
                });
                self.tools[at].1.count(tool.ok);
                self.sums.lines_added += tool.lines_added.get();
                self.sums.lines_removed += tool.lines_removed.get();
            }
            Attributes::Error(error) => {
                let kind = error.kind.as_deref().unwrap_or("API error");
                self.errors.push(error.status.map_or(kind.to_owned(), |status| format!("{kind} ({status})")));
            }
            _ => {}
        }
    }
}

impl Tally {
    fn count(&mut self, ok: Option<bool>) {
        self.calls += 1;
        self.errors += i64::from(ok == Some(false));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use types::EventType;

    fn event(time: i64, kind: EventType, attributes: &Value) -> TimelineEvent {
        TimelineEvent {
            seq: time,
            rev: 0,
            kind: kind.into(),
            time: Timestamp(time),
            attributes: Attributes::parse(kind, &attributes.to_string()).unwrap(),
        }
    }

    fn call(time: i64) -> TimelineEvent {
        event(time, EventType::Usage, &json!({"model": "m", "outputTokens": 5, "costUsd": 0.5}))
    }

    fn tool(time: i64, name: &str, ok: bool) -> TimelineEvent {
        event(time, EventType::Tool, &json!({"name": name, "ok": ok, "linesAdded": 2}))
    }

    #[test]
    fn the_end_comes_after_the_other_events_of_its_moment() {
        let at = |time, seq, event: TimelineEvent| TimelineEvent { time: Timestamp(time), seq, ..event };
        let start = || event(0, EventType::Start, &json!({"reason": "startup"}));
        let end = || event(0, EventType::End, &json!({"status": "completed", "lastSeq": 5}));
        let mut events = [
            at(1, 1, start()),
            at(5, 3, end()),
            at(1, 4, call(0)),
            at(5, 5, call(0)),
            at(5, 6, call(0)),
            at(5, 7, start()),
            at(5, 8, call(0)),
            at(6, 9, end()),
            at(7, 10, call(0)),
        ];
        order(&mut events);
        let seqs: Vec<i64> = events.iter().map(|event| event.seq).collect();
        assert_eq!(seqs, [1, 4, 5, 6, 3, 7, 8, 9, 10]);
    }

    #[test]
    fn a_prompt_that_was_interrupted_has_no_answer() {
        let prompt = |at| event(at, EventType::Prompt, &json!({}));
        let error = event(5, EventType::Error, &json!({"status": 529}));
        let events = [call(0), prompt(1), prompt(2), call(3), prompt(4), error];
        let found: Vec<bool> = steps(&events)
            .iter()
            .map(|(_, step)| matches!(step, TimelineStep::Turn(turn) if turn.unanswered()))
            .collect();
        assert_eq!(found, [false, true, false, false]);
    }

    #[test]
    fn events_become_turns() {
        let events = [
            event(1, EventType::Start, &json!({"reason": "startup"})),
            call(2),
            event(3, EventType::Prompt, &json!({})),
            event(4, EventType::Bound, &json!({"agentSessionId": "a", "evidence": "log"})),
            call(5),
            tool(6, "Edit", true),
            tool(7, "Bash", false),
            tool(8, "Edit", false),
            call(9),
            event(10, EventType::Prompt, &json!({})),
            event(11, EventType::Error, &json!({"status": 529, "kind": "overloaded"})),
            event(12, EventType::End, &json!({"status": "completed", "endReason": "clear", "lastSeq": 12})),
            call(13),
        ];
        let found: Vec<String> = steps(&events)
            .iter()
            .map(|(Timestamp(at), step)| match step {
                TimelineStep::Start(_) => format!("{at} start"),
                TimelineStep::Bound(evidence) => format!("{at} bound {evidence:?}"),
                TimelineStep::End(end) => format!("{at} end {}", end.status),
                TimelineStep::Turn(turn) => format!(
                    "{at}-{} turn {:?}: {} calls, {} pico, {:?}, +{}, {:?}",
                    turn.until.0,
                    turn.number,
                    turn.sums.api_calls,
                    turn.sums.cost,
                    turn.tools
                        .iter()
                        .map(|(name, tally)| (*name, tally.calls, tally.errors))
                        .collect::<Vec<_>>(),
                    turn.sums.lines_added,
                    turn.errors,
                ),
            })
            .collect();
        assert_eq!(
            found,
            [
                "1 start",
                "2-2 turn None: 1 calls, 500000000000 pico, [], +0, []",
                "3-9 turn Some(1): 2 calls, 1000000000000 pico, [(\"Edit\", 2, 1), (\"Bash\", 1, 1)], +6, []",
                "4 bound Some(Log)",
                "10-11 turn Some(2): 0 calls, 0 pico, [], +0, [\"overloaded (529)\"]",
                "12 end completed",
                "13-13 turn None: 1 calls, 500000000000 pico, [], +0, []",
            ]
        );
    }
}

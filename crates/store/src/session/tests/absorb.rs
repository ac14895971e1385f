#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method alone does not fit: its lifetime is bound early"
)]

use std::path::Path;

use super::super::Error;
use super::super::absorb::{Absorbed, Batch, WriteCounts, absorb};
use super::super::lifecycle::{self, ConversationStart, Transition};
use super::super::state::{Ending, Exit};
use super::{World, agent_session, binding, usage};
use crate::{FileId, Priced, RecordRow};
use agents::meter::record::{ApiError, Fact, Record, Tool};
use pricing::tier::Tier;
use types::SessionId;
use types::Timestamp;
use types::ToolKind;
use types::TransitionKind;

pub(super) fn fact(key: &str, at: Timestamp, fact: Fact) -> Priced {
    Priced {
        record: Record { key: key.into(), at, copied: false, subagent: None, fact },
        cost: None,
        prices: None,
    }
}

fn tool(key: &str, at: Timestamp, file: &str, ok: bool) -> Priced {
    let name = "Edit".into();
    let tool = Tool {
        name,
        ok,
        kind: ToolKind::Edit,
        file: Some(file.into()),
        further: Vec::new(),
        lines_added: 3,
        lines_removed: 1,
    };
    fact(key, at, Fact::Tool(tool))
}

fn batch(inode: u64, from: u64, to: u64, records: &[Priced]) -> Batch<'_> {
    Batch {
        file: FileId { device: 1, inode },
        path: Path::new("/agent/file.jsonl"),
        from,
        restart: false,
        to,
        state: b"state",
        unreadable: 0,
        records,
    }
}

impl World {
    pub(super) fn absorb(&mut self, session: SessionId, batch: &Batch<'_>) -> Absorbed {
        let at = self.wait(10);
        let absorbed = self.store.write(|tx| absorb(tx, at, session, batch)).unwrap();
        self.check();
        absorbed
    }

    pub fn bound(
        &mut self,
        conversation: ConversationStart,
        agent_session: &str,
    ) -> (super::RunId, SessionId) {
        let (run, started) = self.start(conversation);
        self.bind(started.session, agent_session).unwrap();
        (run, started.session)
    }

    pub fn output(&mut self, session: SessionId) -> (i64, i64) {
        let row = self.session(session);
        let totals = self.store.read(|view| view.totals(row.n)).unwrap();
        (totals.calls.api_calls, totals.calls.output)
    }
}

const TAKEN: fn(u64, u64) -> Absorbed = |added, revised| Absorbed::Written(WriteCounts { added, revised });

#[test]
fn records_events_sums_and_position_are_one() {
    let mut world = World::new();
    let (_, session) = world.bound(ConversationStart::Fresh, "a");
    let at = world.now;
    let records = [
        fact("p1", at, Fact::Prompt),
        usage("m1", at, 20),
        tool("t1", at, "/x/a.rs", true),
        tool("t2", at, "/x/a.rs", true),
        tool("t3", at, "/x/b.rs", false),
        fact("e1", at, Fact::Error(ApiError { status: Some(529), kind: "overloaded".into() })),
    ];
    for statements in 0.. {
        world.store.faults.after(statements);
        let taken = world.store.write(|tx| absorb(tx, at, session, &batch(7, 0, 100, &records)));
        world.store.faults.none();
        world.check();
        if taken.is_ok() {
            break;
        }
        assert_eq!(world.store.read(|view| view.position(FileId { device: 1, inode: 7 })).unwrap(), None);
        assert_eq!(world.events(session).len(), 2);
    }
    assert_eq!(
        world.events(session)[2..],
        ["3.0 prompt", "4.0 usage", "5.0 tool", "6.0 tool", "7.0 tool", "8.0 error"]
    );
    let row = world.session(session);
    let totals = world.store.read(|view| view.totals(row.n)).unwrap();
    assert_eq!((totals.prompts, totals.tool_calls, totals.tool_errors, totals.files_changed), (1, 3, 1, 1));
    assert_eq!((totals.lines_added, totals.lines_removed, totals.api_errors), (9, 3, 1));
    let position = world.store.read(|view| view.position(FileId { device: 1, inode: 7 })).unwrap().unwrap();
    assert_eq!((position.offset, position.state), (100, b"state".to_vec()));
}

#[test]
fn the_tier_of_a_call_is_kept_revised_and_exchanged() {
    let mut world = World::new();
    let (_, session) = world.bound(ConversationStart::Fresh, "a");
    let n = world.session(session).n;
    let at = world.now;
    for (inode, tier) in (1..).zip(Tier::ALL) {
        let call = |output, tier| {
            let mut priced = usage(&format!("m{inode}"), at, output);
            if let Fact::Usage(usage) = &mut priced.record.fact {
                usage.tier = tier;
            }
            [priced]
        };
        world.absorb(session, &batch(inode, 0, 100, &call(1, Tier::Standard)));
        world.absorb(session, &batch(inode, 100, 200, &call(2, tier)));
        let kept = world.store.read(|view| view.records(n)).unwrap().pop().unwrap();
        assert_eq!(kept.usage.as_ref().unwrap().tier, tier);
        let text = serde_json::to_string(&kept).unwrap();
        assert_eq!(serde_json::from_str::<RecordRow>(&text).unwrap(), kept, "{text}");
        assert!(text.contains(r#""fast":"#), "an older codemie looks for it: {text}");
    }
}

#[test]
fn a_second_reader_of_the_same_bytes_changes_nothing_and_goes_on_from_the_first() {
    let mut world = World::new();
    let (_, session) = world.bound(ConversationStart::Fresh, "a");
    let records = [usage("m1", world.now, 20)];
    assert_eq!(world.absorb(session, &batch(7, 0, 100, &records)), TAKEN(1, 0));
    let Absorbed::Elsewhere(Some(position)) = world.absorb(session, &batch(7, 0, 60, &records)) else {
        panic!("the second reader did not learn the position")
    };
    assert_eq!(position.offset, 100);
    // A file read from the beginning after a truncation finds its own records known.
    let restart = Batch { restart: true, ..batch(7, 0, 60, &records) };
    assert_eq!(world.absorb(session, &restart), TAKEN(0, 0));
    assert_eq!(world.output(session), (1, 20));
}

#[test]
fn a_larger_revision_wins_and_the_event_is_told_again() {
    let mut world = World::new();
    let (_, session) = world.bound(ConversationStart::Fresh, "a");
    let at = world.now;
    world.absorb(session, &batch(7, 0, 1, &[usage("m1", at, 20)]));
    let first = world.store.read(|view| view.events(1)).unwrap().pop().unwrap();
    assert_eq!(world.absorb(session, &batch(7, 1, 2, &[usage("m1", at, 50)])), TAKEN(0, 1));
    assert_eq!(world.absorb(session, &batch(7, 2, 3, &[usage("m1", at, 30)])), TAKEN(0, 0));
    let second = world.store.read(|view| view.events(1)).unwrap().pop().unwrap();
    assert_eq!((second.id, second.seq, second.rev), (first.id, first.seq, 1));
    assert!(second.change > first.change, "every sink must get it again");
    assert_eq!(world.output(session), (1, 50));
}

#[test]
fn late_lines_amend_the_end() {
    let mut world = World::new();
    let (run, session) = world.bound(ConversationStart::Fresh, "a");
    let at = world.now;
    world.absorb(session, &batch(7, 0, 1, &[usage("m1", at, 20)]));
    let ended = world.wait(10);
    world.store.write(|tx| lifecycle::end(tx, ended, run, Ending::exited(Exit::Code(0)))).unwrap();
    assert_eq!(world.attributes(session, "session.end")["lastSeq"], 4);
    world.absorb(session, &batch(7, 1, 2, &[usage("m2", at, 5)]));
    world.absorb(session, &batch(7, 2, 3, &[usage("m1", at, 21)]));
    world.absorb(session, &batch(7, 3, 4, &[usage("m1", at, 21)]));
    assert_eq!(world.events(session)[2..], ["3.1 usage", "4.2 session.end exit", "5.0 usage"]);
    let end = world.attributes(session, "session.end");
    assert_eq!((&end["lastSeq"], &end["totals"]["outputTokens"]), (&5.into(), &26.into()));
}

#[test]
fn only_the_last_end_is_amended() {
    let mut world = World::new();
    let (run, session) = world.bound(ConversationStart::Fresh, "a");
    let end = |world: &mut World, run| {
        let at = world.wait(10);
        world.store.write(|tx| lifecycle::end(tx, at, run, Ending::exited(Exit::Code(0)))).unwrap();
    };
    end(&mut world, run);
    let (run, _) = world.start(ConversationStart::Named(agent_session("a")));
    let at = world.now;
    world.absorb(session, &batch(7, 0, 1, &[usage("m1", at, 20)]));
    end(&mut world, run);
    world.absorb(session, &batch(7, 1, 2, &[usage("m2", at, 1)]));
    assert_eq!(
        world.events(session)[2..],
        [
            "3.0 session.end exit",
            "4.0 session.start resume",
            "5.0 usage",
            "6.1 session.end exit",
            "7.0 usage"
        ]
    );
}

#[test]
fn a_fork_owns_neither_marked_copies_nor_lines_older_than_itself() {
    let mut world = World::new();
    let (run, parent) = world.bound(ConversationStart::Fresh, "a");
    let old = world.now;
    world.absorb(parent, &batch(7, 0, 10, &[usage("m1", old, 20)]));
    let at = world.wait(1000);
    let change = Transition { kind: TransitionKind::Switch, binding: Some(binding("fork")), workspace: None };
    let fork =
        world.store.write(|tx| lifecycle::transition(tx, at, &world.ids, run, &change)).unwrap().new.session;
    let later = world.wait(1000);
    let mut marked = usage("m3", later, 7);
    marked.record.copied = true;
    // m1 is known; m2 is old and not yet read from the parent's file; m3 is a copy; m4 is the fork's own.
    let copies = [usage("m1", old, 20), usage("m2", old, 9), marked.clone(), usage("m4", later, 4)];
    assert_eq!(world.absorb(fork, &batch(8, 0, 10, &copies)), TAKEN(1, 0));
    // The parent's reader comes late and still gets what is its own.
    marked.record.copied = false;
    assert_eq!(world.absorb(parent, &batch(7, 10, 20, &[usage("m2", old, 9), marked])), TAKEN(2, 0));
    assert_eq!(world.output(parent), (3, 36));
    assert_eq!(world.output(fork), (1, 4));
}

#[test]
fn an_adopted_conversation_counts_from_its_adoption() {
    let mut world = World::new();
    let before = world.now;
    let (_, session) = world.bound(ConversationStart::Named(agent_session("foreign")), "foreign");
    let records = [usage("old", before, 100), usage("new", world.now, 7)];
    assert_eq!(world.absorb(session, &batch(7, 0, 10, &records)), TAKEN(1, 0));
    assert_eq!(world.output(session), (1, 7));
}

#[test]
fn a_clock_set_back_loses_no_call() {
    let mut world = World::new();
    let (_, fresh) = world.bound(ConversationStart::Fresh, "a");
    let (_, unsure) = world.bound(ConversationStart::Unsure, "b");
    let back = world.wait(-86_400_000);
    assert_eq!(world.absorb(fresh, &batch(7, 0, 1, &[usage("m1", back, 1)])), TAKEN(1, 0));
    assert_eq!(world.absorb(unsure, &batch(8, 0, 1, &[usage("m2", back, 1)])), TAKEN(1, 0));
    // Later, when the clock has passed the START again, that still holds.
    world.wait(2 * 86_400_000);
    assert_eq!(world.absorb(unsure, &batch(8, 1, 2, &[usage("m3", back, 1)])), TAKEN(1, 0));
}

#[test]
fn an_unbound_session_takes_nothing() {
    let mut world = World::new();
    let (_, started) = world.start(ConversationStart::Fresh);
    let at = world.now;
    let records = [usage("m1", at, 1)];
    let refused = world.store.write(|tx| absorb(tx, at, started.session, &batch(7, 0, 1, &records)));
    assert!(matches!(refused, Err(Error::Illegal { .. })));
    assert_eq!(world.events(started.session).len(), 1);
}

#[test]
fn the_same_key_of_two_agents_is_two_calls() {
    let mut world = World::new();
    let (_, one) = world.bound(ConversationStart::Fresh, "a");
    let mut begin = world.begin(ConversationStart::Fresh);
    begin.agent = "codex".into();
    let (_, two) = world.start_as(&begin);
    world.bind(two.session, "a").unwrap();
    let records = [usage("m1", world.now, 1)];
    assert_eq!(world.absorb(one, &batch(7, 0, 1, &records)), TAKEN(1, 0));
    assert_eq!(world.absorb(two.session, &batch(8, 0, 1, &records)), TAKEN(1, 0));
}

#[test]
fn lines_that_cannot_be_read_are_counted_per_file() {
    let mut world = World::new();
    let (_, session) = world.bound(ConversationStart::Fresh, "a");
    world.absorb(session, &Batch { unreadable: 2, ..batch(7, 0, 1, &[]) });
    world.absorb(session, &Batch { unreadable: 1, ..batch(7, 1, 2, &[]) });
    world.absorb(session, &batch(8, 0, 2, &[]));
    let counted = world.store.read(|view| view.unreadable()).unwrap();
    assert_eq!(counted, [("/agent/file.jsonl".into(), 3)]);
}

#[test]
fn what_happened_before_a_switch_was_noticed_is_the_new_sessions() {
    let mut world = World::new();
    let (run, _) = world.bound(ConversationStart::Fresh, "a");
    let switched = world.wait(1000);
    let noticed = world.wait(300);
    let change = Transition { kind: TransitionKind::Switch, binding: Some(binding("b")), workspace: None };
    let result =
        world.store.write(|tx| lifecycle::transition(tx, noticed, &world.ids, run, &change)).unwrap();
    let prompt = fact("p1", Timestamp(switched.0 + 50), Fact::Prompt);
    assert_eq!(world.absorb(result.new.session, &batch(8, 0, 1, &[prompt])), TAKEN(1, 0));
}

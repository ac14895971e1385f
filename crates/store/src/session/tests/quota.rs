//! Limits that came with calls.

use super::super::lifecycle::ConversationStart;
use super::super::quota::{take, take_read, take_unowned};
use super::super::state::Exit;
use super::{World, usage};
use crate::session::quota_use::quota_uses;
use agents::meter::quota::QuotaReport;
use serde_json::json;
use types::event::Source;
use types::{SessionId, Timestamp, Utilization};

fn report(percent: u32, resets_at: i64) -> QuotaReport {
    QuotaReport {
        provider: "anthropic".into(),
        window: "5h".into(),
        utilization: Utilization::of_millionths(percent * 10_000),
        resets_at: Some(Timestamp(resets_at)),
        source: Source::Proxy,
    }
}

impl World {
    fn quota(&mut self, session: SessionId, report: &QuotaReport) {
        let at = self.now;
        self.store.write(|tx| take(tx, at, session, report)).unwrap();
        self.check();
    }

    fn quota_events(&mut self, session: SessionId) -> usize {
        self.events(session).iter().filter(|event| event.ends_with(" quota")).count()
    }

    fn used(&mut self, session: SessionId) -> Vec<(u32, bool)> {
        let row = self.session(session);
        let uses = self.store.read(|view| quota_uses(view, &row)).unwrap();
        uses.into_iter().map(|used| (used.used.millionths() / 10_000, used.computed)).collect()
    }
}

#[test]
fn a_limit_is_an_event_once_a_minute_and_at_each_reset() {
    let mut world = World::new();
    let (run, session) = world.bound(ConversationStart::Fresh, "a");
    let reset = world.now.0 + 3_600_000;
    let steps = [
        (0, 10, reset, 1),
        (0, 10, reset, 1),
        (59_000, 12, reset, 1),
        (1_000, 13, reset + 2_000, 2),
        (500, 1, reset + 18_000_000, 3),
        (500, 2, reset + 18_000_000, 3),
    ];
    for (wait, percent, resets_at, events) in steps {
        world.wait(wait);
        world.quota(session, &report(percent, resets_at));
        assert_eq!(world.quota_events(session), events, "{percent} %");
    }
    // Two windows of one name: what was used of each.
    assert_eq!(world.used(session), [(3, false), (1, false)]);
    let sent = world.store.read(|view| view.outgoing(0, 0, i64::MAX, 100)).unwrap();
    let attributes = serde_json::to_value(&sent[2].attributes).unwrap();
    assert_eq!(
        attributes,
        json!({"provider": "anthropic", "resetsAt": Timestamp(reset).to_string(), "source": "proxy",
            "utilization": 0.1, "window": "5h"})
    );
    // A late one, after the END.
    world.end(run, Exit::Code(0));
    world.wait(120_000);
    world.quota(session, &report(5, reset + 18_000_000));
    assert_eq!(world.quota_events(session), 4);
    let history =
        world.store.read(|view| view.quota_history("claude", "anthropic", "5h", Timestamp(0))).unwrap();
    assert_eq!(history.len(), 4);
    let last = world.store.read(|view| view.quotas()).unwrap().pop().unwrap();
    assert_eq!(last.report.utilization.millionths(), 50_000);
}

#[test]
fn a_file_read_again_reports_no_limit_twice_and_none_from_before_the_session() {
    let mut world = World::new();
    let before = world.now;
    let (_, session) = world.bound(ConversationStart::Unsure, "a");
    let (first, second) = (world.wait(1000), world.wait(120_000));
    let reset = second.0 + 3_600_000;
    let read = [(before, report(1, reset)), (first, report(10, reset)), (second, report(20, reset))];
    for _ in 0..2 {
        world.store.write(|tx| take_read(tx, session, &read)).unwrap();
        world.check();
    }
    assert_eq!((world.quota_events(session), world.used(session)), (2, vec![(10, false)]));
}

#[test]
fn parallel_sessions_share_a_window_by_tokens() {
    let mut world = World::new();
    let (_, one) = world.bound(ConversationStart::Fresh, "a");
    let (_, two) = world.bound(ConversationStart::Fresh, "b");
    let reset = world.now.0 + 3_600_000;
    world.quota(one, &report(10, reset));
    let at = world.wait(10_000);
    for (session, key, output) in [(one, "m1", 890), (two, "m2", 4890)] {
        let row = world.session(session);
        world
            .store
            .write(|tx| super::super::absorb::take_records(tx, at, &row, &[usage(key, at, output)]))
            .unwrap();
    }
    world.wait(10_000);
    world.quota(one, &report(30, reset));
    world.wait(1);
    world.quota(two, &report(30, reset));
    assert_eq!(world.used(one), [(5, true)], "2,000 of 8,000 tokens");
    assert_eq!(world.used(two), [(0, false)], "it saw one report");
}

#[test]
fn a_limit_without_a_session_is_known_and_no_event() {
    let mut world = World::new();
    let (_, session) = world.bound(ConversationStart::Fresh, "a");
    let at = world.now;
    world.store.write(|tx| take_unowned(tx, at, "claude", &report(10, at.0 + 1))).unwrap();
    assert_eq!(world.store.read(|view| view.quotas()).unwrap().len(), 1);
    world.wait(10);
    world.quota(session, &report(11, at.0 + 1));
    assert_eq!(world.quota_events(session), 1, "the first of a session is due at once");
    let odd = QuotaReport { window: String::new(), ..report(1, 1) };
    world.wait(100_000);
    world.quota(session, &odd);
    assert_eq!(world.store.read(|view| view.quotas()).unwrap().len(), 1);
}

//! Every sum of the store, against a plain list of calls that a test keeps: random calls, revised, priced anew, without a
//! price, copied into other sessions, and sessions that are pruned.

use std::collections::BTreeMap;

use agents::meter::record::Fact;
use types::{CallSums, PicoDollars, SessionId, Timestamp, Tokens};
use usage::{By, DatedSums};

use super::super::lifecycle::ConversationStart;
use super::super::prune::prune;
use super::super::state::Exit;
use super::{World, usage};
use crate::session::testing::rows_of;
use crate::{Priced, Spent, SpentBy};

const MODELS: [&str; 3] = ["claude-opus-4-8", "claude-sonnet-4-5", "claude-next-9"];
const DAY: i64 = 86_400_000;

/// A call as the test remembers it.
#[derive(Clone, Debug)]
struct Call {
    owner: usize,
    at: Timestamp,
    model: &'static str,
    tokens: Tokens,
    cost: Option<PicoDollars>,
}

impl Call {
    fn priced(&self, key: &str) -> Priced {
        let mut priced = usage(key, self.at, 0);
        let Fact::Usage(usage) = &mut priced.record.fact else { unreachable!() };
        (usage.model, usage.tokens) = (self.model.to_owned(), self.tokens);
        (priced.cost, priced.prices) = (self.cost, self.cost.map(|_| "2026-11".to_owned()));
        priced
    }
}

fn sum<'a>(calls: impl Iterator<Item = &'a Call>) -> DatedSums {
    let mut sums = DatedSums::default();
    calls.for_each(|call| sums.add(&DatedSums::of(call.at, &call.tokens, call.cost)));
    sums
}

/// The store's sums of everything, by each key.
fn keyed(world: &mut World, by: By) -> BTreeMap<String, CallSums> {
    let rows = world.store.read(|view| rows_of(view, by, None)).unwrap();
    rows.into_iter().map(|row| (row.key.unwrap_or_default(), row.sums)).collect()
}

fn keyed_truth(calls: &BTreeMap<String, Call>, key: impl Fn(&Call) -> String) -> BTreeMap<String, CallSums> {
    let mut sums: BTreeMap<String, CallSums> = BTreeMap::new();
    for call in calls.values() {
        sums.entry(key(call)).or_default().add(&CallSums::of(&call.tokens, call.cost));
    }
    sums
}

fn compare_whole(world: &mut World, calls: &BTreeMap<String, Call>, dice: &mut fastrand::Rng, about: &str) {
    assert_eq!(keyed(world, By::Model), keyed_truth(calls, |call| call.model.to_owned()), "{about}");
    let session = |call: &Call| format!("conversation {}", call.owner);
    assert_eq!(keyed(world, By::Session), keyed_truth(calls, session), "{about}");
    let first = calls.values().map(|call| call.at.0).min().unwrap_or(0);
    for _ in 0..5 {
        let quarter = |at: i64| at.div_euclid(900_000) * 900_000;
        let begin = quarter(first + dice.i64(-DAY..3 * DAY));
        let end = begin + 900_000 * dice.i64(1..500);
        let within = sum(calls.values().filter(|call| (begin..end).contains(&call.at.0)));
        let spent =
            world.store.read(|view| view.spent(SpentBy::All, Timestamp(begin), Timestamp(end))).unwrap();
        let truth =
            Spent { cost: within.calls.cost, calls: within.calls.api_calls, unpriced: within.unpriced };
        assert_eq!(spent, truth, "{about}: from {begin} to {end}");
    }
}

fn compare_session(world: &mut World, session: SessionId, calls: &[&Call], about: &str) {
    let whole = sum(calls.iter().copied());
    let row = world.session(session);
    world
        .store
        .read(|view| {
            assert_eq!(view.totals(row.n)?.calls, whole.calls, "{about}: total");
            let openings = view.openings(row.n)?;
            assert_eq!(
                view.opening_totals(row.n, openings[0].number)?.calls,
                whole.calls,
                "{about}: opening"
            );
            let spent =
                Spent { cost: whole.calls.cost, calls: whole.calls.api_calls, unpriced: whole.unpriced };
            assert_eq!(view.spent_in_session(row.n)?, spent, "{about}: spent");
            let mut billed = CallSums::default();
            view.billed_calls(row.n)?.iter().for_each(|part| billed.add(&part.sums));
            assert_eq!(billed, whole.calls, "{about}: bill");
            for model in view.model_sums(row.n)? {
                let of = sum(calls.iter().copied().filter(|call| call.model == model.model));
                let told = (model.calls, model.calls.api_calls - model.priced, model.last);
                assert_eq!(told, (of.calls, of.unpriced, of.last), "{about}: {}", model.model);
            }
            Ok::<_, crate::Error>(())
        })
        .unwrap();
}

#[test]
fn every_sum_is_the_sum_of_the_calls() {
    for seed in 0..8 {
        let mut dice = fastrand::Rng::with_seed(seed);
        let mut world = World::new();
        let runs: Vec<_> = (0..4)
            .map(|number| {
                let (run, started) = world.start(ConversationStart::Fresh);
                world.bind(started.session, &format!("conversation {number}")).unwrap();
                (run, started.session)
            })
            .collect();
        let began = world.now.0;
        let mut calls: BTreeMap<String, Call> = BTreeMap::new();
        for step in 0..120 {
            // A new call, or one that is there: revised, priced anew, or copied into another session.
            let key = format!("m{}", dice.usize(0..60));
            let reader = dice.usize(0..runs.len());
            let mut call = calls.get(&key).cloned().unwrap_or_else(|| Call {
                owner: reader,
                at: Timestamp(began + dice.i64(0..2 * DAY)),
                model: MODELS[dice.usize(0..MODELS.len())],
                tokens: Tokens::default(),
                cost: None,
            });
            let mut more = |of: u64| of + dice.u64(0..1000) * u64::from(dice.bool());
            let Tokens { input, output, cache_read, cache_write_5m, cache_write_1h, reasoning } = call.tokens;
            call.tokens = Tokens {
                input: more(input),
                output: more(output),
                cache_read: more(cache_read),
                cache_write_5m: more(cache_write_5m),
                cache_write_1h: more(cache_write_1h),
                reasoning: more(reasoning),
            };
            call.cost = (dice.u8(0..4) > 0).then(|| PicoDollars(dice.i64(0..1_000_000_000_000)));
            world.feed(runs[reader].1, 1000 + step, &[call.priced(&key)]);
            match calls.get_mut(&key) {
                Some(known) if !call.tokens.supersedes(&known.tokens) => {}
                Some(known) => *known = call,
                None => drop(calls.insert(key, call)),
            }
        }
        world.check();
        let about = format!("seed {seed}");
        for (number, (_, session)) in runs.iter().enumerate() {
            let own: Vec<&Call> = calls.values().filter(|call| call.owner == number).collect();
            compare_session(&mut world, *session, &own, &format!("{about}, session {number}"));
        }
        compare_whole(&mut world, &calls, &mut dice, &about);
        for (run, _) in &runs[..2] {
            world.end(*run, Exit::Code(0));
        }
        let World { store, home, .. } = &mut world;
        assert_eq!(prune(store, home, Timestamp(i64::MAX), None, false).unwrap().len(), 2);
        world.check();
        compare_whole(&mut world, &calls, &mut dice, &format!("{about}, pruned"));
    }
}

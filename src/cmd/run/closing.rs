//! The line that stays on the terminal when the agent has ended.

use std::time::Duration;

use jiff::tz::TimeZone;
use unicode_width::UnicodeWidthStr;

use crate::cmd::session_text;
use delivery::Sinks;
use format::shell;
use format::text::shorten;
use os::home::Home;
use pricing::unpriced;
use runtime::budget::BudgetStatus;
use runtime::launch::{ProxySetup, Through};
use runtime::proxy::Companion;
use runtime::track::RunTotal;
use store::session::record::open_time;
use store::{self, Store, View};
use types::CallSums;
use types::SessionRecord;
use types::Timestamp;

/// What one run added to a session that was there before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Added {
    time: Duration,
    sums: CallSums,
}

impl Added {
    /// `None` for a session that began with this run, and where the store does not know.
    pub(super) fn by_run(home: &Home, session: &SessionRecord, begun_at: Timestamp) -> Option<Self> {
        if session.start_time >= begun_at {
            return None;
        }
        let ended_at = session.end_time?;
        let mut store = Store::open(home, ended_at).ok()?;
        let added = store.read(|view| Self::since(view, session, begun_at, ended_at));
        added.inspect_err(|error| tracing::warn!("the part of this run is not known: {error}")).ok()?
    }

    fn since(
        view: &View<'_>,
        session: &SessionRecord,
        begun_at: Timestamp,
        ended_at: Timestamp,
    ) -> Result<Option<Self>, store::Error> {
        let row = match session.session_id.parse() {
            Ok(id) => view.session(id)?,
            Err(_) => view.session_by_alias(&session.session_id)?,
        };
        let Some(row) = row else { return Ok(None) };
        let mut openings = view.openings(row.n)?;
        openings.retain(|opening| opening.opened_at >= begun_at);
        // One that joined another run opened nothing: which part belongs to which run is not known.
        if openings.is_empty() {
            return Ok(None);
        }
        let time = Duration::from_millis(open_time(&openings, ended_at));
        let mut added = Self { time, sums: CallSums::default() };
        for opening in openings {
            added.sums.add(&view.opening_totals(row.n, opening.number)?.calls);
        }
        Ok(Some(added))
    }
}

/// What a run's proxy is to its user, once the agent has ended.
#[derive(Debug)]
pub(super) enum Proxied {
    Off,
    Not(String),
    Through {
        lost: Vec<&'static str>,
        /// What to do about a gateway that no call was sent to.
        missing: Option<String>,
    },
}

impl Proxied {
    /// What is started beside the agent, and what is said of it afterwards.
    pub(super) fn of(proxy_setup: ProxySetup) -> (Option<Companion>, Self) {
        match proxy_setup {
            ProxySetup::Off => (None, Self::Off),
            ProxySetup::Not(why) => (None, Self::Not(why)),
            ProxySetup::Through(through) => {
                let Through { companion, lead, missing, .. } = *through;
                (Some(companion), Self::Through { lost: lead.lost, missing })
            }
        }
    }

    /// Why the proxy was not used, though it was asked for, or sent nothing. `limited`: a budget asked for it.
    pub(super) fn not_used(&self, limited: bool) -> Option<String> {
        match self {
            Self::Not(why) if limited => {
                Some(format!("budgets were not enforced: the proxy was not used, {why}"))
            }
            Self::Not(why) => Some(format!("the proxy was not used: {why}")),
            Self::Through { missing: Some(why), .. } => {
                Some(format!("no credential for the gateway: {why}; no call was sent"))
            }
            Self::Off | Self::Through { .. } => None,
        }
    }

    /// What the agent could not do because of it, for the end of the line.
    pub(super) fn lost(&self) -> String {
        match self {
            Self::Through { lost, .. } if !lost.is_empty() => {
                format!(" · by proxy, without {}", lost.join(", "))
            }
            _ => String::new(),
        }
    }
}

/// Delivery that somebody has to fix, in one line: events wait until then, and nothing else would report it.
pub(super) fn paused(sinks: &Sinks, now: Timestamp) -> Option<String> {
    let mut store = Store::open(&sinks.home, now).ok()?;
    let rows = store.read(|view| view.sinks()).ok()?;
    let configured = sinks.targets();
    let mut rows = rows.iter().filter(|row| configured.iter().any(|target| target.name == row.name));
    let (name, why) = rows.find_map(|row| Some((&row.name, row.paused.as_ref()?)))?;
    Some(shorten(
        &format!("codemie: delivery to {name} is paused: it {why}; see: codemie doctor"),
        usize::MAX,
    ))
}

/// Sessions that are named; further ones are counted.
const NAMED: usize = 5;

/// What goes on after the run that has started it.
pub(super) fn running(names: &[String]) -> Option<String> {
    let first = names.first()?;
    let more = names.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let named = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    let line = format!("codemie: still running: {named}{more} · codemie stop {}", shell::word(first));
    Some(shorten(&line, usize::MAX))
}

/// A budget that is nearly or wholly spent. Names come from config.toml and from sessions.
pub(super) fn budget(status: &BudgetStatus, now: Timestamp, zone: &TimeZone) -> String {
    shorten(&format!("codemie: budget {}", status.in_words(now, zone)), usize::MAX)
}

/// That nothing named the session's conversation, which was to be expected for this reason.
pub(super) fn not_known(session: &SessionRecord, why: &str) -> Option<String> {
    let unbound = session.correlation.agent_session_id.is_none();
    unbound.then(|| format!("which conversation this was is not known, nor what it cost: {why}"))
}

/// How the cost of everything, beyond this run's part, is shown; the widest form first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TotalForm {
    /// `$0.0123 · 2 sessions, $0.0399 in all`
    Separate,
    /// `$0.0123 of $0.0399`
    Inline,
    Omitted,
}

/// Name, duration, tokens, cost, how to resume, on one line of the terminal where that is possible: the name stands in what
/// to type. Names and models come from the agents' files.
pub(super) fn line(
    session: &SessionRecord,
    run_total: Option<RunTotal>,
    added: Option<Added>,
    columns: usize,
) -> String {
    // After a /clear nothing else shows the run as a whole; a resumed session is shown in full by `show`.
    let forms = match run_total {
        Some(_) => &[TotalForm::Separate, TotalForm::Inline][..],
        None if added.is_some() => &[TotalForm::Separate, TotalForm::Inline, TotalForm::Omitted],
        None => &[TotalForm::Separate],
    };
    let mut lines = forms.iter().map(|form| line_in(*form, session, run_total, added));
    let first = lines.next().unwrap_or_default();
    let fits = |line: &String| line.width() <= columns;
    lines.fold(first, |chosen, next| if fits(&chosen) { chosen } else { next })
}

fn line_in(
    form: TotalForm,
    session: &SessionRecord,
    run_total: Option<RunTotal>,
    added: Option<Added>,
) -> String {
    let usage = &session.usage;
    // A plus where something has no price; nothing where nothing has one.
    let price = |dollars: f64| match session_text::cost(dollars, &usage.unpriced_models) {
        _ if dollars <= 0.0 && !usage.unpriced_models.is_empty() => None,
        cost => Some(cost),
    };
    let time = added.map_or(Duration::from_millis(session.duration_ms), |added| added.time);
    let mut parts = vec![format::duration(time)];
    let (calls, tokens, cost, sign) = match added {
        Some(Added { sums, .. }) => {
            (sums.api_calls, session_text::number(sums.tokens()), sums.cost.dollars(), "+")
        }
        None => (usage.api_calls, session_text::tokens(usage), usage.cost_usd, ""),
    };
    let all = match run_total {
        Some(RunTotal { sessions, cost }) => Some((Some(sessions), cost.dollars())),
        None => added.filter(|_| usage.api_calls > 0).map(|_| (None, usage.cost_usd)),
    };
    let of = all.filter(|_| form == TotalForm::Inline).and_then(|(_, cost)| price(cost));
    let of = of.map_or(String::new(), |cost| format!(" of {cost}"));
    if calls > 0 {
        parts.push(format!("{sign}{} tokens", format::count(tokens)));
        parts.extend(price(cost).map(|cost| format!("{sign}{cost}{of}")));
        if !usage.unpriced_models.is_empty() {
            parts.push(format!(
                "no price for {}",
                unpriced::named(&usage.unpriced_models, &usage.unpriced_calls)
            ));
        }
    }
    if let Some((sessions, cost)) =
        all.filter(|_| form == TotalForm::Separate || calls == 0 && form == TotalForm::Inline)
    {
        let cost = price(cost).map(|cost| format!("{cost} in all"));
        let sessions = sessions.map(|count| format!("{count} sessions"));
        let total: Vec<String> = sessions.into_iter().chain(cost).collect();
        parts.extend((!total.is_empty()).then(|| total.join(", ")));
    }
    if session.correlation.agent_session_file.is_some() {
        parts.push(format!("codemie resume {}", shell::word(&session.name)));
    } else {
        parts.insert(0, session.name.clone());
    }
    shorten(&format!("codemie: {}", parts.join(" · ")), usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::cmd::session_text::sample;
    use store::FileId;
    use store::session::absorb::{Batch, absorb};
    use store::session::lifecycle::{self, ConversationStart};
    use store::session::record::record;
    use store::session::state::{Ending, Exit};
    use store::session::testing::{World, agent_session, binding, usage};
    use types::{PicoDollars, RunId, SessionId, Tokens};

    const WIDE: usize = 200;

    fn added(seconds: u64, calls: i64) -> Added {
        let (input, cost) =
            if calls > 0 { (12_000, PicoDollars(10_000_000_000)) } else { (0, PicoDollars(0)) };
        let sums = CallSums { api_calls: calls, input, cost, ..CallSums::default() };
        Added { time: Duration::from_secs(seconds), sums }
    }

    #[test]
    fn a_usual_line_fits_eighty_columns() {
        let mut session = sample();
        session.name = "claude-2611160731-2".into();
        session.usage.input_tokens = 123_456_789;
        session.duration_ms = 5 * 3_600_000;
        let line = line(&session, None, None, 80);
        assert_eq!(line, "codemie: 5h 00m · 123M tokens · $0.0123 · codemie resume claude-2611160731-2");
        assert!(line.width() <= 80, "{line}");
    }

    #[test]
    fn what_still_runs_is_named_and_counted() {
        let names = |count: usize| (1..=count).map(|n| format!("worker {n}")).collect::<Vec<_>>();
        assert_eq!(running(&names(0)), None);
        assert_eq!(
            running(&names(2)).unwrap(),
            "codemie: still running: worker 1, worker 2 · codemie stop 'worker 1'"
        );
        assert!(running(&names(7)).unwrap().contains("worker 5, and 2 more · "));
    }

    #[test]
    fn models_without_a_price_are_named_instead_of_an_amount() {
        let mut session = sample();
        for (cost, models, expected) in [
            (0.0, &["new"][..], "47s · 6.91k tokens · no price for new"),
            (0.5, &["new"], "47s · 6.91k tokens · $0.5000+ · no price for new"),
            (0.5, &[], "47s · 6.91k tokens · $0.5000"),
            (0.0, &[], "47s · 6.91k tokens · $0.0000"),
        ] {
            session.usage.cost_usd = cost;
            session.usage.unpriced_models = models.iter().map(|&model| model.to_owned()).collect();
            assert_eq!(
                line(&session, None, None, WIDE),
                format!("codemie: {expected} · codemie resume fix-auth")
            );
        }
        session.usage.unpriced_models = vec!["claude-opus-4-5".into()];
        session.usage.unpriced_calls = [("claude-opus-4-5".to_owned(), 3)].into();
        session.usage.cost_usd = 0.5;
        let expected = "$0.5000+ · no price for claude-opus-4-5 in fast mode (3 calls) · codemie resume";
        assert!(line(&session, None, None, WIDE).contains(expected));
        session.usage.cost_usd = 0.0;
        let run_total = Some(RunTotal { sessions: 2, cost: PicoDollars(0) });
        session.usage.unpriced_models = vec!["new".into()];
        let line = line(&session, run_total, None, WIDE);
        assert!(line.contains("no price for new · 2 sessions · codemie") && !line.contains('$'), "{line}");
    }

    #[test]
    fn after_a_clear_the_cost_of_all_sessions_is_shown() {
        let mut session = sample();
        session.name = "fix-auth.2".into();
        let run_total = RunTotal { sessions: 2, cost: PicoDollars(39_900_000_000) };
        for (columns, expected) in [
            (95, "$0.0123 · 2 sessions, $0.0399 in all"),
            (80, "$0.0123 of $0.0399"),
            (40, "$0.0123 of $0.0399"),
        ] {
            assert_eq!(
                line(&session, Some(run_total), None, columns),
                format!("codemie: 47s · 6.91k tokens · {expected} · codemie resume fix-auth.2")
            );
        }
    }

    #[test]
    fn after_a_resume_this_run_and_the_whole_session_are_shown() {
        let mut session = sample();
        session.usage.cost_usd = 0.0269;
        for (name, added, columns, expected) in [
            ("fix-auth", added(38, 2), 82, "38s · +12.0k tokens · +$0.0100 · $0.0269 in all"),
            ("fix-auth", added(38, 2), 80, "38s · +12.0k tokens · +$0.0100 of $0.0269"),
            ("claude-2611161405", added(156, 2), 80, "2m 36s · +12.0k tokens · +$0.0100"),
            ("claude-2611161405", added(156, 2), 40, "2m 36s · +12.0k tokens · +$0.0100"),
            ("fix-auth", added(4, 0), 80, "4.0s · $0.0269 in all"),
        ] {
            session.name = name.into();
            let line = line(&session, None, Some(added), columns);
            assert_eq!(line, format!("codemie: {expected} · codemie resume {name}"));
            assert!(line.width() <= columns.max(80), "{line}");
        }
    }

    #[test]
    fn the_part_of_a_run_is_counted_by_its_openings() {
        let mut world = World::new();
        let ended = |world: &mut World, run: RunId, session: SessionId, key: &str, inode: u64| {
            let at = world.wait(2000);
            let records = [usage(key, at, inode * 10)];
            let file = FileId { device: 1, inode };
            let path = Path::new("/f");
            let batch = Batch {
                file,
                path,
                from: 0,
                restart: false,
                to: 1,
                state: &[],
                unreadable: 0,
                records: &records,
            };
            world.store.write(|tx| absorb(tx, at, session, &batch)).unwrap();
            world.store.write(|tx| lifecycle::end(tx, at, run, Ending::exited(Exit::Code(0)))).unwrap();
            world.store.read(|view| record(view, &view.session(session)?.unwrap(), at)).unwrap()
        };
        let (run, first) = world.start(ConversationStart::Fresh);
        let begun_at = world.now;
        world
            .store
            .write(|tx| lifecycle::bind(tx, begun_at, &world.ids, first.session, &binding("one")))
            .unwrap();
        let fresh = ended(&mut world, run, first.session, "a", 1);
        assert_eq!(Added::by_run(&world.home, &fresh, begun_at), None, "it began with the run");
        world.wait(60_000);
        let (run, again) = world.start(ConversationStart::Named(agent_session("one")));
        assert_eq!(again.session, first.session);
        let begun_at = world.now;
        let resumed = ended(&mut world, run, again.session, "b", 2);
        let time = Duration::from_secs(2);
        let tokens =
            Tokens { input: 10, output: 20, cache_read: 1000, cache_write_5m: 100, ..Tokens::default() };
        let added = Added { time, sums: CallSums::of(&tokens, Some(PicoDollars(20_000_000))) };
        assert_eq!(Added::by_run(&world.home, &resumed, begun_at), Some(added));
        assert_eq!((resumed.duration_ms, resumed.usage.api_calls), (4000, 2));
    }

    #[test]
    fn an_unnamed_conversation_is_reported_only_if_nothing_named_it_in_the_end() {
        let mut session = sample();
        assert_eq!(not_known(&session, "a reason"), None);
        session.correlation.agent_session_id = None;
        let line = not_known(&session, "a reason").unwrap();
        assert!(line.starts_with("which conversation this was is not known") && line.ends_with(": a reason"));
    }

    #[test]
    fn hostile_names_are_drawn_harmlessly() {
        crate::cmd::hostile::draw_everywhere(|text, style| {
            let mut session = sample();
            (session.name, session.usage.unpriced_models) = (text.into(), vec![text.into()]);
            line(&session, None, None, style.columns)
        });
    }

    #[test]
    fn the_resume_command_can_be_pasted_for_any_name() {
        let mut session = sample();
        session.name = "it's mine; x".into();
        let line = line(&session, None, None, WIDE);
        assert!(line.ends_with(r" · codemie resume 'it'\''s mine; x'"), "{line}");
    }

    #[test]
    fn control_characters_and_huge_numbers_do_no_harm() {
        let mut session = sample();
        session.correlation.agent_session_file = None;
        session.usage.unpriced_models = vec!["evil\u{1b}]0;owned\u{7}".into()];
        session.usage.input_tokens = i64::MAX;
        session.usage.output_tokens = i64::MAX;
        let line = line(&session, None, None, 80);
        assert!(line.starts_with("codemie: fix-auth · 47s · "), "{line}");
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
}

//! Parts of sessions as text: what several commands show in the same form.

use jiff::tz::TimeZone;
use unicode_width::UnicodeWidthStr;

use format::output::table::padded;
use format::output::wrap::at_home;
use format::output::wrap::wrap;
use format::output::{Colour, Style};
use format::text::shorten;
use report::plan::PlanWorth;
use types::Activity;
use types::EndReason;
use types::LiveState;
use types::PicoDollars;
use types::Status;
use types::Timestamp;
use types::{SessionRecord, UsageSummary};

/// The least room for a name: `claude-2611160731.2`, which differs from others at its end, stays whole.
pub(super) const NAME: usize = 19;

/// In place of a status: a conversation that never ran through codemie.
pub(super) const NOT_WRAPPED: &str = "not wrapped";

pub(super) fn colour(status: Status, reason: Option<EndReason>) -> Colour {
    match status {
        Status::Active => Colour::Good,
        // Somebody wanted it so.
        _ if reason == Some(EndReason::Stopped) => Colour::Plain,
        Status::Completed => Colour::Plain,
        Status::Failed => Colour::Bad,
        Status::Interrupted => Colour::Warning,
    }
}

/// What waits for the user stands out.
pub(super) fn colour_of_activity(activity: Activity) -> Colour {
    match activity {
        Activity::NeedsInput | Activity::Dialog => Colour::Warning,
        Activity::Working => Colour::Good,
        Activity::Idle => Colour::Note,
        Activity::Starting | Activity::Unknown => Colour::Faint,
    }
}

/// What a session does, if that is known, else how it stands.
pub(super) fn state_or_status(
    state: Option<&LiveState>,
    status: Status,
    reason: Option<EndReason>,
) -> (&'static str, Colour) {
    match state.map(|state| state.is).filter(|is| *is != Activity::Unknown) {
        Some(is) => (is.as_str(), colour_of_activity(is)),
        None => (format::status::word(status, reason), colour(status, reason)),
    }
}

/// What every sum of money is, once below a table; and what is paid by the month, if that is known.
pub(super) fn at_list_price(worth: &[PlanWorth], style: Style) -> String {
    let parts: Vec<String> = ["Costs are at list price".to_owned()]
        .into_iter()
        .chain(worth.iter().map(PlanWorth::in_words))
        .collect();
    let text = style.fold(&(parts.join("; ") + "."));
    text.lines().map(|line| style.paint(line, Colour::Faint) + "\n").collect()
}

/// As much of an id as usually suffices to name it.
pub(super) const ID: usize = 8;

/// Ids by their beginnings, each long enough to differ from all the others. Those of Codex begin with the time, and are the
/// same for a minute in their first eight characters.
///
/// In order, each behind its first eight bytes as a number: most comparisons among ten thousand end there.
#[derive(Debug, Default)]
pub(super) struct ShortIds<'a>(Vec<(u64, &'a str)>);

impl<'a> FromIterator<&'a str> for ShortIds<'a> {
    fn from_iter<I: IntoIterator<Item = &'a str>>(ids: I) -> Self {
        let mut ids: Vec<_> = ids.into_iter().map(ordered).collect();
        ids.sort_unstable();
        ids.dedup();
        Self(ids)
    }
}

impl ShortIds<'_> {
    pub(super) fn of<'b>(&self, id: &'b str) -> &'b str {
        // Nothing has more in common with it than what stands next to it in order.
        let (before, after) = match self.0.binary_search(&ordered(id)) {
            Ok(at) => (at.checked_sub(1), at + 1),
            Err(at) => (at.checked_sub(1), at),
        };
        let common =
            |(_, other): &(u64, &str)| other.chars().zip(id.chars()).take_while(|(a, b)| a == b).count();
        let beside = [before.and_then(|at| self.0.get(at)), self.0.get(after)];
        let needed = beside.into_iter().flatten().map(|other| common(other) + 1).max().unwrap_or(0);
        id.char_indices().nth(needed.max(ID)).map_or(id, |(end, _)| &id[..end])
    }
}

/// Pairs that are in the order of their ids.
fn ordered(id: &str) -> (u64, &str) {
    let mut first = [0; 8];
    for (to, from) in first.iter_mut().zip(id.bytes()) {
        *to = from;
    }
    (u64::from_be_bytes(first), id)
}

/// Everything billed.
pub(super) fn tokens(usage: &UsageSummary) -> u64 {
    let parts = [usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens];
    parts.into_iter().map(number).fold(0, u64::saturating_add)
}

/// Sums are never negative; the store just has no other integers.
pub(super) fn number(sum: i64) -> u64 {
    u64::try_from(sum).unwrap_or(0)
}

/// A plus where a model without a price was used as well.
pub(super) fn cost(dollars: f64, unpriced_models: &[String]) -> String {
    match (unpriced_models.is_empty(), dollars > 0.0) {
        (true, _) => format::usd(dollars),
        (false, true) => format::usd(dollars) + "+",
        (false, false) => "no price".to_owned(),
    }
}

/// Costs that stand in one column; `None` is a blank.
pub(super) fn costs<'a>(
    amounts: impl IntoIterator<Item = Option<(PicoDollars, &'a [String])>>,
) -> Vec<String> {
    let amounts: Vec<_> = amounts.into_iter().collect();
    let priced = |(cost, unpriced): &(PicoDollars, &[String])| cost.0 > 0 || unpriced.is_empty();
    let shown: Vec<(i64, bool)> = amounts
        .iter()
        .flatten()
        .filter(|amount| priced(amount))
        .map(|(cost, unpriced)| (cost.0, !unpriced.is_empty()))
        .collect();
    let mut shown = format::column(&shown).into_iter();
    amounts
        .iter()
        .map(|amount| match amount {
            Some(amount) if priced(amount) => shown.next().unwrap_or_default(),
            Some(_) => "no price".to_owned(),
            None => String::new(),
        })
        .collect()
}

/// `cleared`, `failed (exit code 1)`, `stopped (signal 15)`, `interrupted`.
pub(super) fn status(record: &SessionRecord) -> String {
    let word = format::status::word(record.status, record.end_reason);
    match (record.exit_code, record.signal) {
        (Some(code), _) if code != 0 => format!("{word} (exit code {code})"),
        (_, Some(signal)) => format!("{word} (signal {signal})"),
        _ => word.to_owned(),
    }
}

/// Date and time to the second, in the user's own time.
pub(super) fn date(at: Timestamp, zone: &TimeZone) -> String {
    local(at, zone, "%Y-%m-%d %H:%M:%S")
}

/// Time of day to the millisecond.
pub(super) fn instant(at: Timestamp, zone: &TimeZone) -> String {
    local(at, zone, "%H:%M:%S%.3f")
}

/// Time of day to the second.
pub(super) fn clock(at: Timestamp, zone: &TimeZone) -> String {
    local(at, zone, "%H:%M:%S")
}

fn local(at: Timestamp, zone: &TimeZone, format: &str) -> String {
    match jiff::Timestamp::from_millisecond(at.0) {
        Ok(at) => at.to_zoned(zone.clone()).strftime(format).to_string(),
        Err(_) => at.to_string(),
    }
}

/// Lines of a name and its value, one below the other; absent values have no line.
#[derive(Debug, Default)]
pub(super) struct Sheet(Vec<(&'static str, String)>);

impl Sheet {
    pub(super) fn line(&mut self, name: &'static str, value: impl Into<String>) {
        self.0.push((name, value.into()));
    }

    pub(super) fn maybe(&mut self, name: &'static str, value: Option<impl Into<String>>) {
        if let Some(value) = value {
            self.line(name, value);
        }
    }

    /// Values are not cut: people copy them. A value that does not fit is folded beside its name; where that would break a
    /// word, it stands on lines of its own.
    pub(super) fn render(&self, style: Style) -> String {
        let width = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let beside = MARGIN + width + MARGIN;
        let margin = |cells: usize| format!("\n{}", " ".repeat(cells));
        let line = |(name, value): &(&str, String)| {
            let value = at_home(value, style);
            let room = style.columns.saturating_sub(beside);
            let fits = value.width() <= room;
            let longest = value.split_whitespace().map(UnicodeWidthStr::width).max().unwrap_or(0);
            if !fits && (longest > room || room < LEAST) {
                let below = 2 * MARGIN;
                let value = wrap(&value, style.columns.saturating_sub(below)).join(&margin(below));
                return format!(
                    "{:MARGIN$}{}{}{value}\n",
                    "",
                    style.paint(name, Colour::Faint),
                    margin(below)
                );
            }
            let name = style.paint(&padded(name, width), Colour::Faint);
            let value =
                if fits { shorten(&value, usize::MAX) } else { wrap(&value, room).join(&margin(beside)) };
            format!("{:MARGIN$}{name}{:MARGIN$}{value}\n", "", "")
        };
        self.0.iter().map(line).collect()
    }
}

/// Before the names, and between them and the values.
const MARGIN: usize = 2;
/// With less room than this beside the names, values stand below them.
const LEAST: usize = 16;

/// The record that PRODUCT.md shows, more or less.
#[cfg(test)]
pub(super) fn sample() -> SessionRecord {
    serde_json::from_value(serde_json::json!({
        "sessionId": "01a1e2f3-0000-4000-8000-000000000001", "name": "fix-auth", "agent": "claude",
        "agentVersion": "2.1.197", "wrapperVersion": "0.1.0",
        "status": "completed", "endReason": "clear", "exitCode": null, "signal": null,
        "startTime": 1_794_819_900_000_i64, "endTime": 1_794_819_947_792_i64, "durationMs": 47_792,
        "workingDirectory": "/home/dev/project", "project": "project", "repository": "acme/widgets", "branch": "main",
        "pid": 4243, "wrapperPid": 4242, "runId": "00000000-0000-4000-8000-000000000009", "parentSessionId": null,
        "transitionedFrom": null, "transitionedTo": "9f3c77aa-0000-4000-8000-000000000002",
        "correlation": {"status": "matched", "agentSessionId": "7a276c6b-0000-4000-8000-000000000003",
            "agentSessionFile": "/home/dev/.claude/projects/-home-dev-project/7a276c6b.jsonl",
            "evidence": "assigned", "boundAt": 1_794_819_900_900_i64},
        "usage": {"apiCalls": 6, "inputTokens": 92, "outputTokens": 152, "cacheReadTokens": 6032,
            "cacheWriteTokens": 632, "reasoningTokens": 0, "costUsd": 0.0123, "unpricedModels": [], "prompts": 3,
            "toolCalls": 4, "toolErrors": 1, "filesChanged": 2, "linesAdded": 12, "linesRemoved": 3, "apiErrors": 0,
            "coverage": "transcript"},
        "sync": {"pending": 0, "delivered": 9, "dead": 0, "lastDeliveredAt": 1_794_819_947_990_i64},
        "tags": [], "group": null
    }))
    .expect("a record")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_one_column_have_one_form_and_no_price_is_named() {
        let new = ["new".to_owned()];
        let some = |dollars: i64, models| Some((PicoDollars(dollars * 1_000_000_000_000), models));
        assert_eq!(
            costs([some(2, &new[..]), None, some(0, &new), some(3, &[]), some(0, &[])]),
            ["$2.00+", "", "no price", "$3.00 ", "$0.00 "]
        );
    }

    #[test]
    fn a_value_that_does_not_fit_goes_below_its_name() {
        let mut sheet = Sheet::default();
        sheet.line("session", "01a1e2f3-0000-4000-8000-000000000001");
        sheet.line("process", "4243, wrapped by 4242, in a run");
        sheet.line("file", "/var/lib/agents/projects/-home-dev-project/7a276c6b.jsonl");
        for (columns, drawn) in [
            (
                usize::MAX,
                "  session  01a1e2f3-0000-4000-8000-000000000001\n  process  4243, wrapped by 4242, in a run\n  file     /var/lib/agents/projects/-home-dev-project/7a276c6b.jsonl\n",
            ),
            (
                60,
                "  session  01a1e2f3-0000-4000-8000-000000000001\n  process  4243, wrapped by 4242, in a run\n  file\n    /var/lib/agents/projects/-home-dev-project/\n    7a276c6b.jsonl\n",
            ),
            (
                40,
                "  session\n    01a1e2f3-0000-4000-8000-000000000001\n  process  4243, wrapped by 4242, in a\n           run\n  file\n    /var/lib/agents/projects/\n    -home-dev-project/7a276c6b.jsonl\n",
            ),
        ] {
            assert_eq!(sheet.render(Style { colour: false, columns }), drawn, "{columns}");
        }
    }

    #[test]
    fn a_short_id_is_long_enough_to_be_unique() {
        let ids = [
            "01a1e586-1111-7000-8000-000000000001",
            "01a1e586-1112-7000-8000-000000000002",
            "01a1e586-1112-7000-8000-000000000002", // twice the same is no other
            "7a276c6b-d81e-4000-8000-000000000003",
            "legacy-claude-1",
            "legacy-claude-12",
            "x",
        ];
        let short: ShortIds = ids.into_iter().collect();
        let shown = ids.map(|id| short.of(id));
        assert_eq!(
            shown,
            [
                "01a1e586-1111",
                "01a1e586-1112",
                "01a1e586-1112",
                "7a276c6b",
                "legacy-claude-1",
                "legacy-claude-12",
                "x"
            ]
        );
        assert_eq!(ShortIds::default().of("0123456789"), "01234567");
    }
}

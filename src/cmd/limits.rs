//! `codemie limits`: the running five-hour window and the week.

use std::io::Write;
use std::process::ExitCode;

use jiff::tz::TimeZone;

use super::scanner::with_scanner;
use super::session_text::{at_list_price, costs, number};
use crate::cli::Limits;
use format::output::table::{Cell, Column, Table};
use format::output::{Colour, Style, json};
use format::text::clean;
use os::calendar::LocalClock;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use report::limits::{COMPUTED, Limit, LimitWindow, limits, needed_since};
use report::open::open_existing;
use report::plan::{PlanWorth, month};
use runtime::launch::{Origin, settings};
use store::View;
use types::Span;
use types::{PicoDollars, Timestamp};
use usage::{By, UsageQuery, tally};

pub fn run(args: &Limits, home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let (now, zone) = (SystemClock.now(), os::zone::local());
    // Windows begin at UTC's hours.
    let clock = LocalClock::of(TimeZone::UTC);
    let span = if args.all { Span::default() } else { Span::since(needed_since(now, &zone)) };
    let plans = if args.json { Vec::new() } else { settings(Some(home), &Origin::of_this_process()).plans };
    let month = month(now, &zone).filter(|_| !plans.is_empty());
    let mut store = open_existing(home)?;
    let (found, worth) = with_scanner(home, true, |scanner| {
        let read = |view: Option<&View<'_>>| {
            let spent = |span| {
                let found = scanner.scan_by(view, span, &clock, true)?.spending();
                let recorded = view.map(|view| view.spending(&clock, span)).transpose()?.unwrap_or_default();
                anyhow::Ok([recorded, found])
            };
            let reported = view.map(View::quotas).transpose()?.unwrap_or_default();
            let worth = match month {
                Some(month) => {
                    PlanWorth::among(&tally(&spent(month)?, &UsageQuery::by(By::Agent)).rows, &plans)
                }
                None => Vec::new(),
            };
            anyhow::Ok((limits(&spent(span)?, &reported, args.all, now, &zone), worth))
        };
        match &mut store {
            Some(store) => store.read(|view| read(Some(view))),
            None => read(None),
        }
    })?;
    let text =
        if args.json { json::pretty(&found)? } else { draw(&found, &worth, now, &zone, Style::of_stdout()) };
    out.write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn draw(limits: &[Limit], worth: &[PlanWorth], now: Timestamp, zone: &TimeZone, style: Style) -> String {
    if limits.is_empty() {
        return style.fold("No call in the last five hours, and none this week. `codemie limits --all` shows earlier windows.");
    }
    let all: Vec<&Limit> = limits.iter().collect();
    let mut drawn = table(&all, now, zone);
    if !drawn.shows(MODEL, style) {
        // Without their names the rows of models would look like further windows.
        let whole: Vec<&Limit> = limits.iter().filter(|limit| limit.model.is_none()).collect();
        drawn = table(&whole, now, zone);
    }
    let mut text = drawn.render(style);
    if limits.iter().any(|limit| limit.source == COMPUTED) {
        let note = "Computed from all calls that this machine knows, wrapped or not; what other machines used is not in it.";
        for line in style.fold(note).lines() {
            text += &(style.paint(line, Colour::Note) + "\n");
        }
    }
    if limits.iter().any(|limit| limit.cost.0 > 0) {
        text += &at_list_price(worth, style);
    }
    text
}

const MODEL: &str = "MODEL";

/// Instead of a pace that a window is too young for, or has too few calls.
const NOT_YET: &str = "–";

fn table(limits: &[&Limit], now: Timestamp, zone: &TimeZone) -> Table {
    let models = limits.iter().any(|limit| limit.model.is_some());
    let quotas = limits.iter().any(|limit| limit.utilization.is_some());
    let mut columns = vec![Column::text("AGENT", 6), Column::text("WINDOW", usize::MAX)];
    columns.extend(models.then(|| Column::text(MODEL, 12).dispensable(2)));
    columns.extend([
        Column::text("BEGAN", usize::MAX).dispensable(4),
        Column::text("ENDS", usize::MAX),
        Column::number("TOKENS").dispensable(5),
        Column::number("COST"),
        Column::number("PER HOUR").dispensable(3),
        Column::number("AT ITS END").dispensable(1),
    ]);
    columns.extend(quotas.then(|| Column::number("USED")));
    columns.push(Column::text("SOURCE", 8).dispensable(6));
    let mut table = Table::new(columns);
    let model = [String::from("some")];
    let amounts = |of: fn(&Limit) -> Option<PicoDollars>| {
        let unpriced = |limit: &Limit| if limit.unpriced { &model[..] } else { &[] };
        costs(limits.iter().map(|limit| of(limit).map(|cost| (cost, unpriced(limit)))))
    };
    let cost = amounts(|limit| Some(limit.cost));
    let forecast = |of| {
        let amounts = amounts(of).into_iter().zip(limits);
        let shown = |(amount, limit): (String, &&Limit)| {
            // Of a window that is over there is nothing to forecast.
            if amount.is_empty() && now < limit.end { NOT_YET.to_owned() } else { amount }
        };
        amounts.map(shown).collect::<Vec<_>>()
    };
    let (pace, end) = (forecast(|limit| limit.cost_per_hour), forecast(|limit| limit.projected));
    let amounts = cost.into_iter().zip(pace).zip(end);
    for (limit, ((cost, pace), end)) in limits.iter().zip(amounts) {
        let whole = limit.model.is_none();
        let only = |text: String| if whole { text } else { String::new() };
        let colour = if whole { Colour::Plain } else { Colour::Faint };
        let window = match limit.window {
            LimitWindow::FiveHours => "5 hours",
            LimitWindow::Week => "week",
        };
        let mut cells: Vec<Cell<'_>> =
            vec![only(clean(&limit.agent).into_owned()).into(), only(window.to_owned()).into()];
        if models {
            let model = limit.model.as_deref().map_or("all".into(), clean);
            cells.push(Cell::painted(model.into_owned(), colour));
        }
        cells.extend([
            only(format::moment(limit.begin, now, zone)).into(),
            only(format::moment(limit.end, now, zone)).into(),
            format::count(number(limit.tokens)).into(),
            cost.into(),
            pace.into(),
            end.into(),
        ]);
        if quotas {
            cells.push(
                limit.utilization.map_or(String::new(), |used| format!("{:.0} %", used * 100.0)).into(),
            );
        }
        cells.push(Cell::painted(only(clean(&limit.source).into_owned()), Colour::Faint));
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(model: Option<&str>, window: LimitWindow, utilization: Option<f64>) -> Limit {
        let at = |text: &str| Timestamp::parse(text).unwrap();
        let dollars = |amount: i64| PicoDollars(amount * 1_000_000_000_000);
        Limit {
            agent: "claude".into(),
            model: model.map(str::to_owned),
            window,
            begin: at("2026-11-17T09:00:00Z"),
            end: at("2026-11-17T14:00:00Z"),
            tokens: 1_234_567,
            cost: dollars(12),
            cost_per_hour: Some(dollars(4)),
            projected: Some(dollars(20)),
            utilization,
            source: if utilization.is_some() { "transcript" } else { COMPUTED }.into(),
            unpriced: false,
        }
    }

    fn drawn(limits: &[Limit], columns: usize) -> String {
        let now = Timestamp::parse("2026-11-17T12:00:00Z").unwrap();
        draw(limits, &[], now, &TimeZone::UTC, Style { colour: false, columns })
    }

    #[test]
    fn a_table_of_windows() {
        let limits = [
            limit(None, LimitWindow::FiveHours, None),
            limit(Some("opus"), LimitWindow::FiveHours, None),
            limit(None, LimitWindow::Week, Some(0.424)),
        ];
        assert_eq!(
            drawn(&limits, 120),
            "\
AGENT   WINDOW   MODEL  BEGAN  ENDS   TOKENS    COST  PER HOUR  AT ITS END  USED  SOURCE
claude  5 hours  all    09:00  14:00   1.23M  $12.00     $4.00      $20.00        computed
                 opus                  1.23M  $12.00     $4.00      $20.00
claude  week     all    09:00  14:00   1.23M  $12.00     $4.00      $20.00  42 %  transcript
Computed from all calls that this machine knows, wrapped or not; what other machines used is not in it.
Costs are at list price.
"
        );
        assert!(drawn(&[], 80).contains("limits --all"));
    }

    #[test]
    fn a_forecast_that_is_not_known_yet_is_a_dash() {
        let mut running = limit(None, LimitWindow::FiveHours, None);
        (running.cost_per_hour, running.projected) = (None, None);
        let over = Limit { end: running.begin, ..running.clone() };
        let text = drawn(&[running, over], 120);
        let dashes: Vec<_> = text.lines().map(|line| line.matches('–').count()).collect();
        assert_eq!(dashes[..3], [0, 2, 0], "{text}");
    }

    #[test]
    fn where_models_have_no_column_they_have_no_rows() {
        let limits = [
            limit(None, LimitWindow::FiveHours, None),
            limit(Some("claude-opus-4-8"), LimitWindow::FiveHours, None),
            limit(Some("claude-haiku-4-5"), LimitWindow::FiveHours, None),
            limit(None, LimitWindow::Week, None),
        ];
        for columns in [40, 48, 56, 64, 80, 120] {
            let text = drawn(&limits, columns);
            let named = text.contains("MODEL");
            assert_eq!(named, columns >= 56, "{columns}:\n{text}");
            let rows = text.lines().filter(|line| line.contains("$12.00")).count();
            assert_eq!(rows, if named { 4 } else { 2 }, "{columns}:\n{text}");
        }
    }

    #[test]
    fn hostile_text_is_drawn_harmlessly() {
        crate::cmd::hostile::draw_everywhere(|text, style| {
            let mut limit = limit(Some(text), LimitWindow::Week, Some(0.1));
            (limit.agent, limit.source) = (text.into(), text.into());
            draw(&[limit], &[], Timestamp(0), &TimeZone::UTC, style)
        });
    }
}

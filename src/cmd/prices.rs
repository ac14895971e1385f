//! `codemie prices`: what models cost, where that is from, and what prices of the user's own were used for.

use std::io::Write;
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::Prices;
use config::prices::price_list;
use format::counted;
use format::output::table::{Cell, Column, Table};
use format::output::{Colour, Style, json};
use os::home::Home;
use pricing::{OWN, PriceList, Rates, TABLE_DATE, TABLE_VERSION};
use report::open::open_existing;
use store::OwnPriceUse;

/// One model, in dollars per million tokens.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    model: String,
    input: f64,
    output: f64,
    cache_read: f64,
    cache_write: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_write1h: Option<f64>,
    /// `table`, or `own` where the user has set it.
    source: &'static str,
    /// With this very price, by the records of the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<Used>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Used {
    calls: i64,
    cost_usd: f64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    table_date: &'static str,
    table_version: u32,
    models: &'a [Row],
}

pub fn run(args: &Prices, home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let list = price_list(&home.config_file());
    let uses = match open_existing(home)? {
        Some(mut store) if !list.own().is_empty() => store.read(|view| view.own_price_uses(OWN))?,
        _ => Vec::new(),
    };
    let rows = rows(&list, &uses, args.model.as_deref());
    if args.json {
        let answer = Answer { table_date: TABLE_DATE, table_version: TABLE_VERSION, models: &rows };
        out.write_all(json::pretty(&answer)?.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = args.model.as_deref();
    out.write_all(drawn(&rows, &uses, wanted, Style::of_stdout()).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The model that is asked for, own prices, then the table, each by name. A name that is in the table by another spelling is found by
/// it.
fn rows(list: &PriceList, uses: &[OwnPriceUse], wanted: Option<&str>) -> Vec<Row> {
    let matches = |model: &str| wanted.is_none_or(|wanted| model.contains(wanted));
    let own = list.own().iter().filter(|(model, _)| matches(model)).map(|(model, rates)| {
        let version = rates.version();
        let mut used = Used { calls: 0, cost_usd: 0.0 };
        let is_it = |found: &&OwnPriceUse| {
            found.version == version && list.own_name(&found.model) == Some(model.as_str())
        };
        for found in uses.iter().filter(is_it) {
            used.calls += found.calls;
            used.cost_usd += found.cost.dollars();
        }
        Row { used: Some(used), ..row(model, rates, "own") }
    });
    let mut rows: Vec<Row> = own.collect();
    let listed = pricing::models().filter(|model| matches(model) && !list.own().contains_key(*model));
    rows.extend(listed.filter_map(|model| Some(row(model, &pricing::Prices::of(model)?.listed()?, "table"))));
    if let (true, Some(model)) = (rows.is_empty(), wanted) {
        let prices = list.of(model);
        let own = prices.and_then(|prices| prices.own());
        rows.extend(own.map(|rates| row(model, &rates, "own")));
        rows.extend(
            prices
                .filter(|_| own.is_none())
                .and_then(|prices| prices.listed())
                .map(|rates| row(model, &rates, "table")),
        );
    }
    // The same model of other providers has the name as a part.
    rows.sort_by_key(|row| wanted != Some(row.model.as_str()));
    rows
}

fn row(model: &str, rates: &Rates, source: &'static str) -> Row {
    #[expect(clippy::cast_precision_loss, reason = "prices have far fewer digits than f64 holds")]
    let dollars = |rate: u64| rate as f64 / 1e6;
    Row {
        model: model.to_owned(),
        input: dollars(rates.input),
        output: dollars(rates.output),
        cache_read: dollars(rates.cache_read),
        cache_write: dollars(rates.cache_write_5m),
        cache_write1h: rates.cache_write_1h.map(dollars),
        source,
        used: None,
    }
}

fn drawn(rows: &[Row], uses: &[OwnPriceUse], wanted: Option<&str>, style: Style) -> String {
    if rows.is_empty() {
        let which = wanted.unwrap_or("any model");
        return style.fold(&format!(
            "No price for {which}. [prices.MODEL] in config.toml sets one: input = 1.0 and output = 5.0, in dollars per million tokens."
        ));
    }
    let mut table = Table::new(vec![
        Column::text("MODEL", 16),
        Column::number("INPUT"),
        Column::number("OUTPUT"),
        Column::number("CACHE READ").dispensable(2),
        Column::number("WRITE").dispensable(3),
        Column::number("WRITE 1H").dispensable(4),
        Column::text("", usize::MAX),
    ]);
    let price = |dollars: f64| format!("{dollars}");
    for row in rows {
        let source = if row.source == "own" { Cell::painted("own", Colour::Note) } else { "".into() };
        table.row([
            row.model.as_str().into(),
            price(row.input).into(),
            price(row.output).into(),
            price(row.cache_read).into(),
            price(row.cache_write).into(),
            row.cache_write1h.map_or(String::new(), price).into(),
            source,
        ]);
    }
    let mut text = table.render(style);
    text += &style.fold(&format!(
        "Dollars per million tokens, standard mode. Table of {TABLE_DATE} (version {TABLE_VERSION}); [prices.MODEL] in config.toml sets a price of your own, for calls from then on."
    ));
    for row in rows {
        if let Some(used) = &row.used {
            text += &style.fold(&format!("{}: {}", row.model, used_for(used)));
        }
    }
    let former: i64 = uses.iter().map(|found| found.calls).sum::<i64>()
        - rows.iter().filter_map(|row| row.used.as_ref()).map(|used| used.calls).sum::<i64>();
    if former > 0 && wanted.is_none() {
        let calls = counted(usize::try_from(former).unwrap_or(usize::MAX), "call");
        text += &style.fold(&format!("{calls} had an own price that has changed since."));
    }
    text
}

fn used_for(used: &Used) -> String {
    match usize::try_from(used.calls) {
        Ok(calls @ 1..) => format!(
            "the price was used for {}, {} in all.",
            counted(calls, "call"),
            format::usd(used.cost_usd)
        ),
        _ => "the price was not used yet.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{PicoDollars, Timestamp};

    #[test]
    fn own_prices_stand_first_and_say_what_they_were_used_for() {
        let rates = Rates {
            input: 1_000_000,
            output: 2_500_000,
            cache_read: 1,
            cache_write_5m: 1,
            cache_write_1h: None,
        };
        let list = PriceList::with_own([("claude-opus-4-8".to_owned(), rates), ("mine".to_owned(), rates)]);
        let found = |model: &str, version: String| OwnPriceUse {
            model: model.into(),
            version,
            calls: 2,
            cost: PicoDollars(3_000_000_000_000),
            first_at: Timestamp(0),
        };
        let uses = [found("claude-opus-4-8-20260601", rates.version()), found("mine", "own-older".into())];
        let all = rows(&list, &uses, None);
        assert!(all.len() > 900);
        assert_eq!(
            (all[0].model.as_str(), all[0].source, all[0].used.as_ref().unwrap().calls),
            ("claude-opus-4-8", "own", 2)
        );
        assert_eq!((all[1].model.as_str(), all[1].used.as_ref().unwrap().calls), ("mine", 0));
        assert_eq!(all.iter().filter(|row| row.model == "claude-opus-4-8").count(), 1);
        let style = Style { colour: false, columns: 200 };
        let text = drawn(&all, &uses, None, style);
        assert!(text.contains("claude-opus-4-8: the price was used for 2 calls, $3.00 in all.\n"), "{text}");
        assert!(text.contains(
            "mine: the price was not used yet.\n2 calls had an own price that has changed since.\n"
        ));
        // A name as an agent spells it, and one that nobody knows.
        let spelled = rows(&PriceList::default(), &[], Some("anthropic/claude-opus-4-8[1m]"));
        assert_eq!((spelled.len(), spelled[0].input), (1, 5.0));
        assert!(drawn(&[], &[], Some("nobody"), style).starts_with("No price for nobody."));
    }
    #[test]
    fn the_model_that_is_asked_for_stands_before_those_that_contain_its_name() {
        let found = rows(&PriceList::with_own([]), &[], Some("claude-opus-4-8"));
        let names: Vec<&str> = found.iter().map(|row| row.model.as_str()).collect();
        assert_eq!(names[0], "claude-opus-4-8");
        assert!(names.len() > 2 && names[1..].is_sorted(), "{names:?}");
    }
}

//! `codemie sync --status`: how far each receiver has got, and what keeps it.

use std::io::Write;
use std::process::ExitCode;

use serde_json::json;

use crate::cmd::session_text::{Sheet, date};
use config::Delivery;
use delivery::{Sinks, register};
use format::counted;
use format::output::{Colour, Style, json};
use format::text::clean;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use store::{Error, Fate, SinkCount, SinkRow, Store};

/// Dead letters that are named; the rest are counted.
const NAMED: usize = 20;

struct State {
    row: SinkRow,
    count: SinkCount,
    address: Option<String>,
    dead: Vec<(String, String)>,
    /// Sessions it has nothing of.
    before: i64,
}

pub(super) fn run(
    home: &Home,
    delivery: &Delivery,
    sinks: Option<&Sinks>,
    as_json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let mut store = Store::open(home, SystemClock.now())?;
    if let Some(sinks) = sinks {
        store.write(|tx| register(tx, &sinks.targets()))?;
    }
    let addresses: Vec<(&str, String)> = match sinks {
        Some(sinks) => {
            sinks.open(&mut store)?.iter().map(|sink| (sink.name(), sink.url().to_string())).collect()
        }
        None => Vec::new(),
    };
    let (states, backlog) = store.read(|view| {
        let mut states = Vec::new();
        for row in view.sinks()? {
            let dead = view.letters(&row.name, Fate::Dead, i64::MAX, NAMED)?;
            states.push(State {
                count: view.sink_count(&row)?,
                before: view.sessions_before(&row.name)?,
                address: addresses.iter().find(|(name, _)| *name == row.name).map(|(_, url)| url.clone()),
                dead: dead.into_iter().map(|letter| (letter.event.id.to_string(), letter.reason)).collect(),
                row,
            });
        }
        Ok::<_, Error>((states, view.backlog()?))
    })?;
    let text = if as_json { json_of(&states, backlog, delivery)? } else { draw(&states, Style::of_stdout()) };
    out.write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn json_of(states: &[State], (events, bytes): (i64, i64), delivery: &Delivery) -> anyhow::Result<String> {
    let sink = |state: &State| {
        let State { row, count, address, dead, before } = state;
        json!({
            "name": row.name,
            "url": address,
            "configured": address.is_some(),
            "pending": count.pending,
            "deferred": count.deferred,
            "dead": count.dead,
            "deadLetters": dead.iter().map(|(id, why)| json!({"id": id, "reason": why})).collect::<Vec<_>>(),
            "paused": row.paused,
            "failures": row.failures,
            "lastError": row.trouble,
            "retryAt": row.again_at(),
            "lastDeliveredAt": row.last_delivered_at,
            "sessionsBefore": before,
        })
    };
    let all = json!({
        "sinks": states.iter().map(sink).collect::<Vec<_>>(),
        "backlog": {"events": events, "bytes": bytes, "maxMegabytes": delivery.max_megabytes},
    });
    Ok(json::pretty(&all)?)
}

fn draw(states: &[State], style: Style) -> String {
    if states.is_empty() {
        return "Nothing is sent: no backend is set up. `codemie config set backend.url ADDRESS` does that.\n".into();
    }
    let (zone, now) = (os::zone::local(), SystemClock.now());
    let mut text = String::new();
    for State { row, count, address, dead, before } in states {
        let title = style.paint(&row.name, Colour::Heading);
        let unknown =
            || format!("not set up here; what waits is kept. Or: codemie sync --forget {}", row.name);
        let address = address.clone().unwrap_or_else(unknown);
        text.extend([title.as_str(), "  ", &*clean(&address), "\n"]);
        let mut sheet = Sheet::default();
        sheet.line("waiting", count.pending.to_string());
        sheet.line("refused", count.dead.to_string());
        sheet.maybe("last delivered", row.last_delivered_at.map(|at| date(at, &zone)));
        sheet.maybe(
            "paused",
            row.paused.as_ref().map(|why| format!("it {why}; fix that, then run: codemie sync")),
        );
        if row.failures > 0 {
            let again = row.again_at().map_or(String::new(), |at| format!(", again {}", date(at, &zone)));
            sheet.line("failed", format!("{} in a row{again}", row.failures));
        } else {
            let asked = row.asked_until.filter(|at| *at > now);
            sheet.maybe("left alone", asked.map(|at| format!("until {}, as it asked", date(at, &zone))));
        }
        sheet.maybe("last error", row.trouble.as_ref());
        if let Some(before) = usize::try_from(*before).ok().filter(|before| *before > 0) {
            let sessions = counted(before, "session");
            sheet.line(
                "not sent",
                format!("{sessions} from before it was set up; to send: codemie sync --backfill"),
            );
        }
        for (id, why) in dead {
            sheet.line("refused event", format!("{id}: {why}"));
        }
        text += &sheet.render(style);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::hostile::draw_everywhere;

    #[test]
    fn hostile_answers_are_drawn_harmlessly() {
        draw_everywhere(|text, style| {
            let row = SinkRow {
                name: text.into(),
                paused: Some(text.into()),
                trouble: Some(text.into()),
                failures: 3,
                ..SinkRow::default()
            };
            let dead = vec![(text.to_owned(), text.to_owned())];
            let state =
                State { row, count: SinkCount::default(), address: Some(text.into()), dead, before: 1 };
            draw(&[state], style)
        });
    }
}

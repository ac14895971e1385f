//! The result for people: the chain of sessions and their usage. Pure.

use std::time::Duration;

use format::output::table::{Cell, Column, Table};
use format::output::{Colour, Style};
use types::EndReason;
use types::SessionRecord;

/// The sessions of one run, in their order.
pub fn report(chain: &[SessionRecord], style: Style) -> String {
    format!("{}\n\n{}", arrows(chain, style), table(chain).render(style))
}

/// `demo-2611160042 ── /clear ──▶ demo-2611160042.2`
fn arrows(chain: &[SessionRecord], style: Style) -> String {
    let mut text = String::new();
    for (at, session) in chain.iter().enumerate() {
        text += &style.paint(&session.name, Colour::Heading);
        if at + 1 < chain.len() {
            text += &style.paint(&format!(" ── {} ──▶ ", ended(session)), Colour::Note);
        }
    }
    text
}

fn ended(session: &SessionRecord) -> &'static str {
    match session.end_reason {
        Some(EndReason::Clear) => "/clear",
        Some(reason) => reason.as_str(),
        None => "still open",
    }
}

fn table(chain: &[SessionRecord]) -> Table {
    let mut table = Table::new([
        // Whole, because only the end of its name distinguishes a session from the one before it.
        Column::text("SESSION", usize::MAX),
        Column::text("ENDED BY", 6).dispensable(4),
        Column::number("TIME").dispensable(3),
        Column::number("PROMPTS").dispensable(2),
        Column::number("TOOLS").dispensable(2),
        Column::number("LINES").dispensable(5),
        Column::number("INPUT").dispensable(6),
        Column::number("CACHED").dispensable(6),
        Column::number("OUTPUT").dispensable(6),
        Column::number("TOKENS").dispensable(1),
        Column::number("COST"),
    ]);
    let mut total = Figures::default();
    for session in chain {
        let figures = Figures::of(session);
        table.row([session.name.as_str(), ended(session)].map(Cell::from).into_iter().chain(figures.cells()));
        total.add(&figures);
    }
    table.total(["total", ""].map(Cell::from).into_iter().chain(total.cells()));
    table
}

#[derive(Default)]
struct Figures {
    open_ms: u64,
    prompts: i64,
    tools: i64,
    added: i64,
    removed: i64,
    input: i64,
    cached: i64,
    output: i64,
    usd: f64,
}

impl Figures {
    fn of(session: &SessionRecord) -> Self {
        let usage = &session.usage;
        Self {
            open_ms: session.duration_ms,
            prompts: usage.prompts,
            tools: usage.tool_calls,
            added: usage.lines_added,
            removed: usage.lines_removed,
            input: usage.input_tokens,
            cached: usage.cache_read_tokens + usage.cache_write_tokens,
            output: usage.output_tokens,
            usd: usage.cost_usd,
        }
    }

    fn add(&mut self, other: &Self) {
        self.open_ms += other.open_ms;
        self.prompts += other.prompts;
        self.tools += other.tools;
        self.added += other.added;
        self.removed += other.removed;
        self.input += other.input;
        self.cached += other.cached;
        self.output += other.output;
        self.usd += other.usd;
    }

    fn cells(&self) -> [Cell<'static>; 9] {
        let count = |number: i64| format::count(u64::try_from(number).unwrap_or(0));
        [
            format::duration(Duration::from_millis(self.open_ms)),
            self.prompts.to_string(),
            self.tools.to_string(),
            format!("+{} -{}", self.added, self.removed),
            count(self.input),
            count(self.cached),
            count(self.output),
            count(self.input + self.cached + self.output),
            format::usd(self.usd),
        ]
        .map(Cell::from)
    }
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::*;

    fn session(name: &str, reason: &str, tokens: i64) -> SessionRecord {
        serde_json::from_value(serde_json::json!({
            "sessionId": name, "name": name, "agent": "demo", "wrapperVersion": "0.1.0", "status": "completed",
            "endReason": reason, "startTime": 0, "durationMs": 3500, "workingDirectory": "/x",
            "correlation": {"status": "matched"},
            "usage": {
                "apiCalls": 4, "inputTokens": tokens, "outputTokens": 400, "cacheReadTokens": 38_000,
                "cacheWriteTokens": 12_000, "reasoningTokens": 0, "costUsd": 0.1114, "unpricedModels": [], "prompts": 2,
                "toolCalls": 2, "toolErrors": 0, "filesChanged": 1, "linesAdded": 5, "linesRemoved": 1,
                "apiErrors": 0, "coverage": "transcript",
            },
            "sync": {"pending": 0, "delivered": 0, "dead": 0}, "tags": [],
        }))
        .unwrap()
    }

    #[test]
    fn the_chain_and_its_sums_fit_every_width() {
        let chain = [session("demo-1", "clear", 1256), session("demo-1.2", "exit", 1200)];
        let text = report(&chain, Style { colour: false, columns: usize::MAX });
        assert_eq!(
            text,
            "\
demo-1 ── /clear ──▶ demo-1.2

SESSION   ENDED BY  TIME  PROMPTS  TOOLS   LINES  INPUT  CACHED  OUTPUT  TOKENS     COST
demo-1    /clear    3.5s        2      2   +5 -1  1.26k   50.0k     400   51.7k  $0.1114
demo-1.2  exit      3.5s        2      2   +5 -1  1.20k   50.0k     400   51.6k  $0.1114
total               7.0s        4      4  +10 -2  2.46k    100k     800    103k  $0.2228
"
        );
        for columns in 30..100 {
            let text = report(&chain, Style { colour: false, columns });
            assert!(text.lines().all(|line| line.width() <= columns), "{columns}:\n{text}");
            assert!(text.contains("demo-1.2  ") && text.contains("$0.2228"), "{columns}:\n{text}");
        }
    }
}

//! The program's own sums, which 2.1.325 writes after each call, against ours.

use serde_json::Value;

use super::lines::ClaudeLines;
use crate::meter::line::{Lines, ParsedLines};

use crate::meter::record::Fact;
use types::PicoDollars;
use types::Tokens;

#[test]
fn cost_state_lines_agree_with_our_sums() {
    let text = include_str!("../../../../tests/fixtures/claude-2.1.325/session.jsonl");
    let (mut lines, mut tokens, mut cost) = (ClaudeLines::new(None), Tokens::default(), PicoDollars(0));
    let (mut calls, mut compared) = (0, 0);
    for line in text.lines() {
        let mut parsed = ParsedLines::default();
        lines.read(line.as_bytes(), &mut parsed).unwrap();
        for record in parsed.records {
            let Fact::Usage(usage) = record.fact else { continue };
            calls += 1;
            tokens.input += usage.tokens.input;
            tokens.output += usage.tokens.output;
            tokens.reasoning += usage.tokens.reasoning;
            tokens.cache_read += usage.tokens.cache_read;
            tokens.cache_write_5m += usage.tokens.cache_write_5m;
            tokens.cache_write_1h += usage.tokens.cache_write_1h;
            cost.0 += pricing::cost(&usage.model, &usage.tokens, usage.tier).unwrap().0;
        }
        let line: Value = serde_json::from_str(line).unwrap();
        if line["type"] != "cost-state" {
            continue;
        }
        let models = line["modelUsage"].as_object().unwrap();
        let sum = |field: &str| models.values().map(|model| model[field].as_u64().unwrap()).sum::<u64>();
        let theirs = Tokens {
            input: sum("inputTokens"),
            output: sum("outputTokens"),
            reasoning: sum("thinkingTokens"),
            cache_read: sum("cacheReadInputTokens"),
            cache_write_5m: sum("cacheCreationEphemeral5mInputTokens"),
            cache_write_1h: sum("cacheCreationEphemeral1hInputTokens"),
        };
        assert_eq!(tokens, theirs, "after {calls} calls");
        let difference = cost.dollars() - line["totalCostUSD"].as_f64().unwrap();
        assert!(difference.abs() < 1e-9, "after {calls} calls: {difference}");
        compared += 1;
    }
    assert_eq!((calls, compared), (3, 5));
}

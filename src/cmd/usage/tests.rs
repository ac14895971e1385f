use std::collections::BTreeMap;

use super::*;
use crate::store::PicoDollars;

fn row(key: &str, calls: i64, pico: i64, unpriced: &[&str]) -> UsageRow {
    UsageRow {
        key: key.into(),
        agent: Some("claude".into()),
        api_calls: calls,
        input: 1234 * calls,
        output: 56 * calls,
        cache_read: 120_000 * calls,
        cache_write: 4000,
        reasoning: 0,
        cost: PicoDollars(pico),
        unpriced_models: unpriced.iter().map(|&model| model.to_owned()).collect(),
        ..UsageRow::default()
    }
}

fn report(by: By) -> UsageReport {
    let rows = vec![row("2026-11-15", 3, 123_400_000_000, &[]), row("a, \"b\"", 1, 0, &["new-model"])];
    UsageReport {
        by,
        rows,
        unreadable: vec![("/p/x.jsonl".into(), 2)],
        files: 4,
        scan: None,
        has_demo: false,
        refused: Vec::new(),
    }
}

fn draw(report: &UsageReport, known: &SessionLabels, moments: &Moments, since: bool, style: Style) -> String {
    Drawing { report, known }.draw(moments, since, style)
}

fn csv(report: &UsageReport, known: &SessionLabels) -> String {
    Drawing { report, known }.csv()
}

fn moments() -> Moments {
    Moments { now: Timestamp::parse("2026-11-16T12:00:00Z").unwrap(), zone: TimeZone::UTC }
}

#[test]
fn a_table_has_a_total_and_names_models_without_a_price() {
    assert_eq!(
        draw(
            &report(By::Day),
            &SessionLabels::default(),
            &moments(),
            false,
            Style { colour: false, columns: 80 }
        ),
        "\
DAY         CALLS  INPUT  OUTPUT  CACHE READ  CACHE WRITE  TOKENS      COST
2026-11-15      3  3.70k     168        360k        4.00k    368k  $0.1234
a, \"b\"          1  1.23k      56        120k        4.00k    125k  no price
total           4  4.94k     224        480k        8.00k    493k  $0.1234+
+ No price is known for new-model: the tokens are counted, the cost is not.
2 lines could not be read; `codemie doctor` says where.
"
    );
}

#[test]
fn a_model_with_a_price_is_not_called_unknown_for_the_mode_that_has_none() {
    let mut report = report(By::Model);
    report.rows[0].unpriced_models = vec!["claude-opus-4-5-20251101".into()];
    report.rows[0].unpriced_calls = BTreeMap::from([("claude-opus-4-5-20251101".into(), 1420)]);
    let text =
        draw(&report, &SessionLabels::default(), &moments(), false, Style { colour: false, columns: 200 });
    let note = "+ No price is known for claude-opus-4-5-20251101 in fast mode (1,420 calls), new-model: the tokens are counted";
    assert!(text.contains(note), "{text}");
    let value: serde_json::Value = serde_json::from_str(&json::pretty(&report.record()).unwrap()).unwrap();
    assert_eq!(value["total"]["unpricedCalls"], serde_json::json!({"claude-opus-4-5-20251101": 1420}));
}

#[test]
fn a_scan_marks_foreign_conversations() {
    let mut report = report(By::Session);
    report.rows[1].foreign = true;
    report.rows[1].key = "0123456789abcdef".into();
    report.rows[1].first_at = Timestamp::parse("2026-11-15T09:05:00Z").unwrap();
    report.rows[1].project = Some("widgets".into());
    report.scan = Some(ForeignUsage::of(&report.rows));
    let text =
        draw(&report, &SessionLabels::default(), &moments(), false, Style { colour: false, columns: 200 });
    assert!(text.contains("\nforeign 01234567  Nov 15 09:05  widgets "), "{text}");
    assert_eq!(text.matches("01234567").count(), 1, "{text}");
    assert!(text.contains("\n1 conversation was not run through codemie: foreign.\n"), "{text}");
    assert!(text.contains("2 lines could not be read, the first in /p/x.jsonl."), "{text}");
    let value: serde_json::Value = serde_json::from_str(&json::pretty(&report.record()).unwrap()).unwrap();
    assert_eq!((&value["rows"][0]["foreign"], &value["rows"][1]["foreign"]), (&().into(), &true.into()));
}

#[test]
fn a_scan_says_how_much_of_it_is_foreign_whatever_the_rows_are() {
    let foreign = |rows: &[UsageRow]| {
        let rows: Vec<_> = rows.iter().map(|row| UsageRow { foreign: true, ..row.clone() }).collect();
        Some(ForeignUsage::of(&rows))
    };
    let all = report(By::Day).rows;
    for (scan, line) in [
        (foreign(&all[..1]), "1 conversation, $0.1234, was not run through codemie."),
        (foreign(&all), "2 conversations, $0.1234+, were not run through codemie."),
        (foreign(&all[1..]), "1 conversation was not run through codemie."),
        (Some(ForeignUsage::of(&all)), "All of it was run through codemie."),
    ] {
        for by in [By::Day, By::Model] {
            let report = UsageReport { scan: scan.clone(), ..report(by) };
            let text = draw(
                &report,
                &SessionLabels::default(),
                &moments(),
                false,
                Style { colour: false, columns: 80 },
            );
            assert!(text.ends_with(&format!("\n{line}\n")), "{text}");
        }
    }
}

fn known() -> SessionLabels {
    let started = Timestamp::parse("2026-11-14T08:00:00Z");
    let first = SessionLabel { name: "fix-auth".into(), project: Some("shop".into()), started };
    SessionLabels { labels: vec![first, SessionLabel::default()], ids: Vec::new() }
}

#[test]
fn sessions_are_shown_by_name() {
    let text = draw(&report(By::Session), &known(), &moments(), false, Style { colour: false, columns: 200 });
    let first = text.lines().nth(1).unwrap();
    assert!(
        first.starts_with("fix-auth  ") && first.contains("  shop ") && first.contains("  2026-11-  "),
        "{text}"
    );
    assert!(text.contains("\na, \"b\""), "one without a name is shown by its key: {text}");
    assert!(first.contains("  Nov 14 08:00  ") && text.contains(" STARTED "), "as `list` shows it: {text}");
}

#[test]
fn every_table_fits() {
    use unicode_width::UnicodeWidthStr;
    for (by, columns) in By::ALL.iter().flat_map(|by| [(by, 80), (by, 50), (by, 40)]) {
        let mut report = report(*by);
        report.rows[0].key = "0123456789abcdef-0123-456789-abcdef0123456789".into();
        report.rows[0].cost = PicoDollars(12_345_670_000_000_000);
        if *by == By::Day || *by == By::Agent {
            report.rows[0].key = "2026-11-15".into();
        }
        let text =
            draw(&report, &SessionLabels::default(), &moments(), false, Style { colour: false, columns });
        assert!(text.lines().all(|line| line.width() <= columns), "{by}:\n{text}");
    }
}

#[test]
fn the_agent_and_reasoning_columns_are_there_only_with_values() {
    let wide = Style { colour: false, columns: 200 };
    let mut report = report(By::Day);
    report.unreadable = vec![("/p/x.jsonl".into(), 1)];
    let text = draw(&report, &SessionLabels::default(), &moments(), false, wide);
    assert!(text.contains(" AGENT ") && !text.contains("REASONING"), "{text}");
    assert!(text.contains("\n1 line could not be read; "), "{text}");
    report.rows[0].agent = None;
    report.rows[1].reasoning = 7;
    let text = draw(&report, &SessionLabels::default(), &moments(), false, wide);
    assert!(!text.contains("AGENT") && !text.contains("claude") && text.contains(" REASONING "), "{text}");
}

#[test]
fn csv_is_quoted_where_it_must_be() {
    assert_eq!(
        csv(&report(By::Day), &SessionLabels::default()),
        "key,agent,inputTokens,outputTokens,cacheReadTokens,cacheWriteTokens,reasoningTokens,apiCalls,costUsd,unpricedModels,foreign\n\
         2026-11-15,claude,3702,168,360000,4000,0,3,0.1234,,false\n\
         \"a, \"\"b\"\"\",claude,1234,56,120000,4000,0,1,0,new-model,false\n"
    );
}

#[test]
fn csv_marks_what_is_foreign_and_names_sessions() {
    let mut report = report(By::Session);
    report.rows[1].foreign = true;
    let csv = csv(&report, &known());
    let ends: Vec<_> = csv.lines().map(|line| line.rsplitn(3, ',').take(2).collect::<Vec<_>>()).collect();
    assert_eq!(ends, [["name", "foreign"], ["fix-auth", "false"], ["", "true"]], "{csv}");
}

#[test]
fn ids_that_begin_alike_are_shown_longer() {
    let mut report = report(By::Session);
    report.rows[0].key = "01a1e586-1111-7000-8000-000000000001".into();
    report.rows[1].key = "01a1e586-1112-7000-8000-000000000002".into();
    let drawn = |report: &UsageReport, known: &SessionLabels, columns| {
        draw(report, known, &moments(), false, Style { colour: false, columns })
    };
    let text = drawn(&report, &known(), 200);
    assert!(text.contains("  01a1e586-1111  ") && text.contains("  01a1e586-1112  "), "{text}");
    // One that called nothing is not in the table, but could be meant.
    report.rows.truncate(1);
    let silent = SessionLabels {
        ids: vec!["01a1e586-1119-7000-8000-000000000003".into()],
        ..SessionLabels::default()
    };
    assert!(drawn(&report, &silent, 200).contains("  01a1e586-1111  "));
    assert!(drawn(&report, &known(), 200).contains("  01a1e586  "));
    // What is foreign has no other name: on a narrow terminal, too, it stays whole.
    report.rows[0].foreign = true;
    assert!(drawn(&report, &silent, 40).contains("\nforeign 01a1e586-1111  "));
}

#[test]
fn control_characters_in_keys_reach_neither_table_nor_csv() {
    let mut report = report(By::Model);
    report.rows[0].key = "evil\x1b[2J\u{9b}31m\nmodel".into();
    report.rows[1].unpriced_models = vec!["a\x07b".into()];
    let drawn =
        draw(&report, &SessionLabels::default(), &moments(), false, Style { colour: false, columns: 200 });
    for text in [csv(&report, &SessionLabels::default()), drawn] {
        assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
    }
    assert_eq!(csv(&report, &SessionLabels::default()).lines().count(), 3);
}

#[test]
fn the_json_has_rows_total_and_counts() {
    let value: serde_json::Value =
        serde_json::from_str(&json::pretty(&report(By::Session).record()).unwrap()).unwrap();
    assert_eq!(value["by"], "session");
    assert_eq!(value["rows"][0]["key"], "2026-11-15");
    assert_eq!(
        value["total"],
        serde_json::json!({"inputTokens": 4936, "outputTokens": 224, "cacheReadTokens": 480_000,
            "cacheWriteTokens": 8000, "reasoningTokens": 0, "apiCalls": 4, "costUsd": 0.1234,
            "unpricedModels": ["new-model"]})
    );
    assert_eq!((&value["unreadableLines"], &value["files"]), (&2.into(), &4.into()));
}

#[test]
fn files_that_cannot_be_opened_are_reported_beside_the_figures() {
    let reported = |refused: &[&str]| {
        let refused: Vec<String> = refused.iter().map(|&one| one.to_owned()).collect();
        unread_files(&refused).unwrap_or_default()
    };
    assert_eq!(reported(&[]), "");
    assert_eq!(reported(&["/p\u{1b}: denied"]), "not counted, because it cannot be read: /p : denied");
    assert!(
        reported(&["/p: denied", "/q: denied", "/r: denied"])
            .ends_with("/p: denied, and 2 more (see the log)")
    );
}

#[test]
fn an_empty_report_says_what_to_do_next() {
    let empty = UsageReport::empty(By::Day);
    let style = Style { colour: false, columns: 80 };
    assert!(draw(&empty, &SessionLabels::default(), &moments(), false, style).contains("codemie claude"));
    assert!(draw(&empty, &SessionLabels::default(), &moments(), true, style).contains("codemie usage"));
    let played = UsageReport { has_demo: true, ..UsageReport::empty(By::Day) };
    assert!(
        draw(&played, &SessionLabels::default(), &moments(), false, style)
            .starts_with("Only the demonstration was recorded")
    );
}

#[test]
fn hostile_text_is_drawn_harmlessly() {
    crate::output::hostile::draw_everywhere(|text, style| {
        let mut drawn = String::new();
        for by in By::ALL {
            let mut report = report(*by);
            for row in &mut report.rows {
                (row.key, row.agent, row.project) = (text.into(), Some(text.into()), Some(text.into()));
                (row.unpriced_models, row.foreign) = (vec![text.into()], true);
            }
            report.scan = Some(ForeignUsage::of(&report.rows));
            (report.unreadable, report.refused) = (vec![(text.into(), 2)], vec![text.into()]);
            let label = SessionLabel { name: text.into(), project: Some(text.into()), started: None };
            let known = SessionLabels { labels: vec![label, SessionLabel::default()], ids: Vec::new() };
            drawn += &draw(&report, &known, &moments(), false, style);
        }
        drawn
    });
}

#[test]
fn a_spreadsheet_takes_no_text_for_a_formula() {
    for (field, written) in [
        ("widgets", "widgets"),
        ("a,b", "\"a,b\""),
        ("=HYPERLINK(1)", "\"'=HYPERLINK(1)\""),
        ("=A1&\"x\"", "\"'=A1&\"\"x\"\"\""),
        ("+1", "\"'+1\""),
        ("-1", "\"'-1\""),
        ("@SUM(1)", "\"'@SUM(1)\""),
        ("\t=1", "\"' =1\""),
        ("\r=1", "\"' =1\""),
        ("2026-11-15", "2026-11-15"),
        ("\u{202e}x", "\u{fffd}x"),
    ] {
        assert_eq!(quoted(field), written);
    }
    let csv = csv(&report(By::Day), &SessionLabels::default());
    assert!(
        csv.lines().nth(1).unwrap().starts_with("2026-11-15,claude,3702,168,"),
        "numbers stay numbers: {csv}"
    );
}

use std::collections::BTreeMap;

use jiff::tz::TimeZone;

use super::drawing::quoted;
use super::*;
use report::plan::PlanWorth;
use report::usage::ForeignUsage;
use types::{CallSums, PicoDollars, Timestamp};
use usage::{CommitLabel, SessionLabel, Tally, UsageRow};

fn row(key: &str, calls: i64, pico: i64, unpriced: &[&str]) -> UsageRow {
    UsageRow {
        key: Some(key.into()),
        agent: Some("claude".into()),
        sums: CallSums {
            api_calls: calls,
            input: 1234 * calls,
            output: 56 * calls,
            cache_read: 120_000 * calls,
            cache_write: 4000,
            reasoning: 0,
            cost: PicoDollars(pico),
        },
        unpriced_models: unpriced.iter().map(|&model| model.to_owned()).collect(),
        ..UsageRow::default()
    }
}

fn report(by: By) -> UsageReport {
    let rows = vec![row("2026-11-15", 3, 123_400_000_000, &[]), row("a, \"b\"", 1, 0, &["new-model"])];
    let tally = Tally { total: sum(&rows), rows, ..Tally::default() };
    UsageReport { tally, unreadable: vec![("/p/x.jsonl".into(), 2)], files: 4, ..UsageReport::empty(by) }
}

fn sum(rows: &[UsageRow]) -> UsageRow {
    let mut sums = CallSums::default();
    for row in rows {
        sums.add(&row.sums);
    }
    UsageRow {
        sums,
        unpriced_models: rows.iter().flat_map(|row| row.unpriced_models.clone()).collect(),
        unpriced_calls: rows.iter().flat_map(|row| row.unpriced_calls.clone()).collect(),
        ..UsageRow::default()
    }
}

fn draw(report: &UsageReport, style: Style) -> String {
    let total = sum(&report.tally.rows);
    let report = UsageReport { tally: Tally { total, ..report.tally.clone() }, ..report.clone() };
    Drawing { report: &report, moments: &moments(), exact: false, everything: true, worth: &[] }.draw(style)
}

fn csv(report: &UsageReport) -> String {
    Drawing { report, moments: &moments(), exact: false, everything: true, worth: &[] }.csv()
}

fn moments() -> Moments {
    Moments { now: Timestamp::parse("2026-11-16T12:00:00Z").unwrap(), zone: TimeZone::UTC }
}

#[test]
fn a_table_has_a_total_and_names_models_without_a_price() {
    assert_eq!(
        draw(&report(By::Day), Style { colour: false, columns: 80 }),
        "\
DAY         CALLS  INPUT  OUTPUT  CACHE READ  CACHE WRITE  TOKENS      COST
2026-11-15      3  3.70k     168        360k        4.00k    368k  $0.1234
a, \"b\"          1  1.23k      56        120k        4.00k    125k  no price
total           4  4.94k     224        480k        8.00k    493k  $0.1234+
+ No price is known for new-model: the tokens are counted, the cost is not.
2 lines could not be read; `codemie doctor` says where.
Costs are at list price.
"
    );
    let plan = PlanWorth {
        agent: "claude".into(),
        price: PicoDollars(20_000_000_000),
        cost: PicoDollars(123_400_000_000),
        unpriced: false,
    };
    let (report, style) = (report(By::Day), Style { colour: false, columns: 200 });
    let drawing =
        Drawing { report: &report, moments: &moments(), exact: false, everything: true, worth: &[plan] };
    let text = drawing.draw(style);
    assert!(
        text.ends_with(
            "Costs are at list price; claude this month: $0.1234, worth 6.2 × the plan ($0.0200).\n"
        ),
        "{text}"
    );
}

#[test]
fn a_model_with_a_price_is_not_called_unknown_for_the_mode_that_has_none() {
    let mut report = report(By::Model);
    report.tally.rows[0].unpriced_models = vec!["claude-opus-4-5-20251101".into()];
    report.tally.rows[0].unpriced_calls = BTreeMap::from([("claude-opus-4-5-20251101".into(), 1420)]);
    let text = draw(&report, Style { colour: false, columns: 200 });
    let note = "+ No price is known for claude-opus-4-5-20251101 in fast mode (1,420 calls), new-model: the tokens are counted";
    assert!(text.contains(note), "{text}");
    report.tally.total = sum(&report.tally.rows);
    let value: serde_json::Value = serde_json::from_str(&json::pretty(&report.record()).unwrap()).unwrap();
    assert_eq!(value["total"]["unpricedCalls"], serde_json::json!({"claude-opus-4-5-20251101": 1420}));
}

#[test]
fn a_scan_marks_foreign_conversations() {
    let mut report = report(By::Session);
    report.tally.rows[1].foreign = true;
    report.tally.rows[1].key = Some("0123456789abcdef".into());
    report.tally.rows[1].first_at = Timestamp::parse("2026-11-15T09:05:00Z").unwrap();
    report.tally.rows[1].label =
        Some(SessionLabel { project: Some("widgets".into()), ..SessionLabel::default() });
    report.scan = Some(ForeignUsage::of(&report.tally.rows));
    let text = draw(&report, Style { colour: false, columns: 200 });
    assert!(text.contains("\nnot wrapped 01234567  Nov 15 09:05  widgets "), "{text}");
    assert_eq!(text.matches("01234567").count(), 1, "{text}");
    assert!(text.contains("\n1 conversation was not run through codemie: not wrapped.\n"), "{text}");
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
    let all = report(By::Day).tally.rows;
    for (scan, line) in [
        (foreign(&all[..1]), "1 conversation, $0.1234, was not run through codemie."),
        (foreign(&all), "2 conversations, $0.1234+, were not run through codemie."),
        (foreign(&all[1..]), "1 conversation was not run through codemie."),
        (Some(ForeignUsage::of(&all)), "All of it was run through codemie."),
    ] {
        for by in [By::Day, By::Model] {
            let report = UsageReport { scan: scan.clone(), ..report(by) };
            let text = draw(&report, Style { colour: false, columns: 80 });
            assert!(text.ends_with(&format!("\n{line}\nCosts are at list price.\n")), "{text}");
        }
    }
}

fn named(mut report: UsageReport) -> UsageReport {
    let started = Timestamp::parse("2026-11-14T08:00:00Z");
    report.tally.rows[0].label = Some(SessionLabel {
        id: Some("01a1".into()),
        name: "fix-auth".into(),
        project: Some("shop".into()),
        started,
    });
    report
}

#[test]
fn sessions_are_shown_by_name() {
    let text = draw(&named(report(By::Session)), Style { colour: false, columns: 200 });
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
        report.tally.rows[0].key = Some("0123456789abcdef-0123-456789-abcdef0123456789".into());
        report.tally.rows[0].sums.cost = PicoDollars(12_345_670_000_000_000);
        if by.is_time() || matches!(*by, By::Agent | By::Commit) {
            report.tally.rows[0].key = Some("2026-11-15".into());
        }
        let text = draw(&report, Style { colour: false, columns });
        assert!(text.lines().all(|line| line.width() <= columns), "{by}:\n{text}");
    }
}

#[test]
fn a_row_that_agents_share_says_so_and_reasoning_is_there_only_with_values() {
    let wide = Style { colour: false, columns: 200 };
    let mut report = report(By::Day);
    report.unreadable = vec![("/p/x.jsonl".into(), 1)];
    let text = draw(&report, wide);
    assert!(text.contains(" AGENT ") && !text.contains("REASONING"), "{text}");
    assert!(text.contains("\n1 line could not be read; ") && !text.contains("the proxy"), "{text}");
    report.unread_calls = 1;
    assert!(draw(&report, wide).contains("usage of 1 call that the proxy could not read in full; "));
    report.tally.rows[0].agent = None;
    report.tally.rows[1].sums.reasoning = 7;
    let text = draw(&report, wide);
    assert!(text.contains(" AGENT ") && text.contains(" several ") && text.contains(" REASONING "), "{text}");
}

#[test]
fn csv_is_quoted_where_it_must_be() {
    assert_eq!(
        csv(&report(By::Day)),
        "key,agent,inputTokens,outputTokens,cacheReadTokens,cacheWriteTokens,reasoningTokens,apiCalls,costUsd,unpricedModels,foreign\n\
         2026-11-15,claude,3702,168,360000,4000,0,3,0.1234,,false\n\
         \"a, \"\"b\"\"\",claude,1234,56,120000,4000,0,1,0,new-model,false\n"
    );
}

#[test]
fn csv_marks_what_is_foreign_and_names_sessions() {
    let mut report = named(report(By::Session));
    report.tally.rows[1].foreign = true;
    let csv = csv(&report);
    let ends: Vec<_> = csv.lines().map(|line| line.rsplitn(6, ',').take(5).collect::<Vec<_>>()).collect();
    assert_eq!(
        ends,
        [
            ["startTime", "project", "sessionId", "name", "foreign"],
            ["2026-11-14T08:00:00.000Z", "shop", "01a1", "fix-auth", "false"],
            ["1970-01-01T00:00:00.000Z", "", "", "", "true"],
        ],
        "{csv}"
    );
}

#[test]
fn commits_are_shown_with_subject_date_and_project() {
    let mut report = report(By::Commit);
    report.unreadable.clear();
    (report.tally.rows[0].key, report.tally.rows[1].key) = (Some("0123456789ab".into()), None);
    report.tally.rows[0].commit = Some(CommitLabel {
        subject: Some("Fix the login, at last".into()),
        at: Timestamp::parse("2026-11-14T08:00:00Z"),
        project: Some("shop".into()),
    });
    let text = draw(&report, Style { colour: false, columns: 200 });
    assert!(
        text.starts_with("COMMIT        DATE          SUBJECT                 PROJECT  AGENT ")
            && text.contains("\n0123456789ab  Nov 14 08:00  Fix the login, at last  shop     claude ")
            && text.contains("\n(no commit)                                                  claude "),
        "{text}"
    );
    let eighty = draw(&report, Style { colour: false, columns: 80 });
    assert!(eighty.contains("Fix the login") && eighty.contains("Nov 14"), "{eighty}");
    let csv = csv(&report);
    let ends: Vec<_> = csv
        .lines()
        .map(|line| line.split_once(",foreign").or(line.split_once(",false")).unwrap().1)
        .collect();
    assert_eq!(
        ends,
        [",subject,commitTime,project", ",\"Fix the login, at last\",2026-11-14T08:00:00.000Z,shop", ",,,"],
        "{csv}"
    );
}

#[test]
fn ids_that_begin_alike_are_shown_longer() {
    let mut report = report(By::Session);
    report.tally.rows[0].key = Some("01a1e586-1111-7000-8000-000000000001".into());
    report.tally.rows[1].key = Some("01a1e586-1112-7000-8000-000000000002".into());
    let drawn = |report: &UsageReport, columns| draw(report, Style { colour: false, columns });
    let text = drawn(&named(report.clone()), 200);
    assert!(text.contains("  01a1e586-1111  ") && text.contains("  01a1e586-1112  "), "{text}");
    // One that called nothing is not in the table, but could be meant.
    report.tally.rows.truncate(1);
    assert!(drawn(&named(report.clone()), 200).contains("  01a1e586  "));
    report.ids = vec!["01a1e586-1119-7000-8000-000000000003".into()];
    assert!(drawn(&report, 200).contains("  01a1e586-1111  "));
    // What is foreign has no other name: on a narrow terminal, too, it stays whole.
    report.tally.rows[0].foreign = true;
    assert!(drawn(&report, 40).contains("\nnot wrapped 01a1e586-1111  "));
}

#[test]
fn control_characters_in_keys_reach_neither_table_nor_csv() {
    let mut report = report(By::Model);
    report.tally.rows[0].key = Some("evil\x1b[2J\u{9b}31m\nmodel".into());
    report.tally.rows[1].unpriced_models = vec!["a\x07b".into()];
    let drawn = draw(&report, Style { colour: false, columns: 200 });
    for text in [csv(&report), drawn] {
        assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
    }
    assert_eq!(csv(&report).lines().count(), 3);
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
    assert_eq!(value.get("unreadCalls"), None, "only where there are some");
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
    let style = Style { colour: false, columns: 80 };
    let shown = |report: &UsageReport, everything| {
        let text = Drawing { report, moments: &moments(), exact: false, everything, worth: &[] }.draw(style);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let empty = UsageReport::empty(By::Day);
    assert!(shown(&empty, true).contains("codemie claude"));
    assert!(shown(&empty, false).contains("`codemie usage` shows all"));
    let played = UsageReport { has_demo: true, ..UsageReport::empty(By::Day) };
    assert!(shown(&played, true).starts_with("Only the demonstration was recorded"));
    let unwrapped = UsageReport { unwrapped_files: 226, ..UsageReport::empty(By::Day) };
    assert_eq!(
        shown(&unwrapped, true),
        "No usage recorded yet. But there are 226 session files on this machine: `codemie usage --scan` counts what was not run \
         through codemie."
    );
}

#[test]
fn exact_numbers_have_all_their_digits() {
    let mut report = report(By::Day);
    report.tally.rows[1].sums.cost = PicoDollars(1_748_500_000);
    report.tally.total = sum(&report.tally.rows);
    let drawing = Drawing { report: &report, moments: &moments(), exact: true, everything: true, worth: &[] };
    assert_eq!(
        drawing.draw(Style { colour: false, columns: 100 }).lines().take(4).collect::<Vec<_>>(),
        [
            "DAY         AGENT   CALLS  INPUT  OUTPUT  CACHE READ  CACHE WRITE   TOKENS         COST",
            "2026-11-15  claude      3  3,702     168     360,000        4,000  367,870   $0.1234000",
            "a, \"b\"      claude      1  1,234      56     120,000        4,000  125,290  $0.0017485+",
            "total                   4  4,936     224     480,000        8,000  493,160  $0.1251485+",
        ]
    );
}

#[test]
fn rows_of_a_breakdown_stand_below_their_row() {
    let mut report = report(By::Day);
    let part =
        |key: Option<&str>| UsageRow { key: key.map(str::to_owned), ..row("", 1, 5_000_000_000_000, &[]) };
    report.tally.rows[0].breakdown = vec![part(Some("opus")), part(None)];
    let text = draw(&report, Style { colour: false, columns: 100 });
    let firsts: Vec<_> = text.lines().take(6).map(|line| &line[..10]).collect();
    assert_eq!(
        firsts,
        ["DAY       ", "2026-11-15", "  opus    ", "  (none)  ", "a, \"b\"    ", "total     "]
    );
    let csv = csv(&report);
    let keys: Vec<_> = csv.lines().map(|line| line.split(",claude").next().unwrap()).collect();
    assert!(keys[0].starts_with("key,breakdown,agent,"));
    assert_eq!(keys[1..], ["2026-11-15,", "2026-11-15,opus", "2026-11-15,(none)", "\"a, \"\"b\"\"\","]);
    let value: serde_json::Value = serde_json::from_str(&json::pretty(&report.record()).unwrap()).unwrap();
    assert_eq!(
        (&value["rows"][0]["breakdown"][0]["key"], &value["rows"][1]["breakdown"]),
        (&"opus".into(), &().into())
    );
}

#[test]
fn rows_left_out_and_shared_are_said() {
    let mut report = report(By::Tag);
    (report.tally.left_out, report.tally.overlap) = (5, true);
    report.tally.rows[1].key = None;
    let text = draw(&report, Style { colour: false, columns: 100 });
    assert!(text.contains("\nNot shown: 5 rows. The total counts everything.\n"), "{text}");
    assert!(text.contains("\nWhat has several tags is in several rows, and once in the total.\n"), "{text}");
    assert!(text.contains("\n(none) "), "{text}");
    assert_eq!(serde_json::to_value(&report.tally.rows[1]).unwrap()["key"], serde_json::Value::Null);
}

#[test]
fn hostile_text_is_drawn_harmlessly() {
    crate::cmd::hostile::draw_everywhere(|text, style| {
        let mut drawn = String::new();
        for by in &[By::Day, By::Session, By::Model] {
            let mut report = report(*by);
            for row in &mut report.tally.rows {
                (row.key, row.agent) = (Some(text.into()), Some(text.into()));
                row.label = Some(SessionLabel {
                    id: Some(text.into()),
                    name: text.into(),
                    project: Some(text.into()),
                    started: None,
                });
                row.breakdown = vec![row.clone()];
                (row.unpriced_models, row.foreign) = (vec![text.into()], true);
            }
            report.scan = Some(ForeignUsage::of(&report.tally.rows));
            (report.unreadable, report.refused) = (vec![(text.into(), 2)], vec![text.into()]);
            drawn += &draw(&report, style);
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
    let csv = csv(&report(By::Day));
    assert!(
        csv.lines().nth(1).unwrap().starts_with("2026-11-15,claude,3702,168,"),
        "numbers stay numbers: {csv}"
    );
}

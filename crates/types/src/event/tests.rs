use std::collections::BTreeMap;

use super::*;
use serde_json::{Value, json};

const AT: &str = "2026-11-16T00:00:00.000Z";

#[test]
fn every_wrong_field_is_named() {
    fn names(value: &Value, found: &mut Vec<String>) {
        for (name, value) in value.as_object().into_iter().flatten() {
            found.push(name.clone());
            names(value, found);
        }
    }
    let mut found = Vec::new();
    for example in &examples() {
        names(example, &mut found);
    }
    let unknown: Vec<_> =
        found.iter().filter(|found| !refusal::names().any(|name| name == found.as_str())).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let end = |code: &Value| {
        let attributes = json!({"status": "completed", "exitCode": code, "lastSeq": 1});
        json!({"id": Uuid::nil(), "rev": 0, "type": "session.end", "sessionId": "s", "seq": 1, "time": AT,
            "agent": "claude", "attributes": attributes})
    };
    assert!(Event::parse(&end(&json!(3)).to_string()).is_ok());
    let refused = Event::parse(&end(&json!("x")).to_string()).unwrap_err();
    assert!(format!("{refused:?}").contains("exitCode"), "{refused:?}");
}

/// Every field that can leave the machine, by its path, with the types of the events that have it: as docs/delivery.md lists them.
fn fields_that_leave() -> Vec<(String, String)> {
    let around = envelope_names().iter().filter(|name| **name != "attributes");
    let mut fields: Vec<(String, String)> =
        around.map(|name| (format!("`{name}`"), "every event".to_owned())).collect();
    let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (kind, names) in Attributes::names_by_type() {
        let totals = names.iter().filter(|name| **name == "totals").flat_map(|totals| {
            Attributes::names_of_totals().iter().map(move |name| format!("{totals}.{name}"))
        });
        let names = names.iter().filter(|name| **name != "totals").map(|name| (*name).to_owned());
        for name in names.chain(totals) {
            types.entry(format!("`{name}`")).or_default().push(format!("`{kind}`"));
        }
    }
    fields.extend(types.into_iter().map(|(name, types)| (name, types.join(" "))));
    fields
}

#[test]
fn the_page_about_delivery_lists_every_field_that_leaves() {
    let page = include_str!("../../../../docs/delivery.md");
    let table = page.split_once("| field | in | holds |\n|---|---|---|\n").unwrap().1;
    let rows: Vec<Vec<&str>> = table
        .lines()
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let listed: Vec<(String, String)> =
        rows.iter().map(|row| (row[0].to_owned(), row[1].to_owned())).collect();
    let expected = fields_that_leave();
    let as_rows = || expected.iter().map(|(field, types)| format!("| {field} | {types} | … |\n"));
    assert_eq!(listed, expected, "the rows must be:\n{}", as_rows().collect::<String>());
    assert!(
        rows.iter().all(|row| row.len() == 3 && !row[2].is_empty() && row[2] != "…"),
        "each says what it holds"
    );
}

/// One event of each type, as it comes.
fn examples() -> Vec<Value> {
    serde_json::from_str(include_str!("examples.json")).unwrap()
}

#[test]
fn every_type_is_read_and_what_is_stored_of_it_is_read_again() {
    for example in examples() {
        let event = Event::parse(&example.to_string()).unwrap();
        assert_eq!(event.kind().as_str(), example["type"]);
        let stored = event.attributes.to_kept_json();
        let again = Attributes::kept(event.kind().as_str(), &stored).unwrap();
        assert_eq!(again.to_kept_json(), stored);
        if !matches!(event.attributes, Attributes::End(_)) {
            assert_eq!(again, event.attributes, "{stored}");
        }
        assert!(!stored.contains("key"), "only its id is needed: {stored}");
    }
}

#[test]
fn a_cost_is_exact_to_the_last_digit() {
    let mut example = examples().remove(2);
    for pico in [0, 1, 1250, 18_750, 1_748_500_000, 999_999_999_999_999, 123_456_789_012_345] {
        example["attributes"]["costUsd"] = json!(crate::PicoDollars(pico).dollars());
        let Attributes::Usage(usage) = Event::parse(&example.to_string()).unwrap().attributes else {
            panic!()
        };
        assert_eq!(usage.cost().unwrap().0, pico);
        let Attributes::Usage(again) =
            Attributes::parse(EventType::Usage, &Attributes::Usage(usage).to_kept_json()).unwrap()
        else {
            panic!()
        };
        assert_eq!(again.cost().unwrap().0, pico, "stored and read again");
    }
}

#[test]
fn a_refusal_names_the_field_and_not_the_value() {
    let table = [
        (2, "inputTokens", json!("canary"), "attributes: inputTokens: expected i64, found string"),
        (2, "source", json!("canary"), "attributes: source: unknown word, expected `transcript` or `proxy`"),
        (0, "tags", json!("canary"), "attributes: tags: expected a sequence, found string"),
    ];
    for (at, field, value, expected) in table {
        let mut example = examples().remove(at);
        example["attributes"][field] = value;
        assert_eq!(Event::parse(&example.to_string()).unwrap_err(), expected);
    }
    let mut example = examples().remove(4);
    example["agent"] = json!(["canary"]);
    assert_eq!(Event::parse(&example.to_string()).unwrap_err(), "agent: expected a string, found sequence");
}

/// The attributes that are sent, from those that the sender's store holds.
fn sent(kind: EventType, written: &Value) -> Value {
    let mut attributes = Attributes::written(kind.into(), &written.to_string());
    crate::redact::publish(&mut attributes);
    serde_json::to_value(&attributes).unwrap()
}

#[test]
fn fields_are_sent_in_the_order_of_the_alphabet() {
    for names in [
        field::names_of::<Start>(),
        field::names_of::<Bound>(),
        field::names_of::<Usage>(),
        field::names_of::<Tool>(),
        field::names_of::<Prompt>(),
        field::names_of::<ApiError>(),
        field::names_of::<Quota>(),
        field::names_of::<End>(),
        field::names_of::<Totals>(),
    ] {
        assert!(!names.is_empty() && names.is_sorted(), "{names:?}");
    }
}

#[test]
fn whatever_the_schema_requires_is_required_and_nothing_else() {
    let types = Event::schema()["oneOf"].as_array().unwrap().clone();
    assert_eq!(types.len(), EventType::ALL.len());
    for (example, schema) in examples().iter().zip(&types) {
        assert_eq!(schema["properties"]["type"]["const"], example["type"]);
        for (path, schema) in
            [("", schema), ("attributes", schema.pointer("/properties/attributes").unwrap())]
        {
            for (name, described) in schema["properties"].as_object().unwrap() {
                let required = schema["required"].as_array().unwrap().contains(&json!(name));
                let nullable =
                    described["type"].as_array().is_some_and(|types| types.contains(&json!("null")));
                assert_ne!(required, nullable, "{name}");
                for replacement in [None, Some(Value::Null)] {
                    let mut event = example.clone();
                    let object = if path.is_empty() { &mut event } else { &mut event[path] };
                    let object = object.as_object_mut().unwrap();
                    match replacement {
                        None => drop(object.remove(name)),
                        Some(null) => drop(object.insert(name.clone(), null)),
                    }
                    let parsed = Event::parse(&event.to_string());
                    assert_eq!(parsed.is_err(), required, "{name}: {parsed:?}");
                }
            }
        }
    }
}

#[test]
fn an_event_is_sent_as_the_contract_spells_it() {
    let event = Event::parse(&examples()[4].to_string()).unwrap();
    let spelled = |user| serde_json::to_string(&event.sent("m", user)).unwrap();
    assert_eq!(
        spelled(Some("dev")),
        r#"{"id":"00000000-0000-0000-0000-000000000007","rev":0,"type":"prompt","sessionId":"s1","seq":1,"time":"2026-11-16T00:00:00.000Z","agent":"claude","machine":"m","user":"dev","attributes":{"key":null}}"#
    );
    assert!(!spelled(None).contains("user"));
}

#[test]
fn what_is_sent_is_whole_and_what_is_kept_is_not() {
    let usage = Attributes::parse(EventType::Usage, r#"{"model":"m","key":"k","inputTokens":3}"#).unwrap();
    assert_eq!(
        usage.to_json(),
        r#"{"cacheReadTokens":null,"cacheWriteTokens":null,"costUsd":null,"inputTokens":3,"key":null,"model":"m","outputTokens":null,"reasoningTokens":null,"source":null,"subagent":null}"#
    );
    assert_eq!(usage.to_kept_json(), r#"{"inputTokens":3,"model":"m"}"#);
    let end = Attributes::parse(
        EventType::End,
        r#"{"status":"completed","lastSeq":3,"totals":{"apiCalls":"no number","filesChanged":2,"coverage":"none"}}"#,
    )
    .unwrap();
    assert_eq!(
        end.to_kept_json(),
        r#"{"lastSeq":3,"status":"completed","totals":{"coverage":"none","filesChanged":2}}"#
    );
}

#[test]
fn what_an_earlier_version_kept_is_read() {
    for (kind, kept) in [
        (
            "session.start",
            r#"{"name":"n","reason":"clear","wrapperVersion":"0.1.0","project":"p","tags":["a"]}"#,
        ),
        ("session.bound", r#"{"agentSessionId":"a","evidence":"log"}"#),
        (
            "usage",
            r#"{"model":"m","inputTokens":92,"costUsd":0.0123,"subagent":true,"source":"proxy","latencyMs":7}"#,
        ),
        ("tool", r#"{"name":"Edit","ok":false,"kind":"edit","fileExtension":"rs","linesAdded":3}"#),
        ("prompt", "{}"),
        ("error", r#"{"status":529,"kind":"overloaded"}"#),
        (
            "session.end",
            r#"{"status":"failed","durationMs":4,"totals":{"filesChanged":2,"coverage":"none"},"lastSeq":9}"#,
        ),
    ] {
        let read = Attributes::kept(kind, kept).unwrap();
        let (before, now): (Value, Value) =
            (serde_json::from_str(kept).unwrap(), serde_json::from_str(&read.to_kept_json()).unwrap());
        assert_eq!(before, now);
    }
}

#[test]
fn what_is_too_long_is_cut_rather_than_refused() {
    let long = "é".repeat(600);
    let many: Vec<String> = (0..101).map(|n| n.to_string()).collect();
    let cut = sent(EventType::Start, &json!({"branch": long, "tags": many, "group": "a\0b"}));
    assert_eq!(cut["branch"].as_str().unwrap().len(), 1024);
    assert_eq!(cut["tags"].as_array().unwrap().len(), 100);
    assert_eq!(cut["group"], "ab");
    let odd = sent(EventType::Start, &json!({"branch": format!("x{long}")}));
    assert_eq!(odd["branch"].as_str().unwrap().len(), 1023, "no letter is cut in two");
}

#[test]
fn of_what_an_imported_file_wrote_the_readable_fields_are_sent() {
    let usage = sent(
        EventType::Usage,
        &json!({"key": "msg_1", "model": "m", "inputTokens": "many", "outputTokens": 4, "prompt": "canary"}),
    );
    assert_eq!(
        (&usage["key"], &usage["outputTokens"], &usage["inputTokens"]),
        (&json!("msg_1"), &json!(4), &json!(null))
    );
    assert!(usage.get("prompt").is_none());
    for (kind, written) in [
        (EventType::Usage, json!({"inputTokens": 4, "prompt": "canary"})),
        (EventType::Bound, json!({"agentSessionId": 5, "prompt": "canary"})),
        (EventType::End, json!(["canary"])),
        (EventType::Tool, json!(null)),
    ] {
        assert_eq!(sent(kind, &written), json!({}), "the receiver refuses it");
        assert_eq!(Attributes::written(kind.into(), &written.to_string()).event_type(), Some(kind));
    }
}

use super::*;
use serde_json::{Value, json};
use types::Attributes;

/// One event of each type, as it comes.
fn examples() -> Vec<Value> {
    serde_json::from_str(include_str!("../../../types/src/event/examples.json")).unwrap()
}

/// A small generator, so that a failure can be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % below
    }
}

/// Values at the edges of every type.
fn odd_value(dice: &mut Dice) -> Value {
    let values = [
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1.5),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(1e308),
        json!(""),
        json!("x"),
        json!("x".repeat(2000)),
        json!("\u{0}"),
        json!([]),
        json!([null]),
        json!({}),
        json!({"a": {"b": [1]}}),
    ];
    values[dice.roll(values.len())].clone()
}

/// Some place in a value, replaced or taken out.
fn mutate(value: &mut Value, dice: &mut Dice) {
    match value {
        Value::Object(fields) if !fields.is_empty() && dice.roll(4) > 0 => {
            let key = fields.keys().nth(dice.roll(fields.len())).unwrap().clone();
            match dice.roll(6) {
                0 => drop(fields.remove(&key)),
                1 => drop(fields.insert("unknown".to_owned(), odd_value(dice))),
                _ => mutate(&mut fields[&key], dice),
            }
        }
        _ => *value = odd_value(dice),
    }
}

#[test]
fn nothing_beyond_the_limit_is_looked_at() {
    let ones = |count: usize| vec!["1"; count].join(",");
    for (body, expected) in [
        (format!("[{}]", ones(MOST_EVENTS)), Ok(MOST_EVENTS)),
        (format!("[{}]", ones(MOST_EVENTS + 1)), Err(BadBatch::TooMany(MOST_EVENTS))),
        (
            format!("[{},nothing that could be read", ones(MOST_EVENTS + 1)),
            Err(BadBatch::TooMany(MOST_EVENTS)),
        ),
        (format!("[{},", ones(MOST_EVENTS)), Err(BadBatch::NoArray)),
        (format!("[{}] 1", ones(3)), Err(BadBatch::NoArray)),
        (format!("{{\"a\":{}}}", ones(1)), Err(BadBatch::NoArray)),
    ] {
        let checked = Batch::parse(body.as_bytes()).map(|batch| batch.rejected.len());
        assert_eq!(checked, expected, "{}…", &body[..20.min(body.len())]);
    }
}

#[test]
fn whatever_comes_is_taken_whole_or_refused_whole() {
    let (mut taken, mut refused) = (0, 0);
    for seed in 0..20_000 {
        let mut dice = Dice(seed);
        let mut example = examples().remove(dice.roll(7));
        for _ in 0..=dice.roll(3) {
            mutate(&mut example, &mut dice);
        }
        let mut text = example.to_string().into_bytes();
        // And now and then a byte that is none of JSON's.
        if dice.roll(5) == 0 && !text.is_empty() {
            let at = dice.roll(text.len());
            text[at] = u8::try_from(dice.roll(256)).unwrap();
        }
        let body = [b"[" as &[u8], &text, b",", examples()[4].to_string().as_bytes(), b"]"].concat();
        // Numbers beyond any type are still JSON, so the parts are only counted here.
        let parts = serde_json::from_slice::<Vec<Box<RawValue>>>(&body).map(|parts| parts.len());
        let Ok(batch) = Batch::parse(&body) else {
            assert!(parts.is_err(), "seed {seed}: an array is never refused whole");
            continue;
        };
        assert_eq!(batch.events.len() + batch.rejected.len(), parts.unwrap(), "seed {seed}");
        for event in &batch.events {
            // An accepted event can be stored in either database and read again.
            let stored = event.attributes.to_kept_json();
            let again = Attributes::kept(event.kind().as_str(), &stored).unwrap();
            assert_eq!(again.to_kept_json(), stored, "seed {seed}");
            assert!(
                !stored.contains("\\u0000") && event.seq >= 1 && event.rev >= 0 && event.time.is_a_date()
            );
        }
        taken += batch.events.len().saturating_sub(1);
        refused += batch.rejected.len();
    }
    assert!(taken > 1000 && refused > 1000, "{taken} taken, {refused} refused: both must happen");
}

//! What differs from one run to the next, replaced in the raw text: each value by a word that says what it is.
//!
//! The substitution keeps places and identities: the same value becomes the same word wherever it stands, and random ids are
//! numbered in the order in which they first appear. What is derived from a random session id by the contract (the ids of
//! START, bound and END) is derived here too, so a changed derivation is seen. Everything else stays as it is, to the byte.

use std::collections::HashMap;
use std::fmt::Write;

use uuid::Uuid;

/// The namespace of event ids, as the contract has it.
const NAMESPACE: Uuid = Uuid::from_u128(0xf2e5_9732_da71_44bf_b6e4_7c46_ea0d_0566);
/// In place of the machine's own.
const MACHINE: &str = "00000000000000000000000000000000";
/// Ids that the tests chose begin so, and stay.
const CHOSEN: [&str; 5] = ["0a000000-", "0b000000-", "0c000000-", "0d000000-", "0e000000-"];

#[derive(Default)]
pub(super) struct Stable {
    /// Texts to replace, in this order: the machine, folders.
    texts: Vec<(String, String)>,
    ids: HashMap<String, String>,
    /// Times that a test wrote into an agent's file, by their milliseconds.
    lines: HashMap<i64, usize>,
    /// Whether ids, times and durations are from a run of now; those of fixtures are fixed.
    live: bool,
}

impl Stable {
    /// For what was imported: the machine and the version alone.
    pub(super) fn imported() -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let texts = [
            (format!("\"{version}\""), "\"@version@\""),
            (format!("codemie-cli/{version}"), "codemie-cli/@version@"),
            (format!("codemie/{version}"), "codemie/@version@"),
        ];
        Self { texts: texts.map(|(from, to)| (from, to.to_owned())).to_vec(), ..Self::default() }
    }

    pub(super) fn live() -> Self {
        Self { live: true, ..Self::imported() }
    }

    pub(super) fn replace(&mut self, text: &str, word: &str) {
        self.texts.push((text.to_owned(), word.to_owned()));
    }

    /// The time of the next line of an agent's file. No event that is not about it has it: whatever the test waited for is at
    /// least two milliseconds older (a session's sum is dated one after its start), and this returns when the clock has passed it.
    pub(super) fn next_line(&mut self) -> String {
        let now = || jiff::Timestamp::now().as_millisecond();
        let line = now() + 2;
        while now() <= line {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.lines.insert(line, self.lines.len() + 1);
        format!("{:.3}", jiff::Timestamp::from_millisecond(line).unwrap())
    }

    /// The last line's time is from now on one like any other.
    pub(super) fn forget_last_line(&mut self) {
        let last = self.lines.len();
        self.lines.retain(|_, line| *line != last);
    }

    /// Learns the machine's id and numbers the sessions' in the order in which the events name them.
    pub(super) fn learn(&mut self, bodies: &str) {
        if let Some((_, rest)) = bodies.split_once("\"machine\":\"") {
            let machine = rest.split('"').next().unwrap();
            assert_eq!(machine.len(), MACHINE.len(), "{machine}");
            self.replace(machine, MACHINE);
        }
        if self.live {
            each_id(bodies, |id| self.number(id));
        }
    }

    fn number(&mut self, id: &str) {
        let random = id.as_bytes()[14] == b'4' && !CHOSEN.iter().any(|chosen| id.starts_with(chosen));
        if !random || self.ids.contains_key(id) {
            return;
        }
        let number =
            self.ids.values().filter(|word| word.starts_with("@id-") && !word.contains(' ')).count() + 1;
        self.ids.insert(id.to_owned(), format!("@id-{number}@"));
        for kind in ["session.start", "session.bound", "session.end"] {
            for opening in 1..=9 {
                let event = Uuid::new_v5(&NAMESPACE, format!("{id}\0{kind}\0{opening}").as_bytes());
                self.ids.insert(event.to_string(), format!("@id-{number} {kind} {opening}@"));
            }
        }
    }

    pub(super) fn apply(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (from, to) in &self.texts {
            text = text.replace(from, to);
        }
        if !self.live {
            return text;
        }
        each_id(&text, |id| self.number(id));
        let mut found = Vec::new();
        each_id(&text, |id| found.extend(self.ids.get(id).map(|word| (id.to_owned(), word.clone()))));
        for (id, word) in found {
            text = text.replace(&id, &word);
        }
        let text = times(&text, |at| {
            self.lines.get(&at).map_or("@time@".to_owned(), |line| format!("@line-{line}@"))
        });
        let text = numbers(&text, |number| self.epoch(number));
        MEASURED.iter().fold(text, |text, key| without_number(&text, key))
    }

    /// The same for what is dated while lines are written, by the wrapper for itself: it may have the time of one by chance.
    pub(super) fn apply_beside_lines(&mut self, text: &str) -> String {
        let lines = std::mem::take(&mut self.lines);
        let text = self.apply(text);
        self.lines = lines;
        text
    }

    /// Milliseconds or nanoseconds since the epoch of this run.
    fn epoch(&self, number: &str) -> Option<String> {
        let (at, unit) = match number.len() {
            13 => (number.parse().ok()?, "ms"),
            19 => (number.strip_suffix("000000")?.parse().ok()?, "ns"),
            _ => return None,
        };
        Some(self.lines.get(&at).map_or(format!("@{unit}@"), |line| format!("@line-{line} {unit}@")))
    }
}

/// Numbers that are measured or given by the system, by what stands before them.
const MEASURED: [&str; 7] = [
    "\"durationMs\":",
    "\"durationMs\": ",
    "\"session_duration_ms\":",
    "\"pid\": ",
    "\"wrapperPid\": ",
    "codemie.durationMs = int ",
    " by pid ",
];

/// The number behind a key becomes a word.
pub(super) fn without_number(text: &str, key: &str) -> String {
    let mut parts = text.split(key);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        let word = if rest.len() < part.len() { "@n@" } else { "" };
        write!(out, "{key}{word}{rest}").unwrap();
    }
    out
}

fn each_id(text: &str, mut found: impl FnMut(&str)) {
    const SHAPE: &[u8; 36] = b"xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    let fits = |window: &[u8]| {
        window.iter().zip(SHAPE).all(|(byte, shape)| match shape {
            b'-' => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    for (at, window) in text.as_bytes().windows(36).enumerate() {
        if fits(window) {
            found(&text[at..at + 36]);
        }
    }
}

/// Replaces the times `2026-11-15T23:45:44.931Z`.
fn times(text: &str, word: impl Fn(i64) -> String) -> String {
    const LENGTH: usize = 24;
    let (mut out, mut at) = (String::new(), 0);
    while at < text.len() {
        let time =
            text.get(at..at + LENGTH).filter(|part| part.as_bytes()[10] == b'T' && part.ends_with('Z'));
        if let Some(time) = time.and_then(|time| time.parse::<jiff::Timestamp>().ok()) {
            out += &word(time.as_millisecond());
            at += LENGTH;
        } else {
            let next = text[at..].chars().next().map_or(1, char::len_utf8);
            out += &text[at..at + next];
            at += next;
        }
    }
    out
}

/// Replaces whole numbers.
pub(super) fn numbers(text: &str, word: impl Fn(&str) -> Option<String>) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let end = rest[at..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |end| at + end);
        out += &rest[..at];
        out += &word(&rest[at..end]).unwrap_or_else(|| rest[at..end].to_owned());
        rest = &rest[end..];
    }
    out + rest
}

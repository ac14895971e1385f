//! The settings there are: one line each, and everything else (`show`, `set`, `doctor`) follows from it.

use toml_edit::{Item, Value};

use super::budget;
use format::since::length;
use pty::chord::Chord;

/// What a setting's value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Flag,
    Text,
    /// A text that is shown to nobody unasked.
    Secret,
    /// `10s`, `500ms`, `2m`.
    Time,
    /// The same, or 0 for never.
    Limit,
    Count,
    /// `20` or `0.50`, above zero.
    Dollars,
    /// `120x40`: columns and rows.
    Size,
    /// Texts in brackets: `["--model *", "--verbose"]`.
    List,
    /// Keys pressed one after the other: `ctrl-b d`.
    Chord,
    Choice(&'static [&'static str]),
}

/// Lets agents do what is otherwise for a person, so no agent may switch it on.
pub const ALLOW_ANSWERS: &str = "mcp.allowAnswers";

/// One setting, or one per agent (`agent.*`) or per name that the user chose (`mcp.genie.*`).
#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub name: &'static str,
    pub kind: Kind,
    /// The variable that wins over the file; its `*` is the agent's name in capitals.
    pub variable: Option<&'static str>,
    /// As `config show` prints it; empty for "not set".
    pub default: &'static str,
    /// What it is for, in a few words.
    pub about: &'static str,
}

pub const LOG_LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

/// A dollar, in the unit that amounts are counted in.
const WHOLE: i64 = 1_000_000_000_000;

pub const DETACH_KEYS: &str = "attach.detachKeys";
pub const STATUSLINE_FORMAT: &str = "statusline.format";

pub const KEYS: &[Key] = &[
    Key {
        name: "quiet",
        kind: Kind::Flag,
        variable: Some("CODEMIE_QUIET"),
        default: "false",
        about: "print nothing after the agent has ended",
    },
    Key {
        name: "log.level",
        kind: Kind::Choice(LOG_LEVELS),
        variable: Some("CODEMIE_LOG"),
        default: "info",
        about: "how much goes to the log",
    },
    Key {
        name: "backend.url",
        kind: Kind::Text,
        variable: Some("CODEMIE_BACKEND_URL"),
        default: "",
        about: "the metrics backend, http:// or https://",
    },
    Key {
        name: "backend.token",
        kind: Kind::Secret,
        variable: Some("CODEMIE_BACKEND_TOKEN"),
        default: "",
        about: "its token of role ingest",
    },
    Key {
        name: "sync.interval",
        kind: Kind::Time,
        variable: None,
        default: "10s",
        about: "how often pending events are sent",
    },
    Key {
        name: "sync.exitTimeout",
        kind: Kind::Time,
        variable: None,
        default: "1s",
        about: "how long a run's end waits for its events to be sent",
    },
    Key {
        name: "sync.maxMegabytes",
        kind: Kind::Count,
        variable: None,
        default: "256",
        about: "doctor warns when more than this is pending",
    },
    Key {
        name: "otlp.endpoint",
        kind: Kind::Text,
        variable: None,
        default: "",
        about: "an OpenTelemetry collector, http:// or https://",
    },
    Key {
        name: "otlp.headers",
        kind: Kind::Secret,
        variable: None,
        default: "",
        about: "headers for it: name=value,name=value",
    },
    Key {
        name: "codemieV1.url",
        kind: Kind::Text,
        variable: None,
        default: "",
        about: "a CodeMie v1 server, http:// or https://",
    },
    Key {
        name: "codemieV1.auth",
        kind: Kind::Secret,
        variable: None,
        default: "",
        about: "its header, like Cookie: name=value",
    },
    Key {
        name: "tls.caFile",
        kind: Kind::Text,
        variable: None,
        default: "",
        about: "a file of certificates to trust besides the system's",
    },
    Key {
        name: "identity.user",
        kind: Kind::Text,
        variable: None,
        default: "",
        about: "the user named in events; none for nobody; default: the login name",
    },
    Key {
        name: "host.size",
        kind: Kind::Size,
        variable: None,
        default: "120x40",
        about: "columns and rows of a background session nobody looks at",
    },
    Key {
        name: "host.idleLimit",
        kind: Kind::Time,
        variable: None,
        default: "",
        about: "stop a background session that has been idle for so long",
    },
    Key {
        name: "host.totalLimit",
        kind: Kind::Time,
        variable: None,
        default: "",
        about: "stop a background session after this time",
    },
    Key {
        name: DETACH_KEYS,
        kind: Kind::Chord,
        variable: None,
        default: "ctrl-\\ d",
        about: "keys that leave an attached session",
    },
    Key {
        name: STATUSLINE_FORMAT,
        kind: Kind::Text,
        variable: None,
        default: "{session} | {chain} | {today} | {window} | {context} | {budget}",
        about: "what `codemie statusline` prints",
    },
    Key {
        name: "runaway.enabled",
        kind: Kind::Flag,
        variable: None,
        default: "",
        about: "mark running sessions that show a sign; without it, where any of the next three is set",
    },
    // A tool that fails is tried two or three times with other arguments; five failures without a success are no search.
    Key {
        name: "runaway.failures",
        kind: Kind::Count,
        variable: None,
        default: "5",
        about: "failures of one tool in a row that mark a session; 0 for never",
    },
    // Half of a usual context window: reading that much before the first edit is more than most tasks need.
    Key {
        name: "runaway.contextTokens",
        kind: Kind::Count,
        variable: None,
        default: "100000",
        about: "growth of the context without an edit that marks a session; 0 for never",
    },
    Key {
        name: "runaway.spendFactor",
        kind: Kind::Count,
        variable: None,
        default: "5",
        about: "times the session's own spending per minute that mark it; 0 for never",
    },
    Key {
        name: "agent.*.path",
        kind: Kind::Text,
        variable: Some("CODEMIE_REAL_*"),
        default: "",
        about: "the real binary; else the first on PATH",
    },
    Key {
        name: "agent.*.inject",
        kind: Kind::Flag,
        variable: None,
        default: "true",
        about: "may codemie add to its arguments (explain shows what)",
    },
    Key {
        name: "agent.codex.embedded",
        kind: Kind::Flag,
        variable: None,
        default: "true",
        about: "keep it out of its shared background server, where its conversations are not known",
    },
    // The vendor sees it: off unless asked for.
    Key {
        name: "agent.codex.originator",
        kind: Kind::Flag,
        variable: None,
        default: "false",
        about: "mark what it writes; the vendor sees it",
    },
    Key {
        name: "notify.command",
        kind: Kind::List,
        variable: None,
        default: "[]",
        about: "program and arguments to run when a turn ends, input is needed, a session ends or a budget is nearly spent",
    },
    Key {
        name: "notify.osc9",
        kind: Kind::Flag,
        variable: None,
        default: "false",
        about: "tell terminals that are attached to a background session, by OSC 9",
    },
    Key {
        name: "proxy.enabled",
        kind: Kind::Flag,
        variable: None,
        default: "false",
        about: "send agents' calls through the proxy without --proxy",
    },
    Key {
        name: "proxy.*.upstream",
        kind: Kind::Text,
        variable: None,
        default: "",
        about: "where its calls go instead of the vendor's own address",
    },
    Key {
        name: "proxy.*.auth",
        kind: Kind::Secret,
        variable: None,
        default: "",
        about: "static:VALUE, env:NAME or command:[\"argv\"]; sent to proxy.*.upstream alone",
    },
    Key {
        name: "proxy.sessionHeader",
        kind: Kind::Flag,
        variable: None,
        default: "false",
        about: "tell the upstream the session's id, by X-Codemie-Session-Id",
    },
    Key {
        name: "plan.*.price",
        kind: Kind::Dollars,
        variable: None,
        default: "",
        about: "dollars a month that you pay for it; usage and limits compare it with the list price",
    },
    Key {
        name: "mcp.anyFolder",
        kind: Kind::Flag,
        variable: None,
        default: "false",
        about: "may callers of codemie mcp start sessions outside their project",
    },
    // Nothing by default: an agent's options can take away every safeguard that its user has set.
    Key {
        name: "mcp.allowArgs",
        kind: Kind::List,
        variable: None,
        default: "[]",
        about: "agents' arguments that callers of codemie mcp may give, like \"--model *\"",
    },
    // No variable: an agent could set it for itself.
    Key {
        name: ALLOW_ANSWERS,
        kind: Kind::Flag,
        variable: None,
        default: "false",
        about: "may agents answer the dialogs of other sessions: codemie answer, and the tool answer_dialog",
    },
    Key {
        name: "mcp.maxSessions",
        kind: Kind::Count,
        variable: None,
        default: "8",
        about: "how many sessions may run at once below one caller of codemie mcp",
    },
    Key {
        name: "mcp.maxDepth",
        kind: Kind::Count,
        variable: None,
        default: "2",
        about: "how deep sessions may start sessions through codemie mcp",
    },
    Key {
        name: "mcp.idleLimit",
        kind: Kind::Limit,
        variable: None,
        default: "2h",
        about: "stop a session of codemie mcp that is idle, with nobody attached or waiting, for so long; 0 for never",
    },
    Key {
        name: "mcp.genie.*",
        kind: Kind::List,
        variable: None,
        default: "",
        about: "a command line that run of codemie mcp --compat genie knows by this name",
    },
];

/// The size of a terminal, `120x40`: columns and rows, as far as a terminal can have them.
pub fn size(text: &str) -> Option<(u16, u16)> {
    let (columns, rows) = text.trim().split_once(['x', 'X'])?;
    let side = |text: &str| text.parse().ok().filter(|side| (2..=1000).contains(side));
    Some((side(columns)?, side(rows)?))
}

/// A time after which something ends; zero for never.
pub fn limit(text: &str) -> Option<std::time::Duration> {
    if text.trim() == "0" { Some(std::time::Duration::ZERO) } else { length(text) }
}

/// The setting that `key` (`agent.claude.path`) is one of.
pub fn find(key: &str) -> Option<&'static Key> {
    KEYS.iter().find(|known| known.matches(key))
}

/// The setting that `key` is one of, where its agent, if it names one, is one of these.
pub fn find_for(key: &str, agents: &[&str]) -> Option<&'static Key> {
    find(key).filter(|known| known.agent_in(key).is_none_or(|agent| agents.contains(&agent)))
}

/// The setting that was probably meant by one that is not known.
pub fn meant(key: &str, agents: &[&str]) -> Option<String> {
    let names = KEYS.iter().flat_map(|known| known.names(agents, |_| Vec::new()));
    // Part by part, so that a long beginning lets no other end pass.
    let resembling = names.filter_map(|name| {
        let (typed, parts) = (key.split('.'), name.split('.'));
        let same_depth = typed.clone().count() == parts.clone().count();
        let all: Option<usize> = typed.zip(parts).map(|(typed, part)| mistakes(typed, part)).sum();
        Some((all.filter(|_| same_depth)?, name))
    });
    resembling.min_by_key(|(all, _)| *all).map(|(_, name)| name)
}

impl Key {
    /// The agent in a key that this line matches: `claude` in `agent.claude.path`.
    fn agent_in<'a>(&self, key: &'a str) -> Option<&'a str> {
        let at = self.name.split('.').position(|part| part == "*").filter(|_| !self.name.ends_with(".*"))?;
        key.split('.').nth(at)
    }

    fn matches(&self, key: &str) -> bool {
        // Every start asks for some sixty keys among as many: most are refused by their first letter. No name begins with `*`.
        if self.name.as_bytes().first() != key.as_bytes().first() {
            return false;
        }
        if !self.name.contains('*') {
            return self.name == key;
        }
        let (mut ours, mut theirs) = (self.name.split('.'), key.split('.'));
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) => return true,
                (Some("*"), Some(part)) if !part.is_empty() => {}
                (Some(ours), Some(theirs)) if ours == theirs => {}
                _ => return false,
            }
        }
    }

    /// The full names this line stands for; `set` are the names in the file for a table of the user's own.
    pub fn names(&self, agents: &[&str], set: impl Fn(&str) -> Vec<String>) -> Vec<String> {
        if let Some(table) = self.name.strip_suffix(".*") {
            set(table).into_iter().map(|name| format!("{table}.{name}")).collect()
        } else if self.name.contains('*') {
            agents.iter().map(|agent| self.name.replace('*', agent)).collect()
        } else {
            vec![self.name.to_owned()]
        }
    }

    /// The variable for `key`, which this line matches.
    pub fn variable_for(&self, key: &str) -> Option<String> {
        let agent = self.agent_in(key).unwrap_or_default().to_ascii_uppercase().replace('-', "_");
        self.variable.map(|variable| variable.replace('*', &agent))
    }
}

impl Kind {
    /// Reads what a person wrote in a variable or on the command line.
    pub fn parse(self, text: &str) -> Result<Value, String> {
        match self {
            Self::Flag => match text.trim().to_ascii_lowercase().as_str() {
                "1" | "true" | "yes" | "on" => Ok(true.into()),
                "0" | "false" | "no" | "off" => Ok(false.into()),
                _ => Err(self.expected()),
            },
            Self::Choice(choices) if !choices.contains(&text) => Err(self.expected()),
            Self::Time if length(text).is_none() => Err(self.expected()),
            Self::Limit if limit(text).is_none() => Err(self.expected()),
            Self::Size if size(text).is_none() => Err(self.expected()),
            Self::Count => match text.trim().parse::<u32>() {
                Ok(count) => Ok(i64::from(count).into()),
                Err(_) => Err(self.expected()),
            },
            Self::Dollars => match budget::dollars(text) {
                // A whole number stays one, as people write it.
                Ok(amount) if amount.0 % WHOLE == 0 => Ok((amount.0 / WHOLE).into()),
                Ok(amount) => Ok(amount.dollars().into()),
                Err(_) => Err(self.expected()),
            },
            Self::List => {
                let list = text.trim().parse::<Value>().map_err(|_| self.expected())?;
                self.accept(&Item::Value(list))
            }
            Self::Chord if text.parse::<Chord>().is_err() => Err(self.expected()),
            Self::Choice(_)
            | Self::Text
            | Self::Secret
            | Self::Time
            | Self::Limit
            | Self::Size
            | Self::Chord => Ok(text.into()),
        }
    }

    /// Takes what stands in the file.
    pub fn accept(self, item: &Item) -> Result<Value, String> {
        let value = item.as_value().ok_or_else(|| self.expected())?;
        let right = match self {
            Self::Flag => value.is_bool(),
            Self::Text | Self::Secret => value.is_str(),
            Self::Time => value.as_str().is_some_and(|text| length(text).is_some()),
            Self::Limit if value.as_integer() == Some(0) => return Ok("0".into()),
            Self::Limit => value.as_str().is_some_and(|text| limit(text).is_some()),
            Self::Size => value.as_str().is_some_and(|text| size(text).is_some()),
            Self::Chord => value.as_str().is_some_and(|text| text.parse::<Chord>().is_ok()),
            Self::Count => value.as_integer().is_some_and(|count| u32::try_from(count).is_ok()),
            Self::Dollars => budget::amount(item).is_some(),
            Self::List => value.as_array().is_some_and(|list| list.iter().all(Value::is_str)),
            Self::Choice(choices) => value.as_str().is_some_and(|text| choices.contains(&text)),
        };
        if right { Ok(value.clone()) } else { Err(self.expected()) }
    }

    fn expected(self) -> String {
        match self {
            Self::Flag => "must be true or false".to_owned(),
            Self::Text | Self::Secret => "must be a text in quotes".to_owned(),
            Self::Time => "must be a time like \"10s\", \"500ms\" or \"2m\"".to_owned(),
            Self::Limit => "must be a time like \"10s\", \"500ms\" or \"2m\", or 0 for never".to_owned(),
            Self::Count => "must be a whole number".to_owned(),
            Self::Dollars => "must be an amount of dollars above zero like 20 or 0.50".to_owned(),
            Self::Size => "must be columns and rows like \"120x40\"".to_owned(),
            Self::List => "must be texts in brackets, like [\"--model *\"]".to_owned(),
            Self::Chord => r#"must be keys like "ctrl-\ d", "ctrl-b d" or "ctrl-p ctrl-q""#.to_owned(),
            Self::Choice(choices) => format!("must be one of {}", choices.join(", ")),
        }
    }
}

// The name that was meant by one with a typing mistake.

/// The name that resembles `typed` most, if one does.
pub fn nearest<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let resembling = names.into_iter().filter_map(|name| Some((mistakes(typed, name)?, name)));
    resembling
        .min_by_key(|(mistakes, _)| *mistakes)
        .filter(|(mistakes, _)| *mistakes > 0)
        .map(|(_, name)| name)
}

/// How many mistakes somebody has made who meant `name`; `None` for more than one in four letters: something else was meant.
pub fn mistakes(typed: &str, name: &str) -> Option<usize> {
    let most = typed.chars().count().div_ceil(4).min(3);
    Some(distance(typed, name)).filter(|mistakes| *mistakes <= most)
}

/// How many letters have to be added, left out, changed or swapped with the next one to make one text the other, case aside.
fn distance(one: &str, other: &str) -> usize {
    let letters = |text: &str| text.to_lowercase().chars().collect::<Vec<char>>();
    let (one, other) = (letters(one), letters(other));
    let mut before = Vec::new();
    let mut above: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.iter().enumerate() {
        let mut line = vec![row + 1];
        for (column, wanted) in other.iter().enumerate() {
            let changed = above[column] + usize::from(letter != wanted);
            let mut least = changed.min(above[column + 1] + 1).min(line[column] + 1);
            if row > 0 && column > 0 && *letter == other[column - 1] && one[row - 1] == *wanted {
                let swapped: &Vec<usize> = &before;
                least = least.min(swapped[column - 1] + 1);
            }
            line.push(least);
        }
        before = std::mem::replace(&mut above, line);
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_one_agent() {
        assert_eq!(find("agent.claude.path").unwrap().name, "agent.*.path");
        for unknown in ["agent.path", "agent..path", "agent.a.b.path", "quiet.x", "", "log"] {
            assert!(find(unknown).is_none(), "{unknown}");
        }
        let key = find("agent.my-agent.path").unwrap();
        assert_eq!(key.variable_for("agent.my-agent.path").unwrap(), "CODEMIE_REAL_MY_AGENT");
        assert_eq!(find("quiet").unwrap().variable_for("quiet").unwrap(), "CODEMIE_QUIET");
    }

    #[test]
    fn an_agent_that_is_not_known_has_no_settings() {
        let agents = ["claude", "codex"];
        for (key, known, expected) in [
            ("proxy.claude.upstream", true, None),
            ("proxy.claud.upstream", false, Some("proxy.claude.upstream")),
            ("agent.codx.path", false, Some("agent.codex.path")),
            ("agent.aider.path", false, None),
            ("mcp.genie.anything", true, None),
            ("sync.intervall", false, Some("sync.interval")),
            ("wat", false, None),
        ] {
            assert_eq!(find_for(key, &agents).is_some(), known, "{key}");
            if !known {
                assert_eq!(meant(key, &agents).as_deref(), expected, "{key}");
            }
        }
    }

    #[test]
    fn no_name_begins_with_a_star() {
        assert!(KEYS.iter().all(|key| !key.name.starts_with('*')));
    }

    #[test]
    fn every_default_is_a_value_of_its_kind() {
        for key in KEYS.iter().filter(|key| !key.default.is_empty()) {
            assert!(key.kind.parse(key.default).is_ok(), "{}", key.name);
        }
    }

    #[test]
    fn a_size_is_columns_and_rows() {
        for (text, expected) in [
            ("120x40", Some((120, 40))),
            ("80X24", Some((80, 24))),
            ("1x40", None),
            ("120", None),
            ("120x99999", None),
            ("axb", None),
        ] {
            assert_eq!(size(text), expected, "{text}");
        }
    }

    #[test]
    fn a_list_holds_texts_alone() {
        for (text, right) in [
            ("[]", true),
            (" [\"--model *\", 'x'] ", true),
            ("[1]", false),
            ("--model", false),
            ("[", false),
            ("{}", false),
        ] {
            assert_eq!(Kind::List.parse(text).is_ok(), right, "{text}");
        }
    }

    #[test]
    fn an_amount_of_dollars_is_above_zero() {
        for (text, written) in [
            ("20", Some("20")),
            ("$20", Some("20")),
            ("0.5", Some("0.5")),
            ("0", None),
            ("-1", None),
            ("many", None),
        ] {
            let value = Kind::Dollars.parse(text).ok();
            assert_eq!(value.as_ref().map(ToString::to_string).as_deref(), written, "{text}");
            assert!(value.is_none_or(|value| Kind::Dollars.accept(&Item::Value(value)).is_ok()), "{text}");
        }
    }

    #[test]
    fn a_time_is_a_length_with_its_unit() {
        for (text, right) in
            [("10s", true), ("0s", true), ("500ms", true), (" 2m", true), ("10", false), ("-1s", false)]
        {
            assert_eq!(Kind::Time.parse(text).is_ok(), right, "{text}");
        }
    }
}

#[cfg(test)]
mod nearest_tests {
    use super::*;

    #[test]
    fn a_name_with_a_mistake_or_two_is_known() {
        let names = ["claude", "codex", "gemini", "upstream", "interval", "quiet"];
        for (typed, meant) in [
            ("claud", Some("claude")),
            ("cluade", Some("claude")),
            ("Codexx", Some("codex")),
            ("interwal", Some("interval")),
            ("upstraem", Some("upstream")),
            ("quite", Some("quiet")),
            ("claude", None),
            ("aider", None),
            ("wat", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, names), meant, "{typed}");
        }
    }

    #[test]
    fn a_mistake_is_a_letter_too_many_too_few_another_or_two_swapped() {
        for (one, other, expected) in
            [("", "abc", 3), ("abc", "abc", 0), ("abc", "acb", 1), ("abc", "xabd", 2), ("ABC", "abc", 0)]
        {
            assert_eq!((distance(one, other), distance(other, one)), (expected, expected), "{one} {other}");
        }
    }
}

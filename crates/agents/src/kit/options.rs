//! Reading an agent's arguments as its own parser would: which are flags, which are their values, which are operands.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use types::AgentSessionId;

/// How many values a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arity {
    None,
    One,
    /// The next argument, unless that is a flag.
    Optional,
    /// All that follow, up to the next flag.
    Many,
}

/// A flag and its spellings.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Flag {
    pub(crate) names: &'static [&'static str],
    pub(crate) arity: Arity,
}

pub(crate) const fn flag(names: &'static [&'static str], arity: Arity) -> Flag {
    Flag { names, arity }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    /// A known flag, by its first spelling, with its value if it has one.
    Flag(&'static str, Option<&'a [u8]>),
    Operand(&'a [u8]),
    /// After `--`: text, never a subcommand.
    Text(&'a [u8]),
    /// An unknown flag: the next argument may be its value.
    Unknown,
}

/// Arguments, split by a table of flags.
#[derive(Debug)]
pub(crate) struct Arguments<'a>(pub(crate) Vec<Item<'a>>);

impl<'a> Arguments<'a> {
    pub(crate) fn read(args: &'a [OsString], table: &'static [Flag]) -> Self {
        Self(read(args, table))
    }

    pub(crate) fn read_as_commander(args: &'a [OsString], table: &'static [Flag]) -> Self {
        Self(read_as_commander(args, table))
    }

    /// Whether a flag is given, by its first spelling.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|item| matches!(item, Item::Flag(known, _) if *known == name))
    }

    /// The value of a flag, where it is given with one.
    pub(crate) fn value(&self, name: &str) -> Option<&'a [u8]> {
        self.0.iter().find_map(|item| match item {
            Item::Flag(known, value) if *known == name => *value,
            _ => None,
        })
    }

    /// The value that a flag is given last; empty where it is given without one.
    pub(crate) fn last(&self, name: &str) -> Option<&'a [u8]> {
        self.0.iter().rev().find_map(|item| match item {
            Item::Flag(known, value) if *known == name => Some(value.unwrap_or_default()),
            _ => None,
        })
    }

    pub(crate) fn operand(&self, at: usize) -> Option<&'a str> {
        let mut operands = self.0.iter().filter_map(|item| match item {
            Item::Operand(word) => Some(*word),
            _ => None,
        });
        std::str::from_utf8(operands.nth(at)?).ok()
    }

    pub(crate) fn has_text(&self) -> bool {
        self.0.iter().any(|item| matches!(item, Item::Text(_)))
    }

    pub(crate) fn has_unknown(&self) -> bool {
        self.0.contains(&Item::Unknown)
    }
}

/// A uuid in the only form that agents take, with dashes, spelled as given.
pub(crate) fn uuid(text: &[u8]) -> Option<AgentSessionId> {
    let text = std::str::from_utf8(text).ok()?;
    (text.len() == 36 && uuid::Uuid::try_parse(text).is_ok()).then(|| AgentSessionId(text.to_owned()))
}

/// Splits arguments by a table of flags.
pub(crate) fn read<'a>(args: &'a [OsString], table: &'static [Flag]) -> Vec<Item<'a>> {
    let mut items = Vec::with_capacity(args.len());
    let mut rest = args.iter().map(|arg| arg.as_bytes()).peekable();
    while let Some(arg) = rest.next() {
        if arg == b"--" {
            items.extend(rest.map(Item::Text));
            break;
        }
        if !looks_like_a_flag(arg) {
            items.push(Item::Operand(arg));
            continue;
        }
        let (name, attached) = split_value(arg, table);
        let Some(known) = find(name, table) else {
            items.push(Item::Unknown);
            continue;
        };
        let mut take = || rest.next_if(|next| !looks_like_a_flag(next));
        let value = match (known.arity, attached) {
            (_, Some(value)) => Some(value),
            (Arity::None, None) => None,
            (Arity::One, None) => rest.next(),
            (Arity::Optional, None) => take(),
            (Arity::Many, None) => {
                let first = take();
                while take().is_some() {}
                first
            }
        };
        items.push(Item::Flag(known.names[0], value));
    }
    items
}

/// The same as the library commander does it: flags of one letter in groups, a value for a flag that takes none is an unknown
/// flag, and the values of a flag that takes several begin with the next argument, whatever that looks like.
fn read_as_commander<'a>(args: &'a [OsString], table: &'static [Flag]) -> Vec<Item<'a>> {
    let mut items = Vec::with_capacity(args.len());
    let mut rest = args.iter().map(|arg| arg.as_bytes()).peekable();
    let mut more_values = false;
    while let Some(arg) = rest.next() {
        if arg == b"--" {
            items.extend(rest.map(Item::Text));
            break;
        }
        if !looks_like_a_flag(arg) {
            if !more_values {
                items.push(Item::Operand(arg));
            }
            continue;
        }
        more_values = false;
        // What is left of a group of letters.
        let mut letters = &arg[1..];
        loop {
            let name = [b"-", letters].concat();
            let exact = find(&name, table).map(|flag| (flag, None));
            let attached = || attached_value(letters, table).map(|(flag, value)| (flag, Some(value)));
            let Some((flag, attached)) = exact.or_else(attached) else {
                items.push(Item::Unknown);
                break;
            };
            if let (Arity::None, Some(further)) = (flag.arity, attached) {
                items.push(Item::Flag(flag.names[0], None));
                letters = further;
                continue;
            }
            let value = attached.or_else(|| match flag.arity {
                Arity::None => None,
                Arity::One | Arity::Many => rest.next(),
                Arity::Optional => rest.next_if(|next| !looks_like_a_flag(next)),
            });
            more_values = flag.arity == Arity::Many && attached.is_none();
            items.push(Item::Flag(flag.names[0], value));
            break;
        }
    }
    items
}

/// `pc`: a flag of one letter and what stands behind it. `-model=opus`, of `--model=opus`: only where the flag takes a value.
fn attached_value<'a>(letters: &'a [u8], table: &'static [Flag]) -> Option<(&'static Flag, &'a [u8])> {
    if let Some(long) = letters.strip_prefix(b"-") {
        let at = memchr::memchr(b'=', long)?;
        let flag = find(&[b"--", &long[..at]].concat(), table)?;
        return (flag.arity != Arity::None).then_some((flag, &long[at + 1..]));
    }
    let flag = find(&[b'-', *letters.first()?], table)?;
    (letters.len() > 1).then_some((flag, &letters[1..]))
}

/// `-` alone and the empty string are operands.
fn looks_like_a_flag(arg: &[u8]) -> bool {
    arg.len() > 1 && arg[0] == b'-'
}

fn find(name: &[u8], table: &'static [Flag]) -> Option<&'static Flag> {
    table.iter().find(|flag| flag.names.iter().any(|known| known.as_bytes() == name))
}

/// `--name=value`, and `-nvalue` for a short flag that takes one.
fn split_value<'a>(arg: &'a [u8], table: &'static [Flag]) -> (&'a [u8], Option<&'a [u8]>) {
    if arg.starts_with(b"--") {
        return match memchr::memchr(b'=', arg) {
            Some(at) => (&arg[..at], Some(&arg[at + 1..])),
            None => (arg, None),
        };
    }
    let takes_value = |name| find(name, table).is_some_and(|flag| flag.arity != Arity::None);
    if arg.len() > 2 && takes_value(&arg[..2]) {
        return (&arg[..2], Some(arg[2..].strip_prefix(b"=").unwrap_or(&arg[2..])));
    }
    (arg, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    static TABLE: [Flag; 5] = [
        flag(&["--quiet", "-q"], Arity::None),
        flag(&["--model", "-m"], Arity::One),
        flag(&["--resume", "-r"], Arity::Optional),
        flag(&["--image", "-i"], Arity::Many),
        flag(&["--help", "-h"], Arity::None),
    ];

    #[test]
    fn flags_values_and_operands_are_distinguished() {
        use Item::{Flag, Operand, Text, Unknown};
        let cases: &[(&[&str], &[Item<'_>])] = &[
            (&["prompt"], &[Operand(b"prompt")]),
            (&["-m", "exec", "hi"], &[Flag("--model", Some(b"exec")), Operand(b"hi")]),
            (&["--model=exec", "hi"], &[Flag("--model", Some(b"exec")), Operand(b"hi")]),
            (&["-mexec"], &[Flag("--model", Some(b"exec"))]),
            (&["-r", "-q"], &[Flag("--resume", None), Flag("--quiet", None)]),
            (&["-r", "latest"], &[Flag("--resume", Some(b"latest"))]),
            (
                &["-i", "a", "b", "-q", "c"],
                &[Flag("--image", Some(b"a")), Flag("--quiet", None), Operand(b"c")],
            ),
            (&["--new-flag", "x"], &[Unknown, Operand(b"x")]),
            (&["--", "-q", "exec"], &[Text(b"-q"), Text(b"exec")]),
            (&["-", ""], &[Operand(b"-"), Operand(b"")]),
            (&["-m"], &[Flag("--model", None)]),
        ];
        for (args, expected) in cases {
            let args: Vec<OsString> = args.iter().map(OsString::from).collect();
            assert_eq!(&read(&args, &TABLE), expected, "{args:?}");
        }
    }
}

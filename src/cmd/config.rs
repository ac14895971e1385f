//! `codemie config path|show|get|set|unset`.

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::json;
use toml_edit::Value;
use unicode_width::UnicodeWidthStr;

use super::budget::refuse_inside_a_run;
use crate::cli::{Config, ConfigAction};
use crate::failure::shown;
use config::keys::{self, KEYS};
use config::{Settings, Source, edit};
use format::counted;
use format::output::table::padded;
use format::output::wrap::{hanging, wrap};
use format::output::{Style, json};
use os::clock::{Clock, SystemClock};
use os::home::{Home, own_var};
use report::open::send_leftovers;
use runtime::launch::receivers;
use store::Store;

/// A usage error of a management command.
const USAGE: u8 = 2;

pub fn run(
    args: &Config,
    home: &Home,
    agents: &[&str],
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let file = home.config_file();
    let mut settings = Settings::read(Some(&file), own_var);
    match args.action.as_ref().unwrap_or(&ConfigAction::Show { json: false }) {
        ConfigAction::Path => writeln!(out, "{}", file.display())?,
        ConfigAction::Show { json } => show(&mut settings, agents, *json, out)?,
        ConfigAction::Get { key } => match settings.get(key) {
            Some((value, _)) => writeln!(out, "{}", plain(&value))?,
            None if keys::find(key).is_some() => {}
            None => {
                let line = format!("codemie: {}", edit::Error::unknown(key, agents));
                write!(err, "{}", shown(&line))?;
                return Ok(ExitCode::from(USAGE));
            }
        },
        ConfigAction::Set { key, value } => {
            if key == keys::ALLOW_ANSWERS && value.trim() != "false" {
                refuse_inside_a_run(home, "let agents answer dialogs")?;
            }
            return written(edit::set(&file, key, value, agents), home, key, err);
        }
        ConfigAction::Unset { key } => {
            return written(edit::unset(&file, key, agents), home, key, err);
        }
    }
    for problem in &settings.problems {
        write!(err, "{}", shown(&format!("codemie: {problem}")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes a changed receiver known. Running sessions watch the store, not the file, and may have no event for a while, so the
/// events that a new receiver needs are sent now. Where this fails, the next command does it.
fn announce_to_runs(home: &Home, key: &str, err: &mut dyn Write) -> io::Result<()> {
    if !home.database().exists() {
        return Ok(());
    }
    let sinks = receivers(home);
    let announced = Store::open(home, SystemClock.now()).and_then(|mut store| {
        let before = delivery::reconfigure(&mut store, key, sinks.as_ref())?;
        if let Some(sinks) = &sinks {
            send_leftovers(&mut store, sinks);
        }
        Ok(before)
    });
    match announced {
        Ok(before @ 1..) => {
            let line = format!(
                "codemie: {} that ended before this {} not sent there; to send them too: codemie sync --backfill",
                counted(usize::try_from(before).unwrap_or(0), "session"),
                if before == 1 { "is" } else { "are" },
            );
            write!(err, "{}", shown(&line))
        }
        Ok(_) => Ok(()),
        Err(error) => {
            tracing::warn!("running sessions do not know of the new {key}: {error}");
            Ok(())
        }
    }
}

fn written(
    done: Result<(), edit::Error>,
    home: &Home,
    key: &str,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    match done {
        Err(error @ (edit::Error::Unknown { .. } | edit::Error::Value { .. })) => {
            write!(err, "{}", shown(&format!("codemie: {error}")))?;
            Ok(ExitCode::from(USAGE))
        }
        done => {
            done?;
            announce_to_runs(home, key, err)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn show<V: Fn(&str) -> Option<std::ffi::OsString>>(
    settings: &mut Settings<V>,
    agents: &[&str],
    as_json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let rows: Vec<_> = KEYS
        .iter()
        .flat_map(|key| key.names(agents, |table| settings.names_in(table)))
        .collect::<Vec<_>>()
        .into_iter()
        .map(|key| {
            let value = settings.get(&key).map(|(value, source)| (masked(&key, value), source));
            let about = keys::find(&key).map_or("", |known| known.about);
            Row { key, value, about }
        })
        .collect();
    if as_json {
        let entries = rows.iter().map(|Row { key, value, about }| {
            json!({"key": key, "value": value.as_ref().map(|(value, _)| typed(value)), "source": from(value.as_ref()), "about": about})
        });
        out.write_all(json::pretty(&entries.collect::<Vec<_>>())?.as_bytes())?;
        return Ok(());
    }
    write!(out, "{}", drawn(&rows, Style::of_stdout()))?;
    Ok(())
}

/// One setting as it is shown.
struct Row {
    key: String,
    value: Option<(Value, Source)>,
    about: &'static str,
}

/// Values longer than this push what follows to the right, instead of everything in every line.
const VALUE: usize = 40;

/// With less room than this beside the values, texts stand below them.
const LEAST: usize = 24;

/// As in the file, in columns. A text that does not fit beside its value is folded, or stands below the value.
fn drawn(rows: &[Row], style: Style) -> String {
    let value = |row: &Row| {
        row.value
            .as_ref()
            .map_or(String::new(), |(value, _)| format!("= {}", value.clone().decorated("", "")))
    };
    let wide = rows.iter().map(|row| row.key.len()).max().unwrap_or(0);
    let room = rows.iter().map(|row| value(row).width()).max().unwrap_or(0).min(VALUE);
    let line = |row: &Row| {
        let about = format!("{}: {}", from(row.value.as_ref()), row.about);
        let mut line = padded(&row.key, wide) + " ";
        line += &padded(&value(row), room);
        let margin = line.width() + GAP;
        if style.columns >= margin + LEAST {
            let about = wrap(&about, style.columns.saturating_sub(margin + MARK.len()));
            return format!(
                "{line}{:GAP$}{MARK}{}\n",
                "",
                about.join(&format!("\n{}{MARK}", " ".repeat(margin)))
            );
        }
        let about = wrap(&about, style.columns.saturating_sub(GAP + MARK.len()));
        let line = format!("{} {}", row.key, value(row));
        let about = about.join(&format!("\n{:GAP$}{MARK}", ""));
        format!("{}{:GAP$}{MARK}{about}\n", hanging(line.trim_end(), style.columns, GAP), "")
    };
    rows.iter().map(line).collect()
}

const GAP: usize = 2;
/// Stands before texts that are comments in the file.
const MARK: &str = "# ";

/// A list may be read over a shoulder, or pasted into a question; `config get` prints the secret itself.
fn masked(key: &str, value: Value) -> Value {
    let secret = keys::find(key).is_some_and(|known| known.kind == keys::Kind::Secret);
    if secret { "(hidden)".into() } else { value }
}

fn from(value: Option<&(Value, Source)>) -> &str {
    match value {
        Some((_, Source::Variable(variable))) => variable,
        Some((_, Source::File)) => "config.toml",
        Some((_, Source::Default)) => "default",
        None => "not set",
    }
}

/// As JSON has it.
fn typed(value: &Value) -> serde_json::Value {
    match value {
        Value::Boolean(flag) => json!(flag.value()),
        Value::Integer(number) => json!(number.value()),
        other => json!(plain(other)),
    }
}

/// A text without its quotes, for scripts.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.clone().decorated("", "").to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_get_numbers_as_numbers() {
        let values: [Value; 3] = [256.into(), true.into(), "30s".into()];
        assert_eq!(values.map(|value| typed(&value)), [json!(256), json!(true), json!("30s")]);
        assert_eq!(from(None), "not set");
    }

    #[test]
    fn every_line_says_its_value_where_it_is_from_and_what_it_is_for_in_columns() {
        let style = |columns| Style { colour: false, columns };
        let row =
            |key: &str, value: Option<(Value, Source)>| Row { key: key.into(), value, about: "what it is" };
        let rows = [
            row("quiet", Some((false.into(), Source::Default))),
            row("backend.url", None),
            row("log.level", Some(("info".into(), Source::File))),
        ];
        assert_eq!(
            drawn(&rows, style(80)),
            "quiet       = false   # default: what it is\n\
             backend.url           # not set: what it is\n\
             log.level   = \"info\"  # config.toml: what it is\n"
        );
        assert_eq!(drawn(&rows[1..2], style(40)), "backend.url   # not set: what it is\n");
        assert_eq!(drawn(&rows[1..2], style(30)), "backend.url\n  # not set: what it is\n");
        let long = [Row { about: "what it is, and what it is good for", ..row("quiet", None) }];
        let folded = "quiet   # not set: what it is, and\n        # what it is good for\n";
        assert_eq!(drawn(&long, style(36)), folded);
    }
}

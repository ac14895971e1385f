//! `codemie config path|show|get|set`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::bail;
use serde_json::json;
use toml_edit::Value;

use crate::cli::{Config, ConfigAction};
use crate::config::keys::{self, KEYS};
use crate::config::{Settings, Source, edit};
use crate::home::Home;

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
    let mut settings = Settings::read(Some(&file), |name| std::env::var_os(name));
    match &args.action {
        ConfigAction::Path => writeln!(out, "{}", file.display())?,
        ConfigAction::Show { json } => show(&mut settings, agents, *json, out)?,
        ConfigAction::Get { key } => match settings.get(key) {
            Some((value, _)) => writeln!(out, "{}", plain(&value))?,
            None if keys::find(key).is_some() => {}
            None => bail!("there is no setting {key}; `codemie config show` lists them"),
        },
        ConfigAction::Set { key, value } => return written(edit::set(&file, key, value), err),
        ConfigAction::Unset { key } => return written(edit::unset(&file, key), err),
    }
    for problem in &settings.problems {
        writeln!(err, "codemie: {problem}")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn written(done: Result<(), edit::Error>, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match done {
        Err(error @ (edit::Error::Unknown { .. } | edit::Error::Value { .. })) => {
            writeln!(err, "codemie: {error}")?;
            Ok(ExitCode::from(USAGE))
        }
        done => Ok(done.map(|()| ExitCode::SUCCESS)?),
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
        .flat_map(|key| key.names(agents))
        .map(|key| {
            let value = settings.get(&key).map(|(value, source)| (masked(&key, value), source));
            let about = keys::find(&key).map_or("", |known| known.about);
            Row { key, value, about }
        })
        .collect();
    if as_json {
        let entries = rows.iter().map(|Row { key, value, about }| {
            let (value, source) = value.as_ref().map_or((None, "default".to_owned()), |(value, source)| {
                (Some(value.as_bool().map_or_else(|| json!(plain(value)), |flag| json!(flag))), name(source))
            });
            json!({"key": key, "value": value, "source": source, "about": about})
        });
        writeln!(out, "{}", serde_json::to_string_pretty(&entries.collect::<Vec<_>>())?)?;
        return Ok(());
    }
    write!(out, "{}", drawn(&rows))?;
    Ok(())
}

/// One setting as it is shown.
struct Row {
    key: String,
    value: Option<(Value, Source)>,
    about: &'static str,
}

/// Values longer than this push what follows to the right, instead of everything in every line.
const VALUE: usize = 24;

/// As the file would say it, in columns.
fn drawn(rows: &[Row]) -> String {
    let value = |row: &Row| {
        row.value
            .as_ref()
            .map_or(String::new(), |(value, _)| format!("= {}", value.clone().decorated("", "")))
    };
    let wide = rows.iter().map(|row| row.key.len()).max().unwrap_or(0);
    let room = rows.iter().map(|row| value(row).len()).max().unwrap_or(0).min(VALUE);
    let line = |row: &Row| {
        let source = row.value.as_ref().map_or("not set".to_owned(), |(_, source)| name(source));
        format!("{:wide$} {:room$}  # {source}: {}\n", row.key, value(row), row.about)
    };
    rows.iter().map(line).collect()
}

/// A list may be read over a shoulder, or sent in with a question; whoever wants the secret itself asks for it by name.
fn masked(key: &str, value: Value) -> Value {
    let secret = keys::find(key).is_some_and(|known| known.kind == keys::Kind::Secret);
    if secret { "(hidden)".into() } else { value }
}

fn name(source: &Source) -> String {
    match source {
        Source::Variable(variable) => variable.clone(),
        Source::File => "config.toml".to_owned(),
        Source::Default => "default".to_owned(),
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
    fn every_line_says_its_value_where_it_is_from_and_what_it_is_for_in_columns() {
        let row =
            |key: &str, value: Option<(Value, Source)>| Row { key: key.into(), value, about: "what it is" };
        let rows = [
            row("quiet", Some((false.into(), Source::Default))),
            row("backend.url", None),
            row("log.level", Some(("info".into(), Source::File))),
        ];
        assert_eq!(
            drawn(&rows),
            "quiet       = false   # default: what it is\n\
             backend.url           # not set: what it is\n\
             log.level   = \"info\"  # config.toml: what it is\n"
        );
    }
}

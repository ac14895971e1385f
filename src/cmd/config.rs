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
        ConfigAction::Set { key, value } => match edit::set(&file, key, value) {
            Err(error @ (edit::Error::Unknown { .. } | edit::Error::Value { .. })) => {
                writeln!(err, "codemie: {error}")?;
                return Ok(ExitCode::from(USAGE));
            }
            done => return Ok(done.map(|()| ExitCode::SUCCESS)?),
        },
    }
    for problem in &settings.problems {
        writeln!(err, "codemie: {problem}")?;
    }
    Ok(ExitCode::SUCCESS)
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
            (key, value)
        })
        .collect();
    if as_json {
        let entries = rows.iter().map(|(key, value)| {
            let (value, source) = value.as_ref().map_or((None, "default".to_owned()), |(value, source)| {
                (Some(value.as_bool().map_or_else(|| json!(plain(value)), |flag| json!(flag))), name(source))
            });
            json!({"key": key, "value": value, "source": source})
        });
        writeln!(out, "{}", serde_json::to_string_pretty(&entries.collect::<Vec<_>>())?)?;
        return Ok(());
    }
    let width = rows.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    for (key, value) in rows {
        match value {
            Some((value, source)) => {
                writeln!(out, "{key:width$} = {}  # {}", value.decorated("", ""), name(&source))?;
            }
            None => writeln!(out, "{key:width$}   # not set")?,
        }
    }
    Ok(())
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

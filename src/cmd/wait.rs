//! `codemie wait`: until a turn ends, the agent asks something, or the session ends.

use std::io::Write;
use std::process::ExitCode;

use serde::Serialize;

use super::NOT_KNOWN_YET;
use crate::cli::Wait;
use format::output::json;
use format::text::clean;
use os::home::Home;
use report::find::LiveTarget;
use report::find::session;
use report::open::open;
use report::wait::{WaitFor, Waited, wait};
use runtime::launch::Origin;
use types::{LiveState, SessionId};

/// The result of a wait whose time is up.
const PENDING: &str = "pending";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PrintedWait<'a> {
    result: &'a str,
    session_id: SessionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    redirected_from: Option<SessionId>,
    state: Option<&'a LiveState>,
    cursor: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<&'static str>,
}

pub fn run(args: &Wait, home: &Home, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let origin = Origin::of_this_process();
    let mut store = open(home)?;
    let targets = store.read(|view| {
        let target = |named: &String| anyhow::Ok(LiveTarget::of(view, home, session(view, named, &origin)?)?);
        args.sessions.iter().map(target).collect::<Result<Vec<_>, _>>()
    })?;
    let wanted = WaitFor { until: args.until.clone(), cursor: args.cursor.clone(), timeout: args.timeout };
    let waited = wait(home, &mut store, &origin, &targets, &wanted)?;
    let name = store.read(|view| view.session(waited.session))?.map(|row| row.name);
    print(args, &waited, name.as_deref(), out, err)?;
    Ok(ExitCode::from(if waited.result.is_some() { 0 } else { NOT_KNOWN_YET }))
}

fn print(
    args: &Wait,
    waited: &Waited,
    name: Option<&str>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<()> {
    let result = waited.result.map_or(PENDING, |moment| moment.as_str());
    if args.json {
        let answer = PrintedWait {
            result,
            session_id: waited.session,
            redirected_from: waited.redirected_from,
            state: waited.state.as_ref(),
            cursor: waited.cursor.to_string(),
            answer: waited.answer(),
        };
        out.write_all(json::line(&answer)?.as_bytes())?;
        return Ok(());
    }
    let name = name.map_or_else(|| waited.session.to_string(), |name| clean(name).into_owned());
    if waited.redirected_from.is_some() {
        writeln!(err, "codemie: it went on in {name}")?;
    }
    let state = waited
        .state
        .as_ref()
        .map(|state| format!(" ({}: {})", state.is, clean(&state.why)))
        .unwrap_or_default();
    let answer = waited.answer().map(|answer| format!(" (answer {answer})")).unwrap_or_default();
    writeln!(out, "{result}  {name}{state}{answer}  {}", waited.cursor)?;
    Ok(())
}

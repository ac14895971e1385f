//! `codemie send`: types a text into a background session, and says what became of it.

use std::io::{Read, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;

use super::NOT_KNOWN_YET;
use crate::cli::Send;
use format::output::{Colour, Style, json};
use format::shell;
use format::text::clean;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use report::find::session;
use report::find::{LiveTarget, where_it_runs};
use report::open::open;
use runtime::launch::Origin;
use runtime::remote::RemoteError;
use runtime::remote::protocol::{SendAnswer, SendRequest};
use runtime::remote::send;
use runtime::remote::send::{Recipient, SendError, send};
use store::Store;
use types::{Delivery, SessionId};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    result: Delivery,
    why: &'a str,
    session_id: SessionId,
    redirected_from: Option<SessionId>,
    cursor: &'a str,
}

pub fn run(args: &Send, home: &Home, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let text = if args.text == "-" { standard_input()? } else { args.text.clone() };
    let key = args.idempotency_key.clone();
    let (target, answer) =
        to_session(home, &Origin::of_this_process(), &args.session, text, key, args.timeout)?;
    print(&args.session, args.json, &target, &answer, out, err)?;
    Ok(exit_code(answer.result))
}

/// Sends a text to the session that is named; the session, and what became of the text.
pub(super) fn to_session(
    home: &Home,
    origin: &Origin,
    wanted: &str,
    text: String,
    idempotency_key: Option<String>,
    timeout: Duration,
) -> anyhow::Result<(LiveTarget, SendAnswer)> {
    let mut store = open(home)?;
    let target = find_target(&mut store, home, origin, wanted)?;
    let name = &target.session.name;
    let Some(run) = &target.run else {
        bail!(
            "{name} has ended, so nothing can be sent to it; `codemie resume --detach {}` continues it in the background",
            shell::word(name)
        );
    };
    let to = Recipient { run: run.id, session: target.session.id };
    let request = SendRequest {
        text,
        idempotency_key,
        timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
    };
    let answer = send(home, &mut store, to, &request, SystemClock.now()).map_err(|error| match error {
        SendError::Remote(RemoteError::NoHost) => anyhow::anyhow!(
            "{name} runs {}, where only its user can type; a session that was started with `codemie run --detach` takes texts",
            where_it_runs(run)
        ),
        other => other.into(),
    })?;
    Ok((target, answer))
}

/// The session that is meant, and the run it is in.
pub(super) fn find_target(
    store: &mut Store,
    home: &Home,
    origin: &Origin,
    named: &str,
) -> anyhow::Result<LiveTarget> {
    store.read(|view| {
        let named = session(view, named, origin)?;
        Ok(LiveTarget::of(view, home, named)?)
    })
}

pub(super) fn exit_code(result: Delivery) -> ExitCode {
    ExitCode::from(match result {
        Delivery::Accepted | Delivery::Queued | Delivery::TurnStarted => 0,
        Delivery::Rejected => 1,
        Delivery::Unknown => NOT_KNOWN_YET,
    })
}

/// No more than can be sent, so that an endless input ends.
fn standard_input() -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let most = u64::try_from(send::LONGEST).unwrap_or(u64::MAX);
    std::io::stdin().take(most + 1).read_to_end(&mut bytes).context("cannot read standard input")?;
    String::from_utf8(bytes).context("standard input is no UTF-8 text")
}

/// What became of a text, or of a choice. `named`: the session as the caller called it.
pub(super) fn print(
    named: &str,
    as_json: bool,
    target: &LiveTarget,
    answer: &SendAnswer,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<()> {
    let session = answer.session.unwrap_or(target.session.id);
    if as_json {
        let answer = Answer {
            result: answer.result,
            why: &answer.why,
            session_id: session,
            redirected_from: target.redirected_from,
            cursor: &answer.cursor,
        };
        out.write_all(json::line(&answer)?.as_bytes())?;
        return Ok(());
    }
    if target.redirected_from.is_some() {
        writeln!(err, "codemie: {} went on in {}", clean(named), clean(&target.session.name))?;
    }
    let colour = match answer.result {
        Delivery::Accepted | Delivery::Queued | Delivery::TurnStarted => Colour::Good,
        Delivery::Rejected => Colour::Bad,
        Delivery::Unknown => Colour::Warning,
    };
    let result = Style::of_stdout().paint(answer.result.as_str(), colour);
    writeln!(out, "{result}: {}", clean(&answer.why))?;
    Ok(())
}

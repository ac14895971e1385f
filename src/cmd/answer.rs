//! `codemie answer`: makes a choice in the dialog that a background session shows, and says what became of it.

use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;

use anyhow::bail;
use serde::Serialize;

use super::{Failure, USAGE, send};
use crate::cli::Answer;
use format::output::{Colour, Style, json};
use format::shell;
use format::text::clean;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use report::find::{LiveTarget, where_it_runs};
use report::open::open;
use report::question::Question;
use runtime::launch::{Origin, lineage, settings};
use runtime::remote::protocol::AnswerRequest;
use runtime::remote::send::{Recipient, answer};
use runtime::remote::{RemoteError, client};
use store::session::approval::refusal;
use store::{BootAndPidNs, RunRow};
use types::SessionId;

/// What is asked, where no choice is made.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    session_id: SessionId,
    redirected_from: Option<SessionId>,
    #[serde(flatten)]
    question: Question,
}

pub fn run(args: &Answer, home: &Home, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let origin = Origin::of_this_process();
    let mut store = open(home)?;
    let target = send::find_target(&mut store, home, &origin, &args.session)?;
    let name = &target.session.name;
    let Some(run) = &target.run else { bail!("{name} has ended, so it asks nothing") };
    let (Some(dialog), Some(choice)) = (&args.dialog, args.choice) else {
        return show(args, home, &target, run, out);
    };
    let allowed = settings(Some(home), &origin).mcp.allow_answers;
    let refused = store.read(|view| {
        let by = lineage(&origin).approver(&view.live_runs()?, &BootAndPidNs::here());
        refusal(view, by, &target.session, run, allowed)
    })?;
    if let Some(refused) = refused {
        return Err(Failure { code: USAGE, message: refused.to_string() }.into());
    }
    let request = AnswerRequest { dialog: dialog.clone(), choice };
    let to = Recipient { run: run.id, session: target.session.id };
    let answer =
        answer(home, to, &request, SystemClock.now()).map_err(|error| in_a_terminal(error, name, run))?;
    send::print(&args.session, args.json, &target, &answer, out, err)?;
    Ok(send::exit_code(answer.result))
}

fn in_a_terminal(error: RemoteError, name: &str, run: &RunRow) -> anyhow::Error {
    match error {
        RemoteError::NoHost => anyhow::anyhow!(
            "{name} runs {}, where only its user can answer; a session that was started with `codemie run --detach` takes answers",
            where_it_runs(run)
        ),
        other => other.into(),
    }
}

/// What can be chosen, and the command that chooses.
fn show(
    args: &Answer,
    home: &Home,
    target: &LiveTarget,
    run: &RunRow,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let name = &target.session.name;
    // Also says where a session runs that no host serves.
    client::state(home, run.id).map_err(|error| in_a_terminal(error, name, run))?;
    let Some(question) = Question::of_runs(home, &[run.id]) else {
        bail!("{name} asks nothing at the moment")
    };
    if args.json {
        let redirected_from = target.redirected_from;
        let asked = Asked { session_id: target.session.id, redirected_from, question };
        out.write_all(json::pretty(&asked)?.as_bytes())?;
    } else {
        out.write_all(draw_question(&question, name, Style::of_stdout()).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

// What an agent asks, on a terminal: its screen, and how to answer.

/// The screen, and below it the choices with the command that makes one.
pub(super) fn draw_question(question: &Question, name: &str, style: Style) -> String {
    let mut text = String::new();
    for row in &question.screen {
        text += &clean(row);
        text.push('\n');
    }
    text.push('\n');
    text + &how_to_answer(question, name, style)
}

fn how_to_answer(question: &Question, name: &str, style: Style) -> String {
    let word = shell::word(name);
    match &question.dialog {
        Some(dialog) if !dialog.choices.is_empty() => {
            let command = format!("codemie answer {word} --dialog {} CHOICE", dialog.hash);
            let mut text = style.paint(&command, Colour::Heading) + "\n";
            for choice in &dialog.choices {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "  {}  {}", choice.number, clean(&choice.label));
            }
            text
        }
        _ => style.fold(&format!(
            "It asks something that cannot be answered by a number: `codemie attach {word}` and answer there."
        )),
    }
}

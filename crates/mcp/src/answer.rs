//! The tool that makes a choice in a session's dialog. It exists only where the user allows it (`mcp.allowAnswers`).

use super::error::{ErrorCode, ToolError};
use super::forms::{AnswerDialog, SentMessage};
use super::rules;
use super::speak::has_ended;
use super::tools::{LiveRun, Tools};
use runtime::launch::is_shared_daemon;
use runtime::remote::protocol::AnswerRequest;
use runtime::remote::send::Recipient;
use store::Realm;
use store::session::approval::{Approver, Refusal, refusal};
use store::session::lineage::Lineage;

impl Tools {
    pub(super) fn answer_dialog(&self, args: &AnswerDialog) -> Result<SentMessage, ToolError> {
        rules::word("dialog", &args.dialog)?;
        let run = self.look(self.given.scope, |view, caller, filter| {
            let row = self.meant_session(view, filter, &args.session)?;
            let target = self.live_target(view, &row)?;
            let live = target.run.clone().ok_or_else(|| has_ended(&row.name))?;
            let run = LiveRun::of(target, &row).ok_or_else(|| has_ended(&row.name))?;
            // Without variables, like the caller itself: an agent could set those of its own server.
            let lineage = Lineage::of(self.given.server, None, &*self.given.processes, &is_shared_daemon);
            let by = match caller.run {
                Some(caller) => Approver::Inside(caller.id),
                None => lineage.approver(&view.live_runs()?, &Realm::here()),
            };
            match refusal(view, by, &run.session, &live, self.given.config.allow_answers)? {
                Some(why) => Err(refused(why)),
                None => Ok(run),
            }
        })?;
        let request = AnswerRequest { dialog: args.dialog.clone(), choice: args.choice };
        let to = Recipient { run: run.id, session: run.session.id };
        let answer = self.given.live.answer(to, &request)?;
        Ok(SentMessage::of(answer, &run))
    }
}

fn refused(why: Refusal) -> ToolError {
    let next = match why {
        Refusal::Own | Refusal::Ancestor | Refusal::Unknown => "ask the user to answer it",
        Refusal::NotAllowed => "ask the user to answer it, or to set mcp.allowAnswers",
    };
    ToolError::new(ErrorCode::Refused, why.to_string(), next)
}

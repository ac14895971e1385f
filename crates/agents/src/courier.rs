//! A second agent for tests alone: what the scribe does not need. Its first conversation is assigned by a path, one process holds
//! several conversations at once, and the log that each process writes says which is in front.
//!
//! The courier keeps everything in `$COURIER_HOME`. `logs/PID.log` has a line `front ID` for each change. `ID.mail` holds a
//! conversation: `# ID`, then a row per line as the scribe's. `--mail PATH` names the file of a new one.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::scribe::{self, Scribe, TalkLines};
use super::transcript::Reader;
use super::{
    Agent, Assigned, Conversation, ConversationFiles, Injection, Invocation, InvocationKind, Launch,
    LaunchStart, Live, Observe, Observer, Proxied, Var,
};
use crate::correlate::Beginning;
use crate::kit::process_log::{ProcessLogFormat, ProcessLogObserver};
use types::AgentSessionId;

#[derive(Debug)]
pub struct Courier;

impl Agent for Courier {
    fn name(&self) -> &'static str {
        "courier"
    }

    fn product(&self) -> &'static str {
        "the courier"
    }
}

impl Launch for Courier {
    fn classify(&self, _: &[OsString]) -> Invocation {
        Invocation {
            kind: InvocationKind::Interactive,
            session: Conversation::Fresh,
            injectable: true,
            persistent: true,
            prompts: false,
        }
    }

    fn inject(&self, start: &LaunchStart<'_>) -> Option<Injection> {
        let file = PathBuf::from((start.var)("COURIER_HOME")?).join(format!("{}.mail", start.fresh));
        Some(Injection {
            args: vec!["--mail".into(), file.clone().into()],
            assigned: Some(Assigned::File(file)),
        })
    }
}

impl ConversationFiles for Courier {
    fn transcript(&self) -> Option<Reader> {
        Scribe.transcript()
    }
}

impl Proxied for Courier {}

impl Live for Courier {}

impl Observe for Courier {
    fn observer(&self, var: Var<'_>, _: &Path) -> Option<Box<dyn Observer>> {
        Some(Box::new(ProcessLogObserver::new(&FORMAT, var("COURIER_HOME")?.into())))
    }
}

static FORMAT: ProcessLogFormat = ProcessLogFormat {
    logs: "logs",
    is_of: |name, pid| name.strip_suffix(".log").is_some_and(|of| of == pid.to_string()),
    front: |line| Some(AgentSessionId(std::str::from_utf8(line).ok()?.strip_prefix("front ")?.to_owned())),
    files: |root, id| {
        let mails = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
        mails.filter(|mail| named(mail).as_ref() == Some(id)).collect()
    },
    beginning: |mail| {
        let text = fs::read_to_string(mail).unwrap_or_default();
        let said =
            if text.lines().count() > 1 { Beginning::Spoken { copied: false } } else { Beginning::Silent };
        (if mail.exists() { said } else { Beginning::Absent }, named(mail))
    },
    lines: |_| Box::new(TalkLines),
};

/// The conversation that a file's first line names.
fn named(mail: &Path) -> Option<AgentSessionId> {
    let text = fs::read_to_string(mail).ok()?;
    Some(AgentSessionId(text.lines().next()?.strip_prefix(scribe::HEADING)?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::{Correlator, Decision, Method, Signal};
    use crate::process_table::ProcessTable;
    use types::{EvidenceKind, Pid, ProcessId, StartTime, Timestamp, TransitionKind};

    #[test]
    fn a_run_is_assigned_by_path_and_followed_through_its_open_conversations() {
        let home = tempfile::tempdir().unwrap();
        let var = |name: &str| (name == "COURIER_HOME").then(|| OsString::from(home.path()));
        let (invocation, fresh) = (Courier.classify(&[]), uuid::Uuid::from_u128(7));
        let start = LaunchStart {
            invocation: &invocation,
            args: &[],
            version: None,
            fresh,
            var: &var,
            folder: Path::new("/project"),
        };
        let Some(Assigned::File(mail)) = Courier.inject(&start).unwrap().assigned else { panic!() };
        let launcher = ProcessId { pid: Pid(10), start: StartTime(1) };
        let mut processes = ProcessTable::new(&[(10, 1, "courier"), (11, 2, "courier")]);
        processes.adopt(11, 10);
        let mut observer = Courier.observer(&var, Path::new("/project")).unwrap();
        observer.assign(&mail);
        let mut correlator = Correlator::new(Method::ProcessLog, launcher, Timestamp(0));
        let mut look = |at: i64| {
            let seen = observer.look(launcher, &processes);
            let decided = seen.signals.into_iter().flat_map(|signal| {
                let signal =
                    if let Signal::Front { .. } | Signal::Assigned(_) = signal { signal } else { panic!() };
                correlator.feed(Timestamp(at), signal).decisions
            });
            (decided.collect::<Vec<_>>(), seen.adopted)
        };
        let id = |name: &str| AgentSessionId(name.to_owned());
        assert_eq!(look(1), (vec![], None), "nothing is written yet");
        fs::write(&mail, "# one\n").unwrap();
        let bound = Decision::Bind { id: id("one"), evidence: EvidenceKind::Assigned };
        assert_eq!(look(2), (vec![bound], None), "its first line names the conversation");
        fs::create_dir(home.path().join("logs")).unwrap();
        fs::write(home.path().join("logs/9.log"), "front other\n").unwrap();
        let log = home.path().join("logs/11.log");
        fs::write(&log, "front one\nfront two\nfront on").unwrap();
        let change =
            |kind, to: &str| Decision::Transition { kind, to: Some(id(to)), evidence: EvidenceKind::Log };
        let child = ProcessId { pid: Pid(11), start: StartTime(2) };
        assert_eq!(look(3), (vec![change(TransitionKind::Clear, "two")], Some(child)));
        fs::write(&mail, "# one\nu p1 1 Dear\n").unwrap();
        fs::write(&log, "front one\nfront two\nfront one\n").unwrap();
        assert_eq!(look(4).0, [change(TransitionKind::Switch, "one")], "it was open all the time");
    }
}

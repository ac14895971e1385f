//! Which other processes of an agent run in a folder. Where files do not name the process that made them, one is certainly
//! ours only if no other process can have made it.
//!
//! Processes are recognised by their command lines. That rules others out only where it works: if our own process is not among
//! those recognised (a program of another name, a launcher), others would not be either. Processes of other pid namespaces
//! (containers that share the folder and the agent's files) are never seen; wrapped ones among them are known to the store.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use crate::correlate::Maker;
use os::clock::{Clock, SystemClock};
use pty::process::{Processes, Running};
use types::Pid;
use types::Timestamp;

/// An older file may have been made by a process that has ended since. Why 1 s: from its first file to its end the agent
/// takes longer even without a terminal, and a look comes within half of that.
const STILL_HERE: Duration = Duration::from_secs(1);

/// Which processes of the agent ran in a folder at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neighbours {
    maker: Maker,
    at: Timestamp,
}

impl Neighbours {
    /// Which process can have made a file at that time.
    pub(crate) fn maker(self, made: Timestamp) -> Maker {
        if self.at.since(made) > STILL_HERE { self.maker.max(Maker::Anybody) } else { self.maker }
    }
}

/// Looks for the neighbours of one run.
#[derive(Debug)]
pub(crate) struct Neighbourhood {
    program: &'static Program,
    /// Our own process was among those recognised. It stays true when that process has ended.
    recognises_ours: bool,
}

impl Neighbourhood {
    /// `program` recognises the agent's processes.
    pub(crate) fn of(program: &'static Program) -> Self {
        Self { program, recognises_ours: false }
    }

    /// `agent` is the process that codemie started.
    pub(crate) fn look(&mut self, agent: Pid, folder: &Path, processes: &dyn Processes) -> Neighbours {
        let running = processes.running(&|command| self.program.is_run_by(command));
        let maker = running.map_or(Maker::Anybody, |running| self.judge(agent, folder, &running));
        Neighbours { maker, at: SystemClock.now() }
    }

    fn judge(&mut self, agent: Pid, folder: &Path, running: &[Running]) -> Maker {
        let ours = family(agent, running);
        self.recognises_ours |= running.iter().any(|process| ours.contains(&process.pid));
        if self.recognises_ours { by_others(&ours, folder, running) } else { Maker::Unrecognised }
    }
}

fn by_others(ours: &BTreeSet<Pid>, folder: &Path, running: &[Running]) -> Maker {
    let others = running.iter().filter(|process| !ours.contains(&process.pid));
    // The folder of a process may not be visible to us.
    let here = others.filter(|process| process.folder.as_deref().is_none_or(|at| at == folder));
    here.map(|process| Maker::beside(process.age)).max().unwrap_or(Maker::Ours)
}

/// The agent, and the process it starts itself in: a chain without a shell in between. Processes of its tools do not belong
/// to it.
fn family(agent: Pid, running: &[Running]) -> BTreeSet<Pid> {
    let mut family = BTreeSet::from([agent]);
    let child = |family: &BTreeSet<Pid>| {
        running.iter().find(|process| family.contains(&process.parent) && !family.contains(&process.pid))
    };
    while let Some(process) = child(&family) {
        family.insert(process.pid);
    }
    family
}

/// Recognises an agent's processes by their command lines.
#[derive(Debug)]
pub(crate) struct Program {
    /// Names of the program, or of the script that a JavaScript runtime runs.
    pub(crate) names: &'static [&'static str],
    /// Folders on the way to such a script or program.
    pub(crate) folders: &'static [&'static str],
}

impl Program {
    /// `node …/gemini`, `node … /gemini.js …`, or a program of that name.
    pub(crate) fn is_run_by(&self, command: &[OsString]) -> bool {
        self.arguments(command).is_some()
    }

    /// The arguments that a process gave it; `None` if it runs something else.
    pub(crate) fn arguments<'a>(&self, command: &'a [OsString]) -> Option<&'a [OsString]> {
        fn name(word: &OsString) -> &[u8] {
            let word = word.as_bytes();
            let name = word.rsplit(|byte| *byte == b'/').next().unwrap_or(word);
            name.strip_suffix(b".js").unwrap_or(name)
        }
        let is_it = |word: &OsString| {
            let within = |folder: &&str| memchr::memmem::find(word.as_bytes(), folder.as_bytes()).is_some();
            self.names.iter().any(|known| known.as_bytes() == name(word)) || self.folders.iter().any(within)
        };
        let program = command.first()?;
        let runtime = [&b"node"[..], b"bun", b"deno", b"nodejs"].contains(&name(program));
        // The script follows the options of the runtime.
        let script = command[1..].iter().position(|word| !word.as_bytes().starts_with(b"-")).map(|at| at + 1);
        match script {
            _ if is_it(program) => command.get(1..),
            Some(at) if runtime && is_it(&command[at]) => command.get(at + 1..),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, folder: Option<&str>, age: u64) -> Running {
        Running {
            pid: Pid(pid),
            parent: Pid(parent),
            command: Vec::new(),
            folder: folder.map(Into::into),
            age: Duration::from_secs(age),
        }
    }

    const GEMINI: Program = Program { names: &["gemini"], folders: &["/gemini-cli/"] };

    /// At the first look.
    fn judge(running: &[Running]) -> Maker {
        Neighbourhood::of(&GEMINI).judge(Pid(10), Path::new("/p"), running)
    }

    #[test]
    fn nobody_is_ruled_out_where_our_own_process_is_not_recognised() {
        let here = Some("/p");
        for (what, running, expected) in [
            ("nobody is recognised", vec![], Maker::Unrecognised),
            ("only others are, elsewhere", vec![process(20, 1, Some("/q"), 900)], Maker::Unrecognised),
            ("only others are, here", vec![process(20, 1, here, 900)], Maker::Unrecognised),
            ("a child of a launcher is", vec![process(11, 10, here, 5)], Maker::Ours),
            (
                "a child of a launcher's shell is not known to be ours",
                vec![process(12, 11, here, 5)],
                Maker::Unrecognised,
            ),
        ] {
            assert_eq!(judge(&running), expected, "{what}");
        }
        let mut neighbourhood = Neighbourhood::of(&GEMINI);
        let mut judge = |running: &[Running]| neighbourhood.judge(Pid(10), Path::new("/p"), running);
        assert_eq!(judge(&[process(10, 1, here, 5)]), Maker::Ours);
        assert_eq!(judge(&[]), Maker::Ours, "it was recognised, and has ended");
        assert_eq!(judge(&[process(20, 1, here, 5)]), Maker::Anybody);
    }

    #[test]
    fn neighbours_decide_who_can_have_made_a_file() {
        let here = Some("/p");
        let ours = [process(10, 1, here, 5), process(11, 10, here, 5)];
        let with = |other: Running| {
            let running: Vec<Running> = ours.iter().cloned().chain([other]).collect();
            judge(&running)
        };
        assert_eq!(judge(&ours), Maker::Ours);
        assert_eq!(with(process(20, 1, Some("/elsewhere"), 5)), Maker::Ours);
        assert_eq!(with(process(20, 1, here, 5)), Maker::Anybody);
        assert_eq!(with(process(20, 1, here, 900)), Maker::Settled);
        assert_eq!(with(process(20, 1, None, 900)), Maker::Settled, "it may be here");
        assert_eq!(
            with(process(20, 12, here, 900)),
            Maker::Settled,
            "12 is a shell of ours; its child is another agent"
        );
    }

    #[test]
    fn running_processes_are_no_evidence_for_older_files() {
        for maker in [Maker::Ours, Maker::Settled, Maker::Anybody, Maker::Unrecognised] {
            let neighbours = Neighbours { maker, at: Timestamp(10_000) };
            for (made, expected) in
                [(9_000, maker), (10_000, maker), (10_500, maker), (8_999, maker.max(Maker::Anybody))]
            {
                assert_eq!(neighbours.maker(Timestamp(made)), expected, "{maker:?} {made}");
            }
        }
    }

    #[test]
    fn commands_of_the_agent_are_recognised() {
        for (line, is) in [
            ("node /x/bin/gemini -p hi", true),
            ("node --max-old-space-size=4096 /x/@google/gemini-cli/bundle/gemini.js", true),
            ("/usr/bin/node /x/node_modules/@google/gemini-cli/dist/index.js", true),
            ("/opt/gemini", true),
            ("codemie gemini", false),
            ("sh -c gemini", false),
            ("vim gemini.js", false),
            ("node /x/server.js gemini", false),
            ("", false),
        ] {
            let command: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            assert_eq!(GEMINI.is_run_by(&command), is, "{line}");
        }
        let command = ["node", "--x", "/bin/gemini", "-r", "5"].map(OsString::from);
        assert_eq!(GEMINI.arguments(&command), Some(&["-r".into(), "5".into()][..]));
        assert_eq!(GEMINI.arguments(&["gemini".into()]), Some(&[][..]));
    }
}

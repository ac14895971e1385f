//! Which other processes of an agent run in a folder: where its files bear no name of their maker, that one of them is ours is
//! certain only if nobody else can have made it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use crate::session::correlate::Maker;
use system::clock::{Clock, SystemClock};
use terminal::process::{Processes, Running};
use wire::Pid;
use wire::Timestamp;

/// A process this old has its first file. Why so long: it may have asked the user something first.
const STARTED: Duration = Duration::from_mins(2);

/// What was made longer ago than this, somebody may have made who is gone by now. Why 1 s: from its first file to its end the
/// agent takes longer even without a terminal, and a look comes within half of that.
const STILL_HERE: Duration = Duration::from_secs(1);

/// Who runs in a folder, at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Present {
    maker: Maker,
    at: Timestamp,
}

impl Present {
    /// `agent` is the process that codemie started, `program` how to know others of its kind.
    pub(super) fn look(agent: Pid, folder: &Path, program: &Program, processes: &dyn Processes) -> Self {
        let running = processes.running(&|command| program.is_run_by(command));
        let maker = running.map_or(Maker::Anybody, |running| judge(agent, folder, &running));
        Self { maker, at: SystemClock.now() }
    }

    /// Who can have made what was made at that time.
    pub(super) fn maker(self, made: Timestamp) -> Maker {
        if self.at.since(made) > STILL_HERE { Maker::Anybody } else { self.maker }
    }
}

fn judge(agent: Pid, folder: &Path, running: &[Running]) -> Maker {
    let ours = family(agent, running);
    let others = running.iter().filter(|process| !ours.contains(&process.pid));
    // Where a process works may not be ours to see.
    let here = others.filter(|process| process.folder.as_deref().is_none_or(|at| at == folder));
    here.map(|process| if process.age < STARTED { Maker::Anybody } else { Maker::Settled })
        .max()
        .unwrap_or(Maker::Ours)
}

/// The agent, and the process it starts itself in: a chain without a shell in between. What its tools start is not of it.
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

/// How to know an agent's processes by their command lines.
#[derive(Debug)]
pub(super) struct Program {
    /// What the program is called, or the script that a JavaScript runtime runs.
    pub(super) names: &'static [&'static str],
    /// Folders on the way to such a script or program.
    pub(super) folders: &'static [&'static str],
}

impl Program {
    /// `node …/gemini`, `node … /gemini.js …`, or a program of that name.
    fn is_run_by(&self, command: &[OsString]) -> bool {
        fn name(word: &OsString) -> &[u8] {
            let word = word.as_bytes();
            let name = word.rsplit(|byte| *byte == b'/').next().unwrap_or(word);
            name.strip_suffix(b".js").unwrap_or(name)
        }
        let is_it = |word: &OsString| {
            let within = |folder: &&str| memchr::memmem::find(word.as_bytes(), folder.as_bytes()).is_some();
            self.names.iter().any(|known| known.as_bytes() == name(word)) || self.folders.iter().any(within)
        };
        let Some(program) = command.first() else { return false };
        let runtime = [&b"node"[..], b"bun", b"deno", b"nodejs"].contains(&name(program));
        // The script stands behind the options of the runtime.
        let script = command[1..].iter().find(|word| !word.as_bytes().starts_with(b"-"));
        is_it(program) || runtime && script.is_some_and(is_it)
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

    #[test]
    fn who_else_is_about() {
        let here = Some("/p");
        let ours = [process(10, 1, here, 5), process(11, 10, here, 5)];
        let with = |other: Running| {
            let running: Vec<Running> = ours.iter().cloned().chain([other]).collect();
            judge(Pid(10), Path::new("/p"), &running)
        };
        assert_eq!(judge(Pid(10), Path::new("/p"), &ours), Maker::Ours);
        assert_eq!(with(process(20, 1, Some("/elsewhere"), 5)), Maker::Ours);
        assert_eq!(with(process(20, 1, here, 5)), Maker::Anybody);
        assert_eq!(with(process(20, 1, here, 900)), Maker::Settled);
        assert_eq!(with(process(20, 1, None, 900)), Maker::Settled, "it may be here");
        assert_eq!(
            with(process(20, 12, here, 900)),
            Maker::Settled,
            "12 is a shell of ours; what it runs is another"
        );
    }

    #[test]
    fn who_is_here_now_tells_nothing_of_what_is_older() {
        for maker in [Maker::Ours, Maker::Settled, Maker::Anybody] {
            let present = Present { maker, at: Timestamp(10_000) };
            for (made, expected) in
                [(9_000, maker), (10_000, maker), (10_500, maker), (8_999, Maker::Anybody)]
            {
                assert_eq!(present.maker(Timestamp(made)), expected, "{maker:?} {made}");
            }
        }
    }

    #[test]
    fn which_commands_are_the_agent() {
        let gemini = Program { names: &["gemini"], folders: &["/gemini-cli/"] };
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
            assert_eq!(gemini.is_run_by(&command), is, "{line}");
        }
    }
}

//! The processes of this machine: whether one still runs (by pid *and* start time, because pids are reused), its relatives, its
//! command line and its open files.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub use platform::JobStatus;
use rustix::fs::{FlockOperation, flock};

use super::sys;
use os::file::{create_private, open_private};
use os::home::Home;
use types::{Pid, ProcessId, StartTime};

pub mod tree;

/// A file that a process has open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFile {
    pub path: PathBuf,
    /// It is open for writing.
    pub writes: bool,
    /// A path to the very file, even if its name belongs to another one by now.
    pub handle: PathBuf,
}

/// A process as a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    pub pid: Pid,
    pub parent: Pid,
    pub command: Vec<OsString>,
    /// Its working directory, if that can be read.
    pub folder: Option<PathBuf>,
    pub age: Duration,
}

/// Looks processes up. Tests provide a table of their own, to reuse a pid.
pub trait Processes: Send + Sync {
    /// The start time of a running process; `None` when there is none, or only a zombie.
    fn start_time(&self, pid: Pid) -> Option<StartTime>;

    /// The process that started it, or has adopted it since; `None` as above.
    fn parent(&self, pid: Pid) -> Option<Pid>;

    /// The first process of the session that it belongs to, in the kernel's sense: a shell's or a terminal's.
    fn session_leader(&self, _pid: Pid) -> Option<Pid> {
        None
    }

    /// The processes it started that are still its own.
    fn children(&self, _pid: Pid) -> Vec<Pid> {
        Vec::new()
    }

    /// The files it has open, as far as we may see them; one that was deleted is none.
    fn open_files(&self, _pid: Pid) -> Vec<OpenFile> {
        Vec::new()
    }

    /// The processes that hold a lock on the file, as far as the system shows them.
    fn lock_holders(&self, _file: &Path) -> Vec<Pid> {
        Vec::new()
    }

    /// Its command line, word by word; empty where it cannot be seen.
    fn command(&self, _pid: Pid) -> Vec<OsString> {
        Vec::new()
    }

    /// The terminal it runs on, for people.
    fn terminal(&self, _pid: Pid) -> Option<PathBuf> {
        None
    }

    /// The user it belongs to.
    fn owner(&self, _pid: Pid) -> Option<u32> {
        None
    }

    /// A process and all below it, nearest first.
    fn family(&self, head: Pid) -> Vec<Pid> {
        // Pids can be reused while we climb down; no agent's family is this large.
        let mut family = vec![head];
        let mut at = 0;
        while at < family.len() && family.len() < 256 {
            let children = self.children(family[at]);
            family.extend(children.into_iter().filter(|child| !family.contains(child)).collect::<Vec<_>>());
            at += 1;
        }
        family
    }

    /// The running processes whose command line is wanted; `None` if processes cannot be listed here.
    fn running(&self, _wanted: &dyn Fn(&[OsString]) -> bool) -> Option<Vec<Running>> {
        None
    }

    /// The processes, as far as we may see them, that were started with this text in their environment or in their arguments;
    /// `None` if processes cannot be listed here.
    fn started_with(&self, _text: &str) -> Option<Vec<Pid>> {
        None
    }

    /// Whether `pid` is a descendant of `ancestor`, as far as the chain still stands.
    fn descends(&self, pid: Pid, ancestor: Pid) -> bool {
        // Pids can be reused while we climb; no real chain is this long.
        let mut at = pid;
        for _ in 0..64 {
            match self.parent(at) {
                Some(parent) if parent == ancestor => return true,
                Some(parent) if parent.0 > 1 => at = parent,
                _ => return false,
            }
        }
        false
    }

    fn alive(&self, process: ProcessId) -> bool {
        self.start_time(process.pid) == Some(process.start)
    }

    fn identify(&self, pid: Pid) -> Option<ProcessId> {
        self.start_time(pid).map(|start| ProcessId { pid, start })
    }

    /// A process with its parent, from one look.
    fn identify_with_parent(&self, pid: Pid) -> Option<(ProcessId, Pid)> {
        self.identify(pid).zip(self.parent(pid))
    }
}

/// The processes of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemProcesses;

impl Processes for SystemProcesses {
    fn start_time(&self, pid: Pid) -> Option<StartTime> {
        platform::inspect(pid).map(|seen| seen.start)
    }

    fn parent(&self, pid: Pid) -> Option<Pid> {
        platform::inspect(pid).map(|seen| seen.parent)
    }

    fn identify_with_parent(&self, pid: Pid) -> Option<(ProcessId, Pid)> {
        let seen = platform::inspect(pid)?;
        Some((ProcessId { pid, start: seen.start }, seen.parent))
    }

    fn session_leader(&self, pid: Pid) -> Option<Pid> {
        sys::session_leader(pid)
    }

    fn children(&self, pid: Pid) -> Vec<Pid> {
        platform::children(pid)
    }

    fn open_files(&self, pid: Pid) -> Vec<OpenFile> {
        platform::open_files(pid)
    }

    fn lock_holders(&self, file: &Path) -> Vec<Pid> {
        platform::lock_holders(file)
    }

    fn command(&self, pid: Pid) -> Vec<OsString> {
        platform::command(pid)
    }

    fn terminal(&self, pid: Pid) -> Option<PathBuf> {
        platform::terminal(pid)
    }

    fn owner(&self, pid: Pid) -> Option<u32> {
        platform::owner(pid)
    }

    fn running(&self, wanted: &dyn Fn(&[OsString]) -> bool) -> Option<Vec<Running>> {
        platform::running(wanted)
    }

    fn started_with(&self, text: &str) -> Option<Vec<Pid>> {
        platform::started_with(text)
    }
}

/// Facts about one process.
#[derive(Debug, PartialEq, Eq)]
struct Inspected {
    parent: Pid,
    start: StartTime,
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
#[path = "process/linux.rs"]
mod platform;
#[cfg(any(not(target_os = "linux"), feature = "portable"))]
#[path = "process/ps.rs"]
mod platform;

// Detached processes: codemie starts itself once more for work that nobody waits for.

/// Starts a codemie command in a session of its own, without a terminal and without any descriptor of ours.
pub fn start<I: AsRef<OsStr>>(home: &Home, args: impl IntoIterator<Item = I>) -> io::Result<()> {
    // Its working directory is the root, so a relative home would be another folder.
    let home = std::path::absolute(home.path())?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(args).env("CODEMIE_HOME", home);
    crate::spawn_detached(&mut command)
}

/// Whether a process with this command line is such a one: it works for the whole home, whichever run has started it.
pub fn is_detached(command: &[OsString]) -> bool {
    let named =
        command.first().is_some_and(|path| Path::new(path).file_name().is_some_and(|name| name == "codemie"));
    let works = ["deliver", "import-found", "proxy-keeper", "proxy-worker"];
    named && command.get(1).is_some_and(|work| works.iter().any(|known| work == known))
}

/// The file of [`lock`]; what its holder writes into it is for those who do not get it.
pub fn lock_file(home: &Home, work: &str) -> PathBuf {
    home.run().join(format!("{work}.lock"))
}

/// The lock of the one process that may do this work, released with the file; `None` while another process holds it.
pub fn lock(home: &Home, work: &str) -> Option<File> {
    create_private(&home.run()).ok()?;
    let path = lock_file(home, work);
    let file = open_private(&path).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok().map(|()| file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_an_earlier_one_with_its_pid_is_not() {
        let me = Pid(i32::try_from(std::process::id()).unwrap());
        let id = SystemProcesses.identify(me).unwrap();
        assert!(SystemProcesses.alive(id));
        assert!(!SystemProcesses.alive(ProcessId { start: StartTime(id.start.0 + 1), ..id }));
        assert_eq!(SystemProcesses.owner(me), Some(crate::own_user()));
        assert_eq!(SystemProcesses.owner(Pid(i32::MAX)), None);
        let parent = SystemProcesses.parent(me).unwrap();
        assert!(SystemProcesses.descends(me, parent));
        assert!(!SystemProcesses.descends(parent, me));
        let ours = SystemProcesses.running(&|command| command == std::env::args_os().collect::<Vec<_>>());
        let ours = ours.unwrap();
        let listed = ours.iter().find(|running| running.pid == me).expect("we are running");
        assert_eq!(listed.parent, parent);
        assert!(listed.age < Duration::from_hours(24));
    }

    #[test]
    fn a_process_is_found_by_a_text_in_its_environment() {
        let text = format!("text-of-test-{}", std::process::id());
        let found = || SystemProcesses.started_with(&text).unwrap();
        assert_eq!(found(), []);
        let mut child = std::process::Command::new("sleep").arg("600").env("SOME", &text).spawn().unwrap();
        let pid = Pid(i32::try_from(child.id()).unwrap());
        // Until it has become the other program, it has our own environment.
        while !found().contains(&pid) {
            std::thread::yield_now();
        }
        assert_eq!(found(), [pid]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found(), []);
    }

    #[test]
    fn children_and_their_open_files_are_listed() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let (read, written) = (folder.join("read"), folder.join("written"));
        std::fs::write(&read, "").unwrap();
        let script = format!("exec 8<{} 9>{}; echo; read x", read.display(), written.display());
        let mut child = std::process::Command::new("sh")
            .args(["-c", &script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // It writes a line when it has them open.
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let (me, pid) = (std::process::id(), child.id());
        let [me, pid] = [me, pid].map(|pid| Pid(i32::try_from(pid).unwrap()));
        assert!(SystemProcesses.children(me).contains(&pid));
        assert!(SystemProcesses.family(me).contains(&pid));
        assert_eq!(SystemProcesses.command(pid).first(), Some(&OsString::from("sh")));
        assert_eq!(SystemProcesses.command(Pid(i32::MAX)), [""; 0]);
        let open = SystemProcesses.open_files(pid);
        drop(child.stdin.take());
        child.wait().unwrap();
        if open.is_empty() && cfg!(feature = "portable") {
            return testing::left_out("lsof is not installed");
        }
        let seen: Vec<(PathBuf, bool)> = open.into_iter().map(|file| (file.path, file.writes)).collect();
        assert!(seen.contains(&(read, false)) && seen.contains(&(written, true)), "{seen:?}");
        assert_eq!(SystemProcesses.open_files(Pid(i32::MAX)), []);
    }
}

#[cfg(test)]
mod detached_tests {
    use super::*;

    #[test]
    fn work_for_the_home_is_known_by_its_command_line() {
        for (line, is) in [
            ("/usr/bin/codemie deliver", true),
            ("codemie import-found /p", true),
            ("codemie proxy-keeper", true),
            ("codemie proxy-worker", true),
            ("codemie proxy serve", false),
            ("codemie claude deliver", false),
            ("codemie", false),
            ("sh deliver", false),
            ("", false),
        ] {
            let command: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            assert_eq!(is_detached(&command), is, "{line}");
        }
    }
}

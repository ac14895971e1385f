//! Linux: `/proc/PID`.

#![expect(clippy::disallowed_methods, reason = "the kernel's own files: nobody else can put anything there")]

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Inspected, OpenFile, Running};
use types::{Pid, StartTime};

/// Clock ticks in a second, as programs see them: 100 on every architecture this is built for.
const TICKS: u64 = 100;

/// Larger than any `stat` and than most command lines: one read takes them whole.
const USUAL_ENTRY: usize = 2048;

/// A file of a process. `fs::read` asks for the length first, which the kernel does not know, and then reads in small pieces:
/// eight calls of the system in place of four, for each ancestor, before an agent can start.
fn read_entry(pid: Pid, name: &str) -> std::io::Result<Vec<u8>> {
    let file = fs::File::open(format!("/proc/{pid}/{name}"))?;
    let mut content = Vec::with_capacity(USUAL_ENTRY);
    file.take(u64::MAX).read_to_end(&mut content)?;
    Ok(content)
}

pub(super) fn inspect(pid: Pid) -> Option<Inspected> {
    parse_stat(&read_entry(pid, "stat").ok()?)
}

/// Whether a process is in the foreground of its terminal, and not stopped.
#[derive(Debug)]
pub struct JobStatus {
    /// Kept open: it is asked for every key.
    stat: fs::File,
}

impl JobStatus {
    pub fn of(pid: Pid) -> std::io::Result<Self> {
        Ok(Self { stat: fs::File::open(format!("/proc/{pid}/stat"))? })
    }

    pub fn is_in_foreground(&self) -> bool {
        let mut stat = [0; 1024];
        let count = self.stat.read_at(&mut stat, 0).unwrap_or(0);
        parse_foreground(&stat[..count]).unwrap_or(false)
    }
}

/// One without a terminal of its own competes with no job for one.
fn parse_foreground(stat: &[u8]) -> Option<bool> {
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    // The line may be cut off in the middle of the last field.
    let mut fields = std::str::from_utf8(stat.get(after_name..)?).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    let group = fields.nth(1)?;
    let terminal = fields.nth(1)?;
    let foreground = fields.next()?;
    Some(!matches!(state, "T" | "t" | "Z" | "X" | "x") && (terminal == "0" || foreground == group))
}

/// Each thread has children of its own.
pub(super) fn children(pid: Pid) -> Vec<Pid> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists: Vec<String> =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok()).collect();
    if lists.is_empty() {
        return children_by_search(pid);
    }
    lists
        .iter()
        .flat_map(|list| list.split_ascii_whitespace())
        .filter_map(|child| child.parse().ok().map(Pid))
        .collect()
}

/// For kernels without `children`.
fn children_by_search(pid: Pid) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid));
    pids.filter(|child| inspect(*child).is_some_and(|seen| seen.parent == pid)).collect()
}

pub(super) fn open_files(pid: Pid) -> Vec<OpenFile> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors
        .filter_map(|descriptor| {
            let link = descriptor.path();
            let path = fs::read_link(&link).ok()?;
            // Sockets, pipes and the like have no path; the name of a deleted file ends so.
            let named = path.is_absolute() && !path.as_os_str().as_encoded_bytes().ends_with(b" (deleted)");
            // The link's own mode shows how the file was opened.
            let writes = named.then(|| fs::symlink_metadata(&link).ok())??.permissions().mode() & 0o200 != 0;
            Some(OpenFile { path, writes, handle: link })
        })
        .collect()
}

/// By the inode alone, since some file systems show another device there than in a file's own description; so the process must
/// have the file open, or hide what it has open.
pub(super) fn lock_holders(file: &Path) -> Vec<Pid> {
    let (Ok(named), Ok(locks)) = (fs::metadata(file), fs::read_to_string("/proc/locks")) else {
        return Vec::new();
    };
    let mut holders = parse_locks(&locks, named.ino());
    holders.retain(|holder| {
        let open = open_files(*holder);
        open.is_empty() || open.iter().any(|open| open.path == file)
    });
    holders
}

/// `1: FLOCK  ADVISORY  WRITE 4243 08:01:131073 0 EOF`; one that waits for the lock has an arrow after the number.
fn parse_locks(locks: &str, inode: u64) -> Vec<Pid> {
    let holder = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let kind = words.next()?;
        let pid = words.nth(2)?.parse().ok().map(Pid)?;
        let of = words.next()?.rsplit(':').next()?.parse::<u64>().ok()?;
        (kind != "->" && of == inode && pid.0 > 0).then_some(pid)
    };
    let mut holders: Vec<Pid> = locks.lines().filter_map(holder).collect();
    holders.dedup();
    holders
}

pub(super) fn command(pid: Pid) -> Vec<OsString> {
    let line = read_entry(pid, "cmdline").unwrap_or_default();
    // A process that has ended, and one of the kernel's own, has an empty line.
    let words = line.strip_suffix(b"\0").unwrap_or(&line).split(|byte| *byte == 0);
    words.filter(|_| !line.is_empty()).map(|word| OsString::from_vec(word.to_vec())).collect()
}

/// The terminal of its standard descriptors: one that it only has for its messages counts as well.
pub(super) fn terminal(pid: Pid) -> Option<PathBuf> {
    let standard = (0..3).filter_map(|fd| fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok());
    standard.into_iter().find(|path| path.starts_with("/dev/pts") || is_console(path))
}

/// `/dev/tty1`, `/dev/ttyS0`, `/dev/console`; not `/dev/tty`, which is another one for every process.
fn is_console(path: &Path) -> bool {
    let name = path.strip_prefix("/dev").ok().and_then(|name| name.to_str());
    name.is_some_and(|name| name == "console" || name.starts_with("tty") && name != "tty")
}

/// The effective user: that is whom the kernel shows as the owner of the entry.
pub(super) fn owner(pid: Pid) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}")).ok().map(|entry| entry.uid())
}

/// Reads more than the command line only of those processes whose command line is wanted. One that ends meanwhile is left
/// out.
pub(super) fn running(wanted: &dyn Fn(&[OsString]) -> bool) -> Option<Vec<Running>> {
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime = Duration::from_secs_f64(uptime.split_ascii_whitespace().next()?.parse().ok()?);
    let pids = fs::read_dir("/proc").ok()?.flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid));
    Some(pids.filter_map(|pid| process(pid, uptime, wanted)).collect())
}

/// Of other users' processes the environment cannot be read.
pub(super) fn started_with(text: &str) -> Option<Vec<Pid>> {
    let holds = |pid: &Pid| {
        let parts = ["environ", "cmdline"]
            .into_iter()
            .filter_map(|part| fs::read(format!("/proc/{pid}/{part}")).ok());
        parts.into_iter().any(|bytes| memchr::memmem::find(&bytes, text.as_bytes()).is_some())
    };
    let pids = fs::read_dir("/proc").ok()?.flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid));
    Some(pids.filter(holds).collect())
}

fn process(pid: Pid, uptime: Duration, wanted: &dyn Fn(&[OsString]) -> bool) -> Option<Running> {
    let command = command(pid);
    if !wanted(&command) || is_wrapper(pid) {
        return None;
    }
    let Inspected { parent, start } = inspect(pid)?;
    let started = Duration::from_millis(start.0.saturating_mul(1000) / TICKS);
    let folder = fs::read_link(format!("/proc/{pid}/cwd")).ok();
    Some(Running { pid, parent, command, folder, age: uptime.saturating_sub(started) })
}

/// A codemie that is listed under the command line of the program it runs. That program has an entry of its own.
fn is_wrapper(pid: Pid) -> bool {
    let program = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let name = program.as_deref().and_then(|path| path.file_name()).and_then(|name| name.to_str());
    // The link to a binary that was replaced meanwhile ends in this.
    name.is_some_and(|name| name.strip_suffix(" (deleted)").unwrap_or(name) == "codemie")
}

/// The command name (field 2) may hold spaces, parentheses and any byte, so fields are counted from the last `)`.
pub(super) fn parse_stat(stat: &[u8]) -> Option<Inspected> {
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let rest = std::str::from_utf8(stat.get(after_name..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?; // field 3
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    let parent = fields.next()?.parse().ok().map(Pid)?;
    let start = fields.nth(17)?.parse().ok().map(StartTime)?; // field 22
    Some(Inspected { parent, start })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_process_and_a_background_job_are_not_in_the_foreground() {
        // State, parent, group, session, terminal, the terminal's foreground group.
        for (fields, expected) in [
            ("S 1 42 40 34816 42 4194304", Some(true)),
            ("R 1 42 40 34816 42 4194304", Some(true)),
            ("T 1 42 40 34816 42 4194304", Some(false)),
            ("S 1 42 40 34816 40 4194304", Some(false)),
            ("S 1 42 42 0 -1 4194304", Some(true)),
            ("Z 1 42 40 34816 42 4194304", Some(false)),
            ("S 1", None),
        ] {
            assert_eq!(parse_foreground(format!("42 (a) b) {fields}").as_bytes()), expected, "{fields}");
        }
        let own = JobStatus::of(Pid(std::process::id().cast_signed())).unwrap();
        own.is_in_foreground();
        assert_eq!(own.is_in_foreground(), own.is_in_foreground(), "it can be read again and again");
        assert!(JobStatus::of(Pid(-1)).is_err());
    }

    #[test]
    fn start_time_is_found_behind_a_hostile_command_name() {
        let stat = b"42 (a) Z (b \xff) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 290970 20";
        let expected = Inspected { parent: Pid(1), start: StartTime(290_970) };
        assert_eq!(parse_stat(stat), Some(expected));
    }

    #[test]
    fn children_are_found_with_and_without_the_children_file() {
        let parent = inspect(Pid(i32::try_from(std::process::id()).unwrap())).unwrap().parent;
        let mut both = [children(parent), children_by_search(parent)];
        for list in &mut both {
            list.sort();
        }
        let me = Pid(i32::try_from(std::process::id()).unwrap());
        assert!(both.iter().all(|list| list.contains(&me)), "{both:?}");
    }

    #[test]
    fn terminals_are_known_by_name() {
        for (path, is) in
            [("/dev/tty1", true), ("/dev/console", true), ("/dev/tty", false), ("/dev/null", false)]
        {
            assert_eq!(is_console(Path::new(path)), is, "{path}");
        }
        assert_eq!(terminal(Pid(i32::MAX)), None);
    }

    #[test]
    fn the_holder_of_a_lock_is_found() {
        let locks = "1: FLOCK  ADVISORY  WRITE 4243 08:01:131073 0 EOF\n\
                     1: -> FLOCK  ADVISORY  WRITE 4244 08:01:131073 0 EOF\n\
                     2: POSIX  ADVISORY  READ  4245 00:2a:131074 0 0\n\
                     3: FLOCK  ADVISORY  WRITE -1 08:01:131073 0 EOF\nbroken\n";
        assert_eq!(parse_locks(locks, 131_073), [Pid(4243)]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("x.lock");
        let file = fs::File::create(&path).unwrap();
        assert_eq!(lock_holders(&path), []);
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        assert_eq!(lock_holders(&path), [Pid(i32::try_from(std::process::id()).unwrap())]);
    }

    #[test]
    fn zombie_counts_as_gone() {
        let stat = b"42 (sh) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 290970 20";
        assert_eq!(parse_stat(stat), None);
    }
}

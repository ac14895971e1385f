//! Systems without `/proc`: ps(1), which gives the start time to the second, and lsof(8). Slower, and used for only a few
//! processes per run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use jiff::civil::DateTime;

use super::{Inspected, OpenFile, Running};
use os::clock::{Clock, SystemClock};
use types::{Pid, StartTime};

pub(super) fn inspect(pid: Pid) -> Option<Inspected> {
    parse(&output_of("ps", &["-o", "state=,ppid=,lstart=", "-p", &pid.to_string()])?)
}

/// Nothing tells quickly enough for a key whether a process is in the foreground: terminals are not handed over here.
#[derive(Debug)]
pub struct JobStatus;

impl JobStatus {
    pub fn of(_: Pid) -> std::io::Result<Self> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    pub fn is_in_foreground(&self) -> bool {
        false
    }
}

pub(super) fn children(pid: Pid) -> Vec<Pid> {
    parse_children(&output_of("ps", &["-A", "-o", "pid=,ppid="]).unwrap_or_default(), pid)
}

/// Numeric descriptors alone: neither the program itself nor its libraries.
pub(super) fn open_files(pid: Pid) -> Vec<OpenFile> {
    let arguments = ["-n", "-P", "-w", "-a", "-p", &pid.to_string(), "-d", "0-65535", "-F", "an"];
    parse_open_files(&output_of("lsof", &arguments).unwrap_or_default())
}

/// There is no list of locks; who has the file open is in [`open_files`].
pub(super) fn lock_holders(_file: &Path) -> Vec<Pid> {
    Vec::new()
}

pub(super) fn terminal(pid: Pid) -> Option<PathBuf> {
    let name = output_of("ps", &["-o", "tty=", "-p", &pid.to_string()])?;
    let name = name.trim();
    name.starts_with(|first: char| first.is_ascii_alphabetic()).then(|| Path::new("/dev").join(name))
}

pub(super) fn owner(pid: Pid) -> Option<u32> {
    output_of("ps", &["-o", "uid=", "-p", &pid.to_string()])?.trim().parse().ok()
}

/// Where a word holds a space, it is two words here.
pub(super) fn command(pid: Pid) -> Vec<OsString> {
    let line = output_of("ps", &["-ww", "-o", "args=", "-p", &pid.to_string()]).unwrap_or_default();
    line.split_whitespace().map(OsString::from).collect()
}

/// The program's output, whatever its exit status: that is not 0 when there is nothing to list.
fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C").env("TZ", "UTC").stdin(Stdio::null()).stderr(Stdio::null());
    Some(String::from_utf8_lossy(&command.output().ok()?.stdout).into_owned())
}

/// `4243 4242` per process: itself, its parent.
fn parse_children(lines: &str, parent: Pid) -> Vec<Pid> {
    let pairs = lines.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(|word| word.parse().ok().map(Pid));
        Some((numbers.next()??, numbers.next()??))
    });
    pairs.filter(|(_, of)| *of == parent).map(|(child, _)| child).collect()
}

/// A field per line, each under its letter: `f` descriptor, `a` access (`r`, `w`, `u` for both), `n` name.
fn parse_open_files(fields: &str) -> Vec<OpenFile> {
    let mut files = Vec::new();
    let mut writes = false;
    for field in fields.lines() {
        match (field.as_bytes().first(), field.get(1..)) {
            (Some(b'f'), _) => writes = false,
            (Some(b'a'), Some(access)) => writes = matches!(access, "w" | "u"),
            (Some(b'n'), Some(path)) if path.starts_with('/') => {
                let path = PathBuf::from(path);
                files.push(OpenFile { handle: path.clone(), path, writes });
            }
            _ => {}
        }
    }
    files
}

/// Arguments can only be split at spaces here, and the folder of a process is not listed.
pub(super) fn running(wanted: &dyn Fn(&[OsString]) -> bool) -> Option<Vec<Running>> {
    let now = Duration::from_millis(u64::try_from(SystemClock.now().0).ok()?);
    let listing = output_of("ps", &["-A", "-o", "pid=,state=,ppid=,lstart=,args="])?;
    let wanted = |line: &str| listed(line, now).filter(|running| wanted(&running.command));
    Some(listing.lines().filter_map(wanted).collect())
}

/// Behind the arguments of our own processes ps(1) lists their variables, if it is asked to.
pub(super) fn started_with(text: &str) -> Option<Vec<Pid>> {
    let options = if cfg!(target_os = "linux") {
        ["axeww", "-o", "pid=,args="]
    } else {
        ["-AEww", "-o", "pid=,command="]
    };
    let listing = output_of("ps", &options)?;
    let holders = listing.lines().filter(|line| line.contains(text));
    Some(holders.filter_map(|line| line.split_whitespace().next()?.parse().ok().map(Pid)).collect())
}

/// `4243 S 4242 Mon Nov 16 07:10:22 2026 node gemini`
fn listed(line: &str, now: Duration) -> Option<Running> {
    let mut words = line.split_whitespace();
    let pid = words.next()?.parse().ok().map(Pid)?;
    let about: Vec<&str> = words.by_ref().take(7).collect();
    let Inspected { parent, start } = parse(&about.join(" "))?;
    let age = now.saturating_sub(Duration::from_secs(start.0));
    Some(Running { pid, parent, command: words.map(OsString::from).collect(), folder: None, age })
}

/// `S 4242 Mon Nov 16 07:10:22 2026`
fn parse(line: &str) -> Option<Inspected> {
    let mut words = line.split_whitespace();
    if words.next()?.starts_with('Z') {
        return None;
    }
    let parent = words.next()?.parse().ok().map(Pid)?;
    let started = words.collect::<Vec<_>>().join(" ");
    let started = DateTime::strptime("%a %b %d %H:%M:%S %Y", started).ok()?;
    let seconds = started.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second();
    Some(Inspected { parent, start: StartTime(u64::try_from(seconds).ok()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_ps_is_parsed() {
        let seen = parse("Ss   4242 Mon Nov 16 07:10:22 2026\n").unwrap();
        assert_eq!(seen, Inspected { parent: Pid(4242), start: StartTime(1_794_813_022) });
        assert_eq!(parse("Z 1 Mon Nov 16 07:10:22 2026"), None);
        assert_eq!(parse(""), None);
        assert_eq!(parse_children("  10     1\n  12    10\n 13 10\nx y\n", Pid(10)), [Pid(12), Pid(13)]);
    }

    #[test]
    fn output_of_lsof_is_parsed() {
        let open = |path: &str, writes| OpenFile { path: path.into(), writes, handle: path.into() };
        let fields = "p42\nf0\nau\nn/dev/ttys001\nf8\nar\nn/a b/c\nf9\naw\nn/l.lock\nf10\na \nnlocalhost:80->x\nf11\nn/none\n";
        let expected =
            [open("/dev/ttys001", true), open("/a b/c", false), open("/l.lock", true), open("/none", false)];
        assert_eq!(parse_open_files(fields), expected);
        assert_eq!(parse_open_files(""), []);
    }

    #[test]
    fn listing_of_ps_is_parsed() {
        let now = Duration::from_secs(1_794_813_052);
        let running = listed(" 4243 S 4242 Mon Nov 16 07:10:22 2026 node /x/gemini -p hi", now).unwrap();
        assert_eq!(
            (running.pid, running.parent, running.age),
            (Pid(4243), Pid(4242), Duration::from_secs(30))
        );
        assert_eq!(running.command, ["node", "/x/gemini", "-p", "hi"]);
    }
}

//! Systems without `/proc`: ps(1), which tells the start to the second. Slower, and asked only for a few processes a run.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::civil::DateTime;

use super::{Pid, Running, Seen, StartTime};

pub(super) fn look(pid: Pid) -> Option<Seen> {
    parse(&ps(&["-o", "state=,ppid=,lstart=", "-p", &pid.to_string()])?)
}

/// Words of a command line are told apart by spaces here, and nothing says where a process works.
pub(super) fn running(wanted: &dyn Fn(&[OsString]) -> bool) -> Option<Vec<Running>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let listing = ps(&["-A", "-o", "pid=,state=,ppid=,lstart=,args="])?;
    let wanted = |line: &str| listed(line, now).filter(|running| wanted(&running.command));
    Some(listing.lines().filter_map(wanted).collect())
}

fn ps(args: &[&str]) -> Option<String> {
    let mut ps = Command::new("ps");
    ps.args(args).env("LC_ALL", "C").env("TZ", "UTC").stdin(Stdio::null()).stderr(Stdio::null());
    Some(String::from_utf8_lossy(&ps.output().ok()?.stdout).into_owned())
}

/// `4243 S 4242 Mon Nov 16 07:10:22 2026 node gemini`
fn listed(line: &str, now: Duration) -> Option<Running> {
    let mut words = line.split_whitespace();
    let pid = words.next()?.parse().ok().map(Pid)?;
    let about: Vec<&str> = words.by_ref().take(7).collect();
    let Seen { parent, start } = parse(&about.join(" "))?;
    let age = now.saturating_sub(Duration::from_secs(start.0));
    Some(Running { pid, parent, command: words.map(OsString::from).collect(), folder: None, age })
}

/// `S 4242 Mon Nov 16 07:10:22 2026`
fn parse(line: &str) -> Option<Seen> {
    let mut words = line.split_whitespace();
    if words.next()?.starts_with('Z') {
        return None;
    }
    let parent = words.next()?.parse().ok().map(Pid)?;
    let started = words.collect::<Vec<_>>().join(" ");
    let started = DateTime::strptime("%a %b %d %H:%M:%S %Y", started).ok()?;
    let seconds = started.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second();
    Some(Seen { parent, start: StartTime(u64::try_from(seconds).ok()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_ps_says() {
        let seen = parse("Ss   4242 Mon Nov 16 07:10:22 2026\n").unwrap();
        assert_eq!(seen, Seen { parent: Pid(4242), start: StartTime(1_794_813_022) });
        assert_eq!(parse("Z 1 Mon Nov 16 07:10:22 2026"), None);
        assert_eq!(parse(""), None);
        let now = Duration::from_secs(1_794_813_052);
        let running = listed(" 4243 S 4242 Mon Nov 16 07:10:22 2026 node /x/gemini -p hi", now).unwrap();
        assert_eq!(
            (running.pid, running.parent, running.age),
            (Pid(4243), Pid(4242), Duration::from_secs(30))
        );
        assert_eq!(running.command, ["node", "/x/gemini", "-p", "hi"]);
    }
}

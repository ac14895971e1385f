//! Systems without `/proc`: ps(1), which tells the start to the second. Slower, and asked only for a few processes a run.

use std::process::{Command, Stdio};

use jiff::civil::DateTime;

use super::{Pid, Seen, StartTime};

pub(super) fn look(pid: Pid) -> Option<Seen> {
    let pid = pid.to_string();
    let output = Command::new("ps")
        .args(["-o", "state=,ppid=,lstart=", "-p", &pid])
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    parse(&String::from_utf8_lossy(&output.stdout))
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
    }
}

//! Linux: `/proc/PID/stat`.

use super::{Pid, Seen, StartTime};

pub(super) fn look(pid: Pid) -> Option<Seen> {
    parse_stat(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The command name (field 2) may hold spaces, parentheses and any byte, so fields are counted from the last `)`.
pub(super) fn parse_stat(stat: &[u8]) -> Option<Seen> {
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let rest = std::str::from_utf8(stat.get(after_name..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?; // field 3
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    let parent = fields.next()?.parse().ok().map(Pid)?;
    let start = fields.nth(17)?.parse().ok().map(StartTime)?; // field 22
    Some(Seen { parent, start })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_start_time_past_a_hostile_command_name() {
        let stat = b"42 (a) Z (b \xff) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 290970 20";
        let expected = Seen { parent: Pid(1), start: StartTime(290_970) };
        assert_eq!(parse_stat(stat), Some(expected));
    }

    #[test]
    fn a_zombie_is_gone() {
        let stat = b"42 (sh) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 290970 20";
        assert_eq!(parse_stat(stat), None);
    }
}

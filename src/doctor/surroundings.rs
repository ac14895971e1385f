//! The terminal, and what the machine gives for watching files.

use std::io::{stdin, stdout};

use rustix::termios::{isatty, tcgetwinsize};

use super::Finding;

const TERMINAL: &str = "terminal";

pub fn examine() -> Vec<Finding> {
    let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let size = tcgetwinsize(stdout()).ok().map(|size| (size.ws_col, size.ws_row));
    let mut findings = terminal(var("TERM").as_deref(), isatty(stdin()) && isatty(stdout()), size);
    findings.extend(locale(["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(var).as_deref()));
    #[cfg(target_os = "linux")]
    findings.push(watches());
    findings
}

fn terminal(term: Option<&str>, is_terminal: bool, size: Option<(u16, u16)>) -> Vec<Finding> {
    if !is_terminal {
        return vec![Finding::note(
            TERMINAL,
            "standard input and output are not both a terminal; agents run here without one",
            "nothing to do in a script; otherwise run codemie in a terminal",
        )];
    }
    let mut findings = Vec::new();
    match term {
        None => findings.push(Finding::warn(
            TERMINAL,
            "TERM is not set, so agents cannot tell what the terminal can do",
            "set TERM, usually to xterm-256color",
        )),
        Some("dumb") => findings.push(Finding::note(
            TERMINAL,
            "TERM is dumb, so agents draw as little as they can",
            "set TERM to what the terminal is, usually xterm-256color",
        )),
        Some(term) => findings.push(Finding::ok(TERMINAL, format!("TERM is {term}"))),
    }
    findings.push(match size {
        Some((columns, rows)) if columns > 0 && rows > 0 => {
            Finding::ok(TERMINAL, format!("{columns} columns, {rows} rows"))
        }
        _ => Finding::warn(TERMINAL, "the terminal has no size", "run: stty rows 24 cols 80"),
    });
    findings
}

fn locale(name: Option<&str>) -> Option<Finding> {
    let name = name.unwrap_or("C");
    let plain = name.to_ascii_lowercase().replace('-', "");
    (!plain.contains("utf8")).then(|| {
        Finding::note(
            TERMINAL,
            format!("the locale is {name}, not UTF-8; agents may draw boxes as question marks"),
            "set LANG=C.UTF-8",
        )
    })
}

#[cfg(target_os = "linux")]
fn watches() -> Finding {
    use rustix::fs::inotify::{CreateFlags, init};
    const AREA: &str = "files";
    let limit = |name: &str| {
        let text = os::file::text_at_most(std::path::Path::new(&format!("/proc/sys/fs/inotify/{name}")), 64)
            .unwrap_or_default();
        if text.is_empty() { "unknown".to_owned() } else { text.trim().to_owned() }
    };
    match init(CreateFlags::CLOEXEC) {
        Ok(_) => Finding::ok(
            AREA,
            format!(
                "file changes are seen at once (inotify: {} instances, {} watches)",
                limit("max_user_instances"),
                limit("max_user_watches")
            ),
        ),
        Err(error) => Finding::warn(
            AREA,
            format!(
                "file changes are seen late, by looking again and again: inotify says {error} (limit {})",
                limit("max_user_instances")
            ),
            "run: sudo sysctl fs.inotify.max_user_instances=512",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn missing_terminal_features_are_found() {
        use Level::{Note, Ok, Warn};
        type Case = (Option<&'static str>, bool, Option<(u16, u16)>, &'static [Level]);
        let cases: &[Case] = &[
            (Some("xterm"), true, Some((80, 24)), &[Ok, Ok]),
            (None, true, Some((0, 24)), &[Warn, Warn]),
            (Some("dumb"), true, None, &[Note, Warn]),
            (None, false, None, &[Note]),
        ];
        for (term, is_terminal, size, expected) in cases {
            let levels: Vec<_> =
                terminal(*term, *is_terminal, *size).into_iter().map(|finding| finding.level).collect();
            assert_eq!(levels, *expected, "{term:?} {is_terminal} {size:?}");
        }
        assert_eq!(locale(Some("de_DE.UTF-8")), None);
        assert_eq!(locale(Some("C.utf8")), None);
        assert_eq!(locale(None).unwrap().level, Level::Note);
    }
}

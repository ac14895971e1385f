//! Checks of the set-up: findings as data, each with its fix, gathered by one file per area.
//!
//! Promises: looking changes nothing but codemie's own notes (the version that an agent answers with); a program that is asked (a shell with a hung start-up file, an agent that does not
//! answer) is ended after the time limit; a finding that is not ok says what to do.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use format::counted;
use format::output::wrap::{at_home, wrap};
use format::output::{Colour, Style, json};
use os::home::Home;
use runtime::shim::files::OwnBinary;

pub mod agents;
pub mod delivery;
pub mod folder;
pub mod sessions;
pub mod shells;
pub mod surroundings;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok,
    /// Worth knowing, nothing to worry about.
    Note,
    /// Something is not as the user wants it, but agents run.
    Warn,
    /// codemie cannot do its work, or an agent cannot be started through it.
    Error,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub area: String,
    pub level: Level,
    pub what: String,
    pub fix: Option<String>,
}

impl Finding {
    pub fn ok(area: &str, what: impl Into<String>) -> Self {
        Self { area: area.to_owned(), level: Level::Ok, what: what.into(), fix: None }
    }

    pub fn note(area: &str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { area: area.to_owned(), level: Level::Note, what: what.into(), fix: Some(fix.into()) }
    }

    pub fn warn(area: &str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { level: Level::Warn, ..Self::note(area, what, fix) }
    }

    pub fn error(area: &str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { level: Level::Error, ..Self::note(area, what, fix) }
    }
}

/// The machine as this process sees it.
#[derive(Debug)]
pub struct Machine<'a> {
    pub home: Option<Home>,
    pub agents: &'a [&'a str],
    pub ourselves: OwnBinary,
    /// This binary, which the doctor calls to put a shell into a session of its own.
    pub codemie: PathBuf,
    pub path: Option<OsString>,
    pub shell: Option<OsString>,
    pub timeout: Duration,
}

/// Everything that was found.
#[derive(Debug, Default)]
pub struct Diagnosis {
    pub findings: Vec<Finding>,
    /// Some agent, called by its name, runs through codemie.
    pub wrapped: bool,
}

/// Looks at everything. The findings of each part are reported as soon as they are known: asking shells
/// and agents takes a while.
pub fn examine<E>(
    machine: &Machine<'_>,
    report: &mut dyn FnMut(&[Finding]) -> Result<(), E>,
) -> Result<Diagnosis, E> {
    let mut all = Diagnosis::default();
    let parts: [&dyn Fn() -> Diagnosis; 5] = [
        &|| folder::examine(machine).into(),
        &|| sessions::examine(machine).into(),
        &|| delivery::examine(machine).into(),
        &|| surroundings::examine().into(),
        &|| agents::examine(machine),
    ];
    for part in parts {
        let Diagnosis { findings, wrapped } = part();
        report(&findings)?;
        all.findings.extend(findings);
        all.wrapped |= wrapped;
    }
    Ok(all)
}

impl From<Vec<Finding>> for Diagnosis {
    fn from(findings: Vec<Finding>) -> Self {
        Self { findings, wrapped: false }
    }
}

// Findings as a person reads them, and as a program does.

/// True when nothing keeps codemie or an agent from working.
pub fn healthy(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.level < Level::Error)
}

pub fn json(findings: &[Finding]) -> String {
    let report = json!({"ok": healthy(findings), "findings": findings});
    json::pretty(&report).unwrap_or_default() // a JSON value always has a text
}

pub fn list(findings: &[Finding], style: Style) -> String {
    let mut text = String::new();
    let mut areas: Vec<&str> = Vec::new();
    for finding in findings {
        if !areas.contains(&finding.area.as_str()) {
            areas.push(&finding.area);
        }
    }
    for area in areas {
        _ = writeln!(text, "{}", style.paint(area, Colour::Heading));
        for finding in findings.iter().filter(|finding| finding.area == area) {
            let (word, colour) = match finding.level {
                Level::Ok => ("ok", Colour::Good),
                Level::Note => ("note", Colour::Note),
                Level::Warn => ("warn", Colour::Warning),
                Level::Error => ("error", Colour::Bad),
            };
            let lines = wrap(&at_home(&finding.what, style), style.columns.saturating_sub(INDENT));
            for (number, line) in lines.iter().enumerate() {
                let word = if number == 0 { word } else { "" };
                _ = writeln!(text, "  {}  {line}", style.paint(&format!("{word:5}"), colour));
            }
            if let Some(fix) = &finding.fix {
                for (number, line) in wrap(&at_home(fix, style), style.columns.saturating_sub(INDENT + ARROW))
                    .iter()
                    .enumerate()
                {
                    let arrow = if number == 0 { "→" } else { " " };
                    _ = writeln!(text, "{:INDENT$}{arrow} {line}", "");
                }
            }
        }
    }
    text
}

/// The last line.
pub fn summary(diagnosis: &Diagnosis) -> String {
    let count = |level| diagnosis.findings.iter().filter(|finding| finding.level == level).count();
    match (count(Level::Error), count(Level::Warn)) {
        (0, 0) if !diagnosis.wrapped => "Nothing is wrong, but nothing is wrapped yet.\n".to_owned(),
        (0, 0) => "All is well.\n".to_owned(),
        (errors, warnings) => format!("{}, {}.\n", counted(errors, "error"), counted(warnings, "warning")),
    }
}

/// Two spaces, the level, two spaces.
const INDENT: usize = 9;
const ARROW: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Vec<Finding> {
        vec![
            Finding::ok("claude", "PATH 1: /usr/bin/claude: the agent"),
            Finding::ok("terminal", "TERM is xterm"),
            Finding::warn("claude", "something is not as it should be", "run: this and that"),
        ]
    }

    #[test]
    fn a_list_is_grouped_aligned_and_fits() {
        let text = list(&findings(), Style { colour: false, columns: 40 });
        assert_eq!(
            text,
            "claude\n\
             \x20 ok     PATH 1: /usr/bin/claude: the\n\
             \x20        agent\n\
             \x20 warn   something is not as it should\n\
             \x20        be\n\
             \x20        → run: this and that\n\
             terminal\n\
             \x20 ok     TERM is xterm\n"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 40));
    }

    #[test]
    fn colour_changes_nothing_but_colour() {
        let plain = list(&findings(), Style { colour: false, columns: 80 });
        let mut coloured = list(&findings(), Style { colour: true, columns: 80 });
        assert_ne!(plain, coloured);
        for code in ["1", "32", "33", "0"] {
            coloured = coloured.replace(&format!("\x1b[{code}m"), "");
        }
        assert_eq!(plain, coloured);
    }

    #[test]
    fn the_summary_counts_findings_and_wrapped_agents() {
        let fine = || {
            vec![
                Finding::ok("terminal", "TERM is xterm"),
                Finding::note("claude", "not installed", "install it"),
            ]
        };
        for (findings, wrapped, expected) in [
            (findings(), true, "0 errors, 1 warning.\n"),
            (findings(), false, "0 errors, 1 warning.\n"),
            (fine(), true, "All is well.\n"),
            (fine(), false, "Nothing is wrong, but nothing is wrapped yet.\n"),
        ] {
            assert_eq!(summary(&Diagnosis { findings, wrapped }), expected);
        }
    }

    #[test]
    fn hostile_findings_are_drawn_harmlessly() {
        crate::cmd::hostile::draw_everywhere(|text, style| list(&[Finding::warn(text, text, text)], style));
    }

    #[test]
    fn only_an_error_is_unhealthy() {
        let mut findings = findings();
        assert!(healthy(&findings));
        findings.push(Finding::error("claude", "broken", "mend it"));
        assert!(!healthy(&findings));
        let parsed: serde_json::Value = serde_json::from_str(&json(&findings)).unwrap();
        assert_eq!(parsed["ok"], false);
        assert_eq!(
            parsed["findings"][3],
            json!({"area": "claude", "level": "error", "what": "broken", "fix": "mend it"})
        );
    }
}

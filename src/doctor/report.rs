//! Findings as a person reads them, and as a program does.

use std::fmt::Write;

use serde_json::json;

use super::{Diagnosis, Finding, Level};
use format::counted;
use format::output::tilde::at_home;
use format::output::wrap::wrap;
use format::output::{Colour, Style, json};

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

//! `codemie stop`: end sessions, with everything their agents started.

use std::io::Write;
use std::process::ExitCode;

use crate::cli::Stop;
use crate::failure::shown;
use format::output::json;
use os::home::Home;
use report::open::open;
use report::stop::{StopError, StopReport, StopResult, stop_all, stop_one};
use runtime::launch::Origin;

pub fn run(args: &Stop, home: &Home, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let mut store = open(home)?;
    let origin = Origin::of_this_process();
    let results = match &args.session {
        Some(session) => match stop_one(&mut store, home, session, &origin, args.grace) {
            // With the exit code of its own that it has everywhere.
            Err(StopError::Find(error)) => return Err(error.into()),
            result => vec![result],
        },
        None => stop_all(&mut store, home, &origin, args.grace)?,
    };
    let mut failed = false;
    let mut reports = Vec::new();
    for result in results {
        match result {
            Ok(report) => reports.push(report),
            Err(error) => {
                failed = true;
                write!(err, "{}", shown(&format!("codemie: {error}")))?;
            }
        }
    }
    failed |= reports.iter().any(|report| report.result == StopResult::Survived);
    if args.json {
        let text = match (&reports[..], args.all_mine) {
            ([report], false) => json::pretty(report)?,
            _ => json::pretty(&reports)?,
        };
        out.write_all(text.as_bytes())?;
    } else if reports.is_empty() && !failed {
        writeln!(out, "No session of yours is running.")?;
    } else {
        for report in &reports {
            writeln!(out, "{}", line(report))?;
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

pub(super) fn line(report: &StopReport) -> String {
    let name = &report.name;
    let redirected = match report.redirected_from {
        Some(from) => format!(" (session {from} was left for it)"),
        None => String::new(),
    };
    match report.result {
        StopResult::Stopped if report.unrecorded => format!(
            "{name} has been stopped{redirected}, but that could not be stored: it counts as interrupted. \
             `codemie doctor` says what is wrong with the store."
        ),
        StopResult::Stopped => format!("{name} has been stopped{redirected}."),
        StopResult::EndedBefore => format!("{name} had ended before{redirected}."),
        StopResult::Survived => {
            format!(
                "{name} was stopped, but these processes survived{redirected}: {}",
                report.survivors.join(", ")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Ids, RandomIds};

    #[test]
    fn a_line_says_what_became_of_the_session() {
        let report = StopReport {
            session_id: RandomIds.session(),
            name: "fix-auth".into(),
            redirected_from: None,
            result: StopResult::Stopped,
            survivors: Vec::new(),
            unrecorded: false,
        };
        assert_eq!(line(&report), "fix-auth has been stopped.");
        let unrecorded = StopReport { unrecorded: true, ..report.clone() };
        assert!(line(&unrecorded).contains("could not be stored: it counts as interrupted"));
        let survived = StopReport {
            result: StopResult::Survived,
            survivors: vec!["sleep 600 (pid 7)".into()],
            redirected_from: Some(RandomIds.session()),
            ..report.clone()
        };
        let line_ = line(&survived);
        assert!(line_.contains("was left for it") && line_.ends_with(": sleep 600 (pid 7)"), "{line_}");
        let before = StopReport { result: StopResult::EndedBefore, ..report };
        assert_eq!(line(&before), "fix-auth had ended before.");
    }
}

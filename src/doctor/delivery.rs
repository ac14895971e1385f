//! Delivery: what waits, what was refused, what keeps a receiver from getting it.

use super::{Finding, Patient};
use crate::clock::{Clock, SystemClock};
use crate::config::{Config, Delivery};
use crate::forward::{CODEMIE_V1, Sinks};
use crate::home::Home;
use crate::output::human::counted;
use crate::store::{Error, SinkCount, SinkRow, Store};

const AREA: &str = "delivery";
/// Failures in a row that are worth a word: the receiver has been away for minutes.
const OFTEN: i64 = 5;
const MEGABYTE: i64 = 1_000_000;

pub fn examine(patient: &Patient<'_>) -> Vec<Finding> {
    let Some(home) = patient.home.as_ref().filter(|home| home.database().exists()) else { return Vec::new() };
    let config = Config::load(Some(&home.config_file()), |name| std::env::var_os(name), patient.agents);
    // A store that cannot be read is the sessions' finding.
    examine_store(home, &config.delivery).unwrap_or_default()
}

fn examine_store(home: &Home, delivery: &Delivery) -> Result<Vec<Finding>, Error> {
    let configured: Vec<&str> = Sinks::of(home, delivery)
        .map(|sinks| sinks.targets().into_iter().map(|target| target.name).collect())
        .unwrap_or_default();
    let mut store = Store::open(home, SystemClock.now())?;
    store.read(|view| {
        let mut findings = Vec::new();
        for row in view.sinks()? {
            let count = view.sink_count(&row)?;
            findings.extend(of_sink(&row, count, configured.contains(&row.name.as_str())));
        }
        if configured.contains(&CODEMIE_V1) {
            findings.push(Finding::note(
                AREA,
                format!("{CODEMIE_V1} keeps no event ids: after a crash an event may arrive, and count, twice there"),
                "nothing to do; for exact numbers use backend.url",
            ));
        }
        let (_, bytes) = view.backlog()?;
        if bytes > MEGABYTE.saturating_mul(i64::from(delivery.max_megabytes)) {
            findings.push(Finding::warn(
                AREA,
                format!(
                    "{} MB wait to be sent, more than sync.maxMegabytes ({})",
                    bytes / MEGABYTE,
                    delivery.max_megabytes
                ),
                "see what keeps the receiver: codemie sync --status; nothing is dropped meanwhile",
            ));
        }
        Ok(findings)
    })
}

fn of_sink(row: &SinkRow, count: SinkCount, configured: bool) -> Vec<Finding> {
    let name = &row.name;
    let events = |count: i64| counted(usize::try_from(count).unwrap_or(0), "event");
    let mut findings = Vec::new();
    if !configured {
        if count.pending > 0 {
            findings.push(Finding::note(
                AREA,
                format!("{} wait for {name}, which is not configured any more", events(count.pending)),
                "configure it again, and they are sent; agents are not disturbed",
            ));
        }
        return findings;
    }
    if let Some(why) = &row.paused {
        findings.push(Finding::warn(
            AREA,
            format!("delivery to {name} pauses: it {why}; {} wait", events(count.pending)),
            "put address and credentials right (codemie config set backend.token TOKEN), then run: codemie sync",
        ));
    } else if row.failures >= OFTEN {
        let why = row.trouble.as_deref().unwrap_or("no reason is known");
        findings.push(Finding::warn(
            AREA,
            format!("{name} failed {} times in a row: {why}; {} wait", row.failures, events(count.pending)),
            "nothing is lost; to try now run: codemie sync",
        ));
    } else if let Some(why) = row.trouble.as_ref().filter(|_| row.failures == 0 && count.pending == 0) {
        findings.push(Finding::note(
            AREA,
            format!("{name} {why}"),
            "the rest has arrived; see: codemie sync --status",
        ));
    } else {
        findings.push(Finding::ok(AREA, format!("{name}: {} waiting", events(count.pending))));
    }
    if count.dead > 0 {
        findings.push(Finding::warn(
            AREA,
            format!("{name} refused {} for good", events(count.dead)),
            "see why: codemie sync --status; send them again: codemie sync --retry-dead",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn row() -> SinkRow {
        SinkRow {
            name: "backend".into(),
            since: 0,
            cursor: 0,
            lease_holder: None,
            lease_until: None,
            failures: 0,
            retry_at: None,
            paused: None,
            last_delivered_at: None,
            asked_until: None,
            trouble: None,
            address: None,
            credentials: None,
        }
    }

    #[test]
    fn every_trouble_has_its_word() {
        use Level::{Note, Ok, Warn};
        let some = SinkCount { pending: 3, deferred: 0, dead: 0 };
        let paused = SinkRow { paused: Some("refused the credentials (401)".into()), ..row() };
        let failing = SinkRow { failures: 9, trouble: Some("answered 500".into()), ..row() };
        let cases: [(&SinkRow, SinkCount, bool, &[(Level, &str)]); 6] = [
            (&row(), some, true, &[(Ok, "3 events waiting")]),
            (&paused, some, true, &[(Warn, "pauses: it refused the credentials (401); 3 events wait")]),
            (&failing, some, true, &[(Warn, "failed 9 times in a row: answered 500")]),
            (
                &row(),
                SinkCount { dead: 1, ..some },
                true,
                &[(Ok, "waiting"), (Warn, "refused 1 event for good")],
            ),
            (&row(), some, false, &[(Note, "not configured any more")]),
            (&row(), SinkCount::default(), false, &[]),
        ];
        for (row, count, configured, expected) in cases {
            let findings = of_sink(row, count, configured);
            assert_eq!(findings.len(), expected.len(), "{findings:?}");
            for (finding, (level, word)) in findings.iter().zip(expected) {
                assert!(finding.level == *level && finding.what.contains(word), "{finding:?}");
            }
        }
    }
}

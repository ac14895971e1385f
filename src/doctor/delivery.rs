//! Delivery: pending events, refused events, and receivers that cannot be reached.

use std::time::Duration;

use reqwest::Url;

use super::{Finding, Level, Machine};
use config::{Config, Delivery, Settings, Source};
use delivery::{CODEMIE_V1, NATIVE, Sinks, ask_all, local_token};
use format::counted;
use os::clock::{Clock, SystemClock};
use os::home::{Home, own_var};
use store::{Error, SinkCount, SinkRow, Store};

const AREA: &str = "delivery";
/// Failures in a row that are worth a finding: the receiver has been away for minutes.
const OFTEN: i64 = 5;
const MEGABYTE: i64 = 1_000_000;
/// How long a receiver is waited for, at most.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

pub fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let Some(home) = &machine.home else { return Vec::new() };
    let config = Config::load(Some(&home.config_file()), own_var, machine.agents);
    // A store that cannot be read is the sessions' finding.
    let mut findings = if home.database().exists() {
        examine_store(home, &config.delivery).unwrap_or_default()
    } else {
        Vec::new()
    };
    if let Some(sinks) = Sinks::of(home, &config.delivery) {
        let place = |name: &str| place(name, home, &config.delivery);
        // A paused or failing receiver is not asked again: the finding says what to do.
        let warned = |name: &str| {
            let place = place(name);
            findings.iter().any(|finding| finding.level >= Level::Warn && finding.what.contains(&place))
        };
        let answers = ask_all(&sinks, |name| !warned(name), machine.timeout.min(ASK_TIMEOUT));
        for (name, answer) in answers {
            findings.extend(answered(&place(name), answer, findings.is_empty()));
        }
    }
    findings
}

/// What asking a receiver brought; `first`: there is no finding about delivery yet.
fn answered(place: &str, answer: Result<(), String>, first: bool) -> Option<Finding> {
    match answer {
        Err(why) => Some(Finding::warn(
            AREA,
            format!("{place} was asked and takes nothing: {why}"),
            "put address and credentials right (codemie config set backend.url ADDRESS, backend.token TOKEN), then run: codemie sync",
        )),
        Ok(()) if first => Some(Finding::ok(AREA, format!("{place}: it answers"))),
        Ok(()) => None,
    }
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
            let place = configured.contains(&row.name.as_str()).then(|| place(&row.name, home, delivery));
            findings.extend(of_sink(&row, count, place.as_deref()));
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

/// Which machine a receiver is on, and of our own backend where its token comes from. Both are wrong more often than the
/// receiver is.
fn place(name: &str, home: &Home, delivery: &Delivery) -> String {
    let url = match name {
        NATIVE => delivery.backend.as_ref().map(|backend| &backend.url),
        CODEMIE_V1 => delivery.codemie_v1.as_ref().map(|sink| &sink.url),
        _ => delivery.otlp.as_ref().map(|sink| &sink.endpoint),
    };
    let Some(url) = url else { return name.to_owned() };
    let token = (name == NATIVE).then(|| {
        let mut settings = Settings::read(Some(&home.config_file()), own_var);
        let source = settings.get("backend.token").map(|(_, source)| source);
        token(source, local_token(home, url).is_some())
    });
    format!("{name} at {}{}", host(url), token.map_or(String::new(), |token| format!(", {token}")))
}

fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// As delivery chooses it: what is set, else what the backend on this machine left for this user.
fn token(set: Option<Source>, local: bool) -> String {
    match set {
        Some(Source::Variable(name)) => format!("token from {name}"),
        Some(Source::File | Source::Default) => "token from config.toml".into(),
        None if local => "token from the local backend's tokens.json".into(),
        None => "no token".into(),
    }
}

/// `place`: where it is configured, as the finding names it.
fn of_sink(row: &SinkRow, count: SinkCount, place: Option<&str>) -> Vec<Finding> {
    let name = &row.name;
    let events = |count: i64| counted(usize::try_from(count).unwrap_or(0), "event");
    let wait = match count.pending {
        0 => "nothing waits".to_owned(),
        1 => "1 event waits".to_owned(),
        more => format!("{} wait", events(more)),
    };
    let mut findings = Vec::new();
    let Some(place) = place else {
        if count.pending > 0 {
            findings.push(Finding::note(
                AREA,
                format!("{wait} for {name}, which is not configured any more"),
                "configure it again, and what waits is sent; agents are not disturbed",
            ));
        }
        return findings;
    };
    if let Some(why) = &row.paused {
        findings.push(Finding::warn(
            AREA,
            format!("delivery to {place} is paused: it {why}; {wait}"),
            "put address and credentials right (codemie config set backend.token TOKEN), then run: codemie sync",
        ));
    } else if row.failures >= OFTEN || row.failures > 0 && count.pending > 0 {
        let why = row.trouble.as_deref().unwrap_or("no reason is known");
        let often = match row.failures {
            1 => "the last time".to_owned(),
            often => format!("{often} times in a row"),
        };
        findings.push(Finding::warn(
            AREA,
            format!("{place}, failed {often}: {why}; {wait}"),
            "nothing is lost; to try now run: codemie sync",
        ));
    } else if let Some(why) = row.trouble.as_ref().filter(|_| row.failures == 0 && count.pending == 0) {
        findings.push(Finding::note(
            AREA,
            format!("{name} {why}"),
            "the rest has arrived; see: codemie sync --status",
        ));
    } else {
        findings.push(Finding::ok(AREA, format!("{place}: {wait}")));
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
    fn every_trouble_has_its_finding() {
        use Level::{Note, Ok, Warn};
        let some = SinkCount { pending: 3, deferred: 0, dead: 0 };
        let paused = SinkRow { paused: Some("refused the credentials (401)".into()), ..row() };
        let failing = SinkRow { failures: 9, trouble: Some("answered 500".into()), ..row() };
        let once = SinkRow { failures: 1, trouble: Some("nobody listens".into()), ..row() };
        let one = SinkCount { pending: 1, ..some };
        let nothing = SinkCount::default();
        let cases: [(&SinkRow, SinkCount, bool, &[(Level, &str)]); 9] = [
            (&row(), nothing, true, &[(Ok, "backend at b.example:8788, no token: nothing waits")]),
            (&row(), some, true, &[(Ok, "no token: 3 events wait")]),
            (&paused, some, true, &[(Warn, "is paused: it refused the credentials (401); 3 events wait")]),
            (
                &failing,
                some,
                true,
                &[(Warn, "no token, failed 9 times in a row: answered 500; 3 events wait")],
            ),
            (&once, one, true, &[(Warn, "failed the last time: nobody listens; 1 event waits")]),
            (&once, nothing, true, &[(Ok, "nothing waits")]),
            (
                &row(),
                SinkCount { dead: 1, ..some },
                true,
                &[(Ok, "wait"), (Warn, "refused 1 event for good")],
            ),
            (&row(), one, false, &[(Note, "1 event waits for backend, which is not configured any more")]),
            (&row(), nothing, false, &[]),
        ];
        for (row, count, configured, expected) in cases {
            let findings = of_sink(row, count, configured.then_some("backend at b.example:8788, no token"));
            assert_eq!(findings.len(), expected.len(), "{findings:?}");
            for (finding, (level, word)) in findings.iter().zip(expected) {
                assert!(finding.level == *level && finding.what.contains(word), "{finding:?}");
            }
        }
    }

    #[test]
    fn a_receiver_that_takes_nothing_is_warned_of() {
        let place = "backend at b.example, no token";
        for (answer, first, level) in [
            (Err("refused the credentials (401)".to_owned()), false, Some(Level::Warn)),
            (Err("nobody listens".to_owned()), true, Some(Level::Warn)),
            (Ok(()), false, None),
            (Ok(()), true, Some(Level::Ok)),
        ] {
            let finding = answered(place, answer, first);
            assert_eq!(finding.as_ref().map(|finding| finding.level), level, "{finding:?}");
        }
    }

    #[test]
    fn a_receiver_has_its_host_and_its_token() {
        for (url, expected) in [
            ("https://b.example/codemie", "b.example"),
            ("http://127.0.0.1:8788", "127.0.0.1:8788"),
            ("http://[::1]:1/", "[::1]:1"),
        ] {
            assert_eq!(host(&url.parse().unwrap()), expected);
        }
        let variable = || Some(Source::Variable("CODEMIE_BACKEND_TOKEN".into()));
        for (set, local, expected) in [
            (variable(), true, "token from CODEMIE_BACKEND_TOKEN"),
            (Some(Source::File), true, "token from config.toml"),
            (None, true, "token from the local backend's tokens.json"),
            (None, false, "no token"),
        ] {
            assert_eq!(token(set, local), expected);
        }
    }
}

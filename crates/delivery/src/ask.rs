//! Asking a receiver whether it would accept events, without sending any: settings that look right may hold a wrong token or
//! an address where nobody listens.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;

use super::answer::Verdict;
use super::configured::Sinks;
use super::http::{Error, Http};
use super::identity::Identity;
use super::sink::Sink;
use os::clock::{Clock, SystemClock};

/// Asks one receiver; `Err` says why it would accept nothing. One that cannot be asked without an event counts as willing.
pub async fn ask(sink: &dyn Sink, ca_file: Option<&PathBuf>, timeout: Duration) -> Result<(), String> {
    let Some(question) = sink.question() else { return Ok(()) };
    let http = Http::new(sink.url(), ca_file).map_err(|error| error.to_string())?;
    let asked = async {
        let answer = http.post(&question, false, SystemClock.now()).await?;
        if answer.status == 415 {
            return http.post(&question, true, SystemClock.now()).await;
        }
        Ok::<_, Error>(answer)
    };
    let answer = match tokio::time::timeout(timeout, asked).await {
        Ok(answer) => answer.map_err(|error| error.to_string())?,
        Err(_) => return Err("no answer in time".to_owned()),
    };
    objection(answer.status, sink.judge(&[], &question, &answer))
}

/// Whether the verdict on a request without events means that one with events would not be accepted.
fn objection(status: u16, verdict: Verdict) -> Result<(), String> {
    match verdict {
        Verdict::Accepted { .. }
        | Verdict::PartlyAccepted(_)
        | Verdict::TooLarge(_)
        | Verdict::SomeRefused(_)
        | Verdict::NotServed(_) => Ok(()),
        // It knows us and only objects to a request without events. Where the path is unknown there is no such receiver.
        Verdict::AllRefused(_) if !matches!(status, 404 | 405 | 410) => Ok(()),
        Verdict::EncodingRefused(why)
        | Verdict::CredentialsRefused(why)
        | Verdict::AllRefused(why)
        | Verdict::Unconfirmed { why, .. } => Err(why),
    }
}

/// Asks the configured receivers that `wanted` selects by name, all at the same time. Needs no store: the
/// question does not name machine and user.
pub fn ask_all(
    sinks: &Sinks,
    wanted: impl Fn(&str) -> bool,
    timeout: Duration,
) -> Vec<(&'static str, Result<(), String>)> {
    let nobody = Identity { machine: String::new(), user: None };
    let mut receivers = sinks.sinks(&nobody);
    receivers.retain(|sink| wanted(sink.name()));
    let ca_file = sinks.delivery.ca_file.as_ref();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let all =
        join_all(receivers.iter().map(|sink| async { (sink.name(), ask(&**sink, ca_file, timeout).await) }));
    match runtime {
        Ok(runtime) => runtime.block_on(all),
        Err(error) => receivers.iter().map(|sink| (sink.name(), Err(error.to_string()))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_wrong_credentials_and_missing_receivers_are_objections() {
        let why = || "why".to_owned();
        for (status, verdict, fine) in [
            (200, Verdict::Accepted { rejected: Vec::new() }, true),
            (400, Verdict::SomeRefused(why()), true),
            (413, Verdict::TooLarge(why()), true),
            (404, Verdict::NotServed(why()), true),
            (409, Verdict::AllRefused(why()), true),
            (404, Verdict::AllRefused(why()), false),
            (401, Verdict::CredentialsRefused(why()), false),
            (415, Verdict::EncodingRefused(why()), false),
            (500, Verdict::Unconfirmed { why: why(), retry_after: None }, false),
        ] {
            assert_eq!(objection(status, verdict.clone()).is_ok(), fine, "{verdict:?}");
        }
    }
}

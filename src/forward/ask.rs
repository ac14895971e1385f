//! Asking a receiver whether it would take events, without sending it any: a set-up that looks well may have a wrong token or
//! the address of nobody.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;

use super::answer::Verdict;
use super::http::{Error, Http};
use super::identity::Identity;
use super::sink::{Sink, Sinks};
use system::clock::{Clock, SystemClock};

/// `Err` says what keeps it from taking events. A receiver that cannot be asked without being told something is taken at its word.
pub async fn ask(sink: &dyn Sink, ca_file: Option<&PathBuf>, patience: Duration) -> Result<(), String> {
    let Some(question) = sink.question() else { return Ok(()) };
    let http = Http::new(sink.url(), ca_file).map_err(|error| error.to_string())?;
    let asked = async {
        let answer = http.post(&question, false, SystemClock.now()).await?;
        if answer.status == 415 {
            return http.post(&question, true, SystemClock.now()).await;
        }
        Ok::<_, Error>(answer)
    };
    let answer = match tokio::time::timeout(patience, asked).await {
        Ok(answer) => answer.map_err(|error| error.to_string())?,
        Err(_) => return Err("no answer in time".to_owned()),
    };
    objection(answer.status, sink.judge(&[], &question, &answer))
}

/// Whether what it said of nothing would keep it from taking something.
fn objection(status: u16, verdict: Verdict) -> Result<(), String> {
    match verdict {
        Verdict::Accepted { .. }
        | Verdict::PartlyAccepted(_)
        | Verdict::TooLarge(_)
        | Verdict::SomeRefused(_)
        | Verdict::NotServed(_) => Ok(()),
        // It listens, knows us, and finds fault with a request that holds nothing; unless nobody is there under this path.
        Verdict::AllRefused(_) if !matches!(status, 404 | 405 | 410) => Ok(()),
        Verdict::EncodingRefused(why)
        | Verdict::CredentialsRefused(why)
        | Verdict::AllRefused(why)
        | Verdict::Unconfirmed { why, .. } => Err(why),
    }
}

/// All those that are wanted at once, by name. Needs no store: who asks does not matter.
pub fn ask_all(
    sinks: &Sinks,
    wanted: impl Fn(&str) -> bool,
    patience: Duration,
) -> Vec<(&'static str, Result<(), String>)> {
    let nobody = Identity { machine: String::new(), user: None };
    let mut receivers = sinks.receivers(&nobody);
    receivers.retain(|sink| wanted(sink.name()));
    let ca_file = sinks.delivery.ca_file.as_ref();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let all =
        join_all(receivers.iter().map(|sink| async { (sink.name(), ask(&**sink, ca_file, patience).await) }));
    match runtime {
        Ok(runtime) => runtime.block_on(all),
        Err(error) => receivers.iter().map(|sink| (sink.name(), Err(error.to_string()))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_a_receiver_from_taking_events() {
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

//! Asking a receiver whether it would take events, without sending it any: a set-up that looks well may have a wrong token or
//! the address of nobody.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;

use super::decide::Verdict;
use super::http::{Error, Http};
use super::identity::Identity;
use super::sink::{Sink, Sinks};
use crate::clock::{Clock, SystemClock};

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
    objection(sink.judge(&[], &question, &answer))
}

/// Whether what it said of nothing would keep it from taking something.
fn objection(verdict: Verdict) -> Result<(), String> {
    match verdict {
        // It listens, knows us, and finds fault with a request that holds nothing.
        Verdict::Accepted { .. }
        | Verdict::Partly(_)
        | Verdict::Halve(_)
        | Verdict::Isolate(_)
        | Verdict::Unserved(_) => Ok(()),
        Verdict::Identity(why) | Verdict::Pause(why) | Verdict::Refuse(why) => Err(why),
        Verdict::Later { why, .. } => Err(why),
    }
}

/// Every configured receiver at once, by name. Needs no store: of nothing that is asked it matters who asks.
pub fn ask_all(sinks: &Sinks, patience: Duration) -> Vec<(&'static str, Result<(), String>)> {
    let nobody = Identity { machine: String::new(), user: None };
    let receivers = sinks.receivers(&nobody);
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
        for (verdict, fine) in [
            (Verdict::Accepted { rejected: Vec::new() }, true),
            (Verdict::Isolate(why()), true),
            (Verdict::Halve(why()), true),
            (Verdict::Unserved(why()), true),
            (Verdict::Pause(why()), false),
            (Verdict::Refuse(why()), false),
            (Verdict::Identity(why()), false),
            (Verdict::Later { why: why(), asked: None }, false),
        ] {
            assert_eq!(objection(verdict.clone()).is_ok(), fine, "{verdict:?}");
        }
    }
}

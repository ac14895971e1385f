//! Delivery: events leave the outbox and arrive once, whatever happens on the way.
//!
//! One loop ([`drain`]) per receiver sends the events that its cursor has not passed and records the answers. Any number of
//! processes may run it: a lease lets one send at a time, and receivers that know every event's id do not mind if two do.
//!
//! Modules use only those to the left or above:
//!
//! ```text
//! answer  backoff  batch  progress         pure: what an answer means, how long to wait, how much fits
//! consequence                              pure: what follows for a batch
//! http  identity                           one request, one answer; who we are
//! sink                                     what receivers differ in (the trait)
//! native  otlp  codemie_v1                 the receivers
//! direct  foreign  preview                 without an outbox: post, foreign conversations, print
//! configured  registration  ask            the receivers that the settings name
//! plan  lease                              what the next step does; who may send
//! drain                                    the loop
//! detached                                 the process that sends what a run could not wait for
//! sender                                   the thread of a run, or of any process that lives long
//! ```
//!
//! Promises: nothing here writes to the terminal or keeps an agent waiting. Without a configured receiver there is no thread,
//! no connection and no file. A receiver that lies, hangs or floods costs bounded memory and time and loses nothing. No secret
//! is logged or shown.
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests open what they made; the build without them is checked"
    )
)]

mod answer;
mod ask;
mod backoff;
mod batch;
mod codemie_v1;
mod configured;
mod consequence;
mod detached;
mod direct;
mod drain;
pub mod foreign;
pub mod http;
pub mod identity;
mod lease;
mod native;
mod otlp;
mod plan;
mod preview;
mod progress;
mod registration;
mod sender;
mod sink;

pub use ask::{ask, ask_all};
pub use codemie_v1::CODEMIE_V1;
pub use configured::{Sinks, Target, address_setting};
pub use detached::{COMMAND, deliver_pending, needs_delivery, spawn_delivery};
pub use direct::post;
pub use drain::Drain;
pub use identity::Identity;
pub use native::{Credential, NATIVE, Native, local_token};
pub use preview::{delivered, preview, show};
pub use progress::{DeliveryCount, Idle, Pace, Progress};
pub use registration::{reconfigure, register};
pub use sender::{Hint, Sender};
pub use sink::Sink;

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// The order is the one that this file's header draws, so the picture cannot become untrue.
    #[test]
    fn modules_use_only_modules_that_the_header_lists_before_them() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/forward");
        let header = std::fs::read_to_string(folder.join("mod.rs")).unwrap();
        let picture = header.split("//! ```").nth(1).unwrap();
        let names = picture.lines().skip(1).filter_map(|line| line.strip_prefix("//! "));
        // Modules and what they are for stand apart by at least three spaces.
        let names = names.filter_map(|line| line.split("   ").next());
        let order: Vec<&str> = names.flat_map(str::split_whitespace).collect();
        let declared = header.lines().filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod "));
        for module in declared.filter_map(|line| line.strip_suffix(';')) {
            let at = order.iter().position(|name| *name == module);
            let at = at.unwrap_or_else(|| panic!("the header does not list {module}"));
            let text = source(&folder, module);
            let production = text.split("#[cfg(test)]").next().unwrap_or_default();
            for used in production.lines().filter_map(|line| line.strip_prefix("use super::")) {
                let used = used.split(['{', ':', ';']).next().unwrap_or_default();
                assert!(order[..at].contains(&used), "{module} uses {used}, which the header lists after it");
            }
        }
    }

    /// Of a folder only `mod.rs`: in its other files `super` is the folder itself.
    fn source(folder: &Path, module: &str) -> String {
        let files = [format!("{module}.rs"), format!("{module}/mod.rs")];
        files.iter().find_map(|file| std::fs::read_to_string(folder.join(file)).ok()).unwrap()
    }
}

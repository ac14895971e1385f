//! `codemie sync --backfill --scan`: what never ran through codemie, from the agents' own files to our own backend.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::cmd::Failure;
use crate::cmd::scanner::with_scanner;
use crate::progress::Bar;
use delivery::foreign::life;
use delivery::http::Http;
use delivery::{DeliveryCount, Identity, Sinks, post};
use format::counted;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use store::{Outgoing, Store};

/// Events held at a time; one conversation may be more.
const AT_ONCE: usize = 5000;

/// Whether everything arrived.
pub(super) fn run(
    timeout: Duration,
    home: &Home,
    sinks: &Sinks,
    err: &mut dyn Write,
) -> anyhow::Result<bool> {
    let mut store = Store::open(home, SystemClock.now())?;
    let identity = Identity::of(&mut store, &sinks.delivery.user)?;
    let backend = sinks.native(&identity).zip(sinks.delivery.backend.as_ref());
    let (sink, backend) = backend.ok_or_else(|| Failure {
        code: 1,
        message: "conversations that never ran through codemie are sent to codemie's own backend alone; run: codemie \
                  config set backend.url ADDRESS"
            .into(),
    })?;
    let foreign = with_scanner(home, true, |scanner| store.read(|view| scanner.foreign(Some(view))))?;
    let http = Http::new(&backend.url, sinks.delivery.ca_file.as_ref())?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot send")?;
    // Reading may have taken long; sending has the whole time again.
    let deadline = Instant::now() + timeout;
    let bar = Bar::on_terminal("sending conversations", format::count);
    let (mut begun, conversations_in_all) = (0, foreign.sessions.len() as u64);
    let (mut all, mut waiting) = (DeliveryCount::default(), Vec::<Outgoing>::new());
    let mut conversations = foreign.calls();
    loop {
        let next = conversations.next().transpose()?;
        let last = next.is_none();
        if let Some((session, calls)) = next {
            waiting.extend(life(session, &calls));
            begun += 1;
        }
        if waiting.len() >= AT_ONCE || last {
            match runtime.block_on(post(&sink, &http, &waiting, deadline)) {
                Ok(sent) => {
                    all.add(sent);
                    waiting.clear();
                    if let Some(bar) = &bar {
                        bar.draw(begun, conversations_in_all);
                    }
                }
                Err(why) => {
                    drop(bar);
                    let delivered = counted(all.delivered, "event");
                    writeln!(
                        err,
                        "codemie: not wrapped: {delivered} delivered, but {why}; run it again for the rest"
                    )?;
                    return Ok(false);
                }
            }
        }
        if last {
            break;
        }
    }
    drop(bar);
    let (events, of) = (counted(all.delivered, "event"), counted(foreign.sessions.len(), "conversation"));
    writeln!(err, "codemie: not wrapped: {events} of {of} delivered")?;
    if all.refused > 0 {
        writeln!(err, "codemie: not wrapped: {} refused", counted(all.refused, "event"))?;
    }
    Ok(all.refused == 0)
}

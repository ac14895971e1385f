//! `codemie sync`: delivers pending events now, shows how far delivery has got, or prints what would be sent.

mod scan;
mod status;

use std::fmt;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures_util::future::join_all;
use tokio::sync::mpsc;

use super::Failure;
use super::session_text::date;
use crate::cli::{Sync, SyncAction};
use crate::progress;
use config::Config;
use delivery::{self, DeliveryCount, Drain, Idle, Pace, Progress, Sinks};
use format::counted;
use format::output::json;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use os::log;
use report::open::recover;
use runtime::launch::{Origin, settings};
use store::{self, SinkCount, Store};
use types::Timestamp;

/// Drawn no more often than anybody can read.
const DRAW: Duration = Duration::from_millis(200);

pub fn run(args: &Sync, home: &Home, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let config = configured(home);
    for problem in &config.problems {
        writeln!(err, "codemie: {problem}")?;
    }
    let sinks = Sinks::of(home, &config.delivery);
    match &args.action {
        Some(SyncAction::Status { json }) => {
            return status::run(home, &config.delivery, sinks.as_ref(), *json, out);
        }
        Some(SyncAction::Preview { limit, since: Some(since) }) => {
            let since = since.before(SystemClock.now(), &os::zone::local());
            return delivered(home, sinks.as_ref(), since, *limit, out, err);
        }
        Some(SyncAction::Preview { limit, since: None }) => {
            return preview(home, &config, sinks.as_ref(), *limit, out, err);
        }
        None if args.status => return status::run(home, &config.delivery, sinks.as_ref(), args.json, out),
        None => {}
    }
    if let Some(name) = &args.forget {
        return forget(name, home, sinks.as_ref(), err);
    }
    let sinks = sinks.ok_or_else(|| Failure {
        code: 1,
        message: "nothing is sent: no backend is set up; run: codemie config set backend.url ADDRESS".into(),
    })?;
    prepare(args, home, &sinks)?;
    let code = deliver_now(args.timeout, &sinks, err)?;
    if args.scan && !scan::run(args.timeout, home, &sinks, err)? {
        return Ok(ExitCode::FAILURE);
    }
    Ok(code)
}

/// Forgets a receiver. One that is still set up is refused: it would get nothing more, and nobody would notice.
fn forget(name: &str, home: &Home, sinks: Option<&Sinks>, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let refuse = |message: String| Err(Failure { code: 1, message }.into());
    if sinks.is_some_and(|sinks| sinks.targets().iter().any(|target| target.name == name)) {
        let key = delivery::address_setting(name).unwrap_or_default();
        return refuse(format!("{name} is set up; first run: codemie config unset {key}"));
    }
    let mut store = Store::open(home, SystemClock.now())?;
    let Some(row) = store.read(|view| view.sink(name))? else {
        return refuse(format!("nothing waits for a receiver called {name}; see: codemie sync --status"));
    };
    let SinkCount { pending, dead, .. } = store.read(|view| view.sink_count(&row))?;
    store.write(|tx| tx.forget_sink(name))?;
    let left = counted(usize::try_from(pending).unwrap_or(0), "event");
    let refused = if dead > 0 { format!(", and {dead} it had refused") } else { String::new() };
    writeln!(err, "codemie: {name} is forgotten, and {left} that waited for it{refused}")?;
    Ok(ExitCode::SUCCESS)
}

/// `codemie deliver`: the detached process.
pub fn deliver(home: &Home) -> anyhow::Result<ExitCode> {
    let config = configured(home);
    // A home that was removed meanwhile is not made again for this.
    if let Some(sinks) = Sinks::of(home, &config.delivery).filter(|_| home.database().exists()) {
        delivery::deliver_pending(&sinks)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The settings, and the log as they want it.
fn configured(home: &Home) -> Config {
    let config = settings(Some(home), &Origin::of_this_process());
    // A log that cannot be written is done without.
    let _ = log::start(home, Some(&config.log_level));
    config
}

/// Ends sessions that vanished, and lifts pauses, so that everything pending can be sent.
fn prepare(args: &Sync, home: &Home, sinks: &Sinks) -> anyhow::Result<()> {
    let mut store = Store::open(home, SystemClock.now())?;
    recover(&mut store, home);
    store.write(|tx| {
        delivery::register(tx, &sinks.targets())?;
        for target in sinks.targets() {
            tx.pause(target.name, None)?;
            if args.backfill {
                tx.backfill(target.name)?;
            }
            if args.retry_dead {
                tx.revive_letters(target.name)?;
            }
        }
        Ok::<_, store::Error>(())
    })?;
    Ok(())
}

/// What was delivered to one receiver.
struct DeliveryResult {
    name: &'static str,
    count: DeliveryCount,
    /// Why events are still pending; `None`: none are.
    pending: Option<String>,
}

fn deliver_now(timeout: Duration, sinks: &Sinks, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let deadline = Instant::now() + timeout;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot send")?;
    let drains = Drain::open_all(sinks, Pace::Interactive)?;
    let (sender, mut updates) = mpsc::unbounded_channel();
    let show = pty::is_terminal(&std::io::stderr());
    if show {
        pty::clear_line_on_interrupt();
    }
    let results = runtime.block_on(async {
        let sending = join_all(drains.into_iter().map(|drain| send(drain, deadline, sender.clone())));
        drop(sender);
        let drawing = async {
            let mut latest: Option<WaitingLine> = None;
            let mut tick = tokio::time::interval(DRAW);
            loop {
                tokio::select! {
                    update = updates.recv() => match update {
                        Some(update) => latest = Some(update),
                        None => break,
                    },
                    _ = tick.tick() => if let Some(latest) = latest.as_ref().filter(|_| show) {
                        progress::draw_line(&latest.line(Instant::now()));
                    },
                }
            }
        };
        tokio::join!(sending, drawing).0
    });
    if show {
        progress::erase_line();
        pty::restore_sigint();
    }
    let mut code = ExitCode::SUCCESS;
    for result in results {
        writeln!(err, "codemie: {result}")?;
        if result.pending.is_some() || result.count.refused > 0 || result.count.incomplete {
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

impl fmt::Display for DeliveryResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeliveryCount { delivered, refused, incomplete } = self.count;
        write!(f, "{}: {} delivered", self.name, counted(delivered, "event"))?;
        if refused > 0 {
            write!(f, ", {refused} refused for good (see: codemie sync --status)")?;
        }
        if incomplete {
            f.write_str(", of which it did not take all (see: codemie sync --status)")?;
        }
        match &self.pending {
            None => f.write_str(", nothing is left"),
            Some(why) => write!(f, ", but {why}"),
        }
    }
}

/// The line that is shown while a receiver is being sent to.
struct WaitingLine {
    name: &'static str,
    pending: usize,
    /// What keeps events from being sent, and until when.
    obstacle: Option<(String, Instant)>,
}

impl WaitingLine {
    fn line(&self, now: Instant) -> String {
        let (name, pending) = (self.name, format::grouped(self.pending as u64));
        match &self.obstacle {
            None => format!("{name}: {pending} waiting"),
            Some((why, until)) => {
                let seconds = until.saturating_duration_since(now).as_millis().div_ceil(1000).max(1);
                format!("{name}: {pending} waiting, {why}, next try in {seconds} s")
            }
        }
    }
}

/// Sends until nothing is pending or the time is up.
async fn send(
    mut drain: Drain,
    deadline: Instant,
    sender: mpsc::UnboundedSender<WaitingLine>,
) -> DeliveryResult {
    let name = drain.name();
    let mut count = DeliveryCount::default();
    // Counted once, and whenever there is time: among a million events it takes longer than sending a batch of them.
    let mut left = pending_events(&mut drain);
    // The last obstacle, reported if no answer comes after it.
    let mut last = "no answer came in time".to_owned();
    let result = |pending: Option<String>, count| DeliveryResult { name, count, pending };
    loop {
        if Instant::now() >= deadline {
            return result(Some(waiting(&mut drain, "the time is up")), count);
        }
        let step = if drain.must_finish() {
            Ok(drain.step(&SystemClock).await) // within the limits of a request
        } else {
            tokio::time::timeout_at(deadline.into(), drain.step(&SystemClock)).await
        };
        let (until, why) = match step {
            Err(_) => {
                let _ = drain.release(); // or it runs out
                return result(Some(waiting(&mut drain, &last)), count);
            }
            Ok(Err(error)) => return result(Some(error.to_string()), count),
            Ok(Ok(Progress::Advanced(more))) => {
                count.add(more);
                left = left.saturating_sub(more.delivered + more.refused);
                let _ = sender.send(WaitingLine { name, pending: left, obstacle: None });
                continue;
            }
            Ok(Ok(Progress::Idle(idle))) => match idle {
                // Nothing was pending, so no request has shown yet whether the receiver would take one.
                Idle::Empty { due: None } if count == DeliveryCount::default() => {
                    let timeout = deadline.saturating_duration_since(Instant::now());
                    let objection = drain.ask(timeout).await.err();
                    return result(objection.map(|why| format!("it would take none: {why}")), count);
                }
                Idle::Empty { due: None } => return result(None, count),
                Idle::Empty { due: Some(until) } => (until, "some of it is not due yet".to_owned()),
                Idle::Paused(why) => {
                    return result(Some(format!("it {why}; fix that, then run: codemie sync")), count);
                }
                Idle::Reconfigured => {
                    let why = "another address was set up meanwhile; run: codemie sync";
                    return result(Some(why.to_owned()), count);
                }
                Idle::Waiting { until, why } => (until, why),
                Idle::LeaseHeld { until } => (until, "another process is sending".to_owned()),
            },
        };
        let wake = Instant::now() + until.since(SystemClock.now());
        if wake >= deadline {
            let then = date(until, &os::zone::local());
            return result(Some(waiting(&mut drain, &format!("{why}, next try {then}"))), count);
        }
        left = pending_events(&mut drain);
        let obstacle = Some((why.clone(), wake));
        let _ = sender.send(WaitingLine { name, pending: left, obstacle });
        last = why;
        tokio::time::sleep_until(wake.into()).await;
    }
}

fn waiting(drain: &mut Drain, why: &str) -> String {
    match pending_events(drain) {
        1 => format!("1 event still waits: {why}"),
        left => format!("{} still wait: {why}", counted(left, "event")),
    }
}

fn pending_events(drain: &mut Drain) -> usize {
    drain.count().map_or(0, |count| usize::try_from(count.pending).unwrap_or(0))
}

fn preview(
    home: &Home,
    config: &Config,
    sinks: Option<&Sinks>,
    limit: usize,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let mut store = Store::open(home, SystemClock.now())?;
    recover(&mut store, home);
    let Some(sinks) = sinks else {
        writeln!(
            err,
            "codemie: no backend is set up, so nothing is sent; this is what one would get by --backfill"
        )?;
        let identity = delivery::Identity::of(&mut store, &config.delivery.user)?;
        let address = "http://backend.invalid".parse().context("no address")?;
        let sink = delivery::Native::new(&address, delivery::Credential::None, identity);
        let (text, _) = store.read(|view| delivery::show(view, &sink, view.history(limit)?))?;
        out.write_all(json::escaped(&text).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    };
    store.write(|tx| delivery::register(tx, &sinks.targets()))?;
    for sink in sinks.open(&mut store)? {
        let (text, events) = store.read(|view| delivery::preview(view, &*sink, limit))?;
        if events == 0 {
            let name = sink.name();
            writeln!(
                err,
                "codemie: {name}: nothing waits; `codemie sync preview --since 7d` shows what left already"
            )?;
        }
        // What is sent, to the letter, but for characters that would steer a terminal: escaped, they mean the same.
        out.write_all(json::escaped(&text).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What left already.
fn delivered(
    home: &Home,
    sinks: Option<&Sinks>,
    since: Timestamp,
    limit: usize,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let mut store = Store::open(home, SystemClock.now())?;
    let Some(sinks) = sinks else {
        writeln!(err, "codemie: no backend is set up; `codemie sync preview` shows what one would get")?;
        return Ok(ExitCode::SUCCESS);
    };
    for sink in sinks.open(&mut store)? {
        let (text, events) = store.read(|view| delivery::delivered(view, &*sink, since, limit))?;
        let (name, from) = (sink.name(), date(since, &os::zone::local()));
        match counted(events, "event") {
            _ if events == 0 => writeln!(err, "codemie: {name}: nothing left since {from}")?,
            some if events == limit => {
                writeln!(
                    err,
                    "codemie: {name}: the first {some} that left since {from}; --limit shows more"
                )?;
            }
            all => writeln!(err, "codemie: {name}: {all} left since {from}")?,
        }
        out.write_all(json::escaped(&text).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waiting_line_names_the_obstacle_and_the_next_try() {
        let now = Instant::now();
        let line = |pending, obstacle| WaitingLine { name: "backend", pending, obstacle }.line(now);
        assert_eq!(line(1204, None), "backend: 1,204 waiting");
        let why = "nobody listens at http://127.0.0.1:8788".to_owned();
        assert_eq!(
            line(4, Some((why, now + Duration::from_millis(2100)))),
            "backend: 4 waiting, nobody listens at http://127.0.0.1:8788, next try in 3 s"
        );
    }
}

//! How long the server takes for a page with many sessions in the store: 100,000 with `CODEMIE_TEST_FULL`, else a few.
//! Reported, not asserted: times depend on the machine.

use std::time::{Duration, Instant};

use os::clock::{Clock, SystemClock};

use super::Served;
use super::http::ask;
use crate::support::invented;
use crate::support::postgres::Cluster;

/// Each page is asked for so often; the median counts.
const ROUNDS: usize = 7;

#[test]
fn pages_of_a_large_store() {
    let served = Served::new();
    let one = fill(&served);
    pages(&served, &one);
}

#[test]
fn pages_of_a_large_store_on_postgres() {
    let Some(cluster) = Cluster::start() else { return };
    let served = Served::on_postgres(&cluster.database("codemie"));
    let one = fill(&served);
    println!("before the first vacuum:");
    pages(&served, &one);
    cluster.run("codemie", "VACUUM ANALYZE");
    println!("after it, which the server makes by itself within minutes of such a load:");
    pages(&served, &one);
}

/// The id of a session in the middle of a chain.
fn fill(served: &Served) -> String {
    let full = std::env::var_os("CODEMIE_TEST_FULL").is_some();
    let (days, each) = if full { (366, 400) } else { (60, 10) };
    let (now, begun) = (SystemClock.now(), Instant::now());
    let (mut sessions, mut events, mut waiting) = (0, 0, Vec::new());
    let (chain, more) = invented::chain(now);
    for session in invented::history(now, days, each, 2).chain([more]) {
        sessions += 1;
        waiting.extend(session);
        if waiting.len() >= 5_000 {
            events += waiting.len();
            served.send(std::mem::take(&mut waiting));
        }
    }
    events += waiting.len();
    served.send(waiting);
    println!("{sessions} sessions, {events} events, filled in {:.1} s", begun.elapsed().as_secs_f64());
    chain[1].clone()
}

fn pages(served: &Served, one: &str) {
    let cookie = served.cookie();
    for path in [
        "/",
        "/?range=7d",
        "/?range=365d",
        "/?range=all",
        "/?range=365d&agent=claude&project=infra",
        "/?range=365d&model=gpt-5.2&user=mira",
        "/?range=90d&model=gemini-2.5-flash",
        "/sessions",
        "/sessions?range=90d&model=gemini-2.5-flash",
        "/sessions?agent=gemini",
        "/sessions?project=infra&status=failed",
        "/sessions?user=mira&model=gpt-5.2",
        "/sessions?model=no-such-model",
        "/sessions?q=fix-auth.2",
        "/sessions?q=fix-auth",
        "/sessions?q=codex&sort=cost",
        "/sessions?q=fix-auth&project=infra&status=failed",
        "/sessions?q=nothing-is-called-this",
        "/sessions?sort=cost",
        "/sessions?sort=name",
        "/sessions?sort=tokens",
        "/sessions?sort=duration",
        "/sessions?sort=cost&agent=gemini",
        "/sessions?sort=cost&range=30d",
        "/sessions?status=interrupted&sort=cost",
        &format!("/sessions/{one}"),
        "/live",
        "/health",
    ] {
        let mut times: Vec<Duration> = (0..ROUNDS).map(|_| time(served, &cookie, path)).collect();
        times.sort();
        println!("{:7.1} ms  {path}", times[ROUNDS / 2].as_secs_f64() * 1000.0);
    }
}

fn time(served: &Served, cookie: &str, path: &str) -> Duration {
    let begun = Instant::now();
    let answer = ask(served.address, "GET", path, &[("cookie", cookie)], "");
    let took = begun.elapsed();
    assert_eq!(answer.status, 200, "{path}");
    took
}

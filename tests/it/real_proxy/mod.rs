//! The real agents through the proxy: what codemie records is what the fake API's log says, for every call.

mod parity;
mod tls;
mod totals;

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use os::clock::{Clock, SystemClock};
use os::file::create_private;
use os::home::Home;
use report::bill::{Bill, BilledSum};
use store::session::record::record;
use store::{RecordRow, SessionQuery, SessionRow, Store};
use types::{Filter, SessionRecord};

use crate::support::agents::Agent;
use crate::support::fake_api::{CallLog, Spent};
use crate::support::stage::Stage;

/// How long calls may take to be stored once the agent has ended.
const STORED: Duration = Duration::from_secs(20);

/// Has every run of this home go through the proxy.
fn configure(stage: &Stage, more: &str) {
    let home = Home::at(stage.home.codemie_home());
    create_private(home.path()).unwrap();
    fs::write(home.config_file(), format!("[proxy]\nenabled = true\n{more}")).unwrap();
}

/// Codex with its built-in provider and an API key, as the proxy needs it, instead of a provider of the test's own.
fn built_in_codex(stage: &Stage) {
    let folder = stage.home.path().join(".codex");
    let config = fs::read_to_string(folder.join("config.toml")).unwrap();
    let (before, rest) = config.split_once("[model_providers.fake]").unwrap();
    let (_, after) = rest.split_once("[analytics]").unwrap();
    let own = format!("openai_base_url = \"{}/v1\"", stage.api.url());
    let before = before.replace("model_provider = \"fake\"", &own);
    fs::write(folder.join("config.toml"), format!("{before}[analytics]{after}")).unwrap();
    fs::write(folder.join("auth.json"), r#"{"auth_mode":"apikey","OPENAI_API_KEY":"sk-fake"}"#).unwrap();
}

/// The records of an agent, by conversation.
fn recorded(stage: &Stage, agent: Agent) -> BTreeMap<String, SessionRecord> {
    let mut store = Store::open(&Home::at(stage.home.codemie_home()), SystemClock.now()).unwrap();
    let records = store.read(|view| {
        let filter = SessionQuery::of(Filter { agent: Some(agent.name().to_owned()), ..Filter::default() });
        let rows = view.list(&filter)?;
        rows.iter().map(|row| record(view, row, SystemClock.now())).collect::<Result<Vec<_>, store::Error>>()
    });
    let keyed = records.unwrap().into_iter();
    keyed.filter_map(|record| Some((record.correlation.agent_session_id.clone()?.0, record))).collect()
}

fn spent(record: &SessionRecord) -> Spent {
    let usage = &record.usage;
    let number = |count: i64| u64::try_from(count).unwrap();
    Spent {
        calls: number(usage.api_calls),
        input: number(usage.input_tokens),
        cache_read: number(usage.cache_read_tokens),
        cache_write: number(usage.cache_write_tokens),
        output: number(usage.output_tokens),
        reasoning: number(usage.reasoning_tokens),
    }
}

/// The calls and tokens of each conversation that its transcript holds, and those that only the proxy saw.
fn billed(stage: &Stage, agent: Agent) -> BTreeMap<String, [Spent; 2]> {
    let mut store = Store::open(&Home::at(stage.home.codemie_home()), SystemClock.now()).unwrap();
    let filter = SessionQuery::of(Filter { agent: Some(agent.name().to_owned()), ..Filter::default() });
    let part = |sum: &BilledSum| {
        let number = |count: i64| u64::try_from(count).unwrap();
        Spent {
            calls: number(sum.calls.api_calls),
            input: number(sum.calls.input),
            cache_read: number(sum.calls.cache_read),
            cache_write: number(sum.calls.cache_write),
            output: number(sum.calls.output),
            reasoning: 0,
        }
    };
    let bills = store.read(|view| {
        let rows = view.list(&filter)?;
        let bill = |row: &SessionRow| Ok((row.agent_session.clone(), Bill::of(view, row)?));
        rows.iter().map(bill).collect::<Result<Vec<_>, store::Error>>()
    });
    let of_conversation = |(id, bill): (Option<types::AgentSessionId>, Option<Bill>)| {
        let (id, bill) = (id?, bill?);
        Some((id.0, [part(&bill.transcript), part(&bill.proxy_only)]))
    };
    bills.unwrap().into_iter().filter_map(of_conversation).collect()
}

/// How many calls of an agent were broken off.
fn aborted(stage: &Stage, agent: Agent) -> usize {
    let mut store = Store::open(&Home::at(stage.home.codemie_home()), SystemClock.now()).unwrap();
    let filter = SessionQuery::of(Filter { agent: Some(agent.name().to_owned()), ..Filter::default() });
    let calls = store.read(|view| {
        let rows = view.list(&filter)?;
        rows.iter().map(|row| view.records(row.n)).collect::<Result<Vec<_>, store::Error>>()
    });
    let is_aborted = |call: &RecordRow| call.proxy.as_ref().is_some_and(|proxy| proxy.aborted);
    calls.unwrap().iter().flatten().filter(|call| is_aborted(call)).count()
}

/// Waits until the records of an agent add up to this.
fn await_total(
    stage: &Stage,
    agent: Agent,
    expected: Spent,
    log: &CallLog,
) -> BTreeMap<String, SessionRecord> {
    let until = Instant::now() + STORED;
    loop {
        let records = recorded(stage, agent);
        let total: Spent = records.values().map(spent).sum();
        if total == expected {
            return records;
        }
        let logged =
            fs::read_to_string(stage.home.codemie_home().join("logs/codemie.log")).unwrap_or_default();
        assert!(Instant::now() < until, "{total:?}, but the API told {expected:?}\n{log}\n{logged}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn told(log: &CallLog) -> Spent {
    log.calls.iter().map(|call| call.told).sum()
}

//! One random history through everything that adds calls up: the live meter's store, `usage`, a scan of the same files, the
//! budgets' sums, the records of sessions, the backend on both databases, and OpenTelemetry. All say the same, to the last
//! token and the last pico-dollar.

use std::collections::BTreeMap;

use os::clock::{Clock, SystemClock};
use pricing::Prices;
use pricing::tier::Tier;
use serde_json::{Value, json};
use store::{SpentBy, Store};
use types::{CallSums, PicoDollars, Timestamp, Tokens};
use uuid::Uuid;

use super::otlp::series;
use crate::sandbox::{Sandbox, output_of};
use crate::support::invented::Dice;
use crate::support::postgres::Cluster;
use crate::support::receiver::{Receiver, Reply};
use crate::support::scripted::{self, Scripted};
use crate::support::served::Served;

/// The last has no price.
const MODELS: [&str; 3] = ["claude-opus-4-8", "claude-sonnet-4-5", "claude-next-9"];

type ByModel = BTreeMap<String, CallSums>;

/// The calls of one run over three conversations, as the agent's files tell them, and what they add up to.
struct History {
    dice: Dice,
    at: Timestamp,
    /// By the id of the answer: the model, and the largest numbers.
    calls: BTreeMap<String, (&'static str, Tokens)>,
}

impl History {
    fn line(&self, conversation: &str, subagent: Option<&str>, id: &str) -> Value {
        let (model, tokens) = &self.calls[id];
        let mut line = json!({
            "type": "assistant", "sessionId": conversation, "uuid": Uuid::new_v5(&Uuid::NAMESPACE_OID, id.as_bytes()),
            "timestamp": self.at.to_string(), "requestId": format!("req-{id}"),
            "message": {"id": id, "role": "assistant", "model": model, "content": [], "usage": {
                "input_tokens": tokens.input, "output_tokens": tokens.output,
                "cache_read_input_tokens": tokens.cache_read,
                "cache_creation_input_tokens": tokens.cache_write(),
                "cache_creation": {"ephemeral_5m_input_tokens": tokens.cache_write_5m,
                    "ephemeral_1h_input_tokens": tokens.cache_write_1h},
            }},
        });
        if let Some(subagent) = subagent {
            (line["isSidechain"], line["agentId"]) = (true.into(), subagent.into());
        }
        line
    }

    /// A call of a conversation: written once, or in growing pieces, by the agent itself or by a sub-agent.
    fn call(&mut self, agent: &mut Scripted, conversation: &str, id: &str) {
        let mut number = |below: i64| self.dice.below(below).cast_unsigned();
        let model = MODELS[usize::try_from(number(3)).unwrap()];
        let mut tokens = Tokens {
            input: number(5_000),
            output: 1 + number(900),
            cache_read: number(90_000),
            cache_write_5m: number(7_000),
            cache_write_1h: number(3_000),
            reasoning: 0,
        };
        let (pieces, subagent) = (1 + number(3), number(4) == 0);
        for _ in 0..pieces {
            self.calls.insert(id.to_owned(), (model, tokens));
            let (file, subagent) = if subagent {
                (format!("{conversation}/subagents/agent-a1"), Some("a1"))
            } else {
                (conversation.to_owned(), None)
            };
            agent.order(&format!("write {file} {}", self.line(conversation, subagent, id)));
            tokens.output += self.dice.below(400).cast_unsigned();
        }
    }

    fn sums(&self) -> ByModel {
        let mut sums = ByModel::new();
        for (model, tokens) in self.calls.values() {
            let cost = Prices::of(model).and_then(|prices| prices.cost(tokens, Tier::Standard));
            sums.entry((*model).to_owned()).or_default().add(&CallSums::of(tokens, cost));
        }
        sums
    }
}

/// Plays it with a real wrapper, and waits until all of it has been delivered.
fn play(sandbox: &Sandbox, seed: u64) -> History {
    let stand_in = scripted::install(sandbox);
    let mut agent = Scripted::start(sandbox, &stand_in, sandbox.home(), &[]);
    let mut history = History { dice: Dice::new(seed), at: SystemClock.now(), calls: BTreeMap::new() };
    let conversations =
        ["one", "two", "three"].map(|name| Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()));
    let mut written: Vec<(String, String)> = Vec::new();
    for (number, conversation) in conversations.iter().enumerate() {
        let conversation = conversation.to_string();
        agent.be(&conversation);
        // A conversation that goes on from others begins with copies of their calls.
        for (from, id) in &written {
            if from != &conversation && history.dice.below(3) == 0 {
                agent.order(&format!("write {conversation} {}", history.line(&conversation, None, id)));
            }
        }
        for call in 0..12 + history.dice.below(10) {
            let id = format!("msg-{number}-{call}");
            history.call(&mut agent, &conversation, &id);
            written.push((conversation.clone(), id));
        }
    }
    assert_eq!(agent.exit(0), Some(0));
    let sent = output_of(&mut sandbox.codemie(&["sync"]));
    assert_eq!(sent.code, Some(0), "{sent:?}");
    history
}

fn sums_of(row: &Value) -> CallSums {
    let number = |name: &str| row[name].as_i64().unwrap_or_else(|| panic!("{name} of {row}"));
    CallSums {
        api_calls: number("apiCalls"),
        input: number("inputTokens"),
        output: number("outputTokens"),
        cache_read: number("cacheReadTokens"),
        cache_write: number("cacheWriteTokens"),
        reasoning: number("reasoningTokens"),
        cost: pico_dollars(row["costUsd"].as_f64().unwrap()),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a few dollars")]
fn pico_dollars(dollars: f64) -> PicoDollars {
    PicoDollars((dollars * 1e12).round() as i64)
}

fn rows(answer: &Value) -> ByModel {
    let rows = answer["rows"].as_array().unwrap_or_else(|| panic!("{answer}"));
    rows.iter().map(|row| (row["key"].as_str().unwrap().to_owned(), sums_of(row))).collect()
}

fn answer(sandbox: &Sandbox, home: Option<&str>, arguments: &[&str]) -> Value {
    let mut command = sandbox.codemie(arguments);
    if let Some(home) = home {
        command.env("CODEMIE_HOME", sandbox.path(home));
    }
    let output = output_of(&mut command);
    serde_json::from_str(&output.out).unwrap_or_else(|_| panic!("{arguments:?}: {output:?}"))
}

fn everyone_agrees(database: impl Fn(&Sandbox) -> String, seed: u64) {
    let sandbox = Sandbox::new();
    let served = Served::start(&database(&sandbox));
    let collector = Receiver::start(|_| Reply::Bytes(Vec::new(), "application/x-protobuf"));
    let config = format!(
        "otlp.endpoint = '{}'\n[backend]\nurl = '{}'\ntoken = '{}'\n",
        collector.url(),
        served.url(),
        served.token("ingest")
    );
    sandbox.file(".codemie/config.toml", &config);
    let history = play(&sandbox, seed);
    let truth = history.sums();
    let mut whole = CallSums::default();
    for sums in truth.values() {
        whole.add(sums);
    }

    assert_eq!(rows(&answer(&sandbox, None, &["usage", "--by", "model", "--json"])), truth, "usage");
    // Another home knows none of the sessions: there it is all found by the scan.
    let scanned = answer(&sandbox, Some("elsewhere"), &["usage", "--scan", "--by", "model", "--json"]);
    assert_eq!(rows(&scanned), truth, "scan");
    let both = answer(&sandbox, None, &["usage", "--scan", "--by", "model", "--json"]);
    assert_eq!(rows(&both), truth, "store and scan");
    let mut records = CallSums::default();
    let listed = answer(&sandbox, None, &["list", "--json"]);
    for record in listed.as_array().unwrap() {
        records.add(&sums_of(&record["usage"]));
    }
    assert_eq!(records, whole, "records");
    assert_eq!(rows(&served.ask("/v1/usage?by=model").unwrap()), truth, "backend");

    let mut store = Store::open(&os::home::Home::at(sandbox.path(".codemie")), SystemClock.now()).unwrap();
    let hour = |hours: i64| Timestamp(history.at.0 + hours * 3_600_000);
    let spent = store.read(|view| view.spent(SpentBy::All, hour(-1), hour(1))).unwrap();
    let unpriced = truth[MODELS[2]].api_calls;
    assert_eq!((spent.cost, spent.calls, spent.unpriced), (whole.cost, whole.api_calls, unpriced), "budgets");

    // Every session has a series of its own.
    let mut told: BTreeMap<(String, String), f64> = BTreeMap::new();
    for (key, value) in series(&collector.received()) {
        let (metric, about) = key.split_once(' ').unwrap_or((&key, ""));
        let Some(model) = MODELS.into_iter().find(|model| about.contains(model)) else { continue };
        let kind = about.rsplit(' ').next().filter(|kind| ["input", "output"].contains(kind)).unwrap_or("");
        *told.entry((model.to_owned(), format!("{metric} {kind}"))).or_default() += value;
    }
    for (model, sums) in &truth {
        let told = |series: &str| told.get(&(model.clone(), series.to_owned())).copied().unwrap_or(0.0);
        let input = sums.input + sums.cache_read + sums.cache_write;
        for (series, number) in [
            ("codemie.api.calls ", sums.api_calls),
            ("gen_ai.client.token.usage input", input),
            ("gen_ai.client.token.usage output", sums.output),
            ("codemie.token.cache_read ", sums.cache_read),
            ("codemie.token.cache_write ", sums.cache_write),
        ] {
            let number = f64::from(i32::try_from(number).unwrap());
            assert!((told(series) - number).abs() < 0.5, "{model}: {series}{} is not {number}", told(series));
        }
        assert_eq!(pico_dollars(told("codemie.cost ")), sums.cost, "{model}");
    }
}

#[test]
fn every_consumer_agrees_with_sqlite() {
    everyone_agrees(|sandbox| format!("sqlite:{}", sandbox.outside("team.db").display()), 7);
}

#[test]
fn every_consumer_agrees_with_postgres() {
    let Some(cluster) = Cluster::start() else { return };
    everyone_agrees(|_| cluster.database("team"), 8);
}

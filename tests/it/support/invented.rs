//! An invented team and what it did: events as machines would have sent them, the same on every run.

use serde_json::{Value, json};
use types::Event;
use types::Timestamp;
use uuid::Uuid;

const DAY: i64 = 86_400_000;
const MINUTE: i64 = 60_000;

/// Small and always the same; nothing here needs more chance than this.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// From 0 up to, not including, `n`.
    pub(crate) fn below(&mut self, n: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        i64::try_from((self.0 >> 11) % u64::try_from(n.max(1)).unwrap()).unwrap()
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[usize::try_from(self.below(i64::try_from(from.len()).unwrap())).unwrap()]
    }

    fn uuid(&mut self) -> Uuid {
        let part = |n: i64| u128::try_from(n).unwrap();
        let bits = part(self.below(i64::MAX)) << 64 | part(self.below(i64::MAX)) << 1;
        uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
    }
}

const PEOPLE: [(&str, &str); 6] = [
    ("mira", "5f2c9a1be0d34417"),
    ("jonas", "a81e04cc7d9b2f60"),
    ("tomek", "0b7d55e1932fa8c4"),
    ("ayaka", "c3904f1a6de2b877"),
    ("selin", "77e1b08c24fd9a35"),
    ("david", "19ac6f3e508db2d1"),
];
const PROJECTS: [(&str, &str); 6] = [
    ("checkout-web", "acme/checkout-web"),
    ("widgets-api", "acme/widgets-api"),
    ("data-pipeline", "acme/data-pipeline"),
    ("mobile-app", "acme/mobile-app"),
    ("infra", "acme/infra"),
    ("design-system", "acme/design-system"),
];
const BRANCHES: [&str; 5] = ["main", "feature/login", "fix/rounding", "chore/upgrade", "feature/export"];
const TOPICS: [&str; 10] = [
    "fix-auth",
    "export-csv",
    "flaky-test",
    "upgrade-deps",
    "search-index",
    "rate-limit",
    "dark-mode",
    "invoice-pdf",
    "retry-queue",
    "cache-keys",
];
const TOOLS: [(&str, &str); 6] = [
    ("Read", "read"),
    ("Edit", "edit"),
    ("Bash", "exec"),
    ("Grep", "read"),
    ("Write", "write"),
    ("Glob", "read"),
];

/// An agent with its version and models, each with its dollars per million tokens of input and output.
const AGENTS: [(&str, &str, [(&str, f64, f64); 2]); 3] = [
    ("claude", "2.1.197", [("claude-opus-4-5", 5.0, 25.0), ("claude-sonnet-4-5", 3.0, 15.0)]),
    ("codex", "0.166.0", [("gpt-5.2-codex", 1.75, 14.0), ("gpt-5.2", 1.75, 14.0)]),
    ("gemini", "0.61.0", [("gemini-3-pro", 2.0, 12.0), ("gemini-2.5-flash", 0.3, 2.5)]),
];

/// An invented session, and the events it has sent so far.
pub(crate) struct InventedSession {
    dice: Dice,
    pub(crate) id: String,
    agent: usize,
    person: usize,
    now: i64,
    began: i64,
    seq: i64,
    pub(crate) events: Vec<Event>,
}

/// The attributes of a START.
pub(crate) struct Opening<'a> {
    pub(crate) name: &'a str,
    pub(crate) project: usize,
    pub(crate) reason: &'a str,
    pub(crate) from: Option<&'a str>,
}

impl InventedSession {
    pub(crate) fn new(seed: u64, agent: usize, person: usize, at: Timestamp) -> Self {
        let mut dice = Dice::new(seed);
        let id = dice.uuid().to_string();
        Self { dice, id, agent, person, now: at.0, began: at.0, seq: 0, events: Vec::new() }
    }

    #[expect(clippy::needless_pass_by_value, reason = "json!(…) is handed over by every caller")]
    fn emit(&mut self, kind: &str, attributes: Value) {
        self.seq += 1;
        let (user, machine) = PEOPLE[self.person];
        let event = json!({
            "id": self.dice.uuid(), "rev": 0, "type": kind, "sessionId": self.id, "seq": self.seq,
            "time": Timestamp(self.now).to_string(), "agent": AGENTS[self.agent].0, "machine": machine, "user": user,
            "attributes": attributes,
        });
        self.events.push(Event::parse(&event.to_string()).unwrap());
    }

    pub(crate) fn start(&mut self, opening: &Opening<'_>) {
        let (project, repository) = PROJECTS[opening.project];
        let branch = self.dice.pick(&BRANCHES);
        self.emit(
            "session.start",
            json!({
                "name": opening.name, "reason": opening.reason, "agentVersion": AGENTS[self.agent].1,
                "wrapperVersion": "0.1.0", "project": project, "repository": repository, "branch": branch,
                "transitionedFrom": opening.from, "parentSessionId": null, "tags": [], "group": null,
            }),
        );
        self.now += 800;
        let session = self.dice.uuid();
        self.emit("session.bound", json!({"agentSessionId": session, "evidence": "assigned"}));
    }

    /// A prompt, the calls it sets off, and the tools they use.
    pub(crate) fn turn(&mut self, calls: i64) {
        self.now += 15_000 + self.dice.below(150_000);
        let key = self.dice.uuid();
        self.emit("prompt", json!({"key": key}));
        for n in 0..calls {
            self.now += 2_000 + self.dice.below(18_000);
            self.call(n);
            if n + 1 < calls {
                self.now += 200 + self.dice.below(6_000);
                self.tool();
            }
        }
        if self.dice.below(40) == 0 {
            let key = self.dice.uuid();
            self.emit("error", json!({"key": key, "status": 529, "kind": "overloaded"}));
        }
    }

    fn call(&mut self, n: i64) {
        let models = AGENTS[self.agent].2;
        let (model, input_price, output_price) = models[usize::from(self.dice.below(5) == 0)];
        let (input, output) = (20 + self.dice.below(900), 60 + self.dice.below(1_400));
        let (read, write) =
            (14_000 + 900 * self.seq + self.dice.below(4_000) * n, 300 + self.dice.below(3_500));
        #[expect(clippy::cast_precision_loss, reason = "invented numbers")]
        let cost = (input as f64 * input_price
            + output as f64 * output_price
            + read as f64 * input_price * 0.1
            + write as f64 * input_price * 1.25)
            / 1e6;
        let (key, subagent) = (self.dice.uuid(), self.dice.below(9) == 0);
        self.emit(
            "usage",
            json!({
                "key": key, "model": model, "inputTokens": input, "outputTokens": output, "cacheReadTokens": read,
                "cacheWriteTokens": write, "reasoningTokens": output / 4, "costUsd": cost, "subagent": subagent,
                "source": "transcript",
            }),
        );
    }

    fn tool(&mut self) {
        let (name, kind) = TOOLS[usize::try_from(self.dice.below(6) * self.dice.below(2)).unwrap()];
        let edits = kind == "edit" || kind == "write";
        let (key, ok) = (self.dice.uuid(), self.dice.below(11) != 0);
        let lines = if edits { self.dice.below(40) } else { 0 };
        let extension = self.dice.pick(&["rs", "ts", "py", "toml"]);
        self.emit(
            "tool",
            json!({
                "key": key, "name": name, "ok": ok, "kind": kind, "fileExtension": extension, "linesAdded": lines,
                "linesRemoved": lines / 3,
            }),
        );
    }

    pub(crate) fn end(&mut self, status: &str, reason: &str, to: Option<&str>) {
        self.now += 2_000 + self.dice.below(60_000);
        let code = if reason == "exit" { json!(i32::from(status == "failed")) } else { Value::Null };
        let (last, files) = (self.seq + 1, self.dice.below(9));
        self.emit(
            "session.end",
            json!({
                "status": status, "endReason": reason, "exitCode": code, "durationMs": self.now - self.began,
                "transitionedTo": to, "totals": {"filesChanged": files, "coverage": "transcript"},
                "lastSeq": last,
            }),
        );
    }

    pub(crate) fn at(&self) -> Timestamp {
        Timestamp(self.now)
    }
}

/// A chain of three sessions, linked by `/clear`; the last one is going on. Their ids, and what was sent.
pub(crate) fn chain(now: Timestamp) -> (Vec<String>, Vec<Event>) {
    let begin = Timestamp(now.0 - 95 * MINUTE);
    let mut first = InventedSession::new(101, 0, 0, begin);
    first.start(&Opening { name: "fix-auth", project: 0, reason: "startup", from: None });
    for calls in [4, 9, 2, 12, 6] {
        first.turn(calls);
    }
    let mut second = InventedSession::new(102, 0, 0, Timestamp(first.now + 61_000));
    first.end("completed", "clear", Some(&second.id));
    second.now = first.now;
    second.began = first.now;
    second.start(&Opening { name: "fix-auth.2", project: 0, reason: "clear", from: Some(&first.id) });
    for calls in [7, 3, 11, 5, 8, 2, 6] {
        second.turn(calls);
    }
    let mut third = InventedSession::new(103, 0, 0, second.at());
    second.end("completed", "clear", Some(&third.id));
    third.now = second.now;
    third.began = second.now;
    third.start(&Opening { name: "fix-auth.3", project: 0, reason: "clear", from: Some(&second.id) });
    third.turn(3);
    let sessions = [first, second, third];
    (
        sessions.iter().map(|session| session.id.clone()).collect(),
        sessions.into_iter().flat_map(|t| t.events).collect(),
    )
}

/// A session that was closed for hours and opened again, with a prompt that was never answered, and its id.
pub(crate) fn resumed(now: Timestamp) -> (String, Vec<Event>) {
    let mut session = InventedSession::new(104, 0, 2, Timestamp(now.0 - 300 * MINUTE));
    session.start(&Opening { name: "upgrade-deps.again", project: 1, reason: "startup", from: None });
    session.turn(6);
    session.turn(4);
    session.end("completed", "exit", None);
    session.now += 200 * MINUTE;
    session.began += 200 * MINUTE; // only the time it was open counts
    session.start(&Opening { name: "upgrade-deps.again", project: 1, reason: "resume", from: None });
    session.turn(0);
    session.turn(5);
    session.end("completed", "exit", None);
    (session.id, session.events)
}

/// What the team did on the days before `now`: sessions that began and ended, `each` so many on a working day.
pub(crate) fn history(now: Timestamp, days: i64, each: i64, turns: i64) -> impl Iterator<Item = Vec<Event>> {
    (0..days).rev().flat_map(move |back| {
        let midnight = now.0 - now.0 % DAY - back * DAY;
        // The epoch was a Thursday.
        let weekend = matches!((midnight / DAY + 4) % 7, 0 | 6);
        let mut dice = Dice::new(u64::try_from(back).unwrap() + 7);
        let number = if weekend { each / 6 } else { each * 2 / 3 + dice.below(each / 2 + 1) };
        (0..number).filter_map(move |n| {
            let seed = u64::try_from(back * 10_000 + n).unwrap() + 1_000;
            let mut dice = Dice::new(seed);
            let at = Timestamp(midnight + 8 * 60 * MINUTE + dice.below(9 * 60 * MINUTE));
            let agent = usize::try_from([0, 0, 0, 1, 1, 2][usize::try_from(dice.below(6)).unwrap()]).unwrap();
            let person = usize::try_from(dice.below(6)).unwrap();
            let mut session = InventedSession::new(seed, agent, person, at);
            let name = format!("{}-{}", dice.pick(&TOPICS), back * 100 + n);
            let project =
                usize::try_from(dice.below(6)).unwrap().min(usize::try_from(dice.below(6)).unwrap());
            session.start(&Opening { name: &name, project, reason: "startup", from: None });
            for _ in 0..=dice.below(turns) {
                let calls = 1 + dice.below(6);
                session.turn(calls);
            }
            match dice.below(20) {
                0 => session.end("failed", "exit", None),
                1 => session.end("interrupted", "crash", None),
                _ => session.end("completed", "exit", None),
            }
            // Of one in sixty something was lost on the way, so far.
            if dice.below(60) == 0 {
                session.events.remove(3);
            }
            (session.now < now.0).then_some(session.events)
        })
    })
}

/// A session in which everything is called as long as it may be, and its id.
pub(crate) fn long_words(now: Timestamp) -> (String, Vec<Event>) {
    let id = "10000000-0000-4000-8000-000000000001";
    let word = |name: &str, length: usize| format!("{name}_{}", "very_".repeat(length))[..length].to_owned();
    let (agent, user) = (word("agent", 400), word("user", 400));
    let event = |seq: i64, kind: &str, attributes: Value| {
        let json = json!({
            "id": Uuid::from_u128(u128::try_from(seq).unwrap()), "rev": 0, "type": kind, "sessionId": id, "seq": seq,
            "time": Timestamp(now.0 - 60_000 + seq * 1000).to_string(), "agent": agent, "machine": "m", "user": user,
            "attributes": attributes,
        });
        Event::parse(&json.to_string()).unwrap()
    };
    let start = json!({
        "name": word("name", 100), "reason": "startup", "project": word("project", 400),
        "repository": word("owner/repository", 200), "branch": word("dependabot/npm_and_yarn", 400),
        "tags": [word("tag", 100), word("another", 60)], "group": word("group", 100),
    });
    let usage = json!({"key": "k", "model": word("model", 400), "outputTokens": 7, "costUsd": 999.99});
    let tool = json!({"key": "t", "name": word("tool", 100), "ok": false, "kind": "exec"});
    let error = json!({"key": "e", "status": 529, "kind": word("kind", 100)});
    let content = [
        ("session.start", start),
        ("prompt", json!({"key": "p"})),
        ("usage", usage),
        ("tool", tool),
        ("error", error),
    ];
    let events = (1..).zip(content).map(|(seq, (kind, attributes))| event(seq, kind, attributes)).collect();
    (id.to_owned(), events)
}

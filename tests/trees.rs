//! Trees of Claude session files, any size, the same for the same seed, together with what a correct reader counts in them.
//!
//! Made to be realistic where it costs time (one line per content block, tool results from a hundred bytes to a megabyte) and
//! nasty where it costs exactness: forks that copy lines with and without saying so, sub-agents in files of their own and
//! replayed in their parents', several revisions of one message, answers under several session ids, tool results that hold
//! usage of their own, synthetic messages, 1-hour cache writes, models nobody knows, broken lines, torn last lines.
#![allow(dead_code, reason = "whoever includes this uses what it needs")]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What to make.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    /// About how much in all.
    pub bytes: u64,
    /// About how much one conversation's file holds.
    pub session_bytes: u64,
}

/// What a correct reader counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub calls: u64,
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    /// Pico-dollars, of the calls with a price.
    pub cost: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    pub total: Counts,
    pub sessions: BTreeMap<String, Counts>,
    pub models: BTreeMap<String, Counts>,
    pub days: BTreeMap<String, Counts>,
    pub projects: BTreeMap<String, Counts>,
    pub branches: BTreeMap<String, Counts>,
    pub files: u64,
    pub bytes: u64,
    pub unreadable: u64,
    /// Lines that hold usage, each message's several times.
    pub usage_lines: u64,
}

/// Pico-dollars per token: input, output, cache read, cache write of 5 minutes and of 1 hour. Checked against the list by
/// hand; the last has no price.
const MODELS: &[(&str, Option<[u64; 5]>)] = &[
    ("claude-opus-4-8", Some([5_000_000, 25_000_000, 500_000, 6_250_000, 10_000_000])),
    ("claude-haiku-4-5-20251001", Some([1_000_000, 5_000_000, 100_000, 1_250_000, 2_000_000])),
    ("claude-next-9", None),
];

/// A message that was answered.
#[derive(Clone, Debug)]
struct Answer {
    id: String,
    model: usize,
    input: u64,
    output: u64,
    cache_read: u64,
    write_5m: u64,
    write_1h: u64,
    request: bool,
    at: i64,
}

/// One line, as it stands in a file.
#[derive(Clone, Debug)]
enum Line {
    /// With `\u{1}` where the session's id goes and `\u{2}` where a mark of copying may go.
    Text(String),
    Broken(String),
}

struct Maker {
    random: u64,
    truth: Truth,
    clock: i64,
    /// What texts are made of.
    prose: Vec<String>,
}

impl Maker {
    /// xorshift64*
    fn random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.random() >> 11) % limit.max(1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn uuid(&mut self) -> String {
        let (a, b) = (self.random(), self.random());
        format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
            a >> 32,
            a >> 16 & 0xffff,
            a & 0xfff,
            b >> 52,
            b & 0xffff_ffff_ffff
        )
    }

    /// A message's id: as the API makes them.
    fn message_id(&mut self) -> String {
        let mut id = String::from("msg_01");
        for _ in 0..22 {
            let letters = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
            id.push(char::from(letters[usize::try_from(self.below(58)).unwrap()]));
        }
        id
    }

    fn tick(&mut self, most: u64) -> String {
        self.clock += 1 + i64::try_from(self.below(most)).unwrap();
        time(self.clock)
    }

    /// A JSON string's inside: about this long, with escapes, and with the words that a careless reader looks for.
    fn words(&mut self, length: u64) -> String {
        let length = usize::try_from(length).unwrap();
        let mut text = String::with_capacity(length + 128);
        let mut line = usize::try_from(self.below(self.prose.len() as u64)).unwrap();
        while text.len() < length {
            text.push_str(&self.prose[line % self.prose.len()]);
            line += 1;
        }
        text
    }

    /// Most tool results are short, some are files, few are huge.
    fn result_length(&mut self) -> u64 {
        match self.below(1000) {
            0..550 => 60 + self.below(900),
            550..880 => 1_000 + self.below(9_000),
            880..990 => 10_000 + self.below(60_000),
            _ => 100_000 + self.below(700_000),
        }
    }

    fn answer(&mut self) -> Answer {
        let model = match self.below(100) {
            0..80 => 0,
            80..98 => 1,
            _ => 2,
        };
        let written = if self.chance(70) { self.below(9_000) } else { 0 };
        let hour = if self.chance(15) { written / 3 } else { 0 };
        Answer {
            id: self.message_id(),
            model,
            input: 1 + self.below(4_000),
            output: 5 + self.below(2_500),
            cache_read: self.below(60_000),
            write_5m: written - hour,
            write_1h: hour,
            request: !self.chance(5),
            at: 0,
        }
    }

    /// The lines of one answer: a line per block, results between them, sometimes an earlier revision before.
    fn message(&mut self, place: &Place, answer: &mut Answer, into: &mut Vec<Line>) {
        let blocks = match self.below(100) {
            0..45 => 1,
            45..80 => 2,
            80..95 => 3,
            _ => 5,
        };
        let partial = self.chance(10);
        for block in 0..blocks {
            let at = self.tick(1500);
            if block == 0 {
                answer.at = self.clock;
            }
            // Versions that wrote while the answer still came in: the first lines know little of the output.
            let output = if partial && block + 1 < blocks { 1 + answer.output % 4 } else { answer.output };
            let tool = format!("toolu_{:016x}", self.random());
            let content = match (block, blocks) {
                (0, 2..) => {
                    let length = 80 + self.below(1500);
                    format!(
                        r#"{{"type":"thinking","thinking":"{}","signature":"{}"}}"#,
                        self.words(length),
                        self.words(300)
                    )
                }
                (_, 1) if self.chance(40) => {
                    let length = 100 + self.below(3000);
                    format!(r#"{{"type":"text","text":"{}"}}"#, self.words(length))
                }
                _ => {
                    let length = 40 + self.below(800);
                    format!(
                        r#"{{"type":"tool_use","id":"{tool}","name":"Bash","input":{{"command":"{}","usage":"\"usage\":{{}}"}}}}"#,
                        self.words(length)
                    )
                }
            };
            into.push(self.assistant(place, answer, output, &content, &at));
            self.truth.usage_lines += 1;
            if content.contains("tool_use") {
                self.tool_result(place, &tool, into);
            }
        }
        // A smaller revision afterwards, as replays leave it.
        if partial && self.chance(30) {
            let at = self.tick(50);
            let content = r#"{"type":"text","text":""}"#;
            into.push(self.assistant(place, answer, 1, content, &at));
            self.truth.usage_lines += 1;
        }
    }

    fn assistant(&mut self, place: &Place, answer: &Answer, output: u64, content: &str, at: &str) -> Line {
        let Answer { id, model, input, cache_read, write_5m, write_1h, request, .. } = answer;
        let (parent, uuid) = (self.uuid(), self.uuid());
        let written = write_5m + write_1h;
        let request = if *request { format!(r#""requestId":"req_{}","#, &id[4..]) } else { String::new() };
        let Place { marks, cwd, branch } = place;
        Line::Text(format!(
            r#"{{"parentUuid":"{parent}",{marks}"message":{{"id":"{id}","type":"message","role":"assistant","model":"{model}","content":[{content}],"stop_reason":"tool_use","stop_sequence":null,"usage":{{"input_tokens":{input},"cache_creation_input_tokens":{written},"cache_read_input_tokens":{cache_read},"output_tokens":{output},"server_tool_use":{{"web_search_requests":0,"web_fetch_requests":0}},"service_tier":"standard","cache_creation":{{"ephemeral_1h_input_tokens":{write_1h},"ephemeral_5m_input_tokens":{write_5m}}},"inference_geo":"","iterations":[],"speed":"standard"}},"stop_details":null}},{request}"type":"assistant","uuid":"{uuid}","timestamp":"{at}","userType":"external","entrypoint":"cli","cwd":"{cwd}","sessionId":"{}","version":"2.1.197","gitBranch":"{branch}"{}}}"#,
            '\u{1}',
            '\u{2}',
            model = MODELS[*model].0,
        ))
    }

    fn tool_result(&mut self, place: &Place, tool: &str, into: &mut Vec<Line>) {
        let length = self.result_length();
        let text = self.words(length);
        // What an agent's tool leaves: usage that is the last call's of a sub-agent and none of its own.
        let more = if self.chance(5) {
            r#""usage":{"input_tokens":9999,"output_tokens":9999},"role":"assistant","status":"completed","#
        } else {
            ""
        };
        let content = format!(
            r#"[{{"tool_use_id":"{tool}","type":"tool_result","content":"{text}","is_error":false}}]"#
        );
        let result = format!(
            r#""toolUseResult":{{{more}"stdout":"{}","interrupted":false}},"#,
            beginning(&text, 4000)
        );
        into.push(self.user(place, &content, &result));
    }

    fn user(&mut self, place: &Place, content: &str, more: &str) -> Line {
        let (parent, uuid, at) = (self.uuid(), self.uuid(), self.tick(900));
        let Place { marks, cwd, branch } = place;
        Line::Text(format!(
            r#"{{"parentUuid":"{parent}",{marks}"type":"user","message":{{"role":"user","content":{content}}},"uuid":"{uuid}","timestamp":"{at}",{more}"userType":"external","entrypoint":"cli","cwd":"{cwd}","sessionId":"{}","version":"2.1.197","gitBranch":"{branch}"{}}}"#,
            '\u{1}', '\u{2}',
        ))
    }

    /// A conversation's lines, until they hold about `bytes`.
    fn talk(&mut self, place: &Place, bytes: u64, owner: &str, into: &mut Vec<Line>) {
        let mut held = 0;
        while held < bytes {
            let before = into.len();
            let length = 20 + self.below(600);
            let prompt = format!("\"{}\"", self.words(length));
            into.push(self.user(place, &prompt, r#""origin":{"kind":"human"},"promptSource":"typed","#));
            for _ in 0..=self.below(8) {
                let mut answer = self.answer();
                self.message(place, &mut answer, into);
                self.count(&answer, owner, place);
            }
            match self.below(100) {
                0..6 => {
                    // No call: the program's own words.
                    let at = self.tick(100);
                    let mut none = self.answer();
                    none.id = self.uuid();
                    let Line::Text(line) =
                        self.assistant(place, &none, 0, r#"{"type":"text","text":"API Error"}"#, &at)
                    else {
                        continue;
                    };
                    into.push(Line::Text(line.replace(MODELS[none.model].0, "<synthetic>")));
                }
                6..8 => {
                    into.push(Line::Broken(
                        r#"{"type":"assistant","message":{"id":"msg_torn","usage":{"inp"#.into(),
                    ));
                    self.truth.unreadable += 1;
                }
                8 => {
                    into.push(Line::Broken("\u{0}\u{0}\u{0}".into()));
                    self.truth.unreadable += 1;
                }
                9..60 => {
                    let (id, at) = (self.uuid(), self.tick(10));
                    into.push(Line::Text(format!(
                        r#"{{"type":"file-history-snapshot","messageId":"{id}","snapshot":{{"trackedFileBackups":{{}},"timestamp":"{at}"}},"isSnapshotUpdate":false}}"#
                    )));
                }
                _ => {}
            }
            held += into[before..].iter().map(|line| line.text().len() as u64).sum::<u64>();
        }
    }

    fn count(&mut self, answer: &Answer, owner: &str, place: &Place) {
        let tokens = [answer.input, answer.output, answer.cache_read, answer.write_5m, answer.write_1h];
        let (model, prices) = MODELS[answer.model];
        let cost =
            prices.map_or(0, |prices| prices.iter().zip(tokens).map(|(price, count)| price * count).sum());
        let one = Counts {
            calls: 1,
            input: answer.input,
            output: answer.output,
            cache_read: answer.cache_read,
            cache_write: answer.write_5m + answer.write_1h,
            cost,
        };
        let day = time(answer.at)[..10].to_owned();
        let project = place.cwd.rsplit('/').next().unwrap_or_default().to_owned();
        let truth = &mut self.truth;
        truth.total.add(&one);
        truth.sessions.entry(owner.to_owned()).or_default().add(&one);
        truth.models.entry(model.to_owned()).or_default().add(&one);
        truth.days.entry(day).or_default().add(&one);
        truth.projects.entry(project).or_default().add(&one);
        truth.branches.entry(place.branch.clone()).or_default().add(&one);
    }

    fn save(&mut self, path: &Path, lines: &[Line], id: &str, torn: bool) -> io::Result<()> {
        let mut text = String::new();
        for line in lines {
            // Ids first, so that a mark of copying may name another.
            for piece in line.text().split_inclusive(['\u{1}', '\u{2}']) {
                if let Some(piece) = piece.strip_suffix('\u{1}') {
                    text.push_str(piece);
                    text.push_str(id);
                } else {
                    text.push_str(piece.strip_suffix('\u{2}').unwrap_or(piece));
                }
            }
            text.push('\n');
        }
        if torn {
            text.push_str(r#"{"type":"assistant","message":{"id":"msg_cut","usage":{"output_tok"#);
        }
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        fs::write(path, &text)?;
        self.truth.files += 1;
        self.truth.bytes += text.len() as u64;
        Ok(())
    }
}

/// Where a conversation takes place.
struct Place {
    marks: String,
    cwd: String,
    branch: String,
}

impl Line {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Broken(text) => text,
        }
    }

    /// As it stands in a copy: marked, if the agent marks copies.
    fn copied(&self, from: Option<&str>) -> Option<Self> {
        match (self, from) {
            (Self::Broken(_), _) => None,
            (Self::Text(text), None) => Some(Self::Text(text.clone())),
            (Self::Text(text), Some(from)) => {
                Some(Self::Text(text.replace(
                    '\u{2}',
                    &format!(r#","forkedFrom":{{"sessionId":"{from}","messageUuid":"u"}}"#),
                )))
            }
        }
    }
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.input += other.input;
        self.output += other.output;
        self.cache_read += other.cache_read;
        self.cache_write += other.cache_write;
        self.cost += other.cost;
    }
}

/// Makes the tree under `root`, which plays `~/.claude`.
pub fn make(root: &Path, plan: Plan) -> io::Result<Truth> {
    let mut maker = Maker {
        random: plan.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        truth: Truth::default(),
        // 2026-09-01
        clock: 1_788_220_800_000,
        prose: prose(),
    };
    while maker.truth.bytes < plan.bytes {
        family(&mut maker, root, plan.session_bytes)?;
    }
    Ok(maker.truth)
}

/// A conversation, its sub-agents, and what was forked off it.
fn family(maker: &mut Maker, root: &Path, bytes: u64) -> io::Result<()> {
    let project = maker.below(12);
    let folder = root.join(format!("projects/-home-dev-project-{project}"));
    let mut place = Place {
        marks: r#""isSidechain":false,"#.into(),
        cwd: format!("/home/dev/project-{project}"),
        branch: format!("branch-{}", maker.below(3)),
    };
    let id = maker.uuid();
    let mut lines =
        vec![Line::Text(r#"{"type":"mode","mode":"normal","sessionId":""#.to_owned() + "\u{1}\"}")];
    let size = bytes / 4 + maker.below(bytes * 3 / 2);
    maker.talk(&place, size, &id, &mut lines);
    let file = |id: &str| folder.join(format!("{id}.jsonl"));
    for _ in 0..(if maker.chance(25) { 1 + maker.below(3) } else { 0 }) {
        let agent = format!("a{:016x}", maker.random());
        place.marks = format!(r#""isSidechain":true,"agentId":"{agent}","#);
        let mut sub = Vec::new();
        let size = maker.below(bytes / 3);
        maker.talk(&place, size, &id, &mut sub);
        let path = folder.join(&id).join(format!("subagents/agent-{agent}.jsonl"));
        maker.save(&path, &sub, &id, false)?;
        if maker.chance(10) {
            // Earlier versions kept a sub-agent's lines in the main file, too.
            lines.extend(sub.iter().filter_map(|line| line.copied(None)));
        }
    }
    place.marks = r#""isSidechain":false,"#.into();
    let torn = maker.chance(10);
    maker.save(&file(&id), &lines, &id, torn)?;
    for (percent, marked) in [(8, false), (4, true)] {
        if maker.chance(percent) {
            let fork = maker.uuid();
            let mut copies: Vec<_> =
                lines.iter().filter_map(|line| line.copied(marked.then_some(id.as_str()))).collect();
            let size = maker.below(bytes / 2);
            maker.talk(&place, size, &fork, &mut copies);
            maker.save(&file(&fork), &copies, &fork, false)?;
        }
    }
    Ok(())
}

/// `2026-11-16T00:02:26.886Z`
fn time(ms: i64) -> String {
    let (days, rest) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    // Days since 1970 to a date, after Howard Hinnant.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + i64::from(month <= 2);
    let (h, m, s, milli) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60, rest % 1000);
    format!("{year}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{milli:03}Z")
}

/// Lines as tools print them, escaped for JSON.
fn prose() -> Vec<String> {
    (0..2000_u64)
        .map(|n| {
            let line = n.wrapping_mul(7919) % 9973;
            match if n % 50 == 7 { 4 } else { n % 4 } {
                0 => format!(r"    let mut value = self.table.get(&{line}).copied().unwrap_or_default();\n"),
                1 => format!(r"src/terminal/wrapped.rs:{line}: warning: unused variable: `zähler`\n"),
                4 => format!(
                    r#"{{\"type\":\"assistant\",\"message\":{{\"usage\":{{\"output_tokens\":{line}}}}}}}\n"#
                ),
                2 => format!(
                    r"drwxr-xr-x 2 dev dev 4096 Nov 16 00:{:02} target/release/deps/codemie-{line:x}\n",
                    n % 60
                ),
                _ => format!(
                    r"\u001b[32m   Compiling\u001b[0m serde v1.0.{line} (registry)\t and all the rest as before\n"
                ),
            }
        })
        .collect()
}

/// The beginning of a text: whole lines, at most this long.
fn beginning(text: &str, most: usize) -> &str {
    let cut = text.floor_char_boundary(most.min(text.len()));
    text[..cut].rfind(r"\n").map_or("", |end| &text[..end + 2])
}

/// All files of a tree, in order.
pub fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

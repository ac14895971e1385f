//! Every state and edge of a text on its way, and random agents: delivered once, or said not to be.

use std::collections::VecDeque;

use super::*;
use agents::live::Composer;
use types::StateSource;

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// What is seen, in a form that is quick to write: `state/composer`, where `-` is no composer and `?…` a question.
#[derive(Clone, Debug)]
struct Scene {
    state: LiveState,
    reading: ScreenReading,
    quiet_for: Duration,
    bracketed_paste: bool,
    unwritten: usize,
    screen_is_known: bool,
    prompts_are_read: bool,
    viewer_keys: u64,
    ended: bool,
}

impl Scene {
    fn of(is: Activity, composer: Option<&str>) -> Self {
        let shown = match is {
            Activity::Dialog => Some(Shown::Dialog("trust".into())),
            Activity::NeedsInput => Some(Shown::NeedsInput("permission".into())),
            Activity::Working => Some(Shown::Working("thinking".into())),
            _ => composer.map(|_| Shown::Quiet),
        };
        Self {
            state: LiveState {
                is,
                since: Timestamp(0),
                why: "seen".into(),
                source: Some(StateSource::Screen),
            },
            reading: ScreenReading {
                shown,
                reported: None,
                composer: composer.map(|text| Composer { text: text.into() }),
                dialog: None,
            },
            quiet_for: if is == Activity::Working { Duration::ZERO } else { ms(150) },
            bracketed_paste: true,
            unwritten: 0,
            screen_is_known: true,
            prompts_are_read: true,
            viewer_keys: 0,
            ended: false,
        }
    }

    fn at(&self, now: Instant) -> Situation<'_> {
        Situation {
            now,
            state: &self.state,
            reading: &self.reading,
            bracketed_paste: self.bracketed_paste,
            quiet_for: self.quiet_for,
            unwritten: self.unwritten,
            screen_is_known: self.screen_is_known,
            prompts_are_read: self.prompts_are_read,
            viewer_keys: self.viewer_keys,
            ended: self.ended,
            session: None,
            last_event: Timestamp(7),
        }
    }
}

fn idle(composer: &str) -> Scene {
    Scene::of(Activity::Idle, Some(composer))
}

/// What happens from one time to the next, in the words of a table.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a few rows of a table")]
enum Act {
    /// From this many milliseconds on the scene is this one.
    See(u64, Scene),
    /// A prompt appears in the file.
    File(u64, &'static str),
}

/// Steps every 10 ms through a play. Returns what was typed, when, and the answer.
fn play(text: &str, timeout: u64, acts: &[Act]) -> (Vec<(u64, String)>, Option<SendAnswer>) {
    let start = Instant::now();
    let mut sending = Sending::new(crate::remote::send::prepare(text).unwrap(), start + ms(timeout));
    let (mut typed, mut scene) = (Vec::new(), Scene::of(Activity::Starting, None));
    for now in (0..60_000).step_by(10) {
        for act in acts {
            match act {
                Act::See(at, seen) if *at == now => scene = seen.clone(),
                Act::File(at, prompt) if *at == now => sending.note_prompt(prompt),
                _ => {}
            }
        }
        match sending.step(&scene.at(start + ms(now))) {
            Step::Wait(until) => assert!(until > start + ms(now)),
            Step::Type(bytes) => typed.push((now, String::from_utf8(bytes).unwrap())),
            Step::Done(answer) => return (typed, Some(answer)),
        }
    }
    (typed, None)
}

const PASTE: &str = "\x1b[200~hello\x1b[201~";

#[test]
fn a_text_is_typed_when_the_composer_is_ready_and_proved_by_what_follows() {
    use Act::{File, See};
    type Case = (&'static str, Vec<Act>, &'static [&'static str], Delivery, &'static str);
    let working = |composer: &str| Scene::of(Activity::Working, Some(composer));
    let question = Scene::of(Activity::NeedsInput, None);
    let dialog = Scene::of(Activity::Dialog, None);
    let with = |mut scene: Scene, change: fn(&mut Scene)| {
        change(&mut scene);
        scene
    };
    let once: &[&str] = &[PASTE, "\r"];
    let twice: &[&str] = &[PASTE, "\r", "\r"];
    let cases: Vec<Case> = vec![
        (
            "idle, then in the file",
            vec![See(0, idle("")), See(500, idle("hello")), See(1000, idle("")), File(1300, " hello\n")],
            once,
            Delivery::TurnStarted,
            "file",
        ),
        (
            "in the file before the screen shows it",
            vec![See(0, idle("")), See(500, idle("hello")), File(900, "hello")],
            once,
            Delivery::TurnStarted,
            "file",
        ),
        (
            "idle, never in the file",
            vec![See(0, idle("")), See(500, idle("hello")), See(1000, idle("")), File(1300, "other")],
            once,
            Delivery::Accepted,
            "left the composer",
        ),
        (
            "shown as a token",
            vec![See(0, idle("")), See(500, idle("[Pasted text #1]")), See(1000, idle(""))],
            once,
            Delivery::Accepted,
            "left the composer",
        ),
        (
            "busy",
            vec![See(0, working("")), See(500, working("hello")), See(1000, working(""))],
            once,
            Delivery::Queued,
            "busy",
        ),
        (
            "busy, and its turn comes at once",
            vec![
                See(0, working("")),
                See(500, working("hello")),
                See(1000, working("")),
                File(1200, "hello"),
            ],
            once,
            Delivery::TurnStarted,
            "file",
        ),
        (
            "started meanwhile",
            vec![
                See(2000, Scene::of(Activity::Starting, Some(""))),
                See(4000, idle("")),
                See(4500, idle("hello")),
                See(5000, idle("")),
            ],
            once,
            Delivery::Accepted,
            "left",
        ),
        ("never ready", vec![], &[], Delivery::Rejected, "not ready for a prompt in time (starting: seen)"),
        ("a dialog", vec![See(0, dialog.clone())], &[], Delivery::Rejected, "asks (trust)"),
        ("a question", vec![See(0, question.clone())], &[], Delivery::Rejected, "asks (permission)"),
        (
            "a state that asks, though the screen shows nothing of it",
            vec![See(0, with(idle(""), |scene| scene.state.is = Activity::NeedsInput))],
            &[],
            Delivery::Rejected,
            "asks (seen)",
        ),
        (
            "a dialog for a moment, half painted",
            vec![See(0, dialog.clone()), See(200, idle("")), See(700, idle("hello")), See(1200, idle(""))],
            once,
            Delivery::Accepted,
            "left",
        ),
        ("somebody's text", vec![See(0, idle("my own"))], &[], Delivery::Rejected, "another text stands"),
        (
            "somebody's text is removed in time",
            vec![See(0, idle("my own")), See(800, idle("")), See(1300, idle("hello")), See(2000, idle(""))],
            once,
            Delivery::Accepted,
            "left",
        ),
        (
            "no program that codemie knows",
            vec![See(0, with(Scene::of(Activity::Unknown, None), |scene| scene.screen_is_known = false))],
            &[],
            Delivery::Rejected,
            "does not know where",
        ),
        (
            "gone before anything was typed",
            vec![See(0, with(idle(""), |scene| scene.ended = true))],
            &[],
            Delivery::Rejected,
            "ended before anything",
        ),
        (
            "gone before Enter",
            vec![See(0, idle("")), See(400, with(idle("hello"), |scene| scene.ended = true))],
            &[PASTE],
            Delivery::Rejected,
            "ended before Enter",
        ),
        (
            "gone after Enter",
            vec![
                See(0, idle("")),
                See(400, idle("hello")),
                See(800, with(idle("hello"), |scene| scene.ended = true)),
            ],
            once,
            Delivery::Unknown,
            "ended after Enter",
        ),
        (
            "gone after it left the composer",
            vec![
                See(0, idle("")),
                See(400, idle("hello")),
                See(800, idle("")),
                See(1000, with(idle(""), |scene| scene.ended = true)),
            ],
            once,
            Delivery::Accepted,
            "left",
        ),
        (
            "the first Enter is ignored",
            vec![See(0, idle("")), See(400, idle("hello")), See(2500, idle(""))],
            twice,
            Delivery::Accepted,
            "left",
        ),
        (
            "the first Enter makes a line",
            vec![See(0, idle("")), See(400, idle("hello")), See(900, idle("hello\n")), See(2500, idle(""))],
            twice,
            Delivery::Accepted,
            "left",
        ),
        (
            "every Enter is ignored",
            vec![See(0, idle("")), See(400, idle("hello"))],
            twice,
            Delivery::Unknown,
            "still stands in the composer",
        ),
        (
            "a question covers the composer after Enter",
            vec![See(0, idle("")), See(400, idle("hello")), See(700, question.clone())],
            once,
            Delivery::Unknown,
            "nothing proves",
        ),
        (
            "a question comes between the text and Enter, and is answered by nobody",
            vec![See(0, idle("")), See(300, question.clone())],
            &[PASTE],
            Delivery::Unknown,
            "Enter was not pressed, because",
        ),
        (
            "a question comes between the text and Enter, and is answered",
            vec![
                See(0, working("")),
                See(300, question.clone()),
                See(3000, working("hello")),
                See(3500, working("")),
            ],
            once,
            Delivery::Queued,
            "busy",
        ),
        (
            "the paste never shows",
            vec![See(0, idle(""))],
            &[PASTE],
            Delivery::Unknown,
            "did not appear in the composer",
        ),
        (
            "the program has not taken all of it yet",
            vec![See(0, idle("")), See(400, with(idle("hel"), |scene| scene.unwritten = 5))],
            &[PASTE],
            Delivery::Unknown,
            "Enter was not pressed yet",
        ),
        (
            "a viewer types before Enter",
            vec![See(0, idle("")), See(400, with(idle("hellox"), |scene| scene.viewer_keys = 1))],
            &[PASTE],
            Delivery::Unknown,
            "somebody typed",
        ),
        (
            "a viewer empties the composer after Enter",
            vec![
                See(0, idle("")),
                See(400, idle("hello")),
                See(800, with(idle(""), |scene| scene.viewer_keys = 1)),
            ],
            once,
            Delivery::Unknown,
            "somebody typed",
        ),
        (
            "never quiet, though idle",
            vec![
                See(0, with(idle(""), |scene| scene.quiet_for = ms(0))),
                See(4000, with(idle("hello"), |scene| scene.quiet_for = ms(0))),
                See(6000, idle("")),
            ],
            once,
            Delivery::Accepted,
            "left",
        ),
        (
            "nothing proves idleness, but a composer is there",
            vec![
                See(0, Scene::of(Activity::Unknown, Some(""))),
                See(1500, Scene::of(Activity::Unknown, Some("hello"))),
                See(2000, Scene::of(Activity::Unknown, Some(""))),
            ],
            once,
            Delivery::Accepted,
            "left",
        ),
        (
            "no prompts are read from this agent's files",
            vec![
                See(0, idle("")),
                See(400, idle("hello")),
                See(800, with(idle(""), |scene| scene.prompts_are_read = false)),
            ],
            once,
            Delivery::Accepted,
            "left",
        ),
    ];
    for (what, acts, typed, result, why) in cases {
        let (sent, answer) = play("hello", 10_000, &acts);
        let answer = answer.unwrap_or_else(|| panic!("{what}: no answer after {sent:?}"));
        let sent: Vec<&str> = sent.iter().map(|(_, bytes)| bytes.as_str()).collect();
        assert_eq!((sent.as_slice(), answer.result), (typed, result), "{what}: {}", answer.why);
        assert!(answer.why.contains(why), "{what}: {}", answer.why);
        assert_eq!(answer.cursor, "7", "{what}");
    }
}

#[test]
fn enter_is_a_write_of_its_own_after_the_text_has_been_seen_for_a_while() {
    let acts = [Act::See(0, idle("")), Act::See(600, idle("hello")), Act::See(2000, idle(""))];
    let (typed, _) = play("hello", 10_000, &acts);
    assert_eq!(typed.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [250, 800]);
}

#[test]
fn without_bracketed_paste_one_line_is_typed_and_more_are_rejected() {
    let plain = |composer: &str| {
        let mut scene = idle(composer);
        scene.bracketed_paste = false;
        scene
    };
    let acts = [Act::See(0, plain("")), Act::See(400, plain("hello")), Act::See(800, plain(""))];
    let (typed, answer) = play("hello", 10_000, &acts);
    assert_eq!(typed[0].1, "hello");
    assert_eq!(answer.unwrap().result, Delivery::Accepted);
    for text in ["one\ntwo", "a\tb"] {
        let (typed, answer) = play(text, 10_000, &acts);
        let answer = answer.unwrap();
        assert_eq!((typed.len(), answer.result), (0, Delivery::Rejected));
        assert!(answer.why.contains("takes no pastes"), "{}", answer.why);
    }
}

#[test]
fn a_command_is_accepted_without_a_prompt_in_a_file_and_may_open_a_menu() {
    let typed = [Act::See(0, idle("")), Act::See(400, idle("/clear"))];
    for then in [idle(""), Scene::of(Activity::Dialog, None)] {
        let mut acts = typed.to_vec();
        acts.push(Act::See(800, then));
        let (_, answer) = play("/clear", 10_000, &acts);
        assert_eq!(answer.unwrap().result, Delivery::Accepted);
    }
}

#[test]
fn what_was_typed_is_seen_through_though_the_time_is_up() {
    let acts = [Act::See(0, idle("")), Act::See(900, idle("hello")), Act::See(2900, idle(""))];
    let (_, answer) = play("hello", 300, &acts);
    assert_eq!(answer.unwrap().result, Delivery::Accepted);
}

#[test]
fn keys_of_viewers_are_held_between_the_text_and_its_enter_for_a_bounded_time() {
    let start = Instant::now();
    let mut sending = Sending::new("hello".into(), start + ms(10_000));
    let (empty, full) = (idle(""), idle("hello"));
    sending.step(&empty.at(start));
    assert!(!sending.holds_keys(start));
    assert!(matches!(sending.step(&empty.at(start + ms(300))), Step::Type(_)));
    assert!(sending.holds_keys(start + ms(300)));
    assert!(!sending.holds_keys(start + ms(300) + HOLD_KEYS), "nobody is locked out");
    sending.step(&full.at(start + ms(400)));
    assert_eq!(sending.step(&full.at(start + ms(700))), Step::Type(b"\r".to_vec()));
    assert!(!sending.holds_keys(start + ms(700)));
}

#[test]
fn a_prompt_in_a_file_is_recognised_whatever_was_done_to_its_blanks() {
    let long = "please fix the failing test in the parser";
    for (text, prompt, same) in [
        ("x", "x\n", true),
        ("x", "x y", false),
        ("a\n\tb", "a b", true),
        (long, "first text\nplease fix the failing  test in the parser\nthird", true),
        (long, "please fix the failing test in the printer", false),
    ] {
        assert_eq!(is_same_prompt(text, prompt), same, "{text:?} {prompt:?}");
    }
}

/// An agent with random habits. It is what happens; the sender sees it through [`Simulated::scene`] alone, late.
struct Simulated {
    dice: fastrand::Rng,
    now: u64,
    /// When it paints its composer, and when it begins to read keys.
    painted: u64,
    reads: u64,
    /// Keys that come before it reads are dropped, or wait.
    drops_early: bool,
    bracketed: bool,
    /// Enters that it ignores.
    deaf: u32,
    /// Enter so soon behind a paste is a line end.
    burst: u64,
    /// How late the screen shows what is.
    lag: u64,
    /// Times in which it works by itself, asks something, is gone.
    works: Vec<(u64, u64)>,
    asks: Vec<(u64, u64)>,
    quits: Option<u64>,
    /// When a viewer empties the composer.
    viewer: Option<u64>,
    writes_file_after: Option<u64>,
    proves_idle: bool,
    input: VecDeque<(u64, Vec<u8>)>,
    composer: String,
    last_paste: u64,
    delivered: Vec<String>,
    file: Vec<(u64, String)>,
    viewer_keys: u64,
    /// What there was to be seen, and from when on.
    seen: VecDeque<(u64, Scene)>,
}

impl Simulated {
    fn new(seed: u64) -> Self {
        let mut dice = fastrand::Rng::with_seed(seed);
        let painted = if dice.bool() { 0 } else { dice.u64(0..2000) };
        let spans = |dice: &mut fastrand::Rng, longest: u64| -> Vec<(u64, u64)> {
            (0..dice.usize(0..3))
                .map(|_| {
                    let from = dice.u64(0..9000);
                    (from, from + dice.u64(50..longest))
                })
                .collect()
        };
        let works = spans(&mut dice, 6000);
        let asks = if dice.u8(0..3) == 0 { spans(&mut dice, 4000) } else { Vec::new() };
        Self {
            painted,
            reads: painted + if dice.u8(0..4) == 0 { dice.u64(0..1500) } else { dice.u64(0..150) },
            drops_early: dice.bool(),
            bracketed: dice.u8(0..5) > 0,
            deaf: [0, 0, 0, 1, 2, 3][dice.usize(0..6)],
            burst: [0, 0, 40, 120][dice.usize(0..4)],
            lag: dice.u64(0..80),
            works,
            asks,
            quits: (dice.u8(0..6) == 0).then(|| dice.u64(0..8000)),
            viewer: (dice.u8(0..6) == 0).then(|| dice.u64(0..8000)),
            writes_file_after: (dice.u8(0..4) > 0).then(|| dice.u64(0..2500)),
            proves_idle: dice.u8(0..4) > 0,
            input: VecDeque::new(),
            composer: String::new(),
            last_paste: 0,
            delivered: Vec::new(),
            file: Vec::new(),
            viewer_keys: 0,
            seen: VecDeque::new(),
            now: 0,
            dice,
        }
    }

    fn during(&self, spans: &[(u64, u64)]) -> bool {
        spans.iter().any(|(from, to)| (*from..*to).contains(&self.now))
    }

    fn is_gone(&self) -> bool {
        self.quits.is_some_and(|at| self.now >= at)
    }

    fn take(&mut self, bytes: &[u8]) {
        // Keys arrive in order, each a little later.
        let last = self.input.back().map_or(self.now, |(at, _)| *at);
        let late = if self.dice.u8(0..10) == 0 { self.dice.u64(0..900) } else { self.dice.u64(0..60) };
        self.input.push_back((last.max(self.now) + late, bytes.to_vec()));
    }

    fn live(&mut self) {
        if self.viewer == Some(self.now) {
            self.viewer_keys += 1;
            self.composer.clear();
        }
        while let Some((at, _)) = self.input.front()
            && *at <= self.now
            && !self.is_gone()
        {
            if self.now < self.reads && !self.drops_early {
                break;
            }
            let Some((_, bytes)) = self.input.pop_front() else { break };
            if self.now >= self.reads {
                self.read(&String::from_utf8(bytes).unwrap());
            }
        }
        let scene = self.picture();
        let changed = self.seen.back().is_none_or(|(_, last)| {
            (&last.reading, last.state.is, last.ended, last.viewer_keys)
                != (&scene.reading, scene.state.is, scene.ended, scene.viewer_keys)
        });
        if changed {
            self.seen.push_back((self.now, scene));
        }
    }

    fn read(&mut self, keys: &str) {
        let asks = self.during(&self.asks.clone());
        if let Some(text) = keys.strip_prefix("\x1b[200~") {
            if !asks {
                self.composer += text.strip_suffix("\x1b[201~").unwrap();
                self.last_paste = self.now;
            }
        } else if keys != "\r" {
            if !asks {
                self.composer += keys;
                self.last_paste = self.now;
            }
        } else if asks {
            let now = self.now;
            self.asks.retain(|(from, to)| !(*from..*to).contains(&now));
        } else if self.composer.trim().is_empty() {
        } else if self.deaf > 0 {
            self.deaf -= 1;
        } else if self.now < self.last_paste + self.burst {
            self.composer.push('\n');
        } else {
            let text = std::mem::take(&mut self.composer);
            if let Some(after) = self.writes_file_after {
                self.file.push((self.now + after, text.clone()));
            }
            self.delivered.push(text);
            let (now, long) = (self.now, self.dice.u64(100..4000));
            if !self.during(&self.works.clone()) {
                self.works.push((now, now + long));
            }
        }
    }

    /// What a screen without any lag would show.
    fn picture(&self) -> Scene {
        let mut scene = if self.now < self.painted {
            Scene::of(Activity::Starting, None)
        } else if self.during(&self.asks) {
            Scene::of(Activity::NeedsInput, None)
        } else if self.during(&self.works) {
            Scene::of(Activity::Working, Some(&self.composer))
        } else if self.proves_idle {
            Scene::of(Activity::Idle, Some(&self.composer))
        } else {
            Scene::of(Activity::Unknown, Some(&self.composer))
        };
        scene.ended = self.is_gone();
        scene.bracketed_paste = self.bracketed;
        scene.viewer_keys = self.viewer_keys;
        scene.prompts_are_read = self.writes_file_after.is_some();
        scene
    }

    /// What is seen now: how it was `lag` ago.
    fn scene(&self) -> Scene {
        let then = self.now.saturating_sub(self.lag);
        let (at, mut scene) = self
            .seen
            .iter()
            .rfind(|(at, _)| *at <= then)
            .or_else(|| self.seen.front())
            .cloned()
            .unwrap_or_else(|| (0, self.picture()));
        scene.quiet_for =
            if scene.state.is == Activity::Working { ms(0) } else { ms(then.saturating_sub(at)) };
        (scene.ended, scene.viewer_keys) = (self.is_gone(), self.viewer_keys);
        scene
    }
}

#[test]
fn a_random_agent_gets_a_text_once_or_the_answer_says_that_it_may_not_have_it() {
    let mut results = std::collections::BTreeMap::<Delivery, u32>::new();
    let count = if std::env::var_os("CODEMIE_TEST_FULL").is_some() { 20_000 } else { 1000 };
    for seed in 0..u64::from(count) {
        let mut agent = Simulated::new(seed);
        let text = if agent.dice.bool() { "hello there" } else { "one\n\ttwo\nthree" };
        let start = Instant::now();
        let deadline = [200, 1000, 6000][agent.dice.usize(0..3)];
        let mut sending = Sending::new(text.to_owned(), start + ms(deadline));
        let (mut answer, mut typed, mut next, mut read) = (None, Vec::new(), 0, 0);
        let mut end = 60_000;
        while agent.now < end {
            agent.live();
            let scene = agent.scene();
            for (_, prompt) in agent.file.iter().skip(read).filter(|(at, _)| *at <= agent.now) {
                sending.note_prompt(prompt);
                read += 1;
                next = agent.now;
            }
            if answer.is_none() && (agent.now >= next || agent.dice.u8(0..8) == 0) {
                match sending.step(&scene.at(start + ms(agent.now))) {
                    Step::Wait(until) => {
                        let wait = u64::try_from((until - start).as_millis()).unwrap();
                        assert!(wait < 60_000, "seed {seed}");
                        next = wait.min(agent.now + 40);
                    }
                    Step::Type(bytes) => {
                        agent.take(&bytes);
                        typed.push(bytes);
                    }
                    Step::Done(done) => {
                        answer = Some(done);
                        // A while longer, so that what comes late is seen.
                        end = agent.now + 3000;
                    }
                }
            }
            agent.now += 1;
        }
        let answer = answer.unwrap_or_else(|| panic!("seed {seed}: no answer"));
        let arrived = agent.delivered.iter().filter(|delivered| delivered.trim() == text).count();
        let context = format!("seed {seed}: {answer:?}, delivered {:?}", agent.delivered);
        assert!(agent.delivered.len() <= 1, "{context}");
        match answer.result {
            Delivery::Accepted | Delivery::Queued | Delivery::TurnStarted => {
                assert_eq!(arrived, 1, "{context}");
            }
            Delivery::Rejected => assert_eq!(agent.delivered.len(), 0, "{context}"),
            Delivery::Unknown => {}
        }
        let pastes = typed.iter().filter(|bytes| bytes.as_slice() != b"\r").count();
        assert!(pastes <= 1 && typed.len() - pastes <= 2, "{context}");
        *results.entry(answer.result).or_default() += 1;
    }
    // A simulation in which hardly anything arrives would prove nothing.
    for result in [Delivery::Accepted, Delivery::Queued, Delivery::TurnStarted, Delivery::Rejected] {
        assert!(results.get(&result).is_some_and(|times| *times * 50 > count), "{results:?}");
    }
    assert!(results[&Delivery::Unknown] * 3 < count, "{results:?}");
}

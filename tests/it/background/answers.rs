//! A scripted Claude Code in the background that asks for permissions: what is shown of them, and who answers them how often.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use serde_json::Value;

use super::Scene;
use crate::support::scripted::await_some;

/// A stand-in for Claude Code that reads single keys and writes each into a file. It asks for a permission at once; a digit
/// answers, and `a` and `b` have it ask for one of two others.
const SCRIPT: &str = r#"
rule=────────────────────────────────────────
ask() {
  printf '\033[2J\033[H● I run it.\r\n\r\n✻ Pondering… (%ss)\r\n%s\r\n Bash command\r\n\r\n   %s\r\n\r\n Do you want to proceed?\r\n ❯ 1. Yes\r\n   2. No\r\n\r\n Esc to cancel' "$1" "$rule" "$2"
}
stty raw -echo
ask 3 'touch first'
while key=$(dd bs=1 count=1 2>/dev/null) && [ -n "$key" ]; do
  printf '%s' "$key" >> "$HOME/keys"
  case $key in
  a) ask 1 'touch first' ;;
  b) ask 2 'touch second' ;;
  *) printf '\033[2J\033[H● Done.\r\n%s\r\n❯ \r\n%s\r\n' "$rule" "$rule" ;;
  esac
done
"#;

/// The scripted agent in the background, which asks something.
struct Agent {
    scene: Scene,
    program: PathBuf,
}

impl Agent {
    fn start() -> Self {
        let scene = Scene::new();
        let program = scene.sandbox.script("agent/claude", SCRIPT);
        let agent = Self { scene, program };
        let (code, out, err) = agent.codemie(&["run", "--detach", "--name", "worker", "claude"]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
        agent
    }

    fn codemie(&self, args: &[&str]) -> (Option<i32>, String, String) {
        self.scene.codemie_with(&self.program, args)
    }

    /// What `show` has once the agent asks something.
    fn asked(&self) -> Value {
        await_some("the question", || {
            let record = self.scene.record("worker");
            record["dialog"]["hash"].is_string().then_some(record)
        })
    }

    fn hash(&self) -> String {
        self.asked()["dialog"]["hash"].as_str().unwrap().to_owned()
    }

    fn answer(&self, hash: &str, choice: &str) -> (Option<i32>, Value) {
        let (code, out, err) = self.codemie(&["answer", "worker", "--dialog", hash, choice, "--json"]);
        assert_eq!(err, "", "{out}");
        (code, serde_json::from_str(&out).unwrap_or_else(|error| panic!("{out:?}: {error}")))
    }

    fn rejected(&self, hash: &str, choice: &str) {
        let (code, answer) = self.answer(hash, choice);
        assert_eq!((code, &answer["result"]), (Some(1), &"rejected".into()), "{answer}");
    }

    /// The keys that the agent has read.
    fn keys(&self) -> String {
        std::fs::read_to_string(self.scene.sandbox.path("keys")).unwrap_or_default()
    }

    fn await_keys(&self, keys: &str) {
        await_some("the agent's keys", || (self.keys() == keys).then_some(()));
    }
}

#[test]
fn a_question_is_shown_with_its_choices_and_answered_once() {
    let agent = Agent::start();
    let record = agent.asked();
    let dialog = &record["dialog"];
    assert_eq!(record["state"]["is"], "needs-input");
    assert_eq!(dialog["text"], "Bash command\n\n  touch first\n\nDo you want to proceed?");
    assert_eq!(
        dialog["choices"],
        serde_json::json!([{"number": 1, "label": "Yes"}, {"number": 2, "label": "No"}])
    );
    assert!(record["screen"].as_array().unwrap().contains(&"   touch first".into()), "{record}");
    let hash = dialog["hash"].as_str().unwrap();
    let command = format!("codemie answer worker --dialog {hash} CHOICE\n  1  Yes\n  2  No\n");
    for args in [&["show", "worker"][..], &["view", "worker"], &["answer", "worker"]] {
        let (code, out, err) = agent.codemie(args);
        assert_eq!((code, err.as_str()), (Some(0), ""));
        assert!(out.contains("   touch first\n") && out.ends_with(&command), "{args:?}: {out}");
    }
    for args in [&["view", "worker", "--json"][..], &["answer", "worker", "--json"]] {
        let (_, out, _) = agent.codemie(args);
        let seen: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((&seen["dialog"], &seen["screen"]), (dialog, &record["screen"]), "{args:?}");
    }

    let (code, answer) = agent.answer(hash, "2");
    assert_eq!((code, &answer["result"]), (Some(0), &"accepted".into()), "{answer}");
    assert_eq!((&answer["sessionId"], &answer["redirectedFrom"]), (&record["sessionId"], &Value::Null));
    assert!(answer["cursor"].is_string(), "{answer}");
    assert_eq!(agent.keys(), "2");
    agent.rejected(hash, "2");
    let record = agent.scene.record("worker");
    assert!(record.get("dialog").is_none() && record.get("screen").is_none(), "{record}");
    let (code, _, err) = agent.codemie(&["answer", "worker"]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("asks nothing"), "{err}");
    assert_eq!(agent.keys(), "2");
}

#[test]
fn another_dialog_is_not_answered_and_neither_is_one_in_the_same_words() {
    let agent = Agent::start();
    let first = agent.hash();
    agent.rejected("0123456789abcdef", "1");
    agent.rejected(&first, "3");
    assert_eq!(agent.keys(), "");
    let mut viewer = agent.scene.attach("worker", 40, 120);
    viewer.keys("b");
    viewer.wait_for("touch second");
    agent.rejected(&first, "1");
    assert_eq!(agent.keys(), "b");
    // The person at the terminal answers it; then the agent asks the first question again.
    viewer.keys("1");
    viewer.wait_for("Done");
    await_some("the end of the question", || {
        agent.scene.record("worker").get("dialog").is_none().then_some(())
    });
    viewer.keys("a");
    agent.await_keys("b1a");
    let again = await_some("the question again", || {
        let record = agent.scene.record("worker");
        let is_first = record["dialog"]["text"].as_str().is_some_and(|text| text.contains("touch first"));
        is_first.then(|| record["dialog"]["hash"].as_str().unwrap().to_owned())
    });
    assert_ne!(again, first);
    agent.rejected(&first, "1");
    assert_eq!(agent.answer(&again, "1").1["result"], "accepted");
    assert_eq!(agent.keys(), "b1a1");
}

#[test]
fn of_two_answers_at_once_one_is_typed() {
    let agent = Agent::start();
    let hash = agent.hash();
    let answer = |choice: &str| -> Child {
        let args = ["answer", "worker", "--dialog", &hash, choice, "--json"];
        agent.scene.sandbox.codemie(&args).stdout(Stdio::piped()).spawn().unwrap()
    };
    let both = [answer("1"), answer("2")].map(|child| child.wait_with_output().unwrap());
    let mut results = both.map(|output| {
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        answer["result"].as_str().unwrap().to_owned()
    });
    results.sort_unstable();
    assert_eq!(results, ["accepted", "rejected"]);
    assert_eq!(agent.keys().len(), 1, "{:?}", agent.keys());
}

#[test]
fn a_text_that_a_question_keeps_from_being_sent_names_the_way_to_answer() {
    let agent = Agent::start();
    agent.asked();
    let (code, out, _) = agent.codemie(&["send", "worker", "go on"]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("`codemie answer "), "{out}");
    assert_eq!(agent.keys(), "");
}

/// A shell in another session plays the agent that tries to answer.
#[test]
fn from_inside_a_run_dialogs_are_answered_only_where_the_user_allows_it_and_never_ones_own() {
    let agent = Agent::start();
    let hash = agent.hash();
    let binary = env!("CARGO_BIN_EXE_codemie");
    let inside = |script: &str| {
        let (code, out, err) = agent.codemie(&["run", "--", "sh", "-c", script]);
        (code, format!("{out}{err}"))
    };
    let other = format!("{binary} answer worker --dialog {hash} 1");
    let own = format!("{binary} answer $CODEMIE_SESSION_ID --dialog {hash} 1");
    for script in [&other, &own] {
        let (code, said) = inside(script);
        assert_eq!(code, Some(2), "{script}: {said}");
    }
    let allow = format!("{binary} config set mcp.allowAnswers true");
    let (code, said) = inside(&allow);
    assert_eq!(code, Some(2), "an agent does not allow it to itself: {said}");
    assert_eq!(agent.keys(), "");

    assert_eq!(agent.codemie(&["config", "set", "mcp.allowAnswers", "true"]).0, Some(0));
    let (code, said) = inside(&own);
    assert!(code == Some(2) && said.contains("does not answer its own dialogs"), "{said}");
    // What was started inside does not answer for what it was started from.
    let nested = format!("{binary} run -- {binary} answer $CODEMIE_SESSION_ID --dialog {hash} 1");
    let (code, said) = inside(&nested);
    assert!(code == Some(2) && said.contains("started from"), "{said}");
    assert_eq!(agent.keys(), "");
    let (code, said) = inside(&other);
    assert_eq!((code, agent.keys().as_str()), (Some(0), "1"), "{said}");
}

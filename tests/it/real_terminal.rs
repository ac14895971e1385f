use crate::support::agents::Agent;
use crate::support::pty::Start;
use crate::support::stage::{Form, Stage};
use std::time::Duration;

fn look(agent: Agent, ready: &str, steps: &[&str]) {
    let Some(stage) = Stage::set() else { return };
    let start = Start::new(Stage::argv::<&str>(agent, Form::Bare, &[]));
    let terminal = stage.start_in_project(start).answers().spawn();
    terminal.wait_for("ready", |v| v.text().contains(ready));
    std::thread::sleep(Duration::from_millis(1500));
    println!("=== ready\n{}", terminal.text());
    for step in steps {
        let ms = if let Some(ms) = step.strip_prefix("sleep ") { ms.parse().unwrap() } else { terminal.send(step.as_bytes()); 300 };
        std::thread::sleep(Duration::from_millis(ms));
        println!("=== after {step:?}\n{}", terminal.text());
    }
    println!("{}", stage.api.log());
    for c in &stage.api.log().calls { println!("{:?} {} {}", c.kind, c.prompt.chars().take(300).collect::<String>(), c.body["tools"].as_array().map_or(0, Vec::len)); }
}

#[test]
fn look_claude() { look(Agent::Claude, "❯", &["hello there", "\r", "sleep 3000", "/clear", "\r", "sleep 1500", "\x1b[200~pasted\x1b[201~", "\r", "sleep 2000", "/comp", "/exit", "sleep 500"]); }
#[test]
fn look_codex() { look(Agent::Codex, "›", &["hello there", "\r", "sleep 3000", "/clear", "\r", "sleep 1500", "again", "\r", "sleep 2000", "/quit", "\r", "sleep 1000"]); }
#[test]
fn look_gemini() { look(Agent::Gemini, "Type your message", &["hello there", "\r", "sleep 3000", "/clear", "\r", "sleep 1500", "again", "\r", "sleep 2000", "/quit", "\r", "sleep 1000"]); }

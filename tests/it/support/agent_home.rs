//! A home folder in which no agent asks a question before the prompt: onboarded, trusting, quiet, and pointed at the
//! fake API. Private to one test, gone with it (`CODEMIE_TEST_KEEP=1` keeps it), and so is every process that lives in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::agents::{Agent, scratch};
use super::fake_api::FakeApi;
use super::processes;

const KEY: &str = "sk-ant-fake-0123456789abcdefghij";

#[derive(Debug)]
pub(crate) struct AgentHome {
    root: PathBuf,
    /// An agent that runs in another version here than the usual one.
    pinned: Option<(Agent, PathBuf)>,
}

impl AgentHome {
    pub(crate) fn new(api: &FakeApi) -> Self {
        static HOMES: AtomicU32 = AtomicU32::new(0);
        let name = format!("home-{}-{}", std::process::id(), HOMES.fetch_add(1, Ordering::Relaxed));
        let root = scratch().join(name);
        fs::create_dir_all(&root).unwrap();
        let home = Self { root: root.canonicalize().unwrap(), pinned: None };
        home.make_project();
        home.write(".claude.json", &home.claude_state());
        home.write(".claude/settings.json", &claude_settings());
        home.write(".codex/config.toml", &home.codex_config(api));
        home.write(".gemini/settings.json", &gemini_settings());
        home.write(".qwen/settings.json", &qwen_settings());
        home
    }

    /// From now on this agent is this program.
    pub(crate) fn pin(&mut self, agent: Agent, program: PathBuf) {
        self.pinned = Some((agent, program));
    }

    pub(crate) fn program(&self, agent: Agent) -> PathBuf {
        let pinned = self.pinned.as_ref().filter(|(pinned, _)| *pinned == agent);
        pinned.map_or_else(|| agent.program(), |(_, program)| program.clone())
    }

    /// The version of an agent here, by its package.
    pub(crate) fn version(&self, agent: Agent) -> (u64, u64, u64) {
        let program = self.program(agent).canonicalize().unwrap();
        let package =
            program.ancestors().map(|folder| folder.join("package.json")).find(|file| file.exists());
        let package: Value = serde_json::from_slice(&fs::read(package.unwrap()).unwrap()).unwrap();
        let numbers: Vec<u64> =
            package["version"].as_str().unwrap().split('.').map(|part| part.parse().unwrap()).collect();
        (numbers[0], numbers[1], numbers[2])
    }

    pub(crate) fn path(&self) -> &Path {
        &self.root
    }

    /// A git repository to work in.
    pub(crate) fn project(&self) -> PathBuf {
        self.root.join("project")
    }

    pub(crate) fn codemie_home(&self) -> PathBuf {
        self.root.join("codemie")
    }

    /// The whole environment of an agent, wrapped or bare.
    pub(crate) fn environment(&self, api: &FakeApi) -> Vec<(&'static str, String)> {
        let path = std::env::var("PATH").unwrap();
        let mut variables = vec![
            ("PATH", path),
            ("HOME", self.root.display().to_string()),
            ("TERM", "xterm-256color".to_owned()),
            ("LANG", "C.UTF-8".to_owned()),
            ("CODEMIE_HOME", self.codemie_home().display().to_string()),
            ("ANTHROPIC_BASE_URL", api.url()),
            ("ANTHROPIC_API_KEY", KEY.to_owned()),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
            ("DISABLE_AUTOUPDATER", "1".to_owned()),
            ("DISABLE_TELEMETRY", "1".to_owned()),
            ("FAKE_KEY", "fake".to_owned()),
            ("GOOGLE_GEMINI_BASE_URL", api.url()),
            ("GEMINI_API_KEY", "fake".to_owned()),
            ("OPENAI_BASE_URL", format!("{}/v1", api.url())),
            ("OPENAI_API_KEY", "fake".to_owned()),
            ("OPENAI_MODEL", "qwen3-coder-plus".to_owned()),
        ];
        let real = [
            ("CODEMIE_REAL_CLAUDE", Agent::Claude),
            ("CODEMIE_REAL_CODEX", Agent::Codex),
            ("CODEMIE_REAL_GEMINI", Agent::Gemini),
            ("CODEMIE_REAL_QWEN", Agent::Qwen),
        ];
        variables.extend(real.map(|(name, agent)| (name, self.program(agent).display().to_string())));
        variables
    }

    /// Every process that calls this its home, also those that no parent knows any more (Codex leaves a daemon behind,
    /// Claude's agents view another).
    pub(crate) fn residents(&self) -> Vec<i32> {
        let mark = format!("HOME={}\0", self.root.display()).into_bytes();
        let lives_here = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            memchr::memmem::find(&environment, &mark).is_some()
        };
        processes::processes().into_iter().map(|process| process.pid).filter(lives_here).collect()
    }

    fn write(&self, file: &str, text: &str) {
        let file = self.root.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    fn make_project(&self) {
        self.write("project/README.md", "A project.\n");
        self.write(
            ".gitconfig",
            "[user]\nname = Test\nemail = test@localhost\n[init]\ndefaultBranch = main\n",
        );
        for arguments in [&["init", "-q"][..], &["add", "."], &["commit", "-qm", "Begin"]] {
            let mut git = Command::new("git");
            git.args(arguments).current_dir(self.project()).env_clear().env("HOME", &self.root);
            git.env("PATH", std::env::var_os("PATH").unwrap());
            assert!(git.status().unwrap().success(), "git {arguments:?}");
        }
    }

    fn claude_state(&self) -> String {
        let project = self.project().display().to_string();
        // Without the last, versions before 2.0 break off.
        let trusted = json!({"hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true, "allowedTools": []});
        json!({
            "hasCompletedOnboarding": true,
            "hasSeenAutoDefaultNudge": true,
            "hasSeenAutoDefaultNotice": true,
            "theme": "dark",
            "customApiKeyResponses": {"approved": [&KEY[KEY.len() - 20..]], "rejected": []},
            "projects": {project: trusted},
        })
        .to_string()
    }

    fn codex_config(&self, api: &FakeApi) -> String {
        format!(
            r#"
model = "gpt-5.5"
model_provider = "fake"
check_for_update_on_startup = false
disable_paste_burst = true
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.fake]
name = "fake"
base_url = "{}/v1"
env_key = "FAKE_KEY"
wire_api = "responses"
requires_openai_auth = false
[analytics]
enabled = false
[tui]
screen_reader_detection_done = true
[notice.model_migrations]
"gpt-5.5" = "gpt-6-sol"
[projects."{}"]
trust_level = "trusted"
"#,
            api.url(),
            self.project().display()
        )
    }
}

/// Tools run without a question; everything in the home is the test's own.
fn claude_settings() -> String {
    let allow = ["Bash", "Write", "Edit", "Read", "Agent"];
    json!({"permissions": {"allow": allow, "defaultMode": "acceptEdits"}}).to_string()
}

fn gemini_settings() -> String {
    json!({
        "general": {"enableAutoUpdate": false},
        "privacy": {"usageStatisticsEnabled": false},
        "telemetry": {"enabled": false},
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": false}},
    })
    .to_string()
}

/// Without the sub-agent that looks for something to remember after each turn: a `/clear` or the end can come before its answer.
/// A test that is about it switches it on.
fn qwen_settings() -> String {
    json!({
        "$version": 4,
        "general": {"enableAutoUpdate": false, "disableAutoUpdate": true, "disableUpdateNag": true},
        "privacy": {"usageStatisticsEnabled": false},
        "telemetry": {"enabled": false},
        "security": {"auth": {"selectedType": "openai"}, "folderTrust": {"enabled": false}},
        "ui": {"hideTips": true},
        "memory": {"enableManagedAutoMemory": false},
    })
    .to_string()
}

impl Drop for AgentHome {
    fn drop(&mut self) {
        for pid in self.residents() {
            processes::signal(pid, Signal::KILL);
            processes::wait_dead(pid, Duration::from_secs(5));
        }
        if std::env::var_os("CODEMIE_TEST_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

//! A scripted repository with branches, amends, rebases, squashes, worktrees and two agents at once: every call's commit is known
//! by construction.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{UsageReport, commits_named, uncommitted};
use os::calendar::LocalClock;
use os::clock::{Clock, SystemClock};
use os::project::head::HeadLog;
use store::session::lifecycle::ConversationStart;
use store::session::testing::{World, usage};
use types::{PicoDollars, SessionId, Timestamp};
use usage::{By, UsageQuery};

/// When the tracker looks at HEAD besides the calls themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tracker {
    /// After each tool, as it does when it keeps up.
    Prompt,
    /// Only when the next call is read.
    Late,
    /// Once, when all is over: the wrapper was killed, and a later command recovers.
    Dead,
}

struct Scene {
    world: World,
    folder: tempfile::TempDir,
    tracker: Tracker,
    agents: Vec<AgentSeat>,
    /// The label of the commit that each call belongs to; `None`: to none.
    expected: Vec<Option<&'static str>>,
    /// The time of the play, and how much of it each step takes, in milliseconds.
    now: i64,
    step: i64,
}

struct AgentSeat {
    session: SessionId,
    heads: HeadLog,
    unread: Vec<store::Priced>,
}

/// The script runs on a machine with git.
fn has_git() -> bool {
    Command::new("git").arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

impl Scene {
    fn new(tracker: Tracker, step: i64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let world = World::new();
        let now = world.now.0 + 1_000_000;
        let (agents, expected) = (Vec::new(), Vec::new());
        let mut scene = Self { world, folder, tracker, agents, expected, now, step };
        std::fs::create_dir(scene.root()).unwrap();
        scene.git("main", &["init", "-q", "-b", "main"]);
        scene
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("main")
    }

    fn path(&self, tree: &str) -> PathBuf {
        self.folder.path().join(tree)
    }

    /// git, at the time of the play: in its log in whole seconds, as the time of the log's file to the millisecond.
    fn git(&mut self, tree: &str, args: &[&str]) -> String {
        self.now += self.step / 4;
        let logs = [".git/logs/HEAD", ".git/worktrees/tree/logs/HEAD"].map(|log| self.root().join(log));
        let length = |log: &PathBuf| std::fs::metadata(log).map_or(0, |meta| meta.len());
        let before = logs.each_ref().map(length);
        let date = format!("@{} +0000", self.now / 1000);
        let output = Command::new("git")
            .env("GIT_COMMITTER_DATE", &date)
            .env("GIT_AUTHOR_DATE", &date)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .args(["-c", "user.name=A", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"])
            .args(["-c", "sequence.editor=sed -i 2s/pick/fixup/", "-c", "core.editor=true"])
            .args(["-C", self.path(tree).to_str().unwrap()])
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        for (log, before) in logs.iter().zip(before) {
            if length(log) != before {
                let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(self.now.unsigned_abs());
                std::fs::File::options().append(true).open(log).unwrap().set_modified(time).unwrap();
            }
        }
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// An agent that works in a tree.
    fn agent(&mut self, agent: &str, tree: &str) -> usize {
        let mut begin = self.world.begin(ConversationStart::Fresh);
        begin.agent = agent.into();
        begin.workspace.cwd = self.path(tree);
        let (_, started) = self.world.start_as(&begin);
        self.world.bind(started.session, &format!("{agent}-{tree}")).unwrap();
        let heads = HeadLog::of(&self.path(tree));
        self.agents.push(AgentSeat { session: started.session, heads, unread: Vec::new() });
        self.agents.len() - 1
    }

    /// A call, whose work goes into the commit of that label.
    fn call(&mut self, agent: usize, label: Option<&'static str>) {
        let number = self.expected.len();
        self.now += self.step;
        let mut call = usage(&format!("call-{number}"), Timestamp(self.now), 1);
        // Each call costs what no sum of others does.
        call.cost = Some(PicoDollars(1 << number));
        self.expected.push(label);
        self.agents[agent].unread.push(call);
        if self.tracker != Tracker::Dead {
            self.read(agent);
        }
    }

    /// What the tracker does with lines that it has read.
    fn read(&mut self, agent: usize) {
        let seat = &mut self.agents[agent];
        seat.heads.look();
        let calls = std::mem::take(&mut seat.unread);
        let session = seat.session;
        let inode = 100 + self.expected.len() as u64 * 10 + agent as u64;
        self.world.feed(session, inode, &calls);
        for call in &calls {
            if let Some(place) = self.agents[agent].heads.at(call.record.at) {
                let note = |tx: &store::Tx<'_>| {
                    tx.set_call_place(session, &call.record.key, place.branch.as_deref(), &place.head)
                };
                self.world.store.write(note).unwrap();
            }
        }
    }

    fn looked(&mut self) {
        if self.tracker == Tracker::Prompt {
            self.agents.iter_mut().for_each(|seat| seat.heads.look());
        }
    }

    /// Changes a file and commits it under a label.
    fn commit(&mut self, tree: &str, label: &str, more: &[&str]) {
        std::fs::write(self.path(tree).join(format!("{label}.txt")), format!("{label}\n")).unwrap();
        self.git(tree, &["add", "-A"]);
        let mut args = vec!["commit", "-q", "-m", label];
        args.extend(more);
        self.run(tree, &args);
    }

    fn run(&mut self, tree: &str, args: &[&str]) {
        self.git(tree, args);
        self.looked();
    }

    /// Right, unattributed, wrong.
    fn table(&mut self) -> [usize; 3] {
        for agent in 0..self.agents.len() {
            self.read(agent);
        }
        let labels = self.git("main", &["log", "--all", "--format=%H %s"]);
        let label_of = |key: &str| {
            let line = labels.lines().find(|line| line.starts_with(key));
            line.map_or_else(
                || format!("{key}, which is gone"),
                |line| line.split_once(' ').unwrap().1.to_owned(),
            )
        };
        let clock = LocalClock::of(jiff::tz::TimeZone::UTC);
        let (home, query) = (self.world.home.clone(), UsageQuery::by(By::Commit));
        let report = self.world.store.read(|view| UsageReport::recorded(view, &home, &query, &clock));
        let rows = report.unwrap().tally.rows;
        for row in rows.iter().filter(|row| row.key.is_some()) {
            let (key, commit) = (row.key.as_deref().unwrap(), row.commit.as_ref().unwrap());
            assert_eq!(commit.subject.as_deref(), Some(label_of(key).as_str()), "{key}");
            assert!(commit.at.is_some(), "{key}");
        }
        let mut table = [0; 3];
        for (number, expected) in self.expected.iter().enumerate() {
            let row =
                rows.iter().find(|row| row.sums.cost.0 & (1 << number) != 0).expect("every call is in a row");
            let found = row.key.as_deref().map(label_of);
            let kind = match (found.as_deref(), expected) {
                (found, expected) if found == *expected => 0,
                (None, _) => 1,
                _ => 2,
            };
            if kind > 0 {
                eprintln!("{:?}: call {number} expected {expected:?}, found {found:?}", self.tracker);
            }
            table[kind] += 1;
        }
        table
    }

    fn play(&mut self) {
        let claude = self.agent("claude", "main");
        self.call(claude, Some("first"));
        self.commit("main", "first", &[]);
        self.call(claude, Some("second"));
        self.call(claude, Some("second"));
        self.commit("main", "second", &[]);
        // Amended, and rebased onto a commit of another branch.
        self.run("main", &["checkout", "-q", "-b", "feature"]);
        self.call(claude, Some("amended"));
        self.commit("main", "before-amend", &[]);
        self.call(claude, Some("amended"));
        self.commit("main", "amended", &["--amend"]);
        self.call(claude, Some("on-feature"));
        self.commit("main", "on-feature", &[]);
        self.run("main", &["checkout", "-q", "main"]);
        self.call(claude, Some("on-main"));
        self.commit("main", "on-main", &[]);
        self.run("main", &["checkout", "-q", "feature"]);
        self.run("main", &["rebase", "-q", "main"]);
        // A worktree with an agent of its own, and two agents in one tree.
        let tree = self.path("tree");
        self.run("main", &["worktree", "add", "-q", "-b", "other", tree.to_str().unwrap()]);
        let elsewhere = self.agent("claude", "tree");
        let codex = self.agent("codex", "main");
        self.call(elsewhere, Some("elsewhere"));
        self.call(claude, Some("here"));
        self.commit("main", "here", &[]);
        self.call(elsewhere, Some("elsewhere"));
        self.commit("tree", "elsewhere", &[]);
        self.call(claude, Some("again"));
        self.call(codex, Some("again"));
        // Committed, taken back, and committed again.
        self.commit("main", "together", &[]);
        self.run("main", &["reset", "-q", "--soft", "HEAD~1"]);
        self.call(codex, Some("again"));
        self.run("main", &["commit", "-q", "-m", "again"]);
        // Two commits that become one, by a squash and by an interactive rebase.
        self.run("main", &["checkout", "-q", "-b", "squashed", "main"]);
        self.call(claude, Some("squash"));
        self.commit("main", "one-of-two", &[]);
        self.call(codex, Some("squash"));
        self.commit("main", "two-of-two", &[]);
        self.run("main", &["checkout", "-q", "main"]);
        self.run("main", &["merge", "-q", "--squash", "squashed"]);
        self.run("main", &["commit", "-q", "-m", "squash"]);
        self.run("main", &["branch", "-q", "-D", "squashed"]);
        self.run("main", &["checkout", "-q", "-b", "tidied"]);
        self.call(claude, Some("kept"));
        self.commit("main", "kept", &[]);
        self.call(claude, Some("kept"));
        self.commit("main", "folded", &[]);
        self.run("main", &["rebase", "-q", "-i", "HEAD~2"]);
        // Thrown away, and not committed yet.
        self.run("main", &["pack-refs", "--all"]);
        self.call(claude, Some("last"));
        self.run("main", &["reset", "-q", "--hard"]);
        self.commit("main", "last", &[]);
        self.call(claude, None);
        self.call(elsewhere, None);
    }
}

/// With steps of a tenth of a second many moves share a second of git's log; with longer ones an agent is as fast as agents are.
#[test]
fn no_call_is_spent_on_a_wrong_commit() {
    if !has_git() {
        return;
    }
    for step in [100, 900, 2500] {
        for tracker in [Tracker::Prompt, Tracker::Late, Tracker::Dead] {
            let mut scene = Scene::new(tracker, step);
            scene.play();
            let [right, unknown, wrong] = scene.table();
            eprintln!("{step} ms, {tracker:?}: right {right}, unattributed {unknown}, wrong {wrong}");
            assert_eq!(wrong, 0, "{step} ms, {tracker:?}");
            // What was read long after it happened is known by git's whole seconds alone.
            if step > 500 && tracker != Tracker::Dead {
                assert_eq!(unknown, 0, "{step} ms, {tracker:?}");
            }
        }
    }
}

/// A range is what its commits cost; a squash on another branch is what the commits in it cost.
#[test]
fn a_pull_request_is_the_sum_of_its_commits_also_when_it_was_squashed() {
    if !has_git() {
        return;
    }
    let mut scene = Scene::new(Tracker::Prompt, 2500);
    let claude = scene.agent("claude", "main");
    scene.call(claude, Some("first"));
    scene.commit("main", "first", &[]);
    scene.run("main", &["checkout", "-q", "-b", "request"]);
    scene.call(claude, Some("a"));
    scene.commit("main", "a", &[]);
    scene.call(claude, Some("b"));
    scene.commit("main", "b", &[]);
    scene.run("main", &["checkout", "-q", "main"]);
    scene.call(claude, Some("other"));
    scene.commit("main", "other", &[]);
    scene.run("main", &["merge", "-q", "--squash", "request"]);
    scene.run("main", &["commit", "-q", "-m", "squashed"]);
    let (root, home) = (scene.root(), scene.world.home.clone());
    let clock = LocalClock::of(jiff::tz::TimeZone::UTC);
    for (revision, cost) in [
        ("main~2..request", Some(0b0110)),
        ("request", Some(0b0100)),
        ("main~1", Some(0b1000)),
        ("main", Some(0b0110)),
        ("main~1..main", Some(0b0110)),
        ("nothing-of-this-name", None),
        ("--all", None),
    ] {
        let Some(commits) = commits_named(&root, revision) else {
            assert_eq!(cost, None, "{revision}");
            continue;
        };
        let mut query = UsageQuery::by(By::Agent);
        query.commits = Some(commits);
        let report = scene.world.store.read(|view| UsageReport::recorded(view, &home, &query, &clock));
        assert_eq!(Some(report.unwrap().tally.total.sums.cost.0), cost, "{revision}");
    }
    scene.call(claude, None);
    let uncommitted = scene.world.store.read(|view| uncommitted(view, &root)).unwrap();
    assert_eq!((uncommitted.sums.api_calls, uncommitted.sums.cost.0), (1, 0b10000));
}

#[test]
fn a_folder_without_a_repository_has_no_heads() {
    let folder = tempfile::tempdir().unwrap();
    let mut heads = HeadLog::of(folder.path());
    heads.look();
    assert_eq!(heads.at(SystemClock.now()), None);
    assert!(Path::new(folder.path()).exists());
}

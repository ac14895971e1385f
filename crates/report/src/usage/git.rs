//! git itself, for what its files do not tell at a glance: which commits a range holds, and which commit has the place of one that
//! a rebase or a squash replaced (by patch-id).
//!
//! A repository may be hostile. git is run without hooks, external diffs, text conversions, a file-system monitor, a pager, a
//! lazy fetch or a transport, without variables of the caller's (`GIT_*`), and only where the user's own `safe.directory` allows
//! it. Time and output are bounded. Whatever fails is an answer less.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use os::project::head::hash;

const TIMEOUT: Duration = Duration::from_secs(10);
const OUTPUT_BYTES: u64 = 64 << 20;

/// Commits whose patches are compared.
const PATCHES: &str = "2000";

/// Ranges of replaced commits that are tried as one squashed commit.
const RANGES: usize = 200;

fn git(folder: &Path) -> Command {
    let mut git = Command::new("git");
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"GIT_") {
            git.env_remove(name);
        }
    }
    git.env("GIT_NO_LAZY_FETCH", "1")
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_ALLOW_PROTOCOL", "")
        .env("LC_ALL", "C")
        .args(["--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"])
        .args(["-c", "diff.external=", "-c", "log.showSignature=false", "-c", "core.untrackedCache=false"])
        .arg("-C")
        .arg(folder)
        .stderr(Stdio::null());
    git
}

/// The output of a command that was given `input`; `None` where it failed, took too long or wrote too much.
fn output(mut command: Command, input: &[u8]) -> Option<Vec<u8>> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    let (mut stdin, stdout) = (child.stdin.take()?, child.stdout.take()?);
    let input = input.to_vec();
    std::thread::spawn(move || drop(stdin.write_all(&input)));
    let (done, answer) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = stdout.take(OUTPUT_BYTES + 1).read_to_end(&mut bytes);
        let _ = done.send(read.map(|_| bytes));
    });
    let bytes = answer.recv_timeout(TIMEOUT).ok().and_then(Result::ok);
    let bytes = bytes.filter(|bytes| bytes.len() as u64 <= OUTPUT_BYTES);
    if bytes.is_none() {
        let _ = child.kill();
    }
    let succeeded = child.wait().is_ok_and(|status| status.success());
    bytes.filter(|_| succeeded)
}

fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect()
}

/// The commits that a revision or a range (`A..B`) names.
pub(super) fn commits_of(folder: &Path, revision: &str) -> Option<Vec<String>> {
    let mut command = git(folder);
    command.args(["rev-list", "--max-count=10000"]);
    if !revision.contains("..") {
        command.arg("--no-walk");
    }
    command.args(["--end-of-options", revision]);
    Some(lines(&output(command, b"")?)).filter(|commits| commits.iter().all(|commit| hash(commit).is_some()))
}

/// Commits with their dates, in seconds since 1970, and subjects. What is not there any more is left out.
pub(super) fn described(folder: &Path, commits: &[String]) -> Vec<(String, i64, String)> {
    let mut command = git(folder);
    command.args([
        "log",
        "--no-walk=unsorted",
        "--ignore-missing",
        "--stdin",
        "--no-patch",
        "--format=%H %ct %s",
    ]);
    let found = output(command, (commits.join("\n") + "\n").as_bytes()).unwrap_or_default();
    let described = |line: String| {
        let mut parts = line.splitn(3, ' ');
        let (commit, at) = (hash(parts.next()?)?.to_owned(), parts.next()?.parse().ok()?);
        Some((commit, at, parts.next().unwrap_or_default().to_owned()))
    };
    lines(&found).into_iter().filter_map(described).collect()
}

/// For commits that none of `targets` is (or, without any, no reference reaches), the commit that has the same patch; several in
/// a row may have become one.
pub(super) fn replacements(
    folder: &Path,
    commits: &[String],
    targets: Option<&[String]>,
) -> HashMap<String, String> {
    // Commits that were replaced may be known here or not: a squash is recognised by all of them.
    let mut command = git(folder);
    command.args(["rev-list", "--max-count=1000", "--stdin"]);
    let mut input = commits.join("\n") + "\n";
    match targets {
        None => drop(command.args(["--not", "--all"])),
        Some(targets) => input.extend(targets.iter().map(|target| format!("^{target}\n"))),
    }
    let Some(found) = output(command, input.as_bytes()) else { return HashMap::new() };
    let replaced = lines(&found);
    if replaced.is_empty() {
        return HashMap::new();
    }
    let known = patches(folder, targets);
    let by_patch: HashMap<&String, &String> = known.iter().map(|(commit, patch)| (patch, commit)).collect();
    let mut found = HashMap::new();
    for (commit, patch) in patches(folder, Some(&replaced)) {
        if let Some(target) = by_patch.get(&patch) {
            found.insert(commit, (*target).clone());
        }
    }
    let left: Vec<String> = replaced.into_iter().filter(|commit| !found.contains_key(commit)).collect();
    let mut tries = 0;
    for row in rows(folder, &left) {
        // The longest ranges first: what became one commit is found as a whole.
        let mut ranges: Vec<(usize, usize)> =
            (0..row.len()).flat_map(|first| (first + 1..row.len()).map(move |last| (first, last))).collect();
        ranges.sort_by_key(|(first, last)| std::cmp::Reverse(last - first));
        for (first, last) in ranges {
            tries += 1;
            if tries > RANGES {
                return found;
            }
            let members = &row[first..=last];
            if members.iter().any(|commit| found.contains_key(commit)) {
                continue;
            }
            if let Some(target) =
                range_patch(folder, &row[first], &row[last]).and_then(|patch| by_patch.get(&patch).copied())
            {
                found.extend(members.iter().map(|commit| (commit.clone(), target.clone())));
            }
        }
    }
    found
}

const DIFF: [&str; 4] = ["-p", "--no-ext-diff", "--no-textconv", "--no-color"];

/// The patch-ids of commits; without any, of the latest that references reach.
fn patches(folder: &Path, commits: Option<&[String]>) -> HashMap<String, String> {
    let mut command = git(folder);
    command.arg("log").args(DIFF).args(["--no-merges", "--full-index", "-n", PATCHES]);
    match commits {
        Some(_) => command.args(["--no-walk", "--stdin"]),
        None => command.arg("--all"),
    };
    let input = commits.map_or(String::new(), |commits| commits.join("\n") + "\n");
    let found = output(command, input.as_bytes()).and_then(|patches| patch_ids(folder, &patches));
    found.unwrap_or_default().into_iter().map(|(patch, commit)| (commit, patch)).collect()
}

/// Pairs of a patch-id and the commit it is of.
fn patch_ids(folder: &Path, patches: &[u8]) -> Option<Vec<(String, String)>> {
    let mut command = git(folder);
    command.args(["patch-id", "--stable"]);
    let pairs = lines(&output(command, patches)?);
    Some(
        pairs
            .iter()
            .filter_map(|line| line.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned())))
            .collect(),
    )
}

/// The patch-id of everything from one commit to another, both included.
fn range_patch(folder: &Path, first: &str, last: &str) -> Option<String> {
    let mut command = git(folder);
    command.arg("diff-tree").args(DIFF).args([
        "--full-index",
        "--end-of-options",
        &format!("{first}^"),
        last,
    ]);
    let patch = output(command, b"")?;
    patch_ids(folder, &patch)?.into_iter().next().map(|(patch, _)| patch)
}

/// Commits that follow each other, each row the oldest first.
fn rows(folder: &Path, commits: &[String]) -> Vec<Vec<String>> {
    if commits.len() < 2 {
        return Vec::new();
    }
    let mut command = git(folder);
    command.args(["log", "--no-walk", "--stdin", "--format=%H %P"]);
    let Some(found) = output(command, (commits.join("\n") + "\n").as_bytes()) else { return Vec::new() };
    let parents: HashMap<String, String> = lines(&found)
        .iter()
        .filter_map(|line| {
            let mut hashes = line.split(' ');
            Some((hashes.next()?.to_owned(), hashes.next().unwrap_or_default().to_owned()))
        })
        .collect();
    let is_parent: HashSet<&String> = parents.values().collect();
    let tips = parents.keys().filter(|commit| !is_parent.contains(commit));
    tips.map(|tip| {
        let mut row = vec![tip.clone()];
        while let Some(parent) =
            parents.get(&row[row.len() - 1]).filter(|parent| parents.contains_key(*parent))
        {
            row.push(parent.clone());
        }
        row.reverse();
        row
    })
    .collect()
}

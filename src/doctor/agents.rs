//! Per agent: everything of its name on PATH and what it is, what a call runs, the real binary and its version, and
//! whether the call comes back to us.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::shells::{Meaning, Mode, ShellAnswer};
use super::{Diagnosis, Finding, Level, Machine, shells};
use agents::Agent;
use config::Config;
use format::shell;
use os::home::{Home, own_var};
use runtime::launch::{Origin, proxy_setup};
use runtime::shim::files::{DiskFiles, Files};
use runtime::shim::install::{Reach, ShimState, Shims};
use runtime::shim::resolve::{NotFound, PathKind, Query, SearchedPath};
use runtime::shim::{override_variable, resolve};
use runtime::track::version;

pub fn examine(machine: &Machine<'_>) -> Diagnosis {
    let config_file = machine.home.as_ref().map(Home::config_file);
    let config = Config::load(config_file.as_deref(), own_var, machine.agents);
    let reals: Vec<_> = machine
        .agents
        .iter()
        .map(|agent| runtime::shim::real_binary(agent, config.agent(agent).path.as_deref(), &own_var, None))
        .collect();
    // Each of these may take seconds, so all are asked at once.
    let (asked, versions) = std::thread::scope(|scope| {
        let asked = [Mode::Login, Mode::Interactive]
            .map(|mode| scope.spawn(move || shells::interview(machine, mode)));
        let versions: Vec<_> = (machine.agents.iter().zip(&reals))
            .map(|(agent, real)| scope.spawn(|| real.as_ref().ok().map(|path| version(agent, path, machine))))
            .collect();
        let asked: Vec<ShellAnswer> =
            asked.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect();
        let versions: Vec<_> = versions.into_iter().map(|thread| thread.join().ok().flatten()).collect();
        (asked, versions)
    });

    let (mut findings, mut any_wrapped) = (Vec::new(), false);
    let shims_on_path = shims_on_path(machine);
    let mut missed = false;
    // What has one cause is one finding, however many agents there are.
    let mut without_shim: Vec<&str> = Vec::new();
    let mut bare_in_shells: Vec<(String, Vec<&str>)> = Vec::new();
    for (((index, agent), real), version) in machine.agents.iter().enumerate().zip(&reals).zip(versions) {
        let query = Query {
            name: agent,
            explicit: None,
            path: machine.path.as_deref(),
            folder: None,
            ourselves: &machine.ourselves,
        };
        let places = query.survey(&DiskFiles);
        let on_path = Reach::of(&places);
        if matches!(real, Err(error) if nowhere(error)) {
            findings.push(Finding::note(
                agent,
                "not installed",
                format!("install it if you use it, or set {}", override_variable(agent)),
            ));
            continue;
        }
        findings.extend(hits(agent, &places));
        any_wrapped |= matches!(on_path, Reach::Wrapped(_));
        let shim = shim_state(agent, machine);
        missed |=
            !shims_on_path && matches!((&on_path, &shim), (Reach::Bare(_), Some((_, ShimState::Current))));
        let has_no_shim =
            matches!(shim, Some((_, ShimState::Missing))) && !matches!(on_path, Reach::Wrapped(_));
        if has_no_shim {
            without_shim.push(agent);
        } else {
            findings.extend(reach(agent, &on_path, shim, shims_on_path, machine));
        }
        for ShellAnswer { shell, mode, meanings } in &asked {
            let Ok(meanings) = meanings else { continue };
            let wrapped = |path: &Path| {
                let kind = resolve::judge(path, agent, &machine.ourselves, &DiskFiles);
                matches!(kind, PathKind::SameFile | PathKind::OtherCopy | PathKind::ScriptShim)
            };
            if matches!(&meanings[index], Meaning::File(path) if !wrapped(path)) {
                let who = mode.of(shell);
                match bare_in_shells.iter_mut().find(|(known, _)| *known == who) {
                    _ if has_no_shim => {}
                    Some((_, agents)) => agents.push(agent),
                    None => bare_in_shells.push((who, vec![agent])),
                }
                continue;
            }
            let judged = shells::judge(agent, shell, *mode, &meanings[index], wrapped);
            any_wrapped |= judged.as_ref().is_some_and(|finding| finding.level == Level::Ok);
            findings.extend(judged);
        }
        if let (Some(home), Ok(real), Some(KnownVersion::Asked(answer))) = (&machine.home, real, &version) {
            remember(home, agent, real, answer);
        }
        findings.push(real_binary(agent, real, version));
        findings.extend(set_up(agent, real.as_deref().ok(), &config, machine));
    }
    findings.extend(asked.into_iter().filter_map(|asked| asked.meanings.err()));
    if missed {
        let fix = format!("{}; then open a new shell", shells::set_up(shell_name(machine)));
        findings.push(Finding::warn("shell", "here, the shims are not on PATH", fix));
    }
    findings.extend(bare_in_shells.into_iter().map(|(who, agents)| {
        let fix = format!(
            "{}; then open a new shell, or run `hash -r` in this one",
            shells::set_up(shell_name(machine))
        );
        Finding::warn("shell", format!("{who} runs {} without codemie", agents.join(", ")), fix)
    }));
    if !without_shim.is_empty() {
        let set_up = shells::set_up(shell_name(machine));
        findings.push(Finding::note(
            "shell",
            format!(
                "no shim: {} run without codemie when they are called by their own names",
                without_shim.join(", ")
            ),
            format!("call `codemie {}`, or run: codemie shim install; then {set_up}", without_shim[0]),
        ));
    }
    Diagnosis { findings, wrapped: any_wrapped }
}

/// Nothing of this name was seen. A folder that cannot be searched counts as empty: no shell would find anything in it.
fn nowhere(error: &NotFound) -> bool {
    let unseen = |place: &SearchedPath| {
        !matches!(place.kind, PathKind::NotExecutable | PathKind::Directory | PathKind::Real)
    };
    error.explicit.is_none() && error.searched.iter().all(unseen)
}

fn shims_on_path(machine: &Machine<'_>) -> bool {
    let shims = machine.home.as_ref().and_then(|home| std::path::absolute(home.shims()).ok());
    let same =
        |folder: PathBuf| shims.as_ref().is_some_and(|shims| folder == *shims || same_folder(&folder, shims));
    machine.path.as_deref().is_some_and(|path| std::env::split_paths(path).any(same))
}

fn same_folder(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

fn shell_name<'a>(machine: &'a Machine<'_>) -> &'a str {
    machine.shell.as_deref().and_then(|shell| Path::new(shell).file_name()?.to_str()).unwrap_or("sh")
}

/// What is worth knowing of the agent's own set-up.
fn set_up(agent: &str, real: Option<&Path>, config: &Config, machine: &Machine<'_>) -> Vec<Finding> {
    let settings = config.agent(agent);
    let var = own_var;
    let remarks = agents::registry::called(agent).map(|known| {
        // As the next run will know it, which may be less than what the program has just answered.
        let noted =
            |real| version::recall(machine.home.as_ref()?, agent, &version::BinaryIdentity::of(agent, real)?);
        let version = real.and_then(|real| known.installed_version(real).or_else(|| noted(real)));
        let proxied = machine.home.as_ref().map(|home| proxied(known, version.as_deref(), config, home));
        let remarks =
            known.remarks(&var, version.as_deref(), settings.inject, settings.embedded, settings.marks);
        (remarks, proxied)
    });
    let (remarks, proxied) = remarks.unwrap_or_default();
    let finding = |remark: agents::Remark| match remark.advice {
        Some(advice) => Finding::note(agent, remark.what, advice),
        None => Finding::ok(agent, remark.what),
    };
    remarks.into_iter().map(finding).chain(proxied.into_iter().flatten()).collect()
}

/// Whether the agent's calls could go through the proxy, started in this folder without arguments.
fn proxied(agent: &dyn Agent, version: Option<&str>, config: &Config, home: &Home) -> Vec<Finding> {
    let name = agent.name();
    let configured = config.proxy.agent(name);
    let upstream = configured.upstream.as_deref();
    let mut findings = Vec::new();
    if configured.auth.is_some() && upstream.is_none() {
        findings.push(Finding::warn(
            name,
            format!("proxy.{name}.auth is not used: it is sent to proxy.{name}.upstream alone, and that is not set"),
            format!("run: codemie config set proxy.{name}.upstream URL"),
        ));
    }
    if !config.agent(name).inject {
        return findings;
    }
    let how = if config.proxy.enabled { "its calls go" } else { "with --proxy its calls go" };
    findings.push(
        match proxy_setup::route(agent, &[], version, &Origin::of_this_process(), home, upstream) {
            Ok((upstream, lead)) => {
                let names = lead.set.iter().map(|(name, _)| (*name).to_owned());
                let by: Vec<String> = names.chain(lead.args.first().map(|_| lead.args.join(" "))).collect();
                let mut what = format!("{how} through the proxy to {upstream}, by {}", by.join(" and "));
                if !lead.lost.is_empty() {
                    what.push_str(", without ");
                    what.push_str(&lead.lost.join(", "));
                }
                Finding::ok(name, what)
            }
            Err(why) if config.proxy.enabled => Finding::warn(
                name,
                format!("its calls do not go through the proxy: {why}"),
                "its session files are metered all the same; `codemie explain SESSION` repeats the reason",
            ),
            Err(why) => Finding::ok(name, format!("its calls would not go through the proxy: {why}")),
        },
    );
    findings
}

/// One line per place that holds something of this name.
fn hits(agent: &str, places: &[SearchedPath]) -> Vec<Finding> {
    let there = places.iter().filter(|place| place.kind != PathKind::NotFound);
    there
        .enumerate()
        .map(|(number, SearchedPath { path, kind })| {
            let what = match kind {
                PathKind::Real => manager(path, &DiskFiles).map_or_else(
                    || "the agent".to_owned(),
                    |manager| format!("a shim of {manager}, which looks for the agent itself"),
                ),
                PathKind::SameFile => "a shim of this codemie".to_owned(),
                other => other.to_string(),
            };
            let what = format!("PATH {}: {}: {what}", number + 1, path.display());
            match kind {
                PathKind::NotExecutable => {
                    Finding::note(agent, what, format!("remove it, or run: chmod +x {}", shell::path(path)))
                }
                PathKind::Directory | PathKind::Unreachable(_) => {
                    Finding::note(agent, what, "harmless; remove it from PATH to be rid of this note")
                }
                _ => Finding::ok(agent, what),
            }
        })
        .collect()
}

/// The version manager whose shim this is, by what the file really is or by how its script goes on.
fn manager(path: &Path, files: &impl Files) -> Option<&'static str> {
    const BY_FILE: [(&str, &str); 6] = [
        ("mise", "mise"),
        ("mise-shim", "mise"),
        ("volta-shim", "volta"),
        ("proto-shim", "proto"),
        ("asdf", "asdf"),
        ("fnm", "fnm"),
    ];
    const BY_SCRIPT: [(&[u8], &str); 7] = [
        (b"asdf exec", "asdf"),
        (b"/mise exec", "mise"),
        (b" mise exec", "mise"),
        (b"/mise x ", "mise"),
        (b" mise x ", "mise"),
        (b"nodenv\" exec", "nodenv"),
        (b"pyenv\" exec", "pyenv"),
    ];
    let canonical = files.canonicalize(path).ok()?;
    let file = canonical.file_name().unwrap_or_default();
    if let Some((_, manager)) = BY_FILE.iter().find(|(name, _)| file == OsStr::new(name)) {
        return Some(manager);
    }
    let mut buffer = [0; 1024];
    let length = files.head(path, &mut buffer).ok()?;
    let head = &buffer[..length];
    let found = BY_SCRIPT.iter().find(|(text, _)| memchr::memmem::find(head, text).is_some());
    found.filter(|_| head.starts_with(b"#!")).map(|(_, manager)| *manager)
}

fn shim_state(agent: &str, machine: &Machine<'_>) -> Option<(PathBuf, ShimState)> {
    let folder = std::path::absolute(machine.home.as_ref()?.shims()).ok()?;
    let shims = Shims::new(folder, &machine.codemie);
    Some((shims.path(agent), shims.state(agent).ok()?))
}

/// The shim itself, and what this process's PATH makes of it.
fn reach(
    agent: &str,
    reach: &Reach,
    shim: Option<(PathBuf, ShimState)>,
    shims_on_path: bool,
    machine: &Machine<'_>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let install = "run: codemie shim install";
    let mut usable = false;
    match shim {
        None => {}
        Some((_, ShimState::Current)) => usable = true,
        Some((path, ShimState::Missing)) => {
            findings.push(Finding::note(agent, format!("no shim at {}", path.display()), install));
        }
        Some((path, ShimState::Stale { target })) => findings.push(Finding::warn(
            agent,
            format!("{} runs another codemie, {}", path.display(), target.display()),
            install,
        )),
        Some((path, ShimState::Foreign)) => findings.push(Finding::warn(
            agent,
            format!("{} is not a shim of codemie", path.display()),
            format!("move it away, then {install}"),
        )),
    }
    match reach {
        Reach::Wrapped(_) => {}
        // One finding for all of them.
        Reach::Bare(_) if usable && !shims_on_path => {}
        Reach::Bare(path) if usable => {
            findings.push(Finding::warn(
                agent,
                format!("here, {} comes before the shim", path.display()),
                format!("{}; then open a new shell", shells::set_up(shell_name(machine))),
            ));
        }
        Reach::Bare(path) => findings.push(Finding::note(
            agent,
            format!("here, `{agent}` runs {} without codemie", path.display()),
            format!("call `codemie {agent}`, or {install}"),
        )),
        Reach::Nothing => findings.push(Finding::note(
            agent,
            format!("here, nothing is called {agent}"),
            format!("call `codemie {agent}`, or put the shims on PATH"),
        )),
    }
    findings
}

/// How the version of an agent became known.
enum KnownVersion {
    /// By its installation, which also says that this is the agent itself. `lacking`: the interpreter that its program needs
    /// and that is not installed.
    Installed {
        version: String,
        lacking: Option<String>,
    },
    Asked(Answer),
}

/// An agent is asked only if its installation does not say: Gemini leaves files in its own folder even when it is asked for
/// its version alone.
fn version(agent: &str, real: &Path, machine: &Machine<'_>) -> KnownVersion {
    let installed = agents::registry::called(agent).and_then(|known| known.installed_version(real));
    match installed {
        Some(version) => KnownVersion::Installed { version, lacking: lacking(real, machine) },
        None => KnownVersion::Asked(ask_version(real, machine)),
    }
}

/// The interpreter that a script begins with, if it is not there.
fn lacking(script: &Path, machine: &Machine<'_>) -> Option<String> {
    let mut buffer = [0; 256];
    let length = DiskFiles.head(script, &mut buffer).ok()?;
    let line = buffer[..length].strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split_whitespace();
    let program = words.next()?;
    let (wanted, there) = if program.ends_with("/env") {
        let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
        let query = Query {
            name,
            explicit: None,
            path: machine.path.as_deref(),
            folder: None,
            ourselves: &machine.ourselves,
        };
        (name, query.survey(&DiskFiles).iter().any(|place| place.kind == PathKind::Real))
    } else {
        (program, Path::new(program).exists())
    };
    (!there).then(|| wanted.to_owned())
}

/// The version is asked with the loop counter at its end: if what we take for the agent comes back to us, we say so
/// instead of going round.
fn ask_version(real: &Path, machine: &Machine<'_>) -> Answer {
    let mut command = Command::new(real);
    command.arg("--version").env(resolve::VARIABLE, resolve::at_its_end()).process_group(0);
    ask(&mut command, machine.timeout)
}

/// The next run of it knows the version then.
fn remember(home: &Home, agent: &str, real: &Path, answer: &Answer) {
    if let Answer::Given { stdout, status, .. } = answer
        && status.success()
        && home.path().exists()
        && let Some(version) = version_in(stdout)
        && let Some(binary) = version::BinaryIdentity::of(agent, real)
    {
        version::remember(home, agent, &binary, version);
    }
}

/// The first word of an answer that is a version: `codex-cli 0.166.0`, `2.1.197 (Claude Code)`.
fn version_in(answer: &str) -> Option<&str> {
    let plain = |word: &&str| {
        word.starts_with(|first: char| first.is_ascii_digit())
            && word.split('.').count() >= 3
            && word.chars().all(|letter| letter.is_ascii_alphanumeric() || ".-+".contains(letter))
    };
    answer.split_whitespace().take(8).find(plain)
}

fn real_binary(agent: &str, real: &Result<PathBuf, NotFound>, version: Option<KnownVersion>) -> Finding {
    let path = match real {
        Ok(path) => path,
        Err(error) => {
            let text = error.to_string();
            let what = text.lines().next().unwrap_or_default().trim_end_matches('.');
            let fix = text.lines().next_back().unwrap_or_default();
            return Finding::error(agent, what, fix);
        }
    };
    let shown = path.display();
    let variable = override_variable(agent);
    let fine = |version: &str| Finding::ok(agent, format!("the real {agent} is {shown}, version: {version}"));
    let answer = match version {
        Some(KnownVersion::Installed { version, lacking: None }) => return fine(&version),
        Some(KnownVersion::Installed { lacking: Some(program), .. }) => {
            return Finding::error(
                agent,
                format!("{shown} cannot be run: there is no {program}"),
                format!("install {program}, or put its folder on PATH"),
            );
        }
        Some(KnownVersion::Asked(answer)) => Some(answer),
        None => None,
    };
    match answer {
        Some(Answer::Given { stdout, status, .. }) if status.success() => {
            fine(stdout.lines().next().unwrap_or("says nothing").trim())
        }
        Some(Answer::Given { stderr, status, .. })
            if status.code() == Some(127) && stderr.contains("came back to codemie") =>
        {
            Finding::error(
                agent,
                format!("{shown} comes back to codemie: two shim managers point at each other"),
                format!(
                    "set {variable} to the real binary, or run: codemie config set agent.{agent}.path PATH"
                ),
            )
        }
        Some(Answer::Given { status, .. }) => Finding::warn(
            agent,
            format!("{shown} --version ends with {status}"),
            format!("run it by hand; if it is the wrong binary, set {variable}"),
        ),
        Some(Answer::TimedOut) => Finding::warn(
            agent,
            format!("{shown} --version does not end"),
            format!("run it by hand; if it is the wrong binary, set {variable}"),
        ),
        Some(Answer::NotStarted(error)) => Finding::error(
            agent,
            format!("{shown} cannot be run: {error}"),
            format!("reinstall {agent}, or set {variable} to a binary of this machine's kind"),
        ),
        None => {
            Finding::note(agent, format!("the version of {shown} is unknown"), "run codemie doctor again")
        }
    }
}

// Asking another program something, without trusting it to answer.

#[derive(Debug)]
pub enum Answer {
    Given { stdout: String, stderr: String, status: ExitStatus },
    TimedOut,
    NotStarted(io::Error),
}

/// Runs `command` with nothing on its standard input. After `limit` it is killed, with its whole process group if it
/// leads one.
///
/// Output goes to files, not pipes: something that the program leaves behind (an ssh-agent from a start-up file) would
/// hold a pipe open for ever.
pub fn ask(command: &mut Command, limit: Duration) -> Answer {
    match try_ask(command, limit) {
        Ok(answer) => answer,
        Err(error) => Answer::NotStarted(error),
    }
}

fn try_ask(command: &mut Command, limit: Duration) -> io::Result<Answer> {
    let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let mut child =
        command.stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?).spawn()?;
    let pid = Pid::from_child(&child);
    let (ended, end) = mpsc::channel();
    // Looks without reaping, so that the pid stays ours until the kill below is done.
    std::thread::spawn(move || {
        while waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
            .is_err_and(|error| error == rustix::io::Errno::INTR)
        {}
        _ = ended.send(());
    });
    let in_time = end.recv_timeout(limit).is_ok();
    // Even after an answer: processes that a start-up file left in the group must not outlive the question.
    _ = kill_process_group(pid, Signal::KILL);
    if !in_time {
        _ = child.kill();
    }
    let status = child.wait()?;
    if in_time {
        Ok(Answer::Given { stdout: content(stdout)?, stderr: content(stderr)?, status })
    } else {
        Ok(Answer::TimedOut)
    }
}

/// No useful answer is longer than this.
const LIMIT: u64 = 64 * 1024;

fn content(mut file: File) -> io::Result<String> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(LIMIT).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;
    use runtime::shim::files::fake::{Entry, Table, program};

    #[test]
    fn a_version_is_found_in_an_agents_answer() {
        for (answer, version) in [
            ("codex-cli 0.166.0\n", Some("0.166.0")),
            ("2.1.197 (Claude Code)\n", Some("2.1.197")),
            ("0.61.0", Some("0.61.0")),
            ("1.2.3-beta.4+5", Some("1.2.3-beta.4+5")),
            ("version 3", None),
            ("1.2.3;rm", None),
            ("", None),
        ] {
            assert_eq!(version_in(answer), version, "{answer:?}");
        }
    }

    #[test]
    fn an_unsearchable_folder_is_not_a_broken_agent() {
        use runtime::shim::files::OwnBinary;
        let denied = Entry { error: Some(std::io::ErrorKind::PermissionDenied), ..program(1, b"") };
        let table = Table::of(&[
            ("/secret/claude", denied),
            ("/text/claude", Entry { executable: false, ..program(2, b"") }),
        ]);
        let ourselves = OwnBinary::default();
        for (path, missing) in [("/none", true), ("/secret:/none", true), ("/secret:/text", false)] {
            let query = Query {
                name: "claude",
                explicit: None,
                path: Some(path.as_ref()),
                folder: None,
                ourselves: &ourselves,
            };
            assert_eq!(nowhere(&query.resolve(&table).unwrap_err()), missing, "{path}");
        }
    }

    #[test]
    fn version_managers_are_known_by_their_file_or_their_script() {
        let table = Table::of(&[
            ("/m/claude", Entry { canonical: Some("/usr/bin/mise"), ..program(1, b"\x7fELF") }),
            (
                "/v/claude",
                Entry { canonical: Some("/home/x/.volta/bin/volta-shim"), ..program(2, b"\x7fELF") },
            ),
            ("/a/claude", program(3, b"#!/usr/bin/env bash\nexec /opt/asdf exec \"claude\" \"$@\"\n")),
            ("/n/claude", program(4, b"#!/usr/bin/env node\n// promise exec\n")),
            ("/e/claude", program(5, b"\x7fELF asdf exec")),
        ]);
        let cases =
            [("/m", Some("mise")), ("/v", Some("volta")), ("/a", Some("asdf")), ("/n", None), ("/e", None)];
        for (folder, expected) in cases {
            assert_eq!(manager(&Path::new(folder).join("claude"), &table), expected, "{folder}");
        }
    }

    #[test]
    fn every_hit_is_named_in_order_and_misses_are_not() {
        let at = |path: &str, kind| SearchedPath { path: path.into(), kind };
        let places = [
            at("/none/claude", PathKind::NotFound),
            at("/shims/claude", PathKind::SameFile),
            at("/text/claude", PathKind::NotExecutable),
            at("/real/claude", PathKind::Real),
        ];
        let findings = hits("claude", &places);
        let shown: Vec<_> = findings.iter().map(|finding| (finding.level, finding.what.as_str())).collect();
        assert_eq!(
            shown,
            [
                (Level::Ok, "PATH 1: /shims/claude: a shim of this codemie"),
                (Level::Note, "PATH 2: /text/claude: not executable"),
                (Level::Ok, "PATH 3: /real/claude: the agent"),
            ]
        );
    }
}

#[cfg(test)]
mod probe_tests {
    use super::*;
    use std::os::unix::process::CommandExt;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0);
        command
    }

    #[test]
    fn an_answer_comes_with_both_outputs_and_the_status() {
        match ask(&mut sh("echo out; echo err >&2; exit 3"), Duration::from_mins(1)) {
            Answer::Given { stdout, stderr, status } => {
                assert_eq!((stdout.as_str(), stderr.as_str(), status.code()), ("out\n", "err\n", Some(3)));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            ask(&mut Command::new("/nonexistent"), Duration::from_mins(1)),
            Answer::NotStarted(_)
        ));
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("alive");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        // Whoever still runs holds the writing end; the reader below sees the end of file when the last one is gone.
        let (gone, all_gone) = mpsc::channel();
        std::thread::spawn({
            let fifo = fifo.clone();
            move || gone.send(std::fs::read(fifo).unwrap())
        });
        let script = format!("exec 9>{}; sleep 60 & wait", fifo.display());
        assert!(matches!(ask(&mut sh(&script), Duration::from_millis(200)), Answer::TimedOut));
        assert_eq!(all_gone.recv_timeout(Duration::from_secs(30)), Ok(Vec::new()), "something still runs");
    }

    #[test]
    fn a_background_process_with_the_output_open_does_not_delay_the_answer() {
        assert!(matches!(ask(&mut sh("sleep 60 & echo hi"), Duration::from_mins(1)), Answer::Given { .. }));
    }
}

//! Asking another program something, without trusting it to answer.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

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

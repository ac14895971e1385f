//! The dashboard beside the view: the one that runs, else a `codemie dashboard` of its own, from the first time it is asked for
//! until the view is left.

use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::cmd::browser;
use os::home::{Home, own_var};
use report::wake::Bell;

/// How long it may take to end.
const GRACE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Pages {
    child: Child,
    /// The first line that it prints: the address that lets a browser in.
    first_line: Receiver<String>,
    entrance: Option<String>,
}

impl Pages {
    /// `bell` is rung when there is a [report](Self::take_report).
    pub(super) fn start(bell: Bell) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["dashboard", "--no-open"]).stdin(Stdio::null()).stderr(Stdio::null());
        // What is typed to leave the view is not meant for it.
        let mut child = command.stdout(Stdio::piped()).process_group(0).spawn()?;
        let out = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let (found, first_line) = channel();
        std::thread::Builder::new().name("dashboard".to_owned()).spawn(move || {
            let mut line = String::new();
            let mut out = BufReader::new(out);
            let _ = out.read_line(&mut line);
            let _ = found.send(line.trim().to_owned());
            bell.ring();
            // So that its pipe never fills up.
            let _ = io::copy(&mut out, &mut io::sink());
        })?;
        Ok(Self { child, first_line, entrance: None })
    }

    /// Its address has become known, or it has not started. To be asked for when the bell has rung.
    pub(super) fn take_report(&mut self, home: &Home) -> Option<Result<String, String>> {
        let line = self.first_line.try_recv().ok()?;
        if !line.starts_with("http://") {
            return Some(Err("the dashboard did not start; `codemie dashboard` says why".to_owned()));
        }
        let entrance = self.entrance.insert(line);
        // The code in it lets one browser in, once.
        Some(Ok(if show(entrance, home) {
            "the dashboard is open in the browser; d again opens a session's page".to_owned()
        } else {
            format!("dashboard: {entrance}")
        }))
    }

    /// Where it is served, with a slash at the end.
    pub(super) fn address(&self) -> Option<&str> {
        let entrance = self.entrance.as_deref()?;
        entrance.split_once("enter?").map(|(address, _)| address)
    }

    /// Opens a session's page in a browser that was let in before; where there is none, its address is shown.
    pub(super) fn open(&self, session: &str, home: &Home) -> String {
        let Some(address) = self.address() else { return "the dashboard is being started …".to_owned() };
        let page = format!("{address}sessions/{session}");
        if show(&page, home) { "its page is open in the browser".to_owned() } else { page }
    }
}

fn show(url: &str, home: &Home) -> bool {
    browser::show(url, home, own_var)
}

impl Drop for Pages {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        let deadline = Instant::now() + GRACE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

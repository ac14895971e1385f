//! The keeper: holds a listener as long as anybody may call, and a worker behind it.
//!
//! It does nothing else, so that nothing else can end it. It is told everything through a socket: the wrapper's end closes when the
//! wrapper has gone, and ours when we have.

use std::io;
use std::io::{BufReader, Read};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::settings::ProxySettings;
use super::{KEEPER, WORKER, handed_over, listeners, ourselves};
use os::clock::{Clock, SystemClock};
use os::file::read_at_most;
use os::log;
use pty::process::is_detached;
use pty::process::{Processes, SystemProcesses, tree};
use types::{Pid, ProcessId};

/// How often users are looked for once the wrapper has gone. An agent's daemon may take a moment to start its successor, so
/// two looks in a row must find nobody.
const LOOK: Duration = Duration::from_secs(2);
const LOOKS: u32 = 2;

/// A worker that dies at once is started again after this time, doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A worker that has lived so long did not die of its start.
const SETTLED: Duration = Duration::from_secs(10);

/// How long a worker has for its last answers and its last calls' records.
const DRAIN: Duration = Duration::from_secs(20);

/// Said to a worker when the wrapper has gone: should we go as well, nobody else would start us again.
pub(super) const ALONE: &[u8] = b"alone\n";

/// Starts a keeper for this listener and returns the socket through which either learns of the other's end.
pub(super) fn start(listener: &TcpListener, settings: &ProxySettings) -> io::Result<UnixStream> {
    let (near, far) = UnixStream::pair()?;
    let mut near = near;
    settings.send(&mut near)?;
    let mut command = ourselves(KEEPER)?;
    command.env("CODEMIE_HOME", &settings.home);
    for name in &settings.leading {
        command.env_remove(name);
    }
    pty::spawn_detached_with(&mut command, far.into(), listener.as_fd().try_clone_to_owned()?)?;
    Ok(near)
}

enum News {
    WrapperGone,
    WorkerEnded,
}

/// The whole life of a keeper process.
pub fn run() -> io::Result<()> {
    let (control, listener) = handed_over()?;
    let mut control = BufReader::new(control);
    let settings = ProxySettings::receive(&mut control)?;
    let _ = log::start(&settings.home(), settings.log_level.as_deref());
    let keeper = Keeper { listener, settings };
    keeper.keep(control)
}

struct Keeper {
    listener: TcpListener,
    settings: ProxySettings,
}

impl Keeper {
    fn keep(&self, control: BufReader<UnixStream>) -> io::Result<()> {
        // Removes the notes of keepers that were killed.
        let _ = listeners::living(&self.settings.home(), &SystemProcesses);
        let own = SystemProcesses.identify(Pid(std::process::id().cast_signed()));
        let noted = own.map(|own| listeners::note(&self.settings, own, SystemClock.now()));
        let _note = noted.and_then(|noted| {
            noted.inspect_err(|error| tracing::warn!("the proxy's listener is not noted: {error}")).ok()
        });
        tracing::info!(port = self.settings.port, "the proxy listens");
        let (report, news) = channel();
        watch_wrapper(control, report.clone())?;
        let mut worker = Worker::start(self, &report)?;
        let ended = self.supervise(&mut worker, &report, &news);
        worker.finish();
        tracing::info!(port = self.settings.port, "the proxy has ended");
        ended
    }

    fn supervise(&self, worker: &mut Worker, report: &Sender<News>, news: &Receiver<News>) -> io::Result<()> {
        let mut users = Clients::new(self.settings.secret.clone(), self.settings.port);
        let (mut alone, mut unused) = (false, 0);
        let mut pause = FIRST_PAUSE;
        loop {
            // With a wrapper there is nothing to look for: nothing wakes this process.
            let waited = if alone {
                news.recv_timeout(LOOK)
            } else {
                news.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match waited {
                Ok(News::WrapperGone) => {
                    tracing::info!(
                        port = self.settings.port,
                        "the wrapper has gone; the proxy goes by who uses it"
                    );
                    alone = true;
                    worker.tell(ALONE);
                }
                Ok(News::WorkerEnded) => {
                    pause = if worker.begun.elapsed() > SETTLED { FIRST_PAUSE } else { pause };
                    tracing::warn!("the proxy's worker has ended; the next one starts in {pause:?}");
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    match Worker::start(self, report) {
                        Ok(next) => *worker = next,
                        Err(error) => {
                            tracing::error!("the proxy's worker cannot be started: {error}");
                            let _ = report.send(News::WorkerEnded);
                        }
                    }
                    if alone {
                        worker.tell(ALONE);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    unused = if users.any(&SystemProcesses) { 0 } else { unused + 1 };
                    if unused >= LOOKS {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }
}

/// Reports the wrapper's end: its side of the socket closes with it.
fn watch_wrapper(mut control: BufReader<UnixStream>, report: Sender<News>) -> io::Result<()> {
    let watch = move || {
        let mut bytes = [0; 64];
        while control.read(&mut bytes).is_ok_and(|count| count > 0) {}
        let _ = report.send(News::WrapperGone);
    };
    std::thread::Builder::new().name("wrapper".into()).spawn(watch).map(drop)
}

/// The worker of a keeper.
struct Worker {
    /// Its end tells the worker to finish.
    control: Option<UnixStream>,
    ended: Receiver<()>,
    pid: Option<ProcessId>,
    begun: Instant,
}

impl Worker {
    fn start(keeper: &Keeper, report: &Sender<News>) -> io::Result<Self> {
        let (near, far) = UnixStream::pair()?;
        let mut control = near;
        keeper.settings.send(&mut control)?;
        let listener: OwnedFd = keeper.listener.as_fd().try_clone_to_owned()?;
        let mut child = {
            let mut command = ourselves(WORKER)?;
            command.stdin(OwnedFd::from(far)).stdout(listener).stderr(Stdio::null());
            command.spawn()?
        };
        let pid = SystemProcesses.identify(Pid(child.id().cast_signed()));
        let (gone, ended) = channel();
        let report = report.clone();
        std::thread::Builder::new().name("worker".into()).spawn(move || {
            let _ = child.wait().inspect(|status| tracing::debug!("the proxy's worker: {status}"));
            drop::<Child>(child);
            drop::<Sender<()>>(gone);
            let _ = report.send(News::WorkerEnded);
        })?;
        Ok(Self { control: Some(control), ended, pid, begun: Instant::now() })
    }

    fn tell(&mut self, what: &[u8]) {
        use std::io::Write;
        if let Some(control) = &mut self.control {
            let _ = control.write_all(what);
        }
    }

    /// Lets it finish what it does, and ends it if it does not.
    fn finish(&mut self) {
        self.tell(b"finish\n");
        self.control = None;
        if self.ended.recv_timeout(DRAIN) == Err(RecvTimeoutError::Timeout)
            && let Some(pid) = self.pid
        {
            tree::signal(pid, &SystemProcesses, Signal::KILL);
            let _ = self.ended.recv_timeout(DRAIN);
        }
    }
}

// Who may still call: processes that were given the address, and connections to the listener.

const MAX_TABLE: u64 = 64 << 20;

/// Looks for users of one listener. The processes of a machine are gone through only when the known users have ended.
#[derive(Debug)]
pub(super) struct Clients {
    secret: String,
    port: u16,
    known: Vec<ProcessId>,
}

impl Clients {
    pub(super) fn new(secret: String, port: u16) -> Self {
        Self { secret, port, known: Vec::new() }
    }

    /// Whether there is any. Where processes cannot be listed there may always be one.
    pub(super) fn any(&mut self, processes: &dyn Processes) -> bool {
        self.known.retain(|process| processes.alive(*process));
        if !self.known.is_empty() || connected(self.port) {
            return true;
        }
        let Some(holders) = processes.started_with(&self.secret) else { return true };
        // Our own detached work inherits variables as well, and calls nobody.
        let users = holders.into_iter().filter(|pid| !is_detached(&processes.command(*pid)));
        self.known = users.filter_map(|pid| processes.identify(pid)).collect();
        !self.known.is_empty()
    }
}

/// Whether anybody is connected to a port of this machine's own address.
fn connected(port: u16) -> bool {
    read_at_most(Path::new("/proc/net/tcp"), MAX_TABLE)
        .is_ok_and(|table| has_connection(&String::from_utf8_lossy(&table), port))
}

/// `1: 0100007F:1F90 0100007F:C350 01 …`: our side, the other side, the state, of which 01 is "established".
fn has_connection(table: &str, port: u16) -> bool {
    let local = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        words.next().is_some_and(|address| address.ends_with(&local)) && words.nth(1) == Some("01")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pty::process::SystemProcesses;

    #[test]
    fn connections_are_found_by_their_port() {
        let table = "  sl  local_address rem_address   st tx_queue\n   0: 0100007F:1F90 00000000:0000 0A 00000000\n   1: 0100007F:1F90 0100007F:C350 01 00000000\n   2: 0100007F:C350 0100007F:1F91 06 00000000\n";
        assert!(has_connection(table, 0x1F90));
        assert!(!has_connection(table, 0x1F91), "it is the other side's port");
        assert!(!has_connection(table, 0xC350), "it is closed");
        assert!(!has_connection("", 1));
    }

    #[test]
    fn a_process_with_the_address_in_its_environment_is_a_user() {
        let secret = format!("secret-of-test-{}", std::process::id());
        let mut users = Clients::new(secret.clone(), 1);
        assert!(!users.any(&SystemProcesses));
        let mut child =
            std::process::Command::new("sleep").arg("600").env("BASE_URL", &secret).spawn().unwrap();
        // Until it has become another program, it has our own environment.
        while !users.any(&SystemProcesses) {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!users.any(&SystemProcesses));
    }
}

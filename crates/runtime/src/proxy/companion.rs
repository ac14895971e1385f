//! The wrapper's end of a proxy: the listener is bound before the agent starts, the keeper is started beside it.

use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::settings::ProxySettings;
use super::{keeper, worker};

/// A keeper that was killed is started again; one that dies at once not faster than this.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const SETTLED: Duration = Duration::from_secs(10);

/// After so many keepers that could not be started the wrapper serves the agent itself: it has the address, and no other way.
const ATTEMPTS: u32 = 3;

/// A bound listener and what is to run behind it.
#[derive(Debug)]
pub struct Companion {
    listener: TcpListener,
    settings: ProxySettings,
}

impl Companion {
    /// Binds a port of this machine's own address. From here on a connection waits in the system's queue until it is served.
    pub fn bind(settings: impl FnOnce(u16) -> ProxySettings) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, settings: settings(port) })
    }

    pub fn address(&self) -> String {
        self.settings.address()
    }

    /// To be kept open by a process that is forked for it.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Starts the keeper, and starts it again whenever it ends, in a thread of its own: the agent's start waits for nothing.
    pub fn start(self) -> CompanionThread {
        let problem = Arc::<Mutex<Option<String>>>::default();
        let reported = Arc::clone(&problem);
        let thread = pty::without_signals(|| {
            std::thread::Builder::new().name("proxy".into()).spawn(move || self.stay(&reported))
        });
        if let Err(error) = thread {
            note(&problem, format!("the proxy could not be started: {error}"));
        }
        CompanionThread { problem }
    }

    fn stay(self, problem: &Mutex<Option<String>>) {
        let (mut pause, mut failures) = (FIRST_PAUSE, 0);
        while failures < ATTEMPTS {
            let begun = Instant::now();
            match keeper::start(&self.listener, &self.settings) {
                Ok(mut keeper) => {
                    failures = 0;
                    let mut bytes = [0; 64];
                    while keeper.read(&mut bytes).is_ok_and(|count| count > 0) {}
                    tracing::warn!("the proxy's keeper has ended; it is started again");
                }
                Err(error) => {
                    failures += 1;
                    tracing::error!("the proxy's keeper cannot be started: {error}");
                    note(problem, format!("the proxy's own process could not be started: {error}"));
                }
            }
            pause = if begun.elapsed() > SETTLED { FIRST_PAUSE } else { pause };
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        if let Err(error) = worker::serve_here(self.listener, &self.settings) {
            note(problem, format!("the proxy could not be started: {error}"));
        }
    }
}

fn note(problem: &Mutex<Option<String>>, text: String) {
    *problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
}

/// A companion that has been started. It ends with this process, and its keeper when nobody uses the address any more.
#[derive(Debug)]
pub struct CompanionThread {
    problem: Arc<Mutex<Option<String>>>,
}

impl CompanionThread {
    /// What went wrong, for a line after the agent has ended.
    pub fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

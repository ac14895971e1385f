//! What wakes a view that stays: the store has changed, the host of a background session reports that its agent does something else,
//! the files of an agent in somebody's terminal have changed.
//!
//! Promises: nothing is asked again and again. Each host is listened to by a thread that sleeps until the host speaks; a host that is
//! stopped, or of an earlier build that reports moments alone, holds nobody back.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::wake::{Bell, Wake};
use os::home::Home;
use runtime::remote::protocol::{FromHost, ToHost, WaitRequest};
use runtime::remote::{Connection, RemoteError};
use types::{LiveState, RunId};

/// How long a host is asked to wait for a change; then it is asked again.
const LONGEST: Duration = Duration::from_mins(10);
/// How long it may take to say that this time is up.
const LATE: Duration = Duration::from_secs(30);

/// What hosts have reported.
#[derive(Debug, Default)]
struct Heard {
    /// The latest state of each that is there.
    states: HashMap<RunId, LiveState>,
    /// One has gone since this was asked.
    gone: bool,
}

type Shared = Arc<Mutex<Heard>>;

/// Something to wait for.
#[derive(Debug)]
pub struct Changes {
    home: Home,
    wake: Wake,
    heard: Shared,
    /// The runs whose hosts are listened to, or were until they went. None is listened to twice: a host that was killed leaves its
    /// socket behind.
    listened: HashSet<RunId>,
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl Changes {
    pub fn new(home: &Home) -> io::Result<Self> {
        Ok(Self {
            home: home.clone(),
            wake: Wake::new()?,
            heard: Shared::default(),
            listened: HashSet::new(),
        })
    }

    pub fn bell(&self) -> Bell {
        self.wake.bell()
    }

    /// What has been reported so far is known from here on.
    pub fn drain(&mut self) {
        self.wake.drain();
    }

    /// From here on these hosts and files are followed, besides the store.
    pub fn follow(&mut self, hosts: &HashSet<RunId>, files: impl IntoIterator<Item = PathBuf>) {
        // Every commit is written to the log beside the database first.
        let mut log = self.home.database().into_os_string();
        log.push("-wal");
        self.wake.watch.set(files.into_iter().chain([PathBuf::from(log)]), None);
        for run in hosts {
            if self.listened.insert(*run) {
                self.listen(*run);
            }
        }
    }

    /// What the host of a run reported last.
    pub fn state(&self, run: RunId) -> Option<LiveState> {
        lock(&self.heard).states.get(&run).cloned()
    }

    /// Whether a host has gone since this was asked: its session has ended, or is to be ended because it was killed.
    pub fn take_gone(&self) -> bool {
        std::mem::take(&mut lock(&self.heard).gone)
    }

    fn listen(&self, run: RunId) {
        let (home, heard, bell) = (self.home.clone(), Arc::clone(&self.heard), self.bell());
        let listening = thread::Builder::new().name("host".to_owned()).spawn(move || {
            if let Err(error) = follow_host(&home, run, &heard, &bell) {
                tracing::debug!(%run, "its host is not listened to any more: {error}");
            }
            {
                let mut heard = lock(&heard);
                heard.states.remove(&run);
                heard.gone = true;
            }
            bell.ring();
        });
        if let Err(error) = listening {
            tracing::warn!(%run, "no thread listens to its host: {error}");
        }
    }
}

fn lock(heard: &Shared) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Until the host is gone.
fn follow_host(home: &Home, run: RunId, heard: &Shared, bell: &Bell) -> Result<(), RemoteError> {
    let mut connection = Connection::open(home, run)?;
    let mut seen: Option<(LiveState, String)> = None;
    loop {
        let request = match &seen {
            // The first answer comes at once: how it stands.
            None => WaitRequest::default(),
            Some((state, cursor)) => WaitRequest {
                cursor: Some(cursor.clone()),
                timeout_ms: u64::try_from(LONGEST.as_millis()).unwrap_or(u64::MAX),
                unlike: Some(state.is),
                ..WaitRequest::default()
            },
        };
        let FromHost::Waited(answer) = connection.ask(&ToHost::Wait(request), LONGEST + LATE)? else {
            return Err(Connection::unexpected());
        };
        if seen.as_ref().is_none_or(|(state, _)| *state != answer.state) {
            lock(heard).states.insert(run, answer.state.clone());
            bell.ring();
        }
        seen = Some((answer.state, answer.cursor));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::time::Instant;

    use super::*;
    use runtime::remote::address;
    use runtime::remote::frames::{Frame, Frames};
    use runtime::remote::protocol::{WaitAnswer, Welcome};
    use types::{Activity, Timestamp};

    fn state(is: Activity) -> LiveState {
        LiveState { is, since: Timestamp(5), why: String::new(), source: None }
    }

    /// A host whose agent works by the second question, and that ends at the third. Returns what it was asked.
    fn serve(listener: &UnixListener) -> Vec<WaitRequest> {
        let (mut stream, _) = listener.accept().unwrap();
        let mut frames = Frames::default();
        let mut asked = Vec::new();
        let say = |stream: &mut UnixStream, answer: &FromHost| stream.write_all(&answer.to_bytes()).unwrap();
        loop {
            while let Some(message) = frames.take_next::<ToHost>().unwrap() {
                let ToHost::Wait(request) = message else {
                    say(&mut stream, &FromHost::Welcome(Welcome::default()));
                    continue;
                };
                let is = if asked.is_empty() { Activity::Idle } else { Activity::Working };
                asked.push(request);
                if asked.len() == 3 {
                    return asked;
                }
                let answer = WaitAnswer {
                    result: None,
                    session: None,
                    state: state(is),
                    cursor: "7".to_owned(),
                    answer_missing: false,
                };
                say(&mut stream, &FromHost::Waited(answer));
            }
            let mut bytes = [0; 1024];
            let count = stream.read(&mut bytes).unwrap();
            frames.add(&bytes[..count]);
        }
    }

    #[test]
    fn a_host_is_listened_to_until_it_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        let run = RunId(uuid::Uuid::from_u128(1));
        let listener = address::bind(&home, run).unwrap();
        let serving = thread::spawn(move || serve(&listener));
        let mut changes = Changes::new(&home).unwrap();
        changes.follow(&HashSet::from([run]), []);
        let asked = serving.join().unwrap();
        assert_eq!(asked[0], WaitRequest::default(), "how it stands, at once");
        assert_eq!((asked[1].unlike, asked[1].cursor.as_deref()), (Some(Activity::Idle), Some("7")));
        assert_eq!(asked[2].unlike, Some(Activity::Working));
        let deadline = Instant::now() + Duration::from_secs(30);
        while !changes.take_gone() {
            assert!(Instant::now() < deadline);
            thread::sleep(Duration::from_millis(5));
        }
        let mut bytes = [0; 16];
        let woken = rustix::io::read(&changes, &mut bytes).unwrap();
        assert!(woken >= 2, "for each state, and for its end: {woken}");
        changes.drain();
        assert_eq!(changes.state(run), None);
        changes.follow(&HashSet::from([run]), []);
        assert!(!changes.take_gone(), "its socket is still there, and nobody listens to it again");
    }
}

//! Waits for a moment of one or several sessions: a turn's end, a question, the exit.
//!
//! Hosts answer by themselves. Sessions in somebody's terminal are followed by their files, woken by changes of these, with a
//! look twice a second below that. Time that is up is no error: the answer is `pending`, with a cursor that goes on from there.

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::find::LiveTarget;
use super::open::recover;
use super::wake::Wake;
use agents::Agent;
use agents::registry;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use pty::process::{Processes, SystemProcesses};
use runtime::launch::Origin;
use runtime::live::events::{Cursor, Event};
use runtime::live::{UnhostedSession, UnhostedWatch};
use runtime::remote::protocol::{FromHost, Refused, ToHost, WaitAnswer, WaitRequest};
use runtime::remote::{Connection, RemoteError};
use store::{self, RunRow, SessionRow, Store};
use types::{LiveState, Moment, SessionId, Timestamp};

/// The longest wait by default: callers of MCP give up after a minute.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(50);
/// How often sessions without a host are looked at, whatever their files report.
const NET: Duration = Duration::from_millis(500);
/// How long a host may take to answer that its time is up.
const LATE: Duration = Duration::from_secs(2);
/// How long the store may take to learn that a host has gone.
const GONE: Duration = Duration::from_secs(2);

/// The place in the log of a run whose end was reported, where several are waited for: the others are to be heard as well.
const AFTER_THE_END: Timestamp = Timestamp(i64::MAX);

/// What is waited for.
#[derive(Clone, Debug, Default)]
pub struct WaitFor {
    /// Any of these; empty: any moment.
    pub until: Vec<Moment>,
    pub cursor: Option<Cursor>,
    pub timeout: Duration,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waited {
    /// `None`: not yet.
    pub result: Option<Moment>,
    /// The first session that has something; of none, the first one.
    pub session: SessionId,
    pub redirected_from: Option<SessionId>,
    /// `None` for a session that has ended.
    pub state: Option<LiveState>,
    pub cursor: Cursor,
    /// A turn has ended, and its answer cannot be read.
    pub answer_missing: bool,
}

impl Waited {
    /// What there is to say of the answer of the turn that has ended.
    pub fn answer(&self) -> Option<&'static str> {
        self.answer_missing.then_some("missing")
    }
}

#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    #[error("there is no session to wait for")]
    Nothing,
    #[error(transparent)]
    Remote(#[from] RemoteError),
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("cannot wait: {0}")]
    Io(#[from] io::Error),
}

/// Waits for the first of `targets` that has something.
pub fn wait(
    home: &Home,
    store: &mut Store,
    origin: &Origin,
    targets: &[LiveTarget],
    wanted: &WaitFor,
) -> Result<Waited, WaitError> {
    Waiting::begin(home, store, origin, targets, wanted)?.go_on()
}

struct Waiting<'a> {
    home: &'a Home,
    store: &'a mut Store,
    origin: &'a Origin,
    wanted: &'a WaitFor,
    deadline: Instant,
    several: bool,
    sources: Vec<Source<'a>>,
    wake: Option<Wake>,
}

/// One session that is waited for.
struct Source<'a> {
    target: &'a LiveTarget,
    kind: Kind,
    state: Option<LiveState>,
    /// Its place when its host last answered.
    place: Option<Timestamp>,
}

enum Kind {
    Ended(Timestamp),
    /// Its end was reported by an earlier wait for several sessions: only the others count.
    Reported,
    Hosted(Box<Connection>),
    /// Its host has answered that the time is up.
    Pending,
    InTerminal(Box<Followed>),
}

/// A session without a host.
struct Followed {
    run: RunRow,
    agent: &'static dyn Agent,
    watch: UnhostedWatch,
    /// The session that the run is in now.
    session: SessionRow,
}

impl<'a> Waiting<'a> {
    fn begin(
        home: &'a Home,
        store: &'a mut Store,
        origin: &'a Origin,
        targets: &'a [LiveTarget],
        wanted: &'a WaitFor,
    ) -> Result<Self, WaitError> {
        if targets.is_empty() {
            return Err(WaitError::Nothing);
        }
        let deadline = Instant::now() + wanted.timeout;
        let mut waiting = Self {
            home,
            store,
            origin,
            wanted,
            deadline,
            several: targets.len() > 1,
            sources: Vec::new(),
            wake: None,
        };
        for target in targets {
            let kind = waiting.kind_of(target)?;
            waiting.sources.push(Source { target, kind, state: None, place: None });
        }
        if waiting.sources.iter().all(|source| matches!(source.kind, Kind::Reported)) {
            // Nothing can come any more.
            waiting.sources.iter_mut().take(1).for_each(|source| {
                source.kind = Kind::Ended(source.target.session.ended_at.unwrap_or_default());
            });
        }
        waiting.watch_files()?;
        Ok(waiting)
    }

    fn kind_of(&self, target: &LiveTarget) -> Result<Kind, WaitError> {
        let Some(run) = &target.run else {
            let place = self.wanted.cursor.as_ref().zip(target.last_run).map(|(cursor, run)| cursor.of(run));
            return Ok(if self.several && place == Some(AFTER_THE_END) {
                Kind::Reported
            } else {
                Kind::Ended(target.session.ended_at.unwrap_or_default())
            });
        };
        let time = self.deadline.saturating_duration_since(Instant::now());
        match Connection::open_within(self.home, run.id, time) {
            Ok(mut connection) => {
                let cursor =
                    self.wanted.cursor.as_ref().map(|cursor| Cursor::at(cursor.of(run.id)).to_string());
                connection.say(&ToHost::Wait(WaitRequest {
                    until: self.wanted.until.clone(),
                    cursor,
                    timeout_ms: u64::try_from(self.wanted.timeout.as_millis()).unwrap_or(u64::MAX),
                    unlike: None,
                }))?;
                Ok(Kind::Hosted(Box::new(connection)))
            }
            Err(RemoteError::NoHost) => {
                let Some(agent) = registry::by_name(&target.session.agent) else {
                    return Ok(Kind::Pending); // no agent: only its end can be seen, and `exits` does
                };
                let watch = UnhostedWatch::of(agent);
                Ok(Kind::InTerminal(Box::new(Followed {
                    run: run.clone(),
                    agent,
                    watch,
                    session: target.session.clone(),
                })))
            }
            // It is stopped, or swapped out: not yet.
            Err(error) if error.is_timeout() && Instant::now() >= self.deadline => Ok(Kind::Pending),
            Err(error) => Err(error.into()),
        }
    }

    /// Changes of the files of sessions without a host wake the wait.
    fn watch_files(&mut self) -> io::Result<()> {
        let mut files: Vec<PathBuf> = Vec::new();
        for source in &self.sources {
            if let Kind::InTerminal(followed) = &source.kind {
                files.extend(followed.session.agent_session_file.clone());
                files.push(self.home.published_sessions().join(format!("{}.json", followed.session.id)));
            }
        }
        if files.is_empty() {
            return Ok(());
        }
        let wake = match &mut self.wake {
            Some(wake) => wake,
            none => none.insert(Wake::new()?),
        };
        wake.watch.set(files, None);
        Ok(())
    }

    fn go_on(mut self) -> Result<Waited, WaitError> {
        loop {
            for at in 0..self.sources.len() {
                if let Some(event) = self.look(at)? {
                    return Ok(self.answer(at, Some(event)));
                }
            }
            let late = if self.sources.iter().any(|source| matches!(source.kind, Kind::Hosted(_))) {
                LATE
            } else {
                Duration::ZERO
            };
            if Instant::now() >= self.deadline + late {
                return Ok(self.answer(0, None));
            }
            self.sleep(self.deadline + late)?;
            self.watch_files()?; // a file that was replaced or has appeared, another conversation
        }
    }

    /// Sleeps until a host answers, a file changes, or a look is due.
    fn sleep(&mut self, until: Instant) -> io::Result<()> {
        let hosted = |source: &Source<'_>| matches!(source.kind, Kind::Hosted(_));
        let net = if self.sources.iter().all(hosted) { until } else { Instant::now() + self.next_look() };
        let timeout = until.min(net).saturating_duration_since(Instant::now());
        {
            let sockets = self.sources.iter().filter_map(|source| match &source.kind {
                Kind::Hosted(connection) => Some(connection.as_fd()),
                _ => None,
            });
            let files = self.wake.as_ref().map(AsFd::as_fd);
            let mut fds: Vec<PollFd<'_>> =
                sockets.chain(files).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            let timeout = Timespec::try_from(timeout).ok();
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(wake) = &mut self.wake {
            wake.drain();
        }
        Ok(())
    }

    /// When sessions without a host are to be looked at again.
    fn next_look(&self) -> Duration {
        let now = SystemClock.now();
        let due = self.sources.iter().filter_map(|source| match &source.kind {
            Kind::InTerminal(followed) => followed.watch.log().due(),
            _ => None,
        });
        due.map(|due| due.since(now)).fold(NET, Duration::min).max(Duration::from_millis(5))
    }

    fn look(&mut self, at: usize) -> Result<Option<Event>, WaitError> {
        let Self { sources, store, home, origin, wanted, .. } = self;
        let Some(source) = sources.get_mut(at) else { return Ok(None) };
        match &mut source.kind {
            Kind::Ended(at) => Ok(Some(Event::new(*at, Moment::Exit))),
            Kind::Reported => Ok(None),
            Kind::Pending => {
                let Some(run) = &source.target.run else { return Ok(None) };
                Ok(end_of(store, home, run)?.map(|at| Event::new(at, Moment::Exit)))
            }
            Kind::Hosted(connection) => match connection.hear(Some(Duration::from_millis(1))) {
                Ok(FromHost::Waited(answer)) => Ok(source.take(answer)),
                Ok(FromHost::Refused(Refused { message })) => Err(RemoteError::Refused(message).into()),
                Ok(_) => Ok(None),
                Err(RemoteError::Silent(error)) if is_not_yet(&error) => Ok(None),
                Err(RemoteError::Closed | RemoteError::Silent(_)) => {
                    let Some(run) = &source.target.run else { return Err(RemoteError::Closed.into()) };
                    let at = await_end(store, home, run)?.ok_or(RemoteError::Closed)?;
                    Ok(Some(Event::new(at, Moment::Exit)))
                }
                Err(error) => Err(error.into()),
            },
            Kind::InTerminal(followed) => {
                let event = followed.look(store, home, origin, wanted)?;
                let log = followed.watch.log();
                source.state = followed
                    .watch
                    .state()
                    .map(|state| event.map_or_else(|| state.clone(), |event| log.state_with(&event, state)));
                Ok(event)
            }
        }
    }

    fn answer(&self, at: usize, event: Option<Event>) -> Waited {
        let mut cursor = self.wanted.cursor.clone().unwrap_or_default();
        for (index, source) in self.sources.iter().enumerate() {
            let place = match (&event, &source.kind) {
                (Some(event), _) if index == at && event.moment == Moment::Exit && self.several => {
                    Some(AFTER_THE_END)
                }
                (Some(event), _) if index == at => Some(event.at),
                (Some(_), _) => None,
                // Nothing came: the place of each stays, or is before everything that is still to come.
                (None, Kind::InTerminal(followed)) if self.wanted.cursor.is_none() => {
                    Some(followed.watch.log().last())
                }
                (None, _) => source.place,
            };
            match (place, source.target.last_run) {
                (Some(place), Some(run)) if self.several => cursor = cursor.with(run, place),
                (Some(place), _) if !self.several => cursor = Cursor::at(place),
                _ => {}
            }
        }
        let source = &self.sources[at];
        let session = match &source.kind {
            Kind::InTerminal(followed) => followed.session.id,
            _ => source.target.session.id,
        };
        let ended = event.is_some_and(|event| event.moment == Moment::Exit);
        Waited {
            result: event.map(|event| event.moment),
            session,
            redirected_from: (session != source.target.session.id)
                .then_some(source.target.session.id)
                .or(source.target.redirected_from),
            state: source.state.clone().filter(|_| !ended),
            cursor,
            answer_missing: event.is_some_and(|event| event.answer_missing),
        }
    }
}

impl Source<'_> {
    fn take(&mut self, answer: WaitAnswer) -> Option<Event> {
        let place = answer.cursor.parse::<Cursor>().ok();
        let at = place
            .map(|cursor| self.target.run.as_ref().map_or_else(Timestamp::default, |run| cursor.of(run.id)));
        self.place = at;
        self.state = Some(answer.state);
        if answer.result.is_none() {
            self.kind = Kind::Pending;
        }
        let answer_missing = answer.answer_missing;
        answer.result.map(|moment| Event { answer_missing, ..Event::new(at.unwrap_or_default(), moment) })
    }
}

impl Followed {
    fn look(
        &mut self,
        store: &mut Store,
        home: &Home,
        origin: &Origin,
        wanted: &WaitFor,
    ) -> Result<Option<Event>, WaitError> {
        let now = SystemClock.now();
        let run = self.run.id;
        let read = store.read(|view| {
            let row = view.run(run)?;
            let session = row.as_ref().and_then(|row| row.session);
            Ok::<_, store::Error>((row, session.map(|n| view.session_number(n)).transpose()?.flatten()))
        })?;
        if let (Some(row), Some(session)) = read {
            (self.run, self.session) = (row, session);
        }
        if let Some(at) = end_of(store, home, &self.run)? {
            self.watch.exit(at);
        }
        let session = UnhostedSession {
            agent: self.agent,
            pid: self.run.agent,
            conversation: self.session.agent_session.as_ref(),
            file: self.session.agent_session_file.as_deref(),
            started: self.session.started_at,
        };
        let surroundings = &self.run.surroundings;
        let var = |name: &str| surroundings.get(name).unwrap_or_else(|| origin.var(name));
        let state = self.watch.look(&session, &var, &SystemProcesses, now).clone();
        let cursor = wanted.cursor.as_ref().map(|cursor| cursor.of(run));
        Ok(self.watch.log().answer(cursor, &wanted.until, now, &state))
    }
}

fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// When a run ended. One that vanished is ended by this look.
fn end_of(store: &mut Store, home: &Home, run: &RunRow) -> Result<Option<Timestamp>, store::Error> {
    let ended_at = |store: &mut Store| {
        Ok::<_, store::Error>(store.read(|view| view.run(run.id))?.and_then(|run| run.ended_at))
    };
    let ended = ended_at(store)?;
    if ended.is_some() || SystemProcesses.alive(run.wrapper) {
        return Ok(ended);
    }
    recover(store, home);
    ended_at(store)
}

/// A host closes the connection when its agent has ended, or was killed with it. The store knows a moment later.
fn await_end(store: &mut Store, home: &Home, run: &RunRow) -> Result<Option<Timestamp>, store::Error> {
    /// A look at the store costs some ten microseconds.
    const PACE: Duration = Duration::from_millis(20);
    let deadline = Instant::now() + GONE;
    loop {
        let ended = end_of(store, home, run)?;
        if ended.is_some() || Instant::now() >= deadline {
            return Ok(ended);
        }
        std::thread::sleep(PACE);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::thread::{self, JoinHandle};

    use super::*;
    use runtime::remote::address;
    use runtime::remote::frames::{Frame, Frames};
    use runtime::remote::protocol::Welcome;
    use store::BootAndPidNs;
    use store::session::lifecycle::{self, ConversationStart};
    use store::session::state::{Ending, Exit};
    use store::session::testing::World;
    use types::{Activity, Pid, RunId};

    /// A host that gives one answer, after a while, and ends.
    fn host(home: &Home, run: RunId, after: Duration, answer: Option<WaitAnswer>) -> JoinHandle<WaitRequest> {
        let listener = address::bind(home, run).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut frames = Frames::default();
            loop {
                let mut bytes = [0; 4096];
                let count = stream.read(&mut bytes).unwrap();
                assert!(count > 0);
                frames.add(&bytes[..count]);
                while let Some(message) = frames.take_next::<ToHost>().unwrap() {
                    match message {
                        ToHost::Hello(_) => {
                            let welcome = FromHost::Welcome(Welcome::default());
                            stream.write_all(&welcome.to_bytes()).unwrap();
                        }
                        ToHost::Wait(request) => {
                            thread::sleep(after);
                            if let Some(answer) = answer {
                                // The other side may have an answer already.
                                let _ = stream.write_all(&FromHost::Waited(answer).to_bytes());
                            }
                            return request;
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
        })
    }

    fn answer(result: Option<Moment>, cursor: &str) -> WaitAnswer {
        let state = LiveState { is: Activity::Idle, since: Timestamp(1), why: "so".into(), source: None };
        WaitAnswer { result, session: None, state, cursor: cursor.into(), answer_missing: false }
    }

    fn target(world: &mut World) -> (RunId, LiveTarget) {
        let mut begin = world.begin(ConversationStart::Fresh);
        // A wrapper that lives: this process.
        let me = Pid(i32::try_from(std::process::id()).unwrap());
        (begin.run.realm, begin.run.wrapper) = (BootAndPidNs::here(), SystemProcesses.identify(me).unwrap());
        let (run, started) = world.start_as(&begin);
        let home = world.home.clone();
        let target =
            world.store.read(|view| LiveTarget::of(view, &home, view.session(started.session)?.unwrap()));
        (run, target.unwrap_or_else(|error: store::Error| panic!("{error}")))
    }

    fn wait_for(cursor: Option<&str>, ms: u64) -> WaitFor {
        WaitFor {
            until: vec![Moment::TurnEnd],
            cursor: cursor.map(|cursor| cursor.parse().unwrap()),
            timeout: Duration::from_millis(ms),
        }
    }

    #[test]
    fn of_several_sessions_the_first_that_has_something_is_the_answer() {
        let mut world = World::new();
        let (home, origin) = (world.home.clone(), Origin::given([], "/".into()));
        let ((slow, one), (fast, two)) = (target(&mut world), target(&mut world));
        let hosts = [
            host(&home, slow, Duration::from_secs(2), Some(answer(None, "5"))),
            host(&home, fast, Duration::from_millis(50), Some(answer(Some(Moment::TurnEnd), "900"))),
        ];
        let wanted = wait_for(Some("7"), 20_000);
        let waited = wait(&home, &mut world.store, &origin, &[one, two.clone()], &wanted).unwrap();
        assert_eq!((waited.result, waited.session), (Some(Moment::TurnEnd), two.session.id));
        assert_eq!((waited.cursor.of(fast), waited.cursor.of(slow)), (Timestamp(900), Timestamp(7)));
        assert_eq!(waited.state.map(|state| state.is), Some(Activity::Idle));
        for host in hosts {
            let request = host.join().unwrap();
            assert_eq!((request.cursor.as_deref(), request.until), (Some("7"), vec![Moment::TurnEnd]));
        }
    }

    #[test]
    fn a_host_whose_time_is_up_leaves_a_cursor_and_no_error() {
        let mut world = World::new();
        let (home, origin) = (world.home.clone(), Origin::given([], "/".into()));
        let (run, one) = target(&mut world);
        let host = host(&home, run, Duration::ZERO, Some(answer(None, "444")));
        let waited = wait(&home, &mut world.store, &origin, &[one], &wait_for(None, 100)).unwrap();
        assert_eq!((waited.result, waited.cursor.to_string().as_str()), (None, "444"));
        assert_eq!(host.join().unwrap().cursor, None);
    }

    #[test]
    fn a_session_that_has_ended_or_whose_host_ends_is_an_exit() {
        let mut world = World::new();
        let (home, origin) = (world.home.clone(), Origin::given([], "/".into()));
        let (run, one) = target(&mut world);
        let host = host(&home, run, Duration::from_millis(20), None);
        let at = world.wait(1000);
        let mut other = world.another();
        let ending = thread::spawn(move || {
            thread::sleep(Duration::from_millis(200));
            other.write(|tx| lifecycle::end(tx, at, run, Ending::exited(Exit::Code(0)))).map(drop).unwrap();
        });
        let waited =
            wait(&home, &mut world.store, &origin, std::slice::from_ref(&one), &wait_for(None, 10_000))
                .unwrap();
        assert_eq!((waited.result, waited.cursor.of(run), waited.state), (Some(Moment::Exit), at, None));
        host.join().unwrap();
        ending.join().unwrap();
        let ended =
            world.store.read(|view| LiveTarget::of(view, &home, view.session(one.session.id)?.unwrap()));
        let ended = ended.unwrap_or_else(|error: store::Error| panic!("{error}"));
        let alone = [ended.clone()];
        let waited = wait(&home, &mut world.store, &origin, &alone, &wait_for(Some("1"), 10_000)).unwrap();
        assert_eq!((waited.result, waited.session), (Some(Moment::Exit), one.session.id));
        let (_, living) = target(&mut world);
        let both = [ended, living.clone()];
        let first = wait(&home, &mut world.store, &origin, &both, &wait_for(None, 10_000)).unwrap();
        assert_eq!((first.result, first.session), (Some(Moment::Exit), one.session.id));
        let next = WaitFor { cursor: Some(first.cursor), ..wait_for(None, 50) };
        let second = wait(&home, &mut world.store, &origin, &both, &next).unwrap();
        assert_eq!(second.result, None, "an end is reported once while others go on");
        assert!(matches!(
            wait(&home, &mut world.store, &origin, &[], &wait_for(None, 1)),
            Err(WaitError::Nothing)
        ));
    }

    #[test]
    fn a_session_in_a_terminal_is_pending_until_its_time_is_up() {
        let mut world = World::new();
        let (home, origin) = (world.home.clone(), Origin::given([], "/".into()));
        let (_, one) = target(&mut world);
        let waited =
            wait(&home, &mut world.store, &origin, std::slice::from_ref(&one), &wait_for(None, 50)).unwrap();
        assert_eq!((waited.result, waited.session), (None, one.session.id));
    }
}

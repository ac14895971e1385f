//! The session a run is in, and those it was in before: the correlator, the conversation that is read, and how far.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::begin::workspace;
use super::follow::{Follower, News, read_title};
use super::plan::Plan;
use super::timers::{Moment, RunClock};
use super::write_queue::PendingWrite;
use agents::Observer;
use agents::correlate::{Correlator, Signal};
use os::file::Stamp;
use pricing::PriceList;
use store::session::lifecycle;
use store::session::lifecycle::{ConversationStart, RunStart};
use store::{BootAndPidNs, EnvSnapshot, NewRun, Store, Tx, session};
use types::{AgentSessionId, Evidence, EvidenceVerdict, Ids, ProcessId, RandomIds, SessionId, Timestamp};

pub(super) struct Sessions {
    /// `None` for a program that is no agent, and for an agent that ended before it was looked at.
    correlator: Option<Correlator>,
    current: SessionId,
    /// Every session of this run, the present one too.
    all: Vec<SessionId>,
    conversation: Option<AgentSessionId>,
    /// The conversation's file as the store knows it; the agent may move it.
    file: Option<PathBuf>,
    follower: Follower,
    /// What calls cost.
    prices: Arc<PriceList>,
    departed: Vec<DepartedSession>,
    /// The conversation that goes on in the background, and in which process if there is one.
    background: Option<(AgentSessionId, Option<ProcessId>)>,
    /// Where the agent works.
    folder: PathBuf,
}

/// The result of reading the current conversation.
#[derive(Debug, Default)]
pub(super) struct CurrentRead {
    pub(super) metered: bool,
    /// The version that the agent wrote into its file.
    pub(super) version: Option<String>,
    /// The conversation's file is another one than the store knows, or there is none any more.
    pub(super) file: Option<FileChange>,
    pub(super) error: Option<session::Error>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileChange {
    Is(PathBuf),
    /// Some agents leave no file of a conversation in which nothing was ever said.
    Vanished,
}

impl Sessions {
    pub(super) fn new(first: SessionId, folder: PathBuf, correlator: Option<Correlator>) -> Self {
        Self {
            correlator,
            current: first,
            all: Vec::new(),
            conversation: None,
            file: None,
            follower: Follower::default(),
            prices: Arc::default(),
            departed: Vec::new(),
            background: None,
            folder,
        }
    }

    /// With these prices.
    pub(super) fn pricing(mut self, prices: Arc<PriceList>) -> Self {
        self.follower = Follower::pricing(Arc::clone(&prices));
        self.prices = prices;
        self
    }

    pub(super) fn current(&self) -> SessionId {
        self.current
    }

    pub(super) fn all(&self) -> &[SessionId] {
        &self.all
    }

    pub(super) fn conversation(&self) -> Option<&AgentSessionId> {
        self.conversation.as_ref()
    }

    /// The conversation's file, as far as it is known.
    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The conversation that goes on in the background after the terminal has ended, if that is the one the run is in.
    pub(super) fn in_background(&self) -> Option<&(AgentSessionId, Option<ProcessId>)> {
        self.background.as_ref().filter(|(conversation, _)| self.conversation.as_ref() == Some(conversation))
    }

    pub(super) fn adopt(&mut self, process: ProcessId) {
        if let Some(correlator) = &mut self.correlator {
            correlator.adopt(process);
        }
    }

    /// The agent says that it works there. Returns the folder if it is another one than before.
    pub(super) fn work_in(&mut self, folder: PathBuf) -> Option<PathBuf> {
        if folder == self.folder {
            return None;
        }
        self.folder.clone_from(&folder);
        Some(folder)
    }

    /// Lets the correlator judge a signal. Returns the writes that follow.
    pub(super) fn consider(&mut self, now: Moment, signal: Signal) -> Vec<PendingWrite> {
        let Some(correlator) = &mut self.correlator else { return Vec::new() };
        match &signal {
            Signal::Background { to, process, forked: false, .. } => {
                self.background = Some((to.clone(), Some(*process)));
            }
            Signal::HandedOver { to, .. } => self.background = Some((to.clone(), None)),
            _ => {}
        }
        PendingWrite::of(now.wall, correlator.feed(now.wall, signal), &self.folder)
    }

    /// When a look may decide something without any change.
    pub(super) fn undecided_until(&self, now: Moment) -> Option<Instant> {
        let at = self.correlator.as_ref()?.wake_at(now.wall)?;
        Some(now.steady_at(at))
    }

    /// When departed sessions have been quiet for long enough.
    pub(super) fn quiet_at(&self) -> impl Iterator<Item = Instant> {
        self.departed.iter().filter_map(DepartedSession::quiet_at)
    }

    /// The run has begun in this session.
    pub(super) fn begin(&mut self, session: SessionId) {
        self.current = session;
        self.all = vec![session];
    }

    /// The conversation of the current session became known.
    pub(super) fn bind(&mut self, conversation: AgentSessionId, file: Option<PathBuf>) {
        self.conversation = Some(conversation);
        self.file = file;
    }

    pub(super) fn enter(&mut self, session: SessionId) {
        self.current = session;
        self.departed.retain(|departed| departed.session() != session);
        if !self.all.contains(&session) {
            self.all.push(session);
        }
    }

    /// The current session turned out to be this one.
    pub(super) fn merge_into(&mut self, session: SessionId) {
        let provisional = self.current;
        self.all.retain(|known| *known != provisional);
        self.enter(session);
    }

    /// From the current session to another one, whose conversation may not be known yet.
    pub(super) fn transition(
        &mut self,
        now: Instant,
        session: SessionId,
        conversation: Option<AgentSessionId>,
        file: Option<PathBuf>,
    ) {
        let fresh = self.fresh_follower();
        let follower = std::mem::replace(&mut self.follower, fresh);
        if let Some(departed) = self.conversation.take() {
            self.departed.push(DepartedSession::new(now, self.current, departed, follower));
        }
        self.enter(session);
        self.conversation = conversation;
        self.file = file;
    }

    /// A copy of the conversation is a session of its own, read like one that the run has departed from.
    pub(super) fn fork(&mut self, now: Instant, session: SessionId, conversation: AgentSessionId) {
        self.departed.push(DepartedSession::new(now, session, conversation, self.fresh_follower()));
    }

    fn fresh_follower(&self) -> Follower {
        Follower::pricing(Arc::clone(&self.prices))
    }

    /// The store knows the conversation's file.
    pub(super) fn set_file(&mut self, file: Option<PathBuf>) {
        self.file = file;
    }

    /// Meters new lines of the current conversation.
    pub(super) fn read_current(
        &mut self,
        store: &mut Store,
        observer: &mut dyn Observer,
        clock: &dyn RunClock,
    ) -> CurrentRead {
        let Some(conversation) = &self.conversation else { return CurrentRead::default() };
        let files = observer.files(conversation);
        let file = file_change(self.file.as_deref(), &files);
        let mut news = News::default();
        let read = self
            .follower
            .read(store, clock.now().wall, self.current, observer, &files, &mut news)
            .and_then(|()| read_title(store, self.current, observer, conversation));
        CurrentRead { metered: news.any, version: news.facts.version, file, error: read.err() }
    }

    /// Meters new lines of the departed sessions that may have grown, or of all of them. Returns whether there were any, and the
    /// last error.
    pub(super) fn read_departed(
        &mut self,
        store: &mut Store,
        observer: &mut dyn Observer,
        clock: &dyn RunClock,
        all: bool,
    ) -> (bool, Option<session::Error>) {
        let (mut metered, mut failed) = (false, None);
        self.departed.retain_mut(|departed| {
            if !all && !departed.may_have_grown() {
                return true;
            }
            let mut news = News::default();
            let read = departed.read(store, observer, clock, &mut news);
            metered |= news.any;
            match read {
                Ok(()) => true,
                Err(error @ session::Error::Store(_)) => {
                    failed = Some(error);
                    true
                }
                // One that was pruned meanwhile has nowhere to go, and nobody misses it.
                Err(error) => {
                    tracing::info!(session = %departed.session(), %error, "read no further");
                    false
                }
            }
        });
        (metered, failed)
    }

    #[cfg(test)]
    pub(super) fn departed(&mut self) -> &mut Vec<DepartedSession> {
        &mut self.departed
    }
}

fn file_change(known: Option<&Path>, files: &[PathBuf]) -> Option<FileChange> {
    match (known, files.first()) {
        (Some(_), None) => Some(FileChange::Vanished),
        (known, Some(file)) if known != Some(file.as_path()) => Some(FileChange::Is(file.clone())),
        _ => None,
    }
}

// Sessions that a run has departed from, whose files may still grow.

/// The agents write late: a session just departed from is read with every look until its files have been quiet for this long.
const QUIET: Duration = Duration::from_secs(2);

/// A sub-agent of it may work on for an hour, so it is never given up: once quiet, it is read when one of its files has
/// changed, and with the last look.
pub(super) struct DepartedSession {
    session: SessionId,
    conversation: AgentSessionId,
    follower: Follower,
    /// Read with every look until then.
    quiet_at: Option<Instant>,
    /// Its files and their folders, as they were when last read.
    stamps: Vec<(PathBuf, Option<Stamp>)>,
}

impl DepartedSession {
    pub(super) fn new(
        now: Instant,
        session: SessionId,
        conversation: AgentSessionId,
        follower: Follower,
    ) -> Self {
        Self { session, conversation, follower, quiet_at: Some(now + QUIET), stamps: Vec::new() }
    }

    pub(super) fn session(&self) -> SessionId {
        self.session
    }

    /// When it may be read for the last time without a change of its files; a look is due then.
    pub(super) fn quiet_at(&self) -> Option<Instant> {
        self.quiet_at
    }

    /// Whether there may be something to read.
    pub(super) fn may_have_grown(&self) -> bool {
        self.quiet_at.is_some() || self.stamps.iter().any(|(path, stamp)| Stamp::of(path) != *stamp)
    }

    /// Reads its files to their present end. One that fails is due again with the next look.
    pub(super) fn read(
        &mut self,
        store: &mut Store,
        observer: &mut dyn Observer,
        clock: &dyn RunClock,
        news: &mut News,
    ) -> Result<(), session::Error> {
        let files = observer.files(&self.conversation);
        let stamps = stamped(&files);
        let at = clock.now().wall;
        self.follower.read(store, at, self.session, observer, &files, news)?;
        read_title(store, self.session, observer, &self.conversation)?;
        self.stamps = stamps;
        self.was_read(clock.now().steady, news.any);
        Ok(())
    }

    fn was_read(&mut self, now: Instant, grew: bool) {
        let quiet_at = if grew { Some(now + QUIET) } else { self.quiet_at };
        self.quiet_at = quiet_at.filter(|at| now < *at);
    }

    #[cfg(test)]
    pub(super) fn forget_stamps(&mut self) {
        self.stamps.clear();
    }
}

/// Files and the folders they are in, with their stamps.
fn stamped(files: &[PathBuf]) -> Vec<(PathBuf, Option<Stamp>)> {
    let folders = files.iter().filter_map(|file| file.parent().map(PathBuf::from));
    let mut paths: Vec<PathBuf> = files.iter().cloned().chain(folders).collect();
    paths.sort();
    paths.dedup();
    paths.into_iter().map(|path| (Stamp::of(&path), path)).map(|(stamp, path)| (path, stamp)).collect()
}

// Conversations that go on in a background process of the agent's: sessions of their own, and that process is their run, so
// that they end with it whatever becomes of ours.

/// The source of evidence that a conversation goes on after its terminal has ended: later commands look at its file.
/// `store::query` asks for it by this name.
const HANDED_OVER: &str = "handed-over";

/// A run of the agent's own background process.
pub(super) fn run_of(
    plan: &Plan,
    process: ProcessId,
    conversation: ConversationStart,
    folder: &Path,
) -> RunStart {
    RunStart {
        run: NewRun { id: RandomIds.run(), realm: BootAndPidNs::here(), wrapper: process, proxied: false },
        agent: plan.agent.clone(),
        local_only: plan.local_only,
        agent_version: plan.version.clone(),
        workspace: workspace(folder),
        conversation,
        name: None,
        tags: plan.tags.clone(),
        group: plan.group.clone(),
        parent: Some(plan.run),
    }
}

pub(super) fn start(
    tx: &Tx<'_>,
    at: Timestamp,
    begin: &RunStart,
    surroundings: &EnvSnapshot,
) -> Result<SessionId, session::Error> {
    let started = lifecycle::start(tx, at, &RandomIds, begin)?;
    let process = begin.run.wrapper;
    tx.set_agent_process(begin.run.id, process.pid, Some(process.start))?;
    tx.set_surroundings(begin.run.id, surroundings)?;
    Ok(started.session)
}

pub(super) fn handed_over(at: Timestamp, conversation: &AgentSessionId) -> Evidence {
    Evidence {
        at,
        source: HANDED_OVER.to_owned(),
        verdict: EvidenceVerdict::Accepted,
        agent_session_id: None,
        detail: format!("{conversation}: goes on in the background after its terminal has ended"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::timers::testing::ManualClock;
    use super::*;
    use types::{Ids, RandomIds};

    fn id(name: &str) -> AgentSessionId {
        AgentSessionId(name.to_owned())
    }

    fn sessions() -> Sessions {
        let first = RandomIds.session();
        let mut sessions = Sessions::new(first, "/work".into(), None);
        sessions.begin(first);
        sessions
    }

    #[test]
    fn a_session_the_run_comes_back_to_is_not_departed() {
        let (mut sessions, clock) = (sessions(), ManualClock::new());
        let (first, second) = (sessions.current(), RandomIds.session());
        sessions.bind(id("a"), None);
        sessions.transition(clock.now().steady, second, Some(id("b")), None);
        assert_eq!(sessions.departed().iter().map(DepartedSession::session).collect::<Vec<_>>(), [first]);
        sessions.transition(clock.now().steady, first, Some(id("a")), None);
        assert_eq!(sessions.departed().iter().map(DepartedSession::session).collect::<Vec<_>>(), [second]);
        assert_eq!(sessions.all(), [first, second]);
    }

    #[test]
    fn a_session_without_a_conversation_has_no_files_to_be_read_later() {
        let (mut sessions, clock) = (sessions(), ManualClock::new());
        sessions.transition(clock.now().steady, RandomIds.session(), None, None);
        assert!(sessions.departed().is_empty());
    }

    #[test]
    fn a_provisional_session_that_is_merged_was_none_of_the_run() {
        let mut sessions = sessions();
        let known = RandomIds.session();
        sessions.merge_into(known);
        assert_eq!((sessions.current(), sessions.all()), (known, &[known][..]));
    }

    #[test]
    fn a_folder_is_news_once() {
        let mut sessions = sessions();
        assert_eq!(sessions.work_in("/work".into()), None);
        assert_eq!(sessions.work_in("/other".into()), Some("/other".into()));
        assert_eq!(sessions.work_in("/other".into()), None);
    }

    #[test]
    fn only_the_conversation_the_run_is_in_goes_on_in_the_background() {
        let mut sessions = sessions();
        sessions.background = Some((id("b"), None));
        assert_eq!(sessions.in_background(), None);
        sessions.bind(id("b"), None);
        assert_eq!(sessions.in_background(), Some(&(id("b"), None)));
    }

    #[test]
    fn the_file_of_a_conversation_may_appear_move_and_vanish() {
        let is = |name: &str| Some(FileChange::Is(name.into()));
        for (known, files, expected) in [
            (None, &[][..], None),
            (None, &["a"], is("a")),
            (Some("a"), &["a", "a.helper"], None),
            (Some("a"), &["b"], is("b")),
            (Some("a"), &[], Some(FileChange::Vanished)),
        ] {
            let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
            assert_eq!(file_change(known.map(Path::new), &files), expected, "{known:?} {files:?}");
        }
    }
}

#[cfg(test)]
mod departed_tests {
    use std::fs;

    use super::*;
    use types::{Ids, RandomIds};

    fn departed(now: Instant) -> DepartedSession {
        DepartedSession::new(now, RandomIds.session(), AgentSessionId("a".into()), Follower::default())
    }

    /// Reads, each so many ms after the run departed and with or without something new; then whether it is still read with
    /// every look.
    #[test]
    fn it_is_read_with_every_look_until_it_was_quiet_for_two_seconds() {
        let cases: &[(&str, &[(u64, bool)], bool)] = &[
            ("not read yet", &[], true),
            ("just departed", &[(100, false)], true),
            ("quiet for almost long enough", &[(100, false), (1999, false)], true),
            ("quiet for long enough", &[(100, false), (2000, false)], false),
            ("grown in between", &[(1500, true), (2000, false), (3499, false)], true),
            ("grown in between, then quiet", &[(1500, true), (3500, false)], false),
            ("grown after it was quiet", &[(2000, false), (9000, true)], true),
        ];
        for (what, reads, expected) in cases {
            let start = Instant::now();
            let mut session = departed(start);
            for (at, grew) in *reads {
                session.was_read(start + Duration::from_millis(*at), *grew);
            }
            assert_eq!(session.quiet_at().is_some(), *expected, "{what}");
            assert_eq!(session.may_have_grown(), *expected, "{what}");
        }
    }

    #[test]
    fn a_quiet_one_is_read_again_when_its_files_or_their_folders_change() {
        type Change = fn(&std::path::Path);
        let changes: &[(&str, Change, bool)] = &[
            ("nothing", |_| (), false),
            ("its file grows", |folder| fs::write(folder.join("a"), "more").unwrap(), true),
            ("its file is removed", |folder| fs::remove_file(folder.join("a")).unwrap(), true),
            ("a file appears in its folder", |folder| fs::write(folder.join("b"), "").unwrap(), true),
        ];
        for (what, change, expected) in changes {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("a");
            fs::write(&file, "").unwrap();
            // The times of files are no finer than a tick of the kernel.
            let earlier = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
            fs::File::open(folder.path()).unwrap().set_modified(earlier).unwrap();
            let start = Instant::now();
            let mut session = departed(start);
            session.stamps = stamped(&[file]);
            session.was_read(start + QUIET, false);
            change(folder.path());
            assert_eq!(session.may_have_grown(), *expected, "{what}");
        }
    }
}

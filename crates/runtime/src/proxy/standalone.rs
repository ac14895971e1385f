//! A proxy that stands alone, for editors and desktop apps: one route for each vendor's API, and a token that stays the same.

use std::collections::HashMap;
use std::io;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::settings::{ProxySettings, RouteSettings, new_secret, own_authorities, route_auth};
use agents::meter::proxied::ProxiedCall;
use agents::{VendorApi, registry};
use config::Config;
use os::file::{create_private, text_at_most};
use os::home::{Home, own_var};
use relay::Auth;
use store::session::lifecycle::{Binding, ConversationStart, RunStart};
use store::session::state::Ending;
use store::session::{Error, lifecycle, proxied};
use store::{BootAndPidNs, Exit, NewRun, Store, Tx, Workspace};
use types::{
    AgentSessionId, Evidence, EvidenceKind, EvidenceVerdict, Ids, PROXY_TAG, ProcessId, RandomIds, RunId,
    SessionId, Timestamp, name_of_unattributed,
};

const MAX_TOKEN: u64 = 4096;

/// The token, and whether it was made just now.
#[derive(Debug)]
pub struct Token {
    pub text: String,
    pub file: PathBuf,
    pub is_new: bool,
}

/// The token of this home, made where there is none.
pub fn token(home: &Home, ids: &dyn Ids) -> io::Result<Token> {
    let folder = home.path().join("proxy");
    let file = folder.join("token");
    match text_at_most(&file, MAX_TOKEN) {
        Ok(text) if is_token(text.trim()) => {
            return Ok(Token { text: text.trim().to_owned(), file, is_new: false });
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    create_private(&folder)?;
    let text = new_secret(ids);
    write(&folder, &file, &text)?;
    Ok(Token { text, file, is_new: true })
}

fn is_token(text: &str) -> bool {
    text.len() >= 32 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// A temporary file is the owner's alone.
fn write(folder: &Path, file: &Path, text: &str) -> io::Result<()> {
    let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
    writeln!(temporary, "{text}")?;
    temporary.persist(file).map(drop).map_err(|error| error.error)
}

/// The APIs there are, each with the agent that speaks it.
pub fn apis() -> Vec<(&'static str, VendorApi)> {
    let agents = registry::names().iter().filter_map(|name| registry::by_name(name));
    agents.filter_map(|agent| Some((agent.name(), agent.vendor_api()?))).collect()
}

/// The settings of such a proxy. `upstreams`: addresses by the API's name, instead of the configured and the vendor's own.
pub fn settings(
    home: &Home,
    config: &Config,
    token: String,
    port: u16,
    upstreams: &[(String, String)],
) -> Result<ProxySettings, String> {
    let apis = apis();
    if let Some((name, _)) = upstreams.iter().find(|(name, _)| !apis.iter().any(|(_, api)| api.name == name))
    {
        let known: Vec<&str> = apis.iter().map(|(_, api)| api.name).collect();
        return Err(format!("there is no API {name}; known are {}", known.join(", ")));
    }
    let routes = apis.into_iter().map(|(agent, api)| {
        let configured = config.proxy.agent(agent);
        let given = upstreams.iter().rev().find(|(name, _)| name == api.name).map(|(_, url)| url.clone());
        let upstream =
            given.or_else(|| configured.upstream.clone()).unwrap_or_else(|| api.upstream.to_owned());
        let auth = route_auth(&configured, &upstream, own_var);
        if let Some(Auth::Missing { why }) = &auth {
            return Err(format!("no credential for the gateway of {agent}: {why}"));
        }
        Ok(RouteSettings {
            name: api.name.to_owned(),
            agent: agent.to_owned(),
            upstream,
            auth,
            headers: Vec::new(),
        })
    });
    Ok(ProxySettings {
        home: std::path::absolute(home.path()).map_err(|error| error.to_string())?,
        run: None,
        port,
        secret: token,
        routes: routes.collect::<Result<_, String>>()?,
        ca_file: own_authorities(config.delivery.ca_file.clone(), own_var),
        log_level: Some(config.log_level.clone()),
        leading: Vec::new(),
    })
}

// Sessions for the calls of a proxy that stands alone: nobody wraps the programs behind it, so it opens their sessions itself.
//
// - Calls that name a conversation wait a while for a wrapper that knows it. Where there is none, the conversation becomes a
//   session, bound by what its calls say. It ends when it has been silent for half an hour; calls after that still count in it.
// - Calls that name none come from an editor, an app or a script. All of one API are a session, which bears the API's name in
//   place of an agent's, and ends with the proxy.

/// How long a call waits for a wrapper to bind its conversation. Wrappers take a second, on a busy machine some.
const WRAPPER_TAKES: Duration = Duration::from_secs(10);

/// A conversation in which nothing was called for so long is over, as far as can be seen from here.
const SILENCE: Duration = Duration::from_mins(30);

/// How soon waiting calls are looked at again.
pub(super) const SOON: Duration = Duration::from_secs(1);

/// The runs of calls that name no conversation, by the route they took; none beside a wrapper.
#[derive(Clone, Debug, Default)]
pub(super) struct NamelessRuns(Vec<(String, RunId)>);

impl NamelessRuns {
    pub(super) fn of(settings: &ProxySettings, ids: &dyn Ids) -> Self {
        let routes = settings.routes.iter().filter(|_| settings.run.is_none());
        Self(routes.map(|route| (route.name.clone(), ids.run())).collect())
    }

    pub(super) fn run_of(&self, route: &str) -> Option<RunId> {
        self.0.iter().find(|(name, _)| name == route).map(|(_, run)| *run)
    }

    fn contains(&self, run: RunId) -> bool {
        self.0.iter().any(|(_, known)| *known == run)
    }
}

/// Under which agent a call counts. The vendor's own agent names its conversation: whatever names none is another program.
pub(super) fn counted_under<'a>(
    route: &'a RouteSettings,
    beside_run: bool,
    conversation: Option<&AgentSessionId>,
) -> &'a str {
    if beside_run || conversation.is_some() { &route.agent } else { &route.name }
}

/// What the proxy has opened, and what waits.
#[derive(Debug)]
pub(super) struct ServedSessions {
    home: Home,
    process: ProcessId,
    nameless: NamelessRuns,
    /// Conversations without a session, as of their first call.
    unknown: Vec<Unknown>,
    /// Runs of calls without a conversation whose youngest call waits, and since when: such a call is taken a moment later.
    owed: HashMap<RunId, Timestamp>,
    open: Vec<OpenConversation>,
}

#[derive(Debug)]
struct Unknown {
    agent: String,
    conversation: AgentSessionId,
    first_call: Timestamp,
    since: Timestamp,
}

#[derive(Debug)]
struct OpenConversation {
    session: SessionId,
    run: RunId,
    last_call: Timestamp,
}

impl ServedSessions {
    pub(super) fn new(home: Home, process: ProcessId, nameless: NamelessRuns) -> Self {
        Self { home, process, nameless, unknown: Vec::new(), owed: HashMap::new(), open: Vec::new() }
    }

    /// The session of a call that names no conversation is there before the call is taken in.
    pub(super) fn open_for(&self, tx: &Tx<'_>, call: &ProxiedCall) -> Result<(), Error> {
        let Some(run) = call.run.filter(|run| self.nameless.contains(*run)) else { return Ok(()) };
        if tx.run(run)?.is_some() {
            return Ok(());
        }
        let name = Some(name_of_unattributed(&call.agent));
        let begin = self.beginning(run, &call.agent, ConversationStart::Fresh, name);
        start(tx, call.at, &begin, &AgentSessionId(run.to_string()), EvidenceKind::Assigned).map(drop)
    }

    /// A call has become a record, or waits.
    pub(super) fn taken(&mut self, call: &ProxiedCall, fate: proxied::Fate, now: Timestamp) {
        match (fate, &call.conversation, call.run) {
            (proxied::Fate::Recorded(session), ..) => {
                for open in self.open.iter_mut().filter(|open| open.session == session) {
                    open.last_call = now;
                }
            }
            (proxied::Fate::Waiting, Some(conversation), _) => {
                let is_same =
                    |known: &Unknown| known.agent == call.agent && known.conversation == *conversation;
                if !self.unknown.iter().any(is_same) {
                    let (agent, conversation) = (call.agent.clone(), conversation.clone());
                    self.unknown.push(Unknown { agent, conversation, first_call: call.at, since: now });
                }
            }
            (proxied::Fate::Waiting, None, Some(run)) => {
                self.owed.insert(run, now);
            }
            _ => {}
        }
    }

    /// When to look again; `None`: when the next call is over.
    pub(super) fn next_look(&self, now: Timestamp) -> Option<Duration> {
        if !self.unknown.is_empty() || !self.owed.is_empty() {
            return Some(SOON);
        }
        let silent = self.open.iter().map(|open| SILENCE.saturating_sub(now.since(open.last_call))).min();
        silent.map(|left| left.max(SOON))
    }

    /// Opens, fills and ends what it is time for, and returns whether anything was. Nothing is forgotten where the store refuses.
    pub(super) fn look(&mut self, store: &mut Store, now: Timestamp) -> Result<bool, Error> {
        let is_due = |unknown: &Unknown| now.since(unknown.since) >= WRAPPER_TAKES;
        let is_silent = |open: &OpenConversation| now.since(open.last_call) >= SILENCE;
        let is_old = |since: &Timestamp| now.since(*since) >= SOON;
        let is_anything = self.owed.values().any(is_old)
            || self.unknown.iter().any(is_due)
            || self.open.iter().any(is_silent);
        if !is_anything {
            return Ok(false);
        }
        let opened = store.write(|tx| {
            for (run, _) in self.owed.iter().filter(|(_, since)| is_old(since)) {
                if let Some(session) = tx.current(*run)? {
                    proxied::assign_waiting(tx, now, session.id)?;
                }
            }
            for open in self.open.iter().filter(|open| is_silent(open)) {
                lifecycle::end(tx, now, open.run, Ending::exited(Exit::Code(0)))?;
            }
            let due = self.unknown.iter().filter(|unknown| is_due(unknown));
            due.filter_map(|unknown| self.open_unknown(tx, unknown, now).transpose())
                .collect::<Result<Vec<_>, Error>>()
        })?;
        self.owed.retain(|_, since| !is_old(since));
        self.unknown.retain(|unknown| !is_due(unknown));
        self.open.retain(|open| !is_silent(open));
        self.open.extend(opened);
        Ok(true)
    }

    /// `None` where a wrapper has bound the conversation meanwhile.
    fn open_unknown(
        &self,
        tx: &Tx<'_>,
        unknown: &Unknown,
        now: Timestamp,
    ) -> Result<Option<OpenConversation>, Error> {
        let Unknown { agent, conversation, first_call, .. } = unknown;
        if let Some(known) = tx.session_by_agent_session(agent, conversation)? {
            proxied::assign_waiting(tx, now, known.id)?;
            return Ok(None);
        }
        let run = RandomIds.run();
        let begin = self.beginning(run, agent, ConversationStart::Unsure, None);
        let session = start(tx, *first_call, &begin, conversation, EvidenceKind::Registry)?;
        let evidence = Evidence {
            at: *first_call,
            source: PROXY_TAG.to_owned(),
            verdict: EvidenceVerdict::Accepted,
            agent_session_id: Some(conversation.clone()),
            detail: "a call through `codemie proxy serve` names this conversation".to_owned(),
        };
        tx.note_evidence(session, run, &evidence)?;
        Ok(Some(OpenConversation { session, run, last_call: now }))
    }

    /// The proxy ends, and everything that it opened. What waits is waited for no longer.
    pub(super) fn end(&self, store: &mut Store, now: Timestamp) -> Result<(), Error> {
        let nameless = self.nameless.0.iter().map(|(_, run)| *run);
        store.write(|tx| {
            let late =
                self.unknown.iter().filter_map(|unknown| self.open_unknown(tx, unknown, now).transpose());
            let late = late.collect::<Result<Vec<_>, Error>>()?;
            for run in nameless.chain(self.open.iter().chain(&late).map(|open| open.run)) {
                if tx.run(run)?.is_some() {
                    lifecycle::end(tx, now, run, Ending::exited(Exit::Code(0)))?;
                }
            }
            Ok(())
        })
    }

    fn beginning(
        &self,
        run: RunId,
        agent: &str,
        conversation: ConversationStart,
        name: Option<String>,
    ) -> RunStart {
        RunStart {
            run: NewRun { id: run, realm: BootAndPidNs::here(), wrapper: self.process, proxied: true },
            agent: agent.to_owned(),
            local_only: false,
            agent_version: None,
            // Where the calling program works is not known.
            workspace: Workspace {
                cwd: self.home.path().to_owned(),
                project: None,
                repository: None,
                branch: None,
            },
            conversation,
            name,
            tags: vec![PROXY_TAG.to_owned()],
            group: None,
            parent: None,
        }
    }
}

fn start(
    tx: &Tx<'_>,
    at: Timestamp,
    begin: &RunStart,
    conversation: &AgentSessionId,
    evidence: EvidenceKind,
) -> Result<SessionId, Error> {
    let session = lifecycle::start(tx, at, &RandomIds, begin)?.session;
    let binding = Binding { agent_session: conversation.clone(), file: None, evidence };
    lifecycle::bind(tx, at, &RandomIds, session, &binding)?;
    Ok(session)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use types::RandomIds;

    #[test]
    fn a_token_is_made_once_and_is_the_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        let made = token(&home, &RandomIds).unwrap();
        assert!(made.is_new && made.text.len() == 64);
        assert_eq!(made.file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let again = token(&home, &RandomIds).unwrap();
        assert_eq!((again.text, again.is_new), (made.text, false));
        std::fs::write(&made.file, "short\n").unwrap();
        assert!(token(&home, &RandomIds).unwrap().is_new, "what is no token is replaced");
    }

    #[test]
    fn each_api_has_a_route_of_its_own() {
        let home = Home::at("/nowhere");
        let config = Config::load(None, |_| None, registry::names());
        let given = [("openai".to_owned(), "https://gw".to_owned())];
        let settings = settings(&home, &config, "t".into(), 1, &given).unwrap();
        let routes: Vec<(&str, &str)> =
            settings.routes.iter().map(|route| (&*route.name, &*route.upstream)).collect();
        assert!(routes.contains(&("anthropic", "https://api.anthropic.com")), "{routes:?}");
        assert!(routes.contains(&("openai", "https://gw")), "{routes:?}");
        assert!(routes.contains(&("gemini", "https://generativelanguage.googleapis.com")), "{routes:?}");
        let unknown = [("other".to_owned(), "https://gw".to_owned())];
        assert!(super::settings(&home, &config, "t".into(), 1, &unknown).is_err());
    }
}

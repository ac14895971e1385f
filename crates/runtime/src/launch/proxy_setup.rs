//! Whether a run's calls go through the proxy, and what leads the agent there.

use std::ffi::OsString;

use super::{LaunchTarget, Origin};
use crate::proxy::settings::{new_secret, own_authorities, route_auth};
use crate::proxy::{Companion, ProxySettings, RouteSettings, listeners};
use agents::{Agent, ProxyLead, ProxyRoute, ProxyStart};
use config::Config;
use os::home::Home;
use pty::process::SystemProcesses;
use relay::Auth;
use types::{Ids, RunId, SessionId};

/// What a run's proxy is to be.
#[derive(Debug, Default)]
pub enum ProxySetup {
    /// It was not asked for.
    #[default]
    Off,
    /// It was, but nothing is led anywhere: why.
    Not(String),
    Through(Box<Through>),
}

/// A proxy that is ready: its listener is bound, and the agent will be given its address.
#[derive(Debug)]
pub struct Through {
    pub companion: Companion,
    pub lead: ProxyLead,
    /// Where the calls go from there.
    pub upstream: String,
    /// The credential that is missing there: the proxy answers every call itself. What to do.
    pub missing: Option<String>,
}

/// One launch, as far as the proxy is concerned.
pub(super) struct ProxyRequest<'a> {
    pub agent: &'static dyn Agent,
    /// The user's own arguments.
    pub args: &'a [OsString],
    pub version: Option<&'a str>,
    pub run: RunId,
    pub session: SessionId,
}

impl ProxySetup {
    /// For something that is no agent of ours: there is nothing to lead.
    pub(super) fn of_other(wanted: bool, target: &LaunchTarget) -> Self {
        if wanted {
            Self::Not(format!("codemie does not know which API {} calls", target.name()))
        } else {
            Self::Off
        }
    }

    /// Binds the listener, if it is certain where the agent's calls would go.
    pub(super) fn of(
        request: &ProxyRequest<'_>,
        origin: &Origin,
        home: Option<&Home>,
        config: &Config,
        ids: &dyn Ids,
    ) -> Self {
        Self::certain(request, origin, home, config, ids)
            .map_or_else(Self::Not, |through| Self::Through(Box::new(through)))
    }

    fn certain(
        request: &ProxyRequest<'_>,
        origin: &Origin,
        home: Option<&Home>,
        config: &Config,
        ids: &dyn Ids,
    ) -> Result<Through, String> {
        let name = request.agent.name();
        let home = home.ok_or("there is no home folder for what it would record")?;
        if !config.agent(name).inject {
            return Err(format!("agent.{name}.inject is off"));
        }
        let configured = config.proxy.agent(name);
        let ProxyRequest { agent, args, version, .. } = *request;
        let (upstream, lead) = route(agent, args, version, origin, home, configured.upstream.as_deref())?;
        let auth = route_auth(&configured, &upstream, |name| origin.var(name));
        let missing = match &auth {
            Some(Auth::Missing { why }) => Some(why.clone()),
            _ => None,
        };
        // A gateway is never passed by: without it the agent would call its vendor with its own credential.
        let is_gateway = configured.upstream.as_deref() == Some(upstream.as_str());
        let ca_file = own_authorities(config.delivery.ca_file.clone(), |name| origin.var(name));
        if let Some(file) = ca_file.as_deref().filter(|file| !is_gateway && !file.exists()) {
            return Err(format!("tls.caFile {} cannot be read", file.display()));
        }
        let session = ("X-Codemie-Session-Id".to_owned(), request.session.to_string());
        let route = RouteSettings {
            name: String::new(),
            agent: name.to_owned(),
            upstream: upstream.clone(),
            auth,
            headers: if config.proxy.session_header { vec![session] } else { Vec::new() },
        };
        let home = std::path::absolute(home.path()).map_err(|error| error.to_string())?;
        let settings = |port| ProxySettings {
            home,
            run: Some(request.run),
            port,
            secret: new_secret(ids),
            routes: vec![route],
            ca_file,
            log_level: Some(config.log_level.clone()),
            leading: lead.set.iter().map(|(name, _)| (*name).to_owned()).collect(),
        };
        let companion = Companion::bind(settings)
            .map_err(|error| format!("no port of this machine can be bound: {error}"))?;
        Ok(Through { companion, lead, upstream, missing })
    }
}

/// Where the agent's calls would go, and what leads it elsewhere. An address that an enclosing run's proxy gave it stands for the
/// address behind that one: calls go through one proxy, not through two.
pub fn route(
    agent: &dyn Agent,
    args: &[OsString],
    version: Option<&str>,
    origin: &Origin,
    home: &Home,
    configured: Option<&str>,
) -> Result<(String, ProxyLead), String> {
    let var = |name: &str| {
        let value = origin.var(name)?;
        let behind =
            value.to_str().and_then(|address| listeners::upstream_of(address, home, &SystemProcesses));
        Some(behind.map_or(value, OsString::from))
    };
    let folder = origin.folder();
    match agent.proxy_route(&ProxyStart { args, var: &var, folder: &folder, version, configured }) {
        ProxyRoute::Through { upstream, .. } if listeners::is_own_form(&upstream) => {
            Err("its address is that of another codemie's proxy, of which nothing is known here".to_owned())
        }
        ProxyRoute::Through { upstream, lead } => Ok((upstream, lead)),
        ProxyRoute::Unsure(why) => Err(why),
    }
}

impl Through {
    /// The variables that lead the agent to the listener.
    pub(super) fn variables(&self) -> Vec<(OsString, OsString)> {
        let set = self.lead.set.iter();
        set.map(|(name, value)| ((*name).into(), self.filled(value).into())).collect()
    }

    /// The arguments that do, to stand before the user's own.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        self.lead.args.iter().map(|arg| self.filled(arg).into()).collect()
    }

    fn filled(&self, text: &str) -> String {
        text.replace("ADDRESS", &self.companion.address())
    }

    /// What was done, for `explain`: without the address, which holds the secret.
    pub(super) fn note(&self) -> String {
        let names = self.lead.set.iter().map(|(name, value)| match value.as_str() {
            "ADDRESS" => (*name).to_owned(),
            value => format!("{name}={value}"),
        });
        let args = if self.lead.args.is_empty() { None } else { Some(self.lead.args.join(" ")) };
        let added: Vec<String> = names.chain(args).collect();
        let mut note = format!("calls go through the proxy to {}; added: {}", self.upstream, added.join(" "));
        if !self.lead.lost.is_empty() {
            note.push_str("; not available with it: ");
            note.push_str(&self.lead.lost.join(", "));
        }
        note
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agents::registry;
    use types::RandomIds;

    /// A launch of `claude hello` from a folder that holds nothing, with these variables.
    fn proxy_setup(agent: &str, vars: &[(&str, &str)], config: &str) -> ProxySetup {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path().join("codemie"));
        home.create().unwrap();
        std::fs::write(home.config_file(), config).unwrap();
        let own = ("HOME".into(), folder.path().as_os_str().to_owned());
        let vars = vars.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let origin = Origin::given(vars.chain([own]), folder.path().to_owned());
        let config = Config::load(Some(&home.config_file()), |name| origin.var(name), registry::names());
        let request = ProxyRequest {
            agent: registry::called(agent).unwrap(),
            args: &["hello".into()],
            version: Some("2.1.197"),
            run: RandomIds.run(),
            session: RandomIds.session(),
        };
        ProxySetup::of(&request, &origin, Some(&home), &config, &RandomIds)
    }

    fn why(proxy_setup: ProxySetup) -> String {
        match proxy_setup {
            ProxySetup::Not(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_agent_is_given_an_address_that_no_note_repeats() {
        let ProxySetup::Through(through) = proxy_setup("claude", &[], "") else { panic!("not led") };
        let address = through.companion.address();
        assert!(through.variables().contains(&("ANTHROPIC_BASE_URL".into(), address.clone().into())));
        let secret = address.rsplit('/').next().unwrap();
        let shown = format!("{} {through:?}", through.note());
        assert!(secret.len() >= 32 && !shown.contains(secret), "{shown}");
        assert!(through.note().starts_with(
            "calls go through the proxy to https://api.anthropic.com; added: ANTHROPIC_BASE_URL _CLAUDE"
        ));
    }

    #[test]
    fn a_gateway_is_not_passed_by_where_its_credential_is_missing() {
        let gateway = "[proxy.claude]\nupstream = 'https://gw'\nauth = 'env:NOT_THERE'\n";
        for config in [gateway.to_owned(), format!("{gateway}[tls]\ncaFile = '/nowhere/ca.pem'")] {
            let ProxySetup::Through(through) = proxy_setup("claude", &[], &config) else { panic!("not led") };
            assert_eq!(
                (&*through.upstream, through.missing.as_deref()),
                ("https://gw", Some("set NOT_THERE"))
            );
        }
        let ProxySetup::Through(through) = proxy_setup("claude", &[("NOT_THERE", "x")], gateway) else {
            panic!("not led")
        };
        assert_eq!(through.missing, None);
    }

    #[test]
    fn nothing_is_bound_where_something_is_not_certain() {
        for (vars, config, expected) in [
            (&[("CLAUDE_CODE_USE_BEDROCK", "1")][..], "", "CLAUDE_CODE_USE_BEDROCK is set"),
            (&[], "[agent.claude]\ninject = false", "agent.claude.inject is off"),
            (&[], "[tls]\ncaFile = '/nowhere/ca.pem'", "tls.caFile /nowhere/ca.pem cannot be read"),
        ] {
            assert_eq!(why(proxy_setup("claude", vars, config)), expected);
        }
        assert!(why(proxy_setup("gemini", &[], "")).starts_with("its settings name no login"));
    }
}

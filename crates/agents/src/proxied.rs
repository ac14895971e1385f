//! How an agent is led through the proxy, and what its calls there say of themselves.

use std::ffi::OsString;
use std::path::Path;

use super::Var;
use types::{AgentSessionId, CallKind};

/// The proxy part of an [`Agent`](super::Agent). Its defaults are those of an agent that is never led through a proxy.
pub trait Proxied {
    /// Which API the agent would call by itself, and how it is led elsewhere. Nothing is led where that is not certain.
    fn proxy_route(&self, _start: &ProxyStart<'_>) -> ProxyRoute {
        ProxyRoute::Unsure("codemie does not know how to lead this agent through a proxy".to_owned())
    }

    /// The API that an agent without any settings calls.
    fn vendor_api(&self) -> Option<VendorApi> {
        None
    }

    /// What a request says of itself, in its headers first and in its body where they are silent.
    fn identify(&self, _request: &relay::Request) -> CallIdentity {
        CallIdentity::default()
    }

    /// Whether the agent's own file has the API's id of an answer as the key of the call
    /// ([`ProxiedCall::keyed`](crate::meter::proxied::ProxiedCall::keyed)).
    fn keys_by_answer(&self, _version: Option<&str>) -> bool {
        true
    }
}

/// A vendor's API, as other programs of the same user call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VendorApi {
    /// A short name for it, in paths and on the command line.
    pub name: &'static str,
    pub upstream: &'static str,
    /// The variable by which programs are usually given another address.
    pub variable: &'static str,
}

/// What is known when an agent is about to be started.
#[expect(missing_debug_implementations, reason = "a function has nothing to show")]
#[derive(Clone, Copy)]
pub struct ProxyStart<'a> {
    pub args: &'a [OsString],
    pub var: Var<'a>,
    pub folder: &'a Path,
    pub version: Option<&'a str>,
    /// The address that the user has codemie send its calls to, where nothing of the agent's own names another.
    pub configured: Option<&'a str>,
}

/// Whether, and how, an agent's calls go through the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyRoute {
    Through {
        /// Where its calls would go without codemie: a base URL.
        upstream: String,
        lead: ProxyLead,
    },
    /// Which API it would call is not certain: why, for `explain`, `doctor` and the closing line.
    Unsure(String),
}

/// What leads the agent to an address. `ADDRESS` in a value or an argument stands for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyLead {
    pub set: Vec<(&'static str, String)>,
    /// To stand before the user's own arguments.
    pub args: Vec<String>,
    /// What the agent cannot do behind a proxy, in words for its user.
    pub lost: Vec<&'static str>,
}

/// Which conversation made a call, and what for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallIdentity {
    pub conversation: Option<AgentSessionId>,
    /// The sub-agent that made it, by the agent's own id.
    pub subagent: Option<String>,
    pub kind: CallKind,
    /// Counts from 1: how often the agent has sent this request, by its own account ([`Repeats`](super::Repeats) counts
    /// where it gives none).
    pub attempt: u32,
}

impl Default for CallIdentity {
    fn default() -> Self {
        Self { conversation: None, subagent: None, kind: CallKind::Other, attempt: 1 }
    }
}

/// The longest id of a conversation or a sub-agent that is believed; theirs have some forty characters.
const LONGEST_ID: usize = 128;

/// A header of a request, where it is text.
pub(super) fn header<'a>(request: &'a relay::Request, name: &str) -> Option<&'a str> {
    request.headers.get(name).and_then(|value| value.to_str().ok())
}

/// An id that a request names, unless it cannot be one: it becomes a key in the store.
pub(super) fn id(text: &str) -> Option<String> {
    let plain = |char: char| char.is_ascii_alphanumeric() || "-_.:".contains(char);
    (!text.is_empty() && text.len() <= LONGEST_ID && text.chars().all(plain)).then(|| text.to_owned())
}

#[cfg(test)]
#[path = "proxied_tests.rs"]
pub(super) mod tests;

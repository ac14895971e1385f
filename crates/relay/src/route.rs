//! Where requests go, and what is added to them on the way.

use std::fmt;

use http::Uri;
use serde::{Deserialize, Serialize};

use crate::Api;

/// The first part of every path that is served. Shown to nobody: its `Debug` and `Display` hide it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// For the address that is handed to the agent, and for nothing else.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// One upstream of a listener. Its requests come as `/SECRET/…`, or as `/SECRET/NAME/…` where the name is not empty.
#[derive(Clone, Debug)]
pub struct Route {
    pub name: String,
    pub upstream: Upstream,
    /// The form of its calls, where the path does not show it.
    pub api: Option<Api>,
    pub auth: Option<Auth>,
    /// Headers added to every request, towards this upstream alone.
    pub headers: Vec<(String, String)>,
}

/// The API's own address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// `https://api.anthropic.com`, with the path that stands before every request's own.
    pub base: Uri,
}

/// Where the value of a header that authenticates comes from. Its `Debug` hides it; its JSON does not, and is handed from process to
/// process alone.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auth {
    /// The header's name and value.
    Static { header: String, value: String },
    /// A command that prints the value; asked again once after a 401.
    Command { header: String, argv: Vec<String> },
    /// There is none, and without it nothing is sent: what is missing, and how to mend it.
    Missing { why: String },
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Static { .. } => "Auth::Static",
            Self::Command { .. } => "Auth::Command",
            Self::Missing { .. } => "Auth::Missing",
        })
    }
}

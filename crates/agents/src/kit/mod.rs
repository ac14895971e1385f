//! What agents share, once. An agent's own folder holds data for it and what no other agent does.
//!
//! - [`options`]: reading arguments as an agent's own parser would, by a table of its flags;
//! - [`version`]: which version is installed, and comparing versions;
//! - [`registry`]: agents that keep a registry of their processes and a file of lines per conversation;
//! - [`process_log`]: agents whose processes each write a log that names the conversation in front;
//! - [`neighbours`], [`read_stamps`], [`new_lines`]: what evidence of every kind needs;
//! - [`writers`]: which processes write to a conversation, by their command lines;
//! - [`loose`], [`tools`]: reading lines whose fields may change with the version, and what is kept of a tool call;
//! - [`screen`], [`dialog`]: finding the composer, boxes and dialogs on a screen;
//! - [`settings`], [`route`]: which API an agent's settings and environment name.

pub mod dialog;
pub(crate) mod loose;
pub(crate) mod neighbours;
pub(crate) mod new_lines;
pub(crate) mod options;
pub(crate) mod process_log;
pub(crate) mod read_stamps;
pub mod registry;
pub(crate) mod route;
pub(crate) mod screen;
pub(crate) mod settings;
pub(crate) mod tools;
pub(crate) mod version;
pub(crate) mod writers;

//! Standing in front of an agent under the agent's own name, and finding the real one behind us.
//!
//! Promises: whatever *is* codemie is recognised by identity and never run as the agent; two shim managers that
//! point at each other end in a message, not in a fork bomb.

pub mod files;
pub mod install;
pub mod resolve;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use files::{DiskFiles, OwnBinary};
use resolve::{NotFound, Query};

/// The variable that names the real binary of an agent: `CODEMIE_REAL_CLAUDE`.
pub fn override_variable(name: &str) -> String {
    format!("CODEMIE_REAL_{}", name.to_ascii_uppercase().replace('-', "_"))
}

/// A look at an environment variable.
type Var<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The real binary of an agent on this machine: its variable, then the configured path, then PATH. `folder`: where relative
/// paths begin, if that is not the folder of this process.
pub fn real_binary(
    name: &str,
    configured: Option<&Path>,
    var: Var<'_>,
    folder: Option<&Path>,
) -> Result<PathBuf, NotFound> {
    let variable = override_variable(name);
    let from_env = var(&variable).filter(|value| !value.is_empty());
    let explicit = match (&from_env, configured) {
        (Some(value), _) => Some((value.as_os_str(), variable.as_str())),
        (None, Some(configured)) => Some((configured.as_os_str(), "config.toml")),
        (None, None) => None,
    };
    let ourselves = OwnBinary::of_this_process(&DiskFiles);
    Query { name, explicit, path: var("PATH").as_deref(), folder, ourselves: &ourselves }.resolve(&DiskFiles)
}

/// Whether any folder on PATH is seen to hold something of this name.
pub fn is_on_path(name: &str, var: Var<'_>, folder: Option<&Path>) -> bool {
    let ourselves = OwnBinary::of_this_process(&DiskFiles);
    let path = var("PATH");
    let query = Query { name, explicit: None, path: path.as_deref(), folder, ourselves: &ourselves };
    query.finds_something(&DiskFiles)
}

/// The same list of places as a refused search carries, for a loop that the depth counter has stopped.
pub fn stopped_loop(name: &str, var: Var<'_>, folder: Option<&Path>) -> NotFound {
    let ourselves = OwnBinary::of_this_process(&DiskFiles);
    let path = var("PATH");
    let query = Query { name, explicit: None, path: path.as_deref(), folder, ourselves: &ourselves };
    query.stopped_loop(&DiskFiles)
}

//! Where codemie keeps its own files: `$CODEMIE_HOME`, else `~/.codemie`.
//!
//! A machine without a home folder is not an error: the agent runs and nothing is tracked.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::file::{create_private, is_absent};

/// A variable of this process. Where `HOME` is not set (`env -i`, services), it is the folder that the system's database of users
/// has for this one: agents look for their own files there, too.
pub fn own_var(name: &str) -> Option<OsString> {
    let value = std::env::var_os(name);
    // An empty one was set by somebody, and is what the agent sees.
    if name == "HOME" && value.is_none() {
        return std::env::home_dir().filter(|home| home.is_absolute()).map(PathBuf::into_os_string);
    }
    value
}

/// The folder, resolved from the environment but not yet touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home(PathBuf);

impl Home {
    /// `None` when neither `CODEMIE_HOME` nor `HOME` says where to go. Variables of this process are asked for through
    /// [`own_var`], which knows a home folder where none is set.
    pub fn from_env(var: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let set = |name: &str| var(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        set("CODEMIE_HOME").or_else(|| set("HOME").map(|home| home.join(".codemie"))).map(Self)
    }

    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn config_file(&self) -> PathBuf {
        self.0.join("config.toml")
    }

    pub fn database(&self) -> PathBuf {
        self.0.join("codemie.db")
    }

    /// Whether there is one, or something that keeps us from seeing it: a folder that may not be searched is not an empty one.
    pub fn may_have_database(&self) -> bool {
        !std::fs::metadata(self.database()).is_err_and(|error| is_absent(&error))
    }

    /// Databases into which earlier versions copied the store for the dashboard.
    pub fn former_dashboard_copies(&self) -> [PathBuf; 2] {
        ["dashboard.db", "history.db"].map(|name| self.0.join(name))
    }

    /// The published records, one file per session.
    pub fn published_sessions(&self) -> PathBuf {
        self.0.join("metrics").join("sessions")
    }

    /// What scans of the agents' files remember.
    pub fn scans(&self) -> PathBuf {
        self.0.join("scan")
    }

    pub fn logs(&self) -> PathBuf {
        self.0.join("logs")
    }

    /// Locks of detached processes, and small notes: exit notes, versions of agents, pages for the browser.
    pub fn run(&self) -> PathBuf {
        self.0.join("run")
    }

    /// What `backend serve` keeps: its database and the tokens it made for this user.
    pub fn backend(&self) -> PathBuf {
        self.0.join("backend")
    }

    pub fn backend_database(&self) -> PathBuf {
        self.backend().join("backend.db")
    }

    pub fn backend_tokens(&self) -> PathBuf {
        self.backend().join("tokens.json")
    }

    pub fn shims(&self) -> PathBuf {
        self.0.join("shims")
    }

    /// Where the installer puts completions for every shell.
    pub fn completions(&self) -> PathBuf {
        self.0.join("completions")
    }

    /// Makes the folder itself, readable by its owner alone. Sub-folders are made when something is written into them.
    pub fn create(&self) -> io::Result<()> {
        create_private(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(vars: &[(&str, &str)]) -> Option<PathBuf> {
        Home::from_env(|name| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into()))
            .map(|home| home.path().to_owned())
    }

    #[test]
    fn a_database_that_cannot_be_looked_for_may_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path().join("home"));
        assert!(!home.may_have_database(), "no folder");
        std::os::unix::fs::symlink("home", home.path()).unwrap();
        assert!(home.may_have_database(), "a link to itself");
        std::fs::remove_file(home.path()).unwrap();
        home.create().unwrap();
        assert!(!home.may_have_database(), "an empty folder");
        std::fs::write(home.database(), "").unwrap();
        assert!(home.may_have_database());
    }

    #[test]
    fn the_variable_wins_over_the_default_and_an_empty_one_is_none() {
        assert_eq!(home(&[("CODEMIE_HOME", "/x"), ("HOME", "/home/dev")]), Some("/x".into()));
        assert_eq!(home(&[("CODEMIE_HOME", ""), ("HOME", "/home/dev")]), Some("/home/dev/.codemie".into()));
        assert_eq!(home(&[("HOME", "")]), None);
        assert_eq!(home(&[]), None);
    }
}

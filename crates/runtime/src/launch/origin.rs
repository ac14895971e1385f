//! Where a launch comes from: the variables and the folder that the agent is to see.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use agents::registry;
use config::Config;
use delivery::Sinks;
use os::home::{Home, own_var};
use pty::ProgramSpec;

/// Variables and folder: those of this process, or those of another process that asks for the launch.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// All variables there are; `None`: those of this process, looked up one by one.
    variables: Option<BTreeMap<OsString, OsString>>,
    /// `None`: the folder this process is in.
    folder: Option<PathBuf>,
}

impl Origin {
    pub fn of_this_process() -> Self {
        Self::default()
    }

    /// Exactly these variables, in that folder (an absolute path).
    pub fn given(variables: impl IntoIterator<Item = (OsString, OsString)>, folder: PathBuf) -> Self {
        Self { variables: Some(variables.into_iter().collect()), folder: Some(folder) }
    }

    pub fn var(&self, name: &str) -> Option<OsString> {
        match &self.variables {
            Some(variables) => variables.get(OsStr::new(name)).cloned(),
            None => own_var(name),
        }
    }

    pub fn folder(&self) -> PathBuf {
        self.folder.clone().unwrap_or_else(|| std::env::current_dir().unwrap_or_default())
    }

    /// The folder that relative paths are to be joined to; `None` where the system does it, because it is our own.
    pub fn other_folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Makes the folder this process's own: a program inherits it.
    pub fn enter(&self) -> io::Result<()> {
        self.folder.as_ref().map_or(Ok(()), std::env::set_current_dir)
    }

    /// Adds what makes the program's environment this one, instead of ours with the launch's own changes.
    pub(super) fn complete(&self, launch: &mut ProgramSpec) {
        if let Some(variables) = &self.variables {
            replace(variables, std::env::vars_os(), launch);
        }
    }
}

/// The launch's own changes stand; every other variable gets the wanted value.
fn replace(
    wanted: &BTreeMap<OsString, OsString>,
    ours: impl Iterator<Item = (OsString, OsString)>,
    launch: &mut ProgramSpec,
) {
    let ours: BTreeMap<OsString, OsString> = ours.collect();
    let changed = |launch: &ProgramSpec, name: &OsString| {
        launch.set.iter().any(|(set, _)| set == name) || launch.remove.contains(name)
    };
    for (name, value) in wanted {
        if ours.get(name) != Some(value) && !changed(launch, name) {
            launch.set.push((name.clone(), value.clone()));
        }
    }
    for name in ours.into_keys() {
        if !wanted.contains_key(&name) && !changed(launch, &name) {
            launch.remove.push(name);
        }
    }
}

// The settings in force, as the environment and `config.toml` have them.

/// The settings as they are now; `home` is `None` on a machine without a home folder.
pub fn settings(home: Option<&Home>, origin: &Origin) -> Config {
    let file = home.map(Home::config_file);
    Config::load(file.as_deref(), |name| origin.var(name), registry::names())
}

/// Where events are sent by the settings of this process.
pub fn receivers(home: &Home) -> Option<Sinks> {
    Sinks::of(home, &settings(Some(home), &Origin::of_this_process()).delivery)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        list.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect()
    }

    #[test]
    fn a_given_environment_replaces_ours_but_for_the_changes_of_the_launch() {
        let wanted = pairs(&[("PATH", "/theirs"), ("LANG", "C"), ("DEPTH", "0"), ("NESTED", "1")]);
        let ours =
            pairs(&[("PATH", "/ours"), ("LANG", "C"), ("SECRET", "x"), ("DEPTH", "7"), ("NESTED", "2")]);
        let mut launch = ProgramSpec {
            program: "claude".into(),
            arg0: "claude".into(),
            args: Vec::new(),
            set: pairs(&[("DEPTH", "1")]),
            remove: vec!["NESTED".into()],
        };
        replace(&wanted.into_iter().collect(), ours.into_iter(), &mut launch);
        assert_eq!(launch.set, pairs(&[("DEPTH", "1"), ("PATH", "/theirs")]));
        assert_eq!(launch.remove, [OsString::from("NESTED"), "SECRET".into()]);
    }

    #[test]
    fn a_given_origin_knows_nothing_of_this_process() {
        let origin = Origin::given(pairs(&[("A", "1")]), "/somewhere".into());
        assert_eq!(origin.var("A"), Some("1".into()));
        assert_eq!(origin.var("PATH"), None);
        assert_eq!(origin.folder(), Path::new("/somewhere"));
        let own = Origin::of_this_process();
        assert_eq!((own.var("PATH"), own.other_folder()), (std::env::var_os("PATH"), None));
    }
}

//! Agents whose calls a variable leads elsewhere, and that name a login in their settings: Gemini CLI and its descendants.

use std::path::{Path, PathBuf};

use super::settings::{base_url, http_proxy_in_the_way, is_on, json_with, text, upwards};
use crate::{ProxyLead, ProxyRoute, ProxyStart};

/// What leads the calls of such an agent.
#[derive(Debug)]
pub(crate) struct BaseUrl {
    /// The variable with the address.
    pub(crate) variable: &'static str,
    /// Variables by which it logs in otherwise, or runs where this machine's own addresses are others.
    pub(crate) elsewhere: &'static [&'static str],
    /// Its folder, in the home and in a project.
    pub(crate) folder: &'static str,
    /// Where an administrator puts settings, on Linux and on macOS.
    pub(crate) managed: &'static [&'static str],
    /// Variables that name further files of settings.
    pub(crate) given: &'static [&'static str],
    /// Where settings name a login, and a sandbox.
    pub(crate) logins: &'static [&'static str],
    pub(crate) sandboxes: &'static [&'static str],
    /// Words that occur in settings that may name another address.
    pub(crate) addresses: &'static [&'static str],
}

/// A login, and the file that names it.
pub(crate) type Login = (PathBuf, String);

impl BaseUrl {
    /// The logins that its settings name, where nothing else is in the way of its own variable. Which file wins depends on
    /// whether the folder is trusted: so all count. `root` is the agent's own folder.
    pub(crate) fn logins(&self, start: &ProxyStart<'_>, root: &Path) -> Result<Vec<Login>, String> {
        let on = |name: &&&str| (start.var)(name).is_some_and(|value| !value.is_empty() && is_on(&value));
        if let Some(name) = self.elsewhere.iter().find(on) {
            return Err(format!("{name} is set"));
        }
        if let Some(proxy) = http_proxy_in_the_way(start.var) {
            return Err(proxy);
        }
        let given = self.given.iter().filter_map(|name| (start.var)(name)).map(PathBuf::from);
        let own = [root.join("settings.json"), start.folder.join(self.folder).join("settings.json")];
        let mut found = Vec::new();
        for path in own.into_iter().chain(self.managed.iter().map(PathBuf::from)).chain(given) {
            self.logins_in(&path, &mut found)?;
        }
        match self.own_variables(start, root)? {
            Some(file) => Err(format!("{} names an address or a login", file.display())),
            None => Ok(found),
        }
    }

    fn logins_in(&self, path: &Path, found: &mut Vec<Login>) -> Result<(), String> {
        let last = |place: &&'static str| place.rsplit('/').next().unwrap_or(place);
        let words = self.logins.iter().chain(self.sandboxes).map(last).chain(self.addresses.iter().copied());
        let Some(settings) = json_with(path, &words.collect::<Vec<_>>())? else { return Ok(()) };
        let named =
            |place: &&str| settings.pointer(place).and_then(|value| value.as_str().map(str::to_owned));
        found.extend(self.logins.iter().filter_map(named).map(|login| (path.to_owned(), login)));
        let mut sandboxed = self.sandboxes.iter().filter_map(|place| settings.pointer(place));
        if sandboxed.any(|value| !value.is_null() && value.as_bool() != Some(false)) {
            return Err(format!("{} has it run in a sandbox", path.display()));
        }
        let written = settings.to_string();
        if self.addresses.iter().any(|word| written.contains(word)) {
            return Err(format!("{} may name another address", path.display()));
        }
        Ok(())
    }

    /// A file of variables that the program reads by itself, if it holds one that matters here.
    fn own_variables(&self, start: &ProxyStart<'_>, root: &Path) -> Result<Option<PathBuf>, String> {
        let in_folder = format!("{}/.env", self.folder);
        let above = upwards(start.folder, &in_folder).chain(upwards(start.folder, ".env"));
        let own = [root.join(".env"), root.with_file_name(".env")];
        for path in above.chain(own) {
            let Some(lines) = text(&path)? else { continue };
            if self
                .elsewhere
                .iter()
                .chain(&[self.variable, "_PROXY", "_proxy"])
                .any(|name| lines.contains(name))
            {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// The address that its own variable names; `None` where it is not set.
    pub(crate) fn own(&self, start: &ProxyStart<'_>) -> Result<Option<String>, String> {
        let set = (start.var)(self.variable).filter(|value| !value.is_empty());
        set.map(|url| base_url(&url).ok_or_else(|| format!("{} is no plain address", self.variable)))
            .transpose()
    }

    pub(crate) fn through(&self, upstream: String) -> ProxyRoute {
        let lead = ProxyLead { set: vec![(self.variable, "ADDRESS".to_owned())], ..ProxyLead::default() };
        ProxyRoute::Through { upstream, lead }
    }
}

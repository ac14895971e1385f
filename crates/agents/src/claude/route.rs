//! Which API Claude Code would call, and how it is led elsewhere without becoming another program.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{files, version};
use crate::kit::registry::RegistryFiles;
use crate::kit::settings::{base_url, http_proxy_in_the_way, is_on, json_with, upwards};
use crate::{ProxyLead, ProxyRoute, ProxyStart};
use os::file::entries;

pub(super) const FIRST_PARTY: &str = "https://api.anthropic.com";

const BASE_URL: &str = "ANTHROPIC_BASE_URL";

/// With any other host in its base URL the program has other tools, longer prompts and other caches; this variable, which it
/// does not document, keeps it as it is. Measured on 2.1.197, 2.1.259 and 2.1.325.
const STAYS_THE_SAME: &str = "_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL";

/// Switches and addresses by which it calls something else than the base URL, or by another protocol.
const ELSEWHERE: [&str; 13] = [
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD",
    "CLAUDE_CODE_USE_GATEWAY",
    "CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST",
    "CLAUDE_CODE_CUSTOM_OAUTH_URL",
    "CLAUDE_LOCAL_OAUTH_API_BASE",
    "ANTHROPIC_UNIX_SOCKET",
    "USE_LOCAL_OAUTH",
    "USE_STAGING_OAUTH",
];

/// Where a login to a company's gateway stands among the credentials.
const GATEWAY_LOGIN: &str = "enterpriseGateway";

/// Settings that mention none of these set nothing that matters here.
const WORDS: [&str; 6] = ["ANTHROPIC_", "CLAUDE_CODE_", "CLAUDE_LOCAL_", "_OAUTH", "_PROXY", "_proxy"];

/// Where an administrator puts settings on Linux and on macOS.
const MANAGED: [&str; 2] = ["/etc/claude-code", "/Library/Application Support/ClaudeCode"];

/// Variables that a settings file sets for the program; they win over those of its environment.
struct SettingsFile {
    name: String,
    env: Map<String, Value>,
}

pub(super) fn route(start: &ProxyStart<'_>) -> ProxyRoute {
    certain(start).unwrap_or_else(ProxyRoute::Unsure)
}

fn certain(start: &ProxyStart<'_>) -> Result<ProxyRoute, String> {
    let files = settings_files(start)?;
    for SettingsFile { name, env } in &files {
        if let Some(set) = [BASE_URL, STAYS_THE_SAME].into_iter().find(|set| env.contains_key(*set)) {
            return Err(format!("{name} sets {set}"));
        }
    }
    let var = |name: &str| {
        let set = files.iter().rev().find_map(|file| file.env.get(name));
        set.map_or_else(|| (start.var)(name), |value| Some(OsString::from(text(value))))
    };
    if let Some(name) = ELSEWHERE.into_iter().find(|name| var(name).is_some_and(|value| is_on(&value))) {
        return Err(format!("{name} is set"));
    }
    if let Some(proxy) = http_proxy_in_the_way(&var) {
        return Err(proxy);
    }
    if let Some(own) = RegistryFiles::from_env(files::LAYOUT, start.var)
        && let Some(login) = json_with(&own.root().join(".credentials.json"), &[GATEWAY_LOGIN])?
        && login.get(GATEWAY_LOGIN).is_some()
    {
        return Err("it is signed in to a gateway".to_owned());
    }
    let own = (start.var)(BASE_URL).filter(|url| !url.is_empty());
    let upstream = match &own {
        Some(url) => base_url(url).ok_or_else(|| format!("{BASE_URL} is no plain address"))?,
        None => start.configured.unwrap_or(FIRST_PARTY).to_owned(),
    };
    let first_party = upstream == FIRST_PARTY;
    let mut lead = ProxyLead { set: vec![(BASE_URL, "ADDRESS".to_owned())], ..ProxyLead::default() };
    lead.set.extend(first_party.then(|| (STAYS_THE_SAME, "1".to_owned())));
    if first_party {
        lead.lost.push("Remote Control");
        // Measured: 2.1.197 loses none; 2.1.325 asks for this one only where its base URL is the vendor's own.
        if !start.version.is_some_and(version::keeps_betas) {
            lead.lost.push("the beta mid-conversation-system-clear-at");
        }
    } else if own.is_none() {
        lead.lost.push("what it does with Anthropic's own address alone");
    }
    Ok(ProxyRoute::Through { upstream, lead })
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// In the order in which they are applied, as far as that matters: managed settings last.
fn settings_files(start: &ProxyStart<'_>) -> Result<Vec<SettingsFile>, String> {
    let mut found = Vec::new();
    if let Some(own) = RegistryFiles::from_env(files::LAYOUT, start.var) {
        add(&mut found, &files::global_config(&own))?;
        for name in ["settings.json", "remote-settings.json"] {
            add(&mut found, &own.root().join(name))?;
        }
    }
    for name in [".claude/settings.json", ".claude/settings.local.json"] {
        for path in upwards(start.folder, name) {
            add(&mut found, &path)?;
        }
    }
    for given in given_settings(start.args) {
        match serde_json::from_slice::<Value>(given.as_bytes()) {
            Ok(settings) => found.extend(of("--settings", &settings)),
            Err(_) => add(&mut found, &start.folder.join(PathBuf::from(given)))?,
        }
    }
    for folder in MANAGED.map(Path::new) {
        add(&mut found, &folder.join("managed-settings.json"))?;
        let mut further = entries(&folder.join("managed-settings.d")).unwrap_or_default();
        further.sort();
        for path in further {
            add(&mut found, &path)?;
        }
    }
    Ok(found)
}

fn add(found: &mut Vec<SettingsFile>, path: &Path) -> Result<(), String> {
    if let Some(settings) = json_with(path, &WORDS)? {
        found.extend(of(&path.display().to_string(), &settings));
    }
    Ok(())
}

fn of(name: &str, settings: &Value) -> Option<SettingsFile> {
    let env = settings.get("env")?.as_object()?;
    Some(SettingsFile { name: name.to_owned(), env: env.clone() })
}

/// Settings in the arguments: a document, or a file that holds one. A value that belongs to another flag is looked at as well,
/// which at most keeps the agent from being led anywhere.
fn given_settings(args: &[OsString]) -> Vec<OsString> {
    use std::os::unix::ffi::OsStringExt;
    let names: [&[u8]; 2] = [b"--settings", b"--managed-settings"];
    let mut given = Vec::new();
    for (at, arg) in args.iter().enumerate() {
        let bytes = arg.as_bytes();
        if names.contains(&bytes) {
            given.extend(args.get(at + 1).cloned());
        }
        let attached = names.iter().find_map(|name| bytes.strip_prefix(*name)?.strip_prefix(b"="));
        given.extend(attached.map(|value| OsString::from_vec(value.to_vec())));
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Case {
        home: tempfile::TempDir,
        vars: Vec<(String, String)>,
        args: Vec<OsString>,
    }

    impl Case {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(home.path().join("project/deep")).unwrap();
            let vars = vec![("HOME".to_owned(), home.path().to_str().unwrap().to_owned())];
            Self { home, vars, args: Vec::new() }
        }

        fn var(mut self, name: &str, value: &str) -> Self {
            self.vars.push((name.to_owned(), value.to_owned()));
            self
        }

        fn file(self, path: &str, content: &str) -> Self {
            let path = self.home.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
            self
        }

        fn args(mut self, args: &[&str]) -> Self {
            self.args = args.iter().map(OsString::from).collect();
            self
        }

        fn route(&self, configured: Option<&str>) -> ProxyRoute {
            let var = |name: &str| {
                let found = self.vars.iter().find(|(known, _)| known == name);
                found.map(|(_, value)| OsString::from(value))
            };
            let folder = self.home.path().join("project/deep");
            route(&ProxyStart { args: &self.args, var: &var, folder: &folder, version: None, configured })
        }

        fn upstream(&self, configured: Option<&str>) -> Option<(String, bool)> {
            match self.route(configured) {
                ProxyRoute::Through { upstream, lead } => {
                    assert_eq!(lead.set[0], (BASE_URL, "ADDRESS".to_owned()));
                    Some((upstream, lead.set.contains(&(STAYS_THE_SAME, "1".to_owned()))))
                }
                ProxyRoute::Unsure(_) => None,
            }
        }
    }

    #[test]
    fn it_stays_the_same_program_with_its_own_upstream_alone() {
        let first = Some((FIRST_PARTY.to_owned(), true));
        assert_eq!(Case::new().upstream(None), first);
        assert_eq!(Case::new().var(BASE_URL, "https://api.anthropic.com/").upstream(None), first);
        assert_eq!(Case::new().var(BASE_URL, "").upstream(None), first);
        let own = |url: &str| Some((url.to_owned(), false));
        assert_eq!(
            Case::new().var(BASE_URL, "https://gw.example/a/").upstream(None),
            own("https://gw.example/a")
        );
        assert_eq!(Case::new().upstream(Some("https://gw.example")), own("https://gw.example"));
        let both = Case::new().var(BASE_URL, "https://api.anthropic.com");
        assert_eq!(both.upstream(Some("https://gw.example")), first, "the user's own variable wins");
        for near in
            ["http://api.anthropic.com", "https://api.anthropic.com:8443", "https://api.anthropic.com/x"]
        {
            assert_eq!(Case::new().var(BASE_URL, near).upstream(None), own(near));
        }
    }

    #[test]
    fn nothing_is_led_where_another_api_may_be_meant() {
        let unsure = [
            Case::new().var("CLAUDE_CODE_USE_BEDROCK", "1"),
            Case::new().var("CLAUDE_CODE_USE_VERTEX", "true"),
            Case::new().var("ANTHROPIC_UNIX_SOCKET", "/run/x"),
            Case::new().var(BASE_URL, "unix:/x"),
            Case::new().var("HTTPS_PROXY", "http://proxy"),
            Case::new().file(".claude/settings.json", r#"{"env":{"ANTHROPIC_BASE_URL":"https://x"}}"#),
            Case::new().file(".claude/settings.json", r#"{"env":{"CLAUDE_CODE_USE_FOUNDRY":1}}"#),
            Case::new().file(".claude/settings.json", r#"{"env":{"HTTPS_PROXY":"http://proxy"}}"#),
            Case::new().file(".claude/settings.json", "{ \"env\": ANTHROPIC_BASE_URL"),
            Case::new().file("project/.claude/settings.json", r#"{"env":{"ANTHROPIC_BASE_URL":""}}"#),
            Case::new().file(
                "project/deep/.claude/settings.local.json",
                r#"{"env":{"CLAUDE_CODE_USE_VERTEX":"1"}}"#,
            ),
            Case::new().file(".claude/.credentials.json", r#"{"enterpriseGateway":{"url":"https://x"}}"#),
            Case::new()
                .file("s.json", r#"{"env":{"ANTHROPIC_BASE_URL":"x"}}"#)
                .args(&["--settings", "../../s.json"]),
            Case::new().args(&[r#"--settings={"env":{"ANTHROPIC_BASE_URL":"x"}}"#, "hi"]),
        ];
        for (at, case) in unsure.iter().enumerate() {
            assert!(matches!(case.route(None), ProxyRoute::Unsure(_)), "case {at}: {:?}", case.route(None));
        }
    }

    #[test]
    fn settings_that_name_no_api_change_nothing() {
        let case = Case::new()
            .file(
                ".claude/settings.json",
                r#"{"env":{"FOO":"1","CLAUDE_CODE_USE_BEDROCK":"0"},"model":"opus"}"#,
            )
            .file(".claude/.credentials.json", r#"{"claudeAiOauth":{}}"#)
            .var("HTTPS_PROXY", "http://proxy")
            .var("NO_PROXY", "127.0.0.1")
            .args(&["--settings", r#"{"env":{}}"#, "-p", "hi"]);
        assert_eq!(case.upstream(None), Some((FIRST_PARTY.to_owned(), true)));
    }
}

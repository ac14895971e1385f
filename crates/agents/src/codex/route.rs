//! Which API Codex would call, and how it is led elsewhere.
//!
//! Only the built-in provider is led anywhere: a provider of the user's own is part of a conversation's identity, and its address
//! stands in a table that no single setting replaces.

use std::path::Path;

use toml_edit::{DocumentMut, Item};

use super::files::CodexFiles;
use super::invocation;
use super::version::takes_config_flag;
use crate::kit::settings::{base_url, http_proxy_in_the_way, json_with, toml, upwards};
use crate::{ProxyLead, ProxyRoute, ProxyStart};

/// Where calls with an API key go.
pub(super) const API: &str = "https://api.openai.com/v1";

const BASE_URL: &str = "openai_base_url";

/// Settings by which another provider, another login or another address is chosen.
const ELSEWHERE: [&str; 8] = [
    "model_provider",
    "profile",
    "oss_provider",
    "chatgpt_base_url",
    "forced_login_method",
    "cli_auth_credentials_store",
    "experimental_thread_store",
    "model_providers.openai",
];

/// Settings of the machine's administrator.
const MANAGED: [&str; 2] = ["/etc/codex/config.toml", "/etc/codex/managed_config.toml"];

pub(super) fn route(start: &ProxyStart<'_>) -> ProxyRoute {
    certain(start).unwrap_or_else(ProxyRoute::Unsure)
}

fn certain(start: &ProxyStart<'_>) -> Result<ProxyRoute, String> {
    if !start.version.is_some_and(takes_config_flag) {
        return Err("its version is not known yet; `codemie doctor` asks it".to_owned());
    }
    if !invocation::classify(start.args).injectable {
        return Err("its arguments hold an option that codemie does not know".to_owned());
    }
    if let Some(option) = invocation::chooses_api(start.args) {
        return Err(format!("its arguments choose where its calls go: {option}"));
    }
    if (start.var)("CODEX_ACCESS_TOKEN").is_some_and(|token| !token.is_empty()) {
        return Err("CODEX_ACCESS_TOKEN is set".to_owned());
    }
    if let Some(proxy) = http_proxy_in_the_way(start.var) {
        return Err(proxy);
    }
    let files = CodexFiles::from_env(start.var).ok_or("it has no home folder")?;
    let own = files.root().join("config.toml");
    let folder = invocation::folder(start.args)
        .map_or_else(|| start.folder.to_owned(), |other| start.folder.join(other));
    let others = upwards(&folder, ".codex/config.toml").filter(|path| *path != own);
    for path in others.chain(MANAGED.map(Into::into)) {
        if let Some(settings) = toml(&path)? {
            let named = ELSEWHERE.into_iter().chain([BASE_URL]).find(|key| item(&settings, key).is_some());
            if let Some(key) = named {
                return Err(format!("{} sets {key}", path.display()));
            }
        }
    }
    let settings = toml(&own)?.unwrap_or_default();
    if let Some(key) = ELSEWHERE.into_iter().find(|key| !harmless(&settings, key)) {
        return Err(format!("{} sets {key}", own.display()));
    }
    api_key_login(&files.root().join("auth.json"))?;
    let upstream = match item(&settings, BASE_URL) {
        Some(url) => url
            .as_str()
            .and_then(|url| base_url(url.as_ref()))
            .ok_or_else(|| format!("{BASE_URL} in {} is no plain address", own.display()))?,
        None => start.configured.unwrap_or(API).to_owned(),
    };
    // A value that is no TOML would be taken as a text as well, but not by every version.
    let args = vec!["-c".to_owned(), format!("{BASE_URL}=\"ADDRESS\"")];
    Ok(ProxyRoute::Through { upstream, lead: ProxyLead { args, ..ProxyLead::default() } })
}

/// Absent, or with the value that it has by default.
fn harmless(settings: &DocumentMut, key: &str) -> bool {
    let default = match key {
        "model_provider" => "openai",
        "cli_auth_credentials_store" => "file",
        "forced_login_method" => "api",
        _ => "",
    };
    item(settings, key).is_none_or(|item| item.as_str() == Some(default))
}

fn item<'a>(settings: &'a DocumentMut, key: &str) -> Option<&'a Item> {
    key.split('.').try_fold(settings.as_item(), |item, part| item.as_table_like()?.get(part))
}

/// With an API key its calls go to the base URL and nowhere else. What a login to ChatGPT sends elsewhere has not been measured.
fn api_key_login(file: &Path) -> Result<(), String> {
    const KEY: &str = "OPENAI_API_KEY";
    let Some(login) = json_with(file, &[KEY, "tokens", "auth_mode"])? else {
        return Err("it is not logged in by an API key of its own file".to_owned());
    };
    let has = |key: &str| login.get(key).is_some_and(|value| !value.is_null());
    let mode = login.get("auth_mode").and_then(serde_json::Value::as_str);
    let by_key = has(KEY) && !has("tokens") && mode.is_none_or(|mode| mode.eq_ignore_ascii_case("apikey"));
    if by_key { Ok(()) } else { Err("it is logged in with an account, not by an API key".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    const KEY_LOGIN: &str = r#"{"auth_mode":"apikey","OPENAI_API_KEY":"sk-x"}"#;

    fn route_of(files: &[(&str, &str)], line: &str, configured: Option<&str>) -> Result<String, String> {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join("project")).unwrap();
        for (path, content) in files {
            let path = home.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let var = |name: &str| (name == "HOME").then(|| home.path().as_os_str().to_owned());
        let start = ProxyStart {
            args: &args,
            var: &var,
            folder: &home.path().join("project"),
            version: Some("0.166.0"),
            configured,
        };
        match route(&start) {
            ProxyRoute::Through { upstream, lead } => {
                assert_eq!(lead.args, ["-c", "openai_base_url=\"ADDRESS\""]);
                assert_eq!(lead.set, []);
                Ok(upstream)
            }
            ProxyRoute::Unsure(why) => Err(why),
        }
    }

    #[test]
    fn the_built_in_provider_with_an_api_key_is_led() {
        let login = (".codex/auth.json", KEY_LOGIN);
        assert_eq!(route_of(&[login], "hello", None), Ok(API.to_owned()));
        assert_eq!(
            route_of(&[login], "exec -m gpt-6 hello", Some("https://gw")),
            Ok("https://gw".to_owned())
        );
        let own = (
            ".codex/config.toml",
            "model = 'gpt-6'\nmodel_provider = 'openai'\nopenai_base_url = 'https://gw/v1/'\n",
        );
        assert_eq!(route_of(&[login, own], "", Some("https://other")), Ok("https://gw/v1".to_owned()));
        let old = (".codex/auth.json", r#"{"OPENAI_API_KEY":"sk-x","tokens":null}"#);
        assert_eq!(route_of(&[old], "-c model_verbosity=low", None), Ok(API.to_owned()));
    }

    #[test]
    fn nothing_is_led_where_another_api_may_be_meant() {
        let login = (".codex/auth.json", KEY_LOGIN);
        let config = |content: &'static str| vec![login, (".codex/config.toml", content)];
        let chatgpt = r#"{"auth_mode":"chatgpt","OPENAI_API_KEY":null,"tokens":{"id_token":"x"}}"#;
        for (files, line) in [
            (vec![], ""),
            (vec![(".codex/auth.json", chatgpt)], ""),
            (vec![(".codex/auth.json", "tokens")], ""),
            (config("model_provider = 'azure'"), ""),
            (config("profile = 'work'"), ""),
            (config("[model_providers.openai]\nbase_url = 'https://x'"), ""),
            (config("openai_base_url = 3"), ""),
            (config("openai_base_url = 'https://x?y'"), ""),
            (config("= broken"), ""),
            (vec![login, ("project/.codex/config.toml", "openai_base_url = 'https://x'")], ""),
            (vec![login], "-p work"),
            (vec![login], "--oss"),
            (vec![login], "-c openai_base_url=https://x"),
            (vec![login], "--config=model_provider=azure hello"),
            (vec![login], "--remote ws://x"),
            (vec![login], "--brand-new"),
        ] {
            let route = route_of(&files, line, None);
            assert!(route.is_err(), "{files:?} {line}: {route:?}");
        }
    }
}

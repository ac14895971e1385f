//! Which API Gemini CLI would call, and how it is led elsewhere.
//!
//! Its base URL counts for API keys alone; a login with Google goes to another service, past it. A base URL by itself makes the
//! program take its login for that of a gateway, unless its settings name the login (read in 0.61.0).

use super::files::GeminiFiles;
use super::invocation;
use crate::kit::route::BaseUrl;
use crate::{ProxyRoute, ProxyStart};

pub(super) const API: &str = "https://generativelanguage.googleapis.com";

const VARIABLE: &str = "GOOGLE_GEMINI_BASE_URL";

static BASE_URL: BaseUrl = BaseUrl {
    variable: VARIABLE,
    elsewhere: &[
        "GOOGLE_GENAI_USE_GCA",
        "GOOGLE_GENAI_USE_VERTEXAI",
        "GEMINI_CLI_USE_COMPUTE_ADC",
        "CLOUD_SHELL",
        "GEMINI_SANDBOX",
    ],
    folder: ".gemini",
    managed: &[
        "/etc/gemini-cli/system-defaults.json",
        "/etc/gemini-cli/settings.json",
        "/Library/Application Support/GeminiCli/system-defaults.json",
        "/Library/Application Support/GeminiCli/settings.json",
    ],
    given: &["GEMINI_CLI_SYSTEM_DEFAULTS_PATH", "GEMINI_CLI_SYSTEM_SETTINGS_PATH"],
    logins: &["/security/auth/selectedType", "/security/auth/enforcedType", "/selectedAuthType"],
    sandboxes: &["/tools/sandbox", "/sandbox"],
    addresses: &[],
};

const API_KEY: &str = "gemini-api-key";

pub(super) fn route(start: &ProxyStart<'_>) -> ProxyRoute {
    certain(start).unwrap_or_else(ProxyRoute::Unsure)
}

fn certain(start: &ProxyStart<'_>) -> Result<ProxyRoute, String> {
    if invocation::in_a_sandbox(start.args) {
        return Err("it runs in a sandbox of its own".to_owned());
    }
    let files = GeminiFiles::from_env(start.var).ok_or("it has no home folder")?;
    let logins = BASE_URL.logins(start, files.root())?;
    if let Some((file, login)) = logins.iter().find(|(_, login)| login != API_KEY && login != "gateway") {
        return Err(format!("{} logs it in by {login}", file.display()));
    }
    let upstream = match BASE_URL.own(start)? {
        Some(url) => url,
        None if logins.is_empty() => {
            return Err("its settings name no login; choose the API key with /auth".to_owned());
        }
        None if logins.iter().any(|(_, login)| login != API_KEY) => {
            return Err("its settings name a gateway without an address".to_owned());
        }
        None => start.configured.unwrap_or(API).to_owned(),
    };
    Ok(BASE_URL.through(upstream))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProxyLead;
    use std::ffi::OsString;

    const BY_KEY: (&str, &str) =
        (".gemini/settings.json", r#"{"security":{"auth":{"selectedType":"gemini-api-key"}}}"#);

    fn route_of(
        files: &[(&str, &str)],
        vars: &[(&str, &str)],
        line: &str,
        configured: Option<&str>,
    ) -> Result<String, String> {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join("project")).unwrap();
        for (path, content) in files {
            let path = home.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let var = |name: &str| match name {
            "HOME" => Some(home.path().as_os_str().to_owned()),
            _ => vars.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value)),
        };
        let folder = home.path().join("project");
        match route(&ProxyStart { args: &args, var: &var, folder: &folder, version: None, configured }) {
            ProxyRoute::Through { upstream, lead } => {
                assert_eq!(
                    lead,
                    ProxyLead { set: vec![(VARIABLE, "ADDRESS".into())], ..ProxyLead::default() }
                );
                Ok(upstream)
            }
            ProxyRoute::Unsure(why) => Err(why),
        }
    }

    #[test]
    fn api_keys_and_gateways_are_led() {
        assert_eq!(route_of(&[BY_KEY], &[], "-p hi", None), Ok(API.to_owned()));
        assert_eq!(route_of(&[BY_KEY], &[], "", Some("https://gw")), Ok("https://gw".to_owned()));
        let old = (".gemini/settings.json", r#"{"selectedAuthType":"gemini-api-key","sandbox":false}"#);
        assert_eq!(route_of(&[old], &[], "", None), Ok(API.to_owned()));
        let own = &[(VARIABLE, "https://gw/x/"), ("GEMINI_API_KEY", "k")][..];
        assert_eq!(route_of(&[BY_KEY], own, "", Some("https://other")), Ok("https://gw/x".to_owned()));
        assert_eq!(route_of(&[], own, "", None), Ok("https://gw/x".to_owned()), "a gateway either way");
    }

    #[test]
    fn nothing_is_led_where_another_service_may_be_meant() {
        let by = |login: &str| format!(r#"{{"security":{{"auth":{{"selectedType":"{login}"}}}}}}"#);
        let (google, vertex, gateway) = (by("oauth-personal"), by("vertex-ai"), by("gateway"));
        let settings = ".gemini/settings.json";
        for (files, vars, line) in [
            (vec![], vec![("GEMINI_API_KEY", "k")], ""),
            (vec![(settings, google.as_str())], vec![], ""),
            (vec![(settings, vertex.as_str())], vec![], ""),
            (vec![(settings, gateway.as_str())], vec![], ""),
            (vec![(settings, "// selectedType")], vec![], ""),
            (vec![BY_KEY, ("project/.gemini/settings.json", google.as_str())], vec![], ""),
            (vec![BY_KEY, ("project/.env", "GOOGLE_GEMINI_BASE_URL=https://x")], vec![], ""),
            (vec![BY_KEY, (".gemini/.env", "HTTPS_PROXY=http://x")], vec![], ""),
            (vec![BY_KEY], vec![("GOOGLE_GENAI_USE_VERTEXAI", "true")], ""),
            (vec![BY_KEY], vec![("GEMINI_SANDBOX", "docker")], ""),
            (vec![BY_KEY], vec![("HTTP_PROXY", "http://x")], ""),
            (vec![BY_KEY], vec![(VARIABLE, "x")], ""),
            (vec![BY_KEY], vec![], "--sandbox"),
        ] {
            let route = route_of(&files, &vars, line, None);
            assert!(route.is_err(), "{files:?} {vars:?} {line}: {route:?}");
        }
    }
}

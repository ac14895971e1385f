//! Which API Qwen Code would call, and how it is led elsewhere: by `OPENAI_BASE_URL`, which counts for the login `openai` where its
//! settings name no address of their own.

use super::agent::LAYOUT;
use super::invocation;
use crate::kit::registry::RegistryFiles;
use crate::kit::route::BaseUrl;
use crate::{ProxyRoute, ProxyStart};

static BASE_URL: BaseUrl = BaseUrl {
    variable: "OPENAI_BASE_URL",
    elsewhere: &["QWEN_SANDBOX"],
    folder: ".qwen",
    managed: &["/etc/qwen-code/settings.json", "/Library/Application Support/QwenCode/settings.json"],
    given: &["QWEN_CODE_SYSTEM_SETTINGS_PATH", "QWEN_CODE_SYSTEM_DEFAULTS_PATH"],
    logins: &["/security/auth/selectedType", "/security/auth/enforcedType", "/selectedAuthType"],
    sandboxes: &["/tools/sandbox", "/sandbox"],
    addresses: &["baseUrl", "modelProviders", "OPENAI_BASE_URL", "\"proxy\""],
};

const LOGIN: &str = "openai";

pub(super) fn route(start: &ProxyStart<'_>) -> ProxyRoute {
    certain(start).unwrap_or_else(ProxyRoute::Unsure)
}

fn certain(start: &ProxyStart<'_>) -> Result<ProxyRoute, String> {
    if let Some(flag) = invocation::leads_elsewhere(start.args) {
        return Err(format!("{flag} is given"));
    }
    let files = RegistryFiles::from_env(&LAYOUT, start.var).ok_or("it has no home folder")?;
    let logins = BASE_URL.logins(start, files.root())?;
    if let Some((file, login)) = logins.iter().find(|(_, login)| login != LOGIN) {
        return Err(format!("{} logs it in by {login}", file.display()));
    }
    let configured = || start.configured.map(str::to_owned).filter(|_| !logins.is_empty());
    // Which address it takes by itself depends on the provider that was chosen.
    let upstream = BASE_URL.own(start)?.or_else(configured);
    Ok(BASE_URL.through(upstream.ok_or("neither OPENAI_BASE_URL nor its settings name its API")?))
}

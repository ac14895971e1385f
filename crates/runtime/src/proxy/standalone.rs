//! A proxy that stands alone, for editors and desktop apps: one route for each vendor's API, and a token that stays the same.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::settings::{ProxySettings, RouteAuth, RouteSettings, new_secret, own_authorities, route_auth};
use agents::VendorApi;
use agents::registry;
use config::Config;
use os::file::{create_private, text_at_most};
use os::home::{Home, own_var};
use types::Ids;

const MAX_TOKEN: u64 = 4096;

/// The token, and whether it was made just now.
#[derive(Debug)]
pub struct Token {
    pub text: String,
    pub file: PathBuf,
    pub is_new: bool,
}

/// The token of this home, made where there is none.
pub fn token(home: &Home, ids: &dyn Ids) -> io::Result<Token> {
    let folder = home.path().join("proxy");
    let file = folder.join("token");
    match text_at_most(&file, MAX_TOKEN) {
        Ok(text) if is_token(text.trim()) => {
            return Ok(Token { text: text.trim().to_owned(), file, is_new: false });
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    create_private(&folder)?;
    let text = new_secret(ids);
    write(&folder, &file, &text)?;
    Ok(Token { text, file, is_new: true })
}

fn is_token(text: &str) -> bool {
    text.len() >= 32 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// A temporary file is the owner's alone.
fn write(folder: &Path, file: &Path, text: &str) -> io::Result<()> {
    let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
    writeln!(temporary, "{text}")?;
    temporary.persist(file).map(drop).map_err(|error| error.error)
}

/// The APIs there are, each with the agent that speaks it.
pub fn apis() -> Vec<(&'static str, VendorApi)> {
    let agents = registry::names().iter().filter_map(|name| registry::by_name(name));
    agents.filter_map(|agent| Some((agent.name(), agent.vendor_api()?))).collect()
}

/// The settings of such a proxy. `upstreams`: addresses by the API's name, instead of the configured and the vendor's own.
pub fn settings(
    home: &Home,
    config: &Config,
    token: String,
    port: u16,
    upstreams: &[(String, String)],
) -> Result<ProxySettings, String> {
    let apis = apis();
    if let Some((name, _)) = upstreams.iter().find(|(name, _)| !apis.iter().any(|(_, api)| api.name == name))
    {
        let known: Vec<&str> = apis.iter().map(|(_, api)| api.name).collect();
        return Err(format!("there is no API {name}; known are {}", known.join(", ")));
    }
    let routes = apis.into_iter().map(|(agent, api)| {
        let configured = config.proxy.agent(agent);
        let given = upstreams.iter().rev().find(|(name, _)| name == api.name).map(|(_, url)| url.clone());
        let upstream =
            given.or_else(|| configured.upstream.clone()).unwrap_or_else(|| api.upstream.to_owned());
        let auth = route_auth(&configured, &upstream, own_var);
        if let Some(RouteAuth::Missing { why }) = &auth {
            return Err(format!("no credential for the gateway of {agent}: {why}"));
        }
        Ok(RouteSettings {
            name: api.name.to_owned(),
            agent: agent.to_owned(),
            upstream,
            auth,
            headers: Vec::new(),
        })
    });
    Ok(ProxySettings {
        home: std::path::absolute(home.path()).map_err(|error| error.to_string())?,
        run: None,
        port,
        secret: token,
        routes: routes.collect::<Result<_, String>>()?,
        ca_file: own_authorities(config.delivery.ca_file.clone(), own_var),
        log_level: Some(config.log_level.clone()),
        leading: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use types::RandomIds;

    #[test]
    fn a_token_is_made_once_and_is_the_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        let made = token(&home, &RandomIds).unwrap();
        assert!(made.is_new && made.text.len() == 64);
        assert_eq!(made.file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let again = token(&home, &RandomIds).unwrap();
        assert_eq!((again.text, again.is_new), (made.text, false));
        std::fs::write(&made.file, "short\n").unwrap();
        assert!(token(&home, &RandomIds).unwrap().is_new, "what is no token is replaced");
    }

    #[test]
    fn each_api_has_a_route_of_its_own() {
        let home = Home::at("/nowhere");
        let config = Config::load(None, |_| None, registry::names());
        let given = [("openai".to_owned(), "https://gw".to_owned())];
        let settings = settings(&home, &config, "t".into(), 1, &given).unwrap();
        let routes: Vec<(&str, &str)> =
            settings.routes.iter().map(|route| (&*route.name, &*route.upstream)).collect();
        assert!(routes.contains(&("anthropic", "https://api.anthropic.com")), "{routes:?}");
        assert!(routes.contains(&("openai", "https://gw")), "{routes:?}");
        assert!(routes.contains(&("gemini", "https://generativelanguage.googleapis.com")), "{routes:?}");
        let unknown = [("other".to_owned(), "https://gw".to_owned())];
        assert!(super::settings(&home, &config, "t".into(), 1, &unknown).is_err());
    }
}

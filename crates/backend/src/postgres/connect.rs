//! From a URL to a connection: TLS is always verified, and every wait has a limit.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use reader::Error;

/// Where distributions keep the certificates they trust; the first that is there is taken.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Settings of a connection, unless the address sets them. A node that freezes in the middle of a batch
/// holds locks that others wait for: they give up first and answer 503, then the server takes the locks from it.
const SESSION: [(&str, &str); 4] = [
    ("lock_timeout", "5s"),
    ("idle_in_transaction_session_timeout", "10s"),
    ("statement_timeout", "30s"),
    ("tcp_user_timeout", "30s"),
];
/// And memory to sort and group in, unless the server gives more or the address sets it. A page over a year of
/// 100,000 sessions needs about ten megabytes; until the server has looked at its tables for the first time it knows no
/// better than to sort all of that, and with the four it gives by default it does so on disk.
const SORT_MEMORY: (&str, &str) = (
    "work_mem",
    "SELECT set_config(name, greatest(setting::bigint, 16384)::text, false) FROM pg_settings WHERE name = 'work_mem'",
);
/// A server that vanishes is noticed about as fast.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// The first statements of a new connection. A pooler in front of the server takes no options in the start-up message.
fn limits(config: &Config) -> String {
    let given = config.get_options().unwrap_or_default();
    let limits = SESSION.iter().map(|(name, value)| (*name, format!("SET {name} = '{value}'")));
    let all = limits.chain([(SORT_MEMORY.0, SORT_MEMORY.1.to_owned())]);
    all.filter(|(name, _)| !given.contains(name))
        .map(|(_, statement)| statement)
        .collect::<Vec<_>>()
        .join("; ")
}

/// Sets the limits that the address leaves open.
fn bounded(config: &mut Config) {
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(UNACKNOWLEDGED);
    }
    if config.get_keepalives_idle() == Config::new().get_keepalives_idle() {
        config.keepalives_idle(KEEPALIVE_IDLE);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(KEEPALIVE_INTERVAL);
    }
    if config.get_keepalives_retries().is_none() {
        config.keepalives_retries(KEEPALIVE_RETRIES);
    }
}

/// How to connect, by which TLS, and the first statements.
pub(super) fn settings(url: &str) -> Result<(Config, MakeRustlsConnect, String), Error> {
    // The URL holds a password: neither it nor the message of the parser is repeated.
    let mut config: Config = url.parse().map_err(|_| {
        Error::Open("the database's address is not of the form postgres://USER@HOST/DATABASE".to_owned())
    })?;
    config.application_name("codemie");
    bounded(&mut config);
    if config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_))) {
        config.ssl_mode(SslMode::Disable); // no network to be protected from
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Open(error.to_string()))?
        .with_root_certificates(roots())
        .with_no_client_auth();
    let limits = limits(&config);
    Ok((config, MakeRustlsConnect::new(tls), limits))
}

/// `PGSSLROOTCERT`, as psql has it, else what the system trusts. Without either, no server is trusted.
fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let named = std::env::var_os("PGSSLROOTCERT").or_else(|| std::env::var_os("SSL_CERT_FILE"));
    let file = named
        .map(Into::into)
        .or_else(|| BUNDLES.iter().map(Into::into).find(|path: &std::path::PathBuf| path.exists()));
    let Some(file) = file else { return roots };
    match CertificateDer::pem_file_iter(&file) {
        Ok(certificates) => {
            roots.add_parsable_certificates(certificates.filter_map(Result::ok));
        }
        Err(error) => {
            let file: &Path = &file;
            tracing::warn!(file = %file.display(), "certificates cannot be read: {error}");
        }
    }
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wait_has_a_limit_unless_the_address_sets_another() {
        let times = "SET lock_timeout = '5s'; SET idle_in_transaction_session_timeout = '10s'; SET statement_timeout = '30s'; SET tcp_user_timeout = '30s'";
        let all = &*format!("{times}; {}", SORT_MEMORY.1);
        let rest = all.replace("SET lock_timeout = '5s'; ", "");
        for (url, statements, unacknowledged, idle) in [
            ("postgres://u@h/d", all, 30, 15),
            ("postgres://u@h/d?tcp_user_timeout=7&keepalives_idle=9", all, 7, 9),
            ("postgres://u@h/d?options=-c%20lock_timeout%3D0", &rest, 30, 15),
            ("postgres://u@h/d?options=-c%20work_mem%3D64MB", times, 30, 15),
        ] {
            let mut config: Config = url.parse().unwrap();
            bounded(&mut config);
            assert_eq!(limits(&config), statements, "{url}");
            assert_eq!(config.get_tcp_user_timeout(), Some(&Duration::from_secs(unacknowledged)), "{url}");
            assert_eq!(config.get_keepalives_idle(), Duration::from_secs(idle), "{url}");
            assert!(config.get_keepalives_interval().is_some() && config.get_keepalives_retries().is_some());
        }
    }
}

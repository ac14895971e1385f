//! From a URL to a connection: TLS is verified, always.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::backend::storage::Error;

/// Where distributions keep the certificates they trust; the first that is there is taken.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

pub(super) fn settings(url: &str) -> Result<(Config, MakeRustlsConnect), Error> {
    // The URL holds a password: neither it nor what the parser says of it is repeated.
    let mut config: Config = url.parse().map_err(|_| {
        Error::Open("the database's address is not of the form postgres://USER@HOST/DATABASE".to_owned())
    })?;
    config.application_name("codemie");
    if config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_))) {
        config.ssl_mode(SslMode::Disable); // no network to be protected from
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Open(error.to_string()))?
        .with_root_certificates(roots())
        .with_no_client_auth();
    Ok((config, MakeRustlsConnect::new(tls)))
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

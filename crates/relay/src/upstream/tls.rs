//! TLS towards the API: certificates are checked as the system does it, with the user's own authorities added.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls_platform_verifier::Verifier;

/// Two ways to the same server: a WebSocket needs HTTP/1.1.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    pub any: Arc<ClientConfig>,
    pub http1: Arc<ClientConfig>,
}

/// A file of authorities has some hundred kilobytes.
const CA_FILE_LIMIT: u64 = 8 << 20;

/// Reads the system's authorities: some ten milliseconds, so once, and not on the thread that passes bytes on.
pub(crate) fn load(ca_file: Option<&Path>) -> Result<Tls, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let extra = ca_file.map(authorities).transpose()?.unwrap_or_default();
    let verifier = Verifier::new_with_extra_roots(extra, provider.clone())
        .map_err(|error| format!("the system's certificate authorities cannot be read: {error}"))?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous() // so it is called; the verifier is the system's own
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let http1 = Arc::new(config.clone());
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Tls { any: Arc::new(config), http1 })
}

fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let failed = |error: io::Error| {
        format!("the file of certificate authorities {} cannot be read: {error}", path.display())
    };
    let pem = os::file::read_at_most(path, CA_FILE_LIMIT).map_err(failed)?;
    let certificates = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| failed(io::Error::other(error)))?;
    if certificates.is_empty() {
        return Err(format!("the file of certificate authorities {} has no certificate", path.display()));
    }
    Ok(certificates)
}

//! A vendor's own host on this machine: its name leads here, and a certificate of an own authority makes it genuine.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

const HTTPS: u16 = 443;

#[derive(Debug)]
pub(super) struct Vendor {
    folder: TempDir,
    pub(super) ca: PathBuf,
    /// In place of `/etc/hosts`.
    pub(super) hosts: PathBuf,
}

/// Makes certificates for a host. The error says what is missing.
pub(super) fn vendor(host: &str) -> Result<Vendor, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let at = |name: &str| folder.path().join(name);
    let (ca, hosts) = (at("ca.pem"), at("hosts"));
    fs::write(&hosts, format!("127.0.0.1 localhost\n127.0.0.1 {host}\n")).unwrap();
    fs::write(at("extensions"), format!("subjectAltName=DNS:{host}\nbasicConstraints=CA:FALSE\n")).unwrap();
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    let authority =
        ["-x509", "-days", "2", "-subj", "/CN=authority of a test", "-keyout", "ca.key", "-out", "ca.pem"];
    let limits = ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign"];
    openssl(folder.path(), "req", &[&key[..], &authority, &limits].concat())?;
    let subject = format!("/CN={host}");
    openssl(
        folder.path(),
        "req",
        &[&key[..], &["-subj", &subject, "-keyout", "key.pem", "-out", "csr.pem"]].concat(),
    )?;
    let signed =
        ["-req", "-in", "csr.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"];
    openssl(folder.path(), "x509", &[&signed[..], &["-extfile", "extensions", "-out", "cert.pem"]].concat())?;
    Ok(Vendor { folder, ca, hosts })
}

fn openssl(folder: &Path, command: &str, arguments: &[&str]) -> Result<(), String> {
    let made = Command::new("openssl").arg(command).args(arguments).current_dir(folder).output();
    let made = made.map_err(|_| "openssl is not installed".to_owned())?;
    made.status.success().then_some(()).ok_or_else(|| String::from_utf8_lossy(&made.stderr).into_owned())
}

impl Vendor {
    /// Passes everything that comes for the vendor's host on to this address, as long as the result lives.
    pub(super) fn lead_to(&self, url: &str) -> tokio::runtime::Runtime {
        let target = url.strip_prefix("http://").unwrap().to_owned();
        let read = |name: &str| fs::read(self.folder.path().join(name)).unwrap();
        let certificates = CertificateDer::pem_slice_iter(&read("cert.pem")).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(&read("key.pem")).unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(certificates, key)
            .unwrap();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, HTTPS))).unwrap();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, target) = (acceptor.clone(), target.clone());
                tokio::spawn(async move {
                    let mut outer = acceptor.accept(stream).await?;
                    let mut inner = TcpStream::connect(target).await?;
                    tokio::io::copy_bidirectional(&mut outer, &mut inner).await
                });
            }
        });
        runtime
    }
}

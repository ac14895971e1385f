//! A new connection to the API: over TCP, through the proxy that the user's environment names, with TLS.

use std::error::Error;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use http::Uri;
use http::header::HeaderValue;
use hyper::rt::{Read, Write};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls_platform_verifier::Verifier;
use tokio::sync::OnceCell;
use tower_service::Service;

use super::driver::Driver;
use super::pool::{Http1Conn, Http2Conn, Sender};
use crate::serve::Proxies;

/// DNS, TCP, TLS and a proxy's own answer together. Direct calls wait as long as the system does, which nobody likes better.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// hyper doubles its buffers up to 400 kB for each direction of each connection; 64 slow readers would make 50 MB of that.
pub(crate) const BUFFER_LIMIT: usize = 128 << 10;

/// What one stream may send ahead of a slow reader. The connection's own window has room for all its streams, or a few slow
/// readers would stop the others.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 64 << 20;

/// Finds a connection that died without a word (a laptop that slept) while a request waits on it.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Why there is no connection. Nothing was sent.
#[derive(Debug)]
pub(crate) struct ConnectError(pub String);

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What all routes of a listener share.
#[derive(Debug)]
pub(crate) struct Network {
    tcp: HttpConnector,
    tls: OnceCell<Result<Tls, String>>,
    ca_file: Option<PathBuf>,
    proxies: Matcher,
}

/// Which way a route's connections take.
#[derive(Clone, Debug)]
enum Way {
    Direct,
    Tunnel(Intercept),
    Socks(Intercept),
    /// A proxy that is asked for the whole address, for upstreams without TLS.
    Forward(Intercept),
}

impl Network {
    pub fn new(ca_file: Option<PathBuf>, proxies: &Proxies) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(Duration::from_mins(1)));
        let proxies = Matcher::builder()
            .all(proxies.all.clone().unwrap_or_default())
            .http(proxies.http.clone().unwrap_or_default())
            .https(proxies.https.clone().unwrap_or_default())
            .no(proxies.no.clone().unwrap_or_default())
            .build();
        Self { tcp, tls: OnceCell::new(), ca_file, proxies }
    }

    /// Reads certificates before the first request needs them.
    pub async fn prepare(&self) {
        let _ = self.tls().await;
    }

    /// Whether a proxy is asked for this upstream by its whole address, with which credentials.
    pub fn forwards(&self, base: &Uri) -> (bool, Option<HeaderValue>) {
        match self.way(base) {
            Way::Forward(proxy) => (true, proxy.basic_auth().cloned()),
            Way::Direct | Way::Tunnel(_) | Way::Socks(_) => (false, None),
        }
    }

    pub async fn connect(&self, base: &Uri, only_http1: bool) -> Result<Sender, ConnectError> {
        let way = self.way(base);
        let through = match &way {
            Way::Direct => String::new(),
            Way::Tunnel(proxy) | Way::Socks(proxy) | Way::Forward(proxy) => {
                format!(" through the proxy {}", origin(proxy.uri()))
            }
        };
        let connected = tokio::time::timeout(CONNECT_LIMIT, self.connect_by(way, base, only_http1)).await;
        let reason = match connected {
            Ok(Ok(sender)) => return Ok(sender),
            Ok(Err(reason)) => reason,
            Err(_) => format!("no connection within {} seconds", CONNECT_LIMIT.as_secs()),
        };
        Err(ConnectError(format!("cannot connect to {}{through}: {reason}", origin(base))))
    }

    async fn connect_by(&self, way: Way, base: &Uri, only_http1: bool) -> Result<Sender, String> {
        let tls = self.tls_for(base, &way).await?;
        let config = |http1: bool| if http1 { tls.http1.clone() } else { tls.any.clone() };
        let (tcp, target) = (self.tcp.clone(), config(only_http1));
        match way {
            Way::Direct => open(HttpsConnector::from((tcp, target)), base.clone()).await,
            Way::Forward(proxy) => open(HttpsConnector::from((tcp, config(true))), proxy.uri().clone()).await,
            Way::Tunnel(proxy) => {
                let mut tunnel = Tunnel::new(proxy.uri().clone(), HttpsConnector::from((tcp, config(true))));
                if let Some(auth) = proxy.basic_auth() {
                    tunnel = tunnel.with_auth(auth.clone());
                }
                open(HttpsConnector::from((tunnel, target)), base.clone()).await
            }
            Way::Socks(proxy) => {
                let mut socks = SocksV5::new(proxy.uri().clone(), tcp)
                    .local_dns(proxy.uri().scheme_str() == Some("socks5"));
                if let Some((user, password)) = proxy.raw_auth() {
                    socks = socks.with_auth(user.to_owned(), password.to_owned());
                }
                open(HttpsConnector::from((socks, target)), base.clone()).await
            }
        }
    }

    /// Nothing on this machine is reached through a proxy, whatever the variables say.
    fn way(&self, base: &Uri) -> Way {
        let proxy =
            if is_loopback(base.host().unwrap_or_default()) { None } else { self.proxies.intercept(base) };
        match proxy {
            None => Way::Direct,
            Some(proxy) if proxy.uri().scheme_str().is_some_and(|scheme| scheme.starts_with("socks")) => {
                Way::Socks(proxy)
            }
            Some(proxy) if base.scheme_str() == Some("https") => Way::Tunnel(proxy),
            Some(proxy) => Way::Forward(proxy),
        }
    }

    /// Certificates are read only where one has to be checked.
    async fn tls_for(&self, base: &Uri, way: &Way) -> Result<Tls, String> {
        let by_proxy = match way {
            Way::Tunnel(proxy) | Way::Forward(proxy) => proxy.uri().scheme_str() == Some("https"),
            Way::Direct | Way::Socks(_) => false,
        };
        if base.scheme_str() == Some("https") || by_proxy {
            return self.tls().await;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let config = Arc::new(config);
        Ok(Tls { any: config.clone(), http1: config })
    }

    async fn tls(&self) -> Result<Tls, String> {
        let load = || async {
            let ca_file = self.ca_file.clone();
            tokio::task::spawn_blocking(move || load(ca_file.as_deref()))
                .await
                .unwrap_or_else(|error| Err(error.to_string()))
        };
        self.tls.get_or_init(load).await.clone()
    }
}

/// Connects and agrees on the version of HTTP. HTTP/2, which carries many requests, is then driven by a task of its own.
async fn open<C>(mut connector: C, to: Uri) -> Result<Sender, String>
where
    C: Service<Uri>,
    C::Response: Connection + Read + Write + Unpin + Send + 'static,
    C::Error: Into<Box<dyn Error + Send + Sync>>,
{
    std::future::poll_fn(|cx| connector.poll_ready(cx)).await.map_err(|error| chain(&*error.into()))?;
    let stream = connector.call(to).await.map_err(|error| chain(&*error.into()))?;
    if stream.connected().is_negotiated_h2() {
        let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_INTERVAL)
            .handshake(stream)
            .await
            .map_err(|error| chain(&error))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to the API ended");
            }
        });
        return Ok(Sender::Http2(Http2Conn::new(sender)));
    }
    let (sender, connection) = hyper::client::conn::http1::Builder::new()
        .preserve_header_case(true)
        .max_buf_size(BUFFER_LIMIT)
        .handshake(stream)
        .await
        .map_err(|error| chain(&error))?;
    Ok(Sender::Http1(Http1Conn::new(sender, Driver::new(connection.with_upgrades()))))
}

/// An error and its causes, each once.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let words = next.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = next.source();
    }
    text
}

/// An address without its path, its user and its password.
pub(crate) fn origin(uri: &Uri) -> String {
    let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", uri.scheme_str().unwrap_or("http"), uri.host().unwrap_or_default())
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

// TLS towards the API: certificates are checked as the system does it, with the user's own authorities added.

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

//! Upstreams behind TLS, over both versions of HTTP, and proxies on the way there.

use std::convert::Infallible;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use relay::{Auth, CallEnd, Settings};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::message::{read_head, read_response};
use crate::served::{Open, SECRET, Served, answering, connect, serve, settings, upstream};
use crate::traps::ask;

/// An authority that nobody else trusts, and a server that it vouches for.
struct Authority {
    folder: tempfile::TempDir,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Authority {
    fn new(host: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let openssl = |args: &str| {
            let output =
                Command::new("openssl").current_dir(folder.path()).args(args.split_whitespace()).output();
            let output = output.expect("openssl has to be installed for these tests");
            assert!(output.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&output.stderr));
        };
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        openssl(&format!("req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=authority -days 2"));
        std::fs::write(folder.path().join("extensions"), format!("subjectAltName=DNS:{host}\n")).unwrap();
        openssl(&format!("req {key} -keyout server.key -out server.csr -subj /CN={host}"));
        openssl(
            "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 2 -extfile extensions",
        );
        let certificate = CertificateDer::from_pem_file(folder.path().join("server.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(folder.path().join("server.key")).unwrap();
        Self { folder, certificate, key }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A server that answers each request with what it saw of it. `protocols`: what it offers, the preferred one first.
    fn server(&self, protocols: &[&str]) -> SocketAddr {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], self.key.clone_key())
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    let acceptor = acceptor.clone();
                    tokio::spawn(async move {
                        let Ok(stream) = acceptor.accept(stream).await else { return };
                        let two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                        let service = service_fn(mirror);
                        if two {
                            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                        } else {
                            let connection = hyper::server::conn::http1::Builder::new();
                            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                        }
                    });
                }
            });
        });
        address
    }
}

/// What is asked for here is answered without a look at the body.
const EARLY: &str = "/early";

async fn mirror(
    request: hyper::Request<hyper::body::Incoming>,
) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    if parts.uri.path() == EARLY {
        let mut answer = hyper::Response::new(Full::new("too large".into()));
        *answer.status_mut() = hyper::StatusCode::PAYLOAD_TOO_LARGE;
        return Ok(answer);
    }
    let body = body.collect().await.unwrap().to_bytes();
    let header = |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let text = format!(
        "{:?} {} {} host={:?} authority={:?} te={:?} key={:?} body={}",
        parts.version,
        parts.method,
        parts.uri.path_and_query().unwrap(),
        header("host"),
        parts.uri.authority().map(ToString::to_string),
        header("transfer-encoding"),
        header("x-api-key"),
        String::from_utf8_lossy(&body),
    );
    Ok(hyper::Response::new(Full::new(text.into())))
}

fn through(mut settings: Settings, tweak: impl FnOnce(&mut Settings)) -> Served {
    tweak(&mut settings);
    serve(settings, Arc::new(Open))
}

const REQUEST: &str = "POST /SECRET/v1/messages?beta=true HTTP/1.1\r\nhost: x\r\nx-api-key: mine\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";

#[test]
fn tls_with_an_authority_of_ones_own_speaks_the_servers_version() {
    let authority = Authority::new("localhost");
    for (protocols, expected) in [
        (
            &["h2", "http/1.1"][..],
            "HTTP/2.0 POST /v1/messages?beta=true host=None authority=Some(\"localhost:PORT\") te=None key=Some(\"mine\") body=abc",
        ),
        (
            &["http/1.1"],
            "HTTP/1.1 POST /v1/messages?beta=true host=Some(\"localhost:PORT\") authority=None te=Some(\"chunked\") key=Some(\"mine\") body=abc",
        ),
        (
            &[],
            "HTTP/1.1 POST /v1/messages?beta=true host=Some(\"localhost:PORT\") authority=None te=Some(\"chunked\") key=Some(\"mine\") body=abc",
        ),
    ] {
        let address = authority.server(protocols);
        let served = through(settings(&format!("https://localhost:{}", address.port())), |settings| {
            settings.ca_file = Some(authority.file());
        });
        let stream = served.connect();
        for _ in 0..3 {
            let answer = ask(&stream, REQUEST);
            assert_eq!(answer.status(), 200, "{}", answer.text());
            assert_eq!(answer.text(), expected.replace("PORT", &address.port().to_string()));
            assert_eq!(served.call().end, CallEnd::Complete);
        }
        served.join();
    }
}

#[test]
fn many_requests_share_a_connection_of_http_2() {
    let authority = Authority::new("localhost");
    let address = authority.server(&["h2"]);
    let served = through(settings(&format!("https://localhost:{}", address.port())), |settings| {
        settings.ca_file = Some(authority.file());
    });
    let at = served.address;
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(move || {
                let stream = connect(at);
                for _ in 0..5 {
                    assert!(ask(&stream, REQUEST).text().starts_with("HTTP/2.0 POST"));
                }
            });
        }
    });
    served.join();
}

#[test]
fn a_request_that_http_2_answers_early_may_be_sent_to_its_end() {
    const LENGTH: usize = 24 << 20;
    let authority = Authority::new("localhost");
    let address = authority.server(&["h2"]);
    let served = through(settings(&format!("https://localhost:{}", address.port())), |settings| {
        settings.ca_file = Some(authority.file());
    });
    let mut stream = served.connect();
    for _ in 0..3 {
        let head = format!("POST /{SECRET}{EARLY} HTTP/1.1\r\nhost: x\r\ncontent-length: {LENGTH}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&vec![b'q'; LENGTH]).unwrap();
        let answer = read_response(&mut BufReader::new(&stream), "POST").unwrap();
        assert_eq!((answer.status(), answer.text().as_str()), (413, "too large"));
    }
    drop(stream);
    served.join();
}

#[test]
fn a_websocket_to_a_server_of_http_2_alone_is_answered_426() {
    let authority = Authority::new("localhost");
    let address = authority.server(&["h2"]);
    let served = through(settings(&format!("https://localhost:{}", address.port())), |settings| {
        settings.ca_file = Some(authority.file());
    });
    let stream = served.connect();
    assert_eq!(ask(&stream, crate::websocket::HANDSHAKE).status(), 426);
    assert_eq!(ask(&stream, REQUEST).status(), 200, "plain requests work");
    served.join();
}

#[test]
fn a_server_that_nobody_vouches_for_is_not_spoken_to() {
    let authority = Authority::new("localhost");
    let address = authority.server(&["http/1.1"]);
    let served = through(settings(&format!("https://localhost:{}", address.port())), |_| {});
    let answer = ask(&served.connect(), REQUEST);
    assert_eq!(answer.status(), 502);
    assert!(answer.text().contains("certificate"), "{}", answer.text());
    assert_eq!(served.call().end, CallEnd::NotConnected);
    served.join();
    // Vouched for, but under another name.
    let other = Authority::new("elsewhere.example");
    let address = other.server(&["http/1.1"]);
    let served = through(settings(&format!("https://localhost:{}", address.port())), |settings| {
        settings.ca_file = Some(other.file());
    });
    assert!(ask(&served.connect(), REQUEST).text().contains("certificate"));
    served.join();
}

/// A proxy that is asked for a tunnel, and leads every tunnel to one address.
fn tunnels(to: SocketAddr) -> (SocketAddr, Receiver<(String, Option<String>)>) {
    let (seen, requests) = channel();
    let seen = Mutex::new(seen);
    let address = upstream(move |stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (start, headers) = read_head(&mut reader).unwrap();
        let credentials = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("proxy-authorization"));
        seen.lock().unwrap().send((start, credentials.map(|(_, value)| value.clone()))).unwrap();
        (&stream).write_all(b"HTTP/1.1 200 Connected\r\n\r\n").unwrap();
        let upstream = TcpStream::connect(to).unwrap();
        let back = (upstream.try_clone().unwrap(), stream.try_clone().unwrap());
        std::thread::spawn(move || pour(back.0, back.1));
        pour(stream, upstream);
    });
    (address, requests)
}

fn pour(mut from: TcpStream, mut to: TcpStream) {
    let mut piece = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        if to.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

#[test]
fn an_upstream_behind_tls_is_reached_through_the_users_proxy() {
    let authority = Authority::new("api.example");
    let server = authority.server(&["h2", "http/1.1"]);
    let (proxy, requests) = tunnels(server);
    let served = through(settings("https://api.example/base"), |settings| {
        settings.ca_file = Some(authority.file());
        settings.proxies.https = Some(format!("http://user:pass@{proxy}"));
    });
    let answer = ask(&served.connect(), REQUEST);
    assert!(answer.text().starts_with("HTTP/2.0 POST /base/v1/messages?beta=true"), "{}", answer.text());
    let (start, credentials) = requests.recv().unwrap();
    assert_eq!(start, "CONNECT api.example:443 HTTP/1.1");
    assert_eq!(credentials.as_deref(), Some("Basic dXNlcjpwYXNz"));
    served.join();
}

#[test]
fn an_upstream_without_tls_is_asked_for_by_its_whole_address() {
    let (proxy, requests) = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let served = through(settings("http://gateway.example:8080/base"), |settings| {
        settings.proxies.all = Some(format!("http://{proxy}"));
    });
    assert_eq!(ask(&served.connect(), REQUEST).status(), 200);
    let request = requests.recv().unwrap();
    assert_eq!(request.start, "POST http://gateway.example:8080/base/v1/messages?beta=true HTTP/1.1");
    assert_eq!(request.header("host"), Some("gateway.example:8080"));
    served.join();
}

#[test]
fn no_proxy_for_what_is_excepted_and_for_this_machine() {
    let (address, requests) = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let dead = "http://127.0.0.1:1".to_owned();
    let served = through(settings(&format!("http://{address}")), |settings| {
        settings.proxies.http = Some(dead.clone());
    });
    assert_eq!(ask(&served.connect(), REQUEST).status(), 200);
    requests.recv().unwrap();
    served.join();
    let served = through(settings("http://gateway.invalid"), |settings| {
        settings.proxies.http = Some(dead);
        settings.proxies.no = Some(".invalid".to_owned());
    });
    let answer = ask(&served.connect(), REQUEST);
    assert_eq!(answer.status(), 502);
    assert!(!answer.text().contains("through the proxy"), "{}", answer.text());
    served.join();
}

#[test]
fn a_proxys_password_is_in_no_error() {
    let served = through(settings("https://api.example"), |settings| {
        settings.proxies.https = Some("http://user:hush@127.0.0.1:1".to_owned());
    });
    let text = ask(&served.connect(), REQUEST).text();
    assert!(text.contains("through the proxy http://127.0.0.1:1") && !text.contains("hush"), "{text}");
    served.join();
}

#[test]
fn credentials_from_the_settings_replace_the_agents_own_and_are_not_reported() {
    let (address, requests) = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let served = through(settings(&format!("http://{address}")), |settings| {
        settings.routes[0].auth =
            Some(Auth::Static { header: "X-Api-Key".to_owned(), value: "ours".to_owned() });
        settings.routes[0].headers = vec![("x-team".to_owned(), "blue".to_owned())];
    });
    ask(
        &served.connect(),
        "POST /SECRET/v1/messages HTTP/1.1\r\nX-API-Key: mine\r\nhost: x\r\ncontent-length: 0\r\n\r\n",
    );
    let request = requests.recv().unwrap();
    assert_eq!(request.headers[0], ("X-API-Key".to_owned(), "ours".to_owned()));
    assert_eq!(request.header("x-team"), Some("blue"));
    let call = format!("{:?}", served.call());
    assert!(!call.contains("mine") && !call.contains("ours"), "{call}");
    served.join();
}

#[test]
fn a_401_passes_and_the_next_request_has_a_new_value() {
    let (address, requests) = answering(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n");
    let folder = tempfile::tempdir().unwrap();
    let script = format!("echo x >> {0}/runs; wc -l < {0}/runs", folder.path().display());
    let served = through(settings(&format!("http://{address}")), |settings| {
        let argv = ["sh", "-c", &script].map(str::to_owned).to_vec();
        settings.routes[0].auth = Some(Auth::Command { header: "authorization".to_owned(), argv });
    });
    for run in ["1", "2", "2"] {
        assert_eq!(ask(&served.connect(), REQUEST).status(), 401);
        assert_eq!(requests.recv().unwrap().header("authorization"), Some(run));
    }
    assert!(requests.try_recv().is_err(), "none was sent twice");
    served.join();
}

#[test]
fn a_missing_credential_is_named_and_nothing_is_sent() {
    let (address, requests) = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let served = through(settings(&format!("http://{address}")), |settings| {
        settings.routes[0].auth = Some(Auth::Missing { why: "set GATEWAY_KEY".to_owned() });
    });
    let answer = ask(&served.connect(), REQUEST);
    assert_eq!((answer.status(), answer.header("x-should-retry")), (502, Some("false")));
    let words = "no credential for the gateway: set GATEWAY_KEY; nothing was sent";
    assert!(answer.text().contains(words), "{}", answer.text());
    assert!(requests.try_recv().is_err());
    served.join();
}

#[test]
fn a_command_that_fails_is_named_and_nothing_is_sent() {
    let (address, requests) = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let served = through(settings(&format!("http://{address}")), |settings| {
        settings.routes[0].auth =
            Some(Auth::Command { header: "authorization".to_owned(), argv: vec!["false".to_owned()] });
    });
    let answer = ask(&served.connect(), REQUEST);
    assert_eq!(answer.status(), 502);
    assert!(
        answer.text().contains("false failed") && answer.text().contains("proxy.AGENT.auth"),
        "{}",
        answer.text()
    );
    assert!(requests.try_recv().is_err());
    served.join();
}

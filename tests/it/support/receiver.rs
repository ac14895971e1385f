//! A receiver of events on loopback that answers as a test wants: well, badly, or not at all.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::http::{Request, ask};

/// Bounds failures only.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A request as it came, its body unpacked.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    /// How it was packed.
    pub(crate) encoding: String,
    pub(crate) packed: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    fn of(request: Request) -> Self {
        let encoding = request.header("content-encoding").unwrap_or("identity").to_owned();
        let body = match encoding.as_str() {
            "zstd" => zstd::decode_all(request.bytes.as_slice()).unwrap(),
            "gzip" => {
                let mut body = Vec::new();
                flate2::read::GzDecoder::new(request.bytes.as_slice()).read_to_end(&mut body).unwrap();
                body
            }
            _ => request.bytes.clone(),
        };
        Self { path: request.target, headers: request.headers, encoding, packed: request.bytes, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Asks another receiver the same and gives its answer back.
    pub(crate) fn relay(&self, to: &str) -> Reply {
        match ask(to, "POST", &self.path, &self.headers, &self.packed) {
            Ok((status, _, body)) => Reply::Status(status, String::from_utf8_lossy(&body).into_owned()),
            Err(_) => Reply::Cut,
        }
    }

    /// Everything of it as one text, for those who look for something in it.
    pub(crate) fn text(&self) -> String {
        format!("{} {:?} {}", self.path, self.headers, String::from_utf8_lossy(&self.body))
    }
}

/// What a request is answered with.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Status(u16, String),
    /// With further header lines.
    Headed(u16, &'static str, String),
    Bytes(Vec<u8>, &'static str),
    /// The connection ends without an answer.
    Cut,
    /// No answer, until the other side gives up.
    Hang,
    /// A body that never ends.
    Endless,
    /// A byte of a body now and then, for ever.
    Drip,
}

type Answer = dyn Fn(&Received) -> Reply + Send + Sync;

pub(crate) struct Receiver {
    port: u16,
    received: Arc<(Mutex<Vec<Received>>, Condvar)>,
}

impl Receiver {
    /// Answers until the test ends.
    pub(crate) fn start(answer: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let received = Arc::<(Mutex<Vec<Received>>, Condvar)>::default();
        let answer: Arc<Answer> = Arc::new(answer);
        let noted = Arc::clone(&received);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, noted) = (Arc::clone(&answer), Arc::clone(&noted));
                std::thread::spawn(move || serve(stream, &*answer, &noted));
            }
        });
        Self { port, received }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.0.lock().unwrap().clone()
    }

    /// Waits until what was received shows it.
    pub(crate) fn wait<T>(&self, what: &str, mut find: impl FnMut(&[Received]) -> Option<T>) -> T {
        let deadline = Instant::now() + TIMEOUT;
        let (lock, changed) = &*self.received;
        let mut received = lock.lock().unwrap();
        loop {
            if let Some(found) = find(&received) {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited in vain for {what}: {:#?}", texts(&received));
            received = changed.wait_timeout(received, left).unwrap().0;
        }
    }
}

fn texts(received: &[Received]) -> Vec<String> {
    received.iter().map(Received::text).collect()
}

fn serve(mut stream: TcpStream, answer: &Answer, noted: &(Mutex<Vec<Received>>, Condvar)) {
    let Ok(Some(request)) = Request::read(&stream) else { return };
    let received = Received::of(request);
    // Noted before it is answered: a test that has seen the answer finds the request here.
    let reply = answer(&received);
    noted.0.lock().unwrap().push(received);
    noted.1.notify_all();
    // The other side may be gone or have had enough; that is its business.
    let _ = match reply {
        Reply::Status(status, body) => headed(&mut stream, status, "", body.as_bytes(), "application/json"),
        Reply::Headed(status, headers, body) => {
            headed(&mut stream, status, headers, body.as_bytes(), "application/json")
        }
        Reply::Bytes(body, content_type) => headed(&mut stream, 200, "", &body, content_type),
        Reply::Cut => Ok(()),
        Reply::Hang => stream.set_read_timeout(None).and_then(|()| stream.read(&mut [0]).map(drop)),
        Reply::Endless => endless(&mut stream, &[b'x'; 16_384], Duration::ZERO),
        Reply::Drip => endless(&mut stream, b"x", Duration::from_millis(50)),
    };
}

fn headed(
    stream: &mut TcpStream,
    status: u16,
    headers: &str,
    body: &[u8],
    content_type: &str,
) -> std::io::Result<()> {
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} Answer\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n{headers}connection: close\r\n\r\n"
    )?;
    stream.write_all(body)?;
    stream.flush()
}

fn endless(stream: &mut TcpStream, part: &[u8], pause: Duration) -> std::io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n")?;
    loop {
        stream.write_all(part)?;
        stream.flush()?;
        std::thread::sleep(pause); // this is what a slow peer does
    }
}

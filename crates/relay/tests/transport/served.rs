//! A proxy in this process, and an upstream that a test plays itself.

use std::future::Future;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use relay::{Activity, Call, Gate, Observer, Request, Route, Secret, Settings, Upstream, Verdict};
use tokio::sync::oneshot;

/// Long enough for a busy machine; nothing is asserted on it.
pub const PATIENCE: Duration = Duration::from_mins(1);

pub const SECRET: &str = "s3cret-0123456789";

pub struct Served {
    pub address: SocketAddr,
    pub calls: Receiver<Call>,
    pub activity: Activity,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Recorder(Mutex<Sender<Call>>);

impl Observer for Recorder {
    fn ended(&self, call: Call) {
        let _ = self.0.lock().unwrap().send(call);
    }
}

pub struct Open;

impl Gate for Open {
    fn admit<'a>(&'a self, _: &'a Request) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'a>> {
        Box::pin(std::future::ready(Verdict::Go))
    }
}

pub fn route(base: &str) -> Route {
    Route {
        name: String::new(),
        upstream: Upstream { base: base.parse().unwrap() },
        api: None,
        auth: None,
        headers: Vec::new(),
    }
}

pub fn settings(base: &str) -> Settings {
    Settings::new(Secret::new(SECRET.to_owned()), vec![route(base)])
}

/// In front of an upstream on this machine.
pub fn before(upstream: SocketAddr) -> Served {
    serve(settings(&format!("http://{upstream}")), Arc::new(Open))
}

pub fn serve(settings: Settings, gate: Arc<dyn Gate>) -> Served {
    serve_on(1, settings, gate)
}

/// Enough for the ends of a connection to be looked at by different threads.
pub const SEVERAL: usize = 2;

pub fn serve_on(threads: usize, settings: Settings, gate: Arc<dyn Gate>) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (report, calls) = channel();
    let (stop, stopped) = oneshot::channel();
    let activity = settings.activity.clone();
    let thread = std::thread::spawn(move || {
        let mut builder = match threads {
            1 => tokio::runtime::Builder::new_current_thread(),
            _ => tokio::runtime::Builder::new_multi_thread(),
        };
        let runtime = builder.worker_threads(threads).enable_all().build().unwrap();
        let recorder = Arc::new(Recorder(Mutex::new(report)));
        let stopped = async {
            let _ = stopped.await;
        };
        runtime.block_on(relay::serve(listener, settings, gate, recorder, stopped)).unwrap();
    });
    Served { address, calls, activity, stop: Some(stop), thread: Some(thread) }
}

impl Served {
    pub fn connect(&self) -> TcpStream {
        connect(self.address)
    }

    pub fn call(&self) -> Call {
        self.calls.recv_timeout(PATIENCE).expect("no call was reported")
    }

    /// Tells the listener to end.
    pub fn stop(&mut self) {
        self.stop.take();
    }

    pub fn join(mut self) {
        self.stop();
        self.thread.take().unwrap().join().unwrap();
    }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// An upstream: each connection is played by `play` on a thread of its own, with its number.
pub fn upstream(play: impl Fn(TcpStream, usize) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let play = Arc::new(play);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            let play = play.clone();
            std::thread::spawn(move || play(stream, number));
        }
    });
    address
}

/// An upstream that reads whole requests, hands them out, and answers each with the same bytes.
pub fn answering(answer: &'static [u8]) -> (SocketAddr, Receiver<crate::message::Message>) {
    use std::io::{BufReader, Write};
    let (seen, requests) = channel();
    let seen = Mutex::new(seen);
    let address = upstream(move |stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some(request) = crate::message::read_request(&mut reader) {
            let _ = seen.lock().unwrap().send(request);
            if (&stream).write_all(answer).is_err() {
                return;
            }
        }
    });
    (address, requests)
}

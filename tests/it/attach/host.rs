//! A host of the test's own: it speaks the protocol, and shows what the test wants to be seen.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use pty::PtySize;
use pty::screen::Screen;
use runtime::remote::address;
use runtime::remote::frames::{Frame, Frames};
use runtime::remote::protocol::{Attach, Ended, FromHost, Hello, Size, ToHost, VERSION, Welcome};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::commands::{Run, World};
use crate::support::pty::{Start, TIMEOUT, Terminal};

/// A session called `agent` with a host, and the terminal that attaches to it.
pub(super) struct Host {
    pub(super) world: World,
    pub(super) run: Run,
    listener: UnixListener,
}

impl Host {
    pub(super) fn new() -> Self {
        let mut world = World::new();
        let run = world.start("agent");
        let listener = address::bind(&world.home, run.id).unwrap();
        Self { world, run, listener }
    }

    /// `codemie attach` in a terminal of its own.
    pub(super) fn terminal(&self, args: &[&str]) -> Terminal {
        self.start(args).spawn()
    }

    pub(super) fn start(&self, args: &[&str]) -> Start {
        self.equip(Start::new([crate::sandbox::CODEMIE, "attach"].iter().chain(args)))
    }

    pub(super) fn equip(&self, start: Start) -> Start {
        start.env("HOME", self.world.sandbox.home()).env("CODEMIE_HOME", self.world.home.path())
    }

    /// The next client, welcomed.
    pub(super) fn accept(&self) -> Client {
        let mut ready = [PollFd::new(&self.listener, PollFlags::IN)];
        let timeout = Timespec::try_from(TIMEOUT).unwrap();
        assert_eq!(poll(&mut ready, Some(&timeout)).unwrap(), 1, "nobody connects");
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut client = Client { stream, frames: Frames::default() };
        assert_eq!(client.next(), Some(ToHost::Hello(Hello { version: VERSION })));
        client.send(&FromHost::Welcome(Welcome {
            version: VERSION,
            build: "test".into(),
            session: Some(self.run.session),
            name: "agent".into(),
            takes_terminals: false,
            answers: false,
        }));
        client
    }
}

pub(super) struct Client {
    stream: UnixStream,
    frames: Frames,
}

impl Client {
    /// `None`: it has gone.
    pub(super) fn next(&mut self) -> Option<ToHost> {
        loop {
            if let Some(message) = self.frames.take_next::<ToHost>().unwrap() {
                return Some(message);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.frames.add(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("the client sends nothing: {error}"),
            }
        }
    }

    /// Keys as they come, until they are `expected`.
    pub(super) fn expect_keys(&mut self, expected: &[u8]) {
        let mut keys = Vec::new();
        while keys.len() < expected.len() {
            match self.next() {
                Some(ToHost::Keys(bytes)) => keys.extend(bytes),
                other => panic!("{other:?} instead of keys"),
            }
        }
        assert_eq!(keys, expected);
    }

    pub(super) fn send(&mut self, message: &FromHost) {
        self.stream.write_all(&message.to_bytes()).unwrap();
    }

    pub(super) fn output(&mut self, text: &str) {
        self.send(&FromHost::Output(text.as_bytes().to_vec()));
    }

    /// Sends until the client takes no more; returns how many bytes went.
    pub(super) fn flood(&mut self, at_most: usize) -> usize {
        self.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        let frame = FromHost::Output(vec![b'x'; 60_000]).to_bytes();
        let mut sent = 0;
        while sent < at_most {
            match self.stream.write(&frame) {
                Ok(count) if count == frame.len() => sent += count,
                _ => break,
            }
        }
        sent
    }

    /// Waits for the request to attach and answers it with the key frame of a screen that was sent `output`.
    pub(super) fn attach(&mut self, output: &str) -> Attach {
        let Some(ToHost::Attach(attach)) = self.next() else { panic!("no request to attach") };
        let Size { rows, cols } = attach.size;
        let mut screen = Screen::new(PtySize { rows, cols, ..PtySize::default() }, 1000);
        screen.feed(output.as_bytes());
        self.send(&FromHost::KeyFrame(screen.key_frame()));
        attach
    }

    pub(super) fn end(&mut self, code: u8) {
        self.send(&FromHost::Ended(Ended { code, name: "agent".into() }));
    }
}

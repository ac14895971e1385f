//! The client's side of a connection to a host: one question, one answer, or an attachment.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::address;
use super::frames::{Frame, FrameError, Frames};
use super::protocol::{FromHost, Hello, Refused, ScreenText, ToHost, VERSION, Welcome};
use os::home::Home;
use types::{LiveState, RunId};

/// How long a host may take to answer what needs no waiting. It answers from memory; this bounds one that is stopped or swapped
/// out.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// No host serves the run: it runs in a terminal, or has ended.
    #[error("no background host serves this session")]
    NoHost,
    #[error("the session's host does not answer: {}", reason(.0))]
    Silent(io::Error),
    #[error("the session's host ended the connection")]
    Closed,
    #[error("the session's host sent {0}")]
    Frame(#[from] FrameError),
    #[error("{0}")]
    Refused(String),
}

impl RemoteError {
    /// The host took longer than it was given.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Silent(error) if is_timeout(error))
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn reason(error: &io::Error) -> String {
    if is_timeout(error) {
        "it is stopped (`kill -CONT` continues it), or the machine is very busy".to_owned()
    } else {
        error.to_string()
    }
}

impl From<io::Error> for RemoteError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Self::NoHost,
            _ => Self::Silent(error),
        }
    }
}

/// A connection that has been welcomed.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    frames: Frames,
    pub welcome: Welcome,
}

/// To be waited for together with others.
impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Connection {
    pub fn open(home: &Home, run: RunId) -> Result<Self, RemoteError> {
        Self::over(address::connect(home, run)?)
    }

    /// The same for a caller who has no more time than this.
    pub fn open_within(home: &Home, run: RunId, time: Duration) -> Result<Self, RemoteError> {
        Self::greet(address::connect(home, run)?, &[], ANSWER_TIMEOUT.min(time))
    }

    /// The same with a first message that needs no welcome before it: the host wakes once for both.
    pub fn open_saying(home: &Home, run: RunId, first: &ToHost) -> Result<Self, RemoteError> {
        Self::greet(address::connect(home, run)?, &first.to_bytes(), ANSWER_TIMEOUT)
    }

    /// Over a stream that somebody else connected.
    pub fn over(stream: UnixStream) -> Result<Self, RemoteError> {
        Self::greet(stream, &[], ANSWER_TIMEOUT)
    }

    fn greet(stream: UnixStream, first: &[u8], time: Duration) -> Result<Self, RemoteError> {
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        let mut connection = Self { stream, frames: Frames::default(), welcome: Welcome::default() };
        let hello = ToHost::Hello(Hello { version: VERSION }).to_bytes();
        connection.stream.write_all(&[&hello, first].concat()).map_err(RemoteError::Silent)?;
        match connection.hear(Some(time))? {
            FromHost::Welcome(welcome) => connection.welcome = welcome,
            FromHost::Refused(Refused { message }) => return Err(RemoteError::Refused(message)),
            _ => return Err(RemoteError::Closed),
        }
        Ok(connection)
    }

    pub fn say(&mut self, message: &ToHost) -> Result<(), RemoteError> {
        self.stream.write_all(&message.to_bytes()).map_err(RemoteError::Silent)
    }

    /// The next message; `None` as timeout waits for as long as the host lives.
    pub fn hear(&mut self, timeout: Option<Duration>) -> Result<FromHost, RemoteError> {
        self.stream.set_read_timeout(timeout.map(|timeout| timeout.max(Duration::from_millis(1))))?;
        loop {
            if let Some(message) = self.frames.take_next::<FromHost>()? {
                return Ok(message);
            }
            let mut bytes = [0; 16 * 1024];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(RemoteError::Closed),
                Ok(count) => self.frames.add(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(RemoteError::Silent(error)),
            }
        }
    }

    /// Asks something that is answered within `further` beyond the usual time.
    pub fn ask(&mut self, question: &ToHost, further: Duration) -> Result<FromHost, RemoteError> {
        self.say(question)?;
        match self.hear(Some(ANSWER_TIMEOUT + further))? {
            FromHost::Refused(Refused { message }) => Err(RemoteError::Refused(message)),
            answer => Ok(answer),
        }
    }

    /// An answer of another kind than the question's.
    pub fn unexpected() -> RemoteError {
        RemoteError::Refused("the session's host answered something else than was asked".to_owned())
    }

    /// For an attachment: the stream, and what has arrived of it already.
    pub fn into_parts(self) -> (UnixStream, Frames) {
        (self.stream, self.frames)
    }
}

/// The screen of a run, row by row.
pub fn screen(home: &Home, run: RunId) -> Result<Vec<String>, RemoteError> {
    screen_text(home, run).map(|screen| screen.rows)
}

/// The same, with what the agent asks on it.
pub fn screen_text(home: &Home, run: RunId) -> Result<ScreenText, RemoteError> {
    match Connection::open(home, run)?.ask(&ToHost::Screen, Duration::ZERO)? {
        FromHost::Screen(screen) => Ok(screen),
        _ => Err(Connection::unexpected()),
    }
}

/// What the agent of a run does now.
pub fn state(home: &Home, run: RunId) -> Result<LiveState, RemoteError> {
    match Connection::open(home, run)?.ask(&ToHost::State, Duration::ZERO)? {
        FromHost::State(state) => Ok(state),
        _ => Err(Connection::unexpected()),
    }
}

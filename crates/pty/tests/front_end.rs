//! The pump with other front ends than a user's terminal: a fixed size, scripted input, collected output. This is how a
//! background host runs a program.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pty::front_end::{FrontEnd, Input, JobControl};
use pty::process::{Processes, SystemProcesses};
use pty::tap::{OutputReader, output_tap};
use pty::{Observer, ProgramEnd, ProgramExit, ProgramSpec, ProgramStarted, PtySize, Tap, ask_to_end, run_on};
use types::{Pid, ProcessId, StartTime};

const SIZE: PtySize = PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 };

/// Signal handlers belong to the process, so one program runs at a time.
static RUNNING: Mutex<()> = Mutex::new(());

#[derive(Clone, Copy, Debug)]
enum Action {
    Type(&'static str),
    Resize(u16, u16),
    Leave,
    /// As another codemie does that stops the session, with this grace in milliseconds.
    Stop(u64),
}

/// Acts when certain output has appeared, and keeps all of it.
struct Scripted {
    size: PtySize,
    output: Vec<u8>,
    /// The output waited for, and what is done then, step by step.
    script: VecDeque<(&'static str, Vec<Action>)>,
    /// Where the output begins that was not yet searched for the next step's.
    searched: usize,
    due: VecDeque<Action>,
    /// Readable while an action is due.
    input: UnixStream,
    wake: UnixStream,
    /// So many bytes are taken at a time, and nothing every other time.
    takes: usize,
    paused: bool,
}

impl Scripted {
    fn new(script: &[(&'static str, &[Action])]) -> Self {
        let (input, wake) = UnixStream::pair().unwrap();
        input.set_nonblocking(true).unwrap();
        let script = script.iter().map(|(output, actions)| (*output, actions.to_vec())).collect();
        Self {
            size: SIZE,
            output: Vec::new(),
            script,
            searched: 0,
            due: VecDeque::new(),
            input,
            wake,
            takes: usize::MAX,
            paused: false,
        }
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.output).unwrap()
    }

    fn proceed(&mut self) {
        while let Some((wanted, _)) = self.script.front() {
            let unread = &self.output[self.searched..];
            let Some(at) = unread.windows(wanted.len()).position(|window| window == wanted.as_bytes()) else {
                return;
            };
            self.searched += at + wanted.len();
            self.due.extend(self.script.pop_front().unwrap().1);
            self.wake.write_all(b"!").unwrap();
        }
    }
}

impl FrontEnd for Scripted {
    fn input(&self) -> Option<BorrowedFd<'_>> {
        Some(self.input.as_fd())
    }

    fn output(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wake.as_fd())
    }

    fn size(&self) -> io::Result<PtySize> {
        Ok(self.size)
    }

    fn read(&mut self, buffer: &mut [u8]) -> Input {
        match self.due.pop_front() {
            Some(Action::Type(keys)) => {
                buffer[..keys.len()].copy_from_slice(keys.as_bytes());
                Input::Bytes(keys.len())
            }
            Some(Action::Resize(rows, cols)) => {
                self.size = PtySize { rows, cols, ..self.size };
                Input::Resized
            }
            Some(Action::Leave) => Input::Gone,
            Some(Action::Stop(grace)) => {
                let own = Pid(i32::try_from(std::process::id()).unwrap());
                let own = SystemProcesses.identify(own).unwrap();
                let other = ProcessId { start: StartTime(own.start.0 + 1), ..own };
                assert!(!ask_to_end(other, Duration::ZERO), "a later process with the pid is not asked");
                assert!(ask_to_end(own, Duration::from_millis(grace)));
                Input::Nothing
            }
            None => {
                while self.input.read(&mut [0; 16]).is_ok_and(|count| count > 0) {}
                Input::Nothing
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.paused = self.takes < usize::MAX && !self.paused;
        let count = if self.paused { 0 } else { bytes.len().min(self.takes) };
        self.output.extend_from_slice(&bytes[..count]);
        self.proceed();
        Ok(count)
    }
}

impl JobControl for Scripted {}

/// Has no input and takes no output.
struct Nobody;

impl FrontEnd for Nobody {
    fn input(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn output(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn size(&self) -> io::Result<PtySize> {
        Ok(SIZE)
    }

    fn read(&mut self, _buffer: &mut [u8]) -> Input {
        Input::Nothing
    }

    fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        Ok(0)
    }
}

impl JobControl for Nobody {}

#[derive(Default)]
struct Observed {
    tap: Option<Tap>,
    started: Option<ProgramStarted>,
}

impl Observer for Observed {
    fn forked(&mut self) -> Option<Tap> {
        self.tap.take()
    }

    fn started(&mut self, program: ProgramStarted) {
        self.started = Some(program);
    }
}

fn spec(program: &str, args: &[&str]) -> ProgramSpec {
    ProgramSpec {
        program: program.into(),
        arg0: program.into(),
        args: args.iter().map(Into::into).collect(),
        set: vec![("WRAPPER".into(), std::process::id().to_string().into())],
        remove: Vec::new(),
    }
}

fn run(front: &mut impl FrontEnd, observed: &mut Observed, spec: &ProgramSpec) -> ProgramEnd {
    let _running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    run_on(front, spec, observed).unwrap()
}

/// Runs a shell script on the front end.
fn shell(front: &mut impl FrontEnd, script: &str) -> ProgramEnd {
    let mut observed = Observed::default();
    let end = run(front, &mut observed, &spec("sh", &["-c", script]));
    assert_eq!(observed.started.map(|program| program.pid), end.pid);
    end
}

#[test]
fn program_has_the_fixed_size_and_its_exit_code_is_reported() {
    let mut front = Scripted::new(&[]);
    let end = shell(&mut front, "stty size; test -t 0 && test -t 1 && test -t 2 && exit 7");
    assert_eq!((end.exit, end.asked), (ProgramExit::Exited(7), false));
    assert_eq!(front.text(), "24 80\r\n");
}

#[test]
fn new_size_reaches_the_program_before_the_keys_typed_after_it() {
    let actions = [Action::Resize(24, 80), Action::Resize(50, 132), Action::Type("go\n")];
    let mut front = Scripted::new(&[("ready\r\n", &actions)]);
    // A shell's read may fail at the signal.
    let script =
        "stty -echo; trap 'echo resized' WINCH; echo ready; until read x; do :; done; echo $x; stty size";
    let end = shell(&mut front, script);
    assert_eq!(end.exit, ProgramExit::Exited(0));
    // One change, one signal; the shell handles it before or after the read.
    assert_eq!(front.text().matches("resized").count(), 1, "{}", front.text());
    assert_eq!(front.text().replace("resized\r\n", ""), "ready\r\ngo\r\n50 132\r\n");
}

#[test]
fn signal_to_the_host_reaches_the_program() {
    let mut front = Scripted::new(&[]);
    let script = "trap 'echo caught; exit 3' TERM; kill -TERM $WRAPPER; while :; do sleep 0.01; done";
    let end = shell(&mut front, script);
    assert_eq!((end.exit, end.asked), (ProgramExit::Exited(3), true));
    assert_eq!(front.text(), "caught\r\n");
}

#[test]
fn death_by_signal_is_reported_and_its_modes_are_undone() {
    let mut front = Scripted::new(&[]);
    let end = shell(&mut front, "printf 'on\\033[?2004h'; kill -KILL $$");
    assert_eq!((end.exit, end.asked), (ProgramExit::Killed(libc::SIGKILL), false));
    assert_eq!(front.text(), "on\x1b[?2004h\x1b[?2004l");
}

#[test]
fn typed_interrupt_key_reaches_the_program_alone() {
    let mut front = Scripted::new(&[("ready", &[Action::Type("\x03")])]);
    let end = shell(&mut front, "echo ready; exec sleep 100");
    assert_eq!(end.exit, ProgramExit::Killed(libc::SIGINT));
    assert_eq!(front.text(), "ready\r\n^C");
}

#[test]
fn typed_end_of_file_ends_a_reading_program() {
    let mut front = Scripted::new(&[("ready\r\n", &[Action::Type("text\n"), Action::Type("\x04")])]);
    let end = shell(&mut front, "echo ready; exec cat");
    assert_eq!(end.exit, ProgramExit::Exited(0));
    // The terminal's echo, and cat's output.
    assert_eq!(front.text(), "ready\r\ntext\r\ntext\r\n");
}

#[test]
fn output_arrives_whole_and_in_order_at_a_front_end_that_takes_little_at_a_time() {
    let mut front = Scripted { takes: 100, ..Scripted::new(&[]) };
    let end = shell(&mut front, "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); echo $i; done; exit 1");
    assert_eq!(end.exit, ProgramExit::Exited(1));
    let expected: String = (1..=5000).map(|i: u32| i.to_string() + "\r\n").collect();
    assert!(front.text() == expected, "{} bytes of {}", front.output.len(), expected.len());
}

#[test]
fn program_is_hung_up_when_its_front_end_leaves() {
    let mut front = Scripted::new(&[("ready", &[Action::Leave])]);
    let end = shell(&mut front, "trap 'exit 5' HUP; echo ready; while :; do sleep 0.01; done");
    assert_eq!((end.exit, end.asked), (ProgramExit::Exited(5), true));
}

#[test]
fn another_codemie_stops_the_program_and_sets_how_long_it_may_take() {
    let mut front = Scripted::new(&[("ready", &[Action::Stop(60_000)])]);
    let end = shell(&mut front, "trap 'exit 6' TERM; echo ready; while :; do sleep 0.01; done");
    assert_eq!((end.exit, end.stopped), (ProgramExit::Exited(6), true));
    if cfg!(target_os = "linux") {
        let mut front = Scripted::new(&[("ready", &[Action::Stop(200)])]);
        let begun = Instant::now();
        let end = shell(&mut front, "trap '' TERM; echo ready; while :; do sleep 0.01; done");
        assert_eq!((end.exit, end.stopped), (ProgramExit::Killed(libc::SIGKILL), true));
        assert!(begun.elapsed() < Duration::from_secs(8), "not only after the usual ten seconds");
    }
}

#[test]
fn program_that_stops_itself_is_continued() {
    let mut front = Scripted::new(&[]);
    let end = shell(&mut front, "kill -STOP $$; kill -TSTP $$; echo continued");
    assert_eq!(end.exit, ProgramExit::Exited(0));
    assert_eq!(front.text(), "continued\r\n");
}

#[test]
fn missing_program_is_reported_with_its_error() {
    let mut observed = Observed::default();
    let end = run(&mut Scripted::new(&[]), &mut observed, &spec("./no-such-program", &[]));
    assert_eq!((end.exit, observed.started), (ProgramExit::NotStarted(libc::ENOENT), None));
}

#[test]
fn program_without_any_viewer_runs_to_its_end() {
    let end = shell(&mut Nobody, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo $i; done; exit 4");
    assert_eq!(end.exit, ProgramExit::Exited(4));
}

/// A background host in small: viewers on a Unix socket come and go, each sends keys and sizes, and all get the output.
#[cfg(target_os = "linux")]
mod host {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use rustix::event::epoll;

    use super::*;

    /// A message of a viewer: a key and a zero, or a size; the first byte says which.
    type Message = [u8; 3];
    const KEY: u8 = b'k';
    const RESIZE: u8 = b's';

    struct Host {
        listener: UnixListener,
        viewers: Vec<UnixStream>,
        /// Stands for the listener and all viewers.
        ready: OwnedFd,
        size: PtySize,
        history: Vec<u8>,
    }

    impl Host {
        fn listen(path: &Path) -> Self {
            let listener = UnixListener::bind(path).unwrap();
            listener.set_nonblocking(true).unwrap();
            let ready = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
            watch(&ready, &listener);
            Self { listener, viewers: Vec::new(), ready, size: SIZE, history: Vec::new() }
        }

        fn next_message(&mut self) -> Option<Message> {
            let mut received = None;
            self.viewers.retain_mut(|viewer| {
                let mut message = [0; 3];
                match viewer.read(if received.is_none() { &mut message } else { &mut [] }) {
                    Ok(0) => received.is_some(),
                    Ok(_) => {
                        received = Some(message);
                        true
                    }
                    Err(error) => error.kind() == io::ErrorKind::WouldBlock,
                }
            });
            received
        }
    }

    fn watch(ready: &OwnedFd, source: impl AsFd) {
        epoll::add(ready, source, epoll::EventData::new_u64(0), epoll::EventFlags::IN).unwrap();
    }

    impl FrontEnd for Host {
        fn input(&self) -> Option<BorrowedFd<'_>> {
            Some(self.ready.as_fd())
        }

        fn output(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        fn size(&self) -> io::Result<PtySize> {
            Ok(self.size)
        }

        fn read(&mut self, buffer: &mut [u8]) -> Input {
            while let Ok((mut viewer, _)) = self.listener.accept() {
                viewer.set_nonblocking(true).unwrap();
                viewer.write_all(&self.history).unwrap();
                watch(&self.ready, &viewer);
                self.viewers.push(viewer);
            }
            match self.next_message() {
                Some([KEY, key, _]) => {
                    buffer[0] = key;
                    Input::Bytes(1)
                }
                Some([RESIZE, rows, cols]) => {
                    self.size = PtySize { rows: rows.into(), cols: cols.into(), ..SIZE };
                    Input::Resized
                }
                _ => Input::Nothing,
            }
        }

        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.history.extend_from_slice(bytes);
            // A viewer that does not keep up is disconnected.
            self.viewers.retain_mut(|viewer| viewer.write(bytes).is_ok_and(|count| count == bytes.len()));
            Ok(bytes.len())
        }
    }

    impl JobControl for Host {}

    struct Viewer(UnixStream);

    impl Viewer {
        fn send(&mut self, message: Message) {
            self.0.write_all(&message).unwrap();
        }

        fn type_line(&mut self, line: &str) {
            line.bytes().chain([b'\n']).for_each(|key| self.send([KEY, key, 0]));
        }

        fn read_until(&mut self, wanted: &str) {
            let mut seen = Vec::new();
            let mut byte = [0];
            while !seen.ends_with(wanted.as_bytes()) {
                assert_eq!(self.0.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&seen));
                seen.push(byte[0]);
            }
        }
    }

    #[test]
    fn program_outlives_its_viewers_and_follows_the_size_of_the_one_that_sent_it_last() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host");
        let mut host = Host::listen(&path);
        let connect = move || Viewer(UnixStream::connect(&path).unwrap());
        let viewers = std::thread::spawn(move || {
            let mut first = connect();
            first.read_until("ready");
            first.send([RESIZE, 30, 100]);
            first.type_line("size");
            first.read_until("30 100");
            drop(first);
            let mut second = connect();
            second.read_until("30 100");
            let mut third = connect();
            third.read_until("30 100");
            second.send([RESIZE, 50, 120]);
            second.type_line("size");
            second.read_until("50 120");
            third.read_until("50 120");
            drop(second);
            third.type_line("end");
        });
        let script = "stty -echo; echo ready; while read x && [ $x = size ]; do stty size; done; exit 9";
        let end = shell(&mut host, script);
        viewers.join().unwrap();
        assert_eq!((end.exit, end.asked), (ProgramExit::Exited(9), false));
        assert_eq!(host.history, b"ready\r\n30 100\r\n50 120\r\n");
    }
}

/// Runs a script with an output tap of this capacity. Returns what the front end got, and the reader.
fn tapped(front: &mut Scripted, capacity: usize, notify: impl Fn() + 'static, script: &str) -> OutputReader {
    let (tap, reader) = output_tap(capacity, notify);
    let mut observed = Observed { tap: Some(Tap::new(|| {}).with_output(tap)), started: None };
    run(front, &mut observed, &spec("sh", &["-c", script]));
    reader
}

#[test]
fn tap_sees_the_output_that_the_front_end_took_from_the_first_byte_to_the_last() {
    let notified = Rc::new(Cell::new(0));
    let count = Rc::clone(&notified);
    let mut front = Scripted::new(&[]);
    let script =
        "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo $i; done; printf '\\033[?25l'; kill -KILL $$";
    let mut reader = tapped(&mut front, 1 << 20, move || count.set(count.get() + 1), script);
    let seen = reader.take();
    assert_eq!((seen.lost, seen.ended, notified.get()), (0, true, 2));
    assert!(seen.bytes == front.output, "{} bytes of {}", seen.bytes.len(), front.output.len());
    assert!(front.text().ends_with("\x1b[?25h"), "modes that were undone are output, too");
}

#[test]
fn tap_that_nobody_reads_holds_nothing_back_and_counts_what_was_lost() {
    let mut front = Scripted::new(&[]);
    let script = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo $i; done";
    let mut reader = tapped(&mut front, 100, || {}, script);
    let kept = reader.take();
    assert_eq!((kept.lost, kept.ended), (0, false));
    assert_eq!(kept.bytes, &front.output[..100]);
    let lost = reader.take();
    assert_eq!((lost.lost, lost.bytes, lost.ended), (front.output.len() as u64 - 100, &b""[..], true));
}

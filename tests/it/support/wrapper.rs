//! How a test gets its command wrapped: not at all, by codemie, or by the bad wrappers that show what the tests can see.
use super::processes;
use super::pty::{Start, TIMEOUT};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrapper {
    Bare,
    Codemie,
    Naive,
    Careless,
}

/// A wrapper, a home folder for it, and how long a test waits before it gives up.
#[derive(Debug)]
pub(crate) struct Bench {
    wrapper: Wrapper,
    home: TempDir,
    timeout: Duration,
}

impl Bench {
    pub(crate) fn new(wrapper: Wrapper) -> Self {
        Self::with_timeout(wrapper, TIMEOUT)
    }

    pub(crate) fn with_timeout(wrapper: Wrapper, timeout: Duration) -> Self {
        Self { wrapper, home: tempfile::tempdir().unwrap(), timeout }
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// A folder of this test's own, and the wrapper's `HOME`.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// The arguments that run `command` wrapped.
    pub(crate) fn wrap<A: AsRef<OsStr>>(&self, command: &[A]) -> Vec<OsString> {
        let front: Vec<OsString> = match self.wrapper {
            Wrapper::Bare => Vec::new(),
            Wrapper::Codemie => vec![env!("CARGO_BIN_EXE_codemie").into(), "run".into(), "--".into()],
            Wrapper::Naive => vec![example("naive").into()],
            Wrapper::Careless => vec![example("careless").into()],
        };
        front.into_iter().chain(command.iter().map(|arg| arg.as_ref().to_owned())).collect()
    }

    /// The wrapped command, as the first process of a terminal.
    pub(crate) fn start<A: AsRef<OsStr>>(&self, command: &[A]) -> Start {
        self.equip(Start::new(self.wrap(command)))
    }

    /// The wrapped command after a piece of shell script that prepares its surroundings: `{}` stands for the command.
    pub(crate) fn start_in<A: AsRef<OsStr>>(&self, script: &str, command: &[A]) -> Start {
        let script = script.replace("{}", "\"$@\"");
        let front = [OsString::from("sh"), "-c".into(), script.into(), "sh".into()];
        self.equip(Start::new(front.into_iter().chain(self.wrap(command))))
    }

    /// An interactive shell in which the wrapped command can be typed.
    pub(crate) fn shell(&self) -> Start {
        self.equip(Start::shell())
    }

    /// The wrapped command as one types it.
    pub(crate) fn line<A: AsRef<OsStr>>(&self, command: &[A]) -> OsString {
        let words: Vec<OsString> = self.wrap(command).iter().map(|word| quote(word)).collect();
        words.join(OsStr::new(" "))
    }

    fn equip(&self, start: Start) -> Start {
        start
            .env("HOME", self.home())
            .env("CODEMIE_HOME", self.home().join(".codemie"))
            .env("CODEMIE_QUIET", "1")
            .timeout(self.timeout)
    }
}

/// Ends processes that a bad wrapper has left behind, outside of every session that the terminal knows of.
impl Drop for Bench {
    fn drop(&mut self) {
        processes::kill_started_in(self.home());
    }
}

/// A program from the examples, which `cargo test` builds beside the tests.
pub(crate) fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let path = tests.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is missing: cargo build --examples", path.display());
    path
}

fn quote(word: &OsStr) -> OsString {
    let inner: Vec<u8> = word.as_bytes().split(|byte| *byte == b'\'').collect::<Vec<_>>().join(&b"'\\''"[..]);
    OsString::from_vec([b"'", inner.as_slice(), b"'"].concat())
}

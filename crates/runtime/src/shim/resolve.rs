//! Finding the real binary of a name: the first on PATH, as execvp would walk it, that is not us.
//!
//! This is on the way from argv0 to exec, so a successful search builds no list; only a failed one walks PATH again
//! to say what was seen at each place.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use super::files::{Files, OwnBinary};
use super::override_variable;

/// Makes a script a codemie shim, when it stands within its first bytes.
pub const SCRIPT_MARKER: &[u8] = b"# codemie-shim-v1";

/// How far into a script the marker is looked for.
const HEAD: usize = 256;

/// What execvp uses when PATH is not set (glibc since 2.24).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// What was found at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// A program that is not codemie.
    Real,
    NotFound,
    NotExecutable,
    Directory,
    SameFile,
    /// Another installation of codemie behind a symlink: not the running file, and no agent either.
    OtherCopy,
    ScriptShim,
    Unreachable(io::ErrorKind),
}

impl PathKind {
    /// Whether something is known to be there. No shell finds anything in a folder that cannot be searched, although execvp
    /// reports a missing permission then.
    fn is_something(self) -> bool {
        !matches!(self, Self::NotFound | Self::Unreachable(_))
    }
}

impl fmt::Display for PathKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Real => "not codemie",
            Self::NotFound => "not found",
            Self::NotExecutable => "not executable",
            Self::Directory => "is a directory",
            Self::SameFile => "is codemie itself (same file)",
            Self::OtherCopy => "is another copy of codemie",
            Self::ScriptShim => "is a codemie script shim (marker)",
            Self::Unreachable(kind) => return write!(f, "cannot be looked at ({kind})"),
        })
    }
}

/// One place and what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchedPath {
    pub path: PathBuf,
    pub kind: PathKind,
}

/// What to look for, and everything the answer depends on besides the file system.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    pub name: &'a str,
    /// Where the user says it is, and where that is set (a variable, the config file). It is obeyed or refused; there is no
    /// fallback.
    pub explicit: Option<(&'a OsStr, &'a str)>,
    pub path: Option<&'a OsStr>,
    /// Where relative paths begin; `None`: in the folder of this process.
    pub folder: Option<&'a Path>,
    pub ourselves: &'a OwnBinary,
}

impl Query<'_> {
    pub fn resolve(&self, files: &impl Files) -> Result<PathBuf, NotFound> {
        if let Some(found) = self.first_real(files) {
            return Ok(found);
        }
        let searched = self.survey(files);
        // It may have appeared between the two walks.
        match searched.iter().find(|place| place.kind == PathKind::Real) {
            Some(place) => Ok(place.path.clone()),
            None => Err(self.not_found(searched, Cause::Nowhere)),
        }
    }

    /// Every place in the order of the search, whatever is there.
    pub fn survey(&self, files: &impl Files) -> Vec<SearchedPath> {
        let mut places = Vec::new();
        self.walk(|path| {
            places.push(SearchedPath {
                path: path.to_owned(),
                kind: judge(path, self.name, self.ourselves, files),
            });
            false
        });
        places
    }

    /// Whether anything of that name is there, whether it can be run or not.
    pub fn finds_something(&self, files: &impl Files) -> bool {
        self.survey(files).iter().any(|place| place.kind.is_something())
    }

    /// The error for a call that keeps coming back to us.
    pub fn stopped_loop(&self, files: &impl Files) -> NotFound {
        self.not_found(self.survey(files), Cause::Loop)
    }

    fn first_real(&self, files: &impl Files) -> Option<PathBuf> {
        let mut found = None;
        self.walk(|path| {
            let real = judge(path, self.name, self.ourselves, files) == PathKind::Real;
            if real {
                found = Some(path.to_owned());
            }
            real
        });
        found
    }

    /// Visits each place until `visit` says stop. One buffer serves all of them.
    fn walk(&self, mut visit: impl FnMut(&Path) -> bool) {
        let wanted = self.explicit.map_or(OsStr::new(self.name), |(value, _)| value);
        if wanted.as_bytes().contains(&b'/') {
            match self.folder {
                Some(folder) => visit(&folder.join(wanted)),
                None => visit(Path::new(wanted)),
            };
            return;
        }
        let path = self.path.unwrap_or(OsStr::new(DEFAULT_PATH));
        let mut place = OsString::with_capacity(128);
        for folder in path.as_bytes().split(|&byte| byte == b':') {
            place.clear();
            if let Some(base) = self.folder.filter(|_| folder.first() != Some(&b'/')) {
                place.push(base);
                place.push("/");
            }
            // An empty element is the working directory; with the dot the result is a path for every exec.
            place.push(if folder.is_empty() { OsStr::new(".") } else { OsStr::from_bytes(folder) });
            if place.as_bytes().last() != Some(&b'/') {
                place.push("/");
            }
            place.push(wanted);
            if visit(Path::new(&place)) {
                return;
            }
        }
    }

    fn not_found(&self, searched: Vec<SearchedPath>, cause: Cause) -> NotFound {
        NotFound {
            name: self.name.to_owned(),
            explicit: self.explicit.map(|(value, source)| (value.to_owned(), source.to_owned())),
            searched,
            cause,
        }
    }
}

/// What stands at `path`, cheapest question first.
pub fn judge(path: &Path, name: &str, ourselves: &OwnBinary, files: &impl Files) -> PathKind {
    let seen = match files.stat(path) {
        Ok(seen) => seen,
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => return PathKind::NotFound,
            kind => return PathKind::Unreachable(kind),
        },
    };
    if seen.is_directory {
        return PathKind::Directory;
    }
    if ourselves.file == Some(seen.id) {
        return PathKind::SameFile;
    }
    if !seen.is_regular || !files.executable(path) {
        return PathKind::NotExecutable;
    }
    if let Ok(canonical) = files.canonicalize(path) {
        // Equal though the inodes differ: our file was replaced by an upgrade while we run.
        if ourselves.canonical.as_ref() == Some(&canonical) {
            return PathKind::SameFile;
        }
        if name != "codemie" && canonical.file_name() == Some(OsStr::new("codemie")) {
            return PathKind::OtherCopy;
        }
    }
    if is_script_shim(path, files) {
        return PathKind::ScriptShim;
    }
    PathKind::Real
}

/// A program that may be executed but not read is taken for what it says it is.
fn is_script_shim(path: &Path, files: &impl Files) -> bool {
    let mut buffer = [0; HEAD];
    let Ok(length) = files.head(path, &mut buffer) else { return false };
    let head = &buffer[..length];
    head.starts_with(b"#!") && memchr::memmem::find(head, SCRIPT_MARKER).is_some()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Nowhere,
    Loop,
}

/// No real binary: what was looked at, and why each was not it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotFound {
    pub name: String,
    pub explicit: Option<(OsString, String)>,
    pub searched: Vec<SearchedPath>,
    cause: Cause,
}

impl NotFound {
    /// As a shell would have it: 126 when something was there but could not be executed, 127 when nothing was. A path that
    /// the user named outright is 126 for the want of a permission, too.
    pub fn exit_code(&self) -> u8 {
        let path = self.explicit.as_ref().is_some_and(|(value, _)| value.as_bytes().contains(&b'/'));
        let denied = self.searched.iter().any(|place| match place.kind {
            PathKind::NotExecutable | PathKind::Directory => true,
            PathKind::Unreachable(kind) => path && kind == io::ErrorKind::PermissionDenied,
            _ => false,
        });
        if self.cause == Cause::Nowhere && denied { 126 } else { 127 }
    }
}

impl std::error::Error for NotFound {}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, variable) = (&self.name, override_variable(&self.name));
        match (self.cause, &self.explicit) {
            (Cause::Loop, _) => writeln!(
                f,
                "the call of {name} came back to codemie again and again: two shim managers point at each other."
            )?,
            (Cause::Nowhere, Some((value, source))) => {
                writeln!(f, "{source} names {} for {name}, which cannot be run.", value.display())?;
            }
            (Cause::Nowhere, None) => writeln!(f, "the real {name} was not found.")?,
        }
        writeln!(f, "Searched:")?;
        let width = self.searched.iter().map(|place| place.path.as_os_str().len()).max().unwrap_or(0);
        for SearchedPath { path, kind } in &self.searched {
            // A format's width ends the program beyond 65,535, and PATH may be longer.
            let blanks = " ".repeat(width.saturating_sub(path.as_os_str().len()));
            writeln!(f, "  {}{blanks}  {kind}", path.display())?;
        }
        match (self.cause, &self.explicit) {
            (Cause::Loop, _) => {
                write!(f, "Set {variable} to the real binary, or take the other manager's {name} off PATH.")
            }
            (Cause::Nowhere, Some((_, source))) => {
                write!(f, "Correct {source}, or remove it to search PATH.")
            }
            (Cause::Nowhere, None) => write!(f, "Install {name}, or set {variable} to where it is."),
        }
    }
}

// Counting how often a call has come back to us without reaching an agent.
//
// Our shim runs mise's, mise's runs ours, and so on. Neither can see it, so a counter travels in the environment. But
// an agent that starts an agent travels through us as well, any number of levels deep, and is no loop. The difference:
// a shim hands its arguments on unchanged, an agent makes its own. So the variable carries the counter together with a
// fingerprint of the call that was passed on, and only the very same call counts further.

/// Holds `ROUNDS`, or `ROUNDS:NESTED:FINGERPRINT`.
pub const VARIABLE: &str = "CODEMIE_SHIM_DEPTH";

/// Two managers that point at each other need one round to be a loop; a chain of honest ones is never this long.
const MAX_ROUNDS: u32 = 4;

/// The backstop for a loop whose managers change the arguments each time. No honest nesting of agents is this deep.
const MAX_NESTED: u32 = 32;

/// The value that stops any call which comes back to us, whichever program passes it on.
pub fn at_its_end() -> String {
    MAX_ROUNDS.to_string()
}

/// Where this call stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    rounds: u32,
    nested: u32,
}

impl Depth {
    /// Reads the variable as the call arrives: `args` are those we were given, without our own name.
    pub fn arriving<A: AsRef<OsStr>>(
        variable: Option<&OsStr>,
        name: &str,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        let Some(text) = variable.and_then(OsStr::to_str) else { return Self::default() };
        let mut parts = text.split(':');
        let Some(rounds) = parts.next().and_then(|part| part.parse().ok()) else { return Self::default() };
        let nested = parts.next().and_then(|part| part.parse().ok()).unwrap_or(rounds);
        let same_call = match parts.next() {
            Some(passed_on) => u64::from_str_radix(passed_on, 16) == Ok(fingerprint(name, args)),
            None => true,
        };
        Self { rounds: if same_call { rounds } else { 0 }, nested }
    }

    /// Whether to stop here instead of going round once more.
    pub fn exhausted(self) -> bool {
        self.rounds >= MAX_ROUNDS || self.nested >= MAX_NESTED
    }

    /// The variable's value for the program that is started with `args`.
    pub fn leaving<A: AsRef<OsStr>>(self, name: &str, args: impl IntoIterator<Item = A>) -> OsString {
        let (rounds, nested) = (self.rounds.saturating_add(1), self.nested.saturating_add(1));
        format!("{rounds}:{nested}:{:x}", fingerprint(name, args)).into()
    }
}

/// FNV-1a: cheap, without allocation, and nobody gains anything by forging it.
fn fingerprint<A: AsRef<OsStr>>(name: &str, args: impl IntoIterator<Item = A>) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        // The terminating NUL, which no argument can hold, keeps ["ab"] and ["a", "b"] apart.
        for &byte in bytes.iter().chain(&[0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    add(name.as_bytes());
    for arg in args {
        add(arg.as_ref().as_bytes());
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::super::files::FileId;
    use super::super::files::fake::{Entry, Table, program};
    use super::*;

    const ELF: &[u8] = b"\x7fELF";
    const SHIM: &[u8] = b"#!/bin/sh\n# codemie-shim-v1\nexec codemie claude \"$@\"\n";

    fn us() -> OwnBinary {
        OwnBinary { file: Some(FileId { device: 1, inode: 1 }), canonical: Some("/opt/codemie".into()) }
    }

    fn not_executable() -> Entry {
        Entry { executable: false, ..program(30, b"text") }
    }

    fn directory() -> Entry {
        Entry { directory: true, ..program(31, b"") }
    }

    fn error(kind: io::ErrorKind) -> Entry {
        Entry { error: Some(kind), ..program(32, b"") }
    }

    fn query<'a>(path: Option<&'a str>, explicit: Option<&'a str>, ourselves: &'a OwnBinary) -> Query<'a> {
        let explicit = explicit.map(|value| (OsStr::new(value), "CODEMIE_REAL_CLAUDE"));
        Query { name: "claude", explicit, path: path.map(OsStr::new), folder: None, ourselves }
    }

    #[test]
    fn finds_the_first_that_is_not_us() {
        let table = Table::of(&[
            ("/shims/claude", program(1, ELF)),
            ("/hardlink/claude", program(1, ELF)),
            ("/upgraded/claude", Entry { canonical: Some("/opt/codemie"), ..program(2, ELF) }),
            ("/other/claude", Entry { canonical: Some("/usr/bin/codemie"), ..program(3, ELF) }),
            ("/script/claude", program(4, SHIM)),
            ("/text/claude", not_executable()),
            ("/folder/claude", directory()),
            ("/locked/claude", error(io::ErrorKind::PermissionDenied)),
            ("/real/claude", program(9, ELF)),
            ("/second/claude", program(10, b"#!/bin/sh\nexec /real/claude\n")),
            ("./claude", program(11, ELF)),
            ("/usr/bin/claude", program(12, ELF)),
        ]);
        let cases: &[(Option<&str>, &str)] = &[
            (Some("/shims:/real"), "/real/claude"),
            (Some("/hardlink:/upgraded:/other:/script:/real"), "/real/claude"),
            (Some("/text:/folder:/locked:/missing:/second:/real"), "/second/claude"),
            (Some("/shims/:/real/"), "/real/claude"),
            (Some("/missing::/real"), "./claude"),
            (Some(""), "./claude"),
            (None, "/usr/bin/claude"),
        ];
        for (path, expected) in cases {
            let found = query(*path, None, &us()).resolve(&table);
            assert_eq!(found.as_deref(), Ok(Path::new(expected)), "PATH={path:?}");
        }
    }

    #[test]
    fn relative_places_begin_in_the_folder_that_was_given() {
        let table = Table::of(&[
            ("/folder/./claude", program(9, ELF)),
            ("/folder/bin/claude", program(10, ELF)),
            ("/real/claude", program(11, ELF)),
        ]);
        let us = us();
        for (path, explicit, expected) in [
            ("", None, "/folder/./claude"),
            ("bin:/real", None, "/folder/bin/claude"),
            ("/real:bin", None, "/real/claude"),
            ("/real", Some("bin/claude"), "/folder/bin/claude"),
            ("bin", Some("/real/claude"), "/real/claude"),
        ] {
            let query = Query { folder: Some(Path::new("/folder")), ..query(Some(path), explicit, &us) };
            assert_eq!(query.resolve(&table).as_deref(), Ok(Path::new(expected)), "PATH={path} {explicit:?}");
        }
    }

    #[test]
    fn says_what_is_at_each_place_and_which_code_a_shell_would_give() {
        use PathKind::{Directory, NotExecutable, NotFound, OtherCopy, SameFile, ScriptShim, Unreachable};
        let table = Table::of(&[
            ("/shims/claude", program(1, ELF)),
            ("/other/claude", Entry { canonical: Some("/usr/bin/codemie"), ..program(3, ELF) }),
            ("/script/claude", program(4, SHIM)),
            ("/text/claude", not_executable()),
            ("/folder/claude", directory()),
            ("/pipe/claude", Entry { pipe: true, ..program(33, b"") }),
            ("/locked/claude", error(io::ErrorKind::PermissionDenied)),
            ("/loop/claude", error(io::ErrorKind::InvalidInput)),
            ("/file/claude", error(io::ErrorKind::NotADirectory)),
        ]);
        let cases: &[(&str, &[PathKind], u8)] = &[
            ("/shims:/missing", &[SameFile, NotFound], 127),
            ("/other:/script", &[OtherCopy, ScriptShim], 127),
            ("/text:/missing", &[NotExecutable, NotFound], 126),
            ("/folder", &[Directory], 126),
            ("/pipe", &[NotExecutable], 126),
            ("/locked", &[Unreachable(io::ErrorKind::PermissionDenied)], 127),
            ("/locked:/text", &[Unreachable(io::ErrorKind::PermissionDenied), NotExecutable], 126),
            ("/loop:/file", &[Unreachable(io::ErrorKind::InvalidInput), NotFound], 127),
        ];
        for (path, verdicts, code) in cases {
            let error = query(Some(path), None, &us()).resolve(&table).unwrap_err();
            let seen: Vec<_> = error.searched.iter().map(|place| place.kind).collect();
            assert_eq!((seen.as_slice(), error.exit_code()), (*verdicts, *code), "PATH={path}");
        }
        for (path, something) in [
            ("/locked:/missing:/file:/loop", false),
            ("/locked:/text", true),
            ("/folder", true),
            ("/shims", true),
        ] {
            assert_eq!(query(Some(path), None, &us()).finds_something(&table), something, "PATH={path}");
        }
    }

    #[test]
    fn an_explicit_binary_is_obeyed_or_refused_but_never_replaced() {
        let table = Table::of(&[
            ("/real/claude", program(9, ELF)),
            ("/real/claude-next", program(10, ELF)),
            ("/opt/codemie", program(1, ELF)),
            ("rel/claude", program(11, ELF)),
            ("/text/claude", not_executable()),
            ("/locked/claude", error(io::ErrorKind::PermissionDenied)),
        ]);
        let cases: &[(&str, Result<&str, u8>)] = &[
            ("/real/claude-next", Ok("/real/claude-next")),
            ("claude-next", Ok("/real/claude-next")),
            ("rel/claude", Ok("rel/claude")),
            ("/opt/codemie", Err(127)),
            ("/gone/claude", Err(127)),
            ("/text/claude", Err(126)),
            ("/locked/claude", Err(126)),
        ];
        for (explicit, expected) in cases {
            let found = query(Some("/real"), Some(explicit), &us()).resolve(&table);
            let found = found.as_ref().map(|path| path.to_str().unwrap()).map_err(NotFound::exit_code);
            assert_eq!(found, *expected, "{explicit}");
        }
    }

    #[test]
    fn the_marker_counts_only_at_the_head_of_a_script() {
        let far =
            Box::leak([b"#!/bin/sh\n".as_slice(), &[b'#'; HEAD], SCRIPT_MARKER].concat().into_boxed_slice());
        let binary = Box::leak([ELF, SCRIPT_MARKER].concat().into_boxed_slice());
        for content in [&*far, &*binary] {
            let table = Table::of(&[("/a/claude", program(5, content))]);
            assert_eq!(judge(Path::new("/a/claude"), "claude", &us(), &table), PathKind::Real);
        }
    }

    #[test]
    fn the_message_names_every_place_and_the_way_out() {
        let table = Table::of(&[("/shims/claude", program(1, ELF)), ("/text/claude", not_executable())]);
        let us = us();
        let query = query(Some("/shims:/text:/missing"), None, &us);
        assert_eq!(
            query.resolve(&table).unwrap_err().to_string(),
            "the real claude was not found.\n\
             Searched:\n\
             \x20 /shims/claude    is codemie itself (same file)\n\
             \x20 /text/claude     not executable\n\
             \x20 /missing/claude  not found\n\
             Install claude, or set CODEMIE_REAL_CLAUDE to where it is."
        );
        let stopped = query.stopped_loop(&table);
        assert_eq!(stopped.exit_code(), 127);
        assert!(stopped.to_string().contains("two shim managers point at each other"), "{stopped}");
    }
}

#[cfg(test)]
mod depth_tests {
    use super::*;

    /// Calls `name` with `args` over and over, each passed on by `manager`, until it is stopped.
    fn rounds_until_stopped(manager: impl Fn(u32, &[String]) -> Vec<String>) -> u32 {
        let mut variable: Option<OsString> = None;
        let mut args = vec!["-p".to_owned(), "hi".to_owned()];
        for round in 0..1000 {
            let depth = Depth::arriving(variable.as_deref(), "claude", &args);
            if depth.exhausted() {
                return round;
            }
            variable = Some(depth.leaving("claude", &args));
            args = manager(round, &args);
        }
        panic!("never stopped");
    }

    #[test]
    fn the_same_call_coming_back_is_stopped_after_four_rounds() {
        assert_eq!(rounds_until_stopped(|_, args| args.to_vec()), 4);
    }

    #[test]
    fn agents_that_start_agents_go_deeper() {
        assert_eq!(rounds_until_stopped(|level, _| vec![format!("prompt {level}")]), 32);
    }

    #[test]
    fn a_loop_that_grows_its_arguments_is_stopped_too() {
        assert_eq!(
            rounds_until_stopped(|_, args| [&["--x".to_owned()], args].concat()),
            32,
            "the backstop, not the fingerprint"
        );
    }

    #[test]
    fn a_broken_value_counts_as_none() {
        let at = |value: &str| Depth::arriving(Some(OsStr::new(value)), "claude", ["a"]);
        assert_eq!(at("3"), Depth { rounds: 3, nested: 3 });
        assert!(at("4").exhausted());
        assert!(at(&at_its_end()).exhausted());
        assert_eq!(at("3:7:0"), Depth { rounds: 0, nested: 7 });
        for broken in ["", "x", "-1", ":::"] {
            assert_eq!(at(broken), Depth::default(), "{broken:?}");
        }
        assert_eq!(Depth::arriving(None, "claude", ["a"]), Depth::default());
    }

    #[test]
    fn arguments_do_not_run_into_each_other() {
        assert_ne!(fingerprint("claude", ["ab"]), fingerprint("claude", ["a", "b"]));
        assert_ne!(fingerprint("claude", ["a"]), fingerprint("codex", ["a"]));
        assert_ne!(fingerprint("claude", [""]), fingerprint("claude", [""; 0]));
    }
}

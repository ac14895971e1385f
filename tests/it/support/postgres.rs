//! A PostgreSQL server of the test's own: its own folder, a Unix socket in it, no port.
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, getuid};

use super::agents::left_out;
use super::processes::{signal, wait_dead};

#[derive(Debug)]
pub(crate) struct Cluster {
    server: Child,
    folder: tempfile::TempDir,
    port: u16,
}

impl Cluster {
    /// `None`, and a line that says why, where PostgreSQL is not installed.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&["fsync=off"])
    }

    pub(crate) fn start_with(settings: &[&str]) -> Option<Self> {
        Self::start_at(5432, settings)
    }

    /// The port is in the socket's name, and the server's own if the settings say that it listens.
    pub(crate) fn start_at(port: u16, settings: &[&str]) -> Option<Self> {
        let Some(programs) = programs() else {
            left_out("PostgreSQL is not installed (/usr/lib/postgresql)");
            return None;
        };
        if getuid().is_root() && !has(&fs::read_to_string("/proc/self/uid_map").unwrap_or_default(), id("-u"))
        {
            left_out("PostgreSQL does not run as root, and there is no other user in this namespace");
            return None;
        }
        // Short, because the path of a socket may have 107 bytes at most.
        let folder = tempfile::Builder::new().prefix("pg").tempdir_in("/tmp").unwrap();
        let data = folder.path().join("data");
        hand_over(folder.path());
        succeed(as_server(Path::new("cp")).args(["-a", "--reflink=auto"]).arg(empty(&programs)).arg(&data));
        let mut command = as_server(&programs.join("postgres"));
        command.arg("-D").arg(&data).arg("-k").arg(folder.path()).args(["-c", "listen_addresses="]);
        command.args(["-p", &port.to_string()]);
        for setting in settings {
            command.args(["-c", setting]);
        }
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let server = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let cluster = Self { server, folder, port };
        cluster.await_ready(&programs);
        Some(cluster)
    }

    fn await_ready(&self, programs: &Path) {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            let asked = Command::new(programs.join("pg_isready"))
                .arg("-q")
                .arg("-h")
                .arg(self.folder.path())
                .args(["-p", &self.port.to_string()])
                .stdout(Stdio::null())
                .status()
                .unwrap();
            if asked.success() {
                return;
            }
            let log = || fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "PostgreSQL does not start:\n{}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Runs a statement in one of its databases.
    pub(crate) fn run(&self, database: &str, sql: &str) {
        let psql = programs().unwrap().join("psql");
        let port = self.port.to_string();
        let output = Command::new(psql)
            .args(["-q", "-U", "postgres", "-d", database, "-p", &port, "-c", sql, "-h"])
            .arg(self.folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// The address of a new, empty database.
    pub(crate) fn database(&self, name: &str) -> String {
        self.run("postgres", &format!("CREATE DATABASE {name}"));
        let socket = self.folder.path().to_str().unwrap().replace('/', "%2F");
        format!("postgres://postgres@{socket}:{}/{name}", self.port)
    }

    pub(crate) fn pid(&self) -> i32 {
        self.server.id().cast_signed()
    }
}

impl Cluster {
    /// At once, and without leaving its children behind.
    pub(crate) fn stop(&mut self) {
        if matches!(self.server.try_wait(), Ok(Some(_))) {
            return;
        }
        signal(self.pid(), Signal::QUIT);
        if !wait_dead(self.pid(), Duration::from_secs(10)) {
            signal(self.pid(), Signal::KILL);
        }
        let _ = self.server.wait();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A data folder that no server has used yet, made once for all tests of this machine and version: `initdb` takes 1.5 s.
fn empty(programs: &Path) -> PathBuf {
    let version = succeed(Command::new(programs.join("initdb")).arg("--version"));
    let version: String = version.chars().filter(char::is_ascii_alphanumeric).collect();
    // Where the server's own user can read it, by whatever path the tests were built.
    let folder = Path::new("/var/tmp").join(format!("codemie-tests-{version}-{}", getuid().as_raw()));
    if fs::create_dir(&folder).is_ok() {
        hand_over(&folder);
    }
    let lock = fs::File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    let (data, half_made) = (folder.join("data"), folder.join("half-made"));
    if !data.exists() {
        let _ = fs::remove_dir_all(&half_made);
        succeed(
            as_server(&programs.join("initdb"))
                .args(["--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "-D"])
                .arg(&half_made),
        );
        fs::rename(&half_made, &data).unwrap();
    }
    data
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Makes it the server's own.
pub(crate) fn hand_over(path: &Path) {
    if getuid().is_root() {
        chown(path, Some(id("-u")), Some(id("-g"))).unwrap();
    }
}

/// Whether a namespace with this map (of numbers here, numbers outside, how many) has this user.
fn has(uid_map: &str, user: u32) -> bool {
    uid_map.is_empty()
        || uid_map.lines().any(|line| {
            let numbers: Vec<u64> =
                line.split_whitespace().filter_map(|number| number.parse().ok()).collect();
            matches!(numbers[..], [first, _, count] if (first..first + count).contains(&u64::from(user)))
        })
}

#[test]
fn users_of_a_namespace() {
    for (map, expected) in [
        ("", true),
        ("         0          0 4294967295\n", true),
        ("0 1000 1\n", false),
        ("0 1000 1\n1 100000 65536\n", true),
    ] {
        assert_eq!(has(map, 102), expected, "{map}");
    }
}

/// It refuses to run as root; and it goes when we do, however we go.
fn as_server(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "QUIT"]);
    if getuid().is_root() {
        command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]);
    }
    command.arg("--").arg(program).stdin(Stdio::null());
    command
}

fn id(which: &str) -> u32 {
    let asked = Command::new("id").args([which, "postgres"]).output().unwrap();
    String::from_utf8(asked.stdout).unwrap().trim().parse().unwrap()
}

/// The newest version that is installed.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.filter_map(Result::ok);
    let mut folders: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
    folders.retain(|folder| folder.join("initdb").exists());
    folders.sort();
    folders.pop()
}

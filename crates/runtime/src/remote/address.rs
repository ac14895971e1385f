//! The socket of a host: its name, and binding and connecting to it however long the path of the home folder is.

use std::fs;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

use os::file::{create_private, entries};
use os::home::Home;
use types::RunId;

/// The file name of a run's socket in [`Home::run`].
fn file_name(run: RunId) -> String {
    format!("{run}.sock")
}

pub fn path(home: &Home, run: RunId) -> PathBuf {
    home.run().join(file_name(run))
}

/// Whether a host serves this run, or did until it was killed.
pub fn exists(home: &Home, run: RunId) -> bool {
    path(home, run).symlink_metadata().is_ok()
}

/// All sockets that there are, also those of hosts that are gone.
pub fn sockets(home: &Home) -> Vec<(RunId, PathBuf)> {
    let named = |path: PathBuf| {
        let run = path.file_name()?.to_str()?.strip_suffix(".sock")?.parse().ok()?;
        Some((run, path))
    };
    entries(&home.run()).unwrap_or_default().into_iter().filter_map(named).collect()
}

/// Removes the sockets of runs that are over; a killed host leaves its own behind.
pub fn sweep<E>(home: &Home, mut is_over: impl FnMut(RunId, &Path) -> Result<bool, E>) -> Result<(), E> {
    for (run, path) in sockets(home) {
        if is_over(run, &path)? {
            let _ = fs::remove_file(&path);
        }
    }
    Ok(())
}

pub fn bind(home: &Home, run: RunId) -> io::Result<UnixListener> {
    create_private(&home.run())?;
    through_short_path(home, run, UnixListener::bind)
}

/// Whether a process listens there. Nothing is said to it, and nobody is waited for: one that is stopped listens, too.
pub fn is_served(home: &Home, run: RunId) -> bool {
    let knock = |path: PathBuf| {
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?)
    };
    let knocked = through_short_path(home, run, knock).map_err(|error| error.kind());
    !matches!(knocked, Err(io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound))
}

/// Connects, and checks that the other side is a process of the same user.
pub fn connect(home: &Home, run: RunId) -> io::Result<UnixStream> {
    let stream = through_short_path(home, run, UnixStream::connect)?;
    check_peer(&stream)?;
    Ok(stream)
}

/// Refuses another user's process at the other end of a socket.
pub fn check_peer(stream: &UnixStream) -> io::Result<()> {
    let peer = pty::peer_user(stream)?;
    if peer == pty::own_user() {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "the other side belongs to another user"))
    }
}

/// A socket's address has room for some hundred bytes, and a home folder may have a longer path. Linux takes the folder by its
/// open descriptor instead.
fn through_short_path<T>(
    home: &Home,
    run: RunId,
    act: impl FnOnce(PathBuf) -> io::Result<T>,
) -> io::Result<T> {
    /// `sun_path` of macOS; Linux has 108.
    const LONGEST: usize = 103;
    let whole = path(home, run);
    if whole.as_os_str().len() <= LONGEST {
        return act(whole);
    }
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        let folder = rustix::fs::open(home.run(), flags, rustix::fs::Mode::empty())?;
        act(PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(file_name(run)))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let message = format!(
            "the path {} is too long for a socket; set CODEMIE_HOME to a shorter one",
            whole.display()
        );
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }
}

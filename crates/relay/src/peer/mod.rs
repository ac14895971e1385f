//! Who is on the other end of a connection over loopback: the owner and the process of its socket.
//!
//! Linux says of every socket of the network who owns it. Elsewhere nothing as cheap exists: there the secret alone protects.

#[cfg(target_os = "linux")]
mod diag;
#[cfg(target_os = "linux")]
mod list;

use std::io;
use std::net::SocketAddr;

use types::Pid;

/// The peer's end of a connection, as the system lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Socket {
    pub uid: u32,
    /// 0 where no process has it open any more.
    pub inode: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    ThisUser,
    Another,
    /// The system does not say. The secret still protects.
    Unknown,
}

/// Whose the other end is. `peer` is its address, `own` ours.
pub(crate) fn owner(peer: SocketAddr, own: SocketAddr) -> Owner {
    match socket(peer, own) {
        Ok(Some(socket)) if socket.uid == rustix::process::geteuid().as_raw() => Owner::ThisUser,
        // Not in the list: it is closed already, so nobody is refused who could notice.
        Ok(_) => Owner::Another,
        Err(_) => Owner::Unknown,
    }
}

/// The other end as the system knows it now.
#[cfg(target_os = "linux")]
pub(crate) fn socket(peer: SocketAddr, own: SocketAddr) -> io::Result<Option<Socket>> {
    // A kernel without it, or a sandbox, has the list at least. It takes milliseconds where there are thousands of sockets.
    diag::find(list::plain(peer), list::plain(own)).or_else(|_| list::find(peer, own))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn socket(_peer: SocketAddr, _own: SocketAddr) -> io::Result<Option<Socket>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Which process has it open. Walks through all of this user's processes: for evidence, never on the way of a request.
pub(crate) fn process(socket: Socket) -> Option<Pid> {
    let wanted = format!("socket:[{}]", socket.inode);
    let processes = std::fs::read_dir("/proc").ok()?;
    processes.flatten().find_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let open = std::fs::read_dir(process.path().join("fd")).ok()?;
        open.flatten()
            .any(|fd| std::fs::read_link(fd.path()).is_ok_and(|target| target.as_os_str() == wanted.as_str()))
            .then_some(Pid(pid))
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_of_this_process_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let client = TcpStream::connect(own).unwrap();
        let peer = client.local_addr().unwrap();
        let (_accepted, _) = listener.accept().unwrap();
        assert_eq!(owner(peer, own), Owner::ThisUser);
        let socket = socket(peer, own).unwrap().unwrap();
        assert_eq!(list::find(peer, own).unwrap(), Some(socket), "the kernel and its list agree");
        // Not every sandbox has it.
        if let Ok(found) = diag::find(peer, own) {
            assert_eq!(found, Some(socket));
        }
        assert_eq!(process(socket), Some(Pid(i32::try_from(std::process::id()).unwrap())));
    }

    #[test]
    fn a_socket_of_the_other_family_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let mapped = format!("[::ffff:127.0.0.1]:{}", own.port());
        // Not where IPv6 is switched off.
        let Ok(client) = TcpStream::connect(mapped) else { return };
        let (_accepted, peer) = listener.accept().unwrap();
        assert_eq!(owner(peer, own), Owner::ThisUser);
        assert!(list::find(peer, own).unwrap().is_some());
        drop(client);
    }

    #[test]
    fn a_closed_end_has_no_process_and_a_half_closed_one_has() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let client = TcpStream::connect(own).unwrap();
        let peer = client.local_addr().unwrap();
        let (_accepted, _) = listener.accept().unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_ne!(socket(peer, own).unwrap().unwrap().inode, 0);
        drop(client);
        assert_eq!(socket(peer, own).unwrap().map_or(0, |socket| socket.inode), 0);
    }
}

//! Who is on the other end of a connection over loopback: the owner and the process of its socket.
//!
//! Linux says of every socket of the network who owns it. Elsewhere nothing as cheap exists: there the secret alone protects.

#[cfg(target_os = "linux")]
mod diag;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use wire::Pid;

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
    diag::find(plain(peer), plain(own)).or_else(|_| listed(peer, own))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn socket(_peer: SocketAddr, _own: SocketAddr) -> io::Result<Option<Socket>> {
    Err(io::ErrorKind::Unsupported.into())
}

fn listed(peer: SocketAddr, own: SocketAddr) -> io::Result<Option<Socket>> {
    if let (IpAddr::V4(_), IpAddr::V4(_)) = (peer.ip(), own.ip())
        && let Some(found) = find(&table("/proc/net/tcp")?, peer, own)
    {
        return Ok(Some(found));
    }
    // A socket of the other family reaches 127.0.0.1, too.
    Ok(find(&table("/proc/net/tcp6").unwrap_or_default(), peer, own))
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

/// Bounded: a machine with 30,000 sockets has 5 MB of it.
const TABLE_LIMIT: u64 = 16 << 20;

fn table(path: &str) -> io::Result<String> {
    system::file::text_at_most(path.as_ref(), TABLE_LIMIT)
}

fn find(table: &str, peer: SocketAddr, own: SocketAddr) -> Option<Socket> {
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let local = address(fields.next()?)?;
        let remote = address(fields.next()?)?;
        if local != plain(peer) || remote != plain(own) {
            return None;
        }
        // state, queues, timer, retransmits, then the owner, a timeout and the inode
        let uid = fields.nth(4)?.parse().ok()?;
        let inode = fields.nth(1)?.parse().ok()?;
        Some(Socket { uid, inode })
    })
}

/// `0100007F:1F90`: words of four bytes in the machine's own order, then the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::with_capacity(16);
    for word in ip.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    let ip = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
        _ => return None,
    };
    Some(plain(SocketAddr::new(ip, port)))
}

/// An IPv4 address that is written as an IPv6 one is the IPv4 one.
fn plain(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V6(ip) => mapped(ip).map_or(IpAddr::V6(ip), IpAddr::V4),
        ip @ IpAddr::V4(_) => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn mapped(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    ip.to_ipv4_mapped()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn lines_of_both_tables_are_read() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let four = "   0: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0 20 4 30 10 -1\n";
        let six = "   0: 0000000000000000FFFF00000100007F:9C40 0000000000000000FFFF00000100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 4343 1 0 20 4 30 10 -1\n";
        let (peer, own) = ("127.0.0.1:40000".parse().unwrap(), "127.0.0.1:8080".parse().unwrap());
        assert_eq!(find(&format!("{head}{four}"), peer, own), Some(Socket { uid: 1000, inode: 4242 }));
        assert_eq!(find(&format!("{head}{six}"), peer, own), Some(Socket { uid: 1001, inode: 4343 }));
        assert_eq!(find(&format!("{head}{four}"), own, peer), None);
        assert_eq!(find(&format!("{head}broken\n\n"), own, peer), None);
    }

    #[test]
    fn a_connection_of_this_process_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let client = TcpStream::connect(own).unwrap();
        let peer = client.local_addr().unwrap();
        let (_accepted, _) = listener.accept().unwrap();
        assert_eq!(owner(peer, own), Owner::ThisUser);
        let socket = socket(peer, own).unwrap().unwrap();
        assert_eq!(listed(peer, own).unwrap(), Some(socket), "the kernel and its list agree");
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
        assert!(listed(peer, own).unwrap().is_some());
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

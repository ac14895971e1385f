//! The kernel's lists of all TCP sockets (`/proc/net/tcp`, `/proc/net/tcp6`), read line by line.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::Socket;

/// The socket whose own address is `peer`, connected to `own`.
pub(super) fn find(peer: SocketAddr, own: SocketAddr) -> io::Result<Option<Socket>> {
    if let (IpAddr::V4(_), IpAddr::V4(_)) = (peer.ip(), own.ip())
        && let Some(found) = find_in(&table("/proc/net/tcp")?, peer, own)
    {
        return Ok(Some(found));
    }
    // A socket of the other family reaches 127.0.0.1, too.
    Ok(find_in(&table("/proc/net/tcp6").unwrap_or_default(), peer, own))
}

/// Bounded: a machine with 30,000 sockets has 5 MB of it.
const TABLE_LIMIT: u64 = 16 << 20;

fn table(path: &str) -> io::Result<String> {
    os::file::text_at_most(path.as_ref(), TABLE_LIMIT)
}

fn find_in(table: &str, peer: SocketAddr, own: SocketAddr) -> Option<Socket> {
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
pub(super) fn plain(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V6(ip) => mapped(ip).map_or(IpAddr::V6(ip), IpAddr::V4),
        ip @ IpAddr::V4(_) => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn mapped(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    ip.to_ipv4_mapped()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_tables_are_read() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let four = "   0: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0 20 4 30 10 -1\n";
        let six = "   0: 0000000000000000FFFF00000100007F:9C40 0000000000000000FFFF00000100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 4343 1 0 20 4 30 10 -1\n";
        let (peer, own) = ("127.0.0.1:40000".parse().unwrap(), "127.0.0.1:8080".parse().unwrap());
        assert_eq!(find_in(&format!("{head}{four}"), peer, own), Some(Socket { uid: 1000, inode: 4242 }));
        assert_eq!(find_in(&format!("{head}{six}"), peer, own), Some(Socket { uid: 1001, inode: 4343 }));
        assert_eq!(find_in(&format!("{head}{four}"), own, peer), None);
        assert_eq!(find_in(&format!("{head}broken\n\n"), own, peer), None);
    }
}

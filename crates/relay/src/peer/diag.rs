//! One socket of this machine, asked for by its two addresses: the kernel's own answer (`sock_diag(7)`), in some microseconds however
//! many sockets there are.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::netlink::SOCK_DIAG;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::Socket;

const REQUEST_LENGTH: usize = 72;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const IPPROTO_TCP: u8 = 6;
const ENOENT: i32 = 2;

/// The socket whose own address is `local`, connected to `remote`.
pub(super) fn find(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<Socket>> {
    let kernel = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        Some(SOCK_DIAG),
    )?;
    rustix::net::send(&kernel, &request(local, remote), SendFlags::empty())?;
    // The kernel answers before `send` returns.
    let mut answer = [0; 512];
    let (_, length) = rustix::net::recv(&kernel, &mut answer, RecvFlags::empty())?;
    read(&answer[..length.min(answer.len())])
}

/// `struct nlmsghdr`, then `struct inet_diag_req_v2`.
fn request(local: SocketAddr, remote: SocketAddr) -> [u8; REQUEST_LENGTH] {
    let mut request = [0; REQUEST_LENGTH];
    request[0..4].copy_from_slice(&72u32.to_ne_bytes());
    request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    request[16] = family.as_raw().to_le_bytes()[0];
    request[17] = IPPROTO_TCP;
    request[20..24].copy_from_slice(&u32::MAX.to_ne_bytes()); // in any state
    request[24..26].copy_from_slice(&local.port().to_be_bytes());
    request[26..28].copy_from_slice(&remote.port().to_be_bytes());
    put(&mut request[28..44], local.ip());
    put(&mut request[44..60], remote.ip());
    request[64..72].copy_from_slice(&[0xff; 8]); // no cookie
    request
}

fn put(into: &mut [u8], ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => into[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => into.copy_from_slice(&ip.octets()),
    }
}

/// `struct nlmsghdr`, then `struct inet_diag_msg` or an error.
fn read(answer: &[u8]) -> io::Result<Option<Socket>> {
    let field = |at: usize| {
        answer
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok())
            .map(u32::from_ne_bytes)
            .ok_or_else(short)
    };
    let kind =
        answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes).ok_or_else(short)?;
    match kind {
        SOCK_DIAG_BY_FAMILY => Ok(Some(Socket { uid: field(80)?, inode: u64::from(field(84)?) })),
        NLMSG_ERROR if field(16)?.cast_signed() == -ENOENT => Ok(None),
        NLMSG_ERROR => Err(io::Error::from_raw_os_error(-field(16)?.cast_signed())),
        _ => Err(short()),
    }
}

fn short() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "an answer of sock_diag that is none")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_none_are_errors() {
        for answer in [&b""[..], &[0; 16], &[1; 40]] {
            assert!(read(answer).is_err());
        }
    }
}

//! Bytes over a socket with a descriptor beside them.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Sends the beginning of the bytes with the descriptor: how many went. A process that does not expect one does not get it.
pub fn send(stream: &UnixStream, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    if !beside.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut beside, SendFlags::empty())?)
}

/// Receives bytes, and the last of the descriptors that came with them. No program that is started here gets it.
pub fn receive(stream: &UnixStream, buffer: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    #[cfg(target_os = "linux")]
    let flags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = RecvFlags::empty();
    let received = recvmsg(stream.as_fd(), &mut [IoSliceMut::new(buffer)], &mut beside, flags)?;
    let mut last = None;
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            last = descriptors.last().or(last);
        }
    }
    Ok((received.bytes, last))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn descriptor_arrives_with_its_bytes_or_is_dropped_by_who_does_not_expect_it() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        assert_eq!(send(&near, b"here", writer.as_fd()).unwrap(), 4);
        let mut bytes = [0; 16];
        let (count, descriptor) = receive(&far, &mut bytes).unwrap();
        assert_eq!(&bytes[..count], b"here");
        std::fs::File::from(descriptor.unwrap()).write_all(b"x").unwrap();
        send(&near, b"again", writer.as_fd()).unwrap();
        assert_eq!(far.read(&mut bytes).unwrap(), 5);
        drop(writer);
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"x", "nobody holds the other end any more");
        near.shutdown(std::net::Shutdown::Both).unwrap();
        assert_eq!(receive(&far, &mut bytes).unwrap().0, 0);
    }
}

//! Gives a stopped process a descriptor of the recorder's memory, over a socket that it makes
//! itself. It needs no right of its own for that: it may be another user's, with fewer capabilities
//! and another `/proc`.

use crate::soft::attach::process::Memory;
use crate::soft::attach::threads::Borrowed;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `SCM_RIGHTS` with one descriptor: `cmsg_len`, level and type, the descriptor.
type Rights = [u64; 3];
/// `cmsg_len` of [`Rights`].
const RIGHTS_LENGTH: u64 = 20;

/// A stopped thread that makes system calls for the recorder.
pub struct Caller<'a> {
    /// The thread.
    pub thread: &'a mut Borrowed,
    /// A system call instruction in its process.
    pub instruction: u64,
    /// Memory there that the recorder may overwrite.
    pub scratch: u64,
    /// The process's memory.
    pub memory: &'a Memory,
}

impl Caller<'_> {
    /// Makes a system call.
    pub fn call(&mut self, number: i64, arguments: [u64; 6]) -> io::Result<u64> {
        self.thread.system_call(self.instruction, number, arguments)
    }

    /// Closes a descriptor of the process.
    pub fn close(&mut self, fd: u64) {
        let _ = self.call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
    }

    /// Gives the process `file`; returns the descriptor's number there. `handle`: the process.
    pub fn give(&mut self, handle: &OwnedFd, file: &impl AsRawFd) -> io::Result<u64> {
        let kind = (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as u64;
        let family = libc::AF_UNIX as u64;
        let arguments = [family, kind, 0, self.scratch, 0, 0];
        self.call(libc::SYS_socketpair, arguments)?;
        let pair = self.memory.word(self.scratch)?;
        let (theirs, ours) = (pair & 0xffff_ffff, pair >> 32);
        let given = taken(handle, ours)
            .and_then(|socket| send(&socket, file))
            .and_then(|()| self.receive(theirs));
        self.close(theirs);
        self.close(ours);
        given
    }

    /// Receives one descriptor from a socket of the process.
    fn receive(&mut self, socket: u64) -> io::Result<u64> {
        // struct msghdr: no name; the vector; the control data; flags. The vector has one byte.
        let (header, vector) = (self.scratch, self.scratch + 64);
        let (byte, control) = (self.scratch + 80, self.scratch + 88);
        let words = [0, 0, vector, 1, control, 24, 0, 0, byte, 1, 0, 0, 0, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|w: &u64| w.to_le_bytes()).collect();
        self.memory.write(header, &bytes)?;
        let flags = (libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) as u64;
        self.call(libc::SYS_recvmsg, [socket, header, flags, 0, 0, 0])?;
        if self.memory.word(control)? != RIGHTS_LENGTH {
            return Err(io::Error::other(
                "no descriptor arrives (its limit on open files is reached, or a security module such as SELinux forbids it)",
            ));
        }
        Ok(self.memory.word(control + 16)? & 0xffff_ffff)
    }
}

/// A copy of a descriptor of another process.
fn taken(handle: &OwnedFd, fd: u64) -> io::Result<OwnedFd> {
    // SAFETY: integers only.
    let own = unsafe { libc::syscall(libc::SYS_pidfd_getfd, handle.as_raw_fd(), fd as i32, 0) };
    if own < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and owned by no one else.
    Ok(unsafe { OwnedFd::from_raw_fd(own as i32) })
}

/// Sends a descriptor.
fn send(socket: &OwnedFd, file: &impl AsRawFd) -> io::Result<()> {
    let kind = libc::SOL_SOCKET as u64 | (libc::SCM_RIGHTS as u64) << 32;
    let mut control: Rights = [RIGHTS_LENGTH, kind, file.as_raw_fd() as u64];
    let mut byte = 0u8;
    let mut vector = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    // SAFETY: zero is a valid value of all fields; the buffers live across the call.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of::<Rights>() as _;
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    match sent {
        1 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

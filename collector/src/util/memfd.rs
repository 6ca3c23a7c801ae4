//! Files in memory.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Makes a close-on-exec memfd that can be sealed.
pub(crate) fn memfd(name: &std::ffi::CStr) -> io::Result<OwnedFd> {
    // SAFETY: the name is a valid C string; the call has no other memory arguments.
    let fd =
        unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just created and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Adds seals. No process (this one included) can change sealed properties afterwards.
pub(crate) fn seal(fd: &impl AsRawFd, seals: libc::c_int) -> io::Result<()> {
    // SAFETY: fcntl with an integer argument.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The path by which other processes of this user reach a descriptor of this process. Slashes pad
/// it to a fixed length.
pub fn fd_path(fd: &impl AsRawFd) -> String {
    let (head, tail) = (
        format!("/proc/{}/fd", std::process::id()),
        fd.as_raw_fd().to_string(),
    );
    let slashes = PATH_LENGTH.saturating_sub(head.len() + tail.len()).max(1);
    format!("{head}{}{tail}", "/".repeat(slashes))
}

/// Length of every path of [`fd_path`], so that the stack of a traced process is laid out the same
/// in every run.
pub(crate) const PATH_LENGTH: usize = "/proc/4194304/fd/0123456".len();

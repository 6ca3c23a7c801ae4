//! Error numbers of Linux that the runtime returns or compares with. System calls return them with
//! a minus sign.

/// Operation not permitted.
pub const EPERM: isize = 1;
/// No such file or directory.
pub const ENOENT: isize = 2;
/// No such thread or process.
pub const ESRCH: isize = 3;
/// Interrupted by a signal.
pub const EINTR: isize = 4;
/// Bad file descriptor.
pub const EBADF: isize = 9;
/// Resource not available now.
pub const EAGAIN: isize = 11;
/// Out of memory.
pub const ENOMEM: isize = 12;
/// Bad address.
pub const EFAULT: isize = 14;
/// The file exists.
pub const EEXIST: isize = 17;
/// Invalid argument.
pub const EINVAL: isize = 22;
/// No such system call or function.
pub const ENOSYS: isize = 38;

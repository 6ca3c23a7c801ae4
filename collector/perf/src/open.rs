//! `perf_event_open`: the one place that calls it, and the calls on an open event.

use crate::attr::Attr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

// _IO('$', n), _IOW('$', n, pointer or number) and _IOR('$', 7, pointer) of linux/perf_event.h.
/// ioctl: the event counts from now on.
pub const IOC_ENABLE: libc::Ioctl = 0x2400;
/// ioctl: the event stops.
pub const IOC_DISABLE: libc::Ioctl = 0x2401;
/// ioctl: another period, by pointer.
pub const IOC_PERIOD: libc::Ioctl = 0x4008_2404;
/// ioctl: the event's records go to another event's ring.
pub const IOC_SET_OUTPUT: libc::Ioctl = 0x2405;
/// ioctl: address filters, a zero-terminated text.
pub const IOC_SET_FILTER: libc::Ioctl = 0x4008_2406;
const IOC_ID: libc::Ioctl = 0x8008_2407_u32 as libc::Ioctl;
const FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// Opens an event of a task (0: the calling one) on a CPU (-1: any), in the group of another event
/// (-1: its own). The descriptor is closed on exec.
pub fn open_perf_event(attr: &Attr, task: i32, cpu: i32, group: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the structure lives across the call and contains its own size; the other arguments
    // are integers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attr),
            task,
            cpu,
            group,
            FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// The id that the event's records carry.
pub fn id(event: &impl AsRawFd) -> io::Result<u64> {
    let mut id = 0u64;
    // SAFETY: the kernel writes eight bytes.
    syscall_result(unsafe { libc::ioctl(event.as_raw_fd(), IOC_ID, &raw mut id) })?;
    Ok(id)
}

/// Turns the value of a system call (-1 for an error) into a result.
pub fn syscall_result(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

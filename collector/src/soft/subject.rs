//! Subject of a recording: a program that the recorder has started, or a process that was already
//! running.

use crate::soft::attach::Attached;
use mgz_annotations_schema::ProgramStatus;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The recorded program or process.
pub enum Subject {
    /// Our child.
    Child(Child),
    /// A process that is not our child.
    Attached(Box<Attached>),
}

impl Subject {
    /// Process id.
    pub fn id(&self) -> u32 {
        match self {
            Subject::Child(child) => child.id(),
            Subject::Attached(attached) => attached.pid(),
        }
    }

    /// Watcher that waits for its end.
    pub fn watcher(&self) -> io::Result<Watcher> {
        match self {
            Subject::Child(child) => Ok(Watcher::Child(child.id())),
            Subject::Attached(attached) => attached.handle().map(Watcher::Handle),
        }
    }

    /// Takes its status after its end.
    pub fn take_status(&mut self) -> io::Result<ProgramStatus> {
        match self {
            Subject::Child(child) => child.wait().map(program_status),
            // Only the parent gets the status.
            Subject::Attached(_) => Ok(ProgramStatus::Ended),
        }
    }

    /// CPU time: of all ended children of this process (a program), or of the process since it was
    /// attached to.
    pub fn cpu(&self) -> Duration {
        match self {
            Subject::Child(_) => cpu_of_children(),
            Subject::Attached(attached) => attached.cpu(),
        }
    }
}

/// Waits for a process without taking its status, so that its id stays valid for signals.
pub enum Watcher {
    /// A child.
    Child(u32),
    /// A descriptor of a process.
    Handle(File),
}

impl Watcher {
    /// Returns when the process has ended, or `over` is set (soon after).
    pub fn wait(self, over: &AtomicBool) {
        match self {
            Watcher::Child(pid) => loop {
                let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
                // SAFETY: waits for our own child; the struct lives across the call.
                let result = unsafe {
                    libc::waitid(
                        libc::P_PID,
                        pid,
                        info.as_mut_ptr(),
                        libc::WEXITED | libc::WNOWAIT,
                    )
                };
                if result == 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                    break;
                }
            },
            Watcher::Handle(handle) => {
                const PATIENCE_MS: i32 = 50;
                while !over.load(Ordering::Relaxed) {
                    let mut poll = libc::pollfd {
                        fd: handle.as_raw_fd(),
                        events: libc::POLLIN,
                        revents: 0,
                    };
                    // SAFETY: one structure that lives across the call.
                    if unsafe { libc::poll(&raw mut poll, 1, PATIENCE_MS) } > 0 {
                        break;
                    }
                }
            }
        }
    }
}

fn cpu_of_children() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the struct lives across the call, and zero is a valid value of it.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

fn program_status(status: ExitStatus) -> ProgramStatus {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProgramStatus::Exited(code),
        (None, signal) => ProgramStatus::Signaled(signal.unwrap_or(libc::SIGKILL)),
    }
}

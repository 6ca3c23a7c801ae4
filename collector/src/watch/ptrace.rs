//! Stopping, stepping and reading threads: `ptrace` without a change to the program's behavior.
//!
//! Threads are seized, not attached to, so that no signal is sent. A sample's stop is the delivery
//! of the trigger's signal, which the program never sees. It is sent by an event that fires in user
//! code only, so that no system call is interrupted.

use crate::target::ptrace_call::{ptrace_call, user_registers};
use crate::watch::access::Registers;
use crate::watch::call_paths::CallPaths;
use crate::watch::events::Events;
use crate::watch::sampler::{Clock, Hit, Stepped, Stopped, WORD};
use mgz_abi::shared_memory::PAGE_SIZE;
use std::io;

const SIGINFO_POLL: std::ops::RangeInclusive<i32> = 1..=6;
/// `si_code` of a finished single step.
const TRAP_TRACE: i32 = 2;

/// Begins to trace a process; threads and children that it makes from now on are traced too.
pub fn seize(process: i32) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACEEXEC;
    ptrace_call(libc::PTRACE_SEIZE, process, 0, options as usize)
}

/// Lets a stopped thread go on, with a signal or 0. If it has died, the next wait reports that.
pub fn resume(thread: i32, signal: i32) {
    let _ = ptrace_call(libc::PTRACE_CONT, thread, 0, signal as usize);
}

/// Leaves a thread in its group stop.
pub fn listen(thread: i32) {
    let _ = ptrace_call(libc::PTRACE_LISTEN, thread, 0, 0);
}

/// Detaches from a stopped thread, with a signal or 0.
pub fn detach(thread: i32, signal: i32) {
    let _ = ptrace_call(libc::PTRACE_DETACH, thread, 0, signal as usize);
}

/// Asks a running thread to stop, so that it can be detached from.
pub fn interrupt(thread: i32) {
    let _ = ptrace_call(libc::PTRACE_INTERRUPT, thread, 0, 0);
}

/// Subject of the last event: the new thread, or the former number of a thread that has executed a
/// program.
pub fn message(thread: i32) -> i32 {
    let mut number: libc::c_ulong = 0;
    let _ = ptrace_call(
        libc::PTRACE_GETEVENTMSG,
        thread,
        0,
        &raw mut number as usize,
    );
    number as i32
}

/// `si_code` and `si_fd` of the signal that a thread has stopped for.
pub fn cause(thread: i32) -> Option<(i32, i32)> {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    ptrace_call(
        libc::PTRACE_GETSIGINFO,
        thread,
        0,
        info.as_mut_ptr() as usize,
    )
    .ok()?;
    // SAFETY: the kernel has filled it; zeros are valid anyhow. `si_band` is a long at 16, `si_fd`
    // an int behind it.
    unsafe {
        let info = info.assume_init();
        let fd = (&raw const info).cast::<u8>().add(24).cast::<i32>().read();
        Some((info.si_code, fd))
    }
}

/// True if a signal came from our trigger (of any thread: a forked child may still get its
/// parent's).
pub fn is_trigger(thread: i32, signal: i32, ours: i32) -> bool {
    signal == ours && cause(thread).is_some_and(|(code, _)| SIGINFO_POLL.contains(&code))
}

/// True if a signal is pending for a stopped thread.
pub fn is_pending(thread: i32, signal: i32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let mask = text
        .lines()
        .find_map(|line| line.strip_prefix("SigPnd:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Waits for one thread (or any: -1). Returns its number and status.
pub fn wait(thread: i32) -> io::Result<(i32, i32)> {
    let mut status = 0;
    // SAFETY: the status lives across the call.
    match unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) } {
        -1 => Err(io::Error::last_os_error()),
        found => Ok((found, status)),
    }
}

/// Registers of a stopped thread.
pub fn registers(thread: i32) -> io::Result<Registers> {
    let r = user_registers(thread)?;
    let general = [
        r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12,
        r.r13, r.r14, r.r15,
    ];
    Ok(Registers {
        general,
        rip: r.rip,
        fs: r.fs_base,
        gs: r.gs_base,
    })
}

/// Reads memory up to the first unmapped page.
pub fn read_memory(thread: i32, address: u64, into: &mut [u8]) -> usize {
    // The kernel copies only whole pieces, so reads are split at the page's end.
    let first = (PAGE_SIZE - address as usize % PAGE_SIZE).min(into.len());
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = [
        libc::iovec {
            iov_base: address as *mut libc::c_void,
            iov_len: first,
        },
        libc::iovec {
            iov_base: address.wrapping_add(first as u64) as *mut libc::c_void,
            iov_len: into.len() - first,
        },
    ];
    // SAFETY: the local piece is the caller's buffer; the kernel checks the remote ones.
    let got = unsafe { libc::process_vm_readv(thread, &raw const local, 1, remote.as_ptr(), 2, 0) };
    usize::try_from(got).unwrap_or(0)
}

/// A stopped thread.
pub struct StoppedThread<'a> {
    /// Its number.
    pub thread: i32,
    /// Its events.
    pub events: &'a mut Events,
    /// The trigger's signal.
    pub signal: i32,
    /// A stop or end that occurred during a step and is still to be handled.
    pub unhandled: Option<i32>,
    /// Its process.
    pub process: i32,
    /// The run's call paths.
    pub paths: &'a mut CallPaths,
}

impl Stopped for StoppedThread<'_> {
    fn registers(&mut self) -> io::Result<Registers> {
        registers(self.thread)
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> usize {
        read_memory(self.thread, address, into)
    }

    fn path(&mut self, at: &Registers) -> u32 {
        let thread = self.thread;
        self.paths.of(self.process, at, |address, into| {
            read_memory(thread, address, into)
        })
    }

    fn step(&mut self) -> io::Result<Stepped> {
        loop {
            ptrace_call(libc::PTRACE_SINGLESTEP, self.thread, 0, 0)?;
            let (_, status) = wait(self.thread)?;
            if libc::WIFSTOPPED(status) && status >> 16 == 0 {
                let signal = libc::WSTOPSIG(status);
                if signal == libc::SIGTRAP
                    && cause(self.thread).is_some_and(|(code, _)| code == TRAP_TRACE)
                {
                    return Ok(Stepped::Done);
                }
                // The signal came before the instruction.
                if is_trigger(self.thread, signal, self.signal) {
                    continue;
                }
            }
            self.unhandled = Some(status);
            return Ok(Stepped::Interrupted);
        }
    }

    fn pause(&mut self, on: bool) {
        self.events.pause(on);
    }

    fn clock(&mut self) -> io::Result<Clock> {
        self.events.clock()
    }

    fn watch(&mut self, slot: usize, word: u64) -> io::Result<()> {
        self.events.watch(slot, word, WORD)
    }

    fn unwatch(&mut self, slot: usize) {
        self.events.unwatch(slot);
    }

    fn hits(&mut self) -> Vec<(usize, Hit)> {
        self.events.hits()
    }
}

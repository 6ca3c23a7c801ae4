//! Stopping all threads of a process, and letting one of them run a function of ours.
//!
//! Threads are seized, so that no signal is sent, and stop before their next instruction in user
//! space. A system call that sleeps is interrupted; the kernel restarts it if the thread continues
//! with its old registers, including those of the system call.

use crate::soft::attach::Refused;
use crate::target::proc_stat::ProcStat;
use crate::target::ptrace_call::{PtraceRequest, ptrace_call, user_registers};
use mgz_abi::seccomp::Instruction;
use std::io;
use std::time::{Duration, Instant};

/// Source: Chosen.
const MAX_WAIT_FOR_STOP: Duration = Duration::from_secs(3);
/// Bytes of vector registers and the like, at most.
const EXTENDED: usize = 1 << 14;
const NT_X86_XSTATE: usize = 0x202;
const PTRACE_GETSIGMASK: PtraceRequest = 0x420a;
const PTRACE_SETSIGMASK: PtraceRequest = 0x420b;
const PTRACE_SECCOMP_GET_FILTER: PtraceRequest = 0x420c;
const PTRACE_GET_RSEQ_CONFIGURATION: PtraceRequest = 0x420f;
const TRAP: u64 = 1 << (libc::SIGTRAP - 1);

/// Result of a wait.
enum Waited {
    Stopped(i32),
    Gone,
}

/// Waits for a thread to stop or end.
fn wait(thread: i32) -> io::Result<Waited> {
    let until = Instant::now() + MAX_WAIT_FOR_STOP;
    loop {
        let mut status = 0;
        // SAFETY: the status lives across the call.
        match unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL | libc::WNOHANG) } {
            -1 => {
                let error = io::Error::last_os_error();
                return if error.raw_os_error() == Some(libc::ECHILD) {
                    Ok(Waited::Gone)
                } else {
                    Err(error)
                };
            }
            0 if Instant::now() > until => return Err(io::ErrorKind::TimedOut.into()),
            0 => std::thread::sleep(Duration::from_micros(100)),
            _ if libc::WIFSTOPPED(status) => return Ok(Waited::Stopped(status)),
            _ => return Ok(Waited::Gone),
        }
    }
}

/// Threads that stand still until this is dropped.
pub struct StoppedThreads {
    /// Their ids.
    pub threads: Vec<i32>,
}

/// Threads of a process that are no zombies.
pub fn tasks(pid: i32) -> Vec<i32> {
    let Ok(list) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let mut found: Vec<i32> = list
        .flatten()
        .filter_map(|t| t.file_name().to_str()?.parse().ok())
        .collect();
    found.sort_unstable();
    found
}

impl StoppedThreads {
    /// Stops all threads of a process.
    pub fn all(pid: i32) -> Result<StoppedThreads, Refused> {
        let mut held = StoppedThreads {
            threads: Vec::new(),
        };
        loop {
            let new: Vec<i32> = tasks(pid)
                .into_iter()
                .filter(|t| !held.threads.contains(t))
                .collect();
            let mut stopped = 0;
            for thread in new {
                stopped += usize::from(held.stop(pid, thread)?);
            }
            // A thread that was still running may have made others meanwhile.
            if stopped == 0 {
                break;
            }
        }
        match held.threads.is_empty() {
            true => Err(Refused(format!("process {pid}: it has ended"))),
            false => Ok(held),
        }
    }

    /// Stops one thread of it.
    pub fn one(pid: i32, thread: i32) -> Result<Option<StoppedThreads>, Refused> {
        let mut held = StoppedThreads {
            threads: Vec::new(),
        };
        Ok(held.stop(pid, thread)?.then_some(held))
    }

    /// Returns whether the thread lives, and so stands still now.
    fn stop(&mut self, pid: i32, thread: i32) -> Result<bool, Refused> {
        let no = |error: io::Error| match error.raw_os_error() {
            Some(libc::ESRCH) => Ok(false),
            Some(libc::EPERM) => Err(Refused(format!(
                "process {pid}: it may not be traced (remedy: the same user, and kernel.yama.ptrace_scope=0; or CAP_SYS_PTRACE; a process that a debugger holds must be let go first)"
            ))),
            _ if error.kind() == io::ErrorKind::TimedOut => Err(Refused(format!(
                "process {pid}: thread {thread} does not stop (it waits in the kernel, after vfork perhaps); try again"
            ))),
            _ => Err(Refused(format!(
                "process {pid}: thread {thread} cannot be stopped: {error}"
            ))),
        };
        if let Err(error) = ptrace_call(libc::PTRACE_SEIZE, thread, 0, 0) {
            return match is_zombie(pid, thread) {
                true => Ok(false),
                false => no(error),
            };
        }
        self.threads.push(thread);
        let stopped = ptrace_call(libc::PTRACE_INTERRUPT, thread, 0, 0).and_then(|()| loop {
            match wait(thread)? {
                Waited::Gone => return Ok(false),
                Waited::Stopped(status) if status >> 16 == libc::PTRACE_EVENT_STOP => {
                    return match libc::WSTOPSIG(status) {
                        libc::SIGTRAP => Ok(true),
                        _ => Err(io::Error::other("the process was stopped by a signal; let it go on first (kill -CONT)")),
                    };
                }
                Waited::Stopped(status) => ptrace_call(libc::PTRACE_CONT, thread, 0, libc::WSTOPSIG(status) as usize)?,
            }
        });
        match stopped {
            Ok(true) => Ok(true),
            Ok(false) => {
                self.threads.pop();
                Ok(false)
            }
            Err(error) => no(error),
        }
    }
}

impl Drop for StoppedThreads {
    fn drop(&mut self) {
        for &thread in &self.threads {
            let _ = ptrace_call(libc::PTRACE_DETACH, thread, 0, 0);
        }
    }
}

/// True if a thread is a zombie, dead or not there.
fn is_zombie(pid: i32, thread: i32) -> bool {
    !ProcStat::of_thread(pid as u32, thread as u32).is_ok_and(|stat| !stat.has_ended)
}

/// Filters of system calls of a stopped thread.
pub fn filters(thread: i32) -> io::Result<Vec<Vec<Instruction>>> {
    let get = |index: usize, into: usize| {
        // SAFETY: the kernel writes into no memory, or into as many instructions as it has said.
        match unsafe { libc::ptrace(PTRACE_SECCOMP_GET_FILTER, thread, index, into) } {
            -1 => Err(io::Error::last_os_error()),
            length => Ok(length as usize),
        }
    };
    let mut found = Vec::new();
    loop {
        let length = match get(found.len(), 0) {
            Ok(length) => length,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(found),
            Err(error) => return Err(error),
        };
        let mut filter = vec![Instruction::default(); length];
        get(found.len(), filter.as_mut_ptr() as usize)?;
        found.push(filter);
    }
}

/// Address of a stopped thread's `struct rseq`, if it has registered one with the kernel.
pub fn rseq(thread: i32) -> Option<u64> {
    let mut configuration = [0u64; 3];
    // The size is the address here.
    ptrace_call(
        PTRACE_GET_RSEQ_CONFIGURATION,
        thread,
        24,
        configuration.as_mut_ptr() as usize,
    )
    .ok()?;
    (configuration[0] != 0).then_some(configuration[0])
}

/// A stopped thread that runs code for us. When dropped, it gets all its registers and its signal
/// mask back.
pub struct Borrowed {
    thread: i32,
    registers: libc::user_regs_struct,
    extended: Vec<u8>,
    mask: u64,
    /// Signal mask that the thread continues with.
    after: u64,
    /// True if the thread no longer exists.
    gone: bool,
}

impl Borrowed {
    /// Takes a stopped thread.
    pub fn new(thread: i32) -> io::Result<Borrowed> {
        let mut extended = vec![0; EXTENDED];
        let mut piece = libc::iovec {
            iov_base: extended.as_mut_ptr().cast(),
            iov_len: extended.len(),
        };
        ptrace_call(
            libc::PTRACE_GETREGSET,
            thread,
            NT_X86_XSTATE,
            &raw mut piece as usize,
        )?;
        extended.truncate(piece.iov_len);
        let mut mask = 0u64;
        ptrace_call(PTRACE_GETSIGMASK, thread, 8, &raw mut mask as usize)?;
        let registers = user_registers(thread)?;
        // SIGTRAP reports the end of the called code. If it were blocked, the kernel would reset
        // its handler.
        let all = !TRAP;
        ptrace_call(PTRACE_SETSIGMASK, thread, 8, &raw const all as usize)?;
        Ok(Borrowed {
            thread,
            registers,
            extended,
            mask,
            after: mask,
            gone: false,
        })
    }

    /// The thread's blocked signals.
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// The thread's stack pointer.
    pub fn stack(&self) -> u64 {
        self.registers.rsp
    }

    /// Sets the signals that are blocked when the thread continues.
    pub fn set_mask(&mut self, mask: u64) {
        self.after = mask;
    }

    fn run(
        &mut self,
        registers: libc::user_regs_struct,
        how: PtraceRequest,
    ) -> io::Result<libc::user_regs_struct> {
        // A pending restart of a system call is suppressed.
        let registers = libc::user_regs_struct {
            orig_rax: u64::MAX,
            eflags: 0x202,
            ..registers
        };
        ptrace_call(
            libc::PTRACE_SETREGS,
            self.thread,
            0,
            &raw const registers as usize,
        )?;
        ptrace_call(how, self.thread, 0, 0)?;
        loop {
            match wait(self.thread)? {
                Waited::Gone => {
                    self.gone = true;
                    return Err(io::Error::other("the process has ended"));
                }
                Waited::Stopped(status) if status >> 8 == libc::SIGTRAP => {
                    return user_registers(self.thread);
                }
                Waited::Stopped(status)
                    if status >> 16 == 0 && libc::WSTOPSIG(status) != libc::SIGSTOP =>
                {
                    let (signal, at) = (libc::WSTOPSIG(status), user_registers(self.thread)?.rip);
                    return Err(io::Error::other(format!("signal {signal} at {at:#x}")));
                }
                // A stop request is left for later.
                Waited::Stopped(_) => ptrace_call(how, self.thread, 0, 0)?,
            }
        }
    }

    /// Makes a system call with the instruction at `at`. Returns the kernel's result.
    pub fn system_call(&mut self, at: u64, number: i64, arguments: [u64; 6]) -> io::Result<u64> {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let registers = libc::user_regs_struct {
            rip: at,
            rax: number as u64,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..self.registers
        };
        let rax = self.run(registers, libc::PTRACE_SINGLESTEP)?.rax;
        match rax as i64 {
            error @ -4095..=-1 => Err(io::Error::from_raw_os_error(-error as i32)),
            _ => Ok(rax),
        }
    }

    /// Runs a function that ends with a breakpoint, on a stack that ends at `stack`; returns its
    /// rax.
    pub fn call(&mut self, function: u64, arguments: [u64; 2], stack: u64) -> io::Result<u64> {
        let registers = libc::user_regs_struct {
            rip: function,
            rdi: arguments[0],
            rsi: arguments[1],
            rsp: stack & !15,
            rbp: 0,
            ..self.registers
        };
        Ok(self.run(registers, libc::PTRACE_CONT)?.rax)
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if self.gone {
            return;
        }
        let piece = libc::iovec {
            iov_base: self.extended.as_mut_ptr().cast(),
            iov_len: self.extended.len(),
        };
        // The called code may have set the base of %gs, which is among the registers.
        if let Ok(now) = user_registers(self.thread) {
            self.registers.gs_base = now.gs_base;
        }
        let _ = ptrace_call(
            libc::PTRACE_SETREGSET,
            self.thread,
            NT_X86_XSTATE,
            &raw const piece as usize,
        );
        let _ = ptrace_call(
            libc::PTRACE_SETREGS,
            self.thread,
            0,
            &raw const self.registers as usize,
        );
        let _ = ptrace_call(
            PTRACE_SETSIGMASK,
            self.thread,
            8,
            &raw const self.after as usize,
        );
    }
}

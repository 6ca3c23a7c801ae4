//! Filters of system calls (seccomp) that a process has, as most containers do: they must allow the
//! calls of the runtime, or the runtime would fail or end the process.

use crate::soft::attach::process::status;
use crate::soft::attach::{Refused, threads};
use mgz_abi::seccomp::{Instruction, allows, call, fails};
use std::io;

/// Calls that attaching and recording need: names, numbers, and arguments that filters look at.
const NEEDED: [(&str, i64, [usize; 3]); 31] = [
    ("socketpair", libc::SYS_socketpair, [1, 0x80002, 0]),
    ("recvmsg", libc::SYS_recvmsg, [0; 3]),
    ("close", libc::SYS_close, [0; 3]),
    ("mmap", libc::SYS_mmap, [0, 4096, 0]),
    ("mmap", libc::SYS_mmap, [0, 4096, 3]),
    ("munmap", libc::SYS_munmap, [4096, 4096, 0]),
    ("mprotect", libc::SYS_mprotect, [4096, 4096, 3]),
    ("mprotect", libc::SYS_mprotect, [4096, 4096, 5]),
    ("mremap", libc::SYS_mremap, [4096, 0, 4096]),
    ("madvise", libc::SYS_madvise, [4096, 4096, 10]),
    ("futex", libc::SYS_futex, [4096, 0, 0]),
    ("futex", libc::SYS_futex, [4096, 1, 0]),
    ("futex", libc::SYS_futex, [4096, 133, 0]),
    ("getpid", libc::SYS_getpid, [0; 3]),
    ("gettid", libc::SYS_gettid, [0; 3]),
    ("kill", libc::SYS_kill, [1, 0, 0]),
    ("tgkill", libc::SYS_tgkill, [1, 1, 0]),
    ("rt_sigaction", libc::SYS_rt_sigaction, [60, 4096, 4096]),
    ("rt_sigprocmask", libc::SYS_rt_sigprocmask, [0, 4096, 4096]),
    ("rt_sigprocmask", libc::SYS_rt_sigprocmask, [1, 4096, 4096]),
    ("rt_sigprocmask", libc::SYS_rt_sigprocmask, [2, 4096, 4096]),
    ("rt_sigreturn", libc::SYS_rt_sigreturn, [0; 3]),
    ("sigaltstack", libc::SYS_sigaltstack, [4096, 4096, 0]),
    ("clock_gettime", libc::SYS_clock_gettime, [1, 4096, 0]),
    ("arch_prctl", libc::SYS_arch_prctl, [0x1001, 4096, 0]),
    ("fcntl", libc::SYS_fcntl, [3, 15, 4096]),
    ("ioctl", libc::SYS_ioctl, [3, 0x4008_2404, 4096]),
    ("timer_create", libc::SYS_timer_create, [3, 4096, 4096]),
    ("timer_settime", libc::SYS_timer_settime, [0; 3]),
    ("timer_delete", libc::SYS_timer_delete, [0; 3]),
    ("sched_yield", libc::SYS_sched_yield, [0; 3]),
];

/// Calls that may fail. (Without perf_event_open, timers begin the windows.)
const OPTIONAL: [(&str, i64); 22] = [
    ("read", libc::SYS_read),
    ("write", libc::SYS_write),
    ("open", libc::SYS_open),
    ("fstat", libc::SYS_fstat),
    ("pread64", libc::SYS_pread64),
    ("access", libc::SYS_access),
    ("readlink", libc::SYS_readlink),
    ("getuid", libc::SYS_getuid),
    ("getgid", libc::SYS_getgid),
    ("rt_sigtimedwait", libc::SYS_rt_sigtimedwait),
    ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo),
    ("rt_tgsigqueueinfo", libc::SYS_rt_tgsigqueueinfo),
    ("prctl", libc::SYS_prctl),
    ("fgetxattr", libc::SYS_fgetxattr),
    ("getdents64", libc::SYS_getdents64),
    ("openat", libc::SYS_openat),
    ("dup3", libc::SYS_dup3),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("prlimit64", libc::SYS_prlimit64),
    ("memfd_create", libc::SYS_memfd_create),
    ("rseq", libc::SYS_rseq),
    ("exit_group", libc::SYS_exit_group),
];

/// Refuses a process if a filter of one of its stopped threads forbids a call of the runtime, or
/// cannot be read.
pub fn check(pid: i32, threads: &[i32]) -> Result<(), Refused> {
    let mut checked = Vec::new();
    for &thread in threads {
        if status(thread, "Seccomp").is_none_or(|mode| mode == "0") {
            continue;
        }
        let filters = threads::filters(thread).map_err(|error| unreadable(pid, &error))?;
        if checked.contains(&filters) {
            continue;
        }
        if let Some(name) = forbidden(&filters) {
            return Err(Refused(format!(
                "process {pid}: its seccomp filter forbids {name}, which recording needs; allow it there, or start the program under mgz-record, which records up to the filter"
            )));
        }
        checked.push(filters);
    }
    Ok(())
}

fn unreadable(pid: i32, error: &io::Error) -> Refused {
    Refused(format!(
        "process {pid}: it has a seccomp filter, as most containers do, which cannot be read here ({error}), so that the runtime's system calls might end it; run mgz-record as root outside of containers (CAP_SYS_ADMIN, and no filter of its own), or start the container with --security-opt seccomp=unconfined"
    ))
}

/// The name of a call of the runtime that one of the filters forbids.
fn forbidden(filters: &[Vec<Instruction>]) -> Option<&'static str> {
    let all = |number: i64, arguments, holds: &dyn Fn(&[Instruction], &_) -> bool| {
        let data = call(number as usize, arguments);
        filters.iter().all(|filter| holds(filter, &data))
    };
    let needed = NEEDED.iter().find(|call| !all(call.1, call.2, &allows));
    let harmless = |filter: &[Instruction], data: &_| allows(filter, data) || fails(filter, data);
    let optional = || OPTIONAL.iter().find(|call| !all(call.1, [0; 3], &harmless));
    needed.map(|n| n.0).or_else(|| optional().map(|o| o.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A filter with this result for one call, and another result for all others.
    fn filter(number: i64, then: u32, otherwise: u32) -> Vec<Instruction> {
        let of = |code, then, k| Instruction {
            code,
            then,
            otherwise: 0,
            k,
        };
        let mut filter = vec![
            of(0x20, 0, 0),
            of(0x15, 1, number as u32),
            of(0x06, 0, otherwise),
            of(0x06, 0, then),
        ];
        filter[1].otherwise = 0;
        filter
    }

    #[test]
    fn filters_must_allow_what_recording_needs() {
        const ALLOW: u32 = 0x7fff_0000;
        const FAIL: u32 = 0x0005_0001;
        const KILL: u32 = 0x8000_0000;
        let perf = libc::SYS_perf_event_open;
        assert_eq!(forbidden(&[]), None);
        assert_eq!(forbidden(&[filter(perf, FAIL, ALLOW)]), None);
        assert_eq!(
            forbidden(&[filter(0, ALLOW, ALLOW), filter(perf, KILL, ALLOW)]),
            Some("perf_event_open")
        );
        for result in [FAIL, KILL] {
            let timers = filter(libc::SYS_timer_create, result, ALLOW);
            assert_eq!(forbidden(&[timers]), Some("timer_create"));
        }
        assert!(forbidden(&[filter(0, ALLOW, KILL)]).is_some());
    }
}

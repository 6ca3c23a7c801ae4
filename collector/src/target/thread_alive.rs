//! Finds out whether a thread of another process still lives.

use crate::target::proc_stat::ProcStat;

/// State of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It lives (or its process is being set up).
    Alive,
    /// It is gone; other threads of its process live.
    ThreadGone,
    /// Its whole process is gone, or a zombie.
    ProcessGone,
}

/// Asks the kernel about a thread. Process 0 stands for "not known yet" and counts as alive.
pub fn owner_state(pid: u32, tid: u32) -> Owner {
    if pid == 0 || tid == 0 {
        return Owner::Alive;
    }
    let (Ok(process), Ok(thread)) = (i32::try_from(pid), i32::try_from(tid)) else {
        return Owner::ProcessGone;
    };
    // SAFETY: signal 0 is not delivered; only the ids are checked.
    let gone = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) } != 0
        && std::io::Error::last_os_error().raw_os_error() != Some(libc::EPERM);
    // Only the first thread of a process stays as a zombie; others vanish.
    if !gone && (pid != tid || !is_zombie(pid, tid)) {
        return Owner::Alive;
    }
    if has_living_thread(pid) {
        Owner::ThreadGone
    } else {
        Owner::ProcessGone
    }
}

fn has_living_thread(pid: u32) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    tasks
        .flatten()
        .filter_map(|t| t.file_name().to_str()?.parse().ok())
        .any(|tid| !is_zombie(pid, tid))
}

/// True if a thread is a zombie, dead or not there.
fn is_zombie(pid: u32, tid: u32) -> bool {
    match ProcStat::of_thread(pid, tid) {
        Ok(stat) => stat.has_ended,
        Err(error) => matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tid() -> u32 {
        // SAFETY: no arguments.
        unsafe { libc::gettid() as u32 }
    }

    #[test]
    fn threads_and_processes_are_told_apart() {
        let me = std::process::id();
        assert_eq!(owner_state(me, tid()), Owner::Alive);
        assert_eq!(owner_state(me, me), Owner::Alive);
        assert_eq!(owner_state(0, 0), Owner::Alive);
        assert_eq!(owner_state(u32::MAX, u32::MAX), Owner::ProcessGone);
        let dead = std::thread::spawn(tid).join().unwrap();
        // The kernel may need a moment to release the id.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while owner_state(me, dead) == Owner::Alive && std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        assert_eq!(owner_state(me, dead), Owner::ThreadGone);
    }

    #[test]
    fn zombies_are_dead() {
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let pid = child.id();
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: waits for our own child, leaving it a zombie.
        unsafe {
            libc::waitid(
                libc::P_PID,
                pid,
                info.as_mut_ptr(),
                libc::WEXITED | libc::WNOWAIT,
            )
        };
        assert_eq!(owner_state(pid, pid), Owner::ProcessGone);
        child.wait().unwrap();
        assert_eq!(owner_state(pid, pid), Owner::ProcessGone);
    }
}

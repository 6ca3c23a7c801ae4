//! Signals while another command runs.
//!
//! A terminal sends Ctrl-C to the whole foreground group. The program decides how to react, and the
//! recorded part is still analysed. Signals sent to this process alone are passed on.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

static CHILD: AtomicI32 = AtomicI32::new(0);

extern "C" fn pass_on(signal: libc::c_int) {
    let child = CHILD.load(Ordering::Relaxed);
    if child > 0 {
        // SAFETY: `kill` may be called in handlers; the child has not been waited for.
        unsafe { libc::kill(child, signal) };
    }
}

extern "C" fn stay(_: libc::c_int) {}

/// Installs a handler. (Executed programs inherit ignored signals but not handlers.) Signals that
/// are already ignored stay so, as for `nohup`.
fn handle(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: both structures are plain data, and the handlers only load an atomic and call `kill`.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut old);
        if old.sa_sigaction == libc::SIG_IGN {
            return;
        }
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = handler as *const () as usize;
        new.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &new, std::ptr::null_mut());
    }
}

/// Runs a command to its end, even if keys are pressed.
pub fn wait_for(command: &mut Command) -> std::io::Result<ExitStatus> {
    handle(libc::SIGINT, stay);
    handle(libc::SIGQUIT, stay);
    handle(libc::SIGTERM, pass_on);
    handle(libc::SIGHUP, pass_on);
    let mut child: Child = command.spawn()?;
    CHILD.store(child.id() as i32, Ordering::Relaxed);
    let status = child.wait();
    CHILD.store(0, Ordering::Relaxed);
    status
}

/// Number of keys and signals that end a program, since [`note_stop`].
static STOPS: AtomicU32 = AtomicU32::new(0);
/// The session of [`wait_in_session`], by the id of its leader; 0 if there is none.
static SESSION: AtomicI32 = AtomicI32::new(0);
/// Number of stops after which the session runs on.
static SPARED: AtomicU32 = AtomicU32::new(0);

extern "C" fn stop(_: libc::c_int) {
    STOPS.fetch_add(1, Ordering::Relaxed);
    if is_over() {
        end_session(libc::SIGTERM);
    }
}

/// True if there were more stops than the session is spared.
fn is_over() -> bool {
    STOPS.load(Ordering::Relaxed) > SPARED.load(Ordering::Relaxed)
}

fn end_session(signal: libc::c_int) {
    let leader = SESSION.load(Ordering::Relaxed);
    if leader > 0 {
        // SAFETY: `kill` may be called in handlers; the leader has not been waited for.
        unsafe { libc::kill(-leader, signal) };
    }
}

/// End of a command.
#[derive(Clone, Copy, Debug)]
pub struct EndedCommand {
    /// Its status.
    pub status: ExitStatus,
    /// Time from its start to its end.
    pub wall: Duration,
    /// CPU time of the process and of the children that it has waited for.
    pub cpu: Duration,
}

/// Runs a command in its own session, without a terminal, and kills it after `limit`. `None` if it
/// was killed. Signals noted by [`note_stop`] end it too.
pub fn wait_in_session(
    command: &mut Command,
    limit: Option<Duration>,
) -> std::io::Result<Option<EndedCommand>> {
    wait_sparing(0, command, limit)
}

/// As [`wait_in_session`], but only the second signal ends the command.
pub fn finish_in_session(
    command: &mut Command,
    limit: Option<Duration>,
) -> std::io::Result<Option<EndedCommand>> {
    wait_sparing(1, command, limit)
}

fn wait_sparing(
    spared: u32,
    command: &mut Command,
    limit: Option<Duration>,
) -> std::io::Result<Option<EndedCommand>> {
    // SAFETY: only a call that is safe after a fork.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
    SPARED.store(spared, Ordering::Relaxed);
    let start = Instant::now();
    let child = command.spawn()?;
    SESSION.store(child.id() as i32, Ordering::Relaxed);
    if is_over() {
        end_session(libc::SIGTERM);
    }
    let (ended, waits) = std::sync::mpsc::channel::<()>();
    let watch = limit.map(|limit| {
        std::thread::spawn(move || {
            let late = waits.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
            if late {
                end_session(libc::SIGKILL);
            }
            late
        })
    });
    let status = wait_without_reaping(&child).and_then(|()| {
        let wall = start.elapsed();
        SESSION.store(0, Ordering::Relaxed);
        let (status, cpu) = reap(&child)?;
        Ok(EndedCommand { status, wall, cpu })
    });
    SESSION.store(0, Ordering::Relaxed);
    drop(ended);
    let late = watch.is_some_and(|watch| watch.join().unwrap_or(false));
    let status = status?;
    Ok((!late).then_some(status))
}

/// Status and CPU time of a child that has ended.
fn reap(child: &Child) -> std::io::Result<(ExitStatus, Duration)> {
    let mut status = 0;
    // SAFETY: the structure is plain data, and the kernel writes into it.
    let (done, used) = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        let pid = child.id() as i32;
        (libc::wait4(pid, &raw mut status, 0, &raw mut used), used)
    };
    if done < 0 {
        return Err(std::io::Error::last_os_error());
    }
    let time = |of: libc::timeval| {
        Duration::from_secs(of.tv_sec as u64) + Duration::from_micros(of.tv_usec as u64)
    };
    let cpu = time(used.ru_utime) + time(used.ru_stime);
    Ok((ExitStatus::from_raw(status), cpu))
}

/// Waits for the end of a child, which keeps its number until it is reaped.
fn wait_without_reaping(child: &Child) -> std::io::Result<()> {
    loop {
        // SAFETY: the structure is plain data, and the kernel writes into it.
        let done = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOWAIT;
            libc::waitid(libc::P_PID, child.id(), &raw mut info, flags)
        };
        if done == 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Notes from now on the keys and signals that end a program, for [`is_stopped`].
pub fn note_stop() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        handle(signal, stop);
    }
}

/// True if such a signal has arrived.
pub fn is_stopped() -> bool {
    STOPS.load(Ordering::Relaxed) > 0
}

//! Signals while another command runs.
//!
//! A terminal sends Ctrl-C to the whole foreground group. The program decides how to react, and the
//! recorded part is still analysed. Signals sent to this process alone are passed on.

use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

static CHILD: AtomicI32 = AtomicI32::new(0);

extern "C" fn pass_on(signal: libc::c_int) {
    let child = CHILD.load(Ordering::Relaxed);
    if child > 0 {
        // SAFETY: `kill` may be called in handlers; the child has not been waited for.
        unsafe { libc::kill(child, signal) };
    }
}

extern "C" fn stay(_: libc::c_int) {}

/// Installs a handler. (Handlers, other than ignored signals, do not pass to programs that are
/// executed.) What is ignored already stays so, as for `nohup`.
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

/// Runs a command to its end, whatever keys are pressed meanwhile.
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

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// From now on keys and signals that end a program are noted for [`is_stopped`].
pub fn note_stop() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        handle(signal, stop);
    }
}

/// True if a signal has come.
pub fn is_stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

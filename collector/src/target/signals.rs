//! Handling of signals by the recorder while a program runs. The program also gets the signal
//! settings back that it would have had without the recorder.
//!
//! Ctrl-C at a terminal reaches recorder and program alike (`si_code` is `SI_KERNEL`): the program
//! reacts to it, and the recorder continues. A signal sent to the recorder alone is passed on.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

const PASSED_ON: [libc::c_int; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];
/// `si_code` of signals that the kernel itself sends (linux/siginfo.h).
const SI_KERNEL: libc::c_int = 0x80;

static FORWARD: AtomicU32 = AtomicU32::new(0);
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Action of SIGPIPE before the Rust runtime changed it.
static SIGPIPE_BEFORE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

extern "C" fn note_sigpipe() {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the struct lives across the call, which fills it if it succeeds; zeroed is a valid
    // value.
    let old = unsafe {
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    SIGPIPE_BEFORE.store(old.sa_sigaction, Ordering::Relaxed);
}

/// Runs before `main`, before the Rust runtime sets SIGPIPE to be ignored.
#[used]
// SAFETY: the section holds pointers to functions of this type; the function only asks for a
// setting.
#[unsafe(link_section = ".init_array")]
static NOTE_SIGPIPE: extern "C" fn() = note_sigpipe;

extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    INTERRUPTED.store(true, Ordering::Relaxed);
    // SAFETY: the kernel passes a valid siginfo_t to a handler that was installed with SA_SIGINFO.
    if unsafe { (*info).si_code } != SI_KERNEL {
        FORWARD.fetch_or(1 << signal, Ordering::Relaxed);
    }
}

static CAME: AtomicBool = AtomicBool::new(false);

extern "C" fn note_signal(_: libc::c_int) {
    CAME.store(true, Ordering::Relaxed);
}

/// Keeps signals from ending the recorder until dropped, since its files in memory would stay.
/// Executed programs are not affected, since handlers are not inherited.
pub struct HeldSignals {
    before: Vec<(libc::c_int, libc::sigaction)>,
}

impl HeldSignals {
    /// Holds these signals from now on.
    #[allow(clippy::new_without_default)]
    pub fn new() -> HeldSignals {
        let mut before = Vec::new();
        for signal in PASSED_ON {
            let mut old = action(libc::SIG_DFL, 0);
            let new = action(
                note_signal as *const () as libc::sighandler_t,
                libc::SA_RESTART,
            );
            // SAFETY: the structs live across the calls; the handler only touches an atomic.
            unsafe {
                libc::sigaction(signal, std::ptr::null(), &raw mut old);
                if old.sa_sigaction == libc::SIG_DFL
                    && libc::sigaction(signal, &raw const new, std::ptr::null_mut()) == 0
                {
                    before.push((signal, old));
                }
            }
        }
        HeldSignals { before }
    }

    /// Forgets those that came.
    pub fn forget(&self) {
        CAME.store(false, Ordering::Relaxed);
    }

    /// True if one came.
    pub fn came(&self) -> bool {
        CAME.load(Ordering::Relaxed)
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        for (signal, old) in &self.before {
            // SAFETY: a setting that the kernel gave us.
            unsafe { libc::sigaction(*signal, &raw const *old, std::ptr::null_mut()) };
        }
    }
}

/// Lifts the soft limit on file sizes as far as it goes, until dropped. The limit is meant for
/// files on disks, but the kernel applies it to memory files as well.
pub struct FileSizesLifted(libc::rlimit);

impl FileSizesLifted {
    /// Lifts the limit.
    pub fn new() -> io::Result<Self> {
        let mut old = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the structs live across the calls.
        let done = unsafe {
            libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut old) == 0
                && libc::setrlimit(
                    libc::RLIMIT_FSIZE,
                    &libc::rlimit {
                        rlim_cur: old.rlim_max,
                        ..old
                    },
                ) == 0
        };
        if done {
            Ok(FileSizesLifted(old))
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl Drop for FileSizesLifted {
    fn drop(&mut self) {
        // SAFETY: the limits that were there before.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const self.0) };
    }
}

/// Settings that a child must get back before it executes the program.
#[derive(Clone, Copy)]
pub struct Inherited {
    actions: [(libc::c_int, libc::sigaction); PASSED_ON.len() + 2],
    mask: libc::sigset_t,
    files: libc::rlimit,
}

impl Inherited {
    /// Gives this process (a child that was just forked) the settings back. Async-signal-safe.
    pub fn restore(&self) -> io::Result<()> {
        self.restore_actions();
        let pipe = SIGPIPE_BEFORE.load(Ordering::Relaxed);
        // SAFETY: plain settings from values that the kernel gave us.
        unsafe {
            if pipe == libc::SIG_IGN || pipe == libc::SIG_DFL {
                libc::signal(libc::SIGPIPE, pipe);
            }
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const self.files);
            match libc::sigprocmask(
                libc::SIG_SETMASK,
                &raw const self.mask,
                std::ptr::null_mut(),
            ) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    fn restore_actions(&self) {
        for (signal, action) in &self.actions {
            // SAFETY: the action is one that the kernel gave us.
            unsafe { libc::sigaction(*signal, action, std::ptr::null_mut()) };
        }
    }
}

/// The recorder's own settings, from now until this is dropped.
pub struct Signals {
    inherited: Inherited,
}

fn action(handler: libc::sighandler_t, flags: libc::c_int) -> libc::sigaction {
    // SAFETY: zero is a valid value of this plain struct (no flags, empty mask).
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    action
}

impl Signals {
    /// Installs the settings. One at a time per process.
    pub fn install() -> io::Result<Signals> {
        FORWARD.store(0, Ordering::Relaxed);
        INTERRUPTED.store(false, Ordering::Relaxed);
        // SAFETY: zero is a valid value of these plain structs; the calls fill them.
        let (mut mask, mut files): (libc::sigset_t, libc::rlimit) = unsafe { std::mem::zeroed() };
        // SAFETY: the structs live across the calls.
        let failed = unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut mask) != 0
                || libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut files) != 0
        };
        if failed {
            return Err(io::Error::last_os_error());
        }
        let mut inherited = Inherited {
            actions: [(0, action(libc::SIG_DFL, 0)); PASSED_ON.len() + 2],
            mask,
            files,
        };
        let others = [libc::SIGXFSZ, libc::SIGCHLD];
        for (entry, signal) in inherited
            .actions
            .iter_mut()
            .zip(PASSED_ON.into_iter().chain(others))
        {
            entry.0 = signal;
            // SAFETY: asks for a setting; the struct lives across the call.
            unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut entry.1) };
        }
        for (signal, old) in &inherited.actions {
            let new = match *signal {
                // A spill file beyond the limit on file sizes is to be an error like a full disk,
                // not a deadly signal.
                libc::SIGXFSZ => action(libc::SIG_IGN, 0),
                // If SIGCHLD is ignored, the program's exit status is lost.
                libc::SIGCHLD if old.sa_sigaction == libc::SIG_IGN => action(libc::SIG_DFL, 0),
                libc::SIGCHLD => continue,
                // `nohup` sets this, for example.
                _ if old.sa_sigaction == libc::SIG_IGN => continue,
                _ => action(
                    on_signal as *const () as libc::sighandler_t,
                    libc::SA_SIGINFO | libc::SA_RESTART,
                ),
            };
            // SAFETY: the handler only touches atomics.
            unsafe { libc::sigaction(*signal, &raw const new, std::ptr::null_mut()) };
        }
        // Every traced thread has its own file.
        let more = libc::rlimit {
            rlim_cur: files.rlim_max,
            rlim_max: files.rlim_max,
        };
        // SAFETY: the struct lives across the call. If it is refused, the old limit stays.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const more) };
        Ok(Signals { inherited })
    }

    /// The settings that the program must get back.
    pub fn inherited(&self) -> Inherited {
        self.inherited
    }

    /// Signals that arrived for the program since the last call.
    pub fn to_forward(&self) -> impl Iterator<Item = libc::c_int> {
        let pending = FORWARD.swap(0, Ordering::Relaxed);
        PASSED_ON
            .into_iter()
            .filter(move |&signal| pending & 1 << signal != 0)
    }

    /// True if the recorder has been asked to end.
    pub fn interrupted(&self) -> bool {
        INTERRUPTED.load(Ordering::Relaxed)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.inherited.restore_actions();
        // SAFETY: a limit that we had before.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const self.inherited.files) };
    }
}

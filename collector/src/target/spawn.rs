//! Starts the traced program with the same environment (in order), signal settings, descriptors,
//! process group and limits as without the recorder.

use crate::target::signals::Inherited;
use mgz_abi::shared_memory::{ENV_NAME, PRELOAD_NAME, place_in_preload};
use std::ffi::{CStr, CString, OsString};
use std::fs::File;
use std::io;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// Arguments of `execve`, complete before the fork, since nothing may be allocated after it.
struct Exec {
    path: CString,
    /// Owners of the strings that the pointers lead to.
    _strings: [Vec<CString>; 2],
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
}

// SAFETY: the pointers lead into the struct's own heap strings, which no code changes.
unsafe impl Send for Exec {}
// SAFETY: as above.
unsafe impl Sync for Exec {}

impl Exec {
    fn new(path: &Path, argv: &[OsString], envp: Vec<CString>) -> io::Result<Exec> {
        let argv: Vec<CString> = argv
            .iter()
            .map(|a| CString::new(a.as_bytes()))
            .collect::<Result<_, _>>()?;
        let pointers = |list: &[CString]| {
            list.iter()
                .map(|s| s.as_ptr())
                .chain([std::ptr::null()])
                .collect::<Vec<_>>()
        };
        Ok(Exec {
            path: CString::new(path.as_os_str().as_bytes())?,
            argv: pointers(&argv),
            envp: pointers(&envp),
            _strings: [argv, envp],
        })
    }

    /// Replaces this process. Returns only the error.
    fn execute(&self) -> io::Error {
        // SAFETY: zero-terminated strings and null-terminated lists that live in `self`.
        unsafe { libc::execve(self.path.as_ptr(), self.argv.as_ptr(), self.envp.as_ptr()) };
        io::Error::last_os_error()
    }
}

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

/// This process's environment unchanged, in its order, odd entries included.
fn own_environment() -> Vec<CString> {
    let mut out = Vec::new();
    // SAFETY: `environ` is null or a null-terminated list of strings; nothing in the recorder
    // changes it.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            out.push(CStr::from_ptr(*at).to_owned());
            at = at.add(1);
        }
    }
    out
}

/// This process's list of preloaded libraries, which programs inherit. The last `LD_PRELOAD`
/// counts.
pub fn preloaded() -> Option<Vec<u8>> {
    let own = own_environment();
    let mut lists = own.iter().rev();
    lists.find_map(|entry| Some(entry.to_bytes().strip_prefix(PRELOAD)?.to_vec()))
}

/// Settings for preloading the runtime into a program.
#[derive(Clone, Debug, Default)]
pub struct Preload {
    /// Path of the runtime.
    pub runtime: String,
    /// Libraries of the program that must come before it, by the names that the program asks for.
    pub before: Vec<String>,
    /// Position of the runtime in the list that is preloaded anyway (at most [`place_in_preload`]),
    /// bytes. The runtime stands in for the allocator, even for one of those libraries.
    pub at: Option<usize>,
}

impl Preload {
    /// The new value of `LD_PRELOAD` in place of `old`.
    fn list(&self, old: &[u8]) -> Vec<u8> {
        let at = self.at.unwrap_or(usize::MAX).min(place_in_preload(old));
        let before = self.before.join(":");
        let parts = [
            &old[..at],
            before.as_bytes(),
            self.runtime.as_bytes(),
            &old[at..],
        ];
        let parts: Vec<&[u8]> = parts.into_iter().filter(|p| !p.is_empty()).collect();
        parts.join(&b':')
    }
}

/// The environment for the program: the runtime among the preloaded libraries, and the path of the
/// shared memory. The runtime takes both out again.
fn traced_environment(own: Vec<CString>, preload: &Preload, shared: &str) -> Vec<CString> {
    let string = |parts: &[&[u8]]| {
        CString::new(parts.concat()).expect("environment entries and our paths hold no zeros")
    };
    let named = |entry: &CString, name: &str| {
        entry
            .to_bytes()
            .strip_prefix(name.as_bytes())
            .is_some_and(|rest| rest.starts_with(b"="))
    };
    let mut out: Vec<CString> = own
        .into_iter()
        .filter(|entry| !named(entry, ENV_NAME) && !named(entry, PRELOAD_NAME))
        .collect();
    // The loader uses the last `LD_PRELOAD`.
    let place = out
        .iter()
        .rposition(|entry| entry.to_bytes().starts_with(PRELOAD));
    let old = place.map(|at| out[at].to_bytes()[PRELOAD.len()..].to_vec());
    let list = string(&[PRELOAD, &preload.list(old.as_deref().unwrap_or_default())]);
    match place {
        Some(at) => out[at] = list,
        None => out.push(list),
    }
    let is_new = place.is_none();
    let behind = old.map_or_else(Vec::new, |old| [b":".as_slice(), &old].concat());
    let ours = string(&[
        PRELOAD_NAME.as_bytes(),
        b"=",
        preload.runtime.as_bytes(),
        &behind,
    ]);
    // The runtime takes an even number of entries out (`sys/process.rs`).
    if is_new {
        out.push(ours.clone());
    }
    out.push(ours);
    out.push(string(&[ENV_NAME.as_bytes(), b"=", shared.as_bytes()]));
    out
}

/// True if the kernel lets us turn address randomization off (some containers do not).
pub fn can_turn_aslr_off() -> bool {
    const ASK_PERSONALITY: libc::c_ulong = 0xffff_ffff;
    // SAFETY: integer calls; the old setting is put back at once.
    unsafe {
        let old = libc::personality(ASK_PERSONALITY);
        old >= 0
            && libc::personality(old as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong)
                >= 0
            && libc::personality(old as libc::c_ulong) >= 0
    }
}

/// Starts the program. The error is that of `execve` (or of `fork`).
pub fn spawn(
    program: &Path,
    argv: &[OsString],
    no_aslr: bool,
    preload: &Preload,
    shared: &str,
    inherited: Inherited,
) -> io::Result<Child> {
    let exec = Exec::new(
        program,
        argv,
        traced_environment(own_environment(), preload, shared),
    )?;
    let mut command = Command::new(program);
    // SAFETY: between fork and exec the closure makes system calls only, with memory that was
    // prepared before.
    unsafe {
        command.pre_exec(move || {
            inherited.restore()?;
            if no_aslr {
                turn_aslr_off()?;
            }
            // Done here and not by Command, which would sort the environment.
            Err(exec.execute())
        });
    }
    command.spawn()
}

/// A forked child that waits for permission to execute its program, so that everything that is to
/// observe it can be set up first. Dropped without permission, it ends.
pub struct HeldChild {
    pid: libc::pid_t,
    /// Closing it or writing to it lets the child go on.
    gate: Option<OwnedFd>,
    /// The child's error, if it cannot execute the program; closed by the execution.
    errors: OwnedFd,
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array lives across the call.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both were just created and have no other owner.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Makes a child for the program, with this process's environment.
pub fn hold(
    program: &Path,
    argv: &[OsString],
    no_aslr: bool,
    inherited: Inherited,
) -> io::Result<HeldChild> {
    let exec = Exec::new(program, argv, own_environment())?;
    let (wait, gate) = pipe()?;
    let (errors, tell) = pipe()?;
    // SAFETY: the child makes system calls only, with memory that was prepared before, and never
    // returns.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: the descriptors are this process's copies; their owners are not used in this
            // process any more.
            unsafe {
                libc::close(gate.as_raw_fd());
                libc::close(errors.as_raw_fd());
                let mut word = 0u8;
                let got = loop {
                    let got = libc::read(wait.as_raw_fd(), (&raw mut word).cast(), 1);
                    if got >= 0 || *libc::__errno_location() != libc::EINTR {
                        break got;
                    }
                };
                if got != 1 {
                    libc::_exit(125);
                }
                let ready = inherited
                    .restore()
                    .and_then(|()| if no_aslr { turn_aslr_off() } else { Ok(()) });
                let error = ready.err().unwrap_or_else(|| exec.execute());
                let number = error.raw_os_error().unwrap_or(libc::EINVAL).to_ne_bytes();
                libc::write(tell.as_raw_fd(), number.as_ptr().cast(), number.len());
                libc::_exit(127)
            }
        }
        pid => Ok(HeldChild {
            pid,
            gate: Some(gate),
            errors,
        }),
    }
}

impl HeldChild {
    /// Process id.
    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Lets the child execute its program; returns its process id, which must be waited for. The
    /// error is that of `execve`.
    pub fn release(mut self) -> io::Result<u32> {
        let gate = self.gate.take().ok_or(io::ErrorKind::NotFound)?;
        File::from(gate).write_all(b"x")?;
        let mut number = [0; 4];
        let mut errors = File::from(self.errors.try_clone()?);
        match errors.read_exact(&mut number) {
            // Dropping `self` reaps the child.
            Ok(()) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(number))),
            Err(_) => {
                let pid = std::mem::replace(&mut self.pid, 0);
                Ok(pid as u32)
            }
        }
    }
}

impl Drop for HeldChild {
    fn drop(&mut self) {
        drop(self.gate.take());
        if self.pid > 0 {
            // SAFETY: our own child, which ends at once now.
            unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
        }
    }
}

/// For a child before it executes its program. Async-signal-safe.
fn turn_aslr_off() -> io::Result<()> {
    // SAFETY: integer calls.
    unsafe {
        let old = libc::personality(0xffff_ffff);
        if old < 0
            || libc::personality(old as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong)
                < 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(own: &[&str], preload: &Preload) -> Vec<String> {
        let own = own.iter().map(|s| CString::new(*s).unwrap()).collect();
        traced_environment(own, preload, "/proc/1/fd/6")
            .into_iter()
            .map(|s| s.into_string().unwrap())
            .collect()
    }

    fn preload(before: &[&str], at: Option<usize>) -> Preload {
        Preload {
            runtime: "/proc/1/fd/5".into(),
            before: before.iter().map(|&name| name.into()).collect(),
            at,
        }
    }

    #[test]
    fn the_environment_keeps_its_order_and_gains_an_even_number_of_entries() {
        assert_eq!(
            environment(&["Z=1", "odd", "A=2"], &preload(&[], None)),
            [
                "Z=1",
                "odd",
                "A=2",
                "LD_PRELOAD=/proc/1/fd/5",
                "MGZ_PRELOAD=/proc/1/fd/5",
                "MGZ_PRELOAD=/proc/1/fd/5",
                "MGZ_RUNTIME=/proc/1/fd/6"
            ]
        );
        let own = [
            "LD_PRELOAD=liby.so",
            "LD_PRELOAD=libx.so",
            "MGZ_RUNTIME=old",
            "MGZ_RUNTIME_X=1",
            "MGZ_PRELOAD=old:older",
        ];
        assert_eq!(
            environment(&own, &preload(&[], None)),
            [
                "LD_PRELOAD=liby.so",
                "LD_PRELOAD=libx.so:/proc/1/fd/5",
                "MGZ_RUNTIME_X=1",
                "MGZ_PRELOAD=/proc/1/fd/5:libx.so",
                "MGZ_RUNTIME=/proc/1/fd/6"
            ]
        );
    }

    #[test]
    fn the_runtime_comes_behind_what_stands_in_for_the_c_library_and_before_that() {
        let list = |old: &str, before: &[&str], at| {
            String::from_utf8(preload(before, at).list(old.as_bytes())).unwrap()
        };
        assert_eq!(
            list("", &["libasan.so.8"], None),
            "libasan.so.8:/proc/1/fd/5"
        );
        assert_eq!(
            list("a.so b.so", &["c.so", "d.so"], None),
            "a.so b.so:c.so:d.so:/proc/1/fd/5"
        );
        assert_eq!(
            list("a.so:/lib/libpthread.so.0:b.so", &["c.so"], None),
            "a.so::c.so:/proc/1/fd/5:/lib/libpthread.so.0:b.so"
        );
        assert_eq!(list("libc.so.6", &[], None), "/proc/1/fd/5:libc.so.6");
        assert_eq!(
            list("libcolor.so a.so", &[], None),
            "libcolor.so a.so:/proc/1/fd/5"
        );
        assert_eq!(list("a.so:b.so", &[], Some(0)), "/proc/1/fd/5:a.so:b.so");
        assert_eq!(list("a.so:b.so", &[], Some(5)), "a.so::/proc/1/fd/5:b.so");
        assert_eq!(list("libc.so.6", &[], Some(7)), "/proc/1/fd/5:libc.so.6");
    }

    fn held(program: &str) -> HeldChild {
        let signals = crate::target::signals::Signals::install().unwrap();
        hold(
            Path::new(program),
            &[program.into(), "-c".into(), "exit 7".into()],
            false,
            signals.inherited(),
        )
        .unwrap()
    }

    fn status(pid: u32) -> libc::c_int {
        let mut status = 0;
        // SAFETY: our own child.
        unsafe { libc::waitpid(pid as libc::pid_t, &raw mut status, 0) };
        status
    }

    #[test]
    fn a_held_child_waits_for_the_word() {
        let child = held("/bin/sh");
        let pid = child.pid();
        assert!(
            std::fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name.trim() != "sh")
        );
        assert_eq!(child.release().unwrap(), pid);
        let status = status(pid);
        assert!(
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7,
            "{status}"
        );
    }

    #[test]
    fn a_child_that_cannot_execute_tells_why_and_one_that_is_dropped_ends() {
        let child = held("/no/such/program");
        let pid = child.pid();
        assert_eq!(
            child.release().unwrap_err().raw_os_error(),
            Some(libc::ENOENT)
        );
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        let child = held("/bin/sh");
        let pid = child.pid();
        drop(child);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}

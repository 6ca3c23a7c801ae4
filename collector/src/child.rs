//! Starts the traced program, which must find everything as it would without the recorder: environment in
//! the same order, signal settings, descriptors, process group, limits.

use crate::shared::ENV_NAME;
use crate::signals::Inherited;
use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// Arguments of `execve`, complete before the fork, since nothing may be allocated after it.
struct Exec {
    path: CString,
    /// Own the strings that the pointers lead to.
    _strings: [Vec<CString>; 2],
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
}

// SAFETY: the pointers lead into the struct's own heap strings, which nobody changes.
unsafe impl Send for Exec {}
// SAFETY: as above.
unsafe impl Sync for Exec {}

impl Exec {
    fn new(path: &Path, argv: &[OsString], envp: Vec<CString>) -> io::Result<Exec> {
        let argv: Vec<CString> = argv.iter().map(|a| CString::new(a.as_bytes())).collect::<Result<_, _>>()?;
        let pointers = |list: &[CString]| list.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>();
        Ok(Exec { path: CString::new(path.as_os_str().as_bytes())?, argv: pointers(&argv), envp: pointers(&envp), _strings: [argv, envp] })
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

/// This process's environment as it is, in its order, odd entries included.
fn own_environment() -> Vec<CString> {
    let mut out = Vec::new();
    // SAFETY: `environ` is null or a null-terminated list of strings; nothing in the recorder changes it.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            out.push(CStr::from_ptr(*at).to_owned());
            at = at.add(1);
        }
    }
    out
}

/// The environment for the program: the runtime in front of what is preloaded anyway, and the path of the
/// shared memory. The runtime takes both out again.
fn traced_environment(own: Vec<CString>, runtime: &str, arena: &str) -> Vec<CString> {
    let string = |bytes: Vec<u8>| CString::new(bytes).expect("environment entries and our paths hold no zeros");
    let ours = |entry: &CString| entry.to_bytes().strip_prefix(ENV_NAME.as_bytes()).is_some_and(|rest| rest.starts_with(b"="));
    let mut preloaded = false;
    let mut out: Vec<CString> = own
        .into_iter()
        .filter(|entry| !ours(entry))
        .map(|entry| match entry.to_bytes().strip_prefix(PRELOAD) {
            Some(list) => {
                preloaded = true;
                string([PRELOAD, runtime.as_bytes(), b":", list].concat())
            }
            None => entry,
        })
        .collect();
    if !preloaded {
        out.push(string([PRELOAD, runtime.as_bytes()].concat()));
    }
    out.push(string(format!("{ENV_NAME}={arena}").into_bytes()));
    out
}

/// Whether the kernel lets us turn address randomization off (some containers do not).
pub fn can_turn_aslr_off() -> bool {
    const ASK: libc::c_ulong = 0xffff_ffff;
    // SAFETY: integer calls; the old setting is put back at once.
    unsafe {
        let old = libc::personality(ASK);
        old >= 0
            && libc::personality(old as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong) >= 0
            && libc::personality(old as libc::c_ulong) >= 0
    }
}

/// Starts the program. The error is that of `execve` (or of `fork`).
pub fn spawn(program: &Path, argv: &[OsString], no_aslr: bool, runtime: &str, arena: &str, inherited: Inherited) -> io::Result<Child> {
    let exec = Exec::new(program, argv, traced_environment(own_environment(), runtime, arena))?;
    let mut command = Command::new(program);
    // SAFETY: between fork and exec the closure makes system calls only, with memory that was prepared before.
    unsafe {
        command.pre_exec(move || {
            inherited.restore()?;
            if no_aslr {
                let old = libc::personality(0xffff_ffff);
                if old < 0 || libc::personality(old as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            // Done here and not by Command, which would sort the environment.
            Err(exec.execute())
        });
    }
    command.spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(own: &[&str]) -> Vec<String> {
        let own = own.iter().map(|s| CString::new(*s).unwrap()).collect();
        traced_environment(own, "/proc/1/fd/5", "/proc/1/fd/6").into_iter().map(|s| s.into_string().unwrap()).collect()
    }

    #[test]
    fn the_environment_keeps_its_order_and_gains_two_entries() {
        assert_eq!(environment(&["Z=1", "odd", "A=2"]), ["Z=1", "odd", "A=2", "LD_PRELOAD=/proc/1/fd/5", "MGZ_RUNTIME=/proc/1/fd/6"]);
        assert_eq!(
            environment(&["LD_PRELOAD=libx.so", "MGZ_RUNTIME=old", "MGZ_RUNTIME_X=1"]),
            ["LD_PRELOAD=/proc/1/fd/5:libx.so", "MGZ_RUNTIME_X=1", "MGZ_RUNTIME=/proc/1/fd/6"]
        );
    }
}

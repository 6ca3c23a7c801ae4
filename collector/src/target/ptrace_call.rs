//! The system call `ptrace`.

use std::io;

/// Number of a request. (It has a sign in musl.)
#[cfg(target_env = "musl")]
pub(crate) type PtraceRequest = libc::c_int;
/// Number of a request.
#[cfg(not(target_env = "musl"))]
pub(crate) type PtraceRequest = libc::c_uint;

/// Makes a request to a thread. `address` and `data` are integers, or pointers to structures of the
/// request's type that live across the call.
pub(crate) fn ptrace_call(
    request: PtraceRequest,
    thread: i32,
    address: usize,
    data: usize,
) -> io::Result<()> {
    // SAFETY: the callers' contract, as above.
    match unsafe { libc::ptrace(request, thread, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Registers of a stopped thread.
pub(crate) fn user_registers(thread: i32) -> io::Result<libc::user_regs_struct> {
    let mut r = std::mem::MaybeUninit::<libc::user_regs_struct>::zeroed();
    ptrace_call(libc::PTRACE_GETREGS, thread, 0, r.as_mut_ptr() as usize)?;
    // SAFETY: the kernel has filled it.
    Ok(unsafe { r.assume_init() })
}

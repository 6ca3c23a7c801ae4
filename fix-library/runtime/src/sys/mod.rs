//! Services of the kernel and the loader, without a C library.

pub(crate) mod syscall;

/// The loader's list of modules, shared with the recorder's runtime.
#[path = "../../../../collector/runtime/src/sys/loader_list.rs"]
pub(crate) mod loader_list;
#[cfg(mgz_cdylib)]
#[path = "../../../../collector/runtime/src/sys/mem_builtins.rs"]
mod mem_builtins;

/// Strings of the process.
pub(crate) mod process {
    /// The bytes before the zero.
    ///
    /// # Safety
    /// `p` must point at a zero-terminated string that outlives `'a`.
    pub(crate) unsafe fn c_bytes<'a>(p: *const u8) -> &'a [u8] {
        let mut n = 0;
        // SAFETY: the caller's contract.
        while unsafe { *p.add(n) } != 0 {
            n += 1;
        }
        // SAFETY: n bytes were just read.
        unsafe { core::slice::from_raw_parts(p, n) }
    }
}

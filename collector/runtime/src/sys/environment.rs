//! The program's environment in executables without a C library to ask.

/// The program's environment, in place of the C library's `environ`.
pub(crate) static mut ENVIRONMENT: *const *const u8 = core::ptr::null();

/// See [`ENVIRONMENT`].
pub fn environment() -> *const *const u8 {
    // SAFETY: written once before anything else runs.
    unsafe { ENVIRONMENT }
}

/// True if this program has no loader.
pub fn is_static() -> bool {
    !environment().is_null()
}

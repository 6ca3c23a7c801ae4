//! The program's environment where there is no C library to ask.

/// The program's environment; what the C library's `environ` is elsewhere.
pub(crate) static mut ENVIRONMENT: *const *const u8 = core::ptr::null();

/// See [`ENVIRONMENT`].
pub fn environment() -> *const *const u8 {
    // SAFETY: written once before anything else runs.
    unsafe { ENVIRONMENT }
}

/// Whether this program has no loader.
pub fn is_static() -> bool {
    !environment().is_null()
}

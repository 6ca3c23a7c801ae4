//! libipt's reading of packets, if this build includes it.

#[cfg(libipt)]
unsafe extern "C" {
    fn mgz_libipt_packets(bytes: *mut u8, length: usize, text_length: *mut usize) -> *mut libc::c_char;
}

/// The packets of `bytes`, a line each; `None` if libipt-dev was missing at build time.
#[cfg(libipt)]
pub fn packets(bytes: &[u8]) -> Option<String> {
    let mut copy = bytes.to_vec();
    let mut length = 0;
    // SAFETY: the driver reads `length` bytes from the pointer and keeps neither it nor the one to `length`.
    let text = unsafe { mgz_libipt_packets(copy.as_mut_ptr(), copy.len(), &raw mut length) };
    assert!(!text.is_null(), "libipt has no memory");
    // SAFETY: the driver returns that many bytes, allocated by the C library and owned by us.
    let owned = String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) }).into_owned();
    // SAFETY: as above; it is not used any more.
    unsafe { libc::free(text.cast()) };
    Some(owned)
}

/// The packets of `bytes`, a line each; `None` if libipt-dev was missing at build time.
#[cfg(not(libipt))]
pub fn packets(_: &[u8]) -> Option<String> {
    None
}

//! Files packed by UPX. Their headers are UPX's own, so they are detected before anything else is
//! read.

use crate::image::{EHDR, PHDR};
use crate::{Refusal, bytes};

/// Mark that UPX writes behind the program headers.
const MARK: &[u8] = b"UPX!";
/// The mark is searched in this many bytes behind the headers. Source: Chosen.
const MARK_SEARCH_BYTES: usize = 256;

/// Refuses files with a packer's mark. `data`: an ELF file.
pub fn check_mark(data: &[u8]) -> Result<(), Refusal> {
    let behind = EHDR + PHDR * usize::from(bytes::u16(data, 56).unwrap_or(0));
    let rest = data.get(behind..).unwrap_or(&[]);
    if memchr::memmem::find(&rest[..rest.len().min(MARK_SEARCH_BYTES)], MARK).is_some() {
        return Err(Refusal::declined(
            "packed with UPX: its code is unpacked when it runs; unpack a copy first (upx -d) and instrument that",
        ));
    }
    Ok(())
}

//! Pages as lines: the cache model predicts the misses of a TLB if each page is one line.

use crate::data::memory_units::{LINE_BYTES, PAGE_SHIFT};

/// Log2 of the bytes of a huge page.
const HUGE_PAGE_SHIFT: u32 = 21;
/// Bit that is set in the addresses of huge pages. Addresses of programs have fewer bits.
const HUGE: u64 = 1 << 58;

/// Number of bits by which an address is shifted, so that a page becomes a line.
fn shift(huge: bool) -> u32 {
    let page = if huge { HUGE_PAGE_SHIFT } else { PAGE_SHIFT };
    page - LINE_BYTES.trailing_zeros()
}

/// The address whose line represents the page of an address.
pub(crate) fn as_line(address: u64, huge: bool) -> u64 {
    let tag = if huge { HUGE } else { 0 };
    (address >> shift(huge)) | tag
}

/// An address in the page that a line represents. It is below the original address by at most a
/// 64th of the page.
pub(crate) fn of_line(line: u64) -> u64 {
    let huge = line & HUGE != 0;
    (line & !HUGE) << shift(huge)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::memory_units::CacheLine;

    #[test]
    fn a_page_is_one_line() {
        let line = |address: u64, huge: bool| CacheLine::of(as_line(address, huge));
        let at = 0x7f12_3456_7000;
        assert_eq!(line(at, false), line(at + 4095, false));
        assert_ne!(line(at, false), line(at + 4096, false));
        assert_eq!(line(at, true), line(at + 4096, true));
        assert_ne!(line(at, true), line(at + (2 << 20), true));
        assert_ne!(line(at, true), line(at, false));
        for huge in [false, true] {
            let back = of_line(as_line(at + 777, huge));
            assert!(back <= at + 777 && at + 777 - back < 1 << shift(huge));
        }
    }
}

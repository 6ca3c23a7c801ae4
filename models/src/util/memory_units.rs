//! Words, cache lines and pages of x86-64: their sizes, and the numbers of lines and pages.
//!
//! [`CacheLine`] and [`Page`] are separate types, so that a line cannot be confused with an address
//! or a page.

use serde::{Deserialize, Serialize};

/// Bytes of a cache line. Source: the line size that CPUID reports (leaf 1, EBX, bits 15 to 8) is
/// 64 bytes on all x86-64 processors so far.
pub const LINE_BYTES: u64 = 64;
/// Log2 of the bytes of a cache line.
pub const LINE_SHIFT: u32 = LINE_BYTES.ilog2();
/// Bytes of a small page. Source: the smallest page of the x86-64 architecture.
pub const PAGE_BYTES: u64 = 4096;
/// Log2 of the bytes of a small page.
pub const PAGE_SHIFT: u32 = PAGE_BYTES.ilog2();
/// Bytes of a word. Source: x86-64 registers, and the maximum length of a watchpoint.
pub const WORD_BYTES: u64 = 8;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident, $bytes:ident, $shift:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        #[repr(transparent)]
        pub struct $name(u64);

        impl $name {
            /// The unit that contains an address.
            #[inline(always)]
            pub const fn of(address: u64) -> $name {
                $name(address >> $shift)
            }

            /// Bytes from the begin of its unit to an address.
            #[inline(always)]
            pub const fn offset(address: u64) -> u64 {
                address % $bytes
            }

            /// All units with bytes from the first to the last address.
            #[inline(always)]
            pub fn all(first: u64, last: u64) -> impl Iterator<Item = $name> {
                (first >> $shift..=last >> $shift).map($name)
            }

            /// The unit with this number: the address of its first byte divided by its size.
            #[inline(always)]
            pub const fn from_number(number: u64) -> $name {
                $name(number)
            }

            /// Number in its address space.
            #[inline(always)]
            pub const fn number(self) -> u64 {
                self.0
            }

            /// Address of its first byte.
            #[inline(always)]
            pub const fn address(self) -> u64 {
                self.0 << $shift
            }
        }
    };
}

unit! {
    /// A cache line of an address space.
    CacheLine, LINE_BYTES, LINE_SHIFT
}

unit! {
    /// A small page of an address space.
    Page, PAGE_BYTES, PAGE_SHIFT
}

impl CacheLine {
    /// The page that contains the line.
    #[inline(always)]
    pub const fn page(self) -> Page {
        Page(self.0 >> (PAGE_SHIFT - LINE_SHIFT))
    }

    /// The line at a distance of `lines` lines; numbers wrap.
    #[inline(always)]
    pub const fn at(self, lines: i64) -> CacheLine {
        CacheLine(self.0.wrapping_add_signed(lines))
    }

    /// Number of lines from another line to this one; numbers wrap.
    #[inline(always)]
    pub const fn since(self, other: CacheLine) -> i64 {
        self.0.wrapping_sub(other.0) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_lines_and_pages() {
        let line = CacheLine::of(0x1_2fff);
        assert_eq!((line.number(), line.address()), (0x4bf, 0x1_2fc0));
        assert_eq!(
            (CacheLine::offset(0x1_2fff), Page::offset(0x1_2fff)),
            (63, 0xfff)
        );
        assert_eq!(line.page(), Page::of(0x1_2fff));
        assert_eq!(line.page().address(), 0x1_2000);
        assert_eq!(line.at(1), CacheLine::of(0x1_3000));
        assert_eq!(line.since(line.at(3)), -3);
        let all: Vec<_> = CacheLine::all(60, 130).map(CacheLine::number).collect();
        assert_eq!(all, [0, 1, 2]);
    }
}

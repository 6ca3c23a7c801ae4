//! Numbers of columns, as files store them.

use arrow_buffer::ArrowNativeType;
use parquet::data_type::{DataType, Int32Type, Int64Type};
use std::ops::Range;

/// A number of a column.
pub(crate) trait Number: ArrowNativeType + Into<u64> {
    /// Its type in files.
    type Stored: DataType;
    /// Bytes of a stored number.
    const BYTES: usize;
    /// All bits of a number.
    const MASK: u64;
    /// Reads a number from its bytes in a file.
    fn from_file(bytes: &[u8]) -> Self;
    /// From a number in a file.
    fn narrowed(stored: <Self::Stored as DataType>::T) -> Self;
    /// Appends the numbers in the range `some`. `split` has their bytes by rank.
    fn join(split: &[u8], some: Range<usize>, to: &mut Vec<Self>);
}

macro_rules! number {
    ($($type:ident, $stored:ident, $bytes:literal);*) => {$(
        impl Number for $type {
            type Stored = $stored;
            const BYTES: usize = $bytes;
            const MASK: u64 = $type::MAX as u64;
            #[inline(always)]
            fn from_file(bytes: &[u8]) -> $type {
                // The lowest bytes are used: smaller numbers are stored as 32 bits.
                <$type>::from_le_bytes(std::array::from_fn(|i| bytes[i]))
            }
            fn narrowed(stored: <$stored as DataType>::T) -> $type {
                stored as $type
            }
            fn join(split: &[u8], some: Range<usize>, to: &mut Vec<$type>) {
                // A chunk is not empty: without numbers, the size is one.
                let rows = split.len() / $bytes;
                let mut ranks = split.chunks_exact(rows.max(1));
                let mut rank = || ranks.next()?.get(some.clone());
                join::$type(std::array::from_fn(|_| rank().unwrap_or_default()), to)
            }
        }
    )*};
}
number!(u8, Int32Type, 4; u16, Int32Type, 4; u32, Int32Type, 4; u64, Int64Type, 8);

/// Numbers from their bytes by rank, the lowest first. All ranks have the same length.
mod join {
    use crate::input::byte_split;

    pub(crate) fn u8([a]: [&[u8]; 1], to: &mut Vec<u8>) {
        to.extend_from_slice(a);
    }

    pub(crate) fn u16(ranks: [&[u8]; 2], to: &mut Vec<u16>) {
        let done = byte_split::u16(&ranks, to);
        let [a, b] = ranks.map(|r| &r[done..]);
        to.extend(a.iter().zip(b).map(|(&a, &b)| u16::from_le_bytes([a, b])));
    }

    pub(crate) fn u32(ranks: [&[u8]; 4], to: &mut Vec<u32>) {
        let done = byte_split::u32(&ranks, to);
        let [a, b, c, d] = ranks.map(|r| &r[done..]);
        to.extend(
            a.iter()
                .zip(b)
                .zip(c)
                .zip(d)
                .map(|(((&a, &b), &c), &d)| u32::from_le_bytes([a, b, c, d])),
        );
    }

    pub(crate) fn u64(ranks: [&[u8]; 8], to: &mut Vec<u64>) {
        let done = byte_split::u64(&ranks, to);
        let [a, b, c, d, e, f, g, h] = ranks.map(|r| &r[done..]);
        let ranks = a.iter().zip(b).zip(c).zip(d).zip(e).zip(f).zip(g).zip(h);
        to.extend(ranks.map(|(((((((&a, &b), &c), &d), &e), &f), &g), &h)| {
            u64::from_le_bytes([a, b, c, d, e, f, g, h])
        }));
    }
}

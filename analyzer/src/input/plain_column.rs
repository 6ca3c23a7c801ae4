//! Columns as the recorder writes them (whole values or split into their bytes, none missing), decompressed straight into arrays.
//!
//! The general decoder would decompress each page to a buffer, collect its values in a growing array and convert that one. Pages come
//! from outside: what their headers say is checked before memory is taken for it.

use crate::input::run_length::{Steps, differences};
use polars_buffer::Buffer;
use polars_parquet::parquet::compression::{Compression, DecompressionContext, decompress};
use polars_parquet::parquet::page::{
    CompressedDataPage, CompressedPage, DataPageHeader, FormatEncoding,
};
use polars_parquet::read::{ColumnChunkMetadata, PageReader, PhysicalType};
use std::cell::RefCell;
use std::io::Cursor;
use std::ops::Range;

/// A number of a column.
pub(crate) trait Number: Copy + Into<u64> {
    /// How files store it.
    const STORED: PhysicalType;
    /// Bytes of that.
    const BYTES: usize;
    /// All bits of it.
    const MASK: u64;
    /// From its bytes in a file.
    fn from_file(bytes: &[u8]) -> Self;
    /// Appends some of the numbers whose bytes are there by rank.
    fn join(split: &[u8], some: Range<usize>, to: &mut Vec<Self>);
}

macro_rules! number {
    ($($type:ident, $stored:ident, $bytes:literal);*) => {$(
        impl Number for $type {
            const STORED: PhysicalType = PhysicalType::$stored;
            const BYTES: usize = $bytes;
            const MASK: u64 = $type::MAX as u64;
            #[inline(always)]
            fn from_file(bytes: &[u8]) -> $type {
                // The lowest bytes: smaller numbers are stored as 32 bits.
                <$type>::from_le_bytes(std::array::from_fn(|i| bytes[i]))
            }
            fn join(split: &[u8], some: Range<usize>, to: &mut Vec<$type>) {
                // Not empty, or there are no numbers.
                let rows = split.len() / $bytes;
                let mut ranks = split.chunks_exact(rows.max(1));
                let mut rank = || ranks.next()?.get(some.clone());
                join::$type(std::array::from_fn(|_| rank().unwrap_or_default()), to)
            }
        }
    )*};
}
number!(u8, Int32, 4; u16, Int32, 4; u32, Int32, 4; u64, Int64, 8);

/// Numbers from their bytes by rank, the lowest first; all ranks have as many.
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

/// The pages of a column chunk and their encodings, which are some of these; `None` if it is to be left to the general decoder, which also
/// knows how to complain.
fn pages<T: Number>(
    bytes: Buffer<u8>,
    column: &ColumnChunkMetadata,
    rows: usize,
    encodings: &[FormatEncoding],
) -> Option<Vec<(CompressedDataPage, FormatEncoding)>> {
    let descriptor = &column.descriptor().descriptor;
    if descriptor.max_def_level != 0
        || descriptor.max_rep_level != 0
        || descriptor.primitive_type.physical_type != T::STORED
    {
        return None;
    }
    let mut pages = Vec::new();
    let mut values = 0usize;
    for page in PageReader::new(Cursor::new(bytes), column, Vec::new(), usize::MAX) {
        let Ok(CompressedPage::Data(page)) = page else {
            return None;
        };
        let DataPageHeader::V1(header) = page.header() else {
            return None;
        };
        let encoding = header.encoding;
        // No codec packs a byte into less than 1/256, but for zeros of zstd, which the general decoder may have.
        let possible = page.uncompressed_size()
            <= page
                .compressed_size()
                .saturating_mul(256)
                .saturating_add(64);
        if !possible || !encodings.contains(&encoding) {
            return None;
        }
        values = values.checked_add(page.num_values())?;
        pages.push((page, encoding));
    }
    (values == rows).then_some(pages)
}

/// Bytes of a buffer that is kept, at most.
const KEPT: usize = 16 << 20;

thread_local! {
    /// What the last column was unpacked to: to clear a new one would take half as long as to unpack it.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Unpacks pages one by one.
struct Unpacker {
    context: DecompressionContext,
    buffer: Vec<u8>,
}

impl Drop for Unpacker {
    fn drop(&mut self) {
        if self.buffer.len() <= KEPT {
            BUFFER.set(std::mem::take(&mut self.buffer));
        }
    }
}

impl Unpacker {
    fn new() -> Unpacker {
        Unpacker {
            context: DecompressionContext::Unset,
            buffer: BUFFER.take(),
        }
    }

    fn unpack<'a>(&'a mut self, page: &'a mut CompressedDataPage) -> Option<&'a [u8]> {
        let (size, compression) = (page.uncompressed_size(), page.compression());
        let stored: &[u8] = page.slice_mut();
        if compression == Compression::Uncompressed {
            return Some(stored).filter(|s| s.len() == size);
        }
        if self.buffer.len() < size {
            self.buffer.resize(size, 0);
        }
        let unpacked = &mut self.buffer[..size];
        decompress(compression, stored, unpacked, &mut self.context).ok()?;
        Some(unpacked)
    }
}

/// The pages of a column chunk that is stored as numbers.
fn pages_of_numbers<T: Number>(
    bytes: Buffer<u8>,
    column: &ColumnChunkMetadata,
    rows: usize,
) -> Option<Vec<(CompressedDataPage, FormatEncoding)>> {
    let pages = pages::<T>(
        bytes,
        column,
        rows,
        &[FormatEncoding::PLAIN, FormatEncoding::BYTE_STREAM_SPLIT],
    )?;
    let whole = |page: &CompressedDataPage| {
        page.num_values().checked_mul(T::BYTES) == Some(page.uncompressed_size())
    };
    pages.iter().all(|(page, _)| whole(page)).then_some(pages)
}

/// The values of a column chunk in `bytes`; `None` if it is to be left to the general decoder.
pub(crate) fn numbers<T: Number>(
    bytes: Buffer<u8>,
    column: &ColumnChunkMetadata,
    rows: usize,
) -> Option<Vec<T>> {
    let pages = pages_of_numbers::<T>(bytes, column, rows)?;
    let mut all: Vec<T> = Vec::with_capacity(rows);
    let mut unpacker = Unpacker::new();
    for (mut page, encoding) in pages {
        let some = 0..page.num_values();
        append(unpacker.unpack(&mut page)?, encoding, some, &mut all);
    }
    (all.len() == rows).then_some(all)
}

/// Appends some of the numbers of an unpacked page.
fn append<T: Number>(plain: &[u8], encoding: FormatEncoding, some: Range<usize>, to: &mut Vec<T>) {
    if encoding == FormatEncoding::PLAIN {
        let bytes = plain.get(some.start * T::BYTES..some.end * T::BYTES);
        let bytes = bytes.unwrap_or_default().chunks_exact(T::BYTES);
        to.extend(bytes.map(T::from_file));
    } else {
        T::join(plain, some, to);
    }
}

/// A column chunk whose pages are unpacked and not joined to numbers yet: half of what both take.
#[derive(Default)]
pub(crate) struct Unpacked {
    /// Which values, how they are stored, their bytes.
    pages: Vec<(Range<usize>, FormatEncoding, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

impl Unpacked {
    /// Takes the column chunk in `bytes`; `None` if it is to be left to others.
    pub(crate) fn fill<T: Number>(
        &mut self,
        bytes: Buffer<u8>,
        column: &ColumnChunkMetadata,
        rows: usize,
    ) -> Option<()> {
        let unpacked = self.pages.drain(..).map(|page| page.2);
        self.spare.extend(unpacked);
        let pages = pages_of_numbers::<T>(bytes, column, rows)?;
        let (mut context, mut first) = (DecompressionContext::Unset, 0);
        for (mut page, encoding) in pages {
            let (size, compression) = (page.uncompressed_size(), page.compression());
            let values = first..first + page.num_values();
            first = values.end;
            let stored: &[u8] = page.slice_mut();
            let mut plain = self.spare.pop().unwrap_or_default();
            if compression == Compression::Uncompressed {
                plain.clear();
                plain.extend_from_slice(Some(stored).filter(|s| s.len() == size)?);
            } else {
                plain.resize(size, 0);
                decompress(compression, stored, &mut plain, &mut context).ok()?;
            }
            self.pages.push((values, encoding, plain));
        }
        Some(())
    }

    /// Appends the values of some rows.
    pub(crate) fn values<T: Number>(&self, rows: Range<usize>, to: &mut Vec<T>) {
        for (values, encoding, plain) in &self.pages {
            let some = rows.start.max(values.start)..rows.end.min(values.end);
            if some.start < some.end {
                let some = some.start - values.start..some.end - values.start;
                append(plain, *encoding, some, to);
            }
        }
    }
}

/// The values of a column chunk that is stored as differences; `None` if it is to be left to others.
pub(crate) fn steps<T: Number>(
    bytes: Buffer<u8>,
    column: &ColumnChunkMetadata,
    rows: usize,
) -> Option<Steps> {
    let mut steps = Steps::default();
    let mut unpacker = Unpacker::new();
    for (mut page, _) in pages::<T>(bytes, column, rows, &[FormatEncoding::DELTA_BINARY_PACKED])? {
        let values = page.num_values();
        differences::<T>(unpacker.unpack(&mut page)?, values, &mut steps)?;
    }
    (steps.rows() == rows).then_some(steps)
}

/// The same for one whose differences are mostly not the same, such as times: all values.
pub(crate) fn unsteady(
    bytes: Buffer<u8>,
    column: &ColumnChunkMetadata,
    rows: usize,
) -> Option<Vec<u64>> {
    let pages = pages::<u64>(bytes, column, rows, &[FormatEncoding::DELTA_BINARY_PACKED])?;
    // Blocks of the usual sizes whose differences are all the same have up to 51 values a byte; larger ones could claim any memory.
    if pages
        .iter()
        .any(|(page, _)| page.num_values() > page.uncompressed_size().saturating_mul(64))
    {
        return None;
    }
    let mut all = Vec::with_capacity(rows);
    let mut unpacker = Unpacker::new();
    for (mut page, _) in pages {
        let values = page.num_values();
        differences::<u64>(unpacker.unpack(&mut page)?, values, &mut all)?;
    }
    (all.len() == rows).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_by_rank_are_joined() {
        let mut state = 3u64;
        for n in [0usize, 1, 7, 8, 9, 64, 1001] {
            let numbers: Vec<u64> = (0..n)
                .map(|_| {
                    state = state
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    state ^ state >> 31
                })
                .collect();
            let split = |bytes: usize| -> Vec<u8> {
                (0..bytes)
                    .flat_map(|rank| numbers.iter().map(move |v| (v >> (8 * rank)) as u8))
                    .collect()
            };
            macro_rules! check {
                ($type:ty, $bytes:literal) => {
                    let mut found = Vec::new();
                    <$type>::join(&split($bytes), 0..n, &mut found);
                    let all: Vec<$type> = numbers.iter().map(|&v| v as $type).collect();
                    assert_eq!(found, all);
                    let some = n / 3..n - n / 5;
                    <$type>::join(&split($bytes), some.clone(), &mut found);
                    assert_eq!(found[n..], all[some]);
                };
            }
            check!(u8, 4);
            check!(u16, 4);
            check!(u32, 4);
            check!(u64, 8);
        }
    }
}

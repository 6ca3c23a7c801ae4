//! Columns as the recorder writes them (plain values, none missing), decompressed straight into arrays.
//!
//! The general decoder would decompress each page to a buffer, collect its values in a growing array and convert that one. Pages come
//! from outside: what their headers say is checked before memory is taken for it.

use polars_buffer::Buffer;
use polars_parquet::parquet::compression::{Compression, DecompressionContext, decompress};
use polars_parquet::parquet::page::{CompressedPage, DataPageHeader, FormatEncoding};
use polars_parquet::read::{ColumnChunkMetadata, PageReader, PhysicalType};
use std::io::Cursor;

/// A number of a column.
pub(super) trait Number: Copy + Default {
    /// How files store it.
    const STORED: PhysicalType;
    /// Bytes of that.
    const BYTES: usize;
    /// From its bytes in a file.
    fn from_file(bytes: &[u8]) -> Self;
}

macro_rules! number {
    ($($type:ty, $stored:ident, $bytes:literal);*) => {$(
        impl Number for $type {
            const STORED: PhysicalType = PhysicalType::$stored;
            const BYTES: usize = $bytes;
            #[inline(always)]
            fn from_file(bytes: &[u8]) -> $type {
                // The lowest bytes: smaller numbers are stored as 32 bits.
                <$type>::from_le_bytes(std::array::from_fn(|i| bytes[i]))
            }
        }
    )*};
}
number!(u8, Int32, 4; u16, Int32, 4; u32, Int32, 4; u64, Int64, 8);

/// The values of a column chunk in `bytes`; `None` if it is to be left to the general decoder, which also knows how to complain.
pub(super) fn numbers<T: Number>(bytes: Buffer<u8>, column: &ColumnChunkMetadata, rows: usize) -> Option<Vec<T>> {
    let descriptor = &column.descriptor().descriptor;
    if descriptor.max_def_level != 0 || descriptor.max_rep_level != 0 || descriptor.primitive_type.physical_type != T::STORED {
        return None;
    }
    let mut pages = Vec::new();
    let mut values = 0usize;
    for page in PageReader::new(Cursor::new(bytes), column, Vec::new(), usize::MAX) {
        let Ok(CompressedPage::Data(page)) = page else { return None };
        let plain = matches!(page.header(), DataPageHeader::V1(header) if header.encoding == FormatEncoding::PLAIN);
        // No codec packs a byte into less than 1/256, but for zeros of zstd, which the general decoder may have.
        let possible = page.uncompressed_size() <= page.compressed_size().saturating_mul(256).saturating_add(64);
        if !plain || !possible || page.num_values().checked_mul(T::BYTES) != Some(page.uncompressed_size()) {
            return None;
        }
        values = values.checked_add(page.num_values())?;
        pages.push(page);
    }
    if values != rows {
        return None;
    }
    let mut all = vec![T::default(); rows];
    let mut to = all.as_mut_slice();
    let (mut context, mut buffer) = (DecompressionContext::Unset, Vec::new());
    for mut page in pages {
        let (part, rest) = to.split_at_mut(page.num_values());
        let (size, compression) = (page.uncompressed_size(), page.compression());
        let stored: &[u8] = page.slice_mut();
        let plain = if compression == Compression::Uncompressed {
            stored
        } else {
            buffer.resize(size, 0);
            decompress(compression, stored, &mut buffer, &mut context).ok()?;
            &buffer
        };
        if plain.len() != size {
            return None;
        }
        part.iter_mut().zip(plain.chunks_exact(T::BYTES)).for_each(|(value, bytes)| *value = T::from_file(bytes));
        to = rest;
    }
    Some(all)
}

//! Column chunks of Parquet, page by page.
//!
//! The `parquet` crate's column writers are not used: they handle numbers one by one (differences
//! bit by bit, bytes by rank byte by byte) and cost more than reading and expanding the records.
//! This module writes only the simplest case of the format: no nulls, no dictionaries, one encoding
//! per column, data pages of version 1. Files, row groups, headers of pages and the footer are the
//! crate's.
//!
//! - [`delta`]: `DELTA_BINARY_PACKED`; a page whose values advance by even steps takes a few bytes,
//!   however many they are.
//! - [`byte_split`]: `BYTE_STREAM_SPLIT`; numbers of less than 32 bits are stored as 32-bit
//!   numbers, without being widened first.
//! - Booleans are packed as bits (`PLAIN`).

pub(crate) mod byte_split;
pub(crate) mod delta;
#[cfg(test)]
mod tests;

use crate::convert::convert_error::ConvertError;
use bytes::Bytes;
#[cfg(doc)]
use mgz_annotations_schema::manifest::COLUMNS;
use mgz_annotations_schema::manifest::Stored;
use parquet::basic::{Compression as Codec, Encoding, PageType};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::{ColumnChunkMetaData, OffsetIndexBuilder, PageEncodingStats};
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use std::ops::Range;

/// Maximum unpacked bytes of a page, so that its values stay in the cache. Source: Chosen.
const MAX_PAGE_BYTES: usize = 1 << 18;

/// A column of a row group. Parquet stores 64-bit numbers as such and smaller ones as 32 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ColumnValues<'a> {
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    U64(&'a [u64]),
    Bool(&'a [bool]),
    /// A number of at most 32 bits, and how often it is repeated.
    Same(u32, usize),
    /// The first of consecutive 64-bit numbers, and their count.
    Counting(u64, usize),
}

/// Source of a column's pages.
pub(crate) trait PageSource {
    /// Number of rows.
    fn len(&self) -> usize;
    /// These rows of the column. The content of `buffers` does not matter.
    fn page<'s>(&'s self, rows: Range<usize>, buffers: &'s mut Buffers) -> ColumnValues<'s>;
}

/// Room for a page's values, used again for each.
#[derive(Default)]
pub(crate) struct Buffers {
    pub u8s: Vec<u8>,
    pub u16s: Vec<u16>,
    pub u32s: Vec<u32>,
    pub u64s: Vec<u64>,
    pub bools: Vec<bool>,
}

impl ColumnValues<'_> {
    fn len(self) -> usize {
        match self {
            ColumnValues::U8(v) => v.len(),
            ColumnValues::U16(v) => v.len(),
            ColumnValues::U32(v) => v.len(),
            ColumnValues::U64(v) => v.len(),
            ColumnValues::Bool(v) => v.len(),
            ColumnValues::Same(_, rows) | ColumnValues::Counting(_, rows) => rows,
        }
    }

    /// Smallest and largest value of a column of 32 bits, which readers skip row groups by;
    /// `before` are those of earlier pages.
    fn bounds(self, before: Option<(u32, u32)>) -> Option<(u32, u32)> {
        let values = match &self {
            ColumnValues::U32(values) => values,
            ColumnValues::Same(value, _) => std::slice::from_ref(value),
            _ => return None,
        };
        let first = before.or_else(|| values.first().map(|&v| (v, v)))?;
        // The fold works on values, not references, so that the compiler vectorizes it.
        Some(
            values
                .iter()
                .fold(first, |(min, max), &v| (min.min(v), max.max(v))),
        )
    }

    /// The values of a page, before compression. The content of `buffer` does not matter.
    fn encode(self, stored: Stored, buffer: &mut Vec<u8>) {
        if stored == Stored::Split {
            let bytes = if let ColumnValues::U64(_) = self {
                8
            } else {
                4
            };
            // All pages of a chunk except the last have the same size, so little is cleared in
            // vain.
            buffer.resize(self.len() * bytes, 0);
        } else {
            buffer.clear();
        }
        match (self, stored) {
            (ColumnValues::U8(v), Stored::Split) => {
                crate::convert::pages::byte_split::narrow(v, buffer)
            }
            (ColumnValues::U16(v), Stored::Split) => {
                crate::convert::pages::byte_split::half(v, buffer)
            }
            (ColumnValues::U32(v), Stored::Split) => {
                crate::convert::pages::byte_split::four(v, buffer)
            }
            (ColumnValues::U64(v), Stored::Split) => {
                crate::convert::pages::byte_split::eight(v, buffer)
            }
            (ColumnValues::U16(v), Stored::Differences) => {
                crate::convert::pages::delta::pack(v, buffer)
            }
            (ColumnValues::U32(v), Stored::Differences) => {
                crate::convert::pages::delta::pack(v, buffer)
            }
            (ColumnValues::U64(v), Stored::Differences) => {
                crate::convert::pages::delta::pack(v, buffer)
            }
            (ColumnValues::Same(v, rows), Stored::Differences) => {
                crate::convert::pages::delta::pack_even(v, 0, rows, buffer)
            }
            (ColumnValues::Counting(v, rows), Stored::Differences) => {
                crate::convert::pages::delta::pack_even(v, 1, rows, buffer)
            }
            (ColumnValues::Bool(v), Stored::Plain) => bits(v, buffer),
            _ => unreachable!("COLUMNS has no such column"),
        }
    }
}

/// Rows of a page of numbers of this type (as [`COLUMNS`] names it). Booleans take a bit each, but
/// are cheap: a page of them has as many rows as if they were bytes.
fn page_rows(kind: &str) -> usize {
    match kind {
        "u64" => MAX_PAGE_BYTES / 8,
        "bool" => MAX_PAGE_BYTES,
        _ => MAX_PAGE_BYTES / 4,
    }
}

fn statistics((min, max): (u32, u32)) -> Statistics {
    // Unsigned bounds are stored as signed numbers with the same bits.
    let (min, max) = (Some(min.cast_signed()), Some(max.cast_signed()));
    ValueStatistics::<i32>::new(min, max, None, Some(0), false).into()
}

/// Booleans as bits, the lowest first.
fn bits(values: &[bool], to: &mut Vec<u8>) {
    let (whole, rest) = values.as_chunks::<8>();
    // Each multiplication moves bit 0 of byte i to bit 56 + i.
    to.extend(whole.iter().map(|eight| {
        (u64::from_le_bytes(eight.map(u8::from)).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
    }));
    if !rest.is_empty() {
        to.push(
            rest.iter()
                .rev()
                .fold(0, |byte, &bit| byte << 1 | u8::from(bit)),
        );
    }
}

enum Packer {
    None,
    Lz4(lz4_flex::block::CompressTable),
    Zstd(zstd::bulk::Compressor<'static>),
}

impl Packer {
    /// Compresses a page. The content of `buffer` does not matter.
    fn pack<'a>(
        &mut self,
        plain: &'a [u8],
        buffer: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], ConvertError> {
        let failed = |e: &dyn std::fmt::Display| {
            ConvertError::Encode(parquet::errors::ParquetError::General(format!(
                "compressing a page: {e}"
            )))
        };
        match self {
            Packer::None => Ok(plain),
            Packer::Lz4(table) => {
                // It only grows: clearing it for each page would take as long as compressing a page
                // of zeros.
                let most = lz4_flex::block::get_maximum_output_size(plain.len());
                buffer.resize(most.max(buffer.len()), 0);
                let bytes = lz4_flex::block::compress_into_with_table(plain, buffer, table)
                    .map_err(|e| failed(&e))?;
                Ok(&buffer[..bytes])
            }
            Packer::Zstd(compressor) => {
                buffer.clear();
                buffer.reserve(zstd::zstd_safe::compress_bound(plain.len()));
                compressor
                    .compress_to_buffer(plain, buffer)
                    .map_err(|e| failed(&e))?;
                Ok(buffer)
            }
        }
    }
}

/// A column of a row group, encoded: what
/// [`parquet::file::writer::SerializedRowGroupWriter::append_column`] takes.
pub(crate) struct Chunk {
    pub bytes: Bytes,
    pub close: ColumnCloseResult,
}

/// Encodes columns. Its buffers are used again; one per thread.
pub(crate) struct PageEncoder {
    codec: Codec,
    packer: Packer,
    values: Buffers,
    plain: Vec<u8>,
    /// Values in the form of [`Stored::Split`].
    split: Vec<u8>,
    packed: Vec<u8>,
}

impl PageEncoder {
    pub(crate) fn new(codec: Codec) -> Result<PageEncoder, ConvertError> {
        let packer = match codec {
            Codec::LZ4_RAW => Packer::Lz4(lz4_flex::block::CompressTable::large()),
            Codec::ZSTD(level) => {
                let compressor = zstd::bulk::Compressor::new(level.compression_level());
                Packer::Zstd(compressor.map_err(|e| {
                    ConvertError::Encode(parquet::errors::ParquetError::External(Box::new(e)))
                })?)
            }
            _ => Packer::None,
        };
        Ok(PageEncoder {
            codec,
            packer,
            values: Buffers::default(),
            plain: Vec::new(),
            split: Vec::new(),
            packed: Vec::new(),
        })
    }

    /// Encodes all rows of a column in a row group. `kind`: its type, as in [`COLUMNS`]. `bounds`:
    /// with its smallest and largest value.
    pub(crate) fn chunk(
        &mut self,
        descriptor: ColumnDescPtr,
        kind: &str,
        column: &impl PageSource,
        stored: Stored,
        bounds: bool,
    ) -> Result<Chunk, ConvertError> {
        let encoding = match stored {
            Stored::Differences => Encoding::DELTA_BINARY_PACKED,
            Stored::Split => Encoding::BYTE_STREAM_SPLIT,
            Stored::Plain => Encoding::PLAIN,
        };
        let rows = column.len();
        let mut sink = TrackedWrite::new(Vec::new());
        let mut writer = SerializedPageWriter::new(&mut sink);
        let mut offsets = OffsetIndexBuilder::new();
        let (mut pages, mut compressed, mut uncompressed) = (0, 0, 0);
        let mut extremes = None;
        for first in (0..rows).step_by(page_rows(kind)) {
            // Made page by page, so that the values are still in the cache when they are encoded.
            let page = column.page(first..rows.min(first + page_rows(kind)), &mut self.values);
            if bounds {
                extremes = page.bounds(extremes);
            }
            let plain = if stored == Stored::Split {
                &mut self.split
            } else {
                &mut self.plain
            };
            page.encode(stored, plain);
            let packed = self.packer.pack(plain, &mut self.packed)?;
            let data = Page::DataPage {
                buf: Bytes::copy_from_slice(packed),
                num_values: page.len() as u32,
                encoding,
                def_level_encoding: Encoding::RLE,
                rep_level_encoding: Encoding::RLE,
                statistics: None,
            };
            let written = writer.write_page(CompressedPage::new(data, plain.len()))?;
            offsets.append_row_count(page.len() as i64);
            offsets.append_offset_and_size(written.offset as i64, written.compressed_size as i32);
            pages += 1;
            compressed += written.compressed_size as i64;
            uncompressed += written.uncompressed_size as i64;
        }
        writer.close()?;
        let mut metadata = ColumnChunkMetaData::builder(descriptor)
            .set_compression(self.codec)
            .set_encodings(vec![Encoding::RLE, encoding])
            .set_page_encoding_stats(vec![PageEncodingStats {
                page_type: PageType::DATA_PAGE,
                encoding,
                count: pages,
            }])
            .set_num_values(rows as i64)
            .set_total_compressed_size(compressed)
            .set_total_uncompressed_size(uncompressed)
            .set_data_page_offset(0);
        if let Some(extremes) = extremes {
            metadata = metadata.set_statistics(statistics(extremes));
        }
        let close = ColumnCloseResult {
            bytes_written: compressed as u64,
            rows_written: rows as u64,
            metadata: metadata.build()?,
            bloom_filter: None,
            column_index: None,
            offset_index: Some(offsets.build()),
        };
        Ok(Chunk {
            bytes: Bytes::from(sink.into_inner()?),
            close,
        })
    }
}

//! Data pages of a column chunk, as they are stored.
//!
//! The pages that the `parquet` crate gives are unpacked, each into memory of its own. Here, pages are
//! listed by their headers alone, and unpacked one by one into memory that is used again. Files are
//! untrusted: headers are checked before memory is allocated for their pages. Other forms (dictionaries,
//! newer headers, other compressions) are left to the crate, which also reports errors.

use crate::input::run_length::{take, varint, zigzag};
use parquet::basic::{CompressionCodec, Encoding};
use parquet::file::metadata::ColumnChunkMetaData;
use std::cell::RefCell;
use std::ops::Range;
use zstd::bulk::Decompressor;

/// Types of fields in Thrift's compact protocol.
mod field {
    pub(super) const TRUE: u8 = 1;
    pub(super) const FALSE: u8 = 2;
    pub(super) const BYTE: u8 = 3;
    pub(super) const I16: u8 = 4;
    pub(super) const I32: u8 = 5;
    pub(super) const I64: u8 = 6;
    pub(super) const DOUBLE: u8 = 7;
    pub(super) const BINARY: u8 = 8;
    pub(super) const STRUCT: u8 = 12;
}

/// Passes the fields of a structure to `each`, which takes their values from the bytes.
fn fields(from: &mut &[u8], each: &mut dyn FnMut(u64, u8, &mut &[u8]) -> Option<()>) -> Option<()> {
    let mut id = 0u64;
    loop {
        let head = *from.split_off_first()?;
        if head == 0 {
            return Some(());
        }
        id = match head >> 4 {
            0 => zigzag(from)?,
            more => id.wrapping_add(more.into()),
        };
        each(id, head & 15, from)?;
    }
}

/// Skips a value; `None` for kinds that headers of data pages do not have.
fn skip(kind: u8, from: &mut &[u8]) -> Option<()> {
    match kind {
        field::TRUE | field::FALSE => {}
        field::BYTE => drop(take(from, 1)?),
        field::I16 | field::I32 | field::I64 => drop(varint(from)?),
        field::DOUBLE => drop(take(from, size_of::<f64>())?),
        field::BINARY => {
            let length = usize::try_from(varint(from)?).ok()?;
            take(from, length)?;
        }
        _ => return None,
    }
    Some(())
}

/// A number that is not negative.
fn number(kind: u8, from: &mut &[u8]) -> Option<usize> {
    let number = (kind == field::I32).then(|| zigzag(from))??;
    i32::try_from(number).ok()?;
    Some(number as usize)
}

/// The header of a data page of the first version.
#[derive(Debug, PartialEq, Eq)]
struct PageHeader {
    unpacked: usize,
    stored: usize,
    values: usize,
    encoding: Encoding,
}

impl PageHeader {
    /// Takes it from the front of some bytes; `None` if it is of another kind, or damaged.
    fn take(from: &mut &[u8]) -> Option<PageHeader> {
        /// Number of the kind in the file format.
        const DATA_PAGE: usize = 0;
        let (mut page, mut unpacked, mut stored) = (None, None, None);
        let (mut values, mut encoding) = (None, None);
        fields(from, &mut |id, kind, from| {
            match id {
                1 => page = Some(number(kind, from)?),
                2 => unpacked = Some(number(kind, from)?),
                3 => stored = Some(number(kind, from)?),
                5 if kind == field::STRUCT => fields(from, &mut |id, kind, from| {
                    match id {
                        1 => values = Some(number(kind, from)?),
                        2 => encoding = Some(number(kind, from)?),
                        // Statistics.
                        5 if kind == field::STRUCT => {
                            fields(from, &mut |_, kind, from| skip(kind, from))?;
                        }
                        _ => skip(kind, from)?,
                    }
                    Some(())
                })?,
                _ => skip(kind, from)?,
            }
            Some(())
        })?;
        Some(PageHeader {
            unpacked: unpacked?,
            stored: stored.filter(|_| page == Some(DATA_PAGE))?,
            values: values?,
            encoding: match encoding? {
                0 => Encoding::PLAIN,
                5 => Encoding::DELTA_BINARY_PACKED,
                9 => Encoding::BYTE_STREAM_SPLIT,
                _ => return None,
            },
        })
    }
}

/// A page.
pub(crate) struct Page {
    /// Number of values.
    pub(crate) values: usize,
    pub(crate) encoding: Encoding,
    /// Bytes of it when it is unpacked.
    pub(crate) size: usize,
    place: Range<usize>,
}

/// The pages of a column chunk, with all its bytes.
pub(crate) struct Pages {
    bytes: Vec<u8>,
    codec: CompressionCodec,
    list: Vec<Page>,
}

impl Pages {
    /// Lists the pages of the column chunk in `bytes`. `None` if the crate should read it.
    pub(crate) fn of(column: &ColumnChunkMetaData, bytes: Vec<u8>) -> Option<Pages> {
        let mut list = Vec::new();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let header = PageHeader::take(&mut rest)?;
            let start = bytes.len() - rest.len();
            take(&mut rest, header.stored)?;
            // No codec packs a byte into less than 1/256, except zstd for zeros, which the crate can
            // read.
            if header.unpacked > header.stored.saturating_mul(256).saturating_add(64) {
                return None;
            }
            list.push(Page {
                values: header.values,
                encoding: header.encoding,
                size: header.unpacked,
                place: start..start + header.stored,
            });
        }
        let codec = column.compression_codec();
        Some(Pages { bytes, codec, list })
    }

    /// The pages.
    pub(crate) fn list(&self) -> &[Page] {
        &self.list
    }
}

/// Bytes of a buffer that is kept, at most. Source: Chosen.
const MAX_KEPT_BYTES: usize = 16 << 20;

thread_local! {
    /// The last unpacker's buffer. Clearing a new buffer would take half as long as unpacking.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Unpacks pages one by one.
pub(crate) struct Unpacker {
    zstd: Option<Decompressor<'static>>,
    buffer: Vec<u8>,
}

impl Drop for Unpacker {
    fn drop(&mut self) {
        if self.buffer.len() <= MAX_KEPT_BYTES {
            BUFFER.set(std::mem::take(&mut self.buffer));
        }
    }
}

impl Unpacker {
    pub(crate) fn new() -> Unpacker {
        Unpacker {
            zstd: None,
            buffer: BUFFER.take(),
        }
    }

    /// Unpacks a page and gives its bytes; `None` if it is damaged, or packed in another way.
    pub(crate) fn unpack<'a>(&'a mut self, pages: &'a Pages, page: &Page) -> Option<&'a [u8]> {
        let stored = &pages.bytes[page.place.clone()];
        if pages.codec != CompressionCodec::UNCOMPRESSED && self.buffer.len() < page.size {
            self.buffer.resize(page.size, 0);
        }
        let size = match pages.codec {
            CompressionCodec::UNCOMPRESSED => stored.len(),
            CompressionCodec::LZ4_RAW => {
                let to = &mut self.buffer[..page.size];
                let size = i32::try_from(page.size).ok()?;
                lz4::block::decompress_to_buffer(stored, Some(size), to).ok()?
            }
            CompressionCodec::ZSTD => {
                if self.zstd.is_none() {
                    self.zstd = Decompressor::new().ok();
                }
                let to = &mut self.buffer[..page.size];
                self.zstd.as_mut()?.decompress_to_buffer(stored, to).ok()?
            }
            _ => return None,
        };
        (size == page.size).then(|| self.unpacked(pages, page))
    }

    /// The bytes of the page that was unpacked last.
    pub(crate) fn unpacked<'a>(&'a self, pages: &'a Pages, page: &Page) -> &'a [u8] {
        match pages.codec {
            CompressionCodec::UNCOMPRESSED => &pages.bytes[page.place.clone()],
            _ => &self.buffer[..page.size],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::basic::{Compression, ZstdLevel};
    use parquet::data_type::Int64Type;
    use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
    use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn properties() -> WriterPropertiesBuilder {
        WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_data_page_row_count_limit(100)
            .set_write_batch_size(100)
    }

    /// A file by the crate, and the bytes of its only column.
    fn column(properties: WriterPropertiesBuilder, values: &[i64]) -> (ParquetMetaData, Vec<u8>) {
        let schema = parse_message_type("message m { required int64 v; }").unwrap();
        let mut file = Vec::new();
        let properties = Arc::new(properties.build());
        let mut writer =
            SerializedFileWriter::new(&mut file, Arc::new(schema), properties).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let typed = column.typed::<Int64Type>();
        typed.write_batch(values, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        let file = bytes::Bytes::from(file);
        let metadata = ParquetMetaDataReader::new()
            .parse_and_finish(&file)
            .unwrap();
        let (start, length) = metadata.row_group(0).column(0).byte_range();
        let bytes = file.slice(start as usize..(start + length) as usize);
        (metadata, bytes.to_vec())
    }

    fn listed(metadata: &ParquetMetaData, bytes: Vec<u8>) -> Option<Pages> {
        Pages::of(metadata.row_group(0).column(0), bytes)
    }

    fn squares() -> Vec<i64> {
        (0..950).map(|v| v * v * v - 70 * v).collect()
    }

    #[test]
    fn pages_have_the_bytes_that_were_packed() {
        let plain: Vec<u8> = squares().iter().flat_map(|v| v.to_le_bytes()).collect();
        let zstd = Compression::ZSTD(ZstdLevel::default());
        for codec in [Compression::UNCOMPRESSED, Compression::LZ4_RAW, zstd] {
            let properties = properties().set_compression(codec);
            let (metadata, bytes) = column(
                properties.set_write_page_header_statistics(true),
                &squares(),
            );
            let pages = listed(&metadata, bytes).unwrap();
            let values = pages.list().iter().map(|page| page.values);
            assert_eq!(
                values.collect::<Vec<_>>(),
                [vec![100; 9], vec![50]].concat()
            );
            let (mut unpacker, mut all) = (Unpacker::new(), Vec::new());
            for page in pages.list() {
                assert_eq!(page.encoding, Encoding::PLAIN);
                all.extend_from_slice(unpacker.unpack(&pages, page).unwrap());
                assert!(all.ends_with(unpacker.unpacked(&pages, page)));
            }
            assert_eq!(all, plain, "{codec:?}");
        }
    }

    #[test]
    fn other_pages_are_left_to_the_crate() {
        let refused = |properties| {
            let (metadata, bytes) = column(properties, &squares());
            listed(&metadata, bytes)
                .is_none_or(|pages| Unpacker::new().unpack(&pages, &pages.list()[0]).is_none())
        };
        assert!(!refused(properties()));
        assert!(refused(properties().set_dictionary_enabled(true)));
        assert!(refused(
            properties().set_writer_version(WriterVersion::PARQUET_2_0)
        ));
        assert!(refused(properties().set_compression(Compression::SNAPPY)));
    }

    /// A header that claims a gigabyte, in front of 16 bytes.
    #[test]
    fn no_memory_is_taken_for_what_a_header_claims() {
        let (metadata, _) = column(properties(), &squares());
        let page = |unpacked: [u8; 5]| {
            let mut bytes = vec![0x15, 0, 0x15];
            bytes.extend(unpacked);
            bytes.extend([0x15, 32, 0x2c, 0x15, 4, 0x15, 0, 0, 0]);
            bytes.resize(bytes.len() + 16, 7);
            listed(&metadata, bytes)
        };
        assert_eq!(
            page([0xa0, 0x80, 0x80, 0x80, 0]).unwrap().list()[0].size,
            16
        );
        assert!(page([0x80, 0x80, 0x80, 0x80, 8]).is_none());
        // A negative one.
        assert!(page([0xa1, 0x80, 0x80, 0x80, 0]).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..60),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            end in any::<prop::sample::Index>(),
        ) {
            let properties = properties().set_compression(Compression::LZ4_RAW);
            let (metadata, mut damaged) = column(properties, &squares());
            for (at, byte) in changes {
                let at = at.index(damaged.len());
                damaged[at] = byte;
            }
            damaged.truncate(damaged.len() - end.index(50));
            for bytes in [bytes, damaged] {
                let most = bytes.len() * 320;
                if let Some(pages) = listed(&metadata, bytes) {
                    let mut unpacker = Unpacker::new();
                    for page in pages.list() {
                        prop_assert!(page.size <= most);
                        if let Some(plain) = unpacker.unpack(&pages, page) {
                            prop_assert_eq!(plain.len(), page.size);
                        }
                    }
                }
            }
        }
    }
}

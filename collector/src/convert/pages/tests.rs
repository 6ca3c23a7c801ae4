use crate::convert::pages::*;
use parquet::basic::{LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::reader::ColumnReader;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};
use proptest::prelude::*;
use std::sync::Arc;

/// Numbers that a column may have.
#[derive(Clone, Debug)]
enum Numbers {
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    Bool(Vec<bool>),
}

impl Numbers {
    fn kind(&self) -> &'static str {
        match self {
            Numbers::U8(_) => "u8",
            Numbers::U16(_) => "u16",
            Numbers::U32(_) => "u32",
            Numbers::U64(_) => "u64",
            Numbers::Bool(_) => "bool",
        }
    }

    /// As the file has them, widened to 64 bits with their sign.
    fn stored(&self) -> Vec<i64> {
        match self {
            Numbers::U8(v) => v.iter().map(|&v| v.into()).collect(),
            Numbers::U16(v) => v.iter().map(|&v| v.into()).collect(),
            Numbers::U32(v) => v.iter().map(|&v| v.cast_signed().into()).collect(),
            Numbers::U64(v) => v.iter().map(|&v| v.cast_signed()).collect(),
            Numbers::Bool(v) => v.iter().map(|&v| v.into()).collect(),
        }
    }

    /// The encodings in which the converter stores such a column.
    fn ways(&self) -> &'static [Stored] {
        match self {
            Numbers::U8(_) => &[Stored::Split],
            Numbers::Bool(_) => &[Stored::Plain],
            _ => &[Stored::Split, Stored::Differences],
        }
    }
}

impl PageSource for Numbers {
    fn len(&self) -> usize {
        self.stored().len()
    }

    fn page<'s>(&'s self, rows: Range<usize>, _: &'s mut Buffers) -> ColumnValues<'s> {
        match self {
            Numbers::U8(v) => ColumnValues::U8(&v[rows]),
            Numbers::U16(v) => ColumnValues::U16(&v[rows]),
            Numbers::U32(v) => ColumnValues::U32(&v[rows]),
            Numbers::U64(v) => ColumnValues::U64(&v[rows]),
            Numbers::Bool(v) => ColumnValues::Bool(&v[rows]),
        }
    }
}

fn schema(numbers: &Numbers) -> TypePtr {
    let (physical, bits) = match numbers {
        Numbers::U8(_) => (Physical::INT32, 8),
        Numbers::U16(_) => (Physical::INT32, 16),
        Numbers::U32(_) => (Physical::INT32, 32),
        Numbers::U64(_) => (Physical::INT64, 64),
        Numbers::Bool(_) => (Physical::BOOLEAN, 0),
    };
    let logical = (bits > 0).then_some(LogicalType::integer(bits, false));
    let column = Type::primitive_type_builder("n", physical)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(logical)
        .build()
        .unwrap();
    Arc::new(
        Type::group_type_builder("rows")
            .with_fields(vec![Arc::new(column)])
            .build()
            .unwrap(),
    )
}

/// A file of row groups with these numbers.
fn file(groups: &[Numbers], stored: Stored, codec: Codec) -> Bytes {
    let root = schema(&groups[0]);
    let descriptor = SchemaDescriptor::new(root.clone());
    let mut encoder = PageEncoder::new(codec).unwrap();
    let mut writer = SerializedFileWriter::new(Vec::new(), root, Arc::default()).unwrap();
    for numbers in groups {
        let chunk = encoder
            .chunk(descriptor.column(0), numbers.kind(), numbers, stored, true)
            .unwrap();
        let mut group = writer.next_row_group().unwrap();
        group.append_column(&chunk.bytes, chunk.close).unwrap();
        group.close().unwrap();
    }
    writer.into_inner().unwrap().into()
}

/// The numbers of a row group, read by the library.
fn read(file: &Bytes, group: usize) -> Vec<i64> {
    let reader = SerializedFileReader::new(file.clone()).unwrap();
    let rows = reader.metadata().row_group(group).num_rows() as usize;
    macro_rules! all {
        ($reader:expr) => {{
            let mut values = Vec::new();
            while values.len() < rows
                && $reader
                    .read_records(rows, None, None, &mut values)
                    .unwrap()
                    .0
                    > 0
            {}
            values.into_iter().map(i64::from).collect()
        }};
    }
    match reader
        .get_row_group(group)
        .unwrap()
        .get_column_reader(0)
        .unwrap()
    {
        ColumnReader::Int32ColumnReader(mut reader) => all!(reader),
        ColumnReader::Int64ColumnReader(mut reader) => all!(reader),
        ColumnReader::BoolColumnReader(mut reader) => all!(reader),
        _ => unreachable!(),
    }
}

fn codecs() -> [Codec; 3] {
    [
        Codec::LZ4_RAW,
        Codec::ZSTD(ZstdLevel::try_new(3).unwrap()),
        Codec::UNCOMPRESSED,
    ]
}

fn check(numbers: &Numbers) {
    for &stored in numbers.ways() {
        for codec in codecs() {
            let file = file(std::slice::from_ref(numbers), stored, codec);
            assert!(read(&file, 0) == numbers.stored(), "{stored:?}, {codec:?}");
        }
    }
}

/// Lengths around the sizes of blocks, parts and pages.
fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 0usize..300,
        2 => prop::sample::select(vec![0usize, 1, 2, 15, 16, 17, 63, 64, 65, 66, 127, 128, 129, 130, 255, 256, 257, 258, 511, 512, 513, 514]),
        1 => prop::sample::select(vec![MAX_PAGE_BYTES / 8 - 1, MAX_PAGE_BYTES / 8, MAX_PAGE_BYTES / 8 + 1, MAX_PAGE_BYTES / 4, MAX_PAGE_BYTES / 4 + 1, 3 * MAX_PAGE_BYTES / 8 + 2, MAX_PAGE_BYTES + 3]),
    ]
}

/// Numbers whose differences wrap. The steps are constant, constant with exceptions, of any width,
/// or extreme.
fn values() -> impl Strategy<Value = Vec<u64>> {
    let first = prop_oneof![
        Just(0u64),
        Just(u64::MAX),
        Just(1u64 << 63),
        Just(1u64 << 31),
        any::<u64>()
    ];
    let step = prop_oneof![
        Just(0u64),
        Just(1u64),
        Just(u64::MAX),
        Just(1u64 << 63),
        Just((1u64 << 63) - 1),
        any::<u64>()
    ];
    (lengths(), first, step, 0u32..65, 0u32..3, any::<u64>()).prop_map(
        |(length, first, step, bits, kind, seed)| {
            let (mut value, mut state) = (first, seed | 1);
            let mut random = move || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state
            };
            let mask = u64::MAX.checked_shr(64 - bits).unwrap_or(0);
            (0..length)
                .map(|_| {
                    let this = value;
                    let by = match kind {
                        0 => step,
                        1 if random() % 97 == 0 => random() & mask,
                        1 => step,
                        _ => random() & mask,
                    };
                    value = value.wrapping_add(by);
                    this
                })
                .collect()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_library_reads_what_was_written(values in values()) {
        check(&Numbers::U8(values.iter().map(|&v| v as u8).collect()));
        check(&Numbers::U16(values.iter().map(|&v| v as u16).collect()));
        check(&Numbers::U32(values.iter().map(|&v| v as u32).collect()));
        check(&Numbers::Bool(values.iter().map(|&v| v & 4 != 0).collect()));
        check(&Numbers::U64(values));
    }
}

#[test]
fn extreme_differences_and_widths_are_read_as_written() {
    let extremes = [
        0,
        u64::MAX,
        1 << 63,
        (1 << 63) - 1,
        0,
        1 << 63,
        u64::MAX,
        1,
        u64::MAX - 1,
    ];
    for length in [1, 2, 3, 64, 65, 66, 256, 257, 258, 600] {
        check(&Numbers::U64(
            extremes.iter().copied().cycle().take(length).collect(),
        ));
        check(&Numbers::U32(
            extremes
                .iter()
                .map(|&v| (v ^ v >> 32) as u32)
                .cycle()
                .take(length)
                .collect(),
        ));
        check(&Numbers::U16(
            extremes
                .iter()
                .map(|&v| v as u16)
                .cycle()
                .take(length)
                .collect(),
        ));
    }
    // One difference of each width among zeros.
    for bits in 0..64 {
        check(&Numbers::U64(
            (0..200)
                .map(|row| if row == 77 { 1 << bits } else { 0 })
                .collect(),
        ));
    }
}

#[test]
fn numbers_that_are_only_told_are_packed_like_those_that_are_there() {
    let packed = |column: ColumnValues| {
        let mut bytes = Vec::new();
        column.encode(Stored::Differences, &mut bytes);
        bytes
    };
    for rows in [1, 2, 3, 128, 129, 130, 32_768] {
        for value in [0, 7, 1 << 31, u32::MAX] {
            assert_eq!(
                packed(ColumnValues::Same(value, rows)),
                packed(ColumnValues::U32(&vec![value; rows]))
            );
            assert_eq!(
                ColumnValues::Same(value, rows).bounds(Some((9, 10))),
                ColumnValues::U32(&vec![value; rows]).bounds(Some((9, 10)))
            );
        }
        assert_eq!(
            packed(ColumnValues::Same(3, rows)),
            packed(ColumnValues::U16(&vec![3; rows]))
        );
        for first in [0, 1 << 40, 1 << 63, u64::MAX - 40_000] {
            assert_eq!(
                packed(ColumnValues::Counting(first, rows)),
                packed(ColumnValues::U64(
                    &(first..first + rows as u64).collect::<Vec<_>>()
                ))
            );
        }
    }
}

#[test]
fn even_pages_take_a_few_bytes() {
    for (numbers, most) in [
        (Numbers::U32(vec![7; MAX_PAGE_BYTES / 4]), 60),
        (
            Numbers::U64(
                (0..MAX_PAGE_BYTES as u64 / 8)
                    .map(|row| (1 << 40) + row)
                    .collect(),
            ),
            60,
        ),
        (
            Numbers::U64(
                (0..MAX_PAGE_BYTES as u64 / 8)
                    .map(|row| 0u64.wrapping_sub(row * 3))
                    .collect(),
            ),
            60,
        ),
    ] {
        let mut encoder = PageEncoder::new(Codec::UNCOMPRESSED).unwrap();
        let chunk = encoder
            .chunk(
                SchemaDescriptor::new(schema(&numbers)).column(0),
                numbers.kind(),
                &numbers,
                Stored::Differences,
                false,
            )
            .unwrap();
        assert!(chunk.bytes.len() < most, "{} bytes", chunk.bytes.len());
        check(&numbers);
    }
}

/// The library's own writer with the same settings gives the same statistics, encodings and rows,
/// and no fewer bytes.
#[test]
fn chunks_say_what_those_of_the_library_say() {
    use parquet::basic::Encoding;
    let values: Vec<u32> = (0..200_000u32)
        .map(|row| (row / 1000).wrapping_mul(0x9000_0001))
        .collect();
    let numbers = Numbers::U32(values.clone());
    let ours = file(
        &[numbers.clone(), numbers.clone()],
        Stored::Differences,
        Codec::LZ4_RAW,
    );
    let properties = WriterProperties::builder()
        .set_compression(Codec::LZ4_RAW)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_encoding(Encoding::DELTA_BINARY_PACKED)
        .build();
    let mut writer =
        SerializedFileWriter::new(Vec::new(), schema(&numbers), Arc::new(properties)).unwrap();
    for _ in 0..2 {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column
            .typed::<parquet::data_type::Int32Type>()
            .write_batch(bytemuck::cast_slice(&values), None, None)
            .unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    let theirs: Bytes = writer.into_inner().unwrap().into();
    let (ours, theirs) = (
        SerializedFileReader::new(ours).unwrap(),
        SerializedFileReader::new(theirs).unwrap(),
    );
    for group in 0..2 {
        let (our, their) = (
            ours.metadata().row_group(group),
            theirs.metadata().row_group(group),
        );
        assert_eq!(our.num_rows(), their.num_rows());
        let (our, their) = (our.column(0), their.column(0));
        assert_eq!(our.statistics(), their.statistics());
        assert!(our.statistics().is_some());
        assert_eq!(
            our.encodings().collect::<Vec<_>>(),
            their.encodings().collect::<Vec<_>>()
        );
        assert_eq!(
            (our.num_values(), our.compression_codec()),
            (their.num_values(), their.compression_codec())
        );
        assert!(
            our.compressed_size() <= their.compressed_size(),
            "{} bytes, {}",
            our.compressed_size(),
            their.compressed_size()
        );
    }
}

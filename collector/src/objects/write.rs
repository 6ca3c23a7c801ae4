//! `objects.parquet` out: one row per instance.

use super::{Instance, OBJECTS, Object};
use arrow_array::{ArrayRef, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Columns and their types.
const COLUMNS: [(&str, DataType); 11] = [
    ("process", DataType::UInt32),
    ("object", DataType::UInt64),
    ("kind", DataType::Utf8),
    ("name", DataType::Utf8),
    ("type", DataType::Utf8),
    ("module", DataType::Utf8),
    ("stack", DataType::Utf8),
    ("start", DataType::UInt64),
    ("bytes", DataType::UInt64),
    ("begin_ns", DataType::UInt64),
    ("end_ns", DataType::UInt64),
];

/// Writes the file into a trace folder, mode 0600. Nothing is written where there are no instances.
pub fn write(folder: &Path, list: &[Instance]) -> anyhow::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    if list.is_empty() {
        return Ok(());
    }
    let mut numbers: BTreeMap<&Object, u64> = BTreeMap::new();
    for instance in list {
        let next = numbers.len() as u64 + 1;
        numbers.entry(&instance.object).or_insert(next);
    }
    let u64s = |of: &dyn Fn(&Instance) -> u64| Arc::new(list.iter().map(of).collect::<UInt64Array>()) as ArrayRef;
    let texts = |of: &dyn Fn(&Object) -> String| Arc::new(list.iter().map(|i| Some(of(&i.object))).collect::<StringArray>()) as ArrayRef;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(list.iter().map(|i| i.process).collect::<UInt32Array>()),
        u64s(&|i| numbers[&i.object]),
        texts(&|o| o.kind.name().to_owned()),
        texts(&|o| o.name.clone()),
        texts(&|o| o.of_type.clone()),
        texts(&|o| o.module.clone()),
        texts(&|_| String::new()),
        u64s(&|i| i.start),
        u64s(&|i| i.bytes),
        u64s(&|i| i.begin_ns),
        u64s(&|i| i.end_ns),
    ];
    let fields: Vec<Field> = COLUMNS.iter().map(|(name, kind)| Field::new(*name, kind.clone(), false)).collect();
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(schema.clone(), columns)?;
    let temporary = folder.join("objects.parquet.tmp");
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    let properties = WriterProperties::builder().set_compression(Compression::LZ4_RAW).build();
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties))?;
    writer.write(&batch)?;
    writer.close()?;
    std::fs::rename(&temporary, folder.join(OBJECTS))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Kind;
    use arrow_array::cast::AsArray;
    use arrow_array::types::UInt64Type;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    #[test]
    fn rows_of_one_object_share_its_number() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &[]).unwrap();
        assert!(!dir.path().join(OBJECTS).exists());
        let object = |name: &str| Object { kind: Kind::Global, name: name.into(), of_type: "int".into(), module: "a".into() };
        let instance = |process, start, object| Instance { process, start, bytes: 4, begin_ns: 0, end_ns: u64::MAX, object };
        write(dir.path(), &[instance(1, 16, object("x")), instance(1, 32, object("y")), instance(2, 16, object("x"))]).unwrap();
        let file = std::fs::File::open(dir.path().join(OBJECTS)).unwrap();
        let batch = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap().next().unwrap().unwrap();
        let numbers: Vec<u64> = batch.column_by_name("object").unwrap().as_primitive::<UInt64Type>().values().to_vec();
        assert_eq!((numbers[0] == numbers[2], numbers[0] == numbers[1], numbers.contains(&0)), (true, false, false));
        assert_eq!(batch.column_by_name("name").unwrap().as_string::<i32>().value(1), "y");
        assert_eq!(batch.num_columns(), 11);
    }
}

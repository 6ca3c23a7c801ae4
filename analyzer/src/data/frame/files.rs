//! Tables in CSV and Parquet files.

use super::{Column, Frame, frame, json};
use polars_arrow::array::{Array, new_empty_array};
use polars_arrow::compute::concatenate::concatenate;
use polars_arrow::datatypes::{ArrowSchema, Field};
use polars_arrow::record_batch::RecordBatchT;
use polars_parquet::read::{
    BasicDecompressor, FileMetadata, Filter, PageReader, RowGroupMetadata, column_iter_to_arrays,
    infer_schema, read_metadata,
};
use polars_parquet::write::{
    CompressionOptions, FileWriter, StatisticsOptions, Version, WriteOptions, ZstdLevel,
    get_dtype_encoding, row_group_iter,
};
use serde_json::Value;
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Cursor, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

fn sentence(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A value as text: lists are joined by `; `.
fn plain(value: Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text),
        Value::Array(items) => {
            let items: Vec<String> = items.into_iter().filter_map(plain).collect();
            Some(items.join("; "))
        }
        other => Some(other.to_string()),
    }
}

/// A field of CSV. An empty text is quoted, an empty cell is not.
fn quoted(text: &str) -> Cow<'_, str> {
    match text.is_empty() || text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")).into(),
        false => text.into(),
    }
}

/// Writes a table as CSV with a header line. CSV has no lists or records: they become texts.
pub(crate) fn write_csv(table: &Frame, to: File) -> Result<(), String> {
    let mut to = BufWriter::new(to);
    let names = table.columns.iter().map(|c| quoted(&c.name));
    let mut line = names.collect::<Vec<_>>().join(",");
    for row in 0..=table.rows {
        line.push('\n');
        to.write_all(line.as_bytes()).map_err(sentence)?;
        line.clear();
        if row == table.rows {
            break;
        }
        for (at, column) in table.columns.iter().enumerate() {
            if at > 0 {
                line.push(',');
            }
            if let Some(text) = json(&*column.cells, row).and_then(plain) {
                line.push_str(&quoted(&text));
            }
        }
    }
    to.flush().map_err(sentence)
}

/// Rows of a row group. Source: The default of most writers.
const GROUP: usize = 1 << 20;

/// Writes a table as Parquet.
pub(crate) fn write_parquet(table: &Frame, to: File) -> Result<(), String> {
    let options = WriteOptions {
        statistics: StatisticsOptions::default(),
        version: Version::V1,
        compression: CompressionOptions::Zstd(Some(ZstdLevel::try_new(3).map_err(sentence)?)),
        data_page_size: None,
    };
    let fields: Vec<Field> = table.columns.iter().map(Column::field).collect();
    let encodings: Vec<_> = fields
        .iter()
        .map(|f| get_dtype_encoding(&f.dtype))
        .collect();
    let fields = fields.into_iter().map(|f| (f.name.clone(), f));
    let schema = ArrowSchema::from_iter(fields);
    let mut writer =
        FileWriter::try_new(BufWriter::new(to), schema.clone(), options).map_err(sentence)?;
    let types = writer.parquet_schema().fields().to_vec();
    let schema = Arc::new(schema);
    for from in (0..table.rows).step_by(GROUP) {
        let rows = GROUP.min(table.rows - from);
        let cells = table.columns.iter().map(|c| c.cells.sliced(from, rows));
        let batch = RecordBatchT::new(rows, schema.clone(), cells.collect());
        let group = row_group_iter(batch, encodings.clone().into(), types.clone(), options);
        writer.write(rows as u64, group).map_err(sentence)?;
    }
    writer.end(None).map_err(sentence)?;
    writer.into_inner().flush().map_err(sentence)
}

/// Reads a Parquet file.
pub fn read_parquet(from: File) -> Result<Frame, String> {
    read(from, None, usize::MAX)
}

/// Reads some columns of a Parquet file, and at most `rows` rows.
pub fn read_columns(from: File, names: &[&str], rows: Option<usize>) -> Result<Frame, String> {
    read(from, Some(names), rows.unwrap_or(usize::MAX))
}

/// Names of the columns of a Parquet file.
pub(crate) fn column_names(mut from: File) -> Result<Vec<String>, String> {
    let metadata = read_metadata(&mut from).map_err(sentence)?;
    let fields = metadata.schema().fields();
    Ok(fields.iter().map(|f| f.name().to_owned()).collect())
}

/// Reads columns, all if none are named. Files are untrusted: byte ranges and lengths are checked.
fn read(mut from: File, names: Option<&[&str]>, most: usize) -> Result<Frame, String> {
    let metadata = read_metadata(&mut from).map_err(sentence)?;
    let schema = infer_schema(&metadata).map_err(sentence)?;
    let fields: Vec<&Field> = match names {
        None => schema.iter_values().collect(),
        Some(names) => names
            .iter()
            .map(|name| {
                let field = schema.get(name);
                field.ok_or_else(|| format!("column {name:?} is missing"))
            })
            .collect::<Result<_, _>>()?,
    };
    let columns = fields.into_iter().map(|field| {
        Ok(Column {
            name: field.name.to_string(),
            cells: read_column(&mut from, &metadata, field, most)?,
        })
    });
    frame(columns.collect::<Result<_, String>>()?)
}

/// The cells of a column in all row groups.
fn read_column(
    from: &mut File,
    metadata: &FileMetadata,
    field: &Field,
    most: usize,
) -> Result<Box<dyn Array>, String> {
    let (mut cells, mut left) = (Vec::new(), most);
    for group in &metadata.row_groups {
        let rows = group.num_rows().min(left);
        if rows > 0 {
            cells.extend(read_cells(from, group, field, rows)?);
            left -= rows;
        }
    }
    match &cells[..] {
        [] => Ok(new_empty_array(field.dtype.clone())),
        [_] => Ok(cells.remove(0)),
        _ => {
            let cells: Vec<&dyn Array> = cells.iter().map(|c| &**c).collect();
            concatenate(&cells).map_err(sentence)
        }
    }
}

/// The first cells of a column in a row group.
fn read_cells(
    from: &mut File,
    group: &RowGroupMetadata,
    field: &Field,
    rows: usize,
) -> Result<Vec<Box<dyn Array>>, String> {
    let name = field.name.as_str();
    let columns: Vec<_> = group
        .columns_under_root_iter(name)
        .into_iter()
        .flatten()
        .collect();
    let mut pages = Vec::with_capacity(columns.len());
    for column in &columns {
        let range = column.byte_range();
        let length = range.end.saturating_sub(range.start);
        let mut bytes = Vec::new();
        from.seek(SeekFrom::Start(range.start)).map_err(sentence)?;
        from.take(length)
            .read_to_end(&mut bytes)
            .map_err(sentence)?;
        if bytes.len() as u64 != length {
            return Err(format!("column {name:?} lies beyond the end of the file"));
        }
        let read = PageReader::new(Cursor::new(bytes.into()), column, Vec::new(), usize::MAX);
        pages.push(BasicDecompressor::new(read, Vec::new()));
    }
    let types = columns
        .iter()
        .map(|c| &c.descriptor().descriptor.primitive_type)
        .collect();
    let first = (rows < group.num_rows()).then(|| Filter::new_limited(rows));
    let (cells, _) = column_iter_to_arrays(pages, types, field.clone(), first)
        .map_err(|e| format!("column {name:?}: {e}"))?;
    match cells.iter().map(|c| c.len()).sum::<usize>() {
        length if length == rows => Ok(cells),
        length => Err(format!(
            "column {name:?} has {length} rows, expected {rows}"
        )),
    }
}

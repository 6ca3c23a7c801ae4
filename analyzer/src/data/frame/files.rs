//! Tables in CSV and Parquet files.

use super::{Column, Frame, frame, json};
use arrow_array::{ArrayRef, RecordBatch, new_empty_array};
use arrow_schema::SchemaRef;
use arrow_select::concat::concat;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::ParquetMetaDataReader;
use parquet::file::properties::WriterProperties;
use serde_json::Value;
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Write};

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
            if let Some(text) = json(&column.cells, row).and_then(plain) {
                line.push_str(&quoted(&text));
            }
        }
    }
    to.flush().map_err(sentence)
}

/// Rows of a row group, and those that are read at once. Source: The default of most writers.
const GROUP: usize = 1 << 20;

/// Writes a table as Parquet.
pub(crate) fn write_parquet(table: &Frame, to: File) -> Result<(), String> {
    let level = ZstdLevel::try_new(3).map_err(sentence)?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_max_row_group_row_count(Some(GROUP))
        .build();
    let records = table.records();
    let mut writer =
        ArrowWriter::try_new(to, records.schema(), Some(properties)).map_err(sentence)?;
    writer.write(&records).map_err(sentence)?;
    writer.close().map(drop).map_err(sentence)
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
pub(crate) fn column_names(from: File) -> Result<Vec<String>, String> {
    let metadata = ParquetMetaDataReader::new();
    let metadata = metadata.parse_and_finish(&from).map_err(sentence)?;
    let fields = metadata.file_metadata().schema().get_fields();
    Ok(fields.iter().map(|f| f.name().to_owned()).collect())
}

/// Reads columns, all if none are named.
fn read(from: File, names: Option<&[&str]>, most: usize) -> Result<Frame, String> {
    // The types are those of Parquet itself: another writer's Arrow types are as many as it likes.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let file = ParquetRecordBatchReaderBuilder::try_new_with_options(from, options);
    let file = file.map_err(sentence)?;
    let schema = file.schema().clone();
    let wanted: Vec<usize> = match names {
        None => (0..schema.fields().len()).collect(),
        Some(names) => names
            .iter()
            .map(|name| {
                let place = schema.index_of(name);
                place.map_err(|_| format!("column {name:?} is missing"))
            })
            .collect::<Result<_, _>>()?,
    };
    let mask = ProjectionMask::roots(file.parquet_schema(), wanted.iter().copied());
    let reader = file
        .with_projection(mask)
        .with_batch_size(GROUP)
        .with_limit(most)
        .build()
        .map_err(sentence)?;
    let batches = reader.collect::<Result<Vec<RecordBatch>, _>>();
    let batches = batches.map_err(sentence)?;
    let columns = wanted.into_iter().map(|at| {
        Ok(Column {
            name: schema.field(at).name().clone(),
            cells: cells_of(&batches, &schema, at)?,
        })
    });
    frame(columns.collect::<Result<_, String>>()?)
}

/// The cells of a column in all batches.
fn cells_of(batches: &[RecordBatch], schema: &SchemaRef, at: usize) -> Result<ArrayRef, String> {
    let field = schema.field(at);
    let cells: Vec<&ArrayRef> = batches
        .iter()
        .map(|batch| batch.column_by_name(field.name()))
        .collect::<Option<_>>()
        .ok_or_else(|| format!("column {:?} is missing", field.name()))?;
    match cells[..] {
        [] => Ok(new_empty_array(field.data_type())),
        [cells] => Ok(cells.clone()),
        _ => {
            let cells: Vec<_> = cells.into_iter().map(|c| &**c).collect();
            concat(&cells).map_err(sentence)
        }
    }
}

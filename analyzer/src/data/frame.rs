//! Tables as polars' data frames: made of rows, read, sorted and written.

use polars::prelude::*;
use polars_parquet::write::ZstdLevel;
use serde_json::{Map, Value};
use std::fs::File;

/// Type of a column's values. It does not depend on the values: files of all traces have the same
/// types, even for tables without rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Whole numbers that are not negative.
    Whole,
    /// Whole numbers.
    Signed,
    /// Floating-point numbers.
    Number,
    /// Texts.
    Text,
    /// True or false.
    Flag,
    /// Lists of values of one kind.
    List(&'static ColumnKind),
    /// Records with named fields.
    Record(&'static [(&'static str, ColumnKind)]),
}

impl ColumnKind {
    fn data_type(self) -> DataType {
        match self {
            ColumnKind::Whole => DataType::UInt64,
            ColumnKind::Signed => DataType::Int64,
            ColumnKind::Number => DataType::Float64,
            ColumnKind::Text => DataType::String,
            ColumnKind::Flag => DataType::Boolean,
            ColumnKind::List(item) => DataType::List(Box::new(item.data_type())),
            ColumnKind::Record(fields) => DataType::Struct(ColumnKind::fields(fields)),
        }
    }

    fn fields(fields: &[(&'static str, ColumnKind)]) -> Vec<Field> {
        fields
            .iter()
            .map(|&(name, kind)| Field::new(name.into(), kind.data_type()))
            .collect()
    }

    /// A value as a cell of a column of this kind; `None` if it has another kind. Every kind may
    /// have empty cells.
    fn cell(self, value: &Value) -> Option<AnyValue<'static>> {
        Some(match (self, value) {
            (_, Value::Null) => AnyValue::Null,
            (ColumnKind::Whole, _) => AnyValue::UInt64(value.as_u64()?),
            (ColumnKind::Signed, _) => AnyValue::Int64(value.as_i64()?),
            (ColumnKind::Number, _) => AnyValue::Float64(value.as_f64()?),
            (ColumnKind::Text, Value::String(text)) => AnyValue::StringOwned(text.as_str().into()),
            (ColumnKind::Flag, Value::Bool(flag)) => AnyValue::Boolean(*flag),
            (ColumnKind::List(item), Value::Array(items)) => {
                AnyValue::List(item.series("", items.iter()).ok()?)
            }
            (ColumnKind::Record(fields), Value::Object(map)) => {
                if map.keys().any(|key| !fields.iter().any(|f| f.0 == key)) {
                    return None;
                }
                let cells = fields
                    .iter()
                    .map(|(name, kind)| kind.cell(map.get(*name).unwrap_or(&Value::Null)))
                    .collect::<Option<Vec<_>>>()?;
                AnyValue::StructOwned(Box::new((cells, ColumnKind::fields(fields))))
            }
            _ => return None,
        })
    }

    fn series<'a>(
        self,
        name: &str,
        values: impl Iterator<Item = &'a Value>,
    ) -> Result<Series, String> {
        let cells = values
            .map(|value| {
                self.cell(value)
                    .ok_or_else(|| format!("{value:.80} is not of the kind {self:?}"))
            })
            .collect::<Result<Vec<_>, _>>()?;
        Series::from_any_values_and_dtype(name.into(), &cells, &self.data_type(), true)
            .map_err(sentence)
    }
}

fn sentence(error: PolarsError) -> String {
    error.to_string()
}

/// A column of a kind; a sentence says which value is of another one.
pub fn column(name: &str, kind: ColumnKind, values: &[&Value]) -> Result<Column, String> {
    kind.series(name, values.iter().copied())
        .map(Column::from)
        .map_err(|e| format!("column {name:?}: {e}"))
}

/// A table of columns. It is an error if they differ in length or two have one name.
pub fn frame(columns: Vec<Column>) -> Result<DataFrame, String> {
    DataFrame::new_infer_height(columns).map_err(sentence)
}

/// Order of rows by some columns, the most significant first. Equal rows keep their order.
/// `descending`: by column. Empty cells come last.
pub(crate) fn order(keys: Vec<Column>, descending: Vec<bool>) -> Result<Vec<usize>, String> {
    let names: Vec<PlSmallStr> = keys.iter().map(|key| key.name().clone()).collect();
    let rows = frame(keys)?;
    let options = SortMultipleOptions::new()
        .with_order_descending_multi(descending)
        .with_nulls_last(true)
        .with_maintain_order(true)
        .with_multithreaded(false);
    let sorted = rows
        .with_row_index("[row]".into(), None)
        .and_then(|rows| rows.sort(names, options))
        .map_err(sentence)?;
    Ok(numbers(&sorted, "[row]")?
        .into_iter()
        .map(|row| row as usize)
        .collect())
}

/// A cell as JSON.
fn json(cell: &AnyValue) -> Value {
    match cell {
        AnyValue::Boolean(flag) => (*flag).into(),
        AnyValue::UInt64(number) => (*number).into(),
        AnyValue::Int64(number) => (*number).into(),
        AnyValue::Float64(number) => (*number).into(),
        AnyValue::String(text) => (*text).into(),
        AnyValue::StringOwned(text) => text.as_str().into(),
        AnyValue::List(items) => items.iter().map(|item| json(&item)).collect(),
        AnyValue::Struct(_, _, fields) => {
            let cells = cell._iter_struct_av();
            let named = fields
                .iter()
                .zip(cells)
                .map(|(field, cell)| (field.name().to_string(), json(&cell)));
            Value::Object(named.collect())
        }
        _ => Value::Null,
    }
}

/// The rows of a table as JSON has them: objects with the columns as keys.
pub fn json_rows(frame: &DataFrame) -> Vec<Value> {
    let columns: Vec<(&str, &Series)> = frame
        .columns()
        .iter()
        .map(|c| (c.name().as_str(), c.as_materialized_series()))
        .collect();
    (0..frame.height())
        .map(|row| {
            let cells = columns.iter().map(|(name, cells)| {
                let cell = cells.get(row).map_or(Value::Null, |cell| json(&cell));
                (name.to_string(), cell)
            });
            Value::Object(cells.collect::<Map<_, _>>())
        })
        .collect()
}

/// A value as text: lists are joined by `; `.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(s) => Some(s.clone()),
        Value::Array(items) => Some(
            items
                .iter()
                .filter_map(plain)
                .collect::<Vec<_>>()
                .join("; "),
        ),
        other => Some(other.to_string()),
    }
}

/// Writes a table as CSV with a header line. Lists and records, which CSV does not have, are texts there.
pub(crate) fn write_csv(table: &DataFrame, to: File) -> Result<(), String> {
    let columns = table.columns().iter().map(|cells| {
        if !cells.dtype().is_nested() {
            return cells.clone();
        }
        let texts: StringChunked = cells
            .as_materialized_series()
            .iter()
            .map(|cell| plain(&json(&cell)))
            .collect();
        texts.with_name(cells.name().clone()).into_series().into()
    });
    let mut flat = frame(columns.collect())?;
    CsvWriter::new(std::io::BufWriter::new(to))
        .finish(&mut flat)
        .map_err(sentence)
}

/// Writes a table as Parquet.
pub(crate) fn write_parquet(table: &DataFrame, to: File) -> Result<(), String> {
    let level = ZstdLevel::try_new(3).map_err(sentence)?;
    ParquetWriter::new(to)
        .with_compression(ParquetCompression::Zstd(Some(level)))
        .finish(&mut table.clone())
        .map(drop)
        .map_err(sentence)
}

/// Reads a Parquet file.
pub fn read_parquet(from: File) -> Result<DataFrame, String> {
    ParquetReader::new(from)
        .read_parallel(ParallelStrategy::None)
        .finish()
        .map_err(sentence)
}

/// Reads some columns of a Parquet file, and at most so many rows.
pub fn read_columns(from: File, names: &[&str], rows: Option<usize>) -> Result<DataFrame, String> {
    ParquetReader::new(from)
        .read_parallel(ParallelStrategy::None)
        .with_columns(Some(names.iter().map(|&n| n.to_owned()).collect()))
        .with_slice(rows.map(|rows| (0, rows)))
        .finish()
        .map_err(sentence)
}

/// Names of the columns of a Parquet file.
pub(crate) fn column_names(from: File) -> Result<Vec<String>, String> {
    let schema = ParquetReader::new(from).schema().map_err(sentence)?;
    Ok(schema.iter_names().map(|n| n.to_string()).collect())
}

fn cells<'a>(table: &'a DataFrame, name: &str) -> Result<&'a Column, String> {
    table
        .column(name)
        .map_err(|_| format!("column {name:?} is missing"))
}

/// True if there is a column of this name.
pub fn has(table: &DataFrame, name: &str) -> bool {
    table.column(name).is_ok()
}

/// A column of whole numbers; negative ones count as empty.
pub fn whole(table: &DataFrame, name: &str) -> Result<Vec<Option<u64>>, String> {
    let cells = cells(table, name)?;
    if !cells.dtype().is_integer() {
        return Err(format!("column {name:?} has no whole numbers"));
    }
    let cells = cells.cast(&DataType::UInt64).map_err(sentence)?;
    Ok(cells.u64().map_err(sentence)?.iter().collect())
}

/// The same of a long column, which is copied at once where it has 64-bit numbers.
pub fn many_numbers(table: &DataFrame, name: &str) -> Result<Vec<u64>, String> {
    let column = cells(table, name)?;
    let Ok(of) = column.u64() else {
        return numbers(table, name);
    };
    if column.null_count() > 0 {
        return numbers(table, name);
    }
    let mut all = Vec::with_capacity(of.len());
    for chunk in of.downcast_iter() {
        all.extend_from_slice(chunk.values());
    }
    Ok(all)
}

/// A column of 32-bit floating-point numbers, none of which is empty.
pub(crate) fn many_floats(table: &DataFrame, name: &str) -> Result<Vec<f32>, String> {
    let column = cells(table, name)?;
    let of = column
        .f32()
        .ok()
        .filter(|of| of.null_count() == 0)
        .ok_or_else(|| format!("column {name:?} has no floating-point numbers"))?;
    let mut all = Vec::with_capacity(of.len());
    for chunk in of.downcast_iter() {
        all.extend_from_slice(chunk.values());
    }
    Ok(all)
}

/// A column of whole numbers of which none is empty.
pub fn numbers(table: &DataFrame, name: &str) -> Result<Vec<u64>, String> {
    whole(table, name)?
        .into_iter()
        .collect::<Option<Vec<u64>>>()
        .ok_or_else(|| format!("column {name:?} has empty or negative fields"))
}

/// A column of floating-point numbers.
pub(crate) fn floats(table: &DataFrame, name: &str) -> Result<Vec<Option<f64>>, String> {
    let cells = cells(table, name)?;
    if !cells.dtype().is_float() {
        return Err(format!("column {name:?} has no floating-point numbers"));
    }
    let cells = cells.cast(&DataType::Float64).map_err(sentence)?;
    Ok(cells.f64().map_err(sentence)?.iter().collect())
}

/// A column of truth values of which none is empty.
pub(crate) fn flags(table: &DataFrame, name: &str) -> Result<Vec<bool>, String> {
    let flags = cells(table, name)?
        .bool()
        .map_err(|_| format!("column {name:?} has no truth values"))?;
    flags
        .iter()
        .collect::<Option<Vec<bool>>>()
        .ok_or_else(|| format!("column {name:?} has empty fields"))
}

/// A column of truth values.
pub(crate) fn maybe_flags(table: &DataFrame, name: &str) -> Result<Vec<Option<bool>>, String> {
    let flags = cells(table, name)?
        .bool()
        .map_err(|_| format!("column {name:?} has no truth values"))?;
    Ok(flags.iter().collect())
}

/// A column of texts.
pub fn texts<'a>(table: &'a DataFrame, name: &str) -> Result<Vec<Option<&'a str>>, String> {
    let texts = cells(table, name)?
        .str()
        .map_err(|_| format!("column {name:?} has no texts"))?;
    Ok(texts.iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{Array, ArrayRef, RecordBatch};
    use parquet::arrow::ArrowWriter;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use std::sync::Arc;

    fn made(name: &str, kind: ColumnKind, values: Value) -> Column {
        let values: Vec<&Value> = values.as_array().unwrap().iter().collect();
        column(name, kind, &values).unwrap()
    }

    fn mixed() -> DataFrame {
        frame(vec![
            made(
                "n",
                ColumnKind::Whole,
                serde_json::json!([0, null, u64::MAX]),
            ),
            made(
                "x, y",
                ColumnKind::Number,
                serde_json::json!([1, 1e-9, null]),
            ),
            made(
                "name",
                ColumnKind::Text,
                serde_json::json!(["std::map<int, int>", "", null]),
            ),
        ])
        .unwrap()
    }

    #[test]
    fn csv_has_quotes_where_they_are_needed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.csv");
        let csv = |table: &DataFrame| {
            write_csv(table, File::create(&path).unwrap()).unwrap();
            std::fs::read_to_string(&path).unwrap()
        };
        assert_eq!(
            csv(&mixed()),
            "n,\"x, y\",name\n0,1.0,\"std::map<int, int>\"\n,1e-9,\"\"\n18446744073709551615,,\n"
        );
        let said = made("t", ColumnKind::Text, serde_json::json!(["say \"no\"\n"]));
        assert_eq!(
            csv(&frame(vec![said]).unwrap()),
            "t\n\"say \"\"no\"\"\n\"\n"
        );
    }

    #[test]
    fn flags_lists_and_records_have_types_of_their_own_in_parquet_and_are_text_in_csv() {
        const ITEM: ColumnKind =
            ColumnKind::Record(&[("from", ColumnKind::Signed), ("pct", ColumnKind::Number)]);
        let strides =
            serde_json::json!([[{"from": -8, "pct": 50.0}, {"from": 8, "pct": null}], []]);
        let table = frame(vec![
            made("flag", ColumnKind::Flag, serde_json::json!([true, null])),
            made("strides", ColumnKind::List(&ITEM), strides.clone()),
            made(
                "stack",
                ColumnKind::List(&ColumnKind::Text),
                serde_json::json!([["f < g", "h"], null]),
            ),
        ])
        .unwrap();
        let again = json_rows(&table);
        assert_eq!(
            [&again[0]["strides"], &again[1]["strides"]],
            [&strides[0], &strides[1]]
        );
        assert!(again[1]["stack"].is_null() && again[0]["flag"] == true);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        write_csv(&table, File::create(&path).unwrap()).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "flag,strides,stack\ntrue,\"{\"\"from\"\":-8,\"\"pct\"\":50.0}; {\"\"from\"\":8,\"\"pct\"\":null}\",f < g; h\n,\"\",\n"
        );
        // By another reader than the one that the writer is of.
        write_parquet(&table, File::create(&path).unwrap()).unwrap();
        let batch = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap())
            .unwrap()
            .build()
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        let flags = batch.column(0).as_boolean();
        assert!(flags.value(0) && flags.is_null(1));
        let strides = batch.column(1).as_list::<i64>();
        assert_eq!((strides.value_length(0), strides.value_length(1)), (2, 0));
        let first = strides.value(0);
        let first = first.as_struct();
        assert_eq!(
            first.column(0).as_primitive::<Int64Type>().values(),
            &[-8, 8]
        );
        assert!(first.column(1).is_null(1) && !first.column(1).is_null(0));
        let stack = batch.column(2).as_list::<i64>();
        assert_eq!(stack.value(0).as_string_view().value(1), "h");
        assert!(stack.is_null(1));
    }

    #[test]
    fn values_of_another_kind_are_refused() {
        let refused = |kind, value: Value| column("c", kind, &[&value]).is_err();
        assert!(refused(ColumnKind::Whole, (-1).into()) && refused(ColumnKind::Whole, 0.5.into()));
        assert!(refused(ColumnKind::Flag, "yes".into()) && refused(ColumnKind::Text, 5.into()));
        assert!(refused(
            ColumnKind::List(&ColumnKind::Text),
            serde_json::json!(["a", 5])
        ));
        assert!(
            !refused(ColumnKind::Number, 5.into()) && !refused(ColumnKind::Signed, (-5).into())
        );
    }

    #[test]
    fn parquet_comes_back_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.parquet");
        for table in [
            mixed(),
            frame(vec![made("n", ColumnKind::Whole, serde_json::json!([]))]).unwrap(),
        ] {
            write_parquet(&table, File::create(&path).unwrap()).unwrap();
            let again = read_parquet(File::open(&path).unwrap()).unwrap();
            assert!(again.equals_missing(&table), "{again:?}");
        }
        std::fs::write(&path, "PAR1 nothing").unwrap();
        assert!(read_parquet(File::open(&path).unwrap()).is_err());
    }

    #[test]
    fn all_kinds_of_numbers_and_texts_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.parquet");
        let arrays: [(&str, ArrayRef); 4] = [
            (
                "small",
                Arc::new(arrow_array::UInt32Array::from(vec![7, 8])),
            ),
            (
                "signed",
                Arc::new(arrow_array::Int64Array::from(vec![7, -8])),
            ),
            (
                "float",
                Arc::new(arrow_array::Float32Array::from(vec![0.5, 2.0])),
            ),
            (
                "view",
                Arc::new(arrow_array::StringViewArray::from(vec!["a", "b"])),
            ),
        ];
        let batch = RecordBatch::try_from_iter(arrays).unwrap();
        let mut writer =
            ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let table = read_parquet(File::open(&path).unwrap()).unwrap();
        assert_eq!(numbers(&table, "small").unwrap(), [7, 8]);
        assert_eq!(whole(&table, "signed").unwrap(), [Some(7), None]);
        assert!(numbers(&table, "signed").unwrap_err().contains("negative"));
        assert_eq!(floats(&table, "float").unwrap(), [Some(0.5), Some(2.0)]);
        assert_eq!(texts(&table, "view").unwrap(), [Some("a"), Some("b")]);
        assert!(!has(&table, "flag") && has(&table, "view"));
        assert!(
            texts(&table, "small").is_err()
                && numbers(&table, "none").unwrap_err().contains("missing")
        );
    }

    #[test]
    fn columns_that_do_not_fit_are_refused() {
        let cells =
            |name: &str, n: usize| made(name, ColumnKind::Whole, vec![Value::Null; n].into());
        assert!(frame(vec![cells("a", 1), cells("b", 2)]).is_err());
        assert!(frame(vec![cells("a", 1), cells("a", 1)]).is_err());
    }

    #[test]
    fn rows_are_in_order_by_several_columns_and_equal_ones_stay() {
        let first = made(
            "share",
            ColumnKind::Number,
            serde_json::json!([1, null, 3, 1, 3]),
        );
        let then = made(
            "depth",
            ColumnKind::Whole,
            serde_json::json!([2, 0, 1, 2, 0]),
        );
        assert_eq!(
            order(vec![first, then], vec![true, false]).unwrap(),
            [4, 2, 0, 3, 1]
        );
    }
}

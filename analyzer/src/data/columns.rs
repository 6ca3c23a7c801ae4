//! Small tables in memory: files that other tools read, and the trace's own beside its samples.
//!
//! Nothing here is large or fast; so no data frame library, which would take longer to build than all else together.

use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, Float64Builder, Int64Builder, ListBuilder, StringBuilder,
    StructBuilder, UInt64Builder, make_builder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, Float64Array, RecordBatch, RecordBatchOptions, StringArray, UInt64Array,
};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use serde_json::Value;
use std::fs::File;
use std::io;
use std::io::Write;
use std::sync::Arc;

/// What the values of a column are. It does not depend on the values: files of all traces have the same types, also where a table has no rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Whole numbers that are not negative.
    Whole,
    /// Whole numbers.
    Signed,
    /// Floating-point numbers.
    Number,
    Text,
    Flag,
    List(&'static Kind),
    Record(&'static [(&'static str, Kind)]),
}

impl Kind {
    fn data_type(self) -> DataType {
        let field = |name: &str, kind: Kind| Field::new(name, kind.data_type(), true);
        match self {
            Kind::Whole => DataType::UInt64,
            Kind::Signed => DataType::Int64,
            Kind::Number => DataType::Float64,
            Kind::Text => DataType::Utf8,
            Kind::Flag => DataType::Boolean,
            Kind::List(item) => DataType::List(Arc::new(field("item", *item))),
            Kind::Record(fields) => DataType::Struct(
                fields
                    .iter()
                    .map(|&(name, kind)| field(name, kind))
                    .collect(),
            ),
        }
    }

    /// Whether a value may stand in a column of this kind. Empty fields may stand in all.
    fn holds(self, value: &Value) -> bool {
        match (self, value) {
            (_, Value::Null) => true,
            (Kind::Whole, _) => value.is_u64(),
            (Kind::Signed, _) => value.is_i64(),
            (Kind::Number, _) => value.is_number(),
            (Kind::Text, _) => value.is_string(),
            (Kind::Flag, _) => value.is_boolean(),
            (Kind::List(item), Value::Array(items)) => items.iter().all(|i| item.holds(i)),
            (Kind::Record(fields), Value::Object(map)) => map.iter().all(|(key, value)| {
                fields
                    .iter()
                    .any(|(name, kind)| name == key && kind.holds(value))
            }),
            _ => false,
        }
    }

    /// Appends a value that this kind [holds](Kind::holds) to the builder of its type.
    fn append(self, builder: &mut dyn ArrayBuilder, value: &Value) {
        let any = builder.as_any_mut();
        macro_rules! builder {
            ($type:ty) => {
                any.downcast_mut::<$type>()
                    .expect("the builder was made for this kind")
            };
        }
        match self {
            Kind::Whole => builder!(UInt64Builder).append_option(value.as_u64()),
            Kind::Signed => builder!(Int64Builder).append_option(value.as_i64()),
            Kind::Number => builder!(Float64Builder).append_option(value.as_f64()),
            Kind::Text => builder!(StringBuilder).append_option(value.as_str()),
            Kind::Flag => builder!(BooleanBuilder).append_option(value.as_bool()),
            Kind::List(item) => {
                let list = builder!(ListBuilder<Box<dyn ArrayBuilder>>);
                for value in value.as_array().into_iter().flatten() {
                    item.append(&mut **list.values(), value);
                }
                list.append(value.is_array());
            }
            Kind::Record(fields) => {
                let record = builder!(StructBuilder);
                for (&(name, kind), field) in fields.iter().zip(record.field_builders_mut()) {
                    kind.append(&mut **field, value.get(name).unwrap_or(&Value::Null));
                }
                record.append(value.is_object());
            }
        }
    }
}

/// The values of a column; `None` or null where a field is empty.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cells {
    Whole(Vec<Option<u64>>),
    Number(Vec<Option<f64>>),
    Text(Vec<Option<String>>),
    /// All other kinds.
    Other(Kind, Vec<Value>),
}

impl Cells {
    /// Cells of a kind; a sentence says which value is of another one.
    pub(crate) fn of(kind: Kind, values: &[&Value]) -> Result<Cells, String> {
        if let Some(other) = values.iter().find(|v| !kind.holds(v)) {
            return Err(format!("{other:.80} is not of the kind {kind:?}"));
        }
        Ok(match kind {
            Kind::Whole => Cells::Whole(values.iter().map(|v| v.as_u64()).collect()),
            Kind::Number => Cells::Number(values.iter().map(|v| v.as_f64()).collect()),
            Kind::Text => Cells::Text(values.iter().map(|v| v.as_str().map(Into::into)).collect()),
            other => Cells::Other(other, values.iter().map(|&v| v.clone()).collect()),
        })
    }

    fn len(&self) -> usize {
        match self {
            Cells::Whole(v) => v.len(),
            Cells::Number(v) => v.len(),
            Cells::Text(v) => v.len(),
            Cells::Other(_, v) => v.len(),
        }
    }

    fn array(&self) -> ArrayRef {
        match self {
            Cells::Whole(v) => Arc::new(v.iter().copied().collect::<UInt64Array>()),
            Cells::Number(v) => Arc::new(v.iter().copied().collect::<Float64Array>()),
            Cells::Text(v) => Arc::new(v.iter().map(Option::as_deref).collect::<StringArray>()),
            Cells::Other(kind, v) => {
                let mut builder = make_builder(&kind.data_type(), v.len());
                v.iter().for_each(|value| kind.append(&mut *builder, value));
                builder.finish()
            }
        }
    }

    /// A field as CSV has it.
    fn print(&self, row: usize, out: &mut String) {
        match self {
            Cells::Whole(v) => out.extend(v[row].iter().map(u64::to_string)),
            // The shortest digits that give the number back, as in JSON.
            Cells::Number(v) => out.extend(v[row].iter().map(|&n| Value::from(n).to_string())),
            Cells::Text(v) => v[row].iter().for_each(|text| quoted(text, out)),
            Cells::Other(_, v) => plain(&v[row]).iter().for_each(|text| quoted(text, out)),
        }
    }
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

/// A text as a field of CSV. An empty one is told from an empty field by its quotes.
fn quoted(text: &str, out: &mut String) {
    if text.is_empty() || text.contains([',', '"', '\n', '\r']) {
        out.push('"');
        out.push_str(&text.replace('"', "\"\""));
        out.push('"');
    } else {
        out.push_str(text);
    }
}

/// Columns with names, all of one length.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Frame {
    columns: Vec<(String, Cells)>,
}

impl Frame {
    /// A table of these columns. It is an error if they differ in length or two have one name.
    pub(crate) fn new(columns: Vec<(String, Cells)>) -> Result<Frame, String> {
        for (number, (name, cells)) in columns.iter().enumerate() {
            if cells.len() != columns[0].1.len() {
                return Err(format!(
                    "column {name:?} has {} fields, not {}",
                    cells.len(),
                    columns[0].1.len()
                ));
            }
            if columns[..number].iter().any(|(other, _)| other == name) {
                return Err(format!("two columns are called {name:?}"));
            }
        }
        Ok(Frame { columns })
    }

    /// Number of rows.
    pub(crate) fn height(&self) -> usize {
        self.columns.first().map_or(0, |(_, cells)| cells.len())
    }

    /// Writes it as CSV with a header line.
    pub(crate) fn write_csv(&self, to: File) -> io::Result<()> {
        let mut out = io::BufWriter::new(to);
        let mut line = String::new();
        for row in 0..=self.height() {
            line.clear();
            for (number, (name, cells)) in self.columns.iter().enumerate() {
                if number > 0 {
                    line.push(',');
                }
                // The header comes before row 0.
                match row.checked_sub(1) {
                    None => quoted(name, &mut line),
                    Some(row) => cells.print(row, &mut line),
                }
            }
            line.push('\n');
            out.write_all(line.as_bytes())?;
        }
        out.into_inner().map_err(|e| e.into_error()).map(drop)
    }

    /// Writes it as Parquet.
    pub(crate) fn write_parquet(&self, to: File) -> Result<(), String> {
        let arrays: Vec<ArrayRef> = self
            .columns
            .iter()
            .map(|(_, cells)| cells.array())
            .collect();
        let fields = self
            .columns
            .iter()
            .zip(&arrays)
            .map(|((name, _), array)| Field::new(name, array.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let write = || {
            let codec = Compression::ZSTD(ZstdLevel::try_new(3)?);
            let mut writer = ArrowWriter::try_new(
                to,
                schema.clone(),
                Some(WriterProperties::builder().set_compression(codec).build()),
            )?;
            let rows = RecordBatchOptions::new().with_row_count(Some(self.height()));
            writer.write(&RecordBatch::try_new_with_options(schema, arrays, &rows)?)?;
            writer.close()
        };
        write()
            .map(drop)
            .map_err(|e: parquet::errors::ParquetError| e.to_string())
    }

    /// Reads a Parquet file; columns of kinds that no table of a trace has are left out.
    pub(crate) fn read_parquet(from: File) -> Result<Frame, String> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(from).map_err(|e| e.to_string())?;
        let mut columns: Vec<(String, Cells)> = reader
            .schema()
            .fields()
            .iter()
            .filter_map(|f| Some((f.name().clone(), empty(f.data_type())?)))
            .collect();
        for batch in reader.build().map_err(|e| e.to_string())? {
            let batch = batch.map_err(|e| e.to_string())?;
            for (name, cells) in &mut columns {
                let array = batch
                    .column_by_name(name)
                    .ok_or_else(|| format!("column {name:?} is missing in a part"))?;
                append(array, cells);
            }
        }
        Frame::new(columns)
    }

    fn column(&self, name: &str) -> Result<&Cells, String> {
        self.columns
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, cells)| cells)
            .ok_or_else(|| format!("column {name:?} is missing"))
    }

    /// Whether there is a column of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.column(name).is_ok()
    }

    /// A column of whole numbers; negative ones count as empty.
    pub(crate) fn whole(&self, name: &str) -> Result<&[Option<u64>], String> {
        match self.column(name)? {
            Cells::Whole(values) => Ok(values),
            _ => Err(format!("column {name:?} has no whole numbers")),
        }
    }

    /// A column of whole numbers of which none is empty.
    pub(crate) fn numbers(&self, name: &str) -> Result<Vec<u64>, String> {
        let values = self
            .whole(name)?
            .iter()
            .copied()
            .collect::<Option<Vec<u64>>>();
        values.ok_or_else(|| format!("column {name:?} has empty or negative fields"))
    }

    /// A column of floating-point numbers.
    pub(crate) fn floats(&self, name: &str) -> Result<&[Option<f64>], String> {
        match self.column(name)? {
            Cells::Number(values) => Ok(values),
            _ => Err(format!("column {name:?} has no floating-point numbers")),
        }
    }

    /// A column of texts.
    pub(crate) fn texts(&self, name: &str) -> Result<&[Option<String>], String> {
        match self.column(name)? {
            Cells::Text(values) => Ok(values),
            _ => Err(format!("column {name:?} has no texts")),
        }
    }
}

/// What values of this type are collected in.
fn empty(kind: &DataType) -> Option<Cells> {
    Some(match kind {
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
            Cells::Whole(Vec::new())
        }
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            Cells::Whole(Vec::new())
        }
        DataType::Float32 | DataType::Float64 => Cells::Number(Vec::new()),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Cells::Text(Vec::new()),
        _ => return None,
    })
}

fn append(array: &ArrayRef, cells: &mut Cells) {
    macro_rules! numbers {
        ($type:ident, $to:ident, |$v:ident| $convert:expr) => {
            $to.extend(
                array
                    .as_primitive::<$type>()
                    .iter()
                    .map(|v| v.and_then(|$v| $convert)),
            )
        };
    }
    match (array.data_type(), cells) {
        (DataType::UInt8, Cells::Whole(to)) => numbers!(UInt8Type, to, |v| Some(v.into())),
        (DataType::UInt16, Cells::Whole(to)) => numbers!(UInt16Type, to, |v| Some(v.into())),
        (DataType::UInt32, Cells::Whole(to)) => numbers!(UInt32Type, to, |v| Some(v.into())),
        (DataType::UInt64, Cells::Whole(to)) => numbers!(UInt64Type, to, |v| Some(v)),
        (DataType::Int8, Cells::Whole(to)) => numbers!(Int8Type, to, |v| v.try_into().ok()),
        (DataType::Int16, Cells::Whole(to)) => numbers!(Int16Type, to, |v| v.try_into().ok()),
        (DataType::Int32, Cells::Whole(to)) => numbers!(Int32Type, to, |v| v.try_into().ok()),
        (DataType::Int64, Cells::Whole(to)) => numbers!(Int64Type, to, |v| v.try_into().ok()),
        (DataType::Float32, Cells::Number(to)) => numbers!(Float32Type, to, |v| Some(v.into())),
        (DataType::Float64, Cells::Number(to)) => numbers!(Float64Type, to, |v| Some(v)),
        (DataType::Utf8, Cells::Text(to)) => to.extend(
            array
                .as_string::<i32>()
                .iter()
                .map(|v| v.map(str::to_owned)),
        ),
        (DataType::LargeUtf8, Cells::Text(to)) => to.extend(
            array
                .as_string::<i64>()
                .iter()
                .map(|v| v.map(str::to_owned)),
        ),
        (DataType::Utf8View, Cells::Text(to)) => {
            to.extend(array.as_string_view().iter().map(|v| v.map(str::to_owned)))
        }
        // All parts of a file have its schema.
        (_, cells) => unreachable!("{cells:?} of {}", array.data_type()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mixed() -> Frame {
        Frame::new(vec![
            (
                "n".into(),
                Cells::Whole(vec![Some(0), None, Some(u64::MAX)]),
            ),
            (
                "x, y".into(),
                Cells::Number(vec![Some(1.0), Some(1e-9), None]),
            ),
            (
                "name".into(),
                Cells::Text(vec![
                    Some("std::map<int, int>".into()),
                    Some(String::new()),
                    None,
                ]),
            ),
        ])
        .unwrap()
    }

    #[test]
    fn csv_has_quotes_where_they_are_needed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.csv");
        mixed().write_csv(File::create(&path).unwrap()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "n,\"x, y\",name\n0,1.0,\"std::map<int, int>\"\n,1e-9,\"\"\n18446744073709551615,,\n"
        );
        let mut line = String::new();
        quoted("say \"no\"\n", &mut line);
        assert_eq!(line, "\"say \"\"no\"\"\n\"");
    }

    #[test]
    fn flags_lists_and_records_have_types_of_their_own_in_parquet_and_are_text_in_csv() {
        const ITEM: Kind = Kind::Record(&[("from", Kind::Signed), ("pct", Kind::Number)]);
        let values = serde_json::json!([
            [true, [{"from": -8, "pct": 50.0}, {"from": 8, "pct": null}], ["f < g", "h"]],
            [null, [], null],
        ]);
        let column = |at: usize| -> Vec<&Value> {
            values
                .as_array()
                .unwrap()
                .iter()
                .map(|row| &row[at])
                .collect()
        };
        let kinds = [Kind::Flag, Kind::List(&ITEM), Kind::List(&Kind::Text)];
        let cells = |at: usize| Cells::of(kinds[at], &column(at)).unwrap();
        let frame = Frame::new(vec![
            ("flag".into(), cells(0)),
            ("strides".into(), cells(1)),
            ("stack".into(), cells(2)),
        ])
        .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        frame.write_csv(File::create(&path).unwrap()).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "flag,strides,stack\ntrue,\"{\"\"from\"\":-8,\"\"pct\"\":50.0}; {\"\"from\"\":8,\"\"pct\"\":null}\",f < g; h\n,\"\",\n"
        );
        frame.write_parquet(File::create(&path).unwrap()).unwrap();
        let batch = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap())
            .unwrap()
            .build()
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        let flags = batch.column(0).as_boolean();
        assert!(flags.value(0) && flags.is_null(1));
        let strides = batch.column(1).as_list::<i32>();
        assert_eq!((strides.value_length(0), strides.value_length(1)), (2, 0));
        let first = strides.value(0);
        let first = first.as_struct();
        assert_eq!(
            first.column(0).as_primitive::<Int64Type>().values(),
            &[-8, 8]
        );
        assert!(first.column(1).is_null(1) && !first.column(1).is_null(0));
        let stack = batch.column(2).as_list::<i32>();
        assert_eq!(stack.value(0).as_string::<i32>().value(1), "h");
        assert!(stack.is_null(1));
    }

    #[test]
    fn values_of_another_kind_are_refused() {
        let refused = |kind, value: Value| Cells::of(kind, &[&value]).is_err();
        assert!(refused(Kind::Whole, (-1).into()) && refused(Kind::Whole, 0.5.into()));
        assert!(refused(Kind::Flag, "yes".into()) && refused(Kind::Text, 5.into()));
        assert!(refused(
            Kind::List(&Kind::Text),
            serde_json::json!(["a", 5])
        ));
        assert!(!refused(Kind::Number, 5.into()) && !refused(Kind::Signed, (-5).into()));
    }

    #[test]
    fn parquet_comes_back_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.parquet");
        for frame in [
            mixed(),
            Frame::default(),
            Frame::new(vec![("n".into(), Cells::Whole(vec![]))]).unwrap(),
        ] {
            frame.write_parquet(File::create(&path).unwrap()).unwrap();
            assert_eq!(
                Frame::read_parquet(File::open(&path).unwrap()).unwrap(),
                frame
            );
        }
        std::fs::write(&path, "PAR1 nothing").unwrap();
        assert!(Frame::read_parquet(File::open(&path).unwrap()).is_err());
    }

    #[test]
    fn all_kinds_of_numbers_and_texts_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.parquet");
        let arrays: [(&str, ArrayRef); 5] = [
            (
                "small",
                Arc::new(arrow_array::UInt16Array::from(vec![7, 8])),
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
            (
                "flag",
                Arc::new(arrow_array::BooleanArray::from(vec![true, false])),
            ),
        ];
        let batch = RecordBatch::try_from_iter(arrays).unwrap();
        let mut writer =
            ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let frame = Frame::read_parquet(File::open(&path).unwrap()).unwrap();
        assert_eq!(frame.numbers("small").unwrap(), [7, 8]);
        assert_eq!(frame.whole("signed").unwrap(), [Some(7), None]);
        assert!(frame.numbers("signed").unwrap_err().contains("negative"));
        assert_eq!(frame.floats("float").unwrap(), [Some(0.5), Some(2.0)]);
        assert_eq!(
            frame.texts("view").unwrap(),
            [Some("a".to_string()), Some("b".into())]
        );
        assert!(
            !frame.has("flag") && frame.has("view"),
            "no table has booleans"
        );
        assert!(
            frame.texts("small").is_err() && frame.numbers("none").unwrap_err().contains("missing")
        );
    }

    #[test]
    fn columns_that_do_not_fit_are_refused() {
        let cells = |n: usize| Cells::Whole(vec![None; n]);
        assert!(Frame::new(vec![("a".into(), cells(1)), ("b".into(), cells(2))]).is_err());
        assert!(Frame::new(vec![("a".into(), cells(1)), ("a".into(), cells(1))]).is_err());
    }
}

//! Tables as columns of Arrow arrays: built from rows, read and written.

mod files;
mod kinds;

pub(crate) use files::{column_names, write_csv, write_parquet};
pub use files::{read_columns, read_parquet};
pub use kinds::{ColumnKind, column};

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, LargeStringArray, PrimitiveArray,
    RecordBatch, RecordBatchOptions, UInt64Array,
};
use arrow_schema::{DataType, Field, Schema};
use serde_json::{Map, Value};
use std::sync::Arc;

/// A named column.
#[derive(Clone, Debug)]
pub struct Column {
    name: String,
    cells: ArrayRef,
}

impl Column {
    /// A column of plain values.
    pub fn new(name: &str, cells: impl Cells) -> Column {
        Column {
            name: name.to_owned(),
            cells: cells.array(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn field(&self) -> Field {
        Field::new(&self.name, self.cells.data_type().clone(), true)
    }
}

/// Plain values that make a column.
pub trait Cells {
    /// The values as an array.
    fn array(self) -> ArrayRef;
}

macro_rules! cells_of_numbers {
    ($($number:ty, $array:ident);*) => {$(
        impl Cells for Vec<$number> {
            fn array(self) -> ArrayRef {
                Arc::new($array::from(self))
            }
        }

        impl Cells for Vec<Option<$number>> {
            fn array(self) -> ArrayRef {
                Arc::new($array::from(self))
            }
        }
    )*};
}
cells_of_numbers!(u64, UInt64Array; i64, Int64Array; f64, Float64Array);

impl Cells for Vec<String> {
    fn array(self) -> ArrayRef {
        Arc::new(LargeStringArray::from(self))
    }
}

impl Cells for Vec<Option<bool>> {
    fn array(self) -> ArrayRef {
        Arc::new(BooleanArray::from(self))
    }
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    columns: Vec<Column>,
    rows: usize,
}

impl Frame {
    /// The columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Number of rows.
    pub fn height(&self) -> usize {
        self.rows
    }

    /// The table as one batch of records.
    pub fn records(&self) -> RecordBatch {
        let fields: Vec<Field> = self.columns.iter().map(Column::field).collect();
        let cells = self.columns.iter().map(|c| c.cells.clone()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), cells, &options)
            .expect("columns of one length, whose types are those of the schema")
    }

    fn cells(&self, name: &str) -> Result<&dyn Array, String> {
        let column = self.columns.iter().find(|c| c.name == name);
        column
            .map(|c| &*c.cells)
            .ok_or_else(|| format!("column {name:?} is missing"))
    }
}

/// A table of columns. It is an error if they differ in length or two have one name.
pub fn frame(columns: Vec<Column>) -> Result<Frame, String> {
    let rows = columns.first().map_or(0, |c| c.cells.len());
    for (at, column) in columns.iter().enumerate() {
        let name = &column.name;
        if column.cells.len() != rows {
            let length = column.cells.len();
            return Err(format!(
                "column {name:?} has {length} rows, and others have {rows}"
            ));
        }
        if columns[..at].iter().any(|c| c.name == *name) {
            return Err(format!("there are two columns {name:?}"));
        }
    }
    Ok(Frame { columns, rows })
}

fn numbers_of<T: ArrowPrimitiveType>(cells: &dyn Array) -> Option<&PrimitiveArray<T>> {
    cells.as_primitive_opt()
}

/// A cell as JSON. None if it is empty, or of a type that JSON does not have.
fn json(cells: &dyn Array, at: usize) -> Option<Value> {
    if cells.is_null(at) {
        return None;
    }
    let list = |items: ArrayRef| -> Value {
        let items = (0..items.len()).map(|item| json(&items, item));
        items.map(Option::unwrap_or_default).collect()
    };
    Some(match cells.data_type() {
        DataType::Boolean => cells.as_boolean().value(at).into(),
        DataType::UInt64 => cells.as_primitive::<UInt64Type>().value(at).into(),
        DataType::UInt32 => cells.as_primitive::<UInt32Type>().value(at).into(),
        DataType::Int64 => cells.as_primitive::<Int64Type>().value(at).into(),
        DataType::Float64 => cells.as_primitive::<Float64Type>().value(at).into(),
        DataType::LargeUtf8 => cells.as_string::<i64>().value(at).into(),
        DataType::Utf8 => cells.as_string::<i32>().value(at).into(),
        DataType::LargeList(_) => list(cells.as_list::<i64>().value(at)),
        DataType::List(_) => list(cells.as_list::<i32>().value(at)),
        DataType::Struct(fields) => {
            let values = cells.as_struct().columns();
            let named = fields.iter().zip(values).map(|(field, cells)| {
                let cell = json(cells, at).unwrap_or_default();
                (field.name().clone(), cell)
            });
            Value::Object(named.collect())
        }
        _ => return None,
    })
}

/// The rows of a table as JSON objects with the columns as keys.
pub fn json_rows(frame: &Frame) -> Vec<Value> {
    (0..frame.rows).map(|at| json_row(frame, at)).collect()
}

/// One row as a JSON object.
pub fn json_row(frame: &Frame, at: usize) -> Value {
    let cells = frame.columns.iter().map(|column| {
        let cell = json(&column.cells, at).unwrap_or_default();
        (column.name.clone(), cell)
    });
    Value::Object(cells.collect::<Map<_, _>>())
}

/// True if there is a column of this name.
pub fn has(table: &Frame, name: &str) -> bool {
    table.cells(name).is_ok()
}

/// Whole numbers; negative ones count as empty.
fn whole_of<T: ArrowPrimitiveType>(cells: &dyn Array) -> Option<Vec<Option<u64>>>
where
    u64: TryFrom<T::Native>,
{
    let cells = numbers_of::<T>(cells)?;
    Some(cells.iter().map(|cell| u64::try_from(cell?).ok()).collect())
}

/// A column of whole numbers; negative ones count as empty.
pub fn whole(table: &Frame, name: &str) -> Result<Vec<Option<u64>>, String> {
    let cells = table.cells(name)?;
    whole_of::<UInt64Type>(cells)
        .or_else(|| whole_of::<UInt32Type>(cells))
        .or_else(|| whole_of::<Int64Type>(cells))
        .or_else(|| whole_of::<Int32Type>(cells))
        .or_else(|| whole_of::<UInt16Type>(cells))
        .or_else(|| whole_of::<UInt8Type>(cells))
        .or_else(|| whole_of::<Int16Type>(cells))
        .or_else(|| whole_of::<Int8Type>(cells))
        .ok_or_else(|| format!("column {name:?} has no whole numbers"))
}

/// A long column of whole numbers. A column of 64-bit numbers without empty cells is copied at
/// once.
pub fn many_numbers(table: &Frame, name: &str) -> Result<Vec<u64>, String> {
    match numbers_of::<UInt64Type>(table.cells(name)?) {
        Some(cells) if cells.null_count() == 0 => Ok(cells.values().to_vec()),
        _ => numbers(table, name),
    }
}

/// A column of 32-bit floating-point numbers without empty cells.
pub(crate) fn many_floats(table: &Frame, name: &str) -> Result<Vec<f32>, String> {
    numbers_of::<Float32Type>(table.cells(name)?)
        .filter(|cells| cells.null_count() == 0)
        .map(|cells| cells.values().to_vec())
        .ok_or_else(|| format!("column {name:?} has no floating-point numbers"))
}

/// A column of whole numbers without empty cells.
pub fn numbers(table: &Frame, name: &str) -> Result<Vec<u64>, String> {
    whole(table, name)?
        .into_iter()
        .collect::<Option<Vec<u64>>>()
        .ok_or_else(|| format!("column {name:?} has empty or negative fields"))
}

/// A column of floating-point numbers.
pub(crate) fn floats(table: &Frame, name: &str) -> Result<Vec<Option<f64>>, String> {
    let cells = table.cells(name)?;
    if let Some(cells) = numbers_of::<Float64Type>(cells) {
        return Ok(cells.iter().collect());
    }
    numbers_of::<Float32Type>(cells)
        .map(|cells| {
            let cells = cells.iter();
            cells.map(|cell| cell.map(f64::from)).collect()
        })
        .ok_or_else(|| format!("column {name:?} has no floating-point numbers"))
}

/// A column of truth values without empty cells.
pub(crate) fn flags(table: &Frame, name: &str) -> Result<Vec<bool>, String> {
    maybe_flags(table, name)?
        .into_iter()
        .collect::<Option<Vec<bool>>>()
        .ok_or_else(|| format!("column {name:?} has empty fields"))
}

/// A column of truth values.
pub(crate) fn maybe_flags(table: &Frame, name: &str) -> Result<Vec<Option<bool>>, String> {
    table
        .cells(name)?
        .as_boolean_opt()
        .map(|cells| cells.iter().collect())
        .ok_or_else(|| format!("column {name:?} has no truth values"))
}

/// A column of texts.
pub fn texts<'a>(table: &'a Frame, name: &str) -> Result<Vec<Option<&'a str>>, String> {
    let cells = table.cells(name)?;
    if let Some(cells) = cells.as_string_opt::<i64>() {
        return Ok(cells.iter().collect());
    }
    (cells.as_string_opt::<i32>())
        .map(|cells| cells.iter().collect())
        .ok_or_else(|| format!("column {name:?} has no texts"))
}

#[cfg(test)]
mod tests;

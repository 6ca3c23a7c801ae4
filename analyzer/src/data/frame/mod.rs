//! Tables as columns of Arrow arrays: built from rows, read and written.

mod files;
mod kinds;

pub(crate) use files::{column_names, write_csv, write_parquet};
pub use files::{read_columns, read_parquet};
pub use kinds::{ColumnKind, column};

use polars_arrow::array::{
    Array, BooleanArray, ListArray, PrimitiveArray, StructArray, Utf8Array, Utf8ViewArray,
};
use polars_arrow::datatypes::{ArrowDataType, Field};
use polars_arrow::types::NativeType;
use serde_json::{Map, Value};

/// A named column.
#[derive(Clone, Debug)]
pub struct Column {
    name: String,
    cells: Box<dyn Array>,
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
        Field::new(self.name.as_str().into(), self.cells.dtype().clone(), true)
    }
}

/// Plain values that make a column.
pub trait Cells {
    /// The values as an array.
    fn array(self) -> Box<dyn Array>;
}

macro_rules! cells_of_numbers {
    ($($number:ty),*) => {$(
        impl Cells for Vec<$number> {
            fn array(self) -> Box<dyn Array> {
                PrimitiveArray::from_vec(self).boxed()
            }
        }

        impl Cells for Vec<Option<$number>> {
            fn array(self) -> Box<dyn Array> {
                PrimitiveArray::from(self).boxed()
            }
        }
    )*};
}
cells_of_numbers!(u64, i64, f64);

impl Cells for Vec<String> {
    fn array(self) -> Box<dyn Array> {
        Utf8Array::<i64>::from_slice(self).boxed()
    }
}

impl Cells for Vec<Option<bool>> {
    fn array(self) -> Box<dyn Array> {
        BooleanArray::from(self).boxed()
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

    /// The table as one array of records.
    pub fn records(&self) -> StructArray {
        let fields = self.columns.iter().map(Column::field).collect();
        let cells = self.columns.iter().map(|c| c.cells.clone()).collect();
        StructArray::new(ArrowDataType::Struct(fields), self.rows, cells, None)
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

/// Cells of one type. None if they have another one.
fn typed<T: Array>(cells: &dyn Array) -> Option<&T> {
    cells.as_any().downcast_ref()
}

fn numbers_of<T: NativeType>(cells: &dyn Array) -> Option<&PrimitiveArray<T>> {
    let is_plain = *cells.dtype() == T::PRIMITIVE.into();
    typed(cells).filter(|_| is_plain)
}

/// A cell as JSON. None if it is empty, or of a type that JSON does not have.
fn json(cells: &dyn Array, at: usize) -> Option<Value> {
    if cells.is_null(at) {
        return None;
    }
    Some(match cells.dtype() {
        ArrowDataType::Boolean => typed::<BooleanArray>(cells)?.value(at).into(),
        ArrowDataType::UInt64 => numbers_of::<u64>(cells)?.value(at).into(),
        ArrowDataType::UInt32 => numbers_of::<u32>(cells)?.value(at).into(),
        ArrowDataType::Int64 => numbers_of::<i64>(cells)?.value(at).into(),
        ArrowDataType::Float64 => numbers_of::<f64>(cells)?.value(at).into(),
        ArrowDataType::LargeUtf8 => typed::<Utf8Array<i64>>(cells)?.value(at).into(),
        ArrowDataType::Utf8View => typed::<Utf8ViewArray>(cells)?.value(at).into(),
        ArrowDataType::LargeList(_) => {
            let items = typed::<ListArray<i64>>(cells)?.value(at);
            let items = (0..items.len()).map(|item| json(&*items, item));
            items.map(Option::unwrap_or_default).collect()
        }
        ArrowDataType::Struct(fields) => {
            let values = typed::<StructArray>(cells)?.values();
            let named = fields.iter().zip(values).map(|(field, cells)| {
                let cell = json(&**cells, at).unwrap_or_default();
                (field.name.to_string(), cell)
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
        let cell = json(&*column.cells, at).unwrap_or_default();
        (column.name.clone(), cell)
    });
    Value::Object(cells.collect::<Map<_, _>>())
}

/// True if there is a column of this name.
pub fn has(table: &Frame, name: &str) -> bool {
    table.cells(name).is_ok()
}

/// Whole numbers; negative ones count as empty.
fn whole_of<T: NativeType>(cells: &dyn Array) -> Option<Vec<Option<u64>>>
where
    u64: TryFrom<T>,
{
    let cells = numbers_of::<T>(cells)?;
    Some(
        cells
            .iter()
            .map(|cell| u64::try_from(*cell?).ok())
            .collect(),
    )
}

/// A column of whole numbers; negative ones count as empty.
pub fn whole(table: &Frame, name: &str) -> Result<Vec<Option<u64>>, String> {
    let cells = table.cells(name)?;
    whole_of::<u64>(cells)
        .or_else(|| whole_of::<u32>(cells))
        .or_else(|| whole_of::<i64>(cells))
        .or_else(|| whole_of::<i32>(cells))
        .or_else(|| whole_of::<u16>(cells))
        .or_else(|| whole_of::<u8>(cells))
        .or_else(|| whole_of::<i16>(cells))
        .or_else(|| whole_of::<i8>(cells))
        .ok_or_else(|| format!("column {name:?} has no whole numbers"))
}

/// A long column of whole numbers. A column of 64-bit numbers without empty cells is copied at
/// once.
pub fn many_numbers(table: &Frame, name: &str) -> Result<Vec<u64>, String> {
    match numbers_of::<u64>(table.cells(name)?) {
        Some(cells) if cells.null_count() == 0 => Ok(cells.values().as_slice().to_vec()),
        _ => numbers(table, name),
    }
}

/// A column of 32-bit floating-point numbers without empty cells.
pub(crate) fn many_floats(table: &Frame, name: &str) -> Result<Vec<f32>, String> {
    numbers_of::<f32>(table.cells(name)?)
        .filter(|cells| cells.null_count() == 0)
        .map(|cells| cells.values().as_slice().to_vec())
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
    if let Some(cells) = numbers_of::<f64>(cells) {
        return Ok(cells.iter().map(|cell| cell.copied()).collect());
    }
    numbers_of::<f32>(cells)
        .map(|cells| {
            let cells = cells.iter();
            cells.map(|cell| cell.map(|&c| c.into())).collect()
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
    typed::<BooleanArray>(table.cells(name)?)
        .map(|cells| cells.iter().collect())
        .ok_or_else(|| format!("column {name:?} has no truth values"))
}

/// A column of texts.
pub fn texts<'a>(table: &'a Frame, name: &str) -> Result<Vec<Option<&'a str>>, String> {
    let cells = table.cells(name)?;
    if let Some(cells) = typed::<Utf8ViewArray>(cells) {
        return Ok(cells.iter().collect());
    }
    typed::<Utf8Array<i64>>(cells)
        .map(|cells| cells.iter().collect())
        .ok_or_else(|| format!("column {name:?} has no texts"))
}

#[cfg(test)]
mod tests;

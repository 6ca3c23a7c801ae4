//! Columns of JSON values.

use super::{Cells, Column};
use arrow_array::{ArrayRef, LargeListArray, LargeStringArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields};
use serde_json::Value;
use std::sync::Arc;

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

/// Values of a column. Every kind may have empty cells, which are `Null`.
type Values<'a> = [&'a Value];

impl ColumnKind {
    fn data_type(self) -> DataType {
        match self {
            ColumnKind::Whole => DataType::UInt64,
            ColumnKind::Signed => DataType::Int64,
            ColumnKind::Number => DataType::Float64,
            ColumnKind::Text => DataType::LargeUtf8,
            ColumnKind::Flag => DataType::Boolean,
            ColumnKind::List(item) => DataType::LargeList(Arc::new(item.field("item"))),
            ColumnKind::Record(fields) => DataType::Struct(fields_of(fields)),
        }
    }

    fn field(self, name: &str) -> Field {
        Field::new(name, self.data_type(), true)
    }

    /// The values as an array. It is an error if one has another kind.
    fn array(self, values: &Values) -> Result<ArrayRef, String> {
        Ok(match self {
            ColumnKind::Whole => self.cells(values, Value::as_u64)?.array(),
            ColumnKind::Signed => self.cells(values, Value::as_i64)?.array(),
            ColumnKind::Number => self.cells(values, Value::as_f64)?.array(),
            ColumnKind::Flag => self.cells(values, Value::as_bool)?.array(),
            ColumnKind::Text => {
                let texts: Vec<Option<&str>> = self.cells(values, Value::as_str)?;
                Arc::new(LargeStringArray::from(texts))
            }
            ColumnKind::List(item) => Arc::new(self.lists(*item, values)?),
            ColumnKind::Record(fields) => Arc::new(self.records(fields, values)?),
        })
    }

    /// Converts each value by `of`, which returns None for values of another kind.
    fn cells<'a, T>(
        self,
        values: &Values<'a>,
        of: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Vec<Option<T>>, String> {
        let cell = |&value: &&'a Value| match value {
            Value::Null => Ok(None),
            value => (of(value).map(Some))
                .ok_or_else(|| format!("{value:.80} is not of the kind {self:?}")),
        };
        values.iter().map(cell).collect()
    }

    fn lists(self, item: ColumnKind, values: &Values) -> Result<LargeListArray, String> {
        let lists = self.cells(values, Value::as_array)?;
        let lengths = lists.iter().map(|list| list.map_or(0, Vec::len));
        let offsets = OffsetBuffer::from_lengths(lengths);
        let items: Vec<&Value> = lists.iter().flatten().copied().flatten().collect();
        let items = item.array(&items)?;
        let field = Arc::new(item.field("item"));
        LargeListArray::try_new(field, offsets, items, there(&lists)).map_err(|e| e.to_string())
    }

    fn records(
        self,
        fields: &[(&str, ColumnKind)],
        values: &Values,
    ) -> Result<StructArray, String> {
        let is_known = |key: &String| fields.iter().any(|f| f.0 == key);
        let records = self.cells(values, |value| {
            let map = value.as_object()?;
            map.keys().all(is_known).then_some(map)
        })?;
        let column = |&(name, kind): &(&str, ColumnKind)| {
            let cells = records.iter().map(|record| {
                let cell = record.and_then(|r| r.get(name));
                cell.unwrap_or(&Value::Null)
            });
            kind.array(&cells.collect::<Vec<_>>())
        };
        let columns = fields.iter().map(column).collect::<Result<_, _>>()?;
        StructArray::try_new(fields_of(fields), columns, there(&records)).map_err(|e| e.to_string())
    }
}

fn fields_of(fields: &[(&str, ColumnKind)]) -> Fields {
    fields.iter().map(|(name, kind)| kind.field(name)).collect()
}

/// The bitmap of the cells that are not empty. None if no cell is empty.
fn there<T>(cells: &[Option<T>]) -> Option<NullBuffer> {
    let all = cells.iter().all(Option::is_some);
    (!all).then(|| cells.iter().map(Option::is_some).collect())
}

/// A column of a kind. The error names a value of another kind.
pub fn column(name: &str, kind: ColumnKind, values: &[&Value]) -> Result<Column, String> {
    let cells = kind.array(values);
    Ok(Column {
        name: name.to_owned(),
        cells: cells.map_err(|e| format!("column {name:?}: {e}"))?,
    })
}

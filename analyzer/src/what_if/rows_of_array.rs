//! Arrays of rows: the address of an element by row and column.

use crate::data::memory_units::LINE_BYTES;
use crate::findings::context::Context;
use crate::findings::sites::SiteFacts;
use crate::findings::unrolled::row_step;
use crate::what_if::remedy::Load;

/// Shape of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes from a row to the next.
    pub(crate) row: u64,
    /// Bytes of an element.
    pub(crate) element: u64,
}

/// An element of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    row: u64,
    column: u64,
    /// Bytes from the begin of the element.
    into: u64,
    /// Number of whole rows.
    rows: u64,
    /// Number of whole elements of a row.
    columns: u64,
}

impl Shape {
    /// The shape that the column-wise walks of some load instructions show: they move by a row.
    pub(crate) fn seen<'a>(
        context: &Context,
        sites: impl Iterator<Item = &'a SiteFacts>,
    ) -> Option<Shape> {
        let step = |facts: &SiteFacts| facts.regular_step().map(i64::unsigned_abs);
        let element = |facts: &SiteFacts| u64::from(facts.size).max(1);
        let is_column = |row: u64, element: u64| row >= 2 * LINE_BYTES && row >= 2 * element;
        let walks = sites.filter(|f| step(f).is_some_and(|step| is_column(step, element(f))));
        let main = walks.max_by_key(|f| (f.rows, step(f)))?;
        let (row, element) = (row_step(context, main), element(main));
        is_column(row, element).then_some(Shape { row, element })
    }

    fn cell(&self, load: &Load) -> Option<Cell> {
        let (into, rows) = (load.offset(), load.bytes / self.row);
        let (row, in_row) = (into / self.row, into % self.row);
        let columns = self.row / self.element;
        let (column, into) = (in_row / self.element, in_row % self.element);
        (row < rows && column < columns).then_some(Cell {
            row,
            column,
            into,
            rows,
            columns,
        })
    }

    /// The address if columns are contiguous as rows were: the array is transposed, or a walk along
    /// columns becomes one along rows.
    pub(crate) fn by_columns(&self, load: &Load) -> Option<u64> {
        let cell = self.cell(load)?;
        let number = cell.column * cell.rows + cell.row;
        Some(load.start + number * self.element + cell.into)
    }

    /// The address if a walk along rows becomes one along columns.
    pub(crate) fn by_rows(&self, load: &Load) -> Option<u64> {
        let cell = self.cell(load)?;
        let number = cell.row * cell.columns + cell.column;
        let (column, row) = (number / cell.rows, number % cell.rows);
        Some(load.start + row * self.row + column * self.element + cell.into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::what_if::simulated::block;

    #[test]
    fn both_ways_are_inverse() {
        let shape = Shape {
            row: 800,
            element: 8,
        };
        let all = block((0..60 * 100).map(|i| i * 8), 60 * 800);
        for load in &all {
            let turned = Load {
                address: shape.by_columns(load).unwrap(),
                ..*load
            };
            assert_eq!(shape.by_rows(&turned), Some(load.address));
        }
        // The second element of the first row comes after the first column.
        assert_eq!(shape.by_columns(&all[1]), Some(all[0].address + 60 * 8));
    }
}

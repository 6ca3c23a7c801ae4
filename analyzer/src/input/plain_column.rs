//! Columns as the recorder writes them (whole values or split into their bytes, none missing),
//! decompressed directly into arrays.
//!
//! The general decoder would decompress each page to a buffer, collect its values in a growing
//! array and convert that one. Pages are untrusted: their headers are checked before memory is
//! allocated for them.

use crate::input::number::Number;
use crate::input::pages::{Page, Pages, Unpacker};
use crate::input::run_length::{Steps, differences};
use parquet::basic::{Encoding, Type};
use parquet::data_type::DataType;
use parquet::file::metadata::ColumnChunkMetaData;
use std::ops::Range;

/// The pages of the column chunk in `bytes`, whose values are of the type `stored` and whose
/// encodings are among these. `None` if the general decoder should read it, which also reports
/// errors.
fn pages(
    bytes: Vec<u8>,
    column: &ColumnChunkMetaData,
    rows: usize,
    stored: Type,
    encodings: &[Encoding],
) -> Option<Pages> {
    let kind = column.column_descr();
    if kind.max_def_level() != 0 || kind.max_rep_level() != 0 || kind.physical_type() != stored {
        return None;
    }
    let pages = Pages::of(column, bytes)?;
    let mut values = 0usize;
    for page in pages.list() {
        values = values.checked_add(page.values)?;
    }
    let known = pages.list().iter().all(|p| encodings.contains(&p.encoding));
    (known && values == rows).then_some(pages)
}

/// The pages of a column chunk that is stored as numbers.
fn pages_of_numbers<T: Number>(
    bytes: Vec<u8>,
    column: &ColumnChunkMetaData,
    rows: usize,
) -> Option<Pages> {
    const ENCODINGS: [Encoding; 2] = [Encoding::PLAIN, Encoding::BYTE_STREAM_SPLIT];
    let stored = T::Stored::get_physical_type();
    let pages = pages(bytes, column, rows, stored, &ENCODINGS)?;
    let whole = |page: &Page| page.values.checked_mul(T::BYTES) == Some(page.size);
    pages.list().iter().all(whole).then_some(pages)
}

/// The pages of a column chunk that is stored as differences.
fn pages_of_differences<T: Number>(
    bytes: Vec<u8>,
    column: &ColumnChunkMetaData,
    rows: usize,
) -> Option<Pages> {
    const ENCODINGS: [Encoding; 1] = [Encoding::DELTA_BINARY_PACKED];
    pages(
        bytes,
        column,
        rows,
        T::Stored::get_physical_type(),
        &ENCODINGS,
    )
}

/// The values of a column chunk in `bytes`; `None` if the general decoder should read it.
pub(crate) fn numbers<T: Number>(
    bytes: Vec<u8>,
    column: &ColumnChunkMetaData,
    rows: usize,
) -> Option<Vec<T>> {
    let pages = pages_of_numbers::<T>(bytes, column, rows)?;
    let mut all: Vec<T> = Vec::with_capacity(rows);
    let mut unpacker = Unpacker::new();
    for page in pages.list() {
        let plain = unpacker.unpack(&pages, page)?;
        append(plain, page.encoding, 0..page.values, &mut all);
    }
    (all.len() == rows).then_some(all)
}

/// Appends some of the numbers of an unpacked page.
fn append<T: Number>(plain: &[u8], encoding: Encoding, some: Range<usize>, to: &mut Vec<T>) {
    if encoding == Encoding::PLAIN {
        let bytes = plain.get(some.start * T::BYTES..some.end * T::BYTES);
        let bytes = bytes.unwrap_or_default().chunks_exact(T::BYTES);
        to.extend(bytes.map(T::from_file));
    } else {
        T::join(plain, some, to);
    }
}

/// The truth values of a column chunk, or none of them if no bit is set; `None` if it is to be left
/// to the general decoder.
pub(crate) fn flags(
    bytes: Vec<u8>,
    column: &ColumnChunkMetaData,
    rows: usize,
) -> Option<Option<Vec<bool>>> {
    let pages = pages(bytes, column, rows, Type::BOOLEAN, &[Encoding::PLAIN])?;
    let whole = |page: &Page| page.values.div_ceil(8) == page.size;
    if !pages.list().iter().all(whole) {
        return None;
    }
    let mut all: Option<Vec<bool>> = None;
    let mut done = 0;
    let mut unpacker = Unpacker::new();
    for page in pages.list() {
        let bits = unpacker.unpack(&pages, page)?;
        if all.is_some() || bits.iter().any(|&byte| byte != 0) {
            let all = all.get_or_insert_with(|| {
                let mut all = Vec::with_capacity(rows);
                all.resize(done, false);
                all
            });
            let bits = bits
                .iter()
                .flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1));
            all.extend(bits.take(page.values));
        }
        done += page.values;
    }
    // Bits behind the last value do not count.
    Some(all.filter(|all| all.contains(&true)))
}

/// The pages of a column chunk. Each is unpacked when its rows are requested.
struct PagedColumn {
    pages: Pages,
    /// Number of pages up to the unpacked one.
    used: usize,
    /// Rows of that page.
    rows: Range<usize>,
    unpacker: Unpacker,
}

impl PagedColumn {
    fn new(pages: Pages) -> PagedColumn {
        PagedColumn {
            pages,
            used: 0,
            rows: 0..0,
            unpacker: Unpacker::new(),
        }
    }

    /// Advances to the page of a row, which must not be before the row of the last call. True if it
    /// is another page. `None` if it is damaged or missing.
    fn upto(&mut self, row: usize) -> Option<bool> {
        if self.rows.contains(&row) {
            return Some(false);
        }
        loop {
            let page = self.pages.list().get(self.used)?;
            self.used += 1;
            self.rows = self.rows.end..self.rows.end + page.values;
            if self.rows.contains(&row) {
                self.unpacker.unpack(&self.pages, page)?;
                return Some(true);
            }
        }
    }

    /// The unpacked page's encoding and bytes. Empty before the first one.
    fn plain(&self) -> (Encoding, &[u8]) {
        match self
            .used
            .checked_sub(1)
            .and_then(|at| self.pages.list().get(at))
        {
            Some(page) => (page.encoding, self.unpacker.unpacked(&self.pages, page)),
            None => (Encoding::PLAIN, &[]),
        }
    }

    /// The part of some rows that is in the unpacked page, relative to its first row.
    fn part(&self, rows: &Range<usize>) -> Range<usize> {
        rows.start - self.rows.start..rows.end.min(self.rows.end) - self.rows.start
    }
}

/// Numbers of a column chunk that are read in the order of rows. Only one page is unpacked at a
/// time.
pub(crate) struct PagedNumbers(PagedColumn);

impl PagedNumbers {
    /// Reads the column chunk in `bytes`; `None` if another decoder should read it.
    pub(crate) fn new<T: Number>(
        bytes: Vec<u8>,
        column: &ColumnChunkMetaData,
        rows: usize,
    ) -> Option<PagedNumbers> {
        let pages = pages_of_numbers::<T>(bytes, column, rows)?;
        Some(PagedNumbers(PagedColumn::new(pages)))
    }

    /// Appends the values of some rows, which must not be before those of the last call; `None` if
    /// the column is damaged.
    pub(crate) fn values<T: Number>(
        &mut self,
        mut rows: Range<usize>,
        to: &mut Vec<T>,
    ) -> Option<()> {
        while !rows.is_empty() {
            self.0.upto(rows.start)?;
            let part = self.0.part(&rows);
            rows.start += part.len();
            let (encoding, plain) = self.0.plain();
            append(plain, encoding, part, to);
        }
        Some(())
    }
}

/// A column of times, which are stored as differences, page by page.
pub(crate) struct PagedTimes {
    column: PagedColumn,
    /// Times of the unpacked page.
    times: Vec<u64>,
}

impl PagedTimes {
    /// Reads the column chunk in `bytes`; `None` if another decoder should read it.
    pub(crate) fn new(
        bytes: Vec<u8>,
        column: &ColumnChunkMetaData,
        rows: usize,
    ) -> Option<PagedTimes> {
        Some(PagedTimes {
            column: PagedColumn::new(pages_of_times(bytes, column, rows)?),
            times: Vec::new(),
        })
    }

    /// Appends the times of some rows, which must not be before those of the last call; `None` if
    /// the column is damaged.
    pub(crate) fn values(&mut self, mut rows: Range<usize>, to: &mut Vec<u64>) -> Option<()> {
        while !rows.is_empty() {
            if self.column.upto(rows.start)? {
                self.times.clear();
                let plain = self.column.plain().1;
                differences::<u64>(plain, self.column.rows.len(), &mut self.times)?;
            }
            let part = self.column.part(&rows);
            rows.start += part.len();
            to.extend_from_slice(self.times.get(part)?);
        }
        Some(())
    }
}

/// The pages of a column chunk that is stored as differences, most of which differ.
fn pages_of_times(bytes: Vec<u8>, column: &ColumnChunkMetaData, rows: usize) -> Option<Pages> {
    let pages = pages_of_differences::<u64>(bytes, column, rows)?;
    // Blocks of the usual sizes with equal differences have up to 51 values per byte. The limit
    // prevents allocations of any size.
    let believed = |page: &Page| page.values <= page.size.saturating_mul(64);
    pages.list().iter().all(believed).then_some(pages)
}

/// The values of a column chunk that is stored as differences; `None` if another decoder should
/// read it.
pub(crate) fn steps<T: Number>(
    bytes: Vec<u8>,
    column: &ColumnChunkMetaData,
    rows: usize,
) -> Option<Steps> {
    let mut steps = Steps::default();
    let mut unpacker = Unpacker::new();
    let pages = pages_of_differences::<T>(bytes, column, rows)?;
    for page in pages.list() {
        differences::<T>(unpacker.unpack(&pages, page)?, page.values, &mut steps)?;
    }
    (steps.rows() == rows).then_some(steps)
}

/// All values of a column whose differences mostly differ, such as times.
pub(crate) fn unsteady(
    bytes: Vec<u8>,
    column: &ColumnChunkMetaData,
    rows: usize,
) -> Option<Vec<u64>> {
    let pages = pages_of_times(bytes, column, rows)?;
    let mut all = Vec::with_capacity(rows);
    let mut unpacker = Unpacker::new();
    for page in pages.list() {
        differences::<u64>(unpacker.unpack(&pages, page)?, page.values, &mut all)?;
    }
    (all.len() == rows).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_by_rank_are_joined() {
        let mut state = 3u64;
        for n in [0usize, 1, 7, 8, 9, 64, 1001] {
            let numbers: Vec<u64> = (0..n)
                .map(|_| {
                    state = state
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    state ^ state >> 31
                })
                .collect();
            let split = |bytes: usize| -> Vec<u8> {
                (0..bytes)
                    .flat_map(|rank| numbers.iter().map(move |v| (v >> (8 * rank)) as u8))
                    .collect()
            };
            macro_rules! check {
                ($type:ty, $bytes:literal) => {
                    let mut found = Vec::new();
                    <$type>::join(&split($bytes), 0..n, &mut found);
                    let all: Vec<$type> = numbers.iter().map(|&v| v as $type).collect();
                    assert_eq!(found, all);
                    let some = n / 3..n - n / 5;
                    <$type>::join(&split($bytes), some.clone(), &mut found);
                    assert_eq!(found[n..], all[some]);
                };
            }
            check!(u8, 4);
            check!(u16, 4);
            check!(u32, 4);
            check!(u64, 8);
        }
    }
}

//! Columns that mostly stay the same or advance evenly (process, thread, sample, module, `seq`), as
//! runs of constant step, never as one value for each row.
//!
//! The recorder stores them as packed differences, in which a few bytes describe many rows with the
//! same difference. These are read here without unpacking. Files are untrusted: all their counts
//! and sizes are checked first.

use crate::input::number::Number;
use mgz_annotations_schema::leb128;

/// Rows with a constant difference from one to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u64,
    /// Modulo 2⁶⁴: falling numbers have large steps.
    step: u64,
    rows: usize,
}

impl Run {
    fn at(&self, row: usize) -> u64 {
        self.first.wrapping_add(self.step.wrapping_mul(row as u64))
    }

    /// Number of values that are not above the previous one.
    fn falls(&self) -> u64 {
        let more = self.rows.saturating_sub(1) as u64;
        match self
            .step
            .checked_mul(more)
            .and_then(|all| self.first.checked_add(all))
        {
            Some(_) if self.step > 0 => 0,
            Some(_) => more,
            None => (1..self.rows)
                .filter(|&row| self.at(row) <= self.at(row - 1))
                .count() as u64,
        }
    }
}

/// A column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    pieces: Vec<Run>,
    rows: usize,
}

impl Steps {
    /// A column with one value in all rows.
    pub(crate) fn constant(value: u64, rows: usize) -> Steps {
        let mut steps = Steps::default();
        steps.push_even(value, 0, rows);
        steps
    }

    /// Builds a column from its values.
    pub(crate) fn of(values: impl Iterator<Item = u64>) -> Steps {
        let mut steps = Steps::default();
        values.for_each(|value| steps.push(value));
        steps
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Appends a value.
    #[inline(always)]
    pub(crate) fn push(&mut self, value: u64) {
        self.rows += 1;
        if let Some(last) = self.pieces.last_mut() {
            if last.rows == 1 {
                last.step = value.wrapping_sub(last.first);
            }
            if last.at(last.rows) == value {
                last.rows += 1;
                return;
            }
        }
        self.pieces.push(Run {
            first: value,
            step: 0,
            rows: 1,
        });
    }

    /// Appends `rows` values: `first`, `first + step`, …
    pub(crate) fn push_even(&mut self, first: u64, step: u64, rows: usize) {
        if rows == 0 {
            return;
        }
        self.push(first);
        let more = rows - 1;
        let Some(last) = self.pieces.last_mut().filter(|_| more > 0) else {
            return;
        };
        if last.rows == 1 {
            last.step = step;
        }
        if last.step == step {
            last.rows += more;
        } else {
            self.pieces.push(Run {
                first: first.wrapping_add(step),
                step,
                rows: more,
            });
        }
        self.rows += more;
    }

    /// Runs of equal values: value and length.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u64, usize)> {
        let parts = |piece: &Run| {
            let piece = *piece;
            let (count, rows) = if piece.step == 0 {
                (1, piece.rows)
            } else {
                (piece.rows, 1)
            };
            (0..count).map(move |row| (piece.at(row), rows))
        };
        let mut parts = self.pieces.iter().flat_map(parts).peekable();
        std::iter::from_fn(move || {
            let (value, mut rows) = parts.next()?;
            while let Some((_, more)) = parts.next_if(|part| part.0 == value) {
                rows += more;
            }
            Some((value, rows))
        })
    }

    /// Reads rows in order.
    pub(crate) fn reader(&self) -> RunReader<'_> {
        RunReader {
            pieces: &self.pieces,
            from: 0,
        }
    }
}

/// Rows that are read in order.
pub(crate) struct RunReader<'a> {
    pieces: &'a [Run],
    /// Number of rows of the first run that have been read.
    from: usize,
}

/// Some rows of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Number of values that are not above the previous one.
    pub(crate) falls: u64,
}

impl RunReader<'_> {
    /// The next rows: at least one, and at most `rows`.
    pub(crate) fn next(&mut self, mut rows: usize) -> Stretch {
        let mut found: Option<Stretch> = None;
        while let Some(piece) = self.pieces.first().filter(|_| rows > 0) {
            let taken = (piece.rows - self.from).min(rows);
            let part = Run {
                first: piece.at(self.from),
                rows: taken,
                ..*piece
            };
            let (last, falls) = (part.at(taken.saturating_sub(1)), part.falls());
            found = Some(match found {
                None => Stretch {
                    first: part.first,
                    last,
                    falls,
                },
                Some(before) => Stretch {
                    first: before.first,
                    last,
                    falls: before.falls + falls + u64::from(part.first <= before.last),
                },
            });
            rows -= taken;
            self.from += taken;
            if self.from == piece.rows {
                (self.pieces, self.from) = (&self.pieces[1..], 0);
            }
        }
        found.unwrap_or_default()
    }
}

/// Takes bytes from the front.
pub(crate) fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (front, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(front)
}

pub(crate) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    leb128::decode(u64::BITS, || bytes.split_off_first().copied())
}

/// A number with its sign in the lowest bit, modulo 2⁶⁴.
pub(crate) fn zigzag(bytes: &mut &[u8]) -> Option<u64> {
    Some(leb128::unzigzag(varint(bytes)?).cast_unsigned())
}

/// The first `count` numbers of `width` bits each, 1 to 64, from the beginning of `bytes`, lowest
/// bits first. Missing bits at the end are zeros.
#[inline(always)]
fn unpack(bytes: &[u8], width: u32, count: usize) -> impl Iterator<Item = u64> {
    let mask = u64::MAX >> (64 - width);
    (0..count * width as usize)
        .step_by(width as usize)
        .map(move |bit| {
            let rest = bytes.get(bit / 8..).unwrap_or_default();
            // A wider number may span nine bytes.
            match rest.first_chunk() {
                Some(&word) if width <= 56 => u64::from_le_bytes(word) >> (bit % 8) & mask,
                _ => (end_of(&rest[..rest.len().min(9)]) >> (bit % 8)) as u64 & mask,
            }
        })
}

/// The number with these lower bytes; the upper ones are zero.
#[inline(never)]
fn end_of(bytes: &[u8]) -> u128 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, &byte| number << 8 | u128::from(byte))
}

/// Receiver of the values of a column.
pub(crate) trait Values {
    /// Appends one.
    fn push(&mut self, value: u64);
    /// Appends `rows` values: `first`, `first + step`, …
    fn push_even(&mut self, first: u64, step: u64, rows: usize);
}

impl Values for Steps {
    #[inline(always)]
    fn push(&mut self, value: u64) {
        Steps::push(self, value);
    }

    fn push_even(&mut self, first: u64, step: u64, rows: usize) {
        Steps::push_even(self, first, step, rows);
    }
}

impl Values for Vec<u64> {
    #[inline(always)]
    fn push(&mut self, value: u64) {
        Vec::push(self, value);
    }

    fn push_even(&mut self, first: u64, step: u64, rows: usize) {
        self.extend((0..rows as u64).map(|row| first.wrapping_add(step.wrapping_mul(row))));
    }
}

/// Appends the values of a page of packed differences (`DELTA_BINARY_PACKED`); `None` if the
/// general decoder should read it.
pub(crate) fn differences<T: Number>(
    mut page: &[u8],
    values: usize,
    steps: &mut impl Values,
) -> Option<()> {
    let page = &mut page;
    let (block, parts, total) = (
        varint(page)? as usize,
        varint(page)? as usize,
        varint(page)? as usize,
    );
    let part = block.checked_div(parts)?;
    if total != values || block == 0 || block > 1 << 16 || block % parts != 0 || part % 32 != 0 {
        return None;
    }
    // Differences wrap modulo the stored type's range, so the lower bits are right for any narrower
    // type.
    let mut value = zigzag(page)?;
    let Some(mut left) = total.checked_sub(1) else {
        return Some(());
    };
    steps.push(value & T::MASK);
    while left > 0 {
        let least = zigzag(page)?;
        let widths = take(page, parts)?;
        if widths.iter().all(|&width| width == 0) {
            let rows = block.min(left);
            left -= rows;
            even::<T>(&mut value, least, rows, steps);
            continue;
        }
        for &width in widths {
            let from = *page;
            take(page, part / 8 * usize::from(width))?;
            let rows = part.min(left);
            left -= rows;
            if width > 64 {
                return None;
            } else if width == 0 {
                even::<T>(&mut value, least, rows, steps);
            } else {
                for more in unpack(from, width.into(), rows) {
                    value = value.wrapping_add(least).wrapping_add(more);
                    steps.push(value & T::MASK);
                }
            }
            if left == 0 {
                break;
            }
        }
    }
    Some(())
}

/// Appends rows that differ by `step` each: at once if their numbers do not wrap in their type,
/// else one by one.
fn even<T: Number>(value: &mut u64, step: u64, rows: usize, steps: &mut impl Values) {
    let (first, last) = (
        value.wrapping_add(step),
        value.wrapping_add(step.wrapping_mul(rows as u64)),
    );
    let inside = i128::from(first & T::MASK) + i128::from(step as i64) * (rows as i128 - 1)
        == i128::from(last & T::MASK);
    if inside {
        steps.push_even(first & T::MASK, step, rows);
    } else {
        (0..rows as u64)
            .for_each(|row| steps.push(first.wrapping_add(step.wrapping_mul(row)) & T::MASK));
    }
    *value = last;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(steps: &Steps) -> Vec<u64> {
        steps
            .runs()
            .flat_map(|(value, rows)| std::iter::repeat_n(value, rows))
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn columns_are_what_was_pushed(
            parts in prop::collection::vec((prop_oneof![0u64..5, Just(u64::MAX - 2), any::<u64>()], prop_oneof![0u64..3, Just(u64::MAX), any::<u64>()], 0usize..6, any::<bool>()), 0..12),
            cuts in prop::collection::vec(1usize..9, 0..40),
        ) {
            let (mut steps, mut expected) = (Steps::default(), Vec::new());
            for (first, step, rows, at_once) in parts {
                let list: Vec<u64> = (0..rows as u64).map(|row| first.wrapping_add(step.wrapping_mul(row))).collect();
                if at_once {
                    steps.push_even(first, step, rows);
                } else {
                    list.iter().for_each(|&v| steps.push(v));
                }
                expected.extend(list);
            }
            prop_assert_eq!(steps.rows(), expected.len());
            prop_assert_eq!(values(&steps), expected.clone());
            prop_assert!(steps.runs().collect::<Vec<_>>().windows(2).all(|w| w[0].0 != w[1].0));
            let (mut reader, mut rest) = (steps.reader(), &expected[..]);
            for cut in cuts {
                let (part, behind) = rest.split_at(cut.min(rest.len()));
                if part.is_empty() {
                    break;
                }
                let falls = part.windows(2).filter(|w| w[1] <= w[0]).count() as u64;
                prop_assert_eq!(reader.next(part.len()), Stretch { first: part[0], last: part[part.len() - 1], falls });
                rest = behind;
            }
        }

        /// No bytes cause a panic, or yield more rows than requested.
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80), head in any::<bool>(), count in 0usize..300) {
            let mut page = if head { vec![128, 1, 4, (count % 128) as u8 | 128, (count / 128) as u8] } else { Vec::new() };
            page.extend(bytes);
            let (mut steps, mut all) = (Steps::default(), Vec::new());
            let read = differences::<u32>(&page, count, &mut steps);
            prop_assert_eq!(differences::<u32>(&page, count, &mut all), read);
            if read.is_some() {
                prop_assert_eq!(steps.rows(), count);
                prop_assert_eq!(values(&steps), all);
            }
        }
    }

    /// Pages that were written by the recorder's library.
    #[test]
    fn packed_differences_are_read_as_they_were_written() {
        use parquet::column::writer::ColumnWriter;
        let mut state = 5u64;
        let mut random = move |n: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for case in 0..60u64 {
            let count = [1, 2, 31, 128, 129, 1000, 5000][case as usize % 7];
            let mut value = random(3) << random(40);
            let values: Vec<u64> = (0..count)
                .map(|row| {
                    value = match case % 6 {
                        0 => value,
                        1 => value.wrapping_add(1),
                        2 => value.wrapping_add(if row % 997 == 500 { 1_000_000 } else { 1 }),
                        3 => random(1 << 63) << 1 | random(2),
                        4 => value.wrapping_sub(1),
                        _ => {
                            if random(300) == 0 {
                                random(50)
                            } else {
                                value
                            }
                        }
                    };
                    value
                })
                .collect();
            for narrow in [false, true] {
                let schema = if narrow {
                    "message m { required int32 v (INTEGER(32,false)); }"
                } else {
                    "message m { required int64 v (INTEGER(64,false)); }"
                };
                let schema = std::sync::Arc::new(
                    parquet::schema::parser::parse_message_type(schema).unwrap(),
                );
                let properties = parquet::file::properties::WriterProperties::builder()
                    .set_dictionary_enabled(false)
                    .set_encoding(parquet::basic::Encoding::DELTA_BINARY_PACKED);
                let mut file = Vec::new();
                let mut writer = parquet::file::writer::SerializedFileWriter::new(
                    &mut file,
                    schema,
                    std::sync::Arc::new(properties.build()),
                )
                .unwrap();
                let mut group = writer.next_row_group().unwrap();
                let mut column = group.next_column().unwrap().unwrap();
                match column.untyped() {
                    ColumnWriter::Int32ColumnWriter(w) => w
                        .write_batch(
                            &values.iter().map(|&v| v as i32).collect::<Vec<_>>(),
                            None,
                            None,
                        )
                        .unwrap(),
                    ColumnWriter::Int64ColumnWriter(w) => w
                        .write_batch(
                            &values.iter().map(|&v| v as i64).collect::<Vec<_>>(),
                            None,
                            None,
                        )
                        .unwrap(),
                    _ => unreachable!("integers"),
                };
                column.close().unwrap();
                group.close().unwrap();
                writer.close().unwrap();
                let metadata = parquet::file::metadata::ParquetMetaDataReader::new()
                    .parse_and_finish(&bytes::Bytes::from(file.clone()))
                    .unwrap();
                let column = metadata.row_group(0).column(0);
                let (start, length) = column.byte_range();
                let bytes = file[start as usize..][..length as usize].to_vec();
                if narrow {
                    let steps =
                        crate::input::plain_column::steps::<u32>(bytes.clone(), column, count)
                            .unwrap();
                    assert_eq!(
                        self::values(&steps),
                        values.iter().map(|v| v & 0xffff_ffff).collect::<Vec<_>>(),
                        "case {case}"
                    );
                    let steps =
                        crate::input::plain_column::steps::<u16>(bytes, column, count).unwrap();
                    assert_eq!(
                        self::values(&steps),
                        values.iter().map(|v| v & 0xffff).collect::<Vec<_>>(),
                        "case {case}"
                    );
                } else {
                    let steps =
                        crate::input::plain_column::steps::<u64>(bytes.clone(), column, count)
                            .unwrap();
                    assert_eq!(self::values(&steps), values, "case {case}");
                    assert_eq!(
                        crate::input::plain_column::unsteady(bytes, column, count).unwrap(),
                        values,
                        "case {case}"
                    );
                    assert!(case % 6 > 1 || steps.pieces.len() == 1, "case {case}");
                }
            }
        }
    }
}

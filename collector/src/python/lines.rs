//! From an instruction of a code object to its line, by the tables of CPython.
//!
//! The format changed twice. Objects/lnotab_notes.txt and Objects/locations.md of CPython describe
//! the formats. Tables are bytes of another process: every length is checked.

/// Formats of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// Up to 3.9: pairs of increments of address and line (`co_lnotab`).
    Increments,
    /// 3.10: pairs of a range's length and its line's difference (`co_linetable`).
    Ranges,
    /// 3.11 on: locations of variable length (`co_linetable`).
    Locations,
}

/// Instructions of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRange {
    /// Offset of the first byte of code.
    pub start: u32,
    /// Offset behind the last.
    pub end: u32,
    /// Line; 0 if they have none.
    pub line: u32,
}

/// Bytes of an instruction and its argument.
const UNIT: u32 = 2;

/// The ranges of a table, by address. `code_bytes`: length of the code.
pub fn line_ranges(
    format: LineFormat,
    table: &[u8],
    first_line: u32,
    code_bytes: u32,
) -> Vec<LineRange> {
    match format {
        LineFormat::Increments => increments(table, first_line, code_bytes),
        LineFormat::Ranges => ranges(table, first_line),
        LineFormat::Locations => locations(table, first_line),
    }
}

/// The line of an instruction; 0 if it has none.
pub fn line_at(ranges: &[LineRange], offset: u32) -> u32 {
    let behind = ranges.partition_point(|range| range.start <= offset);
    let found = behind.checked_sub(1).and_then(|at| ranges.get(at));
    found
        .filter(|range| offset < range.end)
        .map_or(0, |range| range.line)
}

/// A line plus a difference; 0 if the result is no line number.
fn line_number(line: i64) -> u32 {
    u32::try_from(line).unwrap_or(0)
}

fn increments(table: &[u8], first_line: u32, code_bytes: u32) -> Vec<LineRange> {
    let mut out: Vec<LineRange> = Vec::new();
    let (mut start, mut address, mut line) = (0u32, 0u32, i64::from(first_line));
    let mut push = |start: u32, end: u32, line: i64| {
        if start < end {
            let line = line_number(line);
            out.push(LineRange { start, end, line });
        }
    };
    for pair in table.chunks_exact(2) {
        let (bytes, difference) = (u32::from(pair[0]), i64::from(pair[1].cast_signed()));
        address = address.saturating_add(bytes).min(code_bytes);
        // Pairs without a difference only move the address.
        if difference != 0 {
            push(start, address, line);
            start = address;
        }
        line += difference;
    }
    push(start, code_bytes, line);
    out
}

fn ranges(table: &[u8], first_line: u32) -> Vec<LineRange> {
    /// Difference of a range without a line.
    const NO_LINE: i8 = -128;
    let mut out = Vec::new();
    let (mut start, mut line) = (0u32, i64::from(first_line));
    for pair in table.chunks_exact(2) {
        let end = start.saturating_add(pair[0].into());
        let difference = pair[1].cast_signed();
        if difference != NO_LINE {
            line += i64::from(difference);
        }
        if start < end {
            let has_line = difference != NO_LINE;
            let line = if has_line { line_number(line) } else { 0 };
            out.push(LineRange { start, end, line });
        }
        start = end;
    }
    out
}

/// Kinds of an entry of 3.11, by its four bits.
mod kind {
    pub const LAST_SHORT: u8 = 9;
    pub const FIRST_ONE_LINE: u8 = 10;
    pub const LAST_ONE_LINE: u8 = 12;
    pub const NO_COLUMNS: u8 = 13;
    pub const LONG: u8 = 14;
}

fn locations(table: &[u8], first_line: u32) -> Vec<LineRange> {
    let mut out: Vec<LineRange> = Vec::new();
    let (mut at, mut start, mut line) = (0, 0u32, i64::from(first_line));
    while let Some(&first) = table.get(at) {
        at += 1;
        let kind = (first >> 3) & 15;
        let end = start.saturating_add((u32::from(first & 7) + 1) * UNIT);
        let has_line = match kind {
            0..=kind::LAST_SHORT => {
                at += 1;
                true
            }
            kind::FIRST_ONE_LINE..=kind::LAST_ONE_LINE => {
                line += i64::from(kind - kind::FIRST_ONE_LINE);
                at += 2;
                true
            }
            kind::NO_COLUMNS | kind::LONG => {
                let Some(difference) = signed_varint(table, &mut at) else {
                    break;
                };
                line += difference;
                if kind == kind::LONG {
                    // End line, column, end column.
                    for _ in 0..3 {
                        if varint(table, &mut at).is_none() {
                            return out;
                        }
                    }
                }
                true
            }
            _ => false,
        };
        let number = if has_line { line_number(line) } else { 0 };
        match out.last_mut().filter(|last| last.line == number) {
            Some(last) => last.end = end,
            None => out.push(LineRange {
                start,
                end,
                line: number,
            }),
        }
        start = end;
    }
    out
}

/// A number in groups of six bits, the lowest first.
fn varint(table: &[u8], at: &mut usize) -> Option<u32> {
    const MORE: u8 = 0x40;
    const BITS: u32 = 6;
    let mut value = 0u32;
    for group in 0.. {
        let &byte = table.get(*at)?;
        *at += 1;
        let bits = u32::from(byte & (MORE - 1));
        value |= bits.checked_shl(group * BITS)?;
        if byte & MORE == 0 {
            break;
        }
    }
    Some(value)
}

/// As `varint`, with the sign in the lowest bit.
fn signed_varint(table: &[u8], at: &mut usize) -> Option<i64> {
    let value = varint(table, at)?;
    let size = i64::from(value >> 1);
    Some(if value & 1 != 0 { -size } else { size })
}

#[cfg(test)]
mod tests;

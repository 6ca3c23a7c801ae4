//! `/tmp/perf-PID.map`: a line `START SIZE NAME` for each function, numbers in hexadecimal, with or
//! without `0x`.
//!
//! The file has no times. Compilers append a line whenever they generate code, so if ranges
//! overlap, the last line counts.

use crate::{GeneratedBlock, GeneratedName, NameSource};

/// Largest plausible function, bytes. Source: Chosen; the code areas of compilers are smaller.
const MAX_FUNCTION_BYTES: u64 = 1 << 32;

/// Content of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerfMap {
    /// Functions in the order of their lines.
    pub blocks: Vec<GeneratedBlock>,
    /// Number of invalid lines. A last line without a newline is one of them, since it is not
    /// complete.
    pub unread: u64,
}

/// Reads a file.
pub fn parse(text: &[u8]) -> PerfMap {
    let mut map = PerfMap::default();
    for line in text.split_inclusive(|&b| b == b'\n') {
        let Some(line) = line.strip_suffix(b"\n") else {
            map.unread += 1;
            continue;
        };
        match block(line) {
            Some(block) => map.blocks.push(block),
            None if line.trim_ascii().is_empty() => {}
            None => map.unread += 1,
        }
    }
    map
}

fn block(line: &[u8]) -> Option<GeneratedBlock> {
    let line = String::from_utf8_lossy(line);
    let mut fields = line.trim_start().splitn(3, ' ');
    let start = hex(fields.next()?)?;
    let bytes = hex(fields.next()?)?;
    let name = fields.next()?.trim();
    if bytes == 0 || bytes > MAX_FUNCTION_BYTES || name.is_empty() {
        return None;
    }
    Some(GeneratedBlock {
        start,
        end: start.checked_add(bytes)?,
        begin_ns: 0,
        end_ns: u64::MAX,
        name: GeneratedName::of_text(name, NameSource::PerfMap),
    })
}

fn hex(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    // `from_str_radix` would accept a sign.
    let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
    is_hex.then(|| u64::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_several_compilers_are_read() {
        let text = b"7f0010 20 square\n\
            0x00007f1100000000 0x00000000000000c0 int Hot.sum(int[])\n\
            7f2000 40 JS:*work /app/a.js:3:7\n\
            \n\
            7f3000 0 empty\n\
            nonsense\n\
            -7f 20 signed\n\
            ffffffffffffffff 20 too far\n\
            7f4000 20\n\
            7f5000 20 cut";
        let map = parse(text);
        let found: Vec<(u64, u64, &str)> = (map.blocks.iter())
            .map(|b| (b.start, b.end - b.start, b.name.function.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                (0x7f0010, 0x20, "square"),
                (0x7f1100000000, 0xc0, "int Hot.sum(int[])"),
                (0x7f2000, 0x40, "work"),
            ]
        );
        assert_eq!(map.unread, 6);
    }
}

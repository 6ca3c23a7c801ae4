//! Code objects of CPython, read from a process that runs.

use crate::python::lines::{LineRange, line_at, line_ranges};
use crate::python::memory::Memory;
use crate::python::version::{Instructions, ObjectLayout};
use mgz_elf::bytes::{u32 as u32_at, u64 as u64_at};

/// Longer names and paths are invalid. Source: Chosen; paths have 4,096 bytes at most.
const MAX_CHARACTERS: u64 = 4096;
/// Longer tables of lines are not read. Source: Chosen; a function of 100,000 lines has about a
/// million bytes.
const MAX_TABLE_BYTES: u64 = 16 << 20;
/// Longer code is invalid. Source: Chosen, as above.
const MAX_CODE_BYTES: u64 = 256 << 20;

/// A function, class body or module of Python.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PythonCode {
    /// Name, with those of the surrounding classes and functions if the version has them.
    pub name: String,
    /// Source file, or CPython's text in brackets for code without a file.
    pub file: String,
    /// Line of `def`.
    pub first_line: u32,
}

/// Fields that identify a code object, since another one may replace it at its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeHead {
    name: u64,
    file: u64,
    lines: u64,
    first_line: u32,
    /// Address of `co_code`, or the number of units.
    code: u64,
}

/// A code object's lines.
#[derive(Clone, Debug, Default)]
pub struct CodeLines {
    ranges: Vec<LineRange>,
    code_bytes: u32,
}

impl CodeHead {
    /// The head in the first bytes of an object. `None` if its type is another.
    pub fn parse(bytes: &[u8], layout: &ObjectLayout, code_type: u64) -> Option<CodeHead> {
        if u64_at(bytes, layout.object_type)? != code_type {
            return None;
        }
        let code = match layout.instructions {
            Instructions::Index { code, .. } => code,
            Instructions::Address { length, .. } => length,
        };
        Some(CodeHead {
            name: u64_at(bytes, layout.code_name)?,
            file: u64_at(bytes, layout.code_file)?,
            lines: u64_at(bytes, layout.code_lines)?,
            first_line: u32_at(bytes, layout.code_first_line)?,
            code: u64_at(bytes, code)?,
        })
    }

    /// The code object's names.
    pub fn names(&self, memory: &dyn Memory, layout: &ObjectLayout) -> Option<PythonCode> {
        Some(PythonCode {
            name: string(memory, layout, self.name)?,
            file: string(memory, layout, self.file)?,
            first_line: self.first_line,
        })
    }

    /// The code object's table of lines.
    pub fn lines(&self, memory: &dyn Memory, layout: &ObjectLayout) -> Option<CodeLines> {
        let code_bytes = match layout.instructions {
            Instructions::Index { .. } => {
                memory.word(self.code.checked_add(layout.bytes_length as u64)?)?
            }
            Instructions::Address { .. } => self.code.checked_mul(2)?,
        };
        let code_bytes = u32::try_from(code_bytes)
            .ok()
            .filter(|&bytes| u64::from(bytes) <= MAX_CODE_BYTES)?;
        let length = memory.word(self.lines.checked_add(layout.bytes_length as u64)?)?;
        if length > MAX_TABLE_BYTES {
            return None;
        }
        let mut table = vec![0; length as usize];
        if !memory.read(
            self.lines.checked_add(layout.bytes_data as u64)?,
            &mut table,
        ) {
            return None;
        }
        Some(CodeLines {
            ranges: line_ranges(layout.line_format, &table, self.first_line, code_bytes),
            code_bytes,
        })
    }
}

impl CodeLines {
    /// The line of a frame's instruction in the code object at an address; 0 if unknown.
    pub fn line(&self, layout: &ObjectLayout, code: u64, instruction: u64) -> u32 {
        let offset = match layout.instructions {
            // Before its first instruction, a frame's index is -1.
            Instructions::Index { unit, .. } => match (instruction as u32).cast_signed() {
                index @ 0.. => index.unsigned_abs().checked_mul(unit),
                _ => Some(0),
            },
            Instructions::Address { first, .. } => {
                let begin = code.wrapping_add(first as u64);
                // Before its first instruction, a frame has the address in front of it.
                let offset = instruction.wrapping_add(2).checked_sub(begin);
                offset.and_then(|offset| u32::try_from(offset.saturating_sub(2)).ok())
            }
        };
        let inside = offset.filter(|&offset| offset < self.code_bytes);
        inside.map_or(0, |offset| line_at(&self.ranges, offset))
    }
}

/// A string object's text.
fn string(memory: &dyn Memory, layout: &ObjectLayout, at: u64) -> Option<String> {
    let mut head = [0; 96];
    let head = head.get_mut(..layout.string_ascii.max(layout.string_state + 4))?;
    if at == 0 || !memory.read(at, head) {
        return None;
    }
    let length = u64_at(head, layout.string_length).filter(|&l| l <= MAX_CHARACTERS)?;
    let state = u32_at(head, layout.string_state)?;
    let (bytes, is_ascii) = string_form(state)?;
    let data = match is_ascii {
        true => layout.string_ascii,
        false => layout.string_other,
    };
    let mut text = vec![0; length as usize * bytes];
    if !memory.read(at.checked_add(data as u64)?, &mut text) {
        return None;
    }
    let character = |bytes: &[u8]| {
        let mut value = [0; 4];
        value[..bytes.len()].copy_from_slice(bytes);
        char::from_u32(u32::from_le_bytes(value)).unwrap_or(char::REPLACEMENT_CHARACTER)
    };
    Some(text.chunks_exact(bytes).map(character).collect())
}

/// Bytes of a character, and whether all are ASCII. The number of bits before these differs between
/// versions and builds.
fn string_form(state: u32) -> Option<(usize, bool)> {
    /// Bits before the kind.
    const BEFORE: [u32; 2] = [2, 8];
    BEFORE.into_iter().find_map(|before| {
        let bits = state >> before;
        let (kind, compact, ascii) = (bits & 7, bits >> 3 & 1, bits >> 4 & 1 == 1);
        let is_form = compact == 1 && matches!(kind, 1 | 2 | 4) && (!ascii || kind == 1);
        is_form.then_some((kind as usize, ascii))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::version::table;

    /// Memory from an address on.
    struct Bytes(u64, Vec<u8>);

    impl Memory for Bytes {
        fn read_all(&self, places: &mut [(u64, &mut [u8])]) -> usize {
            let fill = |(at, out): &mut (u64, &mut [u8])| {
                let from = at.checked_sub(self.0).map(|from| from as usize);
                let found = from.and_then(|from| self.1.get(from..from + out.len()));
                found.map(|bytes| out.copy_from_slice(bytes)).is_some()
            };
            places
                .iter_mut()
                .map(fill)
                .take_while(|&filled| filled)
                .count()
        }
    }

    fn put(memory: &mut Bytes, at: u64, bytes: &[u8]) {
        let from = (at - memory.0) as usize;
        memory.1[from..from + bytes.len()].copy_from_slice(bytes);
    }

    #[test]
    fn names_and_lines_of_a_code_object_are_read() {
        const TYPE: u64 = 0x77;
        let layout = table(11).unwrap().objects;
        let mut memory = Bytes(0x10_000, vec![0; 4096]);
        let (code, name, file, lines) = (0x10_000, 0x10_200, 0x10_300, 0x10_400);
        let words = [
            (code + 8, TYPE),
            // Units of code.
            (code + 16, 4),
            (code + 112, file),
            (code + 128, name),
            (code + 136, lines),
            (name + 16, 4),
            (file + 16, 2),
            (lines + 16, 4),
        ];
        for (at, word) in words {
            put(&mut memory, at, &word.to_le_bytes());
        }
        put(&mut memory, code + 72, &40u32.to_le_bytes());
        // The string is compact ASCII, one byte per character.
        put(&mut memory, name + 32, &[1 << 2 | 1 << 5 | 1 << 6]);
        put(&mut memory, name + 48, b"step");
        // The string is compact, two bytes per character.
        put(&mut memory, file + 32, &[2 << 2 | 1 << 5]);
        put(&mut memory, file + 72, &[0x3c, 0x04, b'y', 0]);
        // Two units at the first line, two at the next one.
        put(
            &mut memory,
            lines + 32,
            &[0x80 | 13 << 3 | 1, 0, 0x80 | 13 << 3 | 1, 2],
        );
        let mut bytes = vec![0; layout.code_bytes()];
        assert!(memory.read(code, &mut bytes));
        assert_eq!(CodeHead::parse(&bytes, &layout, TYPE + 1), None);
        let head = CodeHead::parse(&bytes, &layout, TYPE).unwrap();
        let names = head.names(&memory, &layout).unwrap();
        assert_eq!((names.name.as_str(), names.file.as_str()), ("step", "мy"));
        let found = head.lines(&memory, &layout).unwrap();
        let first = code + 184;
        let line = |at| found.line(&layout, code, at);
        assert_eq!(line(first - 2), 40, "before the first instruction");
        assert_eq!(
            (line(first), line(first + 4), line(first + 6)),
            (40, 41, 41)
        );
        assert_eq!((line(first + 8), line(0), line(u64::MAX)), (0, 0, 0));
        // There is no string at this address.
        assert_eq!(string(&memory, &layout, lines), None);
        assert_eq!(string(&memory, &layout, 8), None);
    }
}

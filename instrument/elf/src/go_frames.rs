//! Sizes of the stack frames of Go code, by the table with which Go's runtime walks stacks
//! (`pclntab`, in the layout of Go 1.18 and 1.19).

use crate::bytes;

/// First word of the table.
const KNOWN_TABLE: u32 = 0xffff_fff0;
/// Bytes behind that word: two zeros, the unit of instruction lengths, and the size of a pointer.
const X86_64: [u8; 4] = [0, 0, 1, 8];

// Offsets in the table's header.
const COUNT_AT: usize = 8;
const TEXT_AT: usize = 24;
const VALUES_AT: usize = 56;
const FUNCTIONS_AT: usize = 64;

/// Bytes of an entry in the list of functions: offset of the code, and of the description.
const ENTRY: usize = 8;

// Offsets in a function's description.
const SIZES_AT: usize = 16;
const FLAGS_AT: usize = 37;

/// The function is a thread's or a goroutine's first one.
const TOP_FRAME: u8 = 1;
/// The function changes the stack pointer in ways that the table does not describe.
const WRITES_STACK_POINTER: u8 = 2;

/// Bytes of the longest number of 32 bits in groups of 7.
const MAX_NUMBER_BYTES: usize = 5;

/// The frame of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoFrame {
    /// The return address lies so many bytes above the stack pointer.
    Bytes(u64),
    /// The function is a thread's or a goroutine's first one: it has no caller.
    First,
    /// The table does not describe the frame.
    Unknown,
}

/// The functions of a Go program, and their frames.
#[derive(Clone, Debug)]
pub struct GoFrames {
    table: Box<[u8]>,
    /// Link-time address of the first function.
    text: u64,
    count: usize,
    /// Offset of the list of functions.
    functions: usize,
    /// Offset of the values by instruction.
    values: usize,
}

impl GoFrames {
    /// True if the section `.gopclntab` has the known layout.
    pub fn is_known(table: &[u8]) -> bool {
        bytes::u32(table, 0) == Some(KNOWN_TABLE) && table.get(4..8) == Some(&X86_64[..])
    }

    /// Reads the section `.gopclntab`. `None` if its layout is another one or if it is damaged.
    pub fn read(table: &[u8]) -> Option<GoFrames> {
        if !Self::is_known(table) {
            return None;
        }
        let number = |at| usize::try_from(bytes::u64(table, at)?).ok();
        let frames = GoFrames {
            text: bytes::u64(table, TEXT_AT)?,
            count: number(COUNT_AT)?,
            functions: number(FUNCTIONS_AT)?,
            values: number(VALUES_AT)?,
            table: table.into(),
        };
        // The list ends with the offset of the code's end.
        let end = frames.count.checked_mul(ENTRY)?.checked_add(4)?;
        table.get(frames.functions..frames.functions.checked_add(end)?)?;
        Some(frames)
    }

    /// The frame of the instruction at a link-time address. `None` if it is not Go's.
    pub fn at(&self, address: u64) -> Option<GoFrame> {
        let offset = u32::try_from(address.checked_sub(self.text)?).ok()?;
        let (mut low, mut high) = (0, self.count);
        if offset >= self.entry(high)? {
            return None;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            match self.entry(middle)? <= offset {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let number = low.checked_sub(1)?;
        Some(self.of_function(number, offset).unwrap_or(GoFrame::Unknown))
    }

    /// Offset of the code of a function. That of the number behind the last one is the code's end.
    fn entry(&self, number: usize) -> Option<u32> {
        bytes::u32(&self.table, self.functions + number * ENTRY)
    }

    /// `None` if the table is damaged or does not describe the frame.
    fn of_function(&self, number: usize, offset: u32) -> Option<GoFrame> {
        let begin = self.entry(number)?;
        let at = bytes::u32(&self.table, self.functions + number * ENTRY + 4)? as usize;
        let description = self.table.get(self.functions.checked_add(at)?..)?;
        let flags = bytes::u8(description, FLAGS_AT)?;
        if flags & TOP_FRAME != 0 {
            return Some(GoFrame::First);
        }
        if flags & WRITES_STACK_POINTER != 0 {
            return None;
        }
        // An offset of zero means no values.
        let sizes = bytes::u32(description, SIZES_AT).filter(|&at| at != 0)? as usize;
        let sizes = self.table.get(self.values.checked_add(sizes)?..)?;
        let size = value_at(sizes, offset - begin)?;
        u64::try_from(size).ok().map(GoFrame::Bytes)
    }
}

/// The value at an offset in a function. The list consists of pairs: the change of the value, and
/// the number of bytes for which it then holds. It begins with -1 and ends with a change by 0.
fn value_at(mut list: &[u8], offset: u32) -> Option<i32> {
    let (mut value, mut end) = (-1i32, 0u32);
    let mut is_first = true;
    loop {
        let change = number(&mut list)?;
        if change == 0 && !is_first {
            return None;
        }
        is_first = false;
        // The lowest bit is the sign.
        let change = (change >> 1) as i32 ^ -((change & 1) as i32);
        value = value.wrapping_add(change);
        end = end.checked_add(number(&mut list)?)?;
        if offset < end {
            return Some(value);
        }
    }
}

/// Takes a number in groups of 7 bits, the lowest ones first.
fn number(list: &mut &[u8]) -> Option<u32> {
    let mut number = 0;
    for group in 0..MAX_NUMBER_BYTES {
        let byte = *list.split_off_first()?;
        number |= u32::from(byte & 0x7f) << (7 * group);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: u64 = 0x40_1000;

    /// A table of three functions: `leaf` without a frame, `caller` with one of 24 bytes behind its
    /// fourth instruction byte, and the first function of a goroutine.
    fn table() -> Vec<u8> {
        const FUNCTIONS: usize = 96;
        let mut table = vec![0; FUNCTIONS];
        table[..4].copy_from_slice(&KNOWN_TABLE.to_le_bytes());
        table[4..8].copy_from_slice(&X86_64);
        let mut put = |at: usize, value: u64| {
            table[at..at + 8].copy_from_slice(&value.to_le_bytes());
        };
        put(COUNT_AT, 3);
        put(TEXT_AT, TEXT);
        put(VALUES_AT, 72);
        put(FUNCTIONS_AT, FUNCTIONS as u64);
        // Values: at 73, 0 for 16 bytes; at 76, 0 for 4 and 24 for 300 bytes, and 0 for one byte.
        table[73..76].copy_from_slice(&[2, 16, 0]);
        table[76..84].copy_from_slice(&[2, 4, 48, 0xac, 0x02, 47, 1, 0]);
        let description = |sizes: u32, flags: u8| {
            let mut bytes = [0; 40];
            bytes[SIZES_AT..SIZES_AT + 4].copy_from_slice(&sizes.to_le_bytes());
            bytes[FLAGS_AT] = flags;
            bytes
        };
        for (offset, at) in [(0, 28), (16, 68), (321, 108), (330, 0)] {
            table.extend(u32::to_le_bytes(offset));
            table.extend(u32::to_le_bytes(at));
        }
        // Nothing follows the code's end but the descriptions.
        table.truncate(FUNCTIONS + 28);
        table.extend(description(1, 0));
        table.extend(description(4, 0));
        table.extend(description(1, TOP_FRAME));
        table
    }

    #[test]
    fn frames_have_the_sizes_of_the_table() {
        let frames = GoFrames::read(&table()).unwrap();
        let at = |offset: u64| frames.at(TEXT + offset);
        assert_eq!(at(0), Some(GoFrame::Bytes(0)));
        assert_eq!(at(15), Some(GoFrame::Bytes(0)));
        assert_eq!(at(16), Some(GoFrame::Bytes(0)));
        assert_eq!(at(19), Some(GoFrame::Bytes(0)));
        assert_eq!(at(20), Some(GoFrame::Bytes(24)));
        assert_eq!(at(319), Some(GoFrame::Bytes(24)));
        assert_eq!(at(320), Some(GoFrame::Bytes(0)));
        assert_eq!(at(321), Some(GoFrame::First));
        assert_eq!(at(330), None);
        assert_eq!(frames.at(TEXT - 1), None);
    }

    #[test]
    fn functions_that_write_the_stack_pointer_have_unknown_frames() {
        let mut table = table();
        table[96 + 28 + FLAGS_AT] = WRITES_STACK_POINTER;
        let frames = GoFrames::read(&table).unwrap();
        assert_eq!(frames.at(TEXT + 3), Some(GoFrame::Unknown));
        assert_eq!(frames.at(TEXT + 20), Some(GoFrame::Bytes(24)));
    }

    #[test]
    fn damaged_and_other_tables_are_refused_or_unknown() {
        let table = table();
        let mut newer = table.clone();
        newer[0] = 0xf1;
        assert!(GoFrames::read(&newer).is_none());
        for end in 0..table.len() {
            if let Some(frames) = GoFrames::read(&table[..end]) {
                (0..340).for_each(|offset| {
                    frames.at(TEXT + offset);
                });
            }
        }
        let mut huge = table.clone();
        huge[COUNT_AT..COUNT_AT + 8].fill(0xff);
        assert!(GoFrames::read(&huge).is_none());
        let mut far = table;
        far[FUNCTIONS_AT..FUNCTIONS_AT + 8].fill(0xff);
        assert!(GoFrames::read(&far).is_none());
    }
}

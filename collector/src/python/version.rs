//! Layouts of CPython's structures, by version.
//!
//! From 3.13 on the interpreter describes its own structures (`_Py_DebugOffsets`, at the start of
//! `_PyRuntime`). Earlier versions are in a table. Releases of one minor version have one layout.
//! Builds for debugging (`Py_DEBUG`, `Py_TRACE_REFS`) differ; the check of a code object's type
//! rejects them.

use crate::python::lines::LineFormat;
use mgz_abi::python_frames::{FrameLayout, NO_FIELD};

/// Offsets in objects that the recorder reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectLayout {
    /// Any object: its type.
    pub object_type: usize,
    /// Code: name (`co_qualname` if the version has it).
    pub code_name: usize,
    /// Code: source file.
    pub code_file: usize,
    /// Code: line of `def`.
    pub code_first_line: usize,
    /// Code: table of lines.
    pub code_lines: usize,
    /// Format of that table.
    pub line_format: LineFormat,
    /// The instructions.
    pub instructions: Instructions,
    /// Bytes: length.
    pub bytes_length: usize,
    /// Bytes: first byte.
    pub bytes_data: usize,
    /// String: number of characters.
    pub string_length: usize,
    /// String: bits that give its form.
    pub string_state: usize,
    /// String: first character if all are ASCII.
    pub string_ascii: usize,
    /// String: first character if not.
    pub string_other: usize,
}

/// The position of a frame, as its instruction gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instructions {
    /// A number of units of this many bytes. The code is an object (`co_code`) at this offset.
    Index {
        /// Bytes of a unit.
        unit: u32,
        /// Offset of the pointer to the code's bytes.
        code: usize,
    },
    /// An address behind this offset in the code object. `ob_size` is the number of units of two
    /// bytes.
    Address {
        /// Offset of the first instruction.
        first: usize,
        /// Offset of the number of units.
        length: usize,
    },
}

/// A version's structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// For the runtime; its `interpreters` is an offset in `_PyRuntime`.
    pub frames: FrameLayout,
    /// For the recorder.
    pub objects: ObjectLayout,
}

/// Bytes of an object's head without a length, and with one.
const VARIABLE_HEAD: usize = 24;
/// Offset of `ob_type`.
const TYPE: usize = 8;
/// Offset of `ob_size`.
const LENGTH: usize = 16;
/// Offset of the data of `bytes`.
const BYTES_DATA: usize = 32;
/// Offset of a string's state.
const STRING_STATE: usize = 32;
/// Bytes of a string's head before its characters, if they are ASCII: up to 3.11, and from 3.12 on.
const STRING_ASCII: [usize; 2] = [48, 40];
/// Bytes of the head of a string that is not ASCII: up to 3.11, and from 3.12 on.
const STRING_OTHER: [usize; 2] = [72, 56];

/// The layout of `3.minor`, if it is in the table. Source: the headers of these versions.
pub fn table(minor: u8) -> Option<Layout> {
    match minor {
        9 | 10 => Some(with_frame_objects(minor)),
        11 | 12 => Some(with_interpreter_frames(minor)),
        _ => None,
    }
}

/// 3.9 and 3.10: each frame is an object.
fn with_frame_objects(minor: u8) -> Layout {
    let is_first = minor == 9;
    Layout {
        frames: FrameLayout {
            interpreters: 32,
            next_interpreter: 0,
            threads: 8,
            next_thread: 8,
            thread_id: 176,
            frame: 24,
            held_frame: NO_FIELD,
            previous: 24,
            code: 32,
            instruction: if is_first { 104 } else { 96 },
            instruction_bytes: 4,
            is_entry: NO_FIELD,
            owner: NO_FIELD,
        },
        objects: ObjectLayout {
            object_type: TYPE,
            code_name: 112,
            code_file: 104,
            code_first_line: 40,
            code_lines: 120,
            line_format: if is_first {
                LineFormat::Increments
            } else {
                LineFormat::Ranges
            },
            instructions: Instructions::Index {
                unit: if is_first { 1 } else { 2 },
                code: 48,
            },
            bytes_length: LENGTH,
            bytes_data: BYTES_DATA,
            string_length: LENGTH,
            string_state: STRING_STATE,
            string_ascii: STRING_ASCII[0],
            string_other: STRING_OTHER[0],
        },
    }
}

/// 3.11 and 3.12: frames are structures of the interpreter.
fn with_interpreter_frames(minor: u8) -> Layout {
    let is_first = minor == 11;
    let of = |first: u64, second: u64| if is_first { first } else { second };
    let usize_of = |first: usize, second: usize| if is_first { first } else { second };
    let version = usize::from(!is_first);
    Layout {
        frames: FrameLayout {
            interpreters: 40,
            next_interpreter: 0,
            threads: of(16, 72),
            next_thread: 8,
            thread_id: of(152, 136),
            frame: 56,
            held_frame: of(8, 0),
            previous: of(48, 8),
            code: of(32, 0),
            instruction: 56,
            instruction_bytes: 8,
            is_entry: of(68, NO_FIELD),
            owner: of(69, 70),
        },
        objects: ObjectLayout {
            object_type: TYPE,
            code_name: 128,
            code_file: 112,
            code_first_line: usize_of(72, 68),
            code_lines: 136,
            line_format: LineFormat::Locations,
            instructions: Instructions::Address {
                first: usize_of(184, 192),
                length: LENGTH,
            },
            bytes_length: LENGTH,
            bytes_data: BYTES_DATA,
            string_length: LENGTH,
            string_state: STRING_STATE,
            string_ascii: STRING_ASCII[version],
            string_other: STRING_OTHER[version],
        },
    }
}

/// Words of `_Py_DebugOffsets` that are read, of the longest version.
pub const DEBUG_WORDS: usize = 81;
/// First word of `_Py_DebugOffsets`.
const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");

/// Places of fields in `_Py_DebugOffsets`, in words.
struct DebugPlaces {
    next_interpreter: usize,
    threads: usize,
    /// `next` of the thread's state; `current_frame` and `thread_id` lie 2 and 3 behind it.
    next_thread: usize,
    /// `previous` of the frame; `executable`, `instr_ptr` and `owner` lie 1, 2 and 4 behind it.
    previous: usize,
    /// `filename` of the code; `qualname`, `linetable`, `firstlineno` and `co_code_adaptive` lie 2,
    /// 3, 4 and 8 behind it.
    file: usize,
    object_type: usize,
    /// `ob_size` of bytes; `ob_sval` lies behind it.
    bytes_length: usize,
    /// `state` of strings; `length` and `asciiobject_size` lie behind it.
    string_state: usize,
}

const DEBUG_3_13: DebugPlaces = DebugPlaces {
    next_interpreter: 8,
    threads: 9,
    next_thread: 21,
    previous: 29,
    file: 35,
    object_type: 45,
    bytes_length: 65,
    string_state: 68,
};

const DEBUG_3_14: DebugPlaces = DebugPlaces {
    next_interpreter: 8,
    threads: 9,
    next_thread: 24,
    previous: 32,
    file: 40,
    object_type: 51,
    bytes_length: 75,
    string_state: 78,
};

/// Larger offsets are invalid. `PyInterpreterState` has some hundred thousand bytes.
const MAX_OFFSET: u64 = 1 << 24;

/// The layout that an interpreter describes. `None` if the words are no offsets of a known version.
pub fn described(words: &[u64; DEBUG_WORDS]) -> Option<Layout> {
    if words[0] != COOKIE {
        return None;
    }
    let places = match words[1] >> 16 {
        0x30d => DEBUG_3_13,
        0x30e => DEBUG_3_14,
        _ => return None,
    };
    let offset = |place: usize| Some(words[place]).filter(|&offset| offset < MAX_OFFSET);
    let small = |place: usize| offset(place).map(|offset| offset as usize);
    let object_type = small(places.object_type)?;
    let ascii = small(places.string_state + 2)?;
    Some(Layout {
        frames: FrameLayout {
            interpreters: offset(5)?,
            next_interpreter: offset(places.next_interpreter)?,
            threads: offset(places.threads)?,
            next_thread: offset(places.next_thread)?,
            thread_id: offset(places.next_thread + 3)?,
            frame: offset(places.next_thread + 2)?,
            held_frame: NO_FIELD,
            previous: offset(places.previous)?,
            code: offset(places.previous + 1)?,
            instruction: offset(places.previous + 2)?,
            instruction_bytes: 8,
            is_entry: NO_FIELD,
            owner: offset(places.previous + 4)?,
        },
        objects: ObjectLayout {
            object_type,
            code_name: small(places.file + 2)?,
            code_file: small(places.file)?,
            code_first_line: small(places.file + 4)?,
            code_lines: small(places.file + 3)?,
            line_format: LineFormat::Locations,
            instructions: Instructions::Address {
                first: small(places.file + 8)?,
                // All objects with a length have it at the same place.
                length: small(places.bytes_length)?,
            },
            bytes_length: small(places.bytes_length)?,
            bytes_data: small(places.bytes_length + 1)?,
            string_length: small(places.string_state + 1)?,
            string_state: small(places.string_state)?,
            string_ascii: ascii,
            string_other: ascii + 16,
        },
    })
}

impl ObjectLayout {
    /// Bytes of a code object that are read.
    pub fn code_bytes(&self) -> usize {
        let first = match self.instructions {
            Instructions::Index { code, .. } => code,
            Instructions::Address { length, .. } => length,
        };
        let fields = [
            self.object_type,
            self.code_name,
            self.code_file,
            self.code_first_line,
            self.code_lines,
            first,
            VARIABLE_HEAD,
        ];
        fields.into_iter().max().unwrap_or(0) + 8
    }
}

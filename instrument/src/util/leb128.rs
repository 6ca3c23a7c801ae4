//! Variable-length numbers of DWARF.

use crate::emit::packed_fields::Fields;
use crate::emit::relax::{Buffer, Flex, Label, Pieces};
use crate::emit::{Fixup, FixupKind, Fixups};
use crate::plan::cursor::Stay;
use crate::unwind::lsda::distance;
use crate::unwind::{Cie, ENC_INDIRECT, ENC_PCREL4};
use crate::util::byte_buf::Bytes;
use crate::x86::encode::Encoded;
use mgz_abi::address_map::{NO_REG, ProbeState, STATE_COUNTED, STATE_HALF};
use std::collections::HashMap;
use std::ops::Range;

/// Appends an unsigned LEB128 number.
pub fn leb128(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn sleb128(out: &mut Vec<u8>, mut value: i64) {
    loop {
        let byte = value as u8 & 0x7f;
        value >>= 7;
        let done = (value == 0 && byte & 0x40 == 0) || (value == -1 && byte & 0x40 != 0);
        out.push(if done { byte } else { byte | 0x80 });
        if done {
            return;
        }
    }
}

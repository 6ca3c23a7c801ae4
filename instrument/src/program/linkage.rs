//! Linkage tables (`.plt`, `.plt.sec`, `.plt.got`, `.iplt`): code by the linker that reads a word
//! of the global offset table and jumps to the address there.
//!
//! This code has no clones. A direct call or jump to an entry always reads the word, so the load
//! counts as a Constant load of that instruction.

use crate::program::Input;
use crate::x86::flow::direct_target;
use crate::x86::insn::Insn;
use crate::x86::operands::{AccessSegment, EffectiveAddress, Form, OperandAccess};
use iced_x86::FlowControl;
use mgz_abi::linkage_stub::{ImportStub, follow_stub};

/// Bytes of a word of the global offset table.
const WORD: u32 = 8;
/// Maximum bytes of an entry before the distance to its word: `endbr64; mov r11, number; bnd jmp`.
const MAX_BYTES_TO_DISTANCE: usize = 4 + 10 + 3;

/// The load that an instruction makes through a linkage table.
pub fn linkage_load(input: &Input, insn: &Insn) -> Option<OperandAccess> {
    let calls = matches!(
        insn.flow,
        FlowControl::Call | FlowControl::UnconditionalBranch
    );
    if !calls {
        return None;
    }
    let word = table_word(input, direct_target(&insn.inst)?)?;
    Some(OperandAccess {
        read: true,
        write: false,
        size: WORD,
        form: Form::Plain(EffectiveAddress {
            base: None,
            index: None,
            scale: 1,
            disp: word as i64,
            segment: AccessSegment::Flat,
            addr32: false,
        }),
    })
}

/// The word through which the entry at `entry` jumps.
fn table_word(input: &Input, entry: u64) -> Option<u64> {
    if !input.is_plt(entry) {
        return None;
    }
    entry_at(input, entry).map(|stub| stub.word)
}

/// The stub at `entry`, if it is an entry of a linkage table.
fn entry_at(input: &Input, entry: u64) -> Option<ImportStub> {
    follow_stub(entry, |at| input.bytes_at(at)?.first().copied())
}

/// The entries that read a word by an instruction whose distance field is at `distance`, with their
/// starts. (The part of an entry from its jump on counts as an entry too.)
pub(crate) fn entries_around(input: &Input, distance: u64) -> Vec<(u64, ImportStub)> {
    let starts = distance.saturating_sub(MAX_BYTES_TO_DISTANCE as u64)..distance;
    starts
        .filter_map(|start| Some((start, entry_at(input, start)?)))
        .filter(|(_, stub)| stub.reader_end == distance + 4)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::SegmentBytes;

    fn word(code: &[u8], entry: u64) -> Option<u64> {
        let input = Input {
            segments: vec![SegmentBytes {
                vaddr: 0x1000,
                bytes: code,
                writable: false,
                executable: true,
            }],
            plt: std::iter::once(0x1000..0x1000 + code.len() as u64).collect(),
            ..Input::default()
        };
        table_word(&input, entry)
    }

    #[test]
    fn entries_lie_in_tables() {
        // mold: endbr64; mov r11d, 1; jmp [rip+8]
        let code = [
            0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0xbb, 1, 0, 0, 0, 0xff, 0x25, 8, 0, 0, 0,
        ];
        assert_eq!(word(&code, 0x1000), Some(0x1010 + 8));
        assert_eq!(word(&code, 0x1001), None);
        let elsewhere = Input {
            segments: vec![SegmentBytes {
                vaddr: 0x1000,
                bytes: &code,
                writable: false,
                executable: true,
            }],
            ..Input::default()
        };
        assert_eq!(table_word(&elsewhere, 0x1000), None);
        let entries = entries_around(&elsewhere, 0x100c);
        let starts: Vec<u64> = entries.iter().map(|entry| entry.0).collect();
        assert_eq!(starts, [0x1000, 0x1004, 0x100a]);
    }
}

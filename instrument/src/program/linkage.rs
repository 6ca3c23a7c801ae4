//! Linkage tables (`.plt`, `.plt.sec`, `.plt.got`, `.iplt`): code of the linker's that reads a word
//! of the global offset table and jumps to what stands there.
//!
//! Its code has no clones. A direct call or jump to an entry reads the word for certain, so the
//! load counts as one of that instruction, a Constant one.

use crate::program::Input;
use crate::x86::flow::direct_target;
use crate::x86::insn::Insn;
use crate::x86::operands::{Access, EffectiveAddress, Form, Segment};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic, OpKind, Register};

/// Bytes of a word of the global offset table.
const WORD: u32 = 8;
/// Longest entry up to its jump: `endbr64; bnd jmp [rip+x]`.
const REACH: usize = 4 + 7;

/// The load that an instruction makes by way of a linkage table.
pub fn linkage_load(input: &Input, insn: &Insn) -> Option<Access> {
    let calls = matches!(
        insn.flow,
        FlowControl::Call | FlowControl::UnconditionalBranch
    );
    if !calls {
        return None;
    }
    let word = table_word(input, direct_target(&insn.inst)?)?;
    Some(Access {
        read: true,
        write: false,
        size: WORD,
        form: Form::Plain(EffectiveAddress {
            base: None,
            index: None,
            scale: 1,
            disp: word as i64,
            segment: Segment::Flat,
            addr32: false,
        }),
    })
}

/// The word that the entry at `entry` jumps through.
fn table_word(input: &Input, entry: u64) -> Option<u64> {
    if !input.is_plt(entry) {
        return None;
    }
    let bytes = input.bytes_at(entry)?;
    let bytes = &bytes[..bytes.len().min(REACH)];
    let mut decoder = Decoder::with_ip(64, bytes, entry, DecoderOptions::NONE);
    let mut inst = decoder.decode();
    if inst.mnemonic() == Mnemonic::Endbr64 {
        inst = decoder.decode();
    }
    let jumps = inst.mnemonic() == Mnemonic::Jmp
        && inst.op0_kind() == OpKind::Memory
        && inst.memory_base() == Register::RIP
        && inst.memory_index() == Register::None
        && inst.segment_prefix() == Register::None;
    jumps.then(|| inst.memory_displacement64())
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
    fn entries_of_all_linkers() {
        // jmp [rip+0x2fe2]; push 0; jmp …
        let lazy = [
            0xff, 0x25, 0xe2, 0x2f, 0, 0, 0x68, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0,
        ];
        assert_eq!(word(&lazy, 0x1000), Some(0x1006 + 0x2fe2));
        // endbr64; jmp [rip+8]
        let sec = [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 8, 0, 0, 0, 0x66, 0x90];
        assert_eq!(word(&sec, 0x1000), Some(0x100a + 8));
        // endbr64; bnd jmp [rip+8]
        let bnd = [0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 8, 0, 0, 0];
        assert_eq!(word(&bnd, 0x1000), Some(0x100b + 8));
    }

    #[test]
    fn what_is_no_entry() {
        // push [rip+8]; jmp [rip+16]: the table's head.
        let head = [0xff, 0x35, 8, 0, 0, 0, 0xff, 0x25, 16, 0, 0, 0];
        assert_eq!(word(&head, 0x1000), None);
        // endbr64; push 1; jmp …: the part that binds at the first call.
        let binds = [0xf3, 0x0f, 0x1e, 0xfa, 0x68, 1, 0, 0, 0, 0xe9, 0, 0, 0, 0];
        assert_eq!(word(&binds, 0x1000), None);
        assert_eq!(word(&[0xff, 0x25, 8], 0x1000), None);
        assert_eq!(word(&[0xff, 0x25, 8, 0, 0, 0], 0x2000), None);
        // jmp [rax+8]; mov r11, [rip+8]
        assert_eq!(word(&[0xff, 0x60, 8], 0x1000), None);
        assert_eq!(word(&[0x4c, 0x8b, 0x1d, 8, 0, 0, 0], 0x1000), None);
    }
}

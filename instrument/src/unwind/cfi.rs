//! Call frame instructions: a copy of them with other code offsets.

use crate::unwind::UnwindReader;

/// One instruction, with the part that depends on its place in the code.
enum CfaInstruction<'a> {
    /// Advances by this many units of the code alignment factor.
    Advance(u64),
    /// Sets the location to an address.
    Set(u64),
    /// Any other instruction, unchanged.
    Other(&'a [u8]),
}

/// Reads the next instruction.
#[inline(always)]
fn step<'a>(r: &mut UnwindReader<'a>, encoding: u8) -> Option<CfaInstruction<'a>> {
    let all = r.rest();
    let opcode = r.u8()?;
    if opcode & 0xc0 == 0x40 {
        return Some(CfaInstruction::Advance(u64::from(opcode & 0x3f)));
    }
    match opcode {
        0x01 => return Some(CfaInstruction::Set(r.pointer(encoding, 0)?)),
        0x02 => return Some(CfaInstruction::Advance(r.uint(1)?)),
        0x03 => return Some(CfaInstruction::Advance(r.uint(2)?)),
        0x04 => return Some(CfaInstruction::Advance(r.uint(4)?)),
        // offset; restore
        0x80..=0xbf => drop(r.uleb()?),
        0xc0..=0xff => {}
        // nop, remember_state, restore_state, GNU_window_save
        0x00 | 0x0a | 0x0b | 0x2d => {}
        // restore_extended, undefined, same_value, def_cfa_register, def_cfa_offset, GNU_args_size
        0x06 | 0x07 | 0x08 | 0x0d | 0x0e | 0x2e => drop(r.uleb()?),
        // offset_extended, register, def_cfa, val_offset, GNU_negative_offset_extended
        0x05 | 0x09 | 0x0c | 0x14 | 0x2f => {
            r.uleb()?;
            r.uleb()?;
        }
        // def_cfa_offset_sf
        0x13 => drop(r.sleb()?),
        // offset_extended_sf, def_cfa_sf, val_offset_sf
        0x11 | 0x12 | 0x15 => {
            r.uleb()?;
            r.sleb()?;
        }
        // def_cfa_expression
        0x0f => {
            let len = r.uleb()?;
            r.take(usize::try_from(len).ok()?)?;
        }
        // expression, val_expression
        0x10 | 0x16 => {
            r.uleb()?;
            let len = r.uleb()?;
            r.take(usize::try_from(len).ok()?)?;
        }
        _ => return None,
    }
    Some(CfaInstruction::Other(&all[..all.len() - r.rest().len()]))
}

/// Effect of the instructions of [`rewrite`] on the state at the start of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Distance from the start of the code to the last location.
    pub reach: u64,
    /// True if every saved state is restored, and no other state remains changed.
    pub balanced: bool,
}

/// Number of saved states.
struct Saved {
    depth: i32,
    deepest: i32,
    balanced: bool,
}

impl Saved {
    const NONE: Saved = Saved {
        depth: 0,
        deepest: 0,
        balanced: true,
    };

    /// Applies an instruction that does not advance the location.
    fn take(&mut self, instruction: &[u8]) {
        const REMEMBER: u8 = 0x0a;
        const RESTORE: u8 = 0x0b;
        /// This value is not part of saved states.
        const ARGS_SIZE: u8 = 0x2e;
        match instruction[0] {
            REMEMBER => self.depth += 1,
            RESTORE => self.depth -= 1,
            ARGS_SIZE => self.balanced = false,
            _ => return,
        }
        self.deepest = self.deepest.max(self.depth);
        self.balanced &= self.depth >= 0;
    }

    fn effect(&self, reach: u64) -> Effect {
        // Readers keep few states. Compilers save at most one at a time.
        Effect {
            reach,
            balanced: self.balanced && self.depth == 0 && self.deepest <= 1,
        }
    }
}

/// Reads copied instructions (code alignment 1).
pub fn effect(instructions: &[u8]) -> Option<Effect> {
    let mut r = UnwindReader::new(instructions, 0);
    let (mut reach, mut saved) = (0u64, Saved::NONE);
    while !r.rest().is_empty() {
        match step(&mut r, crate::unwind::ENC_PCREL4)? {
            CfaInstruction::Advance(units) => reach = reach.checked_add(units)?,
            CfaInstruction::Set(_) => return None,
            CfaInstruction::Other(bytes) => saved.take(bytes),
        }
    }
    Some(saved.effect(reach))
}

/// Appends an advance by this many bytes.
pub(crate) fn advance(out: &mut Vec<u8>, delta: u64) {
    match delta {
        0 => {}
        1..=0x3f => out.push(0x40 | delta as u8),
        0x40..=0xff => out.extend_from_slice(&[0x02, delta as u8]),
        0x100..=0xffff => {
            out.push(0x03);
            out.extend_from_slice(&(delta as u16).to_le_bytes());
        }
        _ => {
            out.push(0x04);
            out.extend_from_slice(&(delta as u32).to_le_bytes());
        }
    }
}

/// The original entry that instructions come from.
#[derive(Clone, Copy, Debug)]
pub struct CfiSource<'a> {
    /// Its instructions.
    pub instructions: &'a [u8],
    /// Its first code address.
    pub start: u64,
    /// Code alignment factor.
    pub code_align: u64,
    /// Pointer encoding (for `DW_CFA_set_loc`; only absolute ones can be read from copied bytes).
    pub encoding: u8,
}

/// Copies the instructions for code that starts at `start` (original address; it may be inside of
/// the entry) and ends at `end`, with code alignment 1, and returns their effect. `map` gives the
/// new offset of an original address; it must ascend, and be 0 at `start`. `None` if an instruction
/// is unknown.
pub fn rewrite(
    source: CfiSource,
    start: u64,
    end: u64,
    map: impl Fn(u64) -> u64,
) -> Option<(Vec<u8>, Effect)> {
    let mut out = Vec::with_capacity(source.instructions.len() + 8);
    let (mut reach, mut saved) = (0, Saved::NONE);
    copy(source, start, end, map, |delta, bytes| {
        advance(&mut out, delta);
        // (The field has at most four bytes.)
        reach += u64::from(delta as u32);
        saved.take(bytes);
        out.extend_from_slice(bytes);
    })?;
    Some((out, saved.effect(reach)))
}

/// True if [`rewrite`] knows all of the instructions up to `end`.
pub fn is_understood(source: CfiSource, end: u64) -> bool {
    copy(
        source,
        source.start,
        end,
        |at| at.wrapping_sub(source.start),
        |_, _| (),
    )
    .is_some()
}

/// Passes each part that [`rewrite`] copies to `put`: the distance to advance, and an instruction.
#[inline]
fn copy(
    source: CfiSource,
    start: u64,
    end: u64,
    map: impl Fn(u64) -> u64,
    mut put: impl FnMut(u64, &[u8]),
) -> Option<()> {
    let mut r = UnwindReader::new(source.instructions, 0);
    let (mut at, mut placed) = (source.start, 0);
    let mut pending = false;
    while !r.rest().is_empty() {
        match step(&mut r, source.encoding)? {
            CfaInstruction::Advance(units) => {
                at = at.checked_add(units.checked_mul(source.code_align)?)?;
                pending = true;
            }
            CfaInstruction::Set(_) if source.encoding & 0x70 != 0 => return None,
            CfaInstruction::Set(to) => {
                at = to;
                pending = true;
            }
            CfaInstruction::Other([0]) => {}
            CfaInstruction::Other(bytes) => {
                if at >= end && at > source.start {
                    break;
                }
                let mut delta = 0;
                if pending && at > start {
                    let to = map(at);
                    delta = to.checked_sub(placed)?;
                    placed = to;
                }
                pending = false;
                put(delta, bytes);
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// push rbp at 1, mov rbp at 4, ret state at 0x100.
    const TYPICAL: &[u8] = &[
        0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x02, 0xfc, 0x0c, 7, 8, 0x00, 0x00,
    ];

    fn source(instructions: &[u8]) -> CfiSource<'_> {
        CfiSource {
            instructions,
            start: 0x1000,
            code_align: 1,
            encoding: 0x1b,
        }
    }

    #[test]
    fn the_identity_keeps_everything_but_padding() {
        let out = rewrite(source(TYPICAL), 0x1000, 0x2000, |a| a - 0x1000)
            .unwrap()
            .0;
        assert_eq!(out, TYPICAL[..TYPICAL.len() - 2]);
    }

    #[test]
    fn offsets_are_mapped_and_grow() {
        let out = rewrite(source(TYPICAL), 0x1000, 0x2000, |a| (a - 0x1000) * 100)
            .unwrap()
            .0;
        assert_eq!(
            out,
            [
                0x02, 100, 0x0e, 16, 0x86, 2, 0x03, 44, 1, 0x0d, 6, 0x03, 0x70, 0x62, 0x0c, 7, 8
            ]
        );
    }

    #[test]
    fn code_that_starts_inside_gets_the_state_there() {
        let out = rewrite(source(TYPICAL), 0x1004, 0x1050, |a| a - 0x1004)
            .unwrap()
            .0;
        assert_eq!(
            out,
            [0x0e, 16, 0x86, 2, 0x0d, 6],
            "both states hold from the start on, and the last lies behind the end"
        );
    }

    #[test]
    fn what_is_copied_does_what_its_bytes_say() {
        for instructions in [
            &[0x41, 0x0a, 0x42, 0x0b][..],
            &[0x0a, 0x0a, 0x0b, 0x0b],
            &[0x0b, 0x0a],
            &[0x41, 0x2e, 16],
            &[0x0a],
            TYPICAL,
            &[0x04, 0, 1, 0, 1, 0x0a],
            &[],
        ] {
            let (copied, told) =
                rewrite(source(instructions), 0x1000, u64::MAX, |a| a - 0x1000).unwrap();
            assert_eq!(effect(&copied), Some(told), "{instructions:x?}");
            assert!(is_understood(source(instructions), u64::MAX));
        }
        let far = |a| (a - 0x1000) << 32;
        let (copied, told) = rewrite(source(&[0x43, 0x0a, 0x0b]), 0x1000, 0x2000, far).unwrap();
        assert_eq!(effect(&copied), Some(told));
    }

    #[test]
    fn unknown_and_truncated_instructions_are_refused() {
        assert!(rewrite(source(&[0x3c]), 0x1000, 0x2000, |a| a - 0x1000).is_none());
        assert!(!is_understood(source(&[0x3c]), 0x2000));
        assert!(rewrite(source(&[0x0c, 7]), 0x1000, 0x2000, |a| a - 0x1000).is_none());
        assert!(
            rewrite(source(&[0x0f, 0xff, 0xff, 0x7f]), 0x1000, 0x2000, |a| a
                - 0x1000)
            .is_none()
        );
        assert!(
            rewrite(source(&[0x01, 0, 0, 0, 0]), 0x1000, 0x2000, |a| a - 0x1000).is_none(),
            "set_loc relative to its own place"
        );
    }

    #[test]
    fn a_code_alignment_factor_is_multiplied_out() {
        let source = CfiSource {
            code_align: 4,
            ..source(&[0x41, 0x0e, 16])
        };
        assert_eq!(
            rewrite(source, 0x1000, 0x2000, |a| a - 0x1000).unwrap().0,
            [0x44, 0x0e, 16]
        );
    }
}

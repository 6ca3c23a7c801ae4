//! One entry for several adjacent functions.
//!
//! An entry costs 17 bytes and 8 in the search table, which is as much as the instructions of a
//! short function. Clones that have the same common part and no exception table share entries: the
//! state at a function's start is saved before its instructions and restored at the end of its
//! code, before the padding in front of the next function. The padding matters because LLVM's
//! reader skips instructions at the exact address of a signal. Readers execute all instructions
//! before an address, so an entry is kept short.
//!
//! ```text
//! remember_state; instructions of f; advance to the end of f; restore_state; advance to g;
//! remember_state; instructions of g; …
//! ```

use crate::unwind::cfi;
use std::borrow::Cow;
use std::ops::Range;

/// Maximum bytes of instructions in an entry with several functions, soft flavour. Exceptions
/// through twenty frames of short functions took 2.2 times as long in `ring` as in the original
/// (1.1 times with 32), and files are 2 % smaller.
pub const MAX_BYTES_SOFT: usize = 128;
/// Maximum bytes of instructions in an entry with several functions, PT flavour, which has room and
/// low costs otherwise.
pub const MAX_BYTES_PT: usize = 64;
const REMEMBER: u8 = 0x0a;
const RESTORE: u8 = 0x0b;

/// The entry of one piece of code before merging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameEntry<'a> {
    /// Index of the common part.
    pub cie: usize,
    /// Code.
    pub code: Range<u64>,
    /// Address of its exception table.
    pub lsda: Option<u64>,
    /// Instructions, with code alignment 1.
    pub instructions: Cow<'a, [u8]>,
    /// Their effect, see [`cfi::effect`]. It is computed beforehand, since merging uses one core.
    pub effect: Option<cfi::Effect>,
    /// True if only padding lies between the previous part and this one.
    pub adjoins: bool,
}

/// An entry that may get more parts.
struct Open<'a> {
    entry: FrameEntry<'a>,
    /// Code address reached by the instructions.
    placed: u64,
    /// Start of the instructions of the last function whose state is not restored yet.
    dirty: Option<usize>,
    /// True if it must stay unchanged.
    closed: bool,
}

impl<'a> Open<'a> {
    fn new(entry: FrameEntry<'a>) -> Open<'a> {
        let effect = entry.effect.filter(|e| e.balanced && entry.lsda.is_none());
        let placed = entry.code.start + effect.map_or(0, |e| e.reach);
        let dirty = (!entry.instructions.is_empty()).then_some(0);
        Open {
            entry,
            placed,
            dirty,
            closed: effect.is_none(),
        }
    }

    /// Adds the next part, or returns it.
    fn add(&mut self, part: FrameEntry<'a>, most_bytes: usize) -> Result<(), FrameEntry<'a>> {
        if self.closed
            || !part.adjoins
            || part.cie != self.entry.cie
            || self.entry.instructions.len() + part.instructions.len() > most_bytes
        {
            return Err(part);
        }
        let own = Open::new(part);
        if own.closed {
            return Err(own.entry);
        }
        let (end, start) = (self.entry.code.end, own.entry.code.start);
        if self.dirty.is_some() && end == start {
            return Err(own.entry);
        }
        self.entry.code.end = own.entry.code.end;
        if self.dirty.is_none() && own.dirty.is_none() {
            return Ok(());
        }
        let out = self.entry.instructions.to_mut();
        if let Some(last) = self.dirty.take() {
            out.insert(last, REMEMBER);
            cfi::advance(out, end - self.placed);
            out.push(RESTORE);
            self.placed = end;
        }
        if own.dirty.is_some() {
            cfi::advance(out, start - self.placed);
            self.dirty = Some(out.len());
            out.extend_from_slice(&own.entry.instructions);
            self.placed = own.placed;
        }
        Ok(())
    }
}

/// Joins adjacent parts if possible, as long as an entry's instructions stay within `most_bytes`.
/// `parts` are in the order of their code.
pub fn merge_entries<'a>(
    parts: impl IntoIterator<Item = FrameEntry<'a>>,
    most_bytes: usize,
) -> impl Iterator<Item = FrameEntry<'a>> {
    let mut parts = parts.into_iter();
    let mut open: Option<Open> = None;
    std::iter::from_fn(move || {
        for part in parts.by_ref() {
            let Err(part) = (match &mut open {
                Some(open) => open.add(part, most_bytes),
                None => Err(part),
            }) else {
                continue;
            };
            if let Some(complete) = open.replace(Open::new(part)) {
                return Some(complete.entry);
            }
        }
        open.take().map(|open| open.entry)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::Cie;
    use crate::unwind::write::EhFrame;
    use gimli::{BaseAddresses, LittleEndian, UnwindContext, UnwindSection};

    /// push rbp at 1; the frame is removed at 0x1e, and a later branch still has it.
    const FRAME: &[u8] = &[
        0x41, 0x0e, 16, 0x86, 2, 0x5d, 0x0a, 0xc6, 0x0e, 8, 0x41, 0x0b,
    ];
    /// push rbx at 2.
    const PUSH: &[u8] = &[0x42, 0x0e, 16, 0x83, 2];

    fn part(code: Range<u64>, instructions: &[u8]) -> FrameEntry<'_> {
        FrameEntry {
            cie: 0,
            code,
            lsda: None,
            instructions: instructions.into(),
            effect: cfi::effect(instructions),
            adjoins: true,
        }
    }

    fn cie() -> Cie<'static> {
        Cie::plain(false, &[0x0c, 7, 8, 0x90, 1])
    }

    /// The rules at addresses, as text.
    fn rules(parts: &[FrameEntry], code: impl Iterator<Item = u64>) -> Vec<String> {
        let mut frame = EhFrame::new(0x10_0000);
        for p in parts {
            frame
                .fde(&cie(), p.code.clone(), p.lsda, &p.instructions)
                .unwrap();
        }
        let (bytes, _) = frame.finish();
        let section = gimli::EhFrame::new(&bytes, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(0x10_0000);
        let at = |address| {
            let mut context = UnwindContext::new();
            let row = section
                .unwind_info_for_address(
                    &bases,
                    &mut context,
                    address,
                    gimli::EhFrame::cie_from_offset,
                )
                .unwrap();
            let mut registers: Vec<String> = row.registers().map(|r| format!("{r:?}")).collect();
            registers.sort();
            format!("{:?} {registers:?}", row.cfa())
        };
        code.map(at).collect()
    }

    #[test]
    fn every_function_keeps_its_rules() {
        let orders: [[&[u8]; 4]; 5] = [
            [FRAME, PUSH, &[], FRAME],
            [FRAME, &[], &[], PUSH],
            [&[], FRAME, FRAME, PUSH],
            [&[], &[], &[], PUSH],
            [PUSH, &[], &[], &[]],
        ];
        for instructions in orders {
            let parts: Vec<FrameEntry> = (0x1000u64..)
                .step_by(0x40)
                .zip(instructions)
                .map(|(at, i)| part(at..at + 0x3e, i))
                .collect();
            let merged: Vec<FrameEntry> = merge_entries(parts.clone(), MAX_BYTES_SOFT).collect();
            assert_eq!(merged.len(), 1);
            assert_eq!(merged[0].code, 0x1000..0x10fe);
            let code = || parts.iter().flat_map(|p| p.code.clone());
            assert_eq!(
                rules(&merged, code()),
                rules(&parts, code()),
                "{instructions:x?}"
            );
            // At a function's start, the frame does not change at that exact address.
            let padding = |p: &FrameEntry| p.code.end..p.code.end + 2;
            let initial = rules(&[part(0x1000..0x1100, &[])], 0x1000..0x1001);
            assert!(
                rules(&merged, parts[..3].iter().flat_map(padding))
                    .iter()
                    .all(|r| *r == initial[0]),
                "{instructions:x?}"
            );
        }
    }

    #[test]
    fn functions_alone_stay_as_they_are() {
        let apart = FrameEntry {
            adjoins: false,
            ..part(0x1080..0x10c0, FRAME)
        };
        let caught = FrameEntry {
            lsda: Some(0x2000),
            ..part(0x10c0..0x1100, PUSH)
        };
        let other = FrameEntry {
            cie: 1,
            ..part(0x1140..0x1180, PUSH)
        };
        let unbalanced = part(0x1180..0x11c0, &[0x41, 0x0a]);
        let parts = vec![
            part(0x1000..0x1040, FRAME),
            apart,
            caught,
            part(0x1100..0x1140, PUSH),
            other,
            unbalanced,
            part(0x11c0..0x1200, PUSH),
        ];
        assert_eq!(
            merge_entries(parts.clone(), MAX_BYTES_SOFT).collect::<Vec<_>>(),
            parts
        );
        let without_padding = vec![part(0x1000..0x1040, FRAME), part(0x1040..0x1080, &[])];
        assert_eq!(
            merge_entries(without_padding.clone(), MAX_BYTES_SOFT).collect::<Vec<_>>(),
            without_padding
        );
        let nothing_to_take_back = vec![part(0x1000..0x1040, &[]), part(0x1040..0x1080, FRAME)];
        assert_eq!(
            merge_entries(nothing_to_take_back, MAX_BYTES_SOFT).count(),
            1
        );
    }

    #[test]
    fn entries_do_not_grow_without_bound() {
        for most in [MAX_BYTES_SOFT, MAX_BYTES_PT] {
            let merged: Vec<FrameEntry> = merge_entries(
                (0..100).map(|n| part(0x40 * n..0x40 * n + 0x3c, FRAME)),
                most,
            )
            .collect();
            assert!(merged.len() > 5 && merged.iter().all(|p| p.instructions.len() <= most + 16));
            assert!(
                merged
                    .windows(2)
                    .all(|w| w[0].code.end + 4 == w[1].code.start)
            );
        }
    }
}

//! Decoding of one function's bytes into instructions.
//!
//! Compiled code is instructions from end to end, so a linear sweep is tried first. It is accepted
//! if every direct branch, landing pad and known entry is at a boundary. Otherwise (data in text,
//! instructions that overlap) the function is decoded by following control flow, and the bytes
//! between are swept only if they decode cleanly.
//!
//! One kind of overlap is supported: a branch to the address after an instruction's first prefixes,
//! mostly `lock`, which hand-written atomics and the C library's locks skip while there is one
//! thread. This gives two instructions, with and without the prefixes, that end at the same
//! address. With any other overlap the function is left unchanged.

use crate::common::skip_reason::LeftReason;
use crate::x86::effects::is_simple;
use crate::x86::flow::{direct_target, ends_flow, is_padding};
use crate::x86::insn::Insn;
use crate::x86::regs::RegSet;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use std::ops::Range;

/// Decoded instructions, sorted by address.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// They do not overlap, except for prefixes ([`Insn::is_overlapped`]). All other bytes are
    /// padding or data.
    pub insns: Vec<Insn>,
    /// Indexes of the instructions by their addresses.
    pub places: AddressIndex,
    /// True if there may be bytes between them.
    pub gaps: bool,
}

impl Body {
    /// A body of these instructions, which are sorted.
    pub fn of(insns: Vec<Insn>) -> Body {
        let places = AddressIndex::of(insns.iter().map(|i| i.ip));
        Body {
            insns,
            places,
            gaps: true,
        }
    }

    /// Adds the instruction at `at` if it is a known one without its first prefixes.
    fn split(&mut self, at: u64, bytes: &[u8], base: u64) -> bool {
        let next = self.insns.partition_point(|i| i.ip <= at);
        let Some(outer) = next.checked_sub(1).map(|i| &mut self.insns[i]) else {
            return false;
        };
        let Some(inner) = without_prefixes(outer, at, bytes, base) else {
            return false;
        };
        shorten(outer, at);
        self.insns.insert(next, make_insn(inner));
        self.places = AddressIndex::of(self.insns.iter().map(|i| i.ip));
        true
    }

    /// Index of the instruction that starts at `ip`.
    pub fn index_of(&self, ip: u64) -> Option<usize> {
        self.places.get(ip)
    }

    /// True if more than two instructions share bytes.
    fn is_nested(&self) -> bool {
        self.insns
            .windows(2)
            .any(|w| w[0].is_overlapped() && w[1].is_overlapped())
    }
}

/// Numbers of addresses, for the frequent look-ups of branch targets.
#[derive(Clone, Debug, Default)]
pub struct AddressIndex {
    base: u64,
    /// Per 64 bytes: a bit for each numbered address, and the number of addresses before.
    words: Vec<(u64, u32)>,
}

impl AddressIndex {
    /// Numbers addresses in order; they ascend.
    pub fn of(addresses: impl Iterator<Item = u64>) -> AddressIndex {
        let mut addresses = addresses.peekable();
        let Some(&base) = addresses.peek() else {
            return AddressIndex::default();
        };
        let (mut words, mut word) = (Vec::with_capacity(addresses.size_hint().0 / 12 + 1), (0, 0));
        for (at, number) in addresses.zip(0..) {
            let offset = at - base;
            while words.len() as u64 != offset / 64 {
                words.push(word);
                word = (0, number);
            }
            word.0 |= 1 << (offset % 64);
        }
        words.push(word);
        AddressIndex { base, words }
    }

    /// Numbers the addresses for which `words` have bits, from `base` on.
    fn of_bits(base: u64, mut words: Vec<(u64, u32)>) -> AddressIndex {
        let mut before = 0;
        for word in &mut words {
            word.1 = before;
            before += word.0.count_ones();
        }
        AddressIndex { base, words }
    }

    /// Numbers some of these addresses, which ascend.
    pub fn some(&self, addresses: impl Iterator<Item = u64>) -> AddressIndex {
        let mut words = vec![(0u64, 0); self.words.len()];
        for offset in addresses.map(|at| at - self.base) {
            words[(offset / 64) as usize].0 |= 1 << (offset % 64);
        }
        AddressIndex::of_bits(self.base, words)
    }

    /// Removes some addresses, which ascend; later ones get lower numbers.
    pub fn remove(&mut self, addresses: &[u64]) {
        let mut left = addresses.iter().map(|at| at - self.base).peekable();
        let mut removed = 0;
        for (n, (bits, before)) in self.words.iter_mut().enumerate() {
            *before -= removed;
            while let Some(offset) = left.next_if(|offset| offset / 64 == n as u64) {
                *bits &= !(1 << (offset % 64));
                removed += 1;
            }
        }
    }

    /// The number of an address.
    pub fn get(&self, at: u64) -> Option<usize> {
        let offset = at.checked_sub(self.base)?;
        let &(bits, before) = self.words.get(usize::try_from(offset / 64).ok()?)?;
        let bit = 1 << (offset % 64);
        (bits & bit != 0).then(|| before as usize + (bits & (bit - 1)).count_ones() as usize)
    }
}

/// The instruction at `at`, if only prefixes of `outer` come before it, both end at the same
/// address, and neither is a branch.
fn without_prefixes(outer: &Insn, at: u64, bytes: &[u8], base: u64) -> Option<Instruction> {
    let plain = |i: &Instruction| i.flow_control() == FlowControl::Next && !is_padding(i);
    if outer.is_overlapped() || at <= outer.ip || at >= outer.end() || !plain(&outer.inst) {
        return None;
    }
    let prefixes = bytes.get((outer.ip - base) as usize..(at - base) as usize)?;
    if !prefixes.iter().all(|b| {
        matches!(
            b,
            0xf0 | 0xf2 | 0xf3 | 0x66 | 0x67 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65
        )
    }) {
        return None;
    }
    let inner = Decoder::with_ip(
        64,
        bytes.get((at - base) as usize..)?,
        at,
        DecoderOptions::NONE,
    )
    .decode();
    (!inner.is_invalid() && inner.next_ip() == outer.next() && plain(&inner)).then_some(inner)
}

/// An instruction without facts from its surroundings.
pub fn make_insn(inst: Instruction) -> Insn {
    let flow = inst.flow_control();
    Insn {
        ip: inst.ip(),
        len: inst.len() as u8,
        flow,
        simple: is_simple(&inst, flow),
        inst,
        dead: RegSet::EMPTY,
        own: RegSet::EMPTY,
    }
}

/// A blank instruction.
fn blank() -> Insn {
    Insn {
        ip: 0,
        len: 0,
        flow: FlowControl::Next,
        simple: false,
        inst: Instruction::new(),
        dead: RegSet::EMPTY,
        own: RegSet::EMPTY,
    }
}

/// Cuts an instruction where another one begins that is the same without the first prefixes.
fn shorten(outer: &mut Insn, inner: u64) {
    outer.len = (inner - outer.ip) as u8;
    outer.simple = false;
}

/// Source for decoding a function repeatedly. Instructions take fifteen times as much memory as
/// their bytes, so copying them is expensive.
#[derive(Clone, Debug)]
pub struct CodeSource<'a> {
    /// See [`decode_function`].
    pub bytes: &'a [u8],
    /// See [`decode_function`].
    pub base: u64,
    /// See [`decode_function`].
    pub entries: Vec<u64>,
}

impl CodeSource<'_> {
    /// See [`decode_function`].
    pub fn decode(&self) -> Result<Body, LeftReason> {
        decode_function(self.bytes, self.base, &self.entries)
    }
}

/// Decodes `bytes`, which are at `base`. `entries`: addresses that control is certain to reach,
/// besides the first byte.
pub fn decode_function(bytes: &[u8], base: u64, entries: &[u64]) -> Result<Body, LeftReason> {
    let range = base..base + bytes.len() as u64;
    let mut targets = Vec::with_capacity(bytes.len() / 16);
    if let Some(mut body) = sweep_to(bytes, base, |target| targets.push(target)) {
        // (An instruction that was split off has no target of its own.)
        let mut fits = misfit(&body, &range, entries, targets.iter().copied());
        let mut overlaps = false;
        while let Some(at) = fits
            && body.split(at, bytes, base)
        {
            overlaps = true;
            fits = misfit(&body, &range, entries, targets.iter().copied());
        }
        if fits.is_none() && !(overlaps && body.is_nested()) {
            return Ok(body);
        }
    }
    let body = follow(bytes, base, entries)?;
    match misfit(
        &body,
        &range,
        entries,
        body.insns.iter().filter_map(Insn::direct_target),
    ) {
        None if body.is_nested() => Err(LeftReason::OverlappingInstructions),
        None => Ok(body),
        Some(at) => {
            let next = body.insns.partition_point(|i| i.ip <= at);
            let inside = next > 0 && at < body.insns[next - 1].next();
            Err(if inside {
                LeftReason::BranchIntoInstruction
            } else {
                LeftReason::BranchIntoData
            })
        }
    }
}

/// Decodes all bytes in a row; `None` if some do not decode. Runs of zeros after the end of control
/// flow are filler.
pub fn sweep(bytes: &[u8], base: u64) -> Option<Body> {
    sweep_to(bytes, base, |_| {})
}

/// Decodes as [`sweep`] does. `leads_to` gets the targets of direct branches and calls in `bytes`.
fn sweep_to(bytes: &[u8], base: u64, mut leads_to: impl FnMut(u64)) -> Option<Body> {
    let mut insns: Vec<Insn> = Vec::with_capacity(bytes.len() / 3 + 1);
    let mut starts = vec![(0, 0); bytes.len().div_ceil(64)];
    let mut decoder = Decoder::with_ip(64, bytes, base, DecoderOptions::NONE);
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == 0
            && insns
                .last()
                .is_none_or(|i| ends_flow(&i.inst) || is_padding(&i.inst) || is_call(&i.inst))
        {
            let zeros = bytes[at..].iter().take_while(|&&b| b == 0).count();
            if at + zeros == bytes.len() {
                break;
            }
        }
        // The instruction is decoded in place, since a copy would take several times as long as all
        // other work here.
        insns.push(blank());
        let Some(insn) = insns.last_mut() else { break };
        decoder.decode_out(&mut insn.inst);
        if insn.inst.is_invalid() {
            return None;
        }
        (insn.ip, insn.len, insn.flow) = (
            base + at as u64,
            insn.inst.len() as u8,
            insn.inst.flow_control(),
        );
        insn.simple = is_simple(&insn.inst, insn.flow);
        if let Some(target) = insn
            .direct_target()
            .filter(|t| t.wrapping_sub(base) < bytes.len() as u64)
        {
            leads_to(target);
        }
        starts[at / 64].0 |= 1 << (at % 64);
        at += usize::from(insn.len);
    }
    Some(Body {
        insns,
        places: AddressIndex::of_bits(base, starts),
        gaps: false,
    })
}

fn is_call(inst: &Instruction) -> bool {
    matches!(
        inst.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    )
}

/// The first entry or target inside `range` that is not the start of an instruction.
fn misfit(
    body: &Body,
    range: &Range<u64>,
    entries: &[u64],
    mut targets: impl Iterator<Item = u64>,
) -> Option<u64> {
    let bad = |at: u64| range.contains(&at) && body.places.get(at).is_none();
    if bad(range.start) {
        return Some(range.start);
    }
    if let Some(&at) = entries.iter().find(|&&at| bad(at)) {
        return Some(at);
    }
    targets.find(|&at| bad(at))
}

const UNKNOWN: u8 = 0;
const START: u8 = 1;
const MIDDLE: u8 = 2;

/// Follows control flow from the first byte and the entries, then adds gaps that decode cleanly.
fn follow(bytes: &[u8], base: u64, entries: &[u64]) -> Result<Body, LeftReason> {
    let range = base..base + bytes.len() as u64;
    let mut marks = vec![UNKNOWN; bytes.len()];
    let mut insns: Vec<Insn> = Vec::new();
    let mut work: Vec<u64> = entries
        .iter()
        .copied()
        .filter(|e| range.contains(e))
        .collect();
    work.push(base);
    while let Some(at) = work.pop() {
        let first = insns.len();
        let mut ip = at;
        let mut end = RunEnd::Flow;
        while let Some(offset) = ip
            .checked_sub(base)
            .map(|o| o as usize)
            .filter(|&o| o < bytes.len())
        {
            match marks[offset] {
                START => break,
                MIDDLE => {
                    // Control continues after both, which has been or will be followed from the
                    // other one.
                    let outer = insns.iter_mut().find(|i| i.ip < ip && ip < i.end());
                    if let Some(outer) = outer
                        && let Some(inner) = without_prefixes(outer, ip, bytes, base)
                    {
                        shorten(outer, ip);
                        insns.push(make_insn(inner));
                        marks[offset] = START;
                    } else {
                        end = RunEnd::Overlap;
                    }
                    break;
                }
                _ => {}
            }
            let Some(insn) = decode_one(bytes, base, offset, &marks)
                .map(make_insn)
                .or_else(|| around(bytes, base, offset, &marks))
            else {
                end = RunEnd::Invalid;
                break;
            };
            let inst = insn.inst;
            marks[offset] = START;
            marks[offset + 1..offset + usize::from(insn.len)].fill(MIDDLE);
            insns.push(insn);
            if let Some(target) = direct_target(&inst)
                && range.contains(&target)
            {
                work.push(target);
            }
            if ends_flow(&inst) {
                break;
            }
            ip = inst.next_ip();
        }
        if end != RunEnd::Flow {
            // Bytes after a call that does not return may be data.
            let Some(keep) = insns[first..].iter().rposition(|i| is_call(&i.inst)) else {
                return Err(if end == RunEnd::Overlap {
                    if insns.len() == first {
                        LeftReason::BranchIntoInstruction
                    } else {
                        LeftReason::OverlappingInstructions
                    }
                } else {
                    LeftReason::Undecodable
                });
            };
            for insn in insns.drain(first + keep + 1..) {
                let offset = (insn.ip - base) as usize;
                marks[offset..offset + usize::from(insn.len)].fill(UNKNOWN);
            }
        }
    }
    sweep_gaps(bytes, base, &mut marks, &mut insns);
    insns.sort_unstable_by_key(|i| i.ip);
    Ok(Body::of(insns))
}

#[derive(PartialEq, Eq)]
enum RunEnd {
    Flow,
    Overlap,
    Invalid,
}

/// One instruction whose bytes are all unclaimed.
fn decode_one(bytes: &[u8], base: u64, offset: usize, marks: &[u8]) -> Option<Instruction> {
    let mut decoder = Decoder::with_ip(
        64,
        &bytes[offset..],
        base + offset as u64,
        DecoderOptions::NONE,
    );
    let inst = decoder.decode();
    let fits = !inst.is_invalid()
        && marks[offset..offset + inst.len()]
            .iter()
            .all(|&m| m == UNKNOWN);
    fits.then_some(inst)
}

/// One instruction that consists of unclaimed prefixes and an instruction that is already known.
fn around(bytes: &[u8], base: u64, offset: usize, marks: &[u8]) -> Option<Insn> {
    let inst = Decoder::with_ip(
        64,
        &bytes[offset..],
        base + offset as u64,
        DecoderOptions::NONE,
    )
    .decode();
    let free = marks[offset..]
        .iter()
        .take_while(|&&m| m == UNKNOWN)
        .count();
    if inst.is_invalid() || marks.get(offset + free) != Some(&START) {
        return None;
    }
    let mut outer = make_insn(inst);
    without_prefixes(&outer, base + (offset + free) as u64, bytes, base)?;
    shorten(&mut outer, base + (offset + free) as u64);
    Some(outer)
}

/// Adds gaps that decode from their first byte to their last.
fn sweep_gaps(bytes: &[u8], base: u64, marks: &mut [u8], insns: &mut Vec<Insn>) {
    let reached = insns.len();
    let mut at = 0;
    while at < bytes.len() {
        if marks[at] != UNKNOWN {
            at += 1;
            continue;
        }
        let end = at + marks[at..].iter().take_while(|&&m| m == UNKNOWN).count();
        let mut offset = at;
        let first = insns.len();
        while offset < end {
            let Some(inst) =
                decode_one(bytes, base, offset, marks).filter(|i| offset + i.len() <= end)
            else {
                break;
            };
            // A gap with branches into the middle of instructions is data.
            let bad_target = direct_target(&inst).is_some_and(|t| {
                let target = t.wrapping_sub(base);
                target < bytes.len() as u64 && marks[target as usize] == MIDDLE
            });
            if bad_target {
                break;
            }
            insns.push(make_insn(inst));
            offset += inst.len();
        }
        if offset == end {
            for insn in &insns[first..] {
                let offset = (insn.ip - base) as usize;
                marks[offset..offset + usize::from(insn.len)].fill(MIDDLE);
                marks[offset] = START;
            }
        } else {
            insns.truncate(first);
        }
        at = end;
    }
    // Code that control flow reaches has only valid targets. If swept code has others, none of it
    // is added.
    let bad = |i: &Insn| {
        direct_target(&i.inst).is_some_and(|t| {
            let target = t.wrapping_sub(base);
            target < bytes.len() as u64 && marks[target as usize] != START
        })
    };
    if insns[reached..].iter().any(bad) {
        insns.truncate(reached);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_numbers_in_their_order() {
        let all = [
            0x1003u64, 0x1004, 0x1042, 0x1043, 0x1044, 0x1200, 0x123f, 0x1243,
        ];
        let places = AddressIndex::of(all.into_iter());
        for at in 0x0ff0..0x1300 {
            assert_eq!(places.get(at), all.iter().position(|&a| a == at), "{at:#x}");
        }
        assert_eq!(places.get(u64::MAX), None);
        let mut words = vec![(0, 0); 12];
        all.iter()
            .for_each(|at| words[(at - 0x0fe0) as usize / 64].0 |= 1 << ((at - 0x0fe0) % 64));
        let bits = AddressIndex::of_bits(0x0fe0, words);
        assert!((0x0f00..0x1400).all(|at| bits.get(at) == places.get(at)));
        assert_eq!(AddressIndex::of(std::iter::empty()).get(0), None);
        let (removed, rest) = (
            [0x1003, 0x1043, 0x1044, 0x1243],
            [0x1004, 0x1042, 0x1200, 0x123f],
        );
        let some = places.some(rest.into_iter());
        let mut left = places;
        left.remove(&removed);
        let expected = all.map(|at| rest.iter().position(|&a| a == at));
        assert_eq!(
            (all.map(|at| left.get(at)), all.map(|at| some.get(at))),
            (expected, expected)
        );
    }

    fn ips(body: &Body) -> Vec<u64> {
        body.insns.iter().map(|i| i.ip).collect()
    }

    #[test]
    fn plain_code_is_swept() {
        // xor eax,eax; jmp +1; nop; ret
        let body = decode_function(&[0x31, 0xc0, 0xeb, 0x01, 0x90, 0xc3], 0x100, &[]).unwrap();
        assert_eq!(ips(&body), [0x100, 0x102, 0x104, 0x105]);
    }

    #[test]
    fn a_jump_over_data_is_followed() {
        // jmp +2; (06 06: invalid in 64-bit mode); ret
        let body = decode_function(&[0xeb, 0x02, 0x06, 0x06, 0xc3], 0x100, &[]).unwrap();
        assert_eq!(ips(&body), [0x100, 0x104]);
    }

    #[test]
    fn data_after_a_call_that_does_not_return_is_no_error() {
        // call +0x100; 06
        let body = decode_function(&[0xe8, 0, 1, 0, 0, 0x06], 0x100, &[]).unwrap();
        assert_eq!(ips(&body), [0x100]);
    }

    #[test]
    fn reachable_garbage_is_an_error() {
        assert_eq!(
            decode_function(&[0x90, 0x06, 0xc3], 0x100, &[]).unwrap_err(),
            LeftReason::Undecodable
        );
    }

    #[test]
    fn a_branch_around_a_lock_prefix_gives_two_instructions() {
        // je +1; lock; cmpxchg [rdi], ecx; ret
        let bytes = [0x74, 0x01, 0xf0, 0x0f, 0xb1, 0x0f, 0xc3];
        let body = decode_function(&bytes, 0x100, &[]).unwrap();
        assert_eq!(ips(&body), [0x100, 0x102, 0x103, 0x106]);
        let (with, without) = (&body.insns[1], &body.insns[2]);
        assert!(
            with.inst.has_lock_prefix()
                && with.is_overlapped()
                && with.end() == 0x103
                && with.next() == 0x106
        );
        assert!(
            !without.inst.has_lock_prefix() && !without.is_overlapped() && without.next() == 0x106
        );
    }

    #[test]
    fn so_does_following_control_from_either_side() {
        // jmp +2; 06 06; then as above.
        let bytes = [
            0xeb, 0x02, 0x06, 0x06, 0x74, 0x01, 0xf0, 0x0f, 0xb1, 0x0f, 0xc3,
        ];
        let expected = [0x100, 0x104, 0x106, 0x107, 0x10a];
        assert_eq!(ips(&decode_function(&bytes, 0x100, &[]).unwrap()), expected);
        let body = decode_function(&bytes, 0x100, &[0x107]).unwrap();
        assert_eq!(ips(&body), expected);
        assert!(body.insns[2].is_overlapped());
        // jmp to the inner one; then a branch back around the data to the outer one.
        // 100: jmp 104; 102: 06; 103: lock; 104: cmpxchg [rdi], ecx; 107: je 103; 109: ret
        let bytes = [0xeb, 0x02, 0x06, 0xf0, 0x0f, 0xb1, 0x0f, 0x74, 0xfa, 0xc3];
        let body = decode_function(&bytes, 0x100, &[]).unwrap();
        assert_eq!(ips(&body), [0x100, 0x103, 0x104, 0x107, 0x109]);
        assert_eq!(
            body.insns
                .iter()
                .map(Insn::is_overlapped)
                .collect::<Vec<_>>(),
            [false, true, false, false, false]
        );
    }

    #[test]
    fn other_overlaps_are_errors() {
        // je +1; mov eax, imm32, where the branch reaches the immediate; ret
        assert_eq!(
            decode_function(
                &[0x74, 0x01, 0xb8, 0x90, 0x90, 0x90, 0x90, 0xc3],
                0x100,
                &[]
            )
            .unwrap_err(),
            LeftReason::BranchIntoInstruction
        );
        // je +1; mov ax, imm16 with a prefix, without which the immediate has four bytes
        assert!(
            decode_function(
                &[0x74, 0x01, 0x66, 0xb8, 0x90, 0x90, 0x90, 0x90, 0xc3],
                0x100,
                &[]
            )
            .is_err()
        );
        // Two branches into one instruction with two prefixes.
        assert!(
            decode_function(
                &[0x74, 0x03, 0x74, 0x02, 0xf0, 0x66, 0x0f, 0xb1, 0x0f, 0xc3],
                0x100,
                &[]
            )
            .is_err()
        );
    }

    #[test]
    fn a_truncated_last_instruction_is_an_error() {
        assert_eq!(
            decode_function(&[0x90, 0xe8, 0x00], 0x100, &[]).unwrap_err(),
            LeftReason::Undecodable
        );
    }

    #[test]
    fn entry_in_the_middle_is_an_error() {
        let bytes = [0xb8, 0x01, 0x00, 0x00, 0x00, 0xc3]; // mov eax, 1; ret
        assert!(decode_function(&bytes, 0x100, &[0x102]).is_err());
    }

    #[test]
    fn trailing_zeros_are_padding() {
        let body = decode_function(&[0xc3, 0, 0, 0], 0x100, &[]).unwrap();
        assert_eq!(ips(&body), [0x100]);
    }
}

//! Shows signal handlers in the `pt` flavour the original address of a fault, or of the point at
//! which another signal came.
//!
//! A program of that flavour runs without a runtime. This shim is added if [`crate::signals`]
//! cannot rule out that a handler looks at the address of a fault, and if all handlers are
//! installed by calls of another file's `sigaction`. These calls go to code in the file itself
//! (`shown.s`), which gives the C library a thunk for each handler that takes a context. When the
//! kernel calls the thunk for a signal that came in a clone, the thunk looks up the address in a
//! table ([`ShimTable`]) and replaces it by the original's. For a fault, it also replaces `si_addr`
//! if that is the same address. Then it jumps to the handler. Thunks stay hidden: the old action
//! that `sigaction` returns has the handler.
//!
//! When such a handler returns, the program continues in the original: at the instruction that
//! failed, or where the handler wants. So a file with this code has two properties:
//!
//! - Registers are those of the original: no probe changes any. A register that is dead on all
//!   visible paths may be read on the path of a handler: it may hold a default for a failing load,
//!   or an input of code that only a table leads to.
//! - The original's bytes are intact. An entry jump that covers an instruction which may fail is
//!   left out ([`uncover`]). Pushes and calls fail only at the end of the stack or at unmapped
//!   targets. Loads at fixed addresses of the file's own memory ([`Own`]) never fail. These
//!   instructions stay under entry jumps, and handlers see the clone's address there.
//!
//! After handlers of other signals, the program also continues in the original, up to the next
//! entry jump; its loads until then are not recorded. Such a signal may come anywhere, also in
//! inserted code, which must not be shown as an instruction that has run. Positions between the
//! parts of an instruction are hidden: the handler sees the clone, and returns to it.
//!
//! The limits: 256 handlers a file (further ones see clones), signals in clones of this file only,
//! and single steps by the trap flag (see `shown.s`). A library shows original addresses only to
//! its own handlers, since others may be installed when it is unloaded. Code that asks the kernel
//! other than by this file's calls of `sigaction` gets thunks, which can be called like the
//! handlers.

use crate::emit::Emitted;
use crate::patch::faulting::{Care, covers_risk};
use crate::program::fixed_memory::Own;
use crate::unwind::Cie;
use crate::x86::flow::JUMP;
use iced_x86::{Decoder, DecoderOptions};
use mgz_abi::address_map::{ProbeState, STATE_COUNTED, STATE_PASSED};
use mgz_abi::module_note::Cover;
use mgz_elf::Elf;
use std::ops::Range;

std::arch::global_asm!(include_str!("shown.s"));

// SAFETY: the symbols are defined by `shown.s`, in a section that is never written to.
unsafe extern "C" {
    static mgz_faults_code: u8;
    static mgz_faults_sigaction: u8;
    static mgz_faults_leaves: u8;
    static mgz_faults_thunks: u8;
    static mgz_faults_pushes: u8;
    static mgz_faults_pops: u8;
    static mgz_faults_end: u8;
}

/// Maximum number of handlers of a file that are shown original addresses.
const HANDLERS: usize = 256;
/// Bytes of writable memory, zero at first.
pub const MEMORY: usize = 8 * HANDLERS;
/// Stations in a group of the table.
const GROUP: usize = 256;
/// Bytes of a group's head.
const GROUP_HEAD: usize = 12;
/// Maximum bytes of a `ptwrite` of a register.
const PTWRITE: u64 = 5;
/// Extra length of a step in the clone, by the step's kind: a `ptwrite` of a new register, a
/// `ptwrite` of an old register, or the same length as in the original. Any other length follows
/// the step.
const EXTRA_LENGTHS: [i64; 3] = [5, 4, 0];
/// The kind of steps with a length of their own.
const OWN: u8 = 3;
/// Value instead of a length: the next part has an entry jump over it.
const HIDDEN: i8 = i8::MIN;
/// A step with a length of its own and two bytes of distance. (Other steps of its kind have a
/// distance that is not 0.)
const FAR_STEP: u8 = 1;
/// Ends the steps of a group before a station that is too far away.
const END: u8 = 0;

fn offset(of: *const u8) -> usize {
    of as usize - (&raw const mgz_faults_code) as usize
}

/// Bytes of the code.
pub fn code_len() -> usize {
    offset(&raw const mgz_faults_end)
}

/// Address of the replacement of `sigaction`, if the code is at `at`.
pub fn sigaction(at: u64) -> u64 {
    at + offset(&raw const mgz_faults_sigaction) as u64
}

/// Link-time addresses that the code refers to.
#[derive(Clone, Copy, Debug)]
pub struct ShimAddresses {
    /// The code itself.
    pub code: u64,
    /// Word with the address of the C library's `sigaction`.
    pub slot: u64,
    /// [`MEMORY`] bytes.
    pub memory: u64,
    /// First clone, and end of the last one.
    pub clones: (u64, u64),
    /// The table.
    pub table: u64,
    /// Groups in it.
    pub groups: u32,
    /// Handlers that are shown original addresses: all, or those in this range of code.
    pub handlers: Option<(u64, u64)>,
}

/// The code; `None` if something is out of reach.
pub fn code(places: &ShimAddresses) -> Option<Vec<u8>> {
    // SAFETY: both symbols belong to one piece of a read-only section.
    let bytes = unsafe { std::slice::from_raw_parts(&raw const mgz_faults_code, code_len()) };
    let mut out = bytes.to_vec();
    let distance = |to: u64| {
        i32::try_from(to.wrapping_sub(places.code) as i64)
            .ok()
            .map(|d| d as u32)
    };
    let len = u32::try_from(places.clones.1 - places.clones.0).ok()?;
    let (lowest, bytes) = match places.handlers {
        None => (0, 0),
        Some((start, end)) => (
            distance(start)?,
            u32::try_from(end.checked_sub(start)?.max(1)).ok()?,
        ),
    };
    let head = [
        distance(places.slot)?,
        distance(places.memory)?,
        distance(places.clones.0)?,
        len,
        distance(places.table)?,
        places.groups,
        lowest,
        bytes,
    ];
    for (field, value) in out.chunks_exact_mut(4).zip(head) {
        field.copy_from_slice(&value.to_le_bytes());
    }
    Some(out)
}

/// The common part of the unwind entries for the code.
// The frame begins 8 bytes above rsp, and the return address lies there.
pub const UNWIND: Cie = Cie::plain(false, &[0x0c, 7, 8, 0x90, 1]);

/// `DW_CFA_advance_loc`, with the distance in its low bits.
const ADVANCE_LOC: u8 = 0x40;
/// `DW_CFA_advance_loc2`.
const ADVANCE2: u8 = 0x03;
/// `DW_CFA_def_cfa_offset`.
const DEF_CFA_OFFSET: u8 = 0x0e;
/// `DW_CFA_offset` of rbx; the next three are of other registers.
const RBX: u8 = 0x80 | 3;
const R12: u8 = 0x80 | 12;
const R13: u8 = 0x80 | 13;
const R14: u8 = 0x80 | 14;

/// Unwind entries for the code at `at`: the range that each describes, and its instructions.
pub fn unwind(at: u64) -> [(Range<u64>, Vec<u8>); 2] {
    let (start, thunks) = (
        offset(&raw const mgz_faults_sigaction),
        offset(&raw const mgz_faults_thunks),
    );
    let range = |from: usize, to: usize| at + from as u64..at + to as u64;
    [
        (range(start, thunks), sigaction_frame(start)),
        (range(thunks, code_len()), search_frame(thunks)),
    ]
}

/// Unwind instructions of the replacement of `sigaction`, which begins at `start`.
fn sigaction_frame(start: usize) -> Vec<u8> {
    let leaves = offset(&raw const mgz_faults_leaves);
    // endbr64, push rbx; push r12; sub rsp, 168: 5, 2 and 7 bytes.
    let mut frame = vec![
        ADVANCE_LOC | 5,
        DEF_CFA_OFFSET,
        16,
        RBX,
        2,
        ADVANCE_LOC | 2,
        DEF_CFA_OFFSET,
        24,
        R12,
        3,
        ADVANCE_LOC | 7,
        DEF_CFA_OFFSET,
        0xc0,
        1,
    ];
    // add rsp, 168; pop r12; pop rbx: 7, 2 and 1 bytes.
    let [low, high] = ((leaves + 7 - (start + 14)) as u16).to_le_bytes();
    frame.extend([
        ADVANCE2,
        low,
        high,
        DEF_CFA_OFFSET,
        24,
        ADVANCE_LOC | 2,
        DEF_CFA_OFFSET,
        16,
        ADVANCE_LOC | 1,
        DEF_CFA_OFFSET,
        8,
    ]);
    frame
}

/// Unwind instructions of the thunks, which begin at `thunks`, and of the search after them.
fn search_frame(thunks: usize) -> Vec<u8> {
    let (pushes, pops) = (
        offset(&raw const mgz_faults_pushes),
        offset(&raw const mgz_faults_pops),
    );
    let [low, high] = ((pushes - thunks) as u16).to_le_bytes();
    // push r11; push rbx; push r12; push r13; push r14: 2, 1, 2, 2 and 2 bytes. They are popped in
    // reverse order.
    let mut search = vec![
        ADVANCE2,
        low,
        high,
        ADVANCE_LOC | 2,
        DEF_CFA_OFFSET,
        16,
        ADVANCE_LOC | 1,
        DEF_CFA_OFFSET,
        24,
        RBX,
        3,
        ADVANCE_LOC | 2,
        DEF_CFA_OFFSET,
        32,
        R12,
        4,
    ];
    let [low, high] = ((pops + 2 - (pushes + 9)) as u16).to_le_bytes();
    search.extend([
        ADVANCE_LOC | 2,
        DEF_CFA_OFFSET,
        40,
        R13,
        5,
        ADVANCE_LOC | 2,
        DEF_CFA_OFFSET,
        48,
        R14,
        6,
        ADVANCE2,
        low,
        high,
        DEF_CFA_OFFSET,
        40,
    ]);
    search.extend([
        ADVANCE_LOC | 2,
        DEF_CFA_OFFSET,
        32,
        ADVANCE_LOC | 2,
        DEF_CFA_OFFSET,
        24,
        ADVANCE_LOC | 1,
        DEF_CFA_OFFSET,
        16,
        ADVANCE_LOC | 2,
        DEF_CFA_OFFSET,
        8,
    ]);
    search
}

/// Drops the entry jumps that would cover an instruction which may fail: a handler may read its
/// bytes, and execution after it may continue inside of the jump. With `taken_back`, jumps stay
/// that the runtime can take back before that ([`Care`]). The result is the original code under
/// those, sorted.
pub fn uncover(elf: &Elf, clones: &mut [Box<Emitted>], own: &Own, taken_back: bool) -> Vec<Cover> {
    let (care, mut covers) = (Care { own, taken_back }, Vec::new());
    for clone in clones {
        let before = clone.patches.len();
        clone.patches.retain(|&(at, _)| {
            let Some((bytes, place)) = elf.at(at).zip(u32::try_from(at).ok()) else {
                return false;
            };
            if !bytes_cover_risk(bytes, at, own) {
                return true;
            }
            let covered = bytes.first_chunk().filter(|_| care.takes_back(at));
            covers.extend(covered.map(|&bytes| Cover {
                at: place,
                bytes,
                ..Cover::default()
            }));
            covered.is_some()
        });
        // (An instruction that may fail is a load or a store.)
        let enters = clone.enters_at_start();
        clone.late_loads |= clone.patches.len() < before && !(enters && taken_back);
    }
    covers.sort_unstable_by_key(|c| c.at);
    covers
}

fn bytes_cover_risk(bytes: &[u8], at: u64, own: &Own) -> bool {
    let bytes = &bytes[..bytes.len().min(JUMP as usize + 15)];
    covers_risk(
        Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).iter(),
        at,
        own,
    )
}

/// Maps clones to the original, for the code: groups, then the steps of all groups.
///
/// Most instructions have the same length in the clone. So the table has *stations*, at which the
/// distance to the original changes. An address after a station has the station's distance, but at
/// most the original address of the next station: inserted code belongs to what follows it. A step
/// leads from a station to the next, and is a byte. Its low two bits are its [kind](EXTRA_LENGTHS),
/// and the others are the distance in the clone. For the kind [`OWN`], the extra length follows as
/// a byte. If the distance bits are 0, the distance comes before that (as two bytes after
/// [`FAR_STEP`]). If the length is [`HIDDEN`], the original has an entry jump over the part up to
/// the next station: execution must not continue there, and handlers see the clone. 0 ends a group
/// before a station that no step reaches.
///
/// A group is three words: the position of its first station in the clones (bytes from the first
/// clone), the distance from the original there to the clone, and the position of its steps in the
/// table.
#[derive(Clone, Debug, Default)]
pub struct ShimTable {
    heads: Vec<[u32; 3]>,
    steps: Vec<u8>,
    last: Option<Station>,
}

/// The last station of a table under construction.
#[derive(Clone, Copy, Debug)]
struct Station {
    /// Bytes from the first clone.
    clone: u64,
    /// Distance from the original to the clone, or that before the last hidden part.
    distance: i64,
    /// Number of stations that may still be added to this group.
    left: usize,
}

impl ShimTable {
    /// Table of all clones, which are at these addresses, in ascending order.
    pub fn new(clones: &[Box<Emitted>], addresses: &[u64]) -> ShimTable {
        debug_assert!(addresses.is_sorted());
        let mut table = ShimTable::default();
        let first = addresses.first().copied().unwrap_or(0);
        for (clone, &at) in clones.iter().zip(addresses) {
            table.function(clone, at - first, first);
        }
        table
    }

    /// Number of groups.
    pub fn groups(&self) -> u32 {
        self.heads.len() as u32
    }

    /// The table's bytes for the file.
    pub fn bytes(&self) -> Vec<u8> {
        let steps_at = (self.heads.len() * GROUP_HEAD) as u32;
        let words = self
            .heads
            .iter()
            .flat_map(|&[at, distance, step]| [at, distance, steps_at + step]);
        words
            .flat_map(u32::to_le_bytes)
            .chain(self.steps.iter().copied())
            .chain([END])
            .collect()
    }

    /// Adds a clone. `at`: bytes from the first clone, which is at `first`.
    fn function(&mut self, clone: &Emitted, at: u64, first: u64) {
        let covered = |orig: u64| {
            clone
                .patches
                .iter()
                .any(|p| p.0 < orig && orig < p.0 + JUMP)
        };
        self.station(at, clone.range.start, first);
        let (mut hidden, mut put_in, mut left_out) = (false, false, None);
        let mut parts = MappedInsns {
            stream: &clone.stream,
            states: &clone.states,
            flags: 0,
            clone: at,
            orig: clone.range.start,
        };
        for part in parts.by_ref() {
            // Between the parts of an instruction, the original's place is that of an instruction
            // that has run.
            if covered(part.orig) || part.flags & (STATE_PASSED | STATE_COUNTED) != 0 {
                if !hidden {
                    self.hide(part.clone, first);
                }
                hidden = true;
            } else if part.clone_len > 0 || put_in {
                // (A dropped part needs a station too if inserted code comes before it, since both
                // might have the same length.)
                let expected = self
                    .last
                    .map(|last| (part.clone as i64 - last.distance) as u64);
                // Execution that continues at a dropped no-operation reaches the same code.
                let as_good = part.orig_len == 0
                    && part.clone_len <= PTWRITE
                    && left_out.is_some()
                    && left_out == expected;
                if hidden || expected != Some(part.orig) && !as_good {
                    self.station(part.clone, part.orig, first);
                }
                hidden = false;
            }
            put_in = part.orig_len == 0;
            left_out = if part.clone_len == 0 && part.orig_len > 0 {
                left_out.or(Some(part.orig))
            } else {
                None
            };
        }
        if put_in && !hidden {
            // A jump to the original's next instruction.
            self.station(parts.clone, parts.orig, first);
        }
    }

    /// Starts a station: from here on, this is the original. `clone`: bytes from the first clone,
    /// which is at `first`.
    fn station(&mut self, clone: u64, orig: u64, first: u64) {
        let distance = clone as i64 - orig as i64;
        let mut left = 0;
        if let Some(last) = self.last {
            // The last step of a group leads into the next group. A search in this group does not
            // go on there.
            match i8::try_from(distance - last.distance) {
                Ok(more) if more != HIDDEN && self.step(clone - last.clone, more) => {
                    left = last.left
                }
                _ => self.steps.push(END),
            }
        }
        if left == 0 {
            self.heads.push([
                clone as u32,
                (first as i64 + distance) as u32,
                self.steps.len() as u32,
            ]);
            left = GROUP;
        }
        self.last = Some(Station {
            clone,
            distance,
            left: left - 1,
        });
    }

    /// From here on, handlers see the clone.
    fn hide(&mut self, clone: u64, first: u64) {
        let Some(mut last) = self.last else { return };
        if !self.own_step(clone - last.clone, HIDDEN) {
            // The distance is too large for a step, so another group begins there.
            self.station(clone, (clone as i64 - last.distance) as u64, first);
            let Some(station) = self.last.filter(|_| self.own_step(0, HIDDEN)) else {
                return;
            };
            last = station;
        }
        self.last = Some(Station {
            clone,
            left: last.left.saturating_sub(1),
            ..last
        });
    }

    /// Adds a step. Returns true if it is not too far.
    fn step(&mut self, clone: u64, longer: i8) -> bool {
        match EXTRA_LENGTHS.iter().position(|&l| l == i64::from(longer)) {
            Some(kind) if (1..64).contains(&clone) => {
                self.steps.push((clone as u8) << 2 | kind as u8);
                true
            }
            _ => self.own_step(clone, longer),
        }
    }

    fn own_step(&mut self, clone: u64, longer: i8) -> bool {
        let Ok(far) = u16::try_from(clone) else {
            return false;
        };
        let ([low, high], longer) = (far.to_le_bytes(), longer as u8);
        match far {
            1..64 => self.steps.extend([low << 2 | OWN, longer]),
            0 | 64..256 => self.steps.extend([OWN, low, longer]),
            _ => self.steps.extend([FAR_STEP, low, high, longer]),
        }
        true
    }
}

/// Walks through a function's stream: positions in the clone and in the original.
struct MappedInsns<'a> {
    stream: &'a [u8],
    states: &'a [ProbeState],
    /// Flags of the current state.
    flags: u8,
    clone: u64,
    orig: u64,
}

/// An instruction of the original, or (with length 0) inserted code.
struct MappedInsn {
    clone: u64,
    clone_len: u64,
    orig: u64,
    orig_len: u64,
    /// Flags of the state before it.
    flags: u8,
}

impl Iterator for MappedInsns<'_> {
    type Item = MappedInsn;

    fn next(&mut self) -> Option<MappedInsn> {
        loop {
            let (&token, rest) = self.stream.split_first()?;
            self.stream = rest;
            if token == 0 {
                // The number of a probe state, in LEB128.
                let end = rest.iter().position(|byte| byte & 0x80 == 0)? + 1;
                let number = rest[..end]
                    .iter()
                    .rev()
                    .fold(0, |n, byte| n << 7 | usize::from(byte & 0x7f));
                self.flags = self.states.get(number).map_or(0, |state| state.flags);
                self.stream = &rest[end..];
                continue;
            }
            let part = MappedInsn {
                clone: self.clone,
                clone_len: u64::from(token & 15),
                orig: self.orig,
                orig_len: u64::from(token >> 4),
                flags: self.flags,
            };
            (self.clone, self.orig) = (part.clone + part.clone_len, part.orig + part.orig_len);
            return Some(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::scan::discover;
    use crate::emit::tests::{around_a_far_loop, around_a_lock};
    use crate::ir::FunctionId;
    use crate::link::layout::Placed;
    use crate::patch::faulting::may_fail;
    use crate::pipeline::analysis_input::analysis_input;
    use crate::pipeline::function_pass::analyze;
    use crate::plan::planned_function::Function;
    use crate::program::InstrumentOptions;
    use crate::program::fixed_memory::FaultPolicy;
    use crate::sidecar::address_map;
    use crate::unwind::Tables;
    use iced_x86::{Mnemonic, OpKind};
    use mgz_abi::address_map::{AddrMap, Step};
    use mgz_abi::module_note::FLAVOUR_PT;

    /// The table's mapping from a clone position (bytes from the first clone) to the original, as
    /// `shown.s` computes it.
    fn shown(table: &[u8], groups: usize, first: u64, offset: u64) -> Option<u64> {
        let word = |at: usize| u32::from_le_bytes(table[at..at + 4].try_into().unwrap());
        let group = (0..groups)
            .take_while(|g| u64::from(word(g * GROUP_HEAD)) <= offset)
            .last()?
            * GROUP_HEAD;
        let mut at = u64::from(word(group));
        let mut orig = (first + at).wrapping_sub(word(group + 4) as i32 as i64 as u64);
        let mut steps = &table[word(group + 8) as usize..];
        let mut hidden = false;
        let mut most = u64::MAX;
        let mut byte = || steps.split_off_first().copied().unwrap();
        loop {
            let step = byte();
            if step == END {
                break;
            }
            let kind = step & 3;
            let clone = match step {
                FAR_STEP => u64::from(u16::from_le_bytes([byte(), byte()])),
                OWN => u64::from(byte()),
                _ => u64::from(step >> 2),
            };
            let longer = if kind == OWN || step == FAR_STEP {
                i64::from(byte() as i8)
            } else {
                EXTRA_LENGTHS[usize::from(kind)]
            };
            let hides = longer == i64::from(HIDDEN);
            let there = orig + clone;
            let there = if hides {
                there
            } else {
                there.wrapping_sub_signed(longer)
            };
            if at + clone > offset {
                most = if hides { most } else { there };
                break;
            }
            (at, orig, hidden) = (at + clone, there, hides);
        }
        (!hidden).then_some((orig + (offset - at)).min(most))
    }

    /// Checks every instruction of this program's clones against the address map: exactly the
    /// instructions that may fail are found.
    #[test]
    fn the_table_agrees_with_the_address_map() {
        let data = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = Elf::parse(&data).unwrap();
        let unwind = Tables::read(&elf).unwrap();
        let input = analysis_input(&elf, &unwind);
        let faults = FaultPolicy {
            shows_faults: true,
            ..FaultPolicy::default()
        };
        let options = InstrumentOptions::new(FLAVOUR_PT);
        let program = discover(&input, &options);
        let mut clones = Vec::new();
        // Large functions are included, so that groups have successors.
        for index in (0..program.functions.len()).step_by(7) {
            let id = FunctionId(index as u32);
            let Ok(function) = analyze(&input, &program, id, &options, &faults) else {
                continue;
            };
            let bytes = input.slice(&function.range).unwrap();
            clones.extend(
                crate::emit::emit(&function, bytes, FLAVOUR_PT, false, false)
                    .ok()
                    .map(|(clone, _)| Box::new(clone)),
            );
        }
        let patches =
            |clones: &[Box<Emitted>]| clones.iter().map(|c| c.patches.len()).sum::<usize>();
        let before = patches(&clones);
        // In the soft flavour more jumps would stay, and the code under them is returned.
        let mut soft = clones.clone();
        let covers = uncover(&elf, &mut soft, &Own::default(), true);
        assert!(covers.iter().all(
            |c| Cover::fits(c.at.into()) && elf.at(c.at.into()).unwrap().starts_with(&c.bytes)
        ));
        uncover(&elf, &mut clones, &Own::default(), false);
        assert!(
            (before / 2..before).contains(&patches(&clones)),
            "{before} entry jumps became {}",
            patches(&clones)
        );
        assert!(
            !covers.is_empty() && patches(&soft) == patches(&clones) + covers.len(),
            "{} and {}",
            patches(&soft),
            covers.len()
        );
        // The first clone is not at the segment's start.
        let mut next = 0x1000_0001u64;
        let addresses: Vec<u64> = clones
            .iter()
            .map(|c| (next, next += c.code.len() as u64 + 1).0)
            .collect();
        let table = ShimTable::new(&clones, &addresses);
        let (bytes, groups) = (table.bytes(), table.groups() as usize);
        let placed = Placed {
            clones: addresses.clone(),
            ..Placed::default()
        };
        let map = address_map(&clones, &placed).concat();
        let map = AddrMap::new(&map).unwrap();
        let (mut found, mut hidden, mut put_in) = (0, 0, 0);
        let between = |step: &Step| {
            map.state(step.state).unwrap().flags & (STATE_PASSED | STATE_COUNTED) != 0
        };
        for (function, clone) in clones.iter().enumerate().step_by(5) {
            let covered = |orig: u64| {
                clone
                    .patches
                    .iter()
                    .any(|p| p.0 < orig && orig < p.0 + JUMP)
            };
            for step in map.walk(function).unwrap() {
                let way = |at: u64| shown(&bytes, groups, addresses[0], at - addresses[0]);
                if between(&step) {
                    assert_eq!(way(step.clone), None, "{step:x?}");
                } else if step.orig_len > 0 && step.clone_len > 0 {
                    let expected = (!covered(step.orig)).then_some(step.orig);
                    assert_eq!(way(step.clone), expected, "{step:x?}");
                    found += usize::from(expected.is_some());
                    hidden += usize::from(expected.is_none());
                } else if step.clone_len > 0 {
                    // Inserted code belongs to the instruction after it, or to no-operations before
                    // that instruction.
                    let code = &clone.code[(step.clone - addresses[function]) as usize..]
                        [..usize::from(step.clone_len)];
                    for inst in Decoder::with_ip(64, code, step.clone, DecoderOptions::NONE).iter()
                    {
                        let there = way(inst.ip());
                        let skipped = |from: u64| {
                            Decoder::with_ip(64, elf.at(from).unwrap(), from, DecoderOptions::NONE)
                                .iter()
                                .take_while(|i| i.ip() < step.orig)
                                .all(|i| !may_fail(&i, &Own::default()))
                        };
                        let good = |from: u64| {
                            from == step.orig
                                || inst.ip() == step.clone
                                    && from < step.orig
                                    && step.orig - from < 128
                                    && skipped(from)
                        };
                        assert_eq!(
                            there.is_some_and(good),
                            !covered(step.orig),
                            "{step:x?} {:x} {there:x?}",
                            inst.ip()
                        );
                    }
                    put_in += 1;
                }
            }
        }
        assert!(
            found > 2000 && hidden > 10 && put_in > 100,
            "{found} found, {hidden} hidden, {put_in} put in"
        );
        // About one group per function: since only every seventh is used, each distance to the next
        // one needs a group of its own.
        assert!(
            groups > clones.len() * 9 / 10 && groups < clones.len() * 11 / 10,
            "{groups} groups of {} functions",
            clones.len()
        );
    }

    /// After a handler was shown an instruction of the original, the thread runs that instruction.
    /// It must not have run already. So no position in the clone is shown as an instruction whose
    /// copy comes before it, except for branches that do nothing else.
    #[test]
    fn nothing_is_shown_that_has_run() {
        let run = |(function, original): (Function, Vec<u8>)| {
            let clone = Box::new(
                crate::emit::emit(&function, &original, FLAVOUR_PT, false, false)
                    .unwrap()
                    .0,
            );
            let (clones, first) = ([clone], 0x9000);
            let table = ShimTable::new(&clones, &[first]);
            let (bytes, groups) = (table.bytes(), table.groups() as usize);
            let decoder = Decoder::with_ip(64, &clones[0].code, first, DecoderOptions::NONE);
            let shown = |at: u64| shown(&bytes, groups, first, at - first);
            decoder
                .into_iter()
                .map(|i| {
                    (
                        i.mnemonic(),
                        shown(i.ip()).map(|at| at - function.range.start),
                    )
                })
                .collect::<Vec<_>>()
        };
        use Mnemonic as M;
        assert_eq!(
            run(around_a_lock()),
            [
                (M::Je, Some(0)),
                (M::Add, Some(2)),
                (M::Jmp, None),
                (M::Add, Some(3)),
                (M::Ret, Some(9))
            ]
        );
        assert_eq!(
            run(around_a_far_loop(0xe2))[80..],
            [
                (M::Loop, Some(120)),
                (M::Jmp, None),
                (M::Jmp, None),
                (M::Ret, Some(122))
            ]
        );
        assert_eq!(
            run(around_a_far_loop(0xe3))[80..],
            [
                (M::Jrcxz, Some(120)),
                (M::Jmp, Some(120)),
                (M::Jmp, Some(120)),
                (M::Ret, Some(122))
            ]
        );
    }

    #[test]
    fn the_code_has_its_distances() {
        let places = ShimAddresses {
            code: 0x5000,
            slot: 0x4000,
            memory: 0x9000,
            clones: (0x6000, 0x7800),
            table: 0x8000,
            groups: 3,
            handlers: Some((0x1000, 0x3000)),
        };
        let code = code(&places).unwrap();
        let word = |at: usize| i32::from_le_bytes(code[at..at + 4].try_into().unwrap());
        assert_eq!(
            [0, 4, 8, 12, 16, 20, 24, 28].map(word),
            [-0x1000, 0x4000, 0x1000, 0x1800, 0x3000, 3, -0x4000, 0x2000]
        );
        assert_eq!(code.len(), code_len());
        assert!(
            super::code(&ShimAddresses {
                slot: 1 << 40,
                ..places
            })
            .is_none()
        );
        // The head is no code: the replacement of `sigaction` begins after it.
        assert_eq!(sigaction(0x5000), 0x5020);
        let [frame, thunks] = unwind(0x5000);
        assert_eq!(
            (frame.0.start, frame.0.end, thunks.0.end),
            (0x5020, thunks.0.start, 0x5000 + code.len() as u64)
        );
    }

    /// Checks the unwind entries against the instructions: every change of the stack is at the
    /// given place.
    #[test]
    fn frames_are_described_where_they_change() {
        let code = code(&ShimAddresses {
            code: 0,
            slot: 0,
            memory: 0,
            clones: (0, 0),
            table: 0,
            groups: 0,
            handlers: None,
        })
        .unwrap();
        for (range, instructions) in unwind(0) {
            let mut decoder = Decoder::with_ip(
                64,
                &code[range.start as usize..range.end as usize],
                range.start,
                DecoderOptions::NONE,
            );
            let (mut depth, mut expected) = (8i64, Vec::new());
            for inst in decoder.iter().take_while(|i| i.mnemonic() != Mnemonic::Ret) {
                if inst.mnemonic() != Mnemonic::Call {
                    depth -= i64::from(inst.stack_pointer_increment());
                }
                if inst.op_count() == 2
                    && inst.op0_register() == iced_x86::Register::RSP
                    && inst.op1_kind() != OpKind::Register
                {
                    depth += inst.try_immediate(1).unwrap() as i64
                        * if inst.mnemonic() == Mnemonic::Sub {
                            1
                        } else {
                            -1
                        };
                }
                if expected.last().map_or(8, |e: &(u64, i64)| e.1) != depth {
                    expected.push((inst.next_ip() - range.start, depth));
                }
            }
            assert_eq!(depth, 8);
            let (mut at, mut got, mut rest) = (0u64, Vec::new(), &instructions[..]);
            while let [op, tail @ ..] = rest {
                rest = match op {
                    0x40..=0x7f => {
                        at += u64::from(op & 63);
                        tail
                    }
                    3 => {
                        at += u64::from(u16::from_le_bytes([tail[0], tail[1]]));
                        &tail[2..]
                    }
                    0x0e => {
                        let long = usize::from(tail[0] & 0x80 != 0);
                        got.push((
                            at,
                            i64::from(tail[0] & 0x7f)
                                | if long == 1 {
                                    i64::from(tail[1]) << 7
                                } else {
                                    0
                                },
                        ));
                        &tail[1 + long..]
                    }
                    _ => &tail[1..],
                };
            }
            assert_eq!(got, expected);
        }
    }

    /// A table of clones from `first` on whose original begins at `orig`. It has distances that
    /// take one byte, two, three, four, or a new group, and hidden parts, near and far. Also
    /// returns the original by byte of the clones.
    fn stations(first: u64, orig: u64) -> (ShimTable, Vec<Option<u64>>) {
        let mut table = ShimTable::default();
        let mut expected: Vec<Option<u64>> = vec![None; 40];
        // Bytes to the next station, and the extra length in the clone.
        let steps = [
            (5, 5),
            (20, 15),
            (4, 4),
            (63, 5),
            (64, 5),
            (16, -3),
            (255, 100),
            (255, -127),
            (256, 4),
            (9, 128),
            (7, -128),
            (11, 10),
            (300, 0),
            (1, 1),
            (2, -9),
            (65_535, 5),
            (65_536, 4),
        ];
        // Bytes to a hidden part, and its length. The last ones are too far for a step.
        let hidden = [
            (3, 2),
            (0, 6),
            (700, 1),
            (255, 3),
            (90, 255),
            (65_536, 4),
            (200_000, 1),
        ];
        let mut at = (40, orig);
        table.station(at.0, at.1, first);
        for round in 0..300 {
            let (far, longer) = steps[round * 7 % steps.len()];
            // If no step leads to the next station, the code in front of it does not count as
            // inserted.
            let longer = if (-127..128).contains(&longer) && far < 65_536 {
                longer
            } else {
                longer.min(0)
            };
            let next = (at.0 + far, (at.1 + far).wrapping_add_signed(-longer));
            expected.extend((0..far).map(|k| {
                Some(if longer > 0 {
                    (at.1 + k).min(next.1)
                } else {
                    at.1 + k
                })
            }));
            at = next;
            table.station(at.0, at.1, first);
        }
        for (far, len) in hidden {
            let (start, orig) = at;
            at = (start + far + len, orig + far + len - 3.min(len));
            expected.extend(
                (0..far)
                    .map(|k| Some(orig + k))
                    .chain((0..len).map(|_| None)),
            );
            table.hide(start + far, first);
            table.station(at.0, at.1, first);
        }
        (table, expected)
    }

    #[test]
    fn far_stations_are_in_groups_of_their_own() {
        let first = 0x10_0000;
        let (table, expected) = stations(first, 7_000);
        let (bytes, groups) = (table.bytes(), table.groups() as usize);
        for (offset, &expected) in expected.iter().enumerate() {
            assert_eq!(
                shown(&bytes, groups, first, offset as u64),
                expected,
                "{offset}"
            );
        }
        assert!((30..60).contains(&groups), "{groups}");
    }

    extern "C" fn does_nothing(_signal: i32, _info: *mut u64, _context: *mut u64) {}

    /// Runs the code itself, as the kernel calls it.
    #[test]
    fn thunks_show_what_the_table_says() {
        let mut map = memmap2::MmapMut::map_anon(1 << 16).unwrap();
        let base = map.as_ptr().addr() as u64;
        let first = base + (16 << 20);
        let (table, expected) = stations(first, first - (8 << 20));
        let memory = code_len().next_multiple_of(16);
        let clones = (first, first + expected.len() as u64);
        let places = ShimAddresses {
            code: base,
            slot: base,
            memory: base + memory as u64,
            clones,
            table: base + (memory + MEMORY) as u64,
            groups: table.groups(),
            handlers: None,
        };
        let handler = (does_nothing as *const ()).addr() as u64;
        for (at, bytes) in [
            (0, code(&places).unwrap()),
            (memory, handler.to_le_bytes().to_vec()),
            (memory + MEMORY, table.bytes()),
        ] {
            map[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        let map = map.make_exec().unwrap();
        // SAFETY: the first thunk's code is there and may be executed while the map lives; it takes
        // a handler's arguments.
        let thunk = unsafe {
            std::mem::transmute::<*const u8, extern "C" fn(i32, *mut u64, *mut u64)>(
                map.as_ptr().add(offset(&raw const mgz_faults_thunks)),
            )
        };
        // si_code, si_addr and rip, before and after.
        let shown = |signal: i32, si_code: u64, rip: u64| {
            let (mut info, mut context) = ([0u64; 16], [0u64; 128]);
            (info[1], info[2], context[21]) = (si_code, rip, rip);
            thunk(signal, info.as_mut_ptr(), context.as_mut_ptr());
            // Only faults have si_addr. Other signals use the field differently.
            let is_fault = signal == 11 || signal == 5;
            assert_eq!(
                info[2],
                if is_fault && si_code as i32 > 0 {
                    context[21]
                } else {
                    rip
                }
            );
            context[21]
        };
        const KERNEL: u64 = 0x80;
        for (at, expected) in expected.iter().enumerate() {
            let rip = first + at as u64;
            assert_eq!(shown(11, 1, rip), expected.unwrap_or(rip), "{at}");
            if at % 64 < 3 {
                assert_eq!(
                    shown(5, KERNEL, rip + 1),
                    expected.map_or(rip + 1, |orig| orig + 1),
                    "{at}: behind a breakpoint"
                );
                assert_eq!(shown(5, 2, rip), rip, "{at}: a step");
                let sent = u64::from(u32::MAX);
                assert_eq!(
                    [
                        shown(11, sent, rip),
                        shown(5, sent, rip),
                        shown(10, sent, rip),
                        shown(14, KERNEL, rip)
                    ],
                    [expected.unwrap_or(rip); 4],
                    "{at}: no fault"
                );
            }
        }
        assert_eq!(
            [shown(11, 1, first - 1), shown(11, 1, clones.1)],
            [first - 1, clones.1]
        );
    }
}

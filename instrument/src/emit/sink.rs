//! Collects a function's instructions together with what the address map has to say about them.

use super::relax::{Buffer, Flex, Label, Pieces, Resolved};
use super::{Fixup, FixupKind, Fixups};
use crate::ir::Insn;
use mgz_annotations_schema::abi::{ProbeState, STATE_COUNTED};

/// The probe states around the first instruction of a flexible piece, if it becomes several.
#[derive(Clone, Copy, Debug)]
struct Inside {
    /// Number of the piece.
    flex: u32,
    /// State behind its first instruction.
    inside: u32,
    /// State behind all of them.
    behind: u32,
}

/// The function under construction.
pub struct Sink {
    /// Code.
    pub buffer: Buffer,
    /// Address map stream, in which each flexible piece has one byte so far: the original's length.
    stream: Vec<u8>,
    /// Per flexible piece: where that byte is.
    flexes: Vec<u32>,
    insides: Vec<Inside>,
    /// Fields that depend on where the clone lies, at their places in [`Buffer::bytes`] so far.
    fixups: Fixups,
    states: States,
    current: ProbeState,
    /// Number of `current`.
    number: u32,
    /// The stream does not say so yet.
    is_pending: bool,
}

/// The probe states of a function by number. There are several for each probe, which are looked up in a table with open addressing.
struct States {
    all: Vec<ProbeState>,
    /// Their keys and numbers plus one, 0 in free slots, of which there are at least as many as others.
    slots: Vec<(u128, u32)>,
}

impl States {
    /// Slots at first, a power of two: most functions have few states.
    const SLOTS: usize = 64;

    fn new() -> States {
        let mut states = States { all: Vec::with_capacity(States::SLOTS / 2), slots: vec![(0, 0); States::SLOTS] };
        states.number(&ProbeState::IDLE);
        states
    }

    /// Where a state's slot is looked for first.
    #[inline]
    fn first_slot(&self, key: u128) -> usize {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let hash = ((key as u64).wrapping_mul(FACTOR) ^ (key >> 64) as u64).wrapping_mul(FACTOR);
        (hash >> 32) as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn number(&mut self, state: &ProbeState) -> u32 {
        let key = key(state);
        let mut at = self.first_slot(key);
        loop {
            match self.slots[at] {
                (_, 0) => return self.add(at, state),
                (other, number) if other == key => return number - 1,
                _ => at = (at + 1) & (self.slots.len() - 1),
            }
        }
    }

    /// Gives a new state its number, and the slot that is free for it.
    #[inline(never)]
    fn add(&mut self, slot: usize, state: &ProbeState) -> u32 {
        self.all.push(*state);
        self.slots[slot] = (key(state), self.all.len() as u32);
        if 2 * self.all.len() > self.slots.len() {
            self.grow();
        }
        self.all.len() as u32 - 1
    }

    fn grow(&mut self) {
        let old = std::mem::take(&mut self.slots);
        self.slots = vec![(0, 0); 2 * old.len()];
        for slot in old.into_iter().filter(|slot| slot.1 != 0) {
            let mut at = self.first_slot(slot.0);
            while self.slots[at].1 != 0 {
                at = (at + 1) & (self.slots.len() - 1);
            }
            self.slots[at] = slot;
        }
    }
}

/// A finished function.
pub struct Finished {
    /// Code and places.
    pub resolved: Resolved,
    /// Fixups at their final offsets.
    pub fixups: Fixups,
    /// Address map stream.
    pub stream: Vec<u8>,
    /// States.
    pub states: Vec<ProbeState>,
    /// Some code in it was aligned.
    pub is_aligned: bool,
}

/// A state as one number.
pub fn key(state: &ProbeState) -> u128 {
    u128::from_le_bytes(state.bytes())
}

impl Sink {
    /// An empty function with so many labels.
    pub fn new(labels: usize) -> Sink {
        Sink {
            buffer: Buffer::new(labels),
            stream: Vec::with_capacity(labels * 2),
            flexes: Vec::with_capacity(labels / 4),
            insides: Vec::new(),
            fixups: Fixups::with_capacity(labels / 2),
            states: States::new(),
            current: ProbeState::IDLE,
            number: 0,
            is_pending: false,
        }
    }

    /// Appends a token of the stream, behind the state that it is the first in.
    #[inline]
    fn token(&mut self, token: u8) {
        self.say();
        self.stream.push(token);
    }

    /// Lets the stream say what holds from here on.
    #[inline]
    fn say(&mut self) {
        if std::mem::take(&mut self.is_pending) {
            say(&mut self.stream, self.number);
        }
    }

    /// Appends one instruction that stands for `orig` original bytes (0: inserted). The closure may return
    /// the offset in the buffer of a field to be filled in.
    #[inline]
    pub fn insn(&mut self, orig: u8, fixup: Option<FixupKind>, encode: impl FnOnce(&mut Vec<u8>) -> usize) {
        let start = self.buffer.bytes.len();
        let field = encode(&mut self.buffer.bytes);
        let end = self.buffer.bytes.len();
        self.token(orig << 4 | (end - start) as u8);
        if let Some(kind) = fixup {
            self.fixups.push(Fixup { at: field as u32, end: end as u32, kind });
        }
    }

    /// Says that four bytes of what is appended next depend on the layout: their offset in it, and that of their instruction's end.
    pub fn fixup(&mut self, at: usize, end: usize, kind: FixupKind) {
        let start = self.buffer.bytes.len();
        self.fixups.push(Fixup { at: (start + at) as u32, end: (start + end) as u32, kind });
    }

    /// Appends instructions as they are. `first` is the number of the first, whose label, and those of the others, are put where they begin.
    pub fn copy(&mut self, first: usize, insns: &[Insn], bytes: &[u8]) {
        self.say();
        self.buffer.bind_run(first, insns);
        self.buffer.bytes.extend_from_slice(bytes);
        self.stream.extend(insns.iter().map(|insn| insn.len << 4 | insn.len));
    }

    /// Appends one inserted instruction without fields.
    #[inline]
    pub fn inserted(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.insn(0, None, |out| {
            encode(out);
            0
        });
    }

    /// Appends a flexible piece that stands for `orig` original bytes.
    pub fn flex(&mut self, orig: u8, flex: Flex) {
        self.buffer.push(flex);
        self.token(orig << 4);
        self.flexes.push(self.stream.len() as u32 - 1);
    }

    /// Appends a `loop` or its kin: where it becomes several instructions, the first has counted.
    pub fn counting(&mut self, orig: u8, flex: Flex) {
        let counted = ProbeState { flags: self.current.flags | STATE_COUNTED, ..self.current };
        let inside = self.states.number(&counted);
        self.insides.push(Inside { flex: self.flexes.len() as u32, inside, behind: self.number });
        self.flex(orig, flex);
    }

    /// Marks original bytes that have no clone.
    pub fn skip(&mut self, bytes: u64) {
        let mut left = bytes as u32;
        while left > 0 {
            let part = left.min(15);
            self.token((part as u8) << 4);
            left -= part;
        }
    }

    /// Says what holds from here on.
    #[inline]
    pub fn state(&mut self, change: impl FnOnce(&mut ProbeState)) {
        let mut next = self.current;
        change(&mut next);
        if key(&next) != key(&self.current) {
            self.turn(next);
        }
    }

    fn turn(&mut self, next: ProbeState) {
        self.current = next;
        self.number = self.states.number(&next);
        self.is_pending = true;
    }

    /// What holds here.
    pub fn current(&self) -> &ProbeState {
        &self.current
    }

    /// Puts an instruction's label here.
    pub fn bind(&mut self, label: Label) {
        self.buffer.bind(label);
    }

    /// Chooses branch sizes and ends the function.
    pub fn finish(mut self) -> Finished {
        self.say();
        let is_aligned = self.buffer.is_aligned();
        let is_even = self.buffer.is_even();
        let resolved = self.buffer.resolve();
        let stream = match is_even {
            true => {
                self.flexes.iter().zip(&resolved.pieces).for_each(|(&at, pieces)| self.stream[at as usize] |= pieces[0]);
                // (There is more room than that takes, which would be kept until the layout is known. So is that of the states.)
                self.stream.as_slice().to_vec()
            }
            false => with_pieces(&self.stream, &self.flexes, &self.insides, &resolved.pieces),
        };
        Finished { fixups: self.fixups.settled(&resolved), stream, states: self.states.all.as_slice().to_vec(), is_aligned, resolved }
    }
}

/// Appends an unsigned LEB128 number.
pub fn leb128(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The stream with what flexible pieces have become, some of which are not one instruction each.
fn with_pieces(stream: &[u8], flexes: &[u32], insides: &[Inside], pieces: &[Pieces]) -> Vec<u8> {
    let mut out = Vec::with_capacity(stream.len() + flexes.len());
    let mut insides = insides.iter().peekable();
    let mut copied = 0;
    for (n, (&at, &pieces)) in flexes.iter().zip(pieces).enumerate() {
        let at = at as usize;
        out.extend_from_slice(&stream[copied..at]);
        let inside = insides.next_if(|i| i.flex as usize == n);
        flex(&mut out, pieces, stream[at] >> 4, inside.map(|i| (i.inside, i.behind)));
        copied = at + 1;
    }
    out.extend_from_slice(&stream[copied..]);
    out
}

/// The state number from here on.
fn say(out: &mut Vec<u8>, number: u32) {
    out.push(0);
    leb128(out, number.into());
}

/// A far `loop` has three instructions: the first two belong to the original (the first jumps over the
/// second, which goes on behind the original), and the last carries its length. `states`: behind the first, and behind all.
fn flex(out: &mut Vec<u8>, pieces: Pieces, orig: u8, states: Option<(u32, u32)>) {
    let count = pieces.iter().filter(|&&p| p > 0).count();
    let states = states.filter(|_| count > 1);
    for (i, &len) in pieces[..count].iter().enumerate() {
        out.push(if i + 1 == count { orig << 4 } else { 0 } | len);
        match states {
            Some((inside, _)) if i == 0 => say(out, inside),
            Some((_, behind)) if i + 1 == count => say(out, behind),
            _ => {}
        }
    }
}

//! Collects a function's instructions together with what the address map has to say about them.

use super::relax::{Buffer, Flex, Label, Pieces, Resolved};
use super::{Fixup, FixupKind, Fixups};
use crate::hash::FastMap;
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
    /// What does not depend on the layout of the function itself, at the places in [`Buffer::bytes`].
    fixups: Fixups,
    /// By their bytes, which hash several times faster than fields.
    numbers: FastMap<u128, u32>,
    states: Vec<ProbeState>,
    /// Per state: the one that came after it last. Probes are much alike, so that most need not be looked up.
    followers: Vec<u32>,
    current: ProbeState,
    /// Number of `current`.
    number: u32,
    /// The stream does not say so yet.
    is_pending: bool,
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
    /// An empty function with one label per original instruction and per piece.
    pub fn new(labels: usize) -> Sink {
        Sink {
            buffer: Buffer::new(labels),
            stream: Vec::with_capacity(labels * 2),
            flexes: Vec::with_capacity(labels / 4),
            insides: Vec::new(),
            fixups: Fixups::with_capacity(labels / 2),
            numbers: FastMap::from_iter([(key(&ProbeState::IDLE), 0)]),
            states: vec![ProbeState::IDLE],
            followers: vec![0],
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
        let inside = self.number(counted);
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
        let before = self.number as usize;
        self.number = self.followers[before];
        if key(&self.states[self.number as usize]) != key(&next) {
            self.number = self.number(next);
            self.followers[before] = self.number;
        }
        self.is_pending = true;
    }

    fn number(&mut self, state: ProbeState) -> u32 {
        *self.numbers.entry(key(&state)).or_insert_with(|| {
            self.states.push(state);
            self.followers.push(0);
            self.states.len() as u32 - 1
        })
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
                self.stream
            }
            false => with_pieces(&self.stream, &self.flexes, &self.insides, &resolved.pieces),
        };
        Finished { fixups: self.fixups.settled(&resolved), stream, states: self.states, is_aligned, resolved }
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

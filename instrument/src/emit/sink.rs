//! Collects a function's instructions together with what the address map has to say about them.

use super::relax::{Buffer, Flex, Label, Pos, Resolved};
use super::{Fixup, FixupKind, Fixups};
use crate::hash::FastMap;
use mgz_annotations_schema::abi::{ProbeState, STATE_COUNTED};

/// One token of the address map, before sizes are known.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// An instruction of `len` fixed bytes that stands for `orig` original bytes.
    Insn { len: u8, orig: u8 },
    /// A flexible piece.
    Flex { index: u32, orig: u8 },
    /// The probe state behind the first instruction of the flexible piece that follows, if it becomes several.
    Inside(u32),
    /// The probe state from here on.
    State(u32),
    /// Original bytes without clone.
    Skip(u32),
}

/// A place that is asked for after resolution.
#[derive(Clone, Copy, Debug)]
struct PendingFixup {
    at: Pos,
    end: Pos,
    kind: FixupKind,
}

/// The function under construction.
pub struct Sink {
    /// Code.
    pub buffer: Buffer,
    events: Vec<Event>,
    fixups: Vec<PendingFixup>,
    /// By their bytes, which hash several times faster than fields.
    numbers: FastMap<u128, u32>,
    states: Vec<ProbeState>,
    current: ProbeState,
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
    /// An empty function with one label per original instruction.
    pub fn new(labels: usize) -> Sink {
        Sink {
            buffer: Buffer::new(labels),
            events: Vec::with_capacity(labels * 4),
            fixups: Vec::with_capacity(labels / 2),
            numbers: FastMap::from_iter([(key(&ProbeState::IDLE), 0)]),
            states: vec![ProbeState::IDLE],
            current: ProbeState::IDLE,
        }
    }

    /// Appends one instruction that stands for `orig` original bytes (0: inserted). The closure may return
    /// the offset in the buffer of a field to be filled in.
    pub fn insn(&mut self, orig: u8, fixup: Option<FixupKind>, encode: impl FnOnce(&mut Vec<u8>) -> usize) {
        let start = self.buffer.bytes.len();
        let field = encode(&mut self.buffer.bytes);
        let end = self.buffer.pos();
        self.events.push(Event::Insn { len: (self.buffer.bytes.len() - start) as u8, orig });
        if let Some(kind) = fixup {
            self.fixups.push(PendingFixup { at: Pos { byte: field as u32, ..end }, end, kind });
        }
    }

    /// Appends one inserted instruction without fields.
    pub fn inserted(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.insn(0, None, |out| {
            encode(out);
            0
        });
    }

    /// Appends a flexible piece that stands for `orig` original bytes.
    pub fn flex(&mut self, orig: u8, flex: Flex) {
        let index = self.buffer.push(flex) as u32;
        self.events.push(Event::Flex { index, orig });
    }

    /// Appends a `loop` or its kin: where it becomes several instructions, the first has counted.
    pub fn counting(&mut self, orig: u8, flex: Flex) {
        let counted = ProbeState { flags: self.current.flags | STATE_COUNTED, ..self.current };
        let number = self.number(counted);
        self.events.push(Event::Inside(number));
        self.flex(orig, flex);
    }

    /// Marks original bytes that have no clone.
    pub fn skip(&mut self, bytes: u64) {
        if bytes > 0 {
            self.events.push(Event::Skip(bytes as u32));
        }
    }

    /// Says what holds from here on.
    pub fn state(&mut self, change: impl FnOnce(&mut ProbeState)) {
        let mut next = self.current;
        change(&mut next);
        if next == self.current {
            return;
        }
        self.current = next;
        let number = self.number(next);
        if let Some(Event::State(last)) = self.events.last_mut() {
            *last = number;
        } else {
            self.events.push(Event::State(number));
        }
    }

    fn number(&mut self, state: ProbeState) -> u32 {
        *self.numbers.entry(key(&state)).or_insert_with(|| {
            self.states.push(state);
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
    pub fn finish(self) -> Finished {
        let is_aligned = self.buffer.is_aligned();
        let resolved = self.buffer.resolve();
        let stream = stream(&self.events, &resolved);
        let fixups = self.fixups.iter().map(|f| Fixup { at: resolved.offset(f.at), end: resolved.offset(f.end), kind: f.kind });
        Finished { fixups: fixups.collect(), stream, states: self.states, is_aligned, resolved }
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

fn stream(events: &[Event], resolved: &Resolved) -> Vec<u8> {
    let mut out = Vec::with_capacity(events.len());
    let skip = |out: &mut Vec<u8>, mut left: u32| {
        while left > 0 {
            let part = left.min(15);
            out.push((part as u8) << 4);
            left -= part;
        }
    };
    let (mut state, mut inside) = (0, None);
    for &event in events {
        match event {
            Event::Insn { len, orig } => out.push(orig << 4 | len),
            Event::Flex { index, orig } => flex(&mut out, resolved.pieces[index as usize], orig, inside.take().map(|i| (i, state))),
            Event::State(number) => {
                say(&mut out, number);
                state = number;
            }
            Event::Inside(number) => inside = Some(number),
            Event::Skip(bytes) => skip(&mut out, bytes),
        }
    }
    out
}

/// The state number from here on.
fn say(out: &mut Vec<u8>, number: u32) {
    out.push(0);
    leb128(out, number.into());
}

/// A far `loop` has three instructions: the first two belong to the original (the first jumps over the
/// second, which goes on behind the original), and the last carries its length. `states`: behind the first, and behind all.
fn flex(out: &mut Vec<u8>, pieces: [u8; 3], orig: u8, states: Option<(u32, u32)>) {
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

//! Collects a function's instructions together with their entries for the address map.

use crate::emit::packed_fields::Fields;
use crate::emit::relax::{Buffer, Flex, FlexLengths, Label};
use crate::emit::{Fixup, FixupKind, Fixups};
use crate::plan::cursor::Residency;
use crate::util::byte_buf::ByteBuf;
use crate::x86::encode::Encoded;
use mgz_abi::address_map::{NO_REG, ProbeState, STATE_COUNTED, STATE_HALF};
use mgz_abi::leb128;

/// The probe states around the first instruction of a flexible piece, if it becomes several.
#[derive(Clone, Copy, Debug)]
struct Inside {
    /// Number of the piece.
    flex: u32,
    /// State after its first instruction.
    inside: u32,
    /// State after all of them.
    behind: u32,
}

/// The function under construction. The default is empty until [`Sink::begin`].
#[derive(Default)]
pub struct Sink {
    /// Code.
    pub buffer: Buffer,
    /// Address map stream. Each flexible piece has one byte so far: the original's length.
    stream: ByteBuf,
    /// Per flexible piece: where that byte is.
    flexes: Vec<u32>,
    insides: Vec<Inside>,
    /// Fields that depend on the clone's address, at their places in [`Buffer::bytes`] so far.
    fixups: Fields,
    states: States,
    current: PackedState,
    /// Number of `current`.
    number: u32,
    /// Bytes of that number that are not in the stream yet, the first byte lowest.
    unsaid: u64,
    /// Number of those bytes.
    unsaid_len: u8,
}

/// A [`ProbeState`] as one number, with its bytes in order, the first lowest. This form is changed
/// and looked up for every instruction of a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackedState(u128);

impl PackedState {
    /// [`ProbeState::IDLE`].
    pub const IDLE: PackedState =
        PackedState((u128::MAX >> 32) << 32 | (NO_REG as u128) << PackedState::BASE_REG);

    const SLOTS_DONE: u32 = 0;
    const BASE_REG: u32 = 8;
    const BASE_AHEAD: u32 = 16;
    const FLAGS: u32 = 24;

    /// Packs a state.
    #[inline]
    pub fn of(state: &ProbeState) -> PackedState {
        PackedState(key(state))
    }

    /// State between the regions of a residency, or outside of residencies.
    #[inline]
    pub fn between(residency: Option<Residency>) -> PackedState {
        residency.map_or(PackedState::IDLE, |residency| {
            PackedState::of(&residency.state())
        })
    }

    /// Unpacks the state.
    fn open(self) -> ProbeState {
        let [slots_done, base_reg, base_ahead, flags, ..] = self.0.to_le_bytes();
        ProbeState {
            slots_done,
            base_reg,
            base_ahead,
            flags,
            saved: self.saved(),
        }
    }

    #[inline]
    fn with_byte(self, at: u32, byte: u8) -> PackedState {
        PackedState(self.0 & !(0xff << at) | u128::from(byte) << at)
    }

    /// With [`ProbeState::slots_done`].
    #[inline]
    #[must_use]
    pub fn with_slots_done(self, slots: u8) -> PackedState {
        self.with_byte(PackedState::SLOTS_DONE, slots)
    }

    /// With [`ProbeState::base_reg`].
    #[inline]
    #[must_use]
    pub fn with_base_reg(self, register: u8) -> PackedState {
        self.with_byte(PackedState::BASE_REG, register)
    }

    /// With [`ProbeState::base_ahead`].
    #[inline]
    #[must_use]
    pub fn with_base_ahead(self, slots: u8) -> PackedState {
        self.with_byte(PackedState::BASE_AHEAD, slots)
    }

    /// True if no region is in flight.
    #[inline]
    fn is_between(self) -> bool {
        self == self
            .with_slots_done(0)
            .with_base_ahead(0)
            .without(STATE_HALF)
    }

    /// Adds these flags.
    #[inline]
    #[must_use]
    pub fn with(self, flags: u8) -> PackedState {
        PackedState(self.0 | u128::from(flags) << PackedState::FLAGS)
    }

    /// Without these flags.
    #[inline]
    #[must_use]
    pub fn without(self, flags: u8) -> PackedState {
        PackedState(self.0 & !(u128::from(flags) << PackedState::FLAGS))
    }

    /// [`ProbeState::saved`].
    pub fn saved(self) -> [[u8; 2]; 6] {
        let bytes = self.0.to_le_bytes();
        std::array::from_fn(|n| [bytes[4 + 2 * n], bytes[5 + 2 * n]])
    }

    /// With [`ProbeState::saved`].
    #[must_use]
    pub fn with_saved(self, saved: [[u8; 2]; 6]) -> PackedState {
        PackedState::of(&ProbeState {
            saved,
            ..self.open()
        })
    }
}

/// Code after the load of the cursor, in a region of one record that holds a register.
#[derive(Clone, Copy)]
pub struct Single {
    /// Stores the register, then the id.
    pub record: Encoded,
    /// Bytes of the instruction that stores the register.
    pub stored: u8,
    /// Advances the register with the cursor.
    pub advance: Encoded,
    /// Advances the register and stores it.
    pub commit: Encoded,
    /// The tokens of the four instructions, with gaps for the states after the second and the
    /// third.
    pub tokens: u64,
}

/// The probe states of a function by number. Each probe has several. They are looked up in a table
/// with open addressing.
#[derive(Default)]
struct States {
    all: Vec<PackedState>,
    /// State numbers plus one, or 0 in free slots. At least half of the slots are free.
    slots: Vec<u32>,
}

impl States {
    /// Slots at first, a power of two: most functions have few states.
    const SLOTS: usize = 64;

    /// Begins with [`PackedState::IDLE`] only.
    fn begin(&mut self) {
        self.all.clear();
        self.slots.clear();
        self.slots.resize(States::SLOTS, 0);
        self.number(PackedState::IDLE);
    }

    /// First slot of the search for a state.
    #[inline]
    fn first_slot(&self, state: PackedState) -> usize {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let hash =
            ((state.0 as u64).wrapping_mul(FACTOR) ^ (state.0 >> 64) as u64).wrapping_mul(FACTOR);
        (hash >> 32) as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn number(&mut self, state: PackedState) -> u32 {
        let mut at = self.first_slot(state);
        loop {
            match (self.slots[at] as usize).checked_sub(1) {
                None => return self.add(at, state),
                Some(number) if self.all[number] == state => return number as u32,
                Some(_) => at = (at + 1) & (self.slots.len() - 1),
            }
        }
    }

    /// Assigns a number to a new state, and puts it into the free slot.
    #[inline(never)]
    fn add(&mut self, slot: usize, state: PackedState) -> u32 {
        self.all.push(state);
        self.slots[slot] = self.all.len() as u32;
        if 2 * self.all.len() > self.slots.len() {
            self.grow();
        }
        self.all.len() as u32 - 1
    }

    fn grow(&mut self) {
        let slots = 2 * self.slots.len();
        self.slots.clear();
        self.slots.resize(slots, 0);
        for (state, number) in self.all.iter().zip(1..) {
            let mut at = self.first_slot(*state);
            while self.slots[at] != 0 {
                at = (at + 1) & (self.slots.len() - 1);
            }
            self.slots[at] = number;
        }
    }
}

/// A finished function.
pub struct Finished {
    /// Code.
    pub code: Vec<u8>,
    /// Fixups at their final offsets.
    pub fixups: Fixups,
    /// Address map stream.
    pub stream: Vec<u8>,
    /// States.
    pub states: Vec<ProbeState>,
    /// True if some code in it was aligned.
    pub is_aligned: bool,
}

/// A state as one number.
pub fn key(state: &ProbeState) -> u128 {
    u128::from_le_bytes(state.bytes())
}

impl Sink {
    /// Begins a function with `labels` labels, reusing the memory of the previous one.
    pub fn begin(&mut self, labels: usize) {
        self.buffer.begin(labels);
        self.stream.clear();
        self.flexes.clear();
        self.insides.clear();
        self.fixups.clear();
        self.states.begin();
        (self.current, self.number) = (PackedState::IDLE, 0);
        (self.unsaid, self.unsaid_len) = (0, 0);
    }

    /// Appends a token to the stream, after the state number if that is new here.
    #[inline]
    fn token(&mut self, token: u8) {
        let tokens = self.unsaid | u64::from(token) << (8 * self.unsaid_len);
        self.stream.put(tokens.into(), self.unsaid_len + 1);
        (self.unsaid, self.unsaid_len) = (0, 0);
    }

    /// Appends eight tokens at most, the first lowest.
    #[inline]
    fn tokens(&mut self, tokens: u64, count: u8) {
        self.stream.put(
            u128::from(self.unsaid) | u128::from(tokens) << (8 * self.unsaid_len),
            self.unsaid_len + count,
        );
        (self.unsaid, self.unsaid_len) = (0, 0);
    }

    /// Writes the current state to the stream.
    #[inline]
    fn say(&mut self) {
        self.stream.put(self.unsaid.into(), self.unsaid_len);
        (self.unsaid, self.unsaid_len) = (0, 0);
    }

    /// Notes that the current state is not in the stream yet.
    #[inline]
    fn begin_state(&mut self) {
        (self.unsaid, self.unsaid_len) = (u64::from(self.number) << 8, 2);
        // Most functions have few states.
        if self.number >= 0x80 {
            self.begin_far_state();
        }
    }

    /// As `begin_state`, for a state whose number takes several bytes.
    #[cold]
    #[inline(never)]
    fn begin_far_state(&mut self) {
        let mut tokens = Vec::new();
        say(&mut tokens, self.number);
        self.unsaid = tokens
            .iter()
            .rev()
            .fold(0, |all, &byte| all << 8 | u64::from(byte));
        self.unsaid_len = tokens.len() as u8;
    }

    /// Appends one instruction that stands for `orig` original bytes (0: inserted). `field`: the
    /// start of four bytes in it that depend on the layout.
    pub fn insn(&mut self, orig: u8, bytes: &[u8], field: Option<(usize, FixupKind)>) {
        if let Some((at, kind)) = field {
            self.fixup(at, bytes.len(), kind);
        }
        self.buffer.bytes.extend_from_slice(bytes);
        self.token(orig << 4 | bytes.len() as u8);
    }

    /// Appends one instruction that stands for `orig` original bytes (0: inserted).
    pub fn put(&mut self, orig: u8, code: Encoded) {
        code.append(&mut self.buffer.bytes);
        self.token(orig << 4 | code.size());
    }

    /// As `put`, for an instruction whose last four bytes depend on the layout.
    #[inline]
    pub fn put_open(&mut self, orig: u8, code: Encoded, kind: FixupKind) {
        self.put(orig, code);
        let end = self.buffer.bytes.count() as u32;
        self.fixups.push(Fixup {
            at: end - 4,
            end,
            kind,
        });
    }

    /// As `put_open`, for an instruction with such bytes anywhere.
    pub fn put_field(&mut self, orig: u8, code: Encoded, at: usize, kind: FixupKind) {
        self.fixup(at, code.size().into(), kind);
        self.put(orig, code);
    }

    /// Appends one inserted instruction whose last four bytes are a record id.
    #[inline]
    pub fn put_id(&mut self, code: Encoded, number: u32) {
        self.put(0, code);
        self.fixups
            .push_id(self.buffer.bytes.count() as u32 - 4, number);
    }

    /// Appends the code of a region of one record after the load of the cursor, with its states.
    /// `commits`: it stores the cursor. Returns false, with nothing appended, in the rare cases
    /// that need the general path. (States may have been numbered by then, with the numbers that
    /// the general path gives them.)
    pub fn put_single(&mut self, single: &Single, commits: bool, number: u32) -> bool {
        if !self.current.is_between() {
            return false;
        }
        let written = self.current.with_slots_done(1);
        let done = self.states.number(written);
        let ahead = if commits {
            self.states.number(written.with_base_ahead(1))
        } else {
            0
        };
        // A larger number takes several bytes.
        if done.max(ahead) >= 0x80 {
            return false;
        }
        single.record.append(&mut self.buffer.bytes);
        self.fixups
            .push_id(self.buffer.bytes.count() as u32 - 4, number);
        let tokens = single.tokens | u64::from(done) << 24;
        if commits {
            single.commit.append(&mut self.buffer.bytes);
            self.tokens(tokens | u64::from(ahead) << 48, 8);
        } else {
            single.advance.append(&mut self.buffer.bytes);
            self.tokens(tokens & 0xff_ffff_ffff, 5);
        }
        self.begin_state();
        true
    }

    /// Notes four bytes of the next code that depend on the layout: their offset in it, and that of
    /// their instruction's end.
    pub fn fixup(&mut self, at: usize, end: usize, kind: FixupKind) {
        let start = self.buffer.bytes.count();
        self.fixups.push(Fixup {
            at: (start + at) as u32,
            end: (start + end) as u32,
            kind,
        });
    }

    /// Appends the first `len` bytes of `from`, which are unchanged instructions. `tokens` has the
    /// length of each twice, in four bits each.
    pub fn copy(&mut self, from: &[u8], len: usize, tokens: u64, count: u8) {
        self.buffer.bytes.extend_from_start(from, len);
        self.tokens(tokens, count);
    }

    /// Appends one inserted instruction without fields.
    #[inline]
    pub fn inserted(&mut self, code: Encoded) {
        self.put(0, code);
    }

    /// Appends a flexible piece that stands for `orig` original bytes.
    pub fn flex(&mut self, orig: u8, flex: Flex) {
        self.buffer.push(flex);
        self.token(orig << 4);
        self.flexes.push(self.stream.count() as u32 - 1);
    }

    /// Appends `loop`, `loope` or `loopne`. If it becomes several instructions, the first one
    /// counts.
    pub fn counting(&mut self, orig: u8, flex: Flex) {
        let inside = self.states.number(self.current.with(STATE_COUNTED));
        self.insides.push(Inside {
            flex: self.flexes.len() as u32,
            inside,
            behind: self.number,
        });
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

    /// Changes the state from here on.
    #[inline]
    pub fn state(&mut self, change: impl FnOnce(PackedState) -> PackedState) {
        let next = change(self.current);
        if next != self.current {
            self.current = next;
            self.number = self.states.number(next);
            self.begin_state();
        }
    }

    /// State at the current place.
    pub fn current(&self) -> PackedState {
        self.current
    }

    /// Puts an instruction's label here.
    pub fn bind(&mut self, label: Label) {
        self.buffer.bind(label);
    }

    /// Chooses branch sizes and ends the function. Afterwards its buffer gives final offsets.
    pub fn finish(&mut self) -> Finished {
        self.say();
        let code = self.buffer.resolve();
        let pieces = self.buffer.pieces();
        let stream = if self.buffer.is_even() {
            let stream = self.stream.as_mut_slice();
            self.flexes
                .iter()
                .zip(pieces)
                .for_each(|(&at, pieces)| stream[at as usize] |= pieces[0]);
            stream.to_vec()
        } else {
            with_pieces(self.stream.as_slice(), &self.flexes, &self.insides, pieces)
        };
        let states = self.states.all.iter().map(|s| s.open()).collect();
        Finished {
            code,
            fixups: self
                .fixups
                .settled(self.buffer.settler(), self.buffer.settler()),
            stream,
            states,
            is_aligned: self.buffer.is_aligned(),
        }
    }
}

/// The stream with the final forms of flexible pieces, some of which are several instructions.
fn with_pieces(
    stream: &[u8],
    flexes: &[u32],
    insides: &[Inside],
    pieces: &[FlexLengths],
) -> Vec<u8> {
    let mut out = Vec::with_capacity(stream.len() + flexes.len());
    let mut insides = insides.iter().peekable();
    let mut copied = 0;
    for (n, (&at, &pieces)) in flexes.iter().zip(pieces).enumerate() {
        let at = at as usize;
        out.extend_from_slice(&stream[copied..at]);
        let inside = insides.next_if(|i| i.flex as usize == n);
        flex(
            &mut out,
            pieces,
            stream[at] >> 4,
            inside.map(|i| (i.inside, i.behind)),
        );
        copied = at + 1;
    }
    out.extend_from_slice(&stream[copied..]);
    out
}

/// Appends the number of the state from here on.
fn say(out: &mut Vec<u8>, number: u32) {
    out.push(0);
    leb128::encode(number.into(), |byte| out.push(byte));
}

/// Appends a flexible piece. A far `loop` has three instructions. The first two belong to the
/// original (the first jumps over the second, which continues after the original), and the last one
/// has the original's length. `states`: after the first, and after all.
fn flex(out: &mut Vec<u8>, pieces: FlexLengths, orig: u8, states: Option<(u32, u32)>) {
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

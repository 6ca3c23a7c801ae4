//! Reads the address map. The map gives the original instruction for a clone address, and the
//! registers that a probe has borrowed there.
//!
//! `core` only and without allocation, so that the runtime can compile the same file. The input may
//! be any bytes: everything is checked, and damage results in `None`.
//!
//! The map has the functions in the order of their originals, and their clones have the same order.
//! So both directions are a binary search over functions and marks, followed by a walk over a few
//! instructions.

use crate::leb128;

/// Start of the address map: then `functions` × [`MapFunction`] (sorted by `clone_start`), then
/// `states` × [`ProbeState`], then `stream_len` bytes, then [`MapMark`]s up to the end (sorted by
/// `clone`): points inside functions where reading may begin, so that no lookup walks through a
/// long function.
///
/// # The stream
///
/// Per function, from `clone_start`/`orig_start` on, one byte per clone instruction: low nibble =
/// its length in the clone (1–15), high nibble = length of its original instruction (up to the
/// start of the next one), or 0 for an inserted instruction, which belongs to the following
/// original instruction (but see [`STATE_PASSED`]). Bytes with a low nibble of 0: `0x00` is
/// followed by a LEB128 state number that holds from the next boundary on (each function starts in
/// state 0); `0xN0` (N > 0) skips N bytes of original code that has no clone.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapHeader {
    /// Number of [`MapFunction`]s.
    pub functions: u32,
    /// Number of [`ProbeState`]s. State 0 is always [`ProbeState::IDLE`].
    pub states: u32,
    /// Length of the stream, bytes.
    pub stream_len: u64,
}

/// One function in the address map. Link-time addresses (below 4 GiB).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapFunction {
    /// First byte of the clone.
    pub clone_start: u32,
    /// End (exclusive) of the clone.
    pub clone_end: u32,
    /// First byte of the original.
    pub orig_start: u32,
    /// Offset of the function's bytes in the stream; they end where `clone_end` is reached.
    pub stream: u32,
}

/// A point inside a function where reading the stream may begin. Link-time addresses (below 4 GiB).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapMark {
    /// Address in the clone.
    pub clone: u32,
    /// Address in the original.
    pub orig: u32,
    /// Offset in the stream.
    pub stream: u32,
    /// State number there.
    pub state: u32,
}

/// "No register" in [`ProbeState`].
pub const NO_REG: u8 = 0xff;

/// [`ProbeState::flags`]: a call has pushed its return address but not jumped yet.
pub const STATE_PUSHED: u8 = 1;
/// [`ProbeState::flags`]: the `call gs:[GS_BACK]` behind a call; control from outside enters behind
/// it.
pub const STATE_BACK: u8 = 2;

/// [`ProbeState::flags`]: the next original instruction in the map is the one just executed without
/// its first prefixes (`lock`), so control does not reach it: code inserted here belongs to the
/// instruction behind it.
pub const STATE_PASSED: u8 = 4;

/// [`ProbeState::flags`]: the cursor in memory may be behind the register's: records made in this
/// loop are committed when control leaves it.
pub const STATE_LATE: u8 = 8;

/// [`ProbeState::flags`]: the slot behind the completed ones has the first of two payloads; the
/// second, and the id, are written after further original instructions.
pub const STATE_HALF: u8 = 16;

/// [`ProbeState::flags`]: a `loop`, `loope` or `loopne` that became several instructions has
/// decremented rcx but not jumped yet.
pub const STATE_COUNTED: u8 = 32;

/// Registers borrowed and slots written by a probe at one instruction boundary of the clone.
/// Registers have their hardware numbers: rax 0, rcx 1, rdx 2, rbx 3, rsp 4, rbp 5, rsi 6, rdi 7,
/// r8…r15.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProbeState {
    /// Completely written slots of the current region; 0 after the commit. In a file with
    /// [counters](crate::counters): bytes back to the instruction that has read a counter.
    pub slots_done: u8,
    /// Register that holds the slot base (plus `16*base_ahead`), or the address of the counters; or
    /// [`NO_REG`].
    pub base_reg: u8,
    /// See `base_reg`: non-zero between the `lea` that advances the register and the commit.
    pub base_ahead: u8,
    /// [`STATE_PUSHED`], [`STATE_BACK`], [`STATE_PASSED`], [`STATE_LATE`], [`STATE_HALF`],
    /// [`STATE_COUNTED`].
    pub flags: u8,
    /// Borrowed registers whose true value is in a spill slot: `(register, slot)`.
    pub saved: [[u8; 2]; 6],
}

impl ProbeState {
    /// No open region, and no borrowed register.
    pub const IDLE: ProbeState = ProbeState {
        slots_done: 0,
        base_reg: NO_REG,
        base_ahead: 0,
        flags: 0,
        saved: [[NO_REG, NO_REG]; 6],
    };

    /// Bytes in the form of the file.
    #[inline]
    pub fn bytes(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..4].copy_from_slice(&[self.slots_done, self.base_reg, self.base_ahead, self.flags]);
        out[4..].copy_from_slice(self.saved.as_flattened());
        out
    }
}

const HEADER: usize = 16;
const ROW: usize = 16;

/// A parsed view of a map's bytes.
#[derive(Clone, Copy, Debug)]
pub struct AddrMap<'a> {
    functions: &'a [u8],
    states: &'a [u8],
    stream: &'a [u8],
    marks: &'a [u8],
}

/// One instruction of the clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Link-time address in the clone.
    pub clone: u64,
    /// Link-time address of the corresponding original instruction, or, for an inserted
    /// instruction, of the next original one.
    pub orig: u64,
    /// Length in the clone, bytes.
    pub clone_len: u8,
    /// Length of the original instruction, or 0 for an inserted instruction.
    pub orig_len: u8,
    /// Number of the [`ProbeState`] right before this instruction.
    pub state: u32,
}

/// Walks through the instructions of one function. Ends early if the map is damaged.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    stream: &'a [u8],
    clone: u64,
    clone_end: u64,
    orig: u64,
    state: u32,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..at + 4) {
        Some(&[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]),
        _ => 0,
    }
}

impl<'a> AddrMap<'a> {
    /// A view of a map's bytes, if the sizes in its header fit them.
    pub fn new(bytes: &'a [u8]) -> Option<AddrMap<'a>> {
        let header = bytes.get(..HEADER)?;
        let functions = (word(header, 0) as usize).checked_mul(ROW)?;
        let states = (word(header, 4) as usize).checked_mul(ROW)?;
        let stream =
            usize::try_from(u64::from(word(header, 8)) | u64::from(word(header, 12)) << 32).ok()?;
        let rest = &bytes[HEADER..];
        if functions > rest.len() {
            return None;
        }
        let (functions, rest) = rest.split_at(functions);
        if states > rest.len() {
            return None;
        }
        let (states, rest) = rest.split_at(states);
        if stream > rest.len() {
            return None;
        }
        let (stream, marks) = rest.split_at(stream);
        Some(AddrMap {
            functions,
            states,
            stream,
            marks,
        })
    }

    /// Number of functions.
    pub fn len(&self) -> usize {
        self.functions.len() / ROW
    }

    /// True if there are no functions.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// The function with this number.
    pub fn function(&self, index: usize) -> Option<MapFunction> {
        let row = self.functions.get(index.checked_mul(ROW)?..)?.get(..ROW)?;
        Some(MapFunction {
            clone_start: word(row, 0),
            clone_end: word(row, 4),
            orig_start: word(row, 8),
            stream: word(row, 12),
        })
    }

    /// The state with this number.
    pub fn state(&self, index: u32) -> Option<ProbeState> {
        let row = self
            .states
            .get((index as usize).checked_mul(ROW)?..)?
            .get(..ROW)?;
        let mut state = ProbeState {
            slots_done: row[0],
            base_reg: row[1],
            base_ahead: row[2],
            flags: row[3],
            saved: [[NO_REG; 2]; 6],
        };
        for (i, pair) in state.saved.iter_mut().enumerate() {
            *pair = [row[4 + 2 * i], row[5 + 2 * i]];
        }
        Some(state)
    }

    /// Walks through one function's instructions.
    pub fn walk(&self, function: usize) -> Option<Walk<'a>> {
        let f = self.function(function)?;
        Some(Walk {
            stream: self.stream.get(f.stream as usize..)?,
            clone: f.clone_start.into(),
            clone_end: f.clone_end.into(),
            orig: f.orig_start.into(),
            state: 0,
        })
    }

    /// Walks through the rest of a function, from the last mark on at which `key` is below `at`.
    fn walk_from(&self, function: usize, at: u64, key: fn(MapMark) -> u32) -> Option<Walk<'a>> {
        let walk = self.walk(function)?;
        let (mut low, mut high) = (0, self.marks.len() / ROW);
        while low < high {
            let middle = low + (high - low) / 2;
            if u64::from(key(self.mark(middle)?)) < at {
                low = middle + 1
            } else {
                high = middle
            }
        }
        let Some(mark) = low.checked_sub(1).and_then(|i| self.mark(i)) else {
            return Some(walk);
        };
        if u64::from(mark.clone) <= walk.clone || u64::from(mark.clone) >= walk.clone_end {
            return Some(walk);
        }
        let stream = self.stream.get(mark.stream as usize..)?;
        Some(Walk {
            stream,
            clone: mark.clone.into(),
            orig: mark.orig.into(),
            state: mark.state,
            ..walk
        })
    }

    fn mark(&self, index: usize) -> Option<MapMark> {
        let row = self.marks.get(index.checked_mul(ROW)?..)?.get(..ROW)?;
        Some(MapMark {
            clone: word(row, 0),
            orig: word(row, 4),
            stream: word(row, 8),
            state: word(row, 12),
        })
    }

    /// Number of the last function for which `key` is at most `at`.
    fn last(&self, at: u64, key: fn(MapFunction) -> u32) -> Option<usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if u64::from(key(self.function(middle)?)) <= at {
                low = middle + 1
            } else {
                high = middle
            }
        }
        low.checked_sub(1)
    }

    /// The clone instruction that starts at link-time address `ip`, and the state there. `None` if
    /// `ip` is not an instruction boundary of a clone.
    pub fn at_clone(&self, ip: u64) -> Option<(Step, ProbeState)> {
        let function = self.last(ip, |f| f.clone_start)?;
        if ip >= u64::from(self.function(function)?.clone_end) {
            return None;
        }
        let mut walk = self.walk_from(function, ip, |m| m.clone)?;
        let mut step = walk.find(|s| s.clone >= ip).filter(|s| s.clone == ip)?;
        let state = self.state(step.state)?;
        if state.flags & STATE_PASSED != 0 {
            let passed = walk.find(|s| s.orig_len > 0)?;
            step.orig = passed.orig + u64::from(passed.orig_len);
        }
        Some((step, state))
    }

    /// The clone instructions of a function from the one at `ip` on.
    pub fn from_clone(&self, ip: u64) -> impl Iterator<Item = Step> + use<'a> {
        let walk = self
            .last(ip, |f| f.clone_start)
            .and_then(|function| self.walk_from(function, ip, |m| m.clone));
        walk.into_iter().flatten().skip_while(move |s| s.clone < ip)
    }

    /// The first clone instruction that belongs to the original instruction at link-time address
    /// `ip` (a probe before it, if there is one), and the state there. `None` if `ip` has no
    /// clone.
    pub fn at_original(&self, ip: u64) -> Option<(Step, ProbeState)> {
        let function = self.last(ip, |f| f.orig_start)?;
        let mut first = None;
        for step in self
            .walk_from(function, ip, |m| m.orig)?
            .skip_while(|s| s.orig < ip)
        {
            if step.orig > ip {
                break;
            }
            if self.has(&step, STATE_BACK | STATE_PASSED) {
                continue;
            }
            let first = *first.get_or_insert(step);
            // Inserted instructions at a function's end belong to the code that follows in memory,
            // not to a clone of it.
            if step.orig_len > 0 {
                return Some((first, self.state(first.state)?));
            }
        }
        None
    }
}

impl AddrMap<'_> {
    /// True if one of these flags is set where the step begins.
    fn has(&self, step: &Step, flags: u8) -> bool {
        // Nearly all instructions are in state 0.
        step.state != 0 && self.state(step.state).is_some_and(|s| s.flags & flags != 0)
    }

    /// True if a function with a clone begins at link-time address `ip`.
    pub fn is_function(&self, ip: u64) -> bool {
        self.last(ip, |f| f.orig_start)
            .and_then(|i| self.function(i))
            .is_some_and(|f| u64::from(f.orig_start) == ip)
    }

    /// The clone address to which code without a clone must return instead of the original address
    /// `ip`. `None` if `ip` is not the instruction behind a call in a translated clone.
    pub fn back_of(&self, ip: u64) -> Option<u64> {
        // The call may be a function's last instruction.
        let function = self.last(ip.checked_sub(1)?, |f| f.orig_start)?;
        let steps = self
            .walk_from(function, ip, |m| m.orig)?
            .skip_while(|s| s.orig < ip)
            .take_while(|s| s.orig == ip);
        steps
            .into_iter()
            .find(|s| self.has(s, STATE_BACK))
            .map(|s| s.clone)
    }
}

impl Walk<'_> {
    /// A mark for the walk's current position, in a map whose stream has `len` bytes.
    pub fn mark(&self, len: usize) -> MapMark {
        MapMark {
            clone: self.clone as u32,
            orig: self.orig as u32,
            stream: (len - self.stream.len()) as u32,
            state: self.state,
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.stream.split_first()?;
        self.stream = rest;
        Some(first)
    }

    fn leb128(&mut self) -> Option<u32> {
        leb128::decode(u32::BITS, || self.byte()).map(|value| value as u32)
    }
}

impl Iterator for Walk<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        while self.clone < self.clone_end {
            let byte = self.byte()?;
            let (orig_len, clone_len) = (byte >> 4, byte & 15);
            match (orig_len, clone_len) {
                (0, 0) => self.state = self.leb128()?,
                (skip, 0) => self.orig += u64::from(skip),
                _ => {
                    let step = Step {
                        clone: self.clone,
                        orig: self.orig,
                        clone_len,
                        orig_len,
                        state: self.state,
                    };
                    self.clone += u64::from(clone_len);
                    self.orig += u64::from(orig_len);
                    return Some(step);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two functions: the first has a probe of two instructions (state 1 between them) before its
    /// second instruction, then 20 bytes without clone; the second has one instruction.
    fn map() -> Vec<u8> {
        let mut out = Vec::new();
        let word = |out: &mut Vec<u8>, v: u32| out.extend_from_slice(&v.to_le_bytes());
        let stream = [
            0x35, 0x04, 0x00, 0x01, 0x07, 0x00, 0x00, 0x24, 0xf0, 0x50, 0x11, 0x11,
        ];
        for v in [2, 2, stream.len() as u32, 0] {
            word(&mut out, v);
        }
        for v in [
            0x9000,
            0x9000 + 5 + 4 + 7 + 4 + 1,
            0x1000,
            0,
            0x9020,
            0x9021,
            0x2000,
            11,
        ] {
            word(&mut out, v);
        }
        out.extend_from_slice(&[0, NO_REG, 0, 0]);
        out.extend_from_slice(&[NO_REG; 12]);
        out.extend_from_slice(&[1, 3, 0, 0, 3, 0]);
        out.extend_from_slice(&[NO_REG; 10]);
        out.extend_from_slice(&stream);
        out
    }

    #[test]
    fn clone_addresses_lead_to_original_ones_and_states() {
        let bytes = map();
        let map = AddrMap::new(&bytes).unwrap();
        let at = |ip| map.at_clone(ip).map(|(s, p)| (s.orig, p.slots_done));
        assert_eq!(at(0x9000), Some((0x1000, 0)));
        assert_eq!(at(0x9001), None, "inside an instruction");
        assert_eq!(
            at(0x9005),
            Some((0x1003, 0)),
            "the probe belongs to the instruction that follows"
        );
        assert_eq!(at(0x9009), Some((0x1003, 1)));
        assert_eq!(at(0x9010), Some((0x1003, 0)));
        assert_eq!(at(0x9014), Some((0x1005 + 20, 0)));
        assert_eq!(at(0x9015), None, "between functions");
        assert_eq!(at(0x9020), Some((0x2000, 0)));
        assert_eq!(at(0x8fff), None);
        assert_eq!(map.at_clone(0x9009).unwrap().1.saved[0], [3, 0]);
    }

    #[test]
    fn original_addresses_lead_to_the_first_clone_instruction() {
        let bytes = map();
        let map = AddrMap::new(&bytes).unwrap();
        let at = |ip| map.at_original(ip).map(|(s, _)| s.clone);
        assert_eq!(at(0x1000), Some(0x9000));
        assert_eq!(at(0x1003), Some(0x9005));
        assert_eq!(at(0x1004), None);
        assert_eq!(at(0x1006), None, "skipped bytes have no clone");
        assert_eq!(at(0x1005 + 20), Some(0x9014));
        assert_eq!(at(0x2000), Some(0x9020));
        assert_eq!(at(0xfff), None);
    }

    #[test]
    fn a_jump_out_at_the_end_is_no_clone_of_what_follows() {
        let mut bytes = map();
        let end = bytes.len();
        // The second function's instruction becomes an inserted one.
        bytes[end - 1] = 0x01;
        let map = AddrMap::new(&bytes).unwrap();
        assert!(map.at_original(0x2000).is_none());
        assert_eq!(map.at_clone(0x9020).unwrap().0.orig, 0x2000);
    }

    #[test]
    fn truncated_maps_are_refused() {
        let bytes = map();
        for len in 0..bytes.len() {
            assert!(
                AddrMap::new(&bytes[..len]).is_none(),
                "{len} bytes were accepted"
            );
        }
    }

    /// A function of 200 instructions: two bytes each, every fifth an inserted one, every seventh
    /// in state 1.
    fn long() -> Vec<u8> {
        let mut stream = Vec::new();
        for i in 0..200u8 {
            stream.extend_from_slice(&[0, u8::from(i % 7 == 0)]);
            stream.push(if i % 5 == 0 { 0x02 } else { 0x12 });
        }
        let mut out = Vec::new();
        for v in [
            1,
            2,
            stream.len() as u32,
            0,
            0x9000,
            0x9000 + 400,
            0x1000,
            0,
        ] {
            out.extend_from_slice(&u32::to_le_bytes(v));
        }
        out.extend_from_slice(&[0, NO_REG, 0, 0]);
        out.extend_from_slice(&[NO_REG; 12]);
        out.extend_from_slice(&[1, 3, 0, 0, 3, 0]);
        out.extend_from_slice(&[NO_REG; 10]);
        out.extend_from_slice(&stream);
        out
    }

    #[test]
    fn marks_change_no_answer() {
        let plain = long();
        let reference = AddrMap::new(&plain).unwrap();
        for every in [1, 3, 32, 199, 200] {
            let mut bytes = plain.clone();
            let mut walk = reference.walk(0).unwrap();
            while walk.by_ref().take(every).count() == every {
                let m = walk.mark(600);
                bytes.extend(
                    [m.clone, m.orig, m.stream, m.state]
                        .into_iter()
                        .flat_map(u32::to_le_bytes),
                );
            }
            let map = AddrMap::new(&bytes).unwrap();
            for ip in 0x8fff..0x9000 + 402 {
                assert_eq!(map.at_clone(ip), reference.at_clone(ip), "{every} {ip:#x}");
            }
            for ip in 0xfff..0x1000 + 170 {
                assert_eq!(
                    map.at_original(ip),
                    reference.at_original(ip),
                    "{every} {ip:#x}"
                );
            }
        }
    }

    #[test]
    fn what_passes_an_instruction_by_belongs_to_the_one_behind() {
        // je 1f (two original bytes); lock (one byte) cmpxchg in four; a jump, in state 1; 1:
        // cmpxchg in three; a return.
        let mut bytes = Vec::new();
        let stream = [0x22, 0x14, 0x00, 0x01, 0x02, 0x00, 0x00, 0x33, 0x11];
        for v in [1, 2, stream.len() as u32, 0, 0x9000, 0x900c, 0x1000, 0] {
            bytes.extend_from_slice(&u32::to_le_bytes(v));
        }
        bytes.extend_from_slice(&[0, NO_REG, 0, 0]);
        bytes.extend_from_slice(&[NO_REG; 12]);
        bytes.extend_from_slice(&[0, NO_REG, 0, STATE_PASSED]);
        bytes.extend_from_slice(&[NO_REG; 12]);
        bytes.extend_from_slice(&stream);
        let map = AddrMap::new(&bytes).unwrap();
        let from = |ip| map.at_clone(ip).map(|(s, _)| s.orig);
        let to = |ip| map.at_original(ip).map(|(s, _)| s.clone);
        assert_eq!(
            [0x9000, 0x9002, 0x9006, 0x9008, 0x900b].map(from),
            [0x1000, 0x1002, 0x1006, 0x1003, 0x1006].map(Some)
        );
        assert_eq!(
            [0x1000, 0x1002, 0x1003, 0x1006].map(to),
            [0x9000, 0x9002, 0x9008, 0x900b].map(Some)
        );
    }

    #[test]
    fn the_way_back_behind_a_call_is_not_where_control_enters() {
        // A call of five bytes; the `call gs:[GS_BACK]` in state 1; a return.
        let mut bytes = Vec::new();
        let stream = [0x55, 0x00, 0x01, 0x08, 0x00, 0x00, 0x11];
        for v in [1, 2, stream.len() as u32, 0, 0x9000, 0x900e, 0x1000, 0] {
            bytes.extend_from_slice(&u32::to_le_bytes(v));
        }
        bytes.extend_from_slice(&[0, NO_REG, 0, 0]);
        bytes.extend_from_slice(&[NO_REG; 12]);
        bytes.extend_from_slice(&[0, NO_REG, 0, STATE_BACK]);
        bytes.extend_from_slice(&[NO_REG; 12]);
        bytes.extend_from_slice(&stream);
        let map = AddrMap::new(&bytes).unwrap();
        assert_eq!(
            map.at_original(0x1005).map(|(s, p)| (s.clone, p.flags)),
            Some((0x900d, 0))
        );
        assert_eq!(map.back_of(0x1005), Some(0x9005));
        assert_eq!(
            map.at_clone(0x9005).map(|(s, p)| (s.orig, p.flags)),
            Some((0x1005, STATE_BACK))
        );
        assert_eq!((map.back_of(0x1000), map.back_of(0x1004)), (None, None));
        assert!(map.is_function(0x1000) && !map.is_function(0x1005));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(mut bytes in proptest::collection::vec(0u8.., 16..200), functions in 0u8..4, states in 0u8..4, ip: u16) {
            bytes[..16].copy_from_slice(&[functions, 0, 0, 0, states, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0]);
            if let Some(map) = AddrMap::new(&bytes) {
                let _ = (map.at_clone(ip.into()), map.at_original(ip.into()));
                for i in 0..map.len() {
                    let _ = map.walk(i).map(|w| w.take(1000).count());
                }
            }
        }
    }
}

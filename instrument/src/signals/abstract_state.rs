//! Known facts about registers and the function's own frame at one point: known bits, places in the
//! frame, and arguments.

use crate::x86::regs::{RSP, gpr};
use iced_x86::{Instruction, Register};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Argument registers in order, by hardware number: rdi, rsi, rdx, rcx, r8, r9.
pub const ARGUMENTS: [u8; 6] = [7, 6, 2, 1, 8, 9];

/// Bit of [`Value::Derived`]: the value is computed from an address in the frame, so it may be any
/// other address there.
pub const FRAME: u8 = 0x40;

/// An abstract value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Bits known to be zero and to be one. If both masks are 0, the value is unknown.
    Bits {
        /// Known zeros.
        zero: u64,
        /// Known ones.
        one: u64,
    },
    /// Address in the frame: offset from rsp at the function's entry.
    Frame(i64),
    /// The argument with this number, as it came in.
    Param(u8),
    /// The low four bytes of the argument with this number, zero- or sign-extended: a number, not
    /// an address.
    Half(u8),
    /// Computed from arguments (bit n: argument n; [`FRAME`]: an address in the frame), or one of
    /// several values of which one is an argument.
    Derived(u8),
}

impl Value {
    /// An unknown value.
    pub const ANY: Value = Value::Bits { zero: 0, one: 0 };

    /// Value of a register that callees may use, after a call: unknown, or the one before the call.
    pub const LEFT_OVER: Value = Value::Derived(0x80);

    /// A constant.
    pub fn constant(value: u64) -> Value {
        Value::Bits {
            zero: !value,
            one: value,
        }
    }

    /// The value as a constant, if it is one.
    pub fn as_constant(self) -> Option<u64> {
        match self {
            Value::Bits { zero, one } if zero | one == u64::MAX => Some(one),
            _ => None,
        }
    }

    /// Upper bound of the value as a number.
    pub fn most(self) -> u64 {
        match self {
            Value::Bits { zero, .. } => !zero,
            _ => u64::MAX,
        }
    }

    /// Arguments (and [`FRAME`]) that it may be computed from, as a bit set.
    pub fn taint(self) -> u8 {
        match self {
            Value::Param(n) | Value::Half(n) => 1 << n,
            Value::Derived(set) => set,
            Value::Frame(_) => FRAME,
            Value::Bits { .. } => 0,
        }
    }

    /// A value of which only the origins are known.
    pub fn from_taint(taint: u8) -> Value {
        if taint == 0 {
            Value::ANY
        } else {
            Value::Derived(taint)
        }
    }

    /// The join of two values.
    pub fn join(self, other: Value) -> Value {
        match (self, other) {
            (a, b) if a == b => a,
            (Value::Bits { zero, one }, Value::Bits { zero: z, one: o }) => Value::Bits {
                zero: zero & z,
                one: one & o,
            },
            (a, b) => Value::from_taint(a.taint() | b.taint()),
        }
    }

    /// The low `bytes`, zero-extended.
    pub fn low(self, bytes: u32) -> Value {
        if bytes >= 8 {
            return self;
        }
        let mask = (1u64 << (8 * bytes)) - 1;
        match self {
            Value::Bits { zero, one } => Value::Bits {
                zero: zero | !mask,
                one: one & mask,
            },
            // Part of an address is an unknown number.
            Value::Frame(_) => Value::Bits {
                zero: !mask,
                one: 0,
            },
            Value::Param(n) | Value::Half(n) if bytes == 4 => Value::Half(n),
            other => Value::Derived(other.taint()),
        }
    }

    /// `self + other`, or `self − other`.
    pub fn add(self, other: Value, minus: bool) -> Value {
        match (self, other.as_constant()) {
            (v, Some(0)) => v,
            (Value::Frame(at), Some(c)) => Value::Frame(if minus {
                at.wrapping_sub(c as i64)
            } else {
                at.wrapping_add(c as i64)
            }),
            (v, None)
                if !minus && v.as_constant().is_some() && matches!(other, Value::Frame(_)) =>
            {
                other.add(self, false)
            }
            (Value::Bits { .. }, _) if matches!(other, Value::Bits { .. }) => {
                self.bitwise(other, if minus { known_difference } else { known_sum })
            }
            (v, _) => Value::from_taint(v.taint() | other.taint()),
        }
    }

    /// Bitwise operations.
    pub fn bitwise(self, other: Value, op: fn((u64, u64), (u64, u64)) -> (u64, u64)) -> Value {
        match (self, other) {
            (Value::Bits { zero, one }, Value::Bits { zero: z, one: o }) => {
                let (zero, one) = op((zero, one), (z, o));
                Value::Bits { zero, one }
            }
            (a, b) => Value::from_taint(a.taint() | b.taint()),
        }
    }
}

/// Known bits of a sum. A bit is known if both bits and the carry into it are known. Carries grow
/// with the lower bits, so a carry is known if the smallest and the largest possible operands give
/// the same one.
fn sum_with_carry(a: (u64, u64), b: (u64, u64), carry: u64) -> (u64, u64) {
    let least = a.1.wrapping_add(b.1).wrapping_add(carry);
    let most = (!a.0).wrapping_add(!b.0).wrapping_add(carry);
    let carries = (least ^ a.1 ^ b.1, most ^ !a.0 ^ !b.0);
    let known = (a.0 | a.1) & (b.0 | b.1) & !(carries.0 ^ carries.1);
    (!least & known, least & known)
}

fn known_sum(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    sum_with_carry(a, b, 0)
}

fn known_difference(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    sum_with_carry(a, (b.1, b.0), 1)
}

/// Longest fill that is tracked byte by byte. Source: Chosen.
const MAX_FILL_BYTES: u64 = 1 << 16;
/// Keys of static memory lie this far above its addresses, far from those of the frame.
const STATIC: i64 = 1 << 40;

/// Key of memory at an address that is tracked: the frame and statics.
pub fn memory_key(address: Value) -> Option<i64> {
    match address {
        Value::Frame(at) => Some(at),
        other => other
            .as_constant()
            .filter(|a| *a < 1 << 32)
            .map(|a| a as i64 + STATIC),
    }
}

/// Known bits (zeros, ones) by byte.
type Bytes = BTreeMap<i64, (u8, u8)>;

/// Registers, frame and statics. There is one for each instruction of a function: states share
/// their equal parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbstractState {
    /// General purpose registers.
    pub regs: [Value; 16],
    /// Vector registers that are zero in all bits that a store of them may write (bit n: register
    /// n).
    pub zero_vectors: u32,
    /// Bits of the bytes that this function wrote. The content of all other bytes comes from
    /// elsewhere.
    bytes: Rc<Bytes>,
    /// Eight-byte words of the frame that hold an address or an argument.
    words: Rc<BTreeMap<i64, Value>>,
    /// True if other code may know an address in the frame.
    pub escaped: bool,
    /// Addresses in the frame that unknown callees got.
    lent: Rc<BTreeSet<i64>>,
    /// Actions that were in force before and still have their handlers.
    saved: Rc<BTreeSet<i64>>,
}

/// Size of glibc's `struct sigaction`, and of the handler at its start, bytes.
const ACTION_BYTES: i64 = 152;
const HANDLER_BYTES: i64 = 8;

impl AbstractState {
    /// State at the function's entry. The arguments in `params` (bit n: argument n) are named.
    pub fn entry(params: u8) -> AbstractState {
        let mut state = AbstractState::unknown();
        state.regs[usize::from(RSP.0)] = Value::Frame(0);
        for (n, &r) in ARGUMENTS
            .iter()
            .enumerate()
            .filter(|(n, _)| params >> n & 1 == 1)
        {
            state.regs[usize::from(r)] = Value::Param(n as u8);
        }
        state
    }

    /// An unknown state.
    pub fn unknown() -> AbstractState {
        AbstractState {
            regs: [Value::ANY; 16],
            zero_vectors: 0,
            bytes: Rc::default(),
            words: Rc::default(),
            escaped: false,
            lent: Rc::default(),
            saved: Rc::default(),
        }
    }

    /// Joins the state of another path to this point. Returns true if that changed anything.
    pub fn join(&mut self, other: &AbstractState) -> bool {
        let regs: [Value; 16] = std::array::from_fn(|r| self.regs[r].join(other.regs[r]));
        let (zero_vectors, escaped) = (
            self.zero_vectors & other.zero_vectors,
            self.escaped | other.escaped,
        );
        let mut changed =
            (regs, zero_vectors, escaped) != (self.regs, self.zero_vectors, self.escaped);
        (self.regs, self.zero_vectors, self.escaped) = (regs, zero_vectors, escaped);
        if !other.lent.is_subset(&self.lent) {
            Rc::make_mut(&mut self.lent).extend(other.lent.iter());
            changed = true;
        }
        if !self.saved.is_subset(&other.saved) {
            Rc::make_mut(&mut self.saved).retain(|at| other.saved.contains(at));
            changed = true;
        }
        changed | join_bytes(&mut self.bytes, &other.bytes) | self.join_words(&other.words)
    }

    fn join_words(&mut self, other: &Rc<BTreeMap<i64, Value>>) -> bool {
        if Rc::ptr_eq(&self.words, other) {
            return false;
        }
        let places: Vec<i64> = self.words.keys().chain(other.keys()).copied().collect();
        let mut changed = false;
        for at in places {
            let mine = self.words.get(&at).copied();
            let joined = match (mine, other.get(&at)) {
                (Some(a), Some(b)) => a.join(*b),
                (Some(v), None) => Value::from_taint(v.taint()),
                (None, Some(v)) => Value::from_taint(v.taint()),
                (None, None) => continue,
            };
            let joined = Some(joined).filter(|v| *v != Value::ANY);
            if joined == mine {
                continue;
            }
            changed = true;
            match joined {
                Some(value) => Rc::make_mut(&mut self.words).insert(at, value),
                None => Rc::make_mut(&mut self.words).remove(&at),
            };
        }
        changed
    }

    /// A register operand of any width, zero-extended.
    pub fn register(&self, register: Register) -> Value {
        let Some(r) = gpr(register) else {
            return Value::ANY;
        };
        let value = self.regs[usize::from(r.0)];
        if is_high(register) {
            Value::from_taint(value.taint())
        } else {
            value.low(register.size() as u32)
        }
    }

    /// Writes a register of any width.
    pub fn set_register(&mut self, register: Register, value: Value) {
        let Some(r) = gpr(register) else { return };
        let place = &mut self.regs[usize::from(r.0)];
        let size = register.size() as u32;
        *place = match (*place, value) {
            _ if size >= 4 => value.low(size),
            _ if is_high(register) => Value::from_taint(place.taint() | value.taint()),
            (Value::Bits { zero, one }, Value::Bits { .. }) => {
                let mask = (1u64 << (8 * size)) - 1;
                let Value::Bits { zero: z, one: o } = value.low(size) else {
                    return;
                };
                Value::Bits {
                    zero: (zero & !mask) | (z & mask),
                    one: (one & !mask) | (o & mask),
                }
            }
            (old, new) => Value::from_taint(old.taint() | new.taint()),
        };
    }

    /// The address of the instruction's memory operand.
    pub fn address(&self, inst: &Instruction) -> Value {
        if inst.is_ip_rel_memory_operand() {
            return Value::constant(inst.ip_rel_memory_address());
        }
        if matches!(inst.segment_prefix(), Register::FS | Register::GS) {
            return Value::from_taint(
                self.register(inst.memory_base()).taint()
                    | self.register(inst.memory_index()).taint(),
            );
        }
        let mut sum = Value::constant(inst.memory_displacement64());
        if inst.memory_base() != Register::None {
            sum = self.register(inst.memory_base()).add(sum, false);
        }
        if inst.memory_index() != Register::None {
            let index = self.register(inst.memory_index());
            let scaled = index
                .as_constant()
                .map(|i| Value::constant(i.wrapping_mul(u64::from(inst.memory_index_scale()))));
            sum = sum.add(scaled.unwrap_or(Value::from_taint(index.taint())), false);
        }
        sum
    }

    /// Content of `size` bytes (at most 8) of the frame, zero-extended.
    pub fn read(&self, at: i64, size: u32) -> Value {
        if size == 8
            && let Some(&v) = self.words.get(&at)
        {
            return v;
        }
        let taint = self
            .words
            .range(at - 7..at + i64::from(size))
            .fold(0, |t, (_, v)| t | v.taint());
        if taint != 0 {
            return Value::Derived(taint);
        }
        let (mut zero, mut one) = (0, 0);
        for i in (0..size.min(8)).rev() {
            let (z, o) = self
                .bytes
                .get(&(at + i64::from(i)))
                .copied()
                .unwrap_or((0, 0));
            (zero, one) = (zero << 8 | u64::from(z), one << 8 | u64::from(o));
        }
        Value::Bits { zero, one }.low(size)
    }

    /// Writes `size` bytes of the frame: the low ones of `value`. Bytes beyond 8 become unknown.
    pub fn write(&mut self, at: i64, size: u32, value: Value) {
        self.forget(at, i64::from(size));
        match value {
            Value::Bits { zero, one } => {
                for i in 0..size.min(MAX_FILL_BYTES as u32) {
                    let byte = if i < 8 {
                        ((zero >> (8 * i)) as u8, (one >> (8 * i)) as u8)
                    } else {
                        (0, 0)
                    };
                    Rc::make_mut(&mut self.bytes).insert(at + i64::from(i), byte);
                }
            }
            _ if size == 8 => {
                Rc::make_mut(&mut self.words).insert(at, value);
            }
            _ if value.taint() != 0 => {
                Rc::make_mut(&mut self.words).insert(at, Value::Derived(value.taint()));
            }
            _ => {}
        }
    }

    /// Fills a part of the frame with one byte value.
    pub fn fill(&mut self, at: i64, size: u64, byte: u8) {
        self.forget(at, size.min(1 << 40) as i64);
        Rc::make_mut(&mut self.bytes)
            .extend((0..size.min(MAX_FILL_BYTES) as i64).map(|i| (at + i, (!byte, byte))));
    }

    /// Drops what is known of a part of the frame.
    pub fn forget(&mut self, at: i64, size: i64) {
        let end = at.saturating_add(size);
        let gone: Vec<i64> = self.bytes.range(at..end.max(at)).map(|(k, _)| *k).collect();
        gone.iter().for_each(|k| {
            Rc::make_mut(&mut self.bytes).remove(k);
        });
        let gone: Vec<i64> = self
            .words
            .range(at.saturating_sub(7)..end.max(at))
            .map(|(k, _)| *k)
            .collect();
        gone.iter().for_each(|k| {
            Rc::make_mut(&mut self.words).remove(k);
        });
        let stays = |&action: &i64| action + HANDLER_BYTES <= at || end <= action;
        if !self.saved.iter().all(stays) {
            Rc::make_mut(&mut self.saved).retain(stays);
        }
    }

    /// Marks an action as the one that was in force before.
    pub fn save(&mut self, at: i64) {
        self.forget(at, ACTION_BYTES);
        Rc::make_mut(&mut self.saved).insert(at);
        self.save_perhaps(at);
    }

    /// True if an action has the handler of an action that was in force before. Its flags are then
    /// that action's too, except for writes by this function.
    pub fn is_saved(&self, at: i64) -> bool {
        self.saved.contains(&at)
    }

    /// Marks an action in the frame as the one that was in force before, although its handler may
    /// be another one.
    pub fn save_perhaps(&mut self, at: i64) {
        if self.is_lent(at) {
            Rc::make_mut(&mut self.lent).retain(|lent| !(at..at + ACTION_BYTES).contains(lent));
        }
    }

    /// Notes that unknown code gets this address in the frame.
    pub fn lend(&mut self, at: i64) {
        Rc::make_mut(&mut self.lent).insert(at);
    }

    /// True if an unknown function may have written an action in the frame.
    pub fn is_lent(&self, at: i64) -> bool {
        self.lent.range(at..at + ACTION_BYTES).next().is_some()
    }

    /// True if code that gets this value can find one of these arguments in the frame, or a value
    /// computed from them. The extents of objects are unknown. An object cannot begin behind an
    /// address that leads to it.
    pub fn leads_to(&self, value: Value, arguments: u8) -> bool {
        let Value::Frame(mut from) = value else {
            return value.taint() & FRAME != 0 && self.frame_taint() & arguments != 0;
        };
        // Addresses found there are followed in turn.
        loop {
            let mut seen = self.words.range(from..STATIC / 2).map(|(_, v)| *v);
            if seen.clone().any(|v| v.taint() & arguments != 0) {
                return true;
            }
            let next = seen
                .clone()
                .filter_map(|v| {
                    if let Value::Frame(at) = v {
                        Some(at)
                    } else {
                        None
                    }
                })
                .min();
            if seen.any(|v| matches!(v, Value::Derived(t) if t & FRAME != 0)) {
                return self.frame_taint() & arguments != 0;
            }
            match next {
                Some(at) if at < from => from = at,
                _ => return false,
            }
        }
    }

    /// Union of the origins of all words of the frame.
    pub fn frame_taint(&self) -> u8 {
        self.words
            .range(..STATIC / 2)
            .fold(0, |t, (_, v)| t | v.taint())
    }

    /// True if stack arguments of the next call may contain one of these arguments. Stack arguments
    /// are consecutive words written by this function.
    pub fn passes_on_stack(&self, arguments: u8) -> bool {
        let Value::Frame(top) = self.regs[usize::from(RSP.0)] else {
            return self.frame_taint() & arguments != 0;
        };
        (top..0)
            .step_by(8)
            .take_while(|&at| self.wrote(at))
            .any(|at| self.read(at, 8).taint() & arguments != 0)
    }

    /// True if this function wrote the byte. Otherwise its content comes from elsewhere.
    pub fn wrote(&self, at: i64) -> bool {
        self.bytes.contains_key(&at) || self.words.range(at - 7..=at).next().is_some()
    }

    /// Drops statics, which other code may have changed.
    pub fn forget_statics(&mut self) {
        self.forget(STATIC / 2, STATIC);
    }

    /// Drops all memory. With `keep`, arguments stay where they were stored, since a store by other
    /// code may not have overwritten them.
    pub fn forget_all(&mut self, keep: bool) {
        (self.bytes, self.saved) = (Rc::default(), Rc::default());
        let words = self.words.iter().filter(|(_, v)| keep && v.taint() != 0);
        self.words = Rc::new(
            words
                .map(|(&at, v)| (at, Value::Derived(v.taint())))
                .collect(),
        );
    }
}

/// Keeps the bits of each byte that are known in both. Returns true if that changed anything.
fn join_bytes(mine: &mut Rc<Bytes>, theirs: &Rc<Bytes>) -> bool {
    if Rc::ptr_eq(mine, theirs) {
        return false;
    }
    // Often all that one side knows is known to the other side.
    let mut others = theirs.iter().peekable();
    let is_known = |(at, &(zero, one)): (&i64, &(u8, u8))| {
        if others.peek().is_some_and(|(key, _)| *key < at) {
            return false;
        }
        let (z, o) = others
            .next_if(|(key, _)| *key == at)
            .map_or((0, 0), |(_, bits)| *bits);
        zero & !z == 0 && one & !o == 0
    };
    if mine.iter().all(is_known) && others.next().is_none() {
        return false;
    }
    let mine = Rc::make_mut(mine);
    for (at, (zero, one)) in &mut *mine {
        let (z, o) = theirs.get(at).copied().unwrap_or((0, 0));
        (*zero, *one) = (*zero & z, *one & o);
    }
    for at in theirs.keys() {
        mine.entry(*at).or_insert((0, 0));
    }
    true
}

fn is_high(register: Register) -> bool {
    matches!(
        register,
        Register::AH | Register::BH | Register::CH | Register::DH
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(zero: u64, one: u64) -> Value {
        Value::Bits { zero, one }
    }

    #[test]
    fn sums_of_partly_known_values_are_right_for_every_value() {
        // All 4-bit patterns of known bits, against all values that fit them.
        let patterns: Vec<(u64, u64)> = (0..16u64)
            .flat_map(|known| (0..16u64).map(move |v| (known & !v, known & v)))
            .collect();
        let fits = |v: u64, p: (u64, u64)| v & p.0 == 0 && v & p.1 == p.1;
        let high = !15u64;
        for &a in &patterns {
            for &b in &patterns {
                for minus in [false, true] {
                    let Value::Bits { zero, one } =
                        bits(a.0 | high, a.1).add(bits(b.0 | high, b.1), minus)
                    else {
                        panic!()
                    };
                    for x in (0..16).filter(|&x| fits(x, a)) {
                        for y in (0..16).filter(|&y| fits(y, b)) {
                            let r = if minus { x.wrapping_sub(y) } else { x + y };
                            assert!(
                                r & zero == 0 && r & one == one,
                                "{a:?} {b:?} {minus}: {x} and {y} give {r:#x}, known {zero:#x} {one:#x}"
                            );
                        }
                    }
                }
            }
        }
        assert_eq!(
            Value::constant(7)
                .add(Value::constant(9), true)
                .as_constant(),
            Some(-2i64 as u64)
        );
        assert_eq!(
            Value::Frame(-8).add(Value::constant(24), false),
            Value::Frame(16)
        );
    }

    #[test]
    fn the_frame_is_known_by_the_byte() {
        let mut s = AbstractState::entry(0);
        s.fill(-152, 152, 0);
        s.write(-16, 4, Value::constant(0x0800_0000));
        assert_eq!(s.read(-16, 4).as_constant(), Some(0x0800_0000));
        assert_eq!(s.read(-152, 8).as_constant(), Some(0));
        s.write(-14, 2, Value::ANY);
        assert_eq!(s.read(-16, 2).as_constant(), Some(0));
        assert_eq!(s.read(-16, 4).as_constant(), None);
        assert!(s.wrote(-14) && !s.wrote(0));
        s.write(-152, 8, Value::Param(2));
        assert_eq!(s.read(-152, 8), Value::Param(2));
        assert_eq!(s.read(-148, 4), Value::Derived(4), "part of an argument");
        s.forget(-145, 1);
        assert_eq!(s.read(-152, 8), Value::ANY);
    }

    #[test]
    fn ways_that_meet_know_what_both_know() {
        let mut a = AbstractState::entry(1 << 2);
        let mut b = a.clone();
        a.write(-16, 4, Value::constant(0x1000_0000));
        b.write(-16, 4, Value::constant(2));
        b.regs[0] = Value::Param(2);
        assert!(a.join(&b));
        assert_eq!(a.read(-16, 4).low(1), Value::Bits { zero: !2, one: 0 });
        assert_eq!(a.regs[0], Value::Derived(4));
        assert_eq!(a.regs[2], Value::Param(2));
        assert!(!a.join(&b), "nothing new");
    }
}

//! Abstract values of registers and the frame at a point of a function.

use crate::discover::self_reads::{ARGUMENTS, FIRST_ARGUMENT_BIT};
use std::collections::BTreeMap;
use std::rc::Rc;

/// May be no code address on some other path: a buffer, for instance.
pub(super) const JOINED: u8 = 1;
/// May have been overwritten by a callee that got the address.
pub(super) const STALE: u8 = 2;
/// Numbers below this are no addresses: null, and other special values.
const LOWEST_ADDRESS: u64 = 4096;
/// Maximum number of words of the frame that are followed. (Compiled functions seldom have more
/// than fifty code addresses in their frames; further ones are dropped.)
const MAX_SLOTS: usize = 256;
/// With this many words of the frame, numbers and addresses of the frame are no longer kept.
const MANY_SLOTS: usize = 64;

/// Facts about a value besides the addresses of code that it is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fact {
    #[default]
    None,
    /// The number that it is.
    Number(u64),
    /// The address of a table of functions.
    TableStart(u64),
    /// An address in the table of functions at this address.
    InTable(u64),
    /// The address of this word of the frame.
    Frame(i64),
}

/// Possible content of a register or a word of the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Value {
    /// Bits of the code addresses that it may be made of; arguments from bit [`FIRST_ARGUMENT_BIT`]
    /// on.
    pub(super) sources: u64,
    pub(super) fact: Fact,
    /// [`INFO`](super::INFO), [`HEADER`](super::HEADER), [`SEGMENT`](super::SEGMENT),
    /// [`FLAGS`](super::FLAGS): the value's role in `dl_iterate_phdr`.
    pub(super) kind: u8,
    /// [`JOINED`], [`STALE`].
    pub(super) doubt: u8,
}

impl Value {
    /// A number without another role.
    pub(super) fn of_number(number: u64) -> Value {
        Value {
            fact: Fact::Number(number),
            ..Value::default()
        }
    }

    pub(super) fn number(self) -> Option<u64> {
        match self.fact {
            Fact::Number(number) | Fact::TableStart(number) => Some(number),
            _ => None,
        }
    }

    /// The table of functions that it points into.
    pub(super) fn table(self) -> Option<u64> {
        match self.fact {
            Fact::TableStart(table) | Fact::InTable(table) => Some(table),
            _ => None,
        }
    }

    /// The word of the frame that it points to.
    pub(super) fn frame(self) -> Option<i64> {
        match self.fact {
            Fact::Frame(slot) => Some(slot),
            _ => None,
        }
    }

    pub(super) fn join(self, other: Value) -> Value {
        if self == other {
            return self;
        }
        let null = |v: Value| v.number().is_some_and(|n| n < LOWEST_ADDRESS);
        let is_other = |v: Value| v.sources == 0 && !null(v);
        let joined = if is_other(self) == is_other(other) {
            0
        } else {
            JOINED
        };
        let fact = match (self.fact, other.fact) {
            // (The content after a call is unknown. It may be unchanged.)
            (fact, Fact::None) | (Fact::None, fact) => fact,
            (a, b) if a == b => a,
            (Fact::Frame(_), Fact::Frame(_)) => Fact::None,
            (frame @ Fact::Frame(_), _) | (_, frame @ Fact::Frame(_)) => frame,
            _ => shared_table(self, other),
        };
        Value {
            sources: self.sources | other.sources,
            fact,
            kind: self.kind | other.kind,
            doubt: self.doubt | other.doubt | joined,
        }
    }

    /// A value made of both.
    pub(super) fn combined_with(self, other: Value) -> Value {
        Value {
            sources: self.sources | other.sources,
            fact: shared_table(self, other),
            kind: self.kind | other.kind,
            doubt: self.doubt | other.doubt,
        }
    }

    /// The value with another, unknown offset.
    pub(super) fn with_unknown_offset(self) -> Value {
        self.combined_with(Value::default())
    }

    pub(super) fn is_stale(self) -> bool {
        self.doubt & STALE != 0
    }

    pub(super) fn is_followed(self) -> bool {
        self.sources != 0 || self.kind != 0 || self.frame().is_some()
    }
}

/// The table that both values point into. If only one points into a table, that one.
fn shared_table(a: Value, b: Value) -> Fact {
    match (a.table(), b.table()) {
        (Some(a), Some(b)) if a != b => Fact::None,
        (a, b) => a.or(b).map_or(Fact::None, Fact::InTable),
    }
}

/// The words of a vector register of up to 32 bytes. Addresses may be in them.
pub(super) type Lanes = [Value; 4];

/// Each word of the result may be made of any word of both.
pub(super) fn mixed(a: Lanes, b: Lanes) -> Lanes {
    let all = a.into_iter().chain(b);
    [all.fold(Value::default(), Value::combined_with); 4]
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) regs: [Value; 16],
    /// Vector registers, through which addresses may be copied to the frame. `None`: they are
    /// empty.
    vectors: Option<Rc<[Lanes; 16]>>,
    /// Words of the frame, by their distance from the return address.
    slots: Rc<BTreeMap<i64, Value>>,
    /// Distance of the stack pointer below the return address, if it is known.
    pub(super) depth: Option<i64>,
    /// From this word on, other code may write the frame, since its address was put into memory.
    pub(super) escaped: Option<i64>,
}

impl State {
    /// State at the start of a function.
    pub(super) fn entry() -> State {
        let mut state = State {
            depth: Some(0),
            ..State::default()
        };
        for (n, &register) in ARGUMENTS.iter().enumerate() {
            state.regs[register].sources = 1 << (FIRST_ARGUMENT_BIT + n as u32);
        }
        state
    }

    pub(super) fn slot(&self, at: i64) -> Option<Value> {
        self.slots.get(&at).copied()
    }

    /// Stores a value in a word of the frame.
    pub(super) fn keep(&mut self, at: i64, value: Value) {
        let many = self.slots.len() >= MANY_SLOTS;
        let counts = value.sources != 0 || value.kind != 0 || value.fact != Fact::None && !many;
        if counts && self.slots.len() < MAX_SLOTS {
            Rc::make_mut(&mut self.slots).insert(at, value);
        } else if self.slots.contains_key(&at) {
            Rc::make_mut(&mut self.slots).remove(&at);
        }
        if let Some(slot) = value.frame() {
            self.escape(slot);
        }
    }

    /// Notes that the address of a word of the frame is in memory.
    pub(super) fn escape(&mut self, slot: i64) {
        self.escaped = Some(self.escaped.map_or(slot, |known| known.min(slot)));
    }

    /// Notes that a callee may write the frame from this word on.
    pub(super) fn doubt_from(&mut self, slot: i64) {
        let fresh = |v: &Value| v.sources != 0 && v.doubt & STALE == 0;
        if self.slots.range(slot..).any(|(_, v)| fresh(v)) {
            for (_, value) in Rc::make_mut(&mut self.slots).range_mut(slot..) {
                value.doubt |= STALE;
            }
        }
    }

    pub(super) fn vector(&self, n: usize) -> Lanes {
        self.vectors.as_ref().map_or(Lanes::default(), |v| v[n])
    }

    pub(super) fn put_vector(&mut self, n: usize, value: Lanes) {
        if self.vectors.is_some() || value != Lanes::default() {
            Rc::make_mut(self.vectors.get_or_insert_default())[n] = value;
        }
    }

    pub(super) fn forget_vectors(&mut self) {
        self.vectors = None;
    }

    /// Joins the state of another path to this instruction.
    pub(super) fn join(&mut self, other: &State) {
        for (own, other) in self.regs.iter_mut().zip(&other.regs) {
            *own = own.join(*other);
        }
        if self.vectors != other.vectors {
            for n in 0..16 {
                let (own, other) = (self.vector(n), other.vector(n));
                self.put_vector(n, std::array::from_fn(|w| own[w].join(other[w])));
            }
        }
        if self.depth != other.depth {
            self.depth = None;
        }
        if let Some(slot) = other.escaped {
            self.escape(slot);
        }
        if Rc::ptr_eq(&self.slots, &other.slots) || self.slots == other.slots {
            return;
        }
        // A value that is unknown on one path may be known on the other.
        let own = Rc::make_mut(&mut self.slots);
        for (slot, value) in own.iter_mut() {
            *value = value.join(other.slot(*slot).unwrap_or_default());
        }
        for (slot, value) in other.slots.iter() {
            if own.len() >= MAX_SLOTS {
                break;
            }
            own.entry(*slot)
                .or_insert_with(|| value.join(Value::default()));
        }
    }
}

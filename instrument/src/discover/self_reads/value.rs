//! What registers and the frame may hold on one way through a function.

use crate::discover::self_reads::{ARGUMENTS, FIRST};
use std::collections::BTreeMap;

/// What a register or a word of the frame may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Value {
    /// Addresses of code that it may be made of: a bit each; arguments from bit [`FIRST`] on.
    pub(super) from: u64,
    pub(super) kind: u8,
    /// The number that it is.
    pub(super) number: Option<u64>,
    /// It points into a table of functions, which begins there.
    pub(super) table: Option<u64>,
    /// It is the address of this word of the frame.
    pub(super) frame: Option<i64>,
}

impl Value {
    pub(super) fn join(self, other: Value) -> Value {
        // (What a call leaves is not known; it may be what was there.)
        let number = match (self.number, other.number) {
            (Some(a), Some(b)) if a != b => None,
            (a, b) => a.or(b),
        };
        let same = |a: Option<i64>, b: Option<i64>| {
            if a.is_some() && b.is_some() && a != b {
                None
            } else {
                a.or(b)
            }
        };
        Value {
            number,
            frame: same(self.frame, other.frame),
            ..self.with(other)
        }
    }

    /// Made of both.
    pub(super) fn with(self, other: Value) -> Value {
        Value {
            from: self.from | other.from,
            kind: self.kind | other.kind,
            number: None,
            table: match (self.table, other.table) {
                (Some(a), Some(b)) if a != b => None,
                (a, b) => a.or(b),
            },
            frame: None,
        }
    }

    pub(super) fn is_followed(self) -> bool {
        self.from != 0 || self.kind != 0 || self.frame.is_some()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) regs: [Value; 16],
    /// Vector registers, in which two addresses may be on their way to the frame.
    pub(super) vectors: [Value; 16],
    /// Words of the frame, by their distance from where the return address lies.
    pub(super) slots: BTreeMap<i64, Value>,
    /// How far the stack pointer is below that, if that is known.
    pub(super) depth: Option<i64>,
}

impl State {
    /// Where a function begins.
    pub(super) fn entry() -> State {
        let mut state = State {
            depth: Some(0),
            ..State::default()
        };
        for (n, &register) in ARGUMENTS.iter().enumerate() {
            state.regs[register].from = 1 << (FIRST + n as u32);
        }
        state
    }

    /// Takes in another way to get here.
    pub(super) fn join(&mut self, other: &State) {
        for (own, other) in self.regs.iter_mut().zip(&other.regs) {
            *own = own.join(*other);
        }
        for (own, other) in self.vectors.iter_mut().zip(&other.vectors) {
            *own = own.join(*other);
        }
        if self.depth != other.depth {
            self.depth = None;
        }
        for (slot, value) in &other.slots {
            // What is not known on one way may be what is known on the other.
            let own = self.slots.entry(*slot).or_insert(*value);
            *own = own.join(*value);
        }
    }
}

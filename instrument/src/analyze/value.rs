//! Values in data flow: sums of atoms with constant factors.
//!
//! They are used for classes only. Widths are ignored (an index that wraps at 32 bits still counts
//! as affine), and memory keeps its value unless a known store changes it.

use crate::analyze::params::MAX_ATOMS_OF_SUM;
use crate::ir::loops::LoopId;
use crate::util::fast_hash::{FastHasher, FastMap};
use std::hash::Hasher;

/// Number of a value: of a sum, or, with [`ATOM`], of an atom.
pub type Val = u32;
/// Most values are atoms, which have no stored sum.
const ATOM: Val = 1 << 31;
/// Number of an atom.
pub type Atom = u32;

/// Kind of an atom. `block` is the block in which the atom gets its value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AtomKind {
    /// A variable at the function's entry.
    Entry(u32),
    /// rsp at entry.
    Frame,
    /// A value computed in a way that is not followed.
    Opaque {
        /// Block that computes the value.
        block: u32,
    },
    /// A variable at a loop's header.
    Phi {
        /// The loop.
        of: LoopId,
        /// The variable.
        var: u32,
    },
    /// A result that depends only on its inputs.
    Pure {
        /// Block that computes the value.
        block: u32,
        /// Inputs.
        inputs: [Val; 2],
    },
    /// A product.
    Product {
        /// Block that computes the value.
        block: u32,
        /// Factors.
        inputs: [Val; 2],
    },
    /// Content of memory.
    Load {
        /// Block of the load.
        block: u32,
        /// Address.
        address: Val,
    },
}

/// `constant + Σ factor·atom`, sorted by atom, no factor 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Constant part.
    pub constant: i64,
    count: u8,
    terms: [(Atom, i64); MAX_ATOMS_OF_SUM],
}

impl Sum {
    fn hash(&self) -> u64 {
        let mut state = FastHasher::default();
        state.write_i64(self.constant);
        for &(atom, factor) in self.terms() {
            state.write_i64(factor.rotate_left(32) ^ i64::from(atom));
        }
        state.finish()
    }

    /// An atom.
    fn atom(atom: Atom) -> Sum {
        let mut sum = Sum {
            constant: 0,
            count: 1,
            terms: [(0, 0); MAX_ATOMS_OF_SUM],
        };
        sum.terms[0] = (atom, 1);
        sum
    }

    /// A constant.
    pub fn constant(constant: i64) -> Sum {
        Sum {
            constant,
            count: 0,
            terms: [(0, 0); MAX_ATOMS_OF_SUM],
        }
    }

    /// Atoms with their factors.
    pub fn terms(&self) -> &[(Atom, i64)] {
        &self.terms[..usize::from(self.count)]
    }

    /// `self + factor·other`; `None` if there are too many atoms.
    pub fn plus(&self, other: &Sum, factor: i64) -> Option<Sum> {
        let mut sum = Sum::constant(
            self.constant
                .wrapping_add(other.constant.wrapping_mul(factor)),
        );
        let (mut a, mut b) = (
            self.terms().iter().copied().peekable(),
            other.terms().iter().copied().peekable(),
        );
        loop {
            let (atom, f) = match (a.peek().copied(), b.peek().copied()) {
                (None, None) => return Some(sum),
                (Some(x), y) if y.is_none_or(|y| x.0 < y.0) => {
                    a.next();
                    x
                }
                (x, Some(y)) if x.is_none_or(|x| y.0 < x.0) => {
                    b.next();
                    (y.0, y.1.wrapping_mul(factor))
                }
                (Some(x), Some(y)) => {
                    a.next();
                    b.next();
                    (x.0, x.1.wrapping_add(y.1.wrapping_mul(factor)))
                }
                (Some(x), None) => {
                    a.next();
                    x
                }
                (None, Some(y)) => {
                    b.next();
                    (y.0, y.1.wrapping_mul(factor))
                }
            };
            if f == 0 {
                continue;
            }
            let at = usize::from(sum.count);
            *sum.terms.get_mut(at)? = (atom, f);
            sum.count += 1;
        }
    }
}

/// All values of a function.
#[derive(Debug, Default)]
pub struct Values {
    sums: Vec<Sum>,
    /// A hash table with a power of two of places: numbers of sums plus one, or 0. Sums are large,
    /// so each is stored once.
    of_sum: Vec<u32>,
    atoms: Vec<AtomKind>,
    /// By region of code and address.
    of_load: FastMap<(u32, Val), Atom>,
    /// Opaque atoms that are one of two values, by atom.
    meetings: Vec<(Atom, [Val; 2])>,
}

impl Values {
    /// An empty set of values with room for this many instructions.
    pub fn with_room(insns: usize) -> Values {
        let of_sum = vec![0; insns.next_power_of_two().max(64)];
        Values {
            atoms: Vec::with_capacity(insns + insns / 2),
            sums: Vec::with_capacity(insns / 2),
            of_sum,
            ..Values::default()
        }
    }

    /// Number of the sum.
    pub fn intern(&mut self, sum: Sum) -> Val {
        if let ([(atom, 1)], 0) = (sum.terms(), sum.constant) {
            return self.of_atom(*atom);
        }
        if 2 * self.sums.len() >= self.of_sum.len() {
            self.widen();
        }
        let mut at = self.place(&sum);
        while let Some(number) = self.of_sum[at].checked_sub(1) {
            if self.sums[number as usize] == sum {
                return number;
            }
            at = (at + 1) & (self.of_sum.len() - 1);
        }
        self.sums.push(sum);
        self.of_sum[at] = self.sums.len() as u32;
        self.sums.len() as Val - 1
    }

    /// First slot in the search for a sum's number.
    fn place(&self, sum: &Sum) -> usize {
        sum.hash() as usize & (self.of_sum.len() - 1)
    }

    /// Grows the table, which is at most half full.
    fn widen(&mut self) {
        self.of_sum = vec![0; (2 * self.of_sum.len()).max(64)];
        for (sum, number) in self.sums.iter().zip(1..) {
            let mut at = self.place(sum);
            while self.of_sum[at] != 0 {
                at = (at + 1) & (self.of_sum.len() - 1);
            }
            self.of_sum[at] = number;
        }
    }

    /// A value's sum.
    pub fn sum(&self, v: Val) -> Sum {
        if v & ATOM != 0 {
            Sum::atom(v & !ATOM)
        } else {
            self.sums[v as usize]
        }
    }

    /// A constant.
    pub fn constant(&mut self, c: i64) -> Val {
        self.intern(Sum::constant(c))
    }

    /// The value as a constant, if it is one.
    pub fn as_constant(&self, v: Val) -> Option<i64> {
        if v & ATOM != 0 {
            return None;
        }
        let s = &self.sums[v as usize];
        s.terms().is_empty().then_some(s.constant)
    }

    /// The value as an atom, if it is one.
    pub fn as_atom(&self, v: Val) -> Option<Atom> {
        (v & ATOM != 0).then_some(v & !ATOM)
    }

    /// An atom's kind.
    pub fn kind(&self, a: Atom) -> &AtomKind {
        &self.atoms[a as usize]
    }

    /// A new atom as a value.
    pub fn atom(&mut self, kind: AtomKind) -> Val {
        self.atoms.push(kind);
        self.of_atom(self.atoms.len() as Atom - 1)
    }

    /// An atom as a value.
    pub fn of_atom(&self, atom: Atom) -> Val {
        atom | ATOM
    }

    /// An unknown value.
    pub fn opaque(&mut self, block: u32) -> Val {
        self.atom(AtomKind::Opaque { block })
    }

    /// One of two values, from two paths that meet at `block`.
    pub fn meeting(&mut self, block: u32, values: [Val; 2]) -> Val {
        let v = self.opaque(block);
        self.meetings.push((self.atoms.len() as Atom - 1, values));
        v
    }

    /// The values that meet in an atom.
    pub fn met(&self, a: Atom) -> Option<[Val; 2]> {
        let at = self.meetings.binary_search_by_key(&a, |m| m.0).ok()?;
        Some(self.meetings[at].1)
    }

    /// Content of memory at `address`, loaded in `block`. Loads in the same `region` of code have
    /// the same value.
    pub fn load(&mut self, block: u32, region: u32, address: Val) -> Val {
        if let Some(&atom) = self.of_load.get(&(region, address)) {
            return self.of_atom(atom);
        }
        let v = self.atom(AtomKind::Load { block, address });
        self.of_load
            .insert((region, address), self.atoms.len() as Atom - 1);
        v
    }

    /// `a + factor·b`.
    pub fn plus(&mut self, block: u32, a: Val, b: Val, factor: i64) -> Val {
        match self.sum(a).plus(&self.sum(b), factor) {
            Some(sum) => self.intern(sum),
            None => self.atom(AtomKind::Pure {
                block,
                inputs: [a, b],
            }),
        }
    }

    /// `v + constant`.
    pub fn offset(&mut self, v: Val, constant: i64) -> Val {
        if constant == 0 {
            return v;
        }
        let mut sum = self.sum(v);
        sum.constant = sum.constant.wrapping_add(constant);
        self.intern(sum)
    }

    /// `factor·v`.
    pub fn times(&mut self, block: u32, v: Val, factor: i64) -> Val {
        let zero = self.constant(0);
        self.plus(block, zero, v, factor)
    }

    /// `a·b`.
    pub fn product(&mut self, block: u32, a: Val, b: Val) -> Val {
        match (self.as_constant(a), self.as_constant(b)) {
            (_, Some(c)) => self.times(block, a, c),
            (Some(c), _) => self.times(block, b, c),
            _ => self.atom(AtomKind::Product {
                block,
                inputs: [a, b],
            }),
        }
    }
}

//! Finds phis that are induction variables, and the change of an address per iteration.

use crate::analyze::class::Class;
use crate::analyze::dataflow::Flow;
use crate::analyze::params::{MAX_DEPTH_OF_DEPENDENCE, MAX_JOINS_OF_PHI};
use crate::analyze::value::{Atom, AtomKind, Val};
use crate::ir::loops::{LoopId, NO_LOOP};
use mgz_annotations_schema::sidecar::{CLASS_IRREGULAR, CLASS_STRIDED};

/// Kind of a phi.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phi {
    /// Not resolved yet, or none of the others.
    Other,
    /// Equal in every iteration, at least from the second one on.
    Invariant(Val),
    /// Changes by the same value in every iteration.
    Stride(Val),
    /// Copies an induction variable, so it moves by a constant from the second iteration on. The
    /// constant is 0 if the copied value does not vary but differs from the one on entry.
    Follows(Stride),
}

/// Change per iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stride {
    /// Bytes.
    Known(i64),
    /// Equal in every iteration, but not a constant.
    Symbolic,
}

impl Stride {
    fn plus(self, other: Stride, factor: i64) -> Stride {
        match (self, other) {
            (Stride::Known(a), Stride::Known(b)) => {
                Stride::Known(a.wrapping_add(b.wrapping_mul(factor)))
            }
            _ => Stride::Symbolic,
        }
    }
}

impl Flow<'_> {
    /// Class of an address by the innermost loop in which it varies; `None` if it varies in none.
    pub(crate) fn stride_class(&mut self, v: Val, innermost: LoopId) -> Option<Class> {
        let mut l = innermost;
        while l != NO_LOOP {
            if self.varies(v, l, 0) {
                match self.step(v, l, 0) {
                    Some(Stride::Known(0)) => {}
                    Some(Stride::Known(s)) => {
                        return Some(Class {
                            class: CLASS_STRIDED,
                            stride: Some(s),
                        });
                    }
                    Some(Stride::Symbolic) => {
                        return Some(Class {
                            class: CLASS_STRIDED,
                            stride: None,
                        });
                    }
                    None => {
                        return Some(Class {
                            class: CLASS_IRREGULAR,
                            stride: None,
                        });
                    }
                }
            }
            l = self.loops.all[l as usize].parent;
        }
        None
    }

    /// Step of an address per iteration of the loop around the one in which the address varies.
    /// Both loops must move it regularly, and the inner one starts anew in each iteration of the
    /// outer one. The number of bytes may be unknown.
    pub(crate) fn outer_step(
        &mut self,
        block: usize,
        insn: usize,
        n: usize,
        access: &crate::x86::operands::OperandAccess,
    ) -> Option<Option<i64>> {
        let v = self.value_of(block, insn, n, access)?;
        let v = self.normal(v);
        let mut l = self.loops.of_block[block];
        while l != NO_LOOP && !self.varies(v, l, 0) {
            l = self.loops.all[l as usize].parent;
        }
        let outer = self.loops.all.get(l as usize)?.parent;
        if outer == NO_LOOP {
            return None;
        }
        let begin = self.at_begin(v, l, 0)?;
        match self.step(begin, outer, 0)? {
            Stride::Known(step) => Some(Some(step)),
            Stride::Symbolic => Some(None),
        }
    }

    /// Value of `v` when a loop is entered.
    fn at_begin(&mut self, v: Val, l: LoopId, depth: u32) -> Option<Val> {
        if depth > MAX_DEPTH_OF_DEPENDENCE {
            return None;
        }
        let sum = self.values.sum(v);
        let mut new = self.values.constant(sum.constant);
        for &(atom, factor) in sum.terms() {
            let part = match *self.values.kind(atom) {
                AtomKind::Phi { of, var } if of == l => {
                    let entry = self.at_entry(l, var as usize);
                    self.normal_at(entry, depth + 1)
                }
                AtomKind::Product { block, inputs } if self.loops.contains(l, block) => {
                    let [a, b] = inputs.map(|input| self.at_begin(input, l, depth + 1));
                    self.values.product(block, a?, b?)
                }
                _ => self.values.of_atom(atom),
            };
            let sum = self.values.sum(new).plus(&self.values.sum(part), factor)?;
            new = self.values.intern(sum);
        }
        Some(new)
    }

    /// The value with invariant phis replaced by their values on entry.
    pub(crate) fn normal(&mut self, v: Val) -> Val {
        self.normal_at(v, 0)
    }

    fn normal_at(&mut self, v: Val, depth: u32) -> Val {
        if self
            .values
            .as_atom(v)
            .is_some_and(|atom| !matches!(self.values.kind(atom), AtomKind::Phi { .. }))
        {
            return v;
        }
        let sum = self.values.sum(v);
        if depth > MAX_DEPTH_OF_DEPENDENCE
            || !sum
                .terms()
                .iter()
                .any(|t| matches!(self.values.kind(t.0), AtomKind::Phi { .. }))
        {
            return v;
        }
        let mut new = self.values.constant(sum.constant);
        for &(atom, factor) in sum.terms() {
            let part = match self.phi(atom, depth + 1) {
                Some(Phi::Invariant(entry)) => self.normal_at(entry, depth + 1),
                _ => self.values.of_atom(atom),
            };
            new = match self.values.sum(new).plus(&self.values.sum(part), factor) {
                Some(s) => self.values.intern(s),
                None => return v,
            };
        }
        new
    }

    /// Resolves an atom if it is a phi.
    fn phi(&mut self, atom: Atom, depth: u32) -> Option<Phi> {
        let AtomKind::Phi { of, var } = *self.values.kind(atom) else {
            return None;
        };
        if let Some(&known) = self.resolved.get(&atom) {
            return Some(known);
        }
        if depth > MAX_DEPTH_OF_DEPENDENCE {
            return Some(Phi::Other);
        }
        self.resolved.insert(atom, Phi::Other);
        let phi = self.resolve(atom, of, var, depth);
        self.resolved.insert(atom, phi);
        Some(phi)
    }

    fn resolve(&mut self, atom: Atom, of: LoopId, var: u32, depth: u32) -> Phi {
        let entry = self.at_entry(of, var as usize);
        let me = self.values.of_atom(atom);
        let mut steps: Vec<Val> = Vec::new();
        let mut follows: Vec<Stride> = Vec::new();
        let mut reloads: Vec<Val> = Vec::new();
        let loops = self.loops;
        let latches = loops.all[of as usize].latches.iter();
        let mut latches: Vec<Val> = latches
            .filter_map(|&latch| self.at_latch(latch, var as usize))
            .collect();
        let mut met = 0;
        while let Some(latch) = latches.pop() {
            let latch = self.normal_at(latch, depth + 1);
            // Paths that meet inside of the loop are different paths through an iteration, like
            // back edges.
            if met < MAX_JOINS_OF_PHI
                && let Some(both) = self.meeting_in(latch, of)
            {
                met += 1;
                latches.extend(both);
                continue;
            }
            let own = self
                .values
                .sum(latch)
                .terms()
                .iter()
                .find(|t| t.0 == atom)
                .map(|t| t.1);
            if own == Some(1) {
                let Some(rest) = self.values.sum(latch).plus(&self.values.sum(me), -1) else {
                    return Phi::Other;
                };
                let rest = self.values.intern(rest);
                // A call that changes the step would have a large effect.
                let strict = std::mem::replace(&mut self.strict, true);
                let varies = self.varies(rest, of, depth + 1);
                self.strict = strict;
                if varies {
                    return Phi::Other;
                }
                steps.push(rest);
            } else if self.is_reload(latch, of, depth) {
                reloads.push(latch);
            } else if own.is_none()
                && let Some(step) = self.step(latch, of, depth + 1)
            {
                follows.push(step);
            } else {
                return Phi::Other;
            }
        }
        match (&steps[..], &follows[..], &reloads[..]) {
            ([first, rest @ ..], [], []) if rest.iter().all(|s| s == first) => {
                if self.values.as_constant(*first) == Some(0) {
                    Phi::Invariant(entry)
                } else {
                    Phi::Stride(*first)
                }
            }
            // The value is constant from the second iteration or the first reload on. (A loaded
            // value is never fixed, unlike the value on entry.)
            (kept, [], [first, rest @ ..])
                if rest.iter().all(|v| v == first) && self.are_zero(kept) =>
            {
                Phi::Invariant(*first)
            }
            ([], [first, rest @ ..], []) if rest.iter().all(|s| s == first) => Phi::Follows(*first),
            (kept, [Stride::Known(0), rest @ ..], _)
                if rest.iter().all(|s| *s == Stride::Known(0)) && self.are_zero(kept) =>
            {
                Phi::Follows(Stride::Known(0))
            }
            _ => Phi::Other,
        }
    }

    fn are_zero(&self, steps: &[Val]) -> bool {
        let zero = |s: &Val| self.values.as_constant(*s) == Some(0);
        steps.iter().all(zero)
    }

    /// The two values that `v` may be, depending on the path through an iteration of the loop.
    fn meeting_in(&self, v: Val, l: LoopId) -> Option<[Val; 2]> {
        let atom = self.values.as_atom(v)?;
        let &AtomKind::Opaque { block } = self.values.kind(atom) else {
            return None;
        };
        let inside = self.loops.contains(l, block);
        inside.then(|| self.values.met(atom)).flatten()
    }

    /// True if the back edge's value is loaded again in each iteration and does not vary.
    fn is_reload(&mut self, latch: Val, l: LoopId, depth: u32) -> bool {
        self.values
            .as_atom(latch)
            .is_some_and(|atom| matches!(self.values.kind(atom), AtomKind::Load { .. }))
            && !self.varies(latch, l, depth + 1)
    }

    /// True if the value may differ between two iterations of loop `l`.
    pub(crate) fn varies(&mut self, v: Val, l: LoopId, depth: u32) -> bool {
        if let Some(atom) = self.values.as_atom(v) {
            return self.atom_varies(atom, l, depth);
        }
        let sum = self.values.sum(v);
        sum.terms().iter().any(|t| self.atom_varies(t.0, l, depth))
    }

    fn atom_varies(&mut self, atom: Atom, l: LoopId, depth: u32) -> bool {
        if depth > MAX_DEPTH_OF_DEPENDENCE {
            return true;
        }
        match *self.values.kind(atom) {
            AtomKind::Entry(var) => self.strict && self.calls[l as usize] && self.is_shared(var),
            AtomKind::Frame => false,
            AtomKind::Opaque { block } => self.loops.contains(l, block),
            AtomKind::Phi { of, .. } => match self.phi(atom, depth + 1) {
                Some(Phi::Invariant(entry)) => self.varies(entry, l, depth + 1),
                _ => self.loops.is_inside(of, l),
            },
            AtomKind::Pure { block, inputs } | AtomKind::Product { block, inputs } => {
                self.loops.contains(l, block)
                    && inputs.iter().any(|&v| self.varies(v, l, depth + 1))
            }
            AtomKind::Load { block, address } => {
                self.loops.contains(l, block)
                    && (self.strict && self.calls[l as usize]
                        || self.is_stored(address, l, depth + 1)
                        || self.varies(address, l, depth + 1))
            }
        }
    }

    /// Change per iteration of `l` if the value is affine in the loop's induction variables.
    pub(crate) fn step(&mut self, v: Val, l: LoopId, depth: u32) -> Option<Stride> {
        if depth > MAX_DEPTH_OF_DEPENDENCE {
            return None;
        }
        let v = self.normal_at(v, depth + 1);
        let sum = self.values.sum(v);
        let mut total = Stride::Known(0);
        for &(atom, factor) in sum.terms() {
            if !self.atom_varies(atom, l, depth + 1) {
                continue;
            }
            let step = match *self.values.kind(atom) {
                AtomKind::Phi { of, .. } if of == l => match self.phi(atom, depth + 1)? {
                    Phi::Stride(step) => self
                        .values
                        .as_constant(step)
                        .map_or(Stride::Symbolic, Stride::Known),
                    Phi::Follows(step) => step,
                    Phi::Invariant(_) | Phi::Other => return None,
                },
                AtomKind::Product { inputs: [a, b], .. } => {
                    match (self.varies(a, l, depth + 1), self.varies(b, l, depth + 1)) {
                        (true, false) => self.step(a, l, depth + 1).map(|_| Stride::Symbolic)?,
                        (false, true) => self.step(b, l, depth + 1).map(|_| Stride::Symbolic)?,
                        _ => return None,
                    }
                }
                _ => return None,
            };
            total = total.plus(step, factor);
        }
        Some(total)
    }
}

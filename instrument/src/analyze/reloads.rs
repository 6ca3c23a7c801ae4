//! Values that loops load again through pointers: bases, limits and positions in objects.
//!
//! This is used for classes only. A reload has the value of the load before it, unless something in
//! the loop may have stored there. Stores are assumed to act as follows:
//!
//! - One to the same address, or to a part of the same variable, changes it.
//! - One through another pointer that does not vary in the loop, or that moves regularly, does not
//!   change it, since it goes to another object.
//! - One of a pointer's size at the same displacement through a pointer that varies in no regular
//!   way and is derived from the reload's object (the node of a list that hangs on it) may be to
//!   the same member of an object of the same type: the reload varies.
//! - One through any other pointer does not change it.
//! - One to an element of an array (the address has an index) does not change it.
//! - A call changes neither it nor static variables, but may change variables of the frame whose
//!   address is taken. A constant step per iteration is not assumed across a call.
//!
//! A place to which the loop itself stores is a *cell*. Data flow is solved again with cells as
//! variables, so that a cell may be an induction variable. If a call in the loop gets a cell's
//! object, the cell's changes are unknown. A cell whose address varies in a loop is a different
//! cell in each iteration.
//!
//! No load may be Constant by such an assumption, because Constant loads are not recorded.

use crate::analyze::dataflow::Flow;
use crate::analyze::params::{MAX_STEPS_TO_BASE, MAX_STORES_COMPARED};
use crate::analyze::stack_frame::{cell_key, static_key};
use crate::analyze::value::{AtomKind, Val, Values};
use crate::ir::loops::{LoopId, Loops, NO_LOOP};
use crate::util::fast_hash::FastMap;
use crate::x86::regs::{RDI, RSI, RegSet};

/// Registers in which objects are passed to calls: rdi and rsi. (The values of the others are
/// mostly older.)
pub const ARGUMENTS: RegSet = RegSet(1 << RDI.0 | 1 << RSI.0);
/// The region of loads that vary in no loop, see [`Values::load`].
const INVARIANT_REGION: u32 = 1 << 31;

/// Loads and stores through pointers in loops, where something depends on them.
#[derive(Debug, Default)]
pub struct Memory {
    /// Number of the touch, innermost loop and address.
    loads: Vec<(u32, LoopId, Val)>,
    stores: Vec<(u32, LoopId, Val)>,
    /// Addresses stored to, per loop and enclosing loop.
    stored: FastMap<(LoopId, Val), ()>,
    /// Displacements of these addresses.
    displaced: FastMap<(LoopId, i64), ()>,
    /// By loop and displacement: pointers through which a pointer-sized value is stored, with the
    /// innermost loop.
    members: FastMap<(LoopId, i64), Vec<(LoopId, Val)>>,
    /// Results of [`Flow::may_be_hit`], by loop and address.
    hit: FastMap<(LoopId, Val), bool>,
}

impl Memory {
    /// Adds a load of a needed value.
    pub fn load(&mut self, touch: usize, l: LoopId, address: Val) {
        self.loads.push((touch as u32, l, address));
    }

    /// Adds a store.
    pub fn store(
        &mut self,
        touch: usize,
        l: LoopId,
        address: Val,
        size: u32,
        values: &Values,
        loops: &Loops,
    ) {
        self.stores.push((touch as u32, l, address));
        let sum = values.sum(address);
        let member = match sum.terms() {
            [(atom, 1)] => {
                size == 8 && !matches!(values.kind(*atom), AtomKind::Entry(_) | AtomKind::Frame)
            }
            _ => false,
        };
        let mut at = l;
        while at != NO_LOOP {
            self.stored.insert((at, address), ());
            self.displaced.insert((at, sum.constant), ());
            if member {
                let list = self.members.entry((at, sum.constant)).or_default();
                if list.len() <= MAX_STORES_COMPARED && !list.contains(&(l, address)) {
                    list.push((l, address));
                }
            }
            at = loops.all[at as usize].parent;
        }
    }
}

/// Cells of a function, as found so far.
#[derive(Debug, Default)]
pub struct Reloads {
    /// Numbers of touches, and the keys of their cells.
    pub touches: Vec<(u32, i64)>,
    /// Loops in which the address of a cell varies, and its key.
    pub lost: FastMap<(LoopId, i64), ()>,
    /// Key group by object, which is a cell's address without displacement. It grows during the
    /// pass.
    pub objects: FastMap<Val, i64>,
    /// Further touches of the same cells, found during the pass.
    pub more: Vec<(u32, i64)>,
}

impl Reloads {
    /// True if the cell is a different one in each iteration.
    pub fn is_lost(&self, l: LoopId, key: i64) -> bool {
        !self.lost.is_empty() && self.lost.contains_key(&(l, key))
    }

    /// The cells with the further touches, if there are any.
    pub fn with_more(&mut self) -> Option<Reloads> {
        if self.more.is_empty() {
            return None;
        }
        let mut touches = std::mem::take(&mut self.touches);
        touches.append(&mut self.more);
        touches.sort_unstable();
        touches.dedup_by_key(|t| t.0);
        Some(Reloads {
            touches,
            lost: std::mem::take(&mut self.lost),
            ..Reloads::default()
        })
    }

    /// True if no cells are followed.
    pub fn is_empty(&self) -> bool {
        self.touches.is_empty()
    }
}

impl Flow<'_> {
    /// True if a store in the loop may change a reload's value between iterations.
    pub(crate) fn is_stored(&mut self, address: Val, l: LoopId, depth: u32) -> bool {
        self.memory.stored.contains_key(&(l, address)) || self.may_be_hit(address, l, depth)
    }

    /// True if a store through a pointer that varies irregularly may go to this address.
    fn may_be_hit(&mut self, address: Val, l: LoopId, depth: u32) -> bool {
        if self.memory.members.is_empty() {
            return false;
        }
        let displacement = self.values.sum(address).constant;
        let Some(list) = self.memory.members.get(&(l, displacement)) else {
            return false;
        };
        if let Some(&hit) = self.memory.hit.get(&(l, address)) {
            return hit;
        }
        let list = list.clone();
        // This answer applies while the search is inside a cycle of stores and reloads.
        self.memory.hit.insert((l, address), false);
        let hit = list.len() > MAX_STORES_COMPARED
            || list.into_iter().any(|(inner, at)| {
                at != address
                    && self.is_derived(at, address, &mut { MAX_STEPS_TO_BASE })
                    && self.varies(at, inner, depth + 1)
                    && self.step(at, inner, depth + 1).is_none()
            });
        self.memory.hit.insert((l, address), hit);
        hit
    }

    /// True if a pointer comes from loads through the object at an address, found within a few
    /// steps. Values where paths meet are unknown.
    fn is_derived(&mut self, v: Val, address: Val, steps: &mut usize) -> bool {
        let object = self.values.sum(address);
        for &(atom, _) in self.values.sum(v).terms() {
            let Some(left) = steps.checked_sub(1) else {
                return false;
            };
            *steps = left;
            if object.terms() == [(atom, 1)] {
                return true;
            }
            let found = match *self.values.kind(atom) {
                AtomKind::Load { address: from, .. } => self.is_derived(from, address, steps),
                AtomKind::Pure { inputs, .. } | AtomKind::Product { inputs, .. } => inputs
                    .into_iter()
                    .any(|v| self.is_derived(v, address, steps)),
                AtomKind::Phi { of, var } => {
                    let entry = self.at_entry(of, var as usize);
                    self.is_derived(entry, address, steps)
                }
                AtomKind::Entry(_) | AtomKind::Frame | AtomKind::Opaque { .. } => false,
            };
            if found {
                return true;
            }
        }
        false
    }

    /// Finds places that do not vary in a loop and that the loop both stores to and loads from.
    pub(crate) fn find_cells(&mut self) -> Option<Reloads> {
        let mut candidates: Vec<(Val, Val, LoopId)> = Vec::new();
        let mut displacements: Vec<i64> = Vec::new();
        for n in 0..self.memory.loads.len() {
            let (_, l, address) = self.memory.loads[n];
            let displacement = self.values.sum(address).constant;
            if self.is_stored_to(l, displacement) {
                let base = self.base(l, address).0;
                if !self.varies(base, l, 0) {
                    candidates.push((base, address, l));
                    displacements.push(displacement);
                }
            }
        }
        if candidates.is_empty() {
            return None;
        }
        displacements.sort_unstable();
        let mut bases: Vec<Val> = Vec::new();
        for n in 0..self.memory.stores.len() {
            let (_, l, address) = self.memory.stores[n];
            let displacement = self.values.sum(address).constant;
            if displacements.binary_search(&displacement).is_ok() {
                let base = self.base(l, address).0;
                bases.push(base);
            }
        }
        bases.sort_unstable();
        candidates.retain(|c| bases.binary_search(&c.0).is_ok());
        candidates.retain(|&(_, address, l)| !self.may_be_hit(address, l, 0));
        let mut wanted: Vec<Val> = candidates.into_iter().map(|c| c.0).collect();
        if wanted.is_empty() {
            return None;
        }
        wanted.sort_unstable();
        wanted.dedup();
        let mut reloads = Reloads::default();
        let all = [&self.memory.loads[..], &self.memory.stores[..]].concat();
        for (touch, l, address) in all {
            let (base, displacement) = self.base(l, address);
            let Ok(group) = wanted.binary_search(&base) else {
                continue;
            };
            if self.varies(base, l, 0) {
                continue;
            }
            let terms = self.values.sum(base);
            let key = match terms.terms() {
                [] => Some(static_key(displacement)),
                [(atom, 1)] if matches!(self.values.kind(*atom), AtomKind::Frame) => {
                    Some(displacement)
                }
                _ => cell_key(group, displacement),
            };
            let Some(key) = key else { continue };
            reloads.touches.push((touch, key));
            let mut at = self.loops.all[l as usize].parent;
            while at != NO_LOOP {
                if self.varies(base, at, 0) {
                    reloads.lost.insert((at, key), ());
                }
                at = self.loops.all[at as usize].parent;
            }
        }
        reloads.touches.sort_unstable();
        reloads.touches.dedup_by_key(|t| t.0);
        Some(reloads)
    }

    /// True if the loop, or one around it, stores at the displacement.
    fn is_stored_to(&self, l: LoopId, displacement: i64) -> bool {
        let mut at = l;
        while at != NO_LOOP {
            if self.memory.displaced.contains_key(&(at, displacement)) {
                return true;
            }
            at = self.loops.all[at as usize].parent;
        }
        false
    }

    /// An address in a loop as base and displacement.
    fn base(&mut self, l: LoopId, address: Val) -> (Val, i64) {
        let address = self.normal(address);
        let displacement = self.values.sum(address).constant;
        let mut base = self.values.offset(address, displacement.wrapping_neg());
        if let Some(atom) = self.values.as_atom(base)
            && let AtomKind::Load { block, address } = *self.values.kind(atom)
            && !self.varies(base, l, 0)
        {
            // Its value is the same in all loops in which it does not vary.
            let (mut region, mut at) = (!l & !INVARIANT_REGION, self.loops.all[l as usize].parent);
            while at != NO_LOOP && !self.varies(base, at, 0) {
                (region, at) = (!at & !INVARIANT_REGION, self.loops.all[at as usize].parent);
            }
            if at == NO_LOOP {
                region = INVARIANT_REGION;
            }
            let address = self.normal(address);
            base = self.values.load(block, region, address);
        }
        (base, displacement)
    }
}

//! Stays of any shape: pieces of a function in which one register is free.
//!
//! A call ends the stays before it, but what lies between two calls has several regions more often than not, and a register that nothing there uses. Which
//! pieces are in the stay is decided by what it costs: a region outside loads the cursor, and waits for the store of the region before; on each way into the
//! stay the cursor is loaded, and a borrowed register saved, which is restored on each way out. Pieces change sides one by one as long as that saves
//! something; this is done for each register that may serve, and the best is taken.

use super::{CALLEE_SAVED, Finder, Kept, RBP, Stay, Stays, USABLE, cheapest};
use crate::ir::RegSet;
use iced_x86::FlowControl;

/// Loading the cursor: eight bytes of code, and the wait for it.
const LOAD: i32 = 16;
/// Saving or restoring a register: nine bytes of code.
const MOVE: i32 = 9;
/// Code on the way of a jump needs a jump of its own.
const DETOUR: i32 = 3;
/// Passes over the pieces; few change after the second.
const PASSES: usize = 4;

/// A set of pieces, and what it saves.
struct Area {
    kept: Kept,
    inside: Vec<bool>,
    gain: i32,
}

/// What a piece costs inside of an area less what it costs outside if no neighbour is inside.
#[derive(Clone, Copy, Default)]
struct Price {
    /// Whatever the register.
    always: i32,
    /// Ways in.
    entries: i32,
    /// Ways out.
    exits: i32,
    /// Detours on ways out, which are taken only if there is something to be restored.
    detours: i32,
}

/// How many of some sets each register is in: one bit of the number in each member, the lowest first.
#[derive(Default)]
struct Counts(Vec<u16>);

impl Counts {
    /// Counts the members of a set.
    fn add(&mut self, set: RegSet) {
        let mut carry = set.0;
        for number in &mut self.0 {
            if carry == 0 {
                return;
            }
            (*number, carry) = (*number ^ carry, *number & carry);
        }
        if carry != 0 {
            self.0.push(carry);
        }
    }

    /// Those of a set that were counted most, and how often that is.
    fn most(&self, set: RegSet) -> (RegSet, u32) {
        let (mut most, mut count) = (set, 0);
        for (bit, number) in self.0.iter().enumerate().rev() {
            if most.0 & number != 0 {
                most.0 &= number;
                count |= 1 << bit;
            }
        }
        (most, count)
    }
}

/// A set of pieces of which the next one is asked for.
struct Marked(Vec<u64>);

impl Marked {
    fn new(pieces: usize) -> Marked {
        Marked(vec![0; pieces.div_ceil(64)])
    }

    #[inline]
    fn add(&mut self, piece: usize) {
        self.0[piece / 64] |= 1 << (piece % 64);
    }

    /// Takes out the first that is not before `from`.
    fn take_from(&mut self, from: usize) -> Option<usize> {
        let first = self.0.get(from / 64)? >> (from % 64) << (from % 64);
        let (word, bits) = match first {
            0 => (from / 64 + 1..).zip(&self.0[from / 64 + 1..]).find(|(_, bits)| **bits != 0).map(|(word, &bits)| (word, bits))?,
            bits => (from / 64, bits),
        };
        self.0[word] &= !(bits & bits.wrapping_neg());
        Some(word * 64 + bits.trailing_zeros() as usize)
    }
}

/// What code on the way from one piece to another takes besides.
fn detour(from: usize, to: usize) -> i32 {
    if from + 1 == to { 0 } else { DETOUR }
}

impl Finder<'_> {
    /// Adds an area of pieces that are in no stay yet.
    pub(super) fn areas(&self, allowed: &[bool], stays: &mut Stays) {
        let free: Vec<bool> = (0..allowed.len()).map(|b| allowed[b] && stays.of_piece[b].is_none() && self.has_one_way_in(b)).collect();
        let recorded = || (0..free.len()).filter(|&b| free[b] && self.pieces[b].records);
        if recorded().nth(1).is_none() || stays.all.len() >= usize::from(u16::MAX) {
            return;
        }
        let candidates = self.candidates(recorded());
        if candidates == [None; 3] {
            return;
        }
        // (Of the others, few are asked for.)
        let prices: Vec<Price> = (0..free.len()).map(|b| if free[b] && self.pieces[b].records { self.price(b) } else { Price::default() }).collect();
        let [dead, first, second] = candidates;
        // What serves the same pieces makes the same area.
        let differ = |a: Kept, b: Kept| (0..free.len()).any(|n| free[n] && self.serves(a, n) != self.serves(b, n));
        let second = second.filter(|&second| first.is_some_and(|first| differ(first, second)));
        let areas = [dead, first, second].into_iter().flatten().filter_map(|kept| self.area(kept, &free, &prices));
        let Some(area) = areas.reduce(|best, a| if a.gain > best.gain { a } else { best }) else { return };
        let number = stays.all.len() as u16;
        stays.all.push(Stay { cursor: area.kept, scratch: None, late: area.kept.spilled });
        (0..free.len()).filter(|&b| area.inside[b]).for_each(|b| stays.of_piece[b] = Some(number));
    }

    /// Control that enters from outside finds code before the label, where nothing may fall into that from another stay.
    fn has_one_way_in(&self, piece: usize) -> bool {
        !self.pieces[piece].external || piece == 0 || !self.pieces[piece - 1].end.falls || self.pieces[piece - 1].end.calls
    }

    /// The registers that serve most of these pieces, and best those that have none: a dead one, and two that are borrowed.
    fn candidates(&self, recorded: impl Iterator<Item = usize>) -> [Option<Kept>; 3] {
        let (mut dead, mut unused) = (Counts::default(), Counts::default());
        for b in recorded {
            let registers = self.pieces[b].registers;
            for (counts, set) in [(&mut dead, registers.dead), (&mut unused, RegSet(!registers.used.0))] {
                counts.add(set);
                if registers.tight {
                    counts.add(set);
                }
            }
        }
        let most = |counts: &Counts, set: RegSet, spilled: bool| {
            let (most, count) = counts.most(set);
            if count > 1 { cheapest(most).map(|reg| Kept { reg, spilled }) } else { None }
        };
        let borrowed = RegSet(USABLE.0 & (!CALLEE_SAVED.0 | self.saved.0));
        let first = most(&unused, borrowed, true);
        let second = first.and_then(|f| most(&unused, borrowed.without(f.reg), true));
        [most(&dead, RegSet(USABLE.0 & !RBP.0), false), first, second]
    }

    /// What a piece without neighbours inside costs.
    fn price(&self, b: usize) -> Price {
        let mut price = Price { always: -self.alone(b), ..Price::default() };
        if b == 0 || self.pieces[b].external {
            price.entries += 1;
        }
        for p in self.preds.of(b).iter().map(|&p| p as usize).filter(|&p| p != b) {
            price.entries += 1;
            price.always += detour(p, b);
        }
        let succs = self.succs.of(b);
        if self.parts(b) || succs.is_empty() {
            price.exits = 1;
            return price;
        }
        for t in succs.iter().map(|&t| t as usize).filter(|&t| t != b) {
            price.exits += 1;
            price.detours += detour(b, t);
        }
        price
    }

    /// Whether a register can be kept in a piece.
    fn serves(&self, kept: Kept, b: usize) -> bool {
        let registers = &self.pieces[b].registers;
        if kept.spilled { !registers.used.contains(kept.reg) } else { registers.dead.contains(kept.reg) }
    }

    /// The best area of one register among `free` pieces, `None` if it saves nothing. `prices`: those of the pieces with records.
    fn area(&self, kept: Kept, free: &[bool], prices: &[Price]) -> Option<Area> {
        let n = free.len();
        let (entry, exit) = if kept.spilled { (LOAD + MOVE, MOVE) } else { (LOAD, 0) };
        let (restores, both) = (i32::from(exit > 0), entry + exit);
        let cost = |b: usize| {
            let price = if self.pieces[b].records { prices[b] } else { self.price(b) };
            price.always + entry * price.entries + exit * price.exits + restores * price.detours
        };
        // What it costs less because edges between pieces of the area are neither ways in nor out. `end`: only pieces before it are taken for inside.
        let saved = |b: usize, inside: &[bool], end: usize| {
            let mut saved = 0;
            for &p in self.preds.of(b) {
                let p = p as usize;
                if inside[p] && p < end && p != b && !self.parts(p) {
                    saved += both + detour(p, b);
                }
            }
            if self.parts(b) {
                return saved;
            }
            for &t in self.succs.of(b) {
                let t = t as usize;
                if inside[t] && t < end && t != b {
                    saved += both + restores * detour(b, t);
                }
            }
            saved
        };
        let mut inside = vec![false; n];
        let mut look = Marked::new(n);
        // Per piece: how many neighbours are inside, as often as there are edges.
        let mut near = vec![0u32; n];
        let turn = |b: usize, comes: bool, near: &mut [u32], look: &mut Marked| {
            for edges in [&self.preds, &self.succs] {
                for &neighbour in edges.of(b) {
                    let neighbour = neighbour as usize;
                    if neighbour != b {
                        near[neighbour] = if comes { near[neighbour] + 1 } else { near[neighbour] - 1 };
                        look.add(neighbour);
                    }
                }
            }
        };
        for b in (0..n).filter(|&b| free[b] && self.pieces[b].records && self.serves(kept, b)) {
            inside[b] = true;
            look.add(b);
            turn(b, true, &mut near, &mut look);
        }
        for _ in 0..PASSES {
            let mut changed = false;
            let mut from = 0;
            while let Some(b) = look.take_from(from) {
                from = b + 1;
                let others = |edges: &[u32]| edges.iter().any(|&near| near as usize != b);
                let better = match near[b] {
                    // Who has no record comes in between two others, unless there is but one: it leads only to itself, or nothing leads to it.
                    0 | 1 if !self.pieces[b].records && others(self.preds.of(b)) && (self.succs.of(b).is_empty() || others(self.succs.of(b))) => false,
                    _ if !free[b] || !self.serves(kept, b) => false,
                    near => {
                        let cost = cost(b);
                        cost < 0 || near > 0 && cost < saved(b, &inside, n)
                    }
                };
                if inside[b] != better {
                    inside[b] = better;
                    changed = true;
                    turn(b, better, &mut near, &mut look);
                }
            }
            if !changed {
                break;
            }
        }
        // Summed up one piece after the other, so that each edge counts once.
        let gain = (0..n).filter(|&b| inside[b]).map(|b| saved(b, &inside, b) - cost(b)).sum();
        (gain > 0).then_some(Area { kept, inside, gain })
    }

    /// What the region of a piece pays for the cursor if it stands alone.
    fn alone(&self, piece: usize) -> i32 {
        match (self.pieces[piece].records, self.pieces[piece].registers.tight) {
            (false, _) => 0,
            (true, false) => LOAD,
            (true, true) => LOAD + 2 * MOVE,
        }
    }

    /// Whether a stay ends before the last instruction of a piece.
    fn parts(&self, piece: usize) -> bool {
        let end = self.pieces[piece].end;
        end.calls || matches!(end.flow, FlowControl::Return | FlowControl::IndirectBranch)
    }
}

#[cfg(test)]
mod tests {
    use super::{Counts, Marked};
    use crate::ir::{Gpr, RegSet};
    use crate::stay::tests::{CALL, LOAD, RET, kept, stays};
    use crate::stay::Stay;

    /// Forward over so many bytes: test edi, edi; jne.
    fn unless(bytes: usize) -> Vec<u8> {
        vec![0x85, 0xff, 0x75, bytes as u8]
    }

    #[test]
    fn regions_between_calls_share_a_borrowed_register() {
        // 0: load, branch to 2. 1: load. 2: load, branch to 4. 3: load. 4: load, call. 5: load, ret. Nothing is dead: no register is written but rax.
        let diamond = [LOAD, &unless(LOAD.len()), LOAD].concat();
        let (stays, of) = stays(&[&diamond, &diamond, LOAD, CALL, LOAD, RET]);
        let area = Some(Stay { cursor: kept(1, true), scratch: None, late: true });
        assert_eq!(of[..5], [area; 5]);
        assert_eq!(of[5], None, "one region alone gains nothing");
        assert!(stays.leaves(4) && stays.out(4).is_none(), "the register is given back before the call");
        assert_eq!((0..6).map(|p| stays.before(p)).collect::<Vec<_>>(), [Some(None), None, None, None, None, None]);
    }

    #[test]
    fn a_region_that_stands_alone_borrows_nothing_longer() {
        let (_, of) = stays(&[LOAD, CALL, LOAD, CALL, RET]);
        assert_eq!(of, [None; 3]);
    }

    #[test]
    fn an_endless_loop_behind_one_piece_comes_in() {
        // 0: load, branch to 2. 1: jumps to itself, so that no way leads out of it. 2: load, ret.
        const SELF: &[u8] = &[0xeb, 0xfe];
        let (_, of) = stays(&[LOAD, &unless(SELF.len()), SELF, LOAD, RET]);
        assert_eq!(of, [Some(Stay { cursor: kept(1, true), scratch: None, late: true }); 3]);
    }

    #[test]
    fn registers_are_counted_bit_by_bit() {
        let mut counts = Counts::default();
        assert_eq!(counts.most(RegSet(0xffff)).1, 0);
        let sets = [0b1011, 0b0110, 0b0010, 0b1010, 0b1000, 0b0010];
        sets.into_iter().for_each(|set| counts.add(RegSet(set)));
        assert_eq!(counts.most(RegSet(0xffff)), (RegSet(0b0010), 5));
        assert_eq!(counts.most(RegSet(0xffff).without(Gpr(1))), (RegSet(0b1000), 3));
        assert_eq!(counts.most(RegSet(0b0101)), (RegSet(0b0101), 1), "both as often");
        assert_eq!(counts.most(RegSet(0x10)).1, 0);
    }

    #[test]
    fn marked_pieces_come_in_order_and_once() {
        let mut marked = Marked::new(200);
        [3, 64, 63, 199, 128].into_iter().for_each(|piece| marked.add(piece));
        assert_eq!(marked.take_from(4), Some(63));
        assert_eq!(marked.take_from(64), Some(64));
        marked.add(130);
        assert_eq!([65, 129, 131, 200].map(|from| marked.take_from(from)), [Some(128), Some(130), Some(199), None]);
        assert_eq!([0, 0].map(|from| marked.take_from(from)), [Some(3), None]);
    }
}

//! Stays of any shape: pieces of a function in which one register is free.
//!
//! A call ends the stays before it, but what lies between two calls has several regions more often than not, and a register that nothing there uses. Which
//! pieces are in the stay is decided by what it costs: a region outside loads the cursor, and waits for the store of the region before; on each way into the
//! stay the cursor is loaded, and a borrowed register saved, which is restored on each way out. Pieces change sides one by one as long as that saves
//! something; this is done for each register that may serve, and the best is taken.

use super::{CALLEE_SAVED, Finder, Kept, RBP, Stay, Stays, USABLE, cheapest};
use crate::ir::{Gpr, RegSet};
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

impl Finder<'_> {
    /// Adds an area of pieces that are in no stay yet.
    pub(super) fn areas(&self, allowed: &[bool], stays: &mut Stays) {
        let free: Vec<bool> = (0..allowed.len()).map(|b| allowed[b] && stays.of_block[b].is_none() && self.has_one_way_in(b)).collect();
        let recorded: Vec<usize> = (0..free.len()).filter(|&b| free[b] && self.records[b]).collect();
        if recorded.len() < 2 || stays.all.len() >= usize::from(u16::MAX) {
            return;
        }
        let best = self.candidates(&recorded).filter_map(|kept| self.area(kept, &free)).reduce(|best, a| if a.gain > best.gain { a } else { best });
        let Some(area) = best else { return };
        let number = stays.all.len() as u16;
        stays.all.push(Stay { cursor: area.kept, scratch: None, late: area.kept.spilled });
        (0..free.len()).filter(|&b| area.inside[b]).for_each(|b| stays.of_block[b] = Some(number));
    }

    /// Control that enters from outside finds code before the label, where nothing may fall into that from another stay.
    fn has_one_way_in(&self, piece: usize) -> bool {
        !self.external[piece] || piece == 0 || !self.ends[piece - 1].falls || self.ends[piece - 1].calls
    }

    /// The registers that serve most of these pieces, and best those that have none: a dead one, and two that are borrowed.
    fn candidates(&self, recorded: &[usize]) -> impl Iterator<Item = Kept> {
        let most = |set: RegSet, spilled: bool| {
            let mut served = [0u32; 16];
            for &b in recorded {
                let serving = RegSet(set.0 & if spilled { !self.registers[b].used.0 } else { self.registers[b].dead.0 });
                let weight = 1 + u32::from(self.registers[b].tight);
                serving.iter().for_each(|r| served[usize::from(r.0)] += weight);
            }
            let best = served.into_iter().max().unwrap_or(0);
            let all = (0..16).map(Gpr).filter(|r| best > 1 && served[usize::from(r.0)] == best);
            cheapest(all.fold(RegSet::EMPTY, RegSet::with)).map(|reg| Kept { reg, spilled })
        };
        let borrowed = RegSet(USABLE.0 & (!CALLEE_SAVED.0 | self.saved.0));
        let first = most(borrowed, true);
        let second = first.and_then(|f| most(borrowed.without(f.reg), true));
        [most(RegSet(USABLE.0 & !RBP.0), false), first, second].into_iter().flatten()
    }

    /// The best area of one register among `free` pieces, `None` if it saves nothing.
    fn area(&self, kept: Kept, free: &[bool]) -> Option<Area> {
        let n = free.len();
        let serves = |b: usize, reg: Gpr| if kept.spilled { !self.registers[b].used.contains(reg) } else { self.registers[b].dead.contains(reg) };
        let may: Vec<bool> = (0..n).map(|b| free[b] && serves(b, kept.reg)).collect();
        let mut inside: Vec<bool> = (0..n).map(|b| may[b] && self.records[b]).collect();
        let (entry, exit) = if kept.spilled { (LOAD + MOVE, MOVE) } else { (LOAD, 0) };
        // What a piece costs inside less what it costs outside.
        let difference = |b: usize, inside: &[bool]| {
            let block = &self.view.blocks[b];
            let detour = |from: usize, to: usize| if from + 1 == to { 0 } else { DETOUR };
            let mut cost = -self.alone(b);
            if b == 0 || self.external[b] {
                cost += entry;
            }
            for p in block.preds.iter().map(|p| p.0 as usize).filter(|&p| p != b) {
                cost += if inside[p] && !self.parts(p) { -exit } else { entry + detour(p, b) };
            }
            if self.parts(b) || block.succs.is_empty() {
                return cost + exit;
            }
            for t in block.succs.iter().map(|t| t.0 as usize).filter(|&t| t != b) {
                cost += if inside[t] { -entry } else { exit };
                cost += if exit > 0 && !inside[t] { detour(b, t) } else { 0 };
            }
            cost
        };
        let mut look = inside.clone();
        for b in (0..n).filter(|&b| inside[b]) {
            let block = &self.view.blocks[b];
            block.preds.iter().chain(&block.succs).for_each(|near| look[near.0 as usize] = true);
        }
        for _ in 0..PASSES {
            let mut changed = false;
            for b in 0..n {
                if !std::mem::take(&mut look[b]) || !may[b] {
                    continue;
                }
                let better = difference(b, &inside) < 0;
                if inside[b] != better {
                    inside[b] = better;
                    changed = true;
                    let block = &self.view.blocks[b];
                    block.preds.iter().chain(&block.succs).for_each(|near| look[near.0 as usize] = true);
                }
            }
            if !changed {
                break;
            }
        }
        // Summed up one piece after the other, so that each edge counts once.
        let mut sum = vec![false; n];
        let mut gain = 0;
        for b in (0..n).filter(|&b| inside[b]) {
            gain -= difference(b, &sum);
            sum[b] = true;
        }
        (gain > 0).then_some(Area { kept, inside, gain })
    }

    /// What the region of a piece pays for the cursor if it stands alone.
    fn alone(&self, piece: usize) -> i32 {
        match (self.records[piece], self.registers[piece].tight) {
            (false, _) => 0,
            (true, false) => LOAD,
            (true, true) => LOAD + 2 * MOVE,
        }
    }

    /// Whether a stay ends before the last instruction of a piece.
    fn parts(&self, piece: usize) -> bool {
        self.ends[piece].calls || matches!(self.ends[piece].flow, FlowControl::Return | FlowControl::IndirectBranch)
    }
}

#[cfg(test)]
mod tests {
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
}

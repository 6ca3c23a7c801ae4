//! Stays outside of loops: straight and branching code that is entered at one place.
//!
//! Each region that stands alone loads the cursor, and waits for the store of the region before. A *tree* is a block with records and what
//! control can reach only through it: there the cursor is loaded once, at the start of the first block. That is never dearer than
//! before, since the first block's own region would load it anyway, and only registers are used that are dead in the whole tree.

use super::{Finder, Kept, Registers, Stay, Stays, USABLE, cheapest};
use crate::ir::{BlockId, RegSet};
use iced_x86::FlowControl;

/// A larger tree costs more time than it saves.
const MOST_BLOCKS: usize = 64;

impl Finder<'_> {
    /// Adds trees of blocks that are in no stay yet.
    pub(super) fn trees(&self, allowed: &[bool], stays: &mut Stays) {
        for head in 0..allowed.len() {
            let free = allowed[head] && self.records[head] && stays.of_block[head].is_none();
            if !free || stays.all.len() >= usize::from(u16::MAX) || !self.can_be_entered(head, stays) {
                continue;
            }
            let (tree, all) = self.grow(head, allowed, stays);
            let recorded = tree.iter().filter(|&&b| self.records[b as usize]).count();
            let Some(cursor) = cheapest(all.dead).filter(|_| recorded > 1) else { continue };
            let cursor = Kept { reg: cursor, spilled: false };
            let scratch = cheapest(all.dead.without(cursor.reg)).filter(|_| all.addresses).map(|reg| Kept { reg, spilled: false });
            let number = stays.all.len() as u16;
            stays.all.push(Stay { cursor, scratch, late: false });
            tree.iter().for_each(|&b| stays.of_block[b as usize] = Some(number));
        }
    }

    /// Whether code can be put on every way into a block.
    fn can_be_entered(&self, head: usize, stays: &Stays) -> bool {
        let falling = head > 0 && self.ends[head - 1].falls;
        if self.external[head] {
            let from_table = self.view.blocks[head].preds.iter().any(|p| self.is_indirect(p.0 as usize));
            return !(from_table || falling && stays.of_block[head - 1].is_some());
        }
        self.view.blocks[head].preds.iter().all(|p| {
            let end = self.ends[p.0 as usize];
            end.led || falling && p.0 as usize + 1 == head && end.flow == FlowControl::Next
        })
    }

    /// Blocks, in ascending order, that control reaches only through `head`, as far as there is a register.
    fn grow(&self, head: usize, allowed: &[bool], stays: &Stays) -> (Vec<u32>, Registers) {
        let mut all = self.registers[head];
        all.dead.0 &= USABLE.0;
        let mut tree = vec![head as u32];
        let mut next = 0;
        while next < tree.len() && tree.len() < MOST_BLOCKS {
            for &BlockId(b) in &self.view.blocks[tree[next] as usize].succs {
                let (i, known) = (b as usize, tree.contains(&b));
                if known || !allowed[i] || self.external[i] || stays.of_block[i].is_some() {
                    continue;
                }
                let dead = RegSet(all.dead.0 & self.registers[i].dead.0);
                if dead != RegSet::EMPTY && self.view.blocks[i].preds.iter().all(|p| tree.contains(&p.0)) {
                    all.dead = dead;
                    all.addresses |= self.registers[i].addresses;
                    tree.push(b);
                }
            }
            next += 1;
        }
        // What leads to no record needs no register.
        let mut kept = vec![true; tree.len()];
        loop {
            let idle = |i: &usize| {
                let b = tree[*i];
                let leads_on = self.view.blocks[b as usize].succs.iter().any(|s| tree.iter().zip(&kept).any(|(t, k)| *k && *t == s.0 && *t != b));
                kept[*i] && *i > 0 && !self.records[b as usize] && !leads_on
            };
            let Some(idle) = (0..tree.len()).rev().find(idle) else { break };
            kept[idle] = false;
        }
        let mut tree: Vec<u32> = tree.into_iter().zip(kept).filter(|t| t.1).map(|t| t.0).collect();
        tree.sort_unstable();
        (tree, all)
    }
}

#[cfg(test)]
mod tests {
    use crate::stay::tests::{CALL, LOAD, RET, XOR_ECX, kept, stays};
    use crate::stay::Stay;

    /// test edi, edi; jne over so many bytes.
    fn unless(bytes: usize) -> Vec<u8> {
        vec![0x85, 0xff, 0x75, bytes as u8]
    }

    /// Areas borrow a register here.
    fn is_no_tree(of: &[Option<Stay>]) -> bool {
        of.iter().flatten().all(|s| s.cursor.spilled)
    }

    #[test]
    fn what_is_reached_through_one_block_shares_its_cursor() {
        // 0: load; branch. 1: load. 2: load; xor ecx, ecx; ret: rcx is written at the end, hence dead before.
        let (stays, of) = stays(&[LOAD, &unless(LOAD.len()), LOAD, LOAD, XOR_ECX, RET]);
        let tree = Some(Stay { cursor: kept(1, false), scratch: None, late: false });
        assert_eq!(of[..2], [tree; 2]);
        assert_eq!(of[2], None, "rcx is written in it");
        assert_eq!((stays.before(0), stays.before(1), stays.before(2)), (Some(None), None, None), "the cursor is loaded once");
    }

    #[test]
    fn one_block_is_no_tree() {
        assert_eq!(stays(&[LOAD, XOR_ECX, RET]).1, [None]);
        // The second block has a call.
        assert!(is_no_tree(&stays(&[LOAD, &unless(LOAD.len() + CALL.len()), LOAD, CALL, XOR_ECX, RET]).1));
    }

    #[test]
    fn blocks_that_are_entered_from_elsewhere_are_in_an_area_instead() {
        // 0: branch to 2. 1: load; branch to 3. 2: load. 3: load, reached from 1 and 2. 4: load, the rest.
        let parts: [&[u8]; 7] = [&unless(LOAD.len() + 4), LOAD, &unless(LOAD.len()), LOAD, LOAD, XOR_ECX, RET];
        let (_, of) = stays(&parts);
        assert_eq!(of, [of[0], of[0], of[0], None]);
        assert_eq!(of[0], Some(Stay { cursor: kept(1, false), scratch: None, late: false }));
    }
}

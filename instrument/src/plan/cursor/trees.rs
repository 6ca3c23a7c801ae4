//! Residencies outside of loops: straight and branching code that is entered at one place.
//!
//! Each region outside of residencies loads the cursor, and waits for the store of the previous
//! region. A *tree* is a block with records, and the blocks that control can reach only through it:
//! there the cursor is loaded once, at the start of the first block. That never costs more, since
//! the first block's own region would load it anyway, and only registers that are dead in the whole
//! tree are used.

use crate::plan::cursor::{Finder, Kept, Registers, Residencies, Residency, cheapest};
use crate::x86::regs::RegSet;
use iced_x86::FlowControl;

/// A larger tree costs more time than it saves.
const MAX_BLOCKS: usize = 64;

impl Finder<'_> {
    /// Adds trees of blocks that are in no residency yet.
    pub(crate) fn trees(&self, allowed: &[bool], residencies: &mut Residencies) {
        let mut tree = Vec::with_capacity(MAX_BLOCKS);
        for head in 0..allowed.len() {
            let piece = &self.pieces[head];
            let free = allowed[head]
                && piece.records
                && piece.registers.dead != RegSet::EMPTY
                && residencies.of_piece[head].is_none();
            if !free
                || residencies.all.len() >= usize::from(u16::MAX)
                || !self.can_be_entered(head, residencies)
            {
                continue;
            }
            let all = self.grow(head, allowed, residencies, &mut tree);
            let recorded = tree.iter().filter(|&&b| self.records(b)).count();
            let Some(cursor) = cheapest(all.dead).filter(|_| recorded > 1) else {
                continue;
            };
            let cursor = Kept {
                reg: cursor,
                spilled: false,
            };
            let scratch = cheapest(all.dead.without(cursor.reg))
                .filter(|_| all.addresses)
                .map(|reg| Kept {
                    reg,
                    spilled: false,
                });
            let number = residencies.all.len() as u16;
            residencies.all.push(Residency {
                cursor,
                scratch,
                late: false,
            });
            tree.iter()
                .for_each(|&b| residencies.of_piece[b as usize] = Some(number));
        }
    }

    /// True if code can be put on every edge into a piece.
    fn can_be_entered(&self, head: usize, residencies: &Residencies) -> bool {
        let falling = head > 0 && self.pieces[head - 1].end.falls;
        if self.pieces[head].external {
            let from_table = self
                .preds
                .of(head)
                .iter()
                .any(|&p| self.is_indirect(p as usize));
            return !(from_table || falling && residencies.of_piece[head - 1].is_some());
        }
        self.preds.of(head).iter().all(|&p| {
            let end = self.pieces[p as usize].end;
            end.led || falling && p as usize + 1 == head && end.flow == FlowControl::Next
        })
    }

    /// Adds pieces to `tree` that control reaches only through `head`, while a register is left.
    fn grow(
        &self,
        head: usize,
        allowed: &[bool],
        residencies: &Residencies,
        tree: &mut Vec<u32>,
    ) -> Registers {
        let mut all = self.pieces[head].registers;
        tree.clear();
        tree.push(head as u32);
        let mut next = 0;
        while next < tree.len() && tree.len() < MAX_BLOCKS {
            for &b in self.succs.of(tree[next] as usize) {
                let i = b as usize;
                let dead = RegSet(all.dead.0 & self.pieces[i].registers.dead.0);
                if dead == RegSet::EMPTY
                    || !allowed[i]
                    || self.pieces[i].external
                    || residencies.of_piece[i].is_some()
                    || tree.contains(&b)
                {
                    continue;
                }
                if self.preds.of(i).iter().all(|p| tree.contains(p)) {
                    all.dead = dead;
                    all.addresses |= self.pieces[i].registers.addresses;
                    tree.push(b);
                }
            }
            next += 1;
        }
        // Stretches that lead to no record are removed, since they need no register.
        loop {
            let idle = |&i: &usize| {
                let b = tree[i];
                !self.records(b)
                    && !self
                        .succs
                        .of(b as usize)
                        .iter()
                        .any(|s| *s != b && tree.contains(s))
            };
            let Some(idle) = (1..tree.len()).rev().find(idle) else {
                break;
            };
            tree.remove(idle);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::cursor::Residency;
    use crate::plan::cursor::tests::{CALL, LOAD, RET, XOR_ECX, kept, residencies};

    /// test edi, edi; jne over `bytes` bytes.
    fn unless(bytes: usize) -> Vec<u8> {
        vec![0x85, 0xff, 0x75, bytes as u8]
    }

    /// Only areas borrow a register here.
    fn is_no_tree(of: &[Option<Residency>]) -> bool {
        of.iter().flatten().all(|s| s.cursor.spilled)
    }

    #[test]
    fn what_is_reached_through_one_block_shares_its_cursor() {
        // 0: load; branch. 1: load. 2: load; xor ecx, ecx; ret: rcx is written at the end, so it is
        // dead before.
        let (residencies, of) = residencies(&[LOAD, &unless(LOAD.len()), LOAD, LOAD, XOR_ECX, RET]);
        let tree = Some(Residency {
            cursor: kept(1, false),
            scratch: None,
            late: false,
        });
        assert_eq!(of[..2], [tree; 2]);
        assert_eq!(of[2], None, "rcx is written in it");
        assert_eq!(
            (
                residencies.before(0),
                residencies.before(1),
                residencies.before(2)
            ),
            (Some(None), None, None),
            "the cursor is loaded once"
        );
    }

    #[test]
    fn one_block_is_no_tree() {
        assert_eq!(residencies(&[LOAD, XOR_ECX, RET]).1, [None]);
        // The second block has a call.
        assert!(is_no_tree(
            &residencies(&[
                LOAD,
                &unless(LOAD.len() + CALL.len()),
                LOAD,
                CALL,
                XOR_ECX,
                RET
            ])
            .1
        ));
    }

    #[test]
    fn blocks_that_are_entered_from_elsewhere_are_in_an_area_instead() {
        // 0: branch to 2. 1: load; branch to 3. 2: load. 3: load, reached from 1 and 2. 4: load,
        // the rest.
        let parts: [&[u8]; 7] = [
            &unless(LOAD.len() + 4),
            LOAD,
            &unless(LOAD.len()),
            LOAD,
            LOAD,
            XOR_ECX,
            RET,
        ];
        let (_, of) = residencies(&parts);
        assert_eq!(of, [of[0], of[0], of[0], None]);
        assert_eq!(
            of[0],
            Some(Residency {
                cursor: kept(1, false),
                scratch: None,
                late: false
            })
        );
    }
}

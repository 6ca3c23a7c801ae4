//! Residencies of any shape: stretches of a function in which one register is free.
//!
//! A call ends the residencies before it, but the code between two calls mostly has several
//! regions, and an unused register. Cost decides which stretches are in the residency. A region
//! outside loads the cursor, and waits for the store of the previous region. Each edge into the
//! residency loads the cursor and saves a borrowed register, and each edge out restores the
//! register. Stretches move in or out one by one as long as that reduces the cost. This is done for
//! each possible register, and the best result is taken.

use crate::plan::cursor::{
    CALLEE_SAVED, Finder, Kept, RBP_SET, Residencies, Residency, USABLE_REGISTERS, cheapest,
};
use crate::x86::regs::RegSet;
use smallvec::SmallVec;

/// Cost of loading the cursor: eight bytes of code, and the wait for it.
const LOAD: i32 = 16;
/// Cost of saving or restoring a register: nine bytes of code.
const MOVE: i32 = 9;
/// Cost of a jump in code on an edge that is not a fall-through.
const DETOUR: i32 = 3;
/// Maximum number of passes over the stretches; few change after the second. Source: Chosen.
const MAX_PASSES: usize = 4;

/// A set of stretches, and the cost that it saves.
struct Area {
    kept: Kept,
    inside: Vec<u32>,
    gain: i32,
}

/// Cost of a stretch inside an area, minus its cost outside, if no neighbour is inside.
#[derive(Clone, Copy, Default)]
struct Price {
    /// Cost with any register.
    always: i32,
    /// Number of edges in.
    entries: i32,
    /// Number of edges out.
    exits: i32,
    /// Detours on edges out, which are taken only if a register is to be restored.
    detours: i32,
}

/// A stretch while an area grows and shrinks.
#[derive(Clone, Copy)]
struct Member {
    /// Number of edges to neighbours inside. It is not counted for stretches that may not be
    /// inside.
    near: u32,
    /// True if it may be inside: it is in no residency yet, and the register can be kept in it.
    may: bool,
    /// True if it may join with fewer than two neighbours inside: it has a record, leads only to
    /// itself, or has no predecessor.
    eager: bool,
    inside: bool,
}

/// Per register, the number of sets that contain it. Each member holds one bit of every number, the
/// lowest bit first.
#[derive(Default)]
struct Counts(SmallVec<[u16; 12]>);

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

    /// Members of a set with the highest count, and that count.
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

/// A set of stretches that gives the next one in order.
struct Marked(Vec<u64>);

impl Marked {
    fn new(pieces: usize) -> Marked {
        Marked(vec![0; pieces.div_ceil(64)])
    }

    #[inline]
    fn add(&mut self, piece: usize) {
        self.0[piece / 64] |= 1 << (piece % 64);
    }

    /// Takes the first stretch at or after `from`.
    fn take_from(&mut self, from: usize) -> Option<usize> {
        let first = self.0.get(from / 64)? >> (from % 64) << (from % 64);
        let (word, bits) = match first {
            0 => (from / 64 + 1..)
                .zip(&self.0[from / 64 + 1..])
                .find(|(_, bits)| **bits != 0)
                .map(|(word, &bits)| (word, bits))?,
            bits => (from / 64, bits),
        };
        self.0[word] &= !(bits & bits.wrapping_neg());
        Some(word * 64 + bits.trailing_zeros() as usize)
    }
}

/// Extra cost of the code on the edge from one stretch to another.
fn detour(from: usize, to: usize) -> i32 {
    if from + 1 == to { 0 } else { DETOUR }
}

/// The area of one register while it grows and shrinks.
struct Growing<'a> {
    finder: &'a Finder<'a>,
    /// Prices of stretches with records.
    prices: &'a [Price],
    /// Cost of an edge in.
    entry: i32,
    /// Cost of an edge out.
    exit: i32,
    /// 1 if the register is restored on edges out, otherwise 0.
    restores: i32,
    members: Vec<Member>,
    /// Stretches that may have to move in or out.
    look: Marked,
}

impl Growing<'_> {
    /// Cost of a stretch inside.
    fn cost(&self, b: usize) -> i32 {
        let price = if self.finder.pieces[b].records {
            self.prices[b]
        } else {
            self.finder.price(b)
        };
        price.always
            + self.entry * price.entries
            + self.exit * price.exits
            + self.restores * price.detours
    }

    /// Cost saved because edges between stretches of the area lead neither in nor out. `end`: only
    /// stretches before it count as inside.
    fn saved(&self, b: usize, end: usize) -> i32 {
        let (finder, members) = (self.finder, &self.members);
        let both = self.entry + self.exit;
        let mut saved = 0;
        for &p in finder.preds.of(b) {
            let p = p as usize;
            if members[p].inside && p < end && p != b && !finder.pieces[p].end.parts {
                saved += both + detour(p, b);
            }
        }
        if finder.pieces[b].end.parts {
            return saved;
        }
        for &t in finder.succs.of(b) {
            let t = t as usize;
            if members[t].inside && t < end && t != b {
                saved += both + self.restores * detour(b, t);
            }
        }
        saved
    }

    /// Moves a stretch in or out, and marks the neighbours that may have to move too.
    fn turn(&mut self, b: usize, comes: bool) {
        self.members[b].inside = comes;
        for edges in [&self.finder.preds, &self.finder.succs] {
            for &neighbour in edges.of(b) {
                let neighbour = neighbour as usize;
                let member = &mut self.members[neighbour];
                if member.may && neighbour != b {
                    member.near = if comes {
                        member.near + 1
                    } else {
                        member.near - 1
                    };
                    if member.eager || member.inside || member.near > 1 {
                        self.look.add(neighbour);
                    }
                }
            }
        }
    }

    /// Begins with all stretches that have records and may be inside.
    fn begin(&mut self, recorded: &[u32]) {
        for b in recorded.iter().map(|&b| b as usize) {
            if self.members[b].may {
                self.look.add(b);
                self.turn(b, true);
            }
        }
    }

    /// Moves stretches in or out as long as that reduces the cost.
    fn settle(&mut self) {
        for _ in 0..MAX_PASSES {
            let mut changed = false;
            let mut from = 0;
            while let Some(b) = self.look.take_from(from) {
                from = b + 1;
                let Member {
                    near,
                    eager,
                    inside,
                    ..
                } = self.members[b];
                let better = (eager || near > 1) && {
                    let cost = self.cost(b);
                    cost < 0 || near > 0 && cost < self.saved(b, usize::MAX)
                };
                if inside != better {
                    changed = true;
                    self.turn(b, better);
                }
            }
            if !changed {
                break;
            }
        }
    }

    /// The stretches inside.
    fn inside(&self) -> Vec<u32> {
        (0..self.members.len())
            .filter(|&b| self.members[b].inside)
            .map(|b| b as u32)
            .collect()
    }

    /// Cost saved by the area.
    fn gain(&self, inside: &[u32]) -> i32 {
        // The sum goes over the stretches in order, so that each edge counts once.
        inside
            .iter()
            .map(|&b| self.saved(b as usize, b as usize) - self.cost(b as usize))
            .sum()
    }
}

impl Finder<'_> {
    /// Adds an area of stretches that are in no residency yet.
    pub(crate) fn areas(&self, allowed: &[bool], residencies: &mut Residencies) {
        let mut recorded = Vec::with_capacity(allowed.len());
        let member = |b: usize| {
            let may = allowed[b] && residencies.of_piece[b].is_none() && self.has_one_way_in(b);
            if may && self.pieces[b].records {
                recorded.push(b as u32);
            }
            Member {
                near: 0,
                may,
                eager: false,
                inside: false,
            }
        };
        let mut members: Vec<Member> = (0..allowed.len()).map(member).collect();
        if recorded.len() < 2 || residencies.all.len() >= usize::from(u16::MAX) {
            return;
        }
        let [dead, first, second] = self.candidates(&recorded);
        if dead.is_none() && first.is_none() {
            return;
        }
        // Two registers that serve the same stretches make the same area.
        let differ = |a: Kept, b: Kept| {
            (0..members.len()).any(|n| members[n].may && self.serves(a, n) != self.serves(b, n))
        };
        let second = second.filter(|&second| first.is_some_and(|first| differ(first, second)));
        // (Prices of the others are rarely needed.)
        let mut prices = vec![Price::default(); members.len()];
        recorded
            .iter()
            .for_each(|&b| prices[b as usize] = self.price(b as usize));
        for (b, member) in members.iter_mut().enumerate() {
            member.eager = member.may && self.is_eager(b);
        }
        let areas = [dead, first, second]
            .into_iter()
            .flatten()
            .filter_map(|kept| self.area(kept, members.clone(), &recorded, &prices));
        let Some(area) = areas.reduce(|best, a| if a.gain > best.gain { a } else { best }) else {
            return;
        };
        let number = residencies.all.len() as u16;
        residencies.all.push(Residency {
            cursor: area.kept,
            scratch: None,
            late: area.kept.spilled && !self.view.counts,
        });
        area.inside
            .iter()
            .for_each(|&b| residencies.of_piece[b as usize] = Some(number));
    }

    /// See [`Member::eager`].
    fn is_eager(&self, b: usize) -> bool {
        let others = |edges: &[u32]| edges.iter().any(|&near| near as usize != b);
        self.pieces[b].records
            || !others(self.preds.of(b))
            || !self.succs.of(b).is_empty() && !others(self.succs.of(b))
    }

    /// True if control from outside can use code before the label, because no other residency falls
    /// into it.
    fn has_one_way_in(&self, piece: usize) -> bool {
        !self.pieces[piece].external
            || piece == 0
            || !self.pieces[piece - 1].end.falls
            || self.pieces[piece - 1].end.calls
    }

    /// The registers that are usable in most of these stretches, preferring stretches that lack a
    /// free one: a dead register, and two borrowed ones.
    fn candidates(&self, recorded: &[u32]) -> [Option<Kept>; 3] {
        let (mut dead, mut unused) = (Counts::default(), Counts::default());
        for &b in recorded {
            let registers = self.pieces[b as usize].registers;
            for (counts, set) in [
                (&mut dead, registers.dead),
                (&mut unused, RegSet(!registers.used.0)),
            ] {
                counts.add(set);
                if registers.tight {
                    counts.add(set);
                }
            }
        }
        let most = |counts: &Counts, set: RegSet, spilled: bool| {
            let (most, count) = counts.most(set);
            if count > 1 {
                cheapest(most).map(|reg| Kept { reg, spilled })
            } else {
                None
            }
        };
        let borrowed = RegSet(USABLE_REGISTERS.0 & (!CALLEE_SAVED.0 | self.saved.0));
        let first = most(&unused, borrowed, true);
        let second = first.and_then(|f| most(&unused, borrowed.without(f.reg), true));
        [
            most(&dead, RegSet(USABLE_REGISTERS.0 & !RBP_SET.0), false),
            first,
            second,
        ]
    }

    /// Cost of a stretch that has no neighbours inside.
    fn price(&self, b: usize) -> Price {
        let mut price = Price {
            always: -self.alone(b),
            ..Price::default()
        };
        if b == 0 || self.pieces[b].external {
            price.entries += 1;
        }
        for p in self
            .preds
            .of(b)
            .iter()
            .map(|&p| p as usize)
            .filter(|&p| p != b)
        {
            price.entries += 1;
            price.always += detour(p, b);
        }
        let succs = self.succs.of(b);
        if self.pieces[b].end.parts || succs.is_empty() {
            price.exits = 1;
            return price;
        }
        for t in succs.iter().map(|&t| t as usize).filter(|&t| t != b) {
            price.exits += 1;
            price.detours += detour(b, t);
        }
        price
    }

    /// True if a register can be kept in a stretch.
    fn serves(&self, kept: Kept, b: usize) -> bool {
        let registers = &self.pieces[b].registers;
        if kept.spilled {
            !registers.used.contains(kept.reg)
        } else {
            registers.dead.contains(kept.reg)
        }
    }

    /// The best area for one register; `None` if it saves nothing. `members`: all stretches, none
    /// inside. `recorded`: stretches that may be inside and have records; `prices`: their prices.
    fn area(
        &self,
        kept: Kept,
        mut members: Vec<Member>,
        recorded: &[u32],
        prices: &[Price],
    ) -> Option<Area> {
        for (b, member) in members.iter_mut().enumerate() {
            member.may &= self.serves(kept, b);
        }
        let (entry, exit) = if kept.spilled {
            (LOAD + MOVE, MOVE)
        } else {
            (LOAD, 0)
        };
        let mut growing = Growing {
            finder: self,
            prices,
            entry,
            exit,
            restores: i32::from(exit > 0),
            look: Marked::new(members.len()),
            members,
        };
        growing.begin(recorded);
        growing.settle();
        let inside = growing.inside();
        let gain = growing.gain(&inside);
        (gain > 0).then_some(Area { kept, inside, gain })
    }

    /// Cost of the cursor in a stretch outside of residencies.
    fn alone(&self, piece: usize) -> i32 {
        match (
            self.pieces[piece].records,
            self.pieces[piece].registers.tight,
        ) {
            (false, _) => 0,
            (true, false) => LOAD,
            (true, true) => LOAD + 2 * MOVE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Counts, Marked};
    use crate::plan::cursor::Residency;
    use crate::plan::cursor::tests::{CALL, LOAD, RET, kept, residencies};
    use crate::x86::regs::{Gpr, RegSet};

    /// A forward jump over `bytes` bytes: test edi, edi; jne.
    fn unless(bytes: usize) -> Vec<u8> {
        vec![0x85, 0xff, 0x75, bytes as u8]
    }

    #[test]
    fn regions_between_calls_share_a_borrowed_register() {
        // 0: load, branch to 2. 1: load. 2: load, branch to 4. 3: load. 4: load, call. 5: load,
        // ret. No register is dead, and only rax is written.
        let diamond = [LOAD, &unless(LOAD.len()), LOAD].concat();
        let (residencies, of) = residencies(&[&diamond, &diamond, LOAD, CALL, LOAD, RET]);
        let area = Some(Residency {
            cursor: kept(1, true),
            scratch: None,
            late: true,
        });
        assert_eq!(of[..5], [area; 5]);
        assert_eq!(of[5], None, "one region alone gains nothing");
        assert!(
            residencies.leaves(4) && residencies.out(4).is_none(),
            "the register is given back before the call"
        );
        assert_eq!(
            (0..6).map(|p| residencies.before(p)).collect::<Vec<_>>(),
            [Some(None), None, None, None, None, None]
        );
    }

    #[test]
    fn a_region_that_stands_alone_borrows_nothing_longer() {
        let (_, of) = residencies(&[LOAD, CALL, LOAD, CALL, RET]);
        assert_eq!(of, [None; 3]);
    }

    #[test]
    fn an_endless_loop_behind_one_piece_comes_in() {
        // 0: load, branch to 2. 1: jumps to itself, so there is no edge out. 2: load, ret.
        const SELF: &[u8] = &[0xeb, 0xfe];
        let (_, of) = residencies(&[LOAD, &unless(SELF.len()), SELF, LOAD, RET]);
        assert_eq!(
            of,
            [Some(Residency {
                cursor: kept(1, true),
                scratch: None,
                late: true
            }); 3]
        );
    }

    #[test]
    fn registers_are_counted_bit_by_bit() {
        let mut counts = Counts::default();
        assert_eq!(counts.most(RegSet(0xffff)).1, 0);
        let sets = [0b1011, 0b0110, 0b0010, 0b1010, 0b1000, 0b0010];
        sets.into_iter().for_each(|set| counts.add(RegSet(set)));
        assert_eq!(counts.most(RegSet(0xffff)), (RegSet(0b0010), 5));
        assert_eq!(
            counts.most(RegSet(0xffff).without(Gpr(1))),
            (RegSet(0b1000), 3)
        );
        assert_eq!(
            counts.most(RegSet(0b0101)),
            (RegSet(0b0101), 1),
            "both as often"
        );
        assert_eq!(counts.most(RegSet(0x10)).1, 0);
    }

    #[test]
    fn marked_pieces_come_in_order_and_once() {
        let mut marked = Marked::new(200);
        [3, 64, 63, 199, 128]
            .into_iter()
            .for_each(|piece| marked.add(piece));
        assert_eq!(marked.take_from(4), Some(63));
        assert_eq!(marked.take_from(64), Some(64));
        marked.add(130);
        assert_eq!(
            [65, 129, 131, 200].map(|from| marked.take_from(from)),
            [Some(128), Some(130), Some(199), None]
        );
        assert_eq!([0, 0].map(|from| marked.take_from(from)), [Some(3), None]);
    }
}

//! The control flow graph of one function: its instructions, cut into basic blocks.
//!
//! A block starts wherever control may arrive: branch targets, landing pads, jump table targets,
//! and every address that other code is known or suspected to reach. Calls do not end blocks; the
//! landing pads of a block's calls are its successors. Filler that no control flow reaches is
//! dropped.

use crate::ir::{Block, BlockId, BlockIds};
use crate::util::fast_hash::FastHasher;
use crate::x86::decode::{AddressIndex, Body};
use crate::x86::flow::is_padding;
use crate::x86::insn::Insn;
use iced_x86::FlowControl;
use std::hash::Hasher;
use std::ops::Range;

/// Exits of a block besides its successors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// By `ret`.
    pub returns: bool,
    /// To code that is not among the successors: another function, an indirect target that the
    /// clone does not resolve.
    pub leaves: bool,
}

/// Entries of control besides this function's own direct branches. All lists are sorted.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    /// Targets of calls by other code; each is an instruction start.
    pub called: Vec<u64>,
    /// Targets of branches by other code; each is an instruction start.
    pub outside: Vec<u64>,
    /// `(call range, landing pad)`, sorted by range.
    pub pads: Vec<(Range<u64>, u64)>,
    /// Suspected targets; those that are no instruction start are ignored.
    pub suspected: Vec<u64>,
}

/// The known targets of an indirect jump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownJump {
    /// Address of the jump.
    pub ip: u64,
    /// All targets inside the function.
    pub targets: Vec<u64>,
    /// True if there are no others, and the clone gets its own table.
    pub closed: bool,
}

/// Starts of blocks among 64 instructions, a bit each.
#[derive(Clone, Copy, Default)]
struct Marks {
    /// Control may reach the instruction from elsewhere than the previous one.
    leads: u64,
    /// Control may also come from outside, or on unknown paths.
    outside: u64,
    /// It follows a conditional branch.
    chosen: u64,
    /// Control does not come from the previous instruction, if there is one.
    apart: u64,
}

/// Instructions and blocks. `discover` finds them, `analyze` and `plan` read them, and `emit` makes
/// the clone from them.
#[derive(Clone, Debug, Default)]
pub struct Cfg {
    /// Sorted by address.
    pub insns: Vec<Insn>,
    /// Sorted by address; each instruction is in exactly one.
    pub blocks: Vec<Block>,
    /// Per block.
    pub exits: Vec<Exit>,
    /// Blocks that control enters from outside with unknown values. Landing pads do not count, nor
    /// do branches from elsewhere (a cold part returns with the values that left).
    pub roots: Vec<bool>,
    /// Instructions by their addresses.
    pub places: AddressIndex,
    /// Blocks by their addresses.
    starts: AddressIndex,
    /// `(block, landing pad)`: the block has instructions that the pad covers. Sorted.
    pub pads: Vec<(BlockId, BlockId)>,
    /// Fingerprint of the dropped filler: two graphs of the same code with the same number have the
    /// same instructions.
    pub dropped: u64,
}

impl Cfg {
    /// Builds the graph of instructions in `range`. They stay in place, since those of a large
    /// program fill hundreds of megabytes.
    pub fn build(body: Body, range: &Range<u64>, entries: &Entries, jumps: &[KnownJump]) -> Cfg {
        let Body {
            insns,
            places,
            gaps,
        } = body;
        let mut marks = vec![Marks::default(); insns.len() / 64 + 1];
        let mut mark = |i: usize, set: fn(&mut Marks, u64)| set(&mut marks[i / 64], 1 << (i % 64));
        let mut lead = |at: u64, set: fn(&mut Marks, u64)| {
            if let Some(i) = places.get(at) {
                mark(i, set);
            }
        };
        let entry = |m: &mut Marks, bit| (m.leads, m.outside) = (m.leads | bit, m.outside | bit);
        lead(range.start, entry);
        entries
            .called
            .iter()
            .chain(&entries.outside)
            .chain(&entries.suspected)
            .for_each(|&at| lead(at, entry));
        entries.pads.iter().for_each(|p| lead(p.1, entry));
        jumps
            .iter()
            .flat_map(|j| &j.targets)
            .for_each(|&at| lead(at, |m, bit| m.leads |= bit));
        marks[0].apart = 1;
        for (i, insn) in insns.iter().enumerate() {
            // Most instructions continue at the next one, which follows directly.
            if insn.simple && !gaps {
                continue;
            }
            let stops = insn.ends_flow() || insn.is_overlapped();
            if stops || gaps && insns.get(i + 1).is_some_and(|next| next.ip != insn.end()) {
                marks[(i + 1) / 64].apart |= 1 << ((i + 1) % 64);
            }
            if insn.simple {
                continue;
            }
            let mut lead = |at: u64| {
                if let Some(to) = places.get(at) {
                    marks[to / 64].leads |= 1 << (to % 64);
                }
            };
            insn.direct_target()
                .filter(|t| range.contains(t))
                .into_iter()
                .for_each(&mut lead);
            if insn.is_overlapped() {
                lead(insn.next());
            }
            if !stops && insn.flow == FlowControl::ConditionalBranch {
                marks[(i + 1) / 64].chosen |= 1 << ((i + 1) % 64);
            }
        }
        let mut graph = Cfg::default();
        graph.cut(insns, places, &marks);
        graph.index_blocks();
        let unresolved = graph.connect(entries, jumps);
        graph.find_roots(range, entries, unresolved);
        graph
    }

    /// This graph with more known targets of jumps, at which blocks are cut. All other inputs
    /// are unchanged. `None` if a target is in filler that was dropped from the instructions, which
    /// were at `places`.
    pub fn with_jumps(
        mut self,
        places: &AddressIndex,
        range: &Range<u64>,
        entries: &Entries,
        jumps: &[KnownJump],
    ) -> Option<Cfg> {
        let mut cuts: Vec<u32> = Vec::new();
        for &target in jumps.iter().flat_map(|j| &j.targets) {
            match self.places.get(target) {
                Some(insn) => cuts.push(insn as u32),
                None if places.get(target).is_some() => return None,
                None => {}
            }
        }
        cuts.sort_unstable();
        cuts.dedup();
        let mut cuts = cuts.into_iter().peekable();
        let whole = std::mem::take(&mut self.blocks);
        self.blocks.reserve(whole.len() + cuts.len());
        for block in whole {
            let mut part = Block {
                insns: block.insns.clone(),
                succs: BlockIds::new(),
                preds: BlockIds::new(),
                external_entry: block.external_entry,
            };
            while let Some(cut) = cuts.next_if(|&cut| cut < block.insns.end) {
                if cut > part.insns.start {
                    let rest = Block {
                        insns: cut..block.insns.end,
                        external_entry: false,
                        ..part.clone()
                    };
                    part.insns.end = cut;
                    self.blocks.push(std::mem::replace(&mut part, rest));
                }
            }
            self.blocks.push(part);
        }
        self.index_blocks();
        self.pads.clear();
        let unresolved = self.connect(entries, jumps);
        self.find_roots(range, entries, unresolved);
        Some(self)
    }

    /// A graph of these instructions and blocks, for tests of later passes.
    #[cfg(test)]
    pub(crate) fn of_parts(insns: Vec<Insn>, blocks: Vec<Block>) -> Cfg {
        let mut graph = Cfg {
            places: AddressIndex::of(insns.iter().map(|i| i.ip)),
            insns,
            blocks,
            ..Cfg::default()
        };
        graph.index_blocks();
        graph
    }

    fn index_blocks(&mut self) {
        let starts = self
            .blocks
            .iter()
            .map(|b| self.insns[b.insns.start as usize].ip);
        self.starts = self.places.some(starts);
    }

    /// Finds the roots. `unresolved`: an indirect jump has unknown targets.
    fn find_roots(&mut self, range: &Range<u64>, entries: &Entries, unresolved: bool) {
        self.roots = self
            .blocks
            .iter()
            .map(|b| b.external_entry && b.preds.is_empty())
            .collect();
        let suspected = if unresolved {
            &entries.suspected[..]
        } else {
            &[]
        };
        for at in entries.called.iter().chain(suspected).chain([&range.start]) {
            if let Some(b) = self.block_at(*at) {
                self.roots[b.0 as usize] = true;
            }
        }
    }

    /// The block that starts at `ip`.
    pub fn block_at(&self, ip: u64) -> Option<BlockId> {
        self.starts.get(ip).map(|i| BlockId(i as u32))
    }

    /// The instruction that starts at `ip`.
    pub fn insn_at(&self, ip: u64) -> Option<usize> {
        self.places.get(ip)
    }

    /// Instructions of a block.
    pub fn insns_of(&self, block: usize) -> &[Insn] {
        let r = &self.blocks[block].insns;
        &self.insns[r.start as usize..r.end as usize]
    }

    /// The block that holds instruction number `insn`.
    pub fn block_of(&self, insn: usize) -> usize {
        self.blocks
            .partition_point(|b| b.insns.start as usize <= insn)
            - 1
    }

    /// Cuts the instructions into blocks, and drops filler.
    fn cut(&mut self, mut insns: Vec<Insn>, mut places: AddressIndex, marks: &[Marks]) {
        let begins = |m: &Marks| m.leads | m.chosen | m.apart;
        let mut blocks: Vec<Block> =
            Vec::with_capacity(marks.iter().map(|m| begins(m).count_ones() as usize).sum());
        let (mut filler, mut dropped) = (Vec::new(), FastHasher::default());
        let bit = |set: fn(&Marks) -> u64, i: usize| set(&marks[i / 64]) >> (i % 64) & 1 == 1;
        let all = insns.len();
        // Instructions before `next` are done; those from `from` on move down to index `to`.
        let (mut next, mut from, mut to) = (0, 0, 0);
        for (n, m) in marks.iter().enumerate() {
            let mut left = begins(m);
            while left != 0 {
                let i = 64 * n + left.trailing_zeros() as usize;
                left &= left - 1;
                if i < next || i >= all {
                    continue;
                }
                let mut first = i;
                if bit(|m| m.apart, i) {
                    while first < all && !bit(|m| m.leads, first) && is_padding(&insns[first].inst)
                    {
                        filler.push(insns[first].ip);
                        dropped.write_u64(insns[first].ip);
                        first += 1;
                    }
                }
                if first > i {
                    if to != from {
                        insns.copy_within(from..i, to);
                    }
                    (to, from) = (to + i - from, first);
                }
                let at = (to + first - from) as u32;
                if let Some(before) = blocks.last_mut() {
                    before.insns.end = at;
                }
                if first < all {
                    blocks.push(Block {
                        insns: at..at,
                        succs: BlockIds::new(),
                        preds: BlockIds::new(),
                        external_entry: bit(|m| m.outside, first),
                    });
                }
                next = first + 1;
            }
        }
        if to != from {
            insns.copy_within(from.., to);
            insns.truncate(to + all - from);
            places.remove(&filler);
        }
        if let Some(last) = blocks.last_mut() {
            last.insns.end = insns.len() as u32;
        }
        (self.insns, self.places, self.blocks, self.dropped) =
            (insns, places, blocks, dropped.finish());
    }

    /// Finds the neighbours of blocks, and if some indirect jump has unknown targets.
    fn connect(&mut self, entries: &Entries, jumps: &[KnownJump]) -> bool {
        let n = self.blocks.len();
        let mut unresolved = false;
        self.exits = Vec::with_capacity(n);
        for b in 0..n {
            let last = &self.insns[self.blocks[b].insns.end as usize - 1];
            let mut exit = Exit::default();
            // Target of a branch, and the block at which control continues after this one.
            let (mut target, mut next, mut table) = (None, None, None);
            match last.flow {
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                    target = last.direct_target().and_then(|t| self.block_at(t));
                    exit.leaves = target.is_none();
                }
                FlowControl::IndirectBranch => {
                    table = jumps
                        .binary_search_by_key(&last.ip, |j| j.ip)
                        .ok()
                        .map(|found| &jumps[found]);
                    exit.leaves = table.is_none_or(|t| !t.closed);
                    unresolved |= exit.leaves;
                }
                FlowControl::Return => exit.returns = true,
                _ => {}
            }
            if !last.ends_flow() {
                let end = last.next();
                let follows = self
                    .blocks
                    .get(b + 1)
                    .is_some_and(|next| self.insns[next.insns.start as usize].ip == end);
                next = if follows {
                    Some(BlockId(b as u32 + 1))
                } else {
                    self.block_at(end)
                };
                exit.leaves |= next.is_none();
            }
            self.exits.push(exit);
            let this = BlockId(b as u32);
            if table.is_some() || !entries.pads.is_empty() {
                let mut succs: BlockIds = target.into_iter().chain(next).collect();
                succs.extend(
                    table
                        .into_iter()
                        .flat_map(|t| &t.targets)
                        .filter_map(|&t| self.block_at(t)),
                );
                self.add_pads(b, entries, &mut succs);
                succs.sort_unstable();
                succs.dedup();
                succs
                    .iter()
                    .for_each(|s| self.blocks[s.0 as usize].preds.push(this));
                self.blocks[b].succs = succs;
                continue;
            }
            // The same for at most two successors.
            let next = next.filter(|n| target != Some(*n));
            let (first, second) = if next < target && next.is_some() {
                (next, target)
            } else {
                (target, next)
            };
            for s in [first, second].into_iter().flatten() {
                self.blocks[s.0 as usize].preds.push(this);
                self.blocks[b].succs.push(s);
            }
        }
        unresolved
    }

    fn add_pads(&mut self, b: usize, entries: &Entries, succs: &mut BlockIds) {
        if entries.pads.is_empty() {
            return;
        }
        let insns = self.insns_of(b);
        let (start, last) = (insns[0].ip, &insns[insns.len() - 1]);
        let end = last.next();
        let from = entries.pads.partition_point(|p| p.0.end <= start);
        let mut pads: Vec<BlockId> = entries.pads[from..]
            .iter()
            .take_while(|p| p.0.start < end)
            .filter_map(|p| self.block_at(p.1))
            .collect();
        pads.sort_unstable();
        pads.dedup();
        self.pads
            .extend(pads.iter().map(|&p| (BlockId(b as u32), p)));
        succs.extend(pads);
    }

    /// Blocks that control can reach from the entry or from outside.
    pub fn reachable(&self) -> Vec<bool> {
        let mut seen = vec![false; self.blocks.len()];
        let mut work: Vec<usize> = (0..self.blocks.len())
            .filter(|&b| self.blocks[b].external_entry)
            .collect();
        work.iter().for_each(|&b| seen[b] = true);
        while let Some(b) = work.pop() {
            for s in &self.blocks[b].succs {
                if !std::mem::replace(&mut seen[s.0 as usize], true) {
                    work.push(s.0 as usize);
                }
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x86::decode::decode_function;

    fn graph(bytes: &[u8], entries: &Entries) -> Cfg {
        let body = decode_function(bytes, 0x100, &entries.outside).unwrap();
        Cfg::build(body, &(0x100..0x100 + bytes.len() as u64), entries, &[])
    }

    fn shape(g: &Cfg) -> Vec<(u64, Vec<u32>)> {
        g.blocks
            .iter()
            .map(|b| {
                (
                    g.insns[b.insns.start as usize].ip,
                    b.succs.iter().map(|s| s.0).collect(),
                )
            })
            .collect()
    }

    #[test]
    fn a_loop_has_its_back_edge() {
        // xor eax,eax; L: inc eax; cmp eax,10; jne L; ret
        let g = graph(
            &[0x31, 0xc0, 0xff, 0xc0, 0x83, 0xf8, 0x0a, 0x75, 0xf9, 0xc3],
            &Entries::default(),
        );
        assert_eq!(
            shape(&g),
            [(0x100, vec![1]), (0x102, vec![1, 2]), (0x109, vec![])]
        );
        assert!(g.exits[2].returns);
        assert!(g.blocks[0].external_entry && !g.blocks[1].external_entry);
    }

    #[test]
    fn filler_after_a_jump_is_dropped() {
        // jmp L; int3; nop; L: ret
        let g = graph(&[0xeb, 0x02, 0xcc, 0x90, 0xc3], &Entries::default());
        assert_eq!(shape(&g), [(0x100, vec![1]), (0x104, vec![])]);
        assert_eq!(g.insns.len(), 2);
    }

    #[test]
    fn filler_after_a_conditional_branch_is_code() {
        // je L; nop; L: ret
        let g = graph(&[0x74, 0x01, 0x90, 0xc3], &Entries::default());
        assert_eq!(
            shape(&g),
            [(0x100, vec![1, 2]), (0x102, vec![2]), (0x103, vec![])]
        );
    }

    #[test]
    fn branches_out_of_the_function_leave() {
        // je +0x1000; jmp -0x100
        let g = graph(
            &[0x0f, 0x84, 0x00, 0x10, 0, 0, 0xe9, 0, 0xff, 0xff, 0xff],
            &Entries::default(),
        );
        assert_eq!(shape(&g), [(0x100, vec![1]), (0x106, vec![])]);
        assert!(g.exits[0].leaves && g.exits[1].leaves);
    }

    #[test]
    fn calls_lead_to_their_landing_pads() {
        // call +0x1000; ret; pad: nop; ret
        let pads = vec![(0x100..0x105, 0x106)];
        let g = graph(
            &[0xe8, 0, 0x10, 0, 0, 0xc3, 0x90, 0xc3],
            &Entries {
                pads,
                ..Entries::default()
            },
        );
        assert_eq!(shape(&g), [(0x100, vec![1]), (0x106, vec![])]);
        assert!(g.blocks[1].external_entry);
        assert_eq!(g.pads, [(BlockId(0), BlockId(1))]);
    }

    #[test]
    fn cutting_blocks_gives_the_graph_that_building_gives() {
        // 100: cmp edi, 3; 103: je 110; 105: jmp rax; 107: nop; 108: mov eax, edi; 10a: call 10f
        // (pad: 10f); 10f: ret; 110: inc eax; 112: jne 108; 114: nop; 115: jmp rcx; 117: int3; 118:
        // ret
        let code = [
            0x83, 0xff, 3, 0x74, 0x0b, 0xff, 0xe0, 0x90, 0x89, 0xf8, 0xe8, 0, 0, 0, 0, 0xc3, 0xff,
            0xc0, 0x75, 0xf4, 0x90, 0xff, 0xe1, 0xcc, 0xc3,
        ];
        let range = 0x100..0x100 + code.len() as u64;
        let body = decode_function(&code, 0x100, &[]).unwrap();
        let entries = Entries {
            pads: vec![(0x10a..0x10f, 0x10f)],
            suspected: vec![0x110],
            ..Entries::default()
        };
        let (mut random, mut cut) = (1u64, 0);
        let mut targets = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let chosen = random >> 32 & random >> 16;
            (0..30)
                .filter(|bit| chosen >> bit & 1 == 1)
                .map(|bit| 0xff + bit)
                .collect::<Vec<u64>>()
        };
        let jumps = |a: &[u64], b: &[u64]| {
            [(0x105, a), (0x115, b)]
                .map(|(ip, targets)| KnownJump {
                    ip,
                    targets: targets.to_vec(),
                    closed: a.len().is_multiple_of(2),
                })
                .to_vec()
        };
        for _ in 0..2000 {
            let (a, b, more) = (targets(), targets(), targets());
            let mut all = [&a[..], &more].concat();
            all.sort_unstable();
            all.dedup();
            let first = Cfg::build(body.clone(), &range, &entries, &jumps(&a, &b));
            let second = Cfg::build(body.clone(), &range, &entries, &jumps(&all, &b));
            if let Some(graph) = first.with_jumps(&body.places, &range, &entries, &jumps(&all, &b))
            {
                assert_eq!(format!("{graph:?}"), format!("{second:?}"));
                cut += 1;
            }
        }
        assert!(cut > 500, "{cut}");
    }
}

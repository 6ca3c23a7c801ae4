//! Basic blocks of one function.
//!
//! A block starts wherever control may arrive: branch targets, landing pads, jump table targets, and every address that other code is
//! known or suspected to reach. Calls do not end blocks; the landing pads of a block's calls are its successors. Filler that nothing
//! reaches is dropped.

use crate::disasm::{Body, Places, is_padding, jump_target};
use crate::hash::FastHasher;
use crate::ir::{Block, BlockId, BlockIds, Insn};
use iced_x86::FlowControl;
use std::hash::Hasher;
use std::ops::Range;

/// How control leaves a block, beyond the successors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// By `ret`.
    pub returns: bool,
    /// To code that is not among the successors: another function, an indirect target that the clone does not resolve.
    pub leaves: bool,
}

/// Where control may come from other than this function's own direct branches. All lists are sorted.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    /// Other code calls these; each is an instruction start.
    pub called: Vec<u64>,
    /// Other code branches to these; each is an instruction start.
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
    /// No others, and the clone gets its own table.
    pub closed: bool,
}

/// Instructions and blocks.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Sorted by address.
    pub insns: Vec<Insn>,
    /// Sorted by address.
    pub blocks: Vec<Block>,
    /// Per block.
    pub exits: Vec<Exit>,
    /// Blocks that control enters from outside with values that nothing inside explains. Landing pads are not among
    /// them, nor are branches from elsewhere (a cold part returns with the values that left).
    pub roots: Vec<bool>,
    /// Instructions by their addresses.
    pub places: Places,
    /// Blocks by their addresses.
    starts: Places,
    /// `(block, landing pad)`: the block has instructions that the pad covers. Sorted.
    pub pads: Vec<(BlockId, BlockId)>,
    /// Which filler was dropped, as a number: of graphs of the same code, those with the same one have the same instructions.
    pub dropped: u64,
}

impl Graph {
    /// Builds the graph of instructions that lie in `range`. They stay where they are: a large program's fill hundreds of megabytes.
    pub fn build(body: Body, range: &Range<u64>, entries: &Entries, jumps: &[KnownJump]) -> Graph {
        let Body { insns, places } = body;
        let mut leader = vec![false; insns.len()];
        let mut external = vec![false; insns.len()];
        let mut lead = |at: u64, from_outside: bool| {
            if let Some(i) = places.get(at) {
                leader[i] = true;
                external[i] |= from_outside;
            }
        };
        lead(range.start, true);
        entries.called.iter().chain(&entries.outside).for_each(|&at| lead(at, true));
        entries.suspected.iter().for_each(|&at| lead(at, true));
        entries.pads.iter().for_each(|p| lead(p.1, true));
        jumps.iter().flat_map(|j| &j.targets).for_each(|&at| lead(at, false));
        for insn in &insns {
            insn.direct_target().filter(|t| range.contains(t)).into_iter().for_each(|at| lead(at, false));
            if insn.is_overlapped() {
                lead(insn.next(), false);
            }
        }
        let all = insns.len();
        let mut graph = Graph::default();
        graph.cut(insns, &leader, &external);
        graph.places = if graph.insns.len() == all { places } else { Places::of(graph.insns.iter().map(|i| i.ip)) };
        graph.starts = Places::of(graph.blocks.iter().map(|b| graph.insns[b.insns.start as usize].ip));
        graph.connect(entries, jumps);
        graph.find_roots(range, entries);
        graph
    }

    /// The same graph where more targets of jumps are known, but nothing else that it was built with has changed: blocks are cut there. `None` if a target is filler that was dropped from
    /// the instructions, which were at `places`.
    pub fn with_jumps(mut self, places: &Places, range: &Range<u64>, entries: &Entries, jumps: &[KnownJump]) -> Option<Graph> {
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
            let mut part = Block { insns: block.insns.clone(), succs: BlockIds::new(), preds: BlockIds::new(), external_entry: block.external_entry };
            while let Some(cut) = cuts.next_if(|&cut| cut < block.insns.end) {
                if cut > part.insns.start {
                    let rest = Block { insns: cut..block.insns.end, external_entry: false, ..part.clone() };
                    part.insns.end = cut;
                    self.blocks.push(std::mem::replace(&mut part, rest));
                }
            }
            self.blocks.push(part);
        }
        self.starts = Places::of(self.blocks.iter().map(|b| self.insns[b.insns.start as usize].ip));
        self.pads.clear();
        self.connect(entries, jumps);
        self.find_roots(range, entries);
        Some(self)
    }

    fn find_roots(&mut self, range: &Range<u64>, entries: &Entries) {
        let unresolved = (0..self.blocks.len()).any(|b| {
            let last = &self.insns[self.blocks[b].insns.end as usize - 1];
            last.flow == FlowControl::IndirectBranch && self.exits[b].leaves
        });
        self.roots = self.blocks.iter().map(|b| b.external_entry && b.preds.is_empty()).collect();
        let suspected = if unresolved { &entries.suspected[..] } else { &[] };
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
        self.blocks.partition_point(|b| b.insns.start as usize <= insn) - 1
    }

    fn cut(&mut self, mut insns: Vec<Insn>, leader: &[bool], external: &[bool]) {
        // Most leaders begin a block, and few blocks begin elsewhere.
        self.blocks.reserve(leader.iter().filter(|l| **l).count() * 3 / 2);
        let mut open = false;
        let mut expected = 0;
        let mut kept = 0;
        let mut dropped = FastHasher::default();
        for i in 0..insns.len() {
            let insn = &insns[i];
            open &= insn.ip == expected;
            if !open && !leader[i] && is_padding(&insn.inst) {
                dropped.write_u64(insn.ip);
                continue;
            }
            let at = kept as u32;
            if !open || leader[i] {
                self.blocks.push(Block { insns: at..at, succs: BlockIds::new(), preds: BlockIds::new(), external_entry: external[i] });
            }
            if let Some(block) = self.blocks.last_mut() {
                block.insns.end = at + 1;
            }
            expected = insn.end();
            open = !insn.ends_flow() && !insn.is_overlapped() && insn.flow != FlowControl::ConditionalBranch;
            // After a conditional branch a new block starts, padding or not.
            if insn.flow == FlowControl::ConditionalBranch {
                open = true;
                if let Some(next) = insns.get(i + 1)
                    && next.ip == expected
                    && !leader[i + 1]
                {
                    // Opened here, filled by the next instruction.
                    let first = at + 1;
                    self.blocks.push(Block { insns: first..first, succs: BlockIds::new(), preds: BlockIds::new(), external_entry: false });
                }
            }
            if kept < i {
                insns[kept] = insns[i];
            }
            kept += 1;
        }
        insns.truncate(kept);
        self.insns = insns;
        self.dropped = dropped.finish();
    }

    fn connect(&mut self, entries: &Entries, jumps: &[KnownJump]) {
        self.exits = vec![Exit::default(); self.blocks.len()];
        for b in 0..self.blocks.len() {
            let last = &self.insns[self.blocks[b].insns.end as usize - 1];
            let (end, follows) = (last.next(), !last.ends_flow());
            let mut succs = BlockIds::new();
            let mut exit = Exit::default();
            match last.flow {
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                    match jump_target(&last.inst).and_then(|t| self.block_at(t)) {
                        Some(to) => succs.push(to),
                        None => exit.leaves = true,
                    }
                }
                FlowControl::IndirectBranch => match jumps.binary_search_by_key(&last.ip, |j| j.ip) {
                    Ok(found) => {
                        exit.leaves = !jumps[found].closed;
                        succs.extend(jumps[found].targets.iter().filter_map(|&t| self.block_at(t)));
                    }
                    Err(_) => exit.leaves = true,
                },
                FlowControl::Return => exit.returns = true,
                _ => {}
            }
            if follows {
                match self.block_at(end) {
                    Some(next) => succs.push(next),
                    None => exit.leaves = true,
                }
            }
            self.add_pads(b, entries, &mut succs);
            succs.sort_unstable();
            succs.dedup();
            self.blocks[b].succs = succs;
            self.exits[b] = exit;
        }
        for b in 0..self.blocks.len() {
            for s in 0..self.blocks[b].succs.len() {
                let to = self.blocks[b].succs[s].0 as usize;
                self.blocks[to].preds.push(BlockId(b as u32));
            }
        }
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
        self.pads.extend(pads.iter().map(|&p| (BlockId(b as u32), p)));
        succs.extend(pads);
    }

    /// Blocks that control can reach from the entry or from outside.
    pub fn reachable(&self) -> Vec<bool> {
        let mut seen = vec![false; self.blocks.len()];
        let mut work: Vec<usize> = (0..self.blocks.len()).filter(|&b| self.blocks[b].external_entry).collect();
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
    use crate::disasm::decode;

    fn graph(bytes: &[u8], entries: &Entries) -> Graph {
        let body = decode(bytes, 0x100, &entries.outside).unwrap();
        Graph::build(body, &(0x100..0x100 + bytes.len() as u64), entries, &[])
    }

    fn shape(g: &Graph) -> Vec<(u64, Vec<u32>)> {
        g.blocks.iter().map(|b| (g.insns[b.insns.start as usize].ip, b.succs.iter().map(|s| s.0).collect())).collect()
    }

    #[test]
    fn a_loop_has_its_back_edge() {
        // xor eax,eax; L: inc eax; cmp eax,10; jne L; ret
        let g = graph(&[0x31, 0xc0, 0xff, 0xc0, 0x83, 0xf8, 0x0a, 0x75, 0xf9, 0xc3], &Entries::default());
        assert_eq!(shape(&g), [(0x100, vec![1]), (0x102, vec![1, 2]), (0x109, vec![])]);
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
        assert_eq!(shape(&g), [(0x100, vec![1, 2]), (0x102, vec![2]), (0x103, vec![])]);
    }

    #[test]
    fn branches_out_of_the_function_leave() {
        // je +0x1000; jmp -0x100
        let g = graph(&[0x0f, 0x84, 0x00, 0x10, 0, 0, 0xe9, 0, 0xff, 0xff, 0xff], &Entries::default());
        assert_eq!(shape(&g), [(0x100, vec![1]), (0x106, vec![])]);
        assert!(g.exits[0].leaves && g.exits[1].leaves);
    }

    #[test]
    fn calls_lead_to_their_landing_pads() {
        // call +0x1000; ret; pad: nop; ret
        let pads = vec![(0x100..0x105, 0x106)];
        let g = graph(&[0xe8, 0, 0x10, 0, 0, 0xc3, 0x90, 0xc3], &Entries { pads, ..Entries::default() });
        assert_eq!(shape(&g), [(0x100, vec![1]), (0x106, vec![])]);
        assert!(g.blocks[1].external_entry);
        assert_eq!(g.pads, [(BlockId(0), BlockId(1))]);
    }

    #[test]
    fn cutting_blocks_gives_the_graph_that_building_gives() {
        // 100: cmp edi, 3; 103: je 110; 105: jmp rax; 107: nop; 108: mov eax, edi; 10a: call 10f (pad: 10f); 10f: ret; 110: inc eax; 112: jne 108; 114: nop; 115: jmp rcx; 117: int3; 118: ret
        let code = [
            0x83, 0xff, 3, 0x74, 0x0b, 0xff, 0xe0, 0x90, 0x89, 0xf8, 0xe8, 0, 0, 0, 0, 0xc3, 0xff, 0xc0, 0x75, 0xf4, 0x90, 0xff, 0xe1, 0xcc, 0xc3,
        ];
        let range = 0x100..0x100 + code.len() as u64;
        let body = decode(&code, 0x100, &[]).unwrap();
        let entries = Entries { pads: vec![(0x10a..0x10f, 0x10f)], suspected: vec![0x110], ..Entries::default() };
        let (mut random, mut cut) = (1u64, 0);
        let mut targets = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let chosen = random >> 32 & random >> 16;
            (0..30).filter(|bit| chosen >> bit & 1 == 1).map(|bit| 0xff + bit).collect::<Vec<u64>>()
        };
        let jumps = |a: &[u64], b: &[u64]| [(0x105, a), (0x115, b)].map(|(ip, targets)| KnownJump { ip, targets: targets.to_vec(), closed: a.len() % 2 == 0 }).to_vec();
        for _ in 0..2000 {
            let (a, b, more) = (targets(), targets(), targets());
            let mut all = [&a[..], &more].concat();
            all.sort_unstable();
            all.dedup();
            let first = Graph::build(body.clone(), &range, &entries, &jumps(&a, &b));
            let second = Graph::build(body.clone(), &range, &entries, &jumps(&all, &b));
            if let Some(graph) = first.with_jumps(&body.places, &range, &entries, &jumps(&all, &b)) {
                assert_eq!(format!("{graph:?}"), format!("{second:?}"));
                cut += 1;
            }
        }
        assert!(cut > 500, "{cut}");
    }
}

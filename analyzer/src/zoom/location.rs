//! The location tree: from the address space down to hot contiguous regions.
//!
//! A region is divided into pages. A hot subregion is a longest run of contiguous pages, each with at
//! least one access, that has at least the share τ of the region's accesses. It is divided again with
//! smaller pages ([`PAGE_SHIFTS`]), until a page size would be below the smallest, or below a block.
//! Page sizes that cut nothing off are passed over, and a region's ends are given in the smallest pages
//! that keep it whole. Cold pages inside a run belong to it, so that a
//! region is a whole object or several related ones.
//!
//! D of a region is that of the accesses to its blocks, and counts *all* blocks that were touched
//! between two accesses, inside and outside of the region, inside one sample.

use crate::blocks::BlockEntry;
use crate::code::{CLASS_STORE, CodeMap};
use crate::objects::{Resolver, UNKNOWN, object_of};
use crate::totals::GroupReuse;
use serde::Serialize;
use std::collections::HashMap;

/// Page sizes by level, as powers of two: 1 GiB to 4 KiB.
pub const PAGE_SHIFTS: [u32; 6] = [30, 26, 22, 18, 15, 12];
/// Functions and lines listed per region.
const CODE_ROWS: usize = 10;

/// What touched a region.
#[derive(Clone, Debug, Serialize)]
pub struct CodePart {
    /// Function (for lines: the innermost).
    pub function: String,
    /// Module.
    pub module: String,
    /// Source file; empty for functions and if unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// Line; left out for functions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Accesses that start in the region.
    #[serde(rename = "A")]
    pub accesses: u64,
    /// Share of the region's accesses, percent.
    #[serde(rename = "A_pct")]
    pub share: Option<f64>,
    /// Mean D of its reuses there.
    #[serde(rename = "D_mean")]
    pub distance_mean: Option<f64>,
    /// Greatest D.
    #[serde(rename = "D_max")]
    pub distance_max: Option<u64>,
}

/// A region.
#[derive(Clone, Debug, Serialize)]
pub struct Region {
    /// Numbers of the children on the way from the root; the root is empty.
    pub id: String,
    /// Process; none for the root.
    pub process: Option<u32>,
    /// First address, hexadecimal.
    pub start: String,
    /// Last address, hexadecimal.
    pub end: String,
    /// Page size at which it was found; 0 for the root.
    pub page: u64,
    /// Bytes from first to last page. Saturates for the root.
    pub bytes: u64,
    /// Accesses that start in it.
    #[serde(rename = "A")]
    pub accesses: u64,
    /// Share of all accesses, percent.
    #[serde(rename = "A_pct")]
    pub share: Option<f64>,
    /// Share of the parent's accesses, percent.
    #[serde(rename = "A_parent_pct")]
    pub parent_share: Option<f64>,
    /// Distinct blocks touched.
    pub blocks: u64,
    /// Accesses per block.
    #[serde(rename = "A_per_block")]
    pub accesses_per_block: Option<f64>,
    /// Mean D of the touches of its blocks.
    #[serde(rename = "D_mean")]
    pub distance_mean: Option<f64>,
    /// Greatest D.
    #[serde(rename = "D_max")]
    pub distance_max: Option<u64>,
    /// Mean reuse interval.
    pub interval_mean: Option<f64>,
    /// Block touches that are reuses.
    pub reuses: u64,
    /// Block touches that are the first of their sample.
    pub first_touches: u64,
    /// Share of the region's accesses that is in none of its children, percent; none without children.
    #[serde(rename = "A_cold_pct")]
    pub cold_share: Option<f64>,
    /// Functions that touch it, most accesses first.
    pub functions: Vec<CodePart>,
    /// Lines that touch it.
    pub lines: Vec<CodePart>,
    /// Objects in it, most accesses first.
    pub objects: Vec<ObjectPart>,
    /// Hot subregions by address.
    pub children: Vec<Region>,
}

/// An object's part of a region.
#[derive(Clone, Debug, Serialize)]
pub struct ObjectPart {
    /// Name.
    pub object: String,
    /// Kind.
    pub kind: String,
    /// Accesses to it inside the region.
    #[serde(rename = "A")]
    pub accesses: u64,
    /// Share of the region's accesses, percent.
    #[serde(rename = "A_pct")]
    pub share: Option<f64>,
}

/// The tree.
#[derive(Clone, Debug, Serialize)]
pub struct LocationZoom {
    /// Bytes of a block.
    pub block: u64,
    /// τ, percent.
    pub tau_pct: f64,
    /// Page sizes by level.
    pub pages: Vec<u64>,
    /// Final region with the greatest mean D.
    pub worst: Option<String>,
    /// The whole address space.
    pub root: Region,
}

struct Zoomer<'a> {
    code: &'a CodeMap,
    resolver: Option<&'a Resolver>,
    spaces: &'a [u32],
    block_shift: u32,
    tau: f64,
    total: u64,
    pages: Vec<u32>,
}

fn pct(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 * 100.0 / whole as f64)
}

fn mean(sum: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum as f64 / count as f64)
}

/// Sums over entries.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sums {
    pub(crate) starts: u64,
    pub(crate) reuse: GroupReuse,
}

impl Sums {
    pub(crate) fn add(&mut self, entry: &BlockEntry) {
        self.starts += entry.starts;
        self.reuse.merge(&entry.reuse);
    }
}

/// Page size at which the zoom ends, unless another is asked for.
pub const STOP: u64 = 4096;

/// Builds the tree from entries that are sorted by address space, block, group. `tau` is a percentage; pages get no smaller than `stop` bytes.
pub fn zoom(entries: &[BlockEntry], spaces: &[u32], code: &CodeMap, block_shift: u32, tau: f64, stop: u64, resolver: Option<&Resolver>) -> LocationZoom {
    let total = entries.iter().map(|e| e.starts).sum();
    let pages: Vec<u32> = PAGE_SHIFTS.iter().copied().filter(|&p| p >= block_shift && 1u64 << p >= stop).chain((stop < 4096 && stop.is_power_of_two() && stop.ilog2() >= block_shift).then(|| stop.ilog2())).collect();
    let zoomer = Zoomer { code, resolver, spaces, block_shift, tau, total, pages };
    let mut root = zoomer.region(String::new(), None, entries, None, total);
    root.children = zoomer.children(&root, entries, 0);
    root.cold_share = cold(&root);
    let mut leaves = Vec::new();
    collect_leaves(&root, &mut leaves);
    let worst = leaves
        .iter()
        .filter(|r| !r.id.is_empty() && r.distance_mean.is_some())
        .max_by(|a, b| a.distance_mean.unwrap_or(0.0).total_cmp(&b.distance_mean.unwrap_or(0.0)).then(b.id.cmp(&a.id)))
        .map(|r| r.id.clone());
    LocationZoom { block: 1 << block_shift, tau_pct: tau, pages: zoomer.pages.iter().map(|p| 1 << p).collect(), worst, root }
}

fn cold(region: &Region) -> Option<f64> {
    if region.children.is_empty() {
        return None;
    }
    let hot: u64 = region.children.iter().map(|c| c.accesses).sum();
    pct(region.accesses.saturating_sub(hot), region.accesses)
}

/// The final regions below a region, by address.
pub fn collect_leaves<'a>(region: &'a Region, leaves: &mut Vec<&'a Region>) {
    if region.children.is_empty() {
        leaves.push(region);
    }
    for child in &region.children {
        collect_leaves(child, leaves);
    }
}

/// The functions (or lines) with the most accesses. `all` is the accesses of the whole that they are parts of.
pub(crate) fn code_parts(code: &CodeMap, sums: &HashMap<u32, Sums>, by_line: bool, all: u64) -> Vec<CodePart> {
    let mut order: Vec<(&u32, &Sums)> = sums.iter().collect();
    order.sort_by_key(|(i, s)| (std::cmp::Reverse(s.starts), **i));
    let name = |i: usize| {
        if by_line {
            let l = code.lines.get(i).cloned().unwrap_or_default();
            (l.function, l.module, l.file, Some(l.line))
        } else {
            let f = code.functions.get(i).cloned().unwrap_or_default();
            (f.function, f.module, String::new(), None)
        }
    };
    order
        .into_iter()
        .take(CODE_ROWS)
        .map(|(&i, s)| {
            let (function, module, file, line) = name(i as usize);
            CodePart {
                function,
                module,
                file,
                line,
                accesses: s.starts,
                share: pct(s.starts, all),
                distance_mean: mean(s.reuse.distance, s.reuse.reuses),
                distance_max: (s.reuse.reuses > 0).then_some(s.reuse.distance_max),
            }
        })
        .collect()
}

impl Zoomer<'_> {
    /// Describes the region of some entries. `page` is none for the root.
    fn region(&self, id: String, process: Option<u32>, entries: &[BlockEntry], page: Option<u32>, parent: u64) -> Region {
        let mut sums = Sums::default();
        let mut blocks = 0;
        let mut last = None;
        let mut by_function: HashMap<u32, Sums> = HashMap::new();
        let mut by_line: HashMap<u32, Sums> = HashMap::new();
        for entry in entries {
            sums.add(entry);
            if last != Some((entry.space, entry.block)) {
                last = Some((entry.space, entry.block));
                blocks += 1;
            }
            if entry.group & 3 != CLASS_STORE
                && let Some(piece) = self.code.pieces.get(entry.group as usize / 4)
            {
                by_function.entry(piece.function).or_default().add(entry);
                by_line.entry(piece.line).or_default().add(entry);
            }
        }
        let (start, end) = match (page, entries.first(), entries.last()) {
            (Some(page), Some(first), Some(last)) => {
                let up = page - self.block_shift;
                let start = u128::from(first.block >> up) << page;
                let end = (u128::from(last.block >> up) + 1) << page;
                (start, end - 1)
            }
            _ => (0, u128::from(u64::MAX)),
        };
        Region {
            id,
            process,
            start: format!("{start:#x}"),
            end: format!("{end:#x}"),
            page: page.map_or(0, |p| 1 << p),
            bytes: u64::try_from(end - start + 1).unwrap_or(u64::MAX),
            accesses: sums.starts,
            share: pct(sums.starts, self.total),
            parent_share: pct(sums.starts, parent),
            blocks,
            accesses_per_block: mean(sums.starts, blocks),
            distance_mean: mean(sums.reuse.distance, sums.reuse.reuses),
            distance_max: (sums.reuse.reuses > 0).then_some(sums.reuse.distance_max),
            interval_mean: mean(sums.reuse.interval, sums.reuse.reuses),
            reuses: sums.reuse.reuses,
            first_touches: sums.reuse.firsts,
            cold_share: None,
            functions: code_parts(self.code, &by_function, false, sums.starts),
            lines: code_parts(self.code, &by_line, true, sums.starts),
            objects: self.objects(entries, sums.starts),
            children: Vec::new(),
        }
    }

    /// The objects of some entries.
    fn objects(&self, entries: &[BlockEntry], all: u64) -> Vec<ObjectPart> {
        let Some(resolver) = self.resolver else { return Vec::new() };
        let mut by_object: HashMap<u32, u64> = HashMap::new();
        let mut last = None;
        for entry in entries {
            let page = (entry.space, entry.block << self.block_shift >> 12, entry.object);
            let object = match last {
                Some((at, object)) if at == page => object,
                _ => object_of(entry, self.spaces, resolver, self.block_shift),
            };
            last = Some((page, object));
            *by_object.entry(object).or_default() += entry.starts;
        }
        let mut order: Vec<(u32, u64)> = by_object.into_iter().filter(|o| o.0 != UNKNOWN).collect();
        order.sort_by_key(|&(object, accesses)| (std::cmp::Reverse(accesses), object));
        order
            .into_iter()
            .take(CODE_ROWS)
            .map(|(number, accesses)| {
                let object = resolver.objects.get(number as usize).cloned().unwrap_or_default();
                ObjectPart { object: object.name, kind: object.kind, accesses, share: pct(accesses, all) }
            })
            .collect()
    }

    /// Hot subregions of a region, with the page size of `level`, or the next ones if nothing is cut off.
    fn children(&self, region: &Region, entries: &[BlockEntry], level: usize) -> Vec<Region> {
        for level in level..self.pages.len() {
            let hot: Vec<&[BlockEntry]> = self
                .runs(entries, self.pages[level])
                .filter(|run| {
                    let accesses: u64 = run.iter().map(|e| e.starts).sum();
                    accesses > 0 && accesses as f64 * 100.0 >= self.tau * region.accesses as f64
                })
                .collect();
            if !region.id.is_empty() && hot.first().is_some_and(|run| run.len() == entries.len()) {
                continue;
            }
            return hot
                .iter()
                .enumerate()
                .map(|(k, run)| {
                    let id = if region.id.is_empty() { k.to_string() } else { format!("{}.{k}", region.id) };
                    let process = run.first().and_then(|e| self.spaces.get(e.space as usize)).copied();
                    // The smallest pages in which it is still one run show best where it begins and ends.
                    let whole = |&l: &usize| self.runs(run, self.pages[l]).take(2).count() == 1;
                    let tight = (level..self.pages.len()).take_while(whole).last().unwrap_or(level);
                    let mut child = self.region(id, process, run, Some(self.pages[tight]), region.accesses);
                    child.children = self.children(&child, run, tight + 1);
                    child.cold_share = cold(&child);
                    child
                })
                .collect();
        }
        Vec::new()
    }

    /// Longest runs of contiguous pages with at least one access each.
    fn runs<'b>(&self, entries: &'b [BlockEntry], page: u32) -> impl Iterator<Item = &'b [BlockEntry]> + use<'b> {
        let up = page - self.block_shift;
        entries.chunk_by(move |a, b| a.space == b.space && (b.block >> up) - (a.block >> up) <= 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(address: u64, starts: u64, group: u32, distance: u64) -> BlockEntry {
        let reuse = GroupReuse { reuses: starts - 1, firsts: 1, distance: distance * (starts - 1), distance_max: distance, interval: starts - 1 };
        BlockEntry { block: address >> 6, space: 0, group, object: 0, starts, reuse }
    }

    /// A hot 8 KiB object, a lone hot page 40 KiB behind it, and scattered accesses far away.
    fn entries() -> Vec<BlockEntry> {
        let mut all: Vec<BlockEntry> = (0..128).map(|i| entry(0x7f00_0000_0000 + i * 64, 100, 1, 5)).collect();
        all.push(entry(0x7f00_0000_a000, 9000, 2, 700));
        all.extend((0..10).map(|i| entry(0x7f80_0000_0000 + i * (1 << 32), 10, 1, 1)));
        all.sort_by_key(|e| (e.space, e.block, e.group));
        all
    }

    #[test]
    fn hot_runs_of_pages_are_found_and_cold_ones_left_out() {
        let tree = zoom(&entries(), &[77], &CodeMap::new(), 6, 10.0, STOP, None);
        assert_eq!(tree.root.accesses, 128 * 100 + 9000 + 100);
        let mut leaves = Vec::new();
        collect_leaves(&tree.root, &mut leaves);
        let found: Vec<(&str, &str, u64, u64)> = leaves.iter().map(|r| (r.start.as_str(), r.end.as_str(), r.accesses, r.blocks)).collect();
        assert_eq!(found, [("0x7f0000000000", "0x7f0000001fff", 12800, 128), ("0x7f000000a000", "0x7f000000afff", 9000, 1)]);
        assert_eq!(leaves[0].process, Some(77));
        assert_eq!(leaves[0].distance_mean, Some(5.0));
        assert_eq!(leaves[0].accesses_per_block, Some(100.0));
        assert_eq!(tree.worst.as_deref(), Some(leaves[1].id.as_str()));
        assert_eq!(leaves[1].distance_max, Some(700));
    }

    #[test]
    fn the_share_of_a_region_must_reach_tau() {
        let tree = zoom(&entries(), &[77], &CodeMap::new(), 6, 50.0, STOP, None);
        let mut leaves = Vec::new();
        collect_leaves(&tree.root, &mut leaves);
        assert_eq!(leaves.len(), 1);
        assert_eq!(leaves[0].accesses, 12800);
    }

    #[test]
    fn nothing_and_the_ends_of_the_address_space_are_fine() {
        let tree = zoom(&[], &[], &CodeMap::new(), 6, 10.0, STOP, None);
        assert_eq!((tree.root.accesses, tree.root.children.len(), tree.worst), (0, 0, None));
        let ends = [entry(0, 5, 1, 1), entry(u64::MAX, 5, 1, 1)];
        let tree = zoom(&ends, &[1], &CodeMap::new(), 6, 10.0, STOP, None);
        assert_eq!(tree.root.children.len(), 2);
        let mut leaves = Vec::new();
        collect_leaves(&tree.root, &mut leaves);
        assert_eq!(leaves[1].end, "0xffffffffffffffff");
        // Blocks of one byte and of a gigabyte.
        for shift in [0, 30] {
            let entries = [BlockEntry { block: u64::MAX >> shift, ..entry(0, 5, 1, 1) }];
            assert_eq!(zoom(&entries, &[1], &CodeMap::new(), shift, 10.0, STOP, None).root.children.len(), 1);
        }
    }

    #[test]
    fn address_spaces_are_never_one_region() {
        let mut all = entries();
        all.extend(entries().into_iter().map(|e| BlockEntry { space: 1, ..e }));
        let tree = zoom(&all, &[10, 20], &CodeMap::new(), 6, 10.0, STOP, None);
        let mut leaves = Vec::new();
        collect_leaves(&tree.root, &mut leaves);
        assert_eq!(leaves.iter().map(|r| r.process).collect::<Vec<_>>(), [Some(10), Some(10), Some(20), Some(20)]);
    }
}

//! The table of objects: what each was loaded, and how far apart.

use super::{Resolver, UNKNOWN};
use crate::blocks::UnitEntry;
use crate::code::{CLASS_STORE, CodeMap};
use crate::mix::Mixed;
use crate::zoom::location::{CodePart, Sums, code_parts};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// [`UnitEntry::object`] of rows on mixed pages that belong to no object.
pub(crate) const NOBODY: u32 = u32::MAX;

/// An object.
#[derive(Clone, Debug, Serialize)]
pub struct ObjectRow {
    /// Variable, allocation site or file.
    pub object: String,
    /// `global`, `heap`, `stack`, `file`, `anonymous` or `unknown`.
    pub kind: String,
    /// Type, if known.
    #[serde(rename = "type")]
    pub of_type: String,
    /// Module of a global.
    pub module: String,
    /// Call stack of the allocation, from the inside out.
    pub stack: Vec<String>,
    /// Lives: blocks that were allocated there.
    pub instances: u64,
    /// Sum of their bytes.
    pub bytes: u64,
    /// Loads.
    #[serde(rename = "A")]
    pub accesses: u64,
    /// Share of all recorded loads, percent.
    #[serde(rename = "A_pct")]
    pub share: Option<f64>,
    /// Distinct blocks touched.
    pub blocks: u64,
    /// Loads per block.
    #[serde(rename = "A_per_block")]
    pub accesses_per_block: Option<f64>,
    /// Share of the loads that are Irregular, percent.
    #[serde(rename = "A_irr_pct")]
    pub irregular_share: Option<f64>,
    /// Mean D of the touches of its blocks, over all blocks in between.
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
    /// Functions that load it, most loads first.
    pub functions: Vec<CodePart>,
    /// Lines that load it.
    pub lines: Vec<CodePart>,
}

/// The object of an entry.
pub(crate) fn object_of(entry: &UnitEntry, spaces: &[u32], resolver: &Resolver, unit_shift: u32) -> u32 {
    match entry.object {
        NOBODY => UNKNOWN,
        0 => {
            let process = spaces.get(entry.space as usize).copied().unwrap_or(0);
            // The page is one object's for the whole run: any time will do.
            let address = entry.unit << unit_shift;
            if resolver.mixed(process, address) { UNKNOWN } else { resolver.find(process, address, 0) }
        }
        object => object,
    }
}

/// Makes the table from entries.
pub fn table(entries: impl Iterator<Item = UnitEntry>, spaces: &[u32], resolver: &Resolver, code: &CodeMap, unit_shift: u32) -> Vec<ObjectRow> {
    #[derive(Default)]
    struct Parts {
        sums: Sums,
        irregular: u64,
        blocks: u64,
        by_piece: HashMap<u32, Sums, Mixed>,
    }
    let mut parts: BTreeMap<u32, Parts> = BTreeMap::new();
    let mut total = 0;
    // The object of a unit's entries, and the blocks that these touched.
    let mut known: HashMap<(u32, u64, u32), (u32, u64), Mixed> = HashMap::default();
    for entry in entries.filter(|e| e.group & 3 != CLASS_STORE) {
        let (object, blocks) = known.entry((entry.space, entry.unit, entry.object)).or_insert_with(|| (object_of(&entry, spaces, resolver, unit_shift), 0));
        *blocks |= entry.blocks;
        total += entry.starts;
        let part = parts.entry(*object).or_default();
        part.sums.add(&entry);
        part.irregular += if entry.group & 3 == 2 { entry.starts } else { 0 };
        part.by_piece.entry(entry.group / 4).or_default().add(&entry);
    }
    // Entries of one unit are of different objects, unless none of them is known.
    let mut touched: HashMap<(u32, u64, u32), u64, Mixed> = HashMap::default();
    for ((space, unit, _), (object, blocks)) in known {
        *touched.entry((space, unit, object)).or_default() |= blocks;
    }
    for ((.., object), blocks) in touched {
        parts.entry(object).or_default().blocks += u64::from(blocks.count_ones());
    }
    let mean = |sum: u64, count: u64| (count > 0).then(|| sum as f64 / count as f64);
    let pct = |part: u64, whole: u64| mean(part, whole).map(|x| x * 100.0);
    let mut rows: Vec<ObjectRow> = parts
        .into_iter()
        .map(|(number, part)| {
            let object = resolver.objects.get(number as usize).cloned().unwrap_or_default();
            let reuse = &part.sums.reuse;
            let (mut by_function, mut by_line): (HashMap<u32, Sums>, HashMap<u32, Sums>) = Default::default();
            for (piece, sums) in &part.by_piece {
                if let Some(piece) = code.pieces.get(*piece as usize) {
                    by_function.entry(piece.function).or_default().merge(sums);
                    by_line.entry(piece.line).or_default().merge(sums);
                }
            }
            ObjectRow {
                object: object.name,
                kind: object.kind,
                of_type: object.of_type,
                module: object.module,
                stack: object.stack.split(" < ").filter(|s| !s.is_empty()).map(str::to_string).collect(),
                instances: resolver.instances.get(number as usize).copied().unwrap_or(0),
                bytes: resolver.bytes.get(number as usize).copied().unwrap_or(0),
                accesses: part.sums.starts,
                share: pct(part.sums.starts, total),
                blocks: part.blocks,
                accesses_per_block: mean(part.sums.starts, part.blocks),
                irregular_share: pct(part.irregular, part.sums.starts),
                distance_mean: mean(reuse.distance, reuse.reuses),
                distance_max: (reuse.reuses > 0).then_some(reuse.distance_max),
                interval_mean: mean(reuse.interval, reuse.reuses),
                reuses: reuse.reuses,
                first_touches: reuse.firsts,
                functions: code_parts(code, &by_function, false, part.sums.starts),
                lines: code_parts(code, &by_line, true, part.sums.starts),
            }
        })
        .collect();
    rows.sort_by(|a, b| b.accesses.cmp(&a.accesses).then_with(|| a.object.cmp(&b.object)));
    rows
}

//! Multi-resolution views: when ([`time_tree`]) and where in memory ([`location`]) locality is
//! worst.

pub mod all_blocks;
pub mod by_path;
pub mod call_paths;
pub mod context;
pub mod heap_samples;
pub mod heat_map;
pub mod location;
pub(crate) mod location_code;
pub(crate) mod location_divide;
pub mod location_sizes;
pub(crate) mod object_of_entry;
pub(crate) mod object_row;
pub(crate) mod objects;
pub mod python;
pub mod ratios;
pub(crate) mod region_footprints;
pub mod sample_order;
pub mod time_tree;

use crate::data::code_map::CodeMap;
use crate::data::counts::{AccessCounts, Metrics};
use crate::data::group::Group;
use crate::engine::BucketOutcome;
use crate::engine::outcome::group_counts;
use crate::stages::footprint::fold::Folded;
use serde::Serialize;

/// A function inside a node or region.
#[derive(Clone, Debug, Serialize)]
pub struct FunctionPart {
    /// Name.
    pub function: String,
    /// Module.
    pub module: String,
    /// Share of the node's recorded and implied loads, percent.
    #[serde(rename = "A_pct")]
    pub share: Option<f64>,
    /// Metrics of the function inside the node.
    #[serde(flatten)]
    pub metrics: Metrics,
}

/// A loop inside a node, with the loops inside it.
#[derive(Clone, Debug, Serialize)]
pub struct LoopPart {
    /// Its function.
    pub function: String,
    /// Module.
    pub module: String,
    /// Source file; empty if unknown.
    pub file: String,
    /// Line; 0 if unknown.
    pub line: u32,
    /// Link-time address of its head, hexadecimal.
    pub address: String,
    /// Nesting depth: number of loops around its body, itself included.
    pub depth: u32,
    /// Share of the node's recorded and implied loads, percent.
    #[serde(rename = "A_pct")]
    pub share: Option<f64>,
    /// Metrics of the loop inside the node.
    #[serde(flatten)]
    pub metrics: Metrics,
}

/// Counts by code.
#[derive(Clone, Debug, Default)]
pub struct ByCode {
    /// By function.
    pub functions: Vec<AccessCounts>,
    /// By loop, each including its inner loops.
    pub loops: Vec<AccessCounts>,
}

/// Counts of a bucket: the whole, and by code.
pub fn bucket_counts(bucket: &BucketOutcome, code: &CodeMap) -> (AccessCounts, ByCode) {
    let Folded {
        mut whole,
        mut functions,
        mut loops,
        ..
    } = bucket.footprint.fold(code);
    for (piece, names) in code.pieces.iter().enumerate() {
        let counts = piece_counts(bucket, piece);
        whole.add_rows(&counts);
        functions[names.function as usize].add_rows(&counts);
        names
            .loops
            .iter()
            .for_each(|&l| loops[l as usize].add_rows(&counts));
    }
    (whole, ByCode { functions, loops })
}

/// Counts of a whole bucket, without code, which takes less time.
pub(crate) fn whole_counts(bucket: &BucketOutcome, code: &CodeMap) -> AccessCounts {
    // An empty code map has no functions whose footprints are counted.
    let mut whole = bucket.footprint.fold(&CodeMap::default()).whole;
    (0..code.pieces.len()).for_each(|piece| whole.add_rows(&piece_counts(bucket, piece)));
    whole
}

fn piece_counts(bucket: &BucketOutcome, piece: usize) -> AccessCounts {
    let mut counts = AccessCounts::default();
    Group::of_piece(piece as u32).for_each(|group| counts.add_rows(&group_counts(bucket, group)));
    counts
}

/// Indices of the counts with the most loads, at most `most`, each with its share of the whole in
/// percent.
fn top(
    whole: &AccessCounts,
    counts: &[AccessCounts],
    tie: impl Fn(usize) -> u32,
    most: usize,
) -> Vec<(usize, Option<f64>, Metrics)> {
    let heat = |i: &usize| counts[*i].accesses + counts[*i].implied;
    let mut order: Vec<usize> = (0..counts.len()).filter(|i| heat(i) > 0).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(heat(i)), tie(*i), *i));
    order.truncate(most);
    let all = whole.accesses + whole.implied;
    order
        .into_iter()
        .map(|i| {
            (
                i,
                (all > 0).then(|| heat(&i) as f64 * 100.0 / all as f64),
                counts[i].metrics(),
            )
        })
        .collect()
}

/// The functions with the most loads, at most `most`.
pub(crate) fn top_functions(
    whole: &AccessCounts,
    functions: &[AccessCounts],
    code: &CodeMap,
    most: usize,
) -> Vec<FunctionPart> {
    let part = |(i, share, metrics): (usize, Option<f64>, Metrics)| {
        let name = &code.functions[i];
        FunctionPart {
            function: name.function.clone(),
            module: name.module.clone(),
            share,
            metrics,
        }
    };
    top(whole, functions, |_| 0, most)
        .into_iter()
        .map(part)
        .collect()
}

/// The loops with the most loads, at most `most`; among equal ones the outer one comes first.
pub(crate) fn top_loops(
    whole: &AccessCounts,
    loops: &[AccessCounts],
    code: &CodeMap,
    most: usize,
) -> Vec<LoopPart> {
    let part = |(i, share, metrics): (usize, Option<f64>, Metrics)| {
        let name = &code.loops[i];
        let function = code
            .functions
            .get(name.function as usize)
            .cloned()
            .unwrap_or_default();
        LoopPart {
            function: function.function,
            module: function.module,
            file: name.file.clone(),
            line: name.line,
            address: format!("{:#x}", name.header),
            depth: name.depth,
            share,
            metrics,
        }
    };
    top(whole, loops, |i| code.loops[i].depth, most)
        .into_iter()
        .map(part)
        .collect()
}

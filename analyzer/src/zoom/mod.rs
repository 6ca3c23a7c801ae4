//! Multi-resolution views: when ([`time`]) and where in memory ([`location`]) locality is worst.

pub(crate) mod chosen;
pub mod heat;
pub mod location;
pub mod regions;
pub mod sums;
pub mod time;

use crate::code::CodeMap;
use crate::engine::BucketOutcome;
use crate::fold::Folded;
use crate::metrics::{Counts, Metrics};
use crate::report::group_counts;
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

/// Counts by code.
#[derive(Clone, Debug, Default)]
pub struct ByCode {
    /// By function.
    pub functions: Vec<Counts>,
}

/// Counts of a bucket: the whole, and by code.
pub fn bucket_counts(bucket: &BucketOutcome, code: &CodeMap) -> (Counts, ByCode) {
    let Folded { mut whole, mut functions, .. } = bucket.footprint.fold(code);
    for (piece, names) in code.pieces.iter().enumerate() {
        let counts = piece_counts(bucket, piece);
        whole.add_rows(&counts);
        functions[names.function as usize].add_rows(&counts);
    }
    (whole, ByCode { functions })
}

/// Counts of a bucket as a whole, which takes less time.
pub(crate) fn whole_counts(bucket: &BucketOutcome, code: &CodeMap) -> Counts {
    // Of a map without code there are no footprints of functions to be counted.
    let mut whole = bucket.footprint.fold(&CodeMap::default()).whole;
    (0..code.pieces.len()).for_each(|piece| whole.add_rows(&piece_counts(bucket, piece)));
    whole
}

fn piece_counts(bucket: &BucketOutcome, piece: usize) -> Counts {
    let mut counts = Counts::default();
    (0..4).for_each(|class| counts.add_rows(&group_counts(bucket, piece * 4 + class)));
    counts
}

/// The functions with the most loads, at most `most`.
pub(crate) fn top_functions(whole: &Counts, functions: &[Counts], code: &CodeMap, most: usize) -> Vec<FunctionPart> {
    let heat = |i: &usize| functions[*i].accesses + functions[*i].implied;
    let mut order: Vec<usize> = (0..functions.len()).filter(|i| heat(i) > 0).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(heat(i)), *i));
    let all = whole.accesses + whole.implied;
    order
        .into_iter()
        .take(most)
        .map(|i| FunctionPart {
            function: code.functions[i].function.clone(),
            module: code.functions[i].module.clone(),
            share: (all > 0).then(|| heat(&i) as f64 * 100.0 / all as f64),
            metrics: functions[i].metrics(),
        })
        .collect()
}

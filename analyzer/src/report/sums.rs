//! Counts of a pass, summed by the rows of the tables by code.

use crate::data::code_map::{CodeMap, Target};
use crate::data::counts::AccessCounts;
use crate::data::group::Group;
use crate::data::histogram::Histogram;
use crate::engine::EngineOutcome;
use crate::engine::outcome::group_counts;
use crate::stages::footprint::fold::Folded;

/// The tables that have rows by code.
pub(crate) const BY_CODE: [Target; 3] = [Target::Function, Target::Line, Target::Loop];

/// Sums of the rows of one table.
#[derive(Default)]
pub(crate) struct RowSums {
    pub(crate) counts: Vec<AccessCounts>,
    pub(crate) distances: Vec<Histogram>,
    /// Bin and number.
    pub(crate) strides: Vec<Vec<(u32, u64)>>,
}

/// Sums of the whole and of all tables.
pub(crate) struct CodeSums {
    pub(crate) whole: AccessCounts,
    pub(crate) stores: AccessCounts,
    /// In the order of [`BY_CODE`].
    pub(crate) tables: [RowSums; 3],
    /// By line: its pieces that are inlined, hottest first.
    pub(crate) chains: Vec<Vec<usize>>,
}

/// Loads and stores of all groups, without footprints.
pub(crate) fn all_rows(outcome: &EngineOutcome, code: &CodeMap) -> AccessCounts {
    let mut rows = AccessCounts::default();
    Group::all(code.pieces.len())
        .for_each(|group| rows.add_rows(&group_counts(&outcome.buckets[0], group)));
    rows
}

impl CodeSums {
    /// Adds the counts of groups to the footprints that were folded.
    pub(crate) fn new(outcome: &EngineOutcome, code: &CodeMap, folded: Folded) -> CodeSums {
        let bucket = &outcome.buckets[0];
        let mut whole = folded.whole;
        let counts = [folded.functions, folded.lines, folded.loops];
        let mut tables = counts.map(|counts| RowSums {
            distances: vec![Histogram::default(); counts.len()],
            strides: vec![Vec::new(); counts.len()],
            counts,
        });
        let mut chains: Vec<Vec<(u64, usize)>> = vec![Vec::new(); code.lines.len()];
        for (piece, names) in code.pieces.iter().enumerate() {
            let mut of_piece = AccessCounts::default();
            for group in Group::of_piece(piece as u32) {
                of_piece.add_rows(&group_counts(bucket, group));
                let fetched = outcome
                    .fetches
                    .get(group.index())
                    .copied()
                    .unwrap_or_default();
                of_piece.fetches += fetched.lines;
                of_piece.fetched_bytes += fetched.bytes;
                let Some(distances) = bucket.reuse.distances.get(group.index()) else {
                    continue;
                };
                for (target, table) in BY_CODE.into_iter().zip(&mut tables) {
                    code.targets(target, group)
                        .iter()
                        .for_each(|&row| table.distances[row as usize].merge(distances));
                }
            }
            whole.add_rows(&of_piece);
            for (target, table) in BY_CODE.into_iter().zip(&mut tables) {
                code.targets_of_piece(target, piece as u32)
                    .iter()
                    .for_each(|&row| table.counts[row as usize].add_rows(&of_piece));
            }
            if of_piece.accesses + of_piece.stores > 0 && !names.chain.is_empty() {
                chains[names.line as usize].push((of_piece.accesses + of_piece.implied, piece));
            }
        }
        add_strides(outcome, code, &mut tables);
        let hottest_first = |mut chain: Vec<(u64, usize)>| {
            chain.sort_by_key(|&(loads, piece)| (std::cmp::Reverse(loads), piece));
            chain.into_iter().map(|(_, piece)| piece).collect()
        };
        CodeSums {
            whole,
            stores: folded.stores,
            tables,
            chains: chains.into_iter().map(hottest_first).collect(),
        }
    }
}

fn add_strides(outcome: &EngineOutcome, code: &CodeMap, tables: &mut [RowSums; 3]) {
    for &(site, bin, count) in &outcome.strides {
        let Some(&piece) = code.site_pieces().get(site as usize) else {
            continue;
        };
        for (target, table) in BY_CODE.into_iter().zip(&mut *tables) {
            code.targets_of_piece(target, piece)
                .iter()
                .for_each(|&row| table.strides[row as usize].push((bin, count)));
        }
    }
}

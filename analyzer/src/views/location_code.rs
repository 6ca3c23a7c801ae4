//! The code that touches a region or an object.

use crate::data::code_map::CodeMap;
use crate::data::counts::AccessCounts;
use crate::data::group::Group;
use crate::data::reuse_counts::GroupReuse;
use crate::stages::pages::UnitEntry;
use crate::util::fast_hash::Mixed;
use crate::views::ratios::{mean, pct};
use serde::Serialize;
use std::collections::HashMap;

/// Functions and lines listed per region.
pub(crate) const CODE_ROWS: usize = 10;

/// Code that touched a region.
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

/// Sums over entries.
#[derive(Clone, Copy, Default)]
pub(crate) struct EntrySums {
    pub(crate) starts: u64,
    pub(crate) implied: u64,
    pub(crate) reuse: GroupReuse,
}

impl EntrySums {
    pub(crate) fn add(&mut self, entry: &UnitEntry) {
        self.starts += entry.starts;
        self.implied += entry.implied;
        self.reuse.merge(&entry.reuse);
    }

    pub(crate) fn merge(&mut self, other: &EntrySums) {
        self.starts += other.starts;
        self.implied += other.implied;
        self.reuse.merge(&other.reuse);
    }

    /// As counts, without the footprints.
    pub(crate) fn counts(&self) -> AccessCounts {
        AccessCounts {
            accesses: self.starts,
            implied: self.implied,
            reuses: self.reuse.reuses,
            first_touches: self.reuse.firsts,
            distance_sum: self.reuse.distance,
            distance_max: self.reuse.distance_max,
            interval_sum: self.reuse.interval,
            ..AccessCounts::default()
        }
    }
}

/// Sums by group of code ([`crate::data::code_map`]).
pub(crate) type ByGroup = HashMap<Group, EntrySums, Mixed>;

/// Sums by function and by line.
pub(crate) fn by_function_and_line(
    code: &CodeMap,
    by_group: &ByGroup,
) -> (HashMap<u32, EntrySums>, HashMap<u32, EntrySums>) {
    let (mut by_function, mut by_line): (HashMap<u32, EntrySums>, HashMap<u32, EntrySums>) =
        Default::default();
    for (group, sums) in by_group {
        if let Some(piece) = code.pieces.get(group.piece() as usize) {
            by_function.entry(piece.function).or_default().merge(sums);
            by_line.entry(piece.line).or_default().merge(sums);
        }
    }
    (by_function, by_line)
}

/// The functions (or lines) with the most accesses. `all` is the number of accesses of the whole.
pub(crate) fn code_parts(
    code: &CodeMap,
    sums: &HashMap<u32, EntrySums>,
    by_line: bool,
    all: u64,
) -> Vec<CodePart> {
    let mut order: Vec<(&u32, &EntrySums)> = sums.iter().collect();
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

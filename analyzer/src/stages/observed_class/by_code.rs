//! Observed classes of functions, lines and loops.

use crate::data::code_map::{CodeMap, Target};
use crate::data::group::Group;
use crate::stages::footprint::FootprintSet;
use crate::stages::observed_class::footprint::{Side, Starts, TARGETS, Tables, starts};
use crate::stages::observed_class::{FarStep, Observed};
use serde::Serialize;
use std::collections::BTreeMap;
use std::collections::HashMap;

/// Maximum number of pairs listed per row. Source: Chosen.
const MAX_LISTED_PAIRS: usize = 6;
/// Minimum share of a group's steps in one class for the group to belong to it, percent. Source:
/// Chosen.
const MIN_CLASS_PCT: u64 = 90;
const CLASSES: [&str; 3] = ["constant", "strided", "irregular"];

/// Load instructions of one static and one observed class.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClassPair {
    /// The class from static analysis.
    #[serde(rename = "static")]
    pub claimed: &'static str,
    /// The observed class.
    pub observed: &'static str,
    /// Bytes per step, if the observed class is Strided.
    pub step: Option<i64>,
    /// Instructions with steps.
    pub sites: u64,
    /// Their steps: pairs of consecutive executions in a sample.
    pub steps: u64,
    /// Share of the row's steps, percent.
    pub pct: f64,
}

/// Observed footprint of a row. Merged results lack it because they do not distinguish
/// instructions.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ObservedRow {
    /// Distinct start addresses of code that was observed to be Strided.
    #[serde(rename = "F_str_observed")]
    pub strided: Option<u64>,
    /// Distinct start addresses of code that was observed to be Irregular or Mixed.
    #[serde(rename = "F_irr_observed")]
    pub irregular: Option<u64>,
    /// Share of F, percent.
    #[serde(rename = "dF_str_observed_pct")]
    pub strided_pct: Option<f64>,
    /// Share of F, percent.
    #[serde(rename = "dF_irr_observed_pct")]
    pub irregular_pct: Option<f64>,
    /// Static and observed classes, most steps first.
    pub classes: Vec<ClassPair>,
}

/// (static class, observed class) → instructions, steps.
type Pairs = BTreeMap<(usize, Observed), (u64, u64)>;

/// Counts of all rows.
pub struct ByCode {
    pairs: [Vec<Pairs>; 4],
    starts: Option<Tables>,
}

impl ByCode {
    /// Builds the rows from counts by site and bin, sorted by site, large steps by site, and
    /// footprints.
    pub fn new(
        counts: &[(u32, u32, u64)],
        far: &[(u32, FarStep)],
        code: &CodeMap,
        set: &FootprintSet,
    ) -> ByCode {
        let mut pairs = TARGETS.map(|target| vec![Pairs::new(); code.rows(target)]);
        // By group: steps by observed class, summed over the sizes of steps.
        let mut groups: HashMap<Group, [u64; 5]> = HashMap::new();
        let far: HashMap<u32, &FarStep> = far.iter().map(|(site, step)| (*site, step)).collect();
        let mut is_known = false;
        for same in counts.chunk_by(|a, b| a.0 == b.0) {
            let site = same[0].0;
            let Some(group) = code.site_group(site) else {
                continue;
            };
            is_known = true;
            let bins: Vec<(u32, u64)> = same.iter().map(|c| (c.1, c.2)).collect();
            let observed = Observed::of(&bins, far.get(&site).copied());
            let steps: u64 = bins.iter().map(|b| b.1).sum();
            groups.entry(group).or_default()[number(observed)] += steps;
            for (target, rows) in TARGETS.into_iter().zip(&mut pairs) {
                for &row in code.targets(target, group) {
                    let pair = rows[row as usize]
                        .entry((group.class() as usize, observed))
                        .or_default();
                    pair.0 += 1;
                    pair.1 += steps;
                }
            }
        }
        let starts = is_known.then(|| {
            let mut sides = vec![Side::None; code.groups()];
            for (group, steps) in groups {
                if let Some(side) = sides.get_mut(group.index()) {
                    *side = side_of(&steps);
                }
            }
            starts(set, code, &sides)
        });
        ByCode { pairs, starts }
    }

    /// A row of a table.
    pub fn row(&self, target: Target, row: usize) -> ObservedRow {
        let table = TARGETS.iter().position(|&t| t == target).unwrap_or(0);
        let starts = self
            .starts
            .as_ref()
            .and_then(|tables| tables[table].get(row).copied());
        let pct = |part: fn(&Starts) -> u64| {
            starts
                .filter(|s| s.all > 0)
                .map(|s| part(&s) as f64 * 100.0 / s.all as f64)
        };
        ObservedRow {
            strided: starts.map(|s| s.strided),
            irregular: starts.map(|s| s.irregular),
            strided_pct: pct(|s| s.strided),
            irregular_pct: pct(|s| s.irregular),
            classes: self.pairs[table].get(row).map(list).unwrap_or_default(),
        }
    }
}

/// Number of a class, whatever its step.
fn number(observed: Observed) -> usize {
    match observed {
        Observed::Unknown => 0,
        Observed::Constant => 1,
        Observed::Strided(_) => 2,
        Observed::Mixed => 3,
        Observed::Irregular => 4,
    }
}

/// Side of a group, from the number of steps of each class.
fn side_of(steps: &[u64; 5]) -> Side {
    let [unknown, constant, strided, mixed, irregular] = *steps;
    let all = unknown + constant + strided + mixed + irregular;
    let most = |part: u64| u128::from(part) * 100 >= u128::from(all) * u128::from(MIN_CLASS_PCT);
    if all == 0 || most(unknown + constant) {
        Side::None
    } else if most(strided) {
        Side::Strided
    } else {
        Side::Irregular
    }
}

fn list(pairs: &Pairs) -> Vec<ClassPair> {
    let all: u64 = pairs.values().map(|p| p.1).sum();
    let mut order: Vec<_> = pairs.iter().collect();
    order.sort_by(|a, b| b.1.1.cmp(&a.1.1).then(a.0.cmp(b.0)));
    order.truncate(MAX_LISTED_PAIRS);
    let pair =
        |(&(claimed, observed), &(sites, steps)): (&(usize, Observed), &(u64, u64))| ClassPair {
            claimed: CLASSES[claimed.min(2)],
            observed: observed.name(),
            step: observed.step(),
            sites,
            steps,
            pct: steps as f64 * 100.0 / all.max(1) as f64,
        };
    order.into_iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_of_the_class_that_nearly_all_of_its_steps_have() {
        for (steps, side) in [
            ([0, 0, 0, 0, 0], Side::None),
            ([0, 5, 95, 0, 0], Side::Strided),
            ([0, 50, 50, 0, 0], Side::Irregular),
            ([0, 0, 50, 0, 50], Side::Irregular),
            ([90, 0, 0, 0, 10], Side::None),
            ([0, 0, 0, 100, 0], Side::Irregular),
        ] {
            assert_eq!(side_of(&steps), side, "{steps:?}");
        }
    }
}

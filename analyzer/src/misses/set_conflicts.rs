//! Set conflicts inside samples. They add misses to those that follow from the sizes of the caches.

use crate::data::group::Group;
use crate::misses::cell_misses::{ByGroup, Ends};
use crate::misses::fill_time::doubt_of;
use crate::misses::params;
use crate::misses::reuse_distance::Near;
use crate::misses::visit_table::{VisitTable, lines_without};
use crate::stages::line_visits::GroupLines;
use crate::util::fast_hash::Mixed;
use std::collections::HashMap;

impl VisitTable<'_> {
    /// Predicts the first level from the distances within its sets, if samples reach as many lines
    /// in a set as it has ways.
    pub(super) fn first_level(
        &self,
        without: Option<usize>,
        all: &mut ByGroup,
        far: &mut HashMap<Group, Ends, Mixed>,
    ) {
        let ways = u64::from(self.caches[0].ways);
        for (&group, of) in all.iter_mut() {
            let near = Near::in_set(lines_without(self.lines, group, without).iter().copied());
            if near.reach < ways {
                continue;
            }
            let ratio = near.at_least(ways as f64);
            let mut objects: f64 = of.objects.iter().map(|o| o.1[0]).sum();
            if objects <= 0.0 {
                objects = 1.0;
            }
            for (_, part) in &mut of.objects {
                part[0] *= ratio / objects;
            }
            let doubt = doubt_of(ratio);
            (of.least[0], of.ratio[0], of.most[0]) = (ratio - doubt, ratio, ratio + doubt);
            for end in far.get_mut(&group).into_iter().flatten() {
                end[0] = 1.0;
            }
        }
    }

    /// Adds reuses inside a sample that miss a level beyond the first because other lines of the
    /// sample have filled their set.
    pub(super) fn conflicts(&self, levels: &[usize], without: Option<usize>, all: &mut ByGroup) {
        for (&group, of) in all.iter_mut() {
            let parts = lines_without(self.lines, group, without);
            let late: f64 = parts.iter().map(|p| f64::from(p.late)).sum();
            for (at, &level) in levels.iter().enumerate() {
                let count: f64 = parts.iter().map(|p| f64::from(p.conflicts[level])).sum();
                if count <= 0.0 {
                    continue;
                }
                let (before, more) = (of.ratio[at], count / late.max(1.0));
                let with = |ratio: f64, more: f64| (ratio + more).min(1.0);
                let doubt = params::STANDARD_ERRORS_IN_HALF_INTERVAL * more / count.sqrt();
                of.least[at] = with(of.least[at], (more - doubt).max(0.0));
                of.ratio[at] = with(of.ratio[at], more);
                of.most[at] = with(of.most[at], more + doubt);
                // The conflicts are attributed to objects in proportion to the other misses.
                if before > 0.0 {
                    let times = of.ratio[at] / before;
                    of.objects
                        .iter_mut()
                        .for_each(|(_, part)| part[at] *= times);
                }
            }
        }
    }
}

/// Share of the late first touches whose set is full of lines that their sample touched before.
pub(super) fn full(parts: &[&GroupLines], level: usize) -> f64 {
    let sum = |of: fn(&GroupLines, usize) -> u32| {
        parts.iter().map(|p| f64::from(of(p, level))).sum::<f64>()
    };
    sum(|p, l| p.full[l]) / sum(|p, _| p.late_firsts).max(1.0)
}

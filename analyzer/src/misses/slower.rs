//! Windows of the same code that miss more run slower, and by how much nobody has measured.
//!
//! Samples by time then have too many of them: what misses is less, per load, than in their mean.

use crate::misses::visit_table::VisitTable;
use crate::util::fast_hash::Mixed;
use std::collections::HashMap;

/// How many times as long loads may take in windows whose lines are new as in windows whose lines are not, within a function. As is likely: its root.
const SLOWER: f64 = 2.0;
/// Of all windows this part has fewer new lines than the ones that are slowest.
const MOST: f64 = 0.95;

/// What a window has of a group.
#[derive(Clone, Copy, Default)]
struct Share {
    late: f64,
    accesses: f64,
}

/// By group: its misses per load, over those that all windows have in the mean, if windows with many new lines are slower: at least, and as
/// is likely.
pub(crate) fn slower(table: &VisitTable<'_>) -> HashMap<u32, [f64; 2], Mixed> {
    let mut windows: HashMap<u32, HashMap<u32, Share, Mixed>, Mixed> = HashMap::default();
    for of in &table.lines.samples {
        let share = windows.entry(of.sample).or_default().entry(of.group);
        share.or_default().accesses += f64::from(of.accesses);
    }
    for (sample, cells) in (0..).zip(&table.beside) {
        for &(cell, late) in cells {
            let group = table.cells[cell as usize].0.0;
            if let Some(share) = windows.get_mut(&sample).and_then(|w| w.get_mut(&group)) {
                share.late += late;
            }
        }
    }
    let mut samples: Vec<u32> = windows.keys().copied().collect();
    samples.sort_unstable();
    let rate = |window: &HashMap<u32, Share, Mixed>| {
        let sum = |of: fn(&Share) -> f64| window.values().map(of).sum::<f64>();
        sum(|s| s.late) / sum(|s| s.accesses).max(1.0)
    };
    let mut rates: Vec<f64> = samples.iter().map(|s| rate(&windows[s])).collect();
    let rate_of: Vec<f64> = rates.clone();
    rates.sort_unstable_by(f64::total_cmp);
    let slowest = rates
        .get((rates.len() as f64 * MOST) as usize)
        .copied()
        .unwrap_or(0.0);
    if slowest <= 0.0 {
        return HashMap::default();
    }
    let mut sums: HashMap<u32, [Share; 3], Mixed> = HashMap::default();
    for (sample, rate) in samples.iter().zip(rate_of) {
        let slow = (rate / slowest).min(1.0);
        for (&group, share) in &windows[sample] {
            let sums = sums.entry(group).or_default();
            for (sum, slower) in sums.iter_mut().zip([SLOWER, SLOWER.sqrt(), 1.0]) {
                sum.add(share, 1.0 / (1.0 + (slower - 1.0) * slow));
            }
        }
    }
    let factors = |[most, likely, plain]: [Share; 3]| {
        [most, likely].map(|weighed| {
            let less = weighed.late / weighed.accesses * plain.accesses / plain.late;
            if less.is_finite() { less.min(1.0) } else { 1.0 }
        })
    };
    (sums.into_iter().map(|(group, sums)| (group, factors(sums)))).collect()
}

impl Share {
    fn add(&mut self, other: &Share, times: f64) {
        self.late += times * other.late;
        self.accesses += times * other.accesses;
    }
}

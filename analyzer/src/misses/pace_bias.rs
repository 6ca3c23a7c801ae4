//! Correction for windows that run slower because they miss more.
//!
//! Windows taken by time contain too many slow windows. So misses per load are fewer than in the
//! mean of the windows. The difference in speed is not measured.

use crate::data::group::Group;
use crate::misses::params;
use crate::misses::visit_table::VisitTable;
use crate::util::fast_hash::Mixed;
use std::collections::HashMap;

/// A group's part of a window.
#[derive(Clone, Copy, Default)]
struct Share {
    /// Late first touches of a line.
    late: f64,
    accesses: f64,
}

/// Groups of a window.
type Window = HashMap<Group, Share, Mixed>;

/// By group: factors on its misses per load, with windows of many new lines counted as slower. The
/// first is the least, the second the likely one.
pub(crate) fn speed_factors(table: &VisitTable<'_>) -> HashMap<Group, [f64; 2], Mixed> {
    let mut windows: HashMap<u32, Window, Mixed> = HashMap::default();
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
    // Sums of fractions depend on their order.
    let mut windows: Vec<(u32, Window)> = windows.into_iter().collect();
    windows.sort_unstable_by_key(|w| w.0);
    factors(windows.iter().map(|w| &w.1))
}

fn factors<'a>(
    windows: impl Iterator<Item = &'a Window> + Clone,
) -> HashMap<Group, [f64; 2], Mixed> {
    let rate = |window: &Window| {
        let sum = |of: fn(&Share) -> f64| window.values().map(of).sum::<f64>();
        sum(|s| s.late) / sum(|s| s.accesses).max(1.0)
    };
    let mut rates: Vec<f64> = windows.clone().map(rate).collect();
    rates.sort_unstable_by(f64::total_cmp);
    let slowest = rates.get((rates.len() as f64 * params::QUANTILE_OF_SLOWEST_WINDOW) as usize);
    let Some(&slowest) = slowest.filter(|&&rate| rate > 0.0) else {
        return HashMap::default();
    };
    let most = params::MAX_TIME_OF_NEW_LINES;
    let mut sums: HashMap<Group, [Share; 3], Mixed> = HashMap::default();
    for window in windows {
        let slow = (rate(window) / slowest).min(1.0);
        for (&group, share) in window {
            let sums = sums.entry(group).or_default();
            for (sum, slower) in sums.iter_mut().zip([most, most.sqrt(), 1.0]) {
                sum.add(share, 1.0 / (1.0 + (slower - 1.0) * slow));
            }
        }
    }
    let of_group = |[most, likely, plain]: [Share; 3]| {
        [most, likely].map(|weighed| {
            let less = weighed.late / weighed.accesses * plain.accesses / plain.late;
            if less.is_finite() { less.min(1.0) } else { 1.0 }
        })
    };
    (sums
        .into_iter()
        .map(|(group, sums)| (group, of_group(sums))))
    .collect()
}

impl Share {
    fn add(&mut self, other: &Share, times: f64) {
        self.late += times * other.late;
        self.accesses += times * other.accesses;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(groups: &[(u32, f64, f64)]) -> Window {
        (groups.iter())
            .map(|&(group, late, accesses)| (Group::from_raw(group), Share { late, accesses }))
            .collect()
    }

    #[test]
    fn windows_that_are_alike_change_nothing() {
        let alike = vec![window(&[(1, 300.0, 1000.0)]); 50];
        assert_eq!(factors(alike.iter())[&Group::from_raw(1)], [1.0; 2]);
        // Code that misses and code that hits share windows in varying parts. Misses per load of
        // each do not depend on the speed.
        let mixed = [
            window(&[(1, 300.0, 300.0), (2, 0.0, 700.0)]),
            window(&[(1, 900.0, 900.0), (2, 0.0, 100.0)]),
        ];
        let found = factors(mixed.iter().cycle().take(50));
        assert!(
            (found[&Group::from_raw(1)][0] - 1.0).abs() < 1e-9,
            "{found:?}"
        );
        assert!(factors([].iter()).is_empty());
    }

    /// One of three parts of a loop never misses. Samples by time contain too few of its loads.
    #[test]
    fn windows_of_a_loop_that_never_miss_stand_for_more_loads() {
        let parts = [
            window(&[(1, 1000.0, 1000.0)]),
            window(&[(1, 1000.0, 1000.0)]),
            window(&[(1, 0.0, 1000.0)]),
        ];
        let [least, likely] = factors(parts.iter().cycle().take(60))[&Group::from_raw(1)];
        // 2/3 becomes 1/2 if misses take twice as long.
        assert!(
            (least - 0.75).abs() < 1e-9 && least < likely && likely < 1.0,
            "{least} {likely}"
        );
    }
}

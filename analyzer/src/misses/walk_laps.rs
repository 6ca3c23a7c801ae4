//! Walks that return, or that follow another walk, by cell. Most of their lines were touched one
//! lap ago, even if other samples seldom see them.

use crate::data::memory_units::CacheLine;
use crate::data::object_map::Recent;
use crate::misses::params;
use crate::misses::visit_table::Key;
use crate::stages::line_visits::Visit;
use crate::stages::walks::Walks;
use crate::util::fast_hash::Mixed;
use std::collections::HashMap;

/// A walk of a cell that returns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lap {
    /// The walk's share of the cell's late visits.
    pub(crate) part: f64,
    /// Sample lengths until the walk returns.
    pub(crate) samples: f64,
    /// Chance that a line was touched one lap ago: lower end of the interval, estimate, upper end.
    pub(crate) again: [f64; 3],
}

impl Lap {
    /// Share of the cell's late visits that wait longer than `v` sample lengths for the next lap.
    /// `which` is 0 for the lower end, 1 for the estimate, 2 for the upper end.
    pub(crate) fn waits(&self, v: f64, which: usize) -> f64 {
        let late =
            (v / self.samples - 1.0 + params::LAP_LENGTH_ERROR) / (2.0 * params::LAP_LENGTH_ERROR);
        self.part * self.again[which] * (1.0 - late.clamp(0.0, 1.0))
    }
}

/// Laps of all cells. `numbers` has the cells by key. `object` returns the object of a visited
/// line.
pub(crate) fn of_cells(
    walks: &Walks,
    numbers: &HashMap<Key, u32, Mixed>,
    object: impl Fn(&Visit, &mut Recent) -> u32,
) -> Vec<Vec<Lap>> {
    let mut laps: Vec<Vec<Lap>> = vec![Vec::new(); numbers.len()];
    let mut late = vec![0.0; numbers.len()];
    let mut recent = Recent::default();
    let mut sites: Vec<_> = walks.sites.iter().collect();
    sites.sort_unstable_by_key(|s| s.0);
    for (&site, walk) in sites {
        let Some((address, sample, space)) = walk.place else {
            continue;
        };
        let visit = Visit {
            line: CacheLine::of(address),
            byte: Visit::byte_of(address),
            sample,
            space,
            group: walk.group,
            ..Visit::default()
        };
        let Some(&cell) = numbers.get(&(walk.group, object(&visit, &mut recent))) else {
            continue;
        };
        late[cell as usize] += walk.late as f64;
        for lap in walks.laps(site) {
            laps[cell as usize].push(Lap {
                part: walk.late as f64,
                samples: lap.rows * walk.samples as f64 / walk.rows.max(1) as f64,
                again: lap.again,
            });
        }
    }
    for (laps, late) in laps.iter_mut().zip(late) {
        laps.iter_mut().for_each(|lap| lap.part /= late);
    }
    laps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::group::Group;

    /// The object of a walk is found by a byte that was loaded. The first byte of the lowest line
    /// may belong to another object, if the walk's object begins in the middle of that line.
    #[test]
    fn objects_need_not_begin_with_a_line() {
        const BEGIN: u64 = 0x10_0010;
        let mut walks = Walks::default();
        for sample in 0..400u64 {
            let from = sample * 97_531;
            let address = |i: u64| BEGIN + i / 1500 % 1500 * 4 + i % 1500 * 6000;
            let rows: Vec<_> = (from..from + 1000)
                .map(|i| (7, Group::from_raw(1), address(i), true))
                .collect();
            walks.sample((sample as u32, 0), rows.into_iter());
        }
        let numbers = [((Group::from_raw(1), 5), 0)].into_iter().collect();
        let object = |visit: &Visit, _: &mut Recent| if visit.address() >= BEGIN { 5 } else { 4 };
        let laps = of_cells(&walks, &numbers, object);
        assert_eq!(laps[0].len(), 1);
    }
}

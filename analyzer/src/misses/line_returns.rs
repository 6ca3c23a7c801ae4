//! Share of the coincidences of samples that are returns.
//!
//! Other samples that met a line tell how often it is visited. Lines may be used in episodes: a
//! walk over a block of sixteen columns touches its lines sixteen times, and then leaves them alone.
//! Each sample that overlaps an episode meets the line, so samples meet it more often than it
//! returns. The longer an episode is than a sample, the larger is this error.
//!
//! Distances inside samples tell the share of accesses whose line was left alone for longer than a
//! sample. So each late visit represents a number of returns: accesses of the group times this
//! share, over the group's late visits. A coincidence counts as many returns as the other visit
//! represents, and none if that is not late.

use crate::data::group::Group;
use crate::misses::params;
use crate::misses::visit_table::{Key, near_of};
use crate::stages::line_visits::{LineVisits, PARTS};
use crate::util::fast_hash::Mixed;
use std::collections::HashMap;

/// Returns that one visit of a group represents.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReturnsOfVisit {
    /// A late visit.
    pub(super) late: f64,
    /// A first touch of a line, late or not.
    any: f64,
}

/// Returns that visits represent, by group. `keys`: the cells of late visits; none for others.
pub(super) fn returns_of_visits(
    lines: &LineVisits,
    keys: &[Option<Key>],
) -> HashMap<Group, ReturnsOfVisit, Mixed> {
    let mut visits: HashMap<Group, (f64, f64), Mixed> = HashMap::default();
    for (visit, key) in lines.visits.iter().zip(keys) {
        let of_group = visits.entry(visit.group).or_default();
        *of_group = (
            of_group.0 + f64::from(u8::from(key.is_some())),
            of_group.1 + 1.0,
        );
    }
    let mut accesses: HashMap<Group, f64, Mixed> = HashMap::default();
    for of in &lines.samples {
        *accesses.entry(of.group).or_default() += f64::from(of.accesses);
    }
    // Visits are kept of some lines only.
    let each = 1.0 / (1u64 << lines.level) as f64;
    let of_group = |(group, (late, all)): (Group, (f64, f64))| {
        let far = near_of(lines, group, None).far(f64::INFINITY);
        let returns = accesses.get(&group).copied().unwrap_or(0.0) * far * each;
        let of = ReturnsOfVisit {
            late: returns / late.max(1.0),
            any: returns / all,
        };
        (group, of)
    };
    visits.into_iter().map(of_group).collect()
}

/// Coincidences of a cell's late visits with visits of other samples.
#[derive(Clone, Debug, Default)]
pub(super) struct Coincidences {
    /// By replicate: late visits to lines that other samples met, and the sum over these of the share
    /// of the coincidences that are returns.
    sums: [(f64, f64); PARTS],
    /// Coincidences with late visits.
    late: f64,
}

impl Coincidences {
    /// Adds a late visit of a replicate whose line `met` of `others` samples met. `late`: number of
    /// late visits among these; `returns`: the returns that they represent.
    pub(super) fn add(
        &mut self,
        part: usize,
        (met, others): (usize, usize),
        late: usize,
        returns: f64,
    ) {
        if met == 0 {
            return;
        }
        // Random visits need no correction, but a sample counts several of them once, and some
        // return inside a sample. With a rate λ, 1 − exp(−λ) of the samples meet the line, and
        // λ·exp(−λ) returns come in a sample length.
        let others = others.max(1) as f64;
        let share = (met as f64 / others).min(1.0 - 0.5 / others);
        let at_random = share / (1.0 - share) / -(1.0 - share).ln();
        let sum = &mut self.sums[part];
        *sum = (sum.0 + 1.0, sum.1 + returns * at_random / met as f64);
        self.late += late as f64;
    }

    /// The share without one of the replicates.
    fn share(&self, without: Option<usize>) -> Option<f64> {
        let parts = (0..PARTS).filter(|p| Some(*p) != without);
        let (visits, returns) = parts.fold((0.0, 0.0), |sum, p| {
            (sum.0 + self.sums[p].0, sum.1 + self.sums[p].1)
        });
        (visits > 0.0).then(|| returns / visits)
    }

    /// Standard error of the share, from the replicates.
    fn error(&self, share: f64) -> f64 {
        let used = self.sums.iter().filter(|s| s.0 > 0.0);
        let (n, visits) = used.fold((0.0, 0.0), |sum, s| (sum.0 + 1.0, sum.1 + s.0));
        if n < 2.0 {
            return f64::INFINITY;
        }
        let squares = self.sums.iter().map(|s| (s.1 - share * s.0).powi(2));
        (squares.sum::<f64>() * n / (n - 1.0)).sqrt() / visits
    }

    /// Share of the coincidences that are returns: lower end, estimate, upper end. It is one where
    /// its error allows that. `each`: returns that a visit of the cell's group represents.
    pub(super) fn returns(&self, each: ReturnsOfVisit, without: Option<usize>) -> [f64; 3] {
        let floor = each.any.clamp(0.0, 1.0);
        let Some(all) = self.share(None) else {
            return [1.0; 3];
        };
        if self.late < params::MIN_COINCIDENCES_FOR_RADIUS {
            return [floor, 1.0, 1.0];
        }
        let off = params::STANDARD_ERRORS_IN_HALF_INTERVAL * self.error(all);
        let low = (all - off).clamp(floor, 1.0);
        if all + off >= 1.0 {
            return [low, 1.0, 1.0];
        }
        let value = self.share(without).unwrap_or(all).clamp(floor, 1.0);
        [low.min(value), value, (all + off).max(value)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::object_map::Recent;
    use crate::data::rows::ColumnSlices;
    use crate::data::samples::SampleInfo;
    use crate::misses::predictor::Watches;
    use crate::misses::visit_table::VisitTable;
    use crate::misses::watched_reuses::Code;
    use crate::stages::line_visits::Visit;
    use crate::stages::set_conflicts::{LEVELS, Sets};

    const GROUP: Group = Group::from_raw(1);

    /// Calls a function with the table of 600 samples of a thousand loads from random places of a
    /// program. `address`: that of each of the program's loads.
    fn with_table<T>(address: impl Fn(u64) -> u64, of: impl Fn(&VisitTable<'_>) -> T) -> T {
        let sets = [Sets::default(); LEVELS];
        let mut lines = LineVisits::default();
        let mut samples = Vec::new();
        for sample in 0..600u32 {
            let begin = u64::from(sample).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 36;
            let address: Vec<u64> = (begin..begin + 1000).map(&address).collect();
            lines.begin(0, sample, &sets, &[]);
            let rows = ColumnSlices {
                address: &address,
                size: &[4; 1000],
                group: &[GROUP; 1000],
                implied: &[0; 1000],
            };
            lines.run(&rows, &[]);
            lines.finish();
            samples.push(SampleInfo {
                process: 1,
                thread: 1,
                sample,
                loads: 1000,
                begin: None,
                first_time: u64::from(sample),
                last_time: u64::from(sample),
                parts: Vec::new(),
            });
        }
        let code = |group: Group| -> Code { (1, group.class()) };
        let object = |_: &Visit, _: &mut Recent| 1;
        let table = VisitTable::new(&lines, &samples, &sets, false, (&[], &code), object);
        of(&table)
    }

    /// The byte of a load that walks through an array of floats by columns, again and again.
    fn by_columns(rows: u64, columns: u64) -> impl Fn(u64) -> u64 {
        move |load| {
            let at = load % (rows * columns);
            (at % rows * columns + at / rows) * 4
        }
    }

    /// Columns are shorter than a sample, so that samples see the walk return to its lines for the
    /// next column. All lines return once in a lap, and a sixteenth of the loads misses every cache
    /// that is smaller than the array.
    #[test]
    fn blocks_of_columns_return_once_in_a_lap() {
        const OF_ALL: f64 = 1.0 / 16.0;
        for rows in [100, 300] {
            let columns = 34_816 * 16 / rows / 16 * 16;
            let array = (rows * columns / 16) as f64;
            let capacities = [0.5, 0.67, 0.94, 0.97, 1.06, 2.0].map(|times| times * array);
            let found = with_table(by_columns(rows, columns), |table| {
                let mut all = table.estimate(&capacities, &[], None, Watches::LeftOut);
                all.remove(&GROUP).unwrap()
            });
            for (at, capacity) in capacities.iter().enumerate() {
                let truth = if *capacity < array { OF_ALL } else { 0.0 };
                let (least, most) = (found.least[at], found.most[at]);
                assert!(
                    least <= truth && truth <= most,
                    "{rows} rows, {capacity} lines: {least} to {most} for {truth}"
                );
            }
            let small = found.ratio[0];
            assert!(small > 0.25 * OF_ALL, "{rows} rows: {small}");
        }
    }

    /// Random visits have no episodes, even if some lines are visited more often than others.
    #[test]
    fn random_visits_are_returns() {
        for hot in [0, 2] {
            let address = |load: u64| {
                let random = load.wrapping_mul(0xd134_2543_de82_ef95).rotate_left(29);
                let random = random.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 30;
                let lines = if load % 4 < hot { 2000 } else { 40_000 };
                (random % lines) << 6
            };
            let [low, value, high] = with_table(address, |table| table.returns_of_cells(None)[0]);
            assert!(
                low > 0.6 && value > 0.95 && high > 0.95,
                "{hot}: {low} {value} {high}"
            );
        }
    }
}

//! Crowded sets: sets of a cache that fill sooner than the others.
//!
//! A set holds few lines. If much of the visited data is in a few sets, these are full long before
//! the cache is. Suppose that c of a thread's N samples have seen a line. The probability that v of
//! the samples include one of these is 1 − (1 − v/N)^c. The sum of the probabilities over the lines
//! of a set gives the number of samples after which the set is full.

use crate::data::memory_units::CacheLine;
use crate::misses::params;
use crate::misses::survival_curve::{Far, grid_time};
use crate::stages::line_visits::LineVisits;
use crate::stages::set_conflicts::{LEVELS, Sets};
use crate::util::fast_hash::Mixed;
use std::collections::HashMap;

/// Number of sample lengths at which the lines of a set are counted.
const SAMPLE_LENGTHS: usize = 26;

fn grid() -> impl Iterator<Item = f64> {
    (0..SAMPLE_LENGTHS).map(grid_time)
}

/// A visit beyond the reach of its sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LateVisit {
    pub(crate) line: CacheLine,
    /// Replicate and thread of its sample, and the number of the thread's samples.
    pub(crate) part: u8,
    pub(crate) thread: u32,
    pub(crate) samples: u32,
    /// Samples of the thread that saw the line, this one included.
    pub(crate) met: u32,
    /// Cell of the visit. None if the cell is too rare to be kept separate.
    pub(crate) cell: Option<u32>,
}

impl LateVisit {
    /// Probability that random visits do not touch the line for `v` sample lengths.
    fn survives(&self, v: f64) -> f64 {
        let left = (1.0 - v / f64::from(self.samples.max(1))).max(0.0);
        left.powf(f64::from(self.met.max(1)) - 1.0)
    }
}

/// Late visits of a cell that has some in crowded sets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crowd {
    /// Share of the visits in crowded sets.
    pub(crate) part: f64,
    /// Share of the visits that are in crowded sets and survive until their set is full.
    pub(crate) survives: f64,
    /// Visits in other sets.
    pub(crate) rest: Far,
}

/// By level and cell. None for cells without visits in crowded sets.
pub(crate) type Crowded = [Vec<Option<Crowd>>; LEVELS];

/// Finds the crowded sets of all levels but the first.
pub(crate) fn find_crowded_sets(
    lines: &LineVisits,
    caches: &[Sets; LEVELS],
    late: &[LateVisit],
    cells: usize,
) -> Crowded {
    let mut found: Crowded = Default::default();
    let threads = late.iter().map(|v| v.thread + 1).max().unwrap_or(0) as usize;
    // Each late visit also represents lines that were not kept, and lines that samples saw before
    // their reach.
    let each = (1u64 << lines.level) as f64 * lines.visits.len() as f64 / late.len().max(1) as f64;
    for (level, cache) in caches.iter().enumerate().skip(1) {
        if cache.sets < 2 || threads * cache.sets as usize > params::MAX_SETS_OF_ALL_THREADS {
            continue;
        }
        let filled = filled(cache, threads, late, each);
        if filled.iter().all(|f| f.is_none()) {
            continue;
        }
        let mut of_cells: Vec<Option<Crowd>> = vec![None; cells];
        for visit in late {
            if let (Some(cell), Some(until)) = (visit.cell, filled[set_of(cache, visit)]) {
                let crowd = of_cells[cell as usize].get_or_insert_default();
                crowd.part += 1.0;
                crowd.survives += visit.survives(until);
            }
        }
        for visit in late {
            let Some(cell) = visit.cell else { continue };
            if let (Some(crowd), None) =
                (&mut of_cells[cell as usize], filled[set_of(cache, visit)])
            {
                let seen = (
                    visit.samples.max(2) as usize - 1,
                    visit.met.max(1) as usize - 1,
                );
                crowd
                    .rest
                    .add(visit.part.into(), &[seen; params::SEARCH_RADII.len()]);
            }
        }
        for crowd in of_cells.iter_mut().flatten() {
            let all = crowd.part + crowd.rest.visits(None);
            crowd.part /= all;
            crowd.survives /= all;
        }
        found[level] = of_cells;
    }
    found
}

fn set_of(cache: &Sets, visit: &LateVisit) -> usize {
    visit.thread as usize * cache.sets as usize + cache.of(visit.line) as usize
}

/// At each point of the grid: expected number of lines that a visit represents and that at least
/// one of that many samples sees.
fn chances_of(visit: &LateVisit, each: f64) -> [f64; SAMPLE_LENGTHS] {
    let met = f64::from(visit.met.max(1));
    let mut chances = [0.0; SAMPLE_LENGTHS];
    for (chance, v) in chances.iter_mut().zip(grid()) {
        let left = (1.0 - v / f64::from(visit.samples.max(1))).max(0.0);
        *chance = each * (1.0 - left.powf(met)) / met;
    }
    chances
}

/// By thread and set: sample lengths (rounded to the grid) until a crowded set is full. None for
/// other sets.
fn filled(cache: &Sets, threads: usize, late: &[LateVisit], each: f64) -> Vec<Option<f64>> {
    let sets = cache.sets as usize;
    let mut visits = vec![0u32; threads * sets];
    let mut of_thread = vec![0u32; threads];
    for visit in late {
        visits[set_of(cache, visit)] += 1;
        of_thread[visit.thread as usize] += 1;
    }
    let mean = |set: usize| f64::from(of_thread[set / sets]) / sets as f64;
    let has_many = |set: usize| {
        visits[set] >= params::MIN_VISITS_OF_CROWDED_SET
            && f64::from(visits[set]) > params::MIN_VISITS_OVER_MEAN_SET * mean(set)
    };
    let mut filled = vec![None; visits.len()];
    let many: Vec<usize> = (0..visits.len()).filter(|&s| has_many(s)).collect();
    if many.is_empty() {
        return filled;
    }
    let mut number = vec![u32::MAX; visits.len()];
    for (at, &set) in many.iter().enumerate() {
        number[set] = at as u32;
    }
    let mut counts = vec![[0.0; SAMPLE_LENGTHS]; many.len()];
    let mut means = vec![[0.0; SAMPLE_LENGTHS]; threads];
    let mut known: HashMap<(u32, u32), [f64; SAMPLE_LENGTHS], Mixed> = HashMap::default();
    for visit in late {
        let chances = known.entry((visit.samples, visit.met));
        let chances = chances.or_insert_with(|| chances_of(visit, each));
        let of_thread = &mut means[visit.thread as usize];
        let add = |to: &mut [f64; SAMPLE_LENGTHS], of: f64| {
            (to.iter_mut().zip(&*chances)).for_each(|(t, c)| *t += c / of);
        };
        add(of_thread, sets as f64);
        if let Some(of_set) = counts.get_mut(number[set_of(cache, visit)] as usize) {
            add(of_set, 1.0);
        }
    }
    let full = |lines: &[f64; SAMPLE_LENGTHS]| {
        let over = lines.iter().position(|&l| l >= f64::from(cache.ways));
        over.and_then(|at| grid().nth(at)).unwrap_or(f64::INFINITY)
    };
    for (set, lines) in many.into_iter().zip(&counts) {
        let until = full(lines);
        if until * params::MIN_FILL_SPEED_OVER_MEAN_SET < full(&means[set / sets]) {
            filled[set] = Some(until);
        }
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::line_visits::Visit;

    fn found(late: &[LateVisit]) -> Option<Crowd> {
        let mut lines = LineVisits::default();
        lines.visits = vec![Visit::default(); late.len()];
        let cache = Sets {
            sets: 1024,
            ways: 16,
        };
        let caches = [Sets::default(), cache, Sets::default(), Sets::default()];
        find_crowded_sets(&lines, &caches, late, 1)[1]
            .first()?
            .clone()
    }

    /// 200 samples visit 300 of 40,000 lines each, at random.
    fn visits(line: impl Fn(u64) -> u64) -> Vec<LateVisit> {
        let mut state = 11u64;
        let mut all: Vec<u64> = Vec::new();
        for _ in 0..200 * 300 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            all.push(line((state >> 30) % 40_000));
        }
        let mut times = std::collections::HashMap::new();
        for &line in &all {
            *times.entry(line).or_insert(0) += 1;
        }
        let visit = |line| LateVisit {
            line: CacheLine::from_number(line),
            part: 0,
            thread: 0,
            samples: 200,
            met: times[&line],
            cell: Some(0),
        };
        all.into_iter().map(visit).collect()
    }

    #[test]
    fn a_set_that_has_much_fills_soon() {
        assert!(found(&visits(|l| l)).is_none());
        // A tenth of the lines are in one set. A sample visits 30 of these 4,000 lines, so half a
        // sample visits about 16 of them.
        let crowd = found(&visits(|l| if l % 10 == 0 { l * 1024 } else { l })).unwrap();
        assert!((crowd.part - 0.1).abs() < 0.01, "{}", crowd.part);
        assert!(crowd.survives > 0.99 * crowd.part && crowd.survives < crowd.part);
        let rest = crowd.rest.visits(None);
        assert!((rest / (200.0 * 300.0) - 0.9).abs() < 0.01, "{rest}");
    }

    #[test]
    fn a_line_that_all_have_is_one_line() {
        // Each sample visits this line, so its set has several times as many visits as the mean
        // set.
        let hot = visits(|l| if l % 100 == 0 { 5 } else { l });
        assert!(found(&hot).is_none());
    }
}

//! Behaviour of each load instruction in windows.

use crate::data::group::Group;
use crate::data::memory_units::CacheLine;
use crate::findings::params;
use crate::findings::places::{Place, Places};
use crate::findings::windows::{Row, Window};
use crate::util::fast_hash::Mixed;
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};

/// Observations of a load instruction in windows.
#[derive(Clone, Debug, Default)]
pub struct SiteFacts {
    /// Number of the instruction in the whole trace.
    pub site: u32,
    /// Code and class.
    pub group: Group,
    /// Number of rows.
    pub rows: u64,
    /// First touches: rows whose line no earlier row of the window touched. The first half of a
    /// window is left out, because it begins with no known lines. The second half counts twice.
    pub firsts: u64,
    /// First touches next to a line that the instruction touched before in the window.
    sequences: u64,
    /// Greatest size of an access.
    pub size: u32,
    /// Rows by object.
    pub objects: HashMap<u32, u64, Mixed>,
    /// Number of windows with a row.
    pub windows: u64,
    /// Differences between consecutive addresses in a window, with their frequencies.
    steps: HashMap<i64, u64, Mixed>,
    all_steps: u64,
    /// Steps to lower addresses.
    backward: u64,
    /// Steps twice as long as the previous one.
    doubled: u64,
    /// Steps half as long as the previous one.
    halved: u64,
}

impl SiteFacts {
    /// Most frequent step, and its share of all steps.
    pub fn step(&self) -> Option<(i64, f64)> {
        let best = self
            .steps
            .iter()
            .max_by_key(|&(&s, &n)| (n, s.unsigned_abs(), s))?;
        Some((*best.0, *best.1 as f64 / self.all_steps.max(1) as f64))
    }

    /// The step, if it is frequent enough to be regular.
    pub fn regular_step(&self) -> Option<i64> {
        self.step()
            .filter(|s| s.1 >= params::MIN_SHARE_OF_REGULAR_STEP && self.has_steps_for_pattern())
            .map(|s| s.0)
    }

    /// Share of a step in all steps.
    pub fn step_share(&self, step: i64) -> f64 {
        self.steps.get(&step).copied().unwrap_or(0) as f64 / self.all_steps.max(1) as f64
    }

    /// Share of the steps of at most `bytes` bytes.
    pub fn share_of_steps_within(&self, bytes: u64) -> f64 {
        let near: u64 = (self.steps.iter())
            .filter(|s| s.0.unsigned_abs() <= bytes)
            .map(|s| s.1)
            .sum();
        near as f64 / self.all_steps.max(1) as f64
    }

    /// True if there are enough steps to recognise a pattern.
    pub fn has_steps_for_pattern(&self) -> bool {
        self.all_steps >= params::MIN_STEPS_FOR_PATTERN
    }

    /// True if most steps stay in the same line or to an adjacent one.
    pub fn is_in_order(&self) -> bool {
        self.share_of_steps_within(params::MAX_STEP_BYTES_IN_ORDER)
            >= params::MIN_SHARE_OF_STEPS_IN_ORDER
    }

    /// True if nearly all loads are of one address.
    pub fn is_in_place(&self) -> bool {
        self.share_of_steps_within(0) > params::MIN_SHARE_OF_STEPS_IN_PLACE
    }

    /// True if most first touches continue a walk of the same instruction, even if many walks
    /// alternate.
    pub fn is_in_sequence(&self) -> bool {
        self.firsts >= params::MIN_FIRST_TOUCHES_OF_SEQUENCE
            && self.sequences as f64 >= params::MIN_SHARE_OF_STEPS_IN_ORDER * self.firsts as f64
    }

    /// True if an instruction alternates between several walks. Each uses up its lines, even if the
    /// walks are equally far apart, as the rows of an array are.
    pub fn takes_turns(&self) -> bool {
        self.is_in_sequence()
            && self.share_of_steps_within(params::MAX_STEP_BYTES_IN_RUN)
                < params::MAX_SHARE_OF_SHORT_STEPS_IN_TURNS
    }

    /// True if steps go back by one element and forward again in a few lines, as the top of a stack
    /// does.
    pub fn is_stack(&self) -> bool {
        let forward = 1.0 - self.backward as f64 / self.all_steps.max(1) as f64;
        self.is_in_order()
            && self.has_steps_for_pattern()
            && self.step_share(-i64::from(self.size)) >= params::MIN_SHARE_OF_POPS
            && forward >= params::MIN_SHARE_OF_PUSHES
    }

    /// True if steps double, as when an implicit binary tree is descended.
    pub fn doubles(&self) -> bool {
        self.is_frequent_enough(self.doubled)
    }

    /// True if steps halve, as in a binary search.
    pub fn halves(&self) -> bool {
        self.is_frequent_enough(self.halved)
    }

    /// True if this number of steps is frequent.
    fn is_frequent_enough(&self, steps: u64) -> bool {
        self.all_steps >= params::MIN_STEPS_FOR_SHORT_RUNS
            && steps as f64 >= params::MIN_SHARE_OF_STEPS_BY_RATIO * self.all_steps as f64
    }

    /// Mean length in rows of short runs through memory between jumps without a pattern. None if
    /// runs are long or jumps have a pattern.
    pub fn short_runs(&self) -> Option<f64> {
        let jumps = 1.0 - self.share_of_steps_within(params::MAX_STEP_BYTES_IN_RUN);
        if self.all_steps < params::MIN_STEPS_FOR_SHORT_RUNS
            || !params::JUMP_SHARE_OF_SHORT_RUNS.contains(&jumps)
        {
            return None;
        }
        // A frequent jump is the step of an outer loop.
        let far = |s: &(&i64, &u64)| s.0.unsigned_abs() > params::MAX_STEP_BYTES_IN_RUN;
        let most = self.steps.iter().filter(far).map(|s| *s.1).max();
        if most.unwrap_or(0) as f64
            >= params::MIN_SHARE_OF_JUMP_WITH_PATTERN * jumps * self.all_steps as f64
        {
            return None;
        }
        let (mut moved, mut times) = (0.0, 0.0);
        for (step, &count) in self.steps.iter().filter(|s| !far(s)) {
            moved += step.unsigned_abs() as f64 * count as f64;
            times += count as f64;
        }
        let rows = 1.0 / jumps;
        let bytes = rows * moved / f64::max(times, 1.0);
        (bytes < params::PREFETCHED_RUN_BYTES).then_some(rows)
    }

    /// Number of steps.
    pub fn steps(&self) -> u64 {
        self.all_steps
    }

    /// First touches per row.
    pub fn first_touch_share(&self) -> f64 {
        self.firsts as f64 / self.rows.max(1) as f64
    }

    /// Object with the most rows.
    pub fn main_object(&self) -> u32 {
        let best = self
            .objects
            .iter()
            .max_by_key(|&(&o, &n)| (n, std::cmp::Reverse(o)));
        best.map_or(0, |b| *b.0)
    }

    fn note_step(&mut self, step: i64, before: i64) {
        self.all_steps += 1;
        self.backward += u64::from(step < 0);
        let ratio = step.unsigned_abs() as f64 / before.unsigned_abs() as f64;
        self.doubled += u64::from(params::RATIO_OF_DOUBLED_STEP.contains(&ratio));
        self.halved += u64::from(params::RATIO_OF_DOUBLED_STEP.contains(&ratio.recip()));
        if self.steps.len() < params::MAX_STEPS_KEPT_PER_LOAD || self.steps.contains_key(&step) {
            *self.steps.entry(step).or_default() += 1;
        } else {
            // Frequent steps are kept by the algorithm of Misra and Gries (1982): counts are lower
            // bounds.
            self.steps.retain(|_, n| {
                *n -= 1;
                *n > 0
            });
        }
    }
}

/// Observations of all instructions, by number.
pub fn facts(windows: &[Window], places: &Places) -> HashMap<u32, SiteFacts, Mixed> {
    let of = |(site, places)| (site, SiteFacts::new(site, windows, places));
    places.by_site().map(of).collect()
}

impl SiteFacts {
    /// Collects the rows of an instruction. `places`: sorted.
    fn new(site: u32, windows: &[Window], places: &[Place]) -> SiteFacts {
        let mut facts = SiteFacts {
            site,
            rows: places.len() as u64,
            ..SiteFacts::default()
        };
        let mut lines: HashSet<CacheLine, Mixed> = HashSet::default();
        // Consecutive rows of one object are counted together.
        let mut of_object = (0, 0);
        for of_window in places.chunk_by(|a, b| a.0 == b.0) {
            let rows = &windows[of_window[0].0 as usize].rows;
            let mut last: Option<&Row> = None;
            let mut last_step = 0;
            lines.clear();
            facts.windows += 1;
            for &(_, at) in of_window {
                let row = &rows[at as usize];
                let is_second_half = 2 * at as usize >= rows.len();
                let weight = 2 * u64::from(is_second_half);
                facts.group = row.group;
                facts.firsts += weight * u64::from(row.first);
                let line = CacheLine::of(row.address);
                let beside = [line.at(-1), line.at(1)];
                let continues = row.first && beside.iter().any(|l| lines.contains(l));
                facts.sequences += weight * u64::from(continues);
                if last.is_none_or(|last| CacheLine::of(last.address) != line) {
                    lines.insert(line);
                }
                facts.size = facts.size.max(row.size);
                if row.object != of_object.0 {
                    facts.add_object(of_object);
                    of_object = (row.object, 0);
                }
                of_object.1 += 1;
                if let Some(before) = last.replace(row) {
                    let step = row.address.wrapping_sub(before.address) as i64;
                    facts.note_step(step, last_step);
                    last_step = step;
                }
            }
        }
        facts.add_object(of_object);
        facts
    }

    /// Adds rows of an object.
    fn add_object(&mut self, (object, rows): (u32, u64)) {
        if rows > 0 {
            *self.objects.entry(object).or_default() += rows;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(windows: &[Window]) -> HashMap<u32, SiteFacts, Mixed> {
        super::facts(windows, &Places::new(windows))
    }

    fn window(addresses: impl Iterator<Item = u64>) -> Window {
        let mut lines = HashSet::new();
        let rows = addresses.map(|address| Row {
            first: lines.insert(address >> 6),
            address,
            site: 3,
            group: Group::from_raw(1),
            size: 8,
            object: 0,
            into: crate::findings::windows::NO_OFFSET,
        });
        Window {
            rows: rows.collect(),
            ..Window::default()
        }
    }

    #[test]
    fn steps_are_those_inside_windows() {
        let windows = [
            window((0..20).map(|i| i * 64)),
            window((0..20).map(|i| (1 << 30) | (i * 64))),
        ];
        let all = facts(&windows);
        let site = &all[&3];
        assert_eq!((site.rows, site.steps(), site.windows), (40, 38, 2));
        assert_eq!(site.regular_step(), Some(64));
        assert_eq!(site.share_of_steps_within(63), 0.0);
    }

    #[test]
    fn walks_that_take_turns_are_in_sequence() {
        // 96 streams of words, far apart.
        let turns = |i: u64| ((i % 96) << 24) + i / 96 * 8;
        let windows: Vec<Window> = (0..40u64)
            .map(|w| window((0..1000).map(|i| turns(w * 7919 + i))))
            .collect();
        let site = facts(&windows)[&3].clone();
        assert!(!site.is_in_order() && site.takes_turns());
    }

    #[test]
    fn ratios_of_steps_tell_descents() {
        let keys = || (0..30u64).map(|key| key * 27_113 % (1 << 16));
        let node = |key: u64, level: u64| ((1 << level) + (key >> (16 - level))) * 8;
        let tree = keys().flat_map(|key| (0..16).map(move |level| node(key, level)));
        let site = facts(&[window(tree)])[&3].clone();
        assert!(site.doubles() && !site.halves());
        // The middle of the remaining range.
        let middle = |key: u64, level: u64| {
            let left = 16 - level;
            (((key >> left) << left) + (1 << left) / 2) * 8
        };
        let search = keys().flat_map(|key| (0..16).map(move |level| middle(key, level)));
        let site = facts(&[window(search)])[&3].clone();
        assert!(site.halves() && !site.doubles());
    }

    #[test]
    fn stacks_go_back_and_forth() {
        let top = |i: u64| (1 << 20) + [0, 8, 16, 8, 16, 24, 16, 8][i as usize % 8];
        assert!(facts(&[window((0..80).map(top))])[&3].is_stack());
        assert!(!facts(&[window((0..80).map(|i| i * 8))])[&3].is_stack());
        assert!(!facts(&[window((0..80).map(|i| i % 8 * 8))])[&3].is_stack());
    }

    #[test]
    fn many_steps_are_no_step() {
        let mut at = 1u64;
        let random = std::iter::from_fn(|| {
            at = at
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            Some(at >> 30)
        });
        assert_eq!(facts(&[window(random.take(900))])[&3].regular_step(), None);
    }
}

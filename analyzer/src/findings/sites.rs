//! Behaviour of each load instruction in windows.

use crate::findings::params;
use crate::findings::places::{Place, Places};
use crate::findings::windows::{Row, Window};
use crate::util::fast_hash::Mixed;
use rayon::prelude::*;
use std::collections::HashMap;

/// Observations of a load instruction in windows.
#[derive(Clone, Debug, Default)]
pub struct SiteFacts {
    /// Number of the instruction in the whole trace.
    pub site: u32,
    /// Code and class.
    pub group: u32,
    /// Number of rows.
    pub rows: u64,
    /// Rows that were the first of their window in a line. A window begins with an empty set of
    /// lines, so only its second half is counted; each row there counts twice.
    pub firsts: u64,
    /// The same for pages of 4 KiB.
    pub first_pages: u64,
    /// Greatest size of an access.
    pub size: u32,
    /// Rows by object.
    pub objects: HashMap<u32, u64, Mixed>,
    /// Number of windows with a row.
    pub windows: u64,
    /// Differences between consecutive addresses in a window, with their frequencies.
    steps: HashMap<i64, u64, Mixed>,
    all_steps: u64,
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
    pub fn regular(&self) -> Option<i64> {
        self.step()
            .filter(|s| s.1 >= params::MIN_SHARE_OF_REGULAR_STEP && self.has_steps_for_pattern())
            .map(|s| s.0)
    }

    /// Share of the steps of at most `bytes` bytes.
    pub fn near(&self, bytes: u64) -> f64 {
        let near: u64 = (self.steps.iter())
            .filter(|s| s.0.unsigned_abs() <= bytes)
            .map(|s| s.1)
            .sum();
        near as f64 / self.all_steps.max(1) as f64
    }

    /// True if there are enough steps to tell a pattern.
    pub fn has_steps_for_pattern(&self) -> bool {
        self.all_steps >= params::MIN_STEPS_FOR_PATTERN
    }

    /// True if most steps lead to the same line or to an adjacent one.
    pub fn is_in_order(&self) -> bool {
        self.near(params::MAX_STEP_BYTES_IN_ORDER) >= params::MIN_SHARE_OF_STEPS_IN_ORDER
    }

    /// True if nearly all loads are of one address.
    pub fn is_in_place(&self) -> bool {
        self.near(0) > params::MIN_SHARE_OF_STEPS_IN_PLACE
    }

    /// Number of returns of a walk to its start, as loops in blocks make after each block. None if
    /// the walk returns by various steps, or if it goes on from its new place.
    pub fn returns(&self) -> Option<u64> {
        let back = |s: &i64| *s <= -params::MIN_RETURN_BYTES;
        let all: u64 = self.steps.iter().filter(|s| back(s.0)).map(|s| s.1).sum();
        let best = (self.steps.iter())
            .filter(|s| back(s.0))
            .max_by_key(|&(&s, &n)| (n, s));
        let (&step, &times) = best?;
        if times < params::MIN_RETURNS_OF_WALK
            || times * 100 < all * params::MIN_SHARE_OF_RETURN_STEP_PCT
        {
            return None;
        }
        // Sum of the other steps.
        let moved: f64 = (self.steps.iter())
            .filter(|s| *s.0 != step)
            .map(|(&s, &n)| s as f64 * n as f64)
            .sum();
        let part = moved / (times as f64 * step.unsigned_abs() as f64);
        params::MOVED_OVER_RETURN_STEP
            .contains(&part)
            .then_some(times)
    }

    /// Rows from one return of a walk to the next, see [`SiteFacts::returns`].
    pub fn lap(&self) -> Option<f64> {
        self.returns().map(|times| self.rows as f64 / times as f64)
    }

    /// Mean length in rows of short runs through memory between jumps without a pattern. None if
    /// runs are long or jumps have a pattern.
    pub fn short_runs(&self) -> Option<f64> {
        let jumps = 1.0 - self.near(params::MAX_STEP_BYTES_IN_RUN);
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
    pub fn cold(&self) -> f64 {
        self.firsts as f64 / self.rows.max(1) as f64
    }

    /// Object with the most rows.
    pub fn object(&self) -> u32 {
        let best = self
            .objects
            .iter()
            .max_by_key(|&(&o, &n)| (n, std::cmp::Reverse(o)));
        best.map_or(0, |b| *b.0)
    }

    fn note_step(&mut self, step: i64) {
        self.all_steps += 1;
        if self.steps.len() < params::MAX_STEPS_KEPT_PER_LOAD || self.steps.contains_key(&step) {
            *self.steps.entry(step).or_default() += 1;
        } else {
            // Rare steps are dropped for new ones.
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
        for of_window in places.chunk_by(|a, b| a.0 == b.0) {
            let rows = &windows[of_window[0].0 as usize].rows;
            let mut last: Option<&Row> = None;
            facts.windows += 1;
            for &(_, at) in of_window {
                let row = &rows[at as usize];
                let late = 2 * u64::from(2 * at as usize >= rows.len());
                facts.group = row.group;
                facts.firsts += late * u64::from(row.first);
                facts.first_pages += late * u64::from(row.first_in_page);
                facts.size = facts.size.max(row.size);
                *facts.objects.entry(row.object).or_default() += 1;
                if let Some(before) = last.replace(row) {
                    facts.note_step(row.address.wrapping_sub(before.address) as i64);
                }
            }
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(windows: &[Window]) -> HashMap<u32, SiteFacts, Mixed> {
        super::facts(windows, &Places::new(windows))
    }

    fn window(addresses: impl Iterator<Item = u64>) -> Window {
        let rows = addresses.map(|address| Row {
            address,
            site: 3,
            group: 1,
            size: 8,
            object: 0,
            into: crate::findings::windows::NOWHERE,
            first: true,
            first_in_page: false,
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
        assert_eq!(site.regular(), Some(64));
        assert_eq!(site.near(63), 0.0);
    }

    /// Windows of 300 loads anywhere in a walk through `rows` rows of 64 words. Rows are 8 KiB
    /// apart. The walk is repeated, each time moved by `back`.
    fn blocked(rows: u64, back: impl Fn(u64) -> u64) -> SiteFacts {
        let at = |i: u64| {
            let (turn, i) = (i / (64 * rows), i % (64 * rows));
            (1 << 30) + back(turn) + i / 64 * 8192 + i % 64 * 8
        };
        let windows: Vec<Window> = (0..400u64)
            .map(|w| window((0..300).map(|i| at(w * 7919 + i))))
            .collect();
        facts(&windows)[&3].clone()
    }

    #[test]
    fn walks_in_blocks_come_back() {
        let block = blocked(64, |_| 0);
        let times = block.returns().unwrap();
        let each = block.rows as f64 / times as f64;
        assert!((3000.0..5500.0).contains(&each), "{each}");
        // Rows from the last to the first: each step back leads to new ones.
        assert_eq!(blocked(1, |turn| (1 << 29) - turn * 8192).returns(), None);
        // Blocks at random places.
        let anywhere = |turn: u64| {
            let mixed = (turn + 1).wrapping_mul(6364136223846793005);
            ((mixed ^ (mixed >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 38) << 12
        };
        assert_eq!(blocked(8, anywhere).returns(), None);
        // A single walk through all memory.
        assert_eq!(blocked(1 << 20, |_| 0).returns(), None);
    }

    /// A matrix of 2048 rows of 2048 numbers, read by columns: as a whole, and in blocks of 16
    /// columns and rows.
    #[test]
    fn columns_in_blocks_have_short_laps() {
        let windows = |blocked: bool| {
            let address = |i: u64| {
                let (row, column) = match blocked {
                    true => (i / 256 * 16 + i % 16, i / 16 % 16),
                    false => (i % 2048, i / 2048),
                };
                (1 << 30) + row % 2048 * 16_384 + column * 8
            };
            let windows =
                (0..400u64).map(|w| window((0..1000).map(move |i| address(w * 7919 + i))));
            facts(&windows.collect::<Vec<_>>())[&3].clone()
        };
        let (whole, blocked) = (windows(false), windows(true));
        assert_eq!(whole.regular(), Some(16_384));
        assert_eq!(blocked.regular(), Some(16_384));
        let caches = crate::findings::caches::Caches::default();
        let stays = |facts: &SiteFacts| facts.lap().is_some_and(|lap| caches.hold(lap, 16_384));
        assert!(stays(&blocked), "{:?}", blocked.lap());
        assert!(!stays(&whole), "{:?}", whole.lap());
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
        assert_eq!(facts(&[window(random.take(900))])[&3].regular(), None);
    }
}

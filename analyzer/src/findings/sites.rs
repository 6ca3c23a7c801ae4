//! What each load instruction was seen to do.

use crate::findings::places::{Place, Places};
use crate::findings::windows::{Row, Window};
use crate::util::fast_hash::Mixed;
use rayon::prelude::*;
use std::collections::HashMap;

/// Different steps that are kept of an instruction.
const STEPS: usize = 48;
/// Steps beyond so many bytes are jumps.
const FAR: u64 = 1024;
/// Prefetchers have seen where a walk goes, and are ahead of it, after so many bytes.
const RUN: f64 = 192.0;
/// A step back by so many bytes may end a walk through a block.
const RETURN: i64 = 4096;

/// A load instruction, as the windows saw it.
#[derive(Clone, Debug, Default)]
pub struct SiteFacts {
    /// Its number in the whole trace.
    pub site: u32,
    /// Code and class.
    pub group: u32,
    /// Rows.
    pub rows: u64,
    /// Rows that were the first of their window in a line of memory. Windows begin with nothing seen, so that only their second halves
    /// tell; each row there stands for two.
    pub firsts: u64,
    /// The same in a page of 4 KiB.
    pub first_pages: u64,
    /// Greatest size of an access.
    pub size: u32,
    /// Rows by object.
    pub objects: HashMap<u32, u64, Mixed>,
    /// Windows that have it.
    pub windows: u64,
    /// Differences between consecutive addresses in a window, by how often.
    steps: HashMap<i64, u64, Mixed>,
    all_steps: u64,
}

impl SiteFacts {
    /// The most frequent step, and the share of steps that are it.
    pub fn step(&self) -> Option<(i64, f64)> {
        let best = self
            .steps
            .iter()
            .max_by_key(|&(&s, &n)| (n, s.unsigned_abs(), s))?;
        Some((*best.0, *best.1 as f64 / self.all_steps.max(1) as f64))
    }

    /// The step, where nearly all are it.
    pub fn regular(&self) -> Option<i64> {
        self.step()
            .filter(|s| s.1 >= 0.6 && self.all_steps >= 8)
            .map(|s| s.0)
    }

    /// The share of steps of at most so many bytes.
    pub fn near(&self, bytes: u64) -> f64 {
        let near: u64 = (self.steps.iter())
            .filter(|s| s.0.unsigned_abs() <= bytes)
            .map(|s| s.1)
            .sum();
        near as f64 / self.all_steps.max(1) as f64
    }

    /// How often a walk was seen to come back to where it has been: loops in blocks do, after a block. Nothing where it came back by
    /// different ways, or goes on from where it came to.
    pub fn returns(&self) -> Option<u64> {
        let back = |s: &i64| *s <= -RETURN;
        let all: u64 = self.steps.iter().filter(|s| back(s.0)).map(|s| s.1).sum();
        let best = (self.steps.iter())
            .filter(|s| back(s.0))
            .max_by_key(|&(&s, &n)| (n, s));
        let (&step, &times) = best?;
        if times < 4 || times * 10 < all * 6 {
            return None;
        }
        // What it has moved by until then.
        let moved: f64 = (self.steps.iter())
            .filter(|s| *s.0 != step)
            .map(|(&s, &n)| s as f64 * n as f64)
            .sum();
        let part = moved / (times as f64 * step.unsigned_abs() as f64);
        (0.7..1.4).contains(&part).then_some(times)
    }

    /// Rows from one return of a walk to the next, as [`SiteFacts::returns`] has it.
    pub fn lap(&self) -> Option<f64> {
        self.returns().map(|times| self.rows as f64 / times as f64)
    }

    /// Rows that follow one another in memory before a jump to elsewhere, where these are few, and jumps go nowhere in particular.
    pub fn short_runs(&self) -> Option<f64> {
        let jumps = 1.0 - self.near(FAR);
        if self.all_steps < 64 || !(1.0 / 64.0..=0.5).contains(&jumps) {
            return None;
        }
        // One that comes again and again is the step of a loop around.
        let far = |s: &(&i64, &u64)| s.0.unsigned_abs() > FAR;
        let most = self.steps.iter().filter(far).map(|s| *s.1).max();
        if most.unwrap_or(0) as f64 >= 0.5 * jumps * self.all_steps as f64 {
            return None;
        }
        let (mut moved, mut times) = (0.0, 0.0);
        for (step, &count) in self.steps.iter().filter(|s| !far(s)) {
            moved += step.unsigned_abs() as f64 * count as f64;
            times += count as f64;
        }
        let rows = 1.0 / jumps;
        let bytes = rows * moved / f64::max(times, 1.0);
        (bytes < RUN).then_some(rows)
    }

    /// Steps that were seen.
    pub fn steps(&self) -> u64 {
        self.all_steps
    }

    /// First touches per row.
    pub fn cold(&self) -> f64 {
        self.firsts as f64 / self.rows.max(1) as f64
    }

    /// The object with the most rows.
    pub fn object(&self) -> u32 {
        let best = self
            .objects
            .iter()
            .max_by_key(|&(&o, &n)| (n, std::cmp::Reverse(o)));
        best.map_or(0, |b| *b.0)
    }

    fn note_step(&mut self, step: i64) {
        self.all_steps += 1;
        if self.steps.len() < STEPS || self.steps.contains_key(&step) {
            *self.steps.entry(step).or_default() += 1;
        } else {
            // Rare ones make room.
            self.steps.retain(|_, n| {
                *n -= 1;
                *n > 0
            });
        }
    }
}

/// Facts of all instructions, by number.
pub fn facts(windows: &[Window], places: &Places) -> HashMap<u32, SiteFacts, Mixed> {
    let of = |(site, places)| (site, SiteFacts::new(site, windows, places));
    places.by_site().map(of).collect()
}

impl SiteFacts {
    /// Of the instruction whose rows are at these places, in order.
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

    /// Windows of 300 loads anywhere in a walk through rows of 64 words, of which `rows` are 8 KiB apart, again and again.
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
        // Blocks anywhere.
        let anywhere = |turn: u64| {
            let mixed = (turn + 1).wrapping_mul(6364136223846793005);
            ((mixed ^ (mixed >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 38) << 12
        };
        assert_eq!(blocked(8, anywhere).returns(), None);
        // One walk through all.
        assert_eq!(blocked(1 << 20, |_| 0).returns(), None);
    }

    /// A matrix of 2048 rows of 2048 numbers, by columns: as a whole, and in blocks of 16 columns and rows.
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

//! Bytes of each cache line that are used between its fetch and its last touch.
//!
//! The touched bytes of a line increase with every further window. Over a whole trace, nearly all
//! of each line seems used. In a cache, fewer are: a line is fetched, some bytes of it are read,
//! and it is evicted. This stage simulates a first-level cache of [`CACHE_SETS`] × [`WAYS`] lines
//! over each sample, from empty, and counts for each fetch the bytes that are read until the line
//! is evicted or the sample ends. They are attributed to the code whose load fetched the line.
//!
//! A hash chooses the set of a line. Set conflicts due to power-of-two strides depend on one
//! machine's cache, and the next level still has the line.
//!
//! In long samples, [`LOADS_PER_STRETCH`] loads in every [`LOADS_PER_PERIOD`] are simulated: one
//! load in eight is enough for a ratio.

use crate::data::group::Group;
use crate::data::memory_units::CacheLine;
use crate::data::rows::ColumnSlices;
use mgz_models::util::hash::spread;

/// Number of sets of the cache: 32 KiB in total.
const CACHE_SETS: usize = 64;
/// The hash shifted by this is the number of a set.
const SET_SHIFT: u32 = 64 - CACHE_SETS.trailing_zeros();
/// Lines of a set.
const WAYS: usize = 8;
/// Source: Chosen.
const LOADS_PER_STRETCH: usize = 1 << 14;
/// Loads from the begin of one simulated stretch to the next. Source: Chosen.
const LOADS_PER_PERIOD: usize = 1 << 17;
/// No address is in this line.
const EMPTY: CacheLine = CacheLine::from_number(u64::MAX);

/// Fetches of a group of code, and the bytes that were used of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Fetched {
    /// Lines that its loads have fetched.
    pub lines: u64,
    /// Bytes of these lines that were read before the lines were evicted.
    pub bytes: u64,
}

impl Fetched {
    /// Adds another one.
    pub fn merge(&mut self, other: Fetched) {
        self.lines += other.lines;
        self.bytes += other.bytes;
    }
}

/// Adds counts by group.
pub(crate) fn add_fetches(all: &mut Vec<Fetched>, some: &[Fetched]) {
    all.resize(all.len().max(some.len()), Fetched::default());
    all.iter_mut().zip(some).for_each(|(a, &b)| a.merge(b));
}

/// A line in the cache, and its use.
#[derive(Clone, Copy)]
struct Held {
    line: CacheLine,
    /// Bytes that were read.
    bytes: u64,
    group: Group,
}

const NO_LINE: Held = Held {
    line: EMPTY,
    bytes: 0,
    group: Group::from_raw(0),
};

/// The cache, and its counts by group.
pub struct Fetches {
    /// The lines of each set, most recently used first.
    sets: Box<[[Held; WAYS]; CACHE_SETS]>,
    /// Loads of the sample so far.
    at: usize,
    counts: Vec<Fetched>,
}

impl Default for Fetches {
    fn default() -> Fetches {
        Fetches {
            sets: Box::new([[NO_LINE; WAYS]; CACHE_SETS]),
            at: 0,
            counts: Vec::new(),
        }
    }
}

impl Fetches {
    /// Simulates further loads of the sample.
    pub fn run(&mut self, rows: &ColumnSlices<'_>) {
        let mut from = 0;
        while from < rows.len() {
            let inside = self.at % LOADS_PER_PERIOD;
            let (end, played) = if inside < LOADS_PER_STRETCH {
                (LOADS_PER_STRETCH, true)
            } else {
                (LOADS_PER_PERIOD, false)
            };
            let some = (end - inside).min(rows.len() - from);
            if played {
                self.play(&rows.slice(from..from + some));
            }
            from += some;
            self.at += some;
            if played && inside + some == LOADS_PER_STRETCH {
                self.empty();
            }
        }
    }

    /// Ends the sample: all lines are evicted.
    pub fn finish(&mut self) {
        self.empty();
        self.at = 0;
    }

    /// Adds the counts of `other` and ends its sample.
    pub fn merge(&mut self, mut other: Fetches) {
        other.finish();
        add_fetches(&mut self.counts, &other.counts);
    }

    fn play(&mut self, rows: &ColumnSlices<'_>) {
        let ColumnSlices {
            address,
            size,
            group,
            ..
        } = *rows;
        for ((&address, &size), &group) in address.iter().zip(size).zip(group) {
            let last = address.saturating_add(u64::from(size.max(1)) - 1);
            for line in CacheLine::all(address, last) {
                let start = address.saturating_sub(line.address()).min(63) as u32;
                let end = (last - line.address()).min(63) as u32;
                self.touch(line, u64::MAX >> (63 - end) & u64::MAX << start, group);
            }
        }
    }

    fn empty(&mut self) {
        for set in 0..CACHE_SETS {
            for way in 0..WAYS {
                let held = std::mem::replace(&mut self.sets[set][way], NO_LINE);
                self.count(held);
            }
        }
    }

    #[inline(always)]
    fn touch(&mut self, line: CacheLine, bytes: u64, group: Group) {
        let set = &mut self.sets[(spread(line.number()) >> SET_SHIFT) as usize];
        if set[0].line == line {
            set[0].bytes |= bytes;
            return;
        }
        match set.iter().position(|other| other.line == line) {
            Some(way) => {
                set[..=way].rotate_right(1);
                set[0].bytes |= bytes;
            }
            None => {
                let displaced = set[WAYS - 1];
                set.rotate_right(1);
                set[0] = Held { line, bytes, group };
                self.count(displaced);
            }
        }
    }

    fn count(&mut self, held: Held) {
        if held.line == EMPTY {
            return;
        }
        let at = held.group.index();
        if self.counts.len() <= at {
            self.counts.resize(at + 1, Fetched::default());
        }
        self.counts[at].merge(Fetched {
            lines: 1,
            bytes: u64::from(held.bytes.count_ones()),
        });
    }

    /// Counts by group.
    pub fn counts(&self) -> &[Fetched] {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(loads: &[(u64, u32, u32)]) -> Vec<Fetched> {
        let columns = |of: fn(&(u64, u32, u32)) -> u32| loads.iter().map(of).collect::<Vec<_>>();
        let address: Vec<u64> = loads.iter().map(|l| l.0).collect();
        let mut fetches = Fetches::default();
        fetches.run(&ColumnSlices {
            address: &address,
            size: &columns(|l| l.1),
            group: &loads
                .iter()
                .map(|l| Group::from_raw(l.2))
                .collect::<Vec<_>>(),
            implied: &vec![0; loads.len()],
        });
        fetches.finish();
        fetches.counts().to_vec()
    }

    fn fetched(lines: u64, bytes: u64) -> Fetched {
        Fetched { lines, bytes }
    }

    #[test]
    fn a_walk_uses_its_lines_and_columns_of_a_matrix_do_not() {
        let walk: Vec<_> = (0..8192).map(|i| (i * 8, 8, 0)).collect();
        assert_eq!(played(&walk), [fetched(1024, 65_536)]);
        // Two columns share their lines, with rows of 16 KiB. Each line is evicted before the next
        // column.
        let columns = |rows: u64, columns: u64| -> Vec<_> {
            (0..rows * columns)
                .map(|i| (i % rows * 16_384 + i / rows * 8, 8, 0))
                .collect()
        };
        assert_eq!(played(&columns(4096, 2)), [fetched(8192, 65_536)]);
        // The lines of a block of 16 rows stay in the cache, although they are a power of two
        // apart.
        assert_eq!(played(&columns(16, 8)), [fetched(16, 1024)]);
        // Structures of 64 bytes, of which one field is read twice while the line is in the cache.
        let fields: Vec<_> = (0..2000).map(|i| (i / 2 * 64, 8, 0)).collect();
        assert_eq!(played(&fields), [fetched(1000, 8000)]);
    }

    #[test]
    fn how_a_sample_is_cut_is_no_matter() {
        let loads: Vec<u64> = (0..40_000u64).map(|i| i * i % 9973 * 24).collect();
        let counted = |cut: usize| {
            let mut fetches = Fetches::default();
            for part in loads.chunks(cut) {
                fetches.run(&ColumnSlices {
                    address: part,
                    size: &vec![8; part.len()],
                    group: &vec![Group::from_raw(0); part.len()],
                    implied: &vec![0; part.len()],
                });
            }
            fetches.finish();
            fetches.counts().to_vec()
        };
        assert_eq!(counted(7), counted(40_000));
    }

    #[test]
    fn bytes_count_for_the_code_that_has_fetched_the_line() {
        assert_eq!(
            played(&[(60, 8, 2), (0, 4, 1), (64, 64, 0)]),
            [fetched(0, 0), fetched(0, 0), fetched(2, 8 + 64)]
        );
        assert_eq!(played(&[(0, 0, 0), (u64::MAX - 3, 16, 0)])[0].lines, 2);
    }

    #[test]
    fn of_long_samples_stretches_are_played() {
        let long: Vec<_> = (0..3 * LOADS_PER_PERIOD as u64)
            .map(|i| (i * 64, 8, 0))
            .collect();
        assert_eq!(
            played(&long),
            [fetched(
                3 * LOADS_PER_STRETCH as u64,
                3 * 8 * LOADS_PER_STRETCH as u64
            )]
        );
    }
}

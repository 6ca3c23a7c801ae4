//! Visits of lines in the order of samples, each with its cell.

use crate::data::samples::SampleInfo;
use crate::misses::visit_table::Key;
use crate::stages::line_visits::{LineVisits, Visit};
use crate::util::fast_hash::Mixed;
use rayon::prelude::*;
use std::collections::HashMap;

/// A visit in the form that is sorted: line, address space, thread, place of the sample in the
/// thread, cell.
pub(super) type Ordered = (u64, u32, u32, u32, Late);

/// The cell of a visit, with one bit for visits in sequence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Late(u32);

impl Late {
    /// The visit lies inside the reach, so it is not late.
    const NOT: u32 = u32::MAX >> 1;
    /// The visit's cell is too rare to be kept apart.
    const OTHER: u32 = Late::NOT - 1;

    fn new(cell: u32, sequence: bool) -> Late {
        Late(cell << 1 | u32::from(sequence))
    }

    /// The cell of a late visit. The outer option is none if the visit is not late, the inner one
    /// if its cell is too rare to be kept apart.
    pub(super) fn cell(self) -> Option<Option<u32>> {
        match self.0 >> 1 {
            Late::NOT => None,
            Late::OTHER => Some(None),
            cell => Some(Some(cell)),
        }
    }

    pub(super) fn sequence(self) -> bool {
        self.0 & 1 == 1
    }
}

/// The samples of each thread, or of each process, in the order of time.
fn samples_by_thread(samples: &[SampleInfo], by_process: bool) -> Vec<Vec<u32>> {
    let mut all: Vec<&SampleInfo> = samples.iter().filter(|s| s.loads > 0).collect();
    let thread = |s: &SampleInfo| (s.process, if by_process { 0 } else { s.thread });
    all.sort_by_key(|s| (thread(s), s.first_time, s.sample));
    all.chunk_by(|a, b| thread(a) == thread(b))
        .map(|same| same.iter().map(|s| s.sample).collect())
        .collect()
}

/// Threads, or processes, with their samples in the order of time.
pub(super) struct Threads {
    pub(super) samples: Vec<Vec<u32>>,
    /// By sample: its thread and its place there.
    places: Vec<(u32, u32)>,
}

impl Threads {
    pub(super) fn new(samples: &[SampleInfo], by_process: bool) -> Threads {
        let threads = samples_by_thread(samples, by_process);
        let end = samples.iter().map(|s| s.sample + 1).max().unwrap_or(0) as usize;
        let mut places = vec![(u32::MAX, 0); end];
        for (samples, thread) in threads.iter().zip(0..) {
            (samples.iter().zip(0..)).for_each(|(&s, at)| places[s as usize] = (thread, at));
        }
        Threads {
            samples: threads,
            places,
        }
    }

    /// Number behind the last sample.
    pub(super) fn end(&self) -> usize {
        self.places.len()
    }

    /// The thread of a sample and its place there.
    pub(super) fn place(&self, sample: u32) -> Option<(u32, u32)> {
        let place = self.places.get(sample as usize).copied();
        place.filter(|p| p.0 != u32::MAX)
    }
}

/// Sorts visits by line, then in the order of samples. `keys`: the cells of late visits;
/// `numbers`: the cells that are kept apart.
pub(super) fn sorted(
    lines: &LineVisits,
    keys: &[Option<Key>],
    numbers: &HashMap<Key, u32, Mixed>,
    threads: &Threads,
) -> Vec<Ordered> {
    let ordered = |(v, key): (&Visit, &Option<Key>)| -> Option<Ordered> {
        let (thread, at) = threads.place(v.sample)?;
        let cell = key.map_or(Late::NOT, |key| {
            numbers.get(&key).copied().unwrap_or(Late::OTHER)
        });
        Some((v.line, v.space, thread, at, Late::new(cell, v.sequence)))
    };
    let visits = lines.visits.par_iter().zip(keys);
    let mut visits: Vec<Ordered> = visits.filter_map(ordered).collect();
    visits.par_sort_unstable();
    visits
}

/// By sample: number of samples of its thread.
pub(super) fn samples_of_threads(samples: &[SampleInfo]) -> HashMap<u32, f64, Mixed> {
    let of_thread = |same: Vec<u32>| {
        let count = same.len() as f64;
        same.into_iter().map(move |sample| (sample, count))
    };
    samples_by_thread(samples, false)
        .into_iter()
        .flat_map(of_thread)
        .collect()
}

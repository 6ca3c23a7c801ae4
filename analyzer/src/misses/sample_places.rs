//! Samples by thread, in the order of time.

use crate::data::samples::SampleInfo;
use crate::util::fast_hash::Mixed;
use std::collections::HashMap;

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
    /// By sample: its thread and its index there.
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

    /// Number after the last sample.
    pub(super) fn end(&self) -> usize {
        self.places.len()
    }

    /// The thread of a sample and its index there.
    pub(super) fn place(&self, sample: u32) -> Option<(u32, u32)> {
        let place = self.places.get(sample as usize).copied();
        place.filter(|p| p.0 != u32::MAX)
    }
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

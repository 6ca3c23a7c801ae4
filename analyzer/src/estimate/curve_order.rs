//! Samples in the order of their threads, and the loads that each represents.

use crate::util::fast_hash::Mixed;
use std::collections::HashMap;

/// For each sample its thread (numbered from 0) and its number there.
#[derive(Default)]
pub struct Order {
    /// By sample, as far as samples are numbered without large holes.
    dense: Vec<Option<(u32, u32)>>,
    sparse: HashMap<u32, (u32, u32), Mixed>,
    /// Samples by thread.
    pub(crate) lengths: Vec<u32>,
    len: usize,
    /// Cumulative loads of the run that the samples of each thread represent, starting with 0.
    /// Empty if all samples represent equally many.
    upto: Vec<Vec<f64>>,
}

impl Order {
    /// The thread of a sample and its number there.
    #[inline(always)]
    pub fn get(&self, sample: u32) -> Option<(u32, u32)> {
        match self.dense.get(sample as usize) {
            Some(place) => *place,
            None => self.sparse.get(&sample).copied(),
        }
    }

    /// Adds the next sample of a thread, unless it is already known. `loads` is the number of loads
    /// that it represents; `None` for all samples if these represent equally many.
    pub fn add(&mut self, sample: u32, thread: u32, loads: Option<f64>) {
        if self.get(sample).is_some() {
            return;
        }
        if self.lengths.len() <= thread as usize {
            self.lengths.resize(thread as usize + 1, 0);
        }
        let number = &mut self.lengths[thread as usize];
        let place = (thread, *number);
        *number += 1;
        self.len += 1;
        if let Some(loads) = loads {
            self.upto.resize(self.lengths.len(), vec![0.0]);
            let upto = &mut self.upto[thread as usize];
            upto.push(upto.last().copied().unwrap_or(0.0) + loads);
        }
        let at = sample as usize;
        // An entry in one map must not be hidden by the other.
        if at < self.dense.len() {
            self.dense[at] = Some(place);
        } else if self.sparse.is_empty() && at < self.len * 4 + 1024 {
            self.dense.resize(at + 1, None);
            self.dense[at] = Some(place);
        } else {
            self.sparse.insert(sample, place);
        }
    }

    /// True if samples represent different numbers of loads.
    pub fn is_weighed(&self) -> bool {
        !self.upto.is_empty()
    }

    /// Loads that the samples `from..to` of a thread represent, by their numbers there; only if
    /// samples differ in this.
    pub fn loads(&self, thread: u32, from: u32, to: u32) -> f64 {
        let upto = &self.upto[thread as usize];
        upto[to as usize] - upto[from as usize]
    }

    /// Weight of a window of `1 << level` samples in means: the loads that its samples represent,
    /// or one if all samples represent equally many.
    pub(crate) fn weight(&self, thread: u32, window: u32, level: usize) -> f64 {
        if self.is_weighed() {
            self.loads(thread, window << level, (window + 1) << level)
        } else {
            1.0
        }
    }

    /// Total weight of all complete windows of `1 << level` samples.
    pub(crate) fn windows(&self, level: usize) -> f64 {
        let whole = |length: u32| length.checked_shr(level as u32).unwrap_or(0);
        let of = |(thread, &length): (u32, &u32)| {
            if self.is_weighed() {
                self.loads(thread, 0, whole(length) << level)
            } else {
                whole(length).into()
            }
        };
        (0..).zip(&self.lengths).map(of).sum()
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of samples of each thread.
    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }
}

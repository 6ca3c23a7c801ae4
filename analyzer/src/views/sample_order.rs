//! The order of samples.

use crate::data::samples::SampleInfo;

/// Samples with loads, by start time.
pub(crate) fn by_time(samples: &[SampleInfo]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..samples.len())
        .filter(|&s| samples[s].loads > 0)
        .collect();
    order.sort_by_key(|&s| (samples[s].first_time, s));
    order
}

//! Facts of a sample.

use crate::data::rows::Run;

/// One sample, as the list of samples has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleInfo {
    /// System process id.
    pub process: u32,
    /// System thread id.
    pub thread: u32,
    /// Sample number.
    pub sample: u32,
    /// Load rows.
    pub loads: u64,
    /// `time_ns` of the first row.
    pub first_time: u64,
    /// `time_ns` of the last row.
    pub last_time: u64,
    /// Pieces it lies in, and its load rows in each.
    pub parts: Vec<(usize, u64)>,
}

impl SampleInfo {
    /// Adds a run in `piece` to a list of samples; it may go on with the last one.
    pub(crate) fn append(samples: &mut Vec<SampleInfo>, run: &Run, piece: usize, continues: bool) {
        let loads = run.loads.len() as u64;
        match samples.last_mut().filter(|_| continues) {
            Some(sample) => {
                sample.loads += loads;
                sample.last_time = run.last_time;
                match sample.parts.last_mut().filter(|p| p.0 == piece) {
                    // A run that was cut into parts of the run of the program.
                    Some(part) => part.1 += loads,
                    None => sample.parts.push((piece, loads)),
                }
            }
            None => samples.push(SampleInfo {
                process: run.process,
                thread: run.thread,
                sample: run.sample,
                loads,
                first_time: run.first_time,
                last_time: run.last_time,
                parts: vec![(piece, loads)],
            }),
        }
    }
}

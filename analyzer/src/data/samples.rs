//! Facts of a sample.

use crate::data::rows::Run;

/// Where a sample without loads begins.
pub const NO_LOAD: u32 = u32::MAX;

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
    /// Code and class of the first load ([`crate::data::code_map`]); [`NO_LOAD`] if there is none.
    pub start: u32,
    /// `time_ns` of the first row.
    pub first_time: u64,
    /// `time_ns` of the last row.
    pub last_time: u64,
    /// Pieces it lies in, and its load rows in each.
    pub parts: Vec<(usize, u64)>,
}

impl SampleInfo {
    /// Adds a run in `piece` to a list of samples; it may go on with the last one. `groups`: of the loads of its chunk, where they are known.
    pub(crate) fn append(
        samples: &mut Vec<SampleInfo>,
        run: &Run,
        groups: &[u32],
        piece: usize,
        continues: bool,
    ) {
        let start = if run.loads.is_empty() {
            NO_LOAD
        } else {
            groups.get(run.loads.start).copied().unwrap_or(NO_LOAD)
        };
        let loads = run.loads.len() as u64;
        match samples.last_mut().filter(|_| continues) {
            Some(sample) => {
                if sample.loads == 0 {
                    sample.start = start;
                }
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
                start,
                first_time: run.first_time,
                last_time: run.last_time,
                parts: vec![(piece, loads)],
            }),
        }
    }
}

//! Counts of rows and samples, and the list of samples.

use crate::rows::Run;

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

/// Counts of samples and rows, and what was wrong with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Load rows.
    pub loads: u64,
    /// Store rows.
    pub stores: u64,
    /// Samples with at least one row.
    pub samples: u64,
    /// Load rows of the shortest sample.
    pub sample_min: u64,
    /// Load rows of the longest sample.
    pub sample_max: u64,
    /// Threads.
    pub threads: u64,
    /// Processes.
    pub processes: u64,
    /// Rows whose `seq` does not ascend.
    pub out_of_order: u64,
    /// Rows with an unknown site.
    pub unknown_site: u64,
    /// Rows with an unknown module.
    pub unknown_module: u64,
    /// Rows with an unknown class.
    pub unknown_class: u64,
    /// Rows in pieces that could not be read.
    pub unread: u64,
}

impl Census {
    /// Adds another one, of other threads.
    pub fn merge(&mut self, other: &Census) {
        self.sample_min = match (self.samples, other.samples) {
            (0, _) => other.sample_min,
            (_, 0) => self.sample_min,
            _ => self.sample_min.min(other.sample_min),
        };
        self.sample_max = self.sample_max.max(other.sample_max);
        self.loads += other.loads;
        self.stores += other.stores;
        self.samples += other.samples;
        self.threads += other.threads;
        self.processes += other.processes;
        self.out_of_order += other.out_of_order;
        self.unknown_site += other.unknown_site;
        self.unknown_module += other.unknown_module;
        self.unknown_class += other.unknown_class;
        self.unread += other.unread;
    }
}

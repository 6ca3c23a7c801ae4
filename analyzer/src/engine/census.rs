//! Counts of rows and samples, and the list of samples.

/// Counts of samples and rows, and of their defects.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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

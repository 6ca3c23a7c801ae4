//! Samples of code addresses with their times, kept for names that become known later.

/// Maximum number of kept samples. Source: Chosen; 40 MiB.
const MAX_SAMPLES: usize = 1 << 20;

/// A sample: a thread was at an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeSample {
    /// Process id.
    pub process: u32,
    /// Address.
    pub address: u64,
    /// Time of CLOCK_MONOTONIC, ns.
    pub time_ns: u64,
    /// Time that the sample represents, in the unit of its source.
    pub weight: u64,
    /// The address is known to lie in a mapping without a file.
    pub in_mapping: bool,
}

/// Samples of a run. If there are too many, every second one is dropped, and the others represent
/// it.
#[derive(Clone, Debug)]
pub struct CodeSamples {
    list: Vec<CodeSample>,
    /// One in this many samples is kept.
    stride: u64,
    /// Samples until the next one that is kept.
    until_next: u64,
    max: usize,
}

impl Default for CodeSamples {
    fn default() -> CodeSamples {
        CodeSamples {
            list: Vec::new(),
            stride: 1,
            until_next: 0,
            max: MAX_SAMPLES,
        }
    }
}

impl CodeSamples {
    /// Adds a sample.
    pub fn push(&mut self, sample: CodeSample) {
        if self.until_next > 0 {
            self.until_next -= 1;
            return;
        }
        if self.list.len() >= self.max {
            let mut at = 0;
            self.list.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.stride *= 2;
        }
        self.until_next = self.stride - 1;
        self.list.push(sample);
    }

    /// Leaves out samples.
    pub fn retain(&mut self, is_kept: impl FnMut(&CodeSample) -> bool) {
        self.list.retain(is_kept);
    }

    /// Number of samples that each kept one represents.
    pub fn stride(&self) -> u64 {
        self.stride
    }

    /// The samples that were kept. All represent the same number of samples.
    pub fn list(&self) -> &[CodeSample] {
        &self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_are_kept_are_spread_over_the_run() {
        let mut samples = CodeSamples {
            max: 8,
            ..CodeSamples::default()
        };
        for time_ns in 0..100 {
            samples.push(CodeSample {
                time_ns,
                ..CodeSample::default()
            });
        }
        let times: Vec<u64> = samples.list().iter().map(|s| s.time_ns).collect();
        assert_eq!(times, [0, 16, 32, 48, 64, 80, 96]);
    }
}

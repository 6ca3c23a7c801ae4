//! Words that were watched after the end of a sample, until the next access.

use crate::data::group::Group;

/// End of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// A load of this group touched the word.
    Load(Group),
    /// Another access ended it: a store, or unknown code.
    Other,
    /// It was given up before an access.
    GivenUp,
}

/// A watch that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReusePair {
    /// Index among all watches.
    pub number: u32,
    /// The sample that used the word.
    pub sample: u32,
    /// First byte of the word.
    pub address: u64,
    /// CPU time of the thread since the sample's end.
    pub cpu_ns: u64,
    /// End of the watch.
    pub end: WatchEnd,
}

/// All watches of a trace, by sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReusePairs {
    all: Vec<ReusePair>,
    /// True if a filter left samples out: their watches do not count.
    pub filtered: bool,
}

impl ReusePairs {
    /// Sorts and numbers all watches.
    pub fn new(mut all: Vec<ReusePair>, filtered: bool) -> ReusePairs {
        all.sort_by_key(|p| (p.sample, p.address, p.cpu_ns));
        for (number, pair) in (0..).zip(&mut all) {
            pair.number = number;
        }
        ReusePairs { all, filtered }
    }

    /// All of them, in the order of their numbers.
    pub fn all(&self) -> &[ReusePair] {
        &self.all
    }

    /// The watches of a sample.
    pub fn of(&self, sample: u32) -> &[ReusePair] {
        let from = self.all.partition_point(|p| p.sample < sample);
        let to = from + self.all[from..].partition_point(|p| p.sample == sample);
        &self.all[from..to]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_are_found_by_sample() {
        let pair = |sample, address| ReusePair {
            number: 0,
            sample,
            address,
            cpu_ns: 1,
            end: WatchEnd::GivenUp,
        };
        let all = vec![pair(5, 64), pair(2, 8), pair(5, 0)];
        let pairs = ReusePairs::new(all, false);
        let of = |sample| {
            let pairs = pairs.of(sample).iter();
            pairs.map(|p| (p.number, p.address)).collect::<Vec<_>>()
        };
        assert_eq!(of(5), [(1, 0), (2, 64)]);
        assert_eq!(of(2), [(0, 8)]);
        assert!(of(0).is_empty() && of(u32::MAX).is_empty());
    }
}

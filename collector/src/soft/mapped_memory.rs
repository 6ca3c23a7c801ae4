//! Memory that the recorded processes had mapped. It bounds the memory that they can have read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Time between two looks. Source: Chosen; a look takes some ten microseconds.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The largest size of each process's address space, bytes.
#[derive(Default)]
pub(crate) struct MappedMemory {
    last: Option<Instant>,
    peaks: BTreeMap<u32, u64>,
}

impl MappedMemory {
    /// Looks at the processes, if it is time. A process that has ended keeps its last value.
    pub(crate) fn look(&mut self, processes: impl Iterator<Item = u32>) {
        if self.last.is_some_and(|last| last.elapsed() < LOOK_INTERVAL) {
            return;
        }
        self.last = Some(Instant::now());
        for pid in processes.filter(|&pid| pid != 0).collect::<BTreeSet<u32>>() {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
            if let Some(bytes) = status.ok().as_deref().and_then(largest_size) {
                let peak = self.peaks.entry(pid).or_default();
                *peak = bytes.max(*peak);
            }
        }
    }

    /// The sum over processes. None if a process was never looked at.
    pub(crate) fn sum(&self, processes: impl Iterator<Item = u32>) -> Option<u64> {
        let processes: BTreeSet<u32> = processes.collect();
        let of = |pid| self.peaks.get(pid).copied();
        processes
            .iter()
            .map(of)
            .sum::<Option<u64>>()
            .filter(|&sum| sum > 0)
    }
}

/// `VmPeak` of a text like `/proc/PID/status`, bytes.
fn largest_size(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|l| l.strip_prefix("VmPeak:"))?;
    let kib = value.trim().strip_suffix(" kB")?;
    kib.parse::<u64>().ok()?.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_kernel() {
        let own = std::process::id();
        let mut mapped = MappedMemory::default();
        assert_eq!(mapped.sum([own].into_iter()), None);
        mapped.look([own, u32::MAX].into_iter());
        let before = mapped.sum([own, own].into_iter()).unwrap();
        assert!(before > 1 << 20);
        assert_eq!(mapped.sum([own, u32::MAX].into_iter()), None);
        // The next look is too early to see this.
        let more = vec![0u8; 256 << 20];
        mapped.look([own].into_iter());
        assert_eq!(mapped.sum([own].into_iter()), Some(before));
        mapped.last = None;
        mapped.look([own].into_iter());
        let after = mapped.sum([own].into_iter()).unwrap();
        assert!(after >= before.max(more.len() as u64));
    }

    #[test]
    fn texts_of_other_forms_have_no_size() {
        assert_eq!(
            largest_size("Name:\ta\nVmPeak:\t  210684 kB\nVmSize:\t 1 kB\n"),
            Some(210_684 << 10)
        );
        for text in [
            "",
            "VmPeak:\t x kB",
            "VmPeak:\t12",
            "Name:\tkthread\n",
            "VmPeak: 99999999999999999 kB",
        ] {
            assert_eq!(largest_size(text), None, "{text}");
        }
    }
}

//! Use–reuse pairs into the trace folder.

use crate::convert::SampleSeen;
use crate::machine::signal_cost;
use crate::pairs::write::{self, Pair};
use crate::pairs::{WatchEnd, WordAccess};
use crate::paths::waiting::LoadLocator;
use crate::trace::recording::Recording;

/// The sample whose window begins with a slot and was over by then. (Slot numbers repeat after
/// `exec`; the last match counts.)
fn sample_of(samples: &[SampleSeen], end: &WatchEnd) -> Option<u32> {
    let key = |s: &SampleSeen| (s.thread.process, s.thread.thread, s.first_slot);
    let wanted = (end.process, end.thread, end.first_slot);
    let from = samples.partition_point(|s| key(s) < wanted);
    samples[from..]
        .iter()
        .take_while(|s| key(s) == wanted)
        .filter(|s| s.end_ns <= end.time)
        .max_by_key(|s| s.end_ns)
        .map(|s| s.sample)
}

impl Recording {
    /// Writes the pairs of the samples. `places`: of the code that accesses.
    pub(crate) fn write_reuse_pairs(
        &mut self,
        ends: &[WatchEnd],
        samples: &[SampleSeen],
        places: Option<&LoadLocator>,
    ) {
        if ends.is_empty() {
            return;
        }
        let mut samples = samples.to_vec();
        samples.sort_by_key(|s| (s.thread.process, s.thread.thread, s.first_slot, s.end_ns));
        // The time between an access and the reading of the clock is not the program's own time.
        let toll = signal_cost::watched(libc::SIGRTMAX() - 2).unwrap_or(0);
        let pair = |end: &WatchEnd| {
            let load = |ip| places?.load_at(end.process, end.time, ip);
            Some(Pair {
                sample: sample_of(&samples, end)?,
                address: end.word,
                cpu_ns: match end.access {
                    Some(_) => end.cpu_ns.saturating_sub(toll),
                    None => end.cpu_ns,
                },
                reused: end.access.is_some(),
                load: (end.access.iter().flat_map(WordAccess::loads)).find_map(load),
            })
        };
        let mut pairs: Vec<Pair> = ends.iter().filter_map(pair).collect();
        // The windows of the other pairs have no rows: they were damaged, or held no load.
        let without = ends.len() - pairs.len();
        if without > 0 {
            let dropped = &mut self.manifest.totals.dropped;
            *dropped.entry("reuse_pairs".into()).or_default() += without as u64;
        }
        pairs.sort_by_key(|p| (p.sample, p.address, p.cpu_ns));
        if let Err(error) = write::write_pairs(self.folder.path(), &pairs) {
            self.problem(format!(
                "{}: use–reuse pairs could not be written: {error:#}",
                self.folder.path().display()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgz_annotations_schema::spill::ThreadKey;

    #[test]
    fn a_watch_belongs_to_the_last_window_with_its_slot_before_it() {
        let sample = |sample, thread, first_slot, end_ns| SampleSeen {
            thread: ThreadKey { process: 1, thread },
            sample,
            first_slot,
            end_ns,
        };
        let samples = [
            sample(0, 1, 0, 10),
            sample(3, 1, 0, 500),
            sample(1, 1, 1001, 20),
            sample(2, 2, 0, 15),
        ];
        let of = |thread, first_slot, time| {
            let end = WatchEnd {
                process: 1,
                thread,
                time,
                first_slot,
                word: 8,
                cpu_ns: 5,
                access: None,
            };
            sample_of(&samples, &end)
        };
        assert_eq!(of(1, 0, 100), Some(0));
        assert_eq!(of(1, 0, 600), Some(3));
        assert_eq!(of(1, 1001, 25), Some(1));
        assert_eq!(of(2, 0, 25), Some(2));
        assert_eq!(of(2, 1001, 25), None);
        assert_eq!(of(1, 0, 5), None);
    }
}

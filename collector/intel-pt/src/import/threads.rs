//! Slices to spill files, one for each thread, in the order in which the thread ran.
//!
//! Streams are read consecutively, but a thread may have been on several CPUs. So slices are
//! written in order of arrival, with an index in memory, and files with late slices are reordered
//! at the end.
//!
//! Records of two slices may be joined only if the second slice continues the thread's last one. If
//! in doubt it does not: its first slot number then leaves a gap.

use crate::import::resolve::{Slice, Start};
use mgz_annotations_schema::spill::{
    SegmentHeader, SegmentKind, SpillError, SpillFile, SpillWriter, ThreadKey, cause,
};
use mgz_perf_data::session::Stream;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

/// Facts about a slice that was written.
#[derive(Clone, Copy, Debug)]
struct Written {
    start: Start,
    /// Records may be missing after it.
    lost_after: bool,
    stream: u32,
    /// Number among the slices of its stream.
    ordinal: u64,
    /// Position in time among the slices of its thread.
    key: u64,
    begin_ns: u64,
    end_ns: u64,
    slots: u32,
    first_slot: u64,
    window: u32,
}

impl Written {
    /// True if no record is missing between `before` and this slice, the next slice of the same
    /// thread.
    fn follows(&self, before: &Written, switches_join: bool) -> bool {
        !before.lost_after
            && match self.start {
                Start::Loss => false,
                Start::Switch => switches_join,
                Start::Continues => {
                    before.stream == self.stream && before.ordinal + 1 == self.ordinal
                }
            }
    }

    fn first_slot(&self, before: Option<&Written>, switches_join: bool) -> u64 {
        match before {
            None => u64::from(self.start == Start::Loss),
            Some(before) => {
                before.first_slot
                    + u64::from(before.slots)
                    + u64::from(!self.follows(before, switches_join))
            }
        }
    }

    fn header(&self) -> SegmentHeader {
        SegmentHeader {
            kind: SegmentKind::Full,
            first_slot: self.first_slot,
            begin_ns: self.begin_ns,
            end_ns: self.end_ns.max(self.begin_ns),
            cause: cause::WHOLE,
            slots: self.slots,
            ..SegmentHeader::default()
        }
    }
}

struct Thread {
    writer: SpillWriter,
    index: Vec<Written>,
    /// Key of the last slice, by stream.
    keys: HashMap<u32, u64>,
    late: bool,
}

#[derive(Default)]
struct StreamState {
    number: u32,
    next_ordinal: u64,
    /// The last slice: thread and position in its index.
    last: Option<(ThreadKey, usize)>,
    lost: bool,
}

/// Records that a thread has written without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The thread.
    pub thread: ThreadKey,
    /// Number of the first slot of its last segment.
    pub last_segment: u64,
    /// Number of the window (or piece) that its last record is of.
    pub window: u32,
}

/// Result of writing the spill files.
#[derive(Clone, Debug, Default)]
pub struct Spilled {
    /// Kept records by thread.
    pub threads: BTreeMap<ThreadKey, Kept>,
    /// The stretches, ordered by thread and then by time.
    pub stretches: Vec<Stretch>,
    /// Bytes of the spill files.
    pub bytes: u64,
}

/// Writes the spill files.
pub struct Threads {
    dir: PathBuf,
    switches_join: bool,
    threads: BTreeMap<ThreadKey, Thread>,
    streams: HashMap<Stream, StreamState>,
}

/// Records of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Number of slots.
    pub slots: u64,
    /// Number of stretches without a gap.
    pub stretches: u64,
    /// perf's clock at the first record, ns.
    pub begin_ns: u64,
    /// perf's clock at the last record, ns.
    pub end_ns: u64,
}

impl Threads {
    /// Writes into `dir`. `switches_join`: the recording is complete, so a thread's slices are
    /// joined across context switches.
    pub fn new(dir: PathBuf, switches_join: bool) -> Threads {
        Threads {
            dir,
            switches_join,
            threads: BTreeMap::new(),
            streams: HashMap::new(),
        }
    }

    /// Begins a unit of a stream. `continues`: its first record directly follows the previous unit.
    pub fn begin_unit(&mut self, stream: Stream, continues: bool) {
        if !continues {
            self.lose(stream);
        }
    }

    /// Notes that records of a stream are missing at this point.
    pub fn lose(&mut self, stream: Stream) {
        let state = self.stream(stream);
        state.lost = true;
        if let Some((key, at)) = state.last
            && let Some(written) = self.threads.get_mut(&key).and_then(|t| t.index.get_mut(at))
        {
            written.lost_after = true;
        }
    }

    fn stream(&mut self, stream: Stream) -> &mut StreamState {
        let number = self.streams.len() as u32;
        self.streams.entry(stream).or_insert_with(|| StreamState {
            number,
            ..StreamState::default()
        })
    }

    /// Writes the next slice of a stream.
    pub fn push(&mut self, stream: Stream, slice: &Slice) -> std::io::Result<()> {
        if slice.slots.is_empty() {
            return Ok(());
        }
        if slice.start == Start::Loss {
            self.lose(stream);
        }
        let key = ThreadKey {
            process: slice.pid,
            thread: slice.tid,
        };
        let state = self.stream(stream);
        let start = match (state.lost, state.last) {
            (true, _) => Start::Loss,
            (false, Some((last, _))) if last == key => slice.start,
            // For the first slice of a unit, the thread that ran before is unknown.
            _ => Start::Switch,
        };
        state.lost = false;
        let (number, ordinal) = (state.number, state.next_ordinal);
        state.next_ordinal += 1;
        let thread = match self.threads.entry(key) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let writer = SpillWriter::create(&self.dir, key)?;
                entry.insert(Thread {
                    writer,
                    index: Vec::new(),
                    keys: HashMap::new(),
                    late: false,
                })
            }
        };
        // Within a stream the order is known, whatever the times are.
        let last_key = thread.keys.get(&number).copied().unwrap_or(0);
        let order = slice.begin_ns.max(last_key);
        thread.keys.insert(number, order);
        let before = thread.index.last();
        thread.late |= before.is_some_and(|b| order < b.key);
        let mut written = Written {
            start,
            lost_after: false,
            stream: number,
            ordinal,
            key: order,
            begin_ns: slice.begin_ns,
            end_ns: slice.end_ns,
            slots: slice.slots.len() as u32,
            first_slot: 0,
            window: slice.window,
        };
        written.first_slot = written.first_slot(before, self.switches_join);
        thread.writer.write(&written.header(), &slice.slots)?;
        thread.index.push(written);
        let at = thread.index.len() - 1;
        self.stream(stream).last = Some((key, at));
        Ok(())
    }

    /// Puts late slices in order and closes the files.
    pub fn finish(self) -> Result<Spilled, SpillError> {
        let mut all = Spilled::default();
        for (key, thread) in self.threads {
            let path = thread.writer.path().to_owned();
            let mut size = thread.writer.finish()?;
            let mut index = thread.index;
            if thread.late {
                size = reorder(&self.dir, key, &path, &mut index, self.switches_join)?;
            }
            all.bytes += size;
            let mut kept = Kept {
                begin_ns: index.first().map_or(0, |w| w.begin_ns),
                ..Kept::default()
            };
            let mut next = None;
            for written in &index {
                let stretch = Stretch {
                    thread: key,
                    last_segment: written.first_slot,
                    window: written.window,
                };
                match all.stretches.last_mut() {
                    Some(last) if next == Some(written.first_slot) => *last = stretch,
                    _ => {
                        kept.stretches += 1;
                        all.stretches.push(stretch);
                    }
                }
                kept.slots += u64::from(written.slots);
                kept.end_ns = kept.end_ns.max(written.end_ns);
                next = Some(written.first_slot + u64::from(written.slots));
            }
            all.threads.insert(key, kept);
        }
        Ok(all)
    }
}

/// Rewrites a thread's file in order of time.
fn reorder(
    dir: &std::path::Path,
    key: ThreadKey,
    path: &std::path::Path,
    index: &mut Vec<Written>,
    switches_join: bool,
) -> Result<u64, SpillError> {
    let mut order: Vec<usize> = (0..index.len()).collect();
    order.sort_by_key(|&at| index[at].key);
    let mut slots = Vec::new();
    let mut sorted: Vec<Written> = Vec::with_capacity(index.len());
    let mut writer = SpillWriter::create(dir, key)?;
    {
        let file = SpillFile::open(path)?;
        for at in order {
            let mut written = index[at];
            written.first_slot = written.first_slot(sorted.last(), switches_join);
            let segment = file.segments().get(at).ok_or(SpillError::Damaged {
                offset: 0,
                what: "is missing",
            })?;
            file.decode(segment, &mut slots)?;
            writer.write(&written.header(), &slots)?;
            sorted.push(written);
        }
    }
    std::fs::remove_file(path)?;
    *index = sorted;
    Ok(writer.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgz_abi::slot::Slot;

    fn slice(tid: u32, start: Start, time: u64, ids: std::ops::Range<u32>) -> Slice {
        let slots = ids
            .map(|id| Slot {
                payload: 0,
                id,
                aux: 0,
            })
            .collect();
        Slice {
            pid: 1,
            tid,
            start,
            begin_ns: time,
            end_ns: time + 5,
            slots,
            mappings: Vec::new(),
            window: time as u32,
        }
    }

    /// `(first slot, first id)` of a thread's segments.
    fn segments(dir: &std::path::Path, tid: u32) -> Vec<(u64, u32)> {
        let files = mgz_annotations_schema::spill::list(dir).unwrap();
        let paths: Vec<_> = files.iter().filter(|f| f.0.thread == tid).collect();
        assert_eq!(paths.len(), 1, "{files:?}");
        let file = SpillFile::open(&paths[0].1).unwrap();
        let mut slots = Vec::new();
        let mut out = Vec::new();
        for segment in file.segments() {
            file.decode(segment, &mut slots).unwrap();
            out.push((segment.header.first_slot, slots[0].id));
        }
        out
    }

    #[test]
    fn a_thread_that_moves_between_cpus_is_put_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut threads = Threads::new(dir.path().into(), true);
        let (a, b) = (Stream::Cpu(0), Stream::Cpu(1));
        threads.begin_unit(a, true);
        threads
            .push(a, &slice(7, Start::Continues, 10, 0..4))
            .unwrap();
        threads.push(a, &slice(8, Start::Switch, 20, 0..4)).unwrap();
        threads
            .push(a, &slice(7, Start::Switch, 50, 8..12))
            .unwrap();
        threads.begin_unit(b, true);
        threads
            .push(b, &slice(7, Start::Continues, 30, 4..8))
            .unwrap();
        let Spilled {
            threads: kept,
            stretches,
            ..
        } = threads.finish().unwrap();
        assert_eq!(segments(dir.path(), 7), [(0, 0), (4, 4), (8, 8)]);
        assert_eq!(
            kept[&ThreadKey {
                process: 1,
                thread: 7
            }],
            Kept {
                slots: 12,
                stretches: 1,
                begin_ns: 10,
                end_ns: 55
            }
        );
        let of_seven: Vec<_> = (stretches.iter())
            .filter(|s| s.thread.thread == 7)
            .map(|s| (s.last_segment, s.window))
            .collect();
        assert_eq!(
            of_seven,
            [(8, 50)],
            "one stretch, which ends in the last window"
        );
    }

    #[test]
    fn losses_and_where_nobody_looked_leave_gaps() {
        let dir = tempfile::tempdir().unwrap();
        let mut threads = Threads::new(dir.path().into(), false);
        let stream = Stream::Cpu(0);
        threads.begin_unit(stream, false);
        threads
            .push(stream, &slice(7, Start::Continues, 10, 0..4))
            .unwrap();
        threads
            .push(stream, &slice(7, Start::Continues, 15, 4..6))
            .unwrap();
        threads
            .push(stream, &slice(7, Start::Loss, 20, 6..8))
            .unwrap();
        threads.begin_unit(stream, true);
        threads
            .push(stream, &slice(7, Start::Continues, 30, 8..10))
            .unwrap();
        threads
            .push(stream, &slice(8, Start::Switch, 35, 0..1))
            .unwrap();
        threads
            .push(stream, &slice(7, Start::Switch, 40, 20..21))
            .unwrap();
        threads.lose(stream);
        threads.begin_unit(stream, true);
        threads
            .push(stream, &slice(7, Start::Continues, 50, 30..31))
            .unwrap();
        let stretches = threads.finish().unwrap().stretches;
        assert_eq!(
            segments(dir.path(), 7),
            [(1, 0), (5, 4), (8, 6), (10, 8), (13, 20), (15, 30)]
        );
        let of_seven: Vec<_> = (stretches.iter())
            .filter(|s| s.thread.thread == 7)
            .map(|s| (s.last_segment, s.window))
            .collect();
        assert_eq!(of_seven, [(5, 15), (10, 30), (13, 40), (15, 50)]);
    }

    /// Records lost at the end of one CPU's part may be the thread's, so its part on the next CPU
    /// is not joined.
    #[test]
    fn a_loss_behind_the_last_slice_counts_where_the_thread_went() {
        let dir = tempfile::tempdir().unwrap();
        let mut threads = Threads::new(dir.path().into(), true);
        let (a, b) = (Stream::Cpu(0), Stream::Cpu(1));
        threads
            .push(a, &slice(7, Start::Continues, 10, 0..4))
            .unwrap();
        threads.lose(a);
        threads
            .push(b, &slice(7, Start::Continues, 30, 4..8))
            .unwrap();
        threads.finish().unwrap();
        assert_eq!(segments(dir.path(), 7), [(0, 0), (5, 4)]);
    }
}

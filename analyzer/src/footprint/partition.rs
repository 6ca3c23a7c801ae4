//! Entries outside of the small table: appended by page, merged now and then, in a file if memory is short.

use super::{Maps, OWNER_BITS, Place};
use crate::reuse::spread;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Number of partitions.
pub(super) const PARTITIONS: usize = 128;
/// Entries that are appended to a partition before they are merged, at least.
const RUN: usize = 1 << 11;
/// Bytes of an entry in a file.
const STORED: usize = 32;

/// How many entries may be in memory, by all tables together.
#[derive(Debug)]
pub struct Budget {
    most: usize,
    held: AtomicUsize,
    spilled: AtomicUsize,
    /// Writing has failed: everything stays in memory.
    failed: AtomicBool,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::new(usize::MAX)
    }
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(bytes: usize) -> Budget {
        Budget { most: bytes / size_of::<Place>(), held: AtomicUsize::new(0), spilled: AtomicUsize::new(0), failed: AtomicBool::new(false) }
    }

    /// Bytes that went into files.
    pub fn spilled(&self) -> usize {
        self.spilled.load(Ordering::Relaxed) * STORED
    }

    /// Whether entries had to stay in memory, because no file could be written.
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

/// The partition of a line: that of its page, so that pages are whole.
#[inline(always)]
pub(super) fn partition_of(line: u64) -> usize {
    (spread(line / 64) >> (64 - PARTITIONS.trailing_zeros())) as usize
}

/// Entries of one partition, each key once.
#[derive(Clone, Debug)]
pub(super) enum Run {
    /// In memory.
    Memory(Vec<Place>),
    /// In a file: where, and how many.
    File(Arc<File>, u64, usize),
}

impl Run {
    /// Gives its entries to `take`. What cannot be read any more is an error of the system's.
    pub(super) fn each(&self, mut take: impl FnMut(&Place)) -> std::io::Result<()> {
        match self {
            Run::Memory(places) => places.iter().for_each(take),
            Run::File(file, at, count) => {
                let mut bytes = vec![0; count * STORED];
                file.read_exact_at(&mut bytes, *at)?;
                let word = |b: &[u8], n: usize| u64::from_le_bytes(std::array::from_fn(|i| b[n * 8 + i]));
                let place = |b: &[u8]| Place { key: word(b, 0), maps: Maps { seen: word(b, 1), twice: word(b, 2), bytes: word(b, 3) } };
                bytes.chunks_exact(STORED).for_each(|b| take(&place(b)));
            }
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Run::Memory(places) => places.len(),
            Run::File(_, _, count) => *count,
        }
    }
}

#[derive(Default)]
struct Partition {
    places: Vec<Place>,
    /// How many at the beginning have different keys.
    merged: usize,
    runs: Vec<Run>,
}

/// Where keys are in a list, plus one; 0 is free. One for all partitions: it stays in the cache.
#[derive(Default)]
struct Index(Vec<u32>);

impl Partition {
    /// Merges what was appended into what has the same key. What is merged keeps its place.
    fn compact(&mut self, Index(index): &mut Index) {
        let size = (self.places.len() * 2).next_power_of_two().max(64);
        if index.len() < size {
            index.resize(size, 0);
        }
        let index = &mut index[..size];
        index.fill(0);
        let (mask, shift) = (size - 1, 64 - size.trailing_zeros());
        let home = |key: u64| (spread(key) >> shift) as usize & mask;
        for (number, place) in self.places[..self.merged].iter().enumerate() {
            let mut at = home(place.key);
            while index[at] != 0 {
                at = (at + 1) & mask;
            }
            index[at] = number as u32 + 1;
        }
        let mut end = self.merged;
        for from in self.merged..self.places.len() {
            let place = self.places[from];
            let mut at = home(place.key);
            loop {
                let known = index[at] as usize;
                if known == 0 {
                    self.places[end] = place;
                    end += 1;
                    index[at] = end as u32;
                    break;
                }
                let known = &mut self.places[known - 1];
                if known.key == place.key {
                    known.maps.merge(&place.maps);
                    break;
                }
                at = (at + 1) & mask;
            }
        }
        self.places.truncate(end);
        self.merged = end;
    }
}

/// All partitions of a table.
pub(super) struct Partitions {
    partitions: Vec<Partition>,
    budget: Arc<Budget>,
    /// Entries of all partitions that the budget knows of.
    held: usize,
    index: Index,
}

impl Partitions {
    pub(super) fn new(budget: Arc<Budget>) -> Partitions {
        Partitions { partitions: Vec::new(), budget, held: 0, index: Index::default() }
    }

    /// Appends an entry.
    #[inline(always)]
    pub(super) fn push(&mut self, place: &Place) {
        if self.partitions.is_empty() {
            self.partitions.resize_with(PARTITIONS, Partition::default);
        }
        let partition = &mut self.partitions[partition_of(place.key >> OWNER_BITS)];
        partition.places.push(*place);
        if partition.places.len() - partition.merged >= partition.merged.max(RUN) {
            self.settle(partition_of(place.key >> OWNER_BITS));
        }
    }

    #[cold]
    fn settle(&mut self, number: usize) {
        self.partitions[number].compact(&mut self.index);
        self.account();
        if self.budget.held.load(Ordering::Relaxed) > self.budget.most && !self.budget.failed() && self.spill().is_err() {
            self.budget.failed.store(true, Ordering::Relaxed);
        }
    }

    /// Tells the budget how many entries there are. (Before they are merged there may be as many again.)
    fn account(&mut self) {
        let held: usize = self.partitions.iter().map(|p| p.places.len()).sum();
        if held >= self.held {
            self.budget.held.fetch_add(held - self.held, Ordering::Relaxed);
        } else {
            self.budget.held.fetch_sub(self.held - held, Ordering::Relaxed);
        }
        self.held = held;
    }

    /// Writes all entries to a file that has no name. If that fails they stay.
    fn spill(&mut self) -> std::io::Result<()> {
        let file = Arc::new(nameless()?);
        let mut out = std::io::BufWriter::with_capacity(1 << 16, &*file);
        let mut at = 0u64;
        let mut runs = Vec::new();
        for partition in &mut self.partitions {
            partition.compact(&mut self.index);
            for place in &partition.places {
                for word in [place.key, place.maps.seen, place.maps.twice, place.maps.bytes] {
                    out.write_all(&word.to_le_bytes())?;
                }
            }
            runs.push(Run::File(file.clone(), at, partition.places.len()));
            at += (partition.places.len() * STORED) as u64;
        }
        out.flush()?;
        drop(out);
        for (partition, run) in self.partitions.iter_mut().zip(runs) {
            self.budget.spilled.fetch_add(run.len(), Ordering::Relaxed);
            if run.len() > 0 {
                partition.runs.push(run);
            }
            (partition.places, partition.merged) = (Vec::new(), 0);
        }
        self.account();
        Ok(())
    }

    /// All runs, by partition; none if nothing was appended.
    pub(super) fn finish(mut self) -> Vec<Vec<Run>> {
        let mut all: Vec<Vec<Run>> = Vec::new();
        for mut partition in std::mem::take(&mut self.partitions) {
            // Equals are merged when all tables are.
            partition.places.shrink_to_fit();
            partition.runs.push(Run::Memory(partition.places));
            all.push(partition.runs);
        }
        all
    }

    /// Whether nothing was appended.
    pub(super) fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }
}

/// A file for scratch that is gone when it is closed.
fn nameless() -> std::io::Result<File> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let name = format!("mgz-analyze-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

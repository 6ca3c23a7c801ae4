//! Entries by page: they are appended to partitions, merged now and then, and go to a file if memory is short.

use super::{Maps, OWNER_BITS, Place, record};
use crate::reuse::spread;
use std::fs::File;
use std::hint::select_unpredictable;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Number of partitions.
pub(super) const PARTITIONS: usize = 128;
/// Records that are appended to a partition before they are merged, at least.
const RUN: usize = 1 << 11;
/// Entries with which there are partitions: less is all in the first.
const LITTLE: usize = 1 << 12;
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
    /// What is not in `places` yet.
    new: Vec<u64>,
    /// The same: entries.
    others: Vec<Place>,
    /// How many records there may be before they are merged, less one.
    room: usize,
    /// Each key once.
    places: Vec<Place>,
    runs: Vec<Run>,
}

/// What merging needs besides. One for all partitions: it stays in the cache.
#[derive(Default)]
struct Scratch {
    /// Where keys are in the list of keys, plus one; 0 is free.
    index: Vec<u32>,
    /// Keys of entries, old ones first. What is behind them means nothing.
    keys: Vec<u64>,
    /// The entry of each record.
    numbers: Vec<u32>,
}

impl Partition {
    /// Merges what is new: first keys are looked up, then maps are merged where they belong. So neither waits for the other.
    fn merge(&mut self, Scratch { index, keys, numbers }: &mut Scratch) {
        let more = self.new.len() + self.others.len();
        let size = ((self.places.len() + more) * 3 / 2).next_power_of_two().max(64);
        if index.len() < size {
            index.resize(size, 0);
        }
        if keys.len() < self.places.len() + more {
            keys.resize(self.places.len() + more, 0);
        }
        if numbers.len() < more {
            numbers.resize(more, 0);
        }
        let index = &mut index[..size];
        index.fill(0);
        let (mask, shift) = (size - 1, 64 - size.trailing_zeros());
        let home = |key: u64| (spread(key) >> shift) as usize & mask;
        for (number, (place, known)) in self.places.iter().zip(&mut *keys).enumerate() {
            *known = place.key;
            let mut at = home(place.key);
            while index[at] != 0 {
                at = (at + 1) & mask;
            }
            index[at] = number as u32 + 1;
        }
        // Nobody can foresee which keys are new: there is no branch on it. A place for the next new one is always there.
        let mut count = self.places.len();
        let new_keys = self.new.iter().map(|&r| record::key(r)).chain(self.others.iter().map(|p| p.key));
        new_keys.zip(&mut *numbers).for_each(|(key, number_of)| {
            let mut at = home(key);
            loop {
                let known = index[at];
                let is_new = known == 0;
                let number = select_unpredictable(is_new, count as u32 + 1, known);
                index[at] = number;
                let there = &mut keys[number as usize - 1];
                *there = select_unpredictable(is_new, key, *there);
                if *there == key {
                    *number_of = number - 1;
                    count += usize::from(is_new);
                    break;
                }
                at = (at + 1) & mask;
            }
        });
        let old = self.places.len();
        self.places.extend(keys[old..count].iter().map(|&key| Place { key, maps: Maps::default() }));
        let (of_records, of_others) = numbers[..more].split_at(self.new.len());
        for (&record, &number) in self.new.iter().zip(of_records) {
            self.places[number as usize].maps.merge(&record::maps(record));
        }
        for (place, &number) in self.others.iter().zip(of_others) {
            self.places[number as usize].maps.merge(&place.maps);
        }
        self.new.clear();
        self.others.clear();
        self.room = RUN.max(count) - 1;
    }
}

/// All partitions of a table: one, as long as there is little.
pub(super) struct Partitions {
    partitions: Vec<Partition>,
    budget: Arc<Budget>,
    /// Entries of all partitions that the budget knows of.
    held: usize,
    scratch: Scratch,
}

impl Partitions {
    pub(super) fn new(budget: Arc<Budget>) -> Partitions {
        Partitions { partitions: vec![Partition::default()], budget, held: 0, scratch: Scratch::default() }
    }

    #[inline(always)]
    fn number(&self, line: u64) -> usize {
        if self.partitions.len() == PARTITIONS { partition_of(line) } else { 0 }
    }

    /// Appends a record.
    #[inline(always)]
    pub(super) fn push(&mut self, record: u64) {
        let number = self.number(record::line(record));
        let partition = &mut self.partitions[number];
        partition.new.push(record);
        if partition.new.len() > partition.room {
            self.settle(number);
        }
    }

    /// Appends an entry.
    #[inline(always)]
    pub(super) fn push_entry(&mut self, place: Place) {
        let number = self.number(place.key >> OWNER_BITS);
        let partition = &mut self.partitions[number];
        partition.others.push(place);
        if partition.others.len() > partition.room {
            self.settle(number);
        }
    }

    #[cold]
    fn settle(&mut self, number: usize) {
        self.partitions[number].merge(&mut self.scratch);
        if self.is_little() && self.partitions[0].places.len() >= LITTLE {
            self.part();
        }
        self.account();
        if self.budget.held.load(Ordering::Relaxed) > self.budget.most && !self.budget.failed() && self.spill().is_err() {
            self.budget.failed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether all is in the first partition.
    pub(super) fn is_little(&self) -> bool {
        self.partitions.len() < PARTITIONS
    }

    /// Deals what is in the first partition to all.
    pub(super) fn part(&mut self) {
        if !self.is_little() {
            return;
        }
        let all = std::mem::take(&mut self.partitions);
        self.partitions.resize_with(PARTITIONS, Partition::default);
        for Partition { new, others, places, runs, .. } in all {
            places.into_iter().for_each(|p| self.partitions[partition_of(p.key >> OWNER_BITS)].places.push(p));
            new.into_iter().for_each(|n| self.partitions[partition_of(record::line(n))].new.push(n));
            others.into_iter().for_each(|p| self.partitions[partition_of(p.key >> OWNER_BITS)].others.push(p));
            // A file is written with all partitions.
            debug_assert!(runs.is_empty());
        }
        for partition in &mut self.partitions {
            partition.room = RUN.max(partition.places.len()) - 1;
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
        self.part();
        let file = Arc::new(nameless()?);
        let mut out = std::io::BufWriter::with_capacity(1 << 16, &*file);
        let mut at = 0u64;
        let mut runs = Vec::new();
        for partition in &mut self.partitions {
            partition.merge(&mut self.scratch);
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
            partition.places = Vec::new();
        }
        self.account();
        Ok(())
    }

    /// All runs, by partition; of little all in the first.
    pub(super) fn finish(mut self) -> Vec<Vec<Run>> {
        let mut all: Vec<Vec<Run>> = Vec::new();
        for mut partition in std::mem::take(&mut self.partitions) {
            partition.merge(&mut self.scratch);
            partition.places.shrink_to_fit();
            partition.runs.push(Run::Memory(partition.places));
            all.push(partition.runs);
        }
        all
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

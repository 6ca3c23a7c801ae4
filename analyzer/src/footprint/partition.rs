//! Entries that left a table: dealt to partitions by page, in a file if memory is short.

use super::{FREE, Maps, OWNER_BITS, Place, SIZES};
use crate::reuse::spread;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Number of partitions.
pub(super) const PARTITIONS: usize = 64;
/// Bytes of an entry in a file.
const STORED: usize = 32;

/// How many places all tables together may have.
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

/// Deals the entries of a table to partitions, in no order inside of them.
pub(super) fn deal(table: &[Place]) -> Vec<Vec<Place>> {
    let used = || table.iter().filter(|p| p.key != FREE);
    let mut sizes = [0usize; PARTITIONS];
    used().for_each(|p| sizes[partition_of(p.key >> OWNER_BITS)] += 1);
    let mut all: Vec<Vec<Place>> = sizes.iter().map(|&n| Vec::with_capacity(n)).collect();
    used().for_each(|p| all[partition_of(p.key >> OWNER_BITS)].push(*p));
    all
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

/// What left one table for files, and the places that the table has been granted.
pub(super) struct Runs {
    runs: Vec<Vec<Run>>,
    budget: Arc<Budget>,
    granted: usize,
}

impl Runs {
    pub(super) fn new(budget: Arc<Budget>) -> Runs {
        Runs { runs: Vec::new(), budget, granted: SIZES[1] }
    }

    /// Whether the table may have so many places. (While it grows, it has half as many again for a moment.)
    pub(super) fn ask(&mut self, size: usize) -> bool {
        let more = size.saturating_sub(self.granted);
        let held = self.budget.held.fetch_add(more, Ordering::Relaxed);
        if held + more > self.budget.most && !self.budget.failed() {
            self.budget.held.fetch_sub(more, Ordering::Relaxed);
            return false;
        }
        self.granted = size;
        true
    }

    /// Writes the entries of a table to a file that has no name. If that fails they have to stay.
    pub(super) fn spill(&mut self, table: &[Place]) -> bool {
        let spilled = self.write(table);
        if spilled.is_err() {
            self.budget.failed.store(true, Ordering::Relaxed);
        }
        spilled.is_ok()
    }

    fn write(&mut self, table: &[Place]) -> std::io::Result<()> {
        let file = Arc::new(nameless()?);
        let mut out = std::io::BufWriter::with_capacity(1 << 16, &*file);
        let mut at = 0u64;
        let mut runs = Vec::new();
        for places in deal(table) {
            for place in &places {
                for word in [place.key, place.maps.seen, place.maps.twice, place.maps.bytes] {
                    out.write_all(&word.to_le_bytes())?;
                }
            }
            runs.push(Run::File(file.clone(), at, places.len()));
            at += (places.len() * STORED) as u64;
        }
        out.flush()?;
        drop(out);
        self.runs.resize(PARTITIONS, Vec::new());
        for (all, run) in self.runs.iter_mut().zip(runs) {
            self.budget.spilled.fetch_add(run.len(), Ordering::Relaxed);
            if run.len() > 0 {
                all.push(run);
            }
        }
        Ok(())
    }

    /// All runs by partition, with what the table still holds.
    pub(super) fn finish(mut self, table: &[Place]) -> Vec<Vec<Run>> {
        let mut all = std::mem::take(&mut self.runs);
        all.resize(PARTITIONS, Vec::new());
        for (runs, places) in all.iter_mut().zip(deal(table)) {
            runs.push(Run::Memory(places));
        }
        all
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.granted - SIZES[1], Ordering::Relaxed);
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

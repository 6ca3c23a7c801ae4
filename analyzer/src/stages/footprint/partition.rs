//! Entries by page. They are appended to partitions that all workers share, merged now and then,
//! and written to a file if memory is short.

use crate::data::group::Group;
use crate::data::memory_units::CacheLine;
use crate::stages::footprint::packed_entry::{Maps, PackedEntry};
use crate::stages::footprint::packed_key::OWNER_BITS;
use crate::stages::footprint::record;
use crate::util::key_index::{KeyIndex, chunk_of, expect, expect_write};
use mgz_annotations_schema::lock::locked;
use mgz_models::util::hash::spread;
use rayon::prelude::*;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// Number of partitions.
pub(crate) const PARTITIONS: usize = 128;
/// Minimum number of records that wait in a partition before they are merged. Source: Chosen.
const MIN_WAITING_RECORDS: usize = 1 << 11;
/// Records and entries that a worker passes to the store at a time.
const RECORDS: usize = 1 << 8;
const ENTRIES: usize = 1 << 6;
/// Records between the last one and the position that is prefetched for later ones. Reused chunks
/// are mostly no longer in the cache.
const NEXT_LINES: usize = 16;
/// Size of a waiting entry in records.
const RECORDS_PER_WAITING_ENTRY: usize = 4;
/// Minimum number of entries for partitions; fewer are all in the first one. Source: Chosen.
const MIN_PARTITIONED_ENTRIES: usize = 1 << 12;
/// Bytes of an entry in a file.
const STORED_ENTRY_BYTES: usize = 32;

/// Limit of the entries in memory, for all tables together.
#[derive(Debug)]
pub struct Budget {
    most: isize,
    held: AtomicIsize,
    spilled: AtomicUsize,
    /// True after writing has failed: everything stays in memory.
    failed: AtomicBool,
    /// The tables that share the budget. Locked while their entries are written to a file.
    stores: Mutex<Vec<Weak<Store>>>,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::new(usize::MAX)
    }
}

impl Budget {
    /// A budget of `bytes`.
    pub fn new(bytes: usize) -> Budget {
        Budget {
            most: (bytes / size_of::<PackedEntry>()) as isize,
            held: AtomicIsize::new(0),
            spilled: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            stores: Mutex::default(),
        }
    }

    /// Bytes that were written to files.
    pub fn spilled(&self) -> usize {
        self.spilled.load(Ordering::Relaxed) * STORED_ENTRY_BYTES
    }

    /// True if entries had to stay in memory because no file could be written.
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

/// The partition of a line: that of its page, so that pages are whole.
#[inline(always)]
pub(crate) fn partition_of(line: CacheLine) -> usize {
    (spread(line.page().number()) >> (64 - PARTITIONS.trailing_zeros())) as usize
}

/// Entries of one partition with distinct keys.
#[derive(Clone, Debug)]
pub(crate) enum Run {
    /// In memory.
    Memory(EntryBlocks),
    /// In a file: the file, the position, and the number of entries.
    File(Arc<File>, u64, usize),
}

impl Run {
    /// Its entries, borrowed if they are in memory. A failure to read them back is a system error.
    pub(crate) fn places(&self) -> std::io::Result<Cow<'_, EntryBlocks>> {
        let (file, at, count) = match self {
            Run::Memory(places) => return Ok(Cow::Borrowed(places)),
            Run::File(file, at, count) => (file, *at, *count),
        };
        let mut bytes = vec![0; count * STORED_ENTRY_BYTES];
        file.read_exact_at(&mut bytes, at)?;
        let word = |b: &[u8], n: usize| u64::from_le_bytes(std::array::from_fn(|i| b[n * 8 + i]));
        let place = |b: &[u8]| PackedEntry {
            key: word(b, 0),
            maps: Maps {
                seen: word(b, 1),
                twice: word(b, 2),
                bytes: word(b, 3),
            },
        };
        Ok(Cow::Owned(EntryBlocks {
            blocks: vec![bytes.chunks_exact(STORED_ENTRY_BYTES).map(place).collect()],
            len: count,
        }))
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Run::Memory(places) => places.len,
            Run::File(_, _, count) => *count,
        }
    }
}

/// Entries that never move. There are many partitions, and growing them as single blocks would
/// fragment memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct EntryBlocks {
    /// All except the last are full.
    blocks: Vec<Vec<PackedEntry>>,
    len: usize,
}

/// Entries of a block.
pub(crate) const BLOCK: usize = 1 << 8;

impl EntryBlocks {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &PackedEntry> {
        self.blocks.iter().flatten()
    }

    /// All entries, at most [`BLOCK`] at a time.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &[PackedEntry]> {
        self.blocks.iter().flat_map(|block| block.chunks(BLOCK))
    }

    fn push(&mut self, place: PackedEntry) {
        if self.len.is_multiple_of(BLOCK) {
            self.blocks.push(Vec::with_capacity(BLOCK));
        }
        if let Some(last) = self.blocks.last_mut() {
            last.push(place);
            self.len += 1;
        }
    }

    #[inline(always)]
    fn get_mut(&mut self, number: u32) -> &mut PackedEntry {
        &mut self.blocks[number as usize / BLOCK][number as usize % BLOCK]
    }

    /// Merges records into the entries with these numbers, which have the same keys.
    fn merge(&mut self, records: &[u64], numbers: &[u32]) {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU supports the feature for which the function is compiled, as was just
            // checked.
            return unsafe { self.merge_wide(records, numbers) };
        }
        self.merge_plain(records, numbers);
    }

    fn merge_plain(&mut self, records: &[u64], numbers: &[u32]) {
        records
            .iter()
            .zip(numbers)
            .for_each(|(&record, &number)| self.get_mut(number).maps.merge(&record::maps(record)));
    }

    /// As `merge_plain`, with each entry as one vector, as in
    /// [`crate::stages::footprint::write_cache`].
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn merge_wide(&mut self, records: &[u64], numbers: &[u32]) {
        use std::arch::x86_64::*;
        let offset_mask = _mm256_set1_epi64x(63);
        for (&record, &number) in records.iter().zip(numbers) {
            let offset = _mm256_and_si256(
                _mm256_srli_epi64::<{ record::OFFSET_AT as i32 }>(_mm256_set1_epi64x(
                    record as i64,
                )),
                offset_mask,
            );
            let at_zero = &record::AT_ZERO[record as usize % record::AT_ZERO.len()];
            let place: *mut __m256i = std::ptr::from_mut(self.get_mut(number)).cast();
            // SAFETY: places have the size and alignment of the type, and any bit pattern is valid
            // for both.
            let (known, maps) = unsafe {
                (
                    _mm256_load_si256(place),
                    _mm256_load_si256(std::ptr::from_ref(at_zero).cast()),
                )
            };
            let maps = _mm256_sllv_epi64(maps, offset);
            // Common starts, shifted to the field of starts seen twice. The fields before it are
            // zero.
            let twice = _mm256_slli_si256::<8>(_mm256_and_si256(known, maps));
            // SAFETY: as above.
            unsafe {
                _mm256_store_si256(place, _mm256_or_si256(_mm256_or_si256(known, maps), twice))
            };
        }
    }
}

/// Entries of one partition, and records that are not merged into them yet.
#[derive(Default)]
struct Partition {
    /// Records passed by workers.
    records: Vec<Vec<u64>>,
    /// Entries passed by workers.
    others: Vec<Vec<PackedEntry>>,
    /// Size of both in records.
    waiting: usize,
    /// Entries with distinct keys.
    places: EntryBlocks,
    runs: Vec<Run>,
}

/// Buffers that a worker needs to merge. One serves all partitions, so it stays in the cache.
#[derive(Default)]
struct Scratch {
    index: KeyIndex,
    /// Empty chunks for reuse, since fresh memory is expensive.
    records: Vec<Vec<u64>>,
    others: Vec<Vec<PackedEntry>>,
}

impl Partition {
    /// Takes chunks, and merges if there are enough. Returns the change in the number of entries.
    fn take(
        &mut self,
        records: Vec<u64>,
        others: Vec<PackedEntry>,
        scratch: &mut Scratch,
    ) -> isize {
        self.waiting += records.len() + others.len() * RECORDS_PER_WAITING_ENTRY;
        self.records.extend(Some(records).filter(|r| !r.is_empty()));
        self.others.extend(Some(others).filter(|o| !o.is_empty()));
        if self.is_due() {
            self.merge(scratch)
        } else {
            0
        }
    }

    /// True if it is time to merge. Each merge looks up all entries once, so it needs at least as
    /// many new entries as old ones. (A record has a quarter of the size of an entry.)
    fn is_due(&self) -> bool {
        self.waiting >= MIN_WAITING_RECORDS.max(self.places.len * 4)
    }

    /// Merges new records. First, all keys are looked up. Then the maps are merged, so that neither
    /// step waits for the other. Returns the change in the number of entries.
    fn merge(&mut self, scratch: &mut Scratch) -> isize {
        let old = self.places.len;
        let more = self.records.iter().map(Vec::len).sum::<usize>()
            + self.others.iter().map(Vec::len).sum::<usize>();
        if more == 0 {
            return 0;
        }
        let index = &mut scratch.index;
        index.begin(self.places.iter().map(|p| p.key), old, more);
        for (at, chunk) in self.records.iter().enumerate() {
            expect(self.records.get(at + 1));
            index.number(chunk, |&r| record::key(r));
        }
        for (at, chunk) in self.others.iter().enumerate() {
            expect(self.others.get(at + 1));
            index.number(chunk, |p| p.key);
        }
        index.new_keys().iter().for_each(|&key| {
            self.places.push(PackedEntry {
                key,
                maps: Maps::default(),
            })
        });
        let mut rest = index.numbers();
        for mut chunk in self.records.drain(..) {
            let (these, behind) = rest.split_at(chunk.len());
            self.places.merge(&chunk, these);
            rest = behind;
            chunk.clear();
            scratch.records.push(chunk);
        }
        for mut chunk in self.others.drain(..) {
            let (these, behind) = rest.split_at(chunk.len());
            chunk
                .iter()
                .zip(these)
                .for_each(|(place, &number)| self.places.get_mut(number).maps.merge(&place.maps));
            rest = behind;
            chunk.clear();
            scratch.others.push(chunk);
        }
        self.waiting = 0;
        (self.places.len - old) as isize
    }
}

/// Owner numbers of groups in address spaces.
#[derive(Default)]
struct Owners {
    list: Vec<(Group, u32)>,
    numbers: HashMap<(Group, u32), u32>,
}

/// The entries of a table that several workers fill together, so that each exists once and not once
/// per worker.
pub(crate) struct Store {
    partitions: Vec<Mutex<Partition>>,
    owners: Mutex<Owners>,
    budget: Arc<Budget>,
}

impl Store {
    /// An empty store, registered with the budget.
    pub(crate) fn new(budget: Arc<Budget>) -> Arc<Store> {
        let store = Arc::new(Store {
            partitions: (0..PARTITIONS).map(|_| Mutex::default()).collect(),
            owners: Mutex::default(),
            budget,
        });
        locked(&store.budget.stores).push(Arc::downgrade(&store));
        store
    }

    /// The owner number of a group in an address space.
    pub(crate) fn owner(&self, group: Group, space: u32) -> u32 {
        let Owners { list, numbers } = &mut *locked(&self.owners);
        *numbers.entry((group, space)).or_insert_with(|| {
            list.push((group, space));
            list.len() as u32 - 1
        })
    }

    /// Group and address space of an owner number.
    pub(crate) fn owned(&self, owner: u32) -> (Group, u32) {
        locked(&self.owners).list[owner as usize]
    }

    /// Groups and address spaces by owner number.
    pub(crate) fn owners(&self) -> Vec<(Group, u32)> {
        locked(&self.owners).list.clone()
    }

    /// All runs, by partition. All workers must have flushed before.
    pub(crate) fn finish(&self) -> Vec<Vec<Run>> {
        let finish = |scratch: &mut Scratch, partition: &Mutex<Partition>| {
            let mut partition = std::mem::take(&mut *locked(partition));
            partition.merge(scratch);
            partition.runs.push(Run::Memory(partition.places));
            partition.runs.retain(|r| r.len() > 0);
            partition.runs
        };
        self.partitions
            .par_iter()
            .with_min_len(PARTITIONS / 16)
            .map_init(Scratch::default, finish)
            .collect()
    }
}

/// A worker's buffer for a [`Store`]. Records and entries wait here, by partition, until there are
/// enough to pass on. Small amounts stay here.
pub(crate) struct Partitions {
    pub(crate) store: Arc<Store>,
    /// By partition; only one while there are few.
    records: Vec<Vec<u64>>,
    others: Vec<Vec<PackedEntry>>,
    little: Partition,
    scratch: Scratch,
}

impl Partitions {
    pub(crate) fn new(store: Arc<Store>) -> Partitions {
        Partitions {
            store,
            records: vec![Vec::new()],
            others: vec![Vec::new()],
            little: Partition::default(),
            scratch: Scratch::default(),
        }
    }

    #[inline(always)]
    fn number(&self, line: CacheLine) -> usize {
        if self.records.len() == PARTITIONS {
            partition_of(line)
        } else {
            0
        }
    }

    /// Appends a record.
    #[inline(always)]
    pub(crate) fn push(&mut self, record: u64) {
        let number = self.number(record::line(record));
        let chunk = &mut self.records[number];
        chunk.push(record);
        if chunk.len() >= RECORDS {
            self.hand_over(number);
        }
    }

    /// Appends records.
    #[inline(always)]
    pub(crate) fn push_all(&mut self, records: &[u64]) {
        if self.is_little() {
            return records.iter().for_each(|&r| self.push(r));
        }
        for &record in records {
            let number = partition_of(record::line(record));
            // A fixed-size array needs no bounds checks.
            let Some(chunk) = self
                .records
                .first_chunk_mut::<PARTITIONS>()
                .map(|chunks| &mut chunks[number % PARTITIONS])
            else {
                return;
            };
            expect_write(chunk, NEXT_LINES);
            chunk.push(record);
            if chunk.len() >= RECORDS {
                self.hand_over(number);
            }
        }
    }

    /// Appends an entry.
    #[inline(always)]
    pub(crate) fn push_entry(&mut self, place: PackedEntry) {
        let number = self.number(CacheLine::from_number(place.key >> OWNER_BITS));
        let chunk = &mut self.others[number];
        chunk.push(place);
        if chunk.len() >= ENTRIES {
            self.hand_over(number);
        }
    }

    /// Passes the waiting records to their partition, and merges them if there are enough.
    #[cold]
    fn hand_over(&mut self, number: usize) {
        let Scratch {
            records: free_records,
            others: free_others,
            ..
        } = &mut self.scratch;
        let records = chunk_of(&mut self.records[number], free_records, RECORDS);
        let others = chunk_of(&mut self.others[number], free_others, ENTRIES);
        if self.is_little() {
            self.little.take(records, others, &mut self.scratch);
            if self.little.places.len >= MIN_PARTITIONED_ENTRIES {
                self.part();
            }
            return;
        }
        let more = locked(&self.store.partitions[number]).take(records, others, &mut self.scratch);
        let budget = &self.store.budget;
        let held = budget.held.fetch_add(more, Ordering::Relaxed) + more;
        if held > budget.most && !budget.failed() && self.spill().is_err() {
            self.store.budget.failed.store(true, Ordering::Relaxed);
        }
    }

    /// True while all entries are here.
    pub(crate) fn is_little(&self) -> bool {
        self.records.len() < PARTITIONS
    }

    /// Distributes these entries among all partitions.
    pub(crate) fn part(&mut self) {
        if !self.is_little() {
            return;
        }
        let Partition {
            records,
            others,
            places,
            ..
        } = std::mem::take(&mut self.little);
        let (new, entries) = (
            std::mem::take(&mut self.records),
            std::mem::take(&mut self.others),
        );
        self.records.resize_with(PARTITIONS, Vec::new);
        self.others.resize_with(PARTITIONS, Vec::new);
        records
            .into_iter()
            .chain(new)
            .flatten()
            .for_each(|r| self.push(r));
        others
            .into_iter()
            .chain(entries)
            .chain(places.blocks)
            .flatten()
            .for_each(|p| self.push_entry(p));
    }

    /// Writes all entries of all tables of the budget to an unnamed file, because other tables may
    /// have filled the budget. If that fails, they stay in memory.
    fn spill(&mut self) -> std::io::Result<()> {
        let budget = &*self.store.budget;
        // Another worker may already be writing.
        let Ok(mut known) = budget.stores.try_lock() else {
            return Ok(());
        };
        known.retain(|s| s.strong_count() > 0);
        let stores: Vec<Arc<Store>> = known.iter().filter_map(Weak::upgrade).collect();
        let file = Arc::new(nameless()?);
        let mut out = std::io::BufWriter::with_capacity(1 << 16, &*file);
        let mut at = 0u64;
        for partition in stores.iter().flat_map(|s| &s.partitions) {
            let mut partition = locked(partition);
            let more = partition.merge(&mut self.scratch);
            budget.held.fetch_add(more, Ordering::Relaxed);
            for place in partition.places.iter() {
                for word in [
                    place.key,
                    place.maps.seen,
                    place.maps.twice,
                    place.maps.bytes,
                ] {
                    out.write_all(&word.to_le_bytes())?;
                }
            }
            // The file must be complete before the entries are dropped.
            out.flush()?;
            let count = std::mem::take(&mut partition.places).len;
            if count > 0 {
                partition.runs.push(Run::File(file.clone(), at, count));
            }
            at += (count * STORED_ENTRY_BYTES) as u64;
            budget.held.fetch_sub(count as isize, Ordering::Relaxed);
            budget.spilled.fetch_add(count, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Passes on all waiting records. A small number of entries stays here; otherwise all are in
    /// the store.
    pub(crate) fn flush(&mut self) {
        (0..self.records.len()).for_each(|number| self.hand_over(number));
    }

    /// The entries here, if they are few.
    pub(crate) fn finish(mut self) -> Run {
        self.little.merge(&mut self.scratch);
        Run::Memory(self.little.places)
    }
}

/// A scratch file that vanishes when it is closed.
fn nameless() -> std::io::Result<File> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let name = format!(
        "mgz-analyze-{}-{}",
        std::process::id(),
        NUMBER.fetch_add(1, Ordering::Relaxed)
    );
    let path = std::env::temp_dir().join(name);
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::footprint::packed_key::pack;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn merging_whole_entries_agrees_with_merging_their_parts(accesses in prop::collection::vec((0u32..600, 0u64..64, 0u32..7), 0..1500)) {
            let mut plain = EntryBlocks::default();
            (0..600).for_each(|line| plain.push(PackedEntry { key: pack(CacheLine::from_number(line), 3), maps: Maps::default() }));
            let mut whole = plain.clone();
            let (records, numbers): (Vec<u64>, Vec<u32>) = accesses.iter().map(|&(line, offset, code)| (record::pack(u64::from(line) * 64 + offset % (65 - (1 << code)), 1 << code, 3), line)).unzip();
            plain.merge_plain(&records, &numbers);
            whole.merge(&records, &numbers);
            prop_assert!(plain.iter().eq(whole.iter()));
        }
    }

    /// A completed table has filled the budget. Later entries must not be written in tiny pieces.
    #[test]
    fn a_budget_that_others_have_filled_is_emptied() {
        let most = 1usize << 17;
        let budget = Arc::new(Budget::new(most * size_of::<PackedEntry>()));
        let [first, second] = [(); 2].map(|()| Store::new(budget.clone()));
        let mut keys = (0u64..).map(|i| {
            let line = CacheLine::from_number(i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 30);
            pack(line, 7)
        });
        let mut add = |table: &mut Partitions| {
            keys.by_ref().take(1 << 10).for_each(|key| {
                table.push_entry(PackedEntry {
                    key,
                    maps: Maps::default(),
                })
            })
        };
        let mut rounds = 0;
        let mut table = Partitions::new(first.clone());
        while (budget.held.load(Ordering::Relaxed) as usize) < most / 32 * 31 {
            add(&mut table);
            rounds += 1;
        }
        table.flush();
        assert_eq!(budget.spilled(), 0);
        let mut table = Partitions::new(second.clone());
        let more = 1 << 10;
        (0..more).for_each(|_| add(&mut table));
        table.flush();
        let runs: Vec<Run> = [first, second]
            .iter()
            .flat_map(|s| s.finish())
            .flatten()
            .collect();
        assert_eq!(
            runs.iter().map(Run::len).sum::<usize>(),
            (rounds + more) << 10
        );
        let files: std::collections::HashSet<_> = runs
            .iter()
            .filter_map(|r| {
                if let Run::File(file, ..) = r {
                    Some(Arc::as_ptr(file))
                } else {
                    None
                }
            })
            .collect();
        assert!(
            !budget.failed() && (4..=((rounds + more) << 10) / most + 2).contains(&files.len()),
            "{} files",
            files.len()
        );
    }
}

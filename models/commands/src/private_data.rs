//! Data of a single-threaded run of which each of several threads would have a copy: thread-local
//! storage, and heap blocks that a parallel region allocates and frees.

use crate::outlined::is_outlined;
use mgz_analyzer::data::frame;
use mgz_analyzer::data::memory_units::{LINE_BYTES, PAGE_BYTES};
use mgz_analyzer::input::{objects::OBJECTS_FILE, quietly};
use mgz_annotations_schema::ObjectKind;
use std::fs::File;
use std::path::Path;

/// Older traces do not name thread-local storage. The C library keeps that of the main thread in a
/// separate mapping, from the program's start. Malloc's mappings have at least this length, so
/// shorter ones hold no data of the program.
const MIN_MALLOC_MAPPING_BYTES: u64 = 128 << 10;

/// Sorted and disjoint ranges of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    fn of(mut ranges: Vec<(u64, u64)>) -> Ranges {
        ranges.sort_unstable();
        let mut out: Vec<(u64, u64)> = Vec::new();
        for (start, end) in ranges {
            match out.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => out.push((start, end)),
            }
        }
        Ranges(out)
    }

    /// True if an address is in one of the ranges.
    pub fn holds(&self, address: u64) -> bool {
        let behind = self.0.partition_point(|r| r.0 <= address);
        behind > 0 && address < self.0[behind - 1].1
    }
}

/// A heap block that was allocated in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    process: u64,
    start: u64,
    end: u64,
    begin_ns: u64,
    end_ns: u64,
}

/// Bytes between the thread-local storage, and the stacks, of two threads: glibc maps 8 MiB and a
/// guard page for each.
const THREAD_DISTANCE_BYTES: u64 = (8 << 20) + PAGE_BYTES;
/// Bytes between the blocks of two threads.
const HEAP_DISTANCE_BYTES: u64 = 1 << 30;
/// Bytes between the storage of the first thread and that of the others. The storage of other
/// threads overlaps nothing of the first thread.
const FIRST_THREAD_DISTANCE_BYTES: u64 = 1 << 44;

/// The storage of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// One for all threads.
    Shared,
    /// On the stack, or in thread-local storage.
    Thread,
    /// In a heap block that only one thread uses.
    Heap,
}

impl Storage {
    /// The address of thread `k` for an address of the first one.
    ///
    /// Stacks are adjacent, each with its thread's storage. Addresses of heap blocks depend on the
    /// allocator and on other allocations. So they are shifted by pseudo-random numbers of lines.
    /// With distances that are multiples of a power of two, the blocks of all threads would compete
    /// for the same sets of a cache.
    pub fn of_thread(self, address: u64, k: usize) -> u64 {
        let k = k as u64;
        if k == 0 {
            return address;
        }
        let lines = k.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 46;
        let distance = match self {
            Storage::Shared => 0,
            Storage::Thread => FIRST_THREAD_DISTANCE_BYTES + k * THREAD_DISTANCE_BYTES,
            Storage::Heap => {
                2 * FIRST_THREAD_DISTANCE_BYTES + k * HEAP_DISTANCE_BYTES + LINE_BYTES * lines
            }
        };
        address.wrapping_sub(distance)
    }
}

/// Private data of a run.
#[derive(Clone, Debug, Default)]
pub struct PrivateData {
    tls: Ranges,
    blocks: Vec<Block>,
}

impl PrivateData {
    /// Reads the objects of a trace. Also returns a sentence if they could not be read.
    pub fn read(folder: &Path) -> (PrivateData, Option<String>) {
        let path = folder.join(OBJECTS_FILE);
        let Ok(file) = File::open(&path) else {
            return (PrivateData::default(), None);
        };
        match quietly(|| PrivateData::of(file)).and_then(|r| r) {
            Ok(found) => (found, None),
            Err(why) => (
                PrivateData::default(),
                Some(format!(
                    "{}: damaged ({why}); only the stack is taken as private",
                    path.display()
                )),
            ),
        }
    }

    fn of(file: File) -> Result<PrivateData, String> {
        let names = [
            "process", "kind", "stack", "name", "start", "bytes", "begin_ns", "end_ns",
        ];
        let table = frame::read_columns(file, &names, None)?;
        let (kind, stack, name) = (
            frame::texts(&table, "kind")?,
            frame::texts(&table, "stack")?,
            frame::texts(&table, "name")?,
        );
        let numbers = |name| frame::many_numbers(&table, name);
        let (process, start, bytes) = (numbers("process")?, numbers("start")?, numbers("bytes")?);
        let (begin, end) = (numbers("begin_ns")?, numbers("end_ns")?);
        let named = kind.contains(&Some(ObjectKind::ThreadLocal.as_str()));
        let (mut tls, mut blocks) = (Vec::new(), Vec::new());
        for i in 0..table.height() {
            let range = (start[i], start[i].saturating_add(bytes[i]));
            let calls = || [stack[i], name[i]].into_iter().flatten();
            match kind[i].map(ObjectKind::from) {
                Some(ObjectKind::ThreadLocal) => tls.push(range),
                Some(ObjectKind::Anonymous)
                    if !named && begin[i] == 0 && bytes[i] < MIN_MALLOC_MAPPING_BYTES =>
                {
                    tls.push(range);
                }
                Some(ObjectKind::Heap) if end[i] != u64::MAX && calls().any(is_outlined) => {
                    blocks.push(Block {
                        process: process[i],
                        start: range.0,
                        end: range.1,
                        begin_ns: begin[i],
                        end_ns: end[i],
                    });
                }
                _ => {}
            }
        }
        // Memory below 4 GiB belongs to the recorder, not to the program.
        tls.retain(|r| r.0 >> 32 != 0);
        Ok(PrivateData {
            tls: Ranges::of(tls),
            blocks,
        })
    }

    /// True if an address is private to each thread in the whole run.
    pub fn always(&self, address: u64) -> bool {
        self.tls.holds(address)
    }

    /// Blocks that are allocated and freed inside a region, which ran from `from` to `to`.
    pub fn of_region(&self, process: u32, from: u64, to: u64) -> Ranges {
        let inside =
            |b: &&Block| b.process == u64::from(process) && from <= b.begin_ns && b.end_ns <= to;
        Ranges::of(
            self.blocks
                .iter()
                .filter(inside)
                .map(|b| (b.start, b.end))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_no_private_line_and_do_not_meet_in_the_same_sets() {
        let (sets, threads) = (1024, 32);
        for storage in [Storage::Thread, Storage::Heap] {
            let mut used = vec![0; sets];
            let mut lines = std::collections::HashSet::new();
            for k in 0..threads {
                // 64 KiB of each, with a load from every eighth line.
                for line in 0..128 {
                    let address = storage.of_thread(0x7f00_0000_0b70 + line * 512, k);
                    assert!(lines.insert(address / 64), "{storage:?}, thread {k}");
                    used[address as usize / 64 % sets] += 1;
                }
            }
            let most = used.iter().max().copied().unwrap_or(0);
            let mean = 128 * threads / (sets / 8);
            assert!(most <= mean, "{storage:?}: {most} lines in a set");
        }
        assert_eq!(Storage::Shared.of_thread(0x1234, 9), 0x1234);
        assert_eq!(Storage::Heap.of_thread(0x1234, 0), 0x1234);
    }

    #[test]
    fn only_blocks_that_a_region_frees_are_its_own() {
        let block = |start, begin_ns, end_ns| Block {
            process: 1,
            start,
            end: start + 64,
            begin_ns,
            end_ns,
        };
        let data = PrivateData {
            tls: Ranges::of(vec![(0x7000, 0x8000), (0x7800, 0x9000)]),
            blocks: vec![block(100, 10, 20), block(164, 12, 14), block(500, 15, 99)],
        };
        let own = data.of_region(1, 10, 30);
        assert_eq!(own, Ranges(vec![(100, 228)]));
        assert!(own.holds(100) && own.holds(227) && !own.holds(228) && !own.holds(99));
        assert!(!own.holds(500), "it outlives the region");
        assert_eq!(data.of_region(2, 0, 100), Ranges::default());
        assert_eq!(data.of_region(1, 13, 30), Ranges::default());
        assert!(data.always(0x8fff) && !data.always(0x9000));
    }
}

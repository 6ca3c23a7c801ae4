//! Data of a run with one thread that each of several threads would have separately: thread-local
//! storage, and heap blocks that a parallel region allocates and frees.

use crate::mimic::is_outlined;
use mgz_analyzer::data::frame;
use mgz_analyzer::input::{objects::OBJECTS_FILE, quietly};
use std::fs::File;
use std::path::Path;

/// The C library keeps a main thread's thread-local storage in a mapping of its own, from the
/// program's start. Malloc's mappings are at least as long as this, so what is shorter is not data
/// of the program's.
const LONGEST: u64 = 128 << 10;

/// Addresses, sorted and disjoint.
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

    /// True if an address is in one of them.
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

/// Private data of a run.
#[derive(Clone, Debug, Default)]
pub struct PrivateData {
    tls: Ranges,
    blocks: Vec<Block>,
}

impl PrivateData {
    /// From a trace's objects. Also gives a sentence if they could not be read.
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
        let (mut tls, mut blocks) = (Vec::new(), Vec::new());
        for i in 0..table.height() {
            let range = (start[i], start[i].saturating_add(bytes[i]));
            let calls = || [stack[i], name[i]].into_iter().flatten();
            match kind[i] {
                Some("anonymous") if begin[i] == 0 && bytes[i] < LONGEST => tls.push(range),
                Some("heap") if end[i] != u64::MAX && calls().any(is_outlined) => {
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

    /// Blocks that live in a region only, which ran from one time to another.
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

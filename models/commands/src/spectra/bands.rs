//! Reuse distances at one block size, by chunk of memory and by object.

use mgz_analyzer::commands::stream::{Accesses, View};
use mgz_models::reuse::{ReuseEngine, ReuseSink};
use std::collections::HashMap;

/// Log2 of the bytes of the chunks by which regions are distinguished.
pub(crate) const CHUNK: u32 = 21;
/// Log bins of the paper: [0,4), [4,8), [8,16) …
pub(crate) const BINS: usize = 48;
pub(crate) type Signature = [u64; BINS];

/// The chunk that contains the begin of a block.
#[inline(always)]
pub(crate) fn chunk_of(block: u64, shift: u32) -> u64 {
    if shift <= CHUNK {
        block >> (CHUNK - shift)
    } else {
        block << (shift - CHUNK)
    }
}

#[inline(always)]
pub(crate) fn bin(distance: u64) -> usize {
    ((64 - (distance >> 2).leading_zeros()) as usize).min(BINS - 1)
}

/// One block size.
pub(crate) struct Band {
    pub(crate) shift: u32,
    engine: ReuseEngine,
    pub(crate) counts: BandCounts,
    recent: Recent,
    kept: Accesses<u32>,
}

/// Signatures by 2 MiB chunk of the address space.
pub(crate) struct BandCounts {
    shift: u32,
    pub(crate) chunks: HashMap<(u32, u64), usize>,
    pub(crate) signatures: Vec<Signature>,
    /// Signatures by object.
    pub(crate) objects: Vec<Signature>,
    /// First touches of a thread's run, as (process, block): the union over threads is the
    /// footprint.
    pub(crate) touched: Vec<(u32, u64)>,
    /// First objects to touch each block, if requested.
    pub(crate) owned: Option<Vec<(u32, u32, u64)>>,
    memo: (u64, usize),
    process: u32,
}

impl BandCounts {
    #[inline(always)]
    fn at(&mut self, block: u64) -> &mut Signature {
        let chunk = chunk_of(block, self.shift);
        if self.memo.0 != chunk {
            self.memo = (chunk, self.find(chunk));
        }
        &mut self.signatures[self.memo.1]
    }

    /// Counts a reuse of a block by an access to an object.
    #[inline(always)]
    fn count(&mut self, block: u64, object: u32, bin: usize) {
        self.at(block)[bin] += 1;
        if object as usize >= self.objects.len() {
            self.objects.resize(object as usize + 1, [0; BINS]);
        }
        self.objects[object as usize][bin] += 1;
    }

    #[inline(never)]
    fn find(&mut self, chunk: u64) -> usize {
        let next = self.signatures.len();
        let at = *self.chunks.entry((self.process, chunk)).or_insert(next);
        if at == next {
            self.signatures.push([0; BINS]);
        }
        at
    }
}

impl ReuseSink for BandCounts {
    #[inline(always)]
    fn first(&mut self, _row: u64, block: u64, tag: u32) {
        self.touched.push((self.process, block));
        if let Some(owned) = &mut self.owned {
            owned.push((tag, self.process, block));
        }
    }

    #[inline(always)]
    fn reuse(&mut self, _row: u64, block: u64, tag: u32, distance: u64, _interval: u64) {
        if tag != SILENT {
            self.count(block, tag, bin(distance));
        }
    }

    #[inline(always)]
    fn done(&mut self, _row: u64, _tag: u32) {}
}

/// A missing block: no block has this number.
const NONE: u64 = u64::MAX;
/// Log2 of the smallest block size with a filter of recent blocks. Smaller blocks change too often
/// for it.
const FILTERED: u32 = 10;
/// Tag of touches that only update the engine's order; others have the number of an object.
const SILENT: u32 = u32::MAX;

/// The most recent blocks. The distance of a block among them is its position in their order. The
/// engine need not see these accesses, provided that blocks leave in the right order: before a
/// block leaves, more recently accessed blocks that the engine considers older are touched once
/// more.
struct Recent {
    /// Most recent first.
    blocks: [u64; 4],
    /// Time of the last touch that the engine saw, by block.
    told: [u64; 4],
    used: usize,
    next: u64,
}

impl Recent {
    fn new() -> Recent {
        Recent {
            blocks: [NONE; 4],
            told: [0; 4],
            used: 0,
            next: 0,
        }
    }

    /// Position of a block, which moves to the front.
    #[inline(always)]
    fn hit(&mut self, block: u64) -> Option<usize> {
        if self.blocks[0] == block && self.used > 0 {
            return Some(0);
        }
        let at = self.blocks[..self.used].iter().position(|&b| b == block)?;
        self.blocks[..=at].rotate_right(1);
        self.told[..=at].rotate_right(1);
        Some(at)
    }

    /// Inserts a new block. `touch` receives the blocks that must be passed to the engine before.
    #[inline(always)]
    fn enter(&mut self, block: u64, mut touch: impl FnMut(u64)) {
        if self.used == self.blocks.len() {
            let last = self.used - 1;
            for at in (0..last).rev() {
                if self.told[at] < self.told[last] {
                    touch(self.blocks[at]);
                    self.told[at] = self.next;
                    self.next += 1;
                }
            }
        } else {
            self.used += 1;
        }
        self.blocks[..self.used].rotate_right(1);
        self.told[..self.used].rotate_right(1);
        (self.blocks[0], self.told[0]) = (block, self.next);
        self.next += 1;
    }

    /// Removes all blocks, oldest first.
    fn clear(&mut self, mut touch: impl FnMut(u64)) {
        self.blocks[..self.used]
            .iter()
            .rev()
            .for_each(|&b| touch(b));
        *self = Recent::new();
    }
}

impl Band {
    pub(crate) fn new(shift: u32) -> Band {
        let counts = BandCounts {
            shift,
            chunks: HashMap::new(),
            signatures: Vec::new(),
            objects: Vec::new(),
            touched: Vec::new(),
            owned: None,
            memo: (NONE, 0),
            process: 0,
        };
        Band {
            shift,
            engine: ReuseEngine::new(shift),
            counts,
            recent: Recent::new(),
            kept: Accesses::default(),
        }
    }

    pub(crate) fn begin(&mut self, process: u32) {
        self.engine.begin();
        self.recent = Recent::new();
        self.counts.process = process;
        self.counts.memo = (NONE, 0);
        if self.counts.touched.len() > 1 << 24 {
            self.counts.touched.sort_unstable();
            self.counts.touched.dedup();
        }
        if let Some(owned) = self.counts.owned.as_mut().filter(|o| o.len() > 1 << 24) {
            owned.sort_unstable();
            owned.dedup();
        }
    }

    /// Counts accesses to objects.
    pub(crate) fn run(&mut self, accesses: View<'_>, objects: &[u32]) {
        let shift = self.shift;
        if shift < FILTERED {
            self.engine
                .run(accesses.address, accesses.size, objects, &mut self.counts);
            return;
        }
        let Band {
            recent,
            counts,
            kept,
            engine,
            ..
        } = self;
        kept.clear();
        let mut tell = |address: u64, size: u32, tag: u32| {
            kept.address.push(address);
            kept.size.push(size);
            kept.group.push(tag);
        };
        for ((&address, &size), &object) in accesses.address.iter().zip(accesses.size).zip(objects)
        {
            let block = address >> shift;
            if address.saturating_add(u64::from(size.max(1)) - 1) >> shift != block {
                recent.clear(|b| tell(b << shift, 1, SILENT));
                tell(address, size, object);
            } else if let Some(distance) = recent.hit(block) {
                counts.count(block, object, bin(distance as u64));
            } else {
                recent.enter(block, |b| tell(b << shift, 1, SILENT));
                tell(address, 1, object);
            }
        }
        engine.run(&kept.address, &kept.size, &kept.group, counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_those_of_the_paper() {
        assert_eq!(
            [0, 3, 4, 7, 8, 16, 32, 63].map(bin),
            [0, 0, 1, 1, 2, 3, 4, 4]
        );
        assert_eq!(bin(u64::MAX), BINS - 1);
    }

    #[test]
    fn the_filter_changes_no_distance() {
        // Compared with an engine without the filter, over streams that stay on few pages, move on,
        // and straddle blocks.
        struct Log(Vec<u64>);
        impl ReuseSink for Log {
            fn first(&mut self, _: u64, _: u64, _: u32) {}
            fn reuse(&mut self, _: u64, _: u64, _: u32, distance: u64, _: u64) {
                self.0.push(distance);
            }
            fn done(&mut self, _: u64, _: u32) {}
        }
        let mut x = 5u64;
        for round in 0..300u64 {
            let (mut address, mut size) = (Vec::new(), Vec::new());
            for i in 0..400u64 {
                x = x
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                let page = (x >> 33) % (2 + round % 9)
                    + if (x >> 50).is_multiple_of(16) {
                        i / 40
                    } else {
                        0
                    };
                address.push(page * 4096 + (x >> 20) % 4096);
                size.push(if (x >> 55).is_multiple_of(8) { 64 } else { 1 });
            }
            let mut band = Band::new(12);
            band.begin(0);
            let cut = (round % 400) as usize;
            for range in [0..cut, cut..400] {
                band.run(
                    View {
                        address: &address[range.clone()],
                        size: &size[range],
                        group: &[],
                    },
                    &[0; 400],
                );
            }
            let mut log = Log(Vec::new());
            ReuseEngine::new(12).run(&address, &size, &[0; 400], &mut log);
            let mut want = vec![0u64; BINS];
            log.0.iter().for_each(|&d| want[bin(d)] += 1);
            let mut got = vec![0u64; BINS];
            band.counts
                .signatures
                .iter()
                .for_each(|s| got.iter_mut().zip(s).for_each(|(g, n)| *g += n));
            assert_eq!(got, want, "round {round}");
        }
    }
}

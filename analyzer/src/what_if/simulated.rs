//! Streams with known results: loads of one block, and misses of a simulated cache with LRU
//! replacement.

use crate::data::memory_units::CacheLine;
use crate::what_if::memory::NewMemory;
use crate::what_if::remedy::{Load, Remedy};

/// First address of the block of [`block`].
pub(crate) const BLOCK: u64 = 0x7f00_0000_0000;

/// Loads at offsets in a block of object 1.
pub(crate) fn block(offsets: impl Iterator<Item = u64>, bytes: u64) -> Vec<Load> {
    let load = |offset: u64| Load {
        address: BLOCK + offset,
        site: 1,
        object: 1,
        start: BLOCK,
        bytes,
    };
    offsets.map(load).collect()
}

/// The loads after a remedy.
pub(crate) fn moved(remedy: &dyn Remedy, loads: &[Load]) -> Vec<Load> {
    let mut loads = loads.to_vec();
    remedy.apply(1, &mut loads, &NewMemory::default());
    loads
}

/// Misses of a fully associative cache with `lines` lines.
pub(crate) fn line_misses(loads: &[Load], lines: usize) -> usize {
    let mut recent: Vec<CacheLine> = Vec::new();
    let mut misses = 0;
    for load in loads {
        let line = CacheLine::of(load.address);
        match recent.iter().rposition(|&l| l == line) {
            Some(at) => {
                recent.remove(at);
            }
            None => {
                misses += 1;
                if recent.len() == lines {
                    recent.remove(0);
                }
            }
        }
        recent.push(line);
    }
    misses
}

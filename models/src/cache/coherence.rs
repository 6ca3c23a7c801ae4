//! Coherence of several cores: which cores hold a line, and which lost it to stores of others.
//!
//! A store of one core invalidates the line in all others (MSI: one core may write, or many read).
//! A miss of a core on a line that it lost in this way is an *invalidation miss*. It is *true
//! sharing* if the access reads or writes a byte that another core has written since the loss, else
//! *false sharing*: with the data on separate lines it would not have happened.

use crate::util::hash::spread;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Hashes numbers of lines.
#[derive(Clone, Copy, Default)]
pub(crate) struct LineHash(u64);

impl Hasher for LineHash {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.0 = spread(self.0 ^ u64::from(b));
        }
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = spread(n);
    }
}

type Lines<T> = HashMap<u64, T, BuildHasherDefault<LineHash>>;

/// Costs of coherence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sharing {
    /// Copies that stores of other cores invalidated.
    pub invalidations: u64,
    /// Misses on invalidated lines, where the access overlaps bytes written since.
    pub true_misses: u64,
    /// Misses on invalidated lines, where it does not.
    pub false_misses: u64,
    /// Modified copies of other cores that had to be transferred for a load.
    pub interventions: u64,
}

/// Bytes of a line, one bit each. For lines beyond 128 bytes a bit stands for several bytes.
pub(crate) type LineBytes = u128;

/// Cores that lost a line, with the bytes that others have written since.
#[derive(Default)]
struct Lost {
    by_core: Vec<(u32, LineBytes)>,
    counts: Sharing,
}

/// Number of bits of the directory. More cores share bits.
const BITS: usize = 64;

/// Which cores may hold each line, and which have lost it.
#[derive(Default)]
pub(crate) struct Directory {
    holders: Lines<u64>,
    lost: Lines<Lost>,
}

fn bit(core: usize) -> u64 {
    1 << (core % BITS)
}

impl Directory {
    /// A core loads a line.
    pub(crate) fn add(&mut self, core: usize, line: u64) {
        *self.holders.entry(line).or_default() |= bit(core);
    }

    /// A core evicts a line.
    pub(crate) fn drop(&mut self, core: usize, line: u64, cores: usize) {
        // A bit that several cores share cannot be cleared for one.
        if cores <= BITS
            && let Some(bits) = self.holders.get_mut(&line)
        {
            *bits &= !bit(core);
            if *bits == 0 {
                self.holders.remove(&line);
            }
        }
    }

    /// Cores other than `core` that may hold a line.
    pub(crate) fn others(&self, core: usize, line: u64, cores: usize) -> Vec<usize> {
        let bits = self.holders.get(&line).copied().unwrap_or(0);
        if bits & !bit(core) == 0 && cores <= BITS {
            return Vec::new();
        }
        (0..cores)
            .filter(|&c| c != core && bits & bit(c) != 0)
            .collect()
    }

    /// A core has written bytes of a line. They are noted for cores that lost it before.
    #[inline]
    pub(crate) fn written(&mut self, core: usize, line: u64, bytes: LineBytes) {
        if self.lost.is_empty() {
            return;
        }
        if let Some(lost) = self.lost.get_mut(&line) {
            for (who, seen) in &mut lost.by_core {
                if *who as usize != core {
                    *seen |= bytes;
                }
            }
        }
    }

    /// A core loses a line to a store of these bytes.
    pub(crate) fn lose(&mut self, core: usize, line: u64, bytes: LineBytes, count: bool) {
        let lost = self.lost.entry(line).or_default();
        lost.by_core.retain(|l| l.0 as usize != core);
        lost.by_core.push((core as u32, bytes));
        lost.counts.invalidations += u64::from(count);
    }

    /// A core misses a line, with an access to these bytes.
    pub(crate) fn missed(&mut self, core: usize, line: u64, bytes: LineBytes, count: bool) {
        if self.lost.is_empty() {
            return;
        }
        let Some(lost) = self.lost.get_mut(&line) else {
            return;
        };
        let Some(at) = lost.by_core.iter().position(|l| l.0 as usize == core) else {
            return;
        };
        let (_, written) = lost.by_core.swap_remove(at);
        if count {
            if written & bytes == 0 {
                lost.counts.false_misses += 1;
            } else {
                lost.counts.true_misses += 1;
            }
        }
    }

    /// A modified copy is transferred.
    pub(crate) fn intervened(&mut self, line: u64, count: bool) {
        if count {
            self.lost.entry(line).or_default().counts.interventions += 1;
        }
    }

    /// Lines that were invalidated or transferred, by number.
    pub(crate) fn lines(&self) -> Vec<(u64, Sharing)> {
        let mut all: Vec<(u64, Sharing)> = self.lost.iter().map(|(&l, s)| (l, s.counts)).collect();
        all.retain(|l| l.1 != Sharing::default());
        all.sort_by_key(|l| l.0);
        all
    }
}

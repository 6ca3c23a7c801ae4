//! Pools: small blocks of sites that are placed together.

use super::chunk::{Chunk, Fit};
use super::lock::{Guard, Lock, is_single, thread};
use super::shard::Shard;
use crate::params::{LARGEST_ALIGNMENT, LARGEST_POOLED, SHARDS};
use crate::plan_format::{HUGE_POOL, MIN_PAD, PAD, SiteRecord};
use crate::size_class::{self, bytes_of, class_of};
use core::sync::atomic::{AtomicUsize, Ordering};

/// A pool and its policy.
#[repr(C)]
pub(crate) struct Pool {
    /// The first site of the pool.
    site: &'static SiteRecord,
    /// Number of blocks, if they have different offsets.
    count: AtomicUsize,
    shards: [Shard; SHARDS],
}

impl Pool {
    /// Creates a pool in zeroed memory.
    ///
    /// # Safety
    /// The memory must be large enough, aligned and unused, and must never be freed.
    pub(super) unsafe fn create(at: *mut Pool, site: &'static SiteRecord) {
        // SAFETY: the caller's contract.
        unsafe {
            (&raw mut (*at).site).write(site);
            (&raw mut (*at).count).write(AtomicUsize::new(0));
            for shard in 0..SHARDS {
                (&raw mut (*at).shards[shard]).write(Shard::new(at));
            }
        }
    }

    pub(super) fn locks(&self) -> impl Iterator<Item = &Lock> {
        self.shards.iter().map(|shard| &shard.lock)
    }

    fn pads(&self) -> bool {
        self.site.kind == PAD
    }

    /// True if its chunks get large pages.
    pub(super) fn has_large_pages(&self) -> bool {
        self.site.kind == HUGE_POOL
    }

    /// The distance of the next padded block from a multiple of its site's alignment.
    pub(super) fn next_color(&self) -> usize {
        let count = self.count.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        count.wrapping_mul(self.site.offset as usize) & (self.site.align as usize - 1)
    }

    /// Size in the pool, or `None` for blocks that do not belong there.
    fn size(&self, bytes: usize) -> Option<usize> {
        if self.pads() {
            let padded = bytes.max(1).checked_next_multiple_of(MIN_PAD as usize)?;
            (padded <= size_class::LARGEST).then_some(padded)
        } else {
            (bytes <= LARGEST_POOLED).then_some(bytes)
        }
    }

    /// A block, or 0 if it does not belong here or no memory is left. `zero`: its bytes must be
    /// zero.
    pub(super) fn allocate(&self, bytes: usize, align: usize, zero: bool) -> usize {
        let Some(size) = self.size(bytes) else {
            return 0;
        };
        if align > LARGEST_ALIGNMENT {
            return 0;
        }
        let class = class_of(size);
        let (align, fit) = if self.pads() {
            let line = MIN_PAD as usize;
            let fit = Fit {
                align: self.site.align as usize,
                color: self.next_color(),
            };
            let aligned = Fit { align, color: 0 };
            (align.max(line), if align > line { aligned } else { fit })
        } else {
            let align = align.max(size_class::GRANULE);
            (align, Fit { align, color: 0 })
        };
        let (shard, lock) = self.shard();
        let taken = shard.take(&lock, class, align, fit);
        drop(lock);
        let Some(taken) = taken else {
            return 0;
        };
        if zero {
            // SAFETY: the block belongs to the caller.
            unsafe { clear(taken.address, taken.dirty.min(bytes)) };
        }
        taken.address
    }

    /// The calling thread's part of the pool, or another one if that is in use.
    fn shard(&self) -> (&Shard, Guard<'_>) {
        /// 2⁶⁴ divided by the golden ratio.
        const SPREAD: usize = 0x9e37_79b9_7f4a_7c15;
        let own = thread().wrapping_mul(SPREAD) >> (usize::BITS - SHARDS.ilog2());
        let mut found = None;
        if !is_single() {
            found = (0..SHARDS).find_map(|step| {
                let shard = &self.shards[(own + step) % SHARDS];
                Some((shard, shard.lock.take_soon()?))
            });
        }
        found.unwrap_or_else(|| (&self.shards[own], self.shards[own].lock.take()))
    }
}

/// # Safety
/// The memory must belong to the caller.
pub(super) unsafe fn clear(at: usize, bytes: usize) {
    if bytes > 256 {
        // SAFETY: the caller's contract.
        unsafe { core::ptr::write_bytes(at as *mut u8, 0, bytes) };
        return;
    }
    for byte in (0..bytes).step_by(size_class::GRANULE) {
        // SAFETY: the caller's contract, and blocks consist of whole granules. Volatile, or the loop
        // would become a call of memset, which is slow for so few bytes.
        unsafe { ((at + byte) as *mut u128).write_volatile(0) };
    }
}

/// The site whose policy applies to a block in use.
pub(super) fn site_of(chunk: &Chunk) -> &'static SiteRecord {
    // SAFETY: shards and pools stay.
    unsafe { (*(*chunk.shard()).pool).site }
}

/// Bytes of the block in use at an address.
pub(super) fn bytes_at(chunk: &Chunk, address: usize) -> Option<usize> {
    chunk.class_at(address).map(bytes_of)
}

/// Frees a block. False if there is no such block.
///
/// # Safety
/// The chunk must come from the table of owners.
pub(super) unsafe fn release(chunk: *mut Chunk, address: usize) -> bool {
    // SAFETY: data of chunks, shards and pools stay.
    unsafe { (*(*chunk).shard()).release(chunk, address) }
}

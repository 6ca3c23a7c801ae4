//! A chunk of a pool: blocks without headers, in the order of their allocation.
//!
//! One byte for each granule marks the start of a block with its class. Freed blocks of a class form
//! a list of granules that runs through the blocks themselves.

use super::shard::Shard;
use crate::params::{CHUNK, SORTED_FROM};
use crate::size_class::{CLASSES, GRANULE, bytes_of};
use core::arch::x86_64::{_mm_cmpeq_epi8, _mm_load_si128, _mm_movemask_epi8, _mm_set1_epi8};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU8, Ordering};

const GRANULES: usize = CHUNK / GRANULE;
/// Bit of a mark: the block is free.
const UNUSED: u8 = 0x80;
const _: () = assert!(CLASSES < UNUSED as usize);

/// Data on a chunk. It lies elsewhere and stays when the chunk's memory is given back.
#[repr(C, align(64))]
pub(crate) struct Chunk {
    /// Address of the memory, or 0.
    pub(super) base: usize,
    pub(super) shard: *const Shard,
    /// Blocks in use.
    live: u32,
    /// Bytes that were handed out from the start.
    used: u32,
    /// Bytes from the start that may not be zero.
    dirty: u32,
    /// The next chunk of a list that has it.
    pub(super) next: *mut Chunk,
    /// By class: first free block, as its granule and one.
    free: [u32; CLASSES],
    /// By class: blocks that were freed since the list was in order.
    unsorted: [u16; CLASSES],
    /// By class: whether the shard's list has this chunk, and the next one there.
    pub(super) listed: [bool; CLASSES],
    pub(super) next_listed: [*mut Chunk; CLASSES],
    marks: Marks,
}

#[repr(C, align(16))]
struct Marks([AtomicU8; GRANULES]);

/// Where a block may lie: at `color` behind a multiple of `align`, which is a power of two.
#[derive(Clone, Copy)]
pub(crate) struct Fit {
    pub(crate) align: usize,
    pub(crate) color: usize,
}

/// A block, and how many of its bytes may not be zero.
pub(crate) struct Taken {
    pub(crate) address: usize,
    pub(crate) dirty: usize,
}

/// The state of a block that is being freed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Freed {
    /// Nothing in the chunk is used any more.
    Last,
    /// The block is on the list of this class.
    Listed(usize),
    /// There is no such block.
    NoBlock,
}

fn mark_of(class: usize) -> u8 {
    class as u8 + 1
}

impl Chunk {
    /// Gives data without memory, which are all zero, memory and an owner.
    pub(super) fn begin(&mut self, base: usize, shard: *const Shard) {
        self.base = base;
        self.shard = shard;
        self.dirty = 0;
    }

    fn mark(&self, granule: usize) -> u8 {
        self.marks.0[granule].load(Ordering::Relaxed)
    }

    fn set_mark(&self, granule: usize, mark: u8) {
        self.marks.0[granule].store(mark, Ordering::Relaxed);
    }

    /// The class of the block in use that begins at an address. Needs no lock.
    pub(crate) fn class_at(&self, address: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.base);
        if !offset.is_multiple_of(GRANULE) || offset >= CHUNK {
            return None;
        }
        let mark = self.mark(offset / GRANULE);
        (mark != 0 && mark & UNUSED == 0).then(|| usize::from(mark) - 1)
    }

    /// A block behind all others, or `None` where there is no room.
    pub(super) fn take_new(&mut self, class: usize, fit: Fit) -> Option<Taken> {
        let used = self.used as usize;
        let start = used + (fit.color.wrapping_sub(used) & (fit.align - 1));
        let end = start + bytes_of(class);
        if end > CHUNK {
            return None;
        }
        self.set_mark(start / GRANULE, mark_of(class));
        self.used = end as u32;
        let dirty = (self.dirty as usize).clamp(start, end) - start;
        self.dirty = self.dirty.max(end as u32);
        self.live += 1;
        Some(Taken {
            address: self.base + start,
            dirty,
        })
    }

    pub(super) fn has_free(&self, class: usize) -> bool {
        self.free[class] != 0
    }

    /// A freed block, if the next one of the class lies at a multiple of `align`.
    pub(super) fn take_free(&mut self, class: usize, align: usize) -> Option<Taken> {
        if self.unsorted[class] >= SORTED_FROM {
            self.sort(class);
        }
        let granule = (self.free[class] as usize).checked_sub(1)?;
        let address = self.base + granule * GRANULE;
        if !address.is_multiple_of(align) {
            return None;
        }
        // SAFETY: a free block, whose first bytes are the list's.
        let next = unsafe { *(address as *const u32) };
        let is_link = |next: u32| {
            next == 0
                || (next as usize) <= GRANULES
                    && self.mark(next as usize - 1) == mark_of(class) | UNUSED
        };
        if !is_link(next) {
            super::damaged(b"malloc(): a freed block was written to\n");
        }
        self.free[class] = next;
        self.set_mark(granule, mark_of(class));
        self.live += 1;
        Some(Taken {
            address,
            dirty: bytes_of(class),
        })
    }

    /// Frees a block.
    pub(super) fn release(&mut self, address: usize) -> Freed {
        let Some(class) = self.class_at(address) else {
            return Freed::NoBlock;
        };
        self.live -= 1;
        if self.live == 0 {
            self.reset();
            return Freed::Last;
        }
        let granule = (address - self.base) / GRANULE;
        self.set_mark(granule, mark_of(class) | UNUSED);
        self.link(class, granule);
        self.unsorted[class] = self.unsorted[class].saturating_add(1);
        Freed::Listed(class)
    }

    fn link(&mut self, class: usize, granule: usize) {
        let at = (self.base + granule * GRANULE) as *mut u32;
        // SAFETY: a free block of at least one granule.
        unsafe { *at = self.free[class] };
        self.free[class] = granule as u32 + 1;
    }

    /// Makes the chunk as it was at first, except that its memory is not zero.
    fn reset(&mut self) {
        for granule in &self.marks.0[..self.used as usize / GRANULE] {
            granule.store(0, Ordering::Relaxed);
        }
        self.used = 0;
        self.free = [0; CLASSES];
        self.unsorted = [0; CLASSES];
    }

    /// Puts the free blocks of a class in the order of addresses.
    fn sort(&mut self, class: usize) {
        const LANES: usize = 16;
        self.unsorted[class] = 0;
        self.free[class] = 0;
        let groups = (self.used as usize / GRANULE).div_ceil(LANES);
        for group in (0..groups).rev() {
            // SAFETY: sixteen marks, aligned; the lock is held, so that nobody writes them.
            let mut found = unsafe {
                let marks = self.marks.0.as_ptr().add(group * LANES);
                let wanted = _mm_set1_epi8((mark_of(class) | UNUSED) as i8);
                let same = _mm_cmpeq_epi8(_mm_load_si128(marks.cast()), wanted);
                _mm_movemask_epi8(same) as u32
            };
            while found != 0 {
                let lane = found.ilog2();
                found &= !(1 << lane);
                self.link(class, group * LANES + lane as usize);
            }
        }
    }

    /// Takes the memory away from an empty chunk.
    pub(super) fn end(&mut self) -> usize {
        core::mem::take(&mut self.base)
    }
}

/// Data of chunks that were never used, from a mapping of many.
pub(super) struct Unused {
    at: usize,
    left: usize,
}

impl Unused {
    const MANY: usize = 16;

    pub(super) const fn new() -> Unused {
        Unused { at: 0, left: 0 }
    }

    pub(super) fn take(&mut self) -> *mut Chunk {
        if self.left == 0 {
            let Some(at) = crate::sys::syscall::map(0, Self::MANY * size_of::<Chunk>()) else {
                return null_mut();
            };
            *self = Unused {
                at,
                left: Self::MANY,
            };
        }
        let chunk = self.at as *mut Chunk;
        self.at += size_of::<Chunk>();
        self.left -= 1;
        chunk
    }
}

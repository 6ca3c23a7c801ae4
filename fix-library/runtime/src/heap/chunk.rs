//! A chunk of a pool: blocks without headers, in the order of their allocation.
//!
//! One byte for each granule marks the start of a block with its class. Freed blocks of a class form
//! a list of granules that runs through the blocks themselves.

use super::shard::Shard;
use crate::params::{CHUNK, SORTED_FROM};
use crate::size_class::{CLASSES, GRANULE, bytes_of};
use core::arch::x86_64::{_mm_cmpeq_epi8, _mm_load_si128, _mm_movemask_epi8, _mm_set1_epi8};
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

const GRANULES: usize = CHUNK / GRANULE;
/// Bit of a mark: the block is free.
const UNUSED: u8 = 0x80;
const _: () = assert!(CLASSES < UNUSED as usize);

/// Data about a chunk. It is outside the chunk and stays when the chunk's memory is released.
#[repr(C, align(64))]
pub(crate) struct Chunk {
    /// Address of the memory, or 0.
    base: AtomicUsize,
    shard: AtomicPtr<Shard>,
    lists: UnsafeCell<Lists>,
    marks: Marks,
}

/// The data guarded by the shard's lock.
pub(super) struct Lists {
    /// Number of blocks in use.
    live: u32,
    /// Number of bytes given out, from the start.
    used: u32,
    /// Number of bytes from the start that may be non-zero.
    dirty: u32,
    /// The next chunk in the list of retired chunks.
    pub(super) next: *mut Chunk,
    /// By class: granule of the first free block plus one.
    free: [u32; CLASSES],
    /// By class: number of blocks freed since the list was last sorted.
    unsorted: [u16; CLASSES],
    /// By class: true if this chunk is in the shard's list, and then the next chunk in that list.
    pub(super) listed: [bool; CLASSES],
    pub(super) next_listed: [*mut Chunk; CLASSES],
}

#[repr(C, align(16))]
struct Marks([AtomicU8; GRANULES]);

/// Required position of a block: `color` bytes behind a multiple of `align`, which is a power of
/// two.
#[derive(Clone, Copy)]
pub(crate) struct Fit {
    pub(crate) align: usize,
    pub(crate) color: usize,
}

/// A block, and the number of its bytes that may be non-zero.
pub(crate) struct Taken {
    pub(crate) address: usize,
    pub(crate) dirty: usize,
}

/// The state of a block that is being freed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Freed {
    /// The chunk has no more blocks in use.
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
    /// Gives memory and an owner to a chunk without memory, whose marks and lists are zero.
    ///
    /// # Safety
    /// As [`Chunk::lists`].
    pub(super) unsafe fn begin(&self, base: usize, shard: &Shard) {
        // SAFETY: the caller's contract.
        unsafe { self.lists() }.dirty = 0;
        self.base.store(base, Ordering::Relaxed);
        let shard = core::ptr::from_ref(shard).cast_mut();
        self.shard.store(shard, Ordering::Relaxed);
    }

    /// # Safety
    /// The shard's lock must be held, and the result must be dropped before the next call.
    #[allow(clippy::mut_from_ref, reason = "the lock guards it")]
    pub(super) unsafe fn lists(&self) -> &mut Lists {
        // SAFETY: the caller's contract.
        unsafe { &mut *self.lists.get() }
    }

    fn base(&self) -> usize {
        self.base.load(Ordering::Relaxed)
    }

    pub(super) fn shard(&self) -> *const Shard {
        self.shard.load(Ordering::Relaxed)
    }

    fn mark(&self, granule: usize) -> u8 {
        self.marks.0[granule].load(Ordering::Relaxed)
    }

    fn set_mark(&self, granule: usize, mark: u8) {
        self.marks.0[granule].store(mark, Ordering::Relaxed);
    }

    /// The class of the block in use that begins at an address. Needs no lock.
    pub(crate) fn class_at(&self, address: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.base());
        if !offset.is_multiple_of(GRANULE) || offset >= CHUNK {
            return None;
        }
        let mark = self.mark(offset / GRANULE);
        (mark != 0 && mark & UNUSED == 0).then(|| usize::from(mark) - 1)
    }

    /// A block behind all others, or `None` if there is no room.
    ///
    /// # Safety
    /// As [`Chunk::lists`].
    pub(super) unsafe fn take_new(&self, class: usize, fit: Fit) -> Option<Taken> {
        // SAFETY: the caller's contract.
        let lists = unsafe { self.lists() };
        let used = lists.used as usize;
        let start = used + (fit.color.wrapping_sub(used) & (fit.align - 1));
        let end = start + bytes_of(class);
        if end > CHUNK {
            return None;
        }
        self.set_mark(start / GRANULE, mark_of(class));
        lists.used = end as u32;
        let dirty = (lists.dirty as usize).clamp(start, end) - start;
        lists.dirty = lists.dirty.max(end as u32);
        lists.live += 1;
        Some(Taken {
            address: self.base() + start,
            dirty,
        })
    }

    /// A freed block, if the next one of the class is at a multiple of `align`.
    ///
    /// # Safety
    /// As [`Chunk::lists`].
    pub(super) unsafe fn take_free(&self, class: usize, align: usize) -> Option<Taken> {
        // SAFETY: the caller's contract.
        let lists = unsafe { self.lists() };
        if lists.unsorted[class] >= SORTED_FROM {
            self.sort(lists, class);
        }
        let granule = (lists.free[class] as usize).checked_sub(1)?;
        let address = self.base() + granule * GRANULE;
        if !address.is_multiple_of(align) {
            return None;
        }
        // SAFETY: a free block, whose first bytes hold the list's link.
        let next = unsafe { *(address as *const u32) };
        let is_link = |next: u32| {
            next == 0
                || (next as usize) <= GRANULES
                    && self.mark(next as usize - 1) == mark_of(class) | UNUSED
        };
        if !is_link(next) {
            super::damaged(b"malloc(): a freed block was written to\n");
        }
        lists.free[class] = next;
        self.set_mark(granule, mark_of(class));
        lists.live += 1;
        Some(Taken {
            address,
            dirty: bytes_of(class),
        })
    }

    /// Frees a block.
    ///
    /// # Safety
    /// As [`Chunk::lists`].
    pub(super) unsafe fn release(&self, address: usize) -> Freed {
        let Some(class) = self.class_at(address) else {
            return Freed::NoBlock;
        };
        // SAFETY: the caller's contract.
        let lists = unsafe { self.lists() };
        lists.live -= 1;
        if lists.live == 0 {
            self.reset(lists);
            return Freed::Last;
        }
        let granule = (address - self.base()) / GRANULE;
        self.set_mark(granule, mark_of(class) | UNUSED);
        self.link(lists, class, granule);
        lists.unsorted[class] = lists.unsorted[class].saturating_add(1);
        Freed::Listed(class)
    }

    fn link(&self, lists: &mut Lists, class: usize, granule: usize) {
        let at = (self.base() + granule * GRANULE) as *mut u32;
        // SAFETY: a free block of at least one granule.
        unsafe { *at = lists.free[class] };
        lists.free[class] = granule as u32 + 1;
    }

    /// Resets the chunk to its initial state, except that its memory is not zero.
    fn reset(&self, lists: &mut Lists) {
        for granule in &self.marks.0[..lists.used as usize / GRANULE] {
            granule.store(0, Ordering::Relaxed);
        }
        lists.used = 0;
        lists.free = [0; CLASSES];
        lists.unsorted = [0; CLASSES];
    }

    /// Sorts the free blocks of a class by address.
    fn sort(&self, lists: &mut Lists, class: usize) {
        const LANES: usize = 16;
        lists.unsorted[class] = 0;
        lists.free[class] = 0;
        let groups = (lists.used as usize / GRANULE).div_ceil(LANES);
        for group in (0..groups).rev() {
            // SAFETY: sixteen marks, aligned; the lock is held, so they do not change.
            let mut found = unsafe {
                let marks = self.marks.0.as_ptr().add(group * LANES);
                let wanted = _mm_set1_epi8((mark_of(class) | UNUSED) as i8);
                let same = _mm_cmpeq_epi8(_mm_load_si128(marks.cast()), wanted);
                _mm_movemask_epi8(same) as u32
            };
            while found != 0 {
                let lane = found.ilog2();
                found &= !(1 << lane);
                self.link(lists, class, group * LANES + lane as usize);
            }
        }
    }

    /// Detaches the memory of an empty chunk, and returns its address.
    pub(super) fn end(&self) -> usize {
        self.base.swap(0, Ordering::Relaxed)
    }
}

impl Lists {
    pub(super) fn has_free(&self, class: usize) -> bool {
        self.free[class] != 0
    }
}

/// Unused data of chunks, from a mapping of many.
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

//! A part of a pool: chunks guarded by one lock.

use super::chunk::{Chunk, Fit, Freed, Taken, Unused};
use super::lock::{Guard, Lock};
use super::pages::map_chunks;
use super::pool::Pool;
use super::table;
use crate::params::CHUNK;
use crate::size_class::CLASSES;
use crate::sys::syscall;
use core::cell::UnsafeCell;
use core::ptr::null_mut;

/// Initially all zero, except the owner.
#[repr(C, align(128))]
pub(crate) struct Shard {
    pub(super) pool: *const Pool,
    pub(super) lock: Lock,
    chunks: UnsafeCell<Chunks>,
}

/// The chunks of a shard.
struct Chunks {
    /// The chunk for new blocks, or null.
    current: *mut Chunk,
    /// By class: chunks that may have free blocks.
    with_free: [*mut Chunk; CLASSES],
    /// An empty chunk, or null.
    spare: *mut Chunk,
    /// Data of chunks without memory.
    retired: *mut Chunk,
    unused: Unused,
}

impl Shard {
    pub(super) fn new(pool: *const Pool) -> Shard {
        Shard {
            pool,
            lock: Lock::new(),
            chunks: UnsafeCell::new(Chunks {
                current: null_mut(),
                with_free: [null_mut(); CLASSES],
                spare: null_mut(),
                retired: null_mut(),
                unused: Unused::new(),
            }),
        }
    }

    /// A block of a class. `align`: its alignment, also if it is a freed block. `None` if no memory
    /// is left.
    pub(super) fn take(
        &self,
        _lock: &Guard,
        class: usize,
        align: usize,
        fit: Fit,
    ) -> Option<Taken> {
        // SAFETY: the lock is held, as the argument shows.
        let chunks = unsafe { &mut *self.chunks.get() };
        if let Some(taken) = chunks.take_free(class, align) {
            return Some(taken);
        }
        // SAFETY: null or data of a chunk, which stay; the lock is held.
        if let Some(current) = unsafe { chunks.current.as_ref() } {
            // SAFETY: the lock is held.
            if let Some(taken) = unsafe { current.take_new(class, fit) } {
                return Some(taken);
            }
        }
        let chunk = chunks.another(self);
        if chunk.is_null() {
            return None;
        }
        chunks.current = chunk;
        // SAFETY: as above.
        unsafe { (*chunk).take_new(class, fit) }
    }

    /// Frees a block of a chunk of this shard. False if there is no such block.
    ///
    /// # Safety
    /// The chunk must be one of this shard.
    pub(super) unsafe fn release(&self, chunk: *mut Chunk, address: usize) -> bool {
        let _lock = self.lock.take();
        // SAFETY: the lock is held; the chunk's data stay.
        let (chunks, data) = unsafe { (&mut *self.chunks.get(), &*chunk) };
        // SAFETY: the lock is held.
        match unsafe { data.release(address) } {
            Freed::NoBlock => return false,
            Freed::Listed(class) => {
                // SAFETY: as above.
                let data = unsafe { data.lists() };
                if !data.listed[class] {
                    data.listed[class] = true;
                    data.next_listed[class] = chunks.with_free[class];
                    chunks.with_free[class] = chunk;
                }
            }
            Freed::Last => {
                if chunk != chunks.current {
                    chunks.is_empty(chunk);
                }
            }
        }
        true
    }
}

impl Chunks {
    fn take_free(&mut self, class: usize, align: usize) -> Option<Taken> {
        loop {
            // SAFETY: null or data of a chunk, which stay; the lock is held, also below.
            let chunk = unsafe { self.with_free[class].as_ref() }?;
            // SAFETY: as above.
            let lists = unsafe { chunk.lists() };
            if lists.has_free(class) {
                // SAFETY: as above.
                return unsafe { chunk.take_free(class, align) };
            }
            lists.listed[class] = false;
            self.with_free[class] = lists.next_listed[class];
        }
    }

    /// An empty chunk, or null.
    fn another(&mut self, shard: &Shard) -> *mut Chunk {
        if !self.spare.is_null() {
            return core::mem::replace(&mut self.spare, null_mut());
        }
        let chunk = if self.retired.is_null() {
            self.unused.take()
        } else {
            let chunk = self.retired;
            // SAFETY: data of a chunk, which stay.
            self.retired = unsafe { (*chunk).lists().next };
            chunk
        };
        if chunk.is_null() {
            return chunk;
        }
        // SAFETY: data of a chunk that is in no list with memory.
        let data = unsafe { &*chunk };
        if let Some(base) = map_chunks(CHUNK) {
            // SAFETY: pools stay.
            if unsafe { &*shard.pool }.has_large_pages() {
                // SAFETY: just mapped by this library.
                unsafe { syscall::advise_huge(base, CHUNK) };
            }
            // SAFETY: the lock is held, also below.
            unsafe { data.begin(base, shard) };
            if table::enter(base, chunk as usize) {
                return chunk;
            }
            // SAFETY: just mapped.
            unsafe { syscall::unmap(data.end(), CHUNK) };
        }
        // SAFETY: as above.
        unsafe { data.lists() }.next = self.retired;
        self.retired = chunk;
        null_mut()
    }

    /// Keeps an empty chunk, or releases its memory if there is already one.
    fn is_empty(&mut self, chunk: *mut Chunk) {
        if self.spare.is_null() {
            self.spare = chunk;
            return;
        }
        // SAFETY: data of a chunk, which stay; the memory has no blocks in use.
        unsafe {
            let base = (*chunk).end();
            table::enter(base, 0);
            syscall::unmap(base, CHUNK);
            (*chunk).lists().next = self.retired;
        }
        self.retired = chunk;
    }
}

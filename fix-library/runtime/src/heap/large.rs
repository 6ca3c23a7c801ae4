//! Large blocks, each in separate memory of whole chunks.

use super::lock::Lock;
use super::pages::map_chunks;
use super::table;
use crate::params::{CHUNK, KEPT_BYTES, KEPT_REGIONS};
use crate::plan_format::{BIND, HUGE, INTERLEAVE, SiteRecord};
use crate::sys::syscall::{self, nr};
use core::cell::UnsafeCell;
use core::ptr::null_mut;

/// Bit of an entry in the table of owners: the owner is a region, not a chunk.
pub(super) const REGION: usize = 1;
/// Number of bits in a set of nodes.
const NODES: usize = 1024;
const WORDS: usize = NODES / usize::BITS as usize;
type Nodes = [usize; WORDS];

/// Memory of a large block. The data lie outside of it and are never freed.
#[repr(C, align(64))]
pub(crate) struct LargeRegion {
    base: usize,
    bytes: usize,
    /// The block in use, or 0.
    block: usize,
    pub(super) site: *const SiteRecord,
    next: *mut LargeRegion,
}

struct Regions {
    /// Freed regions that still have memory.
    kept: [*mut LargeRegion; KEPT_REGIONS],
    kept_bytes: usize,
    /// Data without memory.
    retired: *mut LargeRegion,
    /// Number of data entries that were never used.
    unused: usize,
    unused_end: usize,
    /// The nodes that the process may use. Empty: not requested yet.
    nodes: Nodes,
}

pub(super) static LOCK: Lock = Lock::new();

struct Guarded(UnsafeCell<Regions>);
// SAFETY: used while LOCK is held.
unsafe impl Sync for Guarded {}
static REGIONS: Guarded = Guarded(UnsafeCell::new(Regions {
    kept: [null_mut(); KEPT_REGIONS],
    kept_bytes: 0,
    retired: null_mut(),
    unused: 0,
    unused_end: 0,
    nodes: [0; WORDS],
}));

/// A block `color` bytes behind a chunk's start, or 0. `zero`: its bytes must be zero.
pub(super) fn allocate(site: &'static SiteRecord, bytes: usize, color: usize, zero: bool) -> usize {
    let Some(whole) = bytes
        .checked_add(color)
        .and_then(|bytes| bytes.checked_next_multiple_of(CHUNK))
    else {
        return 0;
    };
    let (block, was_used) = {
        let _lock = LOCK.take();
        // SAFETY: the lock is held.
        let regions = unsafe { &mut *REGIONS.0.get() };
        let kept = regions.take_kept(site, whole);
        let region = if kept.is_null() {
            regions.create(site, whole)
        } else {
            kept
        };
        // SAFETY: null or data of a region, which stay and which the lock guards.
        let Some(data) = (unsafe { region.as_mut() }) else {
            return 0;
        };
        data.site = site;
        data.block = data.base + color;
        (data.block, !kept.is_null())
    };
    if zero && was_used {
        // SAFETY: the block belongs to the caller.
        unsafe { super::pool::clear(block, bytes) };
    }
    block
}

/// Bytes of a block, or `None` if it is not in use.
///
/// # Safety
/// The region must come from the table of owners.
pub(super) unsafe fn bytes_at(region: *const LargeRegion, block: usize) -> Option<usize> {
    // SAFETY: data of regions stay.
    let data = unsafe { &*region };
    (data.block == block).then(|| data.base + data.bytes - block)
}

/// Frees a block. False if it is not in use.
///
/// # Safety
/// As [`bytes_at`].
pub(super) unsafe fn release(region: *mut LargeRegion, block: usize) -> bool {
    let _lock = LOCK.take();
    // SAFETY: the lock is held, and data of regions stay.
    let (regions, data) = unsafe { (&mut *REGIONS.0.get(), &mut *region) };
    if data.block != block {
        return false;
    }
    data.block = 0;
    if let Some(place) = regions.kept.iter().position(|kept| kept.is_null())
        && regions.kept_bytes + data.bytes <= KEPT_BYTES
    {
        regions.kept[place] = region;
        regions.kept_bytes += data.bytes;
        return true;
    }
    table::enter(data.base, 0);
    // SAFETY: this library's memory, whose block was freed.
    unsafe { syscall::unmap(data.base, data.bytes) };
    data.next = regions.retired;
    regions.retired = region;
    true
}

/// True if memory of one site can be used for another one.
fn are_alike(a: &SiteRecord, b: &SiteRecord) -> bool {
    (a.kind, a.node) == (b.kind, b.node)
}

impl Regions {
    /// A freed region of the same kind that is not much too large, or null.
    fn take_kept(&mut self, site: &SiteRecord, bytes: usize) -> *mut LargeRegion {
        let place = self.kept.iter().position(|&kept| {
            // SAFETY: null or data of a region, which stay; so do sites.
            let Some(data) = (unsafe { kept.as_ref() }) else {
                return false;
            };
            // SAFETY: as above.
            let alike = are_alike(unsafe { &*data.site }, site);
            alike && (bytes..=bytes.saturating_add(bytes / 2)).contains(&data.bytes)
        });
        let Some(place) = place else {
            return null_mut();
        };
        let region = core::mem::replace(&mut self.kept[place], null_mut());
        // SAFETY: as above.
        self.kept_bytes -= unsafe { (*region).bytes };
        region
    }

    fn create(&mut self, site: &'static SiteRecord, bytes: usize) -> *mut LargeRegion {
        let region = self.data();
        // SAFETY: null or data of an unused region.
        let Some(data) = (unsafe { region.as_mut() }) else {
            return null_mut();
        };
        if let Some(base) = map_chunks(bytes) {
            if table::enter(base, region as usize | REGION) {
                (data.base, data.bytes) = (base, bytes);
                self.place(site, base, bytes);
                return region;
            }
            // SAFETY: just mapped.
            unsafe { syscall::unmap(base, bytes) };
        }
        data.next = self.retired;
        self.retired = region;
        null_mut()
    }

    fn data(&mut self) -> *mut LargeRegion {
        const MANY: usize = 64;
        if !self.retired.is_null() {
            let region = self.retired;
            // SAFETY: data of a region, which stay.
            self.retired = unsafe { (*region).next };
            return region;
        }
        if self.unused == self.unused_end {
            let Some(at) = syscall::map(0, MANY * size_of::<LargeRegion>()) else {
                return null_mut();
            };
            (self.unused, self.unused_end) = (at, at + MANY * size_of::<LargeRegion>());
        }
        let region = self.unused as *mut LargeRegion;
        self.unused += size_of::<LargeRegion>();
        region
    }

    /// Sets the policy of new memory. If the kernel refuses, the memory has none.
    fn place(&mut self, site: &SiteRecord, base: usize, bytes: usize) {
        const MPOL_PREFERRED: usize = 1;
        const MPOL_INTERLEAVE: usize = 3;
        match site.kind {
            // SAFETY: own memory.
            HUGE => unsafe { syscall::advise_huge(base, bytes) },
            INTERLEAVE => {
                let nodes = self.nodes();
                bind(base, bytes, MPOL_INTERLEAVE, &nodes);
            }
            BIND => {
                let mut nodes = [0; WORDS];
                let (word, bit) = (site.node / usize::BITS, site.node % usize::BITS);
                if let Some(word) = nodes.get_mut(word as usize) {
                    *word = 1 << bit;
                    bind(base, bytes, MPOL_PREFERRED, &nodes);
                }
            }
            _ => {}
        }
    }

    /// The nodes that the process may use.
    fn nodes(&mut self) -> Nodes {
        const MPOL_F_MEMS_ALLOWED: usize = 4;
        if self.nodes == [0; WORDS] {
            let at = self.nodes.as_mut_ptr() as usize;
            // SAFETY: the kernel writes at most the stated number of bits.
            unsafe { syscall::call(nr::GET_MEMPOLICY, [0, at, NODES, 0, MPOL_F_MEMS_ALLOWED, 0]) };
        }
        self.nodes
    }
}

fn bind(base: usize, bytes: usize, mode: usize, nodes: &Nodes) {
    let nodes = nodes.as_ptr() as usize;
    // SAFETY: this library's memory, whose content does not change.
    unsafe { syscall::call(nr::MBIND, [base, bytes, mode, nodes, NODES, 0]) };
}

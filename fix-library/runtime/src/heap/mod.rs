//! The library's memory: blocks of sites with a policy.

mod chunk;
mod large;
pub(crate) mod lock;
mod pages;
mod pool;
mod shard;
mod table;

use crate::params::{CHUNK, SMALLEST_LARGE};
use crate::plan_format::{BIND, HUGE, HUGE_POOL, INTERLEAVE, PAD, POOL, PlanView, SiteRecord};
use crate::size_class;
use crate::sys::syscall;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use lock::Lock;
use pool::Pool;

static POOLS: AtomicPtr<Pool> = AtomicPtr::new(core::ptr::null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Creates the pools of a plan. False if there is no memory for their data.
pub(crate) fn begin(plan: &PlanView<'static>) -> bool {
    if plan.pools() == 0 {
        return true;
    }
    let Some(at) = syscall::map(0, plan.pools() * size_of::<Pool>()) else {
        return false;
    };
    let pools = at as *mut Pool;
    for index in 0..plan.pools() {
        let first = plan
            .sites
            .iter()
            .find(|site| is_pooled(site) && usize::from(site.pool) == index);
        let Some(site) = first else {
            return false;
        };
        // SAFETY: the mapping has room for all pools, and is never unmapped.
        unsafe { Pool::create(pools.add(index), site) };
    }
    COUNT.store(plan.pools(), Ordering::Relaxed);
    POOLS.store(pools, Ordering::Release);
    true
}

/// True if blocks of a site come from a pool.
fn is_pooled(site: &SiteRecord) -> bool {
    matches!(site.kind, POOL | HUGE_POOL | PAD)
}

fn pools() -> &'static [Pool] {
    let pools = POOLS.load(Ordering::Acquire);
    if pools.is_null() {
        return &[];
    }
    // SAFETY: `begin` has created them, and they are never freed.
    unsafe { core::slice::from_raw_parts(pools, COUNT.load(Ordering::Relaxed)) }
}

/// All locks, always in the same order.
pub(crate) fn locks() -> impl Iterator<Item = &'static Lock> {
    let pooled = pools().iter().flat_map(Pool::locks);
    core::iter::once(&large::LOCK).chain(pooled)
}

/// A block by a site's policy, or 0 if the policy does not apply or no memory is left.
pub(crate) fn allocate(site: &'static SiteRecord, bytes: usize, align: usize, zero: bool) -> usize {
    if !align.is_power_of_two() || align > CHUNK {
        return 0;
    }
    match site.kind {
        POOL | HUGE_POOL | PAD => {
            let Some(pool) = pools().get(usize::from(site.pool)) else {
                return 0;
            };
            if site.kind == PAD && bytes > size_class::LARGEST {
                let color = pool.next_color();
                let color = if align > GRANTED { 0 } else { color };
                return large::allocate(site, bytes, color, zero);
            }
            pool.allocate(bytes, align, zero)
        }
        HUGE | INTERLEAVE | BIND if bytes >= SMALLEST_LARGE => {
            large::allocate(site, bytes, 0, zero)
        }
        _ => 0,
    }
}

/// Alignment of all padded blocks.
const GRANTED: usize = crate::plan_format::MIN_PAD as usize;

/// The owner of a block of this library.
#[derive(Clone, Copy)]
pub(crate) struct Owner(usize);

/// The owner of a block, or `None` if the block is another allocator's.
#[inline]
pub(crate) fn owner(block: usize) -> Option<Owner> {
    let entry = table::find(block);
    (entry != 0).then_some(Owner(entry))
}

impl Owner {
    fn region(self) -> Option<*mut large::LargeRegion> {
        (self.0 & large::REGION != 0)
            .then_some((self.0 & !large::REGION) as *mut large::LargeRegion)
    }

    fn chunk(self) -> *mut chunk::Chunk {
        self.0 as *mut chunk::Chunk
    }

    /// The site whose policy applies to the block.
    pub(crate) fn site(self) -> &'static SiteRecord {
        match self.region() {
            // SAFETY: data of regions stay, and so do sites.
            Some(region) => unsafe { &*(*region).site },
            // SAFETY: data of chunks stay.
            None => pool::site_of(unsafe { &*self.chunk() }),
        }
    }

    /// Bytes of the block. `None` if it is not in use.
    pub(crate) fn bytes(self, block: usize) -> Option<usize> {
        match self.region() {
            // SAFETY: the region comes from the table.
            Some(region) => unsafe { large::bytes_at(region, block) },
            // SAFETY: data of chunks stay.
            None => pool::bytes_at(unsafe { &*self.chunk() }, block),
        }
    }

    /// Frees the block, as the C library would: the process ends if it is not in use.
    pub(crate) fn free(self, block: usize) {
        // SAFETY: both come from the table.
        let freed = unsafe {
            match self.region() {
                Some(region) => large::release(region, block),
                None => pool::release(self.chunk(), block),
            }
        };
        if !freed {
            damaged(b"free(): no block that is in use\n");
        }
    }
}

/// Ends the process, because its heap is damaged.
#[cold]
pub(crate) fn damaged(text: &[u8]) -> ! {
    syscall::write(2, text);
    syscall::abort()
}

//! The owners of addresses: a table of two levels with one entry for each aligned [`CHUNK`] of the
//! address space.

use crate::params::CHUNK;
use crate::sys::syscall;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Bits of addresses in user space, without the fifth level of page tables, which programs must
/// request explicitly.
const ADDRESS_BITS: u32 = 47;
const CHUNK_BITS: u32 = CHUNK.trailing_zeros();
const LOW_BITS: u32 = 13;
const LOW: usize = 1 << LOW_BITS;
const HIGH: usize = 1 << (ADDRESS_BITS - CHUNK_BITS - LOW_BITS);

type Low = [AtomicUsize; LOW];
static TABLE: [AtomicPtr<Low>; HIGH] = [const { AtomicPtr::new(core::ptr::null_mut()) }; HIGH];

/// The value stored for an address, or 0.
#[inline]
pub(crate) fn find(address: usize) -> usize {
    let Some(high) = TABLE.get(address >> (CHUNK_BITS + LOW_BITS)) else {
        return 0;
    };
    // SAFETY: null or a table, which stays.
    match unsafe { high.load(Ordering::Acquire).as_ref() } {
        Some(low) => low[address >> CHUNK_BITS & (LOW - 1)].load(Ordering::Acquire),
        None => 0,
    }
}

/// Stores a value for the chunk of an address. False if there is no memory for the table.
pub(crate) fn enter(address: usize, value: usize) -> bool {
    let Some(high) = TABLE.get(address >> (CHUNK_BITS + LOW_BITS)) else {
        return false;
    };
    let mut low = high.load(Ordering::Acquire);
    if low.is_null() {
        let Some(new) = syscall::map(0, size_of::<Low>()) else {
            return false;
        };
        let new = new as *mut Low;
        let old = core::ptr::null_mut();
        match high.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => low = new,
            Err(first) => {
                // SAFETY: it was never visible to other threads.
                unsafe { syscall::unmap(new as usize, size_of::<Low>()) };
                low = first;
            }
        }
    }
    // SAFETY: a table, which stays.
    let entries = unsafe { &*low };
    entries[address >> CHUNK_BITS & (LOW - 1)].store(value, Ordering::Release);
    true
}

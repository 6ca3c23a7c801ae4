//! State that is kept while a handler of the program runs, apart from its stack: an alternate stack
//! may be only as large as the handler needs.
//!
//! The state is found by the address of the kernel's frame. A handler that is left by a jump never
//! returns and is not noticed: its entry is reused when no other is free. If the entry of a handler
//! is reused that does return, its thread continues in the original code, as if the handler had
//! changed something.

use crate::record::signals::delivery::Delivery;
use crate::record::thread_ring;
use crate::record::thread_ring::Ring;

/// Maximum number of nested handlers of a thread whose state is kept.
pub(crate) const KEPT_HANDLERS: usize = 24;

/// One of a thread's entries.
struct KeptHandler {
    /// Address of the kernel's frame.
    frame: usize,
    /// Number of the handler, counted per thread.
    number: u64,
    delivery: Delivery,
}

const _: () = assert!(
    KEPT_HANDLERS * size_of::<KeptHandler>() <= thread_ring::KEPT_BYTES && KEPT_HANDLERS <= 32
);

/// Bit set of a thread's used entries, and the number of handlers so far.
#[derive(Clone, Copy, Default)]
pub struct KeptPlaces {
    used: u32,
    count: u64,
}

fn place_at(ring: Ring, index: usize) -> *mut KeptHandler {
    (ring.kept_handlers() as *mut KeptHandler).wrapping_add(index)
}

fn used_places(used: u32) -> impl Iterator<Item = usize> + Clone {
    (0..KEPT_HANDLERS).filter(move |index| used >> index & 1 != 0)
}

/// Index of the entry of the handler with this frame.
fn find(ring: Ring, used: u32, frame: usize) -> Option<usize> {
    // SAFETY: entries in use are completely written; all signals are blocked.
    used_places(used).find(|&index| unsafe { (*place_at(ring, index)).frame } == frame)
}

/// An entry for a handler whose frame is at `frame`: its old one, a free one, that of a handler
/// whose frame was deeper in the stack, or the oldest.
fn choose(ring: Ring, used: u32, frame: usize) -> usize {
    let free = (!used).trailing_zeros() as usize;
    if let Some(index) = find(ring, used, frame) {
        return index;
    }
    if free < KEPT_HANDLERS {
        return free;
    }
    // SAFETY: as in `find`.
    let key = |index: usize| unsafe {
        let place = place_at(ring, index);
        ((*place).frame > frame, (*place).number)
    };
    used_places(used)
        .min_by_key(|&index| key(index))
        .unwrap_or(0)
}

/// Stores the state of the handler whose frame is at `frame`. All signals are blocked.
pub(crate) fn keep(ring: Ring, frame: usize, delivery: Delivery) {
    let places = ring.private().kept.get();
    let index = choose(ring, places.used, frame);
    // SAFETY: an entry that belongs to the thread and is not in use.
    unsafe {
        place_at(ring, index).write(KeptHandler {
            frame,
            number: places.count,
            delivery,
        })
    };
    ring.private().kept.set(KeptPlaces {
        used: places.used | 1 << index,
        count: places.count + 1,
    });
}

/// Removes and returns the state of the handler whose frame is at `frame`. The handler has
/// returned, so its entry is freed. All signals are blocked.
pub(crate) fn take_delivery(ring: Ring, frame: usize) -> Option<&'static Delivery> {
    let places = ring.private().kept.get();
    let index = find(ring, places.used, frame)?;
    ring.private().kept.set(KeptPlaces {
        used: places.used & !(1 << index),
        ..places
    });
    // SAFETY: written by `keep`; nothing is written there before signals are unblocked.
    Some(unsafe { &(*place_at(ring, index)).delivery })
}

//! Pure arithmetic on the numbers of a thread slot: the slots that a dead thread left, and a check
//! of a chunk's description. All input values are allowed.

use crate::soft::shared_memory::{SLOT, Settings};
use crate::util::clock::monotonic_ns;
use mgz_abi::shared_memory::Snapshot;
use mgz_abi::shared_memory::{CHUNKS, ChunkInfo, MODE_BURST, MODE_RING, PAGE_SIZE};
use mgz_abi::slot::MAX_REGION_SLOTS;
use mgz_annotations_schema::spill::cause;

/// Larger slot numbers are invalid.
const MAX_EXECUTED: u64 = 1 << 56;
/// Bytes of the longest region.
const REGION: u64 = MAX_REGION_SLOTS as u64 * SLOT;

/// Slots that a thread has written but not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// No slots.
    Nothing,
    /// The numbers contradict each other.
    Nonsense,
    /// Slots in a chunk that was being filled; the known number may be 0.
    Chunk {
        /// Its place in the queue.
        place: usize,
        /// Offset of the first slot in it, bytes.
        offset: u64,
        /// Number of slots.
        slots: u64,
    },
    /// Slots in the ring.
    Window {
        /// End of the slots: bytes from the ring's start in the mirrored address space.
        end: u64,
        /// Number of slots.
        slots: u64,
    },
}

/// True if a chunk's description is consistent.
pub fn plausible(info: &ChunkInfo) -> bool {
    info.pid != 0
        && info.tid != 0
        && info.cause <= cause::PHASE.into()
        && info.first_slot <= MAX_EXECUTED
        && info.executed <= MAX_EXECUTED
        && info.executed >= info.first_slot + u64::from(info.slots)
}

/// True if a thread has begun its first chunk or lap. Its cursor is set last; before that, only the
/// owner's ids are set in the page. A thread killed before that has run nothing.
pub fn has_begun(s: &Snapshot) -> bool {
    s.pid != 0 && (s.cursor != 0 || s.slots_before != 0 || s.published != 0)
}

/// Location of the slots that a thread wrote but did not publish, from its own numbers. `known`
/// slots have been published.
pub fn unpublished(settings: &Settings, s: &Snapshot, known: u64) -> Rest {
    if !has_begun(s) {
        return Rest::Nothing;
    }
    if s.tid == 0
        || s.cursor.saturating_add(REGION) < s.base
        || s.cursor > s.guard
        || s.slots_before > MAX_EXECUTED
    {
        return Rest::Nonsense;
    }
    // Below the base: a region reached the guard page and was rebased, but is not committed yet.
    let written = s.cursor.saturating_sub(s.base) / SLOT;
    if settings.mode == MODE_RING {
        if written == 0 {
            return Rest::Nothing;
        }
        if s.base < s.ring_start || !(s.cursor - s.ring_start).is_multiple_of(SLOT) {
            return Rest::Nonsense;
        }
        let slots = settings
            .window
            .min(written)
            .min((s.slots_before.saturating_add(written)).saturating_sub(known));
        return if slots == 0 {
            Rest::Nothing
        } else {
            Rest::Window {
                end: s.cursor - s.ring_start,
                slots,
            }
        };
    }
    if settings.mode == MODE_BURST && s.guard <= s.self_addr {
        // The thread was in a lap, whose slots are not kept.
        return Rest::Nothing;
    }
    let chunk = settings.chunk_bytes;
    let first = s.self_addr.wrapping_add(PAGE_SIZE as u64);
    let Some(from_first) = s
        .guard
        .checked_sub(chunk)
        .and_then(|start| start.checked_sub(first))
    else {
        return Rest::Nonsense;
    };
    let place = (from_first / (chunk + PAGE_SIZE as u64)) as usize;
    if place >= settings.places
        || from_first % (chunk + PAGE_SIZE as u64) != 0
        || s.guard - s.base > chunk
    {
        return Rest::Nonsense;
    }
    let being_filled = if settings.mode == MODE_BURST {
        s.filling == s.published
    } else {
        place as u64 == s.published % CHUNKS as u64
    };
    if !being_filled {
        // All slots are published: the thread died before it went on.
        return Rest::Nothing;
    }
    Rest::Chunk {
        place,
        offset: chunk - (s.guard - s.base),
        slots: written,
    }
}

/// Description of the thread's last `slots` slots, as the thread would have published it.
pub fn describe(settings: &Settings, s: &Snapshot, cause: u8, slots: u64) -> ChunkInfo {
    let now = monotonic_ns();
    // A lap has more slots than the kept window; a chunk is kept whole.
    let written = if settings.mode == MODE_RING {
        s.cursor.saturating_sub(s.base) / SLOT
    } else {
        slots
    };
    let executed = s.slots_before.saturating_add(written);
    let begin_ns = if settings.mode == MODE_RING {
        let period = s.period_before.saturating_add(written).max(1);
        let elapsed = now.saturating_sub(s.begin_ns.min(now));
        now - (u128::from(elapsed) * u128::from(slots) / u128::from(period))
            .min(u128::from(elapsed)) as u64
    } else {
        s.begin_ns.min(now)
    };
    ChunkInfo {
        pid: s.pid,
        tid: s.tid,
        cause: cause.into(),
        slots: slots as u32,
        first_slot: executed - slots,
        executed,
        begin_ns,
        end_ns: now,
        ..ChunkInfo::default()
    }
}

//! The traced side for tests: the runtime's work, without its speed.

use crate::soft::shared_memory::*;
use mgz_abi::shared_memory::{ModuleRow, STATE_FREE, STATE_LIVE};

/// A traced thread's view of its slot. Addresses of chunks and rings are made up: `SELF` is the
/// address that the control page claims to have.
pub struct Producer<'a> {
    shared: &'a SharedMemory,
    slot: ThreadSlot<'a>,
    pub pid: u32,
    pub tid: u32,
    written: u64,
}

/// A record alone in its slot.
fn alone(slot: Slot) -> RingSlot {
    RingSlot {
        payload: slot.payload,
        aux: slot.aux,
        id: slot.id,
    }
}

pub const SELF: u64 = 0x5000_0000;
pub const LAP: u64 = 1 << 22;

impl<'a> Producer<'a> {
    /// Claims the next slot as the runtime does.
    pub fn claim(shared: &'a SharedMemory, pid: u32, tid: u32) -> Producer<'a> {
        let header = shared.header();
        // SAFETY: an atomic in the mapping.
        let next = unsafe { &(*header).next_slot };
        loop {
            let slot = shared.slot(next.fetch_add(1, Ordering::Relaxed) as usize % MAX_THREADS);
            if slot.change_state(STATE_FREE, STATE_LIVE) {
                let mut producer = Producer {
                    shared,
                    slot,
                    pid,
                    tid,
                    written: 0,
                };
                producer.control(|c| {
                    c.pid.set(pid);
                    c.tid.set(tid);
                    c.self_addr.set(SELF);
                    c.ring_start.set(SELF + PAGE_SIZE as u64);
                });
                producer.begin(0);
                return producer;
            }
        }
    }

    pub fn control<R>(&mut self, change: impl FnOnce(&Control) -> R) -> R {
        // SAFETY: tests have one producer per slot; the recorder's side makes no reference to plain
        // fields.
        change(unsafe { &*self.slot.control() })
    }

    /// Starts a chunk (full) or a lap (ring) `lap_slots` before its end.
    pub fn begin(&mut self, lap_slots: u64) {
        let Settings {
            mode, chunk_bytes, ..
        } = *self.shared.settings();
        let written = self.written;
        self.control(|c| {
            if mode == MODE_RING {
                c.guard.set(SELF + PAGE_SIZE as u64 + LAP);
                c.base.set(c.guard.get() - lap_slots * SLOT);
            } else {
                let place = c.published.load(Ordering::Relaxed) % CHUNKS as u64;
                c.base
                    .set(SELF + PAGE_SIZE as u64 + place * (chunk_bytes + PAGE_SIZE as u64));
                c.guard.set(c.base.get() + chunk_bytes);
            }
            c.cursor.set(c.base.get());
            c.slots_before.set(written);
            c.begin_ns.set(1000 + written);
        });
    }

    /// A byte address in this slot's part of the file for a made-up program address.
    fn at(&self, address: u64) -> *mut u8 {
        let Settings {
            mode,
            chunk_bytes,
            ring_bytes,
            ..
        } = *self.shared.settings();
        let from = address - SELF - PAGE_SIZE as u64;
        let offset = if mode == MODE_RING {
            RING_OFFSET + from % ring_bytes
        } else {
            let place = from / (chunk_bytes + PAGE_SIZE as u64);
            chunk_offset(place as usize, ring_bytes, chunk_bytes)
                + from % (chunk_bytes + PAGE_SIZE as u64)
        };
        assert!(offset + SLOT <= self.shared.settings.stride());
        // SAFETY: inside this thread slot.
        unsafe { self.slot.start.add(offset as usize) }
    }

    /// Writes and commits a record. There must be room (tests have no guard page).
    pub fn record(&mut self, slot: Slot) {
        let cursor = self.control(|c| c.cursor.get());
        assert!(cursor < self.control(|c| c.guard.get()));
        // SAFETY: `at` gives 16 bytes in the mapping.
        unsafe {
            self.at(cursor)
                .cast::<RingSlot>()
                .write_volatile(alone(slot))
        };
        self.control(|c| c.cursor.set(c.cursor.get() + SLOT));
        self.written += 1;
    }

    /// Fills the rest of the chunk at full speed (full).
    pub fn fill(&mut self, make: impl Fn(u64) -> Slot) {
        let (cursor, guard) = self.control(|c| (c.cursor.get(), c.guard.get()));
        let to = self.at(cursor).cast::<RingSlot>();
        for i in 0..(guard - cursor) / SLOT {
            // SAFETY: up to the end of the chunk.
            unsafe {
                to.add(i as usize)
                    .write_volatile(alone(make(self.written + i)))
            };
        }
        self.written += (guard - cursor) / SLOT;
        self.control(|c| c.cursor.set(guard));
    }

    /// Publishes the chunk that is being written (full).
    pub fn publish(&mut self, cause: u32) {
        let (pid, tid) = (self.pid, self.tid);
        let info = self.control(|c| {
            let slots = ((c.cursor.get() - c.base.get()) / SLOT) as u32;
            ChunkInfo {
                pid,
                tid,
                cause: cause as u16,
                slots,
                first_slot: c.slots_before.get(),
                executed: c.slots_before.get() + u64::from(slots),
                begin_ns: c.begin_ns.get(),
                end_ns: c.begin_ns.get() + 10,
                ..ChunkInfo::default()
            }
        });
        self.announce(info);
        self.begin(0);
    }

    /// Publishes the last `window` slots (ring) and starts a lap.
    pub fn publish_window(&mut self, window: u64, lap_slots: u64) {
        let (cursor, place) = self.control(|c| {
            (
                c.cursor.get(),
                c.published.load(Ordering::Relaxed) as usize % CHUNKS,
            )
        });
        let Settings {
            chunk_bytes,
            ring_bytes,
            ..
        } = *self.shared.settings();
        for i in 0..window {
            let from = self.at(cursor - (window - i) * SLOT);
            let to = chunk_offset(place, ring_bytes, chunk_bytes) + i * SLOT;
            // SAFETY: a slot of the ring and a slot of the chunk, both in this thread slot.
            unsafe {
                std::ptr::copy_nonoverlapping(from, self.slot.start.add(to as usize), SLOT as usize)
            };
        }
        let info = ChunkInfo {
            pid: self.pid,
            tid: self.tid,
            slots: window as u32,
            first_slot: self.written - window,
            executed: self.written,
            begin_ns: 1,
            end_ns: 2,
            ..ChunkInfo::default()
        };
        self.announce(info);
        self.begin(lap_slots);
    }

    /// Puts a chunk into the queue without checks.
    pub fn announce(&mut self, info: ChunkInfo) {
        self.control(|c| {
            let place = c.published.load(Ordering::Relaxed) as usize % CHUNKS;
            c.chunks[(c.published.load(Ordering::Relaxed) % QUEUE as u64) as usize].set(
                ChunkInfo {
                    place: place as u16,
                    ..info
                },
            );
            c.published.fetch_add(1, Ordering::Release);
        });
        self.shared.ring_doorbell();
    }

    /// Waits until a chunk place is free, as the runtime does.
    pub fn wait_for_place(&mut self) {
        loop {
            let (published, drained) = self.control(|c| {
                (
                    c.published.load(Ordering::Relaxed),
                    c.drained.load(Ordering::Acquire),
                )
            });
            if (published as u32).wrapping_sub(drained) < CHUNKS as u32 {
                return;
            }
            // SAFETY: an atomic in the mapping.
            futex_wait(
                unsafe { &(*self.slot.control()).drained },
                drained,
                Duration::from_millis(50),
            );
        }
    }

    pub fn written(&self) -> u64 {
        self.written
    }
}

/// Adds a row to the module table.
pub fn tell_module(shared: &SharedMemory, index: usize, path: &[u8], bias: u64) {
    // SAFETY: a row in the mapping that only this test writes.
    let row: &mut ModuleRow = unsafe { &mut (*shared.header()).modules[index] };
    row.path[..path.len()].copy_from_slice(path);
    row.bias = bias;
    row.pid = 7;
    row.ready.store(1, Ordering::Release);
}

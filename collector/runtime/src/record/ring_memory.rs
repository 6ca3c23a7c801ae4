//! The memory of rings: reservations in the first 4 GiB, and the parts of the recorder's file that
//! lie in them.

use crate::record::counters;
use crate::record::thread_ring::{
    ENVIRONMENT_BYTES, HOOK_STACK, KEPT_BYTES, LAP_SLOTS, PRIVATE, Ring, SIGNAL_STACK,
    SPARE_OFFSET, SPARE_RING,
};
use crate::sys::errno::ESRCH;
use crate::sys::process::SharedFile;
use crate::sys::syscall::map;
use crate::sys::{own_memory, process, syscall};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use mgz_abi::shared_memory::*;

/// Bytes of the mirrored ring.
pub(crate) fn lap_bytes(header: &Header) -> usize {
    let ring = header.ring_bytes.max(PAGE_SIZE as u64);
    ((LAP_SLOTS.max(2 * header.window) * 16).div_ceil(ring) * ring) as usize
}

fn area_bytes(header: &Header) -> usize {
    let chunk = header.chunk_bytes as usize;
    match header.mode {
        MODE_RING => lap_bytes(header) + PAGE_SIZE + CHUNKS * chunk,
        _ => header.places as usize * (chunk + PAGE_SIZE),
    }
}

/// Bytes of a reservation before its control page.
const BYTES_BEFORE_CONTROL: usize =
    ENVIRONMENT_BYTES + KEPT_BYTES + HOOK_STACK + SIGNAL_STACK + SPARE_OFFSET;

pub(crate) fn reserve_slot(header: &Header) -> Option<Ring> {
    let total = BYTES_BEFORE_CONTROL + PAGE_SIZE + area_bytes(header);
    let flags = map::PRIVATE | map::ANONYMOUS | map::NORESERVE;
    // SAFETY: a new mapping.
    let low = unsafe { syscall::mmap(0, total, map::NONE, flags | map::LOW, -1, 0) };
    let ring = ring_in(low.ok().or_else(|| HIGHER.take(total))?, total)?;
    if !claim(header, ring) {
        // SAFETY: nobody knows of the reservation yet.
        unsafe { syscall::munmap(ring.address - BYTES_BEFORE_CONTROL, total) };
        return None;
    }
    own_memory::add_own_range(ring.address - BYTES_BEFORE_CONTROL, total);
    Some(ring)
}

/// A reservation without a ring: the thread's probes write into the spare ring. If low memory is
/// used up, the reservation is elsewhere, and the probes write to [`SCRAP`].
pub(crate) fn reserve_private() -> Option<Ring> {
    let anywhere = || {
        let flags = map::PRIVATE | map::ANONYMOUS | map::NORESERVE;
        // SAFETY: a new mapping.
        unsafe { syscall::mmap(0, BYTES_BEFORE_CONTROL + PAGE_SIZE, map::NONE, flags, -1, 0) }
            .ok()
            .filter(|_| SCRAP.load(Ordering::Relaxed) != 0)
    };
    let ring = ring_in(
        HIGHEST
            .take(BYTES_BEFORE_CONTROL + PAGE_SIZE)
            .or_else(anywhere)?,
        BYTES_BEFORE_CONTROL + PAGE_SIZE,
    )?;
    // SAFETY: inside the new reservation: the control page.
    if unsafe { syscall::mprotect(ring.address, PAGE_SIZE, map::READ | map::WRITE) } != 0 {
        // SAFETY: nobody knows of the reservation yet.
        unsafe {
            syscall::munmap(
                ring.address - BYTES_BEFORE_CONTROL,
                BYTES_BEFORE_CONTROL + PAGE_SIZE,
            )
        };
        return None;
    }
    ring.control().state.store(PRIVATE, Ordering::Relaxed);
    own_memory::add_own_range(
        ring.address - BYTES_BEFORE_CONTROL,
        BYTES_BEFORE_CONTROL + PAGE_SIZE,
    );
    Some(ring)
}

/// The ring of a new reservation of `bytes` bytes. Makes the signal stack, spare control page and
/// spare ring usable. If the process may have no more memory, it frees the reservation and returns
/// `None`.
fn ring_in(start: usize, bytes: usize) -> Option<Ring> {
    // SAFETY: inside the caller's new reservation, of which nobody knows yet.
    unsafe {
        if syscall::mprotect(
            start,
            BYTES_BEFORE_CONTROL - PAGE_SIZE,
            map::READ | map::WRITE,
        ) != 0
        {
            syscall::munmap(start, bytes);
            return None;
        }
    }
    Some(Ring {
        address: start + BYTES_BEFORE_CONTROL,
    })
}

/// Reservations without a ring, set aside for threads that find no memory when they start. By then
/// it is too late to let their creation fail. There are several, since threads may be created
/// concurrently.
static PROVISIONS: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

/// Ensures that a new thread has memory at least for a reservation without a ring: without one its
/// first probe would crash the process. Returns false if there is no memory. A new child takes its
/// ring over here, while the calling thread is its only one.
pub fn provide() -> bool {
    crate::record::thread_ring::notice_fork();
    for place in PROVISIONS.iter().filter(|p| p.load(Ordering::Relaxed) == 0) {
        let Some(ring) = reserve_private() else { break };
        if place
            .compare_exchange(0, ring.address, Ordering::Release, Ordering::Relaxed)
            .is_err()
        {
            own_memory::remove(ring.address - BYTES_BEFORE_CONTROL);
            // SAFETY: nobody else knows of it.
            unsafe {
                syscall::munmap(
                    ring.address - BYTES_BEFORE_CONTROL,
                    BYTES_BEFORE_CONTROL + PAGE_SIZE,
                )
            };
        }
    }
    PROVISIONS.iter().any(|p| p.load(Ordering::Relaxed) != 0)
}

/// Takes one of [`PROVISIONS`].
pub(crate) fn provision() -> Option<Ring> {
    PROVISIONS
        .iter()
        .map(|p| p.swap(0, Ordering::Acquire))
        .find(|&address| address != 0)
        .map(|address| Ring { address })
}

/// A spare ring in low memory, with a guard page, for all threads whose reservation is elsewhere.
/// They overwrite each other's records there, which nobody reads.
pub(crate) static SCRAP: AtomicUsize = AtomicUsize::new(0);

/// Allocates [`SCRAP`]. Called once at the start of a process.
pub fn set_up_scrap() {
    counters::set_up();
    let bytes = SPARE_RING + PAGE_SIZE;
    let flags = map::PRIVATE | map::ANONYMOUS | map::NORESERVE;
    // SAFETY: a new mapping.
    let low = unsafe { syscall::mmap(0, bytes, map::NONE, flags | map::LOW, -1, 0) };
    let Some(start) = low.ok().or_else(|| HIGHEST.take(bytes)) else {
        return;
    };
    // SAFETY: inside the new mapping.
    if unsafe { syscall::mprotect(start, SPARE_RING, map::READ | map::WRITE) } == 0 {
        SCRAP.store(start, Ordering::Relaxed);
        own_memory::add_own_range(start, bytes);
    }
}

/// Low memory beyond the part that MAP_32BIT gives (from 1 to 2 GiB).
struct Range {
    next: AtomicUsize,
    end: usize,
}

/// The range for rings.
static HIGHER: Range = Range {
    next: AtomicUsize::new(0x8000_0000),
    end: 0xc000_0000,
};
/// The range for threads without a ring: even many of them need memory to write to.
static HIGHEST: Range = Range {
    next: AtomicUsize::new(0xc000_0000),
    end: 0xffff_0000,
};

impl Range {
    /// Reserves unused memory in the range.
    fn take(&self, bytes: usize) -> Option<usize> {
        let bytes = bytes.next_multiple_of(PAGE_SIZE);
        loop {
            let at = self.next.fetch_add(bytes, Ordering::Relaxed);
            if at > self.end - bytes {
                self.next.store(self.end, Ordering::Relaxed);
                return None;
            }
            let flags = map::PRIVATE | map::ANONYMOUS | map::NORESERVE | map::FIXED_NOREPLACE;
            // SAFETY: a new mapping, never over another one.
            match unsafe { syscall::mmap(at, bytes, map::NONE, flags, -1, 0) } {
                Ok(start) if start == at => return Some(at),
                // A kernel that does not know the flag has put it elsewhere.
                // SAFETY: the mapping that was just made.
                Ok(start) => unsafe { syscall::munmap(start, bytes) },
                Err(_) => {}
            }
        }
    }
}

/// Reserves the part of a reservation that children do not inherit.
pub(crate) fn hold(header: &Header, ring: Ring) {
    let flags = map::PRIVATE | map::ANONYMOUS | map::NORESERVE | map::FIXED_NOREPLACE;
    let bytes = PAGE_SIZE + area_bytes(header);
    // SAFETY: a new mapping, never over another one. A kernel that does not know the flag has put
    // it elsewhere.
    unsafe {
        if let Ok(start) = syscall::mmap(ring.address, bytes, map::NONE, flags, -1, 0)
            && start != ring.address
        {
            syscall::munmap(start, bytes);
        }
    }
}

/// Maximum number of scans for a free thread slot. Source: Chosen.
const MAX_SCANS: usize = 40;
/// Time between these scans: the recorder looks for dead threads some fifty times a second. Source:
/// Chosen.
const SCAN_INTERVAL_NS: u64 = 10_000_000;

/// Maps a free thread slot of the file behind `ring.address`.
pub(crate) fn claim(header: &Header, ring: Ring) -> bool {
    if !crate::sys::seccomp_state::may_set_up() {
        return false;
    }
    if !crate::sys::seccomp_state::is_filtered() && process::is_elsewhere(header) {
        process::count(count::FORBIDDEN, 1);
        return false;
    }
    let Some(file) = SharedFile::open() else {
        return false;
    };
    let mut found = false;
    for _ in 0..MAX_SCANS {
        let left = match claim_once(header, ring, &file) {
            Claim::Found => {
                found = true;
                break;
            }
            Claim::Failed => break,
            Claim::Full { left } => left,
        };
        // Slots that dead processes have left are freed by the recorder.
        if !left
            || header.stop.load(Ordering::Relaxed) != 0
            || !syscall::process_exists(header.recorder)
        {
            break;
        }
        static NEVER: AtomicU32 = AtomicU32::new(0);
        syscall::futex_wait(NEVER.as_ptr(), 0, SCAN_INTERVAL_NS);
    }
    found
}

enum Claim {
    Found,
    /// Memory cannot be mapped.
    Failed,
    /// All slots are in use. `left`: some of them by threads that no longer exist.
    Full {
        left: bool,
    },
}

fn claim_once(header: &Header, ring: Ring, file: &SharedFile) -> Claim {
    let mut left = false;
    for _ in 0..MAX_THREADS {
        let index = header.next_slot.fetch_add(1, Ordering::Relaxed) as usize % MAX_THREADS;
        let offset = slot_offset(index, header.stride);
        if !place(ring.address, PAGE_SIZE, file, offset) {
            return Claim::Failed;
        }
        let control = ring.control();
        if control
            .state
            .compare_exchange(STATE_FREE, STATE_LIVE, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
        {
            // The owner is set first: if the process dies now, the recorder must be able to find
            // its thread dead.
            control.pid.set(syscall::getpid());
            control.tid.set(syscall::gettid());
            control.index.set(index as u32);
            control.published.store(0, Ordering::Relaxed);
            control.drained.store(0, Ordering::Relaxed);
            if place_rest(header, ring, file, offset)
                && counters::provide(header, ring, file, index)
            {
                return Claim::Found;
            }
            control.state.store(STATE_FREE, Ordering::Release);
            return Claim::Failed;
        }
        left |= control.pid.get() != 0
            && syscall::tgkill(control.pid.get(), control.tid.get(), 0) == -ESRCH;
    }
    Claim::Full { left }
}

/// Maps part of the file at a fixed address of a reservation. Children do not inherit the mapping.
fn place(address: usize, bytes: usize, file: &SharedFile, offset: u64) -> bool {
    // SAFETY: the callers pass parts of their own reservation.
    unsafe {
        file.map_at(address, bytes, offset)
            && syscall::call(syscall::nr::MADVISE, address, bytes, map::DONTFORK, 0, 0, 0) == 0
    }
}

fn place_rest(header: &Header, ring: Ring, file: &SharedFile, offset: u64) -> bool {
    let mut done = true;
    if header.mode == MODE_RING {
        let ring_bytes = header.ring_bytes as usize;
        for lap in (0..lap_bytes(header)).step_by(ring_bytes) {
            done &= place(
                ring.address + PAGE_SIZE + lap,
                ring_bytes,
                file,
                offset + RING_OFFSET,
            );
        }
    }
    for k in 0..CHUNKS {
        done &= place_chunk(header, ring, file, offset, k);
    }
    ring.private().mapped.set((1 << CHUNKS) - 1);
    // A child does not inherit its parent's other places. Their addresses are reserved, so that
    // nothing else is mapped there.
    let (rest, end) = (
        ring.chunk(CHUNKS, header),
        ring.address + PAGE_SIZE + area_bytes(header),
    );
    if header.mode != MODE_RING && rest < end {
        let flags = map::PRIVATE | map::ANONYMOUS | map::NORESERVE | map::FIXED;
        // SAFETY: the end of the reservation, which holds nothing yet.
        done &= unsafe { syscall::mmap(rest, end - rest, map::NONE, flags, -1, 0) }.is_ok();
    }
    done
}

/// Maps one place of the queue; `offset` is that of the thread slot.
fn place_chunk(header: &Header, ring: Ring, file: &SharedFile, offset: u64, k: usize) -> bool {
    let from = offset + chunk_offset(k, header.ring_bytes, header.chunk_bytes);
    place(
        ring.chunk(k, header),
        header.chunk_bytes as usize,
        file,
        from,
    )
}

/// `burst`: a mapped place in which no window is waiting. `None` if the recorder is late.
pub fn free_place(header: &Header, ring: Ring) -> Option<usize> {
    let control = ring.control();
    let published = control.published.load(Ordering::Relaxed);
    let waiting = (published as u32).wrapping_sub(control.drained.load(Ordering::Acquire));
    let places = header.places.min(QUEUE as u32);
    if waiting >= places {
        return None;
    }
    let entries = (published - u64::from(waiting))..published;
    let taken = entries.fold(0u32, |taken, k| {
        taken | 1 << (control.chunks[(k % QUEUE as u64) as usize].get().place & 31)
    });
    // The lowest, so that a recorder that keeps up needs little memory.
    let place = (!taken).trailing_zeros();
    if place >= places {
        return None;
    }
    let mapped = &ring.private().mapped;
    if mapped.get() & 1 << place == 0 {
        let file = SharedFile::open()?;
        let offset = slot_offset(control.index.get() as usize, header.stride);
        if !place_chunk(header, ring, &file, offset, place as usize) {
            return None;
        }
        mapped.set(mapped.get() | 1 << place);
    }
    Some(place as usize)
}

/// The place of the queue in which an address is.
pub fn place_of(header: &Header, ring: Ring, address: u64) -> usize {
    (address as usize).saturating_sub(ring.address + PAGE_SIZE)
        / (header.chunk_bytes as usize + PAGE_SIZE)
}

/// `burst`: true if an address is in a guard page of this ring. Reads no memory that a forked
/// child may lack.
pub fn in_guard(header: &Header, ring: Ring, address: u64) -> bool {
    let from = (address as usize).wrapping_sub(ring.address + PAGE_SIZE);
    let chunk = header.chunk_bytes as usize;
    from < header.places as usize * (chunk + PAGE_SIZE) && from % (chunk + PAGE_SIZE) >= chunk
}

/// End of the spare ring of a ring in low memory, where its guard page is.
pub fn spare_end(ring: Ring) -> u64 {
    (ring.address - SPARE_OFFSET + PAGE_SIZE + SPARE_RING) as u64
}

pub(crate) fn private_page(ring: Ring) {
    let flags = map::PRIVATE | map::ANONYMOUS | map::FIXED | map::NORESERVE;
    // SAFETY: the reservation's own range.
    unsafe {
        let _ = syscall::mmap(
            ring.address,
            PAGE_SIZE,
            map::READ | map::WRITE,
            flags,
            -1,
            0,
        );
    }
    ring.control().state.store(PRIVATE, Ordering::Relaxed);
}

/// Length of the next lap, slots: laps divide the distance to the next window's end (`stretch`)
/// evenly, and none is shorter than a window.
pub fn next_lap(header: &Header, stretch: u64, period_before: u64) -> u64 {
    let most = lap_bytes(header) as u64 / 16;
    let period = stretch.max(1);
    let even = period.div_ceil(period.div_ceil(most));
    even.min(period - period_before.min(period - 1))
}

/// End of the mirrored ring: its guard page.
pub fn lap_end(header: &Header, ring: Ring) -> u64 {
    (ring.address + PAGE_SIZE + lap_bytes(header)) as u64
}

//! Reuse beyond windows: after some of them a hardware watchpoint waits for the next access to a
//! word that the window has accessed, and the log holds the CPU time of the thread in between.
//!
//! The word is that of a random record from the first half of the window. It is watched only if no
//! later record of the window accesses its line. So all accesses whose reuse the window has not
//! seen are watched with equal probability.
//!
//! There are few debug registers. A watch is replaced by the next one with a probability that does
//! not depend on its word, so a watch that ends without a reuse is an unbiased observation as well:
//! the analysis takes it as censored. (The reservoir of RDX replaces watches with falling
//! probability; watches that last a whole run would observe few accesses.)

use crate::record::params::{
    MAX_DRAWS_PER_WINDOW, REQUESTS_PER_ENDED_WATCH, UNWATCHED_STACK_BYTES, USER_ADDRESSES,
    WATCHES_OF_THREAD,
};
use crate::record::thread_ring::Ring;
use crate::record::watchpoint::Watchpoint;
use crate::record::{modules, stack_copy};
use crate::sys::signal_frame::{Context, RIP, RSP};
use crate::sys::{process, seccomp_state, syscall};
use core::cell::Cell;
use core::sync::atomic::Ordering;
use mgz_abi::shared_memory::{CACHE_LINE, Control, Header};
use mgz_abi::slot::{ID_PAIR, MARK_FIRST, RingSlot};
use mgz_abi::stack_log::{StackCell, WatchedAccess};

const LINE_SHIFT: u32 = CACHE_LINE.trailing_zeros();

/// One of a thread's watches.
#[repr(C)]
#[derive(Default)]
struct Watch {
    watchpoint: Watchpoint,
    word: Cell<u64>,
    /// Number of the first slot of the window that accessed the word.
    first_slot: Cell<u64>,
    /// CPU time of the thread when the watch was set.
    since: Cell<u64>,
}

/// State of a thread's watches; is in [`crate::record::thread_ring::Private`].
#[repr(C)]
pub struct ReuseWatches {
    each: [Watch; WATCHES_OF_THREAD],
    /// Full windows so far.
    windows: Cell<u64>,
    random: Cell<u64>,
}

impl ReuseWatches {
    /// Forgets all watches.
    pub fn reset(&self) {
        for watch in &self.each {
            watch.watchpoint.forget();
        }
        self.windows.set(0);
        self.random.set(0);
    }

    /// splitmix64 (Steele, Lea and Flood 2014).
    fn random(&self) -> u64 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mut x = state;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }
}

/// A word that a window has accessed, and the number of its first slot.
#[derive(Clone, Copy)]
pub struct Use {
    word: u64,
    first_slot: u64,
}

/// Chooses the word to watch after a full window whose `slots` slots end at `end`, if it is time
/// for a watch.
pub fn plan_watch(
    header: &Header,
    ring: Ring,
    context: &Context,
    end: u64,
    slots: u64,
) -> Option<Use> {
    let every = header.stack_log.watch_every.load(Ordering::Relaxed);
    let watches = &ring.private().reuse;
    // A filter may refuse the system calls of watches.
    if every == 0 || seccomp_state::is_filtered() {
        return None;
    }
    if watches.random.get() == 0 {
        // The start value differs by thread, so that threads with few windows do not all begin at
        // the same count.
        watches.random.set(u64::from(syscall::gettid()) << 32 | 1);
        watches.windows.set(watches.random() % every);
    }
    watches.windows.set(watches.windows.get().wrapping_add(1));
    if !watches.windows.get().is_multiple_of(every) {
        return None;
    }
    // SAFETY: the slots were just written by this thread; the memory is its own until it is
    // published.
    let window = unsafe {
        core::slice::from_raw_parts((end - 16 * slots) as *const RingSlot, slots as usize)
    };
    let stack = context.registers[RSP].saturating_sub(UNWATCHED_STACK_BYTES[0])
        ..context.registers[RSP].saturating_add(UNWATCHED_STACK_BYTES[1]);
    let draw = |_| drawn(window, watches.random());
    let word = (0..MAX_DRAWS_PER_WINDOW)
        .filter_map(draw)
        .find(|word| USER_ADDRESSES.contains(word) && !stack.contains(word))?;
    Some(Use {
        word,
        first_slot: ring.control().slots_before.get(),
    })
}

/// The word of a random record in the first half, unless a later record accesses its line.
fn drawn(window: &[RingSlot], random: u64) -> Option<u64> {
    let at = (random % (window.len() as u64 / 2).max(1)) as usize;
    let slot = window.get(at).filter(|slot| slot.id < MARK_FIRST)?;
    let second = slot.is_pair() && random >> 63 != 0;
    // A pair's second record has the next id.
    let id = (slot.id & !ID_PAIR) + u32::from(second);
    let of = |slot: &RingSlot, second: bool| match second {
        true => slot.second(),
        false => slot.first(),
    };
    let displacement = i64::from(modules::displacement(id)?) as u64;
    let address = of(slot, second).wrapping_add(displacement);
    // The load of another record is not looked up: its payload is the address or something nearby,
    // so both are compared.
    let same = |payload: u64| {
        payload >> LINE_SHIFT == address >> LINE_SHIFT
            || payload.wrapping_add(displacement) >> LINE_SHIFT == address >> LINE_SHIFT
    };
    let again = |slot: &RingSlot| same(slot.first()) || slot.is_pair() && same(slot.second());
    (!window[at + 1..].iter().any(again)).then_some(address & !7)
}

/// Begins the watch. The thread has left its window and continues in the original code.
pub fn begin_watch(header: &Header, ring: Ring, used: Use) {
    let watches = &ring.private().reuse;
    let free = |watch: &&Watch| !watch.watchpoint.is_armed() && !watch.watchpoint.is_refused();
    let watch = match watches.each.iter().find(free) {
        Some(free) => free,
        None if watches.random().is_multiple_of(REQUESTS_PER_ENDED_WATCH) => {
            let number = watches.random() as usize % WATCHES_OF_THREAD;
            let watch = &watches.each[number];
            if watch.watchpoint.is_refused() {
                return;
            }
            give_up(header, ring.control(), watch);
            watch
        }
        None => return,
    };
    watch.word.set(used.word);
    watch.first_slot.set(used.first_slot);
    watch.watchpoint.set(header, used.word);
    watch.since.set(cpu_ns());
    crate::record::budget::spend(header, header.trigger_toll.max(header.signal_ns) / 2);
}

/// True if a signal's descriptor is that of a watch.
pub fn is_ours(ring: Ring, descriptor: i32) -> bool {
    let mut each = ring.private().reuse.each.iter();
    each.any(|watch| watch.watchpoint.is_ours(descriptor))
}

/// Handles an access to the word that the event with this descriptor watches. All signals are
/// blocked.
pub fn hit(ring: Ring, descriptor: i32, context: &mut Context) {
    let mut each = ring.private().reuse.each.iter();
    let Some(watch) = each.find(|watch| watch.watchpoint.is_ours(descriptor)) else {
        return;
    };
    // Another thread's filter applies to this one, too.
    if seccomp_state::is_filtered() {
        if !seccomp_state::is_sealed() {
            watch.watchpoint.clear();
        }
        return;
    }
    let now = cpu_ns();
    let (Some(header), true) = (process::header(), watch.watchpoint.clear()) else {
        return;
    };
    let ip = context.registers[RIP];
    let mut access = WatchedAccess {
        registers: core::array::from_fn(|number| *context.register(number as u8)),
        code: [0; 16],
    };
    let from = ip.wrapping_sub(access.code.len() as u64);
    if syscall::is_readable(from as usize, access.code.len()) {
        // SAFETY: the kernel has just read there.
        access.code = unsafe { (from as *const [u8; 16]).read_unaligned() };
    }
    tell(header, ring.control(), watch, now, Some((ip, &access)));
    crate::record::budget::spend(header, header.trigger_toll.max(header.signal_ns));
}

/// The event's signal was removed from the queue, so the access cannot be identified any more.
pub fn missed(ring: Ring, descriptor: i32) {
    let mut each = ring.private().reuse.each.iter();
    if let Some(watch) = each.find(|watch| watch.watchpoint.is_ours(descriptor))
        && let Some(header) = process::header()
    {
        give_up(header, ring.control(), watch);
    }
}

fn give_up(header: &Header, control: &Control, watch: &Watch) {
    if seccomp_state::is_filtered() {
        if !seccomp_state::is_sealed() {
            watch.watchpoint.clear();
        }
    } else if watch.watchpoint.clear() {
        tell(header, control, watch, cpu_ns(), None);
    }
}

/// Ends all watches.
pub fn end(ring: Ring) {
    if let Some(header) = process::header()
        && ring.control().tid.get() == syscall::gettid()
    {
        let watches = &ring.private().reuse.each;
        (watches.iter()).for_each(|watch| give_up(header, ring.control(), watch));
    }
    forget_events(ring);
}

/// In a forked child, or where the program has closed descriptors: the events no longer belong to
/// this process.
pub fn forget_events(ring: Ring) {
    for watch in &ring.private().reuse.each {
        if let Some(event) = watch.watchpoint.forget() {
            syscall::close(event as isize);
        }
    }
}

/// Logs how a watch has ended: by an access, with the address behind the instruction, or without
/// one.
fn tell(
    header: &Header,
    control: &Control,
    watch: &Watch,
    now: u64,
    access: Option<(u64, &WatchedAccess)>,
) {
    let took = now.saturating_sub(watch.since.get());
    stack_copy::write_stack_cell(&header.stack_log, |cell: &StackCell| {
        cell.kind.set(mgz_abi::stack_log::REUSE);
        cell.python_frames.set(0);
        cell.pid.set(control.pid.get());
        cell.tid.set(control.tid.get());
        cell.time.set(syscall::now_ns());
        cell.first_slot.set(watch.first_slot.get());
        cell.sp.set(watch.word.get());
        cell.bp.set(took);
        cell.ip.set(access.map_or(0, |(ip, _)| ip));
        cell.bytes.set(0);
        if let Some((_, access)) = access {
            // SAFETY: the cell belongs to this thread and is large enough.
            unsafe {
                cell.stack
                    .get()
                    .cast::<WatchedAccess>()
                    .write_unaligned(*access)
            };
            cell.bytes.set(size_of::<WatchedAccess>() as u32);
        }
    });
}

/// CPU time of the calling thread, nanoseconds.
fn cpu_ns() -> u64 {
    let mut time = [0u64; 2];
    // SAFETY: struct timespec has 16 bytes.
    unsafe {
        syscall::call(
            syscall::nr::CLOCK_GETTIME,
            syscall::CLOCK_THREAD_CPUTIME,
            time.as_mut_ptr() as usize,
            0,
            0,
            0,
            0,
        )
    };
    time[0] * 1_000_000_000 + time[1]
}

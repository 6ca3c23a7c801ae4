//! A thread's perf events: the one that stops it, those that count, and its watchpoints.
//!
//! All are one group, so that a watchpoint's record holds all counters at the moment of the hit. A watchpoint is an event of
//! its own that is opened for one word and switches itself off at its first hit (`PERF_EVENT_IOC_REFRESH`); its record is read at the thread's next stop.
//! None of them counts or traps in the kernel.

use super::sampler::{Clock, Hit};
use crate::live::attr::{ATTR_BYTES, Attr, FORMAT_ID, SW_TASK_CLOCK, TYPE_SOFTWARE, flag};
use crate::live::kernel::Area;
use crate::live::ring::Ring;
use crate::perfdata::header::bits;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

const TYPE_BREAKPOINT: u32 = 5;
/// HW_BREAKPOINT_R | HW_BREAKPOINT_W: the processor cannot watch reads alone.
const READ_WRITE: u32 = 3;
const FORMAT_GROUP: u64 = 8;
const RECORD_SAMPLE: u32 = 9;
const FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const IOC_REFRESH: libc::c_ulong = 0x2402;
const IOC_PERIOD: libc::c_ulong = 0x4008_2404;
const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;
const IOC_ID: libc::c_ulong = 0x8008_2407;
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;

/// An event that counts accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// PMU.
    pub kind: u32,
    /// PMU-specific event.
    pub config: u64,
}

/// What stops threads, and what counts accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trigger {
    /// Mean CPU time (ns) between stops, or accesses where there are counters.
    pub period: u64,
    /// Number of the signal.
    pub signal: i32,
    /// Events whose sum is the accesses; empty where nothing counts them. The first one stops the thread.
    pub counters: Vec<Counter>,
}

impl Trigger {
    fn attr(&self) -> Attr {
        let (kind, config) = self.counters.first().map_or((TYPE_SOFTWARE, SW_TASK_CLOCK), |c| (c.kind, c.config));
        Attr { sample_period: self.period.max(1), sample_type: bits::IDENTIFIER, ..counting(kind, config) }
    }
}

fn counting(kind: u32, config: u64) -> Attr {
    Attr { kind, size: ATTR_BYTES as u32, config, read_format: FORMAT_ID | FORMAT_GROUP, flags: flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV, ..Attr::default() }
}

/// `struct perf_event_attr` of a watchpoint: `bp_addr` is `config1`, `bp_len` is `config2`.
fn breakpoint(word: u64, bytes: u64) -> Attr {
    let attr = counting(TYPE_BREAKPOINT, 0);
    Attr { sample_period: 1, sample_type: bits::IDENTIFIER | bits::IP | bits::READ, bp_type: READ_WRITE, config1: word, config2: bytes, flags: attr.flags | flag::DISABLED, ..attr }
}

fn open(attr: &Attr, thread: i32, group: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the structure lives across the call and says its own size; the other arguments are integers.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, std::ptr::from_ref(attr), thread, -1, group, FLAG_FD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn id(event: &OwnedFd) -> io::Result<u64> {
    let mut id = 0u64;
    // SAFETY: the kernel writes eight bytes.
    check(unsafe { libc::ioctl(event.as_raw_fd(), IOC_ID, &raw mut id) })?;
    Ok(id)
}

struct Mapping(NonNull<u8>, usize);

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that was mapped.
        unsafe { libc::munmap(self.0.as_ptr().cast(), self.1) };
    }
}

fn ring(event: &OwnedFd) -> io::Result<Ring> {
    const PAGE: usize = 4096;
    // SAFETY: a new mapping.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), 2 * PAGE, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, event.as_raw_fd(), 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
    // SAFETY: the mapping lives until `Mapping` is dropped.
    let area = unsafe { Area::new(base, 2 * PAGE, Box::new(Mapping(base, 2 * PAGE))) };
    Ring::new(area, PAGE).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// One watchpoint.
struct Watchpoint {
    event: OwnedFd,
    id: u64,
}

/// The events of one thread.
pub struct Events {
    // The group's leader goes last.
    slots: Vec<Option<Watchpoint>>,
    ring: Ring,
    members: Vec<(OwnedFd, u64)>,
    clock_id: u64,
    counter_ids: Vec<u64>,
    leader: OwnedFd,
    thread: i32,
    period: u64,
}

impl Events {
    /// Opens the events of a thread that stands still.
    pub fn open(trigger: &Trigger, thread: i32, watchpoints: usize) -> io::Result<Events> {
        let leader = open(&trigger.attr(), thread, -1)?;
        let leader_id = id(&leader)?;
        let mut members = Vec::new();
        let mut member = |attr: &Attr| -> io::Result<u64> {
            let event = open(attr, thread, leader.as_raw_fd())?;
            let number = id(&event)?;
            members.push((event, number));
            Ok(number)
        };
        let (mut clock_id, mut counter_ids) = (leader_id, Vec::new());
        if let [_, others @ ..] = trigger.counters.as_slice() {
            clock_id = member(&counting(TYPE_SOFTWARE, SW_TASK_CLOCK))?;
            counter_ids.push(leader_id);
            for counter in others {
                counter_ids.push(member(&counting(counter.kind, counter.config))?);
            }
        }
        let ring = ring(&leader)?;
        let owner = [0, thread];
        // SAFETY: the owner (F_OWNER_TID and the thread) lives across the call; the rest are integers.
        unsafe {
            check(libc::fcntl(leader.as_raw_fd(), F_SETOWN_EX, owner.as_ptr()))?;
            check(libc::fcntl(leader.as_raw_fd(), F_SETSIG, trigger.signal))?;
            check(libc::fcntl(leader.as_raw_fd(), libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK))?;
        }
        let slots = (0..watchpoints).map(|_| None).collect();
        Ok(Events { slots, ring, members, clock_id, counter_ids, leader, thread, period: trigger.period })
    }

    /// Sets the next period to a share of the asked one.
    pub fn next_period(&self, eighths: f64) {
        let next = (self.period as f64 * eighths).max(1.0) as u64;
        // SAFETY: the number lives across the call. If it fails, the period stays.
        unsafe { libc::ioctl(self.leader.as_raw_fd(), IOC_PERIOD, &raw const next) };
    }

    /// The descriptor that signals carry.
    pub fn descriptor(&self) -> RawFd {
        self.leader.as_raw_fd()
    }

    fn clock_of(&self, values: &[u8]) -> Clock {
        let value = |id: u64| values.chunks_exact(16).find(|pair| pair[8..] == id.to_ne_bytes()).map_or(0, |pair| word(pair, 0));
        let accesses = (!self.counter_ids.is_empty()).then(|| self.counter_ids.iter().map(|&id| value(id)).sum());
        Clock { cpu_ns: value(self.clock_id), accesses }
    }

    /// The counters of the thread.
    pub fn clock(&self) -> io::Result<Clock> {
        let mut buffer = [0u8; 8 + 16 * 16];
        // SAFETY: the buffer lives across the call.
        let got = unsafe { libc::read(self.leader.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(self.clock_of(buffer.get(8..got as usize).unwrap_or(&[])))
    }

    /// Watches a word with a slot.
    pub fn watch(&mut self, slot: usize, word: u64, bytes: u64) -> io::Result<()> {
        self.unwatch(slot);
        let event = open(&breakpoint(word, bytes), self.thread, self.leader.as_raw_fd())?;
        let id = id(&event)?;
        // SAFETY: integer arguments.
        unsafe {
            check(libc::ioctl(event.as_raw_fd(), IOC_SET_OUTPUT, self.leader.as_raw_fd()))?;
            check(libc::ioctl(event.as_raw_fd(), IOC_REFRESH, 1))?;
        }
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some(Watchpoint { event, id });
        }
        Ok(())
    }

    /// Frees a slot.
    pub fn unwatch(&mut self, slot: usize) {
        if let Some(place) = self.slots.get_mut(slot) {
            drop(place.take().map(|w| w.event));
        }
    }

    /// First hits since the last call.
    pub fn hits(&mut self) -> Vec<(usize, Hit)> {
        let mut bytes = Vec::new();
        self.ring.drain(&mut bytes);
        let mut out: Vec<(usize, Hit)> = Vec::new();
        for record in records(&bytes) {
            // What the leader writes is shorter.
            let Some((id, ip, values)) = hit(record) else { continue };
            let Some(slot) = self.slots.iter().position(|s| s.as_ref().is_some_and(|w| w.id == id)) else { continue };
            self.slots[slot] = None;
            out.push((slot, Hit { clock: self.clock_of(values), ip }));
        }
        out
    }

    /// Number of counters beside the leader.
    pub fn members(&self) -> usize {
        self.members.len()
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |b| u64::from_ne_bytes(b.try_into().unwrap_or_default()))
}

/// Sample records of a ring, without their headers.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        loop {
            let header = bytes.get(..8)?;
            let kind = u32::from_ne_bytes(header[..4].try_into().ok()?);
            let size = usize::from(u16::from_ne_bytes(header[6..8].try_into().ok()?));
            let record = bytes.get(8..size)?;
            bytes = &bytes[size..];
            if kind == RECORD_SAMPLE {
                return Some(record);
            }
        }
    })
}

/// Identifier, instruction pointer, and pairs of value and id of a watchpoint's record.
fn hit(record: &[u8]) -> Option<(u64, u64, &[u8])> {
    let values = record.get(24..)?;
    let count = usize::try_from(word(record, 16)).ok()?;
    Some((word(record, 0), word(record, 8), values.get(..count.checked_mul(16)?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_are_cut_off_or_of_another_kind_are_left_out() {
        let mut bytes = Vec::new();
        let mut add = |kind: u32, body: &[u64]| {
            bytes.extend(kind.to_ne_bytes());
            bytes.extend([0, 0]);
            bytes.extend((8 + 8 * body.len() as u16).to_ne_bytes());
            body.iter().for_each(|w| bytes.extend(w.to_ne_bytes()));
        };
        add(RECORD_SAMPLE, &[7]);
        add(2, &[7, 1]);
        add(RECORD_SAMPLE, &[8, 0x1234, 2, 100, 1, 200, 2]);
        let seen: Vec<_> = records(&bytes).map(hit).collect();
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[0], None, "the leader's record has only its number");
        let (id, ip, values) = seen[1].unwrap();
        assert_eq!((id, ip, values.len(), word(values, 16)), (8, 0x1234, 32, 200));
        for cut in 0..bytes.len() {
            assert!(records(&bytes[..cut]).count() <= 2);
        }
        assert_eq!(records(&[0; 64]).count(), 0, "a size of 0 ends it");
        // More values than the record holds.
        let long: Vec<u8> = [1u64, 2, u64::MAX, 0].iter().flat_map(|w| w.to_ne_bytes()).collect();
        assert_eq!(hit(&long), None);
    }
}

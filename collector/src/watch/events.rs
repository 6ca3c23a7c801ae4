//! A thread's perf events: the one that stops it, those that count, and its watchpoints.
//!
//! All are one group, so that a watchpoint's record holds all counters at the moment of the hit,
//! and the registers. A watchpoint is an event of its own that is opened for one word and stays on
//! until it is closed; each hit stops the thread by the signal that the timer uses. None of them
//! counts or traps in the kernel.

use crate::watch::sampler::{Accesses, Clock, Hit};
use mgz_perf::attr::{ATTR_BYTES, Attr, FORMAT_ID, SW_TASK_CLOCK, TYPE_SOFTWARE, flag};
use mgz_perf::mmap_ring::Ring;
use mgz_perf::open::{
    IOC_DISABLE, IOC_ENABLE, IOC_PERIOD, IOC_SET_OUTPUT, id, open_perf_event, syscall_result,
};
use mgz_perf::records::bits;
use mgz_perf::records::kind;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

const TYPE_BREAKPOINT: u32 = 5;
/// HW_BREAKPOINT_R | HW_BREAKPOINT_W: the processor cannot watch reads alone.
const READ_WRITE: u32 = 3;
const FORMAT_GROUP: u64 = 8;
/// rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, and r8 to r15 (PERF_REG_X86_*), and their positions in
/// the order of their encoding.
const REGISTERS: u64 = 0xff_00ff;
const ENCODING: [usize; 16] = [0, 3, 1, 2, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
/// Bytes of the leader's record: its number, and the processor with four more bytes.
const LEADER_BYTES: usize = 16;
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

/// The trigger that stops threads, and the events that count accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchTrigger {
    /// Mean CPU time (ns) between stops, or number of loads if counters exist.
    pub period: u64,
    /// Number of the signal.
    pub signal: i32,
    /// Events that count loads and stores; the first one stops the thread. `None` where nothing
    /// counts them.
    pub counters: Option<[Counter; 2]>,
}

impl WatchTrigger {
    fn attr(&self) -> Attr {
        let (kind, config) = self
            .counters
            .as_ref()
            .map_or((TYPE_SOFTWARE, SW_TASK_CLOCK), |c| (c[0].kind, c[0].config));
        Attr {
            sample_period: self.period.max(1),
            sample_type: bits::IDENTIFIER | bits::CPU,
            ..counting(kind, config)
        }
    }
}

pub(crate) fn counting(kind: u32, config: u64) -> Attr {
    Attr {
        kind,
        size: ATTR_BYTES as u32,
        config,
        read_format: FORMAT_ID | FORMAT_GROUP,
        flags: flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV,
        ..Attr::default()
    }
}

/// `struct perf_event_attr` of a watchpoint: `bp_addr` is `config1`, `bp_len` is `config2`.
pub(crate) fn breakpoint(word: u64, bytes: u64) -> Attr {
    let attr = counting(TYPE_BREAKPOINT, 0);
    let sample_type = bits::IDENTIFIER | bits::IP | bits::READ | bits::REGS_USER;
    Attr {
        sample_period: 1,
        sample_type,
        sample_regs_user: REGISTERS,
        bp_type: READ_WRITE,
        config1: word,
        config2: bytes,
        flags: attr.flags | flag::DISABLED,
        ..attr
    }
}

struct Watchpoint {
    event: OwnedFd,
    id: u64,
}

/// Counts an event of the calling thread while `work` runs, and its samples, one in every `period`
/// events.
pub fn try_out(counter: &Counter, period: u64, work: impl FnOnce()) -> io::Result<(u64, u64)> {
    let attr = Attr {
        sample_period: period.max(1),
        sample_type: bits::IDENTIFIER,
        read_format: 0,
        ..counting(counter.kind, counter.config)
    };
    let event = open_perf_event(&attr, 0, -1, -1)?;
    let mut ring = Ring::map(&event, 1)?;
    work();
    let mut count = 0u64;
    // SAFETY: the number lives across the call, which writes its eight bytes.
    if unsafe { libc::read(event.as_raw_fd(), (&raw mut count).cast(), 8) } != 8 {
        return Err(io::Error::last_os_error());
    }
    let mut bytes = Vec::new();
    ring.drain(&mut bytes);
    Ok((
        count,
        records(&bytes)
            .filter(|(kind, _)| *kind == kind::SAMPLE)
            .count() as u64,
    ))
}

/// The events of one thread.
pub struct Events {
    // Fields are dropped in order, and the group's leader must be last.
    slots: Vec<Option<Watchpoint>>,
    ring: Ring,
    members: Vec<(OwnedFd, u64)>,
    clock_id: u64,
    counter_ids: Option<[u64; 2]>,
    leader: OwnedFd,
    thread: i32,
    period: u64,
    signal: i32,
    lost: u64,
    /// Records that were read but not yet examined.
    unread: Vec<u8>,
    /// Processor that the thread was last stopped on by the leader.
    processor: Option<u32>,
}

impl Events {
    /// Opens the events of a thread that stands still.
    pub fn open(trigger: &WatchTrigger, thread: i32, watchpoints: usize) -> io::Result<Events> {
        let leader = open_perf_event(&trigger.attr(), thread, -1, -1)?;
        let leader_id = id(&leader)?;
        let mut members = Vec::new();
        let mut member = |attr: &Attr| -> io::Result<u64> {
            let event = open_perf_event(attr, thread, -1, leader.as_raw_fd())?;
            let number = id(&event)?;
            members.push((event, number));
            Ok(number)
        };
        let (mut clock_id, mut counter_ids) = (leader_id, None);
        if let Some([_, stores]) = &trigger.counters {
            clock_id = member(&counting(TYPE_SOFTWARE, SW_TASK_CLOCK))?;
            counter_ids = Some([leader_id, member(&counting(stores.kind, stores.config))?]);
        }
        let ring = Ring::map(&leader, 1)?;
        signals(&leader, thread, trigger.signal)?;
        let slots = (0..watchpoints).map(|_| None).collect();
        Ok(Events {
            slots,
            ring,
            members,
            clock_id,
            counter_ids,
            leader,
            thread,
            period: trigger.period,
            signal: trigger.signal,
            lost: 0,
            unread: Vec::new(),
            processor: None,
        })
    }

    /// Sets the next period to a share of the configured one.
    pub fn next_period(&self, eighths: f64) {
        let next = (self.period as f64 * eighths).max(1.0) as u64;
        // SAFETY: the number lives across the call. If it fails, the period stays.
        unsafe { libc::ioctl(self.leader.as_raw_fd(), IOC_PERIOD, &raw const next) };
    }

    /// Pauses the whole group (without its leader none of its events runs), or lets it run.
    pub fn pause(&self, on: bool) {
        // SAFETY: integer arguments. It cannot fail for an event that is open.
        unsafe {
            libc::ioctl(
                self.leader.as_raw_fd(),
                if on { IOC_DISABLE } else { IOC_ENABLE },
                0,
            )
        };
    }

    /// The descriptor that signals carry.
    pub fn descriptor(&self) -> RawFd {
        self.leader.as_raw_fd()
    }

    fn clock_of(&self, values: &[u8]) -> Clock {
        let value = |id: u64| {
            values
                .chunks_exact(16)
                .find(|pair| pair[8..] == id.to_ne_bytes())
                .map_or(0, |pair| word(pair, 0))
        };
        let accesses = self.counter_ids.map(|[loads, stores]| Accesses {
            loads: value(loads),
            stores: value(stores),
        });
        Clock {
            cpu_ns: value(self.clock_id),
            accesses,
        }
    }

    /// The counters of the thread.
    pub fn clock(&self) -> io::Result<Clock> {
        let mut buffer = [0u8; 8 + 16 * 16];
        // SAFETY: the buffer lives across the call.
        let got = unsafe {
            libc::read(
                self.leader.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
            )
        };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(self.clock_of(buffer.get(8..got as usize).unwrap_or(&[])))
    }

    /// Watches a word with a slot.
    pub fn watch(&mut self, slot: usize, word: u64, bytes: u64) -> io::Result<()> {
        self.unwatch(slot);
        let event = open_perf_event(
            &breakpoint(word, bytes),
            self.thread,
            -1,
            self.leader.as_raw_fd(),
        )?;
        let id = id(&event)?;
        signals(&event, self.thread, self.signal)?;
        // SAFETY: integer arguments.
        unsafe {
            syscall_result(libc::ioctl(
                event.as_raw_fd(),
                IOC_SET_OUTPUT,
                self.leader.as_raw_fd(),
            ))?;
            syscall_result(libc::ioctl(event.as_raw_fd(), IOC_ENABLE, 0))?;
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

    fn drain(&mut self) {
        let from = self.unread.len();
        self.ring.drain(&mut self.unread);
        let stops = records(&self.unread[from..])
            .filter(|(kind, record)| *kind == kind::SAMPLE && record.len() == LEADER_BYTES);
        self.processor = stops
            .last()
            .map(|(_, record)| word(record, 8) as u32)
            .or(self.processor);
    }

    /// Processor on which the leader last stopped the thread.
    pub fn processor(&mut self) -> Option<u32> {
        self.drain();
        self.processor
    }

    /// Hits since the last call, in order, without those of closed watchpoints.
    pub fn hits(&mut self) -> Vec<(usize, Hit)> {
        self.drain();
        let bytes = std::mem::take(&mut self.unread);
        let mut out: Vec<(usize, Hit)> = Vec::new();
        for (kind, record) in records(&bytes) {
            if kind == kind::LOST {
                self.lost += word(record, 8);
                continue;
            }
            // Records of the group leader are shorter and hold no hit.
            let Some(seen) = hit(record) else { continue };
            let Some(slot) = self
                .slots
                .iter()
                .position(|s| s.as_ref().is_some_and(|w| w.id == seen.id))
            else {
                continue;
            };
            out.push((
                slot,
                Hit {
                    clock: self.clock_of(seen.values),
                    general: seen.general,
                    ip: seen.ip,
                },
            ));
        }
        out
    }

    /// Number of hits that the kernel had no room for.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Number of counters beside the leader.
    pub fn members(&self) -> usize {
        self.members.len()
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..at + 8)
        .map_or(0, |b| u64::from_ne_bytes(b.try_into().unwrap_or_default()))
}

/// Lets an event stop a thread.
pub(crate) fn signals(event: &OwnedFd, thread: i32, signal: i32) -> io::Result<()> {
    let owner = [0, thread];
    // SAFETY: the owner (F_OWNER_TID and the thread) lives across the call; the rest are integers.
    unsafe {
        syscall_result(libc::fcntl(event.as_raw_fd(), F_SETOWN_EX, owner.as_ptr()))?;
        syscall_result(libc::fcntl(event.as_raw_fd(), F_SETSIG, signal))?;
        syscall_result(libc::fcntl(
            event.as_raw_fd(),
            libc::F_SETFL,
            libc::O_ASYNC | libc::O_NONBLOCK,
        ))
    }
}

/// Records of a ring about samples and losses: kind, and the bytes after the header.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    std::iter::from_fn(move || {
        loop {
            let header = bytes.get(..8)?;
            let kind = u32::from_ne_bytes(header[..4].try_into().ok()?);
            let size = usize::from(u16::from_ne_bytes(header[6..8].try_into().ok()?));
            let record = bytes.get(8..size)?;
            bytes = &bytes[size..];
            if kind == kind::SAMPLE || kind == kind::LOST {
                return Some((kind, record));
            }
        }
    })
}

#[derive(Debug, PartialEq, Eq)]
struct WatchpointRecord<'a> {
    id: u64,
    ip: u64,
    /// Pairs of value and id.
    values: &'a [u8],
    general: [u64; 16],
}

/// Identifier, instruction pointer, counters and registers, as [`breakpoint`] asks for them.
fn hit(record: &[u8]) -> Option<WatchpointRecord<'_>> {
    const HEADER_BYTES: usize = 24;
    let count = usize::try_from(word(record, 16)).ok()?;
    let end = count.checked_mul(16)?.checked_add(HEADER_BYTES)?;
    let values = record.get(HEADER_BYTES..end)?;
    let mut general = [0; 16];
    // The ABI comes before the registers; 0 means that there are none.
    let listed = record.get(end + 8..end + 8 + 8 * ENCODING.len());
    if listed.is_none() && record.get(end..end + 8)? != [0; 8] {
        return None;
    }
    let listed = listed.unwrap_or(&[]);
    ENCODING
        .iter()
        .enumerate()
        .for_each(|(i, &to)| general[to] = word(listed, 8 * i));
    Some(WatchpointRecord {
        id: word(record, 0),
        ip: word(record, 8),
        values,
        general,
    })
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
        let registers: Vec<u64> = (0..16).map(|i| 100 + i).collect();
        add(kind::SAMPLE, &[7, 3]);
        add(3, &[7, 1]);
        add(kind::LOST, &[7, 5]);
        add(
            kind::SAMPLE,
            &[&[8, 0x1234, 2, 100, 1, 200, 2, 2], &registers[..]].concat(),
        );
        let all: Vec<_> = records(&bytes).collect();
        assert_eq!(
            all.iter().map(|r| r.0).collect::<Vec<_>>(),
            [kind::SAMPLE, kind::LOST, kind::SAMPLE]
        );
        assert_eq!(word(all[1].1, 8), 5);
        assert_eq!(
            hit(all[0].1),
            None,
            "the leader's record has only its number and the processor"
        );
        let seen = hit(all[2].1).unwrap();
        assert_eq!(
            (seen.id, seen.ip, seen.values.len(), word(seen.values, 16)),
            (8, 0x1234, 32, 200)
        );
        // rax rbx rcx rdx rsi rdi rbp rsp; in the order of encoding: rax rcx rdx rbx rsp rbp rsi
        // rdi.
        assert_eq!(
            seen.general,
            [
                100, 102, 103, 101, 107, 106, 104, 105, 108, 109, 110, 111, 112, 113, 114, 115
            ]
        );
        for cut in 0..bytes.len() {
            assert!(records(&bytes[..cut]).count() <= 3);
        }
        for cut in 0..all[2].1.len() {
            assert_eq!(hit(&all[2].1[..cut]), None);
        }
        assert_eq!(records(&[0; 64]).count(), 0, "a size of 0 ends it");
        // The record has no registers.
        let bare: Vec<u8> = [8u64, 0x1234, 0, 0]
            .iter()
            .flat_map(|w| w.to_ne_bytes())
            .collect();
        assert_eq!(hit(&bare).map(|s| s.general), Some([0; 16]));
        // The record claims more values than it holds.
        let long: Vec<u8> = [1u64, 2, u64::MAX, 0]
            .iter()
            .flat_map(|w| w.to_ne_bytes())
            .collect();
        assert_eq!(hit(&long), None);
    }
}

//! The memory that the kernel shares: a ring of records with a control page in front
//! (`struct perf_event_mmap_page`), and the AUX area with PT data.
//!
//! The kernel writes from `head` on and never beyond `tail` plus the size, so the bytes from `tail`
//! to `head` belong to us until `tail` is moved. Both only increase; offsets are taken modulo the
//! size, a power of two. An AUX area that is mapped read-only is a flight recorder: the kernel
//! overwrites it, and its head is only a position, so there is nothing to fetch.

use crate::kernel::Area;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// Offsets in the control page.
pub mod page {
    #![allow(missing_docs, reason = "the names are the kernel's")]
    pub const LOCK: usize = 8;
    pub const CAPABILITIES: usize = 40;
    pub const TIME_SHIFT: usize = 50;
    pub const TIME_MULT: usize = 52;
    pub const TIME_ZERO: usize = 64;
    pub const DATA_HEAD: usize = 1024;
    pub const DATA_TAIL: usize = 1032;
    pub const DATA_OFFSET: usize = 1040;
    pub const DATA_SIZE: usize = 1048;
    pub const AUX_HEAD: usize = 1056;
    pub const AUX_TAIL: usize = 1064;
    pub const AUX_OFFSET: usize = 1072;
    pub const AUX_SIZE: usize = 1080;
    /// Bit of `capabilities`: `time_zero` is valid.
    pub const CAP_USER_TIME_ZERO: u64 = 1 << 4;
}

/// Conversion of the time stamp counter to perf's clock: `zero + (tsc * mult >> shift)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeConversion {
    /// Shift.
    pub shift: u16,
    /// Multiplier.
    pub mult: u32,
    /// Offset, ns.
    pub zero: u64,
}

impl TimeConversion {
    /// perf's clock, ns, at a count of the TSC.
    pub fn ns(&self, tsc: u64) -> u64 {
        let product = (u128::from(tsc) * u128::from(self.mult)) >> self.shift.min(127);
        self.zero.wrapping_add(product as u64)
    }
}

struct Unmapped(NonNull<u8>, usize);

impl Drop for Unmapped {
    fn drop(&mut self) {
        // SAFETY: exactly the range that was mapped.
        unsafe { libc::munmap(self.0.as_ptr().cast(), self.1) };
    }
}

/// Maps memory that an event shares with the kernel.
pub fn map(event: &impl AsRawFd, len: usize, offset: u64, writable: bool) -> io::Result<Area> {
    let protection = if writable {
        libc::PROT_READ | libc::PROT_WRITE
    } else {
        libc::PROT_READ
    };
    // SAFETY: a new mapping.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            protection,
            libc::MAP_SHARED,
            event.as_raw_fd(),
            offset as libc::off_t,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let base = NonNull::new(base.cast()).expect("mmap gives no null without MAP_FIXED");
    // SAFETY: the mapping lives until `Unmapped` is dropped.
    Ok(unsafe { Area::new(base, len, Box::new(Unmapped(base, len))) })
}

/// One event's ring.
pub struct Ring {
    area: Area,
    offset: usize,
    size: usize,
    aux: Option<Area>,
    /// The AUX area must be emptied.
    fetched: bool,
}

/// PT data that was not read yet.
pub struct Pending<'a> {
    /// Offset in the stream.
    pub offset: u64,
    /// The part up to the area's end.
    pub first: &'a [u8],
    /// The part from the area's start.
    pub second: &'a [u8],
}

/// Bytes of a page.
pub const PAGE_SIZE: usize = 4096;

impl Ring {
    /// Maps the ring of an event, with `pages` pages for records, a power of two.
    pub fn map(event: &impl AsRawFd, pages: usize) -> io::Result<Ring> {
        let area = map(event, (1 + pages) * PAGE_SIZE, 0, true)?;
        Ring::new(area, PAGE_SIZE).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// A mapped ring: a control page and data behind it. `None` if the memory does not fit.
    pub fn new(area: Area, page: usize) -> Option<Ring> {
        let size = area.len().checked_sub(page)?;
        (page >= 2048 && size.is_power_of_two()).then_some(Ring {
            area,
            offset: page,
            size,
            aux: None,
            fetched: false,
        })
    }

    /// Bytes for records.
    pub fn size(&self) -> usize {
        self.size
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: aligned and inside the control page, which lives as long as the ring; the kernel
        // changes it atomically.
        unsafe { &*self.area.base().as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Tells the kernel how large the AUX area will be and where it will be mapped; returns that
    /// offset.
    pub fn announce_aux(&self, bytes: usize) -> u64 {
        let offset = self.area.len() as u64;
        self.word(page::AUX_OFFSET).store(offset, Ordering::Relaxed);
        self.word(page::AUX_SIZE)
            .store(bytes as u64, Ordering::Release);
        offset
    }

    /// Stores the mapped AUX area. `writable`: it must be emptied.
    pub fn set_aux(&mut self, area: Area, writable: bool) {
        self.aux = Some(area);
        self.fetched = writable;
    }

    /// Bytes of the AUX area.
    pub fn aux_size(&self) -> u64 {
        self.aux.as_ref().map_or(0, |area| area.len() as u64)
    }

    /// Clock parameters; `None` if the clock cannot be computed from the TSC.
    pub fn time_conversion(&self) -> Option<TimeConversion> {
        // SAFETY: as in `word`; the alignment is that of the fields.
        let (lock, shift, mult) = unsafe {
            let base = self.area.base().as_ptr();
            (
                &*base.add(page::LOCK).cast::<AtomicU32>(),
                &*base.add(page::TIME_SHIFT).cast::<AtomicU16>(),
                &*base.add(page::TIME_MULT).cast::<AtomicU32>(),
            )
        };
        // A sequence lock: odd or changed means that the kernel was writing.
        for _ in 0..1000 {
            let before = lock.load(Ordering::Acquire);
            let capabilities = self.word(page::CAPABILITIES).load(Ordering::Relaxed);
            let found = TimeConversion {
                shift: shift.load(Ordering::Relaxed),
                mult: mult.load(Ordering::Relaxed),
                zero: self.word(page::TIME_ZERO).load(Ordering::Relaxed),
            };
            fence(Ordering::Acquire);
            if before % 2 == 0 && lock.load(Ordering::Relaxed) == before {
                return (capabilities & page::CAP_USER_TIME_ZERO != 0 && found.mult != 0)
                    .then_some(found);
            }
        }
        None
    }

    /// Moves all available records to the end of `out`.
    pub fn drain(&mut self, out: &mut Vec<u8>) {
        let head = self.word(page::DATA_HEAD).load(Ordering::Acquire);
        let tail = self.word(page::DATA_TAIL).load(Ordering::Relaxed);
        // The length cannot exceed the ring's size.
        let length = usize::try_from(head.wrapping_sub(tail))
            .unwrap_or(usize::MAX)
            .min(self.size);
        let begin = (tail % self.size as u64) as usize;
        let first = length.min(self.size - begin);
        for (from, count) in [(begin, first), (0, length - first)] {
            // SAFETY: inside the data pages; the kernel does not write between tail and head.
            out.extend_from_slice(unsafe {
                std::slice::from_raw_parts(self.area.base().as_ptr().add(self.offset + from), count)
            });
        }
        self.word(page::DATA_TAIL).store(head, Ordering::Release);
    }

    /// PT data between the tail and the head; whole words only unless it is the `last` time, so
    /// that no padding comes between.
    pub fn pending(&self, last: bool) -> Option<Pending<'_>> {
        let area = self.aux.as_ref().filter(|_| self.fetched)?;
        let size = area.len() as u64;
        let head = self.word(page::AUX_HEAD).load(Ordering::Acquire);
        let tail = self.word(page::AUX_TAIL).load(Ordering::Relaxed);
        let mut length = head.wrapping_sub(tail).min(size);
        if !last {
            length &= !7;
        }
        if length == 0 {
            return None;
        }
        let begin = tail % size;
        let first = length.min(size - begin);
        let part = |from: u64, count: u64| {
            // SAFETY: inside the AUX area, which lives as long as the ring; the kernel does not
            // write between tail and head.
            unsafe {
                std::slice::from_raw_parts(area.base().as_ptr().add(from as usize), count as usize)
            }
        };
        Some(Pending {
            offset: tail,
            first: part(begin, first),
            second: part(0, length - first),
        })
    }

    /// Releases PT data of that length to the kernel.
    pub fn taken(&mut self, length: u64) {
        let tail = self.word(page::AUX_TAIL).load(Ordering::Relaxed);
        self.word(page::AUX_TAIL)
            .store(tail.wrapping_add(length), Ordering::Release);
    }
}

//! A hardware watchpoint of the calling thread: an event that sends it the trigger's signal when a
//! word is read or written.
//!
//! It is opened once and then set to other words, since opening takes long. The handler switches it
//! off. `PERF_EVENT_IOC_REFRESH`, which limits an event to one signal, is not used, since an event
//! that has disabled itself in this way never works again.

use crate::record::trigger::{self, IOC_DISABLE, IOC_ENABLE};
use crate::sys::syscall;
use core::cell::Cell;
use mgz_abi::shared_memory::Header;

const IOC_MODIFY: usize = 0x4008_240b;

/// The watchpoint of a thread. Zero: not opened yet.
#[repr(C)]
#[derive(Default)]
pub struct Watchpoint {
    /// Descriptor of the event; 0: not opened, −1: refused.
    event: Cell<i32>,
    /// The watchpoint is set.
    armed: Cell<bool>,
}

impl Watchpoint {
    /// True if the system refuses watchpoints.
    pub fn is_refused(&self) -> bool {
        self.event.get() < 0
    }

    /// True if a word is being watched.
    pub fn is_armed(&self) -> bool {
        self.armed.get()
    }

    /// True if a signal's descriptor is that of this watchpoint, set or not.
    pub fn is_ours(&self, descriptor: i32) -> bool {
        let event = self.event.get();
        event > 0 && event == descriptor
    }

    /// Watches the word at `address` from now on. Returns true on success.
    pub fn set(&self, header: &Header, address: u64) -> bool {
        let attributes = attributes(address);
        if self.event.get() == 0 {
            let opened = trigger::open_event(header, &attributes, syscall::gettid());
            self.event.set(opened.map_or(-1, |fd| fd as i32));
        } else if self.event.get() > 0
            && self.control(IOC_MODIFY, attributes.as_ptr() as usize) != 0
        {
            return false;
        }
        if self.event.get() <= 0 {
            return false;
        }
        self.armed.set(true);
        self.control(IOC_ENABLE, 0);
        true
    }

    /// Switches the watchpoint off. Returns true if it was set.
    pub fn clear(&self) -> bool {
        let armed = self.armed.replace(false);
        if armed {
            self.control(IOC_DISABLE, 0);
        }
        armed
    }

    /// Forgets the event without closing it, because it belongs to another process or the program
    /// has closed it.
    pub fn forget(&self) -> Option<i32> {
        self.armed.set(false);
        let event = self.event.replace(0);
        (event > 0).then_some(event)
    }

    fn control(&self, what: usize, argument: usize) -> isize {
        // SAFETY: integers, or attributes that live across the call; the event is the runtime's own
        // (if the program has not closed it).
        unsafe {
            syscall::call(
                syscall::nr::IOCTL,
                self.event.get() as usize,
                what,
                argument,
                0,
                0,
                0,
            )
        }
    }
}

/// Attributes of an event that fires when one of the eight bytes at `address` is read or written:
/// type breakpoint, period 1, one wake-up each.
fn attributes(address: u64) -> [u64; 9] {
    const BYTES: u64 = 72;
    const READ_WRITE: u64 = 3;
    // disabled, exclude_kernel, exclude_hv.
    const FLAGS: u64 = 1 | 1 << 5 | 1 << 6;
    [
        5 | BYTES << 32,
        0,
        1,
        0,
        0,
        FLAGS,
        1 | READ_WRITE << 32,
        address,
        8,
    ]
}

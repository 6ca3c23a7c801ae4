//! Services that a recording needs from the kernel, as a trait, so that it can be tested without
//! hardware.
//!
//! [`crate::kernel_linux::Linux`] is the real one. The one in the tests replays a transcript: a
//! tree of sysfs files, records and AUX data by CPU, with the kernel's own rules for full buffers.

use crate::attr::Attr;
use std::any::Any;
use std::io;
use std::ptr::NonNull;
use std::time::Duration;

/// An open event. Valid until [`Kernel::close_all`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(pub usize);

/// A counter's value, including those of all tasks that inherited it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Events that were counted.
    pub value: u64,
    /// Time for which the event was enabled, ns.
    pub enabled_ns: u64,
    /// Time for which the event was counting, ns.
    pub running_ns: u64,
}

impl Counted {
    /// The value scaled to the whole enabled time; 0 if the event never counted.
    pub fn estimate(&self) -> f64 {
        match self.running_ns {
            0 => 0.0,
            running => self.value as f64 * (self.enabled_ns as f64 / running as f64),
        }
    }
}

/// Operations on an open event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// The event counts from now on (`PERF_EVENT_IOC_ENABLE`), also in children that inherited it.
    Enable,
    /// The event stops (`PERF_EVENT_IOC_DISABLE`).
    Disable,
    /// The event's records go to another event's ring (`PERF_EVENT_IOC_SET_OUTPUT`).
    Output(EventId),
    /// Address filters (`PERF_EVENT_IOC_SET_FILTER`).
    Filter(String),
    /// A new period (`PERF_EVENT_IOC_PERIOD`). Children that inherited the event keep theirs; later
    /// ones inherit this one.
    Period(u64),
}

/// The services of the kernel.
pub trait Kernel {
    /// The text of a file of sysfs or procfs, by its absolute path.
    fn read(&self, path: &str) -> io::Result<String>;

    /// Names in a folder of sysfs, in any order.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;

    /// The kind of file system that a file is on (`statfs`, `f_type`).
    fn file_system(&self, path: &str) -> io::Result<i64>;

    /// `perf_event_open`. The descriptor is closed on exec.
    fn open(
        &mut self,
        attr: &Attr,
        pid: i32,
        cpu: i32,
        group: Option<EventId>,
    ) -> io::Result<EventId>;

    /// The id that the event's records carry.
    fn id(&mut self, event: EventId) -> io::Result<u64>;

    /// The value of a counter that was opened with [`crate::attr::FORMAT_TIMES`].
    fn count(&mut self, event: EventId) -> io::Result<Counted>;

    /// Performs an operation on an event (`ioctl`).
    fn control(&mut self, event: EventId, control: &Control) -> io::Result<()>;

    /// Maps the event's ring (`offset` 0) or AUX area.
    fn map(&mut self, event: EventId, len: usize, offset: u64, writable: bool) -> io::Result<Area>;

    /// Sleeps until a mapped ring should be emptied, but no longer than `timeout`. False once no
    /// task is left that could write to any of them.
    fn wait(&mut self, timeout: Duration) -> io::Result<bool>;

    /// Closes all events. Areas stay readable.
    fn close_all(&mut self);

    /// Bytes of a page.
    fn page(&self) -> usize;

    /// The time stamp counter. Never 0, which readers take for unknown.
    fn tsc(&self) -> u64;
}

/// Memory that is shared with the kernel, unmapped when dropped.
pub struct Area {
    base: NonNull<u8>,
    len: usize,
    _keep: Box<dyn Any>,
}

impl Area {
    /// Memory from `base` on.
    ///
    /// # Safety
    ///
    /// `len` bytes from `base` on, which is aligned to 8, must stay readable as long as `keep`
    /// lives.
    pub unsafe fn new(base: NonNull<u8>, len: usize, keep: Box<dyn Any>) -> Area {
        Area {
            base,
            len,
            _keep: keep,
        }
    }

    /// First byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

//! `struct perf_event_attr` as the kernel reads it (include/uapi/linux/perf_event.h, 120 bytes:
//! PERF_ATTR_SIZE_VER6).
//!
//! An older kernel accepts a longer structure than its own if the rest is zero, so one size suits
//! all kernels. It refuses unsupported fields (`aux_action` before 6.13) with EINVAL or E2BIG.

use crate::records::bits;

/// `perf_event_attr.type` of software events.
pub const TYPE_SOFTWARE: u32 = 1;
/// `perf_event_attr.type` of raw events of the core PMU, if sysfs has no other.
pub const TYPE_RAW: u32 = 4;
/// `perf_event_attr.type` of the kernel's own names for events of caches.
pub const TYPE_HW_CACHE: u32 = 3;
/// Software event: CPU time of the task, by a high resolution timer, ns.
pub const SW_TASK_CLOCK: u64 = 1;
/// Software event that never counts: carries records about mappings and threads.
pub const SW_DUMMY: u64 = 9;
/// `read_format`: a counter's value is followed by the times for which it was enabled and running.
pub const FORMAT_TIMES: u64 = 1 | 2;
/// `read_format`: counter values come with their id (as perf asks for).
pub const FORMAT_ID: u64 = 4;

/// `perf_event_attr`'s bit field.
pub mod flag {
    #![allow(missing_docs, reason = "the names are the kernel's")]
    pub const DISABLED: u64 = 1 << 0;
    pub const INHERIT: u64 = 1 << 1;
    pub const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub const EXCLUDE_HV: u64 = 1 << 6;
    pub const MMAP: u64 = 1 << 8;
    pub const COMM: u64 = 1 << 9;
    pub const ENABLE_ON_EXEC: u64 = 1 << 12;
    pub const TASK: u64 = 1 << 13;
    pub const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub const EXCLUDE_GUEST: u64 = 1 << 20;
    pub const EXCLUDE_CALLCHAIN_KERNEL: u64 = 1 << 21;
    pub const MMAP2: u64 = 1 << 23;
    pub const COMM_EXEC: u64 = 1 << 24;
    pub const USE_CLOCKID: u64 = 1 << 25;
    pub const CONTEXT_SWITCH: u64 = 1 << 26;
}

/// `perf_event_attr.aux_action` (Linux 6.13).
pub mod action {
    /// The AUX event starts paused.
    pub const START_PAUSED: u32 = 1;
    /// An overflow pauses the group's AUX event.
    pub const PAUSE: u32 = 2;
    /// An overflow resumes the group's AUX event. Excludes [`PAUSE`].
    pub const RESUME: u32 = 4;
}

/// Fields in the records of all our events.
pub const IDENTITY: u64 = bits::IP | bits::TID | bits::TIME | bits::IDENTIFIER;

/// An event, as `perf_event_open` takes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// Type number of the PMU.
    pub kind: u32,
    /// Size of this structure.
    pub size: u32,
    /// Event number, PMU-specific.
    pub config: u64,
    /// Events between samples (for clocks: ns).
    pub sample_period: u64,
    /// Fields of samples: `PERF_SAMPLE_*` bits.
    pub sample_type: u64,
    /// Fields of counter values: `PERF_FORMAT_*` bits.
    pub read_format: u64,
    /// Bits of [`flag`].
    pub flags: u64,
    /// Records between wakeups; 0: wake up when half of the ring is full.
    pub wakeup: u32,
    /// Unused here.
    pub bp_type: u32,
    /// PMU-specific.
    pub config1: u64,
    /// PMU-specific.
    pub config2: u64,
    /// Unused here.
    pub branch_sample_type: u64,
    /// Unused here.
    pub sample_regs_user: u64,
    /// Unused here.
    pub sample_stack_user: u32,
    /// Clock of the records with [`flag::USE_CLOCKID`]. PT needs perf's own clock.
    pub clockid: i32,
    /// Unused here.
    pub sample_regs_intr: u64,
    /// Bytes of AUX data between wakeups; 0: half of the area.
    pub aux_watermark: u32,
    /// Unused here.
    pub sample_max_stack: u16,
    /// Reserved.
    pub reserved_2: u16,
    /// Bytes of AUX data in a sample.
    pub aux_sample_size: u32,
    /// Bits of [`action`].
    pub aux_action: u32,
}

/// Bytes of [`Attr`].
pub const ATTR_BYTES: usize = 120;
const _: () = assert!(size_of::<Attr>() == ATTR_BYTES);

impl Attr {
    /// An event that follows a task's user code into its threads and children, but not into virtual
    /// machines that it runs.
    pub fn inherited(kind: u32, config: u64) -> Attr {
        use flag::{EXCLUDE_GUEST, EXCLUDE_HV, EXCLUDE_KERNEL, INHERIT, SAMPLE_ID_ALL};
        Attr {
            kind,
            size: ATTR_BYTES as u32,
            config,
            sample_period: 1,
            sample_type: IDENTITY,
            read_format: FORMAT_ID,
            flags: INHERIT | EXCLUDE_KERNEL | EXCLUDE_HV | EXCLUDE_GUEST | SAMPLE_ID_ALL,
            ..Attr::default()
        }
    }

    /// The bytes in perf.data files (little-endian, as on every machine with PT).
    pub fn bytes(&self) -> [u8; ATTR_BYTES] {
        let mut out = [0; ATTR_BYTES];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&self.kind.to_le_bytes());
        put(&self.size.to_le_bytes());
        for word in [
            self.config,
            self.sample_period,
            self.sample_type,
            self.read_format,
            self.flags,
        ] {
            put(&word.to_le_bytes());
        }
        put(&self.wakeup.to_le_bytes());
        put(&self.bp_type.to_le_bytes());
        for word in [
            self.config1,
            self.config2,
            self.branch_sample_type,
            self.sample_regs_user,
        ] {
            put(&word.to_le_bytes());
        }
        put(&self.sample_stack_user.to_le_bytes());
        put(&self.clockid.to_le_bytes());
        put(&self.sample_regs_intr.to_le_bytes());
        put(&self.aux_watermark.to_le_bytes());
        put(&self.sample_max_stack.to_le_bytes());
        put(&self.reserved_2.to_le_bytes());
        put(&self.aux_sample_size.to_le_bytes());
        put(&self.aux_action.to_le_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_what_the_kernel_reads() {
        let attr = Attr {
            config: 0x1234,
            sample_period: 7,
            aux_sample_size: 8192,
            aux_action: action::RESUME,
            aux_watermark: 5,
            clockid: -1,
            ..Attr::inherited(8, 0x1234)
        };
        let bytes = attr.bytes();
        // SAFETY: a plain structure without padding (its size is asserted to be the sum of its
        // fields).
        let native: [u8; ATTR_BYTES] = unsafe { std::mem::transmute(attr) };
        assert_eq!(bytes, native);
        assert_eq!(
            u32::from_le_bytes(bytes[112..116].try_into().unwrap()),
            8192
        );
        assert_eq!(bytes[116], 4);
    }
}

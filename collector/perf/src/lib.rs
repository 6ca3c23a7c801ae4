//! `perf_event_open`, its rings, and `/proc/PID/maps`.

pub mod attr;
pub mod clock_sampler;
pub mod kernel;
#[cfg(any(test, feature = "fake"))]
pub mod kernel_fake;
pub mod kernel_linux;
pub mod mmap_ring;
pub mod open;
pub mod pmu;
pub mod proc_maps;
pub mod records;
pub mod run_counters;

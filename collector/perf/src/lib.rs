//! `perf_event_open`, its rings, and perf.data files.

pub mod attr;
pub mod clock_sampler;
pub mod data_file;
pub mod kernel;
#[cfg(any(test, feature = "fake"))]
pub mod kernel_fake;
pub mod kernel_linux;
pub mod mmap_ring;
pub mod pmu;

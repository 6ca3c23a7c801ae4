//! Facts about a machine that recording depends on.

use serde::Serialize;
use std::collections::BTreeMap;

/// Facts that the processor reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Processor {
    /// Vendor string, e.g. `GenuineIntel`.
    pub vendor: String,
    /// CPUID: Intel Processor Trace.
    pub intel_pt: bool,
    /// CPUID: `ptwrite` packets.
    pub ptwrite: bool,
    /// CPUID: filters by IP range.
    pub ip_filtering: bool,
    /// CPUID: MTC packets.
    pub mtc: bool,
    /// CPUID: cycle packets and a choice of PSB distances.
    pub psb_cyc: bool,
    /// The instruction ran in a child process; `None` if that could not be tried.
    pub ptwrite_runs: Option<bool>,
    /// User programs may set segment bases (the software backend's need).
    pub fsgsbase: bool,
}

/// Features and permissions of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Kernel {
    /// Release, e.g. `6.1.0`.
    pub release: String,
    /// There is an `intel_pt` PMU.
    pub intel_pt: bool,
    /// Its capabilities, by name.
    pub caps: BTreeMap<String, String>,
    /// Its format fields, by name.
    pub format: BTreeMap<String, String>,
    /// Number of address filters it takes.
    pub address_filters: u32,
    /// Core PMUs (`cpu`, or `cpu_core` and `cpu_atom` on hybrid machines).
    pub core_pmus: Vec<String>,
    /// Events of those PMUs that sample loads.
    pub load_events: Vec<String>,
    /// `perf_event_paranoid`.
    pub paranoid: Option<i32>,
    /// `perf_event_mlock_kb`.
    pub mlock_kb: Option<u64>,
    /// PT data in samples (5.5).
    pub aux_sampling: bool,
    /// Tracing can be paused and resumed by other events (6.13).
    pub aux_pause: bool,
    /// A processor erratum that this kernel does not work around, and the remedy; empty if none is
    /// known.
    pub erratum: Vec<String>,
}

/// Rights of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rights {
    /// CAP_PERFMON or CAP_SYS_ADMIN.
    pub perfmon: bool,
    /// CAP_IPC_LOCK.
    pub ipc_lock: bool,
    /// Limit of locked memory, bytes; `None` if unlimited.
    pub memlock: Option<u64>,
}

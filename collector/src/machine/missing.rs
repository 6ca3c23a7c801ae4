//! Capabilities that recording with Intel PT lacks on this machine, with the remedies.

use crate::machine::facts::{Kernel, Processor, Rights};
use crate::machine::pt_facts::{BUILD_WITH_INTEL_PT, NO_INTEL_PT, Trials};
use serde::Serialize;

/// Something that is missing, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// True if this kind of recording is impossible without it. Otherwise it is only worse.
    pub required: bool,
    /// The missing capability.
    pub what: String,
    /// Remedy.
    pub remedy: String,
}

const OTHER_CPU: &str = "use the software backend, or a CPU with ptwrite: Goldmont Plus, Tremont, Gracemont; Alder Lake and newer; Sapphire Rapids and newer";

/// Requirements of Intel PT recording that are missing.
pub(crate) fn pt_missing(
    cpu: &Processor,
    kernel: &Kernel,
    rights: &Rights,
    trials: Option<&Trials>,
) -> Vec<Missing> {
    let untried = Trials::default();
    let mut search = Search {
        cpu,
        kernel,
        rights,
        trials: trials.unwrap_or(&untried),
        list: Vec::new(),
    };
    if trials.is_none() {
        search.missing(true, NO_INTEL_PT.into(), BUILD_WITH_INTEL_PT);
    }
    search.in_hardware();
    search.in_permissions();
    search.in_comfort();
    search.list
}

/// A search for missing capabilities.
struct Search<'a> {
    cpu: &'a Processor,
    kernel: &'a Kernel,
    rights: &'a Rights,
    trials: &'a Trials,
    list: Vec<Missing>,
}

impl Search<'_> {
    fn missing(&mut self, required: bool, what: String, remedy: &str) {
        self.list.push(Missing {
            required,
            what,
            remedy: remedy.into(),
        });
    }

    fn paranoid(&self) -> i32 {
        self.kernel.paranoid.unwrap_or(2)
    }

    /// The processor or the kernel's driver lacks a feature.
    fn in_hardware(&mut self) {
        let (cpu, kernel) = (self.cpu, self.kernel);
        if !cpu.intel_pt {
            let who = if cpu.vendor.is_empty() {
                "this processor"
            } else {
                &cpu.vendor
            };
            self.missing(true, format!("CPUID shows no Intel PT ({who})"), OTHER_CPU);
        } else if !cpu.ptwrite {
            self.missing(
                true,
                "Intel PT is there, but CPUID shows no ptwrite".into(),
                OTHER_CPU,
            );
        }
        if cpu.ptwrite && cpu.ptwrite_runs == Some(false) {
            self.missing(
                true,
                "ptwrite is in CPUID but raises SIGILL".into(),
                "a hypervisor seems to forbid it: record on the host itself",
            );
        }
        if cpu.intel_pt && !kernel.intel_pt {
            self.missing(
            true,
            "the kernel has no intel_pt PMU".into(),
            "use a kernel with perf events; in a guest, the host must pass PT on, which KVM of Linux 6.12 and newer (and of stable releases since November 2024) no longer does: record on the host itself, or use the software backend",
        );
        }
        if kernel.intel_pt && kernel.caps.get("ptwrite").is_some_and(|v| v == "0") {
            self.missing(
                true,
                "the intel_pt PMU reports no ptwrite".into(),
                OTHER_CPU,
            );
        }
        if kernel.intel_pt
            && let [what, remedy] = &kernel.erratum[..]
        {
            self.missing(false, what.clone(), remedy);
        }
    }

    /// This process may not open the PT event.
    fn in_permissions(&mut self) {
        let (rights, trials) = (self.rights, self.trials);
        let paranoid = self.paranoid();
        if paranoid > 2 && !rights.perfmon {
            self.missing(
                true,
                format!("perf_event_paranoid is {paranoid}"),
                "sysctl kernel.perf_event_paranoid=2, or give mgz-record CAP_PERFMON",
            );
        }
        if let Some(error) = trials
            .pt
            .as_ref()
            .filter(|error| !error.is_empty() && (paranoid <= 2 || rights.perfmon))
        {
            self.missing(
            true,
            format!("the kernel refuses the PT event ({error})"),
            "end other recordings that use Intel PT; in a container, let seccomp allow perf_event_open",
        );
        }
    }

    /// Recording works, but not as well as it could.
    fn in_comfort(&mut self) {
        let (kernel, rights, trials) = (self.kernel, self.rights, self.trials);
        if kernel.intel_pt && !kernel.aux_sampling {
            self.missing(
                false,
                format!("Linux {} cannot put PT data into samples", kernel.release),
                "use Linux 5.5 or newer; until then full traces and snapshots only",
            );
        }
        let counts_loads = trials.loads.values().any(String::is_empty)
            || trials.loads.is_empty() && !kernel.load_events.is_empty();
        if kernel.intel_pt && !counts_loads {
            self.missing(
                false,
                "no PMU event counts loads".into(),
                "samples are taken by CPU time instead; in a guest, let the host pass the PMU on",
            );
        }
        if kernel.intel_pt && !Trials::granted(&trials.pause).unwrap_or(kernel.aux_pause) {
            self.missing(
                false,
                format!("Linux {} cannot pause PT between samples", kernel.release),
                "use Linux 6.13 or newer; until then PT slows the program all the time",
            );
        }
        if kernel.intel_pt && kernel.address_filters == 0 {
            self.missing(
                false,
                "there are no address filters".into(),
                "choose functions with mgz-instrument --functions, not with mgz-record --functions",
            );
        }
        let limit = rights
            .memlock
            .map(|bytes| bytes >> 10)
            .map(|kb| kb + kernel.mlock_kb.unwrap_or(516));
        if let Some(kb) = limit
            .filter(|&kb| kb < 4096 && self.paranoid() >= 0 && !rights.perfmon && !rights.ipc_lock)
        {
            self.missing(
                false,
                format!("only {kb} KiB of memory may be locked for buffers"),
                "ulimit -l unlimited, or sysctl kernel.perf_event_mlock_kb=65536",
            );
        }
    }
}

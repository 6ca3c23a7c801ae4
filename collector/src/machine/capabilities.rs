//! Capabilities of this machine for recording, and remedies for missing ones: `mgz-record --probe`.
//!
//! Facts come from four places: CPUID, a trial of `ptwrite` in a child process (a hypervisor may
//! hide or forbid a feature that CPUID reports), files of the kernel, and the process's own limits.
//! The files are read below a given root, so that tests can show the module a machine that is not
//! there.

use crate::machine::facts::{Kernel, Processor, Rights};
use crate::machine::missing::{Missing, pt_missing};
use crate::machine::pt_facts::{PtFacts, Trials};
use crate::machine::trigger;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// Everything [`probe`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProbeReport {
    /// Processor.
    pub processor: Processor,
    /// Kernel.
    pub kernel: Kernel,
    /// Rights.
    pub rights: Rights,
    /// Events that the kernel granted when asked.
    pub trials: Trials,
    /// Requirements of Intel PT recording that are missing.
    pub pt_missing: Vec<Missing>,
    /// Requirements of software recording that are missing.
    pub soft_missing: Vec<Missing>,
    /// The choice of `--backend auto`: `pt`, `soft` or `none`.
    pub backend: String,
    /// Default trigger of `burst`: `loads` or `cpu time`.
    pub trigger: String,
    /// The reason for that trigger.
    pub trigger_why: String,
    /// Counters of loads and misses of a run in `burst`, or the reason why there are none.
    pub counters: String,
}

/// Looks at this machine. `pt`: facts about Intel PT, unless the build lacks it.
pub fn probe(pt: Option<PtFacts>) -> ProbeReport {
    let (trials, erratum) = pt.map(|pt| (pt.trials, pt.erratum)).unzip();
    let kernel = Kernel {
        erratum: erratum.unwrap_or_default(),
        ..kernel(Path::new("/"))
    };
    let report = report(processor(), kernel, rights(Path::new("/")), trials);
    let (trigger, trigger_why) =
        match trigger::choose_trigger(&trigger::Asked::default(), trigger::find_load_event) {
            Ok((trigger, why)) => (
                if trigger.by_loads() {
                    "loads"
                } else {
                    "cpu time"
                }
                .into(),
                why,
            ),
            Err(why) => (String::new(), why),
        };
    ProbeReport {
        trigger,
        trigger_why,
        counters: crate::machine::run_counters::describe(),
        ..report
    }
}

/// Draws the conclusions. `trials`: none in a build without Intel PT.
pub fn report(
    processor: Processor,
    kernel: Kernel,
    rights: Rights,
    trials: Option<Trials>,
) -> ProbeReport {
    let pt_missing = pt_missing(&processor, &kernel, &rights, trials.as_ref());
    let mut soft_missing = Vec::new();
    if !processor.fsgsbase {
        let what = "user programs cannot set segment bases (FSGSBASE)".into();
        soft_missing.push(Missing {
            required: true,
            what,
            remedy: "use Linux 5.9 or newer, without nofsgsbase on its command line".into(),
        });
    }
    let usable = |missing: &[Missing]| !missing.iter().any(|m| m.required);
    let backend = if usable(&pt_missing) {
        "pt"
    } else if usable(&soft_missing) {
        "soft"
    } else {
        "none"
    };
    ProbeReport {
        processor,
        kernel,
        rights,
        trials: trials.unwrap_or_default(),
        pt_missing,
        soft_missing,
        backend: backend.into(),
        ..ProbeReport::default()
    }
}

#[cfg(target_arch = "x86_64")]
fn processor() -> Processor {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    let leaf0 = __cpuid(0);
    let vendor: Vec<u8> = [leaf0.ebx, leaf0.edx, leaf0.ecx]
        .iter()
        .flat_map(|r| r.to_le_bytes())
        .collect();
    let mut cpu = Processor {
        vendor: String::from_utf8_lossy(&vendor).into_owned(),
        ..Processor::default()
    };
    if leaf0.eax >= 7 {
        cpu.intel_pt = __cpuid_count(7, 0).ebx >> 25 & 1 == 1;
    }
    if cpu.intel_pt && leaf0.eax >= 0x14 {
        let features = __cpuid_count(0x14, 0).ebx;
        cpu.psb_cyc = features >> 1 & 1 == 1;
        cpu.ip_filtering = features >> 2 & 1 == 1;
        cpu.mtc = features >> 3 & 1 == 1;
        cpu.ptwrite = features >> 4 & 1 == 1;
    }
    cpu.ptwrite_runs = try_ptwrite();
    // SAFETY: getauxval reads the process's auxiliary vector.
    let hwcap2 = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    cpu.fsgsbase = hwcap2 >> 1 & 1 == 1;
    cpu
}

#[cfg(not(target_arch = "x86_64"))]
fn processor() -> Processor {
    Processor::default()
}

/// Runs `ptwrite` in a child, which dies of SIGILL where it is not there.
#[cfg(target_arch = "x86_64")]
fn try_ptwrite() -> Option<bool> {
    // SAFETY: the child calls only setrlimit, signal and _exit, which are async-signal-safe, so
    // locks that other threads held at the fork do not matter. `ptwrite` changes neither registers
    // nor flags nor memory.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            let none = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            libc::setrlimit(libc::RLIMIT_CORE, &none);
            libc::signal(libc::SIGILL, libc::SIG_DFL);
            std::arch::asm!(
                ".byte 0xf3, 0x48, 0x0f, 0xae, 0xe0",
                options(nomem, nostack, preserves_flags)
            );
            libc::_exit(0);
        }
        child
    };
    if child < 0 {
        return None;
    }
    let mut status = 0;
    loop {
        // SAFETY: `status` outlives the call; the child is ours and not waited for elsewhere.
        let waited = unsafe { libc::waitpid(child, &mut status, 0) };
        if waited == child {
            return Some(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0);
        }
        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return None;
        }
    }
}

fn line(path: &Path) -> Option<String> {
    std::fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_string())
}

/// Files of a folder with their contents.
fn entries(path: &Path) -> BTreeMap<String, String> {
    let Ok(list) = std::fs::read_dir(path) else {
        return BTreeMap::new();
    };
    let named = list
        .flatten()
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, line(&entry.path())?)));
    named.collect()
}

/// True if a release is at least `major.minor`.
fn at_least(release: &str, major: u32, minor: u32) -> bool {
    let mut parts = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|n| n.parse::<u32>().unwrap_or(0));
    let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    found >= (major, minor)
}

fn kernel(root: &Path) -> Kernel {
    let devices = root.join("sys/bus/event_source/devices");
    let pt = devices.join("intel_pt");
    let release = line(&root.join("proc/sys/kernel/osrelease")).unwrap_or_default();
    let mut kernel = Kernel {
        intel_pt: pt.join("type").exists(),
        caps: entries(&pt.join("caps")),
        format: entries(&pt.join("format")),
        address_filters: line(&pt.join("nr_addr_filters"))
            .and_then(|n| n.parse().ok())
            .unwrap_or(0),
        paranoid: line(&root.join("proc/sys/kernel/perf_event_paranoid"))
            .and_then(|n| n.parse().ok()),
        mlock_kb: line(&root.join("proc/sys/kernel/perf_event_mlock_kb"))
            .and_then(|n| n.parse().ok()),
        aux_sampling: at_least(&release, 5, 5),
        aux_pause: at_least(&release, 6, 13),
        release,
        ..Kernel::default()
    };
    for pmu in ["cpu", "cpu_core", "cpu_atom"] {
        let path = devices.join(pmu);
        if path.join("type").exists() {
            kernel.core_pmus.push(pmu.into());
            let events = entries(&path.join("events"));
            kernel.load_events.extend(
                ["mem-loads", "mem-loads-aux"]
                    .iter()
                    .filter(|e| events.contains_key(**e))
                    .map(|e| format!("{pmu}/{e}/")),
            );
        }
    }
    kernel
}

fn rights(root: &Path) -> Rights {
    let status = std::fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    let capabilities = status
        .lines()
        .find_map(|l| l.strip_prefix("CapEff:"))
        .and_then(|l| u64::from_str_radix(l.trim(), 16).ok())
        .unwrap_or(0);
    let has = |bit: u32| capabilities >> bit & 1 == 1;
    let limits = std::fs::read_to_string(root.join("proc/self/limits")).unwrap_or_default();
    let memlock = limits
        .lines()
        .find_map(|l| l.strip_prefix("Max locked memory"))
        .and_then(|l| l.split_whitespace().next()?.parse().ok());
    Rights {
        perfmon: has(38) || has(21),
        ipc_lock: has(14),
        memlock,
    }
}

impl fmt::Display for ProbeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.machine(f)?;
        self.permissions(f)?;
        self.verdicts(f)?;
        if !self.trigger.is_empty() {
            writeln!(f, "bursts      by {} ({})", self.trigger, self.trigger_why)?;
        }
        if !self.counters.is_empty() {
            writeln!(f, "counters    {}", self.counters)?;
        }
        writeln!(f, "--backend auto takes: {}", self.backend)
    }
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

impl ProbeReport {
    /// The processor, the kernel and its PMUs.
    fn machine(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cpu, kernel) = (&self.processor, &self.kernel);
        let trial = cpu.ptwrite_runs.map_or("not tried", yes);
        writeln!(
            f,
            "processor   {}: Intel PT {}, ptwrite {} (runs: {trial}), FSGSBASE {}",
            cpu.vendor,
            yes(cpu.intel_pt),
            yes(cpu.ptwrite),
            yes(cpu.fsgsbase)
        )?;
        writeln!(
            f,
            "kernel      {}: intel_pt {}, {} address filters, AUX sampling {}, pause and resume {}",
            kernel.release,
            yes(kernel.intel_pt),
            kernel.address_filters,
            yes(kernel.aux_sampling),
            yes(kernel.aux_pause)
        )?;
        let sorted = |map: &BTreeMap<String, String>| {
            map.iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        if !kernel.caps.is_empty() {
            writeln!(f, "PT caps     {}", sorted(&kernel.caps))?;
            writeln!(f, "PT format   {}", sorted(&kernel.format))?;
        }
        let list = |names: &[String]| {
            if names.is_empty() {
                "none".to_string()
            } else {
                names.join(", ")
            }
        };
        writeln!(
            f,
            "PMUs        {}; load events: {}",
            list(&kernel.core_pmus),
            list(&kernel.load_events)
        )
    }

    /// The rights of this process, and the events that it was granted.
    fn permissions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kernel, rights) = (&self.kernel, &self.rights);
        let number = |n: Option<String>| n.unwrap_or_else(|| "unknown".into());
        let locked = rights
            .memlock
            .map_or("unlimited".into(), |b| format!("{} KiB", b >> 10));
        writeln!(
            f,
            "rights      perf_event_paranoid {}, perf_event_mlock_kb {}, CAP_PERFMON {}, locked memory {locked}",
            number(kernel.paranoid.map(|n| n.to_string())),
            number(kernel.mlock_kb.map(|n| n.to_string())),
            yes(rights.perfmon)
        )?;
        let verdict = |trial: Option<&String>| {
            trial.map_or("not tried".to_string(), |error| {
                if error.is_empty() {
                    "granted".into()
                } else {
                    format!("refused ({error})")
                }
            })
        };
        let trials = &self.trials;
        let loads: String = trials
            .loads
            .iter()
            .map(|(pmu, error)| format!(", loads on {pmu} {}", verdict(Some(error))))
            .collect();
        let loads = if loads.is_empty() {
            ", loads not tried".into()
        } else {
            loads
        };
        let (clock, pt, pause) = (
            verdict(trials.clock.as_ref()),
            verdict(trials.pt.as_ref()),
            verdict(trials.pause.as_ref()),
        );
        writeln!(
            f,
            "events      clock {clock}, PT {pt}, PT with pauses {pause}{loads}"
        )
    }

    /// Each way to record, with the capabilities that it lacks.
    fn verdicts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, missing) in [
            ("Intel PT", &self.pt_missing),
            ("software", &self.soft_missing),
        ] {
            let verdict = if missing.iter().any(|m| m.required) {
                "cannot record"
            } else {
                "can record"
            };
            writeln!(f, "{name:<11} {verdict}")?;
            for m in missing {
                writeln!(
                    f,
                    "            {}{}: {}",
                    if m.required { "" } else { "(not required) " },
                    m.what,
                    m.remedy
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A hybrid machine that has everything.
    fn machine(root: &Path) {
        write(root, "proc/sys/kernel/osrelease", "6.13.2-generic\n");
        write(root, "proc/sys/kernel/perf_event_paranoid", "2\n");
        write(root, "proc/sys/kernel/perf_event_mlock_kb", "516\n");
        write(
            root,
            "proc/self/status",
            "Name:\tx\nCapEff:\t0000000000000000\n",
        );
        write(
            root,
            "proc/self/limits",
            "Max locked memory         8388608              8388608              bytes\n",
        );
        let pt = "sys/bus/event_source/devices/intel_pt";
        write(root, &format!("{pt}/type"), "9\n");
        write(root, &format!("{pt}/nr_addr_filters"), "2\n");
        write(root, &format!("{pt}/caps/ptwrite"), "1\n");
        write(root, &format!("{pt}/format/ptw"), "config:12\n");
        for pmu in ["cpu_core", "cpu_atom"] {
            write(
                root,
                &format!("sys/bus/event_source/devices/{pmu}/type"),
                "4\n",
            );
            write(
                root,
                &format!("sys/bus/event_source/devices/{pmu}/events/mem-loads"),
                "event=0xd0,umask=0x5\n",
            );
        }
    }

    fn full() -> Processor {
        Processor {
            vendor: "GenuineIntel".into(),
            intel_pt: true,
            ptwrite: true,
            ip_filtering: true,
            mtc: true,
            psb_cyc: true,
            ptwrite_runs: Some(true),
            fsgsbase: true,
        }
    }

    fn missing(processor: Processor, root: &Path) -> (Vec<String>, String) {
        let report = report(
            processor,
            kernel(root),
            rights(root),
            Some(Trials::default()),
        );
        assert!(report.to_string().contains("--backend auto takes"));
        (
            report
                .pt_missing
                .iter()
                .filter(|m| m.required)
                .map(|m| m.what.clone())
                .collect(),
            report.backend,
        )
    }

    #[test]
    fn a_machine_with_everything_records_with_pt() {
        let dir = tempfile::tempdir().unwrap();
        machine(dir.path());
        let kernel = kernel(dir.path());
        assert_eq!(
            (kernel.address_filters, kernel.aux_pause, kernel.paranoid),
            (2, true, Some(2))
        );
        assert_eq!(kernel.core_pmus, ["cpu_core", "cpu_atom"]);
        assert_eq!(
            kernel.load_events,
            ["cpu_core/mem-loads/", "cpu_atom/mem-loads/"]
        );
        assert_eq!(kernel.format["ptw"], "config:12");
        assert_eq!(
            rights(dir.path()),
            Rights {
                perfmon: false,
                ipc_lock: false,
                memlock: Some(8_388_608)
            }
        );
        let report = report(full(), kernel, rights(dir.path()), Some(Trials::default()));
        assert_eq!((report.pt_missing, report.backend.as_str()), (vec![], "pt"));
    }

    #[test]
    fn what_is_missing_is_said_and_software_takes_over() {
        let dir = tempfile::tempdir().unwrap();
        machine(dir.path());
        let (list, backend) = missing(
            Processor {
                ptwrite: false,
                ptwrite_runs: Some(false),
                ..full()
            },
            dir.path(),
        );
        assert_eq!(
            (list, backend.as_str()),
            (
                vec!["Intel PT is there, but CPUID shows no ptwrite".to_string()],
                "soft"
            )
        );
        let (list, _) = missing(
            Processor {
                ptwrite_runs: Some(false),
                ..full()
            },
            dir.path(),
        );
        assert_eq!(list, ["ptwrite is in CPUID but raises SIGILL"]);
        write(dir.path(), "proc/sys/kernel/perf_event_paranoid", "4\n");
        let (list, _) = missing(full(), dir.path());
        assert_eq!(list, ["perf_event_paranoid is 4"]);
        write(
            dir.path(),
            "proc/self/status",
            "CapEff:\t0000004000000000\n",
        );
        assert_eq!(missing(full(), dir.path()), (vec![], "pt".into()));
        std::fs::remove_file(
            dir.path()
                .join("sys/bus/event_source/devices/intel_pt/type"),
        )
        .unwrap();
        assert_eq!(
            missing(full(), dir.path()).0,
            ["the kernel has no intel_pt PMU"]
        );
        let neither = Processor {
            vendor: "AuthenticAMD".into(),
            ..Processor::default()
        };
        let (list, backend) = missing(neither, dir.path());
        assert_eq!(
            (list[0].as_str(), backend.as_str()),
            ("CPUID shows no Intel PT (AuthenticAMD)", "none")
        );
    }

    #[test]
    fn an_old_kernel_and_little_memory_are_no_obstacles_but_are_said() {
        let dir = tempfile::tempdir().unwrap();
        machine(dir.path());
        write(dir.path(), "proc/sys/kernel/osrelease", "5.4.0\n");
        write(
            dir.path(),
            "proc/self/limits",
            "Max locked memory         65536                65536                bytes\n",
        );
        let report = report(
            full(),
            kernel(dir.path()),
            rights(dir.path()),
            Some(Trials::default()),
        );
        assert_eq!(report.backend, "pt");
        let said: Vec<_> = report.pt_missing.iter().map(|m| m.what.as_str()).collect();
        assert_eq!(
            said,
            [
                "Linux 5.4.0 cannot put PT data into samples",
                "Linux 5.4.0 cannot pause PT between samples",
                "only 580 KiB of memory may be locked for buffers"
            ]
        );
        write(
            dir.path(),
            "proc/self/limits",
            "Max locked memory         unlimited            unlimited            bytes\n",
        );
        assert_eq!(rights(dir.path()).memlock, None);
    }

    #[test]
    fn a_processor_with_an_erratum_is_named_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        machine(dir.path());
        let told = |erratum: &[&str]| {
            let kernel = Kernel {
                erratum: erratum.iter().map(|&text| text.to_owned()).collect(),
                ..kernel(dir.path())
            };
            let report = report(full(), kernel, rights(dir.path()), Some(Trials::default()));
            assert_eq!(report.backend, "pt");
            report.to_string()
        };
        let text = told(&["erratum ADL037", "use Linux 5.15.80"]);
        assert!(text.contains("erratum ADL037: use Linux 5.15.80"), "{text}");
        assert!(!told(&[]).contains("ADL037"));
    }

    /// KVM no longer passes PT on to guests, so the module's parameter is no remedy.
    #[test]
    fn guests_are_not_sent_after_a_parameter_that_does_nothing() {
        let dir = tempfile::tempdir().unwrap();
        machine(dir.path());
        let kernel = Kernel {
            intel_pt: false,
            ..kernel(dir.path())
        };
        let report = report(full(), kernel, rights(dir.path()), Some(Trials::default()));
        let text = report.to_string();
        assert!(!text.contains("pt_mode"), "{text}");
        assert!(
            text.contains("6.12") && text.contains("record on the host"),
            "{text}"
        );
    }

    #[test]
    fn what_the_kernel_says_when_asked_counts_more_than_what_it_shows() {
        let dir = tempfile::tempdir().unwrap();
        machine(dir.path());
        let asked = |trials: Trials| {
            let report = report(full(), kernel(dir.path()), rights(dir.path()), Some(trials));
            let text = report.to_string();
            (
                report.backend,
                report
                    .pt_missing
                    .into_iter()
                    .map(|m| m.what)
                    .collect::<Vec<_>>(),
                text,
            )
        };
        let granted = Trials {
            clock: Some(String::new()),
            pt: Some(String::new()),
            pause: Some(String::new()),
            loads: [("cpu_core".to_string(), String::new())].into(),
        };
        let (backend, missing, text) = asked(granted.clone());
        assert_eq!((backend.as_str(), missing), ("pt", vec![]));
        assert!(text.contains("events      clock granted, PT granted, PT with pauses granted, loads on cpu_core granted"), "{text}");
        assert!(
            text.contains("PT caps     ptwrite=1") && text.contains("PT format   ptw=config:12"),
            "{text}"
        );
        let (backend, missing, _) = asked(Trials {
            pt: Some("Device or resource busy".into()),
            ..granted.clone()
        });
        assert_eq!(
            (backend.as_str(), missing),
            (
                "soft",
                vec!["the kernel refuses the PT event (Device or resource busy)".to_string()]
            )
        );
        let poor = Trials {
            pause: Some("Invalid argument".into()),
            loads: [("cpu_core".to_string(), "No such file".to_string())].into(),
            ..granted
        };
        let (backend, missing, _) = asked(poor);
        assert_eq!(backend, "pt");
        assert_eq!(
            missing,
            [
                "no PMU event counts loads",
                "Linux 6.13.2-generic cannot pause PT between samples"
            ]
        );
    }

    #[test]
    fn this_machine_is_told_consistently() {
        let report = probe(Some(PtFacts::default()));
        // CPUID without ptwrite and a trial that succeeds would contradict each other.
        assert!(report.processor.ptwrite_runs.is_some());
        assert!(report.processor.intel_pt || !report.processor.ptwrite);
        assert!(!report.kernel.release.is_empty());
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["backend"], report.backend);
    }

    #[test]
    fn a_build_without_intel_pt_is_told_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        machine(dir.path());
        let report = report(full(), kernel(dir.path()), rights(dir.path()), None);
        assert_eq!(report.backend, "soft");
        let text = report.to_string();
        assert!(
            text.contains("this build has no Intel PT: build with --features intel-pt"),
            "{text}"
        );
    }
}

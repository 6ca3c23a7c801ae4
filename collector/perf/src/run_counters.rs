//! Counters of loads and misses over a whole run.
//!
//! The events are opened on the calling thread, disabled. The program that this thread starts next
//! inherits them with all its threads and children, and they count from its `execve` on, in user
//! code only. There may be more events than the processor has counters: the kernel then multiplexes
//! them, and each reports how long it counted.
//!
//! Intel's processors since Haswell count retired loads by the level that they missed. On other
//! processors the kernel's generic events are used, whose meaning varies more.

use crate::attr::{ATTR_BYTES, Attr, FORMAT_TIMES, TYPE_HW_CACHE, flag};
use crate::kernel::{Counted, EventId, Kernel};
use crate::pmu::Pmu;
use std::io;

/// Kind of a counted event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CountedKind {
    /// Loads.
    Loads,
    /// Loads that missed the first level.
    MissesL1,
    /// Loads of a line that was already being fetched into the first level. They count as neither
    /// hits nor misses.
    OnItsWay,
    /// Loads that missed the second level.
    MissesL2,
    /// Loads that missed the last level.
    MissesLast,
    /// Loads whose page was in no level of the TLB.
    MissesTlb,
}

impl CountedKind {
    /// The kind's name in manifests.
    pub fn name(self) -> &'static str {
        match self {
            CountedKind::Loads => "loads",
            CountedKind::MissesL1 => "l1_misses",
            CountedKind::OnItsWay => "lines_on_their_way",
            CountedKind::MissesL2 => "l2_misses",
            CountedKind::MissesLast => "last_level_misses",
            CountedKind::MissesTlb => "tlb_misses",
        }
    }
}

/// An event in terms of `perf_event_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedEvent {
    /// Kind of the counted events.
    pub what: CountedKind,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
}

/// Events of Intel's processors since Haswell: umask and event of MEM_INST_RETIRED (MEM_UOPS_RETIRED
/// before Skylake) and MEM_LOAD_RETIRED.
const INTEL: [(CountedKind, u64); 6] = [
    (CountedKind::Loads, 0x81d0),
    (CountedKind::MissesL1, 0x08d1),
    (CountedKind::OnItsWay, 0x40d1),
    (CountedKind::MissesL2, 0x10d1),
    (CountedKind::MissesLast, 0x20d1),
    (CountedKind::MissesTlb, 0x11d0),
];

/// Requests of the first level that missed the second one, on AMD's Zen processors
/// (L2CacheReqStat.LsRdBlkC). Their L3 has no counters per program.
const AMD_MISSES_L2: u64 = 0x0864;

/// The kernel's generic cache events: the cache (L1D 0, LL 2, DTLB 3) and, from bit 16 on, access 0
/// or miss 1.
const GENERIC: [(CountedKind, u64); 4] = [
    (CountedKind::Loads, 0),
    (CountedKind::MissesL1, 0x1_0000),
    (CountedKind::MissesLast, 0x1_0002),
    (CountedKind::MissesTlb, 0x1_0003),
];

/// The events of this machine. The error names the missing part.
pub fn events(kernel: &dyn Kernel) -> Result<Vec<CountedEvent>, &'static str> {
    let cores = Pmu::cores(kernel);
    let raw = match cores.as_slice() {
        [] => return Err("the machine has no PMU (virtual machines often hide it)"),
        [one] => one.kind,
        _ => return Err("the machine has several kinds of cores, and an event counts on one"),
    };
    let cpuinfo = kernel.read("/proc/cpuinfo").unwrap_or_default();
    let vendor = cpuinfo.lines().find(|l| l.starts_with("vendor_id"));
    let vendor = vendor.and_then(|l| l.split(':').nth(1)).map(str::trim);
    let event =
        |kind: u32| move |&(what, config): &(CountedKind, u64)| CountedEvent { what, kind, config };
    Ok(match vendor {
        Some("GenuineIntel") => INTEL.iter().map(event(raw)).collect(),
        Some("AuthenticAMD") => {
            // On these processors the kernel has no events of the last level.
            let generic = GENERIC.iter().filter(|g| g.0 != CountedKind::MissesLast);
            let second = [(CountedKind::MissesL2, AMD_MISSES_L2)];
            let generic = generic.map(event(TYPE_HW_CACHE));
            generic.chain(second.iter().map(event(raw))).collect()
        }
        _ => GENERIC.iter().map(event(TYPE_HW_CACHE)).collect(),
    })
}

fn attr(event: &CountedEvent) -> Attr {
    Attr {
        kind: event.kind,
        size: ATTR_BYTES as u32,
        config: event.config,
        read_format: FORMAT_TIMES,
        flags: flag::DISABLED
            | flag::INHERIT
            | flag::ENABLE_ON_EXEC
            | flag::EXCLUDE_KERNEL
            | flag::EXCLUDE_HV
            | flag::EXCLUDE_GUEST,
        ..Attr::default()
    }
}

/// Open events.
pub struct RunCounters<K> {
    kernel: K,
    open: Vec<(CountedEvent, EventId)>,
}

impl<K: Kernel> RunCounters<K> {
    /// Opens the events of this machine, for the next program that this thread starts. Events that
    /// the kernel refuses are omitted. Loads must be among the rest, since misses mean little
    /// without them. The error is the end of a sentence.
    pub fn open(kernel: K) -> Result<RunCounters<K>, String> {
        let events = events(&kernel)?;
        RunCounters::open_events(kernel, events)
    }

    fn open_events(mut kernel: K, events: Vec<CountedEvent>) -> Result<RunCounters<K>, String> {
        const ANY_CPU: i32 = -1;
        const THIS_THREAD: i32 = 0;
        let mut open = Vec::new();
        let mut refused: Option<io::Error> = None;
        for event in events {
            match kernel.open(&attr(&event), THIS_THREAD, ANY_CPU, None) {
                Ok(id) => open.push((event, id)),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        match open.first() {
            Some((first, _)) if first.what == CountedKind::Loads => {
                Ok(RunCounters { kernel, open })
            }
            _ => {
                let why = refused.map_or_else(String::new, |e| format!(" ({e})"));
                Err(format!("the kernel refuses to count loads{why}"))
            }
        }
    }

    /// Kinds of the open events.
    pub fn kinds(&self) -> Vec<CountedKind> {
        self.open.iter().map(|(event, _)| event.what).collect()
    }

    /// The values of the program and of all tasks that inherited the events, without events that
    /// never counted. Closes the events.
    pub fn finish(mut self) -> Vec<(CountedEvent, Counted)> {
        let mut found = Vec::new();
        for (event, id) in &self.open {
            if let Ok(counted) = self.kernel.count(*id)
                && counted.running_ns > 0
            {
                found.push((*event, counted));
            }
        }
        self.kernel.close_all();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_fake::Fake;

    const TYPE: &str = "/sys/bus/event_source/devices/cpu/type";

    fn machine(files: &[(&str, &str)]) -> Fake {
        let files = files
            .iter()
            .map(|(path, text)| (path.to_string(), text.to_string()));
        Fake::new(files.collect())
    }

    #[test]
    fn events_are_those_of_the_processor() {
        let of = |files: &[(&str, &str)]| events(&machine(files));
        assert!(of(&[]).unwrap_err().contains("no PMU"));
        let intel = of(&[
            (TYPE, "4\n"),
            ("/proc/cpuinfo", "vendor_id\t: GenuineIntel\n"),
        ]);
        let intel = intel.unwrap();
        assert_eq!(
            intel[0],
            CountedEvent {
                what: CountedKind::Loads,
                kind: 4,
                config: 0x81d0
            }
        );
        assert_eq!(intel.len(), 6);
        let amd = of(&[
            (TYPE, "4\n"),
            ("/proc/cpuinfo", "vendor_id : AuthenticAMD\n"),
        ])
        .unwrap();
        let found: Vec<_> = amd.iter().map(|e| (e.what, e.kind, e.config)).collect();
        assert_eq!(
            found,
            [
                (CountedKind::Loads, TYPE_HW_CACHE, 0),
                (CountedKind::MissesL1, TYPE_HW_CACHE, 0x1_0000),
                (CountedKind::MissesTlb, TYPE_HW_CACHE, 0x1_0003),
                (CountedKind::MissesL2, 4, AMD_MISSES_L2),
            ]
        );
        let other = of(&[(TYPE, "4\n"), ("/proc/cpuinfo", "")]).unwrap();
        assert!(other.iter().all(|e| e.kind == TYPE_HW_CACHE));
        let atom = "/sys/bus/event_source/devices/cpu_atom/type";
        let core = "/sys/bus/event_source/devices/cpu_core/type";
        let hybrid = of(&[(core, "4"), (atom, "10")]);
        assert!(hybrid.unwrap_err().contains("several kinds"));
    }

    /// The test counts CPU time instead of loads, since every machine can.
    #[test]
    fn the_program_that_is_started_next_is_counted_with_its_children() {
        use crate::attr::{SW_TASK_CLOCK, TYPE_SOFTWARE};
        let event = CountedEvent {
            what: CountedKind::Loads,
            kind: TYPE_SOFTWARE,
            config: SW_TASK_CLOCK,
        };
        let open = || RunCounters::open_events(crate::kernel_linux::Linux::default(), vec![event]);
        let counters = match open() {
            Ok(counters) => counters,
            Err(why) => {
                eprintln!("SKIPPED: {why}");
                return;
            }
        };
        // Most of the work is done by a grandchild.
        let script = "(i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done) & wait; exit 7";
        let mut shell = std::process::Command::new("/bin/sh");
        let status = shell.args(["-c", script]).status().unwrap();
        assert_eq!(status.code(), Some(7));
        let found = counters.finish();
        let counted = found[0].1;
        assert!(counted.value > 5_000_000, "{counted:?}");
        assert_eq!(counted.running_ns, counted.enabled_ns);
        // Nothing was started, and this thread itself is not counted.
        assert!(open().unwrap().finish().is_empty());
    }

    #[test]
    fn a_run_is_counted_as_far_as_the_kernel_lets_us() {
        let mut fake = machine(&[
            (TYPE, "4\n"),
            ("/proc/cpuinfo", "vendor_id : GenuineIntel\n"),
        ]);
        fake.refuse = Box::new(|attr, _| (attr.config == 0x11d0).then_some(libc::EINVAL));
        fake.counts = [
            (0x81d0, [1000, 100, 100]),
            (0x08d1, [30, 100, 50]),
            // This event was never counting.
            (0x20d1, [0, 100, 0]),
        ]
        .map(|(config, [value, enabled_ns, running_ns])| {
            let counted = Counted {
                value,
                enabled_ns,
                running_ns,
            };
            (config, counted)
        })
        .into();
        let counters = RunCounters::open(fake).unwrap();
        let inherited = flag::INHERIT | flag::ENABLE_ON_EXEC | flag::DISABLED;
        for (_, id) in &counters.open {
            let opened = &counters.kernel.events[id.0];
            assert_eq!(opened.attr.flags & inherited, inherited);
            assert_eq!((opened.pid, opened.cpu, opened.group), (0, u32::MAX, None));
        }
        assert!(!counters.kinds().contains(&CountedKind::MissesTlb));
        let found = counters.finish();
        let found: Vec<_> = found.iter().map(|(e, c)| (e.what, c.estimate())).collect();
        assert_eq!(
            found,
            [(CountedKind::Loads, 1000.0), (CountedKind::MissesL1, 60.0)]
        );

        let mut fake = machine(&[
            (TYPE, "4\n"),
            ("/proc/cpuinfo", "vendor_id : GenuineIntel\n"),
        ]);
        fake.refuse = Box::new(|attr, _| (attr.config == 0x81d0).then_some(libc::EACCES));
        let refused = RunCounters::open(fake).err().unwrap();
        assert!(refused.contains("refuses to count loads"), "{refused}");
    }
}

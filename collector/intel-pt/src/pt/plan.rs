//! The events to open, computed from the request and the machine's hardware.
//!
//! There is one set of events per CPU, inherited by the program's threads and children: inherited
//! events can share a ring only within one CPU. On each CPU a group consists of the PT event, which
//! leads, the sampling event whose samples include PT data, and perhaps one that pauses PT. Outside
//! of the group, a dummy event carries mappings, names, forks and context switches.
//!
//! Pausing (Linux 6.13) saves most of PT's cost between samples. No event can both pause and
//! resume, and two counters of one event in a group cannot be given a phase shift. So the sampling
//! event takes its sample and resumes, and a second event with a shorter, incommensurate period
//! pauses. The time from resuming to pausing is then uniform between zero and that period; windows
//! shorter than requested are rare as long as the period is many windows long. Threads start
//! unpaused until the second event's first period is over: otherwise threads that end before their
//! first sample would leave no trace, and the first sample would be empty.

use crate::pt::known::Known;
use mgz_collector::options::pt_settings::MAX_SAMPLE;
use mgz_perf::attr::{Attr, SW_DUMMY, SW_TASK_CLOCK, TYPE_RAW, TYPE_SOFTWARE, action, flag};
use mgz_perf::kernel::Kernel;
use mgz_perf::pmu::{NoTerm, Pmu, online};
use mgz_perf::records::bits;

/// Retired loads on every Intel core with `ptwrite`: MEM_INST_RETIRED.ALL_LOADS, and
/// MEM_UOPS_RETIRED.ALL_LOADS on the small cores (Intel's event lists).
const ALL_LOADS: [(&str, u64); 2] = [("event", 0xd0), ("umask", 0x81)];
/// CPU time between samples, ns, if no event counts loads: about 100 a second, and not a multiple
/// of the tick.
pub const CLOCK_NS: u64 = 10_000_019;

/// Timing packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time stamps (behind each PSB and where tracing starts).
    pub tsc: bool,
    /// Ticks of the crystal clock, every 2ⁿ.
    pub mtc: Option<u32>,
    /// Core cycles.
    pub cyc: bool,
    /// A PSB every 2^(11 + n) bytes.
    pub psb: u32,
}

impl Default for Timing {
    /// Only time stamps: the other packets cost space (MTC packets alone a third of a recording),
    /// and the order is known without them.
    fn default() -> Timing {
        Timing {
            tsc: true,
            mtc: None,
            cyc: false,
            psb: 0,
        }
    }
}

/// Trigger of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// One sample every this many retired loads.
    Loads(u64),
    /// One sample every this many nanoseconds of CPU time.
    Clock(u64),
}

/// The recorded part of PT data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// All PT data.
    Everything,
    /// The last bytes before each sample.
    Windows {
        /// Length of a window, bytes.
        bytes: u32,
        /// Trigger of the samples.
        trigger: Trigger,
        /// Pause PT between samples, if the kernel can.
        pause: bool,
    },
}

/// Request of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The kept part of PT data.
    pub keep: Keep,
    /// Timing packets.
    pub timing: Timing,
    /// Address filters, in the kernel's syntax; empty: none.
    pub filter: String,
    /// Virtual machines that the program runs are recorded too. Set only if the kernel cannot
    /// exclude them.
    pub guests: bool,
    /// Samples have call chains.
    pub stacks: bool,
}

/// Hardware of the machine.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// The PMU `intel_pt`, if there is one.
    pub pt: Option<Pmu>,
    /// Core PMUs.
    pub cores: Vec<Pmu>,
    /// CPUs that are online.
    pub cpus: Vec<u32>,
    /// Known errors of the kernel and the processor.
    pub known: Known,
}

impl Machine {
    /// Reads the machine's hardware.
    pub fn read(kernel: &dyn Kernel) -> std::io::Result<Machine> {
        Ok(Machine {
            pt: Pmu::read(kernel, "intel_pt"),
            cores: Pmu::cores(kernel),
            cpus: online(kernel)?,
            known: Known::read(|path| kernel.read(path)),
        })
    }
}

/// Purpose of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Records PT data.
    Trace,
    /// Takes samples.
    Sample,
    /// Pauses PT.
    Pause,
    /// Mappings, names, forks, exits, context switches.
    Track,
}

/// An event, to be opened on some CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Purpose.
    pub role: Role,
    /// Its name, as perf would write it.
    pub name: String,
    /// The attribute.
    pub attr: Attr,
    /// CPUs on which the event is opened.
    pub cpus: Vec<u32>,
}

/// The events, in the order in which they are opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Events. The first one of a CPU leads its group and owns its ring.
    pub events: Vec<Planned>,
    /// Sentences on where the plan falls short of the request.
    pub notes: Vec<String>,
}

fn timing_terms(pt: &Pmu, timing: &Timing, notes: &mut Vec<String>) -> Vec<(&'static str, u64)> {
    let mut terms = Vec::new();
    if timing.tsc {
        terms.push(("tsc", 1));
    }
    if let Some(period) = timing.mtc {
        match pt
            .nearest("mtc_periods", period)
            .filter(|_| pt.cap("mtc") != Some(0))
        {
            Some(period) => terms.extend([("mtc", 1), ("mtc_period", period)]),
            None => notes
                .push("this processor has no MTC packets; time stamps alone are recorded".into()),
        }
    }
    let choice = pt.cap("psb_cyc") != Some(0);
    if timing.cyc {
        if choice {
            terms.push(("cyc", 1))
        } else {
            notes.push("this processor has no cycle packets".into())
        }
    }
    match pt.nearest("psb_periods", timing.psb).filter(|_| choice) {
        Some(0) => {}
        Some(period) => terms.push(("psb_period", period)),
        None if timing.psb != 0 => {
            notes.push("this processor does not let the distance of PSBs be chosen".into())
        }
        None => {}
    }
    terms
}

/// The PT event: records `ptwrite`s with their IPs and no branches.
fn trace(pt: &Pmu, request: &Request, notes: &mut Vec<String>) -> Result<Planned, NoTerm> {
    let mut terms = vec![("ptw", 1), ("fup_on_ptw", 1)];
    // Without this bit the kernel takes the event for one of the old format, in which branches
    // could not be turned off, and enables them.
    terms.push(("pt", 1));
    terms.extend(timing_terms(pt, &request.timing, notes));
    let config = pt.encode(&terms)?;
    let mut attr = Attr::inherited(pt.kind, config[0]);
    (attr.config1, attr.config2) = (config[1], config[2]);
    attr.sample_type |= bits::CPU;
    attr.flags |= flag::DISABLED | flag::ENABLE_ON_EXEC;
    let shown: Vec<String> = terms
        .iter()
        .filter(|(term, _)| *term != "pt")
        .map(|(term, value)| format!("{term}={value}"))
        .collect();
    Ok(Planned {
        role: Role::Trace,
        name: format!("intel_pt/{},branch=0/u", shown.join(",")),
        attr,
        cpus: Vec::new(),
    })
}

/// The sampling events: one for each kind of core, or the clock.
fn samplers(
    machine: &Machine,
    trigger: Trigger,
    notes: &mut Vec<String>,
) -> Vec<(Attr, String, Vec<u32>)> {
    let clock = |ns: u64, cpus: Vec<u32>| {
        let mut attr = Attr::inherited(TYPE_SOFTWARE, SW_TASK_CLOCK);
        attr.sample_period = ns;
        (attr, format!("task-clock/period={ns}/u"), cpus)
    };
    let period = match trigger {
        Trigger::Clock(ns) => return vec![clock(ns, machine.cpus.clone())],
        Trigger::Loads(period) => period,
    };
    let mut list = Vec::new();
    let mut left = machine.cpus.clone();
    for core in &machine.cores {
        let cpus: Vec<u32> = left
            .iter()
            .copied()
            .filter(|&cpu| core.covers(cpu))
            .collect();
        let Ok(config) = core.encode(&ALL_LOADS) else {
            continue;
        };
        if cpus.is_empty() {
            continue;
        }
        left.retain(|cpu| !cpus.contains(cpu));
        let kind = if core.kind == 0 { TYPE_RAW } else { core.kind };
        let mut attr = Attr::inherited(kind, config[0]);
        attr.sample_period = period;
        list.push((
            attr,
            format!("{}/event=0xd0,umask=0x81,period={period}/u", core.name),
            cpus,
        ));
    }
    if !left.is_empty() {
        notes.push(format!("no event counts loads on {} of {} CPUs; samples are taken there every {} ms of CPU time", left.len(), machine.cpus.len(), CLOCK_NS / 1_000_000));
        list.push(clock(CLOCK_NS, left));
    }
    list
}

/// Makes the plan. Without a PT PMU the same recording is made without PT data, which only tests
/// use.
pub fn plan(machine: &Machine, request: &Request) -> Result<Plan, NoTerm> {
    let mut plan = Plan::default();
    if let Some(pt) = &machine.pt {
        let mut event = trace(pt, request, &mut plan.notes)?;
        event.cpus = machine
            .cpus
            .iter()
            .copied()
            .filter(|&cpu| pt.covers(cpu))
            .collect();
        plan.events.push(event);
        if let Some((what, remedy)) = machine.known.erratum() {
            plan.notes.push(format!("{what}; {remedy}"));
        }
    }
    if let Keep::Windows {
        bytes,
        trigger,
        pause,
    } = request.keep
    {
        let pause = pause && machine.pt.is_some();
        for (mut attr, name, cpus) in samplers(machine, trigger, &mut plan.notes) {
            if machine.pt.is_some() {
                // The period may be lengthened during the recording.
                attr.sample_type |= bits::AUX | bits::PERIOD;
                attr.aux_sample_size = bytes.clamp(8, MAX_SAMPLE).next_multiple_of(8);
                attr.aux_action = if pause { action::RESUME } else { 0 };
                if request.stacks {
                    attr.sample_type |= bits::CALLCHAIN;
                    attr.flags |= flag::EXCLUDE_CALLCHAIN_KERNEL;
                }
            } else {
                attr.flags |= flag::DISABLED | flag::ENABLE_ON_EXEC;
            }
            let shown = if attr.aux_sample_size > 0 {
                format!(
                    "{},aux-sample-size={}{}/u",
                    name.trim_end_matches("/u"),
                    attr.aux_sample_size,
                    if request.stacks { ",call-graph=fp" } else { "" }
                )
            } else {
                name.clone()
            };
            plan.events.push(Planned {
                role: Role::Sample,
                name: shown,
                attr,
                cpus: cpus.clone(),
            });
            if pause {
                let period = pause_period(attr.sample_period);
                let attr = Attr {
                    sample_period: period,
                    sample_type: attr.sample_type & !(bits::AUX | bits::PERIOD | bits::CALLCHAIN),
                    flags: attr.flags & !flag::EXCLUDE_CALLCHAIN_KERNEL,
                    aux_sample_size: 0,
                    aux_action: action::PAUSE,
                    ..attr
                };
                let name = name.replace(
                    &format!(
                        "period={}",
                        plan.events.last().map_or(0, |e| e.attr.sample_period)
                    ),
                    &format!("period={period}"),
                );
                plan.events.push(Planned {
                    role: Role::Pause,
                    name: format!("{},aux-action=pause/u", name.trim_end_matches("/u")),
                    attr,
                    cpus,
                });
            }
        }
    }
    let mut track = Attr::inherited(TYPE_SOFTWARE, SW_DUMMY);
    track.sample_type |= bits::CPU;
    track.flags |=
        flag::MMAP | flag::COMM | flag::TASK | flag::MMAP2 | flag::COMM_EXEC | flag::CONTEXT_SWITCH;
    plan.events.push(Planned {
        role: Role::Track,
        name: "dummy:u".into(),
        attr: track,
        cpus: machine.cpus.clone(),
    });
    if request.guests {
        for event in &mut plan.events {
            event.attr.flags &= !flag::EXCLUDE_GUEST;
        }
    }
    Ok(plan)
}

/// The period of the pausing event: about a quarter and odd, so that the two are never in step.
pub(crate) fn pause_period(period: u64) -> u64 {
    ((period / 4) | 1).max(3) + 2 * (period / 97)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgz_perf::pmu::TermFormat;

    fn with_pt(cores: Vec<Pmu>, cpus: Vec<u32>) -> Machine {
        Machine {
            pt: Some(pt()),
            cores,
            cpus,
            known: Known::default(),
        }
    }

    pub(crate) fn pt() -> Pmu {
        let formats = [
            ("pt", "0"),
            ("cyc", "1"),
            ("fup_on_ptw", "5"),
            ("mtc", "9"),
            ("tsc", "10"),
            ("noretcomp", "11"),
            ("ptw", "12"),
            ("branch", "13"),
            ("mtc_period", "14-17"),
            ("cyc_thresh", "19-22"),
            ("psb_period", "24-27"),
        ];
        let caps = [
            ("mtc", "1"),
            ("mtc_periods", "249"),
            ("psb_cyc", "1"),
            ("psb_periods", "3f"),
            ("ptwrite", "1"),
        ];
        Pmu {
            name: "intel_pt".into(),
            kind: 8,
            format: formats
                .iter()
                .map(|(n, f)| {
                    (
                        n.to_string(),
                        TermFormat::parse(&format!("config:{f}")).unwrap(),
                    )
                })
                .collect(),
            caps: caps
                .iter()
                .map(|(n, v)| (n.to_string(), v.to_string()))
                .collect(),
            ..Pmu::default()
        }
    }

    pub(crate) fn core(name: &str, kind: u32, cpus: Option<Vec<u32>>) -> Pmu {
        let formats = [("event", "0-7"), ("umask", "8-15")];
        Pmu {
            name: name.into(),
            kind,
            format: formats
                .iter()
                .map(|(n, f)| {
                    (
                        n.to_string(),
                        TermFormat::parse(&format!("config:{f}")).unwrap(),
                    )
                })
                .collect(),
            cpus,
            ..Pmu::default()
        }
    }

    fn windows(trigger: Trigger, pause: bool) -> Request {
        Request {
            keep: Keep::Windows {
                bytes: 8192,
                trigger,
                pause,
            },
            timing: Timing::default(),
            filter: String::new(),
            guests: false,
            stacks: false,
        }
    }

    #[test]
    fn a_hybrid_machine_gets_an_event_for_each_kind_of_core() {
        let cores = vec![
            core("cpu_core", 4, Some(vec![0, 1])),
            core("cpu_atom", 10, Some(vec![2, 3])),
        ];
        let machine = with_pt(cores, vec![0, 1, 2, 3]);
        let plan = plan(&machine, &windows(Trigger::Loads(100_000), false)).unwrap();
        let shown: Vec<_> = plan
            .events
            .iter()
            .map(|e| (e.role, e.attr.kind, e.cpus.clone()))
            .collect();
        assert_eq!(
            shown,
            [
                (Role::Trace, 8, vec![0, 1, 2, 3]),
                (Role::Sample, 4, vec![0, 1]),
                (Role::Sample, 10, vec![2, 3]),
                (Role::Track, 1, vec![0, 1, 2, 3])
            ]
        );
        assert_eq!(
            plan.events[1].name,
            "cpu_core/event=0xd0,umask=0x81,period=100000,aux-sample-size=8192/u"
        );
        assert_eq!(plan.notes, Vec::<String>::new());
        // tsc, pt, fup_on_ptw, ptw
        assert_eq!(plan.events[0].attr.config, 0x400 | 1 | 0x20 | 0x1000);
    }

    #[test]
    fn without_a_load_event_the_clock_takes_samples_and_that_is_said() {
        let machine = with_pt(vec![core("cpu_core", 4, Some(vec![0]))], vec![0, 1]);
        let made = plan(&machine, &windows(Trigger::Loads(1000), false)).unwrap();
        assert_eq!(made.events[2].attr.kind, TYPE_SOFTWARE);
        assert_eq!(
            (
                made.events[2].attr.sample_period,
                made.events[2].cpus.clone()
            ),
            (CLOCK_NS, vec![1])
        );
        assert_eq!(made.notes.len(), 1);
        assert!(made.notes[0].contains("1 of 2 CPUs"), "{:?}", made.notes);
        let clock = plan(&machine, &windows(Trigger::Clock(5000), false)).unwrap();
        assert_eq!(
            clock
                .events
                .iter()
                .filter(|e| e.role == Role::Sample)
                .count(),
            1
        );
        assert_eq!(clock.notes, Vec::<String>::new());
    }

    #[test]
    fn pausing_takes_an_event_that_resumes_and_one_that_pauses() {
        let machine = with_pt(vec![core("cpu", 4, None)], vec![0]);
        let made = plan(&machine, &windows(Trigger::Loads(1_000_000), true)).unwrap();
        let actions: Vec<_> = made
            .events
            .iter()
            .map(|e| (e.role, e.attr.aux_action, e.attr.aux_sample_size))
            .collect();
        assert_eq!(
            actions,
            [
                (Role::Trace, 0, 0),
                (Role::Sample, 4, 8192),
                (Role::Pause, 2, 0),
                (Role::Track, 0, 0)
            ]
        );
        let pause = &made.events[2];
        assert!(
            pause.attr.sample_type & bits::AUX == 0 && pause.attr.sample_period % 2 == 1,
            "{pause:?}"
        );
        assert!(
            (250_000..300_000).contains(&pause.attr.sample_period),
            "{}",
            pause.attr.sample_period
        );
        assert_eq!(
            pause.name,
            format!(
                "cpu/event=0xd0,umask=0x81,period={},aux-action=pause/u",
                pause.attr.sample_period
            )
        );
    }

    #[test]
    fn samples_have_call_chains_of_user_code_where_they_are_asked_for() {
        let machine = with_pt(vec![core("cpu", 4, None)], vec![0]);
        let request = Request {
            stacks: true,
            ..windows(Trigger::Loads(1_000_000), true)
        };
        let made = plan(&machine, &request).unwrap();
        let has = |e: &Planned| {
            let chain = e.attr.sample_type & bits::CALLCHAIN != 0;
            (chain, e.attr.flags & flag::EXCLUDE_CALLCHAIN_KERNEL != 0)
        };
        for event in &made.events {
            let is_sample = event.role == Role::Sample;
            assert_eq!(has(event), (is_sample, is_sample), "{}", event.name);
        }
        let name = &made.events[1].name;
        assert!(
            name.ends_with("aux-sample-size=8192,call-graph=fp/u"),
            "{name}"
        );
        let everything = Request {
            keep: Keep::Everything,
            ..request
        };
        let made = plan(&machine, &everything).unwrap();
        assert!(made.events.iter().all(|e| has(e) == (false, false)));
    }

    #[test]
    fn timing_is_as_asked_and_as_the_processor_has_it() {
        let request = Request {
            timing: Timing {
                tsc: true,
                mtc: Some(4),
                cyc: true,
                psb: 7,
            },
            keep: Keep::Everything,
            filter: String::new(),
            guests: false,
            stacks: false,
        };
        let machine = with_pt(Vec::new(), vec![0]);
        let config = plan(&machine, &request).unwrap().events[0].attr.config;
        assert_eq!(
            config,
            0x1421 | 0x200 | 3 << 14 | 2 | 5 << 24,
            "{config:#x}"
        );
        let mut poor = pt();
        poor.caps.insert("mtc".into(), "0".into());
        poor.caps.insert("psb_cyc".into(), "0".into());
        let made = plan(
            &Machine {
                pt: Some(poor),
                ..machine.clone()
            },
            &request,
        )
        .unwrap();
        assert_eq!((made.events[0].attr.config, made.notes.len()), (0x1421, 3));
        assert_eq!(made.events.len(), 2, "no samples in a full trace");
        let mut none = pt();
        none.format.remove("fup_on_ptw");
        assert!(
            plan(
                &Machine {
                    pt: Some(none),
                    ..machine
                },
                &request
            )
            .is_err()
        );
    }

    #[test]
    fn samples_fit_into_records() {
        let machine = with_pt(vec![core("cpu", 4, None)], vec![0]);
        for (asked, got) in [(0, 8), (9, 16), (1 << 20, MAX_SAMPLE)] {
            let request = Request {
                keep: Keep::Windows {
                    bytes: asked,
                    trigger: Trigger::Loads(1),
                    pause: false,
                },
                timing: Timing::default(),
                filter: String::new(),
                guests: false,
                stacks: false,
            };
            assert_eq!(
                plan(&machine, &request).unwrap().events[1]
                    .attr
                    .aux_sample_size,
                got
            );
        }
    }

    /// The tests' recording was made by `perf record -e
    /// intel_pt/ptw=1,branch=0,period=1,fup_on_ptw=1/u -g -e cpu/umask=0x81,event=0xd0,
    /// period=100000,aux-sample-size=8192,call-graph=lbr/u`.
    #[test]
    fn the_attributes_are_those_of_perf_for_the_same_request() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/pt/data/ubench-ptwrite-geminilake.perf.data.zst");
        let packed = std::fs::File::open(&path)
            .unwrap_or_else(|e| panic!("{}: part of the repository: {e}", path.display()));
        let file = zstd::decode_all(packed).unwrap();
        let layout = mgz_perf_data::header::layout(&file).unwrap();
        let machine = with_pt(vec![core("cpu", 4, None)], vec![0, 1, 2, 3]);
        let request = Request {
            timing: Timing {
                tsc: true,
                mtc: Some(3),
                cyc: false,
                psb: 0,
            },
            ..windows(Trigger::Loads(100_000), false)
        };
        let ours = plan(&machine, &request).unwrap();
        assert_eq!(layout.events.len(), ours.events.len());
        let raw = |number: usize| {
            let at = mgz_perf_data::u64_at(&file, 24).unwrap() as usize + number * 136;
            file[at..at + 120].to_vec()
        };
        for (number, event) in ours.events.iter().enumerate() {
            let mut theirs = raw(number);
            let word =
                |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            // `-g` and `call-graph=lbr` add callchains and branch stacks.
            let sample_type = word(&theirs, 24) & !bits::CALLCHAIN & !bits::BRANCH_STACK;
            theirs[24..32].copy_from_slice(&sample_type.to_le_bytes());
            theirs[72..80].fill(0);
            // The maximum length of call chains differs as well.
            theirs[108..110].fill(0);
            // Records on kernel symbols and BPF programs, which user code does not have; call
            // chains exclude the kernel.
            let flags = word(&theirs, 40) & !(1 << 29 | 1 << 30 | 1 << 21 | 1 << 22);
            theirs[40..48].copy_from_slice(&flags.to_le_bytes());
            // perf has excluded guests since 5.19. Our samples include the period, since it may
            // change.
            let mut ours = event.attr;
            ours.flags &= !flag::EXCLUDE_GUEST;
            ours.sample_type &= !bits::PERIOD;
            assert!(
                ours.bytes()[..] == theirs[..],
                "{}: {:x?} and {theirs:x?}",
                event.name,
                ours.bytes()
            );
            assert_eq!(layout.events[number].ids.len(), event.cpus.len());
        }
    }
}

//! Opening the planned events and mapping their rings, as far as the kernel allows.
//!
//! A kernel or a machine may refuse a feature. If the recording is useful without it (pausing, call
//! chains, the load counter, a CPU that was just turned off, the size of buffers), it is omitted,
//! with a message to the user. Otherwise there is an error with the remedy.

use crate::pt::known::{FILTERS_ON_OVERLAYFS, OVERLAYFS};
use crate::pt::plan::{Keep, Machine, Plan, Request, Role, Trigger, plan};
use crate::pt::synth::Counter;
use mgz_perf::attr::TYPE_SOFTWARE;
use mgz_perf::kernel::{Control, EventId, Kernel};
use mgz_perf::mmap_ring::Ring;
use mgz_perf::pmu::{NoTerm, online};
use std::io;

/// Reason why nothing can be recorded.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The PMU lacks something that is needed.
    #[error("{0}; this machine cannot record with Intel PT (see `mgz-record --probe`)")]
    Term(#[from] NoTerm),
    /// The kernel refused an event.
    #[error("{event}: the kernel refused the event ({error}){remedy}")]
    Refused {
        /// The event.
        event: String,
        /// The kernel's error.
        error: io::Error,
        /// The remedy; begins with "; ".
        remedy: String,
    },
    /// No memory for buffers.
    #[error("the kernel gave no memory for {what} ({error}); {}", MEMORY_REMEDY)]
    Memory {
        /// Purpose of the memory.
        what: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
    /// Address filters were refused.
    #[error(
        "the kernel refused the address filter `{filter}` ({error}); record without --functions"
    )]
    Filter {
        /// The filter.
        filter: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// Address filters that would match nothing.
    #[error(
        "{file} lies on overlayfs, as files of containers do, where the address filters of Linux before 6.18 (or 6.17.5, 6.12.55) match nothing: record a copy of the program on another file system (a volume, /dev/shm), or record without --functions, or choose functions with `mgz-instrument --functions`"
    )]
    Overlay {
        /// The file.
        file: String,
    },
    /// Something else.
    #[error("{what}: {error}")]
    Other {
        /// The operation that failed.
        what: &'static str,
        /// Why it failed.
        error: io::Error,
    },
}

const MEMORY_REMEDY: &str =
    "raise `ulimit -l` or kernel.perf_event_mlock_kb, or give mgz-record CAP_IPC_LOCK";

/// Sizes of buffers per CPU, bytes, powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// For records.
    pub data: usize,
    /// For PT data.
    pub aux: usize,
}

impl Sizes {
    /// The sizes that are tried first: large ones if memory may be locked freely, else those that
    /// fit into the usual 516 KiB a CPU.
    pub fn wanted(request: &Request, unlimited: bool) -> Sizes {
        match (request.keep, unlimited) {
            (Keep::Everything, true) => Sizes {
                data: 512 << 10,
                aux: 8 << 20,
            },
            (Keep::Everything, false) => Sizes {
                data: 128 << 10,
                aux: 256 << 10,
            },
            // Samples are long. The area has twice the size of the longest, rounded up to a power
            // of two.
            (Keep::Windows { bytes, .. }, unlimited) => Sizes {
                data: if unlimited { 2 << 20 } else { 256 << 10 },
                aux: (bytes as usize * 2).next_power_of_two().max(64 << 10),
            },
        }
    }

    fn smaller(self, request: &Request, page: usize) -> Option<Sizes> {
        let least = match request.keep {
            Keep::Everything => 4 * page,
            Keep::Windows { bytes, .. } => (bytes as usize).next_power_of_two().max(4 * page),
        };
        if self.aux > least {
            Some(Sizes {
                aux: self.aux / 2,
                ..self
            })
        } else {
            // The ring must have room for several samples of the largest size.
            (self.data > 128 << 10).then_some(Sizes {
                data: self.data / 2,
                ..self
            })
        }
    }
}

/// The events of one CPU.
pub struct CpuEvents {
    /// Number of the CPU.
    pub cpu: u32,
    /// The event that owns the ring.
    pub leader: EventId,
    /// The PT event.
    pub trace: Option<EventId>,
    /// The ring.
    pub ring: Ring,
}

/// Everything that was opened.
pub struct Opened {
    /// The opened events, after all concessions.
    pub plan: Plan,
    /// The events of each CPU.
    pub cpus: Vec<CpuEvents>,
    /// Kernel ids of each planned event, in the order of its CPUs.
    pub ids: Vec<Vec<u64>>,
    /// The events, in the same order.
    pub events: Vec<Vec<EventId>>,
    /// All counters.
    pub counters: Vec<Counter>,
    /// Sizes of the buffers.
    pub sizes: Sizes,
}

impl Opened {
    /// The id of an event.
    pub fn id(&self, event: EventId) -> Option<u64> {
        let mut all = self.events.iter().flatten().zip(self.ids.iter().flatten());
        all.find(|(handle, _)| **handle == event).map(|(_, &id)| id)
    }
}

struct Failed {
    role: Role,
    kind: u32,
    name: String,
    cpu: u32,
    error: io::Error,
}

/// One event of a plan on one CPU.
struct Handle {
    event: usize,
    cpu: u32,
    id: EventId,
}

fn open_all(kernel: &mut dyn Kernel, plan: &Plan, pid: u32) -> Result<Vec<Handle>, Failed> {
    let mut handles: Vec<Handle> = Vec::new();
    for (number, event) in plan.events.iter().enumerate() {
        for &cpu in &event.cpus {
            // The group is led by the PT event, if there is one; the tracking event is not in the
            // group, so that it does not stop with the group.
            let leads = |h: &&Handle| h.cpu == cpu && plan.events[h.event].role == Role::Trace;
            let group = handles
                .iter()
                .find(leads)
                .map(|h| h.id)
                .filter(|_| event.role != Role::Track);
            let opened = kernel.open(&event.attr, pid as i32, cpu as i32, group);
            let id = opened.map_err(|error| Failed {
                role: event.role,
                kind: event.attr.kind,
                name: event.name.clone(),
                cpu,
                error,
            })?;
            handles.push(Handle {
                event: number,
                cpu,
                id,
            });
        }
    }
    Ok(handles)
}

/// Optional features of the events. Kernels refuse unknown features without naming them, so
/// combinations with fewer features are tried one by one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Extras {
    /// Guests are excluded.
    guests_out: bool,
    /// PT is paused between samples.
    pause: bool,
    /// Samples have call chains.
    stacks: bool,
}

impl Extras {
    /// The next combination to try.
    fn fewer(self, asked: Extras) -> Option<Extras> {
        let both = [(true, true), (false, true), (true, false), (false, false)];
        let tries = [true, false].into_iter().flat_map(|stacks| {
            both.map(|(guests_out, pause)| Extras {
                guests_out,
                pause,
                stacks,
            })
        });
        let possible = |t: &Extras| (asked.pause || !t.pause) && (asked.stacks || !t.stacks);
        let mut tries = tries.filter(possible);
        tries.find(|&t| t == self);
        tries.next()
    }
}

/// Reduces the request, the features or the machine's CPUs after a refusal. The note names the
/// loss.
fn concede(
    kernel: &dyn Kernel,
    failed: &Failed,
    request: &mut Request,
    machine: &mut Machine,
    extras: &mut Extras,
    asked: Extras,
) -> Option<String> {
    let errno = failed.error.raw_os_error().unwrap_or(0);
    if errno == libc::ENODEV && online(kernel).is_ok_and(|now| !now.contains(&failed.cpu)) {
        machine.cpus.retain(|&cpu| cpu != failed.cpu);
        return (!machine.cpus.is_empty()).then(|| format!("CPU {} was turned off", failed.cpu));
    }
    let unknown = [libc::EINVAL, libc::E2BIG, libc::EOPNOTSUPP].contains(&errno);
    // The kernel has no memory for call chains, or does not support this depth.
    let chains = extras.stacks
        && failed.role == Role::Sample
        && [libc::ENOMEM, libc::EOVERFLOW].contains(&errno);
    if chains {
        extras.stacks = false;
        return Some(String::new());
    }
    if unknown && let Some(fewer) = extras.fewer(asked) {
        *extras = fewer;
        return Some(String::new());
    }
    let Keep::Windows { trigger, .. } = &mut request.keep else {
        return None;
    };
    let absent = unknown || [libc::ENOENT, libc::ENODEV, libc::ENXIO].contains(&errno);
    if failed.role == Role::Sample && failed.kind != TYPE_SOFTWARE && absent {
        *trigger = Trigger::Clock(crate::pt::plan::CLOCK_NS);
        // This was the reason, so the omitted features are requested again.
        *extras = asked;
        return Some(format!(
            "this machine does not sample loads ({}); samples are taken every {} ms of CPU time",
            failed.error,
            crate::pt::plan::CLOCK_NS / 1_000_000
        ));
    }
    None
}

fn remedy(failed: &Failed, kernel: &dyn Kernel) -> String {
    let text = match failed.error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            let level = kernel
                .read("/proc/sys/kernel/perf_event_paranoid")
                .unwrap_or_default();
            let level = level.trim();
            format!(
                "kernel.perf_event_paranoid is {level}: `sysctl kernel.perf_event_paranoid=2` allows it, or CAP_PERFMON for mgz-record; in a container seccomp may forbid it too"
            )
        }
        Some(libc::ENOSYS) => {
            "this kernel, or the container's seccomp filter, has no perf_event_open".into()
        }
        Some(libc::EBUSY) if failed.role == Role::Trace => {
            "another recording or a debugger is using Intel PT; wait for it to end".into()
        }
        Some(libc::EMFILE | libc::ENFILE) => {
            "too many files are open, since every CPU takes several events: raise `ulimit -n`"
                .into()
        }
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP | libc::EINVAL) => {
            "`mgz-record --probe` shows what this machine can do".into()
        }
        _ => return String::new(),
    };
    format!("; {text}")
}

/// Opens the events for a process that has not started, disabled until it executes a program.
pub fn open(
    kernel: &mut dyn Kernel,
    machine: &Machine,
    request: &Request,
    pid: u32,
    sizes: Sizes,
) -> Result<Opened, OpenError> {
    if let Some(file) = unmatched(kernel, machine, &request.filter) {
        return Err(OpenError::Overlay { file });
    }
    let Granted {
        plan,
        handles,
        request,
        cpus,
    } = negotiate(kernel, machine.clone(), request.clone(), pid)?;
    let (cpus, sizes) = map_all(kernel, &plan, &handles, &cpus, &request, sizes)?;
    join(kernel, &handles, &cpus)?;
    set_filter(kernel, &cpus, &request.filter)?;
    let mut ids = vec![Vec::new(); plan.events.len()];
    let mut events = vec![Vec::new(); plan.events.len()];
    let mut counters = Vec::new();
    for handle in &handles {
        let id = kernel.id(handle.id).map_err(|error| OpenError::Other {
            what: "asking for an event's id",
            error,
        })?;
        ids[handle.event].push(id);
        events[handle.event].push(handle.id);
        let ring = cpus.iter().position(|c| c.cpu == handle.cpu).unwrap_or(0) as u32;
        counters.push(Counter {
            id,
            ring,
            cpu: handle.cpu,
        });
    }
    Ok(Opened {
        plan,
        cpus,
        ids,
        events,
        counters,
        sizes,
    })
}

/// The events that the kernel has opened, after all concessions.
struct Granted {
    plan: Plan,
    handles: Vec<Handle>,
    request: Request,
    cpus: Vec<u32>,
}

/// Opens the events, and gives up a feature after each refusal.
fn negotiate(
    kernel: &mut dyn Kernel,
    mut machine: Machine,
    mut request: Request,
    pid: u32,
) -> Result<Granted, OpenError> {
    let asked = Extras {
        guests_out: !request.guests,
        pause: matches!(request.keep, Keep::Windows { pause: true, .. }),
        stacks: request.stacks && request.keep != Keep::Everything,
    };
    let mut extras = asked;
    let mut notes = Vec::new();
    let (plan, handles) = loop {
        request.guests = !extras.guests_out;
        request.stacks = extras.stacks;
        if let Keep::Windows { pause, .. } = &mut request.keep {
            *pause = extras.pause;
        }
        let plan = plan(&machine, &request)?;
        let failed = match open_all(kernel, &plan, pid) {
            Ok(handles) => break (plan, handles),
            Err(failed) => failed,
        };
        kernel.close_all();
        let given_up = concede(
            kernel,
            &failed,
            &mut request,
            &mut machine,
            &mut extras,
            asked,
        );
        let Some(note) = given_up else {
            let remedy = remedy(&failed, kernel);
            return Err(OpenError::Refused {
                event: failed.name,
                error: failed.error,
                remedy,
            });
        };
        notes.extend(Some(note).filter(|n| !n.is_empty()));
    };
    if asked.stacks && !extras.stacks {
        notes.push("the kernel refuses call chains, so that windows have no call paths".into());
    }
    let plan = Plan {
        notes: [notes, plan.notes].concat(),
        ..plan
    };
    Ok(Granted {
        plan,
        handles,
        request,
        cpus: machine.cpus,
    })
}

/// Joins the events of each CPU in the ring of their leader.
fn join(kernel: &mut dyn Kernel, handles: &[Handle], cpus: &[CpuEvents]) -> Result<(), OpenError> {
    for handle in handles {
        let Some(owner) = cpus
            .iter()
            .find(|c| c.cpu == handle.cpu)
            .map(|c| c.leader)
            .filter(|&leader| leader != handle.id)
        else {
            continue;
        };
        kernel
            .control(handle.id, &Control::Output(owner))
            .map_err(|error| OpenError::Other {
                what: "joining events in one ring",
                error,
            })?;
    }
    Ok(())
}

/// Sets the address filter of the PT events, if there is one.
fn set_filter(kernel: &mut dyn Kernel, cpus: &[CpuEvents], filter: &str) -> Result<(), OpenError> {
    if filter.is_empty() {
        return Ok(());
    }
    for trace in cpus.iter().filter_map(|c| c.trace) {
        let set = kernel.control(trace, &Control::Filter(filter.to_owned()));
        set.map_err(|error| OpenError::Filter {
            filter: filter.to_owned(),
            error,
        })?;
    }
    Ok(())
}

/// The first file of a filter that the kernel will not find in the program's mappings.
fn unmatched(kernel: &dyn Kernel, machine: &Machine, filter: &str) -> Option<String> {
    if FILTERS_ON_OVERLAYFS.includes(&machine.known.release) {
        return None;
    }
    let files = filter
        .split_whitespace()
        .filter_map(|word| word.split_once('@'))
        .map(|(_, file)| file);
    let mut unmatched =
        files.filter(|file| kernel.file_system(file).is_ok_and(|kind| kind == OVERLAYFS));
    unmatched.next().map(str::to_owned)
}

/// Maps the rings. If memory is refused, all CPUs get smaller buffers.
fn map_all(
    kernel: &mut dyn Kernel,
    plan: &Plan,
    handles: &[Handle],
    cpus: &[u32],
    request: &Request,
    mut sizes: Sizes,
) -> Result<(Vec<CpuEvents>, Sizes), OpenError> {
    loop {
        let mapped: Result<Vec<_>, _> = cpus
            .iter()
            .map(|&cpu| map_cpu(kernel, plan, handles, cpu, request, sizes))
            .collect();
        match mapped {
            Ok(mapped) => return Ok((mapped, sizes)),
            Err(OpenError::Memory { what, error })
                if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOMEM)) =>
            {
                let Some(less) = sizes.smaller(request, kernel.page()) else {
                    return Err(OpenError::Memory { what, error });
                };
                sizes = less;
            }
            Err(error) => return Err(error),
        }
    }
}

fn map_cpu(
    kernel: &mut dyn Kernel,
    plan: &Plan,
    handles: &[Handle],
    cpu: u32,
    request: &Request,
    sizes: Sizes,
) -> Result<CpuEvents, OpenError> {
    let nothing = || OpenError::Other {
        what: "finding the events of a CPU",
        error: io::ErrorKind::NotFound.into(),
    };
    let here = || handles.iter().filter(|h| h.cpu == cpu);
    let leader = here().next().ok_or_else(nothing)?.id;
    let trace = here()
        .find(|h| plan.events[h.event].role == Role::Trace)
        .map(|h| h.id);
    let page = kernel.page();
    let area = kernel
        .map(leader, page + sizes.data, 0, true)
        .map_err(|error| OpenError::Memory {
            what: "records",
            error,
        })?;
    let mut ring = Ring::new(area, page).ok_or_else(nothing)?;
    if let Some(trace) = trace {
        let offset = ring.announce_aux(sizes.aux);
        // Samples are taken from a flight recorder, which only a read-only area is.
        let writable = request.keep == Keep::Everything;
        let area = kernel
            .map(trace, sizes.aux, offset, writable)
            .map_err(|error| OpenError::Memory {
                what: "PT data",
                error,
            })?;
        ring.set_aux(area, writable);
    }
    Ok(CpuEvents {
        cpu,
        leader,
        trace,
        ring,
    })
}

//! Facts about a program as a whole, and the refusals that follow from them.

use crate::common::skip_reason::LeftReason;
use crate::discover::scan::discover;
use crate::discover::{flag_writes, gs_base, memory_files, self_reads, state_calls};
use crate::ir::FunctionId;
use crate::pipeline::analysis_input::{function_symbols, of_parts};
use crate::program::fixed_memory::FaultPolicy;
use crate::program::sanitizers::Sanitizer;
use crate::program::shown_returns::ShownReturns;
use crate::program::{
    Input, InstrumentOptions, Program, managed_runtime, markers, packed, sanitizers, shown_returns,
};
use crate::signals;
use crate::signals::{HandlerInstaller, Wrapped};
use crate::unwind::Tables;
use iced_x86::{Decoder, DecoderOptions, OpKind};
use mgz_abi::module_note::{FLAVOUR_PT, FLAVOUR_SOFT};
use mgz_elf::image::{Elf, ManagedRuntime};
use mgz_elf::library_search::is_c_library;
use mgz_elf::payload::Payload;
use mgz_elf::{Refusal, payload};
use twox_hash::XxHash3_64;

/// Refuses prefetches for a file whose code must stay in place.
fn gets_none(what: &str, options: &InstrumentOptions) -> Result<(), Refusal> {
    match options.prefetch {
        Some(_) => Err(Refusal::declined(format!(
            "{what}; such a program gets no prefetches"
        ))),
        None => Ok(()),
    }
}

/// The pt flavour: calls that install handlers which may look at faults, so that
/// [`crate::link::fault_shim`] can show them original addresses.
fn shown_by(
    elf: &Elf,
    input: &Input,
    program: &Program,
    installer: &HandlerInstaller,
    options: &InstrumentOptions,
) -> Result<Wrapped, Refusal> {
    if let Some(wrapped) = signals::wrapped(elf, input, program) {
        return Ok(wrapped);
    }
    let what = format!(
        "it may install a handler that looks at where a fault happened ({}; at {:#x}), and the handler would not see the original place",
        installer.why, installer.at
    );
    gets_none(&what, options)?;
    Err(Refusal::declined(format!(
        "it may install a handler that looks at where a fault happened, or where the signal found the program ({}; at {:#x}), and not by calls of another file's sigaction alone, so that with the pt backend the handler would not see the original place; use --backend soft{}",
        installer.why,
        installer.at,
        if elf.is_static_executable() {
            ", or link it dynamically"
        } else {
            ""
        }
    )))
}

/// The soft flavour: leaves functions unchanged that borrow the `%gs` base and restore it. Declines
/// a file with other uses, and one in which the signals of `burst` may interrupt these functions.
fn leave_users_of_gs(
    elf: &Elf,
    input: &Input,
    program: &mut Program,
    options: &InstrumentOptions,
) -> Result<(), Refusal> {
    let declined = |place: &str, at: u64, remedy: &str| {
        Refusal::declined(format!(
            "it uses the gs segment itself ({place}at {at:#x}), which the soft backend needs; {remedy} --backend pt, or leave this file out"
        ))
    };
    let name_of = |function: Option<FunctionId>| {
        let name = function.map(|f| &program.function(f).name);
        let name = name.filter(|name| !name.is_empty());
        name.map_or_else(String::new, |name| format!("in {name}, "))
    };
    // (The C library's own functions act on behalf of their callers.)
    if !is_c_library(elf.soname())
        && let Some(at) = state_calls::find_state_call(input, program, &state_calls::SETS_GS)
    {
        return Err(declined(&name_of(program.function_at(at)), at, "use"));
    }
    if program.uses_gs.is_empty() {
        return Ok(());
    }
    let is_quiet = gs_base::has_no_handlers(elf, input);
    let mut kept = Vec::new();
    for &at in &program.uses_gs {
        let function = program.function_at(at);
        let puts_back = function.filter(|&f| is_quiet && gs_base::puts_back(input, program, f));
        match puts_back {
            Some(f) if !options.translated => kept.push(f.0 as usize),
            _ => {
                let remedy = match puts_back {
                    Some(_) => "use --for ring, since only the signals of burst may come there, or",
                    None => "use",
                };
                return Err(declined(&name_of(function), at, remedy));
            }
        }
    }
    for f in kept {
        program.functions[f].left.get_or_insert(LeftReason::UsesGs);
    }
    Ok(())
}

/// A state of threads that the program sets and that clones do not support. Only `burst` can leave
/// it intact.
pub struct ThreadDemand {
    /// The program's action, with its address.
    pub what: String,
    /// True if it sees the number and addresses of executed instructions.
    counts_steps: bool,
    /// True if a static executable's code may not be changed either.
    needs_original: bool,
    /// True if the PT flavour has no such restriction.
    soft_only: bool,
}

/// Leaves functions unchanged that set flags which clones do not support. Returns the file's demand
/// on its threads.
fn thread_demand(
    elf: &Elf,
    input: &Input,
    program: &mut Program,
    options: &InstrumentOptions,
    managed: Option<ManagedRuntime>,
) -> Option<ThreadDemand> {
    let has_handlers = !gs_base::has_no_handlers(elf, input);
    let flags = flag_writes::leave(input, program, has_handlers);
    let dispatches = || {
        (options.flavour == FLAVOUR_SOFT && !is_c_library(elf.soname()))
            .then(|| state_calls::find_state_call(input, program, &state_calls::DISPATCHES_CALLS))
            .flatten()
    };
    if let Some(at) = flags.steps {
        return Some(ThreadDemand {
            what: format!("it sets the trap flag (at {at:#x}), to single-step itself"),
            counts_steps: true,
            needs_original: true,
            soft_only: false,
        });
    }
    if let Some(at) = dispatches() {
        return Some(ThreadDemand {
            what: format!(
                "it has its own system calls handed back to it (PR_SET_SYSCALL_USER_DISPATCH, at {at:#x})"
            ),
            counts_steps: false,
            needs_original: true,
            soft_only: true,
        });
    }
    if let Some(at) = flags.alignment {
        return Some(ThreadDemand {
            what: format!(
                "it sets the flag for alignment checks (at {at:#x}), with which accesses of probes would fail"
            ),
            counts_steps: false,
            needs_original: false,
            soft_only: true,
        });
    }
    managed.map(|runtime| ThreadDemand {
        what: managed_runtime::what(runtime),
        counts_steps: false,
        needs_original: false,
        soft_only: false,
    })
}

/// Declines a file with such a demand if it cannot be met.
pub fn check_demand(
    elf: &Elf,
    demand: &ThreadDemand,
    options: &InstrumentOptions,
) -> Result<(), Refusal> {
    let remedy = if options.flavour == FLAVOUR_PT && demand.soft_only {
        return Ok(());
    } else if demand.needs_original && elf.is_static_executable() {
        "a static executable is changed in all modes: link it dynamically, and use"
    } else if options.flavour == FLAVOUR_PT || !options.translated {
        "use"
    } else {
        return Ok(());
    };
    gets_none(&demand.what, options)?;
    let steps = if demand.counts_steps {
        ", and sees where clones and entry jumps lead"
    } else {
        ""
    };
    Err(Refusal::declined(format!(
        "{}{steps}; {remedy} --backend soft --for burst, and record with --mode burst, where such threads run the original",
        demand.what
    )))
}

/// The pt flavour: declines a file that reads return addresses, which are those of clones in this
/// flavour.
fn check_return_readers(
    readers: &ShownReturns,
    options: &InstrumentOptions,
) -> Result<(), Refusal> {
    // (Prefetches are still possible in functions that call nothing.)
    if options.flavour != FLAVOUR_PT || !readers.matters || options.prefetch.is_some() {
        return Ok(());
    }
    Err(Refusal::declined(format!(
        "{} looks at return addresses (-pg, -finstrument-functions, or __builtin_return_address), and with the pt backend would find those of rewritten code; use --backend soft, whose calls push the original addresses",
        readers.first
    )))
}

/// Declines a file that reads its own code, where that is changed: in the file, at run time, or
/// both.
fn check_reader(elf: &Elf, by: u64, options: &InstrumentOptions) -> Result<(), Refusal> {
    let Some(remedy) = remedy_for_readers(elf, options) else {
        return Ok(());
    };
    gets_none(
        &format!("it reads its own code as data (seen at {by:#x})"),
        options,
    )?;
    Err(Refusal::declined(format!(
        "it reads its own code as data (seen at {by:#x}; a checksum, or code that it copies), and would find entry jumps there; {remedy} use --backend soft --for burst, and record with --mode burst"
    )))
}

/// As `check_reader`, for a file that may read its code through the kernel, bypassing page
/// protection.
fn check_memory_files(
    elf: &Elf,
    file_use: memory_files::MemoryFileUse,
    options: &InstrumentOptions,
) -> Result<(), Refusal> {
    let Some(remedy) = remedy_for_readers(elf, options) else {
        return Ok(());
    };
    let memory_files::MemoryFileUse { what, at } = file_use;
    let seen = if at == 0 {
        String::new()
    } else {
        format!(" (seen at {at:#x})")
    };
    let reads = format!("it may read or change its own code by {what}{seen}");
    gets_none(&reads, options)?;
    Err(Refusal::declined(format!(
        "it may read or change its own code by {what}{seen}, and would find entry jumps there, or make changes that its clones do not follow; {remedy} use --backend soft --for burst, and record with --mode burst"
    )))
}

/// Start of the advice for a file that reads its own code: the places where the code is changed.
/// `None` if the code is not changed.
fn remedy_for_readers(elf: &Elf, options: &InstrumentOptions) -> Option<&'static str> {
    if elf.is_static_executable() {
        Some("a static executable's is changed in all modes: link it dynamically, and")
    } else if options.flavour == FLAVOUR_PT {
        Some("the pt backend's are in the file:")
    } else if !options.translated {
        Some("those of full and ring are written when it runs:")
    } else {
        None
    }
}

/// Declines a file that contains its payload's offset or the file's length, since it may read to
/// its end, or compare.
fn check_payload(
    elf: &Elf,
    payload: &Payload,
    input: &Input,
    program: &Program,
) -> Result<(), Refusal> {
    let immediates = program
        .functions
        .iter()
        .filter_map(|f| Some(numbers(f.range.start, input.slice(&f.range)?)))
        .flatten();
    let Some((at, number)) = payload::known_offset(elf, payload, immediates) else {
        return Ok(());
    };
    let what = if number == payload.range.start {
        "the offset at which it begins"
    } else {
        "the length of the whole file"
    };
    let (start, end) = (payload.range.start, payload.range.end);
    Err(Refusal::declined(format!(
        "it carries a payload of {} bytes, and holds {what} ({number}, at {at:#x}): a rewritten file is longer, so that it would read more, or find another length; instrument the program before the payload is appended (head -c {start}), or its libraries only",
        end - start,
    )))
}

/// The numbers in code that are no addresses, with the instructions' addresses.
fn numbers(at: u64, code: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
    decoder.into_iter().flat_map(|inst| {
        let is_near = |o: &u32| inst.op_kind(*o) != OpKind::Memory;
        let immediates = (0..inst.op_count())
            .filter(is_near)
            .filter_map(|o| inst.try_immediate(o).ok());
        let displacement = (!inst.is_ip_rel_memory_operand()).then(|| inst.memory_displacement64());
        immediates
            .chain(displacement)
            .map(|number| (inst.ip(), number))
            .collect::<Vec<_>>()
    })
}

/// Facts about a file and its program that are known before functions are analysed one by one.
pub struct Understood<'a> {
    /// Its unwind tables.
    pub unwind: Tables<'a>,
    /// Relation of the file to a sanitizer.
    pub sanitizer: Sanitizer,
    /// The file.
    pub input: Input<'a>,
    /// Its functions.
    pub program: Program,
    /// Treatment of handlers that see faults.
    pub faults: FaultPolicy,
    /// Hash of the file.
    pub hash: u64,
    /// Address where it opens its own file.
    pub opens_itself: Option<u64>,
    /// Means by which it may read its own memory through the kernel.
    pub(crate) opens_memory: Option<memory_files::MemoryFileUse>,
    /// Address where it opens the list of its own mappings.
    pub opens_maps: Option<u64>,
    /// Its demand on threads that only `burst` leaves intact.
    pub demand: Option<ThreadDemand>,
    /// Data that it carries apart from its ELF content.
    pub payload: Option<Payload>,
    /// Calls through which handlers that are shown faults are installed.
    pub wrapped: Option<Wrapped>,
}

/// Pass 1 and all work that concerns the program as a whole. Declines files that cannot be
/// rewritten safely.
pub fn understand<'a>(
    elf: &Elf<'a>,
    options: &InstrumentOptions,
) -> Result<Understood<'a>, Refusal> {
    let unwind = || Tables::read(elf).map(|unwind| (unwind.ranges(), unwind));
    let (unwind, (symbols, checked, sanitizer)) = rayon::join(unwind, || {
        let symbols = function_symbols(elf);
        let sanitizer = Sanitizer::of(elf, symbols.iter().map(|s| &*s.name));
        (symbols, elf.check_instrumentable(), sanitizer)
    });
    checked?;
    let managed = elf.managed_runtime();
    let sanitizer = sanitizer?;
    let (ranges, unwind) = unwind?;
    let discovered = || {
        let mut input = of_parts(elf, ranges, symbols);
        if sanitizer.watches && options.flavour == FLAVOUR_SOFT {
            input.shows_returns = true;
            input.reports = sanitizers::reports(elf, &input);
        }
        input.has_sanitizer = sanitizer.linked_in;
        input.walks_stacks = managed.is_some();
        // With a loader, the runtime's wrappers see the C library's system calls.
        input.hook_calls = options.flavour == FLAVOUR_SOFT && !is_c_library(elf.soname());
        if options.flavour == FLAVOUR_SOFT {
            input.markers = markers::find_markers(elf, &input);
        }
        let program = discover(&input, options);
        (input, program)
    };
    // The first steps use one core, so another one hashes the input at the same time.
    let ((mut input, mut program), hash) =
        rayon::join(discovered, || XxHash3_64::oneshot(elf.data));
    if let Some(runtime) = managed {
        managed_runtime::check_runtime(runtime, elf, &input, options)?;
        if runtime == ManagedRuntime::Go {
            // Its tables hold the bounds of the code, but no function reads the code.
            program.reads_code = None;
        }
    }
    packed::refuse_packed(elf, &input, &program, unwind.fdes.is_empty())?;
    if options.flavour == FLAVOUR_SOFT {
        leave_users_of_gs(elf, &input, &mut program, options)?;
    }
    let readers = shown_returns::find_readers(elf, &input, &program, &unwind, sanitizer.watches);
    if let Some(readers) = readers.filter(|_| !sanitizer.linked_in) {
        check_return_readers(&readers, options)?;
        input.shows_returns |= options.flavour == FLAVOUR_SOFT;
        input.return_readers = readers;
    }
    if let Some(by) = program.reads_code {
        check_reader(elf, by, options)?;
    }
    let opens_memory = memory_files::find_memory_file_use(elf, &input, &program);
    if let Some(file_use) = opens_memory {
        check_memory_files(elf, file_use, options)?;
    }
    let demand = thread_demand(elf, &input, &mut program, options, managed);
    let opens_itself = self_reads::opens_itself(&input);
    let opens_maps = self_reads::opens_maps(&input);
    let payload = payload::find_payload(elf);
    if let Some(payload) = &payload {
        check_payload(elf, payload, &input, &program)?;
    }
    let inspected = signals::inspected_faults(elf, &input, &program);
    let faults = match &inspected {
        Some(_) => FaultPolicy {
            shows_faults: true,
            own: signals::own_file_memory(elf, &input, &program),
        },
        None => FaultPolicy::default(),
    };
    let wrapped = match inspected {
        Some(installer) if options.flavour == FLAVOUR_PT => {
            Some(shown_by(elf, &input, &program, &installer, options)?)
        }
        _ => None,
    };
    Ok(Understood {
        unwind,
        sanitizer,
        input,
        program,
        faults,
        hash,
        opens_itself,
        opens_memory,
        opens_maps,
        demand: demand.filter(|demand| options.flavour == FLAVOUR_SOFT || !demand.soft_only),
        payload,
        wrapped,
    })
}

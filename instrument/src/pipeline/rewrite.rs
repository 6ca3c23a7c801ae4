//! One file from input to output: analysis and emission function by function in parallel, layout,
//! sidecar.
//!
//! Pure as far as files go: [`rewrite`] takes bytes and gives an image and a sidecar;
//! [`crate::cli`] writes them, the image from when it is complete on.

use crate::common::skip_reason::LeftReason;
use crate::discover::scan::discover;
use crate::discover::{flag_writes, gs_base, memory_files, self_reads, state_calls};
use crate::emit::{Emitted, displacements, emit};
use crate::ir::FunctionId;
use crate::link::elf_writer::{Image, NewSymbol, assemble};
use crate::link::frames::CloneFde;
use crate::link::layout::{LayoutInput, lay_out, place};
use crate::link::{elf_writer, fault_shim, frames};
use crate::pipeline::function_pass::analyze;
use crate::plan::types::ImplicitLoads;
use crate::program::fixed_memory::FaultPolicy;
use crate::program::imports::Imports;
use crate::program::sanitizers::Sanitizer;
use crate::program::section_bounds::Bounds;
use crate::program::shown_returns::ShownReturns;
use crate::program::{
    FuncSymbol, Input, Options, Program, SegmentBytes, markers, packed, sanitizers, shown_returns,
    syscalls,
};
use crate::report::Report;
use crate::sidecar::columns::{Columns, OfClone};
use crate::sidecar::{Annotations, Entry, Strings, lines};
use crate::signals::{Finding, Wrapped};
use crate::unwind::{Tables, UnwindRange};
use crate::{report, sidecar, signals};
use iced_x86::{Decoder, DecoderOptions, OpKind};
use mgz_abi::counters;
use mgz_abi::module_note::{Cover, FLAVOUR_PT, FLAVOUR_SOFT};
use mgz_abi::phases::Marker;
use mgz_abi::slot::ID_LIMIT;
use mgz_annotations_schema::manifest::NotInstrumented;
use mgz_annotations_schema::sidecar::{Header, Input as InputHeader};
use mgz_elf::debug_files::{self, DebugFiles, Source};
use mgz_elf::image::{Elf, R_64, R_IRELATIVE, R_RELATIVE, Relocation};
use mgz_elf::library_search::is_c_library;
use mgz_elf::payload::Payload;
use mgz_elf::{Refusal, own_folder, payload, symbols};
use object::elf;
use rayon::BroadcastContext;
use std::any::Any;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use twox_hash::XxHash3_64;

/// Settings for one file, except for those of the analysis.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Path of the input, for the sidecar.
    pub input: String,
    /// Path of the output, for the sidecar.
    pub output: String,
    /// Path of the sidecar for the note, if it is not the output's with `.mgza`.
    pub sidecar_path: Option<Vec<u8>>,
    /// Library search path to put in front.
    pub search_path: Option<crate::link::runpath::SearchPath>,
    /// Libraries that the software backend's runtime is to come behind, for the note.
    pub before_runtime: Vec<String>,
    /// First record id; by default the input's hash chooses.
    pub id_first: Option<u32>,
    /// Debug information may come from servers.
    pub debuginfod: bool,
    /// Text that tells runs with different options apart.
    pub options_text: String,
}

/// The result.
#[derive(Debug)]
pub struct Rewritten<W> {
    /// State of the new file's image.
    pub begun: W,
    /// Its sidecar; the report is still to be put in.
    pub annotations: Annotations,
    /// Figures.
    pub report: Report,
    /// Data left over in memory. Freeing it takes a while, which is wasted if the process ends
    /// anyway.
    pub leftovers: Box<dyn Any + Send>,
}

/// Input of analysis from a file.
pub fn analysis_input<'a>(elf: &Elf<'a>, unwind: &Tables<'a>) -> Input<'a> {
    of_parts(elf, unwind.ranges(), function_symbols(elf))
}

fn function_symbols<'a>(elf: &Elf<'a>) -> Vec<FuncSymbol<'a>> {
    symbols::functions(elf)
        .into_iter()
        .map(|(name, addr, size)| FuncSymbol { name, addr, size })
        .collect()
}

/// Rest of [`analysis_input`], once its largest parts are there.
fn of_parts<'a>(
    elf: &Elf<'a>,
    unwind_ranges: Vec<UnwindRange>,
    symbols: Vec<FuncSymbol<'a>>,
) -> Input<'a> {
    let segments = elf.loads().map(|s| SegmentBytes {
        vaddr: s.vaddr,
        bytes: elf
            .at(s.vaddr)
            .and_then(|b| b.get(..s.filesz as usize))
            .unwrap_or(&[]),
        writable: s.flags & elf::PF_W.0 != 0,
        executable: s.flags & elf::PF_X.0 != 0,
    });
    let relocations = elf.relocations();
    let mut relocated: Vec<u64> = relocations.iter().map(|r| r.at).collect();
    relocated.sort_unstable();
    relocated.dedup();
    let exec_ranges = elf.code_ranges();
    let in_code = |a: u64| exec_ranges.iter().any(|r| r.contains(&a));
    // Value of a word when the loader is done, if its symbol is this file's.
    let holds = |r: &Relocation| match r.kind {
        R_RELATIVE | R_IRELATIVE => Some(r.addend),
        R_64 => Some(elf.defined_symbol(r.symbol)?.wrapping_add(r.addend)),
        _ => None,
    };
    let targets = relocations.iter().filter_map(|r| Some((r.at, holds(r)?)));
    let mut relative_targets: Vec<(u64, u64)> = targets.filter(|t| in_code(t.1)).collect();
    relative_targets.sort_unstable();
    let (labels, objects) = symbols::others(elf, in_code);
    let restartable = elf.restartable().into_iter();
    let restartable =
        restartable.map(|at| (at..at.saturating_add(1), LeftReason::RestartableSequence));
    let mut input = Input {
        segments: segments.collect(),
        unwind: unwind_ranges,
        symbols,
        labels,
        objects,
        relocated,
        relative_targets,
        plt: [".plt", ".iplt"]
            .iter()
            .flat_map(|p| elf.ranges_named(p))
            .collect(),
        got: elf.ranges_named(".got"),
        has_sanitizer: false,
        shows_returns: false,
        return_readers: Default::default(),
        reports: Default::default(),
        excluded: restartable.collect(),
        pie: elf.is_pie(),
        bounds: Bounds::default(),
        hook_calls: false,
        markers: Vec::new(),
        called: Vec::new(),
        resolvers: Vec::new(),
        exec_ranges,
        no_return: Default::default(),
        imported: Default::default(),
    };
    // (Relocations tell the values of words. In fixed files, the words themselves do.)
    let word = |at: u64| match input.relocated.binary_search(&at).is_ok() {
        true => {
            let known = input.relative_targets.binary_search_by_key(&at, |t| t.0);
            known.ok().map(|n| input.relative_targets[n].1)
        }
        false => input
            .bytes_at(at)?
            .first_chunk()
            .map(|b| u64::from_le_bytes(*b)),
    };
    let mut called = elf.called_at_both_ends(word);
    if elf.entry != 0 {
        called.push(elf.entry);
    }
    input.resolvers = symbols::resolvers(elf);
    let chosen = relocations.iter().filter(|r| r.kind == R_IRELATIVE);
    input.resolvers.extend(chosen.map(|r| r.addend));
    input.resolvers.sort_unstable();
    input.resolvers.dedup();
    called.extend(&input.resolvers);
    input.called = called;
    let imports = Imports::read(elf, &input);
    input.bounds = Bounds::of(elf, &input, &imports);
    input.no_return = imports.no_return();
    input.imported = imports.conventions;
    input
}

/// A function with a clone.
struct Cloned {
    /// The clone without its code.
    clone: Box<Emitted>,
    code: Vec<u8>,
    pieces: Vec<CloneFde>,
    /// Number of records.
    records: u32,
    /// [`displacements`] of its records, where the file has them.
    displacements: Vec<i32>,
    implicit: ImplicitLoads,
}

/// A function's outcome.
enum Outcome {
    Cloned(Cloned),
    Left(String),
}

/// Shared input of the analysis of functions.
struct Work<'w, 'a> {
    input: &'w Input<'a>,
    unwind: &'w Tables<'a>,
    program: &'w Program,
    options: &'w Options,
    faults: &'w FaultPolicy,
    translated: bool,
    fixed: bool,
    columns: &'w Columns,
}

/// Functions that a thread takes at a time.
const GROUP: usize = 16;

impl Work<'_, '_> {
    /// Analyses and emits all functions on all cores, by and large in their order, so that their
    /// rows need not be kept for long. The outcomes are in groups.
    fn all(&self) -> Vec<Vec<Outcome>> {
        let functions = self.program.functions.len();
        let next = AtomicUsize::new(0);
        let on_thread = |_: BroadcastContext| {
            let groups = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed))
                .take_while(|group| group * GROUP < functions);
            groups
                .map(|group| {
                    (
                        group,
                        self.group(group, group * GROUP..functions.min((group + 1) * GROUP)),
                    )
                })
                .collect::<Vec<_>>()
        };
        let mut groups: Vec<(usize, Vec<Outcome>)> =
            rayon::broadcast(on_thread).into_iter().flatten().collect();
        groups.sort_unstable_by_key(|(group, _)| *group);
        groups.into_iter().map(|(_, group)| group).collect()
    }

    fn group(&self, group: usize, functions: Range<usize>) -> Vec<Outcome> {
        let mut rows = Vec::with_capacity(GROUP);
        let outcomes = functions.map(|index| self.one(index, &mut rows)).collect();
        self.columns.put(group, rows);
        outcomes
    }

    fn one(&self, index: usize, rows: &mut Vec<OfClone>) -> Outcome {
        let &Work {
            input,
            unwind,
            program,
            options,
            faults,
            translated,
            fixed,
            ..
        } = self;
        let id = FunctionId(index as u32);
        let function = match analyze(input, program, id, options, faults) {
            Ok(function) => function,
            Err(reason) => return Outcome::Left(reason.to_string()),
        };
        let Some(bytes) = input.slice(&function.range) else {
            return Outcome::Left("no bytes in the file".into());
        };
        match emit(&function, bytes, options.flavour, fixed, translated) {
            Ok((mut clone, own)) => {
                let pieces = frames::pieces(unwind, &clone);
                // Control enters blocks. Only exception tables ask for other places in the clone.
                if !pieces.iter().any(|p| p.has_lsda(unwind)) {
                    clone
                        .marks
                        .keep(function.cfg.blocks.iter().map(|b| b.insns.start as usize));
                }
                let records = own.records.len() as u32;
                let watched = translated && options.flavour == FLAVOUR_SOFT && !options.counts;
                let displacements = match watched {
                    true => displacements(&own),
                    false => Vec::new(),
                };
                rows.push(OfClone {
                    function: id.0,
                    rows: own,
                    align: clone.align,
                    len: clone.len.into(),
                });
                let code = std::mem::take(&mut clone.code);
                Outcome::Cloned(Cloned {
                    clone: Box::new(clone),
                    code,
                    pieces,
                    records,
                    displacements,
                    implicit: function.plan.implicit,
                })
            }
            Err(error) => Outcome::Left(error.to_string()),
        }
    }
}

/// The pt flavour: calls that install handlers which may look at faults, so that
/// [`crate::link::fault_shim`] can show them the original's places.
fn shown_by(
    elf: &Elf,
    input: &Input,
    program: &Program,
    finding: &Finding,
) -> Result<Wrapped, Refusal> {
    signals::wrapped(elf, input, program).ok_or_else(|| {
        Refusal::declined(format!(
            "it may install a handler that looks at where a fault happened, or where the signal found the program ({}; at {:#x}), and not by calls of another file's sigaction alone, so that with the pt backend nothing shows the handler the original place; use --backend soft{}",
            finding.why,
            finding.at,
            if elf.is_static_executable() {
                ", or link it dynamically"
            } else {
                ""
            }
        ))
    })
}

/// The soft flavour: leaves functions alone that borrow the `%gs` base and put it back. Declines a
/// file with others, and where the signals of `burst` may come in between.
fn leave_users_of_gs(
    elf: &Elf,
    input: &Input,
    program: &mut Program,
    options: &Options,
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
    // (The C library's own functions obey their callers.)
    if !is_c_library(elf.soname())
        && let Some(at) = state_calls::find(input, program, &state_calls::SETS_GS)
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

/// Demand of a program on its threads that only `burst` leaves intact: a thread may not have it
/// while it runs a clone.
struct ThreadDemand {
    /// Act of the program, with its place.
    what: String,
    /// It sees how many instructions are executed, and where.
    counts_steps: bool,
    /// It cannot be recorded without changes to a static executable's code either.
    needs_original: bool,
    /// It is none in the PT flavour.
    soft_only: bool,
}

/// Leaves the functions alone that set flags with which no clone may run. Returns the file's demand
/// on its threads.
fn thread_demand(
    elf: &Elf,
    input: &Input,
    program: &mut Program,
    options: &Options,
) -> Option<ThreadDemand> {
    let has_handlers = !gs_base::has_no_handlers(elf, input);
    let flags = flag_writes::leave(input, program, has_handlers);
    let dispatches = || {
        (options.flavour == FLAVOUR_SOFT && !is_c_library(elf.soname()))
            .then(|| state_calls::find(input, program, &state_calls::DISPATCHES_CALLS))
            .flatten()
    };
    if let Some(at) = flags.steps {
        return Some(ThreadDemand {
            what: format!("it sets the trap flag (at {at:#x}), by which it steps through itself"),
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
    flags.alignment.map(|at| ThreadDemand {
        what: format!(
            "it sets the flag for alignment checks (at {at:#x}), with which accesses of probes would fail"
        ),
        counts_steps: false,
        needs_original: false,
        soft_only: true,
    })
}

/// Declines a file with such a demand, where it cannot be met.
fn check_demand(elf: &Elf, demand: &ThreadDemand, options: &Options) -> Result<(), Refusal> {
    let remedy = if options.flavour == FLAVOUR_PT && demand.soft_only {
        return Ok(());
    } else if demand.needs_original && elf.is_static_executable() {
        "a static executable is changed in all modes: link it dynamically, and use"
    } else if options.flavour == FLAVOUR_PT || !options.translated {
        "use"
    } else {
        return Ok(());
    };
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

/// The pt flavour: declines a file in which somebody looks at return addresses, which are those of
/// clones there.
fn check_return_readers(readers: &ShownReturns, options: &Options) -> Result<(), Refusal> {
    if options.flavour != FLAVOUR_PT || !readers.matters {
        return Ok(());
    }
    Err(Refusal::declined(format!(
        "{} looks at return addresses (-pg, -finstrument-functions, or __builtin_return_address), and with the pt backend would find those of rewritten code; use --backend soft, whose calls then push the original's",
        readers.first
    )))
}

/// Declines a file that reads its own code, where that is changed: in the file, when it runs, or
/// both.
fn check_reader(elf: &Elf, by: u64, options: &Options) -> Result<(), Refusal> {
    let Some(remedy) = remedy_for_readers(elf, options) else {
        return Ok(());
    };
    Err(Refusal::declined(format!(
        "it reads its own code as data (seen at {by:#x}; a checksum, or code that it copies), and would find entry jumps there; {remedy} use --backend soft --for burst, and record with --mode burst"
    )))
}

/// The same for one that may read its code past all protections.
fn check_memory_files(
    elf: &Elf,
    finding: memory_files::Finding,
    options: &Options,
) -> Result<(), Refusal> {
    let Some(remedy) = remedy_for_readers(elf, options) else {
        return Ok(());
    };
    let memory_files::Finding { what, at } = finding;
    let seen = if at == 0 {
        String::new()
    } else {
        format!(" (seen at {at:#x})")
    };
    Err(Refusal::declined(format!(
        "it may read or change its own code by {what}{seen}, and would find entry jumps there, or change what its clones do not follow; {remedy} use --backend soft --for burst, and record with --mode burst"
    )))
}

/// Start of the advice for a file that reads its own code: it tells where the code is changed.
/// `None` if the code is not changed.
fn remedy_for_readers(elf: &Elf, options: &Options) -> Option<&'static str> {
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

/// Declines a file that knows where its payload begins, or how long the file is: it may read to its
/// end, or compare.
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

/// Facts known of a file and its program before functions are analysed one by one.
pub struct Understood<'a> {
    /// Its unwind tables.
    pub unwind: Tables<'a>,
    /// Relation of the file to a sanitizer.
    pub sanitizer: Sanitizer,
    /// The file.
    pub input: Input<'a>,
    /// Its functions.
    pub program: Program,
    /// Form in which handlers see faults.
    pub faults: FaultPolicy,
    /// Hash of the file.
    pub hash: u64,
    /// Address where it opens its own file.
    opens_itself: Option<u64>,
    /// Means by which it may read its own memory past all protections.
    opens_memory: Option<memory_files::Finding>,
    opens_maps: Option<u64>,
    /// Its demand on threads that only `burst` leaves intact.
    demand: Option<ThreadDemand>,
    /// Data that it carries apart from its ELF content.
    payload: Option<Payload>,
    /// Calls through which handlers that are shown faults are installed.
    wrapped: Option<Wrapped>,
}

/// Pass 1 and all work that concerns the program as a whole. Declines files that cannot be
/// rewritten safely.
pub fn understand<'a>(elf: &Elf<'a>, options: &Options) -> Result<Understood<'a>, Refusal> {
    let unwind = || Tables::read(elf).map(|unwind| (unwind.ranges(), unwind));
    let (unwind, (symbols, checked, sanitizer)) = rayon::join(unwind, || {
        let symbols = function_symbols(elf);
        let sanitizer = Sanitizer::of(elf, symbols.iter().map(|s| &*s.name));
        (symbols, elf.check_instrumentable(), sanitizer)
    });
    checked?;
    let sanitizer = sanitizer?;
    let (ranges, unwind) = unwind?;
    let discovered = || {
        let mut input = of_parts(elf, ranges, symbols);
        if sanitizer.watches && options.flavour == FLAVOUR_SOFT {
            input.shows_returns = true;
            input.reports = sanitizers::reports(elf, &input);
        }
        input.has_sanitizer = sanitizer.linked_in;
        // The runtime's wrappers meet the system calls of a C library with a loader.
        input.hook_calls = options.flavour == FLAVOUR_SOFT && !is_c_library(elf.soname());
        if options.flavour == FLAVOUR_SOFT {
            input.markers = markers::find(elf, &input);
        }
        let program = discover(&input, options);
        (input, program)
    };
    // The first steps keep one core busy, so another can go through the input meanwhile.
    let ((mut input, mut program), hash) =
        rayon::join(discovered, || XxHash3_64::oneshot(elf.data));
    packed::check(elf, &input, &program, unwind.fdes.is_empty())?;
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
    let opens_memory = memory_files::find(elf, &input, &program);
    if let Some(finding) = opens_memory {
        check_memory_files(elf, finding, options)?;
    }
    let demand = thread_demand(elf, &input, &mut program, options);
    let opens_itself = self_reads::opens_itself(&input);
    let opens_maps = self_reads::opens_maps(&input);
    let payload = payload::find(elf);
    if let Some(payload) = &payload {
        check_payload(elf, payload, &input, &program)?;
    }
    let inspected = signals::inspected_faults(elf, &input, &program);
    let faults = match &inspected {
        Some(_) => FaultPolicy {
            shows_faults: true,
            own: signals::own(elf, &input, &program),
        },
        None => FaultPolicy::default(),
    };
    let wrapped = match inspected {
        Some(finding) if options.flavour == FLAVOUR_PT => {
            Some(shown_by(elf, &input, &program, &finding)?)
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

/// Rewrites a file. `begin` is given the image as soon as it is complete, while the sidecar is
/// still being made, which may yet fail.
pub fn rewrite<'a, W: Send>(
    data: &'a [u8],
    options: &Options,
    settings: &Settings,
    begin: impl FnOnce(Image<'a>) -> W + Send,
) -> Result<Rewritten<W>, Refusal> {
    let elf = Elf::parse(data)?;
    let understood = understand(&elf, options)?;
    let Understood {
        unwind,
        sanitizer,
        input,
        mut program,
        faults,
        hash,
        opens_itself,
        opens_memory,
        opens_maps,
        demand,
        payload,
        wrapped,
    } = understood;
    let translated = options.translated || input.shows_returns;
    // The clone is a few times larger than the code at most.
    let fixed = !elf.is_pie()
        && crate::link::elf_writer::place(&elf)?.saturating_add(8 * data.len() as u64) < 1 << 30;
    let debug = debug_files::find(&elf, Path::new(&settings.input), settings.debuginfod);
    let columns = Columns::new(
        options.flavour,
        debug.source != Source::Nothing,
        program.functions.len().div_ceil(GROUP),
    );
    let outcomes = Work {
        input: &input,
        unwind: &unwind,
        program: &program,
        options,
        faults: &faults,
        translated,
        fixed,
        columns: &columns,
    }
    .all();

    let undecoded = LeftReason::Undecodable.to_string();
    let undecoded = outcomes
        .iter()
        .flatten()
        .filter(|o| matches!(o, Outcome::Left(why) if *why == undecoded));
    packed::check_decoded(program.functions.len(), undecoded.count())?;
    // (Bytes of encrypted code would seem to have such a demand.)
    if let Some(demand) = &demand {
        check_demand(&elf, demand, options)?;
    }
    if input.hook_calls && elf.is_static_executable() {
        let left: Vec<bool> = outcomes
            .iter()
            .flatten()
            .map(|o| matches!(o, Outcome::Left(_)))
            .collect();
        if let Some(at) = syscalls::unseen(&input, &program, &left) {
            return Err(Refusal::declined(format!(
                "a static executable with a system call in code that is not understood (at {at:#x}), which the soft backend's runtime must see; link it dynamically, or use --backend pt"
            )));
        }
    }
    let mut report = Report::new(&elf, &unwind, options.flavour);
    // (A static executable has its runtime by then.)
    let late = options.flavour == FLAVOUR_SOFT && !elf.is_static_executable();
    report.not_instrumented = NotInstrumented {
        stray_bytes: program.stray_bytes,
        linkage_bytes: input.plt.iter().map(|r| r.end - r.start).sum(),
        before_start: if late {
            input.resolvers.len() as u64
        } else {
            0
        },
        ..NotInstrumented::default()
    };
    report.reads_code = program.reads_code;
    report.burst_only = demand.map(|demand| demand.what);
    report.looks_beside = own_folder::find_sign(&elf);
    report.shows_returns = input
        .shows_returns
        .then(|| input.return_readers.first.clone())
        .filter(|who| !who.is_empty());
    report.opens_itself = opens_itself;
    report.opens_memory = opens_memory.map(|finding| finding.what.to_owned());
    report.opens_maps = opens_maps;
    report.payload = payload.as_ref().map(|p| report::Payload {
        bytes: p.range.end - p.range.start,
        offset: p.range.start,
        section: p.section.clone(),
        ..report::Payload::default()
    });
    let names = match program.functions.iter().any(|f| f.name.is_empty()) {
        true => debug_files::names(&elf, &debug),
        false => HashMap::new(),
    };
    let named = |name: String, at: u64| match names.get(&at) {
        Some(known) if name.is_empty() => known.clone(),
        _ => name,
    };
    report.debug_files.clone_from(&debug.said);
    let count = program.functions.len();
    let mut entries = Vec::with_capacity(count);
    let (mut clones, mut codes) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let (mut pieces, mut record_counts) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let mut displacements = Vec::with_capacity(count);
    for (info, outcome) in program
        .functions
        .iter_mut()
        .zip(outcomes.into_iter().flatten())
    {
        let mut entry = Entry {
            name: named(std::mem::take(&mut info.name), info.range.start),
            range: info.range.clone(),
            left: None,
            clone: None,
        };
        match outcome {
            Outcome::Cloned(own) => {
                report.cloned(&info.range, own.implicit);
                entry.clone = Some(clones.len());
                clones.push(own.clone);
                codes.push(own.code);
                pieces.push(own.pieces);
                record_counts.push(own.records);
                displacements.push(own.displacements);
            }
            Outcome::Left(reason) => {
                report.left(&reason, &info.range);
                entry.left = Some(reason);
            }
        }
        entries.push(entry);
    }
    if columns.records() == 0
        && program
            .functions
            .iter()
            .all(|f| f.left == Some(LeftReason::NotSelected))
        && !program.functions.is_empty()
    {
        return Err(Refusal::failed(
            "no function was selected; check --functions and --exclude (mgz-record --hot suggests functions)",
        ));
    }
    let mut covers = Vec::new();
    if faults.shows_faults {
        covers = fault_shim::uncover(
            &elf,
            &mut clones,
            &faults.own,
            options.flavour == FLAVOUR_SOFT && faults.own.stays(),
        );
        report.shows_faults = true;
    }
    report.functions.entered_late = clones.iter().filter(|c| !c.enters_at_start()).count() as u64;
    report.not_instrumented.entered_late = clones.iter().filter(|c| c.late_loads).count() as u64;
    let gathered = Gathered {
        entries,
        clones,
        codes,
        pieces,
        record_counts,
        displacements,
        columns,
        debug,
        covers,
        hash,
        report,
        wrapped,
        translated,
        sanitizer,
        payload,
        markers: input.markers.clone(),
    };
    // Giving back so much memory takes a while.
    rayon::join(
        || finish(&elf, &unwind, options, settings, gathered, begin),
        || drop((program, input)),
    )
    .0
}

/// All functions' results.
struct Gathered {
    entries: Vec<Entry>,
    #[allow(clippy::vec_box, reason = "moving them takes longer than finding them")]
    clones: Vec<Box<Emitted>>,
    /// Code of each clone.
    codes: Vec<Vec<u8>>,
    /// Unwind entries of each clone.
    pieces: Vec<Vec<CloneFde>>,
    record_counts: Vec<u32>,
    /// Displacements of each clone.
    displacements: Vec<Vec<i32>>,
    columns: Columns,
    debug: DebugFiles,
    covers: Vec<Cover>,
    /// Hash of the input.
    hash: u64,
    report: Report,
    /// Handlers are shown the original's places of faults by way of these.
    wrapped: Option<Wrapped>,
    /// The clones are translated.
    translated: bool,
    /// Relation of the file to a sanitizer.
    sanitizer: Sanitizer,
    payload: Option<Payload>,
    markers: Vec<Marker>,
}

/// The symbol of a function's clone. `same`: it has the original's name, which a sanitizer's reports show.
fn symbol(entry: &Entry, addr: u64, size: u64, same: bool) -> NewSymbol<'_> {
    match entry.name.is_empty() {
        true => NewSymbol {
            name: format!("mgz_{:x}", entry.range.start).into(),
            suffix: "",
            addr,
            size,
        },
        false => NewSymbol {
            name: entry.name.as_str().into(),
            suffix: if same { "" } else { ".mgz" },
            addr,
            size,
        },
    }
}

fn finish<'a, W: Send>(
    elf: &Elf<'a>,
    unwind: &Tables,
    options: &Options,
    settings: &Settings,
    gathered: Gathered,
    begin: impl FnOnce(Image<'a>) -> W + Send,
) -> Result<Rewritten<W>, Refusal> {
    let Gathered {
        entries,
        clones,
        codes,
        pieces,
        record_counts,
        displacements,
        mut columns,
        debug,
        covers,
        hash,
        mut report,
        wrapped,
        translated,
        sanitizer,
        payload,
        markers,
    } = gathered;
    let identity = [
        hash,
        XxHash3_64::oneshot_with_seed(hash, settings.options_text.as_bytes()),
    ];
    let mut id = [0; 16];
    id[..8].copy_from_slice(&identity[0].to_le_bytes());
    id[8..].copy_from_slice(&identity[1].to_le_bytes());
    let count: u64 = record_counts.iter().map(|&n| u64::from(n)).sum();
    let limit = if options.counts {
        counters::LIMIT
    } else {
        ID_LIMIT
    };
    let room = u64::from(limit).saturating_sub(count);
    if room == 0 {
        return Err(Refusal::declined("too many records for one file"));
    }
    let chosen = settings
        .id_first
        .map_or(identity[1] ^ hash.rotate_left(32), u64::from);
    let id_first = (chosen % room) as u32;
    let parts = LayoutInput {
        elf,
        unwind,
        clones: &clones,
        covers: &covers,
        pieces: &pieces,
        record_counts: &record_counts,
        displacements: &displacements,
        flavour: options.flavour,
        translated,
        counts: options.counts,
        sanitizer,
        reads_code: report.reads_code.is_some() || report.opens_memory.is_some(),
        burst_only: report.burst_only.is_some(),
        enters_runtime: options.flavour == FLAVOUR_SOFT && elf.is_static_executable(),
        id_first,
        sidecar_id: id,
        sidecar_path: settings.sidecar_path.clone(),
        search_path: settings.search_path.clone(),
        before_runtime: &settings.before_runtime,
        markers: &markers,
        wrapped: wrapped.as_ref(),
    };
    let (front, placed) = place(&parts)?;
    let watches = parts.sanitizer.watches;
    let file = || {
        let (mut additions, sizes) = lay_out(&parts, front, &placed, codes)?;
        additions.symbols = entries
            .iter()
            .filter_map(|e| {
                e.clone
                    .map(|n| symbol(e, placed.clones[n], clones[n].len.into(), watches))
            })
            .collect();
        additions.payload = payload;
        let image = assemble(elf, additions)?;
        let payload_at = image.payload_at;
        Ok::<_, Refusal>((begin(image), sizes, payload_at))
    };
    let annotate = || {
        let mut strings = Strings::default();
        let functions = sidecar::functions(&entries, &clones, &placed, &mut strings);
        let locations = lines::locate(elf, &debug.source, &mut columns.rows(), &mut strings);
        let strings = strings.into_list();
        rayon::join(
            || sidecar::address_map(&clones, &placed),
            || columns.finish(placed.start, &functions, &locations, &strings),
        )
    };
    // Much of either is on one core.
    let (file, (map, columns)) = rayon::join(file, annotate);
    let (begun, sizes, payload_at) = file?;
    let (columns, counts) =
        columns.map_err(|e| Refusal::failed(format!("annotations cannot be compressed: {e}")))?;
    report.sized(&placed, sizes, counts);
    if let Some((payload, at)) = report.payload.as_mut().zip(payload_at) {
        payload.repeated_at = at;
    }
    let mut annotations = Annotations {
        id,
        map,
        columns,
        ..Annotations::default()
    };
    annotations.header = Header {
        tool: concat!("mgz-instrument ", env!("CARGO_PKG_VERSION")).into(),
        input: InputHeader {
            path: settings.input.clone(),
            build_id: elf.build_id(),
            hash: format!("{hash:016x}"),
            size: elf.data.len() as u64,
        },
        output: settings.output.clone(),
        flavour: if options.flavour == FLAVOUR_PT {
            "pt"
        } else {
            "soft"
        }
        .into(),
        id_first,
        id_count: placed.record_count,
        base: elf_writer::base(elf)?,
        ..Header::default()
    };
    Ok(Rewritten {
        begun,
        annotations,
        report,
        leftovers: Box::new((clones, pieces, entries)),
    })
}

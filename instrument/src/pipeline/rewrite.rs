//! One file from input to output: analysis and emission function by function in parallel, layout,
//! sidecar.
//!
//! This module does not access files: [`rewrite`] takes bytes and returns an image and a sidecar.
//! [`crate::cli`] writes both, and begins with the image as soon as it is complete.

use crate::common::skip_reason::LeftReason;
use crate::emit::{Emitted, displacements, emit};
use crate::ir::FunctionId;
use crate::link::elf_writer::Image;
use crate::link::frames::CloneFde;
use crate::link::{elf_writer, fault_shim, frames};
use crate::pipeline::finish::{Functions, Gathered, finish};
use crate::pipeline::function_pass::analyze_for_prefetch;
use crate::pipeline::prefetched::Prefetches;
use crate::pipeline::rewritten::Rewritten;
use crate::pipeline::settings::Settings;
use crate::pipeline::understand::{Understood, check_demand, understand};
use crate::plan::planned_function::Function;
use crate::plan::types::ImplicitLoads;
use crate::program::fixed_memory::FaultPolicy;
use crate::program::{Input, InstrumentOptions, Program, packed, syscalls};
use crate::report;
use crate::report::Report;
use crate::sidecar::Entry;
use crate::sidecar::columns::{Columns, OfClone};
use crate::unwind::Tables;
use mgz_abi::module_note::{Cover, FLAVOUR_SOFT};
use mgz_annotations_schema::manifest::NotInstrumented;
use mgz_elf::debug_files::{self, DebugFiles, DebugSource};
use mgz_elf::image::Elf;
use mgz_elf::{Refusal, own_folder};
use rayon::BroadcastContext;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

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

enum Outcome {
    Cloned(Cloned),
    Left(String),
}

/// Shared input of the analysis of functions.
struct Work<'w, 'a> {
    input: &'w Input<'a>,
    unwind: &'w Tables<'a>,
    program: &'w Program,
    options: &'w InstrumentOptions,
    faults: &'w FaultPolicy,
    translated: bool,
    fixed: bool,
    columns: &'w Columns,
    prefetches: &'w Prefetches,
}

/// Number of functions that a thread takes at a time.
const GROUP: usize = 16;

impl Work<'_, '_> {
    /// Analyses and emits all functions on all cores, roughly in order, so that their rows need not
    /// be kept for long. The outcomes are in groups.
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
            options,
            translated,
            fixed,
            ..
        } = self;
        let id = FunctionId(index as u32);
        let function = match self.analyze(id) {
            Ok(function) => function,
            Err(reason) => return Outcome::Left(reason),
        };
        let Some(bytes) = input.slice(&function.range) else {
            return Outcome::Left("no bytes in the file".into());
        };
        match emit(&function, bytes, options.flavour, fixed, translated) {
            Ok((mut clone, own)) => {
                let pieces = frames::clone_fdes(unwind, &clone);
                // Control enters at blocks. Other positions in the clone are needed only for
                // exception tables.
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
            Err(error) => {
                self.prefetches.fail(index, &error.to_string());
                Outcome::Left(error.to_string())
            }
        }
    }

    /// Analyses a function. For prefetching, a function is left if no prefetch can be placed.
    fn analyze(&self, id: FunctionId) -> Result<Function, String> {
        let range = &self.program.function(id).range;
        if let Some(request) = &self.options.prefetch
            && !request.concerns(range)
        {
            return Err(LeftReason::NotSelected.to_string());
        }
        let Work {
            input,
            program,
            options,
            faults,
            ..
        } = self;
        let index = id.0 as usize;
        match analyze_for_prefetch(input, program, id, options, faults) {
            Ok((function, outcomes)) => {
                let is_placed = outcomes.iter().any(|o| o.result.is_ok());
                if options.prefetch.is_some() {
                    self.prefetches.put(index, outcomes);
                    if !is_placed {
                        return Err(LeftReason::NotSelected.to_string());
                    }
                }
                Ok(function)
            }
            Err(reason) => {
                self.prefetches.fail(index, &reason.to_string());
                Err(reason.to_string())
            }
        }
    }
}

/// Rewrites a file. `begin` gets the image as soon as it is complete, while the sidecar is still in
/// progress and may yet fail.
pub fn rewrite<'a, W: Send>(
    data: &'a [u8],
    options: &InstrumentOptions,
    settings: &Settings,
    begin: impl FnOnce(Image<'a>) -> W + Send,
) -> Result<Rewritten<W>, Refusal> {
    let elf = Elf::parse(data)?;
    let understood = understand(&elf, options)?;
    let mut analysed = Analysed::of(&elf, options, settings, understood)?;
    analysed.check()?;
    analysed.report_file();
    let mut functions = analysed.gather();
    analysed.check_selection()?;
    let covers = analysed.uncover(&mut functions);
    let prefetches = match &options.prefetch {
        Some(request) => std::mem::take(&mut analysed.prefetches).all(request, &functions.entries),
        None => Vec::new(),
    };
    let Analysed {
        understood,
        translated,
        debug,
        columns,
        mut report,
        ..
    } = analysed;
    let clones = || functions.clones.iter();
    report.functions.entered_late = clones().filter(|c| !c.enters_at_start()).count() as u64;
    report.not_instrumented.entered_late = clones().filter(|c| c.late_loads).count() as u64;
    let Understood {
        unwind,
        sanitizer,
        input,
        program,
        hash,
        payload,
        wrapped,
        ..
    } = understood;
    let gathered = Gathered {
        functions,
        columns,
        debug,
        covers,
        hash,
        report,
        prefetches,
        wrapped,
        translated,
        sanitizer,
        payload,
        markers: input.markers.clone(),
    };
    // Freeing this much memory takes a while.
    rayon::join(
        || finish(&elf, &unwind, options, settings, gathered, begin),
        || drop((program, input)),
    )
    .0
}

/// A file with all of its functions analysed.
struct Analysed<'f, 'a> {
    elf: &'f Elf<'a>,
    options: &'f InstrumentOptions,
    understood: Understood<'a>,
    translated: bool,
    debug: DebugFiles,
    columns: Columns,
    outcomes: Vec<Vec<Outcome>>,
    prefetches: Prefetches,
    report: Report,
}

impl<'f, 'a> Analysed<'f, 'a> {
    /// Analyses and emits all functions.
    fn of(
        elf: &'f Elf<'a>,
        options: &'f InstrumentOptions,
        settings: &Settings,
        understood: Understood<'a>,
    ) -> Result<Analysed<'f, 'a>, Refusal> {
        let Understood {
            input,
            unwind,
            program,
            faults,
            ..
        } = &understood;
        let translated = options.translated || input.shows_returns;
        // The clone is at most a few times larger than the code.
        let most = 8 * elf.data.len() as u64;
        let fixed =
            !elf.is_pie() && elf_writer::segment_address(elf)?.saturating_add(most) < 1 << 30;
        let debug =
            debug_files::find_debug_files(elf, Path::new(&settings.input), settings.debuginfod);
        let columns = Columns::new(
            options.flavour,
            debug.source != DebugSource::Nothing,
            program.functions.len().div_ceil(GROUP),
        );
        let prefetches = Prefetches::default();
        let outcomes = Work {
            input,
            unwind,
            program,
            options,
            faults,
            translated,
            fixed,
            columns: &columns,
            prefetches: &prefetches,
        }
        .all();
        Ok(Analysed {
            elf,
            options,
            report: Report::new(elf, options.flavour),
            understood,
            translated,
            debug,
            columns,
            outcomes,
            prefetches,
        })
    }

    fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().flatten()
    }

    /// Declines a file of encrypted code, a file with a demand that cannot be met, and a file with
    /// system calls that the runtime would not see.
    fn check(&self) -> Result<(), Refusal> {
        let Understood {
            input,
            program,
            demand,
            ..
        } = &self.understood;
        let undecoded = LeftReason::Undecodable.to_string();
        let undecoded = self
            .outcomes()
            .filter(|o| matches!(o, Outcome::Left(why) if *why == undecoded));
        packed::check_decoded(program.functions.len(), undecoded.count())?;
        // (Encrypted bytes may look like such a demand.)
        if let Some(demand) = demand {
            check_demand(self.elf, demand, self.options)?;
        }
        if input.hook_calls && (input.walks_stacks || self.elf.is_static_executable()) {
            let left: Vec<bool> = self
                .outcomes()
                .map(|o| matches!(o, Outcome::Left(_)))
                .collect();
            if let Some(at) = syscalls::unseen(input, program, &left) {
                if !self.elf.is_static_executable() {
                    return Err(Refusal::declined(format!(
                        "its runtime makes a system call in code that is not understood (at {at:#x}), which mgz must see"
                    )));
                }
                return Err(Refusal::declined(format!(
                    "a static executable with a system call in code that is not understood (at {at:#x}), which the soft backend's runtime must see; link it dynamically, or use --backend pt"
                )));
            }
        }
        Ok(())
    }

    /// Puts the facts about the file as a whole into the report.
    fn report_file(&mut self) {
        let (elf, report) = (self.elf, &mut self.report);
        let Understood {
            input,
            program,
            payload,
            ..
        } = &self.understood;
        // (In a static executable, the runtime runs by then.)
        let late = self.options.flavour == FLAVOUR_SOFT && !elf.is_static_executable();
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
        report.burst_only = self.understood.demand.as_ref().map(|d| d.what.clone());
        report.looks_beside = own_folder::find_sign(elf);
        report.shows_returns = input
            .shows_returns
            .then(|| input.return_readers.first.clone())
            .filter(|who| !who.is_empty());
        report.opens_itself = self.understood.opens_itself;
        let opens_memory = self.understood.opens_memory;
        report.opens_memory = opens_memory.map(|finding| finding.what.to_owned());
        report.opens_maps = self.understood.opens_maps;
        report.payload = payload.as_ref().map(|p| report::Payload {
            bytes: p.range.end - p.range.start,
            offset: p.range.start,
            section: p.section.clone(),
            ..report::Payload::default()
        });
        report.debug_files.clone_from(&self.debug.said);
    }

    /// Collects the functions with their clones, and adds their counts to the report.
    fn gather(&mut self) -> Functions {
        let program = &mut self.understood.program;
        let names = match program.functions.iter().any(|f| f.name.is_empty()) {
            true => debug_files::names(self.elf, &self.debug),
            false => HashMap::new(),
        };
        let named = |name: String, at: u64| match names.get(&at) {
            Some(known) if name.is_empty() => known.clone(),
            _ => name,
        };
        let mut functions = Functions::with_capacity(program.functions.len());
        let outcomes = std::mem::take(&mut self.outcomes);
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
                    self.report.cloned(&info.range, own.implicit);
                    entry.clone = Some(functions.clones.len());
                    functions.clones.push(own.clone);
                    functions.codes.push(own.code);
                    functions.pieces.push(own.pieces);
                    functions.record_counts.push(own.records);
                    functions.displacements.push(own.displacements);
                }
                Outcome::Left(reason) => {
                    self.report.left(&reason, &info.range);
                    entry.left = Some(reason);
                }
            }
            functions.entries.push(entry);
        }
        functions
    }

    /// Refuses a selection that matches no function.
    fn check_selection(&self) -> Result<(), Refusal> {
        let functions = &self.understood.program.functions;
        if self.options.prefetch.is_none()
            && self.columns.records() == 0
            && functions
                .iter()
                .all(|f| f.left == Some(LeftReason::NotSelected))
            && !functions.is_empty()
        {
            return Err(Refusal::failed(
                "no function was selected; check --functions and --exclude (mgz-record --hot suggests functions)",
            ));
        }
        Ok(())
    }

    /// Drops entry jumps over code that fault handlers look at. Returns the original code under
    /// those that the runtime may have to take back.
    fn uncover(&mut self, functions: &mut Functions) -> Vec<Cover> {
        let faults = &self.understood.faults;
        if !faults.shows_faults {
            return Vec::new();
        }
        self.report.shows_faults = true;
        fault_shim::uncover(
            self.elf,
            &mut functions.clones,
            &faults.own,
            self.options.flavour == FLAVOUR_SOFT && faults.own.stays(),
        )
    }
}

//! Pass 1: the functions of a program, and every inner address that code or data outside of its
//! control flow may reach.

use crate::common::skip_reason::LeftReason;
use crate::discover::entries::{Entered, Way, enter, entered, inside, tables, words};
use crate::discover::function_ranges::{called_functions, known_functions, stray_bytes, without};
use crate::discover::scanner::{Scan, Scanner, Skim};
use crate::discover::{restartable, self_reads};
use crate::ir::FunctionId;
use crate::program::{FunctionInfo, Input, InstrumentOptions, Program, sanitizers, uncovered};
use crate::util::range_index::Starts;
use mgz_elf::symbols::merge_ranges;
use rayon::prelude::*;
use std::ops::Range;

/// Finds functions and what leads into them.
pub fn discover(input: &Input, options: &InstrumentOptions) -> Program {
    let mut functions = known_functions(input);
    let scans = Scans::of(input, &mut functions);
    let mut discovery = Discovery {
        input,
        program: scans.program(input, functions),
        scans,
    };
    discovery.enter_targets();
    discovery.note_uses();
    discovery.find_self_reads();
    restartable::leave(input, &mut discovery.program);
    merge_ranges(&mut discovery.program.data);
    discovery.aim_ways();
    discovery.enter_doubted();
    discovery.follow_tables();
    discovery.list_aims();
    let Discovery {
        mut program, scans, ..
    } = discovery;
    program.stray_bytes = stray_bytes(input, &program);
    let names = names(input);
    program
        .functions
        .par_iter_mut()
        .for_each(|f| finish(f, options, input, &names));
    // The memory is freed in the background.
    rayon::spawn(move || drop(scans));
    program
}

/// References from all code.
struct Scans {
    /// References from functions.
    functions: Vec<Scan>,
    /// References from the rest, where there are any.
    stray: Vec<Scan>,
}

impl Scans {
    /// Scans all code. Adds the functions found only by calls, then sorts and numbers all
    /// functions.
    fn of(input: &Input, functions: &mut Vec<FunctionInfo>) -> Scans {
        let outside: Vec<Range<u64>> = uncovered(input, functions)
            .iter()
            .flat_map(|gap| without(gap, &input.objects))
            .collect();
        let scanner = Scanner::of(input);
        let mut scans = scanner.scan_all(functions);
        // Most of this code is filler.
        let stray: Vec<Scan> = outside
            .par_iter()
            .map(|r| scanner.scan_stray(r))
            .filter(Scan::tells)
            .collect();
        let found = called_functions(input, &outside, &scans);
        if !found.is_empty() {
            let more: Vec<Scan> = found
                .par_iter()
                .map_init(Skim::default, |skim, f| scanner.scan(f, skim))
                .collect();
            scans.extend(more);
            functions.extend(found);
        }
        for (f, scan) in functions.iter_mut().zip(&mut scans) {
            f.left = f.left.or(scan.left);
            f.course = scan.rare.as_mut().and_then(|rare| rare.course.take());
        }
        functions.sort_by_key(|f| f.range.start);
        functions
            .iter_mut()
            .zip(0..)
            .for_each(|(f, n)| f.id = FunctionId(n));
        Scans {
            functions: scans,
            stray,
        }
    }

    /// The references from all code, piece by piece.
    fn all(&self) -> impl Iterator<Item = &Scan> {
        self.functions.iter().chain(&self.stray)
    }

    /// The program with these functions, before their entries are known.
    fn program(&self, input: &Input, functions: Vec<FunctionInfo>) -> Program {
        let data = self.all().flat_map(|s| &s.rare().used);
        let data = data.chain(&input.objects).cloned().collect();
        let rare = || self.functions.iter().map(Scan::rare);
        Program {
            starts: Starts::of(functions.iter().map(|f| &f.range)),
            functions,
            uses_gs: rare().filter_map(|r| r.gs).collect(),
            sets_flags: rare().filter_map(|r| r.sets_flags).collect(),
            changes_context: rare().filter_map(|r| r.changes_context).collect(),
            aimed: Vec::new(),
            data,
            stray_bytes: 0,
            reads_code: None,
        }
    }
}

/// The program in the making.
struct Discovery<'a> {
    input: &'a Input<'a>,
    scans: Scans,
    program: Program,
}

impl Discovery<'_> {
    /// Notes targets of branches and calls that enter other functions.
    fn enter_targets(&mut self) {
        // Most targets are starts of functions. They are filtered out on all cores.
        let entered: Vec<Entered> = self
            .scans
            .functions
            .par_iter()
            .map(|scan| entered(&self.program, scan))
            .collect();
        for (id, target, way) in entered.into_iter().flatten() {
            enter(&mut self.program, id, target, way);
        }
    }

    /// Notes functions that other code reads, or from whose address it computes others.
    fn note_uses(&mut self) {
        let program = &mut self.program;
        for (s, used) in self
            .scans
            .all()
            .flat_map(|s| s.rare().others.iter().map(move |used| (s, used)))
        {
            // (At a boundary of functions, most addresses are the end of the first one.)
            let at = if program.function_at(used.at).is_some() {
                used.at
            } else {
                used.at.saturating_sub(1)
            };
            let Some(id) = program.function_at(at) else {
                continue;
            };
            let f = &mut program.functions[id.0 as usize];
            // Code that reads at a function's start reads the function's code (to copy it, say).
            // Code may also read there through an address computed from the start.
            if (used.read || used.changed) && used.at == f.range.start {
                program.data.push(f.range.clone());
            }
            f.computed |=
                used.changed || at != f.range.start && (s.jumps || at == used.at && !used.read);
        }
    }

    /// Searches for reads of the file's own code in functions that take code addresses.
    fn find_self_reads(&mut self) {
        let input = self.input;
        let takers: Vec<Range<u64>> = self
            .scans
            .functions
            .par_iter()
            .filter(|s| {
                let rare = s.rare();
                rare.others
                    .iter()
                    .any(|u| self_reads::may_be_read(input, u))
                    || rare.takes_bound
                    || input.bounds.leads_to_segments(&s.calls)
            })
            .map(|s| s.range.clone())
            .collect();
        self_reads::find_self_reads(input, &mut self.program, &takers);
    }

    /// Notes possible targets of branches in code that is not decoded.
    fn aim_ways(&mut self) {
        for &target in self.scans.all().flat_map(|s| &s.rare().ways) {
            if let Some(id) = inside(&self.program, target) {
                self.program.functions[id.0 as usize]
                    .inner_mut()
                    .aimed
                    .push(target);
            }
        }
    }

    /// Notes inner addresses of functions that code outside of functions may enter, and those of
    /// symbols.
    fn enter_doubted(&mut self) {
        let (input, program) = (self.input, &mut self.program);
        let stray = &self.scans.stray;
        // Functions found only by calls are in this code, too.
        let across =
            |&&(from, to): &&(u64, u64)| program.function_at(from) != program.function_at(to);
        let inner: Vec<u64> = stray
            .iter()
            .flat_map(|s| &s.rare().inner)
            .filter(across)
            .map(|b| b.1)
            .collect();
        let elsewhere = stray
            .iter()
            .flat_map(|scan| scan.branches.iter().chain(&scan.calls).chain(&scan.taken))
            .chain(&input.labels)
            .chain(&inner)
            .map(|&t| (t, Way::Doubted));
        for (target, way) in elsewhere.chain(input.symbols.iter().map(|s| (s.addr, Way::Symbol))) {
            if let Some(id) = inside(program, target) {
                enter(program, id, target, way);
            }
        }
    }

    /// Notes the targets in tables of distances and in words of data.
    fn follow_tables(&mut self) {
        let distances = self.scans.all().flat_map(|s| &s.rare().distances);
        tables(self.input, &mut self.program, distances.copied().collect());
        let halves = self.scans.functions.iter().any(|s| s.halves);
        words(self.input, &mut self.program, halves);
    }

    /// Lists addresses outside of functions that code refers to or that have symbols.
    fn list_aims(&mut self) {
        let (input, program) = (self.input, &mut self.program);
        let in_gap = |t: &u64| input.is_code(*t) && program.function_at(*t).is_none();
        let aims = |scan: &Scan| {
            let rare = scan.rare();
            let all = scan
                .branches
                .iter()
                .chain(&scan.calls)
                .chain(&rare.doubtful)
                .chain(&scan.taken)
                .chain(&rare.tabled)
                .chain(&rare.strays);
            all.copied()
                .filter(in_gap)
                .chain(rare.used.iter().map(|r| r.start))
                .collect::<Vec<_>>()
        };
        let Scans { functions, stray } = &self.scans;
        let mut aimed: Vec<u64> = functions
            .par_iter()
            .chain(stray)
            .flat_map_iter(aims)
            .collect();
        aimed.extend(
            input
                .symbols
                .iter()
                .map(|s| s.addr)
                .chain(input.labels.iter().copied())
                .filter(in_gap),
        );
        aimed.extend(input.objects.iter().map(|o| o.start));
        program.aimed.append(&mut aimed);
        program.aimed.sort_unstable();
        program.aimed.dedup();
    }
}

/// Symbols' addresses and names, by address.
fn names<'i>(input: &'i Input) -> Vec<(u64, &'i str)> {
    let mut names: Vec<(u64, &str)> = input.symbols.iter().map(|s| (s.addr, &*s.name)).collect();
    names.sort_by_key(|n| n.0);
    names
}

fn finish(f: &mut FunctionInfo, options: &InstrumentOptions, input: &Input, names: &[(u64, &str)]) {
    let same = &names[names.partition_point(|n| n.0 < f.range.start)..];
    let same = &same[..same.partition_point(|n| n.0 == f.range.start)];
    if let Some(&(_, name)) = same.first() {
        f.name = name.to_owned();
    }
    f.settle(|at| input.is_object(at));
    if !(options.select)(&f.name, f.range.start) {
        f.left = Some(LeftReason::NotSelected);
    } else if let Some((_, reason)) = input
        .excluded
        .iter()
        .find(|e| e.0.start < f.range.end && f.range.start < e.0.end)
    {
        f.left = Some(*reason);
    } else if input.has_sanitizer && same.iter().any(|n| sanitizers::is_of_runtime(n.1)) {
        f.left = Some(LeftReason::SanitizerRuntime);
    }
}

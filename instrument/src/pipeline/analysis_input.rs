//! Input of analysis from a file.

use crate::common::skip_reason::LeftReason;
use crate::program::imports::Imports;
use crate::program::section_bounds::Bounds;
use crate::program::{FuncSymbol, Input, SegmentBytes, copiers};
use crate::unwind::{Tables, UnwindRange};
use mgz_elf::image::{Elf, R_64, R_IRELATIVE, R_RELATIVE, Relocation};
use mgz_elf::symbols;
use object::elf;

/// Input of analysis from a file.
pub fn analysis_input<'a>(elf: &Elf<'a>, unwind: &Tables<'a>) -> Input<'a> {
    of_parts(elf, unwind.ranges(), function_symbols(elf))
}

/// The symbols of functions.
pub fn function_symbols<'a>(elf: &Elf<'a>) -> Vec<FuncSymbol<'a>> {
    symbols::functions(elf)
        .into_iter()
        .map(|(name, addr, size)| FuncSymbol { name, addr, size })
        .collect()
}

/// Rest of [`analysis_input`], once its largest parts are computed.
pub fn of_parts<'a>(
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
    // Value of a word after loading, if its symbol is in this file.
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
        walks_stacks: false,
        called: Vec::new(),
        resolvers: Vec::new(),
        exec_ranges,
        no_return: Default::default(),
        imported: Default::default(),
        copiers: Default::default(),
    };
    // (Relocations give the values of words. In fixed files, the words themselves do.)
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
    input.copiers = copiers::imported(&imports);
    input.imported = imports.conventions;
    input
}

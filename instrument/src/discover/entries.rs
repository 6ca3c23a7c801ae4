//! Inner addresses of functions that other code or data refers to: code of other functions, tables
//! of distances, words of data.

use crate::discover::scanner::{Scan, distance};
use crate::ir::FunctionId;
use crate::program::{Input, Program, SegmentBytes};
use rayon::prelude::*;

/// Maximum number of entries examined in a table of distances.
const MAX_ENTRIES: u64 = 1024;

/// Ways by which control may reach an address.
#[derive(Clone, Copy)]
pub enum Way {
    /// A branch.
    Branch,
    /// A call.
    Call,
    /// A jump table.
    Table,
    /// Bytes that may not be code, or a value that may not be an address.
    Doubted,
    /// The symbol of a function.
    Symbol,
}

/// Notes that `target` is reached. A function's first byte needs no note.
pub fn enter(program: &mut Program, id: FunctionId, target: u64, way: Way) {
    let f = &mut program.functions[id.0 as usize];
    match way {
        Way::Branch => f.inner_mut().branched.push(target),
        Way::Call | Way::Symbol => f.inner_mut().called.push(target),
        Way::Table => f.inner_mut().taken.push(target),
        Way::Doubted => f.inner_mut().doubted.push(target),
    }
}

/// The function that contains a target, unless the target is its start.
pub fn inside(program: &Program, target: u64) -> Option<FunctionId> {
    program
        .function_at(target)
        .filter(|&id| program.function(id).range.start != target)
}

/// Targets inside functions.
pub type Entered = Vec<(FunctionId, u64, Way)>;

/// Inner addresses of functions that a function's code enters.
pub fn entered(program: &Program, scan: &Scan) -> Entered {
    let (certain, rare) = (scan.left.is_none(), scan.rare());
    let if_certain = |way| if certain { way } else { Way::Doubted };
    // Entries after a table of unknown length matter only for other parts of the same function.
    let parts: Vec<FunctionId> = scan
        .branches
        .iter()
        .filter(|_| !rare.strays.is_empty())
        .filter_map(|&t| program.function_at(t))
        .collect();
    let near = rare.strays.iter().filter(|t| {
        program
            .function_at(**t)
            .is_some_and(|id| parts.contains(&id))
    });
    let by_way = [
        (&scan.branches, if_certain(Way::Branch)),
        (&scan.calls, if_certain(Way::Call)),
        (&rare.doubtful, Way::Doubted),
        (&scan.taken, Way::Doubted),
        (&rare.tabled, Way::Table),
    ];
    let all = by_way
        .into_iter()
        .flat_map(|(targets, way)| targets.iter().map(move |&t| (t, way)))
        .chain(near.map(|&t| (t, Way::Table)));
    all.filter_map(|(target, way)| Some((inside(program, target)?, target, way)))
        .collect()
}

/// Adds the targets of tables of distances, for any code that jumps by them. Each table ends where
/// the next begins.
pub fn tables(input: &Input, program: &mut Program, mut starts: Vec<u64>) {
    starts.sort_unstable();
    starts.dedup();
    let ends = starts.iter().skip(1).copied().chain([u64::MAX]);
    for (&table, end) in starts.iter().zip(ends) {
        let count = ((end - table) / 4).min(MAX_ENTRIES);
        for target in (0..count).map_while(|i| distance(input, table, i)) {
            if let Some(id) = inside(program, target) {
                program.functions[id.0 as usize]
                    .inner_mut()
                    .aimed
                    .push(target);
            }
        }
    }
}

/// Words of eight bytes, at any byte of an executable at a fixed address, that hold an address
/// between the start of the first code and the end of the last. Each result has the word's place,
/// the address, and the function there. Starts of functions are left out unless they are data: they
/// give no information, and most words hold one.
fn written_addresses(
    input: &Input,
    program: &Program,
) -> impl Iterator<Item = (u64, u64, Option<FunctionId>)> + use<> {
    const BYTES_PER_PART: usize = 1 << 16;
    const BLOCK: usize = 64;
    let low = input.exec_ranges.iter().map(|r| r.start).min().unwrap_or(0);
    let high = input.exec_ranges.iter().map(|r| r.end).max().unwrap_or(0);
    let in_segment = |segment: &SegmentBytes| {
        let in_part = |part: usize| {
            let mut found = Vec::new();
            for at in (part * BYTES_PER_PART..segment.bytes.len().min((part + 1) * BYTES_PER_PART))
                .step_by(BLOCK)
            {
                let bytes = &segment.bytes[at..];
                let few = bytes
                    .first_chunk()
                    .filter(|_| high <= 1 << 32)
                    .map_or([1; 8], |bytes| {
                        may_hold(bytes, low as u32, high.wrapping_sub(1) as u32)
                    });
                for i in few
                    .iter()
                    .enumerate()
                    .filter(|(_, may)| **may != 0)
                    .flat_map(|(n, _)| 8 * n..8 * n + 8)
                {
                    let Some(word) = bytes[i.min(bytes.len())..].first_chunk() else {
                        break;
                    };
                    let number = u64::from_le_bytes(*word);
                    if number.wrapping_sub(low) < high.saturating_sub(low) {
                        let holder = program.function_at(number);
                        if holder.is_none_or(|id| program.function(id).range.start != number)
                            || input.is_object(number)
                        {
                            found.push((segment.vaddr + (at + i) as u64, number, holder));
                        }
                    }
                }
            }
            found
        };
        (0..segment.bytes.len().div_ceil(BYTES_PER_PART))
            .into_par_iter()
            .map(in_part)
            .collect::<Vec<_>>()
    };
    // (The lists stay separate, since one list would be a copy.)
    let all: Vec<Vec<Vec<_>>> = input.segments.iter().map(in_segment).collect();
    all.into_iter().flatten().flatten()
}

/// Tests if eight consecutive bytes may hold a number from `low` to `high`, judged by the highest
/// bytes. Element n of the result is not 0 if this is so for a start at one of the bytes from 8·n
/// to 8·n + 7.
fn may_hold(bytes: &[u8; 71], low: u32, high: u32) -> [u64; 8] {
    let ([_, _, low_third, low_last], [.., high_last]) = (low.to_le_bytes(), high.to_le_bytes());
    let fits = |i: usize| {
        let (third, last) = (bytes[i + 2], bytes[i + 3]);
        (bytes[i + 4] | bytes[i + 5] | bytes[i + 6] | bytes[i + 7] == 0)
            & (last <= high_last)
            & ((last > low_last) | (last == low_last) & (third >= low_third))
    };
    let mut all = [0; 64];
    for (i, fit) in all.iter_mut().enumerate() {
        *fit = u8::from(fits(i));
    }
    std::array::from_fn(|n| {
        all[8 * n..]
            .first_chunk()
            .map_or(0, |eight| u64::from_ne_bytes(*eight))
    })
}

/// Data words that hold an address inside a function. An executable at a fixed address may have
/// such a word at any byte, even in code. `halves`: words of four bytes count too, since a jump
/// reads such words.
pub fn words(input: &Input, program: &mut Program, halves: bool) {
    for &(at, target) in &input.relative_targets {
        let holder = program.function_at(target);
        word(input, program, at, target, holder);
    }
    if input.pie {
        return;
    }
    for (at, target, holder) in written_addresses(input, program) {
        if !halves && target >> 32 == 0 {
            aim(program, holder, target);
        }
        if at % 8 == 0 {
            word(input, program, at, target, holder);
        }
    }
    if halves {
        half_words(input, program);
    }
}

/// Notes a data word at `at` that holds an address. `holder`: the function there.
fn word(input: &Input, program: &mut Program, at: u64, target: u64, holder: Option<FunctionId>) {
    // In code, it may be no word of a table.
    let is_inside = holder.is_some_and(|id| program.function(id).range.start != target);
    if is_inside && input.is_code(at) {
        aim(program, holder, target);
    } else if input.is_object(target) || holder.is_none() {
        program.aimed.push(target);
    } else if let Some(id) = holder.filter(|_| is_inside) {
        program.functions[id.0 as usize]
            .inner_mut()
            .words
            .push((at, target));
    }
}

/// Notes that control may reach an address, if it is inside of the function there.
fn aim(program: &mut Program, holder: Option<FunctionId>, target: u64) {
    if let Some(f) = holder.map(|id| &mut program.functions[id.0 as usize])
        && f.range.start != target
        && f.inner().aimed.last() != Some(&target)
    {
        f.inner_mut().aimed.push(target);
    }
}

/// Words of four bytes, at any byte, that hold an address inside a function.
fn half_words(input: &Input, program: &mut Program) {
    let low = input.exec_ranges.iter().map(|r| r.start).min().unwrap_or(0);
    let high = input.exec_ranges.iter().map(|r| r.end).max().unwrap_or(0);
    for bytes in input.segments.iter().map(|s| s.bytes) {
        // Few words hold such an address, so the cheap test comes first.
        let word = |number: u64| number.wrapping_sub(low) < high - low;
        let entered = |four: u64| inside(program, four).map(|id| (id, four));
        let found: Vec<(FunctionId, u64)> = bytes
            .par_windows(4)
            .with_min_len(1 << 14)
            .filter_map(|w| {
                Some(u64::from(u32::from_le_bytes(*w.first_chunk()?)))
                    .filter(|&n| word(n))
                    .and_then(entered)
            })
            .collect();
        found.into_iter().for_each(|(id, target)| {
            program.functions[id.0 as usize]
                .inner_mut()
                .aimed
                .push(target)
        });
    }
}

//! The ranges of functions: those described in the file, and those found only by calls.

use crate::common::skip_reason::LeftReason;
use crate::discover::code_or_data::is_odd;
use crate::discover::scanner::{MAX_BYTES, Scan};
use crate::program::{FunctionInfo, Input, Program, syscalls, uncovered};
use crate::util::bit_set::Bits;
use crate::util::fast_hash::FastSet;
use crate::util::range_index::Starts;
use crate::x86::flow::{direct_target, ends_flow, is_call, is_padding};
use iced_x86::{Code, Decoder, DecoderOptions, OpKind};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;

/// Functions by unwind entries, then by symbols outside of these. Sorted.
pub fn known_functions(input: &Input) -> Vec<FunctionInfo> {
    let mut functions: Vec<FunctionInfo> =
        Vec::with_capacity(input.unwind.len() + input.unwind.len() / 4);
    for (i, u) in input.unwind.iter().enumerate() {
        if u.range.is_empty()
            || !input
                .exec_ranges
                .iter()
                .any(|r| r.start <= u.range.start && u.range.end <= r.end)
        {
            continue;
        }
        let mut f = FunctionInfo::new(u.range.clone());
        f.unwind = Some(i as u32);
        f.left = (!u.understood).then_some(LeftReason::Unwind);
        functions.push(f);
    }
    functions.sort_by_key(|f| (f.range.start, f.range.end));
    functions.dedup_by(|f, last| {
        let overlaps = f.range.start < last.range.end;
        if overlaps {
            last.range.end = last.range.end.max(f.range.end);
            last.left = Some(LeftReason::OverlapsOther);
        }
        overlaps
    });
    let mut merged = functions;
    let mut starts: Vec<(u64, u64)> = input.symbols.iter().map(|s| (s.addr, s.size)).collect();
    starts.sort_unstable_by_key(|s| (s.0, std::cmp::Reverse(s.1)));
    starts.dedup_by_key(|s| s.0);
    let covered = |at: u64| {
        let next = merged.partition_point(|f| f.range.start <= at);
        next > 0 && merged[next - 1].range.contains(&at)
    };
    starts.retain(|s| input.is_code(s.0) && !covered(s.0));
    let mut extra: Vec<FunctionInfo> = Vec::new();
    for (i, &(start, size)) in starts.iter().enumerate() {
        if extra.last().is_some_and(|f| f.range.contains(&start)) {
            continue;
        }
        let limit = limit_after(
            input,
            &merged,
            start,
            starts.get(i + 1).map(|s| s.0).filter(|_| size == 0),
        );
        let end = if size == 0 {
            limit
        } else {
            start.saturating_add(size).min(limit)
        };
        let mut f = FunctionInfo::new(start..end);
        f.exact = size != 0;
        if !f.range.is_empty() {
            extra.push(f);
        }
    }
    merged.extend(extra);
    merged.sort_by_key(|f| f.range.start);
    merged
}

/// Latest possible end of a function that starts at `start`.
fn limit_after(
    input: &Input,
    functions: &[FunctionInfo],
    start: u64,
    next_start: Option<u64>,
) -> u64 {
    let section = input
        .exec_ranges
        .iter()
        .find(|r| r.contains(&start))
        .map_or(start, |r| r.end);
    let next = functions.partition_point(|f| f.range.start <= start);
    let next = functions.get(next).map_or(u64::MAX, |f| f.range.start);
    section.min(next).min(next_start.unwrap_or(u64::MAX))
}

/// See [`Program::stray_bytes`].
pub fn stray_bytes(input: &Input, program: &Program) -> u64 {
    let gaps = uncovered(input, &program.functions);
    let parts: Vec<Range<u64>> = gaps
        .iter()
        .flat_map(|gap| without(gap, &program.data))
        .collect();
    parts
        .par_iter()
        .map(|part| {
            input
                .slice(part)
                .map_or(0, |bytes| not_filler(bytes) as u64)
        })
        .sum()
}

/// Bytes that are neither zeros nor instructions that do nothing.
fn not_filler(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while !bytes.is_empty() {
        let inst = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        let filler = if inst.is_invalid() { 0 } else { inst.len() };
        let step = match filler {
            _ if bytes[0] == 0 => 1,
            0 => {
                count += 1;
                1
            }
            n if is_padding(&inst) => n,
            n => {
                count += n;
                n
            }
        };
        bytes = &bytes[step..];
    }
    count
}

/// Parts of `range` outside of `holes`, which are sorted.
pub fn without(range: &Range<u64>, holes: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut parts, mut at) = (Vec::new(), range.start);
    for hole in &holes[holes.partition_point(|h| h.end <= range.start)..] {
        if hole.start >= range.end {
            break;
        }
        if at < hole.start {
            parts.push(at..hole.start);
        }
        at = at.max(hole.end);
    }
    if at < range.end {
        parts.push(at..range.end);
    }
    parts
}

/// Functions found only by calls, and functions that the loader calls. If system calls are to be
/// found, also the rest of functions whose unwind data ends right before the call that makes a
/// thread, which cannot be unwound. Calls count only in code that control is known to reach, since
/// data may look like calls.
pub fn called_functions(
    input: &Input,
    outside: &[Range<u64>],
    scans: &[Scan],
) -> Vec<FunctionInfo> {
    let gaps = Starts::of(outside.iter());
    let gap_of = |at: u64| gaps.find(at).map(|gap| &outside[gap]);
    let in_gap = |s: &Scan| {
        s.calls
            .iter()
            .copied()
            .filter(|&at| gap_of(at).is_some())
            .collect::<Vec<_>>()
    };
    let mut starts: Vec<u64> = scans.par_iter().flat_map_iter(in_gap).collect();
    starts.extend(&input.called);
    if input.hook_calls {
        starts.extend(
            outside
                .iter()
                .map(|gap| gap.start)
                .filter(|&at| input.bytes_at(at).is_some_and(syscalls::begins_with_call)),
        );
    }
    starts.retain(|&at| gap_of(at).is_some());
    if !starts.is_empty() {
        // An address that functions refer to may be data after a call that does not return.
        let mut refer: FastSet<u64> = scans
            .iter()
            .flat_map(|s| {
                s.taken
                    .iter()
                    .copied()
                    .chain(s.rare().used.iter().map(|u| u.start))
            })
            .collect();
        let low = outside.iter().map(|gap| gap.start).min().unwrap_or(0);
        let high = outside.iter().map(|gap| gap.end).max().unwrap_or(0);
        let span = low..high;
        let (_, seen) = follow_calls(input, &gap_of, &span, &starts, &refer);
        refer.extend(seen);
        starts.extend(follow_calls(input, &gap_of, &span, &starts, &refer).0);
    }
    // Hand-written functions without unwind data are known only by their addresses. Their callees
    // count as functions if all bytes of the caller are code.
    let taken = scans
        .iter()
        .flat_map(|s| &s.taken)
        .chain(input.relative_targets.iter().map(|t| &t.1))
        .copied();
    let mut work: Vec<(u64, bool)> = taken
        .filter(|&at| gap_of(at).is_some())
        .map(|at| (at, false))
        .collect();
    work.sort_unstable();
    work.dedup();
    let mut called: FastSet<u64> = starts.iter().copied().collect();
    while let Some((at, is_called)) = work.pop() {
        let Some(calls) = clean_calls(input, &gap_of, at) else {
            continue;
        };
        if is_called {
            starts.push(at);
        }
        for call in calls {
            if called.insert(call) {
                work.push((call, true));
            }
        }
    }
    starts.sort_unstable();
    starts.dedup();
    let mut found = Vec::new();
    for (i, &start) in starts.iter().enumerate() {
        let Some(gap) = gap_of(start) else { continue };
        let end = starts.get(i + 1).copied().unwrap_or(u64::MAX).min(gap.end);
        let mut f = FunctionInfo::new(start..end);
        f.exact = false;
        found.push(f);
    }
    found
}

/// Follows control outside of functions, which lies in `span`. Returns the targets of calls and the
/// addresses referred to. At an address in `refer`, it does not go on after a call.
fn follow_calls<'g>(
    input: &Input,
    gap_of: &impl Fn(u64) -> Option<&'g Range<u64>>,
    span: &Range<u64>,
    starts: &[u64],
    refer: &FastSet<u64>,
) -> (Vec<u64>, Vec<u64>) {
    let (mut calls, mut referred) = (Vec::new(), Vec::new());
    let mut work = starts.to_vec();
    // (This takes one bit for each byte of code, since files without unwind data may have 20
    // million instructions.)
    let mut seen = Bits::new((span.end - span.start) as usize);
    let mut insert = |at: u64| {
        let bit = (at - span.start) as usize;
        let is_new = !seen.get(bit);
        seen.set(bit);
        is_new
    };
    while let Some(from) = work.pop() {
        let Some(bytes) = gap_of(from).and_then(|gap| input.slice(&(from..gap.end))) else {
            continue;
        };
        let mut decoder = Decoder::with_ip(64, bytes, from, DecoderOptions::NONE);
        while decoder.can_decode() && insert(decoder.ip()) {
            let inst = decoder.decode();
            if inst.is_invalid() {
                break;
            }
            if let Some(target) = direct_target(&inst) {
                if inst.is_call_near() && gap_of(target).is_some() {
                    calls.push(target);
                }
                work.push(target);
            }
            if inst.is_ip_rel_memory_operand() {
                referred.push(inst.ip_rel_memory_address());
            }
            if ends_flow(&inst) || is_call(inst.flow_control()) && refer.contains(&inst.next_ip()) {
                break;
            }
        }
    }
    (calls, referred)
}

/// Targets outside of functions that code there calls. `None` if control from `from` reaches code
/// that is certainly no real code.
fn clean_calls<'g>(
    input: &Input,
    gap_of: &impl Fn(u64) -> Option<&'g Range<u64>>,
    from: u64,
) -> Option<Vec<u64>> {
    let (mut calls, mut work, mut seen) = (Vec::new(), vec![from], BTreeMap::new());
    while let Some(from) = work.pop() {
        let bytes = input.slice(&(from..gap_of(from)?.end))?;
        let mut decoder = Decoder::with_ip(64, bytes, from, DecoderOptions::NONE);
        loop {
            if seen.contains_key(&decoder.ip()) {
                break;
            }
            let inst = decoder.decode();
            let zeros = inst.code() == Code::Add_rm8_r8 && inst.op0_kind() == OpKind::Memory;
            if inst.is_invalid() || zeros || is_odd(&inst) || seen.len() as u64 > MAX_BYTES {
                return None;
            }
            seen.insert(inst.ip(), inst.next_ip());
            if let Some(target) = direct_target(&inst) {
                let is_inside = gap_of(target).is_some();
                if target == inst.next_ip() && inst.is_call_near()
                    || !is_inside && !input.is_code(target) && !input.is_plt(target)
                {
                    return None;
                }
                if is_inside {
                    if inst.is_call_near() {
                        &mut calls
                    } else {
                        &mut work
                    }
                    .push(target);
                }
            }
            if ends_flow(&inst) {
                break;
            }
        }
    }
    let is_apart = seen
        .iter()
        .zip(seen.keys().skip(1))
        .all(|((_, end), next)| end <= next);
    is_apart.then_some(calls)
}

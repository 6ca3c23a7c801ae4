//! A run on n threads, mimicked from a run on one (Barai et al. 2019, section III-B).
//!
//! OpenMP's compilers outline parallel regions into functions of their own: GCC names them `NAME._omp_fn.N`, Clang
//! `NAME.omp_outlined` or `.omp_outlined.N`. A region is what runs from the first access of such a function until the function that came before it goes
//! on (functions called from inside belong to it), or another outlined one begins, or the same one anew: it then reads once more what it was
//! given, on the stack of its caller, as at its beginning. Inside a region, the accesses are divided among n threads as static scheduling divides the
//! iterations of its outermost loop: the line of the outlined function that is accessed least often, but at least n times,
//! marks the iterations. Private data, which lie on the thread's stack, get an offset in each thread; all other data are shared
//! and keep their addresses. What lies outside of regions runs on the first thread.

use super::stream::Accesses;
use super::threads::Thread;
use crate::code::CodeMap;
use std::collections::HashMap;

/// Whether a function is an outlined parallel region.
pub fn is_outlined(name: &str) -> bool {
    name.contains("._omp_fn.") || name.contains("omp_outlined")
}

/// A parallel region: a range of accesses and its outlined function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Accesses.
    pub range: std::ops::Range<usize>,
    /// Index into [`CodeMap::functions`].
    pub function: u32,
}

/// Accesses at a region's beginning that are compared.
const HEAD: usize = 16;

/// Finds the regions, given the function of each access, and its code and address if it is to the stack.
pub fn regions(functions: &[u32], stack: impl Fn(usize) -> Option<(u32, u64)>, outlined: impl Fn(u32) -> bool) -> Vec<Region> {
    let mut out: Vec<Region> = Vec::new();
    let mut host = None;
    // The region that is open: its function, start, and the end of its last own access.
    let mut open: Option<(u32, usize, usize)> = None;
    // What the open region's function reads of the stack at its beginning.
    let mut head: Vec<(u32, u64)> = Vec::new();
    let from = |start: usize, own: u32| (start..functions.len()).take(HEAD).map_while(|j| if functions[j] == own { stack(j) } else { None }).collect::<Vec<_>>();
    let again = |head: &[(u32, u64)], at: usize, own: u32| !head.is_empty() && head.iter().enumerate().all(|(k, &seen)| functions.get(at + k) == Some(&own) && stack(at + k) == Some(seen));
    for (i, &function) in functions.iter().enumerate() {
        match open {
            Some((own, start, end)) if function == own && i > start && again(&head, i, own) => {
                out.push(Region { range: start..end, function: own });
                open = Some((own, i, i + 1));
            }
            Some((own, start, _)) if function == own => open = Some((own, start, i + 1)),
            Some((own, start, end)) if outlined(function) || Some(function) == host => {
                out.push(Region { range: start..end, function: own });
                open = outlined(function).then_some((function, i, i + 1));
                head = from(i, function);
            }
            Some(_) => {}
            None if outlined(function) => {
                open = Some((function, i, i + 1));
                head = from(i, function);
            }
            None => host = Some(function),
        }
    }
    if let Some((own, start, end)) = open {
        out.push(Region { range: start..end, function: own });
    }
    out
}

/// Where a region is cut for `n` threads: n + 1 positions.
///
/// `marks` are the places in the region where each line of the outlined function begins anew; the outermost loop's
/// iterations are those of the rarest line that occurs at least `n` times.
fn cuts(region: &Region, pieces: &[u32], own: impl Fn(u32) -> bool, n: usize) -> Vec<usize> {
    let mut counts: HashMap<u32, (usize, usize)> = HashMap::new();
    for i in region.range.clone() {
        if own(pieces[i]) {
            let entry = counts.entry(pieces[i]).or_insert((0, i));
            // Several accesses of a line in a row are one visit.
            if entry.0 == 0 || i == region.range.start || pieces[i - 1] != pieces[i] {
                entry.0 += 1;
            }
        }
    }
    let marker = counts.iter().filter(|(_, c)| c.0 >= n).min_by_key(|(piece, c)| (c.0, c.1, **piece)).map(|(&piece, _)| piece);
    let starts: Vec<usize> = match marker {
        Some(piece) => region.range.clone().filter(|&i| pieces[i] == piece && (i == region.range.start || pieces[i - 1] != piece)).collect(),
        None => region.range.clone().collect(),
    };
    (0..=n)
        .map(|k| match k {
            0 => region.range.start,
            k if k == n => region.range.end,
            // GCC's static schedule: the first threads get the iterations left over.
            k => {
                let (each, over) = (starts.len() / n, starts.len() % n);
                starts.get(k * each + k.min(over)).copied().unwrap_or(region.range.end)
            }
        })
        .collect()
}

/// What was mimicked.
pub struct Mimic {
    /// The threads.
    pub threads: Vec<Thread>,
    /// Number of parallel regions.
    pub regions: usize,
    /// Accesses inside of them.
    pub parallel: u64,
    /// Those of them to the stack.
    pub private: u64,
    /// By phase (region, or what is between): the end of each thread's part.
    pub phases: Vec<Vec<usize>>,
}

/// Distance of the stacks of mimicked threads.
const STACK: u64 = 1 << 30;
/// Bytes above and below the greatest address of the stack that count as stack.
const STACK_SPAN: u64 = 8 << 20;

/// Divides the accesses of one thread among `n`.
pub fn mimic(thread: &Thread, code: &CodeMap, n: usize) -> Mimic {
    let view = thread.accesses.view();
    let pieces: Vec<u32> = view.group.iter().map(|g| g / 4).collect();
    let functions: Vec<u32> = pieces.iter().map(|&p| code.pieces[p as usize].function).collect();
    // The main thread's stack is at the top of user memory; a position-dependent guess from the addresses themselves.
    let top = view.address.iter().copied().filter(|a| a >> 47 == 0).max().unwrap_or(0);
    let private = |address: u64| top >> 40 == 0x7f && address <= top && top - address < STACK_SPAN;
    let stack = |i: usize| private(view.address[i]).then(|| (pieces[i], view.address[i]));
    let found = regions(&functions, stack, |f| is_outlined(&code.functions[f as usize].function));
    let mut out = Mimic { threads: (0..n).map(|k| Thread { process: thread.process, thread: k as u32, ..Thread::default() }).collect(), regions: found.len(), parallel: 0, private: 0, phases: Vec::new() };
    let mut at = 0;
    for region in found.iter().chain(std::iter::once(&Region { range: view.len()..view.len(), function: 0 })) {
        // Between regions: the first thread alone.
        if at < region.range.start {
            out.threads[0].accesses.extend(view.slice(at..region.range.start));
            out.close();
        }
        at = region.range.end;
        if region.range.is_empty() {
            continue;
        }
        let cuts = cuts(region, &pieces, |p| code.pieces[p as usize].function == region.function, n);
        for k in 0..n {
            for i in cuts[k]..cuts[k + 1] {
                let mine = private(view.address[i]);
                out.parallel += 1;
                out.private += u64::from(mine);
                let to: &mut Accesses = &mut out.threads[k].accesses;
                to.address.push(if mine { view.address[i].wrapping_sub(k as u64 * STACK) } else { view.address[i] });
                to.size.push(view.size[i]);
                to.group.push(view.group[i]);
            }
        }
        out.close();
    }
    out
}

impl Mimic {
    /// Ends a phase: threads wait for each other.
    fn close(&mut self) {
        self.phases.push(self.threads.iter().map(|t| t.accesses.address.len()).collect());
    }

    /// Calls `next(thread, access)` for all accesses, with `turns` inside each phase.
    pub fn ordered(&self, turns: mgz_models::interleave::Turns, mut next: impl FnMut(usize, usize)) {
        let mut done = vec![0usize; self.threads.len()];
        for ends in &self.phases {
            let lengths: Vec<u64> = ends.iter().zip(&done).map(|(e, d)| (e - d) as u64).collect();
            mgz_models::interleave::interleave(&lengths, turns, |thread| {
                next(thread, done[thread]);
                done[thread] += 1;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_go_from_the_outlined_function_to_the_host() {
        // 0 main, 1 outlined, 2 a helper that the region calls, 3 another region.
        let outlined = |f: u32| f == 1 || f == 3;
        let got = regions(&[0, 0, 1, 2, 1, 1, 0, 1, 3, 3, 2, 0], |_| None, outlined);
        let ranges: Vec<(std::ops::Range<usize>, u32)> = got.into_iter().map(|r| (r.range, r.function)).collect();
        assert_eq!(ranges, [(2..6, 1), (7..8, 1), (8..10, 3)]);
    }

    #[test]
    fn a_region_that_follows_itself_begins_where_its_function_reads_its_arguments_again() {
        // Two words on the stack, then the loop, which reads the second of them again; three times, the host reads nothing in between.
        let once = [Some((5, 0x7ff0)), Some((5, 0x7ff8)), None, None, Some((5, 0x7ff8)), None];
        let stack: Vec<Option<(u32, u64)>> = [&[None][..], &once, &once, &once].concat();
        let functions = [vec![0], vec![1; 18]].concat();
        let ranges = |found: Vec<Region>| found.into_iter().map(|r| r.range).collect::<Vec<_>>();
        assert_eq!(ranges(regions(&functions, |i| stack[i], |f| f == 1)), [1..7, 7..13, 13..19]);
        // One that reads nothing of the stack first is not cut.
        assert_eq!(ranges(regions(&functions, |i| if i == 1 { None } else { stack[i] }, |f| f == 1)), [1..19]);
    }

    #[test]
    fn names_of_both_compilers_are_known() {
        assert!(is_outlined("main._omp_fn.0") && is_outlined("work.omp_outlined") && is_outlined(".omp_outlined.7"));
        assert!(!is_outlined("main") && !is_outlined("omp_get_thread_num"));
    }

    #[test]
    fn iterations_are_divided_as_by_static_scheduling() {
        // Ten iterations: line 5 once, then line 6 as often as the iteration's number (a triangular loop).
        let mut pieces = Vec::new();
        for i in 0..10 {
            pieces.push(5);
            pieces.extend(vec![6; i + 1]);
        }
        let region = Region { range: 0..pieces.len(), function: 1 };
        let cuts = cuts(&region, &pieces, |_| true, 4);
        let iterations: Vec<usize> = cuts.windows(2).map(|w| pieces[w[0]..w[1]].iter().filter(|&&p| p == 5).count()).collect();
        assert_eq!(iterations, [3, 3, 2, 2]);
    }
}

//! A run on n threads, mimicked from a run on one (Barai et al. 2019, section III-B).
//!
//! OpenMP's compilers outline parallel regions into functions: GCC names them `NAME._omp_fn.N`,
//! Clang `NAME.omp_outlined` or `.omp_outlined.N`. A region begins with the first access of such a
//! function. It includes functions called from inside. It ends when the function before it
//! continues, when another outlined function begins, or when the same one begins again: then it
//! reads its arguments again, from the stack of its caller. A nested region is part of the outer
//! one, because one thread runs it. Inside a region, the accesses are divided among n threads as a
//! schedule distributes the iterations of its outermost loop (see [`iterations`]). Private data
//! (the thread's stack, its thread-local storage, heap blocks that live only in the region:
//! [`PrivateData`]) get a different offset in each thread. All other data are shared and keep their
//! addresses. This includes the arguments of the region, which each thread reads. Code outside of
//! regions runs on the first thread.

use crate::outlined::is_outlined;
use crate::private_data::{PrivateData, Storage};
use crate::threads::Thread;
use mgz_analyzer::commands::stream::Accesses;
use mgz_analyzer::data::code_map::CodeMap;
use mgz_analyzer::data::group::Group;
use mgz_models::threads::interleave::{Turns, interleave};
use mgz_models::threads::schedule::Schedule;
use std::collections::{HashMap, HashSet};

/// A parallel region: a range of accesses and its outlined function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Accesses.
    pub range: std::ops::Range<usize>,
    /// Index into [`CodeMap::functions`].
    pub function: u32,
}

/// Number of accesses at a region's begin that are compared.
const HEAD: usize = 16;

/// Finds the regions, given the function of each access, and for accesses to the stack also code
/// and address.
pub fn regions(
    functions: &[u32],
    stack: impl Fn(usize) -> Option<(u32, u64)>,
    outlined: impl Fn(u32) -> bool,
) -> Vec<Region> {
    let mut out: Vec<Region> = Vec::new();
    // Stack accesses at the begin of these regions.
    let mut heads: Vec<Vec<(u32, u64)>> = Vec::new();
    let mut host = None;
    // Number of regions before the host function last continued.
    let mut before = 0;
    // The open region: its function, start, and the end of the last access of the function itself.
    let mut open: Option<(u32, usize, usize)> = None;
    let mut head: Vec<(u32, u64)> = Vec::new();
    let from = |start: usize, own: u32| {
        (start..functions.len())
            .take(HEAD)
            .map_while(|j| if functions[j] == own { stack(j) } else { None })
            .collect::<Vec<_>>()
    };
    let again = |head: &[(u32, u64)], at: usize, own: u32| {
        !head.is_empty()
            && head.iter().enumerate().all(|(k, &seen)| {
                functions.get(at + k) == Some(&own) && stack(at + k) == Some(seen)
            })
    };
    for (i, &function) in functions.iter().enumerate() {
        let Some((own, start, end)) = open else {
            if outlined(function) {
                open = Some((function, i, i + 1));
                head = from(i, function);
            } else {
                host = Some(function);
            }
            continue;
        };
        if function == own && !(i > start && again(&head, i, own)) {
            open = Some((own, start, i + 1));
        } else if function == own || outlined(function) || Some(function) == host {
            out.push(Region {
                range: start..end,
                function: own,
            });
            let next = from(i, function);
            heads.push(std::mem::replace(&mut head, next));
            open = outlined(function).then_some((function, i, i + 1));
            if open.is_none() {
                before = out.len();
                continue;
            }
            // A function that continues after another region, without reading its arguments again,
            // has run that region inside its own. It was nested, and so was run by one thread.
            let around = (before..out.len() - 1).rev().find(|&k| {
                let first = heads[k].first();
                out[k].function == function
                    && first.is_some_and(|first| stack(i).is_none_or(|at| at.0 != first.0))
            });
            if let Some(k) = around {
                open = Some((function, out[k].range.start, i + 1));
                head = std::mem::take(&mut heads[k]);
                out.truncate(k);
                heads.truncate(k);
            }
        }
    }
    if let Some((own, start, end)) = open {
        out.push(Region {
            range: start..end,
            function: own,
        });
    }
    out
}

/// Starts of the iterations of a region's outermost loop.
///
/// They are marked by the rarest line of the outlined function that is visited at least `n` times
/// (several consecutive accesses of a line are one visit). If a loop nest is on a single line, its
/// stride shows the inner loop: an iteration of the outer one begins where the stride breaks. If
/// that also fails, each access is taken as an iteration.
///
/// `lead` is the number of accesses at the region's begin that belong to no iteration.
fn iterations(
    region: &Region,
    lead: usize,
    groups: &[Group],
    addresses: &[u64],
    own: impl Fn(u32) -> bool,
    n: usize,
) -> Vec<usize> {
    let piece = |i: usize| groups[i].piece();
    let begins = |i: usize| i == region.range.start || piece(i - 1) != piece(i);
    let mut counts: HashMap<u32, (usize, usize)> = HashMap::new();
    for i in region.range.clone().filter(|&i| own(piece(i)) && begins(i)) {
        counts.entry(piece(i)).or_insert((0, i)).0 += 1;
    }
    let marker = counts
        .iter()
        .filter(|(_, c)| c.0 >= n)
        .min_by_key(|(piece, c)| (c.0, c.1, **piece))
        .map(|(&piece, _)| piece);
    if let Some(marker) = marker {
        return region
            .range
            .clone()
            .filter(|&i| piece(i) == marker && begins(i))
            .collect();
    }
    breaks(region, groups, addresses, own, n)
        .unwrap_or_else(|| region.range.clone().skip(lead).collect())
}

/// Positions where the stride of the most frequent kind of access breaks.
fn breaks(
    region: &Region,
    groups: &[Group],
    addresses: &[u64],
    own: impl Fn(u32) -> bool,
    n: usize,
) -> Option<Vec<usize>> {
    let mut counts: HashMap<Group, usize> = HashMap::new();
    region
        .range
        .clone()
        .filter(|&i| own(groups[i].piece()))
        .for_each(|i| *counts.entry(groups[i]).or_default() += 1);
    let (&group, _) = counts
        .iter()
        .max_by_key(|(group, count)| (**count, std::cmp::Reverse(**group)))?;
    let places: Vec<usize> = region
        .range
        .clone()
        .filter(|&i| groups[i] == group)
        .collect();
    let strides = || {
        places
            .windows(2)
            .map(|w| addresses[w[1]].wrapping_sub(addresses[w[0]]))
    };
    let mut frequent: HashMap<u64, usize> = HashMap::new();
    strides().for_each(|s| *frequent.entry(s).or_default() += 1);
    let (&stride, &count) = frequent
        .iter()
        .max_by_key(|(stride, count)| (**count, **stride))?;
    let starts: Vec<usize> = std::iter::once(places[0])
        .chain(
            strides()
                .zip(&places[1..])
                .filter(|(s, _)| *s != stride)
                .map(|(_, &i)| i),
        )
        .collect();
    // If fewer than three in four steps equal the stride, it is no loop.
    (count * 4 >= 3 * places.len() && starts.len() >= n).then_some(starts)
}

/// The parts of a region for `n` threads, by thread. `starts` has the starts of its iterations.
/// Accesses before `first` belong to each thread.
fn parts(
    region: &Region,
    starts: &[usize],
    first: usize,
    n: usize,
    schedule: Schedule,
) -> Vec<Vec<std::ops::Range<usize>>> {
    let begin = |i: usize| match i {
        0 => first,
        i => starts.get(i).copied().unwrap_or(region.range.end),
    };
    let work: Vec<u64> = (0..starts.len())
        .map(|i| (begin(i + 1) - begin(i)) as u64)
        .collect();
    let mut out = vec![Vec::new(); n];
    if work.is_empty() {
        out[0].push(first..region.range.end);
        return out;
    }
    for (thread, range) in schedule.deal(&work, n) {
        if !range.is_empty() {
            out[thread].push(begin(range.start)..begin(range.end));
        }
    }
    out
}

/// Result of mimicking.
pub struct Mimic {
    /// The threads.
    pub threads: Vec<Thread>,
    /// Number of parallel regions.
    pub regions: usize,
    /// Accesses inside the regions.
    pub parallel: u64,
    /// Those among them to private data: the stack, thread-local storage, heap blocks of one
    /// thread.
    pub private: u64,
    /// Those among them to heap blocks.
    pub private_heap: u64,
    /// The end of each thread's part by phase, which is a region or the code between two regions.
    pub phases: Vec<Vec<usize>>,
}

/// Bytes around the greatest stack address that count as stack.
const STACK_SPAN: u64 = 8 << 20;

/// The main thread's stack.
struct Stack {
    top: u64,
}

impl Stack {
    /// Guesses the stack from the addresses: it is at the top of user memory.
    fn of(threads: &[Thread]) -> Stack {
        let addresses = threads
            .iter()
            .flat_map(|t| t.accesses.address.iter().copied());
        Stack {
            top: addresses.filter(|a| a >> 47 == 0).max().unwrap_or(0),
        }
    }

    fn holds(&self, address: u64) -> bool {
        self.top >> 40 == 0x7f && address <= self.top && self.top - address < STACK_SPAN
    }
}

/// The regions of a thread.
fn regions_of(thread: &Thread, stack: &Stack, code: &CodeMap) -> Vec<Region> {
    let view = thread.accesses.view();
    let pieces: Vec<u32> = view.group.iter().map(|g| g.piece()).collect();
    let functions: Vec<u32> = pieces
        .iter()
        .map(|&p| code.pieces[p as usize].function)
        .collect();
    let at = |i: usize| {
        stack
            .holds(view.address[i])
            .then(|| (pieces[i], view.address[i]))
    };
    regions(&functions, at, |f| {
        is_outlined(&code.functions[f as usize].function)
    })
}

/// The phases of recorded threads.
pub struct Aligned {
    /// The end of each thread's part by phase.
    pub phases: Vec<Vec<usize>>,
    /// Number of regions at whose ends threads wait for each other; 0 if there are none, or if
    /// threads have different numbers.
    pub regions: usize,
}

/// Finds the parallel regions of all threads of a run. All threads take part in each region, one
/// after the other. If they do not have the same number of regions, the run is a single phase.
pub fn aligned(threads: &[Thread], code: &CodeMap) -> Aligned {
    let lengths: Vec<usize> = threads.iter().map(|t| t.accesses.address.len()).collect();
    let whole = Aligned {
        phases: vec![lengths.clone()],
        regions: 0,
    };
    if threads.len() < 2 || threads.iter().any(|t| t.process != threads[0].process) {
        return whole;
    }
    let stack = Stack::of(threads);
    let found: Vec<Vec<Region>> = threads
        .iter()
        .map(|t| regions_of(t, &stack, code))
        .collect();
    phases_of(&found, lengths).unwrap_or(whole)
}

fn phases_of(found: &[Vec<Region>], lengths: Vec<usize>) -> Option<Aligned> {
    let regions = found.first()?.len();
    if regions == 0 || found.iter().any(|f| f.len() != regions) {
        return None;
    }
    let mut phases = Vec::new();
    for region in 0..regions {
        if found
            .iter()
            .any(|f| f[region].function != found[0][region].function)
        {
            return None;
        }
        // Accesses before the region; none in threads that only run regions.
        phases.push(found.iter().map(|f| f[region].range.start).collect());
        phases.push(found.iter().map(|f| f[region].range.end).collect());
    }
    phases.push(lengths);
    Some(Aligned { phases, regions })
}

/// Divides the accesses of one thread among `n`. `own` is its private data.
pub fn mimic(
    thread: &Thread,
    code: &CodeMap,
    n: usize,
    schedule: Schedule,
    own: &PrivateData,
) -> Mimic {
    let view = thread.accesses.view();
    let stack = Stack::of(std::slice::from_ref(thread));
    let private = |address: u64| stack.holds(address);
    let found = regions_of(thread, &stack, code);
    let mut out = Mimic {
        threads: (0..n)
            .map(|k| Thread {
                process: thread.process,
                thread: k as u32,
                ..Thread::default()
            })
            .collect(),
        regions: found.len(),
        parallel: 0,
        private: 0,
        private_heap: 0,
        phases: Vec::new(),
    };
    let mut at = 0;
    for region in found.iter().chain(std::iter::once(&Region {
        range: view.len()..view.len(),
        function: 0,
    })) {
        // Only the first thread runs between regions.
        if at < region.range.start {
            out.threads[0]
                .accesses
                .extend(view.slice(at..region.range.start));
            out.close();
        }
        at = region.range.end;
        if region.range.is_empty() {
            continue;
        }
        // The function first reads its arguments from its caller's stack. All threads read them,
        // and they are shared.
        let lead = region
            .range
            .clone()
            .take(HEAD)
            .take_while(|&i| private(view.address[i]))
            .count();
        let starts = iterations(
            region,
            lead,
            view.group,
            view.address,
            |p| code.pieces[p as usize].function == region.function,
            n,
        );
        let first = starts
            .first()
            .map_or(region.range.start, |&at| at.min(region.range.start + lead));
        let given: Vec<usize> = (region.range.start..first).collect();
        let shared: HashSet<u64> = given.iter().map(|&i| view.address[i]).collect();
        let parts = parts(region, &starts, first, n, schedule);
        let (from, to) = thread.time_around(&region.range);
        let blocks = own.of_region(thread.process, from, to);
        for (k, mine) in parts.into_iter().enumerate() {
            for i in given.iter().copied().chain(mine.into_iter().flatten()) {
                let address = view.address[i];
                let storage = if blocks.holds(address) {
                    Storage::Heap
                } else if own.always(address) || private(address) && !shared.contains(&address) {
                    Storage::Thread
                } else {
                    Storage::Shared
                };
                out.private_heap += u64::from(storage == Storage::Heap);
                out.parallel += 1;
                out.private += u64::from(storage != Storage::Shared);
                let to: &mut Accesses = &mut out.threads[k].accesses;
                to.address.push(storage.of_thread(address, k));
                to.size.push(view.size[i]);
                to.group.push(view.group[i]);
            }
        }
        out.close();
    }
    out
}

impl Mimic {
    /// Ends a phase, where threads wait for each other.
    fn close(&mut self) {
        self.phases.push(
            self.threads
                .iter()
                .map(|t| t.accesses.address.len())
                .collect(),
        );
    }
}

/// Calls `next(thread, access)` for all accesses, ordered by `turns` inside each phase. `phases`
/// has the end of each thread's part.
pub fn in_phases(phases: &[Vec<usize>], turns: Turns, mut next: impl FnMut(usize, usize)) {
    let mut done = vec![0usize; phases.first().map_or(0, Vec::len)];
    for ends in phases {
        let lengths: Vec<u64> = ends
            .iter()
            .zip(&done)
            .map(|(e, d)| (e - d) as u64)
            .collect();
        interleave(&lengths, turns, |thread| {
            next(thread, done[thread]);
            done[thread] += 1;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgz_analyzer::data::group::AccessClass;

    #[test]
    fn regions_go_from_the_outlined_function_to_the_host() {
        // Function 0 is main, 1 an outlined region, 2 a helper that the region calls, and 3 another
        // region.
        let outlined = |f: u32| f == 1 || f == 3;
        let got = regions(&[0, 0, 1, 2, 1, 1, 0, 1, 3, 3, 2, 0], |_| None, outlined);
        let ranges: Vec<(std::ops::Range<usize>, u32)> =
            got.into_iter().map(|r| (r.range, r.function)).collect();
        assert_eq!(ranges, [(2..6, 1), (7..8, 1), (8..10, 3)]);
    }

    #[test]
    fn a_region_inside_of_another_is_part_of_it() {
        // The host is function 0. Region 1 reads its argument, runs region 3 twice inside, and
        // continues each time.
        let functions = [0, 1, 1, 3, 1, 3, 3, 1, 0, 1, 1, 0];
        let given = |i: usize| match i {
            1 | 9 => Some((5, 0x7ff0)),
            3 | 5 => Some((8, 0x7f00)),
            _ => None,
        };
        let got = regions(&functions, given, |f| f == 1 || f == 3);
        let ranges: Vec<(std::ops::Range<usize>, u32)> =
            got.into_iter().map(|r| (r.range, r.function)).collect();
        assert_eq!(ranges, [(1..8, 1), (9..11, 1)]);
        // If it reads its argument again, one region followed the other.
        let follows = |i: usize| if i == 4 { Some((5, 0x7ee0)) } else { given(i) };
        let got = regions(&functions[..5], follows, |f| f == 1 || f == 3);
        assert_eq!(got.len(), 3);
    }

    #[test]
    fn a_region_that_follows_itself_begins_where_its_function_reads_its_arguments_again() {
        // Two words on the stack, then the loop, which reads the second of them again. This happens
        // three times, and the host reads nothing in between.
        let once = [
            Some((5, 0x7ff0)),
            Some((5, 0x7ff8)),
            None,
            None,
            Some((5, 0x7ff8)),
            None,
        ];
        let stack: Vec<Option<(u32, u64)>> = [&[None][..], &once, &once, &once].concat();
        let functions = [vec![0], vec![1; 18]].concat();
        let ranges = |found: Vec<Region>| found.into_iter().map(|r| r.range).collect::<Vec<_>>();
        assert_eq!(
            ranges(regions(&functions, |i| stack[i], |f| f == 1)),
            [1..7, 7..13, 13..19]
        );
        // A region that does not read the stack first is not divided.
        assert_eq!(
            ranges(regions(
                &functions,
                |i| if i == 1 { None } else { stack[i] },
                |f| f == 1
            )),
            std::slice::from_ref(&(1..19))
        );
    }

    #[test]
    fn names_of_both_compilers_are_known() {
        assert!(
            is_outlined("main._omp_fn.0")
                && is_outlined("work.omp_outlined")
                && is_outlined(".omp_outlined.7")
        );
        assert!(!is_outlined("main") && !is_outlined("omp_get_thread_num"));
    }

    #[test]
    fn iterations_are_divided_as_by_static_scheduling() {
        // Ten iterations: line 5 once, then line 6 as often as the iteration's number (a triangular
        // loop).
        let mut pieces = Vec::new();
        for i in 0..10 {
            pieces.push(5);
            pieces.extend(vec![6; i + 1]);
        }
        let region = Region {
            range: 0..pieces.len(),
            function: 1,
        };
        let groups: Vec<Group> = pieces
            .iter()
            .map(|&p| Group::new(p, AccessClass::Constant))
            .collect();
        let starts = iterations(&region, 0, &groups, &vec![0; groups.len()], |_| true, 4);
        let counts = |schedule| -> Vec<usize> {
            parts(&region, &starts, 0, 4, schedule)
                .into_iter()
                .map(|part| {
                    part.into_iter()
                        .flatten()
                        .filter(|&i| pieces[i] == 5)
                        .count()
                })
                .collect()
        };
        assert_eq!(counts(Schedule::Static), [3, 3, 2, 2]);
        assert_eq!(counts(Schedule::Chunks(2)), [4, 2, 2, 2]);
        assert_eq!(counts(Schedule::Dynamic(1)).iter().sum::<usize>(), 10);
    }

    #[test]
    fn a_nest_in_one_line_is_divided_where_its_stride_breaks() {
        // Ten columns of twenty words, all read by one line. Three threads get 4, 3 and 3 columns.
        let addresses: Vec<u64> = (0..10u64)
            .flat_map(|y| (0..20u64).map(move |x| 0x1000 + 1600 * x + 8 * y))
            .collect();
        let region = Region {
            range: 0..200,
            function: 1,
        };
        let starts = iterations(
            &region,
            0,
            &[Group::from_raw(4); 200],
            &addresses,
            |_| true,
            3,
        );
        assert_eq!(starts, (0..10).map(|y| 20 * y).collect::<Vec<_>>());
        assert_eq!(
            parts(&region, &starts, 0, 3, Schedule::Static).concat(),
            [0..80, 80..140, 140..200]
        );
        // Random addresses have no stride: each access is an iteration.
        let random: Vec<u64> = (0..200u64)
            .map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20)
            .collect();
        assert_eq!(
            iterations(&region, 2, &[Group::from_raw(4); 200], &random, |_| true, 3).len(),
            198
        );
    }

    const USER_ADDRESSES_END: u64 = 0x7fff_ffff_f000;

    /// A map of two functions: main with line 0, and a parallel region with lines 1 to 4.
    fn code() -> CodeMap {
        let mut code = CodeMap::new();
        let from = code.functions.len() as u32;
        for name in ["main", "main._omp_fn.0"] {
            code.functions
                .push(mgz_analyzer::data::code_map::FunctionName {
                    function: name.into(),
                    module: "a".into(),
                });
        }
        code.pieces = (0..5)
            .map(|line| mgz_analyzer::data::code_map::LinePiece {
                function: from + u32::from(line > 0),
                line: 0,
                loops: Vec::new(),
                chain: Vec::new(),
            })
            .collect();
        code
    }

    /// A program of parallel loops, as run by one thread, and as run by each of `n` threads with
    /// static scheduling, in whole phases. It follows OpenMP's rules and is independent of the
    /// method under test.
    struct Program {
        one: Thread,
        phases: Vec<Vec<Vec<(u64, u32)>>>,
    }

    fn program(loops: &[(usize, Vec<u8>)], n: usize) -> Program {
        let mut one = Thread::default();
        let mut phases = Vec::new();
        let mut put = |access: (u64, u32)| {
            one.accesses.address.push(access.0);
            one.accesses.size.push(8);
            one.accesses.group.push(Group::from_raw(access.1));
        };
        for (number, (iterations, inner)) in loops.iter().enumerate() {
            let number = number as u64;
            // The first thread alone runs serial code, on its stack and on shared data.
            let serial = [(USER_ADDRESSES_END, 0), (0x50_0000 + 8 * number, 0)];
            serial.iter().copied().for_each(&mut put);
            phases.push(
                (0..n)
                    .map(|k| if k == 0 { serial.to_vec() } else { Vec::new() })
                    .collect(),
            );
            // The arguments of the region are on the first thread's stack.
            let given = [(USER_ADDRESSES_END - 64, 4), (USER_ADDRESSES_END - 56, 4)];
            // An iteration: line 2 once, line 3 any number of times, line 4 for private data.
            let body = |i: usize| {
                let mut out = vec![(0x60_0000 + 64 * i as u64, 8)];
                for k in 0..u64::from(inner[i % inner.len()]) {
                    out.push((0x70_0000 + 8 * k * (number + 1), 12));
                    out.push((USER_ADDRESSES_END - 1024 - 8 * k, 16));
                }
                out
            };
            given.iter().copied().for_each(&mut put);
            (0..*iterations).flat_map(body).for_each(&mut put);
            let mut next = 0;
            let threads = (0..n).map(|k| {
                let mine = iterations / n + usize::from(k < iterations % n);
                let range = next..next + mine;
                next += mine;
                let away = |(address, group): (u64, u32)| {
                    let own = if group == 16 {
                        Storage::Thread
                    } else {
                        Storage::Shared
                    };
                    (own.of_thread(address, k), group)
                };
                given
                    .iter()
                    .copied()
                    .chain(range.flat_map(body).map(away))
                    .collect()
            });
            phases.push(threads.collect());
        }
        Program { one, phases }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(3000))]

        #[test]
        fn each_thread_does_what_static_scheduling_gives_it(
            loops in proptest::collection::vec((0usize..60, proptest::collection::vec(0u8..6, 1..8)), 1..5),
            n in 1usize..33,
        ) {
            // There is at least one iteration for each thread. The rarest line belongs to the outer
            // loop.
            let loops: Vec<(usize, Vec<u8>)> = loops.into_iter().map(|(more, inner)| (n + more, inner.into_iter().map(|k| k.max(1)).collect())).collect();
            let made = {
                let Program { one, .. } = program(&loops, n);
                mimic(&one, &code(), n, Schedule::Static, &PrivateData::default())
            };
            let want = program(&loops, n);
            proptest::prop_assert_eq!(made.regions, loops.len());
            let mut got: Vec<Vec<Vec<(u64, u32)>>> = Vec::new();
            let mut done = vec![0; n];
            for ends in &made.phases {
                got.push((0..n).map(|k| {
                    let accesses = made.threads[k].accesses.view().slice(done[k]..ends[k]);
                    accesses.address.iter().copied().zip(accesses.group.iter().map(|g| g.raw())).collect()
                }).collect());
                done.clone_from(ends);
            }
            proptest::prop_assert_eq!(&got, &want.phases);
            // If these threads had been recorded, the same regions are found.
            let aligned = aligned(&made.threads, &code());
            proptest::prop_assert!(n == 1 || aligned.regions == loops.len());
            let mut orders = [Vec::new(), Vec::new()];
            in_phases(&made.phases, Turns::RoundRobin, |t, i| orders[0].push((t, i)));
            in_phases(&aligned.phases, Turns::RoundRobin, |t, i| orders[1].push((t, i)));
            proptest::prop_assert!(n == 1 || orders[0] == orders[1]);
        }
    }
}

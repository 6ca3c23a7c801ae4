//! Computes footprints of functions, lines and the whole trace from table entries.
//!
//! The entries of one 64-byte line are adjacent. For each target (the whole, a function, a line)
//! the maps of its entries are merged and their bits counted. Pages of memory are independent, so
//! pages of different partitions are folded in parallel
//! ([`crate::stages::footprint::FootprintSet::fold`]).

use crate::data::code_map::{CodeMap, Target};
use crate::data::counts::AccessCounts;
use crate::data::group::AccessClass;
use crate::data::memory_units::Page;
use crate::stages::footprint::packed_entry::Maps;
use crate::stages::footprint::{Entry, Merged};

/// Footprints by target; only the footprint fields of the counts are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folded {
    /// Loads of the whole trace.
    pub whole: AccessCounts,
    /// Stores of the whole trace.
    pub stores: AccessCounts,
    /// Loads by function.
    pub functions: Vec<AccessCounts>,
    /// Loads by line.
    pub lines: Vec<AccessCounts>,
    /// Loads by loop.
    pub loops: Vec<AccessCounts>,
}

fn add(into: &mut [AccessCounts], from: &[AccessCounts]) {
    for (a, b) in into.iter_mut().zip(from) {
        a.add_all(b);
    }
}

impl Folded {
    /// An empty result.
    pub(crate) fn new(code: &CodeMap) -> Folded {
        Folded {
            whole: AccessCounts::default(),
            stores: AccessCounts::default(),
            functions: vec![AccessCounts::default(); code.functions.len()],
            lines: vec![AccessCounts::default(); code.lines.len()],
            loops: vec![AccessCounts::default(); code.loops.len()],
        }
    }

    /// Adds a result from other pages.
    pub(crate) fn merge(mut self, other: Folded) -> Folded {
        self.whole.add_all(&other.whole);
        self.stores.add_all(&other.stores);
        add(&mut self.functions, &other.functions);
        add(&mut self.lines, &other.lines);
        add(&mut self.loops, &other.loops);
        self
    }
}

/// Folds entries that are sorted by address space, line and group, with each key once. They must be
/// all entries of their pages.
pub(crate) fn fold(entries: &[Entry], code: &CodeMap, folded: &mut Folded) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("popcnt") {
        // SAFETY: the CPU supports the feature for which the function is compiled, as was just
        // checked.
        return unsafe { fold_modern(entries, code, folded) };
    }
    fold_any(entries, code, folded);
}

/// Each line of memory and target needs five counts of bits. With the popcount instruction, folding
/// takes a quarter less time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt")]
fn fold_modern(entries: &[Entry], code: &CodeMap, folded: &mut Folded) {
    fold_any(entries, code, folded);
}

#[inline(always)]
fn fold_any(entries: &[Entry], code: &CodeMap, folded: &mut Folded) {
    let same_line =
        |a: &Entry, b: &Entry| (a.key().space, a.key().line) == (b.key().space, b.key().line);
    let mut scratch = Scratch {
        keyed: Vec::new(),
        pages: LastPages::new(code),
    };
    for same in entries.chunk_by(same_line) {
        fold_line(same, code, folded, &mut scratch);
    }
}

/// The page that each target touched last. Entries come in the order of pages.
struct LastPages {
    whole: Option<(u32, Page)>,
    stores: Option<(u32, Page)>,
    functions: Vec<Option<(u32, Page)>>,
    lines: Vec<Option<(u32, Page)>>,
    loops: Vec<Option<(u32, Page)>>,
}

impl LastPages {
    fn new(code: &CodeMap) -> LastPages {
        LastPages {
            whole: None,
            stores: None,
            functions: vec![None; code.functions.len()],
            lines: vec![None; code.lines.len()],
            loops: vec![None; code.loops.len()],
        }
    }
}

struct Scratch {
    keyed: Vec<(u32, AccessClass, Maps)>,
    pages: LastPages,
}

/// Counts a page unless it was the last one counted.
#[inline(always)]
fn count_page(last: &mut Option<(u32, Page)>, page: (u32, Page), counts: &mut AccessCounts) {
    counts.pages += u64::from(*last != Some(page));
    *last = Some(page);
}

/// Folds the entries of one memory line.
#[inline(always)]
fn fold_line(entries: &[Entry], code: &CodeMap, folded: &mut Folded, scratch: &mut Scratch) {
    let Some(key) = entries.first().map(Entry::key) else {
        return;
    };
    let page = (key.space, key.line.page());
    let (mut whole, mut stores) = (Merged::default(), Merged::default());
    for entry in entries {
        let class = entry.key().group.class();
        if class == AccessClass::Store {
            &mut stores
        } else {
            &mut whole
        }
        .add(class, entry.maps());
    }
    if !whole.is_empty() {
        whole.count_line(&mut folded.whole);
        count_page(&mut scratch.pages.whole, page, &mut folded.whole);
    }
    if !stores.is_empty() {
        stores.count_line(&mut folded.stores);
        count_page(&mut scratch.pages.stores, page, &mut folded.stores);
    }
    let Scratch { keyed, pages } = scratch;
    let by = [
        (
            Target::Function,
            &mut folded.functions,
            &mut pages.functions,
        ),
        (Target::Line, &mut folded.lines, &mut pages.lines),
        (Target::Loop, &mut folded.loops, &mut pages.loops),
    ];
    for (target, counts, pages) in by {
        let rows = |entry: &Entry| {
            if entry.key().group.is_store() {
                &[][..]
            } else {
                code.targets(target, entry.key().group)
            }
        };
        // Mostly there is one entry, or all belong to one row. Then the row's counts are also the
        // whole's.
        if let [row] = rows(&entries[0])
            && entries[1..].iter().all(|e| rows(e) == [*row])
        {
            if let (Some(counts), Some(last)) =
                (counts.get_mut(*row as usize), pages.get_mut(*row as usize))
            {
                whole.count_line(counts);
                count_page(last, page, counts);
            }
            continue;
        }
        keyed.clear();
        for entry in entries {
            keyed.extend(
                rows(entry)
                    .iter()
                    .map(|&row| (row, entry.key().group.class(), *entry.maps())),
            );
        }
        if !keyed.is_sorted_by_key(|k| k.0) {
            keyed.sort_unstable_by_key(|k| k.0);
        }
        for same in keyed.chunk_by(|a, b| a.0 == b.0) {
            let mut merged = Merged::default();
            for (_, class, maps) in same {
                merged.add(*class, maps);
            }
            let target = same[0].0 as usize;
            if let (Some(counts), Some(last)) = (counts.get_mut(target), pages.get_mut(target)) {
                merged.count_line(counts);
                count_page(last, page, counts);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::code_map::{FunctionName, LineName, LinePiece, LoopName};
    use crate::data::group::Group;
    use crate::data::rows::ColumnSlices;
    use crate::stages::footprint::{Budget, FootprintSet, Footprints, Store};
    use proptest::prelude::*;
    use std::collections::{HashMap, HashSet};
    use std::sync::Arc;

    /// Six pieces, three lines, two functions: pieces 2k and 2k+1 are line k; lines 0 and 1 are
    /// function 0. Line 1 is in loop 1, which is in loop 0, as is piece 0.
    fn code() -> CodeMap {
        let mut code = CodeMap::default();
        code.functions = (0..2)
            .map(|i| FunctionName {
                function: format!("f{i}"),
                module: "m".into(),
            })
            .collect();
        code.lines = (0..3)
            .map(|i| LineName {
                function: "f".into(),
                module: "m".into(),
                file: "x.c".into(),
                line: i,
            })
            .collect();
        let loops = |i: u32| match i {
            0 => vec![0],
            2 | 3 => vec![1, 0],
            _ => Vec::new(),
        };
        code.loops = vec![LoopName::default(); 2];
        code.pieces = (0..6)
            .map(|i| LinePiece {
                function: i / 4,
                line: i / 2,
                loops: loops(i),
                chain: Vec::new(),
            })
            .collect();
        code
    }

    /// Address, size, group, address space.
    type Access = (u64, u32, u32, u32);

    fn group(access: &Access) -> Group {
        Group::from_raw(access.2)
    }

    fn by_definition<'a>(accesses: impl Iterator<Item = &'a Access> + Clone) -> AccessCounts {
        let starts = |class: Option<AccessClass>| {
            let chosen = accesses
                .clone()
                .filter(|a| class.is_none_or(|c| group(a).class() == c));
            chosen.map(|a| (a.3, a.0)).collect::<HashSet<_>>().len() as u64
        };
        let mut times: HashMap<(u32, u64), u64> = HashMap::new();
        let mut bytes = HashSet::new();
        for a in accesses.clone() {
            *times.entry((a.3, a.0)).or_default() += 1;
            bytes.extend(
                (0..u64::from(a.1.max(1)))
                    .filter_map(|k| a.0.checked_add(k))
                    .map(|b| (a.3, b)),
            );
        }
        AccessCounts {
            footprint: starts(None),
            strided: starts(Some(AccessClass::Strided)),
            irregular: starts(Some(AccessClass::Irregular)),
            captures: times.values().filter(|&&n| n > 1).count() as u64,
            lines64: bytes
                .iter()
                .map(|b| (b.0, b.1 / 64))
                .collect::<HashSet<_>>()
                .len() as u64,
            pages: bytes
                .iter()
                .map(|b| (b.0, b.1 / 4096))
                .collect::<HashSet<_>>()
                .len() as u64,
            bytes: bytes.len() as u64,
            ..AccessCounts::default()
        }
    }

    fn measured(accesses: &[Access], tables: usize, budget: &Arc<Budget>) -> Folded {
        let mut all: Vec<Footprints> = (0..tables)
            .map(|_| Footprints::new(budget.clone()))
            .collect();
        for (i, a) in accesses.iter().enumerate() {
            let rows = ColumnSlices {
                address: &[a.0],
                size: &[a.1],
                group: &[group(a)],
                implied: &[0],
            };
            all[i % tables].add(&rows, a.3);
        }
        let (set, _) = FootprintSet::new(all);
        let folded = set.fold(&code());
        // The same from separate entries, as in partial results.
        let mut loose = FootprintSet::default();
        set.entries().into_iter().for_each(|e| loose.add(e));
        assert_eq!(loose.fold(&code()).whole, folded.whole);
        folded
    }

    /// Folds with several concurrent workers that share a table. The last one gets no accesses, the
    /// one before few.
    fn shared(accesses: &[Access], workers: usize, budget: &Arc<Budget>) -> Folded {
        let store = Store::new(budget.clone());
        let mut dealt: Vec<Vec<&[Access]>> = vec![Vec::new(); workers];
        let busy = workers - 2;
        for (i, some) in accesses.chunk_by(|a, b| a.3 == b.3).enumerate() {
            dealt[if i % 64 == 7 { busy } else { i % busy }].push(some);
        }
        let start = std::sync::Barrier::new(workers);
        let work = |mine: &[&[Access]]| {
            let mut table = Footprints::of(store.clone());
            start.wait();
            for some in mine {
                let column = |of: fn(&Access) -> u32| some.iter().map(of).collect::<Vec<u32>>();
                let address: Vec<u64> = some.iter().map(|a| a.0).collect();
                let group: Vec<Group> = some.iter().map(group).collect();
                table.add(
                    &ColumnSlices {
                        address: &address,
                        size: &column(|a| a.1),
                        group: &group,
                        implied: &vec![0; some.len()],
                    },
                    some[0].3,
                );
            }
            table
        };
        let tables = std::thread::scope(|scope| {
            let threads: Vec<_> = dealt
                .iter()
                .map(|mine| scope.spawn(|| work(mine)))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let (set, counts) = FootprintSet::new(tables);
        assert_eq!(
            counts.iter().map(|c| c.rows).sum::<u64>(),
            accesses.len() as u64
        );
        let entries = set.entries();
        assert!(
            entries.is_sorted_by(|a, b| a.key() < b.key()),
            "each key once"
        );
        set.fold(&code())
    }

    fn check(accesses: &[Access], tables: usize) {
        agrees(&measured(accesses, tables, &Arc::default()), accesses);
    }

    fn agrees(folded: &Folded, accesses: &[Access]) {
        let load = |a: &&Access| !group(a).is_store();
        assert_eq!(folded.whole, by_definition(accesses.iter().filter(load)));
        let stores = by_definition(accesses.iter().filter(|a| !load(a)));
        assert_eq!(
            folded.stores,
            AccessCounts {
                strided: 0,
                irregular: 0,
                ..stores
            }
        );
        for f in 0..2 {
            assert_eq!(
                folded.functions[f as usize],
                by_definition(
                    accesses
                        .iter()
                        .filter(load)
                        .filter(|a| group(a).piece() / 4 == f)
                )
            );
        }
        for (l, pieces) in [(0, &[0u32, 2, 3][..]), (1, &[2, 3])] {
            let inside = accesses
                .iter()
                .filter(load)
                .filter(|a| pieces.contains(&group(a).piece()));
            assert_eq!(folded.loops[l], by_definition(inside));
        }
        for l in 0..3 {
            assert_eq!(
                folded.lines[l as usize],
                by_definition(
                    accesses
                        .iter()
                        .filter(load)
                        .filter(|a| group(a).piece() / 2 == l)
                )
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn all_footprints_agree_with_their_definitions(
            accesses in prop::collection::vec(
                (prop_oneof![0u64..600, 3900u64..4400, 0u64..40_000, Just(u64::MAX - 70)], prop_oneof![4 => 0u32..17, 1 => 60u32..300], 0u32..24, 0u32..2), 0..200),
            tables in 1usize..4,
        ) {
            check(&accesses, tables);
        }
    }

    #[test]
    fn entries_that_went_to_a_file_count_the_same() {
        let mut state = 9u64;
        let accesses: Vec<Access> = (0..1_200_000u64)
            .map(|i| {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                (
                    (state >> 33) % 80_000_000 + (i & 7),
                    8,
                    (state >> 12) as u32 % 24,
                    0,
                )
            })
            .collect();
        let budget = Arc::new(Budget::new(1 << 20));
        assert!(measured(&accesses, 1, &budget) == measured(&accesses, 1, &Arc::default()));
        assert!(
            budget.spilled() > 10 << 20 && !budget.failed(),
            "{}",
            budget.spilled()
        );
    }

    /// Workers share a table, and some write it to a file while the others continue. Nothing is
    /// lost or counted twice.
    #[test]
    fn workers_share_a_table() {
        let mut state = 21u64;
        let mut below = |n: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        // There are enough accesses for each of 128 partitions to have 2,048 records. Smaller runs
        // are not merged and do not count in the budget.
        let accesses: Vec<Access> = (0..300_000u64)
            .map(|i| {
                let size = if below(9) == 0 {
                    below(200) as u32
                } else {
                    1 << below(5)
                };
                let address = match below(200) {
                    0 => u64::MAX - below(300),
                    1..40 => 0x7fff_0000 + below(5_000),
                    _ => below(3_000_000),
                };
                (address, size, below(24) as u32, (i / 50 % 3) as u32)
            })
            .collect();
        for (count, workers, bytes, spilled) in [
            (40_000, 5, usize::MAX, 0),
            (300_000, 5, 1 << 17, 1 << 18),
            (300_000, 4, 0, 1 << 18),
            (1_500, 4, 0, 0),
            (0, 4, 0, 0),
        ] {
            let budget = Arc::new(Budget::new(bytes));
            let accesses = &accesses[..count];
            let folded = shared(accesses, workers, &budget);
            assert!(folded == measured(accesses, 1, &Arc::default()));
            // The definitions are slow.
            if count <= 40_000 {
                agrees(&folded, accesses);
            }
            assert!(
                budget.spilled() >= spilled && !budget.failed(),
                "{count} rows: {}",
                budget.spilled()
            );
        }
    }

    #[test]
    fn tables_that_grow_and_displace_agree_too() {
        let mut state = 3u64;
        let accesses: Vec<Access> = (0..60_000)
            .map(|_| {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                ((state >> 33) % 4_000_000, 8, (state >> 12) as u32 % 24, 0)
            })
            .collect();
        check(&accesses, 2);
    }
}

//! The exact simulation of one hierarchy on streamed rows.

use crate::beside;
use crate::cache::arguments::CacheArguments;
use crate::cache::evaluate::space;
use crate::cache::misses::Misses;
use crate::cache::spec::{PAGES, TlbSpec};
use crate::ordered::{Ordered, Stretch};
use mgz_analyzer::columns;
use mgz_analyzer::commands::ensure_accesses;
use mgz_analyzer::commands::owners::Owners;
use mgz_analyzer::commands::progress_bar;
use mgz_analyzer::input::row_slices::RowSlices;
use mgz_analyzer::input::{ColumnSet, Trace};
use mgz_analyzer::output::document::{ColumnUnit, Document, DocumentTable, maybe, value};
use mgz_models::cache::tlb::{Tlb, TlbLevel};
use mgz_models::cache::{LevelSpec, Seen, System};
use serde_json::Value;
use std::ops::Range;

/// Counts of the rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Rows of the trace, counted or not.
    pub rows: u64,
    /// Loads that were counted.
    pub loads: u64,
    /// Stores that were counted.
    pub stores: u64,
    /// Constant loads that counted rows imply.
    pub implied: u64,
}

/// TLBs for one size of pages.
struct Pages {
    page: u32,
    levels: Vec<TlbLevel>,
    /// By core.
    tlbs: Vec<Tlb>,
}

/// The simulation.
struct Exact {
    system: System,
    pages: Vec<Pages>,
    misses: Option<Misses>,
    counted: Counted,
    /// Rows before `skip` are not simulated. Rows between `skip` and `warm` are simulated but not
    /// counted.
    skip: u64,
    warm: u64,
    first_process: u32,
    stores: bool,
}

impl Exact {
    /// Rows of a thread, in order.
    fn rows(&mut self, core: usize, rows: &Stretch, range: Range<usize>) {
        let mut from = range.start;
        while from < range.end {
            let left = (range.end - from) as u64;
            let (upto, counting) = if self.counted.rows < self.skip {
                (self.skip, None)
            } else if self.counted.rows < self.warm {
                (self.warm, Some(false))
            } else {
                (u64::MAX, Some(true))
            };
            let now = left.min(upto - self.counted.rows);
            self.counted.rows += now;
            let to = from + now as usize;
            if let Some(counting) = counting {
                self.part(core, rows, from..to, counting);
            }
            from = to;
        }
    }

    fn part(&mut self, core: usize, rows: &Stretch, range: Range<usize>, counting: bool) {
        self.system.count(counting);
        let space = space(rows.process, self.first_process);
        let mut stores = 0;
        for row in range.clone() {
            let address = rows.address[row] ^ space;
            let (size, site) = (rows.size[row], rows.site[row]);
            let store = self.stores && rows.group[row].is_store();
            stores += u64::from(store);
            let reached = self.system.access(core, address, size, store, site);
            if let Some(misses) = &mut self.misses {
                misses.access(core, rows, row, reached, counting);
            }
        }
        for pages in &mut self.pages {
            let tlb = &mut pages.tlbs[core];
            for row in range.clone() {
                tlb.access(rows.address[row], rows.size[row], counting);
            }
        }
        if counting {
            let implied = rows.implied[range.clone()].iter().map(|&n| u64::from(n));
            self.counted.implied += implied.sum::<u64>();
            self.counted.stores += stores;
            self.counted.loads += range.len() as u64 - stores;
        }
    }
}

/// Result of a simulation.
pub struct SimulatedLevels {
    /// By level.
    pub seen: Vec<Seen>,
    /// Counts of the rows.
    pub counted: Counted,
    /// Threads with rows.
    pub threads: usize,
    /// First shared level, from 0.
    pub shared: usize,
    /// Part of the trace could not be read.
    pub damaged: bool,
}

/// Levels of the TLBs by size of pages.
fn tlbs(given: &[TlbSpec]) -> Vec<(u32, Vec<TlbLevel>)> {
    let of = |page: u32| {
        given
            .iter()
            .filter(move |t| t.page.is_none_or(|p| p == page))
    };
    PAGES
        .iter()
        .map(|&page| (page, of(page).map(|t| t.level).collect::<Vec<_>>()))
        .filter(|(_, levels)| !levels.is_empty())
        .collect()
}

impl Exact {
    fn new(
        system: System,
        cores: usize,
        misses: Option<Misses>,
        arguments: &CacheArguments,
    ) -> Exact {
        let pages = tlbs(&arguments.tlb)
            .into_iter()
            .map(|(page, levels)| Pages {
                page,
                tlbs: (0..cores).map(|_| Tlb::new(&levels, page)).collect(),
                levels,
            });
        Exact {
            system,
            pages: pages.collect(),
            misses,
            counted: Counted::default(),
            skip: arguments.skip,
            warm: arguments.skip.saturating_add(arguments.warm_up),
            first_process: 0,
            stores: arguments.stores,
        }
    }
}

/// The simulation of rows before those of the trace, see [`crate::beside`].
pub(crate) struct Begun {
    exact: Exact,
    /// Thread of the rows, if there were any.
    thread: Option<(u32, u32)>,
}

impl Begun {
    /// A simulation without rows so far.
    pub(crate) fn new(levels: &[LevelSpec], arguments: &CacheArguments) -> anyhow::Result<Begun> {
        let system = System::new(levels, 0, 1).map_err(anyhow::Error::msg)?;
        Ok(Begun {
            exact: Exact::new(system, 1, None, arguments),
            thread: None,
        })
    }

    /// Simulates all rows from standard input.
    pub(crate) fn take(levels: &[LevelSpec], arguments: &CacheArguments) -> anyhow::Result<Begun> {
        let mut begun = Begun::new(levels, arguments)?;
        let mut stretch = Stretch::default();
        beside::take_batches(&mut |rows| {
            let rows = stretch.take(rows, arguments.stores);
            begun.rows(&stretch);
            rows
        })?;
        Ok(begun)
    }

    /// Simulates the next rows, all of one thread.
    pub(crate) fn rows(&mut self, rows: &Stretch) {
        self.thread = Some((rows.process, rows.thread));
        self.exact.first_process = rows.process;
        self.exact.rows(0, rows, 0..rows.address.len());
    }

    /// Converts the simulation to `cores` cores; `own` is the core of its thread.
    fn with_cores(self, shared: usize, cores: usize, own: usize) -> anyhow::Result<Exact> {
        let mut exact = self.exact;
        if cores > 1 {
            exact.system = exact
                .system
                .with_cores(shared, cores, own)
                .map_err(anyhow::Error::msg)?;
            for pages in &mut exact.pages {
                let others = (1..cores).map(|_| Tlb::new(&pages.levels, pages.page));
                pages.tlbs.extend(others);
                pages.tlbs.swap(0, own);
            }
        }
        Ok(exact)
    }
}

/// Simulates the levels on a trace, after the rows of `begun`. All tables except that of the levels
/// are added to the document.
pub fn simulate(
    trace: &Trace,
    levels: &[LevelSpec],
    shared: usize,
    arguments: &CacheArguments,
    begun: Option<Begun>,
    document: &mut Document,
) -> anyhow::Result<SimulatedLevels> {
    let hierarchy = Hierarchy {
        levels,
        shared,
        arguments,
    };
    let slices = RowSlices::of(trace).filter(|_| !asks_for_code(levels, arguments));
    let (simulated, mut damage) = match slices {
        Some(slices) => in_slices(slices, &hierarchy, begun)?,
        None => in_order(trace, &hierarchy, begun, document)?,
    };
    // Unreadable parts are found twice: when threads are looked up, and when rows are read.
    damage.sort();
    damage.dedup();
    let damaged = !damage.is_empty() || !trace.damage.is_empty();
    document.warnings.extend(damage);
    let Simulated { exact, shared, of } = simulated;
    let counted = exact.counted;
    ensure_accesses(counted.rows, trace)?;
    anyhow::ensure!(
        counted.loads + counted.stores > 0,
        "{}: --skip and --warm-up leave none of its {} accesses to count",
        trace.folder.display(),
        counted.rows
    );
    exact.tables(trace, document);
    Ok(SimulatedLevels {
        seen: exact.system.seen().to_vec(),
        counted,
        threads: of,
        shared,
        damaged,
    })
}

/// True if instructions are needed: for tables of misses, and for prefetchers that follow
/// instructions.
pub(super) fn asks_for_code(levels: &[LevelSpec], arguments: &CacheArguments) -> bool {
    arguments.misses || levels.iter().any(|l| l.prefetch.stride)
}

/// The simulated hierarchy.
struct Hierarchy<'a> {
    levels: &'a [LevelSpec],
    /// First shared level, from 0, if there are several cores.
    shared: usize,
    arguments: &'a CacheArguments,
}

/// A simulation with a core for each thread.
struct Simulated {
    exact: Exact,
    /// First shared level, from 0.
    shared: usize,
    /// Cores.
    of: usize,
}

impl Hierarchy<'_> {
    /// Begins or continues a simulation. The arguments are the threads of the trace, in order, and
    /// the process of the first row. Also returns the core of each thread.
    fn begin(
        &self,
        of_trace: &[(u32, u32)],
        first_process: u32,
        begun: Option<Begun>,
        misses: impl FnOnce(usize) -> Option<Misses>,
    ) -> anyhow::Result<(Simulated, Vec<usize>)> {
        let mut threads = of_trace.to_vec();
        let before = begun.as_ref().and_then(|begun| begun.thread);
        if let Some(thread) = before
            && let Err(at) = threads.binary_search(&thread)
        {
            threads.insert(at, thread);
        }
        let number = |thread: &(u32, u32)| threads.binary_search(thread).unwrap_or(0);
        let cores = threads.len();
        let shared = if cores > 1 { self.shared } else { 0 };
        let exact = match begun.filter(|_| before.is_some()) {
            Some(begun) => begun.with_cores(shared, cores, before.as_ref().map_or(0, number))?,
            None => {
                let system = System::new(self.levels, shared, cores).map_err(anyhow::Error::msg)?;
                let mut exact = Exact::new(system, cores, misses(cores), self.arguments);
                exact.first_process = first_process;
                exact
            }
        };
        let cores = of_trace.iter().map(number).collect();
        let of = threads.len();
        Ok((Simulated { exact, shared, of }, cores))
    }
}

/// Simulates rows that are read in slices, after the rows of `begun`. Also returns descriptions of
/// unreadable parts.
fn in_slices(
    mut slices: RowSlices<'_>,
    hierarchy: &Hierarchy<'_>,
    begun: Option<Begun>,
) -> anyhow::Result<(Simulated, Vec<String>)> {
    let threads = slices.threads();
    let (mut simulated, core) =
        hierarchy.begin(&threads, slices.first_process(), begun, |_| None)?;
    let bar = progress_bar(slices.rows());
    let mut stretch = Stretch::default();
    let stores = hierarchy.arguments.stores;
    slices.visit(stores, &mut |mut slice| {
        bar.inc(slice.read);
        slice.rows = stretch.take(slice.rows, stores);
        let mut from = 0;
        for &(thread, to) in &slice.runs {
            (stretch.process, stretch.thread) = threads[thread];
            simulated.exact.rows(core[thread], &stretch, from..to);
            from = to;
        }
        slice
    });
    bar.finish_and_clear();
    Ok((simulated, slices.damage))
}

/// Simulates rows with their instructions in the order of their times, after the rows of `begun`.
/// Also returns descriptions of unreadable parts.
fn in_order(
    trace: &Trace,
    hierarchy: &Hierarchy<'_>,
    begun: Option<Begun>,
    document: &mut Document,
) -> anyhow::Result<(Simulated, Vec<String>)> {
    let source = trace.source(ColumnSet { time: true });
    let mut ordered = Ordered::new(&*source);
    let (levels, arguments) = (hierarchy.levels, hierarchy.arguments);
    let misses = |cores: usize| {
        arguments.misses.then(|| {
            let owners = Owners::open(trace, document);
            let line = levels[0].shape.line;
            Misses::new(levels.len(), line, cores, trace.code.groups(), owners)
        })
    };
    let (threads, first_process) = (ordered.threads(), ordered.first_process);
    let (mut simulated, core) = hierarchy.begin(&threads, first_process, begun, misses)?;
    let rows: u64 = (0..source.pieces()).map(|p| source.piece_rows(p)).sum();
    let bar = progress_bar(rows);
    ordered.visit(
        arguments.stores,
        &|n| bar.inc(n),
        &mut |thread, rows, range| simulated.exact.rows(core[thread], rows, range),
    );
    bar.finish_and_clear();
    document.warnings.extend(source.notes());
    let damage = std::mem::take(&mut ordered.damage);
    Ok((simulated, damage))
}

impl Exact {
    fn tables(&self, trace: &Trace, document: &mut Document) {
        if !self.pages.is_empty() {
            document.tables.push(self.tlb_table());
        }
        if self.system.is_coherent() && self.counted.stores > 0 {
            let table = self.sharing_table(document);
            document.tables.push(table);
        }
        if let Some(misses) = &self.misses {
            misses.tables(&trace.code, document);
        }
    }

    fn tlb_table(&self) -> DocumentTable {
        let mut rows = Vec::new();
        for pages in &self.pages {
            for (number, level) in pages.levels.iter().enumerate() {
                let of = |tlb: &Tlb| tlb.counts()[number];
                let accesses: u64 = pages.tlbs.iter().map(|t| of(t).accesses).sum();
                let misses: u64 = pages.tlbs.iter().map(|t| of(t).misses).sum();
                let all = (self.counted.loads + self.counted.stores) as f64;
                let local = (accesses > 0).then(|| 1.0 - misses as f64 / accesses as f64);
                rows.push(vec![
                    Value::from(1u64 << pages.page),
                    Value::from(number + 1),
                    Value::from(level.entries),
                    Value::from(level.ways),
                    Value::from(level.policy.name()),
                    value(1.0 - misses as f64 / all),
                    maybe(local),
                    Value::from(misses),
                ]);
            }
        }
        DocumentTable {
            name: "tlb",
            title: "Translation look-aside buffers, one of each thread, if all memory had pages of this size".into(),
            columns: columns![
                page: Bytes, level: Id, entries: Id, ways: Id, policy: Text,
                hit_rate_hierarchy: Share, hit_rate_local: Share, misses: Count,
            ].to_vec(),
            rows,
            text_rows: usize::MAX,
        }
    }

    fn sharing_table(&self, document: &mut Document) -> DocumentTable {
        let mut lines = self.system.shared_lines();
        let sum = |of: fn(&mgz_models::cache::coherence::Sharing) -> u64| -> u64 {
            lines.iter().map(|l| of(&l.1)).sum()
        };
        document.put("invalidations", ColumnUnit::Count, sum(|s| s.invalidations));
        document.put(
            "true_sharing_misses",
            ColumnUnit::Count,
            sum(|s| s.true_misses),
        );
        document.put(
            "false_sharing_misses",
            ColumnUnit::Count,
            sum(|s| s.false_misses),
        );
        lines.sort_by_key(|(address, s)| {
            (
                std::cmp::Reverse((s.false_misses, s.true_misses, s.invalidations)),
                *address,
            )
        });
        let bytes = self.system.shared_line_bytes();
        let rows = lines.into_iter().map(|(address, s)| {
            vec![
                // Without the bits that distinguish processes.
                Value::from(address & ((1 << 48) - 1)),
                Value::from(bytes),
                Value::from(s.invalidations),
                Value::from(s.false_misses),
                Value::from(s.true_misses),
                Value::from(s.interventions),
            ]
        });
        DocumentTable {
            name: "sharing",
            title: "Lines that stores of one thread take from others (false: the access that missed touches no byte that was written since)".into(),
            columns: columns![
                address: Address, bytes: Bytes, invalidations: Count, false_sharing_misses: Count,
                true_sharing_misses: Count, interventions: Count,
            ].to_vec(),
            rows: rows.collect(),
            text_rows: usize::MAX,
        }
    }
}

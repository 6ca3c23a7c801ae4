//! Replays the rows of a trace with addresses moved by remedies, and predicts their misses.

use crate::data::chunk::Chunk;
use crate::data::code_map::Target;
use crate::data::detail::Detail;
use crate::data::group::Group;
use crate::data::memory_units::{CacheLine, LINE_BYTES};
use crate::data::object_map::{Recent, Resolver, UNKNOWN};
use crate::data::rows::{RowColumns, Run};
use crate::data::samples::SampleInfo;
use crate::engine::{Aids, EngineOptions, EngineOutcome, analyse_with};
use crate::findings::spared::{ALL_LEFT, Spared};
use crate::findings::windows::Window;
use crate::input::Trace;
use crate::input::source::ChunkSource;
use crate::input::weights::Weights;
use crate::misses::{Hierarchy, Predicted, Predictor, Range, Watches, tlb};
use crate::stages::line_visits::Visit;
use crate::stages::set_conflicts::{LEVELS, Sets};
use crate::util::fast_hash::Mixed;
use crate::what_if::memory::NewMemory;
use crate::what_if::pages;
use crate::what_if::remedy::{Load, Remedy};
use arrow_buffer::ScalarBuffer;
use mgz_annotations_schema::lock::locked;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

/// Remedies in the order in which they are applied, with the new memory that they use.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) remedies: Vec<Box<dyn Remedy>>,
    pub(crate) memory: NewMemory,
    moved: MovedRows,
}

/// Maximum number of rows whose moved addresses are kept for another count. Source: Chosen: 32 MiB.
const MAX_KEPT_ROWS: usize = 4 << 20;

/// Moved addresses by piece of the trace.
#[derive(Default)]
struct MovedRows(Mutex<HashMap<usize, ScalarBuffer<u64>>>);

impl MovedRows {
    fn of(&self, piece: usize) -> Option<ScalarBuffer<u64>> {
        let kept = locked(&self.0);
        kept.get(&piece).cloned()
    }

    fn keep(&self, piece: usize, address: &ScalarBuffer<u64>) {
        let mut kept = locked(&self.0);
        let rows: usize = kept.values().map(|of| of.len()).sum();
        if rows + address.len() <= MAX_KEPT_ROWS {
            kept.insert(piece, address.clone());
        }
    }
}

impl Plan {
    /// A plan with a single remedy.
    pub(crate) fn of(remedy: Box<dyn Remedy>) -> Plan {
        Plan {
            remedies: vec![remedy],
            ..Plan::default()
        }
    }

    /// True if prefetches hide the waits of a load instruction.
    pub(crate) fn prefetches(&self, site: u32) -> bool {
        self.remedies.iter().any(|r| r.prefetches(site))
    }

    /// True if the loads of a load instruction are sorted.
    pub(crate) fn sorts(&self, site: u32) -> bool {
        self.remedies.iter().any(|r| r.sorts(site))
    }

    /// The part of a load instruction's waits that is left: least, estimate, most.
    pub(crate) fn left(&self, site: u32) -> Range {
        let each = self.remedies.iter().map(|r| r.left(site));
        each.fold(ALL_LEFT, |all, one| {
            std::array::from_fn(|end| all[end] * one[end])
        })
    }

    /// Time of regions that is saved beside these waits.
    pub(crate) fn spared(&self) -> Vec<Spared> {
        let each = self.remedies.iter().flat_map(|r| r.spared());
        each.copied().collect()
    }

    /// True if any address changes.
    pub(crate) fn moves(&self) -> bool {
        self.remedies.iter().any(|r| r.moves())
    }

    /// True if any page changes.
    pub(crate) fn changes_pages(&self) -> bool {
        self.moves() || self.remedies.iter().any(|r| r.changes_pages())
    }

    /// True if pages may have several sizes.
    pub(crate) fn mixes_pages(&self) -> bool {
        self.remedies.iter().any(|r| r.changes_pages())
    }

    /// True if the memory of an object has huge pages.
    fn has_huge_pages(&self, object: u32) -> bool {
        self.remedies.iter().any(|r| r.has_huge_pages(object))
    }

    fn apply(&self, process: u32, loads: &mut [Load]) {
        for remedy in &self.remedies {
            remedy.apply(process, loads, &self.memory);
        }
    }

    /// Windows with the rows moved.
    pub(crate) fn windows(&self, windows: &[Window], objects: Option<&Resolver>) -> Vec<Window> {
        let mut recent = Recent::default();
        let mut moved = windows.to_vec();
        for window in &mut moved {
            let mut loads: Vec<Load> = (window.rows.iter())
                .map(|row| {
                    let place = (window.process, row.address, window.time);
                    load(objects, &mut recent, place, row.site)
                })
                .collect();
            self.apply(window.process, &mut loads);
            let mut lines: HashSet<CacheLine, Mixed> = HashSet::default();
            for (row, load) in window.rows.iter_mut().zip(loads) {
                row.address = load.address;
                row.first = lines.insert(CacheLine::of(load.address));
            }
        }
        moved
    }
}

/// A load with its block.
pub(crate) fn load(
    objects: Option<&Resolver>,
    recent: &mut Recent,
    (process, address, time): (u32, u64, u64),
    site: u32,
) -> Load {
    let find = |objects: &Resolver| objects.find_block(recent, process, address, time);
    let (object, (start, bytes)) = objects.map_or((UNKNOWN, (0, 0)), find);
    Load {
        address,
        site,
        object,
        start,
        bytes,
    }
}

/// A source of rows whose addresses remedies have moved.
#[derive(Clone, Copy)]
struct Moved<'a> {
    source: &'a dyn ChunkSource,
    objects: Option<&'a Resolver>,
    plan: Option<&'a Plan>,
    /// True if addresses are replaced by those of pages.
    by_page: bool,
}

impl Moved<'_> {
    fn chunk(&self, piece: usize, chunk: Chunk) -> Chunk {
        let address = match self.plan {
            None => chunk.loads.address.clone(),
            Some(plan) if self.by_page && plan.mixes_pages() => self.moved(plan, &chunk),
            Some(plan) => plan.moved.of(piece).unwrap_or_else(|| {
                let lines = Moved {
                    by_page: false,
                    ..*self
                };
                let address = lines.moved(plan, &chunk);
                plan.moved.keep(piece, &address);
                address
            }),
        };
        let has_pages = self.plan.is_some_and(Plan::mixes_pages);
        let address = match self.by_page && !has_pages {
            true => (address.iter().map(|&a| pages::as_line(a, false)))
                .collect::<Vec<u64>>()
                .into(),
            false => address,
        };
        Chunk {
            loads: RowColumns {
                address,
                ..chunk.loads
            },
            ..chunk
        }
    }

    /// The addresses of a chunk's loads after a plan.
    fn moved(&self, plan: &Plan, chunk: &Chunk) -> ScalarBuffer<u64> {
        let mut address = chunk.loads.address.clone().to_vec();
        let mut recent = Recent::default();
        for run in &chunk.runs {
            self.run(plan, run, (&chunk.loads, &mut address), &mut recent);
        }
        address.into()
    }

    fn run(
        &self,
        plan: &Plan,
        run: &Run,
        (rows, address): (&RowColumns, &mut [u64]),
        recent: &mut Recent,
    ) {
        let range = run.loads.start..run.loads.end.min(address.len());
        let sites = rows.sites(range.clone());
        let span = run.last_time.saturating_sub(run.first_time);
        let count = range.len().max(2) as u128 - 1;
        let mut loads: Vec<Load> = (address[range.clone()].iter().enumerate())
            .map(|(at, &address)| {
                let time = run.first_time + (u128::from(span) * at as u128 / count) as u64;
                let site = sites.get(at).copied().unwrap_or(u32::MAX);
                load(self.objects, recent, (run.process, address, time), site)
            })
            .collect();
        plan.apply(run.process, &mut loads);
        for (to, load) in address[range].iter_mut().zip(loads) {
            let huge = || plan.has_huge_pages(load.object);
            *to = match self.by_page {
                true => pages::as_line(load.address, huge()),
                false => load.address,
            };
        }
    }
}

impl ChunkSource for Moved<'_> {
    fn pieces(&self) -> usize {
        self.source.pieces()
    }

    fn piece_rows(&self, piece: usize) -> u64 {
        self.source.piece_rows(piece)
    }

    fn read(&self, pieces: &[usize]) -> Vec<Result<Chunk, (String, u64)>> {
        let chunks = self.source.read(pieces).into_iter().zip(pieces);
        chunks
            .map(|(read, &piece)| read.map(|chunk| self.chunk(piece, chunk)))
            .collect()
    }
}

/// Settings of a pass over the rows.
#[derive(Clone, Copy)]
struct Counted<'a> {
    plan: Option<&'a Plan>,
    /// Caches, or levels of the TLB.
    hierarchy: &'a Hierarchy,
    /// True if pages are counted instead of lines.
    by_page: bool,
}

/// A trace that is counted several times.
pub(crate) struct Replayed<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) source: &'a dyn ChunkSource,
    pub(crate) objects: Option<&'a Resolver>,
    pub(crate) weights: Option<Arc<Weights>>,
    pub(crate) hierarchy: Hierarchy,
}

impl Replayed<'_> {
    /// Counts the rows, moved by a plan, and predicts their misses. Watched reuses are left out,
    /// because their words have not moved.
    pub(crate) fn count(&self, plan: Option<&Plan>) -> (EngineOutcome, Option<Predicted>) {
        let counted = Counted {
            plan,
            hierarchy: &self.hierarchy,
            by_page: false,
        };
        self.count_by(&counted)
    }

    /// Predicts the misses of the TLB: pages are counted as lines.
    pub(crate) fn count_pages(&self, plan: Option<&Plan>) -> Option<Predicted> {
        let counted = Counted {
            plan,
            hierarchy: &tlb(self.trace.manifest.memory_costs.as_ref()),
            by_page: true,
        };
        self.count_by(&counted).1
    }

    fn count_by(&self, counted: &Counted) -> (EngineOutcome, Option<Predicted>) {
        let &Counted {
            plan,
            hierarchy,
            by_page,
        } = counted;
        let all = self.trace.manifest.mode.has_all_loads();
        let mut sets = [Sets::default(); LEVELS];
        for (to, of) in sets.iter_mut().zip(&hierarchy.caches) {
            *to = Sets::new(of.size, of.ways);
        }
        let options = EngineOptions {
            windows: false,
            samples: true,
            lines: (!all).then_some(sets),
            lines_alone: !all,
            ..EngineOptions::new(LINE_BYTES.trailing_zeros())
        };
        let aids = Aids {
            weights: self.weights.clone(),
            ..Aids::default()
        };
        let outcome = match plan.is_some() || by_page {
            true => {
                let moved = Moved {
                    source: self.source,
                    objects: self.objects,
                    plan,
                    by_page,
                };
                analyse_with(&moved, options, aids, &|_| {})
            }
            false => analyse_with(self.source, options, aids, &|_| {}),
        };
        let predicted = match all {
            true => Predicted::exact(&outcome, hierarchy.clone()),
            false => self.predict_by(&outcome, counted),
        };
        (outcome, predicted)
    }

    /// Predicts misses from the counted rows, without watched reuses.
    fn predict_by(&self, outcome: &EngineOutcome, counted: &Counted) -> Option<Predicted> {
        let &Counted {
            plan,
            hierarchy,
            by_page,
        } = counted;
        let code = &self.trace.code;
        let function = |group: Group| {
            let functions = code.targets(Target::Function, group);
            functions.first().copied().unwrap_or(u32::MAX)
        };
        let object = |visit: &Visit, sample: &SampleInfo, recent: &mut Recent| {
            let address = match by_page {
                true => pages::of_line(visit.address()),
                false => visit.address(),
            };
            if let Some(object) = plan.and_then(|p| p.memory.object(address)) {
                return object;
            }
            let middle = sample.first_time + sample.last_time.saturating_sub(sample.first_time) / 2;
            let find = |o: &Resolver| o.find_recent(recent, sample.process, address, middle);
            self.objects.map_or(UNKNOWN, find)
        };
        let by_time = self.trace.manifest.triggers_by_time();
        // A screen needs no curves.
        let detail = Detail::Screen(0);
        let counts = (outcome, &outcome.lines, None);
        Predictor::new(counts, hierarchy.clone(), by_time, function, object)?
            .predict(detail, Watches::LeftOut)
    }
}

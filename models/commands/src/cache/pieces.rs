//! Profiles of pieces of code, and their recombination for other inputs (Barai et al. 2019,
//! equation 1).

use crate::cache::arguments::CacheArguments;
use crate::threads::Thread;
use mgz_analyzer::columns;
use mgz_analyzer::commands::stream::{AccessSegment, Accesses};
use mgz_analyzer::commands::{is_watched, refuse_watched, visit};
use mgz_analyzer::data::group::Group;
use mgz_analyzer::input::{ColumnSet, Trace};
use mgz_analyzer::output::document::{
    ColumnUnit, Document, DocumentColumn, DocumentTable, maybe, value,
};
use mgz_models::cache::{Cache, Shape, expected_hits};
use mgz_models::histogram::{Fine, PART_BITS};
use mgz_models::reuse::{ReuseEngine, ReuseSink};
use serde_json::Value;
use std::path::Path;

/// Hit rates of a piece by level: by the model, and by set distances.
type Rates = Vec<(f64, f64)>;

/// Reuse of one piece of code.
struct PieceReuse {
    /// P(D|BB).
    distances: Fine,
    first: u64,
    /// Hits in each level, as if it saw every access.
    hits: Vec<u64>,
}

impl PieceReuse {
    fn touches(&self) -> u64 {
        self.distances.count() + self.first
    }

    /// Hit rates in each level, given that the piece runs.
    fn rates(&self, levels: &[Shape]) -> Rates {
        let all = self.touches() as f64;
        let of = |(shape, &hits): (&Shape, &u64)| {
            let expected = expected_hits(self.distances.bins(), shape);
            (expected / all, hits as f64 / all)
        };
        levels.iter().zip(&self.hits).map(of).collect()
    }
}

/// Distances and hits by piece.
struct Groups {
    parts: Vec<Option<Box<PieceReuse>>>,
    /// Each level as a separate cache, and log2 of its line size divided by the first level's.
    caches: Vec<(Cache, u32)>,
}

impl Groups {
    #[inline(always)]
    fn part(&mut self, tag: u32) -> &mut PieceReuse {
        if tag as usize >= self.parts.len() {
            self.parts.resize_with(tag as usize + 1, || None);
        }
        let levels = self.caches.len();
        self.parts[tag as usize].get_or_insert_with(|| {
            Box::new(PieceReuse {
                distances: Fine::new(PART_BITS),
                first: 0,
                hits: vec![0; levels],
            })
        })
    }

    fn touch(&mut self, block: u64, tag: u32) {
        for level in 0..self.caches.len() {
            let (cache, shift) = &mut self.caches[level];
            let hit = cache.access(block >> *shift);
            self.part(tag).hits[level] += u64::from(hit);
        }
    }
}

impl ReuseSink for Groups {
    #[inline(always)]
    fn first(&mut self, _row: u64, block: u64, tag: u32) {
        self.part(tag).first += 1;
        self.touch(block, tag);
    }
    #[inline(always)]
    fn reuse(&mut self, _row: u64, block: u64, tag: u32, distance: u64, _interval: u64) {
        self.part(tag).distances.add(distance);
        self.touch(block, tag);
    }
    #[inline(always)]
    fn done(&mut self, _row: u64, _tag: u32) {}
}

/// Profiles of pieces of code, P(D|BB) and P(BB), and their recombination with other weights
/// (equation 1).
pub fn put_pieces(
    thread: &Thread,
    trace: &Trace,
    levels: &[Shape],
    arguments: &CacheArguments,
    document: &mut Document,
) -> anyhow::Result<()> {
    let line = levels[0].line.trailing_zeros();
    let mut engine = ReuseEngine::new(line);
    let caches = levels
        .iter()
        .map(|l| (Cache::new(l), l.line.trailing_zeros().saturating_sub(line)))
        .collect();
    let mut groups = Groups {
        parts: Vec::new(),
        caches,
    };
    let view = thread.accesses.view();
    engine.run(
        view.address,
        view.size,
        Group::raw_slice(view.group),
        &mut groups,
    );
    let total: u64 = groups.parts.iter().flatten().map(|p| p.touches()).sum();
    let rates = groups.parts.iter();
    let rates: Vec<Option<Rates>> = rates
        .map(|part| part.as_ref().map(|p| p.rates(levels)))
        .collect();
    let mut rows: Vec<(u64, Vec<Value>)> = Vec::new();
    for (at, (part, rate)) in groups.parts.iter().zip(&rates).enumerate() {
        let group = Group::from_index(at);
        let (Some(part), Some(rate)) = (part, rate) else {
            continue;
        };
        let piece = &trace.code.pieces[group.piece() as usize];
        let place = &trace.code.lines[piece.line as usize];
        let touches = part.touches();
        let mut row = vec![
            Value::from(
                trace.code.functions[piece.function as usize]
                    .function
                    .as_str(),
            ),
            Value::from(place.file.rsplit('/').next().unwrap_or("")),
            Value::from(place.line),
            Value::from(group.class_name()),
            value(touches as f64 / total as f64),
            maybe(part.distances.mean()),
            value(part.first as f64 / touches as f64),
        ];
        row.extend((0..4).map(|i| maybe(rate.get(i).map(|r| r.0))));
        row.extend((0..4).map(|i| maybe(rate.get(i).map(|r| r.1))));
        rows.push((touches, row));
    }
    rows.sort_by_key(|r| std::cmp::Reverse(r.0));
    let mut columns = columns![
        function: Text, file: Text, line: Line, class: Text, P_BB: Share, D_mean: Number,
        first_share: Share,
    ]
    .to_vec();
    columns.extend(
        ["hit_rate_1", "hit_rate_2", "hit_rate_3", "hit_rate_4"]
            .map(|n| DocumentColumn(n, ColumnUnit::Share)),
    );
    columns.extend(
        [
            "hit_rate_sets_1",
            "hit_rate_sets_2",
            "hit_rate_sets_3",
            "hit_rate_sets_4",
        ]
        .map(|n| DocumentColumn(n, ColumnUnit::Share)),
    );
    document.tables.push(DocumentTable {
        name: "pieces",
        title:
            "Pieces of code: P(BB), and hit rates by the model from P(D|BB) and by set distances"
                .into(),
        columns,
        rows: rows.into_iter().map(|r| r.1).collect(),
        text_rows: usize::MAX,
    });
    if let Some(folder) = &arguments.weights_from {
        recombine(folder, &rates, trace, levels, arguments, document)?;
    }
    Ok(())
}

fn recombine(
    folder: &Path,
    rates: &[Option<Rates>],
    trace: &Trace,
    levels: &[Shape],
    arguments: &CacheArguments,
    document: &mut Document,
) -> anyhow::Result<()> {
    if is_watched(folder) {
        return Err(refuse_watched(folder, "--weights-from"));
    }
    let other = Trace::open(folder, !arguments.common.no_annotations)?;
    let ids = |t: &Trace| {
        t.manifest
            .modules
            .iter()
            .map(|m| m.sidecar_id.clone())
            .collect::<Vec<_>>()
    };
    anyhow::ensure!(
        ids(&other) == ids(trace),
        "{}: a trace of another program, or of another build of it; --weights-from needs the same instrumented files as {}",
        folder.display(),
        trace.folder.display()
    );
    let mut counts = vec![0u64; trace.code.groups()];
    let mut buffer = Accesses::default();
    visit(
        &other,
        ColumnSet::default(),
        document,
        &mut |segment: &AccessSegment<'_>| {
            for &group in segment.accesses(arguments.stores, &mut buffer).group {
                counts[group.index()] += 1;
            }
        },
    );
    let all: u64 = counts.iter().sum();
    let known: u64 = counts
        .iter()
        .enumerate()
        .filter(|(g, _)| rates.get(*g).is_some_and(Option::is_some))
        .map(|c| c.1)
        .sum();
    anyhow::ensure!(
        known > 0,
        "{}: none of its code runs in {}",
        folder.display(),
        trace.folder.display()
    );
    let rows = levels.iter().enumerate().map(|(i, shape)| {
        let hits = |of: fn((f64, f64)) -> f64| {
            counts
                .iter()
                .enumerate()
                .filter_map(|(g, &n)| rates.get(g)?.as_ref().map(|r| of(r[i]) * n as f64))
                .sum::<f64>()
        };
        vec![
            Value::from(i + 1),
            Value::from(shape.size),
            value(hits(|r| r.0) / known as f64),
            value(hits(|r| r.1) / known as f64),
            value(known as f64 / all as f64),
        ]
    });
    document.tables.push(DocumentTable {
        name: "recombined",
        title: "Hit rates with P(BB) of the other trace (coverage: its accesses whose code was profiled)".into(),
        columns: columns![
            level: Id, size: Bytes, hit_rate_model: Share, hit_rate_sets: Share, coverage: Share,
        ].to_vec(),
        rows: rows.collect(),
        text_rows: usize::MAX,
    });
    Ok(())
}

//! `mgz-analyze predict --level`: hit rates of inputs that were not run, by code (Barai et al.
//! 2019, equation 1).

use mgz_analyzer::columns;
use mgz_analyzer::commands::stream::Accesses;
use mgz_analyzer::commands::{Common, open_trace, require_full, visit};
use mgz_analyzer::data::group::Group;
use mgz_analyzer::input::ColumnSet;
use mgz_analyzer::output::document::{Document, DocumentTable, value};
use mgz_models::cache::{Shape, expected_hits};
use mgz_models::histogram::{Bin, Fine, PART_BITS};
use mgz_models::predict::accuracy;
use mgz_models::predict::by_code::{CodeProfile, CodeRun, train};
use mgz_models::reuse::{ReuseEngine, ReuseSink};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Partitions of each piece's reference histogram.
const PARTITIONS: usize = 200;

#[derive(Default)]
struct Sink {
    parts: Vec<Option<Box<(Fine, u64)>>>,
    firsts: u64,
}

impl Sink {
    fn part(&mut self, tag: u32) -> &mut (Fine, u64) {
        let at = tag as usize;
        if at >= self.parts.len() {
            self.parts.resize_with(at + 1, || None);
        }
        self.parts[at].get_or_insert_with(|| Box::new((Fine::new(PART_BITS), 0)))
    }
}

impl ReuseSink for Sink {
    #[inline(always)]
    fn first(&mut self, _row: u64, _block: u64, tag: u32) {
        self.firsts += 1;
        self.part(tag).1 += 1;
    }
    #[inline(always)]
    fn reuse(&mut self, _row: u64, _block: u64, tag: u32, distance: u64, _interval: u64) {
        self.part(tag).0.add(distance);
    }
    #[inline(always)]
    fn done(&mut self, _row: u64, _tag: u32) {}
}

fn measure(
    folder: &Path,
    block: u64,
    stores: bool,
    common: &Common,
    document: &mut Document,
) -> anyhow::Result<CodeRun> {
    let trace = open_trace(folder, common, document)?;
    require_full(&trace, "prediction", "")?;
    let mut engine = ReuseEngine::new(block.trailing_zeros());
    let mut sink = Sink::default();
    let mut buffer = Accesses::default();
    visit(&trace, ColumnSet::default(), document, &mut |segment| {
        if segment.starts {
            engine.begin();
        }
        let view = segment.accesses(stores, &mut buffer);
        engine.run(
            view.address,
            view.size,
            Group::raw_slice(view.group),
            &mut sink,
        );
    });
    let parts = sink.parts.iter().enumerate().filter_map(|(key, part)| {
        let (fine, cold) = &**part.as_ref()?;
        let profile = CodeProfile {
            bins: fine.bins().collect(),
            cold: *cold as f64,
        };
        Some((key as u32, profile))
    });
    Ok(CodeRun {
        pieces: parts.collect(),
        size: sink.firsts as f64,
    })
}

/// All pieces' distances as one histogram, and the first touches.
fn whole(run: &CodeRun) -> (Vec<Bin>, f64) {
    let mut bins: BTreeMap<u64, Bin> = BTreeMap::new();
    for bin in run.pieces.values().flat_map(|p| &p.bins) {
        bins.entry(bin.from as u64)
            .and_modify(|sum| {
                sum.count += bin.count;
                sum.sum += bin.sum;
                sum.to = sum.to.max(bin.to);
            })
            .or_insert(*bin);
    }
    (
        bins.into_values().collect(),
        run.pieces.values().map(|p| p.cold).sum(),
    )
}

fn hit_rate(bins: &[Bin], cold: f64, shape: &Shape) -> f64 {
    let all: f64 = bins.iter().map(|b| b.count).sum::<f64>() + cold;
    expected_hits(bins.iter().copied(), shape) / all.max(1e-300)
}

/// The request for a prediction by code.
pub(crate) struct ByCode<'a> {
    /// Traces to train on.
    pub train: &'a [PathBuf],
    /// Traces to compare with.
    pub test: &'a [PathBuf],
    /// Caches.
    pub levels: &'a [Shape],
    /// True if stores count.
    pub stores: bool,
    /// Bytes of a block.
    pub block: u64,
    /// Options of all commands.
    pub common: &'a Common,
}

/// Adds the table of predictions by code.
pub(crate) fn by_code(asked: &ByCode<'_>, document: &mut Document) -> anyhow::Result<()> {
    anyhow::ensure!(
        asked.levels.iter().all(|l| l.line == asked.block),
        "--level: its lines must be blocks of the model; give --block 64, or SIZE:WAYS:{}",
        asked.block
    );
    let mut measured =
        |folder: &PathBuf| measure(folder, asked.block, asked.stores, asked.common, document);
    let runs = asked
        .train
        .iter()
        .map(&mut measured)
        .collect::<anyhow::Result<Vec<CodeRun>>>()?;
    let tests = asked
        .test
        .iter()
        .map(&mut measured)
        .collect::<anyhow::Result<Vec<CodeRun>>>()?;
    let model = train(&runs, PARTITIONS);
    let largest = runs
        .iter()
        .max_by(|a, b| a.size.total_cmp(&b.size))
        .map(whole)
        .unwrap_or_default();
    let mut rows = Vec::new();
    for (folder, test) in asked.test.iter().zip(&tests) {
        let exact = whole(test);
        let scaled = model.predict(test.size, None);
        let weights = test
            .pieces
            .iter()
            .map(|(&key, piece)| {
                let reuses: f64 = piece.bins.iter().map(|b| b.count).sum();
                (key, reuses + piece.cold)
            })
            .collect();
        let weighted = model.predict(test.size, Some(&weights));
        for shape in asked.levels {
            rows.push(vec![
                Value::from(folder.display().to_string()),
                value(test.size),
                Value::from(shape.size),
                Value::from(shape.ways),
                value(hit_rate(&scaled.bins, scaled.cold, shape)),
                value(hit_rate(&weighted.bins, weighted.cold, shape)),
                value(hit_rate(&largest.0, largest.1, shape)),
                value(hit_rate(&exact.0, exact.1, shape)),
                value(accuracy(&scaled.bins, &exact.0)),
                value(accuracy(&weighted.bins, &exact.0)),
            ]);
        }
    }
    document.tables.push(DocumentTable {
        name: "by_code",
        title: "Hit rates by code (equation 1): P(D|BB) and P(BB) scaled to the size; with P(BB) of the test; of the largest training run; from the test's own distances".into(),
        columns: columns![
            of: Text, size: Number, bytes: Bytes, ways: Id, hit_rate_scaled: Share,
            hit_rate_weighted: Share, hit_rate_training: Share, hit_rate_model: Share,
            accuracy_scaled: Share, accuracy_weighted: Share,
        ].to_vec(),
        rows,
        text_rows: usize::MAX,
    });
    Ok(())
}

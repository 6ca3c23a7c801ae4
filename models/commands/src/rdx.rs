//! `mgz-analyze reuse --rdx`: simulates RDX with a few watchpoints on a trace.

use crate::reuse::{Engine, ReuseArguments, histogram_rows};
use clap::ValueEnum;
use mgz_analyzer::columns;
use mgz_analyzer::commands::ensure_accesses;
use mgz_analyzer::commands::stream::Accesses;
use mgz_analyzer::commands::{open_trace, require_full, visit, warn_of_gaps};
use mgz_analyzer::data::code_map::CodeMap;
use mgz_analyzer::data::memory_units::PAGE_BYTES;
use mgz_analyzer::input::{ColumnSet, Trace, manifest_of};
use mgz_analyzer::output::document::{ColumnUnit, Document, DocumentColumn, DocumentTable, value};
use mgz_annotations_schema::TraceMode;
use mgz_models::histogram::{Bin, Fine, Scale, TRACE_BITS, shares, similarity, similarity_sliding};
use mgz_models::reuse::ReuseSink;
use mgz_models::sampling::rdx::{Attribution, Estimate, Observation, Watcher, estimate, pairs};
use mgz_models::sampling::time_to_stack::{TimeBarSpread, convert};
use mgz_models::statistics::{ROUNDED_NORMAL_QUANTILE_OF_95_PCT, jackknife_variance};
use serde_json::Value;

/// Weighting of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Weights {
    /// Product-limit estimate by context: pairs that were given up count as "longer than that".
    Survival,
    /// The paper's proportional attribution.
    Proportional,
    /// Each observed reuse counts once.
    None,
}

impl From<Weights> for Attribution {
    fn from(weights: Weights) -> Attribution {
        match weights {
            Weights::Survival => Attribution::Survival,
            Weights::Proportional => Attribution::Proportional,
            Weights::None => Attribution::None,
        }
    }
}

/// Groups of the jackknife that gives the intervals.
const GROUPS: u64 = 20;

/// Exact histograms for --compare.
pub(crate) struct Truth {
    times: Fine,
    distances: Fine,
    blocks: u64,
    streams: u64,
}

impl Truth {
    pub(crate) fn new() -> Truth {
        Truth {
            times: Fine::new(TRACE_BITS),
            distances: Fine::new(TRACE_BITS),
            blocks: 0,
            streams: 0,
        }
    }

    /// Begins another thread or sample.
    pub(crate) fn begin(&mut self) {
        self.streams += 1;
    }

    /// Share of the accesses that are the last to their block.
    fn never(&self) -> f64 {
        self.blocks as f64 / (self.times.count() + self.blocks).max(1) as f64
    }
}

impl ReuseSink for Truth {
    #[inline(always)]
    fn first(&mut self, _row: u64, _block: u64, _tag: u32) {
        self.blocks += 1;
    }
    #[inline(always)]
    fn reuse(&mut self, _row: u64, _block: u64, _tag: u32, distance: u64, interval: u64) {
        self.times.add(interval);
        self.distances.add(distance);
    }
    #[inline(always)]
    fn done(&mut self, _row: u64, _tag: u32) {}
}

/// Runs the command. The flag is true if a part of the trace could not be read.
pub fn run_rdx(arguments: &ReuseArguments) -> anyhow::Result<(Document, bool)> {
    let manifest = manifest_of(&arguments.trace)?;
    if manifest.mode == TraceMode::Watch {
        return crate::watched::run_watched(arguments, &manifest);
    }
    anyhow::ensure!(
        arguments.accesses_from.is_none(),
        "{}: --accesses-from is for traces of --mode watch",
        arguments.trace.display()
    );
    let mut document = Document::new("reuse");
    let trace = open_trace(&arguments.trace, &arguments.common, &mut document)?;
    require_full(&trace, "RDX on a trace", "")?;
    warn_of_gaps(&trace, &mut document);
    let mut exact = (arguments.compare).then(|| {
        (
            Engine::new(arguments.block.trailing_zeros(), None),
            Truth::new(),
        )
    });
    let (watcher, damaged) = watch(&trace, arguments, &mut exact, &mut document);
    let (observations, accesses) = watcher.finish();
    ensure_accesses(accesses, &trace)?;
    anyhow::ensure!(
        observations.iter().any(|o| o.reuse.is_some()),
        "{}: no sampled access was reused ({} samples of {accesses} accesses); choose a smaller --period than {}, or measure without --rdx",
        arguments.trace.display(),
        observations.len(),
        arguments.period
    );
    let estimated = estimate(&observations, arguments.attribution.into());
    let (times, distances) = histograms(&observations, &estimated, accesses);
    document.put(
        "method",
        ColumnUnit::Text,
        format!(
            "RDX, {} watchpoints, period {}, seed {}",
            arguments.watchpoints, arguments.period, arguments.seed
        ),
    );
    document.put("block", ColumnUnit::Bytes, arguments.block);
    document.put("A", ColumnUnit::Count, accesses);
    document.put("samples", ColumnUnit::Count, observations.len());
    document.put(
        "samples_reused",
        ColumnUnit::Count,
        observations.iter().filter(|o| o.reuse.is_some()).count(),
    );
    document.put(
        "never_reused_share_hat",
        ColumnUnit::Share,
        value(estimated.never / observations.len() as f64),
    );
    if let Some((_, truth)) = &exact {
        compare(&mut document, arguments.block, (&times, &distances), truth);
    }
    let spread = jackknife(&observations, arguments.attribution.into(), accesses);
    document.tables.push(with_interval(
        "distances",
        "Reuse distance D, in blocks (estimate by Shen's model)",
        &distances,
        &spread.1,
        observations.len(),
    ));
    document.tables.push(with_interval(
        "intervals",
        "Reuse interval, in accesses (estimate)",
        &times,
        &spread.0,
        observations.len(),
    ));
    document.tables.push(pair_table(
        &observations,
        &estimated,
        &|piece| CodeName::of_piece(&trace.code, piece),
        false,
    ));
    Ok((document, damaged))
}

/// Simulates watchpoints on the rows. `exact` also measures all of them. The flag is true if a part
/// of the trace could not be read.
fn watch(
    trace: &Trace,
    arguments: &ReuseArguments,
    exact: &mut Option<(Engine, Truth)>,
    document: &mut Document,
) -> (Watcher, bool) {
    let shift = arguments.block.trailing_zeros();
    let mut watcher = Watcher::new(
        arguments.period,
        arguments.watchpoints as usize,
        arguments.seed,
    );
    let mut buffer = Accesses::default();
    let damaged = visit(trace, ColumnSet::default(), document, &mut |segment| {
        if segment.starts {
            watcher.cut();
            if let Some((engine, truth)) = exact {
                engine.begin();
                truth.begin();
            }
        }
        let view = segment.accesses(arguments.stores, &mut buffer);
        for ((&address, &size), &group) in view.address.iter().zip(view.size).zip(view.group) {
            let last = address.saturating_add(u64::from(size.max(1)) - 1);
            watcher.access(address >> shift, last >> shift, group.piece());
        }
        if let Some((engine, truth)) = exact {
            engine.run(view.tagged(), truth);
        }
    });
    (watcher, damaged)
}

/// Similarities to the truth: on the paper's scale (4 KiB of blocks in the first bin, 20 bins) and
/// on the log scale.
pub(crate) fn compare(document: &mut Document, block: u64, found: (&[Bin], &[Bin]), truth: &Truth) {
    let paper = Scale::Octaves {
        first: (PAGE_BYTES / block).max(1),
        bins: 20,
    };
    let both = |estimate: &[Bin], truth: &Fine, scale: &Scale| {
        let (a, b) = (
            shares(estimate.iter().copied(), scale),
            shares(truth.bins(), scale),
        );
        (similarity(&a, &b), similarity_sliding(&a, &b))
    };
    // Error of the model alone: it converts the exact times.
    let exact: Vec<Bin> = truth.times.bins().collect();
    let first = truth.blocks as f64;
    let alone = |spread| {
        let blocks = (first / truth.streams.max(1) as f64).max(1.0);
        convert(&exact, first, blocks, spread)
    };
    document.put(
        "never_reused_share",
        ColumnUnit::Share,
        value(truth.never()),
    );
    let (binomial, mean) = (alone(TimeBarSpread::Binomial), alone(TimeBarSpread::Mean));
    for (scale, names) in [
        (
            &paper,
            [
                "S_time",
                "S_hat_time",
                "S_stack",
                "S_hat_stack",
                "S_stack_model",
                "S_stack_model_mean",
            ],
        ),
        (
            &Scale::Log,
            [
                "S_time_log",
                "S_hat_time_log",
                "S_stack_log",
                "S_hat_stack_log",
                "S_stack_model_log",
                "S_stack_model_mean_log",
            ],
        ),
    ] {
        let (time, stack) = (
            both(found.0, &truth.times, scale),
            both(found.1, &truth.distances, scale),
        );
        let model = [
            both(&binomial, &truth.distances, scale).0,
            both(&mean, &truth.distances, scale).0,
        ];
        for (name, s) in names
            .into_iter()
            .zip([time.0, time.1, stack.0, stack.1, model[0], model[1]])
        {
            document.put(name, ColumnUnit::Share, value(s));
        }
    }
}

/// Bars of times and of distances. Counts are estimated accesses.
pub(crate) fn histograms(
    observations: &[Observation],
    estimated: &Estimate,
    accesses: u64,
) -> (Vec<Bin>, Vec<Bin>) {
    let mut seen: Vec<(u64, f64)> = observations
        .iter()
        .zip(&estimated.weights)
        .filter(|(_, w)| **w > 0.0)
        .map(|(o, &w)| (o.age, w))
        .collect();
    seen.sort_unstable_by_key(|s| s.0);
    let total: f64 = seen.iter().map(|s| s.1).sum::<f64>() + estimated.never;
    let each = accesses as f64 / total.max(1e-300);
    let mut bars: Vec<Bin> = Vec::new();
    for (age, weight) in seen {
        let (at, count) = (age as f64, weight * each);
        match bars.last_mut() {
            Some(bar) if bar.from == at => {
                bar.count += count;
                bar.sum += count * at;
            }
            _ => bars.push(Bin {
                from: at,
                to: at + 1.0,
                count,
                sum: count * at,
            }),
        }
    }
    let cold = estimated.never * each;
    let distances = convert(
        &bars,
        cold,
        blocks(cold, observations, &bars),
        TimeBarSpread::Binomial,
    );
    (bars, distances)
}

/// Distinct blocks of a stream, Shen's N. Each block has one last access, so the number of accesses
/// without reuse equals the number of blocks. If the samples give no estimate of it (all were
/// reused, or the attribution gives none), distances are not limited.
fn blocks(cold: f64, observations: &[Observation], bars: &[Bin]) -> f64 {
    let mut streams: Vec<u32> = observations.iter().map(|o| o.stream).collect();
    streams.sort_unstable();
    streams.dedup();
    // At least the end of the longest interval. The estimate depends on the few samples that were
    // watched longest, and a small one would cut off true distances.
    let longest = convert(bars, cold, f64::INFINITY, TimeBarSpread::Mean);
    let reached = longest.last().map_or(1.0, |b| b.to);
    (cold / streams.len().max(1) as f64).max(reached)
}

/// Standard errors of log shares, by leaving out a twentieth of the samples at a time.
pub(crate) fn jackknife(
    observations: &[Observation],
    attribution: Attribution,
    accesses: u64,
) -> (Vec<f64>, Vec<f64>) {
    let mut runs = (Vec::new(), Vec::new());
    for group in 0..GROUPS {
        let kept: Vec<Observation> = observations
            .iter()
            .filter(|o| o.sample % GROUPS != group)
            .copied()
            .collect();
        let (times, distances) = histograms(&kept, &estimate(&kept, attribution), accesses);
        runs.0.push(shares(times.into_iter(), &Scale::Log));
        runs.1.push(shares(distances.into_iter(), &Scale::Log));
    }
    let error = |runs: &[Vec<f64>]| {
        let longest = runs.iter().map(Vec::len).max().unwrap_or(0);
        let at = |i: usize| runs.iter().map(move |r| r.get(i).copied().unwrap_or(0.0));
        (0..longest)
            .map(|i| jackknife_variance(&at(i).collect::<Vec<f64>>()).sqrt())
            .collect::<Vec<f64>>()
    };
    (error(&runs.0), error(&runs.1))
}

/// A log histogram with 95% intervals of its shares. A bin may have accesses even if none of
/// `samples` samples saw any. So each upper end is at least the share that this many samples would
/// miss with a probability of 2.5%.
pub(crate) fn with_interval(
    name: &'static str,
    title: &str,
    bars: &[Bin],
    errors: &[f64],
    samples: usize,
) -> DocumentTable {
    let unseen = 1.0 - 0.025f64.powf(1.0 / samples.max(1) as f64);
    let bins = mgz_models::histogram::cut(bars.iter().copied(), &Scale::Log);
    let mut table = histogram_rows(name, title, &bins);
    table.columns[2] = DocumentColumn("count_hat", ColumnUnit::Number);
    table.columns[3] = DocumentColumn("share_hat", ColumnUnit::Share);
    table
        .columns
        .extend(columns![share_lo: Share, share_hi: Share]);
    for (i, row) in table.rows.iter_mut().enumerate() {
        let share = row[3].as_f64().unwrap_or(0.0);
        let margin = ROUNDED_NORMAL_QUANTILE_OF_95_PCT * errors.get(i).copied().unwrap_or(0.0);
        row.extend([
            value((share - margin).max(0.0)),
            value((share + margin).max(unseen).min(1.0)),
        ]);
    }
    table
}

/// Function and line as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct CodeName {
    function: String,
    line: String,
}

impl CodeName {
    pub(crate) fn new(function: &str, file: &str, line: u64) -> CodeName {
        let file = file.rsplit('/').next().unwrap_or("");
        CodeName {
            function: function.into(),
            line: if line > 0 {
                format!("{file}:{line}")
            } else {
                String::new()
            },
        }
    }

    /// The line, or the function if there is none.
    pub(crate) fn place(&self) -> &str {
        if self.line.is_empty() {
            &self.function
        } else {
            &self.line
        }
    }

    fn of_piece(code: &CodeMap, piece: u32) -> CodeName {
        let piece = &code.pieces[piece as usize];
        let line = &code.lines[piece.line as usize];
        CodeName::new(
            &code.functions[piece.function as usize].function,
            &line.file,
            u64::from(line.line),
        )
    }
}

pub(crate) fn pair_table(
    observations: &[Observation],
    estimated: &Estimate,
    name: &dyn Fn(u32) -> CodeName,
    nanoseconds: bool,
) -> DocumentTable {
    let all = pairs(observations, estimated);
    let (total, cost): (f64, f64) = all.iter().fold((0.0, 0.0), |s, p| (s.0 + p.2, s.1 + p.3));
    let place = |piece: u32| {
        let CodeName { function, line } = name(piece);
        (Value::from(function), Value::from(line))
    };
    let rows = all.iter().map(|&(used, reused, weight, product)| {
        let (f, l) = place(used);
        let (g, m) = place(reused);
        vec![
            f,
            l,
            g,
            m,
            value(weight / total),
            value(product / weight),
            value(product / cost),
        ]
    });
    DocumentTable {
        name: "pairs",
        title: if nanoseconds {
            "Use–reuse pairs by frequency × time distance (ns of CPU time)"
        } else {
            "Use–reuse pairs by frequency × time distance"
        }
        .into(),
        columns: columns![
            use_function: Text, use_line: Text, reuse_function: Text, reuse_line: Text,
            share_hat: Share, interval_mean_hat: Number, cost_share_hat: Share,
        ]
        .to_vec(),
        rows: rows.collect(),
        text_rows: usize::MAX,
    }
}

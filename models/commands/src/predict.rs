//! `mgz-analyze predict`: locality of inputs that were not run (Zhong, Shen, Ding 2009).

mod online;

use crate::cache::spec::level;
use crate::predict_code::{ByCode, by_code};
use crate::reuse::histogram_rows;
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use mgz_analyzer::cli::trace;
use mgz_analyzer::columns;
use mgz_analyzer::commands::stream::Accesses;
use mgz_analyzer::commands::{Common, block_size, open_trace, require_full, size, visit};
use mgz_analyzer::data::group::Group;
use mgz_analyzer::data::memory_units::PAGE_BYTES;
use mgz_analyzer::input::{ColumnSet, Trace};
use mgz_analyzer::output::document::{ColumnUnit, Document, DocumentColumn, DocumentTable, value};
use mgz_models::cache::Shape;
use mgz_models::histogram::{Bin, Fine, REFERENCE_PARTITIONS, Scale, TRACE_BITS};
use mgz_models::miss_ratio::MissRatio;
use mgz_models::predict::multi::{Basis, MultiModel};
use mgz_models::predict::sampling::{Choice, Samplers};
use mgz_models::predict::single::SingleModel;
use mgz_models::predict::{Pattern, Profile, accuracy, combined, multi, single};
use mgz_models::reuse::{ReuseEngine, ReuseSink};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};

const EXAMPLES_HELP: &str = "\
Examples:
  mgz-analyze predict --train small --train medium --save app.model
      train on two inputs
  mgz-analyze predict --train a --train b --train c --test large
      train, predict, compare
  mgz-analyze predict --model app.model --size 1000000 --cache 1M
      a histogram and miss ratio for a size
  mgz-analyze predict --model app.model --test large --format json
  mgz-analyze predict --model app.model --beginning trace
      a whole run, from the part recorded so far

The input size is the number of distinct blocks that a run touches, or, with --size-from sampling, the size that \
distance-based sampling finds early in the run.";

/// Arguments of `predict`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES_HELP)]
pub struct PredictArguments {
    /// A full trace to compare with, as with --test.
    #[arg(value_parser = trace())]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
    /// A full trace of the program to train on; at least two, of different inputs.
    #[arg(long, value_name = "TRACE", conflicts_with = "model")]
    pub train: Vec<PathBuf>,
    /// A model that --save has written.
    #[arg(long, value_name = "FILE", required_unless_present = "train")]
    pub model: Option<PathBuf>,
    /// Save the model.
    #[arg(long, value_name = "FILE", requires = "train")]
    pub save: Option<PathBuf>,
    /// Input sizes to predict.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub size: Vec<f64>,
    /// A full trace to compare with; its input size is measured.
    #[arg(long, value_name = "TRACE")]
    pub test: Vec<PathBuf>,
    /// A full trace of the beginning of a run, finished or still being recorded: the whole run is
    /// predicted from its sampled input size.
    #[arg(long, value_name = "TRACE")]
    pub beginning: Vec<PathBuf>,
    /// Source of the input size.
    #[arg(long, value_enum, default_value_t = SizeFrom::Data)]
    pub size_from: SizeFrom,
    /// Bytes of a block: a power of two. The paper measures data elements.
    #[arg(long, default_value = "8", value_parser = block_size)]
    pub block: u64,
    /// Sizes of caches whose miss ratio is predicted; without it, all powers of two.
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub cache: Vec<u64>,
    /// A cache whose hit rate is predicted by code, from the profiles of its pieces: SIZE:WAYS or
    /// SIZE:WAYS:LINE; with --train and --test.
    #[arg(long, value_name = "SIZE:WAYS[:LINE]", value_parser = level, requires_all = ["train", "test"])]
    pub level: Vec<Shape>,
    /// Count recorded stores as accesses too.
    #[arg(long)]
    pub stores: bool,
    /// For mgz-record: rows come on standard input while the program runs, whose trace is TRACE.
    #[arg(long, hide = true, requires_all = ["model", "trace"])]
    pub online: bool,
}

/// Sources of the input size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizeFrom {
    /// Number of distinct blocks.
    Data,
    /// Distance-based sampling; thresholds are chosen in training.
    Sampling,
}

const BASES: [Basis; 3] = [Basis::Log, Basis::LogLinear, Basis::Reference];
const FORMAT: &str = "mgz-locality-model";
const VERSION: u32 = 1;

/// A model file.
#[derive(Serialize, Deserialize)]
struct ModelFile {
    format: String,
    version: u32,
    /// Identity of the program: names and identities of the instrumented files.
    program: Vec<(String, String)>,
    block: u64,
    stores: bool,
    size_from: SizeFrom,
    sampling: Option<Choice>,
    sizes: Vec<f64>,
    /// Distinct blocks of the training runs; empty in older models.
    #[serde(default)]
    blocks: Vec<f64>,
    /// Least and greatest training run: first touches per reuse, and their growth.
    cold: Vec<(f64, f64)>,
    single: SingleModel,
    multi: Vec<MultiModel>,
    /// Weights of the methods above in the combined prediction, in their order; empty if there is
    /// no combined prediction.
    #[serde(default)]
    weights: Vec<f64>,
}

/// Measurements of a trace.
struct Measured {
    program: Vec<(String, String)>,
    bins: Vec<Bin>,
    reuses: f64,
    blocks: u64,
    accesses: u64,
    samplers: Samplers,
}

struct Sink {
    fine: Fine,
    firsts: u64,
    samplers: Samplers,
    base: u64,
    stream: u64,
}

impl ReuseSink for Sink {
    #[inline(always)]
    fn first(&mut self, _row: u64, _block: u64, _tag: u32) {
        self.firsts += 1;
    }
    #[inline(always)]
    fn reuse(&mut self, row: u64, block: u64, _tag: u32, distance: u64, _interval: u64) {
        self.fine.add(distance);
        // The upper bits have the stream's number, which separates blocks of different threads.
        self.samplers
            .reuse(self.base + row, block ^ self.stream << 56, distance);
    }
    #[inline(always)]
    fn done(&mut self, _row: u64, _tag: u32) {}
}

/// Measures accesses one after the other.
struct Meter {
    engine: ReuseEngine,
    sink: Sink,
    accesses: u64,
}

impl Meter {
    fn new(block: u64) -> Meter {
        Meter {
            engine: ReuseEngine::new(block.trailing_zeros()),
            sink: Sink {
                fine: Fine::new(TRACE_BITS),
                firsts: 0,
                samplers: Samplers::new((PAGE_BYTES / block).max(1)),
                base: 0,
                stream: 0,
            },
            accesses: 0,
        }
    }

    /// Begins another thread or sample.
    fn begin(&mut self) {
        self.engine.begin();
        self.sink.base = self.accesses;
        self.sink.stream += 1;
    }

    fn add(&mut self, address: &[u64], size: &[u32], tag: &[u32]) {
        self.accesses += address.len() as u64;
        self.engine.run(address, size, tag, &mut self.sink);
    }
}

/// Identity of the program: names and identities of the instrumented files.
fn program_of(trace: &Trace) -> Vec<(String, String)> {
    let name = |path: &str| path.rsplit('/').next().unwrap_or("").to_string();
    let modules = trace.manifest.modules.iter();
    modules
        .map(|m| (name(&m.path), m.sidecar_id.clone()))
        .collect()
}

fn measure(
    folder: &Path,
    block: u64,
    stores: bool,
    common: &Common,
    document: &mut Document,
) -> anyhow::Result<(Measured, bool)> {
    let trace = open_trace(folder, common, document)?;
    require_full(&trace, "prediction", "")?;
    let mut meter = Meter::new(block);
    let mut buffer = Accesses::default();
    let damaged = visit(&trace, ColumnSet::default(), document, &mut |segment| {
        if segment.starts {
            meter.begin();
        }
        let view = segment.accesses(stores, &mut buffer);
        meter.add(view.address, view.size, Group::raw_slice(view.group));
    });
    let Meter { sink, accesses, .. } = meter;
    anyhow::ensure!(
        sink.fine.count() >= 1000,
        "{}: the trace is too short to learn from: it has {} reuses of blocks of {block} bytes, and it takes 1,000",
        folder.display(),
        sink.fine.count()
    );
    let measured = Measured {
        program: program_of(&trace),
        reuses: sink.fine.count() as f64,
        bins: sink.fine.bins().collect(),
        blocks: sink.firsts,
        accesses,
        samplers: sink.samplers,
    };
    Ok((measured, damaged))
}

/// Runs the command. The flag is true if a part of the trace could not be read.
pub fn run_predict(arguments: &PredictArguments) -> anyhow::Result<(Document, bool)> {
    let mut document = Document::new("predict");
    let (model, mut damaged) = match &arguments.model {
        Some(file) => (read_model(file)?, false),
        None => train_and_save(arguments, &mut document)?,
    };
    if let (true, Some(trace)) = (arguments.online, &arguments.trace) {
        return online::predict_online(arguments, &model, trace);
    }
    document.put("block", ColumnUnit::Bytes, model.block);
    document.put("training_runs", ColumnUnit::Count, model.sizes.len());
    document.put(
        "size_from",
        ColumnUnit::Text,
        if model.size_from == SizeFrom::Data {
            "data"
        } else {
            "sampling"
        },
    );
    document.put("dimensions", ColumnUnit::Count, model.single.dimensions);
    patterns(&model, &mut document);
    let mut results = Results::default();
    for &size in &arguments.size {
        anyhow::ensure!(
            size > 0.0 && size.is_finite(),
            "--size {size}: must be above 0"
        );
        results.predict(&model, size, "size", arguments);
    }
    for folder in arguments.test.iter().chain(&arguments.trace) {
        let of = SizedRun::read(&model, folder, true, &arguments.common, &mut document)?;
        let (size, known) = of.size.with_context(|| {
            format!(
                "{}: the sampled input size does not show in this run; train with --size-from data",
                folder.display()
            )
        })?;
        damaged |= of.damaged;
        let name = folder.display().to_string();
        results.predict(&model, size, &name, arguments);
        results.compare(&model, size, known, &name, &of.measured);
    }
    damaged |= predict_beginnings(arguments, &model, &mut results, &mut document)?;
    results.finish(&mut document);
    if !arguments.level.is_empty() {
        let asked = ByCode {
            train: &arguments.train,
            test: &arguments.test,
            levels: &arguments.level,
            stores: model.stores,
            block: model.block,
            common: &arguments.common,
        };
        by_code(&asked, &mut document)?;
    }
    Ok((document, damaged))
}

/// Trains a model, and writes it to a file if requested.
fn train_and_save(
    arguments: &PredictArguments,
    document: &mut Document,
) -> anyhow::Result<(ModelFile, bool)> {
    let (model, damaged) = train(arguments, document)?;
    if let Some(file) = &arguments.save {
        let mut bytes = serde_json::to_vec(&model)?;
        bytes.push(b'\n');
        std::fs::write(file, bytes).with_context(|| {
            format!(
                "{}: cannot write the model; choose another place with --save",
                file.display()
            )
        })?;
    }
    Ok((model, damaged))
}

/// A run of the model's program.
struct SizedRun {
    measured: Measured,
    /// Its input size, and the number of accesses that revealed it.
    size: anyhow::Result<(f64, u64)>,
    damaged: bool,
}

impl SizedRun {
    fn read(
        model: &ModelFile,
        folder: &Path,
        whole: bool,
        common: &Common,
        document: &mut Document,
    ) -> anyhow::Result<SizedRun> {
        let (measured, damaged) = measure(folder, model.block, model.stores, common, document)?;
        same_program(&model.program, &measured.program, folder)?;
        Ok(SizedRun {
            size: input_size(model, &measured.samplers, measured.blocks, whole),
            measured,
            damaged,
        })
    }
}

/// Predicts runs from their beginnings. The flag is true if a part of a trace could not be read.
fn predict_beginnings(
    arguments: &PredictArguments,
    model: &ModelFile,
    results: &mut Results,
    document: &mut Document,
) -> anyhow::Result<bool> {
    let mut damaged = false;
    let mut begun = Vec::new();
    for folder in &arguments.beginning {
        ensure_sampled(model, folder)?;
        let of = SizedRun::read(model, folder, false, &arguments.common, document)?;
        damaged |= of.damaged;
        let (size, known) = of.size.with_context(|| {
            format!(
                "{}: the sampled input size does not show yet; record more of the run",
                folder.display()
            )
        })?;
        let name = folder.display().to_string();
        results.predict(model, size, &name, arguments);
        begun.push(vec![
            Value::from(name),
            value(size),
            Value::from(known),
            Value::from(of.measured.accesses),
        ]);
    }
    if !begun.is_empty() {
        document.tables.push(begun_table(begun));
    }
    Ok(damaged)
}

fn ensure_sampled(model: &ModelFile, folder: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(
        model.sampling.is_some(),
        "{}: the beginning of a run does not show how many blocks it will touch, which is the model's input size; train with --size-from sampling",
        folder.display()
    );
    Ok(())
}

/// Rows: name, size, accesses after which it was known, and accesses so far.
fn begun_table(rows: Vec<Vec<Value>>) -> DocumentTable {
    DocumentTable {
        name: "beginnings",
        title: "Input sizes of runs of which the beginning is known (shown after: accesses)".into(),
        columns: columns![of: Text, size: Number, shown_after: Count, A: Count].to_vec(),
        rows,
        text_rows: usize::MAX,
    }
}

fn same_program(
    model: &[(String, String)],
    trace: &[(String, String)],
    folder: &Path,
) -> anyhow::Result<()> {
    if model != trace {
        let names = |p: &[(String, String)]| {
            p.iter()
                .map(|m| m.0.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        bail!(
            "{}: a trace of another program or build ({}) than the model's ({}); train on traces of one instrumented program",
            folder.display(),
            names(trace),
            names(model)
        );
    }
    Ok(())
}

fn train(
    arguments: &PredictArguments,
    document: &mut Document,
) -> anyhow::Result<(ModelFile, bool)> {
    anyhow::ensure!(
        arguments.train.len() >= 2,
        "training takes at least two traces of different inputs: give --train twice or more"
    );
    let mut runs = Vec::new();
    let mut damaged = false;
    for folder in &arguments.train {
        let (measured, bad) = measure(
            folder,
            arguments.block,
            arguments.stores,
            &arguments.common,
            document,
        )?;
        damaged |= bad;
        if let Some(first) = runs.first() {
            let first: &Measured = first;
            same_program(&first.program, &measured.program, folder)?;
        }
        runs.push(measured);
    }
    let (sizes, sampling) = match arguments.size_from {
        SizeFrom::Data => (
            runs.iter().map(|r| r.blocks as f64).collect::<Vec<f64>>(),
            None,
        ),
        SizeFrom::Sampling => choose_sampling(&runs)?,
    };
    let (least, greatest) = sizes
        .iter()
        .fold((f64::INFINITY, 0.0f64), |s, &v| (s.0.min(v), s.1.max(v)));
    let constant = runs
        .iter()
        .skip(1)
        .all(|r| accuracy(&r.bins, &runs[0].bins) > 0.98);
    if greatest < 1.01 * least {
        let what = if constant {
            "and the same distances; for other sizes nothing else can be predicted than that they stay"
        } else {
            "; growth with the size cannot be learned from them"
        };
        document.warnings.push(format!("the training runs have nearly the same input size{}{what}; train on inputs of different sizes", if constant { " " } else { "" }));
    }
    let profiles = profiles_of_sizes(&runs, &sizes);
    let multi = BASES
        .into_iter()
        .filter_map(|basis| multi::train(&profiles, basis, REFERENCE_PARTITIONS))
        .collect();
    let single =
        |runs: &[Profile], size: f64| single::train(runs, REFERENCE_PARTITIONS).predict(size);
    let mixed = BASES.map(|basis| {
        move |runs: &[Profile], size: f64| {
            multi::train(runs, basis, REFERENCE_PARTITIONS)
                .map_or_else(Vec::new, |m| m.predict(size))
        }
    });
    let weights = combined::weights(&profiles, &[&single, &mixed[0], &mixed[1], &mixed[2]]);
    let model = ModelFile {
        format: FORMAT.into(),
        version: VERSION,
        program: runs[0].program.clone(),
        block: arguments.block,
        stores: arguments.stores,
        size_from: arguments.size_from,
        sampling,
        cold: runs
            .iter()
            .zip(&sizes)
            .map(|(r, &s)| (s, r.blocks as f64 / r.reuses))
            .collect(),
        sizes,
        blocks: runs.iter().map(|r| r.blocks as f64).collect(),
        single: single::train(&profiles, REFERENCE_PARTITIONS),
        multi,
        // With two runs, none can be left out to compute weights. Equal weights are used, without
        // bins of octaves, which cannot distinguish patterns.
        weights: weights.unwrap_or_else(|| vec![1.0 / 3.0, 0.0, 1.0 / 3.0, 1.0 / 3.0]),
    };
    Ok((model, damaged))
}

/// The training runs with their input sizes.
fn profiles_of_sizes(runs: &[Measured], sizes: &[f64]) -> Vec<Profile> {
    runs.iter()
        .zip(sizes)
        .map(|(r, &size)| Profile {
            size,
            bins: r.bins.clone(),
            cold: r.blocks as f64,
        })
        .collect()
}

/// Chooses the candidate whose values explain the training runs best.
fn choose_sampling(runs: &[Measured]) -> anyhow::Result<(Vec<f64>, Option<Choice>)> {
    let mut best: Option<(f64, Vec<f64>, Choice)> = None;
    for (choice, ..) in runs[0].samplers.candidates() {
        let values: Option<Vec<(u64, u64)>> =
            runs.iter().map(|r| r.samplers.value(&choice)).collect();
        let Some(values) = values else { continue };
        let sizes: Vec<f64> = values.iter().map(|v| v.0 as f64).collect();
        let profiles = profiles_of_sizes(runs, &sizes);
        // A candidate for the input size must grow with the data.
        let grows = |(a, b): (usize, usize)| {
            runs[a].blocks as f64 <= 1.05 * runs[b].blocks as f64 || sizes[a] > 1.02 * sizes[b]
        };
        if !(0..runs.len())
            .flat_map(|a| (0..runs.len()).map(move |b| (a, b)))
            .all(grows)
        {
            continue;
        }
        // Coarse partitions suffice for this choice. A late discovery reduces coverage.
        let late = runs
            .iter()
            .zip(&values)
            .map(|(r, v)| v.1 as f64 / r.accesses.max(1) as f64)
            .fold(0.0, f64::max);
        // With three or more runs, each is predicted from the others. With two only the fit is
        // used.
        let error = |train: &[Profile], test: &Profile| {
            1.0 - accuracy(&single::train(train, 100).predict(test.size), &test.bins)
        };
        let others = |out: usize| {
            profiles
                .iter()
                .enumerate()
                .filter(|(i, _)| *i != out || profiles.len() < 3)
                .map(|(_, p)| p.clone())
                .collect::<Vec<_>>()
        };
        let fit = profiles
            .iter()
            .enumerate()
            .map(|(i, p)| error(&others(i), p))
            .sum::<f64>()
            / profiles.len() as f64;
        let score = fit + 0.1 * late;
        // Among equally good candidates, greater thresholds win: they are exceeded by fewer reuses
        // unrelated to the size.
        let better = |b: &(f64, Vec<f64>, Choice)| {
            score < b.0 - 1e-3 || score < b.0 + 1e-3 && choice.threshold > b.2.threshold
        };
        if best.as_ref().is_none_or(better) {
            best = Some((score, sizes, choice));
        }
    }
    match best {
        Some((_, sizes, choice)) => Ok((sizes, Some(choice))),
        None => bail!(
            "distance-based sampling finds no common long reuse in the training runs; train with --size-from data"
        ),
    }
}

fn read_model(file: &Path) -> anyhow::Result<ModelFile> {
    let remedy = "train one with mgz-analyze predict --train … --save FILE";
    let bytes = std::fs::read(file)
        .with_context(|| format!("{}: cannot read the model; {remedy}", file.display()))?;
    let value: Value = serde_json::from_slice(&bytes)
        .with_context(|| format!("{}: not a model; {remedy}", file.display()))?;
    anyhow::ensure!(
        value.get("format").and_then(Value::as_str) == Some(FORMAT),
        "{}: not a model; {remedy}",
        file.display()
    );
    anyhow::ensure!(
        value.get("version").and_then(Value::as_u64) == Some(u64::from(VERSION)),
        "{}: a model of another version than {VERSION}; train it again",
        file.display()
    );
    let model: ModelFile = serde_json::from_value(value)
        .with_context(|| format!("{}: a damaged model; {remedy}", file.display()))?;
    let whole = model.block.is_power_of_two()
        && !model.single.fits.is_empty()
        && model
            .sizes
            .iter()
            .chain(&model.weights)
            .all(|s| s.is_finite() && *s >= 0.0)
        && model.sizes.iter().all(|s| *s > 0.0);
    anyhow::ensure!(
        whole
            && model
                .multi
                .iter()
                .all(|m| m.mix.iter().all(|x| x.1.len() == m.patterns.len())),
        "{}: a damaged model; {remedy}",
        file.display()
    );
    Ok(model)
}

/// Maximum ratio of a sampled size and the size expected from the training runs. Source: Chosen.
const MAX_RATIO_TO_EXPECTED_SIZE: f64 = 2.0;

/// Least and greatest expected sampled size of a run with this number of distinct blocks; `None` if
/// the sizes of the training runs do not follow a power law of their blocks.
///
/// A power above 1 holds for some inputs at most, since no distance is greater than the number of
/// blocks. So the size lies between that of the power and that of growth in proportion.
fn expected_size(runs: &[(f64, f64)], blocks: f64) -> Option<(f64, f64)> {
    let mut runs = runs.to_vec();
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (least, greatest) = (*runs.first()?, *runs.last()?);
    if greatest.0 < 1.05 * least.0 || greatest.1 < least.1 {
        return None;
    }
    let power = (greatest.1 / least.1).ln() / (greatest.0 / least.0).ln();
    let at = |blocks: f64, power: f64| greatest.1 * (blocks / greatest.0).powf(power);
    let follows =
        |&(blocks, size): &(f64, f64)| (size / at(blocks, power)).ln().abs() < 1.5f64.ln();
    let ends = (at(blocks, power), at(blocks, power.min(1.0)));
    let ordered = (ends.0.min(ends.1), ends.0.max(ends.1));
    runs.iter().all(follows).then_some(ordered)
}

/// A run's input size, and the number of accesses that revealed it. If not `whole`, only the
/// beginning of the run is known.
///
/// A large run has reuses beyond the thresholds of training that are unrelated to its size, such as
/// rows of a matrix. So the next greater threshold is used as long as a size contradicts the number
/// of distinct blocks.
fn input_size(
    model: &ModelFile,
    samplers: &Samplers,
    blocks: u64,
    whole: bool,
) -> anyhow::Result<(f64, u64)> {
    let Some(choice) = &model.sampling else {
        return Ok((blocks as f64, 0));
    };
    let runs: Vec<(f64, f64)> = model
        .blocks
        .iter()
        .copied()
        .zip(model.sizes.iter().copied())
        .collect();
    let expected = expected_size(&runs, blocks as f64);
    let plausible = |size: f64| {
        expected.is_none_or(|(least, greatest)| {
            size > least / MAX_RATIO_TO_EXPECTED_SIZE
                && (size < greatest * MAX_RATIO_TO_EXPECTED_SIZE || !whole)
        })
    };
    let sampled = (choice.threshold..64).filter_map(|threshold| {
        let values = samplers.value(&Choice {
            threshold,
            ..*choice
        });
        values.map(|(value, known)| (value as f64, known))
    });
    let mut sampled = sampled.peekable();
    anyhow::ensure!(sampled.peek().is_some(), "no such sample");
    sampled
        .find(|s| plausible(s.0))
        .context("no sample agrees with the number of distinct blocks")
}

fn pattern_name(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Constant => "constant",
        Pattern::CubeRoot => "s^1/3",
        Pattern::SquareRoot => "s^1/2",
        Pattern::TwoThirds => "s^2/3",
        Pattern::Linear => "linear",
    }
}

fn methods(model: &ModelFile) -> Vec<(&'static str, f64, Vec<(Pattern, f64)>)> {
    let mut out = vec![(
        "single reference",
        model.single.residual,
        model.single.patterns(),
    )];
    out.extend(
        model
            .multi
            .iter()
            .map(|m| (basis_name(m.basis), m.residual, m.patterns())),
    );
    out
}

fn basis_name(basis: Basis) -> &'static str {
    match basis {
        Basis::Log => "multi log",
        Basis::LogLinear => "multi log-linear",
        Basis::Reference => "multi reference",
    }
}

fn patterns(model: &ModelFile, document: &mut Document) {
    let rows = methods(model)
        .into_iter()
        .flat_map(|(name, residual, shares)| {
            shares.into_iter().map(move |(pattern, share)| {
                vec![
                    Value::from(name),
                    Value::from(pattern_name(pattern)),
                    value(share),
                    value(residual),
                ]
            })
        });
    document.tables.push(DocumentTable {
        name: "patterns",
        title: "Share of the reuses by pattern".into(),
        columns: columns![method: Text, pattern: Text, share: Share, residual: Number].to_vec(),
        rows: rows.collect(),
        text_rows: usize::MAX,
    });
}

#[derive(Default)]
struct Results {
    histograms: Vec<Vec<Value>>,
    ratios: Vec<Vec<Value>>,
    accuracies: Vec<Vec<Value>>,
}

/// Predicted histograms by method.
fn predictions(model: &ModelFile, size: f64) -> Vec<(&'static str, Vec<Bin>)> {
    let mut out = vec![("single reference", model.single.predict(size))];
    out.extend(
        model
            .multi
            .iter()
            .map(|m| (basis_name(m.basis), m.predict(size))),
    );
    if model.weights.len() == out.len() {
        let parts: Vec<(f64, Vec<Bin>)> = model
            .weights
            .iter()
            .copied()
            .zip(out.iter().map(|o| o.1.clone()))
            .collect();
        out.push(("combined", combined::combine(&parts)));
    }
    out
}

/// First touches per reuse at a size: those of the training run with the nearest size.
fn cold_at(model: &ModelFile, size: f64) -> f64 {
    let away = |s: f64| (s / size).ln().abs();
    model
        .cold
        .iter()
        .min_by(|a, b| away(a.0).total_cmp(&away(b.0)))
        .map_or(0.0, |c| c.1)
}

impl Results {
    fn predict(&mut self, model: &ModelFile, size: f64, of: &str, arguments: &PredictArguments) {
        let cold = cold_at(model, size);
        for (method, bins) in predictions(model, size) {
            for row in histogram_rows(
                "",
                "",
                &mgz_models::histogram::cut(bins.iter().copied(), &Scale::Log),
            )
            .rows
            {
                self.histograms.push(vec![
                    Value::from(of),
                    value(size),
                    Value::from(method),
                    row[0].clone(),
                    row[1].clone(),
                    row[3].clone(),
                ]);
            }
            let ratio = MissRatio::new(bins.iter().copied(), cold, 0.0);
            // Ratios for the requested caches, or for all sizes until only first touches miss.
            let end = bins.last().map_or(1.0, |b| b.to);
            let curve = (0..63)
                .map(|bit| 1u64 << bit)
                .take_while(|&blocks| (blocks as f64) < 2.0 * end)
                .map(|blocks| blocks * model.block);
            let sizes = if arguments.cache.is_empty() {
                curve.collect()
            } else {
                arguments.cache.clone()
            };
            for bytes in sizes {
                self.ratios.push(vec![
                    Value::from(of),
                    value(size),
                    Value::from(method),
                    Value::from(bytes),
                    value(ratio.ratio((bytes / model.block) as f64)),
                ]);
            }
        }
    }

    /// Keeps the rows of the last method, which is the best one.
    fn keep_last_method(&mut self) {
        const METHOD: usize = 2;
        let last = self.histograms.last().map(|row| row[METHOD].clone());
        for rows in [&mut self.histograms, &mut self.ratios] {
            rows.retain(|row| Some(&row[METHOD]) == last.as_ref());
        }
    }

    fn compare(&mut self, model: &ModelFile, size: f64, known: u64, of: &str, measured: &Measured) {
        let coverage = 1.0 - known as f64 / measured.accesses.max(1) as f64;
        for (method, bins) in predictions(model, size) {
            self.accuracies.push(vec![
                Value::from(of),
                value(size),
                Value::from(method),
                value(accuracy(&bins, &measured.bins)),
                value(coverage),
                Value::from(measured.accesses),
                Value::from(measured.blocks),
            ]);
        }
    }

    fn finish(self, document: &mut Document) {
        let whose = columns![of: Text, size: Number, method: Text];
        let columns =
            |more: &[DocumentColumn]| whose.iter().chain(more).copied().collect::<Vec<_>>();
        document.tables.push(DocumentTable {
            name: "accuracy",
            title: "Accuracy of the prediction (overlap with the measured histogram); coverage: part of the run after the size is known".into(),
            columns: columns(&columns![accuracy: Share, coverage: Share, A: Count, blocks: Count]),
            rows: self.accuracies,
            text_rows: usize::MAX,
        });
        document.tables.push(DocumentTable {
            name: "miss_ratios",
            title: "Predicted miss ratios (first touches per reuse as in the nearest training run)"
                .into(),
            columns: columns(&columns![bytes: Bytes, miss_ratio: Share]),
            rows: self.ratios,
            text_rows: 120,
        });
        document.tables.push(DocumentTable {
            name: "histograms",
            title: "Predicted reuse distances".into(),
            columns: columns(&columns![from: Number, to: Number, share: Share]),
            rows: self.histograms,
            text_rows: 60,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_may_grow_faster_than_the_blocks() {
        // Blocks and sampled sizes of training runs.
        let runs = |power: f64| [100.0, 200.0, 400.0].map(|n: f64| (n, n.powf(power)));
        let near = |found: Option<(f64, f64)>, least: f64, greatest: f64| {
            let (low, high) = found.unwrap();
            assert!((low / least - 1.0).abs() < 1e-9, "{low} {least}");
            assert!((high / greatest - 1.0).abs() < 1e-9, "{high} {greatest}");
        };
        near(expected_size(&runs(1.0), 4e4), 4e4, 4e4);
        near(expected_size(&runs(0.5), 4e4), 200.0, 200.0);
        near(
            expected_size(&runs(1.5), 4e4),
            100.0 * 400f64.powf(1.5),
            4e4f64.powf(1.5),
        );
        // Sizes that have nothing to do with the blocks.
        assert!(expected_size(&[(100.0, 50.0), (200.0, 500.0), (400.0, 60.0)], 4e4).is_none());
        assert!(expected_size(&[(100.0, 50.0), (101.0, 90.0)], 4e4).is_none());
    }
}

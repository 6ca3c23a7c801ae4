//! Builds the whole result from an opened trace and the options.

use crate::data::call_paths::CallPaths;
use crate::data::detail::Detail;
use crate::data::object_map::Resolver;
use crate::data::reuse_pairs::ReusePairs;
use crate::engine::partial::{Partial, PartialError};
use crate::engine::{Aids, Collect, EngineOptions, EngineOutcome, analyse_with};
use crate::estimate::row_estimates::Estimator;
use crate::filter::{Conditions, Filter, FilterError, Filtered};
use crate::findings::{self, Observed};
use crate::input;
use crate::input::call_paths::read_call_paths;
use crate::input::counted::Counted;
use crate::input::objects::read_objects;
use crate::input::source::ChunkSource;
use crate::input::weights::Weights;
use crate::input::{ColumnSet, Trace};
use crate::report::additions::{add_found, add_measured};
use crate::report::counted::reweighted;
use crate::report::prediction::Prediction;
use crate::report::questions::{Questions, is_thinned};
use crate::report::row_counts::{PassPlan, RowCounts};
use crate::report::{Analysis, build};
use crate::stages::incidence::Incidence;
use std::sync::Arc;

/// The first pass alone, to be written and merged later.
pub fn partial(
    trace: Trace,
    block: u64,
    footprint_bytes: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Partial {
    let full = trace.manifest.mode.has_all_loads();
    let options = EngineOptions {
        samples: !full,
        incidence: if full {
            Collect::Nothing
        } else {
            Collect::ForMerging
        },
        sites: trace.code.site_pieces().len() as u32,
        footprint_bytes,
        ..EngineOptions::new(block.trailing_zeros())
    };
    let source = trace.source(ColumnSet::default());
    let mut warnings = trace.warnings.clone();
    let weights = weights(&trace, None, &mut warnings);
    let outcome = analyse_with(
        &*source,
        options,
        Aids {
            weights,
            ..Aids::default()
        },
        progress,
    );
    warnings.extend(trace.damage.iter().chain(&outcome.damage).cloned());
    warnings.extend(source.notes());
    drop(source);
    Partial {
        manifest: trace.manifest,
        code: trace.code,
        outcome,
        block,
        warnings,
    }
}

/// Weights of the samples of a trace, unless all have the same.
fn weights(
    trace: &Trace,
    counted: Option<Counted>,
    warnings: &mut Vec<String>,
) -> Option<Arc<Weights>> {
    let read = input::weights::read_weights(&trace.folder, trace.manifest.triggers_by_time())
        .unwrap_or_else(|sentence| {
            warnings.push(sentence);
            None
        });
    let read = match counted {
        Some(counted) => Some(reweighted(
            trace,
            read.unwrap_or_default(),
            counted,
            warnings,
        )),
        None => read,
    };
    read.map(Arc::new)
}

/// Words that were watched after the selected samples.
fn pairs(
    trace: &Trace,
    conditions: &Conditions,
    warnings: &mut Vec<String>,
) -> Option<Arc<ReusePairs>> {
    let read = input::reuse_pairs::read_reuse_pairs(&trace.folder, &trace.code).unwrap_or_else(
        |sentence| {
            warnings.push(sentence);
            None
        },
    );
    read.map(|all| Arc::new(ReusePairs::new(all, !conditions.is_empty())))
}

/// Partial results, merged.
pub fn merge_all(paths: &[std::path::PathBuf]) -> Result<Partial, PartialError> {
    let mut all: Option<Partial> = None;
    for path in paths {
        let next = Partial::read(path)?;
        match &mut all {
            None => all = Some(next),
            Some(all) => all.merge(next).map_err(|cause| PartialError {
                path: path.display().to_string(),
                cause,
            })?,
        }
    }
    all.ok_or_else(|| PartialError {
        path: "--merge".into(),
        cause: "no partial results were given".into(),
    })
}

/// The tables of a partial result.
pub fn tables_of(mut partial: Partial, estimator: Estimator) -> Analysis {
    partial.outcome.incidence =
        Incidence::fold(vec![std::mem::take(&mut partial.outcome.incidence)]);
    let mut analysis = build(
        &partial.manifest,
        &partial.code,
        &partial.outcome,
        partial.block,
        estimator,
        partial.warnings.clone(),
    );
    analysis.findings.none =
        "merged results have no rows to look at: analyse the traces one by one".into();
    analysis
}

/// Sentences on missing data.
struct Messages {
    /// Data that could not be read.
    damage: Vec<String>,
    warnings: Vec<String>,
}

impl Messages {
    fn new(trace: &Trace) -> Messages {
        Messages {
            damage: Vec::new(),
            warnings: trace.warnings.clone(),
        }
    }

    /// Reads the call paths of windows. Damage is returned, since it is a warning behind all others.
    fn call_paths(trace: &Trace) -> (Option<CallPaths>, Option<String>) {
        match read_call_paths(&trace.folder) {
            Ok(paths) => (paths, None),
            Err(sentence) => (None, Some(sentence)),
        }
    }

    /// Reads the data objects, if counts by block are needed.
    fn objects(
        &mut self,
        trace: &Trace,
        questions: &Questions,
        plan: &PassPlan,
    ) -> Option<Arc<Resolver>> {
        let objects = match plan.by_block.then(|| read_objects(&trace.folder)) {
            Some(Ok(objects)) => objects.map(Arc::new),
            Some(Err(sentence)) => {
                self.damage.push(sentence);
                None
            }
            None => None,
        };
        if questions.objects && objects.is_none() && self.damage.is_empty() {
            self.warnings.push(
                "the trace has no data objects (no objects.parquet), so there is no table of them"
                    .into(),
            );
        }
        objects
    }

    /// Reads the data that is looked up while rows are counted.
    fn aids(&mut self, trace: &Trace, questions: &Questions, plan: &PassPlan) -> Aids {
        let with_pairs = plan.sampled && questions.misses && !is_thinned(questions);
        Aids {
            objects: self.objects(trace, questions, plan),
            heat: None,
            weights: weights(trace, questions.counted.clone(), &mut self.warnings),
            pairs: with_pairs
                .then(|| pairs(trace, &questions.filter, &mut self.warnings))
                .flatten(),
        }
    }

    /// Adds the messages of the pass.
    fn add_pass(&mut self, trace: &Trace, source: &dyn ChunkSource, outcome: &EngineOutcome) {
        self.damage.extend(outcome.damage.iter().cloned());
        let damage = trace.damage.iter().chain(&self.damage);
        self.warnings.extend(damage.cloned());
        self.warnings.extend(source.notes());
        if outcome.spilled.is_none() {
            self.warnings.push(format!("footprints take more memory than --memory allows, and no scratch file could be written to {}; set TMPDIR to a folder with room", std::env::temp_dir().display()));
        }
    }
}

/// A screen that is needed before the rest of the result.
pub struct EarlyScreen<'a> {
    /// Number of rows, see [`Detail::Screen`].
    pub rows: usize,
    /// Receives the contents of the screen.
    pub show: &'a mut dyn FnMut(Analysis),
}

/// The analysis, and descriptions of damage. `progress` receives the number of rows done. A filter
/// that matches nothing is an error.
pub fn examine(
    trace: &Trace,
    questions: &Questions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(Analysis, Vec<String>), FilterError> {
    examine_in_steps(trace, questions, progress, None)
}

/// As [`examine`]. `early` receives the contents of a screen as soon as they are known, if there
/// are any loads.
pub fn examine_in_steps(
    trace: &Trace,
    questions: &Questions,
    progress: &(dyn Fn(u64) + Sync),
    early: Option<EarlyScreen<'_>>,
) -> Result<(Analysis, Vec<String>), FilterError> {
    // This function is long because each step borrows the results of those before it.
    let plan = PassPlan::new(trace, questions);
    let conditions = &questions.filter;
    let source = &*trace.source(ColumnSet { time: plan.timed });
    let mut messages = Messages::new(trace);
    let aids = messages.aids(trace, questions, &plan);
    let objects = aids.objects.as_deref();
    let filter = (!conditions.is_empty())
        .then(|| Filter::new(conditions, &trace.manifest, &trace.code, objects, source))
        .transpose()?;
    let filtered = filter.as_ref().map(|filter| {
        let (objects, weights) = (aids.objects.clone(), aids.weights.clone());
        Filtered::new(source, filter, &trace.code, objects, weights)
    });
    let source = filtered.as_ref().map_or(source, |f| f as &dyn ChunkSource);
    let (paths, no_paths) = Messages::call_paths(trace);
    let ((mut outcome, first), (windows, observed)) = rayon::join(
        || plan.count((trace, questions), source, &aids, progress),
        || {
            let windows = findings::windows::read(source, objects);
            let observed = Observed::new(&trace.code, &windows, paths.as_ref());
            (windows, observed)
        },
    );
    let manifest = match &filtered {
        Some(filtered) => {
            filtered.check()?;
            &filtered.manifest(&trace.manifest)
        }
        None => &trace.manifest,
    };
    messages.add_pass(trace, source, &outcome);
    let has_loads = outcome.census.loads > 0;
    let early = early.filter(|_| has_loads);
    // If there are no loads for a screen, everything is shown.
    let detail = if has_loads {
        questions.detail
    } else {
        Detail::All
    };
    let screen = early.as_ref().map(|early| Detail::Screen(early.rows));
    let first_detail = screen.unwrap_or(detail);
    let zoom = outcome.buckets[0].reuse.zoom.as_mut();
    let mixed = zoom.map(|z| z.mixed.finish()).unwrap_or_default();
    // One thread sorts the marks for the tables, while misses are predicted in parallel.
    let unfolded = std::mem::take(&mut outcome.unfolded);
    let lines = &outcome.lines;
    let (prediction, incidence) = rayon::join(
        || {
            let counts = (&outcome, lines);
            Prediction::new((trace, questions), counts, objects, first_detail)
        },
        || Incidence::fold(unfolded),
    );
    outcome.incidence = incidence;
    messages
        .warnings
        .extend(prediction.warning(trace, questions));
    let counted = RowCounts {
        trace,
        questions,
        plan: &plan,
        source,
        manifest,
        outcome: &outcome,
        detail: first_detail,
        objects,
        prediction: &prediction,
        predicted: prediction.predicted.as_ref(),
        windows: &windows,
        paths: paths.as_ref(),
    };
    let filter = filtered.as_ref().map(|f| f.row(&trace.manifest));
    let weights = aids.weights.clone();
    let (built, found) = counted.tables_and_findings(observed, messages.warnings.clone(), weights);
    let in_full;
    let (counted, built) = match early {
        Some(early) => {
            let mut screen = counted.screen(built, found.clone(), &mixed, filter.clone());
            screen.summary.trace.command = trace.command();
            (early.show)(screen);
            in_full = prediction.in_detail(detail);
            let counted = RowCounts {
                detail,
                predicted: in_full.as_ref(),
                ..counted
            };
            (counted, counted.tables(messages.warnings))
        }
        None => (counted, built),
    };
    let mut analysis = counted.all_tables(built, &mixed, first, aids.clone());
    analysis.filter = filter;
    analysis.summary.trace.command = trace.command();
    analysis.warnings.extend(no_paths.clone());
    messages.damage.extend(no_paths);
    // Damage in another run's samples is no damage of this trace: it is only a warning.
    let wrong = add_measured(&mut analysis, trace, questions);
    let wrong = wrong.filter(|_| questions.measured.is_none());
    messages.damage.extend(wrong);
    add_found(&mut analysis, found);
    Ok((analysis, messages.damage))
}

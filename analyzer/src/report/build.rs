//! From an opened trace and the options to the whole result.

use crate::data::code_map::Target;
use crate::data::detail::Detail;
use crate::data::group::Group;
use crate::data::memory_units::LINE_BYTES;
use crate::data::object_map::{Recent, Resolver, UNKNOWN};
use crate::data::reuse_pairs::ReusePairs;
use crate::data::samples::SampleInfo;
use crate::engine::partial::{Partial, PartialError};
use crate::engine::{Aids, Collect, EngineOptions, EngineOutcome, analyse_with};
use crate::estimate::row_estimates::Estimator;
use crate::filter::{Conditions, Filter, FilterError, Filtered};
use crate::findings::{self, Finding, FindingList, Findings, Observed};
use crate::input;
use crate::input::counted::Counted;
use crate::input::objects::read_objects;
use crate::input::source::ChunkSource;
use crate::input::weights::Weights;
use crate::input::{ColumnSet, Trace};
use crate::measured::counters::counted_run;
use crate::misses::{Hierarchy, Predicted, caches};
use crate::report::counted::reweighted;
use crate::report::row_counts::{PassPlan, RowCounts};
use crate::report::{Analysis, build, measured_beside};
use crate::stages::incidence::Incidence;
use crate::stages::line_visits::Visit;
use crate::stages::set_conflicts::{LEVELS, Sets};
use crate::views::context::Basis;
use crate::views::location;
use crate::views::objects::add_fields;
use crate::views::time_tree::Look;
use mgz_annotations_schema::manifest::Cache;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Questions for the analysis.
#[derive(Clone, Debug)]
pub struct Questions {
    /// The trees and the heat map.
    pub zoom: bool,
    /// The table of objects.
    pub objects: bool,
    /// Bytes of a block of reuse distance, a power of two.
    pub block: u64,
    /// τ of the location zoom, percent.
    pub tau: f64,
    /// Page size at which the location zoom ends.
    pub stop: u64,
    /// Estimator of footprints.
    pub estimator: Estimator,
    /// Bytes of memory that footprints may take before they go to a file.
    pub footprint_bytes: usize,
    /// Conditions of the filter.
    pub filter: Conditions,
    /// Which way the time zoom goes.
    pub look: Look,
    /// If set, the memory touched by the loads of call paths is counted.
    pub call_paths: bool,
    /// Tables by call path.
    pub by_path: bool,
    /// Predict misses from samples too; of full traces they are always counted.
    pub misses: bool,
    /// They were asked for by name: then it is said if the caches of the machine are not known.
    pub asked_for_misses: bool,
    /// Caches to predict misses of; empty: those of the machine that recorded.
    pub caches: Vec<Cache>,
    /// Counts of another run of the same command.
    pub counted: Option<Counted>,
    /// A trace with memory samples of the same command, if not this one.
    pub measured: Option<PathBuf>,
    /// Extent of the result.
    pub detail: Detail,
}

impl Questions {
    /// The tables of code and objects of a whole trace, as without options, for what is made of these.
    pub fn tables(misses: bool) -> Questions {
        Questions {
            zoom: false,
            objects: true,
            block: LINE_BYTES,
            tau: 10.0,
            stop: location::STOP,
            estimator: Estimator::default(),
            footprint_bytes: crate::util::memory_limit::memory() / 4,
            filter: Conditions::default(),
            look: Look::default(),
            call_paths: false,
            by_path: false,
            misses,
            asked_for_misses: misses,
            caches: Vec::new(),
            counted: None,
            measured: None,
            detail: Detail::All,
        }
    }
}

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

/// Words that were watched behind the samples that are asked for.
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

/// The caches that are asked for, or those of the machine, or common ones.
pub(super) fn levels(trace: &Trace, questions: &Questions) -> Vec<Cache> {
    match questions.caches.is_empty() {
        true => caches::usable(&trace.manifest.caches),
        false => caches::usable(&questions.caches),
    }
}

/// The same caches, with measured latencies if the manifest has those of these caches.
pub(super) fn hierarchy(trace: &Trace, questions: &Questions) -> Hierarchy {
    let costs = trace.manifest.memory_costs.as_ref();
    Hierarchy::new(levels(trace, questions), costs)
}

/// Sets of the caches.
pub(super) fn sets(trace: &Trace, questions: &Questions) -> [Sets; LEVELS] {
    let mut sets = [Sets::default(); LEVELS];
    for (to, of) in sets.iter_mut().zip(hierarchy(trace, questions).caches) {
        *to = Sets::new(of.size, of.ways);
    }
    sets
}

/// True if loads between others are left out. The remaining ones say nothing about caches.
pub(super) fn is_thinned(questions: &Questions) -> bool {
    !questions.filter.functions.is_empty() || !questions.filter.objects.is_empty()
}

/// Misses of these caches.
fn predicted(
    trace: &Trace,
    outcome: &EngineOutcome,
    (questions, detail): (&Questions, Detail),
    objects: Option<&Resolver>,
    warnings: &mut Vec<String>,
) -> Option<Predicted> {
    if is_thinned(questions) {
        return None;
    }
    let levels = hierarchy(trace, questions);
    if trace.manifest.mode.has_all_loads() {
        if questions.block != LINE_BYTES {
            return None;
        }
        return Predicted::exact(outcome, levels);
    }
    if !questions.misses {
        return None;
    }
    let function = |group: Group| {
        let functions = trace.code.targets(Target::Function, group);
        functions.first().copied().unwrap_or(u32::MAX)
    };
    let object = |visit: &Visit, sample: &SampleInfo, recent: &mut Recent| {
        objects.map_or(UNKNOWN, |objects| {
            let middle = sample.first_time + sample.last_time.saturating_sub(sample.first_time) / 2;
            objects.find_recent(recent, sample.process, visit.address(), middle)
        })
    };
    let by_time = trace.manifest.triggers_by_time();
    let predicted = Predicted::new(outcome, levels, detail, by_time, function, object);
    if predicted.is_some() && questions.asked_for_misses && trace.manifest.caches.is_empty() {
        warnings.push("the trace does not tell the caches of its machine: misses are predicted of common ones (32K, 1M, 32M); --caches names others".into());
    }
    predicted
}

/// Sentences about what is missing.
struct Messages {
    /// Data that could not be read.
    damage: Vec<String>,
    warnings: Vec<String>,
}

impl Messages {
    /// Reads the data objects, if counts by block are wanted.
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
            self.warnings.push("the trace tells of no data objects (it has no objects.parquet), so there is no table of them".into());
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

    /// Adds those of the pass.
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

/// A screen that is wanted before the rest of the result.
pub struct EarlyScreen<'a> {
    /// As of [`Detail::Screen`].
    pub rows: usize,
    /// Takes the contents of the screen.
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

/// As [`examine`]. `early` takes the contents of a screen as soon as they are known, if there are
/// any loads.
pub fn examine_in_steps(
    trace: &Trace,
    questions: &Questions,
    progress: &(dyn Fn(u64) + Sync),
    early: Option<EarlyScreen<'_>>,
) -> Result<(Analysis, Vec<String>), FilterError> {
    let plan = PassPlan::new(trace, questions);
    let conditions = &questions.filter;
    let source = trace.source(ColumnSet { time: plan.timed });
    let source = &*source;
    let mut messages = Messages {
        damage: Vec::new(),
        warnings: trace.warnings.clone(),
    };
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
    let (paths, no_paths) = match input::call_paths::read_call_paths(&trace.folder) {
        Ok(paths) => (paths, None),
        Err(sentence) => (None, Some(sentence)),
    };
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
    let Messages {
        mut damage,
        mut warnings,
    } = messages;
    // If there are no loads for a screen, everything is shown.
    let detail = match outcome.census.loads {
        0 => Detail::All,
        _ => questions.detail,
    };
    let asked = (questions, detail);
    // The marks are sorted by one thread, for the tables; misses are predicted meanwhile.
    let unfolded = std::mem::take(&mut outcome.unfolded);
    let (predicted, incidence) = rayon::join(
        || predicted(trace, &outcome, asked, objects, &mut warnings),
        || Incidence::fold(unfolded),
    );
    outcome.incidence = incidence;
    let zoom = outcome.buckets[0].reuse.zoom.as_mut();
    let mixed = zoom.map(|z| z.mixed.finish()).unwrap_or_default();
    let counted = RowCounts {
        trace,
        questions,
        plan: &plan,
        source,
        manifest,
        outcome: &outcome,
        detail,
        objects,
        predicted: predicted.as_ref(),
        windows: &windows,
        paths: paths.as_ref(),
    };
    let filter = filtered.as_ref().map(|f| f.row(&trace.manifest));
    let weights = aids.weights.clone();
    let (built, found) = match early.filter(|_| outcome.census.loads > 0) {
        Some(early) => {
            let of_screen = RowCounts {
                detail: Detail::Screen(early.rows),
                ..counted
            };
            let (built, found) = of_screen.tables_and_findings(observed, warnings.clone(), weights);
            (early.show)(of_screen.screen(built, found.clone(), &mixed, filter.clone()));
            (counted.tables(warnings), found)
        }
        None => counted.tables_and_findings(observed, warnings, weights),
    };
    let mut analysis = built.analysis;
    analysis.filter = filter;
    let basis = Basis::new(&outcome, &trace.code, built.places, built.times)
        .with_misses(predicted.as_ref());
    let summary = analysis.summary.clone();
    let (threads, ()) = rayon::join(
        || (detail.is_all()).then(|| counted.thread_tables(&summary, &basis, aids.clone())),
        || {
            counted.add_objects(&mut analysis, &basis, &mixed);
            if questions.zoom {
                let counts = (built.whole, &built.by_code);
                counted.add_zooms(&mut analysis, &basis, counts, first);
            }
            counted.add_call_paths(&mut analysis, &basis);
        },
    );
    (analysis.threads, analysis.processes) = threads.unwrap_or_default();
    analysis.warnings.extend(no_paths.clone());
    damage.extend(no_paths);
    // Another run's samples are no part of this trace: without them, there is a warning.
    let wrong = add_measured(&mut analysis, trace, questions);
    damage.extend(wrong.filter(|_| questions.measured.is_none()));
    add_found(&mut analysis, found);
    Ok((analysis, damage))
}

/// Adds findings, and what they tell of other tables.
pub(super) fn add_found(analysis: &mut Analysis, found: Findings) {
    add_fields(&mut analysis.objects, found.fields);
    let trace_info = &mut analysis.summary.trace;
    trace_info.for_screen.extend(found.lacks.clone());
    trace_info.not_recorded.extend(found.lacks);
    analysis.findings = FindingList {
        list: found.list.into_iter().map(with_distinct_lines).collect(),
        none: found.none,
    };
}

/// Adds counters and memory samples of the processor. Returns what is wrong with them.
pub(super) fn add_measured(
    analysis: &mut Analysis,
    trace: &Trace,
    questions: &Questions,
) -> Option<String> {
    let other = questions.measured.as_deref();
    let is_filtered = !questions.filter.is_empty();
    if is_filtered && other.is_some() {
        let sentence = "memory samples are of the whole run, and a filter leaves a part of it: they are not shown";
        analysis.warnings.push(sentence.into());
    }
    if !is_filtered {
        let manifest = &trace.manifest;
        let predicted = analysis.summary.misses.as_ref();
        analysis.counters = counted_run(&manifest.counters, &manifest.caches, predicted);
    }
    let added = measured_beside::add(analysis, trace, other, is_filtered);
    let sentence = added.err()?;
    analysis.warnings.push(sentence.clone());
    Some(sentence)
}

/// A finding whose other lines are named once each; its own line is not among them.
fn with_distinct_lines(mut finding: Finding) -> Finding {
    let own = format!("{}:{}", finding.file, finding.line);
    let mut seen = BTreeSet::from([own]);
    finding.also.retain(|line| seen.insert(line.clone()));
    finding
}

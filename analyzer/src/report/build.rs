//! From an opened trace and the options to the whole result.

use crate::data::call_paths::CallPaths;
use crate::data::code_map::Target;
use crate::data::counts::Counts;
use crate::data::detail::Detail;
use crate::data::memory_units::{LINE_BYTES, LINE_SHIFT};
use crate::data::object_map::{Recent, Resolver, UNKNOWN};
use crate::data::reuse_pairs::ReusePairs;
use crate::data::samples::SampleInfo;
use crate::engine::partial::{Partial, PartialError};
use crate::engine::{Aids, Collect, Options, Outcome, analyse_with};
use crate::estimate::row_estimates::Estimator;
use crate::filter::{Conditions, Filter, FilterError, Filtered};
use crate::findings::caches::Caches;
use crate::findings::windows::Window;
use crate::findings::{self, FindingList, Findings};
use crate::input;
use crate::input::counted::Counted;
use crate::input::objects::read;
use crate::input::source::Source;
use crate::input::weights::Weights;
use crate::input::{ColumnSet, Trace};
use crate::misses::{Predicted, caches};
use crate::report::counted::reweighted;
use crate::report::{Analysis, Built, Material, build, threads};
use crate::stages::footprint::FootprintSet;
use crate::stages::incidence::Incidence;
use crate::stages::line_visits::Visit;
use crate::stages::pages::{self, UnitEntry};
use crate::stages::reuse::by_page::Wanted;
use crate::stages::set_conflicts::{LEVELS, Sets};
use crate::views::context::Basis;
use crate::views::objects::{Bounds, add_fields, bounds, table};
use crate::views::time_tree::{Look, TimeZoom};
use crate::views::{ByCode, by_path, call_paths, heat_map, location, time_tree};
use mgz_annotations_schema::manifest::{Cache, Manifest};
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
    /// Extent of the result.
    pub detail: Detail,
}

impl Questions {
    /// The tables of code and objects of a whole trace, as without options, for what is made of these.
    pub fn tables(misses: bool) -> Questions {
        Questions {
            zoom: false,
            objects: true,
            block: 64,
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
    let options = Options {
        samples: !full,
        incidence: if full {
            Collect::Nothing
        } else {
            Collect::ForMerging
        },
        sites: trace.code.site_pieces().len() as u32,
        footprint_bytes,
        ..Options::new(block.trailing_zeros())
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
    let read = input::weights::read(&trace.folder, trace.manifest.triggers_by_time())
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
    let read = input::reuse_pairs::read(&trace.folder, &trace.code).unwrap_or_else(|sentence| {
        warnings.push(sentence);
        None
    });
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

/// Missing part of the requested path.
fn missing(tree: &TimeZoom, look: &Look) -> Option<String> {
    let id = |way: &[usize]| {
        way.iter()
            .map(usize::to_string)
            .collect::<Vec<_>>()
            .join(".")
    };
    let there = (1..=look.node.len())
        .take_while(|&depth| tree.path.get(depth - 1) == Some(&id(&look.node[..depth])))
        .count();
    let wanted = look.node.get(..=there)?;
    Some(format!(
        "there is no node {}; the way goes {} instead",
        id(wanted),
        match tree.path.get(there) {
            Some(node) => format!("through {node}"),
            None if there == 0 => "no further than the run".into(),
            None => format!("no further than {}", id(&look.node[..there])),
        }
    ))
}

/// The caches that are asked for, or those of the machine, or common ones.
fn levels(trace: &Trace, questions: &Questions) -> Vec<Cache> {
    let mut levels = questions.caches.clone();
    if levels.is_empty() {
        levels.clone_from(&trace.manifest.caches);
    }
    levels.retain(|c| c.size >= LINE_BYTES && c.ways > 0 && c.line > 0);
    if levels.is_empty() {
        levels = caches::typical();
    }
    levels
}

/// Sets of the caches.
fn sets(trace: &Trace, questions: &Questions) -> [Sets; LEVELS] {
    let mut sets = [Sets::default(); LEVELS];
    for (to, of) in sets.iter_mut().zip(levels(trace, questions)) {
        *to = Sets::new(of.size, of.ways);
    }
    sets
}

/// True if loads between others are left out. The remaining ones say nothing about caches.
fn is_thinned(questions: &Questions) -> bool {
    !questions.filter.functions.is_empty() || !questions.filter.objects.is_empty()
}

/// Misses of these caches.
fn predicted(
    trace: &Trace,
    outcome: &Outcome,
    (questions, detail): (&Questions, Detail),
    objects: Option<&Resolver>,
    warnings: &mut Vec<String>,
) -> Option<Predicted> {
    if is_thinned(questions) {
        return None;
    }
    let levels = levels(trace, questions);
    if trace.manifest.mode.has_all_loads() {
        if questions.block != 64 {
            return None;
        }
        return Predicted::exact(outcome, levels);
    }
    if !questions.misses {
        return None;
    }
    let function = |group: u32| {
        let functions = trace.code.targets(Target::Function, group);
        functions.first().copied().unwrap_or(u32::MAX)
    };
    let object = |visit: &Visit, sample: &SampleInfo, recent: &mut Recent| {
        objects.map_or(UNKNOWN, |objects| {
            let middle = sample.first_time + sample.last_time.saturating_sub(sample.first_time) / 2;
            objects.find_recent(recent, sample.process, visit.line << LINE_SHIFT, middle)
        })
    };
    let by_time = trace.manifest.triggers_by_time();
    let predicted = Predicted::new(outcome, levels, detail, by_time, function, object);
    if predicted.is_some() && questions.asked_for_misses && trace.manifest.caches.is_empty() {
        warnings.push("the trace does not tell the caches of its machine: misses are predicted of common ones (32K, 1M, 32M); --caches names others".into());
    }
    predicted
}

/// Settings of the pass over the rows, from the questions and the trace.
struct Plan {
    /// True if the trace has samples of the run, and not all of it.
    sampled: bool,
    /// True if counts by memory block are wanted: for objects, zooms or bounds of footprints.
    by_block: bool,
    /// True if the time of rows is wanted.
    timed: bool,
    /// Sums by block.
    wanted: Wanted,
    /// Settings of the engine. A pass over all rows adds `lines`.
    options: Options,
}

impl Plan {
    fn new(trace: &Trace, questions: &Questions) -> Plan {
        let conditions = &questions.filter;
        let sampled = !trace.manifest.mode.has_all_loads();
        // Samples have few rows, and the touched blocks limit their footprints.
        let bounded = sampled && trace.folder.join(input::objects::OBJECTS_FILE).exists();
        let by_block =
            questions.zoom || questions.objects || bounded || !conditions.objects.is_empty();
        let block_shift = questions.block.trailing_zeros();
        let stop = if questions.zoom {
            questions.stop
        } else {
            location::STOP
        };
        let wanted = Wanted {
            block_shift,
            unit_shift: pages::unit_shift(block_shift, stop),
            parts: questions.zoom,
        };
        let incidence = if sampled {
            Collect::ForEstimates
        } else {
            Collect::Nothing
        };
        Plan {
            sampled,
            by_block,
            timed: by_block || conditions.from.is_some() || conditions.to.is_some(),
            wanted,
            options: Options {
                zoom: by_block.then_some(wanted),
                samples: questions.zoom || sampled,
                incidence,
                sites: trace.code.site_pieces().len() as u32,
                footprint_bytes: questions.footprint_bytes,
                windows: questions.detail.is_all(),
                ..Options::new(block_shift)
            },
        }
    }

    /// The pass over the rows, and the first level of the time tree if the zooms are wanted.
    fn count(
        &self,
        (trace, questions): (&Trace, &Questions),
        source: &dyn Source,
        aids: &Aids,
        progress: &(dyn Fn(u64) + Sync),
    ) -> (Outcome, Option<time_tree::Taken>) {
        let lines = self.sampled && !is_thinned(questions);
        let options = Options {
            lines: lines.then(|| sets(trace, questions)),
            ..self.options
        };
        if !questions.zoom {
            let mut outcome = analyse_with(source, options, aids.clone(), progress);
            outcome.unite();
            return (outcome, None);
        }
        let first = time_tree::First::new(source, &questions.look);
        let mut outcome = analyse_with(&first.rows(source), options, aids.clone(), progress);
        let first = first.take(&outcome, &trace.code);
        outcome.unite();
        if first.is_none() {
            // Some rows could not be read, so the remaining rows are divided in another way.
            let wanted = Wanted {
                parts: false,
                ..self.wanted
            };
            let options = Options {
                zoom: Some(wanted),
                ..options
            };
            outcome = analyse_with(source, options, aids.clone(), progress);
        }
        (outcome, first)
    }
}

/// Results of the pass, and what else the tables are made of.
struct RowCounts<'a> {
    trace: &'a Trace,
    questions: &'a Questions,
    plan: &'a Plan,
    source: &'a dyn Source,
    /// Manifest of the part that was asked for.
    manifest: &'a Manifest,
    outcome: &'a Outcome,
    detail: Detail,
    objects: Option<&'a Resolver>,
    predicted: Option<&'a Predicted>,
    windows: &'a [Window],
    paths: Option<&'a CallPaths>,
}

impl RowCounts<'_> {
    /// Sums by unit of memory.
    fn entries(&self) -> impl Iterator<Item = UnitEntry> {
        let sums = self.outcome.buckets[0].reuse.zoom.as_deref();
        sums.into_iter().flat_map(|sums| sums.units.entries())
    }

    /// Sizes of the objects that code has touched.
    fn bounds(&self) -> Bounds {
        let objects = self.objects.filter(|_| self.plan.sampled);
        let of = |objects| {
            let (spaces, unit) = (&self.outcome.spaces, self.plan.wanted.unit_shift);
            bounds(self.entries(), spaces, objects, &self.trace.code, unit)
        };
        objects.map(of).unwrap_or_default()
    }

    /// Makes the tables of code, and the findings.
    fn tables_and_findings(&self, warnings: Vec<String>) -> (Built, Findings) {
        let (trace, questions) = (self.trace, self.questions);
        let material = Material {
            manifest: self.manifest,
            code: &trace.code,
            outcome: self.outcome,
            block: questions.block,
            estimator: questions.estimator,
            detail: self.detail,
            bounds: &self.bounds(),
            predicted: self.predicted,
        };
        rayon::join(
            || material.build(warnings),
            || {
                findings::find(
                    &trace.code,
                    (self.objects, self.paths),
                    self.windows,
                    (self.outcome, self.predicted),
                    trace.manifest.triggers_by_time(),
                    Caches::of(&levels(trace, questions)),
                )
            },
        )
    }

    /// Adds the tables of threads and processes.
    fn add_threads(&self, analysis: &mut Analysis, basis: &Basis<'_>, aids: Aids) {
        let options = Options {
            zoom: None,
            ..self.plan.options
        };
        (analysis.threads, analysis.processes) = threads::tables(
            (self.source, options),
            self.manifest,
            (&self.trace.code, basis),
            (self.outcome, &analysis.summary),
            aids,
        );
    }

    /// Adds the table of objects, if they are known. A screen only shows if they are known by where
    /// they were allocated.
    fn add_objects(&self, analysis: &mut Analysis, basis: &Basis<'_>, mixed: &FootprintSet) {
        let is_listed = |o: &&Resolver| self.detail.is_all() || o.knows_allocations();
        if let Some(objects) = self.objects.filter(is_listed) {
            analysis.objects = table(
                self.entries(),
                (basis, mixed, &self.outcome.samples),
                &self.outcome.spaces,
                objects,
                &self.trace.code,
                self.plan.wanted.unit_shift,
            );
        }
    }

    /// Adds the tables of call paths.
    fn add_call_paths(&self, analysis: &mut Analysis, basis: &Basis<'_>) {
        let questions = self.questions;
        if let Some(paths) = self.paths.filter(|_| self.detail.is_all()) {
            analysis.call_paths = call_paths::table(
                &self.trace.manifest.call_paths,
                paths,
                &self.outcome.samples,
                basis.times.as_ref(),
                Some(self.windows).filter(|_| questions.call_paths),
            );
        }
        if questions.by_path {
            let rows = self.paths.map(|paths| {
                let names = (self.objects, paths);
                by_path::tables(&self.trace.code, names, self.windows, basis.times.as_ref())
            });
            analysis.by_path = Some(rows.unwrap_or_default());
        }
    }

    /// Adds the heat map and the zooms in space and time.
    fn add_zooms(
        &self,
        analysis: &mut Analysis,
        basis: &Basis<'_>,
        (whole, by_code): (Counts, &ByCode),
        first: Option<time_tree::Taken>,
    ) {
        let (outcome, options, questions) = (self.outcome, self.plan.options, self.questions);
        let sizes = location::Sizes {
            block: self.plan.wanted.block_shift,
            unit: self.plan.wanted.unit_shift,
        };
        let regions = location::zoom(
            || self.entries(),
            (basis, &analysis.summary.hats),
            (&outcome.spaces, &outcome.samples),
            &self.trace.code,
            sizes,
            (questions.tau, questions.stop),
            self.objects,
        );
        let sums = outcome.buckets[0].reuse.zoom.as_deref();
        let sums = sums.filter(|_| first.is_some());
        let plan = heat_map::Plan::new(&outcome.samples, &regions, sizes.block);
        analysis.heat_map = plan.map(|plan| match sums {
            Some(sums) => plan
                .of_units(&sums.heat, &outcome.spaces, sizes.unit)
                .unwrap_or_else(|plan| plan.count(self.source, options, &outcome.samples)),
            None => plan.count(self.source, options, &outcome.samples),
        });
        let whole = time_tree::IntervalCounts::of_whole(whole, &outcome.buckets[0]);
        let tree = time_tree::zoom(
            self.source,
            options,
            &self.trace.code,
            &outcome.samples,
            basis,
            (&whole, by_code),
            &questions.look,
            first,
        );
        analysis.warnings.extend(missing(&tree, &questions.look));
        // Without samples there is no tree.
        analysis.time_zoom = Some(tree).filter(|tree| tree.root.samples > 0);
        analysis.location_zoom = Some(regions).filter(|_| outcome.census.loads > 0);
    }
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
        plan: &Plan,
    ) -> Option<Arc<Resolver>> {
        let objects = match plan.by_block.then(|| read(&trace.folder)) {
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
    fn aids(&mut self, trace: &Trace, questions: &Questions, plan: &Plan) -> Aids {
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
    fn add_pass(&mut self, trace: &Trace, source: &dyn Source, outcome: &Outcome) {
        self.damage.extend(outcome.damage.iter().cloned());
        let damage = trace.damage.iter().chain(&self.damage);
        self.warnings.extend(damage.cloned());
        self.warnings.extend(source.notes());
        if outcome.spilled.is_none() {
            self.warnings.push(format!("footprints take more memory than --memory allows, and no scratch file could be written to {}; set TMPDIR to a folder with room", std::env::temp_dir().display()));
        }
    }
}

/// The analysis, and descriptions of damage. `progress` receives the number of rows done. A filter
/// that matches nothing is an error.
pub fn examine(
    trace: &Trace,
    questions: &Questions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(Analysis, Vec<String>), FilterError> {
    let plan = Plan::new(trace, questions);
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
    let source = filtered.as_ref().map_or(source, |f| f as &dyn Source);
    let (mut outcome, first) = plan.count((trace, questions), source, &aids, progress);
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
    let (predicted, windows) = rayon::join(
        || {
            let asked = (questions, detail);
            predicted(trace, &outcome, asked, objects, &mut warnings)
        },
        || findings::windows::read(source, objects),
    );
    let (paths, no_paths) = match input::call_paths::read(&trace.folder) {
        Ok(paths) => (paths, None),
        Err(sentence) => (None, Some(sentence)),
    };
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
    let (built, found) = counted.tables_and_findings(warnings);
    let mut analysis = built.analysis;
    analysis.filter = filtered.as_ref().map(|f| f.row(&trace.manifest));
    let basis = Basis::new(&outcome, &trace.code, built.places, built.times)
        .with_misses(predicted.as_ref());
    if detail.is_all() {
        counted.add_threads(&mut analysis, &basis, aids.clone());
    }
    counted.add_objects(&mut analysis, &basis, &mixed);
    if questions.zoom {
        let counts = (built.whole, &built.by_code);
        counted.add_zooms(&mut analysis, &basis, counts, first);
    }
    analysis.warnings.extend(no_paths.clone());
    damage.extend(no_paths);
    counted.add_call_paths(&mut analysis, &basis);
    add_fields(&mut analysis.objects, found.fields);
    analysis.summary.trace.not_recorded.extend(found.lacks);
    analysis.findings = FindingList {
        list: found.list,
        none: found.none,
    };
    Ok((analysis, damage))
}

//! The pass over the rows, and the tables that are built from its counts.

use crate::data::call_paths::CallPaths;
use crate::data::counts::AccessCounts;
use crate::data::detail::Detail;
use crate::data::object_map::Resolver;
use crate::engine::{Aids, Collect, EngineOptions, EngineOutcome, analyse_with};
use crate::filter::FilterRow;
use crate::findings::windows::Window;
use crate::findings::{self, Finding, FindingBasis, Findings, Observed};
use crate::input;
use crate::input::Trace;
use crate::input::source::ChunkSource;
use crate::input::weights::Weights;
use crate::misses::Predicted;
use crate::report::additions::{add_found, add_measured};
use crate::report::prediction::Prediction;
use crate::report::questions::{Questions, hierarchy, is_thinned, sets};
use crate::report::{Analysis, Built, Material, ProcessRow, Summary, ThreadRow, threads};
use crate::stages::footprint::FootprintSet;
use crate::stages::pages::{self, UnitEntry};
use crate::stages::reuse::by_page::Wanted;
use crate::views::context::Basis;
use crate::views::location_sizes::Sizes;
use crate::views::objects::{Bounds, bounds, object_table};
use crate::views::python::{PythonTables, python_tables};
use crate::views::time_tree::{Look, TimeZoom};
use crate::views::{ByCode, by_path, call_paths, heat_map, location, time_tree};
use crate::what_if::of_findings::add_gains;
use crate::what_if::replay::Replayed;
use mgz_annotations_schema::manifest::Manifest;
use std::sync::Arc;

/// Settings of the pass over the rows, from the questions and the trace.
pub(super) struct PassPlan {
    /// True if the trace contains samples of the run rather than all of it.
    pub(super) sampled: bool,
    /// True if counts by memory block are needed: for objects, zooms or bounds of footprints.
    pub(super) by_block: bool,
    /// True if the time of rows is needed.
    pub(super) timed: bool,
    /// Sums by block.
    pub(super) wanted: Wanted,
    /// Settings of the engine. A pass over all rows adds `lines`.
    pub(super) options: EngineOptions,
}

impl PassPlan {
    pub(super) fn new(trace: &Trace, questions: &Questions) -> PassPlan {
        let conditions = &questions.filter;
        let sampled = !trace.manifest.mode.has_all_loads();
        // Samples have few rows. The sizes of the touched objects limit their footprints.
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
        PassPlan {
            sampled,
            by_block,
            timed: by_block || conditions.from.is_some() || conditions.to.is_some(),
            wanted,
            options: EngineOptions {
                zoom: by_block.then_some(wanted),
                samples: questions.zoom || sampled,
                incidence,
                sites: trace.code.site_pieces().len() as u32,
                footprint_bytes: questions.footprint_bytes,
                windows: questions.detail.is_all(),
                ..EngineOptions::new(block_shift)
            },
        }
    }

    /// The pass over the rows, whose incidence is not folded yet, and the first level of the time
    /// tree if the zooms are requested.
    pub(super) fn count(
        &self,
        (trace, questions): (&Trace, &Questions),
        source: &dyn ChunkSource,
        aids: &Aids,
        progress: &(dyn Fn(u64) + Sync),
    ) -> (EngineOutcome, Option<time_tree::Taken>) {
        let lines = self.sampled && !is_thinned(questions);
        let incidence = match self.options.incidence {
            Collect::ForEstimates => Collect::Unfolded,
            other => other,
        };
        let options = EngineOptions {
            lines: lines.then(|| sets(trace, questions)),
            incidence,
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
            // Some rows could not be read, so the remaining rows are divided by a separate pass.
            let wanted = Wanted {
                parts: false,
                ..self.wanted
            };
            let options = EngineOptions {
                zoom: Some(wanted),
                ..options
            };
            outcome = analyse_with(source, options, aids.clone(), progress);
        }
        (outcome, first)
    }
}

/// Results of the pass, and other data for the tables.
#[derive(Clone, Copy)]
pub(super) struct RowCounts<'a> {
    pub(super) trace: &'a Trace,
    pub(super) questions: &'a Questions,
    pub(super) plan: &'a PassPlan,
    pub(super) source: &'a dyn ChunkSource,
    /// Manifest of the selected part.
    pub(super) manifest: &'a Manifest,
    pub(super) outcome: &'a EngineOutcome,
    pub(super) detail: Detail,
    pub(super) objects: Option<&'a Resolver>,
    pub(super) prediction: &'a Prediction<'a>,
    /// Misses in the detail of the tables.
    pub(super) predicted: Option<&'a Predicted>,
    pub(super) windows: &'a [Window],
    pub(super) paths: Option<&'a CallPaths>,
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

    /// Makes the tables of code.
    pub(super) fn tables(&self, warnings: Vec<String>) -> Built {
        let material = Material {
            manifest: self.manifest,
            code: &self.trace.code,
            outcome: self.outcome,
            block: self.questions.block,
            estimator: self.questions.estimator,
            detail: self.detail,
            bounds: &self.bounds(),
            predicted: self.predicted,
        };
        material.build(warnings)
    }

    /// Makes the tables of code, and the findings with the predicted gains of their remedies.
    pub(super) fn tables_and_findings(
        &self,
        observed: Observed<'_>,
        warnings: Vec<String>,
        weights: Option<Arc<Weights>>,
    ) -> (Built, Findings) {
        let trace = self.trace;
        rayon::join(
            || self.tables(warnings),
            || {
                let (mut found, basis) = findings::find_findings(
                    &trace.code,
                    (self.objects, self.paths),
                    (self.windows, observed, trace.waited()),
                    (self.outcome, self.predicted),
                    &trace.manifest,
                    hierarchy(trace, self.questions),
                );
                if let Some(basis) = basis {
                    self.add_gains(basis, &mut found.list, weights);
                }
                found
            },
        )
    }

    /// Predicts what the remedies of findings would save, if the whole trace is analyzed.
    fn add_gains(
        &self,
        basis: FindingBasis<'_>,
        findings: &mut [Finding],
        weights: Option<Arc<Weights>>,
    ) {
        let is_filtered = !self.questions.filter.is_empty();
        let is_wanted = self.questions.gains && self.plan.sampled && !is_filtered;
        if !is_wanted || self.predicted.is_none() {
            return;
        }
        let replayed = Replayed {
            trace: self.trace,
            source: self.source,
            objects: self.objects,
            weights,
            hierarchy: hierarchy(self.trace, self.questions),
        };
        // Watched words keep their old addresses, so gains are predicted without watches.
        let has_watches = self.outcome.pairs.is_some();
        let unwatched = || self.prediction.unwatched();
        let unwatched =
            has_watches.then_some(&unwatched as &(dyn Fn() -> Option<Predicted> + Sync));
        add_gains(&replayed, unwatched, self.windows, basis, findings);
    }

    /// The contents of a screen.
    pub(super) fn screen(
        &self,
        built: Built,
        found: Findings,
        mixed: &FootprintSet,
        filter: Option<FilterRow>,
    ) -> Analysis {
        let mut analysis = built.analysis;
        analysis.filter = filter;
        let basis = Basis::new(self.outcome, &self.trace.code, built.places, built.times)
            .with_misses(self.predicted);
        self.add_objects(&mut analysis, &basis, mixed);
        analysis.python = self.python(&basis);
        add_measured(&mut analysis, self.trace, self.questions);
        add_found(&mut analysis, found);
        analysis
    }

    /// Adds the tables of threads, objects, zooms and call paths to those of code.
    pub(super) fn all_tables(
        &self,
        built: Built,
        mixed: &FootprintSet,
        first: Option<time_tree::Taken>,
        aids: Aids,
    ) -> Analysis {
        let mut analysis = built.analysis;
        let basis = Basis::new(self.outcome, &self.trace.code, built.places, built.times)
            .with_misses(self.predicted);
        let summary = analysis.summary.clone();
        let (threads, ()) = rayon::join(
            || (self.detail.is_all()).then(|| self.thread_tables(&summary, &basis, aids)),
            || {
                self.add_objects(&mut analysis, &basis, mixed);
                if self.questions.zoom {
                    let counts = (built.whole, &built.by_code);
                    self.add_zooms(&mut analysis, &basis, counts, first);
                }
                self.add_call_paths(&mut analysis, &basis);
            },
        );
        (analysis.threads, analysis.processes) = threads.unwrap_or_default();
        analysis
    }

    /// Makes the tables of threads and processes.
    fn thread_tables(
        &self,
        summary: &Summary,
        basis: &Basis<'_>,
        aids: Aids,
    ) -> (Vec<ThreadRow>, Vec<ProcessRow>) {
        let options = EngineOptions {
            zoom: None,
            ..self.plan.options
        };
        threads::thread_tables(
            (self.source, options),
            self.manifest,
            (&self.trace.code, basis),
            (self.outcome, summary),
            aids,
        )
    }

    /// Adds the table of objects, if they are known. A screen only needs to know if allocations are
    /// known.
    fn add_objects(&self, analysis: &mut Analysis, basis: &Basis<'_>, mixed: &FootprintSet) {
        let is_listed = |o: &&Resolver| self.detail.is_all() || o.knows_allocations();
        if let Some(objects) = self.objects.filter(is_listed) {
            analysis.objects = object_table(
                self.entries(),
                (basis, mixed, &self.outcome.samples),
                &self.outcome.spaces,
                objects,
                &self.trace.code,
                self.plan.wanted.unit_shift,
            );
        }
    }

    /// The tables of Python, if windows began in it.
    fn python(&self, basis: &Basis<'_>) -> Option<PythonTables> {
        let (samples, times) = (&self.outcome.samples, basis.times.as_ref());
        let code = &self.trace.code;
        python_tables(self.paths?, samples, times, code, self.windows)
    }

    /// Adds the tables of call paths.
    fn add_call_paths(&self, analysis: &mut Analysis, basis: &Basis<'_>) {
        let questions = self.questions;
        if let Some(paths) = self.paths.filter(|_| self.detail.is_all()) {
            analysis.call_paths = call_paths::call_path_table(
                &self.trace.manifest.call_paths,
                paths,
                &self.outcome.samples,
                basis.times.as_ref(),
                Some(self.windows).filter(|_| questions.call_paths),
            );
        }
        analysis.python = self.python(basis);
        if questions.by_path {
            let rows = self.paths.map(|paths| {
                let names = (self.objects, paths);
                by_path::tables_by_path(&self.trace.code, names, self.windows, basis.times.as_ref())
            });
            analysis.by_path = Some(rows.unwrap_or_default());
        }
    }

    /// Adds the heat map and the zooms in space and time.
    fn add_zooms(
        &self,
        analysis: &mut Analysis,
        basis: &Basis<'_>,
        (whole, by_code): (AccessCounts, &ByCode),
        first: Option<time_tree::Taken>,
    ) {
        let (outcome, options, questions) = (self.outcome, self.plan.options, self.questions);
        let sizes = Sizes {
            block: self.plan.wanted.block_shift,
            unit: self.plan.wanted.unit_shift,
        };
        let sums = outcome.buckets[0].reuse.zoom.as_deref();
        let sums = sums.filter(|_| first.is_some());
        let whole = time_tree::IntervalCounts::of_whole(whole, &outcome.buckets[0]);
        let hats = &analysis.summary.hats;
        let ((regions, map), tree) = rayon::join(
            || {
                let regions = location::zoom(
                    || self.entries(),
                    (basis, hats),
                    (&outcome.spaces, &outcome.samples),
                    &self.trace.code,
                    sizes,
                    (questions.tau, questions.stop),
                    self.objects,
                );
                let in_object = !questions.filter.objects.is_empty();
                let plan = heat_map::HeatMapPlan::new(&outcome.samples, &regions, sizes, in_object);
                let count = |plan: heat_map::HeatMapPlan| {
                    plan.count(self.source, options, &outcome.samples)
                };
                let map = plan.map(|plan| match sums {
                    Some(sums) => plan
                        .of_units(&sums.heat, &outcome.spaces, sizes.unit)
                        .unwrap_or_else(|plan| count(*plan)),
                    None => count(plan),
                });
                (regions, map)
            },
            || {
                time_tree::zoom(
                    self.source,
                    options,
                    &self.trace.code,
                    &outcome.samples,
                    basis,
                    (&whole, by_code),
                    &questions.look,
                    first,
                )
            },
        );
        analysis.heat_map = map;
        analysis.warnings.extend(missing(&tree, &questions.look));
        // Without samples the tree is left out.
        analysis.time_zoom = Some(tree).filter(|tree| tree.root.samples > 0);
        analysis.location_zoom = Some(regions).filter(|_| outcome.census.loads > 0);
    }
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
        "there is no node {}; the path goes {} instead",
        id(wanted),
        match tree.path.get(there) {
            Some(node) => format!("through {node}"),
            None if there == 0 => "no further than the run".into(),
            None => format!("no further than {}", id(&look.node[..there])),
        }
    ))
}

//! From an opened trace and the options to the whole result.

use crate::diagnose::diagnose;
use crate::input::{self, weights::Weights};
use crate::engine::{Aids, Options, analyse_with};
use crate::hats::Estimator;
use crate::input::{ColumnSet, Trace};
use crate::objects::{Resolver, read, table};
use crate::partial::{Partial, PartialError};
use crate::report::{Analysis, build};
use crate::zoom::time::Look;
use crate::zoom::{bucket_counts, heat, location, time};
use std::sync::Arc;

/// What is asked for.
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
    /// Part of the run for the time zoom.
    pub look: Look,
}

/// The first pass alone, to be written and merged later.
pub fn partial(trace: Trace, block: u64, footprint_bytes: usize, progress: &(dyn Fn(u64) + Sync)) -> Partial {
    let full = trace.manifest.mode == "full";
    let options = Options {
        samples: !full,
        incidence: !full,
        sites: trace.code.site_pieces().len() as u32,
        footprint_bytes,
        ..Options::new(block.trailing_zeros())
    };
    let source = trace.source(ColumnSet::default());
    let mut warnings = trace.warnings.clone();
    let weights = weights(&trace, &mut warnings);
    let outcome = analyse_with(&*source, options, Aids { weights, ..Aids::default() }, progress);
    warnings.extend(trace.damage.iter().chain(&outcome.damage).cloned());
    warnings.extend(source.notes());
    drop(source);
    Partial { manifest: trace.manifest, code: trace.code, outcome, block, warnings }
}

/// What the samples of a trace stand for, if not the same for all.
fn weights(trace: &Trace, warnings: &mut Vec<String>) -> Option<Arc<Weights>> {
    let read = input::weights::read(&trace.folder).unwrap_or_else(|sentence| {
        warnings.push(sentence);
        None
    });
    read.map(Arc::new)
}

/// Partial results, merged.
pub fn merge_all(paths: &[std::path::PathBuf]) -> Result<Partial, PartialError> {
    let mut all: Option<Partial> = None;
    for path in paths {
        let next = Partial::read(path)?;
        match &mut all {
            None => all = Some(next),
            Some(all) => all.merge(next).map_err(|cause| PartialError { path: path.display().to_string(), cause })?,
        }
    }
    all.ok_or_else(|| PartialError { path: "--merge".into(), cause: "no partial results were given".into() })
}

/// The tables of a partial result.
pub fn tables_of(partial: &Partial, estimator: Estimator) -> Analysis {
    let mut analysis = build(&partial.manifest, &partial.code, &partial.outcome, partial.block, estimator, partial.warnings.clone());
    analysis.diagnoses = diagnose(&analysis);
    analysis
}

/// The analysis, and the damage that it met. `progress` is told the rows done.
pub fn examine(trace: &Trace, questions: &Questions, progress: &(dyn Fn(u64) + Sync)) -> (Analysis, Vec<String>) {
    let sampled = trace.manifest.mode != "full";
    let by_block = questions.zoom || questions.objects;
    let source = trace.source(ColumnSet { time: by_block });
    let source = &*source;
    let mut damage = Vec::new();
    let objects: Option<Arc<Resolver>> = if by_block {
        read(&trace.folder).unwrap_or_else(|sentence| {
            damage.push(sentence);
            None
        })
    } else {
        None
    }
    .map(Arc::new);
    let options = Options {
        blocks: by_block,
        samples: questions.zoom || sampled,
        incidence: sampled,
        sites: trace.code.site_pieces().len() as u32,
        footprint_bytes: questions.footprint_bytes,
        ..Options::new(questions.block.trailing_zeros())
    };
    let mut warnings = trace.warnings.clone();
    let aids = Aids { objects: objects.clone(), heat: None, weights: weights(trace, &mut warnings) };
    let outcome = analyse_with(source, options, aids, progress);
    damage.extend(outcome.damage.iter().cloned());
    warnings.extend(trace.damage.iter().chain(&damage).cloned());
    warnings.extend(source.notes());
    if outcome.spilled.is_none() {
        warnings.push(format!("footprints take more memory than --memory allows, and no scratch file could be written to {}; set TMPDIR to a folder with room", std::env::temp_dir().display()));
    }
    let mut analysis = build(&trace.manifest, &trace.code, &outcome, questions.block, questions.estimator, warnings);
    if by_block {
        let bucket = &outcome.buckets[0];
        let entries = bucket.reuse.blocks.as_ref().map(|b| b.entries()).unwrap_or_default();
        if let Some(objects) = &objects {
            analysis.objects = table(&entries, &outcome.spaces, objects, &trace.code, options.block_shift);
        }
        if questions.zoom {
            let counts = bucket_counts(bucket, &trace.code);
            let regions = location::zoom(&entries, &outcome.spaces, &trace.code, options.block_shift, questions.tau, questions.stop, objects.as_deref());
            let plan = heat::Plan::new(&outcome.samples, &questions.look, &regions, options.block_shift);
            analysis.location_zoom = Some(regions);
            let marks = (&outcome.samples[..], &outcome.incidence);
            let (tree, map) = time::zoom(source, options, &trace.code, marks, (&counts.0, &counts.1), analysis.summary.rho, &questions.look, plan);
            (analysis.time_zoom, analysis.heat_map) = (Some(tree), map);
        }
    }
    analysis.diagnoses = diagnose(&analysis);
    (analysis, damage)
}

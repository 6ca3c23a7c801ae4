//! The questions of a report.

use crate::data::detail::Detail;
use crate::data::memory_units::LINE_BYTES;
use crate::estimate::row_estimates::Estimator;
use crate::filter::Conditions;
use crate::input::Trace;
use crate::input::counted::Counted;
use crate::misses::{Hierarchy, caches};
use crate::stages::set_conflicts::{LEVELS, Sets};
use crate::views::location;
use crate::views::time_tree::Look;
use mgz_annotations_schema::manifest::Cache;
use std::path::PathBuf;

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
    /// Path that the time zoom follows.
    pub look: Look,
    /// If set, the memory touched by the loads of call paths is counted.
    pub call_paths: bool,
    /// Tables by call path.
    pub by_path: bool,
    /// If set, misses are also predicted from samples. For full traces they are always counted.
    pub misses: bool,
    /// True if they were requested by name: then unknown caches of the machine are reported.
    pub asked_for_misses: bool,
    /// True if the gains of the findings' remedies are predicted.
    pub gains: bool,
    /// Caches for which misses are predicted; empty for those of the recording machine.
    pub caches: Vec<Cache>,
    /// Counts of another run of the same command.
    pub counted: Option<Counted>,
    /// A trace with memory samples of the same command, if not this one.
    pub measured: Option<PathBuf>,
    /// Extent of the result.
    pub detail: Detail,
}

impl Questions {
    /// The default questions for results built from the tables of code and objects of a whole
    /// trace. `misses` adds predicted ones.
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
            gains: misses,
            caches: Vec::new(),
            counted: None,
            measured: None,
            detail: Detail::All,
        }
    }
}

/// The requested caches, or those of the machine, or common ones.
pub(super) fn levels(trace: &Trace, questions: &Questions) -> Vec<Cache> {
    match questions.caches.is_empty() {
        true => caches::usable(&trace.manifest.caches),
        false => caches::usable(&questions.caches),
    }
}

/// The caches of [`levels`], with the measured latencies of the manifest if these belong to them.
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

/// True if some loads of a window are left out. The remaining ones do not show the behaviour of
/// caches.
pub(super) fn is_thinned(questions: &Questions) -> bool {
    !questions.filter.functions.is_empty() || !questions.filter.objects.is_empty()
}

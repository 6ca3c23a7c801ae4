//! Facts about Intel PT on this machine that `mgz-intel-pt` finds, and their absence in a build
//! without it.

use serde::Serialize;
use std::collections::BTreeMap;

/// The capability that a build without `mgz-intel-pt` lacks.
pub const NO_INTEL_PT: &str = "this build has no Intel PT";
/// The remedy.
pub const BUILD_WITH_INTEL_PT: &str = "build with --features intel-pt";

/// Answers of `perf_event_open` to this process, for one event at a time: `None` if it was not
/// tried, an empty text if it was granted, else the error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Trials {
    /// The clock of `--hot`, user code only.
    pub clock: Option<String>,
    /// The PT event that recording uses.
    pub pt: Option<String>,
    /// The PT event, to be paused and resumed by other events.
    pub pause: Option<String>,
    /// The event that counts retired loads, by core PMU.
    pub loads: BTreeMap<String, String>,
}

impl Trials {
    pub(crate) fn granted(trial: &Option<String>) -> Option<bool> {
        trial.as_ref().map(String::is_empty)
    }
}

/// Facts of `mgz-intel-pt` for the report on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PtFacts {
    /// Events that the kernel granted when asked.
    pub trials: Trials,
    /// A processor erratum that this kernel does not work around, and the remedy; empty if none is
    /// known.
    pub erratum: Vec<String>,
}

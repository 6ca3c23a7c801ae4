//! Changes of a finished program that a finding suggests: `mgz-analyze` names them, `mgz fix` tries
//! them.

use serde::{Deserialize, Serialize};

/// A change of a finished program. In JSON it is the name in lower case, with hyphens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramChange {
    /// Pages of 2 MiB, for loads that often access different pages.
    HugePages,
    /// Heap blocks in the order of their allocation: those of the finding's allocation sites, or all
    /// if no site is known.
    Pool,
    /// As `Pool`, only for known allocation sites.
    PoolOfSites,
    /// Heap blocks in separate cache lines.
    PadBlocks,
    /// Heap blocks that begin in different cache sets.
    ShiftBlocks,
    /// Prefetches of elements at indices that are loaded ahead.
    PrefetchGather,
    /// Prefetches ahead of a regular step.
    PrefetchStrided,
    /// Prefetches of a list's later nodes.
    PrefetchList,
    /// Prefetches of any kind that the code of the load allows.
    PrefetchAuto,
}

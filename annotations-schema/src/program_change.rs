//! Changes of a finished program that a finding asks for: `mgz-analyze` names them, `mgz fix` tries
//! them.

use serde::{Deserialize, Serialize};

/// A change of a finished program. In JSON it is the name in lower case, with hyphens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramChange {
    /// Pages of 2 MiB. For loads that come to other pages often.
    HugePages,
    /// Heap blocks in the order of their allocation: those of the finding's allocation sites, or all
    /// if no site is known.
    Pool,
    /// The same for known allocation sites only.
    PoolOfSites,
    /// Heap blocks with cache lines of their own.
    PadBlocks,
    /// Heap blocks that begin in different cache sets.
    ShiftBlocks,
    /// Prefetches of elements at indices that are loaded ahead.
    PrefetchGather,
    /// Prefetches ahead of a regular step.
    PrefetchStrided,
    /// Prefetches of a list's later nodes.
    PrefetchList,
    /// Prefetches by whatever the code of the load allows.
    PrefetchAuto,
}

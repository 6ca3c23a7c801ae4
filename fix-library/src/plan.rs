//! Plans: allocation sites and the placement of their blocks.

use serde::{Deserialize, Serialize};

/// Module name of the executable, whatever its file name is.
pub const EXECUTABLE: &str = "";
/// Module name of the site that represents all sites without their own policy.
pub const ANY_MODULE: &str = "*";

/// The policies of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Sites and their policies.
    pub sites: Vec<SitePolicy>,
    /// Large writable data of the executable get large pages.
    pub static_huge: bool,
}

/// The policy of an allocation site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SitePolicy {
    /// The call's frames, innermost first: one to four. The innermost one is compared exactly.
    /// Outer ones are searched among the words of the stack above, so a similar call may be taken
    /// for the site's. Innermost frames of the C++ library are ignored.
    pub frames: Vec<Frame>,
    /// The placement of the blocks.
    pub action: Action,
}

/// A return address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Name of the module's file or its soname; [`EXECUTABLE`], or [`ANY_MODULE`] with offset 0.
    pub module: String,
    /// The return address in the module's link-time addresses.
    pub offset: u64,
}

/// The placement of a site's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Blocks of sites with the same pool are placed together, in the order of their allocation.
    Pool(u32),
    /// As [`Action::Pool`], on large pages. A pool with the same number on small pages is a
    /// different one.
    HugePool(u32),
    /// Blocks of a megabyte and more get large pages.
    HugePages,
    /// Each block has separate cache lines. The n-th one begins n times `offset` behind a multiple
    /// of `align`, modulo `align`.
    Pad {
        /// A power of two from 64 to 65536.
        align: u32,
        /// A multiple of 64.
        offset: u32,
    },
    /// Pages of blocks of a megabyte and more are interleaved among the NUMA nodes.
    Interleave,
    /// Pages of blocks of a megabyte and more are placed on one NUMA node while it has room.
    Bind {
        /// Number of the node.
        node: u32,
    },
}

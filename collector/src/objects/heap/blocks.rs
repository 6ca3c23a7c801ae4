//! Choice of the heap blocks that are logged.

use clap::ValueEnum;

/// `--heap`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapBlocks {
    /// Blocks of 4 KiB and more, and a sample of smaller ones
    Sampled,
    /// Every block
    All,
    /// A sample of all blocks, for a quarter of a percent of the CPU time; none where the allocator
    /// cannot be wrapped
    Budget,
}

impl HeapBlocks {
    /// Its name in manifests.
    pub fn name(self) -> &'static str {
        match self {
            HeapBlocks::Sampled => "sampled",
            HeapBlocks::All => "all",
            HeapBlocks::Budget => "budget",
        }
    }
}

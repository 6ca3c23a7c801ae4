//! Code in the memory of a process.

/// Code that a process has mapped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Code {
    pub(super) process: u32,
    pub(super) start: u64,
    pub(super) end: u64,
    /// File, or the kernel's name in brackets; empty for code of no file.
    pub(super) path: String,
}

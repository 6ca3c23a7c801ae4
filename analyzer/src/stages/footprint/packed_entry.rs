//! Entries of footprints in 32 bytes.

/// State of one 64-byte line. `write_cache` joins several fields at once and relies on their order.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Maps {
    /// Bytes touched.
    pub bytes: u64,
    /// Bytes at which an access started.
    pub seen: u64,
    /// Bytes at which at least two accesses started.
    pub twice: u64,
}

impl Maps {
    /// Merges the state with another one.
    #[inline(always)]
    pub fn merge(&mut self, other: &Maps) {
        self.twice |= other.twice | (self.seen & other.seen);
        self.seen |= other.seen;
        self.bytes |= other.bytes;
    }
}

/// A packed entry: half a cache line. An *owner* is a group in an address space.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackedEntry {
    /// Line and owner.
    pub(super) key: u64,
    pub(super) maps: Maps,
}

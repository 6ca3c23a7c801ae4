//! A touch of a unit.

/// Counts of a touch, except for its reuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touch {
    /// Bits of the blocks.
    pub blocks: u64,
    /// Accesses that start here with this touch.
    pub starts: u64,
    /// Constant loads that these imply.
    pub implied: u64,
}

impl Touch {
    /// Adds another one.
    pub(super) fn merge(&mut self, other: &Touch) {
        self.blocks |= other.blocks;
        self.starts += other.starts;
        self.implied += other.implied;
    }
}

//! Sizes of the units of the location zoom.

/// Sizes, as powers of two.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Log2 of the bytes of a block.
    pub block: u32,
    /// Log2 of the bytes of a unit.
    pub unit: u32,
}

//! A load's class.

/// Class of one access, from data flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// `CLASS_*`.
    pub class: u8,
    /// Stride in bytes, if it is a known constant.
    pub stride: Option<i64>,
}

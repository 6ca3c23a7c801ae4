//! A change of the program that may help.

use crate::fix::document::{Cause, Recipe, Saved};

/// A remedy to try.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The finding.
    pub finding: Cause,
    /// The remedy's name in `mgz what-if`.
    pub remedy: String,
    /// Predicted gain, if it is known.
    pub predicted: Option<Saved>,
    /// The changes. Prefetches have the first distance.
    pub recipe: Recipe,
}

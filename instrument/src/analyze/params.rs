//! Limits of the data-flow analysis.
//!
//! A doc comment says what a constant decides, its unit, and its source. A function that exceeds a
//! limit keeps its loads, but more of them are Irregular. `docs/design/load-classes.md` explains
//! the analysis.

// Limits of values.
/// A sum has at most this many atoms. Larger sums are opaque. Source: Chosen.
pub(super) const MAX_ATOMS_OF_SUM: usize = 4;
/// Memory is followed if variables times blocks are at most this many. Source: Chosen, as 32
/// MiB of values.
pub(super) const MAX_CELLS: usize = 1 << 23;
/// The search for needed variables takes at most this multiple of one pass through the
/// function. Loops that hand values from variable to variable could take as many passes as they
/// have variables. Source: Chosen.
pub(super) const MAX_PASSES_OF_DEMAND: usize = 32;
/// At most this many variables are distinguished. Source: Chosen.
pub(super) const MAX_VARIABLES_OF_STRAIGHT_LINE: usize = 32;

// Limits of pointers in loops.
/// At most this many stores to one displacement in a loop are compared. Of more stores, one is
/// assumed to hit. Source: Chosen.
pub(super) const MAX_STORES_COMPARED: usize = 32;
/// A pointer's base is searched for in at most this many steps. Source: Chosen.
pub(super) const MAX_STEPS_TO_BASE: usize = 16;

// Limits of induction.
/// Deeper chains of dependence count as varying. Source: Chosen.
pub(super) const MAX_DEPTH_OF_DEPENDENCE: u32 = 24;
/// At most this many joins of paths are followed back for a phi. Source: Chosen.
pub(super) const MAX_JOINS_OF_PHI: usize = 16;

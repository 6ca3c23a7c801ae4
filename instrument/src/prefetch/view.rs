//! A function as the search for prefetches sees it.

use crate::ir::cfg::Cfg;
use crate::ir::loops::Loops;
use crate::x86::effects::Facts;

/// A function without its plan.
#[derive(Clone, Copy)]
pub struct View<'v> {
    /// Instructions and blocks.
    pub graph: &'v Cfg,
    /// Their effects.
    pub facts: &'v Facts,
    /// Loops.
    pub loops: &'v Loops,
    /// Per instruction: all flags are dead before it. Empty if none may be changed.
    pub flags: &'v [bool],
    /// The function that looks at return addresses, if this one calls functions, whose return
    /// addresses would be those of the clone.
    pub shows_returns: Option<&'v String>,
}

//! A rewritten file.

use crate::pipeline::prefetched::Prefetch;
use crate::report::Report;
use crate::sidecar::Annotations;
use std::any::Any;

/// The result.
#[derive(Debug)]
pub struct Rewritten<W> {
    /// State of the new file's image.
    pub begun: W,
    /// Its sidecar, to which the report is still to be added.
    pub annotations: Annotations,
    /// Figures.
    pub report: Report,
    /// Outcomes of prefetches, by address.
    pub prefetches: Vec<Prefetch>,
    /// Memory to be freed. Freeing takes a while, which is wasted if the process ends.
    pub leftovers: Box<dyn Any + Send>,
}

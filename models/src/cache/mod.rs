//! Caches: the stack-distance cache model, distances inside sets, and exact simulators of
//! set-associative caches.
//!
//! | module | content |
//! |---|---|
//! | [`shape`] | size, ways and line of a cache |
//! | [`model`] | P(h\|D): hits from reuse distances alone, with random sets (Barai et al., equation 2) |
//! | [`sets`] | hits from distances inside the sets of the cache, measured on all sets or on a sample |
//! | [`simulate`] | chains of exact LRU caches |
//! | [`policy`] | replacement policies |
//! | [`spec`] | description of a level of a hierarchy |
//! | [`system`] | exact hierarchies of several cores: policies, inclusion, write-backs |
//! | [`prefetch`] | next-line and stride prefetchers, and the misses that they would have foreseen |
//! | [`coherence`] | lines that cores take from each other, true and false sharing |
//! | [`tlb`] | translation look-aside buffers |

pub mod coherence;
mod level;
pub mod model;
pub mod policy;
pub mod prefetch;
pub mod sets;
pub mod shape;
pub mod simulate;
pub mod spec;
pub mod system;
pub mod tlb;

pub use model::{expected_hits, hit_probability};
pub use policy::Policy;
pub use sets::{SetDistances, SetHits};
pub use shape::{Shape, ShapeError};
pub use simulate::{Cache, Hierarchy, LevelCounts};
pub use spec::{Inclusion, LevelSpec};
pub use system::{Seen, System};

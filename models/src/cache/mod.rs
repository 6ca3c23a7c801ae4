//! Caches: the stack-distance cache model, distances inside sets, and an exact simulator of
//! set-associative LRU caches.
//!
//! | module | what |
//! |---|---|
//! | [`shape`] | size, ways and line of a cache |
//! | [`model`] | P(h\|D): hits from reuse distances alone, sets being random (Barai et al., equation 2) |
//! | [`sets`] | hits from distances inside the sets of the cache, measured on all sets or on a sample of them |
//! | [`simulate`] | exact caches and hierarchies |

pub mod model;
pub mod sets;
pub mod shape;
pub mod simulate;

pub use model::{expected_hits, hit_probability};
pub use sets::{SetDistances, SetHits};
pub use shape::{Shape, ShapeError};
pub use simulate::{Cache, Hierarchy, LevelCounts};

//! Remedies. Each has a file with its kind.

mod exchange_loops;
mod hot_cold;
mod huge_pages;
mod interleave;
mod pack;
mod pad;
mod pool;
mod prefetch;
mod reorder;
mod smaller_elements;
mod sort;
mod split;
mod transpose;

use crate::what_if::remedy::Kind;

/// All kinds.
pub(crate) const KINDS: [&Kind; 13] = [
    &smaller_elements::SMALLER_ELEMENTS,
    &split::SPLIT,
    &interleave::INTERLEAVE,
    &hot_cold::HOT_COLD,
    &pack::PACK,
    &reorder::REORDER,
    &transpose::TRANSPOSE,
    &exchange_loops::EXCHANGE_LOOPS,
    &pool::POOL,
    &sort::SORT,
    &prefetch::PREFETCH,
    &pad::PAD,
    &huge_pages::HUGE_PAGES,
];

//! Remedies. Each has a file with its kind.

mod align;
mod block;
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
mod stream_stores;
mod transpose;
mod wider_nodes;

use crate::what_if::remedy::Kind;

/// All kinds.
pub(crate) const KINDS: [&Kind; 17] = [
    &smaller_elements::SMALLER_ELEMENTS,
    &split::SPLIT,
    &interleave::INTERLEAVE,
    &hot_cold::HOT_COLD,
    &pack::PACK,
    &reorder::REORDER,
    &transpose::TRANSPOSE,
    &exchange_loops::EXCHANGE_LOOPS,
    &block::BLOCK,
    &pool::POOL,
    &wider_nodes::WIDER_NODES,
    &sort::SORT,
    &prefetch::PREFETCH,
    &pad::PAD,
    &align::ALIGN,
    &stream_stores::STREAM_STORES,
    &huge_pages::HUGE_PAGES,
];

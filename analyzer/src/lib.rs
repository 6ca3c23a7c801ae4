//! Footprint, reuse and zoom analysis of mgz traces.
//!
//! A trace has hundreds of millions of rows. Its footprint has to be counted exactly for every
//! function and line, and exact reuse distance in tables larger than the cache costs a few cache
//! misses per access. So there is one pass over the rows, in chunks. The stages run in parallel on
//! all cores: footprints take chunks in any order; reuse, windows, strides and line visits take
//! samples.
//!
//! Guarantees: every number without `_hat` in its name is an exact count over the recorded rows, as
//! defined in `docs/reference/metrics.md`; estimates are marked. Memory does not grow with the
//! number of rows; footprints beyond a limit go to scratch files. No input causes a panic:
//! unreadable parts are skipped, counted and reported.
//!
//! This library is the core. Exports (`mgz-export`), locality models (`mgz-model-commands`) and the
//! command `mgz-analyze` are crates above it.
//!
//! The stages work on slices ([`data::rows`]); files and threads are handled only in ([`input`],
//! [`engine`]).

pub mod cli;
pub mod commands;
pub mod compare;
pub mod data;
pub mod engine;
pub mod estimate;
pub mod filter;
pub mod findings;
pub mod input;
pub mod measured;
pub mod misses;
pub mod output;
pub mod query;
pub mod ranks;
pub mod report;
pub mod stages;
pub mod util;
pub mod views;
pub mod what_if;

pub use mgz_models::reuse;
pub use mgz_models::util::interner;
pub(crate) use mgz_models::util::memory::{large_vec, prefetch, prefetch_at};

//! Footprint, reuse and zoom analysis of mgz traces.
//!
//! What makes this hard: a trace has hundreds of millions of rows, its footprint has to be counted
//! exactly for every function and line, and exact reuse distance outside the cache costs a few cache
//! misses per access. Hence one pass over the rows, in chunks, with three independent stages
//! ([`footprint`], [`reuse`], [`windows`]) that run side by side on all cores, and prefetching in each.
//!
//! What it guarantees: every number without `_hat` in its name is an exact count over the recorded
//! rows, as defined in `docs/mgz-analyze.md`; estimates are marked. Memory does not grow with the number of rows;
//! footprints beyond a bound go to scratch files. No input makes it panic:
//! what cannot be read is skipped, counted and reported.
//!
//! The stages work on slices ([`rows`]); files and threads are at the edge ([`input`], [`engine`]).

pub mod available;
pub mod blocks;
pub mod cli;
pub mod code;
pub mod commands;
pub mod diagnose;
pub mod engine;
pub mod estimate;
pub mod examine;
pub mod export;
pub mod fold;
pub mod footprint;
mod frame;
pub mod growth;
pub mod hats;
pub mod histogram;
pub mod human;
pub mod incidence;
pub mod input;
mod keys;
pub mod metrics;
pub mod mix;
pub mod objects;
pub mod partial;
mod places;
mod radix;
pub mod report;
pub mod rows;
pub mod shares;
pub mod strides;
pub mod tables;
pub mod totals;
mod trial;
pub mod windows;
pub mod zoom;

pub(crate) use mgz_models::memory::{large_vec, prefetch, prefetch_at};
pub use mgz_models::{names, reuse};

//! The locality models of mgz, as pure algorithms: streams of addresses and histograms in, numbers out.
//!
//! Nothing here knows of trace folders, files or command lines: `mgz-analyzer` feeds these modules, and
//! `mgz-collector` uses [`rdx`] while a program runs.
//!
//! | module | what | source |
//! |---|---|---|
//! | [`reuse`] | exact reuse distance and interval of a stream | definition in `docs/mgz-analyze.md` |

pub mod approx;
pub mod cache;
pub mod emd;
pub mod histogram;
pub mod memory;
pub mod miss_ratio;
mod prefix;
mod rank;
pub mod reuse;
pub mod scale_tree;
pub mod time_to_stack;

pub(crate) use memory::{large_vec, prefetch};

//! The locality models of mgz, as pure algorithms from streams of addresses and histograms to
//! numbers.
//!
//! The modules are independent of trace folders, files and command lines. `mgz-analyzer` calls
//! them.
//!
//! | module | what | source |
//! |---|---|---|
//! | [`reuse`] | exact reuse distance and interval of a stream | definition in `docs/reference/metrics.md` |
//! | [`reuse::scale_tree`], [`reuse::approx`] | approximate reuse distance with a bound, in logarithmic space | Zhong, Shen, Ding 2009 |
//! | [`histogram`] | log, linear, log-linear and reference histograms, similarity of histograms | the same; RDX |
//! | [`miss_ratio`] | miss ratio of fully associative LRU caches of all sizes | Mattson et al. 1970 |
//! | [`predict`] | histograms of other inputs from those of training inputs | Zhong, Shen, Ding 2009 |
//! | [`sampling::rdx`] | time distances from sampled accesses and watchpoints | Wang, Liu, Chabbi 2019 |
//! | [`sampling::time_to_stack`] | reuse distances from time distances | Shen et al. 2007 |
//! | [`cache`] | hit probability by reuse distance; exact set-associative LRU simulator | Barai et al. 2019; Brehob and Enbody 1999 |
//! | [`threads::interleave`] | orders of several threads' accesses | Barai et al. 2019 |
//! | [`emd`] | Earth Mover's Distance of signatures | Cabrera et al. 2019 |
//! | [`footprint`] | mean footprint of windows of every length | Xiang et al. 2011 |
//! | [`statistics`] | distributions, intervals, medians, tests | textbooks, named there |
//! | [`affinity`] | affinity, interval and density of pairs of places | MemFriend 2024 |
//! | [`clusters`] | groups of similar windows, and their number | Hamerly et al. 2005 (SimPoint 3.0) |
//! | [`affinity_groups`] | groups by reference affinity and by k-distance | Zhong et al. 2004 |

pub mod affinity;
pub mod affinity_groups;
pub mod cache;
pub mod clusters;
pub mod emd;
pub mod footprint;
pub mod histogram;
mod joined;
pub mod miss_ratio;
pub mod predict;
pub mod reuse;
pub mod sampling;
pub mod statistics;
pub mod threads;
pub mod util;

pub(crate) use crate::util::memory::{large_vec, prefetch};

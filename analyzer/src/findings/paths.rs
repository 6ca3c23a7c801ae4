//! Call paths to the code of a finding.

use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::users::function_of;
use std::collections::{BTreeMap, BTreeSet};

/// The most frequent call path.
#[derive(Debug, Default)]
pub(super) struct Called {
    /// Outermost call first. Empty if unknown.
    pub calls: Vec<String>,
    /// Share of the windows with a known path, in percent.
    pub share: Option<f64>,
}

/// Most frequent path among windows that began in the function, or in one that it called. Paths of
/// other windows are unknown.
pub(super) fn most_frequent_path(context: &Context, cause: &Cause) -> Called {
    let Some(paths) = context.paths else {
        return Called::default();
    };
    // By window: functions of the finding's loads, and number of these loads.
    let mut windows: BTreeMap<u32, (BTreeSet<&str>, u64)> = BTreeMap::new();
    for &site in &cause.sites {
        let Some(facts) = context.sites.get(&site) else {
            continue;
        };
        let Some(function) = function_of(context.code, facts.group.piece()) else {
            continue;
        };
        for of_window in context.places_of_site(site).chunk_by(|a, b| a.0 == b.0) {
            let seen = windows.entry(of_window[0].0).or_default();
            seen.0.insert(function);
            seen.1 += of_window.len() as u64;
        }
    }
    let mut by_call: BTreeMap<u32, u64> = BTreeMap::new();
    for (number, (functions, rows)) in windows {
        let Some(window) = context.windows.get(number as usize) else {
            continue;
        };
        let leaf = paths.of(window.sample);
        let call = functions.iter().filter_map(|f| paths.find(leaf, f)).max();
        if let Some(call) = call {
            *by_call.entry(call).or_default() += rows;
        }
    }
    let all: u64 = by_call.values().sum();
    let most = by_call
        .iter()
        .max_by_key(|&(&call, &rows)| (rows, std::cmp::Reverse(call)));
    most.map_or_else(Called::default, |(&call, &rows)| Called {
        calls: paths.text(call),
        share: Some(rows as f64 * 100.0 / all.max(1) as f64),
    })
}

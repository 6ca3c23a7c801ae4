//! Collects the outcomes of prefetches from the functions.

use crate::common::prefetch::{Outcome, Placed, Request};
use crate::sidecar::Entry;
use mgz_annotations_schema::lock::locked;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Outcome for one load, with its function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefetch {
    /// Link-time address of the load.
    pub address: u64,
    /// Name of the function that holds it (mangled), empty if it is unknown.
    pub function: String,
    /// The prefetch, or why there is none.
    pub result: Result<Placed, String>,
}

/// Outcomes so far, by number of the function.
#[derive(Debug, Default)]
pub struct Prefetches(Mutex<Vec<(usize, Found)>>);

/// The results for one function.
#[derive(Debug)]
enum Found {
    /// Outcomes of its loads.
    Loads(Vec<Outcome>),
    /// It stays unchanged, for this reason.
    Left(String),
}

impl Prefetches {
    fn found(&self) -> MutexGuard<'_, Vec<(usize, Found)>> {
        locked(&self.0)
    }

    /// Adds a function's outcomes.
    pub fn put(&self, function: usize, outcomes: Vec<Outcome>) {
        if !outcomes.is_empty() {
            self.found().push((function, Found::Loads(outcomes)));
        }
    }

    /// Notes that a function has no clone after all.
    pub fn fail(&self, function: usize, why: &str) {
        let mut found = self.found();
        found.retain(|f| f.0 != function);
        found.push((function, Found::Left(why.to_owned())));
    }

    /// All outcomes, by address. Each requested load has one.
    pub fn all(self, request: &Request, functions: &[Entry]) -> Vec<Prefetch> {
        let mut found = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        found.sort_unstable_by_key(|f| f.0);
        let mut all = Vec::new();
        let name = |function: usize| functions.get(function).map(|f| f.name.clone());
        for (function, found) in &mut found {
            if let Found::Loads(outcomes) = found {
                all.extend(outcomes.drain(..).map(|o| Prefetch {
                    address: o.address,
                    function: name(*function).unwrap_or_default(),
                    result: o.result,
                }));
            }
        }
        let Request::Loads(loads) = request else {
            return all;
        };
        let known: Vec<u64> = all.iter().map(|p| p.address).collect();
        for &address in loads.keys() {
            if known.binary_search(&address).is_ok() {
                continue;
            }
            let function = functions.partition_point(|f| f.range.start <= address);
            let function = function.checked_sub(1);
            let function = function.filter(|&f| functions[f].range.contains(&address));
            let left = function.and_then(|f| {
                let at = found.binary_search_by_key(&f, |found| found.0).ok()?;
                match &found[at].1 {
                    Found::Left(why) => Some(why.clone()),
                    Found::Loads(_) => None,
                }
            });
            let why = match (function, left) {
                (None, _) => "the address is in no function of this file".to_owned(),
                (_, Some(why)) => format!("its function is left as it is: {why}"),
                (_, None) => "its function is left as it is".to_owned(),
            };
            all.push(Prefetch {
                address,
                function: function.and_then(name).unwrap_or_default(),
                result: Err(why),
            });
        }
        all.sort_by_key(|p| p.address);
        all
    }
}

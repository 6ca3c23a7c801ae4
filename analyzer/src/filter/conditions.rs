//! Conditions of a filter, their meaning for a trace, and errors of conditions that match nothing.

use crate::data::code_map::CodeMap;
use crate::data::object_map::Resolver;
use crate::data::samples::SampleInfo;
use mgz_annotations_schema::manifest::Manifest;
use regex::Regex;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

/// Source: Chosen.
const MAX_LISTED_NAMES: usize = 8;

/// Conditions given by the user. Those of one kind are alternatives; different kinds must all
/// match.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// Ids or names of threads.
    pub threads: Vec<String>,
    /// Ids or names of processes.
    pub processes: Vec<String>,
    /// Names of functions.
    pub functions: Vec<Regex>,
    /// Names of objects.
    pub objects: Vec<Regex>,
    /// Ranges of memory, first and last address.
    pub addresses: Vec<(u64, u64)>,
    /// Seconds after the first sample.
    pub from: Option<f64>,
    /// Seconds after the first sample.
    pub to: Option<f64>,
}

/// A condition, with the structure of its JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Condition {
    /// Option of the command line.
    pub option: &'static str,
    /// Its value.
    pub value: String,
    /// Matching threads, processes, functions or objects; empty for times.
    pub matched: Vec<String>,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.option, self.value)
    }
}

/// Why a filter leaves nothing.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// No thread or process has that id or name.
    #[error("{option} {value}: no {kind} with this id or name was recorded; there are: {there}")]
    Unknown {
        /// Option of the command line.
        option: &'static str,
        /// Its value.
        value: String,
        /// Kind of the name: thread or process.
        kind: &'static str,
        /// Existing names.
        there: String,
    },
    /// No rows meet the conditions.
    #[error("{conditions}: nothing of the trace is left; {there}")]
    Nothing {
        /// All conditions, as text.
        conditions: String,
        /// Existing names.
        there: String,
    },
    /// The trace has no data objects.
    #[error(
        "--object: the trace has no data objects (no objects.parquet), so none can be chosen; record again with this mgz-record, or leave the option out"
    )]
    NoObjects,
}

/// The first names of a list, and how many more there are.
pub(crate) fn shortened(names: impl Iterator<Item = String>) -> String {
    let mut known = HashSet::new();
    let names: Vec<String> = names.filter(|n| known.insert(n.clone())).collect();
    let mut text = names[..names.len().min(MAX_LISTED_NAMES)].join(", ");
    match names.len() {
        0 => text.push_str("none"),
        n if n > MAX_LISTED_NAMES => text.push_str(&format!(" and {} more", n - MAX_LISTED_NAMES)),
        _ => {}
    }
    text
}

/// `1234 (name)`.
pub(crate) fn id_and_name(id: u32, name: &str) -> String {
    if name.is_empty() {
        id.to_string()
    } else {
        format!("{id} ({name})")
    }
}

/// Process, thread and name of each thread, by id.
pub(crate) fn names(manifest: &Manifest, samples: &[SampleInfo]) -> BTreeMap<(u32, u32), String> {
    let mut names: BTreeMap<(u32, u32), String> = samples
        .iter()
        .map(|s| ((s.process, s.thread), String::new()))
        .collect();
    for t in &manifest.threads {
        let name = names.entry((t.process, t.thread)).or_default();
        if name.is_empty() {
            name.clone_from(&t.name);
        }
    }
    names
}

/// The name of a process is that of its first thread.
pub(crate) fn process_name(names: &BTreeMap<(u32, u32), String>, process: u32) -> &str {
    names.get(&(process, process)).map_or("", String::as_str)
}

impl Conditions {
    /// True if there are no conditions.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
            && self.processes.is_empty()
            && self.functions.is_empty()
            && self.objects.is_empty()
            && self.addresses.is_empty()
            && self.from.is_none()
            && self.to.is_none()
    }

    /// The threads that the conditions select.
    pub(crate) fn threads_of(
        &self,
        manifest: &Manifest,
        samples: &[SampleInfo],
        told: &mut Vec<Condition>,
    ) -> Result<Option<HashSet<(u32, u32)>>, FilterError> {
        if self.threads.is_empty() && self.processes.is_empty() {
            return Ok(None);
        }
        let names = names(manifest, samples);
        let mut found: HashSet<(u32, u32)> = names.keys().copied().collect();
        let is = |value: &str, id: u32, name: &str| {
            value.parse() == Ok(id) || !name.is_empty() && value == name
        };
        if !self.threads.is_empty() {
            let mut threads = HashSet::new();
            for value in &self.threads {
                let of: Vec<_> = names
                    .iter()
                    .filter(|((_, thread), name)| is(value, *thread, name))
                    .collect();
                if of.is_empty() {
                    let there = names.iter().map(|(id, name)| id_and_name(id.1, name));
                    return Err(FilterError::Unknown {
                        option: "--thread",
                        value: value.clone(),
                        kind: "thread",
                        there: shortened(there),
                    });
                }
                threads.extend(of.iter().map(|t| *t.0));
                told.push(Condition {
                    option: "--thread",
                    value: value.clone(),
                    matched: of
                        .iter()
                        .map(|(id, name)| id_and_name(id.1, name))
                        .collect(),
                });
            }
            found.retain(|t| threads.contains(t));
        }
        if !self.processes.is_empty() {
            let all: BTreeSet<u32> = names.keys().map(|id| id.0).collect();
            let mut processes = HashSet::new();
            for value in &self.processes {
                let of = all
                    .iter()
                    .filter(|&&p| is(value, p, process_name(&names, p)));
                let of: Vec<u32> = of.copied().collect();
                let text = |&p: &u32| id_and_name(p, process_name(&names, p));
                if of.is_empty() {
                    return Err(FilterError::Unknown {
                        option: "--process",
                        value: value.clone(),
                        kind: "process",
                        there: shortened(all.iter().map(text)),
                    });
                }
                told.push(Condition {
                    option: "--process",
                    value: value.clone(),
                    matched: of.iter().map(text).collect(),
                });
                processes.extend(of);
            }
            found.retain(|t| processes.contains(&t.0));
        }
        Ok(Some(found))
    }

    /// Selected pieces of code: functions of the given names, and code inlined from such functions.
    pub(crate) fn code_of(&self, code: &CodeMap, told: &mut Vec<Condition>) -> Option<Vec<bool>> {
        if self.functions.is_empty() {
            return None;
        }
        let mut pieces = vec![false; code.pieces.len()];
        for wanted in &self.functions {
            let mut matched = BTreeSet::new();
            for (has, piece) in pieces.iter_mut().zip(&code.pieces) {
                let names = [
                    &code.functions[piece.function as usize].function,
                    &code.lines[piece.line as usize].function,
                ];
                for name in names.into_iter().filter(|name| wanted.is_match(name)) {
                    *has = true;
                    matched.insert(name.clone());
                }
            }
            told.push(Condition {
                option: "--function",
                value: wanted.to_string(),
                matched: matched.into_iter().collect(),
            });
        }
        Some(pieces)
    }

    /// The objects that the conditions select.
    pub(crate) fn objects_of(
        &self,
        objects: Option<&Resolver>,
        told: &mut Vec<Condition>,
    ) -> Result<Option<Vec<bool>>, FilterError> {
        if self.objects.is_empty() {
            return Ok(None);
        }
        let resolver = objects.ok_or(FilterError::NoObjects)?;
        let mut all = vec![false; resolver.objects.len()];
        for wanted in &self.objects {
            let mut matched = BTreeSet::new();
            for (has, object) in all.iter_mut().zip(&resolver.objects) {
                if wanted.is_match(&object.name) {
                    *has = true;
                    matched.insert(object.name.clone());
                }
            }
            told.push(Condition {
                option: "--object",
                value: wanted.to_string(),
                matched: matched.into_iter().collect(),
            });
        }
        Ok(Some(all))
    }

    /// Appends the conditions on addresses and times to `told`.
    pub(crate) fn places_and_times(&self, told: &mut Vec<Condition>) {
        told.extend(self.addresses.iter().map(|(first, last)| Condition {
            option: "--addresses",
            value: format!("{first:#x}-{last:#x}"),
            matched: Vec::new(),
        }));
        for (option, seconds) in [("--from", self.from), ("--to", self.to)] {
            told.extend(seconds.map(|seconds| Condition {
                option,
                value: seconds.to_string(),
                matched: Vec::new(),
            }));
        }
    }
}

//! Allocation sites of findings, and candidates that place their blocks differently.
//!
//! A finding without known sites gets a remedy for all heap blocks.

use crate::fix::candidate::Candidate;
use crate::fix::document::{Cause, Recipe};
use crate::fix::params;
use mgz_annotations_schema::ProgramChange;
use mgz_fix_library::{ANY_MODULE, Action, EXECUTABLE, Frame, MAX_FRAMES, Plan, SitePolicy};
use serde_json::Value;
use std::path::Path;

/// Facts about the run and the machine that decide which remedies make sense.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Number of threads of the recorded run.
    pub threads: usize,
    /// Number of the machine's NUMA nodes with memory.
    pub nodes: usize,
}

impl Surroundings {
    /// The facts of a run from the manifest of its trace. `system`: the folder that is usually
    /// `/sys`.
    pub fn of(manifest: &Value, system: &Path) -> Surroundings {
        Surroundings {
            threads: manifest["threads"].as_array().map_or(1, Vec::len),
            nodes: nodes(system).unwrap_or(1),
        }
    }
}

/// Number of nodes with memory, from the kernel's list: `0-1,4`.
fn nodes(system: &Path) -> Option<usize> {
    let path = system.join("devices/system/node/has_memory");
    let text = std::fs::read_to_string(path).ok()?;
    let count = |range: &str| -> Option<usize> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some(last.checked_sub(first)? + 1)
    };
    text.trim().split(',').map(count).sum()
}

/// An allocation site of a finding.
#[derive(Clone, Debug, PartialEq)]
struct Site {
    /// Name of its blocks.
    object: String,
    /// Bytes of the largest block.
    largest: u64,
    /// Frames of each call stack, innermost first.
    stacks: Vec<Vec<Frame>>,
}

/// The frames of `MODULE+0xOFFSET < MODULE+0xOFFSET`. `module`: file name of the program.
fn frames(stack: &str, module: &str) -> Option<Vec<Frame>> {
    let frame = |text: &str| {
        let (name, offset) = text.rsplit_once("+0x")?;
        let name = match name == module {
            true => EXECUTABLE,
            false => name,
        };
        Some(Frame {
            module: name.to_owned(),
            offset: u64::from_str_radix(offset, 16).ok()?,
        })
    };
    let parts = stack.split(" < ").take(MAX_FRAMES);
    let all: Option<Vec<Frame>> = parts.map(frame).collect();
    all.filter(|frames| !frames.is_empty())
}

/// The sites of a finding in an analysis.
fn sites(finding: &Value, module: &str) -> Vec<Site> {
    let list = finding["allocation_sites"].as_array();
    let site = |value: &Value| {
        let stacks = value["return_addresses"].as_array()?.iter();
        let stacks: Vec<Vec<Frame>> = stacks.filter_map(|s| frames(s.as_str()?, module)).collect();
        (!stacks.is_empty()).then(|| Site {
            object: value["object"].as_str().unwrap_or_default().to_owned(),
            largest: value["largest_bytes"].as_u64().unwrap_or(0),
            stacks,
        })
    };
    list.into_iter().flatten().filter_map(site).collect()
}

/// Adds the policies of a site, unless it has one.
fn add(plan: &mut Plan, site: &Site, action: Action) {
    for frames in &site.stacks {
        if plan.sites.iter().all(|s| s.frames != *frames) {
            plan.sites.push(SitePolicy {
                frames: frames.clone(),
                action,
            });
        }
    }
}

/// Readable names of sites.
fn names(sites: &[&Site]) -> String {
    let mut names: Vec<&str> = sites.iter().map(|s| s.object.as_str()).collect();
    names.dedup();
    names.join(" and ")
}

/// Makes candidates that place data, from one finding after the other.
pub struct Placing<'a> {
    /// File name of the program.
    pub module: &'a str,
    /// Facts about run and machine.
    pub surroundings: Surroundings,
    /// Number of the next pool.
    pools: u32,
    /// Sites whose large blocks get large pages.
    huge: Vec<Site>,
    /// The first finding of scattered loads, and true if the large data of one such finding are
    /// unknown.
    scattered: Option<(Cause, bool)>,
}

impl<'a> Placing<'a> {
    /// A state without findings.
    pub fn new(module: &'a str, surroundings: Surroundings) -> Placing<'a> {
        Placing {
            module,
            surroundings,
            pools: 0,
            huge: Vec::new(),
            scattered: None,
        }
    }

    /// Candidates of a finding, besides those of [`Placing::huge_pages`]. `changes`: those that its
    /// mechanism suggests.
    pub fn candidates(
        &mut self,
        cause: &Cause,
        changes: &[ProgramChange],
        finding: &Value,
    ) -> Vec<Candidate> {
        let sites = sites(finding, self.module);
        let mut found = Vec::new();
        for change in changes {
            match change {
                ProgramChange::HugePages => self.note_scattered(cause, &sites),
                ProgramChange::Pool if sites.is_empty() => found.push(pool_of_all(cause)),
                ProgramChange::Pool | ProgramChange::PoolOfSites => {
                    found.extend(self.pool(cause, &sites));
                }
                ProgramChange::PadBlocks => found.extend(apart(cause, &sites)),
                ProgramChange::ShiftBlocks => found.extend(shifted(cause, &sites)),
                ProgramChange::PrefetchGather
                | ProgramChange::PrefetchStrided
                | ProgramChange::PrefetchList
                | ProgramChange::PrefetchAuto => {}
            }
        }
        if self.surroundings.nodes > 1 && self.surroundings.threads > 1 {
            found.extend(interleaved(cause, &sites));
        }
        found
    }

    /// The candidate with large pages for all findings of scattered loads together. If the data of
    /// one finding are not known heap blocks, all data get large pages.
    pub fn huge_pages(self) -> Option<Candidate> {
        let (cause, is_unknown) = self.scattered?;
        if is_unknown {
            let policy = policy_of_all(Action::HugePages);
            return Some(candidate(cause, "huge-pages of all data", policy, true));
        }
        let mut plan = Plan::default();
        for site in &self.huge {
            add(&mut plan, site, Action::HugePages);
        }
        let sites: Vec<&Site> = self.huge.iter().collect();
        let remedy = format!("huge-pages of {}", names(&sites));
        (!plan.sites.is_empty()).then(|| candidate(cause, &remedy, plan.sites, false))
    }

    fn note_scattered(&mut self, cause: &Cause, sites: &[Site]) {
        // Large pages do not help small blocks.
        let is_unknown = sites.is_empty();
        for site in sites.iter().filter(|s| s.largest >= params::LARGE_BLOCK) {
            if !self.huge.contains(site) {
                self.huge.push(site.clone());
            }
        }
        let noted = self.scattered.get_or_insert_with(|| (cause.clone(), false));
        noted.1 |= is_unknown;
    }

    /// A candidate that places blocks of one traversal next to each other.
    fn pool(&mut self, cause: &Cause, sites: &[Site]) -> Option<Candidate> {
        let small: Vec<&Site> = sites
            .iter()
            .filter(|s| s.largest <= params::LARGEST_NODE)
            .collect();
        self.pools += 1;
        let mut plan = Plan::default();
        for site in &small {
            add(&mut plan, site, Action::HugePool(self.pools));
        }
        let remedy = format!("pool of {}", names(&small));
        (!small.is_empty()).then(|| candidate(cause.clone(), &remedy, plan.sites, false))
    }
}

/// Without return addresses the nodes cannot be distinguished from other blocks, so all are pooled.
fn pool_of_all(cause: &Cause) -> Candidate {
    let policy = policy_of_all(Action::HugePool(0));
    candidate(cause.clone(), "pool of all heap blocks", policy, false)
}

/// A candidate that gives blocks of several threads separate lines.
fn apart(cause: &Cause, sites: &[Site]) -> Option<Candidate> {
    let small: Vec<&Site> = (sites.iter())
        .filter(|s| s.largest <= params::LARGEST_NODE)
        .collect();
    let mut plan = Plan::default();
    for site in &small {
        let action = Action::Pad {
            align: params::SHARING_UNIT,
            offset: 0,
        };
        add(&mut plan, site, action);
    }
    let remedy = format!("padding of {}", names(&small));
    (!small.is_empty()).then(|| candidate(cause.clone(), &remedy, plan.sites, false))
}

/// A candidate in which blocks begin in different sets. Each site has a different step, because its
/// first block is one step behind a page.
fn shifted(cause: &Cause, sites: &[Site]) -> Option<Candidate> {
    let mut plan = Plan::default();
    for (number, site) in sites.iter().enumerate() {
        let lines = params::FIRST_SHIFT_LINES + 2 * number as u32;
        let action = Action::Pad {
            align: params::SET_UNIT,
            offset: lines * params::LINE,
        };
        add(&mut plan, site, action);
    }
    let all: Vec<&Site> = sites.iter().collect();
    let remedy = format!("shift of {}", names(&all));
    (!all.is_empty()).then(|| candidate(cause.clone(), &remedy, plan.sites, false))
}

/// A candidate that interleaves pages of large shared blocks among the nodes.
fn interleaved(cause: &Cause, sites: &[Site]) -> Option<Candidate> {
    let large: Vec<&Site> = (sites.iter())
        .filter(|s| s.largest >= params::LARGE_BLOCK)
        .collect();
    let mut plan = Plan::default();
    for site in &large {
        add(&mut plan, site, Action::Interleave);
    }
    let remedy = format!("interleaving of {}", names(&large));
    (!large.is_empty()).then(|| candidate(cause.clone(), &remedy, plan.sites, false))
}

/// The policy for all sites.
fn policy_of_all(action: Action) -> Vec<SitePolicy> {
    vec![SitePolicy {
        frames: vec![Frame {
            module: ANY_MODULE.into(),
            offset: 0,
        }],
        action,
    }]
}

fn candidate(cause: Cause, remedy: &str, sites: Vec<SitePolicy>, static_huge: bool) -> Candidate {
    Candidate {
        finding: cause,
        remedy: remedy.into(),
        predicted: None,
        recipe: Recipe {
            loads: Vec::new(),
            library: Plan { sites, static_huge },
        },
    }
}

#[cfg(test)]
mod tests;

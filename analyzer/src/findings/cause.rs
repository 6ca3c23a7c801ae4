//! Groups of loads that are slow for one reason in one part of the user's code.

use crate::data::code_map::LineName;
use crate::findings::caches::Overlap;
use crate::findings::context::Context;
use crate::findings::mechanisms::{Claim, Nodes, RULES, Rule};
use crate::findings::params;
use crate::findings::sites::SiteFacts;
use crate::findings::working_set::WorkingSet;
use crate::util::fast_hash::Mixed;
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Loads with one reason in one part of the code.
pub struct Cause {
    /// The mechanism.
    pub rule: &'static Rule,
    /// The user's line with most of the cost.
    pub line: LineName,
    /// Other lines, the most costly first.
    pub lines: Vec<LineName>,
    /// Load instructions, the most costly first.
    pub sites: Vec<u32>,
    /// Number of rows.
    pub rows: u64,
    /// First touches of a line in a window.
    pub firsts: u64,
    /// First touches of a page in a window.
    pub first_pages: u64,
    /// Objects and rows, most first.
    pub objects: Vec<(u32, u64)>,
    /// Memory that the loads go through.
    pub set: WorkingSet,
    /// Bytes per step, if steps are regular.
    pub step: Option<i64>,
    /// The processor's ability to hide the misses.
    pub overlap: Overlap,
    /// Parts of the code as functions with outermost loops.
    pub regions: Vec<(u32, Option<u32>)>,
    /// Parts of the code as functions with innermost loops.
    pub inner: Vec<(u32, Option<u32>)>,
    /// Cycles lost, for the recorded rows.
    pub cycles: f64,
    /// Lost share of the cycles of these parts of the code.
    pub lost: f64,
}

impl Cause {
    /// First touches per row. The second halves of windows represent the whole (see
    /// `SiteFacts::firsts`).
    pub fn cold(&self) -> f64 {
        (self.firsts as f64 / self.rows.max(1) as f64).min(1.0)
    }

    /// Misses of each level, for the recorded rows.
    pub fn misses(&self, context: &Context) -> Vec<f64> {
        let firsts = self.firsts as f64;
        let misses = context.caches.misses(self.set.bytes);
        misses.iter().map(|m| m * firsts).collect()
    }
}

/// Key that groups load instructions: mechanism, function, outermost loop, and the mechanism's own
/// distinction.
type Key = (usize, String, Option<u32>, i64);

/// All causes, the most costly first.
pub fn causes(context: &Context) -> Vec<Cause> {
    let mut parts: BTreeMap<Key, Vec<(u32, Claim)>> = BTreeMap::new();
    let mut sites: Vec<&SiteFacts> = context.sites.values().collect();
    sites.sort_unstable_by_key(|s| s.site);
    for facts in sites {
        let claimed = (RULES.iter().enumerate())
            .find_map(|(number, rule)| Some((number, (rule.claims)(context, facts)?)));
        if let Some((number, claim)) = claimed {
            let piece = facts.group / 4;
            let line = context.users.line(piece);
            let region = context.users.region(piece);
            let key = (number, line.function, region.1, claim.apart);
            parts.entry(key).or_default().push((facts.site, claim));
        }
    }
    join_nodes(context, &mut parts);
    let parts: Vec<(Key, Vec<(u32, Claim)>)> = parts.into_iter().collect();
    let mut all: Vec<Cause> = parts
        .into_par_iter()
        .map(|(key, sites)| cause(context, RULES[key.0], sites))
        .collect();
    come_back(context, &mut all);
    weigh(context, &mut all);
    all.sort_by(|a, b| b.cycles.total_cmp(&a.cycles));
    all
}

/// Adds loads of a chase's nodes to the chase if data flow does not connect them. Comparisons of
/// keys, for example, are often functions of their own.
fn join_nodes(context: &Context, parts: &mut BTreeMap<Key, Vec<(u32, Claim)>>) {
    let nodes_of = |key: &Key| RULES[key.0].nodes;
    let chases: Vec<Key> = (parts.keys())
        .filter(|k| nodes_of(k) == Nodes::Followed)
        .cloned()
        .collect();
    let nodes: HashMap<u32, usize, Mixed> = (chases.iter().enumerate())
        .flat_map(|(number, key)| parts[key].iter().map(move |s| (s.0, number)))
        .collect();
    let others: HashSet<u32, Mixed> = (parts.iter())
        .filter(|p| nodes_of(p.0) == Nodes::Joined)
        .flat_map(|p| p.1.iter().map(|s| s.0))
        .collect();
    let beside = beside(context, &others, &nodes);
    let mut joined: Vec<(usize, u32)> = Vec::new();
    parts.retain(|key, sites| {
        if nodes_of(key) == Nodes::Joined {
            sites.retain(|s| match beside.get(&s.0) {
                Some(&chase) => {
                    joined.push((chase, s.0));
                    false
                }
                None => true,
            });
        }
        !sites.is_empty()
    });
    for (chase, site) in joined {
        let of = parts.entry(chases[chase].clone()).or_default();
        let claim = of[0].1;
        of.push((site, claim));
    }
}

/// Finds load instructions of `sites` with most rows in a node that a chase (`nodes`) accesses just
/// before or after. Returns the number of the chase.
fn beside(
    context: &Context,
    sites: &HashSet<u32, Mixed>,
    nodes: &HashMap<u32, usize, Mixed>,
) -> HashMap<u32, usize, Mixed> {
    let mut rows: HashMap<u32, BTreeMap<usize, u64>, Mixed> = HashMap::default();
    for window in context.windows {
        for (at, row) in window.rows.iter().enumerate() {
            if !sites.contains(&row.site) {
                continue;
            }
            let around = at.saturating_sub(params::MAX_ROWS_TO_CHASE)
                ..(at + params::MAX_ROWS_TO_CHASE + 1).min(window.rows.len());
            let near = (window.rows[around].iter())
                .filter(|o| o.address.abs_diff(row.address) < params::MAX_BYTES_TO_CHASE)
                .find_map(|o| nodes.get(&o.site));
            if let Some(&chase) = near {
                *(rows.entry(row.site).or_default())
                    .entry(chase)
                    .or_default() += 1;
            }
        }
    }
    let all = |site: &u32| context.sites.get(site).map_or(0, |s| s.rows);
    (rows.into_iter())
        .filter(|(site, near)| {
            near.values().sum::<u64>() * 100 >= all(site) * params::MIN_ROWS_NEAR_CHASE_PCT
        })
        .filter_map(|(site, near)| {
            let most = near.into_iter().max_by_key(|n| n.1)?;
            Some((site, most.0))
        })
        .collect()
}

fn cause(context: &Context, rule: &'static Rule, sites: Vec<(u32, Claim)>) -> Cause {
    let facts = |site: u32| context.sites.get(&site);
    // The step of the load instruction with most first touches.
    let main = sites
        .iter()
        .max_by_key(|s| facts(s.0).map_or((0, 0), |f| (f.firsts, f.rows)));
    let step = main.and_then(|m| facts(m.0)).and_then(SiteFacts::regular);
    let overlap = main.map_or(Overlap::Some, |m| m.1.overlap);
    let all: u64 = sites
        .iter()
        .filter_map(|s| facts(s.0))
        .map(|f| f.rows)
        .sum();
    // Rare loads cost hardly anything, so their working set is not computed.
    let mut set = match all * params::ROWS_PER_FREQUENT_ROW >= context.rows {
        true => context.working_set(&sites.iter().map(|s| s.0).collect::<Vec<_>>(), step),
        false => WorkingSet::default(),
    };
    if (rule.needs_extent)(step) {
        set.bytes = set.bytes.max(set.extent);
        set.at_least = false;
    }
    let mut objects: HashMap<u32, u64, Mixed> = HashMap::default();
    let mut by_line: HashMap<LineName, u64> = HashMap::new();
    let (mut regions, mut inner) = (Vec::new(), Vec::new());
    let (mut rows, mut firsts, mut first_pages) = (0, 0, 0);
    let mut order: Vec<(u64, u32)> = Vec::new();
    for (site, _) in &sites {
        let Some(facts) = facts(*site) else { continue };
        rows += facts.rows;
        firsts += facts.firsts;
        first_pages += facts.first_pages;
        for (&object, &n) in &facts.objects {
            *objects.entry(object).or_default() += n;
        }
        let piece = facts.group / 4;
        *by_line.entry(context.users.line(piece)).or_default() +=
            facts.firsts * params::ROWS_PER_FIRST_TOUCH_IN_RANK + facts.rows;
        let region = context.users.region(piece);
        if !regions.contains(&region) {
            regions.push(region);
        }
        let innermost = context.users.inner(piece);
        if !inner.contains(&innermost) {
            inner.push(innermost);
        }
        order.push((
            facts.firsts * params::ROWS_PER_FIRST_TOUCH_IN_RANK + facts.rows,
            *site,
        ));
    }
    order.sort_unstable_by(|a, b| b.cmp(a));
    let mut lines: Vec<(u64, LineName)> = by_line.into_iter().map(|(l, n)| (n, l)).collect();
    lines.sort_by(|a, b| {
        b.0.cmp(&a.0)
            .then_with(|| (a.1.line, &a.1.file).cmp(&(b.1.line, &b.1.file)))
    });
    let mut lines = lines.into_iter().map(|l| l.1);
    let mut objects: Vec<(u32, u64)> = objects.into_iter().collect();
    objects.sort_unstable_by_key(|&(object, n)| (std::cmp::Reverse(n), object));
    Cause {
        rule,
        line: lines.next().unwrap_or_default(),
        lines: lines.collect(),
        sites: order.into_iter().map(|o| o.1).collect(),
        rows,
        firsts,
        first_pages,
        objects,
        set,
        step,
        overlap,
        regions,
        inner,
        cycles: 0.0,
        lost: 0.0,
    }
}

/// Limits the working set of walks that return to the memory touched until they return, even if
/// they move on later.
fn come_back(context: &Context, causes: &mut [Cause]) {
    let mut firsts: HashMap<(u32, Option<u32>), (u64, u64), Mixed> = HashMap::default();
    for facts in context.sites.values() {
        let all = firsts
            .entry(context.users.region(facts.group / 4))
            .or_default();
        all.0 += facts.firsts;
        all.1 += facts.first_pages;
    }
    for cause in causes.iter_mut() {
        if !cause.rule.comes_back || cause.firsts == 0 {
            continue;
        }
        let (mut bytes, mut extent) = (0.0, 0.0);
        for facts in cause.sites.iter().filter_map(|s| context.sites.get(s)) {
            let region = context.users.region(facts.group / 4);
            let until = facts.returns().map_or(f64::INFINITY, |n| 1.0 / n as f64);
            let &(lines, pages) = firsts.get(&region).unwrap_or(&(0, 0));
            let weight = facts.firsts as f64 / cause.firsts as f64;
            bytes += weight * (cause.set.bytes as f64).min(lines as f64 * 64.0 * until);
            extent += weight * (cause.set.extent as f64).min(pages as f64 * 4096.0 * until);
        }
        (cause.set.bytes, cause.set.extent) = (bytes as u64, extent as u64);
    }
}

/// Computes the cost of each cause, alone and as a share of its parts of the code.
fn weigh(context: &Context, causes: &mut [Cause]) {
    let mut rows: HashMap<(u32, Option<u32>), u64, Mixed> = HashMap::default();
    for facts in context.sites.values() {
        *rows
            .entry(context.users.region(facts.group / 4))
            .or_default() += facts.rows;
    }
    for cause in causes.iter_mut() {
        let lines = cause.firsts as f64 * context.caches.cycles(cause.set.bytes, cause.overlap);
        let reach = params::TLB_REACH_BYTES as f64;
        let far = (1.0 - reach / cause.set.extent.max(1) as f64).max(0.0);
        cause.cycles = lines + cause.first_pages as f64 * far * params::CYCLES_OF_PAGE_WALK;
    }
    let mut lost: HashMap<(u32, Option<u32>), f64, Mixed> = HashMap::default();
    for cause in causes.iter() {
        for region in &cause.regions {
            *lost.entry(*region).or_default() += cause.cycles / cause.regions.len() as f64;
        }
    }
    for cause in causes.iter_mut() {
        let of = |r: &(u32, Option<u32>)| {
            rows.get(r)
                .map_or(0.0, |&n| n as f64 * params::CYCLES_OF_HITTING_LOAD)
                + lost.get(r).copied().unwrap_or(0.0)
        };
        let all: f64 = cause.regions.iter().map(of).sum();
        cause.lost = if all > 0.0 {
            (cause.cycles / all).min(1.0)
        } else {
            0.0
        };
    }
}

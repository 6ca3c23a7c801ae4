//! Groups of loads that are slow for the same reason in one part of the user's code.

use crate::data::code_map::LineName;
use crate::data::group::Group;
use crate::findings::context::Context;
use crate::findings::mechanisms::{Nodes, RULES, Rule};
use crate::findings::params;
use crate::findings::prices::Price;
use crate::findings::region_time::{RegionTime, WaitOfCause};
use crate::findings::sites::SiteFacts;
use crate::findings::time_account::{Account, RegionKey, Wait};
use crate::misses::Range;
use crate::util::fast_hash::Mixed;
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Loads with the same reason in one part of the code.
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
    /// Objects and rows, most first.
    pub objects: Vec<(u32, u64)>,
    /// Groups of the load instructions.
    pub groups: Vec<Group>,
    /// Predicted misses, and the time that they cost.
    pub price: Price,
    /// Bytes per step, if steps are regular.
    pub step: Option<i64>,
    /// Parts of the code as functions with outermost loops.
    pub regions: Vec<RegionKey>,
    /// Parts of the code as functions with innermost loops.
    pub inner: Vec<(u32, Option<u32>)>,
    /// Lost share of the time of these parts of the code, with the ends of its interval.
    pub lost: [f64; 3],
}

impl Cause {
    /// First touches per row. Only the second halves of windows are counted (see
    /// `SiteFacts::firsts`).
    pub fn first_touch_share(&self) -> f64 {
        (self.firsts as f64 / self.rows.max(1) as f64).min(1.0)
    }
}

/// Key that groups load instructions: mechanism, function, outermost loop, and a number that the
/// mechanism chooses.
type Key = (usize, String, Option<u32>, i64);

/// All causes, the most costly first.
pub fn causes(context: &Context) -> Vec<Cause> {
    let mut parts: BTreeMap<Key, Vec<u32>> = BTreeMap::new();
    let mut sites: Vec<&SiteFacts> = context.sites.values().collect();
    sites.sort_unstable_by_key(|s| s.site);
    for facts in sites {
        let claimed = (RULES.iter().enumerate())
            .find_map(|(number, rule)| Some((number, (rule.claims)(context, facts)?)));
        if let Some((number, apart)) = claimed {
            let piece = facts.group.piece();
            let line = context.users.line(piece);
            let region = context.users.region(piece);
            let key = (number, line.function, region.1, apart);
            parts.entry(key).or_default().push(facts.site);
        }
    }
    join_nodes(context, &mut parts);
    let parts: Vec<(Key, Vec<u32>)> = parts.into_iter().collect();
    let mut all: Vec<Cause> = parts
        .into_par_iter()
        .map(|(key, sites)| cause(context, RULES[key.0], &sites))
        .collect();
    weigh(context, &mut all);
    all.sort_by(|a, b| b.price.wait_ns[1].total_cmp(&a.price.wait_ns[1]));
    all
}

/// Adds loads of a chase's nodes to the chase even if data flow does not connect them. For example,
/// comparisons of keys are often separate functions.
fn join_nodes(context: &Context, parts: &mut BTreeMap<Key, Vec<u32>>) {
    let nodes_of = |key: &Key| RULES[key.0].nodes;
    let chases: Vec<Key> = (parts.keys())
        .filter(|k| nodes_of(k) == Nodes::Followed)
        .cloned()
        .collect();
    let nodes: HashMap<u32, usize, Mixed> = (chases.iter().enumerate())
        .flat_map(|(number, key)| parts[key].iter().map(move |&s| (s, number)))
        .collect();
    let others: HashSet<u32, Mixed> = (parts.iter())
        .filter(|p| nodes_of(p.0) == Nodes::Joined)
        .flat_map(|p| p.1.iter().copied())
        .collect();
    let beside = beside(context, &others, &nodes);
    let mut joined: Vec<(usize, u32)> = Vec::new();
    parts.retain(|key, sites| {
        if nodes_of(key) == Nodes::Joined {
            sites.retain(|s| match beside.get(s) {
                Some(&chase) => {
                    joined.push((chase, *s));
                    false
                }
                None => true,
            });
        }
        !sites.is_empty()
    });
    for (chase, site) in joined {
        parts.entry(chases[chase].clone()).or_default().push(site);
    }
}

/// Finds load instructions of `sites` whose rows are mostly in a node that a chase (`nodes`)
/// accesses just before or after. Returns the number of the chase.
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

fn cause(context: &Context, rule: &'static Rule, sites: &[u32]) -> Cause {
    let known = || sites.iter().filter_map(|s| context.sites.get(s));
    let price = |facts: &SiteFacts| context.prices.of_site(facts.site);
    let mut order: Vec<(f64, &SiteFacts)> = known().map(|f| (price(f), f)).collect();
    order.sort_by(|a, b| {
        let rows = |f: &SiteFacts| (f.rows, f.site);
        b.0.total_cmp(&a.0).then_with(|| rows(b.1).cmp(&rows(a.1)))
    });
    let mut objects: HashMap<u32, u64, Mixed> = HashMap::default();
    let mut by_line: HashMap<LineName, (f64, u64)> = HashMap::new();
    let (mut regions, mut inner) = (Vec::new(), Vec::new());
    for &(price, facts) in &order {
        for (&object, &n) in &facts.objects {
            *objects.entry(object).or_default() += n;
        }
        let piece = facts.group.piece();
        let of_line = by_line.entry(context.users.line(piece)).or_default();
        *of_line = (of_line.0 + price, of_line.1 + facts.rows);
        let region = context.users.region(piece);
        if !regions.contains(&region) {
            regions.push(region);
        }
        let innermost = context.users.inner(piece);
        if !inner.contains(&innermost) {
            inner.push(innermost);
        }
    }
    let mut lines: Vec<(LineName, (f64, u64))> = by_line.into_iter().collect();
    lines.sort_by(|(a, of_a), (b, of_b)| {
        (of_b.0.total_cmp(&of_a.0).then(of_b.1.cmp(&of_a.1)))
            .then_with(|| (a.line, &a.file).cmp(&(b.line, &b.file)))
    });
    let mut lines = lines.into_iter().map(|l| l.0);
    let mut objects: Vec<(u32, u64)> = objects.into_iter().collect();
    objects.sort_unstable_by_key(|&(object, n)| (std::cmp::Reverse(n), object));
    let groups = context.groups(sites);
    Cause {
        rule,
        line: lines.next().unwrap_or_default(),
        lines: lines.collect(),
        step: order.first().and_then(|main| main.1.regular_step()),
        rows: known().map(|f| f.rows).sum(),
        firsts: known().map(|f| f.firsts).sum(),
        objects,
        price: context.prices.of(sites, &groups, rule.is_chained),
        sites: order.into_iter().map(|o| o.1.site).collect(),
        groups,
        regions,
        inner,
        lost: [0.0; 3],
    }
}

/// Computes the share of its parts of the code that each cause loses.
fn weigh(context: &Context, causes: &mut [Cause]) {
    let waits: Vec<WaitOfCause> = (causes.iter())
        .map(|cause| (cause.price.wait, cause.price.deviation()))
        .collect();
    let of_causes: Vec<Wait> = waits.iter().map(|w| w.0).collect();
    let mut losses: Vec<Loss> = causes.iter().map(|_| Loss::default()).collect();
    for region in RegionTime::all(context, causes.iter().map(|c| &c.regions[..])) {
        let Account { value, ends } = region.account(&waits);
        let in_region = region.waits(&of_causes);
        let factors = [ends[0][0], value, ends[0][1]];
        for (&(cause, _), wait) in region.causes.iter().zip(&in_region) {
            let loss = &mut losses[cause];
            loss.is_estimated |= !region.is_measured();
            for (end, factors) in factors.into_iter().enumerate() {
                loss.waits[end] += wait.at(factors.exposed);
                loss.times[end] += region.ns(&in_region, factors);
            }
        }
    }
    for (cause, loss) in causes.iter_mut().zip(&losses) {
        cause.lost = match loss.is_estimated {
            true => {
                let others = loss.times[1] - cause.price.wait.at(1.0);
                context.prices.lost(cause.price.wait_ns, others.max(0.0))
            }
            false => {
                std::array::from_fn(|end| loss.waits[end] / loss.times[end].max(f64::MIN_POSITIVE))
            }
        };
    }
}

/// Time of the regions of a cause in nanoseconds, with the ends of the interval of its wait.
#[derive(Default)]
struct Loss {
    /// True if the time per row of a region was not measured.
    is_estimated: bool,
    /// The cause's waits.
    waits: Range,
    /// All time.
    times: Range,
}

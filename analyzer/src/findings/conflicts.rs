//! Set conflicts: a few lines evict each other because their distances are multiples of a power of
//! two. All of them together would fit the cache. Samples count the conflicts, given the sets of
//! the machine's caches.

use crate::data::group::Group;
use crate::data::memory_units::{CacheLine, LINE_BYTES, PAGE_BYTES};
use crate::engine::EngineOutcome;
use crate::findings::context::Context;
use crate::findings::mechanisms::set_apart;
use crate::findings::sites::SiteFacts;
use crate::findings::{Finding, Observation, load_addresses, objects, params, time_share};
use crate::misses::caches::name;
use crate::stages::line_visits::{Bins, GroupLines, bin_start};
use crate::stages::set_conflicts::LEVELS;
use crate::util::human::{bytes, counted};
use mgz_annotations_schema::ProgramChange;
use mgz_annotations_schema::manifest::Cache;
use std::collections::{BTreeMap, BTreeSet};

/// Counts of some code.
#[derive(Clone, Copy, Default)]
struct Counted {
    /// Loads in the second halves of samples.
    late: f64,
    /// Loads that miss because of other lines in their set, by level.
    conflicts: [f64; LEVELS],
}

impl Counted {
    fn share(&self, level: usize) -> f64 {
        self.conflicts[level] / self.late.max(1.0)
    }
}

/// Function and innermost loop.
type Part = (u32, Option<u32>);

/// Finds set conflicts.
pub(super) fn find_conflicts(context: &Context, outcome: &EngineOutcome) -> Vec<Finding> {
    let mut groups: BTreeMap<Group, Counted> = BTreeMap::new();
    // Sums of fractions depend on their order.
    let mut of_parts: Vec<_> = outcome.lines.groups.iter().collect();
    of_parts.sort_unstable_by_key(|(key, _)| **key);
    for (&(group, _), lines) in of_parts {
        let of = groups.entry(group).or_default();
        of.late += f64::from(lines.late);
        let mut more = lines.conflicts.map(f64::from);
        // Conflicts in the first level are counted over whole samples.
        let all: u32 = lines.in_set[2].0.iter().sum();
        let in_second_half = f64::from(lines.late) / f64::from(all.max(1));
        more[0] = context
            .prices
            .hierarchy
            .caches
            .first()
            .map_or(0.0, |l| conflicts_in_first_level(lines, l))
            * in_second_half;
        (of.conflicts.iter_mut().zip(more)).for_each(|(sum, more)| *sum += more);
    }
    // Loads that hit the second level cost little.
    let evicts = |of: &Counted, level: usize| of.share(level) >= params::MIN_SHARE_OF_CONFLICTS;
    groups.retain(|_, of| {
        of.late >= params::MIN_LOADS_FOR_CONFLICTS && evicts(of, 0) && evicts(of, 1)
    });
    let mut parts: BTreeMap<Part, Vec<Group>> = BTreeMap::new();
    for &group in groups.keys() {
        let part = context.users.inner(group.piece());
        parts.entry(part).or_default().push(group);
    }
    (parts.iter())
        .filter_map(|(part, of_part)| finding(context, part, of_part, &groups))
        .collect()
}

/// Number of reuses that miss the first level but would hit if it were fully associative.
fn conflicts_in_first_level(lines: &GroupLines, level: &Cache) -> f64 {
    let beyond = |bins: &Bins, value: u64| -> f64 {
        let far = bins
            .0
            .iter()
            .enumerate()
            .filter(|b| bin_start(b.0) >= value);
        far.map(|(_, &count)| f64::from(count)).sum()
    };
    let in_set = beyond(&lines.in_set[0], level.ways.max(1));
    (in_set - beyond(&lines.known, level.size / LINE_BYTES)).max(0.0)
}

fn finding(
    context: &Context,
    part: &Part,
    of_part: &[Group],
    groups: &BTreeMap<Group, Counted>,
) -> Option<Finding> {
    let inner = std::slice::from_ref(part);
    let sites = || context.sites.values();
    let mine: Vec<&SiteFacts> = sites().filter(|s| of_part.contains(&s.group)).collect();
    let main = mine.iter().max_by_key(|s| (s.rows, s.site))?;
    let rows: u64 = mine.iter().map(|s| s.rows).sum();
    let of_loop = sites().filter(|s| context.users.is_in(s.group.piece(), inner));
    let of_loop: u64 = of_loop.map(|s| s.rows).sum();
    let of_mine: Vec<u32> = mine.iter().map(|s| s.site).collect();
    let price = context.prices.of(&of_mine, of_part, false);
    let time = time_share(context.times.as_ref(), |piece| {
        context.users.is_in(piece, inner)
    });
    let loads = rows as f64 * 100.0 / context.rows.max(1) as f64;
    let shares = match time.value {
        Some(_) => time.ends(),
        None => [of_loop as f64 * 100.0 / context.rows.max(1) as f64; 3],
    };
    let hits = of_loop as f64 * params::NS_OF_HITTING_LOAD;
    let lost = context.prices.lost(price.wait_ns, hits);
    let waiting = context.waiting(&of_mine);
    let waits = waiting.ends();
    let [score_lo, score, score_hi] =
        std::array::from_fn(|end| (shares[end] * lost[end]).min(waits[end]));
    if score < params::MIN_COST_OF_FINDING_PCT {
        return None;
    }
    let driven_out: f64 = (mine.iter())
        .map(|s| s.rows as f64 * groups[&s.group].share(0))
        .sum::<f64>()
        / rows.max(1) as f64;
    let (lines, apart) = apart(context, main);
    let line = context.users.line(main.group.piece());
    let named = objects::named_of(context, main.main_object());
    let name = |number: usize| {
        context
            .prices
            .hierarchy
            .caches
            .get(number)
            .map_or_else(String::new, name)
    };
    Some(Finding {
        kind: "conflicts",
        title: "lines that drive each other out of their set".into(),
        score,
        score_lo,
        score_hi,
        latencies: Some(context.prices.hierarchy.source()),
        time,
        waiting,
        loads,
        function: line.function,
        module: line.module,
        file: line.file,
        line: line.line,
        load_addresses: load_addresses(
            context,
            &context.users.line(main.group.piece()).module,
            &of_mine,
        ),
        object: named.name,
        object_bytes: named.bytes,
        allocated: named.allocated,
        allocation_sites: objects::sites_of(context, &accessed(context, &mine)),
        program_changes: vec![ProgramChange::ShiftBlocks],
        misses: price.misses,
        finding: Observation {
            mechanism: format!(
                "{:.0} % of the loads miss the {} and the {} because other lines of the same set displaced theirs: the {} of a window{} fall into few sets, though all of them would fit",
                100.0 * driven_out,
                name(0),
                name(1),
                counted(lines, "line", "lines"),
                match apart {
                    PAGE_BYTES.. => format!(", multiples of {} apart,", bytes(apart)),
                    _ => String::new(),
                }
            ),
            evidence: String::new(),
        },
        advice: format!(
            "avoid distances that are multiples of {} or more: pad rows or structures by a line (64 bytes), or let arrays begin a different number of lines behind a page",
            bytes(apart.max(PAGE_BYTES))
        ),
        ..Finding::default()
    })
}

/// The objects that loads access, with numbers of rows.
fn accessed(context: &Context, loads: &[&SiteFacts]) -> Vec<(u32, f64)> {
    let mut rows: BTreeMap<u32, f64> = BTreeMap::new();
    for facts in loads {
        for (_, row) in context.rows_of(facts.site) {
            *rows.entry(row.object).or_default() += 1.0;
        }
    }
    rows.into_iter().collect()
}

/// Greatest number of different lines that a load accesses in a window, and the power of two that
/// divides their distances.
fn apart(context: &Context, facts: &SiteFacts) -> (u64, u64) {
    let mut windows: BTreeMap<u32, BTreeSet<CacheLine>> = BTreeMap::new();
    for (window, row) in context.rows_of(facts.site) {
        if windows.len() > params::MAX_WINDOWS_FOR_DISTANCES {
            break;
        }
        windows
            .entry(window)
            .or_default()
            .insert(CacheLine::of(row.address));
    }
    let most = windows.values().map(BTreeSet::len).max().unwrap_or(0);
    let mut distances = 0;
    for lines in windows.values() {
        let first = lines.first().copied().unwrap_or_default();
        distances = lines
            .iter()
            .fold(distances, |all, line| all | line.since(first));
    }
    // A regular step shows the distance by itself. The array need not be aligned to a line.
    match facts.regular_step() {
        Some(step) => (most as u64, set_apart(step)),
        None => (
            most as u64,
            LINE_BYTES << distances.trailing_zeros().min(40),
        ),
    }
}

//! Block: a loop nest goes through tiles, so that lines come back while the L2 has them.

use crate::data::memory_units::LINE_BYTES;
use crate::findings::context::Context;
use crate::findings::gains::Costs;
use crate::findings::sites::SiteFacts;
use crate::findings::spared::ALL_LEFT;
use crate::misses::Range;
use crate::util::fast_hash::Mixed;
use crate::what_if::memory::NewMemory;
use crate::what_if::remedy::{Kind, Load, Remedy, Spec, Target};
use crate::what_if::target::{chain_of, sites};
use std::collections::HashMap;

pub(crate) const BLOCK: Kind = Kind {
    name: "block",
    target: Target::Code,
    by: "",
    make,
};

/// Lines come back if a walk visits each of them at least this often. Source: Chosen.
const MIN_VISITS_OF_LINE: f64 = 2.0;
/// A walk goes along a column if its step is at least this many lines. Source: Chosen.
const MIN_LINES_OF_COLUMN_STEP: u64 = 2;

struct Block {
    /// By load instruction: the part of its waits that is left.
    left: HashMap<u32, Range, Mixed>,
}

fn make(costs: &Costs, spec: &Spec) -> Result<Box<dyn Remedy>, String> {
    let context = &costs.context;
    let found = sites(costs, &spec.target)?;
    let walks: Vec<&SiteFacts> = (found.into_iter())
        .filter(|f| chain_of(costs, f.site).is_none())
        .filter(|f| f.regular_step().is_some() || f.is_in_sequence())
        .filter(|f| !f.is_in_place())
        .collect();
    if walks.is_empty() {
        return Err(format!(
            "{}: none of its loads walks through memory in steps of one length, so there is nothing to tile",
            spec.target
        ));
    }
    let visits: Vec<(&SiteFacts, f64)> = (walks.into_iter())
        .filter_map(|facts| Some((facts, visits_of_line(context, facts)?)))
        .collect();
    if visits.is_empty() {
        return Err(format!(
            "{}: its time per load was not measured, so it is not known how often its lines come back; record it for longer",
            spec.target
        ));
    }
    let left: HashMap<u32, Range, Mixed> = (visits.into_iter())
        .filter(|&(_, visits)| visits >= MIN_VISITS_OF_LINE)
        .map(|(facts, visits)| (facts.site, left(context, facts, visits)))
        .collect();
    match left.is_empty() {
        true => Err(format!(
            "{}: no iteration of an outer loop comes back to its lines, so blocks save nothing (0 %)",
            spec.target
        )),
        false => Ok(Box::new(Block { left })),
    }
}

/// Mean number of visits of the whole run to a line by a load instruction. None if the number of
/// executed loads is not known.
fn visits_of_line(context: &Context, facts: &SiteFacts) -> Option<f64> {
    let region = context.users.region(facts.group.piece());
    let of_region = context.sites.values();
    let of_region = of_region.filter(|f| context.users.region(f.group.piece()) == region);
    let rows: u64 = of_region.map(|f| f.rows).sum();
    let part = facts.rows as f64 / rows.max(1) as f64;
    let visits = context.paces.of(region)?.loads * part * facts.first_touch_share();
    let lines = context.seen(&[facts.site]).extent.div_ceil(LINE_BYTES);
    Some(visits / lines.max(1) as f64)
}

/// The part of a walk's waits that is left. At best a tile has all returns of a line. A walk along a
/// column is sure to return to a line for its other elements. Else the returns may be of different
/// calls of the nest, so at worst every second one stays. Tiles that fit the L2 may not fit the L1.
fn left(context: &Context, facts: &SiteFacts, visits: f64) -> Range {
    let step = facts.regular_step().map_or(0, i64::unsigned_abs);
    let least = visits.recip();
    let [value, most] = match step >= MIN_LINES_OF_COLUMN_STEP * LINE_BYTES {
        true => {
            let first = f64::from(facts.size.max(1)) / LINE_BYTES as f64;
            [least.max(first.min(1.0)), (2.0 * first).min(1.0)]
        }
        false => [least, MIN_VISITS_OF_LINE.recip()],
    };
    let most = most.max(value);
    [
        least,
        value,
        most + (1.0 - most) * part_of_first_level(context, facts),
    ]
}

/// The part of a walk's waits that hits in the L2 have.
fn part_of_first_level(context: &Context, facts: &SiteFacts) -> f64 {
    let prices = &context.prices;
    let misses = prices.of(&[facts.site], &[facts.group], false).misses;
    let ratio = misses.as_ref().and_then(|m| m.levels.first()?.ratio);
    let first = ratio.map_or(0.0, |r| r[1]) * facts.rows as f64 * prices.hierarchy.wait_ns(0)[1];
    (first / prices.of_site(facts.site).max(f64::MIN_POSITIVE)).min(1.0)
}

impl Remedy for Block {
    fn apply(&self, _process: u32, _loads: &mut [Load], _memory: &NewMemory) {}

    fn moves(&self) -> bool {
        false
    }

    fn left(&self, site: u32) -> Range {
        self.left.get(&site).copied().unwrap_or(ALL_LEFT)
    }

    fn limits(&self) -> Vec<String> {
        vec![
            "The loops may be tiled: no iteration needs the result of one that comes after it in the new order.".into(),
            "Tiles hold all visits to their lines, also those of different calls of the code; stores are left out.".into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::what_if::simulated::{block, moved};

    #[test]
    fn addresses_stay_and_first_visits_are_left() {
        let walk = block((0..100).map(|i| i % 10 * 640), 6400);
        let remedy = Block {
            left: [(1, [0.1, 0.125, 0.25])].into_iter().collect(),
        };
        assert_eq!(moved(&remedy, &walk), walk);
        assert_eq!(
            (remedy.left(1), remedy.left(2)),
            ([0.1, 0.125, 0.25], ALL_LEFT)
        );
    }
}

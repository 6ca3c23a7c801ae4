//! Column-wise walks through an array that is stored by rows.

use crate::data::memory_units::{CacheLine, LINE_BYTES};
use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::mechanisms::{APART, Remedy, Rule, Told, misses};
use crate::findings::params;
use crate::findings::sites::SiteFacts;
use crate::findings::unrolled;
use crate::util::fast_hash::Mixed;
use crate::util::human::bytes;
use mgz_annotations_schema::ProgramChange;
use mgz_annotations_schema::sidecar::Origin;
use std::collections::{BTreeMap, BTreeSet, HashMap};

pub(super) const COLUMN_RULE: Rule = Rule {
    kind: "column",
    name: "column-wise walk of a row-major array",
    claims,
    tell,
    python: "walk along the last axis, or make a copy in that order once (np.ascontiguousarray(a.T)); one NumPy call on the whole array, with axis=, chooses the order by itself",
    name_in: |file| by_columns(file).then_some(BY_COLUMNS),
    remedy: Remedy::OfCode("exchange-loops"),
    changes: &[ProgramChange::HugePages, ProgramChange::PrefetchStrided],
    ..Rule::PLAIN
};

/// Column-wise walks in blocks. Windows show that they return to the lines of the previous column,
/// so no change is advised.
pub(super) const BLOCKED: Rule = Rule {
    kind: "blocked",
    name: "column-wise walk in blocks",
    claims: |context, facts| {
        let is_blocked = |_: &i64| returns(context, facts) >= params::MIN_RETURNS_OF_BLOCKED_WALK;
        claims(context, facts).filter(is_blocked)
    },
    tell,
    is_good: true,
    ..Rule::PLAIN
};

/// Share of an instruction's line visits that return to a line of the same window after visits to
/// other lines, for bytes that the instruction has not read there.
fn returns(context: &Context, facts: &SiteFacts) -> f64 {
    // By line: number of the last visit, and the first bytes of loads, one bit each.
    let mut lines: HashMap<(u32, CacheLine), (u64, u64), Mixed> = HashMap::default();
    let (mut visits, mut returns) = (0, 0);
    let mut before = None;
    for (window, row) in context.rows_of(facts.site) {
        let key = (window, CacheLine::of(row.address));
        let bit = 1u64 << (row.address % LINE_BYTES);
        let is_visit = before.replace(key) != Some(key);
        visits += u64::from(is_visit);
        let (last, read) = lines.entry(key).or_insert((visits, 0));
        let is_far = visits - *last >= params::MIN_VISITS_BETWEEN_RETURNS;
        returns += u64::from(is_visit && is_far && *read & bit == 0);
        (*last, *read) = (visits, *read | bit);
    }
    returns as f64 / visits.max(1) as f64
}

/// Title for languages that store arrays by columns.
pub(super) const BY_COLUMNS: &str = "row-wise walk of a column-major array";

/// True if a source's language stores arrays by columns, as Fortran does.
pub(super) fn by_columns(file: &str) -> bool {
    let ending = file.rsplit_once('.').map_or("", |f| f.1);
    ["f", "for", "ftn", "f77", "f90", "f95", "f03", "f08", "f18"]
        .iter()
        .any(|f| ending.eq_ignore_ascii_case(f))
}

fn claims(context: &Context, facts: &SiteFacts) -> Option<i64> {
    let step = facts.regular_step()?.unsigned_abs();
    let column = step >= params::MIN_ROW_BYTES_OF_COLUMN_WALK
        && !facts.takes_turns()
        && (context.origin(facts.site).0 == Origin::Column || moves_on(context, facts, step));
    column.then_some(APART)
}

/// True if windows see different columns: the position in a row, which is the address modulo the
/// step, varies. A walk through one field of large elements has only one such position.
fn moves_on(context: &Context, facts: &SiteFacts, step: u64) -> bool {
    let object = facts.main_object();
    let mut places: BTreeMap<u32, u64> = BTreeMap::new();
    for (window, row) in context.rows_of(facts.site) {
        if row.object == object {
            places.entry(window).or_insert(row.address % step);
        }
    }
    let windows = places.len();
    let different: BTreeSet<u64> = places.into_values().collect();
    windows >= params::MIN_WINDOWS_OF_COLUMNS
        && different.len() as f64 >= params::MIN_SHARE_OF_COLUMNS * windows as f64
}

/// Bytes of a cache that each line of a walk occupies, given that its steps use only some of the
/// sets.
pub(crate) fn set_apart(step: i64) -> u64 {
    let power = step.unsigned_abs().trailing_zeros().min(62);
    (1u64 << power).max(LINE_BYTES)
}

/// Side of a square block, in elements. Two blocks fit the cache, and two columns of it fit the
/// sets that the steps use.
fn block(cache: u64, element: u64, step: i64) -> u64 {
    let side = (cache as f64 / params::BLOCKS_IN_CACHE / element.max(1) as f64).sqrt();
    let lines = cache as f64 / params::BLOCKS_IN_CACHE / set_apart(step) as f64;
    1u64 << (side
        .min(lines)
        .log2()
        .floor()
        .max(params::MIN_BLOCK_SIDE_LOG2) as u32)
}

fn tell(context: &Context, cause: &Cause) -> Told {
    let main = cause.sites.first().and_then(|s| context.sites.get(s));
    let element = main.map_or(8, |f| f.size);
    let row = main.map_or(0, |f| unrolled::row_step(context, f));
    let level = cause.price.level.unwrap_or(0);
    let cache = context.prices.hierarchy.caches.get(level);
    let side = cache.map_or(params::DEFAULT_BLOCK_SIDE, |c| {
        block(c.size, u64::from(element), row as i64)
    });
    let name = context.prices.name(level);
    let (part, subscript) = match by_columns(&cause.line.file) {
        true => ("column", ", over the first subscript"),
        false => ("row", ""),
    };
    Told {
        mechanism: format!(
            "each load of the inner loop moves by {} at a time, over whole {part}s, so that only {element} of the 64 bytes of each line are used when it is fetched",
            bytes(row),
        ),
        evidence: misses(context, cause),
        advice: format!(
            "exchange the loops, so that the inner one walks along a {part}{subscript}; where both orders are needed, work in blocks of {side} × {side} elements, which fit the {name}"
        ),
        layout: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_fit_the_sets_that_their_steps_come_to() {
        assert_eq!(block(1 << 20, 8, 16_384 + 8), 256);
        assert_eq!(block(1 << 20, 8, 16_384), 32);
    }

    #[test]
    fn steps_of_powers_of_two_have_few_sets() {
        assert_eq!([-24_576, 8, 100].map(set_apart), [8192, 64, 64]);
    }

    #[test]
    fn fortran_stores_by_columns() {
        for file in ["/a/b.f90", "x.F", "solver.F90"] {
            assert!(by_columns(file), "{file}");
        }
        for file in ["/a/b.c", "f90", "x.rs", ""] {
            assert!(!by_columns(file), "{file}");
        }
    }
}

//! Column-wise walks through an array that is stored by rows.

use crate::findings::caches::{Overlap, set_apart};
use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::mechanisms::{Claim, Rule, Told, cold, over};
use crate::findings::params;
use crate::findings::sites::SiteFacts;
use crate::util::fast_hash::Mixed;
use crate::util::human::bytes;
use mgz_annotations_schema::sidecar::Origin;
use std::collections::HashSet;

pub(super) const RULE: Rule = Rule {
    kind: "column",
    name: "column-wise walk of a row-major array",
    claims,
    tell,
    name_in: |file| by_columns(file).then_some(BY_COLUMNS),
    // A column's lines are used again by the next column, so the first level matters.
    beyond_level: 0,
    // Steps of a power of two use few sets of a cache, so the cache holds no more of the column
    // than of a walk in order.
    needs_extent: |step| step.is_some_and(|s| s.unsigned_abs().is_power_of_two()),
    ..Rule::PLAIN
};

/// Share of the bytes that a load instruction reads in the lines that it accesses in a window. A
/// small stencil reads a few columns side by side and leaves most of a line for the next walk.
fn used(context: &Context, facts: &SiteFacts) -> f64 {
    let mut bytes: HashSet<(u32, u64), Mixed> = HashSet::default();
    let mut lines: HashSet<(u32, u64), Mixed> = HashSet::default();
    for (window, row) in context.rows_of(facts.site) {
        bytes.insert((window, row.address));
        lines.insert((window, row.address >> 6));
    }
    bytes.len() as f64 * f64::from(facts.size) / (lines.len().max(1) as f64 * 64.0)
}

/// Column-wise walks in blocks: the next column follows before the lines are evicted, so there is
/// nothing to improve.
pub(super) const BLOCKED: Rule = Rule {
    kind: "resident",
    name: "loads that hit",
    claims: |context, facts| {
        let claim = claims(context, facts)?;
        let (lap, step) = facts.lap().zip(facts.regular())?;
        let stays = context.caches.hold(lap, step)
            && used(context, facts) >= params::MIN_USED_SHARE_OF_BLOCKED_WALK;
        stays.then_some(claim)
    },
    tell,
    hits: true,
    ..Rule::PLAIN
};

/// Title for languages that store arrays by columns.
pub(super) const BY_COLUMNS: &str = "row-wise walk of a column-major array";

/// True if a source's language stores arrays by columns, as Fortran does.
pub(super) fn by_columns(file: &str) -> bool {
    let ending = file.rsplit_once('.').map_or("", |f| f.1);
    ["f", "for", "ftn", "f77", "f90", "f95", "f03", "f08", "f18"]
        .iter()
        .any(|f| ending.eq_ignore_ascii_case(f))
}

fn claims(context: &Context, facts: &SiteFacts) -> Option<Claim> {
    let step = facts.regular()?;
    let column = context.origin(facts.site).0 == Origin::Column
        && step.unsigned_abs() >= params::MIN_ROW_BYTES_OF_COLUMN_WALK;
    column.then(|| Claim::new(Overlap::Some))
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
    let element = cause
        .sites
        .first()
        .and_then(|s| context.sites.get(s))
        .map_or(8, |f| f.size);
    let step = cause.step.unwrap_or(0).unsigned_abs();
    let cache = context
        .caches
        .missed(cause.set.bytes)
        .or(context.caches.level(0));
    let (name, side) = cache.map_or(("cache".to_string(), params::DEFAULT_BLOCK_SIDE), |c| {
        let step = cause.step.unwrap_or(0);
        (c.name.clone(), block(c.bytes, u64::from(element), step))
    });
    let (part, subscript) = match by_columns(&cause.line.file) {
        true => ("column", ", over the first subscript"),
        false => ("row", ""),
    };
    Told {
        finding: format!(
            "each load of the inner loop moves by {} at a time, over whole {part}s, so that only {element} of the 64 bytes of each line are used when it is fetched; {}, {}",
            bytes(step),
            cold(cause),
            over(context, cause)
        ),
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
    fn fortran_stores_by_columns() {
        for file in ["/a/b.f90", "x.F", "solver.F90"] {
            assert!(by_columns(file), "{file}");
        }
        for file in ["/a/b.c", "f90", "x.rs", ""] {
            assert!(!by_columns(file), "{file}");
        }
    }
}

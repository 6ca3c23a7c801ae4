//! Sites whose heap blocks are logged as a sample: the share of the loads of all blocks of each
//! site.
//!
//! A block below 4 KiB is logged with a known probability and represents the inverse of that. So
//! loads of logged blocks, with that weight, estimate the loads of all blocks of their site
//! (Horvitz–Thompson). The trace attributes loads of other blocks to the heap as a whole. They are
//! divided among the sites in proportion to these estimates, up to their number.

use crate::data::object_map::Sampled;
use crate::views::objects::ObjectRow;
use mgz_models::statistics::ROUNDED_NORMAL_QUANTILE_OF_95_PCT;
use serde::Serialize;

/// Estimates for all blocks of a site.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct AllBlocks {
    /// Number of logged blocks in the sample.
    pub logged: u64,
    /// Upper bound of the number of logged blocks that were loaded.
    pub loaded: u64,
    /// Number of blocks that each represents, on average by bytes.
    pub weight: f64,
    /// Percent of the loads (of the time if windows are triggered by time) in all blocks of the
    /// site. `None` if too few logged blocks were loaded.
    pub pct: Option<f64>,
    /// Its 95% interval.
    pub pct_lo: Option<f64>,
    /// See `pct_lo`.
    pub pct_hi: Option<f64>,
    /// Estimated loads of blocks that were not logged.
    #[serde(skip)]
    unlogged: f64,
}

/// Minimum number of loaded logged blocks for an estimate. Source: Chosen.
const MIN_LOADED_BLOCKS: u64 = 4;

impl AllBlocks {
    /// Estimates for the blocks that a sample represents. `loads` is the number of loads of the
    /// sampled blocks, and `blocks` the number of their cache blocks.
    pub(crate) fn of(seen: Sampled, loads: u64, blocks: u64) -> AllBlocks {
        let weight = seen.stand_for / seen.bytes.max(1.0);
        AllBlocks {
            logged: seen.logged,
            loaded: seen.logged.min(loads).min(blocks),
            weight,
            unlogged: loads as f64 * (weight - 1.0),
            ..AllBlocks::default()
        }
    }

    /// The estimate's 95% interval reaches from 1 / (1 + this) to (1 + this) times its value. The
    /// loads per block are assumed to vary like an exponential distribution.
    fn error(&self) -> f64 {
        ROUNDED_NORMAL_QUANTILE_OF_95_PCT * (2.0 / self.loaded.max(1) as f64).sqrt()
    }
}

fn is_container(row: &ObjectRow) -> bool {
    row.kind == "anonymous" || row.kind == "heap" && row.object == "[heap]"
}

/// Fills in the shares of rows with [`AllBlocks`]. `total` is the number of loads of all rows.
pub(crate) fn divide(rows: &mut [ObjectRow], total: u64) {
    let share = |row: &ObjectRow| {
        row.time
            .value
            .or(row.share)
            .unwrap_or(100.0 * row.metrics.accesses as f64 / total.max(1) as f64)
    };
    let containers = rows.iter().filter(|r| is_container(r));
    let (loads, to_divide) = containers.fold((0.0, 0.0), |sum, row| {
        (sum.0 + row.metrics.accesses as f64, sum.1 + share(row))
    });
    let wanted: f64 = rows
        .iter()
        .filter_map(|r| r.sampled.as_ref())
        .map(|s| s.unlogged)
        .sum();
    for row in rows {
        let own = share(row);
        let Some(all) = &mut row.sampled else {
            continue;
        };
        if all.loaded < MIN_LOADED_BLOCKS {
            continue;
        }
        let part = to_divide * all.unlogged / wanted.max(loads).max(1.0);
        let error = all.error();
        all.pct = Some(own + part);
        all.pct_lo = Some(own + part / (1.0 + error));
        // The upper end is limited to the loads that can be divided.
        all.pct_hi = Some(own + (part * (1.0 + error)).min(to_divide));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: &str, object: &str, loads: u64, sampled: Option<AllBlocks>) -> ObjectRow {
        let mut row = ObjectRow {
            kind: kind.into(),
            object: object.into(),
            sampled,
            ..ObjectRow::default()
        };
        row.metrics.accesses = loads;
        row
    }

    #[test]
    fn loads_of_the_heap_are_divided_by_what_logged_blocks_stand_for() {
        let seen = |logged, weight: f64| Sampled {
            logged,
            bytes: 32.0 * logged as f64,
            stand_for: 32.0 * logged as f64 * weight,
        };
        let site = |loads, logged, weight| Some(AllBlocks::of(seen(logged, weight), loads, loads));
        let mut rows = [
            row("heap", "a", 60, site(60, 100, 11.0)),
            row("heap", "b", 30, site(30, 100, 11.0)),
            row("heap", "rare", 1, site(1, 100, 11.0)),
            row("heap", "[heap]", 810, None),
            row("global", "g", 99, None),
        ];
        divide(&mut rows, 1000);
        let of = |n: usize| rows[n].sampled.unwrap();
        // The weights give 910 loads, but there are only 810.
        let a = 6.0 + 81.0 * 600.0 / 910.0;
        assert!((of(0).pct.unwrap() - a).abs() < 1e-9);
        assert!(of(0).pct_lo.unwrap() < a && a < of(0).pct_hi.unwrap());
        let width = |n: usize| of(n).pct_hi.unwrap() / of(n).pct_lo.unwrap();
        assert!(width(1) > width(0), "fewer blocks, wider interval");
        assert_eq!(of(2).pct, None);
        assert!(rows[3].sampled.is_none() && rows[4].sampled.is_none());
    }
}

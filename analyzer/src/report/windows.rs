//! Means over windows of each size, with the structure of the JSON.

use crate::data::counts::AccessCounts;
use crate::engine::EngineOutcome;
use crate::stages::windows::{MAX_LEVEL, MIN_LEVEL};
use serde::Serialize;

/// All whole windows of one size. Footprints are means per window of the run: each recorded window
/// has the weight of its sample's loads.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WindowRow {
    /// Accesses per window.
    #[serde(rename = "W")]
    pub size: u64,
    /// Number of whole windows.
    pub windows: u64,
    /// Accesses in them.
    #[serde(rename = "A")]
    pub accesses: u64,
    /// Implied Constant loads in these windows.
    #[serde(rename = "A_const")]
    pub implied: u64,
    /// Percent.
    #[serde(rename = "A_const_pct")]
    pub implied_pct: Option<f64>,
    /// 1 + A_const/A.
    pub kappa: Option<f64>,
    /// Mean F of a window.
    #[serde(rename = "F")]
    pub footprint: Option<f64>,
    /// Mean F_str.
    #[serde(rename = "F_str")]
    pub strided: Option<f64>,
    /// Mean F_irr.
    #[serde(rename = "F_irr")]
    pub irregular: Option<f64>,
    /// Sum of F over sum of κA.
    #[serde(rename = "dF")]
    pub growth: Option<f64>,
    /// Percent.
    #[serde(rename = "dF_str_pct")]
    pub growth_strided_pct: Option<f64>,
    /// Percent.
    #[serde(rename = "dF_irr_pct")]
    pub growth_irregular_pct: Option<f64>,
    /// Mean C.
    #[serde(rename = "C")]
    pub captures: Option<f64>,
    /// Mean S.
    #[serde(rename = "S")]
    pub survivals: Option<f64>,
    /// Reuses with both accesses inside a window.
    pub reuses: u64,
    /// Mean D of those reuses.
    #[serde(rename = "D_mean")]
    pub distance_mean: Option<f64>,
}

/// The rows of all sizes that have whole windows.
pub(crate) fn window_rows(outcome: &EngineOutcome) -> Vec<WindowRow> {
    (MIN_LEVEL..=MAX_LEVEL)
        .filter_map(|level| {
            let sums = outcome.windows.sums(level);
            if sums.windows == 0 {
                return None;
            }
            let of_run = outcome.windows.sums_of_run(level);
            let [reuses, distance] = outcome.buckets[0].reuse.levels.total(level);
            let counts = AccessCounts {
                accesses: sums.accesses,
                implied: sums.implied,
                reuses,
                distance_sum: distance,
                ..AccessCounts::default()
            };
            let metrics = counts.metrics();
            let growth = AccessCounts {
                accesses: of_run.accesses,
                implied: of_run.implied,
                footprint: of_run.footprint,
                strided: of_run.strided,
                irregular: of_run.irregular,
                ..AccessCounts::default()
            };
            let growth = growth.metrics();
            let mean = |sum: u64| Some(sum as f64 / of_run.windows as f64);
            Some(WindowRow {
                size: 1 << level,
                windows: sums.windows,
                accesses: sums.accesses,
                implied: sums.implied,
                implied_pct: metrics.implied_pct,
                kappa: metrics.kappa,
                footprint: mean(of_run.footprint),
                strided: mean(of_run.strided),
                irregular: mean(of_run.irregular),
                growth: growth.growth,
                growth_strided_pct: growth.growth_strided_pct,
                growth_irregular_pct: growth.growth_irregular_pct,
                captures: mean(of_run.captures),
                survivals: mean(of_run.footprint - of_run.captures.min(of_run.footprint)),
                reuses,
                distance_mean: metrics.distance_mean,
            })
        })
        .collect()
}

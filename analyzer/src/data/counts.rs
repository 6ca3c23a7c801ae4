//! Counts, and metrics that are computed from them. The formulas are those of
//! `docs/reference/metrics.md`.

use crate::data::histogram::Histogram;
use serde::Serialize;

/// Exact counts of a set of rows. They add up over disjoint sets of *rows*; footprints do not and
/// are set from the folded table (or, for windows, are sums over windows).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessCounts {
    /// A: load rows.
    pub accesses: u64,
    /// A_const: implied Constant loads.
    pub implied: u64,
    /// F: distinct start addresses.
    pub footprint: u64,
    /// Distinct start addresses of Strided loads.
    pub strided: u64,
    /// Distinct start addresses of Irregular loads.
    pub irregular: u64,
    /// F_64: distinct 64-byte lines touched.
    pub lines64: u64,
    /// F_4k: distinct 4 KiB pages touched.
    pub pages: u64,
    /// F_bytes: distinct bytes touched.
    pub bytes: u64,
    /// C: start addresses with at least two accesses.
    pub captures: u64,
    /// Block touches that are reuses inside their sample.
    pub reuses: u64,
    /// Block touches that are the first of their sample.
    pub first_touches: u64,
    /// Sum of D over the reuses.
    pub distance_sum: u64,
    /// Greatest D.
    pub distance_max: u64,
    /// Sum of the reuse intervals.
    pub interval_sum: u64,
    /// Store rows (not included in any count above).
    pub stores: u64,
    /// Lines that a simulated first-level cache fetched ([`crate::stages::fetches`]).
    pub fetches: u64,
    /// Bytes of the fetched lines that were used.
    pub fetched_bytes: u64,
}

fn ratio(a: u64, b: u64) -> Option<f64> {
    (b != 0).then(|| a as f64 / b as f64)
}

fn percent(a: u64, b: u64) -> Option<f64> {
    ratio(a, b).map(|r| r * 100.0)
}

impl AccessCounts {
    /// Adds the counts of other rows, except the footprints.
    pub fn add_rows(&mut self, other: &AccessCounts) {
        self.accesses += other.accesses;
        self.implied += other.implied;
        self.reuses += other.reuses;
        self.first_touches += other.first_touches;
        self.distance_sum += other.distance_sum;
        self.distance_max = self.distance_max.max(other.distance_max);
        self.interval_sum += other.interval_sum;
        self.stores += other.stores;
        self.fetches += other.fetches;
        self.fetched_bytes += other.fetched_bytes;
    }

    /// Adds everything, footprints included: valid for disjoint windows whose footprints are
    /// summed.
    pub fn add_all(&mut self, other: &AccessCounts) {
        self.add_rows(other);
        self.footprint += other.footprint;
        self.strided += other.strided;
        self.irregular += other.irregular;
        self.lines64 += other.lines64;
        self.pages += other.pages;
        self.bytes += other.bytes;
        self.captures += other.captures;
    }

    /// These counts without those of fetches.
    pub fn without_fetches(&self) -> AccessCounts {
        AccessCounts {
            fetches: 0,
            fetched_bytes: 0,
            ..*self
        }
    }

    /// The metrics.
    pub fn metrics(&self) -> Metrics {
        let all = self.accesses + self.implied;
        Metrics {
            accesses: self.accesses,
            implied: self.implied,
            implied_pct: percent(self.implied, all),
            kappa: ratio(self.implied, self.accesses).map(|r| 1.0 + r),
            footprint: self.footprint,
            lines64: self.lines64,
            pages: self.pages,
            bytes: self.bytes,
            line_bytes: ratio(self.fetched_bytes, self.fetches),
            line_bytes_set: ratio(self.bytes, self.lines64),
            strided: self.strided,
            irregular: self.irregular,
            growth: ratio(self.footprint, all),
            growth_strided: ratio(self.strided, all),
            growth_irregular: ratio(self.irregular, all),
            growth_strided_pct: percent(self.strided, self.footprint),
            growth_irregular_pct: percent(self.irregular, self.footprint),
            captures: self.captures,
            survivals: self.footprint - self.captures.min(self.footprint),
            distance_mean: ratio(self.distance_sum, self.reuses),
            distance_max: (self.reuses != 0).then_some(self.distance_max),
            distance_p50: None,
            distance_p90: None,
            distance_p99: None,
            interval_mean: ratio(self.interval_sum, self.reuses),
            reuses: self.reuses,
            first_touches: self.first_touches,
            first_pct: percent(self.first_touches, self.first_touches + self.reuses),
            stores: Some(self.stores),
        }
    }
}

/// The metrics of a set of rows, named as in JSON. A quotient without a denominator is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the fields are the symbols of docs/reference/metrics.md"
)]
pub struct Metrics {
    #[serde(rename = "A")]
    pub accesses: u64,
    #[serde(rename = "A_const")]
    pub implied: u64,
    #[serde(rename = "A_const_pct")]
    pub implied_pct: Option<f64>,
    pub kappa: Option<f64>,
    #[serde(rename = "F")]
    pub footprint: u64,
    #[serde(rename = "F_64")]
    pub lines64: u64,
    #[serde(rename = "F_4k")]
    pub pages: u64,
    #[serde(rename = "F_bytes")]
    pub bytes: u64,
    pub line_bytes: Option<f64>,
    pub line_bytes_set: Option<f64>,
    #[serde(rename = "F_str")]
    pub strided: u64,
    #[serde(rename = "F_irr")]
    pub irregular: u64,
    #[serde(rename = "dF")]
    pub growth: Option<f64>,
    #[serde(rename = "dF_str")]
    pub growth_strided: Option<f64>,
    #[serde(rename = "dF_irr")]
    pub growth_irregular: Option<f64>,
    #[serde(rename = "dF_str_pct")]
    pub growth_strided_pct: Option<f64>,
    #[serde(rename = "dF_irr_pct")]
    pub growth_irregular_pct: Option<f64>,
    #[serde(rename = "C")]
    pub captures: u64,
    #[serde(rename = "S")]
    pub survivals: u64,
    #[serde(rename = "D_mean")]
    pub distance_mean: Option<f64>,
    #[serde(rename = "D_max")]
    pub distance_max: Option<u64>,
    #[serde(rename = "D_p50")]
    pub distance_p50: Option<f64>,
    #[serde(rename = "D_p90")]
    pub distance_p90: Option<f64>,
    #[serde(rename = "D_p99")]
    pub distance_p99: Option<f64>,
    pub interval_mean: Option<f64>,
    pub reuses: u64,
    pub first_touches: u64,
    pub first_pct: Option<f64>,
    /// None for parts of memory, where stores are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stores: Option<u64>,
}

/// Assumed log2 of the distance of a touch that is the first of its sample. It is greater than
/// windows can show.
const FIRST_TOUCH_LOG2: f64 = 16.0;

impl Metrics {
    /// Locality as a number, greater meaning worse: the mean of log2 of D over the touches. First
    /// touches of a sample count with `FIRST_TOUCH_LOG2`. D alone misleads in windows, because
    /// reuses after the window's end have no D. `None` without touches.
    pub fn badness(&self) -> Option<f64> {
        let touches = (self.first_touches + self.reuses) as f64;
        let near = (1.0 + self.distance_mean.unwrap_or(0.0)).log2() * self.reuses as f64;
        (touches > 0.0).then(|| (near + FIRST_TOUCH_LOG2 * self.first_touches as f64) / touches)
    }

    /// The metrics of a part of memory: stores are not counted there.
    pub fn without_stores(self) -> Metrics {
        Metrics {
            stores: None,
            ..self
        }
    }

    /// The metrics with percentiles of D.
    pub fn with_distances(mut self, distances: &Histogram) -> Metrics {
        self.distance_p50 = distances.percentile(0.5);
        self.distance_p90 = distances.percentile(0.9);
        self.distance_p99 = distances.percentile(0.99);
        self
    }
}

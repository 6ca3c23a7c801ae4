//! One comparison and its outcome.

use crate::compare::entries::{Cell, EntryKind, Metric};
use serde::Serialize;

/// Verdict on a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Smaller, and not by chance.
    Better,
    /// Greater, and not by chance.
    Worse,
    /// The interval of the ratio lies within 10 % of one, or the difference is negligible.
    Same,
    /// None of the others can be concluded.
    Unclear,
}

/// Method by which a comparison was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Test {
    /// Both sides are exact.
    Exact,
    /// Ranks of the runs (Mann–Whitney).
    Ranks,
    /// Intervals of the traces.
    Intervals,
    /// One of the two has no interval.
    None,
}

/// One comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Name in the base, or in the new build if the base does not have it.
    pub name: String,
    /// Name in the new build, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_name: Option<String>,
    /// `file:line` of a line or loop in the base.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// `file:line` of the line or loop in the new build.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub new_place: String,
    /// The number, as in `--fail-if`.
    #[serde(serialize_with = "metric_name")]
    pub metric: Metric,
    /// Unit of the number.
    pub unit: &'static str,
    /// In the base.
    pub base: Cell,
    /// In the new build.
    pub new: Cell,
    /// Change, percent of the base; null if that is 0.
    pub change_pct: Option<f64>,
    /// Ends of the 95 % interval of the change, percent.
    pub change_lo: Option<f64>,
    /// See `change_lo`.
    pub change_hi: Option<f64>,
    /// Probability of such a difference by chance, corrected for the number of comparisons.
    pub p: Option<f64>,
    /// Method of the decision.
    pub test: Test,
    /// The outcome.
    pub verdict: Verdict,
    /// The greater share of time or loads of the two, percent.
    pub weight: f64,
}

pub(super) fn metric_name<S: serde::Serializer>(metric: &Metric, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&metric.name())
}

//! Variants of a prediction, for differences of two predictions that share their errors.
//!
//! Two predictions from the same samples have mostly the same errors. So the error of their
//! difference follows from pairs of variants: each pair leaves out the same samples, or has the
//! same errors of the model.

use crate::data::group::Group;
use crate::misses::Predicted;
use crate::misses::row_misses::{Ratios, Weighed};
use crate::stages::line_visits::PARTS;

/// A variant of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// The samples of a replicate are left out.
    Without(usize),
    /// Misses at the lower end of the model's errors.
    Least,
    /// Misses at the upper end.
    Most,
}

impl Variant {
    /// All replicates.
    pub(crate) fn replicates() -> impl Iterator<Item = Variant> {
        (0..PARTS).map(Variant::Without)
    }
}

impl Predicted {
    /// True if misses were counted, so that all variants are the same.
    pub(crate) fn is_exact(&self) -> bool {
        self.exact
    }

    /// The misses of groups in a variant. It has no curves, no objects and no intervals.
    pub(crate) fn variant(&self, variant: Variant) -> Predicted {
        let levels = self.hierarchy.caches.len();
        let of = |(&group, (weighed, ratios)): (&Group, &(Weighed, Ratios))| {
            let mut weighed = weighed.clone();
            let value = match variant {
                Variant::Without(part) => {
                    weighed.accesses[part] = 0.0;
                    weighed.loads[part] = 0.0;
                    ratios.without.get(part).filter(|v| !v.is_empty())
                }
                Variant::Least => Some(&ratios.least),
                Variant::Most => Some(&ratios.most),
            };
            let value = value.unwrap_or(&ratios.value);
            let value: Vec<f64> = value.iter().take(levels).copied().collect();
            let ratios = Ratios {
                least: value.clone(),
                most: value.clone(),
                value,
                without: Vec::new(),
            };
            (group, (weighed, ratios))
        };
        self.with_groups(self.groups.iter().map(of).collect())
    }
}

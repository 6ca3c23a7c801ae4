//! The curve itself: the strata's data, and the footprint at any size.

use crate::estimate::Estimate;
use mgz_models::statistics::NORMAL_QUANTILE_OF_95_PCT;

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// Mean footprint.
    pub footprint: Estimate,
    /// True if windows of this size were counted; otherwise the footprint is an estimate.
    pub measured: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Stratum {
    /// Its footprint in windows of two periods that touch it.
    pub(crate) nearby: f64,
    pub(crate) per_sample: f64,
    pub(crate) irregular: f64,
    /// Share of the windows of 1, 2, 4, … samples that touch it.
    pub(crate) active: Vec<f64>,
    /// Number of loads of these windows (the mean over those that touch the stratum, if they
    /// differ) and the mean footprint.
    pub(crate) levels: Vec<(f64, MeanSpread)>,
}

impl Stratum {
    /// Number of samples, as a power of two, in windows of `size` rows that touch the stratum.
    pub(crate) fn level(&self, size: f64) -> f64 {
        match self.levels.iter().position(|l| l.0 > size) {
            Some(0) => 0.0,
            Some(at) => {
                let (from, to) = (self.levels[at - 1].0, self.levels[at].0);
                (at - 1) as f64 + (size / from).ln() / (to / from).ln()
            }
            None => self.levels.len().saturating_sub(1) as f64,
        }
    }
}

/// A mean, and the squared distances to the lower and upper ends of its interval.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MeanSpread {
    pub(crate) value: f64,
    pub(crate) below: f64,
    pub(crate) above: f64,
}

impl MeanSpread {
    pub(crate) fn add(&mut self, other: MeanSpread) {
        self.value += other.value;
        self.below += other.below;
        self.above += other.above;
    }

    pub(crate) fn estimate(self) -> Estimate {
        Estimate {
            value: self.value,
            lo: (self.value - self.below.sqrt()).max(0.0),
            hi: self.value + self.above.sqrt(),
        }
    }
}

/// Footprint against window size.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    pub(crate) inside: Vec<(f64, f64)>,
    pub(crate) strata: Vec<Stratum>,
    pub(crate) sample: f64,
    pub(crate) period: f64,
    pub(crate) longest: f64,
    pub(crate) growth: f64,
    /// The model's sum over strata for windows of the sample's size.
    pub(crate) at_sample: f64,
    /// Relative standard deviation of `at_sample`, from the choice of samples that touch the
    /// strata.
    pub(crate) met: f64,
    /// True if samples represent different numbers of loads.
    pub(crate) weighed: bool,
    /// Sizes from two periods on, ascending, and their estimated footprints.
    pub(crate) far: Vec<(f64, Estimate)>,
}

impl Curve {
    /// The footprint of windows of `size` rows; `None` outside of the curve.
    pub fn at(&self, size: f64) -> Option<CurvePoint> {
        let half = NORMAL_QUANTILE_OF_95_PCT * self.met;
        if let Some(&(_, value)) = self.inside.iter().find(|i| (i.0 / size - 1.0).abs() < 1e-9) {
            let footprint = Estimate {
                value,
                lo: value * (1.0 - half).max(0.0),
                hi: value * (1.0 + half),
            };
            return Some(CurvePoint {
                footprint,
                measured: true,
            });
        }
        if size > self.longest * (1.0 + 1e-9) {
            return None;
        }
        if size < self.sample {
            // Below the sample's size, but longer than most samples.
            let at = self
                .inside
                .iter()
                .position(|i| i.0 > size)
                .unwrap_or(self.inside.len());
            let from = *self.inside.get(at.checked_sub(1)?)?;
            let value = self.inside.get(at).map_or_else(
                || grown_from(from, size, self.growth),
                |&to| straight(from, to, size),
            );
            return Some(CurvePoint {
                footprint: Estimate {
                    value,
                    lo: value * (1.0 - half).max(0.0),
                    hi: value * (1.0 + half),
                },
                measured: false,
            });
        }
        let footprint = match self.far.iter().position(|f| f.0 * (1.0 + 1e-9) >= size) {
            Some(0) => self.between(size, half),
            Some(at) => {
                let (from, to) = (self.far[at - 1], self.far[at]);
                let of = |of: fn(&Estimate) -> f64| {
                    straight((from.0, of(&from.1)), (to.0, of(&to.1)), size)
                };
                Estimate {
                    value: of(|e| e.value),
                    lo: of(|e| e.lo),
                    hi: of(|e| e.hi),
                }
            }
            // Beyond the longest windows that can be counted, the footprint is constant.
            None => self.far.last()?.1,
        };
        Some(CurvePoint {
            footprint,
            measured: false,
        })
    }

    /// The footprint between the sample and the first of the far sizes.
    pub(crate) fn between(&self, size: f64, half: f64) -> Estimate {
        // The model starts at the sample's size. It is exact there, except for variation that the
        // strata's means hide.
        let at_sample = self.at_sample;
        let exact = self
            .inside
            .last()
            .map_or(at_sample, |i| grown_from(*i, self.sample, self.growth));
        let fade = (self.sample / size).sqrt();
        let fit = 1.0 + (exact / at_sample.max(1e-300) - 1.0) * fade;
        let value = self.model(size) * fit;
        let (end, found) = self.far[0];
        let part = if end > self.sample {
            (size / self.sample).ln() / (end / self.sample).ln()
        } else {
            1.0
        };
        let factor = |bound: f64, near: f64| {
            near + (bound / found.value.max(1e-300) - near) * part.clamp(0.0, 1.0)
        };
        Estimate {
            value,
            lo: value * factor(found.lo, (1.0 - half).max(0.0)),
            hi: value * factor(found.hi, 1.0 + half),
        }
    }

    /// The model's footprint for windows of `size` rows, between the sample and two periods.
    pub(crate) fn model(&self, size: f64) -> f64 {
        self.strata.iter().map(|s| self.grown(s, size)).sum()
    }

    /// The model's footprint of one stratum.
    pub(crate) fn grown(&self, s: &Stratum, size: f64) -> f64 {
        let end = if self.weighed {
            s.levels.get(1).map(|l| l.0)
        } else {
            self.far.first().map(|f| f.0)
        }
        .unwrap_or(self.sample);
        let whole = s.nearby.max(s.per_sample);
        // A window may touch the stratum for only part of its time.
        let (active, first) = (
            self.activity(s, size),
            s.active.first().copied().unwrap_or(0.0),
        );
        let steps =
            |size: f64, active: f64| (size / self.sample * first / active.max(1e-300)).max(1.0);
        let (now, last) = (steps(size, active), steps(end, self.activity(s, end)));
        let grown = |steps: f64| {
            let walked = (s.per_sample * (1.0 + self.growth * (steps - 1.0))).min(whole);
            let chance = whole * (1.0 - (1.0 - (s.per_sample / whole).min(1.0)).powf(steps));
            walked + (chance - walked) * s.irregular
        };
        // The curve must reach the footprint of windows of two periods.
        let power = if last > 1.0 && s.per_sample > 0.0 {
            (whole / s.per_sample).ln() / last.ln()
        } else {
            0.0
        };
        active * grown(now).max(s.per_sample * now.powf(power)).min(whole)
    }

    /// The mean footprint of one stratum in windows of `size` rows, two periods or more. If the
    /// code is so fast that even a window of two samples has more rows, the model gives the
    /// footprint.
    pub(crate) fn far_of(&self, s: &Stratum, size: f64) -> MeanSpread {
        match s.levels.iter().position(|l| l.0 >= size) {
            Some(at) if s.levels[at].0 == size => s.levels[at].1,
            Some(at) if at > 1 => {
                let (from, to) = (s.levels[at - 1], s.levels[at]);
                let of = |of: fn(&MeanSpread) -> f64| {
                    straight((from.0, of(&from.1)), (to.0, of(&to.1)), size)
                };
                MeanSpread {
                    value: of(|s| s.value),
                    below: of(|s| s.below),
                    above: of(|s| s.above),
                }
            }
            Some(_) => {
                let known = s
                    .levels
                    .get(1)
                    .or(s.levels.first())
                    .map(|l| l.1)
                    .unwrap_or_default();
                let value = self.grown(s, size);
                let part = (value / known.value.max(1e-300)).powi(2);
                MeanSpread {
                    value,
                    below: known.below * part,
                    above: known.above * part,
                }
            }
            // The run has no longer windows that touch the stratum.
            None => s.levels.last().map(|l| l.1).unwrap_or_default(),
        }
    }

    /// Share of the windows of `size` rows that touch a stratum.
    pub(crate) fn activity(&self, stratum: &Stratum, size: f64) -> f64 {
        let level = if self.weighed {
            stratum.level(size)
        } else {
            (size / self.period).max(1.0).log2()
        };
        let (low, part) = (level.floor() as usize, level.fract());
        let at = |l: usize| {
            stratum
                .active
                .get(l)
                .or(stratum.active.last())
                .copied()
                .unwrap_or(0.0)
        };
        at(low) + (at(low + 1) - at(low)) * part
    }

    /// Greatest size.
    pub fn end(&self) -> f64 {
        self.longest
    }
}

/// The footprint of windows that are slightly longer than those of a known footprint.
pub(crate) fn grown_from((known, footprint): (f64, f64), size: f64, growth: f64) -> f64 {
    footprint * (size / known).powf(growth.min(1.0))
}

/// Interpolates between two sizes, linearly in logarithms.
pub(crate) fn straight((from, a): (f64, f64), (to, b): (f64, f64), size: f64) -> f64 {
    let part = ((size / from).ln() / (to / from).ln()).clamp(0.0, 1.0);
    if a > 0.0 && b > 0.0 {
        (a.ln() + (b / a).ln() * part).exp()
    } else {
        a + (b - a) * part
    }
}

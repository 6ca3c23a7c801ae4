//! The strata of a footprint curve, measured one by one.

use crate::estimate::curve_order::Order;
use crate::estimate::curve_points::{MeanSpread, Stratum};
use crate::estimate::curve_sightings::{LEVELS, Once, Together, Weighed, varies};
use crate::estimate::recapture::Tally;
use crate::estimate::{Blocks, Design, Estimate};
use mgz_models::statistics::NORMAL_QUANTILE_OF_95_PCT;

/// Samples that have seen the blocks of a stratum.
struct Seen {
    /// The samples, sorted: thread in the upper bits, number in the lower bits.
    touched: Vec<u64>,
    /// Pairs of a block and a sample.
    sightings: u64,
    /// For windows of 1, 2, 4, … samples: blocks seen at all, once, twice, three times.
    counts: Vec<[f64; 4]>,
}

/// The complete windows of `1 << level` samples that touch a stratum.
struct Touching {
    level: usize,
    /// Sum of their weights, and sum of the squares of these.
    weights: f64,
    squares: f64,
    /// Total weight of all windows, touching or not.
    windows: f64,
}

/// Measures strata.
pub(crate) struct Strata<'a> {
    blocks: &'a Blocks,
    order: &'a Order,
    sample: f64,
    period: f64,
    design: Design,
    scale: f64,
    weighed: bool,
    /// Total weight of the windows of each number of samples, over all threads.
    pub(crate) windows: Vec<f64>,
    /// Standard deviation of the logarithm of the samples' weights.
    speeds: f64,
    /// Variance of the sum over strata, from the choice of samples that touch them.
    pub(crate) met: f64,
    once: Once,
}

impl<'a> Strata<'a> {
    /// Starts without strata. The arguments are those of [`crate::estimate::curve()`].
    pub(crate) fn new(
        blocks: &'a Blocks,
        order: &'a Order,
        sample: f64,
        period: f64,
        design: Design,
        scale: f64,
    ) -> Strata<'a> {
        Strata {
            blocks,
            order,
            sample,
            period,
            design,
            scale,
            weighed: order.is_weighed(),
            windows: (0..LEVELS)
                .map(|level| order.windows(level))
                .take_while(|&w| w > 0.0)
                .collect(),
            speeds: design
                .weights
                .map_or(0.0, |error| error.ln_1p() / NORMAL_QUANTILE_OF_95_PCT),
            met: 0.0,
            once: Once::new(order.lengths()),
        }
    }

    /// Measures the stratum of these blocks.
    pub(crate) fn measure(&mut self, group: &[u32]) -> Stratum {
        let seen = self.seen(group);
        let mut varies = varies(&seen.touched, self.order);
        let mut stratum = Stratum {
            irregular: self.irregular(group),
            ..Stratum::default()
        };
        // First samples of windows of 1, 2, 4, … samples that touch the stratum, halved at each
        // level.
        let mut starts: Vec<(u32, u32)> = seen
            .touched
            .iter()
            .map(|&t| ((t >> 32) as u32, t as u32))
            .collect();
        for (level, counts) in seen.counts.into_iter().take(self.windows.len()).enumerate() {
            if level > 0 {
                starts.iter_mut().for_each(|w| w.1 /= 2);
                starts.dedup();
            }
            let touching = self.touching(&starts, level);
            if level == 0 {
                stratum.per_sample = if self.weighed {
                    counts[0] / touching.weights.max(1e-300)
                } else {
                    seen.sightings as f64 / seen.touched.len().max(1) as f64
                };
            }
            if touching.weights <= 0.0 && self.weighed {
                // No window of this size touches it.
                break;
            }
            let active = touching.weights / touching.windows;
            stratum.active.push(active);
            if level == 0 {
                // The error of the speeds does not matter for a stratum that all loads of the run
                // touch.
                varies += (self.speeds * (1.0 - active)).powi(2);
            }
            self.add_level(&mut stratum, counts, &touching, varies);
        }
        if stratum.nearby == 0.0 {
            stratum.nearby = stratum.per_sample;
        }
        stratum.per_sample *= self.scale;
        stratum
    }

    /// Counts the samples that have seen these blocks.
    fn seen(&mut self, group: &[u32]) -> Seen {
        let lengths = self.order.lengths();
        let mut places: Vec<(u32, u32)> = Vec::new();
        let mut touched: Vec<u64> = Vec::new();
        let mut sightings = 0u64;
        let mut together = Together::new();
        let mut weighed = Weighed {
            levels: vec![[0.0; 4]; if self.weighed { self.windows.len() } else { 0 }],
        };
        self.once.begin();
        for &at in group {
            places.clear();
            let samples = self.blocks.samples(at as usize).iter();
            places.extend(samples.filter_map(|&s| self.order.get(s)));
            if !places.is_sorted() {
                places.sort_unstable();
            }
            sightings += places.len() as u64;
            touched.extend(
                places
                    .iter()
                    .filter(|p| self.once.is_new(**p))
                    .map(|p| u64::from(p.0) << 32 | u64::from(p.1)),
            );
            if self.weighed {
                weighed.add(&places, self.order);
            } else {
                together.add(&places, lengths);
            }
        }
        touched.sort_unstable();
        Seen {
            touched,
            sightings,
            counts: if self.weighed {
                weighed.levels
            } else {
                together.levels().collect()
            },
        }
    }

    /// Share of the blocks that Irregular loads touch.
    fn irregular(&self, group: &[u32]) -> f64 {
        let list = &self.blocks.listed.blocks;
        let irregular = group.iter().filter(|&&at| list[at as usize].irregular);
        irregular.count() as f64 / group.len() as f64
    }

    /// Weighs the windows of `1 << level` samples that touch a stratum (`starts`). A last,
    /// incomplete one does not count.
    fn touching(&self, starts: &[(u32, u32)], level: usize) -> Touching {
        let lengths = self.order.lengths();
        let whole = starts
            .iter()
            .filter(|w| w.1 < lengths[w.0 as usize] >> level);
        let (weights, squares) = whole
            .map(|w| self.order.weight(w.0, w.1, level))
            .fold((0.0, 0.0), |(sum, squares), w| (sum + w, squares + w * w));
        Touching {
            level,
            weights,
            squares,
            windows: self.windows[level],
        }
    }

    /// Adds the footprint in windows of one size. `varies`: relative variance of the weight of the
    /// samples that touch the stratum.
    fn add_level(
        &mut self,
        stratum: &mut Stratum,
        counts: [f64; 4],
        touching: &Touching,
        varies: f64,
    ) {
        let (level, windows) = (touching.level, touching.windows);
        // Mean loads of a window that touches the stratum, and the weight of one. The evidence
        // equals that of (Σw)²/Σw² equal windows.
        let (size, each) = if self.weighed {
            let mean = touching.squares / touching.weights;
            (mean, mean)
        } else {
            ((1u64 << level) as f64 * self.period, 1.0)
        };
        let [seen, once @ ..] = counts;
        let unseen = if level == 0 {
            Estimate::exact(0.0)
        } else {
            let here = self.design_of(level, size);
            Tally::pooled(
                once.map(|n| n / each),
                stratum.per_sample,
                stratum.irregular,
                here,
            )
            .unseen(here)
        };
        let unseen = unseen.times(each);
        let value = (seen + unseen.value) * self.scale / windows;
        let by_time = value * value * varies;
        if level == 0 {
            self.met += by_time;
        }
        if level == 1 && touching.weights > 0.0 {
            stratum.nearby = (seen + unseen.value) * self.scale / touching.weights;
        }
        let off = |by: f64| {
            (by * self.scale / windows).powi(2)
                + NORMAL_QUANTILE_OF_95_PCT * NORMAL_QUANTILE_OF_95_PCT * by_time
        };
        stratum.levels.push((
            size,
            MeanSpread {
                value,
                below: off(unseen.value - unseen.lo),
                above: off(unseen.hi - unseen.value),
            },
        ));
    }

    /// The design of the sampling of windows of `1 << level` samples and `size` loads.
    fn design_of(&self, level: usize, size: f64) -> Design {
        let marked = self.design.marked();
        let share = if self.weighed {
            ((1u64 << level) as f64 * self.sample / size).clamp(f64::MIN_POSITIVE, 1.0)
        } else {
            marked.share
        };
        Design {
            samples: 1 << level,
            share,
            ..marked
        }
    }
}

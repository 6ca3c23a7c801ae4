//! Results that combine the samples of a trace: footprint by window size beyond the sample, and
//! reuse of pages from sample to sample.

use crate::data::detail::Detail;
use crate::data::log_histogram::{Bin, LogHistogram};
use crate::data::memory_units::{PAGE_BYTES, PAGE_SHIFT};
use crate::data::samples::SampleInfo;
use crate::engine::EngineOutcome;
use crate::estimate::sample_shares::Shares;
use crate::estimate::{Blocks, Curve, Design, Estimate, Order, curve, params};
use crate::stages::windows::{MAX_LEVEL, MIN_LEVEL, WindowSums};
use crate::util::fast_hash::Mixed;
use rayon::prelude::*;
use serde::Serialize;
use std::collections::HashMap;

/// Mean footprint of windows of one size, most of whose loads are between samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[allow(
    missing_docs,
    reason = "the fields are the symbols of docs/reference/metrics.md"
)]
pub struct GrowthRow {
    /// Window size in loads that would have a row if recorded.
    #[serde(rename = "W")]
    pub size: u64,
    #[serde(rename = "F_hat")]
    pub footprint: Option<f64>,
    #[serde(rename = "F_lo")]
    pub footprint_lo: Option<f64>,
    #[serde(rename = "F_hi")]
    pub footprint_hi: Option<f64>,
    #[serde(rename = "F_undersampled")]
    pub footprint_undersampled: bool,
    #[serde(rename = "F_str_hat")]
    pub strided: Option<f64>,
    #[serde(rename = "F_str_lo")]
    pub strided_lo: Option<f64>,
    #[serde(rename = "F_str_hi")]
    pub strided_hi: Option<f64>,
    #[serde(rename = "F_str_undersampled")]
    pub strided_undersampled: bool,
    #[serde(rename = "F_irr_hat")]
    pub irregular: Option<f64>,
    #[serde(rename = "F_irr_lo")]
    pub irregular_lo: Option<f64>,
    #[serde(rename = "F_irr_hi")]
    pub irregular_hi: Option<f64>,
    #[serde(rename = "F_irr_undersampled")]
    pub irregular_undersampled: bool,
    #[serde(rename = "F_4k_hat")]
    pub pages: Option<f64>,
    /// True: counted inside samples; false: estimated.
    pub measured: bool,
}

/// Reuse of pages between samples of a thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InterSample {
    /// Bytes of a block.
    pub block: u64,
    /// Pages of samples that an earlier sample of the thread has seen.
    pub reuses: u64,
    /// Pages of samples that no earlier sample has seen.
    pub first_touches: u64,
    /// Mean number of loads between the two samples.
    pub interval_mean: Option<f64>,
    /// Mean number of distinct pages in between, from the footprint of windows of that length.
    #[serde(rename = "D_mean_hat")]
    pub distance_mean: Option<f64>,
    /// Footprint by the report's formula: footprint growth inside samples times the interval.
    #[serde(rename = "D_memgaze_hat")]
    pub distance_memgaze: Option<f64>,
    /// Histogram of the interval.
    pub interval_hist: Vec<Bin>,
    /// Histogram of D.
    #[serde(rename = "D_hist")]
    pub distance_hist: Vec<Bin>,
}

/// For each sample that `wanted` selects: its thread and its number among the selected samples of
/// that thread, in the order of the trace. If samples represent different numbers of loads, also
/// that number; the selected samples represent `part` of all loads.
fn order(
    outcome: &EngineOutcome,
    shares: Option<(&Shares, f64)>,
    wanted: impl Fn(u32) -> bool,
) -> Order {
    let mut threads: HashMap<(u32, u32), u32> = HashMap::new();
    let mut order = Order::default();
    for sample in outcome
        .samples
        .iter()
        .filter(|s| s.loads > 0 && wanted(s.sample))
    {
        let number = threads.len() as u32;
        let thread = *threads
            .entry((sample.process, sample.thread))
            .or_insert(number);
        order.add(
            sample.sample,
            thread,
            shares.map(|(shares, part)| shares.loads(sample.sample) / part),
        );
    }
    order
}

/// Share of the samples that have marks, so that their addresses are known.
pub fn kept(outcome: &EngineOutcome) -> f64 {
    if outcome.incidence.thinned() == 0 {
        return 1.0;
    }
    let with_loads = || outcome.samples.iter().filter(|s| s.loads > 0);
    with_loads()
        .filter(|s| outcome.incidence.has(s.sample))
        .count() as f64
        / with_loads().count().max(1) as f64
}

/// The samples that have marks.
pub(crate) fn marked(outcome: &EngineOutcome) -> impl Iterator<Item = u32> + '_ {
    outcome
        .samples
        .iter()
        .filter(|s| s.loads > 0)
        .map(|s| s.sample)
        .filter(|&s| outcome.incidence.has(s))
}

/// Blocks that samples have seen, for the whole trace.
#[derive(Default)]
pub struct WholeSightings {
    /// Addresses.
    pub all: Blocks,
    /// Addresses of Strided loads.
    pub strided: Blocks,
    /// Addresses of Irregular loads.
    pub irregular: Blocks,
    /// Lines of 64 bytes.
    pub lines: Blocks,
    /// Pages.
    pub pages: Blocks,
}

impl WholeSightings {
    /// From the marks. `shares` are the weights of samples, if these differ. A screen needs only
    /// addresses and lines.
    pub fn new(outcome: &EngineOutcome, shares: Option<&Shares>, detail: Detail) -> WholeSightings {
        if !detail.is_all() {
            let blocks = |shift| Blocks::new(&outcome.incidence, shares, shift, |_| true);
            let (all, lines) = rayon::join(|| blocks(0), || blocks(6));
            return WholeSightings {
                all,
                lines,
                ..WholeSightings::default()
            };
        }
        let ([all, strided, irregular], [lines, pages]) = rayon::join(
            || Blocks::addresses(&outcome.incidence, shares),
            || Blocks::lines_and_pages(&outcome.incidence, shares),
        );
        WholeSightings {
            all,
            strided,
            irregular,
            lines,
            pages,
        }
    }

    /// Divides all lists in parallel. Later requests come one after the other.
    pub(crate) fn divide(&self, design: Design, detail: Detail) {
        if !detail.is_all() {
            return self.lines.listed.divide(design);
        }
        [
            &self.all,
            &self.lines,
            &self.strided,
            &self.irregular,
            &self.pages,
        ]
        .into_par_iter()
        .for_each(|blocks| blocks.listed.divide(design));
    }
}

/// Sorts sightings. They are mostly sorted already, since the samples of a thread are consecutive.
fn sort(sightings: &mut [(u32, u32)]) {
    if !sightings.is_sorted() {
        sightings.sort_unstable();
    }
}

/// Tests for resonance between the sampling period and the program. The result is the number of
/// samples after which most of the addresses of a sample are seen again. In this case some parts of
/// a loop were sampled repeatedly and the others never.
pub fn resonance(outcome: &EngineOutcome, seen: &WholeSightings) -> Option<u32> {
    let blocks = &seen.all;
    let all = order(outcome, None, |_| true);
    let samples = all.len() as u32;
    // By thread, for the samples with marks: their numbers among all samples, and the number of
    // addresses that they saw.
    let order = order(outcome, None, |sample| outcome.incidence.has(sample));
    let mut numbers: Vec<Vec<u32>> = Vec::new();
    for ((thread, at), (_, number)) in marked(outcome).filter_map(|s| order.get(s).zip(all.get(s)))
    {
        numbers.resize(numbers.len().max(thread as usize + 1), Vec::new());
        let numbers = &mut numbers[thread as usize];
        numbers.extend(Some(number).filter(|_| numbers.len() == at as usize));
    }
    let mut sightings: Vec<Vec<u64>> = numbers.iter().map(|n| vec![0; n.len()]).collect();
    let mut lags: HashMap<u32, u64, Mixed> = HashMap::default();
    let mut seen: Vec<(u32, u32)> = Vec::new();
    for at in 0..blocks.listed.blocks.len() {
        seen.clear();
        seen.extend(blocks.samples(at).iter().filter_map(|&s| order.get(s)));
        sort(&mut seen);
        seen.iter()
            .for_each(|&(thread, at)| sightings[thread as usize][at as usize] += 1);
        // Data that is always in use is seen again in the next sample. That is no resonance.
        for pair in seen
            .windows(2)
            .filter(|p| p[0].0 == p[1].0 && p[1].1 - p[0].1 >= params::MIN_RESONANCE_LAG)
        {
            let numbers = &numbers[pair[0].0 as usize];
            *lags
                .entry(numbers[pair[1].1 as usize] - numbers[pair[0].1 as usize])
                .or_default() += 1;
        }
    }
    let (&lag, &count) = lags
        .iter()
        .max_by_key(|(lag, count)| (**count, std::cmp::Reverse(**lag)))?;
    // Sightings that have a partner sample at that distance.
    let of_thread = |(numbers, sightings): (&Vec<u32>, &Vec<u64>)| {
        let has_partner = |number: u32| numbers.binary_search(&(number + lag)).is_ok();
        numbers
            .iter()
            .zip(sightings)
            .filter(|(number, _)| has_partner(**number))
            .map(|(_, &n)| n)
            .sum::<u64>()
    };
    let chances = numbers.iter().zip(&sightings).map(of_thread).sum::<u64>();
    (samples >= params::MIN_SAMPLES_FOR_RESONANCE
        && f64::from(samples) >= params::MIN_SAMPLES_OVER_RESONANCE_LAG * f64::from(lag)
        && count as f64 > params::MIN_REPEATED_SHARE_OF_RESONANCE * chances as f64)
        .then_some(lag)
}

/// Addresses that only the parts of the run before the first sample and after the last may touch:
/// one period of loads, with as many addresses per load as the densest sample.
pub fn hidden(outcome: &EngineOutcome, seen: &WholeSightings, rho: f64) -> f64 {
    let counts = seen.all.by_sample();
    let of = |s: &SampleInfo| {
        counts.get(&s.sample).map_or(0.0, |&n| {
            f64::from(n) * outcome.incidence.scale() / s.loads as f64
        })
    };
    let densest = outcome
        .samples
        .iter()
        .filter(|s| s.loads > 0)
        .map(of)
        .fold(0.0, f64::max)
        .min(1.0);
    densest * (rho - 1.0).max(0.0) * outcome.census.loads as f64
        / outcome.census.samples.max(1) as f64
}

/// Share of the run's samples with at least `loads` loads. If samples differ in weight: share of
/// the loads that they represent.
fn long_enough(outcome: &EngineOutcome, shares: Option<&Shares>, loads: u64) -> f64 {
    let of = |least: u64| {
        outcome
            .samples
            .iter()
            .filter(|s| s.loads >= least.max(1))
            .map(|s| shares.map_or(1.0, |shares| shares.loads(s.sample)))
            .sum::<f64>()
    };
    of(loads) / of(0).max(f64::MIN_POSITIVE)
}

/// Makes curves of a sampled trace.
struct Curves<'a> {
    outcome: &'a EngineOutcome,
    shares: Option<&'a Shares>,
    /// The samples that have marks, of which windows consist.
    marked: Order,
    design: Design,
    /// Mean loads of a sample over the run, like the footprints.
    size: f64,
    /// Mean loads from a sample with marks to the next.
    step: f64,
}

impl Curves<'_> {
    /// Means of windows inside samples.
    fn inside(&self, of: fn(&WindowSums) -> u64) -> Vec<(f64, f64)> {
        // Samples have equally many records, but some code has more loads per record than other
        // code. The few samples that are longer than the others are all of such code.
        let most = (MIN_LEVEL..=MAX_LEVEL).rev().find(|&level| {
            long_enough(self.outcome, self.shares, 1 << level)
                >= params::MIN_SAMPLE_SHARE_OF_WINDOW_SIZE
        });
        (MIN_LEVEL..=most.unwrap_or(MIN_LEVEL))
            .map(|level| (level, self.outcome.windows.sums_of_run(level)))
            .filter(|(_, s)| s.windows > 0)
            .map(|(level, s)| ((1u64 << level) as f64, of(&s) as f64 / s.windows as f64))
            .collect()
    }

    /// Mean footprint of samples. Samples are also windows, of a mean size that is rarely near a
    /// power of two.
    fn of_samples(&self, blocks: &Blocks) -> f64 {
        let (outcome, shares) = (self.outcome, self.shares);
        let counts = blocks.by_sample();
        let loads = |s: &SampleInfo| shares.map_or(1.0, |shares| shares.loads(s.sample));
        let of = |s: &SampleInfo| f64::from(counts.get(&s.sample).copied().unwrap_or(0));
        let all = || {
            outcome
                .samples
                .iter()
                .filter(|s| s.loads > 0 && outcome.incidence.has(s.sample))
        };
        all().map(|s| loads(s) * of(s)).sum::<f64>() * outcome.incidence.scale()
            / all().map(loads).sum::<f64>().max(f64::MIN_POSITIVE)
    }

    /// Makes a curve from means inside samples and from blocks of `1 << shift` addresses.
    fn make(&self, mut inside: Vec<(f64, f64)>, blocks: &Blocks, shift: u32) -> Curve {
        if inside.last().is_some_and(|i| i.0 < self.size) {
            inside.push((self.size, self.of_samples(blocks)));
        }
        curve(
            &inside,
            blocks,
            &self.marked,
            (self.size, self.step),
            shift,
            self.design,
            self.outcome.incidence.scale(),
        )
    }
}

/// The curves of the table.
struct GrowthCurves {
    all: Curve,
    strided: Curve,
    irregular: Curve,
    pages: Curve,
}

impl GrowthCurves {
    fn rows(&self) -> Vec<GrowthRow> {
        (MIN_LEVEL..63)
            .map(|level| (1u64 << level) as f64)
            .take_while(|&size| size <= self.all.end())
            .filter_map(|size| self.row(size))
            .collect()
    }

    fn row(&self, size: f64) -> Option<GrowthRow> {
        // (An empty sum is -0.)
        let plain = |x: f64| x + 0.0;
        let point = self.all.at(size)?;
        let of = |curve: &Curve| curve.at(size).map(|p| p.footprint);
        let (strided, irregular, pages) = (of(&self.strided), of(&self.irregular), of(&self.pages));
        let vague = |e: Option<Estimate>| e.is_some_and(|e| e.value > 0.0 && e.is_vague());
        Some(GrowthRow {
            size: size as u64,
            footprint: Some(point.footprint.value),
            footprint_lo: Some(point.footprint.lo),
            footprint_hi: Some(point.footprint.hi),
            footprint_undersampled: point.footprint.is_vague(),
            strided: strided.map(|e| plain(e.value)),
            strided_lo: strided.map(|e| plain(e.lo)),
            strided_hi: strided.map(|e| plain(e.hi)),
            strided_undersampled: vague(strided),
            irregular: irregular.map(|e| plain(e.value)),
            irregular_lo: irregular.map(|e| plain(e.lo)),
            irregular_hi: irregular.map(|e| plain(e.hi)),
            irregular_undersampled: vague(irregular),
            pages: pages.map(|e| plain(e.value)),
            measured: point.measured,
        })
    }
}

/// The tables of a sampled trace; none for a complete trace. `shares`: the weights of samples, if
/// these differ, and the relative error of the weights.
pub fn build_growth_tables(
    outcome: &EngineOutcome,
    rho: Option<f64>,
    seen: &WholeSightings,
    shares: Option<(&Shares, f64)>,
) -> (Vec<GrowthRow>, Option<InterSample>) {
    let census = &outcome.census;
    let (shares, error) = shares.unzip();
    let Some(rho) = rho.filter(|&r| r > 1.0 + 1e-9 && census.samples > 1 && census.loads > 0)
    else {
        return (Vec::new(), None);
    };
    let kept = kept(outcome);
    let design = Design::new(rho, census.samples)
        .weighted(error)
        .keeping(kept)
        .standing_for(shares.map(|s| s.windows(marked(outcome))));
    let mean_rows = census.loads as f64 / census.samples as f64;
    // Loads that samples represent.
    let period = shares.map_or(rho * mean_rows, |s| s.all() / census.samples as f64);
    let curves = Curves {
        outcome,
        shares,
        marked: order(outcome, shares.map(|s| (s, s.marked())), |sample| {
            outcome.incidence.has(sample)
        }),
        design,
        size: shares.map_or(mean_rows, |s| s.mean_rows(&outcome.samples)),
        step: period / kept,
    };
    let make = |of: fn(&WindowSums) -> u64, blocks| curves.make(curves.inside(of), blocks, 0);
    let (all, (strided, irregular)) = rayon::join(
        || make(|s| s.footprint, &seen.all),
        || {
            rayon::join(
                || make(|s| s.strided, &seen.strided),
                || make(|s| s.irregular, &seen.irregular),
            )
        },
    );
    let pages = &seen.pages;
    let of_sample = pages.sightings(shares) * outcome.incidence.scale() / design.windows();
    let inside = vec![(1.0, 1.0), (curves.size, of_sample.max(1.0))];
    let curves = GrowthCurves {
        all,
        strided,
        irregular,
        pages: curves.make(inside, pages, PAGE_SHIFT),
    };
    let order = order(outcome, shares.map(|s| (s, 1.0)), |_| true);
    let growth = of_sample / mean_rows;
    let inter = inter_sample(pages, &order, period, &curves.pages, growth);
    (curves.rows(), Some(inter))
}

/// Reuse of pages between samples: from one sighting to the next in the same thread.
fn inter_sample(
    pages: &Blocks,
    order: &Order,
    period: f64,
    curve: &Curve,
    growth: f64,
) -> InterSample {
    let (mut reuses, mut first_touches, mut interval_sum, mut distance_sum) =
        (0u64, 0u64, 0.0, 0.0);
    let (mut intervals, mut distances) = (LogHistogram::default(), LogHistogram::default());
    let mut sightings: Vec<(u32, u32)> = Vec::new();
    // Distance by number of samples in between, or by interval.
    let mut known: HashMap<u32, f64, Mixed> = HashMap::default();
    for at in 0..pages.listed.blocks.len() {
        sightings.clear();
        sightings.extend(pages.samples(at).iter().filter_map(|&s| order.get(s)));
        sort(&mut sightings);
        for of_thread in sightings.chunk_by(|a, b| a.0 == b.0) {
            first_touches += 1;
            for pair in of_thread.windows(2) {
                let lag = pair[1].1 - pair[0].1;
                // From the middle of the loads that one sample represents to the middle of the
                // other's.
                let middle = |sample: u32| {
                    (order.loads(of_thread[0].0, 0, sample)
                        + order.loads(of_thread[0].0, 0, sample + 1))
                        / 2.0
                };
                let interval = if order.is_weighed() {
                    middle(pair[1].1) - middle(pair[0].1)
                } else {
                    f64::from(lag) * period
                };
                // The page itself is not counted.
                let at = |interval: f64| {
                    curve
                        .at(interval.min(curve.end()))
                        .map_or(0.0, |p| (p.footprint.value - 1.0).max(0.0))
                };
                let distance = if order.is_weighed() {
                    // Evaluating the curve visits all strata, so intervals that differ by less than
                    // a quarter percent share a point.
                    let step =
                        (interval.max(1.0).log2() * params::CURVE_POINTS_PER_DOUBLING).round();
                    let alike = known.entry(step as u32);
                    *alike.or_insert_with(|| at((step / params::CURVE_POINTS_PER_DOUBLING).exp2()))
                } else {
                    *known.entry(lag).or_insert_with(|| at(interval))
                };
                reuses += 1;
                interval_sum += interval;
                distance_sum += distance;
                intervals.add(interval as u64);
                distances.add(distance as u64);
            }
        }
    }
    let mean = |sum: f64| (reuses > 0).then(|| sum / reuses as f64);
    InterSample {
        block: PAGE_BYTES,
        reuses,
        first_touches,
        interval_mean: mean(interval_sum),
        distance_mean: mean(distance_sum),
        distance_memgaze: mean(interval_sum * growth),
        interval_hist: intervals.bins(),
        distance_hist: distances.bins(),
    }
}

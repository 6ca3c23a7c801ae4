//! Time that a change of the program's addresses would save: the waits of all causes before it and
//! after it.
//!
//! Both sides have the same load instructions, prices and shares of time. Only the rows and their
//! predicted misses differ. Where the time per row was measured, the waits before the change agree
//! with it ([`crate::findings::time_account`]), and those after it have the same factors.
//! `docs/design/what-if.md` explains the interval.

use crate::data::call_paths::CallPaths;
use crate::data::code_map::CodeMap;
use crate::data::object_map::Resolver;
use crate::data::samples::Waited;
use crate::engine::EngineOutcome;
use crate::estimate::time_shares::TimeShares;
use crate::findings::cause::{Cause, causes};
use crate::findings::context::{Context, MeasuredTime, Observed};
use crate::findings::places::Places;
use crate::findings::prices::Prices;
use crate::findings::region_time::{RegionTime, WaitOfCause};
use crate::findings::sites::{SiteFacts, facts};
use crate::findings::spared::{Spared, kept, share_of, with_spared};
use crate::findings::time_account::{Account, Factors, Wait};
use crate::findings::windows::Window;
use crate::findings::{Cost, params};
use crate::misses::{Hierarchy, Misses, Predicted, Range, Variant, replicate_spread};
use crate::util::fast_hash::Mixed;
use rayon::prelude::*;
use std::collections::HashMap;

/// Part of the code.
struct Region {
    /// Share of the time in percent, with the ends of its interval.
    share: Range,
    time: RegionTime,
}

/// The unchanged program: causes of waits, and the code that they delay.
pub(crate) struct Costs<'a> {
    /// Data of the causes.
    pub(crate) context: Context<'a>,
    /// The most costly first.
    pub(crate) causes: Vec<Cause>,
    predicted: &'a Predicted,
    /// Misses of the TLB, if they are predicted.
    pages: Option<&'a Predicted>,
    regions: Vec<Region>,
}

/// Waits of the causes before a change and after it.
struct Sides {
    before: Vec<Wait>,
    after: Vec<Wait>,
    /// By region: factors of the waits before the change.
    accounts: Vec<Account>,
}

/// Waits for page walks of a cause's rows, exposed and hidden by prefetches.
type Walks = [Range; 2];

/// The rows of the changed program.
pub(crate) struct Changed<'a> {
    /// The windows of the unchanged program, with other addresses if the remedy moves data.
    pub(crate) windows: &'a [Window],
    /// Misses at these addresses.
    pub(crate) predicted: &'a Predicted,
    /// Misses of the TLB at these addresses, if they are predicted.
    pub(crate) pages: Option<&'a Predicted>,
    /// True if prefetches hide the waits of a load instruction.
    pub(crate) is_prefetched: &'a (dyn Fn(u32) -> bool + Sync),
    /// True if the loads of an instruction are sorted, even beyond windows.
    pub(crate) is_sorted: &'a (dyn Fn(u32) -> bool + Sync),
    /// True if pages have other sizes. Their walks are no part of the costs of causes.
    pub(crate) has_other_pages: bool,
    /// The part of a load instruction's waits that the change leaves: least, estimate, most.
    pub(crate) left: &'a (dyn Fn(u32) -> Range + Sync),
    /// Time of regions that the change saves beside these waits.
    pub(crate) spared: Vec<Spared>,
}

/// The remaining part of hidden waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// The part that remains if lines come one after the other.
    OfStream,
    /// The part that remains of software prefetches.
    OfPrefetch,
    /// No wait remains.
    Nothing,
}

/// Change of a cause.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangeOfCause {
    /// Number of the cause.
    pub(crate) cause: usize,
    /// Saved share of the run's time, in percent.
    pub(crate) saved: f64,
    /// Predicted misses before and after.
    pub(crate) misses: [Option<Misses>; 2],
}

/// Saved time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Saved {
    /// Share of the run's time in percent, with the ends of its interval. Negative if the changed
    /// program takes more time.
    pub(crate) time: Range,
    /// Share of the run's time in percent for which the improved code waits. The gain is no
    /// greater, as the instructions stay.
    pub(crate) cost: f64,
    /// Costs of the causes that gain, as findings have them, with the ends of their interval.
    pub(crate) cost_of_findings: Range,
    /// The part of the saved time that is no wait of a cause. Negative if it is lost.
    pub(crate) spared: f64,
    /// Changes of the causes, in their order.
    pub(crate) causes: Vec<ChangeOfCause>,
}

impl<'a> Costs<'a> {
    /// Computes the prices of the loads of some windows. `pages` are misses of the TLB. `times` are
    /// shares of the time, if windows were taken by time, and the load right before each window's
    /// trigger.
    pub(crate) fn new(
        code: &'a CodeMap,
        (objects, paths): (Option<&'a Resolver>, Option<&'a CallPaths>),
        windows: &'a [Window],
        (outcome, predicted, pages): (&EngineOutcome, &'a Predicted, Option<&'a Predicted>),
        times: Option<(TimeShares, &Waited)>,
    ) -> Costs<'a> {
        let hierarchy = predicted.hierarchy.clone();
        let known = (hierarchy, Some(predicted));
        let observed = Observed::new(code, windows, paths);
        let (times, waited) = times.unzip();
        let measured = MeasuredTime {
            times,
            weights: outcome.weights.as_deref(),
            waited: waited.cloned().unwrap_or_default(),
        };
        let context = Context::new(code, (objects, paths), (windows, observed), known, measured);
        let causes = causes(&context);
        Costs::of((context, causes), (predicted, pages))
    }

    /// Costs of causes that are already known.
    pub(crate) fn of(
        (context, causes): (Context<'a>, Vec<Cause>),
        (predicted, pages): (&'a Predicted, Option<&'a Predicted>),
    ) -> Costs<'a> {
        let regions = regions(&context, &causes);
        Costs {
            context,
            causes,
            predicted,
            pages,
            regions,
        }
    }

    /// The time that a change saves.
    pub(crate) fn saved(&self, changed: &Changed) -> Saved {
        let moved = (!std::ptr::eq(changed.windows, self.context.windows))
            .then(|| facts(changed.windows, &Places::new(changed.windows)));
        let sites = moved.as_ref().unwrap_or(&self.context.sites);
        let nothing = |_: u32| false;
        let walks = self.walks(sites, changed);
        let kept = kept(self, changed.left);
        let sides = |variant: Option<Variant>, end: usize, left: usize| {
            let before = self.waits(&self.context.sites, (self.predicted, variant), &nothing);
            let after = (changed.predicted, variant);
            let after = self.waits(sites, after, changed.is_prefetched);
            let after = with_walks(after, &walks[1], end);
            let after = after.iter().zip(&kept[left]);
            self.sides(
                with_walks(before, &walks[0], end),
                after.map(|(wait, part)| wait.times(*part)).collect(),
            )
        };
        let both = sides(None, 1, 1);
        let value = self.gain(&both, |account| account.value, 1);
        let of = |variant, end| self.gain(&sides(variant, end, 1), |account| account.value, 1);
        let replicates: Vec<f64> = match self.predicted.is_exact() {
            true => vec![value; 2],
            false => {
                let all: Vec<Variant> = Variant::replicates().collect();
                all.into_par_iter().map(|v| of(Some(v), 1)).collect()
            }
        };
        let chance = replicate_spread(&replicates);
        let factors = |pair: usize| {
            [0, 1].map(|end: usize| self.gain(&both, |account| account.ends[pair][end], 1))
        };
        let mut pairs = vec![
            [of(Some(Variant::Least), 1), of(Some(Variant::Most), 1)],
            factors(0),
            [0, 2].map(|end| self.gain(&both, |account| account.value, end)),
            [of(None, 0), of(None, 2)],
            [0, 2].map(|left| self.gain(&sides(None, 1, left), |account| account.value, 1)),
        ];
        // The factors of measured regions depend on each other.
        if self.regions.iter().any(|r| !r.time.is_measured()) {
            pairs.push(factors(1));
        }
        let mut half = [chance.hypot(params::GAIN_ERROR_PCT); 2];
        for [a, b] in pairs {
            half[0] = half[0].hypot(value - a.min(b).min(value));
            half[1] = half[1].hypot(a.max(b).max(value) - value);
        }
        let causes = self.changes(&both, (sites, changed.predicted), &kept[1]);
        let time = [value - half[0], value, (value + half[1]).min(100.0)];
        let time = self.sorted(time, &both, changed.is_sorted);
        let cost_of_findings = self.cost_of_findings(&causes, changed.is_sorted);
        let time = match changed.has_other_pages {
            true => time,
            false => limited(time, cost_of_findings),
        };
        let all = with_spared(&self.context, time, &changed.spared);
        let spared = all[1] - time[1];
        Saved {
            time: all,
            cost: self.cost(&both, &causes) + spared.max(0.0),
            cost_of_findings,
            spared,
            causes,
        }
    }

    /// Costs of the causes that gain, as findings have them. Sorts gain beyond windows.
    fn cost_of_findings(
        &self,
        changes: &[ChangeOfCause],
        is_sorted: &dyn Fn(u32) -> bool,
    ) -> Range {
        let gains = |change: &&ChangeOfCause| {
            let sites = &self.causes[change.cause].sites;
            change.saved > 0.0 || sites.iter().any(|&site| is_sorted(site))
        };
        let gaining = changes.iter().filter(gains);
        let costs = gaining.map(|change| Cost::of(&self.context, &self.causes[change.cause]).score);
        costs
            .fold([0.0; 3], |sum, score| {
                std::array::from_fn(|end| sum[end] + score[end])
            })
            .map(|pct: f64| pct.min(100.0))
    }

    /// The gain if loads are sorted as a whole rather than inside windows. Then they are like those
    /// of a stream. Windows do not show how many of them share a line. Therefore the upper end
    /// assumes that no wait remains.
    fn sorted(&self, time: Range, both: &Sides, is_sorted: &dyn Fn(u32) -> bool) -> Range {
        if !self.context.sites.keys().any(|&site| is_sorted(site)) {
            return time;
        }
        let gain = |left: Left, factors: fn(&Account) -> Factors| {
            let sites = &self.context.sites;
            let after = self.waits_left(sites, (self.predicted, None), (is_sorted, left));
            self.gain(&self.sides(both.before.clone(), after), factors, 1)
        };
        let streamed = gain(Left::OfStream, |account| account.value);
        let most = gain(Left::Nothing, |account| account.ends[0][1]);
        [
            time[0].min(streamed),
            time[1].max(streamed),
            time[2].max(most).min(100.0),
        ]
    }

    /// Share of the run's time, in percent, that the causes with a gain wait.
    fn cost(&self, both: &Sides, causes: &[ChangeOfCause]) -> f64 {
        let mut rest = both.before.clone();
        for change in causes.iter().filter(|c| c.saved > 0.0) {
            rest[change.cause] = Wait::default();
        }
        let sides = self.sides(both.before.clone(), rest);
        self.gain(&sides, |account| account.value, 1)
    }

    /// Nanoseconds that the rows of each cause wait for page walks, with the ends of their prices,
    /// before and after. Zeros if they are not predicted on both sides.
    fn walks(&self, sites: &HashMap<u32, SiteFacts, Mixed>, changed: &Changed) -> [Vec<Walks>; 2] {
        let Some((before, after)) = self.pages.zip(changed.pages) else {
            return [0, 1].map(|_| vec![Walks::default(); self.causes.len()]);
        };
        let of = |sites: &HashMap<u32, SiteFacts, Mixed>,
                  pages: &Predicted,
                  is_prefetched: &dyn Fn(u32) -> bool|
         -> Vec<Walks> {
            let prices = Prices::new(pages.hierarchy.clone(), Some(pages), sites);
            let of_cause = |cause: &Cause| {
                let (hidden, exposed): (Vec<u32>, Vec<u32>) =
                    cause.sites.iter().partition(|s| is_prefetched(**s));
                [exposed, hidden].map(|sites| {
                    let price = prices.of(&sites, &cause.groups, cause.rule.is_chained);
                    doubted(price.wait_ns)
                })
            };
            self.causes.iter().map(of_cause).collect()
        };
        [
            of(&self.context.sites, before, &|_| false),
            of(sites, after, &changed.is_prefetched),
        ]
    }

    /// Waits of the rows of each cause.
    fn waits(
        &self,
        sites: &HashMap<u32, SiteFacts, Mixed>,
        of: (&Predicted, Option<Variant>),
        is_prefetched: &dyn Fn(u32) -> bool,
    ) -> Vec<Wait> {
        self.waits_left(sites, of, (is_prefetched, Left::OfPrefetch))
    }

    /// As [`Costs::waits`]. `left` is the remaining part of the waits of some load instructions.
    fn waits_left(
        &self,
        sites: &HashMap<u32, SiteFacts, Mixed>,
        (predicted, variant): (&Predicted, Option<Variant>),
        (is_hidden, left): (&dyn Fn(u32) -> bool, Left),
    ) -> Vec<Wait> {
        let other = variant.map(|v| predicted.variant(v));
        let predicted = other.as_ref().unwrap_or(predicted);
        let prices = Prices::new(self.hierarchy().clone(), Some(predicted), sites);
        let wait = |cause: &Cause| {
            let (hidden, exposed): (Vec<u32>, Vec<u32>) =
                cause.sites.iter().partition(|s| is_hidden(**s));
            let of = |sites: &[u32]| prices.of(sites, &cause.groups, cause.rule.is_chained);
            let exposed = of(&exposed).wait;
            if hidden.is_empty() || left == Left::Nothing {
                return exposed;
            }
            let price = of(&hidden);
            let hidden = price.wait;
            let hidden_most = match left {
                Left::OfStream => (price.streamed_ns - hidden.prefetched).max(0.0),
                Left::OfPrefetch | Left::Nothing => {
                    hidden.exposed * params::PART_LEFT_BY_SOFTWARE_PREFETCH
                }
            };
            Wait {
                prefetched: exposed.prefetched + hidden.prefetched,
                prefetched_most: exposed.prefetched_most + hidden.prefetched_most,
                exposed: exposed.exposed + hidden.exposed,
                hidden: hidden.exposed,
                hidden_most,
                ..exposed
            }
        };
        self.causes.iter().map(wait).collect()
    }

    /// Both sides, with the factors of the waits before the change.
    fn sides(&self, before: Vec<Wait>, after: Vec<Wait>) -> Sides {
        let waits: Vec<WaitOfCause> = (before.iter().zip(&self.causes))
            .map(|(wait, cause)| (*wait, cause.price.deviation()))
            .collect();
        Sides {
            accounts: (self.regions.iter())
                .map(|r| r.time.account(&waits))
                .collect(),
            before,
            after,
        }
    }

    fn hierarchy(&self) -> &Hierarchy {
        &self.context.prices.hierarchy
    }

    /// Saved share of the run's time, in percent, with some factors of each region. `end` selects an
    /// end of the shares of time.
    fn gain(&self, sides: &Sides, factors: impl Fn(&Account) -> Factors, end: usize) -> f64 {
        let of = |(region, account): (&Region, &Account)| {
            let factors = factors(account);
            let before = region.time.waits(&sides.before);
            let after = region.time.waits(&sides.after);
            let all = region.time.ns(&before, factors);
            let share = |wait: f64| region.share[end] * wait / all.max(f64::MIN_POSITIVE);
            let saved = |(was, is): (&Wait, &Wait)| {
                share(was.at(factors.exposed)) - share(is.at(factors.exposed))
            };
            before.iter().zip(&after).map(saved).sum::<f64>()
        };
        self.regions.iter().zip(&sides.accounts).map(of).sum()
    }

    fn changes(
        &self,
        both: &Sides,
        (sites, predicted): (&HashMap<u32, SiteFacts, Mixed>, &Predicted),
        kept: &[f64],
    ) -> Vec<ChangeOfCause> {
        let prices = Prices::new(self.hierarchy().clone(), Some(predicted), sites);
        let of = |(number, cause): (usize, &Cause)| {
            let mut after = both.before.clone();
            after[number] = both.after[number];
            let alone = Sides {
                before: both.before.clone(),
                after,
                accounts: both.accounts.clone(),
            };
            let price = prices.of(&cause.sites, &cause.groups, cause.rule.is_chained);
            let mut misses = price.misses;
            for level in misses.iter_mut().flat_map(|m| &mut m.levels) {
                level.ratio = level.ratio.map(|ratio| ratio.map(|r| r * kept[number]));
            }
            ChangeOfCause {
                cause: number,
                saved: self.gain(&alone, |account| account.value, 1),
                misses: [cause.price.misses.clone(), misses],
            }
        };
        self.causes.iter().enumerate().map(of).collect()
    }
}

/// A gain limited by a cost. A remedy saves no more than the waits that it removes, and both are
/// estimates of these waits. So a gain above the cost is lowered, and its interval contains both:
/// with the new addresses the compiler may use vector instructions, which no cost shows.
pub(crate) fn limited(gain: Range, cost: Range) -> Range {
    let [lo, value, hi] = gain;
    match cost[2] <= 0.0 || value <= cost[1] {
        true => gain,
        false => [lo.min(cost[0]), cost[1], hi.max(cost[2])],
    }
}

/// Waits with page walks at an end of the walks' prices.
fn with_walks(mut waits: Vec<Wait>, walks: &[Walks], end: usize) -> Vec<Wait> {
    for (wait, [exposed, hidden]) in waits.iter_mut().zip(walks) {
        wait.exposed += exposed[end] + hidden[end];
        wait.hidden += hidden[end];
        wait.hidden_most += hidden[end] * params::PART_LEFT_BY_SOFTWARE_PREFETCH;
    }
    waits
}

/// A wait for page walks with additional errors: processors hide walks behind other work, and the
/// number of entries of a TLB is not measured.
fn doubted([least, value, most]: Range) -> Range {
    let [cheap, dear] = params::FACTORS_OF_UNSURE_PRICE;
    [least.min(cheap * value), value, most.max(dear * value)]
}

/// The regions with causes.
fn regions(context: &Context, causes: &[Cause]) -> Vec<Region> {
    let region = |time: RegionTime| Region {
        share: share_of(context, time.key),
        time,
    };
    let all_times = RegionTime::all(context, causes.iter().map(|c| &c.regions[..]));
    all_times.into_iter().map(region).collect()
}

#[cfg(test)]
mod tests {
    use super::limited;

    #[test]
    fn a_gain_is_no_more_than_the_cost_beside_it() {
        let cost = [50.0, 70.0, 90.0];
        assert_eq!(limited([60.0, 80.0, 95.0], cost), [50.0, 70.0, 95.0]);
        assert_eq!(limited([75.0, 80.0, 85.0], cost), [50.0, 70.0, 90.0]);
        assert_eq!(limited([-5.0, 10.0, 20.0], cost), [-5.0, 10.0, 20.0]);
        // Nothing is known of code without a cost.
        assert_eq!(limited([-35.0, 0.0, 35.0], [0.0; 3]), [-35.0, 0.0, 35.0]);
    }
}

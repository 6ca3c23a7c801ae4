//! Time that a change of the program's addresses would save: the waits of all causes before it and
//! after it.
//!
//! Both sides have the same load instructions, prices and shares of time. Only the rows and their
//! predicted misses differ. `docs/design/what-if.md` explains the interval.

use crate::data::call_paths::CallPaths;
use crate::data::code_map::CodeMap;
use crate::data::object_map::Resolver;
use crate::engine::EngineOutcome;
use crate::estimate::time_shares::{TimeShare, TimeShares};
use crate::findings::cause::{Cause, causes};
use crate::findings::context::{Context, Observed};
use crate::findings::places::Places;
use crate::findings::prices::{Prices, exposed_overlapping};
use crate::findings::sites::{SiteFacts, facts};
use crate::findings::windows::Window;
use crate::findings::{params, region_share, time_share};
use crate::misses::{Hierarchy, Misses, Predicted, Range, Variant, replicate_spread};
use crate::util::fast_hash::Mixed;
use rayon::prelude::*;
use std::collections::HashMap;

/// A function with an outermost loop.
type RegionKey = (u32, Option<u32>);

/// Part of the code.
struct Region {
    /// Share of the time in percent, with the ends of its interval.
    share: Range,
    /// Nanoseconds that its rows take if all of them hit.
    hits_ns: f64,
    /// Causes in the region, each with the share of its waits in this region.
    causes: Vec<(usize, f64)>,
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

/// The rows of the changed program.
pub(crate) struct Changed<'a> {
    /// The same windows, with other addresses, or the windows themselves.
    pub(crate) windows: &'a [Window],
    /// Misses at these addresses.
    pub(crate) predicted: &'a Predicted,
    /// Misses of the TLB at these addresses, if they are predicted.
    pub(crate) pages: Option<&'a Predicted>,
    /// True if prefetches hide the waits of a load instruction.
    pub(crate) is_prefetched: &'a (dyn Fn(u32) -> bool + Sync),
    /// True if the loads of an instruction are sorted, even beyond windows.
    pub(crate) is_sorted: &'a (dyn Fn(u32) -> bool + Sync),
}

/// The remaining part of hidden waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// The part that remains for loads that a prefetcher has fetched.
    OfStream,
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
    /// Changes of the causes, in their order.
    pub(crate) causes: Vec<ChangeOfCause>,
}

impl<'a> Costs<'a> {
    /// Computes the prices of the loads of some windows. `pages` are misses of the TLB. `by_time`
    /// is true if windows were taken by time.
    pub(crate) fn new(
        code: &'a CodeMap,
        (objects, paths): (Option<&'a Resolver>, Option<&'a CallPaths>),
        windows: &'a [Window],
        (outcome, predicted, pages): (&EngineOutcome, &'a Predicted, Option<&'a Predicted>),
        by_time: bool,
    ) -> Costs<'a> {
        let hierarchy = predicted.hierarchy.clone();
        let known = (hierarchy, Some(predicted));
        let observed = Observed::new(code, windows, paths);
        let context = Context::new(code, (objects, paths), (windows, observed), known);
        let causes = causes(&context);
        let times = by_time.then(|| TimeShares::new(outcome, code));
        Costs::of((context, causes), times.as_ref(), (predicted, pages))
    }

    /// Costs of causes that are already known. `times` are shares of the time, if windows were
    /// taken by time.
    pub(crate) fn of(
        (context, causes): (Context<'a>, Vec<Cause>),
        times: Option<&TimeShares>,
        (predicted, pages): (&'a Predicted, Option<&'a Predicted>),
    ) -> Costs<'a> {
        let regions = regions(&context, &causes, times);
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
        let sides = |variant: Option<Variant>| {
            let before = self.waits(&self.context.sites, (self.predicted, variant), &nothing);
            let after = (changed.predicted, variant);
            [before, self.waits(sites, after, changed.is_prefetched)]
        };
        let misses = sides(None);
        let both = with_walks(&misses, &walks, 1);
        let value = self.gain(&both, 1.0, 1);
        let of = |variant| self.gain(&with_walks(&sides(Some(variant)), &walks, 1), 1.0, 1);
        let replicates: Vec<f64> = match self.predicted.is_exact() {
            true => vec![value; 2],
            false => {
                let all: Vec<Variant> = Variant::replicates().collect();
                all.into_par_iter().map(of).collect()
            }
        };
        let chance = replicate_spread(&replicates);
        // Doubling the waits has the same effect as halving the other work.
        let others = params::OTHER_WORK_FACTOR;
        let pairs = [
            [of(Variant::Least), of(Variant::Most)],
            [0, 1].map(|end| self.gain(&self.doubted(&both, end), 1.0, 1)),
            [1.0 / others, others].map(|factor| self.gain(&both, factor, 1)),
            [0, 2].map(|end| self.gain(&both, 1.0, end)),
            [0, 2].map(|end| self.gain(&with_walks(&misses, &walks, end), 1.0, 1)),
        ];
        let mut half = [chance.hypot(params::GAIN_ERROR_PCT); 2];
        for [a, b] in pairs {
            half[0] = half[0].hypot(value - a.min(b).min(value));
            half[1] = half[1].hypot(a.max(b).max(value) - value);
        }
        let causes = self.changes(&both, sites, changed.predicted);
        let time = [value - half[0], value, (value + half[1]).min(100.0)];
        Saved {
            time: self.sorted(time, &both[0], changed.is_sorted),
            cost: self.cost(&both[0], &causes),
            causes,
        }
    }

    /// The gain if loads are sorted as a whole rather than inside windows. Then they are like those
    /// of a stream. Windows do not show how many of them share a line. Therefore the upper end
    /// assumes that no wait remains.
    fn sorted(&self, time: Range, before: &[f64], is_sorted: &dyn Fn(u32) -> bool) -> Range {
        if !self.context.sites.keys().any(|&site| is_sorted(site)) {
            return time;
        }
        let gain = |left: Left| {
            let sites = &self.context.sites;
            let after = self.waits_left(sites, (self.predicted, None), (is_sorted, left));
            let both = [before.to_vec(), after];
            [1, 2].map(|dear| match dear {
                1 => self.gain(&both, 1.0, 1),
                _ => self.gain(&self.doubted(&both, 1), 1.0, 1),
            })
        };
        let (streamed, most) = (gain(Left::OfStream), gain(Left::Nothing));
        [
            time[0].min(streamed[0]),
            time[1].max(streamed[0]),
            time[2].max(most[1]).min(100.0),
        ]
    }

    /// Waits at an end of their prices.
    fn doubted(&self, both: &[Vec<f64>; 2], end: usize) -> [Vec<f64>; 2] {
        let factor = |cause: &Cause| match cause.rule.is_chained {
            true => params::FACTORS_OF_UNSURE_CHASE[end],
            false => params::FACTORS_OF_UNSURE_OVERLAP[end],
        };
        [0, 1].map(|side: usize| {
            let waits = both[side].iter().zip(&self.causes);
            waits.map(|(wait, cause)| wait * factor(cause)).collect()
        })
    }

    /// Share of the run's time, in percent, that the causes with a gain wait.
    fn cost(&self, before: &[f64], causes: &[ChangeOfCause]) -> f64 {
        let mut rest = before.to_vec();
        for change in causes.iter().filter(|c| c.saved > 0.0) {
            rest[change.cause] = 0.0;
        }
        self.gain(&[before.to_vec(), rest], 1.0, 1)
    }

    /// Nanoseconds that the rows of each cause wait for page walks, with the ends of their prices,
    /// before and after. Zeros if they are not predicted on both sides.
    fn walks(&self, sites: &HashMap<u32, SiteFacts, Mixed>, changed: &Changed) -> [Vec<Range>; 2] {
        let Some((before, after)) = self.pages.zip(changed.pages) else {
            return [0, 1].map(|_| vec![[0.0; 3]; self.causes.len()]);
        };
        let of = |sites: &HashMap<u32, SiteFacts, Mixed>,
                  pages: &Predicted,
                  is_prefetched: &dyn Fn(u32) -> bool|
         -> Vec<Range> {
            let prices = Prices::new(pages.hierarchy.clone(), Some(pages), sites);
            let of_cause = |cause: &Cause| {
                let (hidden, exposed): (Vec<u32>, Vec<u32>) =
                    cause.sites.iter().partition(|s| is_prefetched(**s));
                let of = |sites: &[u32]| {
                    let price = prices.of(sites, &cause.groups, cause.rule.is_chained);
                    doubted(price.wait_ns)
                };
                let (exposed, hidden) = (of(&exposed), of(&hidden));
                let left = self.felt_if_prefetched(None);
                std::array::from_fn(|end| exposed[end] + left * hidden[end])
            };
            self.causes.iter().map(of_cause).collect()
        };
        [
            of(&self.context.sites, before, &|_| false),
            of(sites, after, &changed.is_prefetched),
        ]
    }

    /// Nanoseconds that the rows of each cause wait.
    fn waits(
        &self,
        sites: &HashMap<u32, SiteFacts, Mixed>,
        of: (&Predicted, Option<Variant>),
        is_prefetched: &dyn Fn(u32) -> bool,
    ) -> Vec<f64> {
        self.waits_left(sites, of, (is_prefetched, Left::OfStream))
    }

    /// The same; `left` is the remaining part of the waits of some load instructions.
    fn waits_left(
        &self,
        sites: &HashMap<u32, SiteFacts, Mixed>,
        (predicted, variant): (&Predicted, Option<Variant>),
        (is_hidden, left): (&dyn Fn(u32) -> bool, Left),
    ) -> Vec<f64> {
        let other = variant.map(|v| predicted.variant(v));
        let predicted = other.as_ref().unwrap_or(predicted);
        let prices = Prices::new(self.hierarchy().clone(), Some(predicted), sites);
        let wait = |cause: &Cause| {
            let chained = cause.rule.is_chained;
            let (hidden, exposed): (Vec<u32>, Vec<u32>) =
                cause.sites.iter().partition(|s| is_hidden(**s));
            let of = |sites: &[u32]| prices.of(sites, &cause.groups, chained);
            if hidden.is_empty() || left == Left::Nothing {
                return of(&exposed).wait_ns[1];
            }
            let ahead = of(&hidden);
            let left = self.felt_if_prefetched(ahead.misses.as_ref());
            of(&exposed).wait_ns[1] + ahead.wait_ns[1] * left
        };
        self.causes.iter().map(wait).collect()
    }

    fn hierarchy(&self) -> &Hierarchy {
        &self.context.prices.hierarchy
    }

    /// Saved share of the run's time, in percent. `factor` scales all prices. `end` selects an end
    /// of the shares of time.
    fn gain(&self, [before, after]: &[Vec<f64>; 2], factor: f64, end: usize) -> f64 {
        let of = |region: &Region| {
            let sum = |waits: &[f64]| -> f64 {
                let of = |&(cause, part): &(usize, f64)| part * waits[cause];
                factor * region.causes.iter().map(of).sum::<f64>()
            };
            let all = region.hits_ns + sum(before);
            region.share[end] * (sum(before) - sum(after)) / all.max(f64::MIN_POSITIVE)
        };
        self.regions.iter().map(of).sum()
    }

    /// The remaining share of a wait after a software prefetch.
    fn felt_if_prefetched(&self, misses: Option<&Misses>) -> f64 {
        let last = misses.and_then(Misses::last);
        let ahead = last.and_then(|l| l.prefetchable).unwrap_or(0.0);
        let prefetched = params::EXPOSED_LATENCY_SHARE_PREFETCHED[1];
        let overlapping = exposed_overlapping(self.hierarchy().overlap())[1];
        let exposed = ahead * prefetched + (1.0 - ahead) * overlapping;
        (prefetched / exposed).min(1.0)
    }

    fn changes(
        &self,
        [before, after]: &[Vec<f64>; 2],
        sites: &HashMap<u32, SiteFacts, Mixed>,
        predicted: &Predicted,
    ) -> Vec<ChangeOfCause> {
        let prices = Prices::new(self.hierarchy().clone(), Some(predicted), sites);
        let of = |(number, cause): (usize, &Cause)| {
            let mut alone = before.clone();
            alone[number] = after[number];
            let price = prices.of(&cause.sites, &cause.groups, cause.rule.is_chained);
            ChangeOfCause {
                cause: number,
                saved: self.gain(&[before.clone(), alone], 1.0, 1),
                misses: [cause.price.misses.clone(), price.misses],
            }
        };
        self.causes.iter().enumerate().map(of).collect()
    }
}

/// The waits of both sides with their page walks at an end of the walks' prices.
fn with_walks(misses: &[Vec<f64>; 2], walks: &[Vec<Range>; 2], end: usize) -> [Vec<f64>; 2] {
    [0, 1].map(|side: usize| {
        let all = misses[side].iter().zip(&walks[side]);
        all.map(|(wait, walk)| wait + walk[end]).collect()
    })
}

/// A wait for page walks with additional errors: processors hide walks behind other work, and the
/// number of entries of a TLB is not measured.
fn doubted([least, value, most]: Range) -> Range {
    let [cheap, dear] = params::FACTORS_OF_UNSURE_PRICE;
    [least.min(cheap * value), value, most.max(dear * value)]
}

/// The regions with causes.
fn regions(context: &Context, causes: &[Cause], times: Option<&TimeShares>) -> Vec<Region> {
    let of = |facts: &SiteFacts| context.users.region(facts.group.piece());
    let mut rows: HashMap<RegionKey, u64, Mixed> = HashMap::default();
    for facts in context.sites.values() {
        *rows.entry(of(facts)).or_default() += facts.rows;
    }
    let all: u64 = rows.values().sum();
    let mut keys: Vec<RegionKey> = causes.iter().flat_map(|c| c.regions.clone()).collect();
    keys.sort_unstable();
    keys.dedup();
    let region = |key: RegionKey| {
        let in_it = causes.iter().enumerate();
        let in_it = in_it.filter(|(_, cause)| cause.regions.contains(&key));
        let share = match time_share(times, |piece| context.users.region(piece) == key) {
            time @ TimeShare { value: Some(_), .. } => time.ends(),
            _ => [region_share(context, &[key], all); 3],
        };
        Region {
            share,
            hits_ns: rows.get(&key).copied().unwrap_or(0) as f64 * params::NS_OF_HITTING_LOAD,
            causes: in_it
                .map(|(number, cause)| (number, 1.0 / cause.regions.len() as f64))
                .collect(),
        }
    };
    keys.into_iter().map(region).collect()
}

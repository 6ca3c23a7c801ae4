//! RDX: reuse from sampled addresses and a few watchpoints (Wang, Liu, Chabbi 2019).
//!
//! [`Reservoir`] selects the sampled addresses that are watched. It serves both simulated
//! watchpoints over a trace and debug registers of the CPU. Each sample ends in an [`Observation`]:
//! it is reused after a time distance, or given up at some age (replaced, never watched, end of the
//! run). From observations, [`estimate`] computes the distribution of time distances in one of two
//! ways:
//!
//! - [`Attribution::Proportional`], the paper's scheme after Wen et al. (Witch, 2018): a reuse
//!   represents the samples of its context that no earlier reuse has accounted for, shared among
//!   the watchpoints of that context (see [`proportional`]).
//! - [`Attribution::Survival`], the default: a sample that was given up at age t has a distance of
//!   more than t. The time of giving up is random and independent of the program. This is random
//!   censoring, for which the product-limit estimate (Kaplan and Meier 1958) is unbiased. It is
//!   computed for each context of use, and contexts are weighted by their samples. The share that
//!   survives to the end is the share of accesses that are never reused.

use crate::util::random::SplitMix;
use std::collections::BTreeMap;

/// A watched address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchedAddress {
    /// Watched address or block number.
    pub place: u64,
    /// Access count at the use.
    pub used_at: u64,
    /// Code of the use.
    pub context: u32,
    /// Number of the sample.
    pub sample: u64,
    /// Number of samples since the register was last free, including this one.
    age_in_samples: u64,
}

/// End of a sample. Observations of one stream are in the order in which they became known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// Code of the use.
    pub context: u32,
    /// Time distance if reused, else age when given up; in accesses.
    pub age: u64,
    /// Code of the reuse; `None` if it was given up.
    pub reuse: Option<u32>,
    /// Thread or part of a trace. Each has separate registers and samples.
    pub stream: u32,
    /// Number of the sample in its stream.
    pub sample: u64,
    /// Number of the stream's last sample when this one's outcome became known.
    pub until: u64,
}

/// Decision for a new sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Watch the new address with this register, replacing its old watch, if any.
    Arm(usize),
    /// Change no register.
    Skip,
}

/// Reservoir sampling over a few watchpoints.
pub struct Reservoir {
    slots: Vec<Option<WatchedAddress>>,
    random: SplitMix,
    samples: u64,
    observations: Vec<Observation>,
}

impl Reservoir {
    /// A reservoir with `watchpoints` registers, all free.
    pub fn new(watchpoints: usize, seed: u64) -> Reservoir {
        Reservoir {
            slots: vec![None; watchpoints.max(1)],
            random: SplitMix::new(seed),
            samples: 0,
            observations: Vec::new(),
        }
    }

    /// Watches of the registers.
    pub fn watches(&self) -> &[Option<WatchedAddress>] {
        &self.slots
    }

    /// Samples so far.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Decides on the sampled access at time `now`.
    pub fn sample(&mut self, now: u64, place: u64, context: u32) -> Decision {
        self.samples += 1;
        let watch = WatchedAddress {
            place,
            used_at: now,
            context,
            sample: self.samples,
            age_in_samples: 1,
        };
        // Counts this sample for every armed register.
        self.slots
            .iter_mut()
            .flatten()
            .for_each(|w| w.age_in_samples += 1);
        if let Some(free) = self.slots.iter().position(Option::is_none) {
            self.slots[free] = Some(watch);
            return Decision::Arm(free);
        }
        // In random order, each register is tried with probability 1/k.
        let mut order: Vec<usize> = (0..self.slots.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, self.random.below(i as u64 + 1) as usize);
        }
        for slot in order {
            let k = self.slots[slot].map_or(1, |w| w.age_in_samples);
            if self.random.below(k) == 0 {
                self.give_up(slot, now);
                // The new watch keeps the register's count, so that the reservoir continues.
                self.slots[slot] = Some(WatchedAddress {
                    age_in_samples: k,
                    ..watch
                });
                return Decision::Arm(slot);
            }
        }
        self.observe(&watch, now, None);
        Decision::Skip
    }

    /// Frees a register whose address was accessed at time `now`.
    pub fn reuse(&mut self, slot: usize, now: u64, context: u32) -> Option<WatchedAddress> {
        let watch = self.slots.get_mut(slot)?.take()?;
        self.observe(&watch, now, Some(context));
        Some(watch)
    }

    /// Gives up a register at time `now` (its hardware was lost, or its thread ended).
    pub fn give_up(&mut self, slot: usize, now: u64) {
        if let Some(watch) = self.slots.get_mut(slot).and_then(Option::take) {
            self.observe(&watch, now, None);
        }
    }

    fn observe(&mut self, watch: &WatchedAddress, now: u64, reuse: Option<u32>) {
        self.observations.push(Observation {
            context: watch.context,
            age: now.saturating_sub(watch.used_at),
            reuse,
            stream: 0,
            sample: watch.sample,
            until: self.samples,
        });
    }

    /// Ends the run (or the thread) at time `now`. Addresses that are still watched were not
    /// reused. Returns all observations.
    pub fn finish(mut self, now: u64) -> Vec<Observation> {
        (0..self.slots.len()).for_each(|slot| self.give_up(slot, now));
        self.observations
    }
}

/// Weighting of observations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribution {
    /// Product-limit estimate per context.
    Survival,
    /// The paper's proportional attribution.
    Proportional,
    /// Each reuse counts once (the paper's comparison "without PA").
    None,
}

/// The estimated distribution.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    /// Weight of each observation, in samples. The weights add up to the number of samples that are
    /// reused.
    pub weights: Vec<f64>,
    /// Estimated number of samples that are never reused.
    pub never: f64,
}

/// Weighs the observations.
pub fn estimate(observations: &[Observation], attribution: Attribution) -> Estimate {
    let mut out = Estimate {
        weights: vec![0.0; observations.len()],
        never: 0.0,
    };
    match attribution {
        Attribution::Survival => {}
        Attribution::Proportional => return proportional(observations),
        Attribution::None => {
            for (weight, o) in out.weights.iter_mut().zip(observations) {
                *weight = f64::from(u8::from(o.reuse.is_some()));
            }
            return out;
        }
    }
    let mut by_context: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (i, o) in observations.iter().enumerate() {
        by_context.entry(o.context).or_default().push(i);
    }
    for indices in by_context.values_mut() {
        // At equal age, reuses come before losses: a lost sample was still watched at that age.
        indices.sort_by_key(|&i| (observations[i].age, observations[i].reuse.is_none()));
        let all = indices.len() as f64;
        let mut survive = 1.0;
        for (gone, &i) in indices.iter().enumerate() {
            if observations[i].reuse.is_some() {
                let at_risk = all - gone as f64;
                out.weights[i] = all * survive / at_risk;
                survive -= survive / at_risk;
            }
        }
        out.never += all * survive;
    }
    out
}

/// A context's samples in one stream.
#[derive(Default)]
struct Account {
    /// Number of samples so far.
    samples: f64,
    /// Samples already attributed to reuses: the catch-up counter.
    accounted: f64,
    /// Number of samples that are watched now.
    watched: u32,
}

/// The paper's attribution. When a watchpoint traps, the samples of its use's context since that
/// context was last accounted for are attributed once: the armed watchpoints of the context share
/// them, this one gets its share, and the context's catch-up counter advances by the same amount.
/// Samples that remain at the end were not reused.
pub fn proportional(observations: &[Observation]) -> Estimate {
    let mut out = Estimate {
        weights: vec![0.0; observations.len()],
        never: 0.0,
    };
    let mut streams: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (i, o) in observations.iter().enumerate() {
        streams.entry(o.stream).or_default().push(i);
    }
    for fates in streams.into_values() {
        let mut taken = fates.clone();
        taken.sort_by_key(|&i| observations[i].sample);
        let mut taken = taken.into_iter().peekable();
        let mut accounts: BTreeMap<u32, Account> = BTreeMap::new();
        for i in fates {
            let fate = &observations[i];
            // The observation's own sample must be included, even if the table is damaged.
            let until = fate.until.max(fate.sample);
            while let Some(next) = taken.next_if(|&j| observations[j].sample <= until) {
                let account = accounts.entry(observations[next].context).or_default();
                account.samples += 1.0;
                account.watched += 1;
            }
            let account = accounts.entry(fate.context).or_default();
            if fate.reuse.is_some() {
                let due = account.samples - account.accounted;
                out.weights[i] = due / f64::from(account.watched.max(1));
                account.accounted += out.weights[i];
            }
            account.watched = account.watched.saturating_sub(1);
        }
        out.never += accounts
            .values()
            .map(|a| a.samples - a.accounted)
            .sum::<f64>();
    }
    out
}

/// Use–reuse pairs: (code of use, code of reuse, weight, weight × time distance), by weight ×
/// distance, greatest first.
pub fn pairs(observations: &[Observation], estimate: &Estimate) -> Vec<(u32, u32, f64, f64)> {
    let mut sums: BTreeMap<(u32, u32), (f64, f64)> = BTreeMap::new();
    for (o, &weight) in observations.iter().zip(&estimate.weights) {
        if let Some(reuse) = o.reuse {
            let sum = sums.entry((o.context, reuse)).or_default();
            sum.0 += weight;
            sum.1 += weight * o.age as f64;
        }
    }
    let mut out: Vec<(u32, u32, f64, f64)> = sums
        .into_iter()
        .map(|((u, r), (w, d))| (u, r, w, d))
        .collect();
    out.sort_by(|a, b| b.3.total_cmp(&a.3));
    out
}

/// Watches a stream of accesses as hardware would: one in `period` accesses (randomly a half to one
/// and a half times that) is a sample. Each access is compared with the watched blocks.
pub struct Watcher {
    reservoir: Reservoir,
    places: Vec<u64>,
    armed: bool,
    random: SplitMix,
    period: u64,
    next: u64,
    now: u64,
    seed: u64,
    streams: u32,
    done: Vec<Observation>,
}

/// A missing block: no block has this number.
const NO_BLOCK: u64 = u64::MAX;

impl Watcher {
    /// A watcher with all registers free.
    pub fn new(period: u64, watchpoints: usize, seed: u64) -> Watcher {
        let mut watcher = Watcher {
            reservoir: Reservoir::new(watchpoints, seed),
            places: vec![NO_BLOCK; watchpoints.max(1)],
            armed: false,
            random: SplitMix::new(seed ^ 0x5eed),
            period: period.max(1),
            next: 0,
            now: 0,
            seed,
            streams: 0,
            done: Vec::new(),
        };
        watcher.next = watcher.gap();
        watcher
    }

    fn gap(&mut self) -> u64 {
        (self.period / 2 + self.random.below(self.period + 1)).max(1)
    }

    /// Processes an access by code `context` to the blocks from `first` to `last`. A sample of it
    /// watches only the first, as hardware samples addresses, but it is a reuse of all of them.
    #[inline(always)]
    pub fn access(&mut self, first: u64, last: u64, context: u32) {
        self.now += 1;
        if self.armed && self.places.iter().any(|p| (first..=last).contains(p)) {
            self.trap(first, last, context);
        }
        if self.now >= self.next {
            self.take(first, context);
        }
    }

    #[cold]
    fn trap(&mut self, first: u64, last: u64, context: u32) {
        for slot in 0..self.places.len() {
            if self.places[slot] != NO_BLOCK && (first..=last).contains(&self.places[slot]) {
                self.reservoir.reuse(slot, self.now, context);
                self.places[slot] = NO_BLOCK;
            }
        }
        self.armed = self.places.iter().any(|&p| p != NO_BLOCK);
    }

    #[cold]
    fn take(&mut self, block: u64, context: u32) {
        self.next = self.now + self.gap();
        if let Decision::Arm(slot) = self.reservoir.sample(self.now, block, context) {
            self.places[slot] = block;
            self.armed = true;
        }
    }

    /// Ends the stream: the next access belongs to another one (another thread or sample).
    pub fn cut(&mut self) {
        self.seed = self.seed.wrapping_add(1);
        let next = Reservoir::new(self.places.len(), self.seed);
        let before = std::mem::replace(&mut self.reservoir, next);
        let stream = self.streams;
        self.streams += u32::from(before.samples() > 0);
        let seen = before.finish(self.now).into_iter();
        self.done.extend(seen.map(|o| Observation { stream, ..o }));
        self.places.fill(NO_BLOCK);
        self.armed = false;
    }

    /// All observations, and the number of accesses.
    pub fn finish(mut self) -> (Vec<Observation>, u64) {
        self.cut();
        (self.done, self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sums of short and long distances of the paper's listing 2, repeated: loops i and j pass over
    /// an array, loop k touches each element twice in a row. Contexts are the lines.
    fn listing_2(watchpoints: usize, attribution: Attribution, seed: u64) -> (f64, f64) {
        let n = 10_000u64;
        let mut watcher = Watcher::new(250, watchpoints, seed);
        for _ in 0..25 {
            for (line, twice) in [(2u32, false), (5, false), (8, true)] {
                for i in 0..n {
                    watcher.access(i, i, line);
                    if twice {
                        watcher.access(i, i, line + 1);
                    }
                }
            }
        }
        let (observations, _) = watcher.finish();
        let estimate = estimate(&observations, attribution);
        let sum = |long: bool| -> f64 {
            observations
                .iter()
                .zip(&estimate.weights)
                .filter(|(o, _)| o.reuse.is_some() && (o.age > 1) == long)
                .map(|(_, w)| w)
                .sum()
        };
        (sum(false), sum(true))
    }

    #[test]
    fn long_reuses_are_not_undercounted() {
        // Truth: of four reuses one is short, three are about as long as the array.
        for watchpoints in 1..=4 {
            let share = |attribution| {
                let sums = (0..20)
                    .map(|seed| listing_2(watchpoints, attribution, seed))
                    .fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
                sums.0 / (sums.0 + sums.1)
            };
            let (survival, paper, none) = (
                share(Attribution::Survival),
                share(Attribution::Proportional),
                share(Attribution::None),
            );
            assert!(
                (survival - 0.25).abs() < 0.04,
                "{watchpoints} watchpoints: {survival}"
            );
            assert!(
                (paper - 0.25).abs() < 0.15,
                "{watchpoints} watchpoints: {paper}"
            );
            assert!(
                none > survival + 0.1,
                "{watchpoints} watchpoints: without attribution short reuses dominate: {none}"
            );
        }
    }

    #[test]
    fn the_example_of_the_introduction() {
        // a1 b1 c1 b2 a2: time distance of a is 4, of b 2.
        let mut reservoir = Reservoir::new(4, 0);
        assert_eq!(reservoir.sample(1, 'a' as u64, 1), Decision::Arm(0));
        assert_eq!(reservoir.sample(2, 'b' as u64, 2), Decision::Arm(1));
        assert_eq!(reservoir.sample(3, 'c' as u64, 3), Decision::Arm(2));
        assert_eq!(reservoir.reuse(1, 4, 4).unwrap().place, 'b' as u64);
        assert_eq!(reservoir.reuse(0, 5, 5).unwrap().place, 'a' as u64);
        let seen = reservoir.finish(5);
        let ages: Vec<(u32, u64, Option<u32>)> =
            seen.iter().map(|o| (o.context, o.age, o.reuse)).collect();
        assert_eq!(ages, [(2, 2, Some(4)), (1, 4, Some(5)), (3, 2, None)]);
        let estimate = estimate(&seen, Attribution::Survival);
        assert_eq!(
            (estimate.weights.clone(), estimate.never),
            (vec![1.0, 1.0, 0.0], 1.0)
        );
        assert_eq!(pairs(&seen, &estimate)[0], (1, 5, 1.0, 4.0));
    }

    #[test]
    fn watchpoints_of_one_context_share_what_is_not_accounted_for() {
        // Four samples of one context, two of them watched; the one that traps first gets half of
        // the four, the other the rest.
        let seen = |sample, until, reused: bool| Observation {
            context: 1,
            age: 10,
            reuse: reused.then_some(2),
            stream: 0,
            sample,
            until,
        };
        let fates = [
            seen(3, 3, false),
            seen(4, 4, false),
            seen(1, 4, true),
            seen(2, 4, true),
        ];
        let got = proportional(&fates);
        assert_eq!((got.weights, got.never), (vec![0.0, 0.0, 2.0, 2.0], 0.0));
        // Each stream has separate accounts.
        let other = Observation {
            stream: 1,
            ..seen(1, 1, true)
        };
        let got = proportional(&[fates.as_slice(), &[other]].concat());
        assert_eq!(got.weights, [0.0, 0.0, 2.0, 2.0, 1.0]);
    }

    #[test]
    fn every_sample_survives_with_equal_probability() {
        // One register, ten samples, no reuse: each sample is left at the end in one case of ten.
        let mut left = [0u32; 10];
        for seed in 0..20_000 {
            let mut reservoir = Reservoir::new(1, seed);
            for i in 0..10 {
                reservoir.sample(i, i, 0);
            }
            left[reservoir.watches()[0].unwrap().place as usize] += 1;
        }
        assert!(left.iter().all(|&n| (1750..2250).contains(&n)), "{left:?}");
    }

    /// The product-limit estimate by its textbook definition: Π (1 − d/n) over ages.
    fn survival_by_definition(observations: &[Observation], age: u64) -> f64 {
        let mut ages: Vec<u64> = observations
            .iter()
            .filter(|o| o.reuse.is_some() && o.age <= age)
            .map(|o| o.age)
            .collect();
        ages.sort_unstable();
        ages.dedup();
        ages.iter()
            .map(|&t| {
                let deaths = observations
                    .iter()
                    .filter(|o| o.reuse.is_some() && o.age == t)
                    .count() as f64;
                let risk = observations.iter().filter(|o| o.age >= t).count() as f64;
                1.0 - deaths / risk
            })
            .product()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn the_estimate_agrees_with_the_definition(seen in prop::collection::vec((0u64..20, any::<bool>()), 1..40)) {
            let observations: Vec<Observation> = seen.iter().enumerate().map(|(i, &(age, reused))| Observation {
                context: 0, age, reuse: reused.then_some(0), stream: 0, sample: i as u64, until: i as u64,
            }).collect();
            let estimate = estimate(&observations, Attribution::Survival);
            for age in 0..21 {
                let mass: f64 = observations.iter().zip(&estimate.weights).filter(|(o, _)| o.age <= age).map(|(_, w)| w).sum();
                let want = observations.len() as f64 * (1.0 - survival_by_definition(&observations, age));
                prop_assert!((mass - want).abs() < 1e-9);
            }
            let total: f64 = estimate.weights.iter().sum::<f64>() + estimate.never;
            prop_assert!((total - observations.len() as f64).abs() < 1e-9);
        }

        /// The catch-up counters of the definition are updated at each event, with the registers at
        /// that time.
        #[test]
        fn each_sample_is_accounted_for_once(
            events in prop::collection::vec((any::<bool>(), 0u32..3, 0usize..4), 1..150),
            watchpoints in 1usize..5, seed: u64,
        ) {
            let mut reservoir = Reservoir::new(watchpoints, seed);
            let (mut taken, mut accounted) = ([0.0f64; 3], [0.0f64; 3]);
            let mut want = Vec::new();
            for (now, &(is_sample, context, slot)) in events.iter().enumerate() {
                if is_sample {
                    taken[context as usize] += 1.0;
                    reservoir.sample(now as u64, now as u64, context);
                } else if let Some(watch) = reservoir.watches().get(slot).copied().flatten() {
                    let own = watch.context as usize;
                    let sharing = reservoir.watches().iter().flatten().filter(|w| w.context == watch.context).count();
                    let weight = (taken[own] - accounted[own]) / sharing as f64;
                    accounted[own] += weight;
                    want.push(weight);
                    reservoir.reuse(slot, now as u64, 9);
                }
            }
            let seen = reservoir.finish(1000);
            let got = estimate(&seen, Attribution::Proportional);
            let reused: Vec<f64> = seen.iter().zip(&got.weights).filter(|(o, _)| o.reuse.is_some()).map(|(_, &w)| w).collect();
            prop_assert_eq!(reused.len(), want.len());
            prop_assert!(reused.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-9), "{:?} {:?}", reused, want);
            let total: f64 = got.weights.iter().sum::<f64>() + got.never;
            prop_assert!((total - seen.len() as f64).abs() < 1e-9);
        }

        /// With a watchpoint for every sample only the end censors: each reuse is observed with its
        /// exact distance.
        #[test]
        fn enough_watchpoints_see_all(trace in prop::collection::vec(0u64..12, 1..120), seed: u64) {
            let mut watcher = Watcher::new(1, 200, seed);
            let mut want: Vec<u64> = Vec::new();
            let mut last = std::collections::HashMap::new();
            let mut sampled: std::collections::HashSet<u64> = Default::default();
            for (i, &block) in trace.iter().enumerate() {
                let next = watcher.next;
                watcher.access(block, block, block as u32);
                if sampled.contains(&block) {
                    want.push(i as u64 + 1 - last[&block]);
                    sampled.remove(&block);
                }
                if i as u64 + 1 >= next {
                    sampled.insert(block);
                    last.insert(block, i as u64 + 1);
                }
            }
            let (seen, _) = watcher.finish();
            let mut got: Vec<u64> = seen.iter().filter(|o| o.reuse.is_some()).map(|o| o.age).collect();
            got.sort_unstable();
            want.sort_unstable();
            prop_assert_eq!(got, want);
        }
    }
}

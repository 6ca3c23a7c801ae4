//! Time that a change saves without moved addresses: parts of the waits of load instructions, and
//! parts of the time of regions.

use crate::estimate::time_shares::TimeShare;
use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::gains::Costs;
use crate::findings::time_account::RegionKey;
use crate::findings::{region_share, time_share};
use crate::misses::Range;

/// Time of a region that a change saves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spared {
    pub(crate) region: RegionKey,
    /// The saved part of the region's time, with the ends of its interval. Negative if it takes
    /// longer.
    pub(crate) part: Range,
}

/// The interval of a wait that stays as it is.
pub(crate) const ALL_LEFT: Range = [1.0; 3];

/// Share of the run's time in some region, in percent, with the ends of its interval.
pub(super) fn share_of(context: &Context, key: RegionKey) -> Range {
    let times = context.times.as_ref();
    match time_share(times, |piece| context.users.region(piece) == key) {
        share @ TimeShare { value: Some(_), .. } => share.ends(),
        _ => {
            let all = context.sites.values().map(|s| s.rows).sum();
            [region_share(context, &[key], all); 3]
        }
    }
}

/// Parts of the causes' waits that a change leaves: least, estimate, most. `left` is the part that it
/// leaves of a load instruction's waits.
pub(super) fn kept(costs: &Costs, left: &dyn Fn(u32) -> Range) -> [Vec<f64>; 3] {
    let of = |cause: &Cause| -> Range {
        let price = |site: u32| costs.context.prices.of_site(site);
        let all: f64 = cause.sites.iter().map(|&site| price(site)).sum();
        if all <= 0.0 {
            return ALL_LEFT;
        }
        let mut sum = [0.0; 3];
        for &site in &cause.sites {
            let part = price(site) / all;
            (sum.iter_mut().zip(left(site))).for_each(|(sum, left)| *sum += part * left);
        }
        sum
    };
    let parts: Vec<Range> = costs.causes.iter().map(of).collect();
    std::array::from_fn(|end| parts.iter().map(|part| part[end]).collect())
}

/// A gain in percent of the run's time, together with that in some regions.
pub(super) fn with_spared(context: &Context, time: Range, spared: &[Spared]) -> Range {
    let each = spared.iter().map(|s| (share_of(context, s.region), s.part));
    sum(time, each)
}

/// A gain in percent, with the saved parts of some shares of the time. The errors of all shares go
/// together, and so do those of all parts.
fn sum(time: Range, spared: impl Iterator<Item = (Range, Range)>) -> Range {
    let (mut gain, mut parts, mut shares) = (0.0, [0.0; 2], [0.0; 2]);
    for (share, part) in spared {
        gain += share[1] * part[1];
        for (end, at) in [0, 2].into_iter().enumerate() {
            parts[end] += share[1] * (part[at] - part[1]).abs();
            shares[end] += (share[at] - share[1]).abs() * part[1].abs();
        }
    }
    let half: [f64; 2] = std::array::from_fn(|end| {
        let own = (time[2 * end] - time[1]).abs();
        own.hypot(parts[end]).hypot(shares[end])
    });
    let value = time[1] + gain;
    [value - half[0], value, (value + half[1]).min(100.0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_regions_add_to_a_gain() {
        let nothing = sum([-3.0, 1.0, 5.0], std::iter::empty());
        assert_eq!(nothing, [-3.0, 1.0, 5.0]);
        let half = ([80.0; 3], [0.25, 0.5, 0.6]);
        assert_eq!(sum([-3.0, 1.0, 5.0], [half].into_iter())[1], 41.0);
        let [lo, value, hi] = sum([0.0; 3], [half].into_iter());
        assert!(
            (lo - 20.0).abs() < 1e-9 && (hi - 48.0).abs() < 1e-9,
            "{lo} {value} {hi}"
        );
        let unsure = ([60.0, 80.0, 100.0], [0.5; 3]);
        assert_eq!(sum([0.0; 3], [unsure].into_iter()), [30.0, 40.0, 50.0]);
        let slower = ([80.0; 3], [-0.5, -0.25, 0.0]);
        assert_eq!(sum([0.0; 3], [slower].into_iter())[1], -20.0);
    }
}

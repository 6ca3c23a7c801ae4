//! Reuse distances inside samples.
//!
//! The first touch of a line in a sample has an unknown distance, at least the number of lines that
//! the sample had touched before. So the share of accesses with a distance of `d` or more is a
//! survival function of censored data. It is estimated by Kaplan and Meier's method.

use crate::misses::params;
use crate::stages::line_visits::{GroupLines, bin_start};

/// Distances of a group of code.
#[derive(Clone, Debug, Default)]
pub(crate) struct Near {
    known: Vec<f64>,
    censored: Vec<f64>,
    /// Survival at the beginning of each bin: the share of the accesses with at least that
    /// distance.
    survival: Vec<f64>,
    /// The distance up to which survival is known.
    pub(crate) reach: u64,
    /// Share of the accesses whose line is reused only after more time than samples cover.
    beyond: f64,
    /// Lines that a sample touches in the time that samples cover.
    meanwhile: f64,
}

/// Sums a kind of bins over some parts.
fn sum<'a>(
    parts: impl Iterator<Item = &'a GroupLines>,
    of: fn(&GroupLines) -> &Vec<u32>,
) -> Vec<f64> {
    let mut all = Vec::new();
    for part in parts {
        let bins = of(part);
        all.resize(all.len().max(bins.len()), 0.0);
        all.iter_mut()
            .zip(bins)
            .for_each(|(a, &b)| *a += f64::from(b));
    }
    all
}

/// Survival over time: the share of accesses whose line was not touched for a certain number of
/// rows. That number is the greatest one that [`params::MIN_ACCESS_SHARE_BEYOND_REACH`] of all
/// accesses have before them in their sample. It is Kaplan and Meier's estimate with rows instead
/// of lines. The second value is the number of lines that a sample has touched by then.
///
/// The number of lines that a sample has touched depends on the code. Code may use a few lines and
/// then continue with others. Then only samples with many lines contain first touches of the
/// others, so lines are not censored at random. Rows are, since a sample may begin anywhere.
fn left_alone<'a>(parts: impl Iterator<Item = &'a GroupLines> + Clone) -> (f64, f64) {
    let known = sum(parts.clone(), |p| &p.times[0].0);
    let censored = sum(parts.clone(), |p| &p.times[1].0);
    let at = sum(parts.clone(), |p| &p.times[2].0);
    let all: f64 = at.iter().sum();
    let (mut until, mut behind) = (at.len(), 0.0);
    while until > 0 && behind < params::MIN_ACCESS_SHARE_BEYOND_REACH * all {
        until -= 1;
        behind += at[until];
    }
    let of_bin = |of: &[f64], bin: usize| of.get(bin).copied().unwrap_or(0.0);
    let (mut left, mut at_risk) = (1.0, all);
    for bin in 0..until {
        // Reuses of one loop have equal times. Accesses that are censored in the same bin are
        // assumed to be censored before.
        let (known, censored) = (of_bin(&known, bin), of_bin(&censored, bin));
        at_risk -= censored;
        if at_risk > 0.0 {
            left *= (1.0 - known / at_risk).max(0.0);
        }
        at_risk -= known;
    }
    let lines: u64 = parts.filter_map(|p| p.lines.get(until)).sum();
    (left, lines as f64 / of_bin(&at, until).max(1.0))
}

impl Near {
    /// Distances from the accesses of some replicates.
    pub(crate) fn new<'a>(parts: impl Iterator<Item = &'a GroupLines> + Clone) -> Near {
        let known = sum(parts.clone(), |p| &p.known.0);
        let censored = sum(parts.clone(), |p| &p.censored.0);
        let near = Near::of(known, censored, sum(parts.clone(), |p| &p.before.0));
        let (beyond, meanwhile) = left_alone(parts);
        Near {
            beyond,
            meanwhile,
            ..near
        }
    }

    /// Distances that count only lines in the same set of the first-level cache.
    pub(crate) fn in_set<'a>(parts: impl Iterator<Item = &'a GroupLines> + Clone) -> Near {
        let known = sum(parts.clone(), |p| &p.in_set[0].0);
        let censored = sum(parts.clone(), |p| &p.in_set[1].0);
        Near::of(known, censored, sum(parts, |p| &p.in_set[2].0))
    }

    fn of(mut known: Vec<f64>, mut censored: Vec<f64>, before: Vec<f64>) -> Near {
        let bins = known.len().max(censored.len()).max(before.len());
        known.resize(bins, 0.0);
        censored.resize(bins, 0.0);
        let all: f64 = before.iter().sum();
        let (mut seen, mut reach) = (0.0, 0);
        for at in (0..before.len()).rev() {
            seen += before[at];
            if seen >= params::MIN_ACCESS_SHARE_AT_REACH * all && all > 0.0 {
                reach = bin_start(at);
                break;
            }
        }
        let mut survival = Vec::with_capacity(bins + 1);
        let (mut left, mut at_risk) = (1.0, known.iter().chain(&censored).sum::<f64>());
        for at in 0..bins {
            survival.push(left);
            // Censored accesses count as censored in the middle of their bin.
            let exposed = at_risk - censored[at] / 2.0;
            let reused = if exposed > 0.0 {
                known[at] / exposed
            } else {
                0.0
            };
            left *= (1.0 - reused).max(0.0);
            at_risk -= known[at] + censored[at];
        }
        survival.push(left);
        Near {
            known,
            censored,
            beyond: survival[survival.len() - 1],
            meanwhile: f64::INFINITY,
            survival,
            reach,
        }
    }

    /// Forgets the counts, which only [`Near::late_reuses`] needs.
    pub(crate) fn settle(&mut self) {
        (self.known, self.censored) = (Vec::new(), Vec::new());
    }

    /// Share of the accesses with a distance of at least `distance` lines, which may be beyond the
    /// reach.
    pub(crate) fn far(&self, distance: f64) -> f64 {
        let reach = self.reach as f64;
        match distance > reach {
            true if distance > self.meanwhile => self.beyond,
            true => self.at_least(reach).max(self.beyond),
            false => self.at_least(distance),
        }
    }

    /// Share of the accesses with a distance of at least `distance` lines, inside samples.
    pub(crate) fn at_least(&self, distance: f64) -> f64 {
        if self.survival.len() < 2 {
            return 1.0;
        }
        let at = crate::stages::line_visits::bin(distance as u64);
        let Some(&from) = self.survival.get(at) else {
            return self.survival[self.survival.len() - 1];
        };
        let to = self.survival.get(at + 1).copied().unwrap_or(from);
        let (low, high) = (bin_start(at) as f64, bin_start(at + 1) as f64);
        from + (to - from) * ((distance - low) / (high - low)).clamp(0.0, 1.0)
    }

    /// Counts reuses whose distance is between `part` of the reach and the reach. The second value
    /// is the exposure: the sum of the lines over which each access could have been reused there.
    pub(crate) fn late_reuses(&self, part: f64) -> (f64, f64) {
        let from = ((self.reach as f64 * part) as u64).max(params::MIN_LATE_REUSE_LINES);
        let (mut reuses, mut lines) = (0.0, 0.0);
        let mut at_risk: f64 = self.known.iter().chain(&self.censored).sum();
        for at in 0..self.known.len() {
            let (low, high) = (bin_start(at), bin_start(at + 1));
            if low >= from && high <= self.reach {
                reuses += self.known[at];
                lines +=
                    (high - low) as f64 * (at_risk - (self.known[at] + self.censored[at]) / 2.0);
            }
            at_risk -= self.known[at] + self.censored[at];
        }
        (reuses, lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::group::Group;
    use crate::data::rows::ColumnSlices;
    use crate::stages::line_visits::LineVisits;
    use crate::stages::set_conflicts::{LEVELS, Sets};

    /// Distances that samples of a thousand rows see, from random places of a program. `line`: the
    /// line of each row.
    fn seen(samples: u64, line: impl Fn(u64) -> u64) -> Near {
        let mut found = LineVisits::default();
        for s in 0..samples {
            let begin = s.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let address: Vec<u64> = (begin..begin + 1000).map(|row| line(row) << 6).collect();
            found.begin(0, s as u32, &[Sets { sets: 64, ways: 8 }; LEVELS], &[]);
            let rows = ColumnSlices {
                address: &address,
                size: &[8; 1000],
                group: &[Group::from_raw(1); 1000],
                implied: &[0; 1000],
            };
            found.run(&rows, &[]);
            found.finish();
        }
        let parts: Vec<GroupLines> = found.groups.into_values().collect();
        Near::new(parts.iter())
    }

    /// A kernel uses fourteen lines in turn for 1,600 rows, then the next fourteen.
    #[test]
    fn lines_that_are_left_for_others_are_seen_whatever_comes_again_meanwhile() {
        let near = seen(3000, |row| row / 1600 * 14 + row % 14);
        let (found, truth) = (near.far(512.0), 14.0 / 1600.0);
        assert!((found / truth - 1.0).abs() < 0.1, "{found} for {truth}");
    }

    /// A lap takes seven tenths of a sample, so that few samples contain all of it.
    #[test]
    fn laps_within_samples_come_again() {
        let near = seen(300, |row| row % 700);
        assert!(near.far(2000.0) < 1e-9 && near.far(300.0) > 0.999);
        // Lines without reuse survive forever.
        assert_eq!(seen(300, |row| row).far(2000.0), 1.0);
    }
}

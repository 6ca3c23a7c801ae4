//! Reuse distances as samples see them: known inside a sample, censored at its beginning.
//!
//! The first touch of a line in a sample has a distance of at least the lines that the sample had touched. So the share of accesses with a distance of `d` or more is a survival
//! function with censoring, estimated by the product of Kaplan and Meier.

use crate::stages::line_visits::{GroupLines, TIMES, start};

/// Share of the accesses that have seen so many lines of their sample, at the distance up to which a sample is trusted.
const REACH: f64 = 0.4;

/// The same, if it is trusted further because much is reused there.
const FURTHER: f64 = 0.2;
/// That is much: the part of those left that are reused in one bin.
const LAP: f64 = 0.1;

/// Parts of a sample's length, of [`TIMES`], up to which times between reuses are trusted.
const KNOWN_TIME: usize = 26;

/// Distances of a group of code.
#[derive(Clone, Debug, Default)]
pub(crate) struct Near {
    known: Vec<f64>,
    censored: Vec<f64>,
    /// Share of the accesses with at least so great a distance, at the beginning of each bin.
    survival: Vec<f64>,
    /// The distance up to which this is known.
    pub(crate) reach: u64,
    /// Share of the accesses whose line was left alone for longer than samples see.
    beyond: f64,
    /// Lines that are touched meanwhile.
    meanwhile: f64,
}

/// Sums of bins over some parts.
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

/// Share of the accesses whose line was left alone for a part of a sample's length (Kaplan and Meier, with times instead of lines).
///
/// How many lines a sample has touched depends on what it touches: in code that stays with a few lines and then goes on to others, first touches of
/// these come in samples that have seen many lines, and the others see none of them. A sample begins anywhere, so times are censored by chance.
/// Second: lines that a sample has touched by then.
fn left_alone<'a>(parts: impl Iterator<Item = &'a GroupLines>) -> (f64, f64) {
    let (mut lines, mut accesses) = (0.0, 0.0);
    let mut sums = [[0.0; TIMES]; 2];
    for part in parts {
        lines += part.lines[KNOWN_TIME] as f64;
        accesses += f64::from(part.times[2][KNOWN_TIME]);
        let sums = sums.as_flattened_mut().iter_mut();
        (sums.zip(part.times[..2].as_flattened())).for_each(|(a, &b)| *a += f64::from(b));
    }
    let [known, censored] = sums;
    let (mut left, mut at_risk) = (1.0, sums.as_flattened().iter().sum::<f64>());
    for (known, censored) in known.iter().zip(censored).take(KNOWN_TIME) {
        let exposed = at_risk - censored / 2.0;
        if exposed > 0.0 {
            left *= (1.0 - known / exposed).max(0.0);
        }
        at_risk -= known + censored;
    }
    (left, lines / f64::max(accesses, 1.0))
}

impl Near {
    /// From the accesses of some replicates.
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

    /// The same of distances that count only lines in the same set of the first-level cache.
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
            if seen >= REACH * all && all > 0.0 {
                reach = start(at);
                break;
            }
        }
        let mut survival = Vec::with_capacity(bins + 1);
        let (mut left, mut at_risk) = (1.0, known.iter().chain(&censored).sum::<f64>());
        let (trusted, mut behind) = (reach, all);
        for at in 0..bins {
            survival.push(left);
            // Censored ones are somewhere in their bin.
            let exposed = at_risk - censored[at] / 2.0;
            let reused = if exposed > 0.0 {
                known[at] / exposed
            } else {
                0.0
            };
            left *= (1.0 - reused).max(0.0);
            at_risk -= known[at] + censored[at];
            // A lap that ends just behind is taken in.
            behind -= before.get(at).copied().unwrap_or(0.0);
            if start(at) >= trusted && reused >= LAP && behind >= FURTHER * all {
                reach = start(at + 1);
            }
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

    /// Share of the accesses with a distance of at least so many lines, of which there may be more than samples reach.
    pub(crate) fn far(&self, distance: f64) -> f64 {
        let reach = self.reach as f64;
        match distance > reach {
            true if distance > self.meanwhile => self.beyond,
            true => self.at_least(reach).max(self.beyond),
            false => self.at_least(distance),
        }
    }

    /// Share of the accesses with a distance of at least so many lines.
    pub(crate) fn at_least(&self, distance: f64) -> f64 {
        if self.survival.len() < 2 {
            return 1.0;
        }
        let at = crate::stages::line_visits::bin(distance as u64);
        let Some(&from) = self.survival.get(at) else {
            return self.survival[self.survival.len() - 1];
        };
        let to = self.survival.get(at + 1).copied().unwrap_or(from);
        let (low, high) = (start(at) as f64, start(at + 1) as f64);
        from + (to - from) * ((distance - low) / (high - low)).clamp(0.0, 1.0)
    }

    /// Reuses with a distance between a part of the reach and the reach, and the lines over which they might have come.
    pub(crate) fn late_reuses(&self, part: f64) -> (f64, f64) {
        let from = ((self.reach as f64 * part) as u64).max(2);
        let (mut reuses, mut lines) = (0.0, 0.0);
        let mut at_risk: f64 = self.known.iter().chain(&self.censored).sum();
        for at in 0..self.known.len() {
            let (low, high) = (start(at), start(at + 1));
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

//! A test of paired times that ends early.
//!
//! A pair is a run of the original and one of a candidate, in alternating order. Its value is the
//! logarithm of the ratio of their times. The interval of the mean is Student's of the trimmed mean
//! (Yuen). Interim looks are at fixed numbers of pairs, and each uses a part of the error
//! (Bonferroni), so the interval at the test's end has 95 % coverage whatever ended the test.

use crate::fix::params;
use mgz_models::statistics::distributions::student_p;
use serde::{Deserialize, Serialize};

/// Ratio of the original's time to that of a candidate, with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speedup {
    /// The estimate.
    #[serde(rename = "times_as_fast")]
    pub value: f64,
    /// Lower end.
    #[serde(rename = "times_as_fast_lo")]
    pub lo: f64,
    /// Upper end.
    #[serde(rename = "times_as_fast_hi")]
    pub hi: f64,
}

impl Speedup {
    /// Saved share of the time in percent: the estimate, the lower and the upper end.
    pub fn saved_pct(&self) -> [f64; 3] {
        [self.value, self.lo, self.hi].map(|ratio| 100.0 * (1.0 - 1.0 / ratio))
    }
}

/// Result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The interval is above the minimum gain.
    Faster,
    /// The interval is below the minimum gain, or the pairs are used up.
    NotFaster,
    /// More pairs are needed.
    Open,
}

/// The plan of a test: the numbers of pairs at which it looks.
#[derive(Clone, Debug)]
pub struct Test {
    looks: Vec<usize>,
}

impl Test {
    /// A test of at most `most_pairs` pairs.
    pub fn new(most_pairs: usize) -> Test {
        let most = most_pairs.max(params::FIRST_LOOK);
        let mut looks = Vec::new();
        let mut next = params::FIRST_LOOK;
        while next < most {
            looks.push(next);
            next = (next as f64 * params::LOOK_GROWTH).ceil() as usize;
        }
        looks.push(most);
        Test { looks }
    }

    /// The greatest number of pairs.
    pub fn most_pairs(&self) -> usize {
        self.looks.last().copied().unwrap_or(0)
    }

    /// Decides after some pairs.
    pub fn verdict(&self, logs: &[f64]) -> Verdict {
        let is_last = self.looks.last().is_some_and(|&last| logs.len() >= last);
        if !self.looks.contains(&logs.len()) && !is_last {
            return Verdict::Open;
        }
        let least = 1.0 / (1.0 - params::MIN_GAIN);
        match self.interval(logs) {
            Some(ratio) if ratio.lo > least => Verdict::Faster,
            Some(ratio) if ratio.hi < least => Verdict::NotFaster,
            _ if is_last => Verdict::NotFaster,
            _ => Verdict::Open,
        }
    }

    /// The ratio of the times, with an interval that is valid over all looks. `None` with fewer
    /// than two pairs.
    pub fn interval(&self, logs: &[f64]) -> Option<Speedup> {
        let (mean, error, freedom) = trimmed_mean(logs)?;
        let width = error * quantile(params::ERROR / self.looks.len() as f64, freedom);
        Some(Speedup {
            value: mean.exp(),
            lo: (mean - width).exp(),
            hi: (mean + width).exp(),
        })
    }
}

/// The trimmed mean, its standard error and its degrees of freedom.
fn trimmed_mean(values: &[f64]) -> Option<(f64, f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let all = sorted.len();
    let cut = match all {
        few if few < params::MIN_TRIMMED => 0,
        many => (params::TRIMMED * many as f64) as usize,
    };
    let inner = &sorted[cut..all - cut];
    let left = inner.len() as f64;
    if left < 2.0 {
        return None;
    }
    let (lowest, highest) = (*inner.first()?, *inner.last()?);
    let mean = inner.iter().sum::<f64>() / left;
    // Trimmed values count like the outermost remaining ones.
    let winsorized: Vec<f64> = sorted.iter().map(|v| v.clamp(lowest, highest)).collect();
    let center = winsorized.iter().sum::<f64>() / all as f64;
    let squares: f64 = winsorized.iter().map(|v| (v - center).powi(2)).sum();
    let error = (squares / (left * (left - 1.0))).sqrt();
    Some((mean, error, left - 1.0))
}

/// The value that Student's t exceeds on either side with probability `p`.
fn quantile(p: f64, freedom: f64) -> f64 {
    let (mut lo, mut hi) = (0.0, 1.0);
    while student_p(hi, freedom) > p && hi < 1e9 {
        hi *= 2.0;
    }
    for _ in 0..60 {
        let middle = 0.5 * (lo + hi);
        match student_p(middle, freedom) > p {
            true => lo = middle,
            false => hi = middle,
        }
    }
    hi
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uniform in (0, 1), by SplitMix64.
    struct Random(u64);

    impl Random {
        fn uniform(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ z >> 31) >> 11) as f64 / (1u64 << 53) as f64 + 1e-17
        }

        fn normal(&mut self) -> f64 {
            let (a, b) = (self.uniform(), self.uniform());
            (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
        }
    }

    /// The logarithm of a run's time; some runs take far longer.
    fn log_time(random: &mut Random, noise: f64, outliers: f64) -> f64 {
        let late = random.uniform() < outliers;
        let delay = if late { 0.5 * random.uniform() } else { 0.0 };
        noise * random.normal() + delay
    }

    /// The verdict of a test, its last interval and the number of pairs.
    fn tested(
        random: &mut Random,
        gain: f64,
        (noise, outliers): (f64, f64),
    ) -> (Verdict, Speedup, usize) {
        let test = Test::new(20);
        let mut logs = Vec::new();
        loop {
            let original = log_time(random, noise, outliers) + gain;
            logs.push(original - log_time(random, noise, outliers));
            let verdict = test.verdict(&logs);
            if verdict != Verdict::Open {
                return (verdict, test.interval(&logs).unwrap(), logs.len());
            }
        }
    }

    const TIMES: usize = 1000;
    const NOISES: [(f64, f64); 4] = [(0.002, 0.0), (0.01, 0.0), (0.03, 0.1), (0.1, 0.2)];

    /// Share of the tests that find a candidate faster.
    fn found(gain: f64, noise: (f64, f64)) -> f64 {
        let mut random = Random(1);
        let faster = (0..TIMES)
            .filter(|_| tested(&mut random, gain, noise).0 == Verdict::Faster)
            .count();
        faster as f64 / TIMES as f64
    }

    #[test]
    fn a_candidate_without_a_gain_is_kept_in_less_than_5_percent() {
        // An error is most likely at the minimum gain itself.
        for gain in [0.0, -(1.0f64 - params::MIN_GAIN).ln()] {
            for noise in NOISES {
                let share = found(gain, noise);
                assert!(share < 0.04, "{gain} {noise:?}: {share}");
            }
        }
    }

    #[test]
    fn gains_beyond_the_noise_are_found() {
        assert!(found(0.05, (0.01, 0.0)) > 0.99);
        assert!(found(0.10, (0.03, 0.1)) > 0.90);
        assert!(found(0.30, (0.1, 0.2)) > 0.60);
    }

    #[test]
    fn clear_cases_take_few_pairs() {
        let mut random = Random(2);
        let mean = |gain: f64, random: &mut Random| {
            let pairs: usize = (0..500).map(|_| tested(random, gain, (0.005, 0.0)).2).sum();
            pairs as f64 / 500.0
        };
        assert!(mean(0.3, &mut random) < 4.5);
        assert!(mean(-0.3, &mut random) < 4.5);
        assert!(mean(0.0, &mut random) < 12.0);
    }

    #[test]
    fn intervals_hold_whatever_ended_the_test() {
        for noise in NOISES {
            for gain in [0.0, 0.01, 0.03, 0.2] {
                let mut random = Random(3);
                let missed = (0..TIMES)
                    .filter(|_| {
                        let (_, ratio, _) = tested(&mut random, gain, noise);
                        !(ratio.lo..=ratio.hi).contains(&gain.exp())
                    })
                    .count();
                let share = missed as f64 / TIMES as f64;
                assert!(share < 0.06, "{noise:?} {gain}: {share}");
            }
        }
    }

    #[test]
    fn quantiles_are_those_of_tables() {
        for (p, freedom, expected) in [
            (0.05, 3.0, 3.182),
            (0.01, 3.0, 5.841),
            (0.01, 19.0, 2.861),
            (0.05, 1.0, 12.706),
        ] {
            assert!(
                (quantile(p, freedom) - expected).abs() < 0.002,
                "{p} {freedom}"
            );
        }
    }

    #[test]
    fn looks_are_few_and_end_with_the_last_pair() {
        assert_eq!(Test::new(20).looks, [4, 6, 9, 14, 20]);
        assert_eq!(Test::new(4).looks, [4]);
        assert_eq!(Test::new(1).looks, [4]);
        assert_eq!(Test::new(20).verdict(&[0.5; 3]), Verdict::Open);
        assert_eq!(Test::new(20).verdict(&[0.5; 4]), Verdict::Faster);
    }

    #[test]
    fn saved_shares_follow_from_ratios() {
        let ratio = Speedup {
            value: 2.0,
            lo: 1.0,
            hi: 4.0,
        };
        assert_eq!(ratio.saved_pct(), [50.0, 0.0, 75.0]);
    }
}

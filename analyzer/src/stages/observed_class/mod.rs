//! Observed class of a load instruction, from the differences between its consecutive addresses
//! inside samples ([`crate::stages::strides`]). The sidecar's class comes from static analysis; the
//! observed class shows the actual behaviour.

mod by_code;
mod far_steps;
mod footprint;

pub use by_code::{ByCode, ClassPair, ObservedRow};
pub use far_steps::{FarStep, FarSteps};

use crate::stages::stride_bins::{MAX_EXACT_STEP, range};

/// Minimum number of steps for a class. Source: Chosen.
pub const MIN_STEPS: u64 = 8;
/// Minimum share of equal steps, percent. Source: Chosen.
const MIN_ALIKE_PCT: u64 = 90;
/// Minimum share of steps that equal the previous one, if only their magnitude is counted, percent.
/// (A single different step makes two steps differ from the previous one.) Source: Chosen.
const MIN_REPEATED_PCT: u64 = 80;
/// Maximum number of distinct steps of a Mixed load. Source: Chosen.
const FEW_STEPS: usize = 4;

/// An observed class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Observed {
    /// Too few steps.
    #[default]
    Unknown,
    /// The address does not change.
    Constant,
    /// The address changes by this step.
    Strided(i64),
    /// The address changes by one of a few steps.
    Mixed,
    /// None of these.
    Irregular,
}

impl Observed {
    /// Class from the steps of one instruction. `counts` are by bin. `far` has details of steps
    /// that are too large for separate bins.
    pub fn of(counts: &[(u32, u64)], far: Option<&FarStep>) -> Observed {
        let all: u64 = counts.iter().map(|c| c.1).sum();
        let share = |part: u64, percent: u64| {
            u128::from(part) * 100 >= u128::from(all) * u128::from(percent)
        };
        if all < MIN_STEPS {
            return Observed::Unknown;
        }
        let mut order: Vec<(u64, u32)> = counts.iter().map(|&(bin, n)| (n, bin)).collect();
        order.sort_unstable_by_key(|&(n, bin)| (std::cmp::Reverse(n), bin));
        let is_exact = |bin: u32| bin <= 2 * MAX_EXACT_STEP as u32;
        if let Some(&(n, bin)) = order.first()
            && share(n, MIN_ALIKE_PCT)
        {
            match (range(bin).0, far) {
                (0, _) => return Observed::Constant,
                (step, _) if is_exact(bin) => return Observed::Strided(step),
                (_, Some(far)) if share(far.repeats, MIN_REPEATED_PCT) => {
                    return far.only().map_or(Observed::Mixed, Observed::Strided);
                }
                _ => {}
            }
        }
        let few: u64 = order
            .iter()
            .filter(|c| is_exact(c.1))
            .take(FEW_STEPS)
            .map(|c| c.0)
            .sum();
        if share(few, MIN_ALIKE_PCT) {
            Observed::Mixed
        } else {
            Observed::Irregular
        }
    }

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Observed::Unknown => "unknown",
            Observed::Constant => "constant",
            Observed::Strided(_) => "strided",
            Observed::Mixed => "mixed",
            Observed::Irregular => "irregular",
        }
    }

    /// Step of the instruction.
    pub fn step(self) -> Option<i64> {
        match self {
            Observed::Strided(step) => Some(step),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::strides::Strides;

    /// The class of one instruction that loads from these addresses, with one list per sample.
    fn observed(samples: &[Vec<u64>]) -> Observed {
        let mut strides = Strides::default();
        for sample in samples {
            strides.begin();
            strides.run(sample, &vec![0; sample.len()], 1);
        }
        let counts: Vec<(u32, u64)> = strides.counts().iter().map(|c| (c.1, c.2)).collect();
        let far = strides.far_steps().list();
        Observed::of(&counts, far.first().map(|f| &f.1))
    }

    fn walk(n: u64, step: i64) -> Vec<u64> {
        (0..n as i64)
            .map(|i| (0x10_0000_0000 + i * step) as u64)
            .collect()
    }

    fn random(n: usize) -> Vec<u64> {
        let mut state = 5u64;
        let mut next = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            0x1000 + (state >> 40) * 8
        };
        (0..n).map(|_| next()).collect()
    }

    #[test]
    fn classes_are_told_by_steps() {
        assert_eq!(observed(&[walk(8, 16)]), Observed::Unknown);
        assert_eq!(observed(&[walk(9, 16)]), Observed::Strided(16));
        assert_eq!(observed(&[walk(100, 0)]), Observed::Constant);
        assert_eq!(observed(&[walk(100, -4)]), Observed::Strided(-4));
        assert_eq!(observed(&[walk(100, 8192)]), Observed::Strided(8192));
        assert_eq!(observed(&[walk(100, -700)]), Observed::Strided(-700));
        assert_eq!(observed(&[random(200)]), Observed::Irregular);
        // Differences between samples are not steps.
        let short = vec![vec![1 << 20, (1 << 20) + 8], vec![1 << 30, (1 << 30) + 8]];
        assert_eq!(observed(&short), Observed::Unknown);
        let many: Vec<Vec<u64>> = (0..20u64).map(|i| vec![i << 20, (i << 20) + 8]).collect();
        assert_eq!(observed(&many), Observed::Strided(8));
    }

    #[test]
    fn one_in_ten_may_differ() {
        let rows = |n: u64, step: i64| -> Vec<u64> {
            (0..30)
                .flat_map(|row| walk(n, step).into_iter().map(move |a| a + row * 5_000_017))
                .collect()
        };
        assert_eq!(observed(&[rows(12, 8)]), Observed::Strided(8));
        assert_ne!(observed(&[rows(6, 8)]), Observed::Strided(8));
        assert_eq!(observed(&[rows(12, 4096)]), Observed::Strided(4096));
        assert_eq!(observed(&[rows(6, 4096)]), Observed::Irregular);
    }

    #[test]
    fn steps_of_one_magnitude_are_not_one_step() {
        let uneven: Vec<u64> = (0..200u64).map(|i| i * 5000 + i % 7 * 100).collect();
        assert_eq!(observed(&[uneven]), Observed::Irregular);
        // First one stride, then the other.
        let two = [walk(100, 600), walk(100, 800)].concat();
        assert_eq!(observed(&[two]), Observed::Mixed);
        let pairs: Vec<u64> = (0..100u64).flat_map(|i| [i * 64, i * 64 + 8]).collect();
        assert_eq!(observed(&[pairs]), Observed::Mixed);
    }
}

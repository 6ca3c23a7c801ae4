//! Time of loads in windows with new lines, from the durations of windows.
//!
//! A window's duration is the time of its loads and the cost of recording them. The cost per load
//! is the same in all windows of a function. So durations that grow with the share of new lines
//! show how much longer these loads take. The mean time per load of the function, which the
//! recorder measured, gives the time of a load without new lines.

use crate::misses::params;
use mgz_models::statistics::distributions::student_quantile;
use mgz_models::statistics::{NORMAL_QUANTILE_OF_95_PCT, jackknife_variance, median};

/// A window of a function.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowPace {
    /// New lines per load, divided by the rate of the slowest windows; at most 1.
    pub new_line_rate: f64,
    /// Nanoseconds per load, with the cost of recording.
    pub duration: f64,
    /// Time that the window represents, in any unit.
    pub time: f64,
}

/// Time per load of a function, nanoseconds, and half the width of the 95 % interval of its
/// logarithm.
pub(super) type MeanNsPerLoad = (f64, f64);

/// Ratio of the time of a load in a window of new lines to that in a window of known lines: least,
/// likely and greatest. `None` if durations do not show it. `windows` are sorted by their begins.
pub(super) fn slow_down(windows: &[WindowPace], mean: MeanNsPerLoad) -> Option<[f64; 3]> {
    let parts = params::PARTS_OF_PACE_JACKKNIFE;
    if windows.len() < params::MIN_WINDOWS_OF_PACE {
        return None;
    }
    let slope = slope(windows.iter())?;
    let without = |part: usize| {
        let of = |i: usize| i * parts / windows.len();
        let others = windows.iter().enumerate().filter(|w| of(w.0) != part);
        self::slope(others.map(|w| w.1))
    };
    let slopes: Vec<f64> = (0..parts).map(without).collect::<Option<_>>()?;
    let error = student_quantile(parts as f64 - 1.0) * jackknife_variance(&slopes).sqrt();
    let (mean_ns, log_error) = mean;
    if error > mean_ns {
        return None;
    }
    let ratio = |slope: f64, mean_ns: f64| ratio_of(windows, slope.max(0.0), mean_ns).ln();
    let likely = ratio(slope, mean_ns);
    let factor = params::SLOPE_FACTOR_ERROR;
    let most = [
        ratio((slope + error) * factor, mean_ns),
        ratio(slope, mean_ns / log_error.exp()),
    ];
    let least = [
        ratio((slope - error) / factor, mean_ns),
        ratio(slope, mean_ns * log_error.exp()),
    ];
    let away = |ends: [f64; 2]| (ends[0] - likely).hypot(ends[1] - likely);
    let (up, down) = (away(most), away(least));
    let expected = params::LIKELY_TIME_OF_NEW_LINES.ln();
    let weight = shrinkage(0.5 * (up + down) / NORMAL_QUANTILE_OF_95_PCT);
    let shrunk = expected + weight * (likely - expected);
    let (most, least) = (likely + up, (likely - down).max(0.0));
    Some([least.min(shrunk), shrunk, most.max(shrunk)].map(f64::exp))
}

/// Weight of a measured logarithm with this standard error relative to the expected one.
fn shrinkage(error: f64) -> f64 {
    let variance = params::LOG_DEVIATION_OF_NEW_LINES.powi(2);
    variance / (variance + error * error)
}

/// Nanoseconds per load by which durations grow from windows without new lines to the slowest:
/// the median of the slopes between pairs of windows (Theil and Sen). `None` if windows are alike.
fn slope<'a>(windows: impl Iterator<Item = &'a WindowPace>) -> Option<f64> {
    let windows: Vec<&WindowPace> = windows.collect();
    let mut slopes = Vec::new();
    let mut step = 1;
    while step < windows.len() && slopes.len() < params::MAX_PAIRS_OF_SLOPE {
        for (a, b) in windows.iter().zip(&windows[step..]) {
            let run = b.new_line_rate - a.new_line_rate;
            if run.abs() >= params::MIN_DIFFERENCE_OF_NEW_LINES {
                slopes.push((b.duration - a.duration) / run);
            }
        }
        step += 1 + step / 8;
    }
    (slopes.len() >= params::MIN_PAIRS_OF_SLOPE).then(|| median(&slopes))
}

/// Solves for the time t of a load without new lines, so that the mean time per load is `mean_ns`,
/// and returns (t + slope) / t.
fn ratio_of(windows: &[WindowPace], slope: f64, mean_ns: f64) -> f64 {
    let all: f64 = windows.iter().map(|w| w.time).sum();
    let mean = |base: f64| {
        let loads = windows
            .iter()
            .map(|w| w.time / (base + slope * w.new_line_rate));
        all / loads.sum::<f64>()
    };
    // The mean grows with the base.
    let mut low = slope / params::MAX_SLOW_DOWN;
    let mut high = mean_ns.max(low);
    for _ in 0..params::STEPS_OF_BISECTION {
        let middle = 0.5 * (low + high);
        match mean(middle) < mean_ns {
            true => low = middle,
            false => high = middle,
        }
    }
    1.0 + slope / high.max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of a function with loads of 0.7 and 2.7 ns. Recording takes 3.5 ns per load, with
    /// noise.
    fn two_speeds(fast: usize, slow: usize, noise: f64) -> Vec<WindowPace> {
        let of = |i: usize| {
            let is_slow = (i * slow / (fast + slow)) != ((i + 1) * slow / (fast + slow));
            let time = if is_slow { 2.7 } else { 0.7 };
            // A deterministic sequence whose pattern is unrelated to that of the windows.
            let random = ((i * 7919 + 13) % 101) as f64 / 50.0 - 1.0;
            WindowPace {
                new_line_rate: f64::from(is_slow),
                duration: 3.5 + time + noise * random,
                time: 1.0,
            }
        };
        (0..fast + slow).map(of).collect()
    }

    #[test]
    fn durations_show_how_much_slower_new_lines_are() {
        // Harmonic mean of the times per load.
        let mean = 400.0 / (44.0 / 0.7 + 356.0 / 2.7);
        let [least, likely, most] = slow_down(&two_speeds(44, 356, 0.4), (mean, 0.2)).unwrap();
        // It is pulled slightly towards the usual ratio.
        assert!((0.7..1.05).contains(&(likely / (2.7 / 0.7))), "{likely}");
        assert!(least < 2.7 / 0.7 && 2.7 / 0.7 < most, "{least} {most}");
        assert!(least > 1.5, "{least}");
        // A less certain mean time gives a wider interval.
        let [less, _, wider] = slow_down(&two_speeds(44, 356, 0.4), (mean, 0.8)).unwrap();
        assert!(wider > most && less < least, "{less} {wider}");
    }

    #[test]
    fn windows_that_are_alike_show_nothing() {
        assert!(slow_down(&two_speeds(0, 400, 0.4), (2.7, 0.2)).is_none());
        assert!(slow_down(&two_speeds(4, 8, 0.4), (2.7, 0.2)).is_none());
        // Noise that is larger than the time of a load.
        assert!(slow_down(&two_speeds(4, 36, 60.0), (0.9, 0.2)).is_none());
    }

    #[test]
    fn windows_of_new_lines_that_are_not_slower_change_nothing() {
        let mut windows = two_speeds(100, 300, 0.4);
        for window in &mut windows {
            window.duration -= 2.0 * window.new_line_rate;
        }
        let [least, likely, most] = slow_down(&windows, (1.0, 0.2)).unwrap();
        assert!(
            likely < 1.1 && least == 1.0 && most < 1.5,
            "{most} {likely} {least}"
        );
    }
}

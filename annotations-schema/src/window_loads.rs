//! Number of loads represented by windows that CPU time triggers: one rule for the recorder's last
//! line, the manifest and the analysis.
//!
//! A window represents time. The number of loads executed in that time is known if the speed was
//! measured in the window's own code, or in enough other functions to show how much functions of
//! the run differ. The speed of a single other function can be wrong by large factors, and an
//! interval computed from its error is not valid. So a sum over windows is known if nearly all of
//! their numbers are; the others widen its interval.

/// Sources of a speed that was measured in the same code, or in enough other functions
/// (`ns_per_load_source` in `windows.parquet`).
pub const OWN: [&str; 4] = ["watched", "lap", "alike", "balance"];
/// Maximum share of the time of code with unknown speed.
const UNKNOWN_MOST: f64 = 0.1;
/// Such code may be faster or slower than the other by up to this factor.
const UNKNOWN_FACTOR: f64 = 10.0;

/// True if a speed was measured in the code that it describes, or in enough other functions.
pub fn is_own(source: &str) -> bool {
    OWN.contains(&source)
}

/// Number of loads that windows represent together, and its error e: the 95 % interval reaches from
/// 1/(1+e) to (1+e) times the value. Each window has a time, and its loads with their error if
/// known. `None` if they are unknown for more than a tenth of the time, or if there are none.
///
/// Windows of a function share one measurement, and functions share the time that recording adds,
/// so errors do not cancel out: all windows are assumed to be at the same end of their intervals.
/// Code of unknown speed counts by its possible share of the sum.
pub fn loads_of_windows(
    windows: impl Iterator<Item = (f64, Option<(f64, f64)>)>,
) -> Option<(f64, f64)> {
    let (mut loads, mut most, mut least) = (0.0, 0.0, 0.0);
    let (mut known, mut unknown) = (0.0, 0.0);
    for (time, window) in windows {
        let Some((here, error)) = window else {
            // Without a time its share could be large.
            if time <= 0.0 {
                return None;
            }
            unknown += time;
            continue;
        };
        known += time;
        loads += here;
        most += here * (1.0 + error);
        least += here / (1.0 + error);
    }
    if loads <= 0.0 || unknown > 0.0 && unknown > UNKNOWN_MOST * (known + unknown) {
        return None;
    }
    let others = if unknown > 0.0 {
        loads / known * unknown
    } else {
        0.0
    };
    loads += others;
    most += others * UNKNOWN_FACTOR;
    least += others / UNKNOWN_FACTOR;
    Some((loads, f64::max(most / loads, loads / least) - 1.0))
}

/// The error of a product of two values with errors of this kind.
pub fn both(first: f64, second: f64) -> f64 {
    first.ln_1p().hypot(second.ln_1p()).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_known_where_nearly_all_windows_were_measured() {
        let known = [(1.0, Some((10.0, 0.5))), (1.0, Some((30.0, 2.0)))];
        // All windows are at the same end of their intervals.
        let (loads, error) = loads_of_windows(known.into_iter()).unwrap();
        assert!(loads == 40.0 && (error - (105.0 / 40.0 - 1.0)).abs() < 1e-9);
        assert_eq!(
            loads_of_windows(known.into_iter().chain([(1.0, None)])),
            None
        );
        // A small unmeasured part widens the interval.
        let (more, wider) = loads_of_windows(known.into_iter().chain([(0.1, None)])).unwrap();
        assert!((more - 42.0).abs() < 1e-9 && (wider - (125.0 / 42.0 - 1.0)).abs() < 1e-9);
        assert_eq!(
            loads_of_windows(known.into_iter().chain([(0.0, None)])),
            None
        );
        assert_eq!(loads_of_windows(std::iter::empty()), None);
        assert!(is_own("lap") && is_own("watched") && is_own("alike") && !is_own("others"));
        assert_eq!(both(1.0, 0.0), 1.0);
    }
}

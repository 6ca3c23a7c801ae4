//! Number of loads that windows by CPU time represent: one rule for the recorder's last line, the
//! manifest and the analysis.
//!
//! A window represents time. The number of loads executed in it is known only if the speed was
//! measured in the window's own code. Other functions' speeds differ by large factors, and an
//! interval computed from them would be wrong. So a sum over windows is known only if each of them
//! is.

/// Sources of a speed that was measured in the code that it is of (`ns_per_load_source` in
/// `windows.parquet`).
pub const OWN: [&str; 2] = ["watched", "lap"];

/// True if a speed was measured in the code that it describes.
pub fn is_own(source: &str) -> bool {
    OWN.contains(&source)
}

/// Loads that windows stand for together, and their error e: the 95 % interval reaches from 1/(1+e)
/// to (1+e) times the value. Each window is its loads and their error, as far as they were measured
/// in its own code. `None` unless that is so of all, or if there are none.
pub fn executed(windows: impl Iterator<Item = Option<(f64, f64)>>) -> Option<(f64, f64)> {
    let (mut loads, mut error) = (0.0, 0f64);
    for window in windows {
        let (here, own) = window?;
        loads += here;
        // All windows of a function share one measurement, so that errors do not cancel out.
        error = error.max(own);
    }
    (loads > 0.0).then_some((loads, error))
}

/// The error of a product of two values with errors of this kind.
pub fn both(first: f64, second: f64) -> f64 {
    first.ln_1p().hypot(second.ln_1p()).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_known_where_all_windows_were_measured() {
        let known = [Some((10.0, 0.5)), Some((30.0, 2.0))];
        assert_eq!(executed(known.into_iter()), Some((40.0, 2.0)));
        assert_eq!(executed(known.into_iter().chain([None])), None);
        assert_eq!(executed(std::iter::empty()), None);
        assert!(is_own("lap") && is_own("watched") && !is_own("balance") && !is_own("others"));
        assert_eq!(both(1.0, 0.0), 1.0);
    }
}

//! The time that a remedy saves, in numbers and in words.

use crate::misses::Range;
use serde::Serialize;

/// A smaller change counts as none, percent of the time. Source: Chosen.
const LEAST_CHANGE_PCT: f64 = 1.0;
/// A number has a value if the upper end of its interval is at most this multiple of the lower
/// end. Source: Chosen, as for the cost of findings.
const MAX_RATIO_OF_GAIN_ENDS: f64 = 3.0;
/// A finding tells a gain if the lower end of its interval is at least this, percent of the time.
/// Source: Chosen.
const LEAST_TOLD_GAIN_PCT: f64 = 5.0;

/// Predicted gain of a remedy in percent of the run's time, with its interval. Unknown if it was
/// not predicted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Gain {
    /// The estimate.
    #[serde(rename = "saved_pct")]
    pub value: Option<f64>,
    /// Lower end.
    #[serde(rename = "saved_pct_lo")]
    pub lo: Option<f64>,
    /// Upper end.
    #[serde(rename = "saved_pct_hi")]
    pub hi: Option<f64>,
    /// The gain in words. Empty if it is unknown, or if there may be none.
    #[serde(rename = "gain")]
    pub words: String,
}

impl Gain {
    /// The gain with the ends of its interval.
    pub(crate) fn of(ends: Range) -> Gain {
        let [lo, value, hi] = ends;
        Gain {
            value: Some(value),
            lo: Some(lo),
            hi: Some(hi),
            words: match lo >= LEAST_TOLD_GAIN_PCT {
                true => in_words(ends),
                false => String::new(),
            },
        }
    }
}

/// For example `would take 38 % (31–44) less time`. The argument is the saved share of the time in
/// percent.
pub(crate) fn in_words([lo, value, hi]: Range) -> String {
    if lo > -LEAST_CHANGE_PCT && hi < LEAST_CHANGE_PCT {
        return "would take the same time".into();
    }
    if hi <= 0.0 {
        return format!("would take {} more time", amount([-hi, -value, -lo]));
    }
    if lo < 0.0 {
        let (less, more) = (number(hi), number(-lo));
        return match more.as_str() {
            "0" => format!("would take up to {less} % less time"),
            more => format!("may help or not: between {less} % less and {more} % more time"),
        };
    }
    format!("would take {} less time", amount([lo, value, hi]))
}

fn amount([lo, value, hi]: Range) -> String {
    let (low, high) = (number(lo), number(hi));
    match low == high {
        true => format!("{low} %"),
        false if hi > MAX_RATIO_OF_GAIN_ENDS * lo => format!("{low} to {high} %"),
        false => format!("{} % ({low}–{high})", number(value)),
    }
}

fn number(pct: f64) -> String {
    format!("{pct:.0}")
}

#[cfg(test)]
mod tests {
    use super::{Gain, in_words};

    #[test]
    fn a_gain_has_its_interval() {
        let of = |time| in_words(time);
        assert_eq!(of([31.0, 38.0, 44.0]), "would take 38 % (31–44) less time");
        assert_eq!(of([5.0, 20.0, 40.0]), "would take 5 to 40 % less time");
        assert_eq!(
            of([-44.0, -38.0, -31.0]),
            "would take 38 % (31–44) more time"
        );
        assert_eq!(
            of([-3.0, 2.0, 8.0]),
            "may help or not: between 8 % less and 3 % more time"
        );
        assert_eq!(of([-0.1, 2.0, 8.0]), "would take up to 8 % less time");
        assert_eq!(of([-0.2, 0.1, 0.4]), "would take the same time");
    }
    #[test]
    fn a_gain_that_may_be_none_is_not_told() {
        assert_eq!(
            Gain::of([31.0, 38.0, 44.0]).words,
            "would take 38 % (31–44) less time"
        );
        assert_eq!(Gain::of([-35.0, 2.0, 37.0]).words, "");
        assert_eq!(Gain::of([3.0, 20.0, 40.0]).words, "");
    }
}

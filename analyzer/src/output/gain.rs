//! Saved time in words.

use crate::misses::Range;

/// A smaller change counts as none, percent of the time. Source: Chosen.
const LEAST_CHANGE_PCT: f64 = 1.0;
/// A number has a value if the upper end of its interval is at most this multiple of the lower
/// end. Source: Chosen, as for the cost of findings.
const MAX_RATIO_OF_GAIN_ENDS: f64 = 3.0;

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
    use super::in_words;

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
}

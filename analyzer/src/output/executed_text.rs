//! Numbers of executed loads as text.

use crate::estimate::row_estimates::Hats;
use crate::util::human::number;

/// The executed loads of a row with their error: `208M ±7%`. Without an interval they are unknown:
/// `–`.
pub(crate) fn executed_text(hats: &Hats) -> String {
    match (hats.accesses, hats.accesses_lo, hats.accesses_hi) {
        (Some(value), Some(lo), Some(hi)) if lo == hi => number(Some(value)),
        (Some(value), Some(lo), Some(hi)) if value > 0.0 && hi <= 2.0 * lo => {
            match (hi - lo) / 2.0 / value * 100.0 {
                half if half < 1.0 => format!("{} <1%", number(Some(value))),
                half => format!("{} ±{half:.0}%", number(Some(value))),
            }
        }
        (Some(_), Some(lo), Some(hi)) => format!("{}–{}", number(Some(lo)), number(Some(hi))),
        _ => "–".into(),
    }
}

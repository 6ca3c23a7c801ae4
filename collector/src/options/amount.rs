//! The part of a run that is recorded: its distance from the start as a time or a number of loads.

use regex::Regex;
use std::str::FromStr;
use std::time::Duration;

/// `--start-after`, `--stop-after`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// Wall-clock time.
    Time(Duration),
    /// Recorded loads.
    Loads(u64),
}

/// The requested part of a run.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Point at which recording begins.
    pub start: Option<Amount>,
    /// Length of the recording, from its beginning on.
    pub stop: Option<Amount>,
    /// Recording begins when one of these functions is entered.
    pub function: Option<Regex>,
    /// True if markers are ignored.
    pub ignore_markers: bool,
    /// True if the program is to end once everything is recorded.
    pub exit: bool,
}

const UNITS: [(&str, f64); 4] = [("ms", 1e-3), ("us", 1e-6), ("min", 60.0), ("s", 1.0)];
const UNIT_FACTORS: [(&str, f64); 3] = [("K", 1e3), ("M", 1e6), ("G", 1e9)];

impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Amount, String> {
        let wrong = || {
            format!(
                "{text:?} is neither a time nor a number of loads; give a unit, as in 2s, 500ms, 3min, 100Mloads or 1e9loads"
            )
        };
        let number = |digits: &str| {
            let number = digits.trim_end().parse::<f64>().ok();
            number.filter(|n| *n > 0.0 && *n < 1e18)
        };
        let text = text.trim();
        if let Some(count) = text.strip_suffix("loads") {
            let count = count.trim_end();
            let power = UNIT_FACTORS
                .iter()
                .find_map(|(letter, factor)| Some((count.strip_suffix(letter)?, factor)));
            let (digits, factor) = power.unwrap_or((count, &1.0));
            let loads = number(digits).ok_or_else(wrong)? * factor;
            return Ok(Amount::Loads(loads.round().max(1.0) as u64));
        }
        let (digits, factor) = UNITS
            .iter()
            .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))
            .ok_or_else(wrong)?;
        let seconds = number(digits).ok_or_else(wrong)? * factor;
        Ok(Amount::Time(Duration::from_secs_f64(seconds.min(1e9))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_units() {
        for (text, ms) in [
            ("2s", 2000),
            ("500ms", 500),
            ("1.5 s", 1500),
            ("3min", 180_000),
        ] {
            assert_eq!(
                text.parse(),
                Ok(Amount::Time(Duration::from_millis(ms))),
                "{text}"
            );
        }
        assert_eq!(
            "100us".parse(),
            Ok(Amount::Time(Duration::from_micros(100)))
        );
        for (text, loads) in [
            ("1e9loads", 1_000_000_000),
            ("100Mloads", 100_000_000),
            ("2.5 K loads", 2500),
            ("7loads", 7),
        ] {
            assert_eq!(text.parse(), Ok(Amount::Loads(loads)), "{text}");
        }
        for bad in [
            "", "2", "1e9", "s", "-1s", "0ms", "loads", "xloads", "1Tloads", "nanloads", "infs",
        ] {
            let error = bad.parse::<Amount>().unwrap_err();
            assert!(error.contains("give a unit"), "{bad}: {error}");
        }
    }
}

//! Times as text: RFC 3339 in UTC.

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so that leap days are the last days of years.
    let (year, month) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let of_months = (153 * month + 2) / 5;
    // 719,468 days are between 0000-03-01 and 1970-01-01.
    365 * year + leap_days + of_months + day - 1 - 719_468
}

/// Seconds since 1970 of a time such as `2026-01-02T03:04:05Z`. `None` for other forms.
pub fn unix_seconds(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let is_form = bytes.len() == 20
        && [
            (4, b'-'),
            (7, b'-'),
            (10, b'T'),
            (13, b':'),
            (16, b':'),
            (19, b'Z'),
        ]
        .iter()
        .all(|&(at, byte)| bytes[at] == byte);
    if !is_form {
        return None;
    }
    let number = |from: usize, to: usize, range: std::ops::RangeInclusive<i64>| {
        let digits = &bytes[from..to];
        let is_number = digits.iter().all(u8::is_ascii_digit);
        let value = digits.iter().fold(0, |n, d| 10 * n + i64::from(d & 15));
        (is_number && range.contains(&value)).then_some(value)
    };
    let date = days(
        number(0, 4, 0..=9999)?,
        number(5, 7, 1..=12)?,
        number(8, 10, 1..=31)?,
    );
    let time = 3600 * number(11, 13, 0..=23)? + 60 * number(14, 16, 0..=59)?;
    u64::try_from(86_400 * date + time + number(17, 19, 0..=60)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T00:00:00Z", 951_782_400),
            ("2000-03-01T00:00:00Z", 951_868_800),
            ("2024-12-31T23:59:59Z", 1_735_689_599),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ] {
            assert_eq!(unix_seconds(text), Some(seconds), "{text}");
        }
        for wrong in [
            "",
            "1970-01-01",
            "1969-12-31T23:59:59Z",
            "1970-13-01T00:00:00Z",
            "1970-01-01T00:00:00+",
            "1970-01-01T00:00:0äZ",
            "197a-01-01T00:00:00Z",
        ] {
            assert_eq!(unix_seconds(wrong), None, "{wrong}");
        }
    }
}

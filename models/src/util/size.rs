//! Sizes in bytes, in the formats of users and of the kernel.

/// Reads a number of bytes with an optional K, M, G or T (powers of 1024). `K`, `KB` and `KiB` mean
/// the same.
pub fn size(text: &str) -> Result<u64, String> {
    let parse = || {
        let text = text.trim();
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = text[digits.len()..].trim_end_matches(['b', 'B', 'i']);
        let power = match unit.to_ascii_uppercase().as_str() {
            "" => 0,
            "K" => 1,
            "M" => 2,
            "G" => 3,
            "T" => 4,
            _ => return None,
        };
        let number: u64 = digits.trim_end().parse().ok()?;
        number.checked_mul(1 << (10 * power))
    };
    parse()
        .ok_or_else(|| format!("{text:?} is not a size; give bytes, or a number with K, M, G or T"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_powers_of_1024() {
        let read = ["64", "4k", "4KB", "2MiB\n", "1 G", "3T"].map(|text| size(text).unwrap());
        assert_eq!(read, [64, 4096, 4096, 2 << 20, 1 << 30, 3 << 40]);
        for wrong in ["", "K", "4x", "4KK", "-1", "1.5M", "99999999T"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}

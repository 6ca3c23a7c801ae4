//! Numbers of variable length: seven bits a byte, the lowest first; the top bit marks that more
//! follow. DWARF calls them unsigned LEB128, protocol buffers and Parquet call them varints.

/// Maximum length of a 64-bit number, bytes.
pub const MAX_BYTES: usize = 10;

/// Passes the bytes of a number to `put`.
#[inline]
pub fn encode(mut value: u64, mut put: impl FnMut(u8)) {
    while value >= 0x80 {
        put(value as u8 | 0x80);
        value >>= 7;
    }
    put(value as u8);
}

/// Reads a number of at most as many bytes as `bits` bits need, 64 at most. Its last byte may have
/// more bits; those beyond the 64th are dropped. `None` at the end of the bytes, or if the number
/// is longer.
#[inline]
pub fn decode(bits: u32, mut next: impl FnMut() -> Option<u8>) -> Option<u64> {
    let mut value = 0;
    for shift in (0..bits).step_by(7) {
        let byte = next()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// As [`decode`], for 64 bits; `None` also if bits would be dropped.
#[inline]
pub fn decode_exactly(mut next: impl FnMut() -> Option<u8>) -> Option<u64> {
    let (mut count, mut last) = (0, 0);
    let value = decode(64, || {
        count += 1;
        last = next()?;
        Some(last)
    })?;
    (count < MAX_BYTES || last < 2).then_some(value)
}

/// A signed number as an unsigned one, with the sign in the lowest bit.
#[inline]
pub const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

/// The inverse of [`zigzag`].
#[inline]
pub const fn unzigzag(value: u64) -> i64 {
    (value >> 1 ^ (value & 1).wrapping_neg()).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8], bits: u32) -> Option<u64> {
        let mut bytes = bytes.iter().copied();
        decode(bits, || bytes.next()).filter(|_| bytes.next().is_none())
    }

    fn read_exactly(bytes: &[u8]) -> Option<u64> {
        let mut bytes = bytes.iter().copied();
        decode_exactly(|| bytes.next())
    }

    /// The examples of the DWARF standard (version 5, 7.6), and the limits.
    #[test]
    fn known_numbers() {
        for (value, bytes) in [
            (2, &[2][..]),
            (127, &[0x7f]),
            (128, &[0x80, 1]),
            (129, &[0x81, 1]),
            (12857, &[0xb9, 0x64]),
        ] {
            assert_eq!(read(bytes, 64), Some(value));
            assert_eq!(read_exactly(bytes), Some(value));
        }
        let mut most = [0xff; MAX_BYTES];
        most[9] = 1;
        assert_eq!(
            (read(&most, 64), read_exactly(&most)),
            (Some(u64::MAX), Some(u64::MAX))
        );
        most[9] = 3;
        assert_eq!(
            (read(&most, 64), read_exactly(&most)),
            (Some(u64::MAX), None)
        );
        assert_eq!(read(&[0xff; 11], 64), None);
        assert_eq!(read(&[0x80], 64), None);
        // Five bytes hold 32 bits, and six are too many.
        assert_eq!(
            read(&[0xff, 0xff, 0xff, 0xff, 0x7f], 32),
            Some((1 << 35) - 1)
        );
        assert_eq!(read(&[0x80, 0x80, 0x80, 0x80, 0x80, 0], 32), None);
        assert_eq!([0, -1, 1, i64::MIN].map(zigzag), [0, 1, 2, u64::MAX]);
    }

    proptest! {
        #[test]
        fn numbers_come_back(value in any::<u64>(), width in 0u32..64) {
            let value = value >> width;
            let mut bytes = Vec::new();
            encode(value, |byte| bytes.push(byte));
            prop_assert_eq!(read(&bytes, 64), Some(value));
            prop_assert_eq!(read_exactly(&bytes), Some(value));
            prop_assert_eq!(zigzag(unzigzag(value)), value);
        }
    }
}

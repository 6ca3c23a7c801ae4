//! Size classes of blocks: multiples of 16 bytes up to a kilobyte, then eight for each doubling.

/// Unit of the addresses and sizes of blocks, bytes.
pub const GRANULE: usize = 16;
/// Number of classes with a spacing of one granule.
const FINE: usize = 64;
const FINE_BYTES: usize = FINE * GRANULE;
const STEPS: usize = 8;
const DOUBLINGS: usize = 7;
/// Number of classes.
pub const CLASSES: usize = FINE + STEPS * DOUBLINGS;
/// Bytes of the largest class.
pub const LARGEST: usize = FINE_BYTES << DOUBLINGS;

/// The smallest class with this many bytes, which are at most [`LARGEST`].
pub fn class_of(bytes: usize) -> usize {
    if bytes <= FINE_BYTES {
        return bytes.div_ceil(GRANULE).max(1) - 1;
    }
    let last = bytes - 1;
    let doubling = (last.ilog2() - FINE_BYTES.ilog2()) as usize;
    let step = last >> (FINE_BYTES.ilog2() as usize - 3 + doubling) & (STEPS - 1);
    FINE + STEPS * doubling + step
}

/// Bytes of a class.
pub fn bytes_of(class: usize) -> usize {
    if class < FINE {
        return (class + 1) * GRANULE;
    }
    let (doubling, step) = ((class - FINE) / STEPS, (class - FINE) % STEPS);
    (FINE_BYTES << doubling) + (step + 1) * ((FINE_BYTES / STEPS) << doubling)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_tight() {
        for bytes in 0..=LARGEST {
            let class = class_of(bytes);
            assert!(class < CLASSES);
            assert!(bytes_of(class) >= bytes, "{bytes}");
            assert!(class == 0 || bytes_of(class - 1) < bytes, "{bytes}");
        }
        assert_eq!(bytes_of(CLASSES - 1), LARGEST);
    }
}

//! Sorting by counting: many records by the bits of a key in which they differ.

/// Bits that are sorted at a time.
const DIGIT: u32 = 11;
/// Below this number of items, comparing is as fast as counting.
const MIN_COUNTED_ITEMS: usize = 1 << 9;

/// Sorts by `key`. The sort is stable only for at least [`MIN_COUNTED_ITEMS`] items.
pub(crate) fn sort<T: Copy + Default>(items: &mut Vec<T>, key: impl Fn(&T) -> u64) {
    if items.len() < MIN_COUNTED_ITEMS || items.len() > u32::MAX as usize {
        return items.sort_unstable_by_key(key);
    }
    let first = key(&items[0]);
    let mut differ = items.iter().fold(0, |any, item| any | (key(item) ^ first));
    let mut to = vec![T::default(); items.len()];
    while differ != 0 {
        let low = differ.trailing_zeros();
        let digit = |item: &T| (key(item) >> low) as usize & ((1 << DIGIT) - 1);
        let mut ends = [0u32; 1 << DIGIT];
        items.iter().for_each(|item| ends[digit(item)] += 1);
        let mut before = 0;
        ends.iter_mut()
            .for_each(|e| before += std::mem::replace(e, before));
        for item in items.iter() {
            let at = &mut ends[digit(item)];
            to[*at as usize] = *item;
            *at += 1;
        }
        std::mem::swap(items, &mut to);
        differ = if low + DIGIT < 64 {
            differ >> (low + DIGIT) << (low + DIGIT)
        } else {
            0
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn counting_sorts_as_comparing_does(seed: u64, count in 0usize..4000, masks in prop::collection::vec(any::<u64>(), 1..4)) {
            let mut state = seed;
            let mask = masks.iter().fold(u64::MAX, |all, m| all & m);
            let mut items: Vec<(u64, u32)> = (0..count as u32)
                .map(|i| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    ((state ^ state >> 29) & mask, i)
                })
                .collect();
            let mut expected = items.clone();
            expected.sort_by_key(|i| i.0);
            sort(&mut items, |i| i.0);
            prop_assert!(items.len() < MIN_COUNTED_ITEMS || items == expected);
            prop_assert!(items.iter().map(|i| i.0).eq(expected.iter().map(|i| i.0)));
        }
    }
}

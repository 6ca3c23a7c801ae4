//! Sets of numbers, one bit each.

use std::ops::Range;

/// A set of numbers below a fixed bound.
#[derive(Clone, Debug, Default)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// An empty set of numbers below `n`.
    pub fn new(n: usize) -> Bits {
        Bits(vec![0; n.div_ceil(64)])
    }

    /// Adds a number.
    #[inline]
    pub fn set(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }

    /// True if a number is in the set.
    #[inline]
    pub fn get(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 == 1
    }

    /// Adds the numbers of another set.
    pub fn add(&mut self, other: &Bits) {
        self.0
            .iter_mut()
            .zip(&other.0)
            .for_each(|(mine, theirs)| *mine |= theirs);
    }

    /// Number of members.
    pub fn count(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Members in a range, in order.
    pub fn within(&self, range: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        let (mut word, end) = (range.start / 64, range.end);
        let at = move |word: usize| if word * 64 < end { self.0[word] } else { 0 };
        let mut left = at(word) & u64::MAX << (range.start % 64);
        std::iter::from_fn(move || {
            while left == 0 {
                word += 1;
                if word * 64 >= end {
                    return None;
                }
                left = at(word);
            }
            let i = word * 64 + left.trailing_zeros() as usize;
            left &= left - 1;
            (i < end).then_some(i)
        })
    }
}

/// A set of numbers whose first word is stored separately, since most sets have no others.
#[derive(Clone, Debug, Default)]
pub struct BitRow {
    first: u64,
    more: Vec<u64>,
}

impl BitRow {
    /// An empty set of numbers below `n`.
    pub fn new(n: usize) -> BitRow {
        BitRow {
            first: 0,
            more: vec![0; n.div_ceil(64).saturating_sub(1)],
        }
    }

    /// Removes all numbers.
    #[inline]
    pub fn clear(&mut self) {
        self.first = 0;
        self.more.iter_mut().for_each(|w| *w = 0);
    }

    /// True if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.first == 0 && self.more.iter().all(|&w| w == 0)
    }

    /// True if there are numbers from 16 on.
    pub fn has_high(&self) -> bool {
        self.first >> 16 != 0 || self.more.iter().any(|&w| w != 0)
    }

    /// The numbers up to 15 that are in the set.
    #[inline]
    pub fn low(&self) -> u16 {
        self.first as u16
    }

    /// Adds numbers up to 15.
    #[inline]
    pub fn add_low(&mut self, low: u16) {
        self.first |= u64::from(low);
    }

    /// Removes numbers up to 15. Returns true if one was in the set.
    #[inline]
    pub fn take_low(&mut self, low: u16) -> bool {
        let found = self.low() & low != 0;
        self.first &= !u64::from(low);
        found
    }

    fn word(&mut self, i: usize) -> &mut u64 {
        if i < 64 {
            &mut self.first
        } else {
            &mut self.more[i / 64 - 1]
        }
    }

    /// Adds a number.
    #[inline]
    pub fn set(&mut self, i: usize) {
        *self.word(i) |= 1 << (i % 64);
    }

    /// Removes a number. Returns true if it was in the set.
    #[inline]
    pub fn take(&mut self, i: usize) -> bool {
        let (word, bit) = (self.word(i), 1 << (i % 64));
        let found = *word & bit != 0;
        *word &= !bit;
        found
    }

    /// True if a number is in the set.
    pub fn get(&self, i: usize) -> bool {
        let word = if i < 64 {
            self.first
        } else {
            self.more[i / 64 - 1]
        };
        word >> (i % 64) & 1 == 1
    }

    /// Adds the numbers of another set.
    pub fn add(&mut self, other: &BitRow) {
        self.first |= other.first;
        self.more
            .iter_mut()
            .zip(&other.more)
            .for_each(|(mine, theirs)| *mine |= theirs);
    }

    /// Removes the numbers of another set. Returns true if one was in the set.
    pub fn take_all(&mut self, other: &BitRow) -> bool {
        let mut found = self.first & other.first;
        self.first &= !other.first;
        for (mine, theirs) in self.more.iter_mut().zip(&other.more) {
            found |= *mine & theirs;
            *mine &= !theirs;
        }
        found != 0
    }

    /// Passes its numbers to `tell`, in order.
    #[inline]
    pub fn each(&self, tell: impl FnMut(usize)) {
        each(self.first, &self.more, tell);
    }
}

#[inline]
fn each(first: u64, more: &[u64], mut tell: impl FnMut(usize)) {
    let mut word = |mut left: u64, base: usize| {
        while left != 0 {
            tell(base + left.trailing_zeros() as usize);
            left &= left - 1;
        }
    };
    word(first, 0);
    for (w, &left) in more.iter().enumerate() {
        word(left, 64 * (w + 1));
    }
}

/// Sets of numbers, as [`BitRow`]s.
#[derive(Clone, Debug, Default)]
pub struct BitRows {
    first: Vec<u64>,
    more: Vec<u64>,
    /// Words of each row in `more`.
    width: usize,
}

impl BitRows {
    /// This many empty sets of numbers below `n`.
    pub fn new(rows: usize, n: usize) -> BitRows {
        let width = n.div_ceil(64).saturating_sub(1);
        BitRows {
            first: vec![0; rows],
            more: vec![0; rows * width],
            width,
        }
    }

    fn more(&self, row: usize) -> &[u64] {
        if self.width == 0 {
            &[]
        } else {
            &self.more[row * self.width..][..self.width]
        }
    }

    /// Number of sets.
    pub fn rows(&self) -> usize {
        self.first.len()
    }

    /// Adds the numbers of a set to another one.
    #[inline]
    pub fn add_to(&self, row: usize, to: &mut BitRow) {
        to.first |= self.first[row];
        if self.width != 0 {
            to.more
                .iter_mut()
                .zip(self.more(row))
                .for_each(|(mine, theirs)| *mine |= theirs);
        }
    }

    /// Removes the numbers of a set from another one.
    #[inline]
    pub fn take_from(&self, row: usize, from: &mut BitRow) {
        from.first &= !self.first[row];
        if self.width != 0 {
            from.more
                .iter_mut()
                .zip(self.more(row))
                .for_each(|(mine, theirs)| *mine &= !theirs);
        }
    }

    /// Adds numbers to a set. Returns true if one was new.
    #[inline]
    pub fn add(&mut self, row: usize, other: &BitRow) -> bool {
        let mut new = other.first & !self.first[row];
        self.first[row] |= other.first;
        if self.width != 0 {
            for (mine, theirs) in self.more[row * self.width..][..self.width]
                .iter_mut()
                .zip(&other.more)
            {
                new |= theirs & !*mine;
                *mine |= theirs;
            }
        }
        new != 0
    }

    /// Number of members of a set.
    pub fn count(&self, row: usize) -> u32 {
        self.first[row].count_ones() + self.more(row).iter().map(|w| w.count_ones()).sum::<u32>()
    }

    /// Number of members of a set below `i`.
    pub fn count_below(&self, row: usize, i: usize) -> u32 {
        let below = |word: u64| (word & !(u64::MAX << (i % 64))).count_ones();
        let more = self.more(row);
        match (i / 64).checked_sub(1) {
            None => below(self.first[row]),
            Some(w) => {
                self.first[row].count_ones()
                    + more[..w].iter().map(|w| w.count_ones()).sum::<u32>()
                    + below(more[w])
            }
        }
    }

    /// Passes a set's numbers to `tell`, in order.
    #[inline]
    pub fn each(&self, row: usize, tell: impl FnMut(usize)) {
        each(self.first[row], self.more(row), tell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_in_order() {
        let mut set = Bits::new(200);
        [0, 3, 64, 127, 128, 199]
            .into_iter()
            .for_each(|i| set.set(i));
        let of = |range: Range<usize>| set.within(range).collect::<Vec<_>>();
        assert_eq!(of(0..200), [0, 3, 64, 127, 128, 199]);
        assert_eq!(of(4..128), [64, 127]);
        assert_eq!(
            (of(4..64), of(65..127), of(200..200), of(70..70)),
            (vec![], vec![], vec![], vec![])
        );
        assert_eq!((set.count(), set.get(64), set.get(65)), (6, true, false));
    }

    #[test]
    fn rows_of_all_widths_are_sets() {
        for n in [16, 64, 65, 300] {
            let numbers: Vec<usize> = [0, 5, 15, 63, 64, 128, 255, 299]
                .into_iter()
                .filter(|&i| i < n)
                .collect();
            let (mut row, mut rows) = (BitRow::new(n), BitRows::new(3, n));
            numbers.iter().for_each(|&i| row.set(i));
            assert!(rows.add(1, &row) && !rows.add(1, &row));
            let (mut of_row, mut of_rows) = (Vec::new(), Vec::new());
            row.each(|i| of_row.push(i));
            rows.each(1, |i| of_rows.push(i));
            assert_eq!(
                (&of_row, &of_rows, rows.count(1), rows.count(2)),
                (&numbers, &numbers, numbers.len() as u32, 0)
            );
            for (place, &i) in (0..).zip(&numbers) {
                assert!(row.get(i) && rows.count_below(1, i) == place);
            }
            let mut sum = BitRow::new(n);
            sum.add_low(2);
            rows.add_to(1, &mut sum);
            assert!(sum.get(1) && sum.take(1) && !sum.take(1) && sum.low() == row.low());
            assert!(
                sum.take_low(1)
                    && !sum.take_low(1)
                    && sum.take_all(&row) == (numbers.len() > 1)
                    && !sum.take_all(&row)
            );
            sum.add(&row);
            assert!(!rows.add(1, &sum) && rows.add(2, &sum) && !sum.is_empty());
            assert_eq!(sum.has_high(), numbers.iter().any(|&i| i > 15));
            rows.take_from(2, &mut sum);
            assert!(sum.is_empty() && !sum.has_high());
            sum.set(3);
            sum.clear();
            assert!(sum.is_empty());
        }
    }
}

//! A map from ranges of addresses to numbers in which later ranges replace earlier ones.

use std::collections::BTreeMap;

/// Ranges with a number each; they do not overlap.
#[derive(Clone, Debug, Default)]
pub struct AddressPaint {
    /// By first address: the address behind the range, and the number.
    ranges: BTreeMap<u64, (u64, u32)>,
}

impl AddressPaint {
    /// Gives a range a number, which replaces all others there.
    pub fn paint(&mut self, start: u64, end: u64, number: u32) {
        if start < end {
            self.clear(start, end);
            self.ranges.insert(start, (end, number));
        }
    }

    /// Removes a range.
    pub fn clear(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        if let Some((&first, &(last, number))) = self.ranges.range(..start).next_back()
            && last > start
        {
            self.ranges.insert(first, (start, number));
            if last > end {
                self.ranges.insert(end, (last, number));
            }
        }
        while let Some((&first, &(last, number))) = self.ranges.range(start..end).next() {
            self.ranges.remove(&first);
            if last > end {
                self.ranges.insert(end, (last, number));
            }
        }
    }

    /// Removes the parts of a range that have this number.
    pub fn clear_number(&mut self, start: u64, end: u64, number: u32) {
        let own: Vec<(u64, u64)> = (self.ranges.range(start..end))
            .filter(|(_, part)| part.1 == number)
            .map(|(first, part)| (*first, part.0))
            .collect();
        own.into_iter()
            .for_each(|(first, last)| self.clear(first, last));
    }

    /// The number of an address.
    pub fn at(&self, address: u64) -> Option<u32> {
        let (_, &(end, number)) = self.ranges.range(..=address).next_back()?;
        (address < end).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_ranges_replace_earlier_ones() {
        // The same operations on an array of single addresses.
        let mut paint = AddressPaint::default();
        let mut cells = [None; 64];
        let mut random = 1u64;
        for number in 0..2000 {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let (a, b) = ((random >> 40) % 64, (random >> 50) % 64);
            let (start, end) = (a.min(b), a.max(b));
            let range = start as usize..end as usize;
            match (random >> 60) % 4 {
                0 => {
                    paint.clear(start, end);
                    cells[range].fill(None);
                }
                1 if cells[start as usize].is_some() => {
                    let old = cells[start as usize].unwrap_or_default();
                    paint.clear_number(0, 64, old);
                    cells
                        .iter_mut()
                        .filter(|c| **c == Some(old))
                        .for_each(|c| *c = None);
                }
                _ => {
                    paint.paint(start, end, number);
                    cells[range].fill(Some(number));
                }
            }
            for (address, cell) in cells.iter().enumerate() {
                assert_eq!(paint.at(address as u64), *cell, "{number} {address}");
            }
        }
    }
}

//! Index of many ranges that finds the one with an address. It is used some ten times for each
//! branch of a program. A search through all ranges, with a cache miss at every step, would be too
//! slow.

use std::ops::Range;

/// Sorted ranges that do not overlap, with an index of start positions for searches.
#[derive(Clone, Debug, Default)]
pub struct Starts {
    base: u64,
    /// Bits of an address inside a bucket.
    shift: u32,
    /// Per bucket: number of ranges that begin before it.
    before: Vec<u32>,
    ranges: Vec<(u64, u64)>,
}

impl Starts {
    /// Makes the index of these ranges, whose starts ascend.
    pub fn of<'r>(ranges: impl Iterator<Item = &'r Range<u64>>) -> Starts {
        let ranges: Vec<(u64, u64)> = ranges.map(|r| (r.start, r.end)).collect();
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
            return Starts::default();
        };
        let (base, span) = (first.0, last.0 - first.0);
        // About two buckets a range, for any distance between the first and the last.
        let mut shift = 6;
        while span >> shift > 2 * ranges.len() as u64 {
            shift += 1;
        }
        let mut before = Vec::with_capacity((span >> shift) as usize + 2);
        for (n, range) in ranges.iter().enumerate() {
            let bucket = ((range.0 - base) >> shift) as usize;
            if before.len() <= bucket {
                before.resize(bucket + 1, n as u32);
            }
        }
        before.push(ranges.len() as u32);
        Starts {
            base,
            shift,
            before,
            ranges,
        }
    }

    /// Number of the range that contains an address.
    pub fn find(&self, address: u64) -> Option<usize> {
        self.find_start(address).map(|found| found.0)
    }

    /// Finds the same range. The flag is true if the range begins at the address.
    pub fn find_start(&self, address: u64) -> Option<(usize, bool)> {
        let found = self.last_from(address)?;
        let range = self.ranges[found];
        (address < range.1).then_some((found, address == range.0))
    }

    /// True if one of the ranges contains all of another.
    pub fn covers(&self, range: &Range<u64>) -> bool {
        self.last_from(range.start)
            .is_some_and(|found| range.end <= self.ranges[found].1)
    }

    /// Number of the last range that begins at or before an address.
    fn last_from(&self, address: u64) -> Option<usize> {
        let bucket = usize::try_from(address.checked_sub(self.base)? >> self.shift)
            .ok()?
            .min(self.before.len().checked_sub(2)?);
        let (from, to) = (
            self.before[bucket] as usize,
            self.before[bucket + 1] as usize,
        );
        let next = from + self.ranges[from..to].partition_point(|r| r.0 <= address);
        next.checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_their_ranges() {
        let sets: [&[Range<u64>]; 4] = [
            &[],
            &[0x1000..0x1001],
            &[
                0x1000..0x1010,
                0x1010..0x1011,
                0x1011..0x1020,
                0x1030..0x1030,
                0x1100..0x5000,
                0x5000..0x5040,
                0x5f00..0x6000,
            ],
            &[
                0..16,
                16..0x20,
                1 << 40..(1 << 40) + 7,
                u64::MAX - 64..u64::MAX,
            ],
        ];
        for ranges in sets {
            let starts = Starts::of(ranges.iter());
            let near = ranges.iter().flat_map(|r| {
                [r.start, r.end]
                    .into_iter()
                    .flat_map(|a| a.saturating_sub(70)..a.saturating_add(70))
            });
            for at in near.chain([0, 0x1234, 1 << 20, u64::MAX]) {
                let found = ranges.iter().position(|r| r.contains(&at));
                assert_eq!(
                    starts.covers(&(at..at.saturating_add(2))),
                    ranges
                        .iter()
                        .any(|r| r.start <= at && at.saturating_add(2) <= r.end),
                    "{at:#x} of {ranges:x?}"
                );
                assert_eq!(
                    (starts.find(at), starts.find_start(at)),
                    (found, found.map(|n| (n, ranges[n].start == at))),
                    "{at:#x} of {ranges:x?}"
                );
            }
        }
    }
}

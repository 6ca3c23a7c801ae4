//! An array of sizes that grows at the end, and gives the sum before any position with one read per
//! level.
//!
//! Entries are in groups of 16. Each entry has the sum of those before it in its group, and the
//! next level does the same for groups. Decreasing a size changes one group per level (a few vector
//! instructions). A sum reads one counter per level. An append writes one counter, and one more for
//! each group that begins. Counters of entries that do not exist yet are undefined, and are written
//! on append.

/// Counters in a group.
const COUNTERS_PER_GROUP: usize = 16;

/// A group of counters: two cache lines.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Group([u64; COUNTERS_PER_GROUP]);

/// See the module's text.
#[derive(Clone)]
pub(crate) struct Prefix {
    sizes: Vec<u64>,
    /// `levels[0]` counts entries; each further level counts groups of the previous one.
    levels: Vec<Vec<Group>>,
    total: u64,
}

impl Prefix {
    pub(crate) fn new() -> Prefix {
        Prefix {
            sizes: Vec::new(),
            levels: vec![Vec::new()],
            total: 0,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.sizes.clear();
        self.levels.iter_mut().for_each(Vec::clear);
        self.levels.truncate(1);
        self.total = 0;
    }

    pub(crate) fn size(&self, at: usize) -> u64 {
        self.sizes[at]
    }

    /// Sum of all sizes.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Appends an entry.
    #[inline(always)]
    pub(crate) fn push(&mut self, size: u64) {
        let at = self.sizes.len();
        if at.is_multiple_of(COUNTERS_PER_GROUP) {
            self.open(at);
        } else {
            let group = &mut self.levels[0][at / COUNTERS_PER_GROUP].0;
            group[at % COUNTERS_PER_GROUP] =
                group[at % COUNTERS_PER_GROUP - 1] + self.sizes[at - 1];
        }
        self.sizes.push(size);
        self.total += size;
    }

    /// Begins a group.
    #[cold]
    fn open(&mut self, at: usize) {
        let mut at = at;
        let mut sum = self.sizes.last().copied().unwrap_or(0);
        for level in 0.. {
            if level == self.levels.len() {
                if at == 0 {
                    return;
                }
                // The level below has more than one group: all existing entries are one group at
                // this level.
                let mut first = Group([0; COUNTERS_PER_GROUP]);
                first.0[0] = 0;
                self.levels.push(vec![first]);
            }
            let groups = &mut self.levels[level];
            if !at.is_multiple_of(COUNTERS_PER_GROUP) {
                let group = &mut groups[at / COUNTERS_PER_GROUP].0;
                group[at % COUNTERS_PER_GROUP] = group[at % COUNTERS_PER_GROUP - 1] + sum;
                return;
            }
            if let Some(last) = groups.last() {
                sum += last.0[COUNTERS_PER_GROUP - 1];
            }
            if groups.len() == at / COUNTERS_PER_GROUP {
                groups.push(Group([0; COUNTERS_PER_GROUP]));
            }
            if at == 0 {
                return;
            }
            at /= COUNTERS_PER_GROUP;
        }
    }

    /// Decreases the size at `at`, which must not be 0, by one. Returns the sum of the sizes after
    /// it.
    #[inline(always)]
    pub(crate) fn take(&mut self, at: usize) -> u64 {
        let mut before = 0;
        let mut entry = at;
        for level in &mut self.levels {
            let group = &mut level[entry / COUNTERS_PER_GROUP].0;
            let lane = (entry % COUNTERS_PER_GROUP) as u64;
            before += group[entry % COUNTERS_PER_GROUP];
            for (k, counter) in group.iter_mut().enumerate() {
                *counter = counter.wrapping_sub(u64::from(k as u64 > lane));
            }
            entry /= COUNTERS_PER_GROUP;
        }
        let behind = self.total - before - self.sizes[at];
        self.sizes[at] -= 1;
        self.total -= 1;
        behind
    }

    /// Sum of the sizes after `at`.
    #[inline(always)]
    pub(crate) fn behind(&self, at: usize) -> u64 {
        let mut before = 0;
        let mut entry = at;
        for level in &self.levels {
            before += level[entry / COUNTERS_PER_GROUP].0[entry % COUNTERS_PER_GROUP];
            entry /= COUNTERS_PER_GROUP;
        }
        self.total - before - self.sizes[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_agree_with_a_plain_list_through_all_levels() {
        let mut prefix = Prefix::new();
        let mut random = 99u64;
        for round in 0..2 {
            let mut plain: Vec<u64> = Vec::new();
            for n in 0..5000usize {
                random = random
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                let size = random >> 60;
                prefix.push(size);
                plain.push(size);
                let at = (random >> 20) as usize % (n + 1);
                let behind: u64 = plain[at + 1..].iter().sum();
                assert_eq!(
                    prefix.behind(at),
                    behind,
                    "round {round}, {n} entries, at {at}"
                );
                if plain[at] > 0 {
                    assert_eq!(prefix.take(at), behind);
                    plain[at] -= 1;
                }
                assert_eq!(prefix.size(at), plain[at]);
                assert_eq!(prefix.total(), plain.iter().sum::<u64>());
            }
            prefix.clear();
            assert_eq!(prefix.total(), 0);
        }
    }
}

//! Working set for each level.

use super::kernels::LINE_WORDS;
use mgz_annotations_schema::manifest::Cache;

const LINE_BYTES: u64 = (LINE_WORDS * size_of::<usize>()) as u64;
/// A cache is measured with this multiple of the one before, at most with half of its size. Other
/// guests of a virtual machine may leave it a small part of a large cache.
const SET_OVER_LEVEL_BEFORE: u64 = 4;
/// A cache behind the first is measured with at least so much memory, if half of it is that large:
/// programs that use it have more pages than the first level of the TLB.
const MIN_SET: u64 = 1 << 20;
/// Memory is measured with this multiple of the last cache.
const MEMORY_OVER_LAST_CACHE: u64 = 4;
/// Largest set that memory is measured with, bytes. If a cache is larger, lines are flushed.
const MAX_MEMORY_SET: u64 = 256 << 20;
/// Bytes that chains of flushed lines extend over.
const FLUSHED_SET: u64 = 32 << 20;
/// No measurement takes more than this part of the free memory.
const MAX_PART_OF_ROOM: u64 = 4;
/// A random chain of flushed lines has one line in this many: a prefetcher may fetch the neighbor
/// of a line.
const FLUSHED_SPACING: usize = 4;
/// Largest set inside a large last cache, bytes. Each line of a set is loaded before.
const MAX_LARGER_SET: u64 = 64 << 20;
/// A chain over [`MAX_MEMORY_SET`] has one line in this many.
const FAR_SPACING: usize = 16;

/// The measurement of one level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelPlan {
    /// Number of the cache; 0 for memory.
    pub level: u32,
    /// Bytes of the cache; 0 for memory.
    pub size: u64,
    /// Bytes to access.
    pub working_set: u64,
    /// Lines are flushed before they are accessed.
    pub flushed: bool,
    /// Lines from one place of a random chain to the next.
    pub spacing: usize,
}

/// The levels to measure, and sentences on those that cannot be. `room`: bytes of free memory.
pub fn plans(caches: &[Cache], room: u64) -> (Vec<LevelPlan>, Vec<String>) {
    let most = (room / MAX_PART_OF_ROOM).min(MAX_MEMORY_SET);
    let (mut all, mut notes, mut previous) = (Vec::new(), Vec::new(), 0);
    for cache in caches {
        let half = cache.size / 2;
        let set = match previous {
            0 => half,
            before => (SET_OVER_LEVEL_BEFORE * before).max(MIN_SET).min(half),
        };
        let set = set / LINE_BYTES * LINE_BYTES;
        if set <= previous {
            notes.push(format!(
                "L{} is not measured: no working set is well inside it and beyond the level before",
                cache.level
            ));
        } else {
            all.push(LevelPlan {
                level: cache.level,
                size: cache.size,
                working_set: set,
                flushed: false,
                spacing: 1,
            });
        }
        previous = cache.size;
    }
    if let Some(last) = caches.last() {
        let beyond = last.size.saturating_mul(MEMORY_OVER_LAST_CACHE);
        let flushed = beyond > most;
        if flushed {
            notes.push(format!(
                "no working set of at most {} MiB goes beyond the L{}: lines were flushed from the caches before they were loaded from memory",
                most >> 20,
                last.level
            ));
        }
        all.push(LevelPlan {
            level: 0,
            size: 0,
            working_set: if flushed {
                FLUSHED_SET.min(most)
            } else {
                beyond
            } / LINE_BYTES
                * LINE_BYTES,
            flushed,
            spacing: if flushed { FLUSHED_SPACING } else { 1 },
        });
    }
    (all, notes)
}

/// The chain over as much memory as is used at most. None if there is less room.
pub fn far(room: u64) -> Option<LevelPlan> {
    (room / MAX_PART_OF_ROOM >= MAX_MEMORY_SET).then_some(LevelPlan {
        level: 0,
        size: 0,
        working_set: MAX_MEMORY_SET,
        flushed: true,
        spacing: FAR_SPACING,
    })
}

/// Working sets between that of the last cache and its size, the smallest first. They show how much
/// of a shared cache this machine gets.
pub fn larger_sets(caches: &[Cache], plans: &[LevelPlan], room: u64) -> Vec<LevelPlan> {
    let Some((last, plan)) = caches.last().and_then(|last| {
        let plan = plans.iter().find(|p| p.level == last.level)?;
        Some((last, plan))
    }) else {
        return Vec::new();
    };
    let most = MAX_LARGER_SET
        .min(last.size / 2)
        .min(room / MAX_PART_OF_ROOM);
    std::iter::successors(Some(2 * plan.working_set), |set| Some(2 * set))
        .take_while(|&set| set <= most)
        .map(|working_set| LevelPlan {
            working_set,
            ..plan.clone()
        })
        .collect()
}

/// Bytes of free memory, by the text of `/proc/meminfo` and that of `memory.max` of the control
/// group. 0 if unknown.
pub fn room(meminfo: &str, limit: &str) -> u64 {
    let line = meminfo
        .lines()
        .find_map(|l| l.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    let free = kib.unwrap_or(0).saturating_mul(1 << 10);
    limit
        .trim()
        .parse::<u64>()
        .map_or(free, |limit| limit.min(free))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caches(sizes: &[u64]) -> Vec<Cache> {
        (1..)
            .zip(sizes)
            .map(|(level, &size)| Cache {
                level,
                size,
                ..Cache::default()
            })
            .collect()
    }

    #[test]
    fn working_sets_are_inside_their_level_and_beyond_the_one_before() {
        for sizes in [
            &[48 << 10, 2 << 20, 260 << 20][..],
            &[32 << 10, 256 << 10, 8 << 20],
            &[32 << 10, 1 << 20, 32 << 20],
            &[32 << 10, 1 << 20],
        ] {
            let caches = caches(sizes);
            let (plans, _) = plans(&caches, 1 << 33);
            assert_eq!(plans.len(), caches.len() + 1);
            for (at, plan) in plans.iter().enumerate() {
                let before = at.checked_sub(1).map_or(0, |b| caches[b].size);
                assert!(plan.working_set > before || plan.flushed, "{plan:?}");
                assert!(plan.level == 0 || plan.working_set <= plan.size / 2);
                assert_eq!(plan.working_set % LINE_BYTES, 0);
            }
        }
    }

    #[test]
    fn memory_behind_a_huge_cache_is_reached_by_flushes() {
        let (small, none) = plans(&caches(&[32 << 10, 32 << 20]), 1 << 33);
        assert!(!small[2].flushed && small[2].working_set == 128 << 20 && none.is_empty());
        let (huge, notes) = plans(&caches(&[32 << 10, 260 << 20]), 1 << 33);
        assert!(huge[2].flushed && notes.len() == 1);
        // A cache that is as small as the one before.
        let (two, notes) = plans(&caches(&[32 << 10, 2 << 20, 3 << 20]), 1 << 33);
        assert_eq!((two.len(), notes.len()), (3, 1));
        assert_eq!(plans(&[], 1 << 33), (Vec::new(), Vec::new()));
        // There is little memory.
        let (small, _) = plans(&caches(&[32 << 10, 32 << 20]), 1 << 27);
        assert!(small[2].flushed && small[2].working_set == 1 << 25);
        assert!(far(1 << 27).is_none() && far(1 << 33).is_some());
    }

    #[test]
    fn larger_sets_are_inside_the_last_cache() {
        let sets = |sizes: &[u64], room: u64| -> Vec<u64> {
            let caches = caches(sizes);
            let (plans, _) = plans(&caches, room);
            let larger = larger_sets(&caches, &plans, room);
            larger.iter().map(|p| p.working_set >> 20).collect()
        };
        assert_eq!(sets(&[48 << 10, 2 << 20, 260 << 20], 1 << 33), [16, 32, 64]);
        assert_eq!(sets(&[32 << 10, 1 << 20, 32 << 20], 1 << 33), [8, 16]);
        assert_eq!(sets(&[48 << 10, 2 << 20, 260 << 20], 1 << 26), [16]);
        assert!(sets(&[32 << 10, 1 << 20, 8 << 20], 1 << 33).is_empty());
        assert!(larger_sets(&[], &[], 1 << 33).is_empty());
    }

    #[test]
    fn room_is_limited_by_the_control_group() {
        let meminfo = "MemTotal: 8 kB\nMemAvailable:   2048 kB\n";
        assert_eq!(room(meminfo, "max\n"), 2 << 20);
        assert_eq!(room(meminfo, "1048576\n"), 1 << 20);
        assert_eq!(room("", ""), 0);
    }
}

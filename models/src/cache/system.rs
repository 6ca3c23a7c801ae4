//! Exact simulation of a hierarchy of caches of one or several cores.
//!
//! Each core has its own private levels; all cores share the following ones. The rules for each
//! line of an access:
//!
//! 1. With several cores, a store invalidates the line in the private levels of all others;
//!    modified data goes to the first shared level.
//! 2. The levels are searched in order, until one has the line. If no private level has it and
//!    another core has written it, that core's copy goes to the first shared level.
//! 3. The line is inserted into all levels before that one, the last one first, except for
//!    exclusive ones. A store makes it dirty in the first level (write-allocate, write-back). If an
//!    exclusive level had it, the line leaves that level, with its dirty data.
//! 4. A line that an inclusive level evicts is invalidated in the levels before it.
//! 5. A line that a level evicts goes to the next level if that is exclusive, or if the line is
//!    dirty: there it is marked dirty, or inserted if necessary. A dirty line that the last level
//!    evicts is written to memory.
//! 6. Then prefetchers insert lines into their level and the following ones that a miss would have
//!    filled.

use crate::cache::coherence::{Directory, LineBytes, Sharing};
use crate::cache::level::{DIRTY_BIT, Level, PREFETCHED};
use crate::cache::prefetch::{Strides, same_page};
use crate::cache::spec::{Inclusion, LevelSpec, check_levels};
use crate::util::memory_units::LINE_SHIFT;
use serde::{Deserialize, Serialize};

/// Counts of one level. An access across lines counts once, as a miss if any of its lines missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Loads that reached the level.
    pub loads: u64,
    /// Loads that missed.
    pub load_misses: u64,
    /// Stores that reached the level.
    pub stores: u64,
    /// Stores that missed.
    pub store_misses: u64,
    /// Dirty lines that the level evicted, or lost to evictions of an inclusive level after it.
    pub write_backs: u64,
    /// Lines that the level lost because an inclusive level after it evicted them.
    pub back_invalidations: u64,
    /// Lines that its prefetchers inserted.
    pub prefetches: u64,
    /// Prefetched lines that were used before they were evicted.
    pub useful_prefetches: u64,
}

/// A cache with its prefetcher.
struct Node {
    cache: Level,
    strides: Strides,
}

impl Node {
    fn new(spec: &LevelSpec) -> Node {
        Node {
            cache: Level::new(spec.shape.sets(), spec.shape.ways, spec.policy),
            strides: Strides::default(),
        }
    }
}

/// See the module's text.
pub struct System {
    specs: Vec<LevelSpec>,
    shifts: Vec<u32>,
    /// Number of private levels.
    shared: usize,
    cores: usize,
    /// Private levels core by core, then the shared ones.
    nodes: Vec<Node>,
    seen: Vec<Seen>,
    counting: bool,
    /// Coherence directory; none without several cores that have private levels.
    directory: Option<Directory>,
    /// Log2 of the size of the lines for coherence: the longest private one.
    granule: u32,
    prefetching: bool,
    /// Levels and addresses that triggered their next-line prefetchers in this access.
    triggers: Vec<(usize, u64)>,
}

impl System {
    /// Empty caches. The levels from `shared` on (counted from 0) are shared by all cores.
    ///
    /// # Errors
    ///
    /// A sentence about incompatible levels.
    pub fn new(levels: &[LevelSpec], shared: usize, cores: usize) -> Result<System, String> {
        check_levels(levels)?;
        let cores = cores.max(1);
        if shared >= levels.len() && cores > 1 {
            return Err("several cores share at least the last level".into());
        }
        let shared = shared.min(levels.len());
        let mut nodes = Vec::new();
        for _ in 0..cores {
            nodes.extend(levels[..shared].iter().map(Node::new));
        }
        nodes.extend(levels[shared..].iter().map(Node::new));
        let private = &levels[..shared];
        Ok(System {
            shifts: levels
                .iter()
                .map(|l| l.shape.line.trailing_zeros())
                .collect(),
            shared,
            cores,
            nodes,
            seen: vec![Seen::default(); levels.len()],
            counting: true,
            directory: (cores > 1 && shared > 0).then(Directory::default),
            granule: private
                .last()
                .map_or(LINE_SHIFT, |l| l.shape.line.trailing_zeros()),
            prefetching: levels
                .iter()
                .any(|l| l.prefetch.next_line || l.prefetch.stride),
            triggers: Vec::new(),
            specs: levels.to_vec(),
        })
    }

    /// Turns this system of one core into a system of `cores` cores in which the core `active` made
    /// all accesses so far. The levels from `shared` on are shared.
    ///
    /// # Errors
    ///
    /// A sentence about incompatible levels.
    pub fn with_cores(self, shared: usize, cores: usize, active: usize) -> Result<System, String> {
        let mut wide = System::new(&self.specs, shared, cores)?;
        // With one core, nodes are levels, shared or not.
        for (level, node) in self.nodes.into_iter().enumerate() {
            let at = wide.index(active, level);
            wide.nodes[at] = node;
        }
        wide.seen = self.seen;
        wide.counting = self.counting;
        if let Some(directory) = &mut wide.directory {
            // A private line is part of one of the longest private lines.
            let private = &wide.nodes[active * wide.shared..(active + 1) * wide.shared];
            for (node, shift) in private.iter().zip(&wide.shifts) {
                for block in node.cache.blocks() {
                    directory.add(active, (block << shift) >> wide.granule);
                }
            }
        }
        Ok(wide)
    }

    /// Starts or stops counting. Uncounted accesses warm up the caches.
    pub fn count(&mut self, counting: bool) {
        self.counting = counting;
    }

    /// Counts of the levels.
    pub fn seen(&self) -> &[Seen] {
        &self.seen
    }

    /// Lines that cores have taken from each other, with their addresses and counts.
    pub fn shared_lines(&self) -> Vec<(u64, Sharing)> {
        let lines = self
            .directory
            .as_ref()
            .map(Directory::lines)
            .unwrap_or_default();
        lines
            .into_iter()
            .map(|(l, s)| (l << self.granule, s))
            .collect()
    }

    /// True if there are several cores with private levels.
    pub fn is_coherent(&self) -> bool {
        self.directory.is_some()
    }

    /// Size in bytes of the lines for coherence.
    pub fn shared_line_bytes(&self) -> u64 {
        1 << self.granule
    }

    /// True if a level has the line of an address, for one core.
    pub fn has(&self, core: usize, level: usize, address: u64) -> bool {
        let cache = &self.nodes[self.index(core, level)].cache;
        cache.has(address >> self.shifts[level])
    }

    fn index(&self, core: usize, level: usize) -> usize {
        if level < self.shared {
            core * self.shared + level
        } else {
            // After the private levels of all cores.
            self.cores * self.shared + level - self.shared
        }
    }

    #[inline]
    fn cache(&mut self, core: usize, level: usize) -> &mut Level {
        let at = self.index(core, level);
        &mut self.nodes[at].cache
    }

    fn is(&self, level: usize, inclusion: Inclusion) -> bool {
        self.specs[level].inclusion == inclusion
    }

    /// Accesses `size` bytes at `address` by an instruction on a core. Returns the level that had
    /// it (the last one among those of several lines). The number of levels stands for memory.
    #[inline]
    pub fn access(
        &mut self,
        core: usize,
        address: u64,
        size: u32,
        store: bool,
        instruction: u32,
    ) -> usize {
        let last = address.saturating_add(u64::from(size.max(1)) - 1);
        let shift = self.shifts[0];
        let mut reached = 0;
        for block in (address >> shift)..=(last >> shift) {
            let line = block << shift;
            let bytes = if self.directory.is_some() {
                self.bytes(line, address, last)
            } else {
                0
            };
            reached = reached.max(self.line(core, line, store, bytes));
        }
        if self.counting {
            let misses_from = reached;
            for (level, seen) in self.seen.iter_mut().enumerate().take(reached + 1) {
                let missed = u64::from(level < misses_from);
                if store {
                    seen.stores += 1;
                    seen.store_misses += missed;
                } else {
                    seen.loads += 1;
                    seen.load_misses += missed;
                }
            }
        }
        if self.prefetching {
            self.prefetch(core, address, reached, instruction);
        }
        reached
    }

    /// Bytes of its coherence line that an access touches within one line of the first level, see
    /// [`LineBytes`].
    fn bytes(&self, line: u64, first: u64, last: u64) -> LineBytes {
        let base = line >> self.granule << self.granule;
        let end = line + ((1u64 << self.shifts[0]) - 1);
        let part = self.granule.saturating_sub(7);
        let from = (first.max(line) - base) >> part;
        let to = (last.min(end) - base) >> part;
        let below = |n: u64| LineBytes::MAX.checked_shr(128 - n as u32).unwrap_or(0);
        below(to + 1) & !below(from)
    }

    /// Accesses one line.
    #[inline]
    fn line(&mut self, core: usize, address: u64, store: bool, bytes: LineBytes) -> usize {
        if store && self.directory.is_some() {
            self.take_from_others(core, address, bytes);
        }
        let levels = self.specs.len();
        let (mut found, mut dirty) = (levels, 0);
        for level in 0..levels {
            if level == self.shared && self.directory.is_some() {
                self.private_miss(core, address, Some(bytes));
            }
            let block = address >> self.shifts[level];
            let Some(flags) = self.cache(core, level).touch(block) else {
                if self.specs[level].prefetch.next_line {
                    self.triggers.push((level, address));
                }
                continue;
            };
            if flags & PREFETCHED != 0 {
                self.seen[level].useful_prefetches += u64::from(self.counting);
                if self.specs[level].prefetch.next_line {
                    self.triggers.push((level, address));
                }
            }
            if level > 0 && self.is(level, Inclusion::Exclusive) {
                self.cache(core, level).remove(block);
                dirty = flags & DIRTY_BIT;
            }
            found = level;
            break;
        }
        if found > 0 {
            self.fill(core, address, found, 0, dirty);
        }
        if store {
            let block = address >> self.shifts[0];
            self.cache(core, 0).set_flags(block, DIRTY_BIT);
        }
        found
    }

    /// Inserts a line from level `found` into level `to` and those between.
    fn fill(&mut self, core: usize, address: u64, found: usize, to: usize, mut flags: u64) {
        for level in (to..found).rev() {
            if level > to && self.is(level, Inclusion::Exclusive) {
                continue;
            }
            let carried = if level == to {
                flags
            } else {
                flags & DIRTY_BIT
            };
            let block = address >> self.shifts[level];
            let gone = self.cache(core, level).insert(block, carried);
            // Dirty data is in one place only.
            flags &= !DIRTY_BIT;
            if level < self.shared
                && let Some(directory) = &mut self.directory
            {
                directory.add(core, address >> self.granule);
            }
            if let Some((block, flags)) = gone {
                self.lost(core, level, block << self.shifts[level], flags);
            }
        }
    }

    /// Handles a line that a level evicted.
    fn lost(&mut self, core: usize, level: usize, address: u64, flags: u64) {
        let mut dirty = flags & DIRTY_BIT;
        if self.is(level, Inclusion::Inclusive) {
            dirty |= self.back_invalidate(core, level, address);
        }
        let behind = level + 1;
        self.seen[level].write_backs += u64::from(dirty != 0 && self.counting);
        if behind < self.specs.len() && (dirty != 0 || self.is(behind, Inclusion::Exclusive)) {
            self.put(core, behind, address, dirty);
        }
        if level < self.shared {
            self.forget(core, address, 1 << self.shifts[level]);
        }
    }

    /// Removes a core's lines from the directory if no private level has them any more.
    fn forget(&mut self, core: usize, address: u64, bytes: u64) {
        if self.directory.is_none() {
            return;
        }
        let size = 1u64 << self.granule;
        let mut line = address >> self.granule << self.granule;
        while line < address.saturating_add(bytes) {
            if !(0..self.shared).any(|level| self.has_any(core, level, line, size))
                && let Some(directory) = &mut self.directory
            {
                directory.drop(core, line >> self.granule, self.cores);
            }
            line += size;
        }
    }

    /// Blocks of a level in a range of memory.
    fn blocks(&self, level: usize, address: u64, bytes: u64) -> std::ops::RangeInclusive<u64> {
        let shift = self.shifts[level];
        address >> shift..=(address + (bytes - 1)) >> shift
    }

    fn has_any(&self, core: usize, level: usize, address: u64, bytes: u64) -> bool {
        let cache = &self.nodes[self.index(core, level)].cache;
        self.blocks(level, address, bytes).any(|b| cache.has(b))
    }

    /// Invalidates a line in the levels before an inclusive one that evicted it. Returns the dirty
    /// flag of these.
    fn back_invalidate(&mut self, core: usize, level: usize, address: u64) -> u64 {
        let bytes = 1u64 << self.shifts[level];
        let mut dirty = 0;
        let cores = if level < self.shared {
            core..core + 1
        } else {
            0..self.cores
        };
        for front in 0..level {
            // A shared level has only one cache for all cores.
            let cores = if front < self.shared {
                cores.clone()
            } else {
                0..1
            };
            for core in cores {
                for block in self.blocks(front, address, bytes) {
                    let Some(flags) = self.cache(core, front).remove(block) else {
                        continue;
                    };
                    dirty |= flags & DIRTY_BIT;
                    if self.counting {
                        self.seen[front].back_invalidations += 1;
                        self.seen[front].write_backs += u64::from(flags & DIRTY_BIT != 0);
                    }
                    if front < self.shared {
                        self.forget(core, address, bytes);
                    }
                }
            }
        }
        dirty
    }

    /// Inserts a line evicted by the previous level.
    fn put(&mut self, core: usize, level: usize, address: u64, dirty: u64) {
        let block = address >> self.shifts[level];
        if self.cache(core, level).set_flags(block, dirty) {
            return;
        }
        let gone = self.cache(core, level).insert(block, dirty);
        if level < self.shared
            && let Some(directory) = &mut self.directory
        {
            directory.add(core, address >> self.granule);
        }
        if let Some((block, flags)) = gone {
            self.lost(core, level, block << self.shifts[level], flags);
        }
    }

    /// Invalidates the line in all other cores, for a store.
    fn take_from_others(&mut self, core: usize, address: u64, bytes: LineBytes) {
        let (counting, cores) = (self.counting, self.cores);
        let line = address >> self.granule;
        let Some(directory) = &mut self.directory else {
            return;
        };
        directory.written(core, line, bytes);
        for other in directory.others(core, line, cores) {
            let base = line << self.granule;
            let Some(dirty) = self.take(other, base) else {
                continue;
            };
            if let Some(directory) = &mut self.directory {
                directory.drop(other, line, cores);
                directory.lose(other, line, bytes, counting);
            }
            if dirty != 0 {
                self.hand_over(other, base);
            }
        }
    }

    /// Invalidates a coherence line of a core. Returns the dirty flag; none if the core had no part
    /// of the line.
    fn take(&mut self, core: usize, base: u64) -> Option<u64> {
        let mut taken = None;
        for level in 0..self.shared {
            for block in self.blocks(level, base, 1 << self.granule) {
                if let Some(flags) = self.cache(core, level).remove(block) {
                    taken = Some(taken.unwrap_or(0) | flags & DIRTY_BIT);
                }
            }
        }
        taken
    }

    /// Passes data written by a core to the first shared level.
    fn hand_over(&mut self, core: usize, base: u64) {
        self.seen[self.shared - 1].write_backs += u64::from(self.counting);
        self.put(core, self.shared, base, DIRTY_BIT);
    }

    /// Handles a line that no private level has. Another core may have taken it, and may have a
    /// dirty copy. Without bytes, it is a prefetch and no miss is counted.
    fn private_miss(&mut self, core: usize, address: u64, bytes: Option<LineBytes>) {
        let (counting, cores) = (self.counting, self.cores);
        let line = address >> self.granule;
        let Some(directory) = &mut self.directory else {
            return;
        };
        directory.missed(core, line, bytes.unwrap_or(0), counting && bytes.is_some());
        let base = line << self.granule;
        for other in directory.others(core, line, cores) {
            let mut dirty = 0;
            for level in 0..self.shared {
                for block in self.blocks(level, base, 1 << self.granule) {
                    dirty |= self.cache(other, level).flags(block).unwrap_or(0) & DIRTY_BIT;
                    self.cache(other, level).clear_flags(block, DIRTY_BIT);
                }
            }
            if dirty != 0 {
                if let Some(directory) = &mut self.directory {
                    directory.intervened(line, counting);
                }
                self.hand_over(other, base);
            }
        }
    }

    /// Runs the prefetchers of the levels that an access reached.
    fn prefetch(&mut self, core: usize, address: u64, reached: usize, instruction: u32) {
        let triggers = std::mem::take(&mut self.triggers);
        for level in 0..self.specs.len().min(reached + 1) {
            let bytes = self.specs[level].shape.line;
            for &(_, trigger) in triggers.iter().filter(|t| t.0 == level) {
                let next = trigger.wrapping_add(bytes);
                if same_page(trigger, next) {
                    self.bring(core, level, next);
                }
            }
            if self.specs[level].prefetch.stride {
                let at = self.index(core, level);
                let strides = &mut self.nodes[at].strides;
                strides.learn(instruction, address);
                if let Some(target) = strides.target(instruction, address, bytes) {
                    self.bring(core, level, target);
                }
            }
        }
        self.triggers = triggers;
        self.triggers.clear();
    }

    /// Prefetches the line of an address into a level, unless it or a level before it has the line.
    fn bring(&mut self, core: usize, to: usize, address: u64) {
        let levels = self.specs.len();
        let address = address >> self.shifts[to] << self.shifts[to];
        if (0..=to).any(|level| self.has(core, level, address)) {
            return;
        }
        let (mut found, mut dirty) = (levels, 0);
        for level in to + 1..levels {
            if level == self.shared && self.directory.is_some() {
                self.private_miss(core, address, None);
            }
            let block = address >> self.shifts[level];
            if self.cache(core, level).touch(block).is_some() {
                if self.is(level, Inclusion::Exclusive) {
                    dirty = self.cache(core, level).remove(block).unwrap_or(0) & DIRTY_BIT;
                }
                found = level;
                break;
            }
        }
        self.seen[to].prefetches += u64::from(self.counting);
        self.fill(core, address, found, to, dirty | PREFETCHED);
    }
}

//! Compares the simulator of hierarchies with a second one that shares nothing with it: sets are
//! lists of ways with time stamps, the PLRU tree is descended by halves, and the holders of a line
//! are found by searching all cores.

use mgz_models::cache::coherence::Sharing;
use mgz_models::cache::prefetch::Prefetch;
use mgz_models::cache::spec::{Inclusion, LevelSpec, check_levels};
use mgz_models::cache::system::{Seen, System};
use mgz_models::cache::tlb::{Tlb, TlbLevel};
use mgz_models::cache::{Policy, Shape};
use mgz_models::util::random::SplitMix;
use std::collections::{BTreeMap, BTreeSet, HashMap};

#[derive(Clone, Copy, Debug)]
struct Line {
    block: u64,
    dirty: bool,
    fresh: bool,
    came: u64,
    used: u64,
    rank: u8,
}

struct Plain {
    spec: LevelSpec,
    sets: Vec<Vec<Option<Line>>>,
    /// By set and range of ways: true if the victim is in the upper half.
    upper: HashMap<(usize, usize, usize), bool>,
    clock: u64,
    random: SplitMix,
}

impl Plain {
    fn new(spec: LevelSpec) -> Plain {
        let sets = (spec.shape.size / spec.shape.line / spec.shape.ways) as usize;
        Plain {
            spec,
            sets: vec![vec![None; spec.shape.ways as usize]; sets],
            upper: HashMap::new(),
            clock: 0,
            random: SplitMix::new(1),
        }
    }
    fn set(&self, block: u64) -> usize {
        (block % self.sets.len() as u64) as usize
    }
    fn find(&mut self, block: u64) -> Option<&mut Line> {
        let set = self.set(block);
        self.sets[set]
            .iter_mut()
            .flatten()
            .find(|l| l.block == block)
    }
    fn way(&self, block: u64) -> Option<usize> {
        let set = &self.sets[self.set(block)];
        set.iter().position(|l| l.is_some_and(|l| l.block == block))
    }
    fn point_away(&mut self, set: usize, way: usize) {
        let (mut from, mut to) = (0, self.sets[set].len());
        while to - from > 1 {
            let middle = from.midpoint(to);
            self.upper.insert((set, from, to), way < middle);
            if way < middle {
                to = middle;
            } else {
                from = middle;
            }
        }
    }
    fn use_it(&mut self, block: u64) {
        self.clock += 1;
        let (clock, set, way) = (self.clock, self.set(block), self.way(block).unwrap());
        let line = self.find(block).unwrap();
        line.used = clock;
        line.rank = 0;
        line.fresh = false;
        self.point_away(set, way);
    }
    fn add(&mut self, block: u64, dirty: bool, fresh: bool) -> Option<Line> {
        self.clock += 1;
        let set = self.set(block);
        let ways = self.sets[set].len();
        let way = match self.sets[set].iter().position(Option::is_none) {
            Some(way) => way,
            None => {
                let by = |key: fn(&Line) -> u64| {
                    (0..ways)
                        .min_by_key(|&w| key(self.sets[set][w].as_ref().unwrap()))
                        .unwrap()
                };
                match self.spec.policy {
                    Policy::Lru => by(|l| l.used),
                    Policy::Fifo => by(|l| l.came),
                    Policy::Random => self.random.below(ways as u64) as usize,
                    Policy::Plru => {
                        let (mut from, mut to) = (0, ways);
                        while to - from > 1 {
                            let middle = from.midpoint(to);
                            if self.upper.get(&(set, from, to)).copied().unwrap_or(false) {
                                from = middle;
                            } else {
                                to = middle;
                            }
                        }
                        from
                    }
                    Policy::Rrip => loop {
                        let at = self.sets[set].iter().position(|l| l.unwrap().rank == 3);
                        match at {
                            Some(way) => break way,
                            None => self.sets[set]
                                .iter_mut()
                                .flatten()
                                .for_each(|l| l.rank += 1),
                        }
                    },
                }
            }
        };
        let line = Line {
            block,
            dirty,
            fresh,
            came: self.clock,
            used: self.clock,
            rank: 2,
        };
        let gone = self.sets[set][way].replace(line);
        self.point_away(set, way);
        gone
    }
    fn drop(&mut self, block: u64) -> Option<Line> {
        let way = self.way(block)?;
        let set = self.set(block);
        self.sets[set][way].take()
    }
}

/// The second simulator.
struct Brute {
    private: Vec<Vec<Plain>>,
    shared: Vec<Plain>,
    first_shared: usize,
    seen: Vec<Seen>,
    counting: bool,
    /// Addresses of each instruction at a level of a core (or a shared level).
    walks: HashMap<(usize, usize, u32), Vec<u64>>,
    /// Lines that a core has lost, with all bytes that others have written since.
    lost: BTreeMap<(u64, usize), BTreeSet<u64>>,
    sharing: BTreeMap<u64, Sharing>,
}

impl Brute {
    fn new(specs: &[LevelSpec], first_shared: usize, cores: usize) -> Brute {
        let of = |s: &[LevelSpec]| s.iter().map(|s| Plain::new(*s)).collect::<Vec<_>>();
        Brute {
            private: (0..cores).map(|_| of(&specs[..first_shared])).collect(),
            shared: of(&specs[first_shared..]),
            first_shared,
            seen: vec![Seen::default(); specs.len()],
            counting: true,
            walks: HashMap::new(),
            lost: BTreeMap::new(),
            sharing: BTreeMap::new(),
        }
    }
    fn at(&mut self, core: usize, level: usize) -> &mut Plain {
        match level.checked_sub(self.first_shared) {
            Some(shared) => &mut self.shared[shared],
            None => &mut self.private[core][level],
        }
    }
    fn spec(&mut self, level: usize) -> LevelSpec {
        self.at(0, level).spec
    }
    fn levels(&self) -> usize {
        self.first_shared + self.shared.len()
    }
    fn cores(&self) -> usize {
        self.private.len()
    }
    fn coherent(&self) -> bool {
        self.cores() > 1 && self.first_shared > 0
    }
    /// Size in bytes of the lines for coherence.
    fn granule(&mut self) -> u64 {
        self.spec(self.first_shared - 1).shape.line
    }
    fn note(&mut self, line: u64, what: impl Fn(&mut Sharing)) {
        if self.counting {
            what(self.sharing.entry(line).or_default());
        }
    }
    /// Blocks of a level in the coherence line at `base`.
    fn within(&mut self, level: usize, base: u64, bytes: u64) -> Vec<u64> {
        let line = self.spec(level).shape.line;
        (base / line..(base + bytes).div_ceil(line)).collect()
    }

    fn access(&mut self, core: usize, address: u64, size: u64, store: bool, ip: u32) -> usize {
        let first = self.spec(0).shape.line;
        let end = address + size;
        let (mut furthest, mut triggers) = (0, Vec::new());
        for block in address / first..end.div_ceil(first) {
            let part = address.max(block * first)..end.min((block + 1) * first);
            let found = self.one(core, block * first, part, store, &mut triggers);
            furthest = furthest.max(found);
        }
        for level in 0..self.levels() {
            if self.counting && level <= furthest {
                let seen = &mut self.seen[level];
                let missed = u64::from(level < furthest);
                let counters = if store {
                    (&mut seen.stores, &mut seen.store_misses)
                } else {
                    (&mut seen.loads, &mut seen.load_misses)
                };
                *counters.0 += 1;
                *counters.1 += missed;
            }
        }
        for level in 0..self.levels().min(furthest + 1) {
            let spec = self.spec(level);
            for &(at, trigger) in &triggers {
                if at == level && spec.prefetch.next_line {
                    let next: u64 = trigger + spec.shape.line;
                    if next / 4096 == trigger / 4096 {
                        self.prefetch(core, level, next);
                    }
                }
            }
            if spec.prefetch.stride {
                let who = if level < self.first_shared {
                    core
                } else {
                    usize::MAX
                };
                let walk = self.walks.entry((who, level, ip)).or_default();
                walk.push(address);
                if let [.., a, b, c] = walk[..]
                    && c as i64 - b as i64 == b as i64 - a as i64
                    && c != b
                {
                    let next = c as i64 + (c as i64 - b as i64);
                    let line = spec.shape.line as i64;
                    let target = if next.div_euclid(line) != c as i64 / line {
                        next
                    } else if next > c as i64 {
                        c as i64 + line
                    } else {
                        c as i64 - line
                    };
                    if target.div_euclid(4096) == c as i64 / 4096 {
                        self.prefetch(core, level, target as u64);
                    }
                }
            }
        }
        furthest
    }

    fn one(
        &mut self,
        core: usize,
        line: u64,
        bytes: std::ops::Range<u64>,
        store: bool,
        triggers: &mut Vec<(usize, u64)>,
    ) -> usize {
        if store && self.coherent() {
            let granule = self.granule();
            let base = line / granule * granule;
            for ((l, who), written) in &mut self.lost {
                if *l == base && *who != core {
                    written.extend(bytes.clone());
                }
            }
            for other in (0..self.cores()).filter(|&c| c != core) {
                let (mut had, mut dirty) = (false, false);
                for level in 0..self.first_shared {
                    for block in self.within(level, base, granule) {
                        if let Some(gone) = self.at(other, level).drop(block) {
                            had = true;
                            dirty |= gone.dirty;
                        }
                    }
                }
                if had {
                    self.note(base, |s| s.invalidations += 1);
                    self.lost.insert((base, other), bytes.clone().collect());
                }
                if dirty {
                    self.seen[self.first_shared - 1].write_backs += u64::from(self.counting);
                    self.give(other, self.first_shared, base, true);
                }
            }
        }
        let (mut found, mut dirty) = (self.levels(), false);
        for level in 0..self.levels() {
            if level == self.first_shared && self.coherent() {
                let granule = self.granule();
                let base = line / granule * granule;
                if let Some(written) = self.lost.remove(&(base, core)) {
                    let met = bytes.clone().any(|b| written.contains(&b));
                    self.note(base, |s| {
                        s.true_misses += u64::from(met);
                        s.false_misses += u64::from(!met);
                    });
                }
                self.clean_others(core, base);
            }
            let spec = self.spec(level);
            let block = line / spec.shape.line;
            let Some(fresh) = self.at(core, level).find(block).map(|l| l.fresh) else {
                triggers.push((level, line));
                continue;
            };
            if fresh {
                self.seen[level].useful_prefetches += u64::from(self.counting);
                triggers.push((level, line));
            }
            self.at(core, level).use_it(block);
            if spec.inclusion == Inclusion::Exclusive {
                dirty = self.at(core, level).drop(block).unwrap().dirty;
            }
            found = level;
            break;
        }
        self.fill(core, line, 0, found, dirty, false);
        if store {
            let first = self.spec(0).shape.line;
            if let Some(l) = self.at(core, 0).find(line / first) {
                l.dirty = true;
            }
        }
        found
    }

    fn clean_others(&mut self, core: usize, base: u64) {
        let granule = self.granule();
        for other in (0..self.cores()).filter(|&c| c != core) {
            let mut dirty = false;
            for level in 0..self.first_shared {
                for block in self.within(level, base, granule) {
                    if let Some(l) = self.at(other, level).find(block) {
                        dirty |= std::mem::take(&mut l.dirty);
                    }
                }
            }
            if dirty {
                self.note(base, |s| s.interventions += 1);
                self.seen[self.first_shared - 1].write_backs += u64::from(self.counting);
                self.give(other, self.first_shared, base, true);
            }
        }
    }

    fn fill(
        &mut self,
        core: usize,
        line: u64,
        to: usize,
        found: usize,
        mut dirty: bool,
        fresh: bool,
    ) {
        for level in (to..found).rev() {
            let spec = self.spec(level);
            if level == to || spec.inclusion != Inclusion::Exclusive {
                let block = line / spec.shape.line;
                let gone = self.at(core, level).add(block, dirty, fresh && level == to);
                dirty = false;
                self.loses(core, level, gone);
            }
        }
    }

    fn loses(&mut self, core: usize, level: usize, gone: Option<Line>) {
        let Some(mut gone) = gone else { return };
        let spec = self.spec(level);
        let base = gone.block * spec.shape.line;
        if spec.inclusion == Inclusion::Inclusive {
            for front in 0..level {
                let cores: Vec<usize> = if front >= self.first_shared {
                    vec![0]
                } else if level >= self.first_shared {
                    (0..self.cores()).collect()
                } else {
                    vec![core]
                };
                for c in cores {
                    for block in self.within(front, base, spec.shape.line) {
                        if let Some(l) = self.at(c, front).drop(block) {
                            gone.dirty |= l.dirty;
                            if self.counting {
                                self.seen[front].back_invalidations += 1;
                                self.seen[front].write_backs += u64::from(l.dirty);
                            }
                        }
                    }
                }
            }
        }
        self.seen[level].write_backs += u64::from(self.counting && gone.dirty);
        if level + 1 < self.levels() {
            let takes_all = self.spec(level + 1).inclusion == Inclusion::Exclusive;
            if takes_all || gone.dirty {
                self.give(core, level + 1, base, gone.dirty);
            }
        }
    }

    fn give(&mut self, core: usize, level: usize, base: u64, dirty: bool) {
        let block = base / self.spec(level).shape.line;
        match self.at(core, level).find(block) {
            Some(l) => l.dirty |= dirty,
            None => {
                let gone = self.at(core, level).add(block, dirty, false);
                self.loses(core, level, gone);
            }
        }
    }

    fn prefetch(&mut self, core: usize, to: usize, address: u64) {
        let line = self.spec(to).shape.line;
        let line = address / line * line;
        for level in 0..=to {
            let block = line / self.spec(level).shape.line;
            if self.at(core, level).find(block).is_some() {
                return;
            }
        }
        let (mut found, mut dirty) = (self.levels(), false);
        for level in to + 1..self.levels() {
            if level == self.first_shared && self.coherent() {
                let granule = self.granule();
                let base = line / granule * granule;
                self.lost.remove(&(base, core));
                self.clean_others(core, base);
            }
            let spec = self.spec(level);
            let block = line / spec.shape.line;
            if self.at(core, level).find(block).is_some() {
                self.at(core, level).use_it(block);
                if spec.inclusion == Inclusion::Exclusive {
                    dirty = self.at(core, level).drop(block).unwrap().dirty;
                }
                found = level;
                break;
            }
        }
        self.seen[to].prefetches += u64::from(self.counting);
        self.fill(core, line, to, found, dirty, true);
    }
}

/// An access: core, address, bytes, true for a store, instruction.
type Access = (usize, u64, u32, bool, u32);

/// A mix of walks, accesses to few hot words, and random accesses.
fn trace(random: &mut SplitMix, cores: usize, length: usize, reach: u64) -> Vec<Access> {
    let mut walks = [(0u64, 0i64); 6];
    let mut out = Vec::new();
    for _ in 0..length {
        let ip = random.below(6) as usize;
        if random.below(20) == 0 {
            let stride = [8, 16, 64, 72, 200, -8, -64, 0][random.below(8) as usize];
            walks[ip] = (4096 + random.below(reach), stride);
        }
        let address = match random.below(4) {
            0 => 4096 + random.below(reach),
            1 => 4096 + random.below(16) * 8,
            _ => {
                let at = walks[ip].0;
                walks[ip].0 = (at as i64 + walks[ip].1).max(0) as u64;
                at
            }
        };
        let size = [1, 4, 8, 8, 16, 100][random.below(6) as usize];
        let core = random.below(cores as u64) as usize;
        out.push((core, address, size, random.below(3) == 0, ip as u32));
    }
    out
}

fn levels(random: &mut SplitMix) -> Vec<LevelSpec> {
    loop {
        let mut line = [8, 16, 32][random.below(3) as usize];
        let count = 1 + random.below(3);
        let specs: Vec<LevelSpec> = (0..count)
            .map(|level| {
                line *= 1 + u64::from(level > 0 && random.below(5) == 0);
                let ways = [1, 2, 3, 4, 8][random.below(5) as usize];
                let sets = 1 + random.below(4 * (level + 1));
                LevelSpec {
                    shape: Shape::new(sets * ways * line, ways, line).unwrap(),
                    policy: Policy::ALL[random.below(5) as usize].0,
                    inclusion: if level == 0 {
                        Inclusion::NonInclusive
                    } else {
                        Inclusion::ALL[random.below(3) as usize].0
                    },
                    prefetch: Prefetch {
                        next_line: random.below(4) == 0,
                        stride: random.below(4) == 0,
                    },
                }
            })
            .collect();
        if check_levels(&specs).is_ok() {
            return specs;
        }
    }
}

#[test]
fn hierarchies_agree_with_a_second_simulator() {
    let mut random = SplitMix::new(42);
    // Counts of events in the traces, to verify that every case is tested.
    let (mut totals, mut shared) = (Seen::default(), Sharing::default());
    let mut met: BTreeMap<String, u32> = BTreeMap::new();
    for case in 0..4000 {
        let specs = levels(&mut random);
        let cores = [1, 1, 2, 3][random.below(4) as usize];
        let first_shared = if cores == 1 && random.below(2) == 0 {
            specs.len()
        } else {
            random.below(specs.len() as u64) as usize
        };
        let accesses = trace(&mut random, cores, 200, 3000);
        let warm = random.below(60) as usize * usize::from(random.below(3) == 0);
        let mut got = System::new(&specs, first_shared, cores).unwrap();
        let mut want = Brute::new(&specs, first_shared, cores);
        for (i, &(core, address, size, store, ip)) in accesses.iter().enumerate() {
            got.count(i >= warm);
            want.counting = i >= warm;
            let context = || format!("case {case}, access {i} of {specs:?} {first_shared} {cores}");
            assert_eq!(
                got.access(core, address, size, store, ip),
                want.access(core, address, size.into(), store, ip),
                "{}",
                context()
            );
            assert_eq!(got.seen(), want.seen, "{}", context());
        }
        let sharing: Vec<(u64, Sharing)> = want.sharing.into_iter().collect();
        assert_eq!(got.shared_lines(), sharing, "case {case}");
        for (level, spec) in specs.iter().enumerate() {
            for core in 0..cores {
                for line in 0..200 {
                    let address = line * 64;
                    let block = address / spec.shape.line;
                    let has = want_has(
                        &mut want.private,
                        &mut want.shared,
                        first_shared,
                        core,
                        level,
                        block,
                    );
                    assert_eq!(got.has(core, level, address), has, "case {case}");
                    // The inclusion property holds.
                    if spec.inclusion == Inclusion::Inclusive && !has {
                        assert!((0..level).all(|front| !got.has(core, front, address)));
                    }
                }
            }
            let key = format!("{} {}", spec.policy.name(), spec.inclusion.name());
            *met.entry(key).or_default() += 1;
        }
        for s in got.seen() {
            totals.write_backs += s.write_backs;
            totals.back_invalidations += s.back_invalidations;
            totals.prefetches += s.prefetches;
            totals.useful_prefetches += s.useful_prefetches;
        }
        for (_, s) in got.shared_lines() {
            shared.invalidations += s.invalidations;
            shared.true_misses += s.true_misses;
            shared.false_misses += s.false_misses;
            shared.interventions += s.interventions;
        }
    }
    assert_eq!(met.len(), 15, "{met:?}");
    assert!(met.values().all(|&n| n > 50), "{met:?}");
    let counts = [
        totals.write_backs,
        totals.back_invalidations,
        totals.prefetches,
        totals.useful_prefetches,
        shared.invalidations,
        shared.true_misses,
        shared.false_misses,
        shared.interventions,
    ];
    assert!(counts.iter().all(|&n| n > 1000), "{counts:?}");
}

/// Simulation may begin before the number of threads is known.
#[test]
fn a_core_that_was_alone_goes_on_as_one_of_several() {
    let mut random = SplitMix::new(7);
    let mut shared_lines = 0;
    for case in 0..2000 {
        let specs = levels(&mut random);
        let cores = 2 + random.below(3) as usize;
        let active = random.below(cores as u64) as usize;
        let first_shared = random.below(specs.len() as u64) as usize;
        let mut alone = System::new(&specs, 0, 1).unwrap();
        let mut want = System::new(&specs, first_shared, cores).unwrap();
        let warm = random.below(100) as usize;
        for (i, &(_, address, size, store, ip)) in
            trace(&mut random, 1, 150, 3000).iter().enumerate()
        {
            alone.count(i >= warm);
            want.count(i >= warm);
            assert_eq!(
                alone.access(0, address, size, store, ip),
                want.access(active, address, size, store, ip)
            );
        }
        let mut got = alone.with_cores(first_shared, cores, active).unwrap();
        for (core, address, size, store, ip) in trace(&mut random, cores, 150, 3000) {
            let reached = want.access(core, address, size, store, ip);
            let context = || format!("case {case}: {specs:?} {first_shared} {cores} {active}");
            assert_eq!(
                got.access(core, address, size, store, ip),
                reached,
                "{}",
                context()
            );
            assert_eq!(got.seen(), want.seen(), "{}", context());
        }
        assert_eq!(got.shared_lines(), want.shared_lines(), "case {case}");
        shared_lines += got.shared_lines().len();
    }
    assert!(shared_lines > 1000, "{shared_lines}");
}

fn want_has(
    private: &mut [Vec<Plain>],
    shared: &mut [Plain],
    first_shared: usize,
    core: usize,
    level: usize,
    block: u64,
) -> bool {
    match level.checked_sub(first_shared) {
        Some(level) => shared[level].find(block).is_some(),
        None => private[core][level].find(block).is_some(),
    }
}

#[test]
fn more_cores_than_bits_of_the_directory() {
    let mut random = SplitMix::new(7);
    let level = |blocks: u64, ways| LevelSpec::from(Shape::new(blocks * 64, ways, 64).unwrap());
    let specs = [level(4, 2), level(64, 4)];
    for _ in 0..20 {
        let mut got = System::new(&specs, 1, 150).unwrap();
        let mut want = Brute::new(&specs, 1, 150);
        for (core, address, size, store, ip) in trace(&mut random, 150, 600, 1000) {
            let reached = got.access(core, address, size, store, ip);
            assert_eq!(reached, want.access(core, address, size.into(), store, ip));
        }
        assert_eq!(got.seen(), want.seen);
        assert_eq!(
            got.shared_lines(),
            want.sharing.into_iter().collect::<Vec<_>>()
        );
    }
}

/// Two threads count in neighbouring words, then in the same word.
#[test]
fn false_sharing_is_told_from_true_sharing() {
    let level = |kib: u64| LevelSpec::from(Shape::new(kib << 10, 8, 64).unwrap());
    let run = |second: u64| {
        let mut system = System::new(&[level(32), level(1024)], 1, 2).unwrap();
        for _ in 0..10 {
            for (core, address) in [(0, 0x1000), (1, second)] {
                system.access(core, address, 8, false, core as u32);
                system.access(core, address, 8, true, core as u32);
            }
        }
        let (misses, lines) = (system.seen()[0].load_misses, system.shared_lines());
        (misses, lines)
    };
    // Each thread loses the line to the other 9 times: in all turns except the first.
    let (misses, lines) = run(0x1008);
    assert_eq!(misses, 20);
    let sharing = lines[0].1;
    assert_eq!((lines.len(), lines[0].0), (1, 0x1000));
    assert_eq!(
        (
            sharing.invalidations,
            sharing.false_misses,
            sharing.true_misses
        ),
        (19, 18, 0)
    );
    let (misses, lines) = run(0x1000);
    assert_eq!(
        (misses, lines[0].1.false_misses, lines[0].1.true_misses),
        (20, 0, 18)
    );
    // The threads use separate lines.
    let (misses, lines) = run(0x1040);
    assert_eq!((misses, lines.len()), (2, 0));
}

#[test]
fn buffers_of_translations_are_lists_of_pages() {
    let mut random = SplitMix::new(3);
    for _ in 0..300 {
        let levels = [
            TlbLevel {
                entries: 4,
                ways: 2,
                policy: Policy::Lru,
            },
            TlbLevel {
                entries: 12,
                ways: 3,
                policy: Policy::Fifo,
            },
        ];
        let page = [12, 21][random.below(2) as usize];
        let mut tlb = Tlb::new(&levels, page);
        let mut lists: [HashMap<u64, Vec<u64>>; 2] = Default::default();
        let mut want = [(0u64, 0u64); 2];
        for _ in 0..300 {
            let (address, size) = (random.below(40 << page), 1 + random.below(64) as u32);
            tlb.access(address, size, true);
            let mut reached = 0;
            for number in address >> page..=(address + u64::from(size) - 1) >> page {
                for (level, sets) in [(0, 2), (1, 4)] {
                    let list = lists[level].entry(number % sets).or_default();
                    let hit = list.contains(&number);
                    if level == 0 {
                        list.retain(|&n| n != number);
                    }
                    if level == 0 || !hit {
                        list.insert(0, number);
                        list.truncate(levels[level].ways as usize);
                    }
                    if hit {
                        break;
                    }
                    reached = reached.max(level + 1);
                }
            }
            for (level, counts) in want.iter_mut().enumerate().take(reached + 1) {
                counts.0 += 1;
                counts.1 += u64::from(level < reached);
            }
        }
        let got: Vec<(u64, u64)> = tlb
            .counts()
            .iter()
            .map(|c| (c.accesses, c.misses))
            .collect();
        assert_eq!(got, want);
    }
}

#[test]
fn levels_that_do_not_go_together_are_refused() {
    let level = |size, ways, line| LevelSpec::from(Shape::new(size, ways, line).unwrap());
    let with = |mut spec: LevelSpec, policy, inclusion| {
        (spec.policy, spec.inclusion) = (policy, inclusion);
        spec
    };
    let first = level(1024, 2, 64);
    for (levels, word) in [
        (vec![], "at least one"),
        (vec![level(1024, 2, 4)], "at least 8"),
        (
            vec![with(
                level(768, 3, 64),
                Policy::Plru,
                Inclusion::NonInclusive,
            )],
            "power of two",
        ),
        (
            vec![with(first, Policy::Lru, Inclusion::Inclusive)],
            "in front",
        ),
        (vec![first, level(1024, 2, 32)], "cannot lie behind"),
        (
            vec![
                first,
                with(level(4096, 2, 128), Policy::Lru, Inclusion::Exclusive),
            ],
            "whole lines",
        ),
    ] {
        let error = check_levels(&levels).unwrap_err();
        assert!(error.contains(word), "{error}");
    }
    assert!(System::new(&[first], 1, 2).is_err());
}

//! Hits of cache levels: by the model with random sets, by set distances, and by simulation.

use crate::threads::Thread;
use mgz_analyzer::commands::stream::Accesses;
use mgz_models::cache::prefetch::NO_INSTRUCTION;
use mgz_models::cache::{
    Hierarchy, LevelSpec, Seen, SetDistances, SetHits, Shape, System, expected_hits,
};
use mgz_models::histogram::{Fine, TRACE_BITS};
use mgz_models::reuse::{ReuseEngine, ReuseSink};

/// The caches of a setting.
pub struct Setup {
    /// First level first.
    pub levels: Vec<LevelSpec>,
    /// First shared level, from 0.
    pub shared: usize,
    /// Maximum number of sets that are followed, see [`SetDistances`]; none for no models.
    pub follow: Option<u64>,
    /// True if the hierarchy is simulated.
    pub simulate: bool,
}

/// Model and simulation of one level.
#[derive(Clone, Debug, Default)]
pub struct LevelOutcome {
    /// Hit rate of a cache of this shape by the model, as if it saw every access.
    pub model: f64,
    /// Hit rates by set distances, for several numbers of ways, the level's first.
    pub by_ways: Vec<(usize, SetHits)>,
    /// Hits in a simulation of this cache only.
    pub alone: u64,
    /// Counts of the level in the simulated hierarchy.
    pub seen: Seen,
}

impl LevelOutcome {
    fn add(&mut self, other: LevelOutcome) {
        self.model += other.model;
        self.alone += other.alone;
        if self.by_ways.is_empty() {
            self.by_ways = other.by_ways;
        } else {
            for (sum, more) in self.by_ways.iter_mut().zip(other.by_ways) {
                sum.1.hits += more.1.hits;
                sum.1.variance += more.1.variance;
            }
        }
    }
}

/// Distances of a stream of accesses. An access to two lines hits if both hit, so its distance is
/// the greater of the two.
struct Profile {
    fine: Fine,
    sets: SetDistances,
    /// State of the current access: true if a line is new, and the greatest distance.
    new: bool,
    greatest: Option<u64>,
}

impl ReuseSink for Profile {
    #[inline(always)]
    fn first(&mut self, _row: u64, block: u64, _tag: u32) {
        self.new = true;
        self.sets.touch(block);
    }
    #[inline(always)]
    fn reuse(&mut self, _row: u64, block: u64, _tag: u32, distance: u64, _interval: u64) {
        self.greatest = self.greatest.max(Some(distance));
        self.sets.touch(block);
    }
    #[inline(always)]
    fn done(&mut self, _row: u64, _tag: u32) {
        let distance = self.greatest.take().filter(|_| !self.new);
        self.new = false;
        self.sets.done(distance);
        if let Some(distance) = distance {
            self.fine.add(distance);
        }
    }
}

/// Offset that separates addresses of a process from those of the first one.
pub fn space(process: u32, first: u32) -> u64 {
    (u64::from(process != first) * u64::from(process)) << 48
}

/// An order of accesses. It calls back with (thread, access).
pub type AccessOrder<'a> = &'a dyn Fn(&mut dyn FnMut(usize, usize));

/// Model and simulation of all levels, as far as requested. Private levels see one thread each;
/// shared ones see all threads in `order`.
///
/// # Errors
///
/// A sentence about levels that are incompatible.
pub fn evaluate(
    threads: &[Thread],
    order: AccessOrder<'_>,
    setup: &Setup,
) -> Result<Vec<LevelOutcome>, String> {
    let mut out = vec![LevelOutcome::default(); setup.levels.len()];
    let address = |thread: usize, access: usize| {
        let t = &threads[thread];
        // Processes have separate address spaces.
        let space = space(t.process, threads[0].process);
        (t.accesses.address[access] ^ space, t.accesses.size[access])
    };
    if let Some(follow) = setup.follow {
        for (number, level) in setup.levels.iter().enumerate() {
            let shape = &level.shape;
            if number < setup.shared {
                for (t, thread) in threads.iter().enumerate() {
                    let whole = |next: &mut dyn FnMut(usize, usize)| {
                        (0..thread.accesses.address.len()).for_each(|i| next(t, i))
                    };
                    out[number].add(profile(&whole, &address, shape, follow));
                }
            } else {
                out[number] = profile(order, &address, shape, follow);
            }
        }
    }
    if setup.simulate {
        let mut system = System::new(&setup.levels, setup.shared, threads.len())?;
        order(&mut |thread, access| {
            let (address, size) = address(thread, access);
            let store = threads[thread].accesses.group[access].is_store();
            system.access(thread, address, size, store, NO_INSTRUCTION);
        });
        for (outcome, seen) in out.iter_mut().zip(system.seen()) {
            outcome.seen = *seen;
        }
    }
    Ok(out)
}

/// Hits of one cache with this stream: by the model, by set distances, and by simulation.
fn profile(
    order: AccessOrder<'_>,
    address: &dyn Fn(usize, usize) -> (u64, u32),
    shape: &Shape,
    follow: u64,
) -> LevelOutcome {
    let mut engine = ReuseEngine::new(shape.line.trailing_zeros());
    let mut sink = Profile {
        fine: Fine::new(TRACE_BITS),
        sets: SetDistances::new(shape, follow, 1),
        new: false,
        greatest: None,
    };
    let mut alone = Hierarchy::new(std::slice::from_ref(shape));
    let mut buffer: Accesses<u32> = Accesses::default();
    order(&mut |thread, access| {
        let (address, size) = address(thread, access);
        alone.access(address, size);
        buffer.address.push(address);
        buffer.size.push(size);
        buffer.group.push(0);
        if buffer.address.len() == 1 << 14 {
            engine.run(&buffer.address, &buffer.size, &buffer.group, &mut sink);
            buffer.clear();
        }
    });
    engine.run(&buffer.address, &buffer.size, &buffer.group, &mut sink);
    let counts = alone.counts()[0];
    let own = shape.ways as usize;
    let others = (0..)
        .map(|k| 1usize << k)
        .take_while(|&w| w <= sink.sets.depth())
        .filter(|&w| w != own);
    let by_ways = std::iter::once(own)
        .chain(others)
        .map(|ways| (ways, sink.sets.hits_with(ways)))
        .collect();
    LevelOutcome {
        model: expected_hits(sink.fine.bins(), shape),
        by_ways,
        alone: counts.accesses - counts.misses,
        seen: Seen::default(),
    }
}

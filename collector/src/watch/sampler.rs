//! The work on one thread, from a sample to its reuse.
//!
//! A sample begins at the stop of the thread by a timer or a counter. The sampler single-steps the
//! next accesses. One of the first [`ACCESSES_AFTER_STOP`] is the use: stops cluster behind slow
//! instructions, and the random choice compensates for that. The steps behind it find near reuses
//! with their exact distances. An access without a reuse by then goes to the reservoir, which
//! decides if one of the hardware watchpoints takes it. From there on the thread runs at its own
//! speed. The counters and watchpoints of a thread are paused while it is stepped. That time is
//! left out of all ages, and the accesses are counted here.
//!
//! A load has two reuses: the next access among loads and stores, and the next load among loads.
//! Processors cannot watch reads alone, so the thread stops at each hit. If it was a store, the
//! first of the two is known, and the watch for the second continues.

use crate::watch::access::{AccessReader, NextInsn, Registers};
use crate::watch::trap_decode::{Touch, Trap};
use mgz_abi::MAX_INSTRUCTION_BYTES;
use mgz_models::sampling::rdx::{Decision, Reservoir};
use mgz_models::util::random::SplitMix;
use std::io;

/// Watchpoints cover aligned words of this many bytes.
pub const WORD: u64 = 8;
/// The use is one of this many accesses directly after the stop. Source: Chosen.
const ACCESSES_AFTER_STOP: u64 = 16;
/// Source: Chosen.
const MAX_STEPS_TO_USE: u64 = 200;
/// Maximum number of hits of one sample that are no reuses. Then it is given up, since each hit is
/// a stop. Source: Chosen.
const MAX_OTHER_HITS: u32 = 256;

/// Loads and stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// Loads.
    pub loads: u64,
    /// Stores.
    pub stores: u64,
}

impl Accesses {
    /// Both.
    pub fn all(self) -> u64 {
        self.loads + self.stores
    }

    fn add(self, other: Accesses) -> Accesses {
        Accesses {
            loads: self.loads + other.loads,
            stores: self.stores + other.stores,
        }
    }

    fn less(self, other: Accesses) -> Accesses {
        Accesses {
            loads: self.loads.saturating_sub(other.loads),
            stores: self.stores.saturating_sub(other.stores),
        }
    }
}

/// A thread's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Accesses by the PMU; `None` where nothing counts them.
    pub accesses: Option<Accesses>,
}

/// An access to a watched word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Counters at the hit.
    pub clock: Clock,
    /// General registers after the accessing instruction.
    pub general: [u64; 16],
    /// Address of the next instruction.
    pub ip: u64,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// The instruction has run.
    Done,
    /// Something else came first (a signal of the program, its end): the thread must run before it
    /// can be stepped again.
    Interrupted,
}

/// A stopped thread with its watchpoints.
pub trait Stopped {
    /// Its registers.
    fn registers(&mut self) -> io::Result<Registers>;
    /// Reads its memory. Returns the number of bytes read.
    fn read(&mut self, address: u64, into: &mut [u8]) -> usize;
    /// The call path to its position with these registers; 0 if unknown.
    fn path(&mut self, _at: &Registers) -> u32 {
        0
    }
    /// Runs one instruction.
    fn step(&mut self) -> io::Result<Stepped>;
    /// Pauses or resumes its counters and watchpoints. During stepping they are useless and costly:
    /// each step is two switches, and each of these would write the debug registers (through the
    /// host in a virtual machine).
    fn pause(&mut self, on: bool);
    /// Its counters.
    fn clock(&mut self) -> io::Result<Clock>;
    /// Sets a watchpoint on a word, instead of the former word.
    fn watch(&mut self, slot: usize, word: u64) -> io::Result<()>;
    /// Removes a watchpoint.
    fn unwatch(&mut self, slot: usize);
    /// Hits of watchpoints since the last call, in order. Watchpoints stay on, and each hit stops
    /// the thread.
    fn hits(&mut self) -> Vec<(usize, Hit)>;
}

/// Result of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SampleOutcome {
    /// The reuse came while single-stepped: the distance is exact.
    Near,
    /// A watchpoint saw the reuse.
    Watched,
    /// Its watchpoint was given to a later sample.
    Replaced,
    /// No watchpoint took it.
    Skipped,
    /// Too many hits were no reuses.
    Crowded,
    /// The thread, the program or the recording ended first, or another program was executed.
    Ended,
}

impl SampleOutcome {
    /// The name in the table.
    pub fn name(self) -> &'static str {
        match self {
            SampleOutcome::Near => "near",
            SampleOutcome::Watched => "watched",
            SampleOutcome::Replaced => "replaced",
            SampleOutcome::Skipped => "skipped",
            SampleOutcome::Crowded => "crowded",
            SampleOutcome::Ended => "ended",
        }
    }
}

/// The streams in which a reuse counts. A load's next access and its next load may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CountingStreams {
    /// Among loads as well as among loads and stores.
    Both,
    /// Among loads and stores.
    Accesses,
    /// Among loads.
    Loads,
}

impl CountingStreams {
    /// The name in the table.
    pub fn name(self) -> &'static str {
        match self {
            CountingStreams::Both => "both",
            CountingStreams::Accesses => "accesses",
            CountingStreams::Loads => "loads",
        }
    }
}

/// The observed reuse of a sample. A load whose first reuse was a store has two pairs:
/// [`CountingStreams::Accesses`] and [`CountingStreams::Loads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Number of the sample in its thread.
    pub sample: u64,
    /// The thread's last sample when this one's result was known.
    pub until: u64,
    /// Address of the use.
    pub address: u64,
    /// True if the use is a store.
    pub write: bool,
    /// The streams in which this pair counts.
    pub counts: CountingStreams,
    /// Instruction of the use.
    pub use_ip: u64,
    /// An address inside the instruction of the reuse; 0 if there was none.
    pub reuse_ip: u64,
    /// Call path of the use; 0 if it is not known.
    pub use_path: u32,
    /// Call path of the reuse; 0 if there was none or it is not known.
    pub reuse_path: u32,
    /// Result of the sample.
    pub outcome: SampleOutcome,
    /// Accesses that were single-stepped since the use, up to the reuse, without the implicit ones
    /// of the stack.
    pub stepped: Accesses,
    /// CPU time since the use, without stepping.
    pub cpu_ns: u64,
    /// Accesses since the use counted by the PMU, plus the stepped ones.
    pub counted: Option<Accesses>,
}

/// Totals of a thread's samples, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SamplerSums {
    /// Stops for samples.
    pub stops: u64,
    /// Stops for hits.
    pub hits: u64,
    /// Hits that were no reuses: stores where a load is awaited, and implicit accesses.
    pub other_hits: u64,
    /// Hits whose instruction was not recognised; they count as loads.
    pub unclear: u64,
    /// Stops without a sample: a system call, a signal or too few accesses stood before the use.
    pub no_access: u64,
    /// Watchpoints that the kernel refused.
    pub refused: u64,
    /// Instructions stepped.
    pub steps: u64,
}

/// Cost of stops, ns of the thread's CPU time that its counters see. Ages leave it out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// From setting a watchpoint to a hit by the next instructions.
    pub hit_ns: u64,
    /// From setting a watchpoint to the end of the stop after the hit.
    pub hit_stop_ns: u64,
    /// A stop, without the work in it.
    pub stop_ns: u64,
}

/// Settings of a thread's sampler.
#[derive(Clone, Copy, Debug)]
pub struct SamplerPlan {
    /// Watchpoints.
    pub watchpoints: usize,
    /// Instructions to step behind a use.
    pub near: u64,
    /// Seed of the random choices.
    pub seed: u64,
    /// Costs of stops.
    pub costs: Costs,
}

/// A sample that waits for its reuse.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// [`Pair::counts`] gives the awaited event: an access (for a load, either stream), or a load.
    pair: Pair,
    word: u64,
    /// Counters when the watchpoint was set, with all steps until then.
    since: Clock,
    stepped: Accesses,
    stops: u64,
    hits: u64,
    /// Hits that were no reuses.
    others: u32,
}

/// Effect of an access on a pending sample.
enum Fate {
    /// It is reused.
    Over(CountingStreams),
    /// Its next access is known, and the next load is awaited.
    Half,
    /// It is not reused yet.
    Open,
}

impl Pending {
    fn fate(&self, read: bool, written: bool) -> Fate {
        match self.pair.counts {
            CountingStreams::Both if read => Fate::Over(CountingStreams::Both),
            CountingStreams::Both if written => Fate::Half,
            CountingStreams::Accesses if read || written => Fate::Over(CountingStreams::Accesses),
            CountingStreams::Loads if read => Fate::Over(CountingStreams::Loads),
            _ => Fate::Open,
        }
    }
}

/// Takes the samples of one thread and follows each to its reuse.
pub struct Sampler {
    plan: SamplerPlan,
    reservoir: Reservoir,
    slots: Vec<Option<Pending>>,
    random: SplitMix,
    reader: AccessReader,
    samples: u64,
    /// Accesses stepped so far.
    stepped: Accesses,
    sums: SamplerSums,
    pairs: Vec<Pair>,
}

impl Sampler {
    /// A sampler for a new thread.
    pub fn new(plan: SamplerPlan) -> Sampler {
        Sampler {
            plan,
            reservoir: Reservoir::new(plan.watchpoints, plan.seed),
            slots: vec![None; plan.watchpoints.max(1)],
            random: SplitMix::new(plan.seed ^ 0x5a3d),
            reader: AccessReader::default(),
            samples: 0,
            stepped: Accesses::default(),
            sums: SamplerSums::default(),
            pairs: Vec::new(),
        }
    }

    /// Samples completed since the last call.
    pub fn take_pairs(&mut self) -> Vec<Pair> {
        std::mem::take(&mut self.pairs)
    }

    /// Sums so far.
    pub fn sums(&self) -> SamplerSums {
        self.sums
    }

    /// The thread was stopped for a sample. An error means that it is gone.
    pub fn sample(&mut self, thread: &mut dyn Stopped) -> io::Result<()> {
        self.collect(thread);
        self.sums.stops += 1;
        thread.pause(true);
        let done = self
            .take(thread)
            .and_then(|open| open.map_or(Ok(()), |pending| self.decide(thread, pending)));
        thread.pause(false);
        done
    }

    /// The thread was stopped by a hit.
    pub fn stopped(&mut self, thread: &mut dyn Stopped) {
        self.collect(thread);
        self.sums.hits += 1;
    }

    /// Processes the hits of the watchpoints.
    fn collect(&mut self, thread: &mut dyn Stopped) {
        for (slot, hit) in thread.hits() {
            let (behind, after) = self.hit(thread, slot, &hit);
            let cost = self.plan.costs.hit_ns;
            self.touched(thread, slot, &behind, &after, hit.clock, cost);
        }
    }

    /// Processes a hit: its access to the word, and the registers after it.
    fn hit(&mut self, thread: &mut dyn Stopped, slot: usize, hit: &Hit) -> (Touch, Registers) {
        let word = self
            .slots
            .get(slot)
            .copied()
            .flatten()
            .map_or(0, |p| p.word);
        let (fs, gs) = thread.registers().map_or((0, 0), |r| (r.fs, r.gs));
        let after = Registers {
            general: hit.general,
            rip: hit.ip,
            fs,
            gs,
        };
        let trap = Trap {
            after,
            word,
            bytes: WORD,
            read: &mut |address, into| thread.read(address, into),
        };
        let touch = trap.touch(&mut self.reader).unwrap_or_else(|| {
            self.sums.unclear += 1;
            Touch {
                read: true,
                ..Touch::default()
            }
        });
        // If only the access's target is known, the hit's address is the best estimate.
        let touch = Touch {
            ip: if touch.ip == 0 { hit.ip } else { touch.ip },
            ..touch
        };
        (touch, after)
    }

    /// Processes an access to a watched word: a load, a store, or one that does not count.
    fn touched(
        &mut self,
        thread: &mut dyn Stopped,
        slot: usize,
        how: &Touch,
        stood: &Registers,
        at: Clock,
        cost: u64,
    ) {
        let Some(mut pending) = self.slots.get(slot).copied().flatten() else {
            return;
        };
        // A load comes before the stores of its own instruction.
        let behind = Accesses {
            loads: 0,
            stores: if how.read { how.stores } else { 0 },
        };
        let at = Clock {
            accesses: at.accesses.map(|a| a.less(behind)),
            ..at
        };
        let fate = pending.fate(how.read, how.written);
        let reuse_path = if matches!(fate, Fate::Open) {
            0
        } else {
            thread.path(stood)
        };
        let seen = |counts| Pair {
            outcome: SampleOutcome::Watched,
            reuse_ip: how.ip,
            reuse_path,
            counts,
            ..self.aged(&pending, at, cost)
        };
        match fate {
            Fate::Over(counts) => {
                self.pairs.push(seen(counts));
                self.slots[slot] = None;
                thread.unwatch(slot);
                self.reservoir.reuse(slot, at.cpu_ns, 0);
            }
            Fate::Half => {
                self.pairs.push(seen(CountingStreams::Accesses));
                pending.pair.counts = CountingStreams::Loads;
                self.slots[slot] = Some(pending);
            }
            Fate::Open => {
                self.sums.other_hits += 1;
                pending.others += 1;
                self.slots[slot] = Some(pending);
                if pending.others >= MAX_OTHER_HITS {
                    let pair = self.aged(&pending, at, cost);
                    self.pairs.push(Pair {
                        outcome: SampleOutcome::Crowded,
                        ..pair
                    });
                    self.slots[slot] = None;
                    thread.unwatch(slot);
                    self.reservoir.give_up(slot, at.cpu_ns);
                }
            }
        }
    }

    /// Ends all samples, since the thread, the program or the recording ends.
    pub fn end(&mut self, thread: &mut dyn Stopped) {
        self.collect(thread);
        let now = thread.clock().ok();
        for slot in 0..self.slots.len() {
            if let Some(pending) = self.slots[slot].take() {
                thread.unwatch(slot);
                self.reservoir.give_up(slot, 0);
                self.pairs.push(Pair {
                    outcome: SampleOutcome::Ended,
                    ..self.aged(&pending, now.unwrap_or(pending.since), 0)
                });
            }
        }
    }

    fn aged(&self, pending: &Pending, now: Clock, cost: u64) -> Pair {
        let costs = self.plan.costs;
        let stops = (self.sums.stops - pending.stops) * costs.stop_ns
            + (self.sums.hits - pending.hits) * costs.hit_stop_ns;
        let stepped = pending.pair.stepped.add(self.stepped.less(pending.stepped));
        Pair {
            stepped,
            cpu_ns: now
                .cpu_ns
                .saturating_sub(pending.since.cpu_ns)
                .saturating_sub(cost + stops),
            counted: now
                .accesses
                .zip(pending.since.accesses)
                .map(|(now, then)| now.less(then).add(stepped)),
            until: self.samples,
            ..pending.pair
        }
    }

    /// Steps to a use and on to near reuses. Returns the sample if it is still open.
    fn take(&mut self, thread: &mut dyn Stopped) -> io::Result<Option<Pending>> {
        let mut open = None;
        let ended = self.steps(thread, &mut open);
        match (ended, open) {
            (Ok(()), Some(pending)) => Ok(Some(pending)),
            (Ok(()), None) => Ok(None),
            (Err(error), open) => {
                // The thread is gone.
                match open {
                    Some(pending) => self.pairs.push(Pair {
                        counted: Some(pending.pair.stepped),
                        ..pending.pair
                    }),
                    None => self.sums.no_access += 1,
                }
                Err(error)
            }
        }
    }

    fn steps(&mut self, thread: &mut dyn Stopped, open: &mut Option<Pending>) -> io::Result<()> {
        let mut skip = self.random.below(ACCESSES_AFTER_STOP);
        let mut left = MAX_STEPS_TO_USE;
        let mut used = false;
        while left > 0 {
            left -= 1;
            let registers = thread.registers()?;
            let mut bytes = [0; MAX_INSTRUCTION_BYTES];
            let got = thread.read(registers.rip, &mut bytes);
            let step = self.reader.step(&bytes[..got], &registers);
            if step.opaque {
                break;
            }
            // Only watchpoints see the addresses of a gather.
            let blind = step.gathers && self.slots.iter().any(Option::is_some);
            if blind {
                thread.pause(false);
            }
            if thread.step()? == Stepped::Interrupted {
                break;
            }
            self.sums.steps += 1;
            if blind {
                thread.pause(true);
                let now = thread.clock()?;
                for (slot, _) in thread.hits() {
                    self.touched(
                        thread,
                        slot,
                        &Touch {
                            read: true,
                            ip: registers.rip,
                            ..Touch::default()
                        },
                        &registers,
                        now,
                        0,
                    );
                }
            }
            // After a reuse, the rest of the instruction still counts.
            let mut over = false;
            for part in parts(&step) {
                self.stepped = self.stepped.add(part.one());
                if let Some(pending) = open {
                    pending.pair.stepped = pending.pair.stepped.add(part.one());
                    if part.touches(pending.word) {
                        let path = thread.path(&registers);
                        over = self.near(open, &part, registers.rip, path);
                    }
                } else if !used {
                    if skip == 0 {
                        *open = Some(self.begin(&part, registers.rip, thread.path(&registers)));
                        left = self.plan.near;
                        used = true;
                    }
                    skip = skip.saturating_sub(1);
                }
                self.stepped_on_watched(thread, &part, &registers)?;
            }
            if over {
                return Ok(());
            }
        }
        self.sums.no_access += u64::from(!used);
        Ok(())
    }

    /// Begins a sample.
    fn begin(&mut self, part: &SingleAccess, ip: u64, path: u32) -> Pending {
        self.samples += 1;
        let pair = Pair {
            sample: self.samples,
            until: self.samples,
            address: part.address,
            write: part.written,
            counts: if part.written {
                CountingStreams::Accesses
            } else {
                CountingStreams::Both
            },
            use_ip: ip,
            reuse_ip: 0,
            use_path: path,
            reuse_path: 0,
            outcome: SampleOutcome::Ended,
            stepped: Accesses::default(),
            cpu_ns: 0,
            counted: None,
        };
        Pending {
            pair,
            word: part.address & !(WORD - 1),
            since: Clock::default(),
            stepped: Accesses::default(),
            stops: 0,
            hits: 0,
            others: 0,
        }
    }

    /// Processes a stepped access to the open sample's word. True if it ends the sample.
    fn near(
        &mut self,
        open: &mut Option<Pending>,
        part: &SingleAccess,
        ip: u64,
        path: u32,
    ) -> bool {
        let Some(pending) = open else { return false };
        let pair = Pair {
            outcome: SampleOutcome::Near,
            reuse_ip: ip,
            reuse_path: path,
            counted: Some(pending.pair.stepped),
            ..pending.pair
        };
        match pending.fate(!part.written, part.written) {
            Fate::Over(counts) => {
                self.pairs.push(Pair { counts, ..pair });
                *open = None;
                true
            }
            Fate::Half => {
                self.pairs.push(Pair {
                    counts: CountingStreams::Accesses,
                    ..pair
                });
                pending.pair.counts = CountingStreams::Loads;
                false
            }
            Fate::Open => false,
        }
    }

    /// Processes accesses of a stepped instruction to words of earlier samples.
    fn stepped_on_watched(
        &mut self,
        thread: &mut dyn Stopped,
        part: &SingleAccess,
        stood: &Registers,
    ) -> io::Result<()> {
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_some_and(|p| part.touches(p.word)) {
                let now = thread.clock()?;
                self.touched(
                    thread,
                    slot,
                    &Touch {
                        read: !part.written,
                        written: part.written,
                        stores: 0,
                        ip: stood.rip,
                    },
                    stood,
                    now,
                    0,
                );
            }
        }
        Ok(())
    }

    /// Lets the reservoir decide about a sample without a near reuse.
    fn decide(&mut self, thread: &mut dyn Stopped, mut pending: Pending) -> io::Result<()> {
        let now = thread.clock()?;
        pending.pair.counted = now.accesses.map(|_| pending.pair.stepped);
        pending = Pending {
            since: now,
            stepped: self.stepped,
            stops: self.sums.stops,
            hits: self.sums.hits,
            ..pending
        };
        match self.reservoir.sample(now.cpu_ns, pending.word, 0) {
            Decision::Skip => self.pairs.push(Pair {
                outcome: SampleOutcome::Skipped,
                ..pending.pair
            }),
            Decision::Arm(slot) => {
                if let Some(before) = self.slots[slot].take() {
                    self.pairs.push(Pair {
                        outcome: SampleOutcome::Replaced,
                        ..self.aged(&before, now, 0)
                    });
                }
                match thread.watch(slot, pending.word) {
                    Ok(()) => self.slots[slot] = Some(pending),
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Err(error),
                    Err(_) => {
                        self.sums.refused += 1;
                        thread.unwatch(slot);
                        self.reservoir.give_up(slot, now.cpu_ns);
                        self.pairs.push(Pair {
                            outcome: SampleOutcome::Skipped,
                            ..pending.pair
                        });
                    }
                }
            }
        }
        Ok(())
    }
}

/// One load or one store of an instruction.
struct SingleAccess {
    address: u64,
    size: u64,
    written: bool,
}

impl SingleAccess {
    fn one(&self) -> Accesses {
        Accesses {
            loads: u64::from(!self.written),
            stores: u64::from(self.written),
        }
    }

    fn touches(&self, word: u64) -> bool {
        crate::watch::access::MemoryAccess {
            address: self.address,
            size: self.size,
            read: false,
            written: false,
            implicit: false,
        }
        .touches(word, WORD)
    }
}

/// Loads, then stores, of an instruction, without implicit ones.
fn parts(step: &NextInsn) -> Vec<SingleAccess> {
    let of = |written: bool| {
        step.accesses
            .iter()
            .filter(move |a| !a.implicit && if written { a.written } else { a.read })
            .map(move |a| SingleAccess {
                address: a.address,
                size: a.size,
                written,
            })
    };
    of(false).chain(of(true)).collect()
}

//! What is done with one thread: from a sample to its reuse.
//!
//! A sample begins where a timer or a counter has stopped the thread. The next accesses are single-stepped: one of the first
//! [`SPREAD`] is the use (stops crowd behind slow instructions; the draw evens that out), and the steps that follow find near reuses with their
//! exact distances. What is not reused by then goes to the reservoir, which decides whether one of the hardware
//! watchpoints takes it; from there on the thread runs at its own speed. Time in which a thread is stepped is left out of all ages, and
//! what it accesses meanwhile is counted.

use super::access::{Access, LONGEST, Reader, Registers, Step};
use mgz_models::random::Random;
use mgz_models::rdx::{Decision, Reservoir};
use std::io;

/// Watchpoints cover aligned words of this many bytes.
pub const WORD: u64 = 8;
/// The use is one of so many accesses behind the stop.
const SPREAD: u64 = 16;
/// Steps to the use at most.
const PATIENCE: u64 = 200;

/// A thread's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Loads and stores by the PMU; `None` where nothing counts them.
    pub accesses: Option<u64>,
}

/// A watched word was accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Counters then.
    pub clock: Clock,
    /// Behind the instruction that accessed it.
    pub ip: u64,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// The instruction has run.
    Done,
    /// Something else came (a signal of the program, its end): the thread must go on before it can be stepped again.
    Interrupted,
}

/// A thread that stands still, and its watchpoints.
pub trait Stopped {
    /// Its registers.
    fn registers(&mut self) -> io::Result<Registers>;
    /// Its memory; returns how much could be read.
    fn read(&mut self, address: u64, into: &mut [u8]) -> usize;
    /// Runs one instruction.
    fn step(&mut self) -> io::Result<Stepped>;
    /// Its counters.
    fn clock(&mut self) -> io::Result<Clock>;
    /// Sets a watchpoint on a word, in place of what it watched.
    fn watch(&mut self, slot: usize, word: u64) -> io::Result<()>;
    /// Takes a watchpoint off.
    fn unwatch(&mut self, slot: usize);
    /// First hits of watchpoints since the last call. A watchpoint that was hit is off.
    fn hits(&mut self) -> Vec<(usize, Hit)>;
}

/// How a sample ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Reused while single-stepped: the distance is exact.
    Near,
    /// A watchpoint saw the reuse.
    Watched,
    /// Its watchpoint was given to a later sample.
    Replaced,
    /// No watchpoint took it.
    Skipped,
    /// The thread, the program or the recording ended first, or another program was executed.
    Ended,
}

impl Outcome {
    /// As it stands in the table.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Near => "near",
            Outcome::Watched => "watched",
            Outcome::Replaced => "replaced",
            Outcome::Skipped => "skipped",
            Outcome::Ended => "ended",
        }
    }
}

/// What was seen of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Number in the thread.
    pub sample: u64,
    /// The thread's last sample when this one's fate was known.
    pub until: u64,
    /// Address of the use.
    pub address: u64,
    /// Whether the use wrote.
    pub write: bool,
    /// Instruction of the use.
    pub use_ip: u64,
    /// An address inside the instruction of the reuse; 0 if there was none.
    pub reuse_ip: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Loads that were single-stepped since the use, up to the reuse; implicit stack reads are left out.
    pub stepped_loads: u64,
    /// The same of stores.
    pub stepped_stores: u64,
    /// CPU time since the use in which the thread was not stepped.
    pub cpu_ns: u64,
    /// Accesses since the use by the PMU, those that were stepped included.
    pub counted: Option<u64>,
}

/// What a thread's samples came to, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Stops.
    pub stops: u64,
    /// Stops without a sample: a system call, a signal or too few accesses stood before the use.
    pub no_access: u64,
    /// Watchpoints that the kernel refused.
    pub refused: u64,
    /// Instructions stepped.
    pub steps: u64,
}

/// What stops cost, ns of the thread's CPU time; left out of ages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// From setting a watchpoint to a hit by the very next instructions.
    pub hit_ns: u64,
    /// A stop, apart from what is done in it.
    pub stop_ns: u64,
}

/// Settings of a thread's sampler.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Watchpoints.
    pub watchpoints: usize,
    /// Instructions to step behind a use.
    pub near: u64,
    /// Seed of the coins.
    pub seed: u64,
    /// Costs of stops.
    pub costs: Costs,
}

/// A sample whose reuse is awaited.
#[derive(Clone, Copy, Debug)]
struct Pending {
    pair: Pair,
    word: u64,
    /// Counters when the watchpoint was set, with all steps until then.
    since: Clock,
    loads: u64,
    stores: u64,
    lost_ns: u64,
    stops: u64,
}

/// See the module's text.
pub struct Sampler {
    plan: Plan,
    reservoir: Reservoir,
    slots: Vec<Option<Pending>>,
    random: Random,
    reader: Reader,
    samples: u64,
    /// Loads and stores stepped so far.
    loads: u64,
    stores: u64,
    /// CPU time of stops so far.
    lost_ns: u64,
    /// Counters at the beginning of this stop.
    begun: Clock,
    counts: Counts,
    pairs: Vec<Pair>,
}

impl Sampler {
    /// For a thread that begins.
    pub fn new(plan: Plan) -> Sampler {
        let reservoir = Reservoir::new(plan.watchpoints, plan.seed);
        let slots = vec![None; plan.watchpoints.max(1)];
        Sampler { plan, reservoir, slots, random: Random::new(plan.seed ^ 0x5a3d), reader: Reader::default(), samples: 0, loads: 0, stores: 0, lost_ns: 0, begun: Clock::default(), counts: Counts::default(), pairs: Vec::new() }
    }

    /// Samples whose fate is known since the last call.
    pub fn take_pairs(&mut self) -> Vec<Pair> {
        std::mem::take(&mut self.pairs)
    }

    /// Sums so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// CPU time of stops so far.
    pub fn lost_ns(&self) -> u64 {
        self.lost_ns
    }

    /// The thread was stopped for a sample. An error: it is gone.
    pub fn sample(&mut self, thread: &mut dyn Stopped) -> io::Result<()> {
        self.begun = thread.clock()?;
        self.collect(thread);
        self.counts.stops += 1;
        let taken = self.take(thread);
        // What the steps do not see (gathers): in their time.
        for (slot, hit) in thread.hits() {
            self.settle(slot, hit.ip.wrapping_sub(1), Clock { cpu_ns: self.begun.cpu_ns, ..hit.clock }, 0);
        }
        let end = thread.clock()?;
        self.lost_ns += end.cpu_ns.saturating_sub(self.begun.cpu_ns);
        if let Some(pending) = taken? {
            self.decide(thread, pending, end)?;
        }
        Ok(())
    }

    /// Takes in what the watchpoints have seen.
    pub fn collect(&mut self, thread: &mut dyn Stopped) {
        for (slot, hit) in thread.hits() {
            // The trap comes behind the instruction.
            self.settle(slot, hit.ip.wrapping_sub(1), hit.clock, self.plan.costs.hit_ns);
        }
    }

    fn settle(&mut self, slot: usize, reuse_ip: u64, at: Clock, cost: u64) {
        if let Some(pending) = self.slots.get_mut(slot).and_then(Option::take) {
            self.reservoir.reuse(slot, at.cpu_ns, 0);
            self.pairs.push(Pair { outcome: Outcome::Watched, reuse_ip, ..self.aged(&pending, at, cost) });
        }
    }

    /// The end of all watching: of the thread, of its program, of the recording.
    pub fn end(&mut self, thread: &mut dyn Stopped) {
        self.collect(thread);
        let now = thread.clock().ok();
        for slot in 0..self.slots.len() {
            if let Some(pending) = self.slots[slot].take() {
                thread.unwatch(slot);
                self.reservoir.give_up(slot, 0);
                self.pairs.push(Pair { outcome: Outcome::Ended, ..self.aged(&pending, now.unwrap_or(pending.since), 0) });
            }
        }
    }

    fn aged(&self, pending: &Pending, now: Clock, cost: u64) -> Pair {
        let stops = (self.counts.stops - pending.stops) * self.plan.costs.stop_ns;
        let spent = now.cpu_ns.saturating_sub(pending.since.cpu_ns);
        let counted = now.accesses.zip(pending.since.accesses).map(|(now, then)| now.saturating_sub(then) + pending.pair.counted.unwrap_or(0));
        Pair {
            stepped_loads: pending.pair.stepped_loads + self.loads - pending.loads,
            stepped_stores: pending.pair.stepped_stores + self.stores - pending.stores,
            cpu_ns: spent.saturating_sub(self.lost_ns - pending.lost_ns).saturating_sub(cost + stops),
            counted,
            until: self.samples,
            ..pending.pair
        }
    }

    /// Steps to a use and on to near reuses. Gives a sample that is still open.
    fn take(&mut self, thread: &mut dyn Stopped) -> io::Result<Option<Pending>> {
        let mut open = None;
        let ended = self.steps(thread, &mut open);
        match (ended, open) {
            (Ok(()), Some(pending)) => Ok(Some(pending)),
            (Ok(()), None) => Ok(None),
            (Err(error), open) => {
                // The thread has gone.
                match open {
                    Some(pending) => self.pairs.push(Pair { counted: Some(pending.pair.stepped_loads + pending.pair.stepped_stores), ..pending.pair }),
                    None => self.counts.no_access += 1,
                }
                Err(error)
            }
        }
    }

    fn steps(&mut self, thread: &mut dyn Stopped, open: &mut Option<Pending>) -> io::Result<()> {
        let mut skip = self.random.below(SPREAD);
        let mut left = PATIENCE;
        while left > 0 {
            left -= 1;
            let registers = thread.registers()?;
            let mut bytes = [0; LONGEST];
            let got = thread.read(registers.rip, &mut bytes);
            let step = self.reader.step(&bytes[..got], &registers);
            if step.opaque {
                break;
            }
            let chosen = if open.is_none() { self.choose(&step, &mut skip) } else { None };
            if thread.step()? == Stepped::Interrupted {
                break;
            }
            self.counts.steps += 1;
            let explicit = || step.accesses.iter().filter(|a| !a.implicit);
            let (loads, stores) = (explicit().filter(|a| a.read).count() as u64, explicit().filter(|a| a.written).count() as u64);
            self.loads += loads;
            self.stores += stores;
            self.stepped_on_watched(thread, &step, registers.rip);
            if let Some(pending) = open {
                pending.pair.stepped_loads += loads;
                pending.pair.stepped_stores += stores;
                if touches(&step, pending.word) {
                    let pair = pending.pair;
                    let counted = Some(pair.stepped_loads + pair.stepped_stores);
                    self.pairs.push(Pair { outcome: Outcome::Near, reuse_ip: registers.rip, counted, ..pair });
                    *open = None;
                    return Ok(());
                }
            } else if let Some(access) = chosen {
                self.samples += 1;
                let pair = Pair {
                    sample: self.samples,
                    until: self.samples,
                    address: access.address,
                    write: access.written,
                    use_ip: registers.rip,
                    reuse_ip: 0,
                    outcome: Outcome::Ended,
                    stepped_loads: 0,
                    stepped_stores: 0,
                    cpu_ns: 0,
                    counted: None,
                };
                *open = Some(Pending { pair, word: access.address & !(WORD - 1), since: Clock::default(), loads: 0, stores: 0, lost_ns: 0, stops: 0 });
                left = self.plan.near;
            }
        }
        self.counts.no_access += u64::from(open.is_none());
        Ok(())
    }

    /// The use, if it is among the accesses of this instruction.
    fn choose(&mut self, step: &Step, skip: &mut u64) -> Option<Access> {
        let explicit = step.accesses.iter().filter(|a| !a.implicit);
        for access in explicit {
            if *skip == 0 {
                return Some(*access);
            }
            *skip -= 1;
        }
        None
    }

    /// Words of earlier samples that a stepped instruction accesses.
    fn stepped_on_watched(&mut self, thread: &mut dyn Stopped, step: &Step, ip: u64) {
        for slot in 0..self.slots.len() {
            let Some(pending) = self.slots[slot].filter(|p| touches(step, p.word)) else { continue };
            thread.unwatch(slot);
            // Time stands still while the thread is stepped.
            let accesses = thread.clock().map_or(pending.since.accesses, |now| now.accesses);
            self.settle(slot, ip, Clock { cpu_ns: self.begun.cpu_ns, accesses }, 0);
        }
    }

    /// The reservoir's decision about a sample that was not reused near its use.
    fn decide(&mut self, thread: &mut dyn Stopped, mut pending: Pending, now: Clock) -> io::Result<()> {
        pending.pair.counted = now.accesses.map(|_| pending.pair.stepped_loads + pending.pair.stepped_stores);
        pending = Pending { since: now, loads: self.loads, stores: self.stores, lost_ns: self.lost_ns, stops: self.counts.stops, ..pending };
        match self.reservoir.sample(now.cpu_ns, pending.word, 0) {
            Decision::Skip => self.pairs.push(Pair { outcome: Outcome::Skipped, ..pending.pair }),
            Decision::Arm(slot) => {
                if let Some(before) = self.slots[slot].take() {
                    self.pairs.push(Pair { outcome: Outcome::Replaced, ..self.aged(&before, now, 0) });
                }
                match thread.watch(slot, pending.word) {
                    Ok(()) => self.slots[slot] = Some(pending),
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Err(error),
                    Err(_) => {
                        self.counts.refused += 1;
                        thread.unwatch(slot);
                        self.reservoir.give_up(slot, now.cpu_ns);
                        self.pairs.push(Pair { outcome: Outcome::Skipped, ..pending.pair });
                    }
                }
            }
        }
        Ok(())
    }
}

fn touches(step: &Step, word: u64) -> bool {
    step.accesses.iter().any(|a| a.touches(word, WORD))
}

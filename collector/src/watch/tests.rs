//! The sampler on a machine that we can see through: each access takes one nanosecond, stops take many.

use super::access::Registers;
use super::sampler::*;
use mgz_models::random::Random;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io;

/// Runs `mov rax, [rbx]` for ever, with the addresses of a list.
struct Fake {
    addresses: Vec<u64>,
    at: usize,
    cpu_ns: u64,
    /// What a step adds to the thread's CPU time.
    step_ns: u64,
    counting: bool,
    slots: BTreeMap<usize, u64>,
    hits: Vec<(usize, Hit)>,
    refuse: bool,
    /// A step that is interrupted.
    interrupt_at: Option<usize>,
}

const LOAD: [u8; 3] = [0x48, 0x8b, 0x03];

fn ip(at: usize) -> u64 {
    0x1000 + 3 * at as u64
}

impl Fake {
    fn new(addresses: Vec<u64>) -> Fake {
        Fake { addresses, at: 0, cpu_ns: 0, step_ns: 1000, counting: true, slots: BTreeMap::new(), hits: Vec::new(), refuse: false, interrupt_at: None }
    }

    fn access(&mut self) {
        let address = self.addresses[self.at];
        self.at += 1;
        self.cpu_ns += 1;
        let clock = self.now();
        let fired: Vec<usize> = self.slots.iter().filter(|(_, word)| **word == address & !7).map(|(slot, _)| *slot).collect();
        for slot in fired {
            self.slots.remove(&slot);
            self.hits.push((slot, Hit { clock, ip: ip(self.at) }));
        }
    }

    fn now(&self) -> Clock {
        Clock { cpu_ns: self.cpu_ns, accesses: self.counting.then_some(self.at as u64) }
    }

    fn run(&mut self, accesses: usize) -> bool {
        (0..accesses).all(|_| {
            let go = self.at + 1 < self.addresses.len();
            if go {
                self.access();
            }
            go
        })
    }
}

impl Stopped for Fake {
    fn registers(&mut self) -> io::Result<Registers> {
        let mut registers = Registers { rip: ip(self.at), ..Registers::default() };
        registers.general[3] = *self.addresses.get(self.at).ok_or(io::ErrorKind::NotFound)?;
        Ok(registers)
    }
    fn read(&mut self, _: u64, into: &mut [u8]) -> usize {
        into[..3].copy_from_slice(&LOAD);
        3
    }
    fn step(&mut self) -> io::Result<Stepped> {
        if self.interrupt_at == Some(self.at) {
            return Ok(Stepped::Interrupted);
        }
        self.access();
        self.cpu_ns += self.step_ns;
        Ok(Stepped::Done)
    }
    fn clock(&mut self) -> io::Result<Clock> {
        Ok(self.now())
    }
    fn watch(&mut self, slot: usize, word: u64) -> io::Result<()> {
        if self.refuse {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.slots.insert(slot, word);
        Ok(())
    }
    fn unwatch(&mut self, slot: usize) {
        self.slots.remove(&slot);
    }
    fn hits(&mut self) -> Vec<(usize, Hit)> {
        std::mem::take(&mut self.hits)
    }
}

fn plan(watchpoints: usize, near: u64, seed: u64) -> Plan {
    Plan { watchpoints, near, seed, costs: Costs::default() }
}

/// Runs to the end with stops every `gap` accesses. Gives the pairs and the sampler.
fn watched(fake: &mut Fake, plan: Plan, gap: usize) -> (Vec<Pair>, Sampler) {
    let mut sampler = Sampler::new(plan);
    while fake.run(gap) {
        if sampler.sample(fake).is_err() {
            break;
        }
    }
    sampler.end(fake);
    (sampler.take_pairs(), sampler)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_distance_is_that_of_the_next_access_to_the_word(
        seed: u64, words in 1u64..200, gap in 1usize..300, watchpoints in 1usize..5, near in 0u64..40,
    ) {
        let mut random = Random::new(seed);
        let addresses: Vec<u64> = (0..4000).map(|_| 0x10_0000 + random.below(words) * 8 + random.below(8)).collect();
        // Loads of one byte would not cross words; `mov rax` reads eight, so keep to aligned ones.
        let addresses: Vec<u64> = addresses.iter().map(|a| a & !7).collect();
        let mut fake = Fake::new(addresses.clone());
        let (pairs, sampler) = watched(&mut fake, plan(watchpoints, near, seed), gap);
        let counts = sampler.counts();
        prop_assert_eq!(pairs.len() as u64 + counts.no_access, counts.stops);
        for pair in pairs {
            let used = ((pair.use_ip - 0x1000) / 3) as usize;
            prop_assert_eq!(addresses[used], pair.address);
            let next = (used + 1..addresses.len()).find(|&i| addresses[i] == addresses[used]);
            match pair.outcome {
                Outcome::Near | Outcome::Watched => {
                    let next = next.unwrap();
                    prop_assert_eq!(((pair.reuse_ip - 0x1000) / 3) as usize, next, "{:?}", pair);
                    prop_assert_eq!(pair.counted, Some((next - used) as u64), "{:?}", pair);
                    // Without a counter: what was stepped, and a nanosecond for each other access.
                    prop_assert_eq!(pair.stepped_loads + pair.cpu_ns, (next - used) as u64, "{:?}", pair);
                }
                _ => {
                    let age = pair.counted.unwrap();
                    prop_assert!(next.is_none_or(|n| (n - used) as u64 > age), "it was reused before: {:?}", pair);
                    prop_assert_eq!(pair.reuse_ip, 0);
                }
            }
        }
    }
}

#[test]
fn a_near_reuse_takes_no_watchpoint() {
    let mut fake = Fake::new((0..1000).map(|i| 0x1000 + i % 4 * 8).collect());
    let (pairs, _) = watched(&mut fake, plan(1, 10, 3), 50);
    assert!(pairs.iter().all(|p| p.outcome == Outcome::Near && p.counted == Some(4)), "{pairs:?}");
    assert!(pairs.len() > 10);
}

#[test]
fn the_example_of_the_paper_live() {
    // a1 b1 c1 b2 a2, with the use drawn among the first accesses: whatever is drawn has its distance.
    let (a, b, c) = (0x100, 0x200, 0x300);
    let mut seen = BTreeMap::new();
    for seed in 0..200 {
        let mut fake = Fake::new(vec![a, b, c, b, a, 0x400]);
        let mut sampler = Sampler::new(plan(4, 0, seed));
        sampler.sample(&mut fake).ok();
        fake.run(10);
        sampler.end(&mut fake);
        for pair in sampler.take_pairs() {
            seen.entry((pair.address, (pair.use_ip - 0x1000) / 3)).or_insert((pair.outcome, pair.counted));
        }
    }
    assert_eq!(seen.get(&(a, 0)), Some(&(Outcome::Watched, Some(4))));
    assert_eq!(seen.get(&(b, 1)), Some(&(Outcome::Watched, Some(2))));
    assert_eq!(seen.get(&(c, 2)).map(|s| s.0), Some(Outcome::Ended));
}

#[test]
fn without_counters_time_is_left() {
    let mut fake = Fake { counting: false, ..Fake::new((0..10_000).map(|i| 0x1000 + i % 500 * 8).collect()) };
    let (pairs, sampler) = watched(&mut fake, plan(2, 20, 1), 700);
    let reused: Vec<&Pair> = pairs.iter().filter(|p| p.outcome == Outcome::Watched).collect();
    assert!(reused.len() > 3);
    assert!(reused.iter().all(|p| p.counted.is_none() && p.stepped_loads + p.cpu_ns == 500), "{reused:?}");
    assert!(sampler.lost_ns() >= 1000 * sampler.counts().steps, "steps are left out of the time");
}

#[test]
fn refused_watchpoints_and_interrupted_steps_are_counted() {
    let addresses: Vec<u64> = (0..2000).map(|i| 0x1000 + i * 8).collect();
    let mut fake = Fake { refuse: true, ..Fake::new(addresses.clone()) };
    let (pairs, sampler) = watched(&mut fake, plan(4, 5, 1), 100);
    assert_eq!(sampler.counts().refused, pairs.len() as u64);
    assert!(pairs.iter().all(|p| p.outcome == Outcome::Skipped));
    let mut fake = Fake { interrupt_at: Some(100), ..Fake::new(addresses) };
    fake.run(100);
    let mut sampler = Sampler::new(plan(4, 5, 1));
    sampler.sample(&mut fake).unwrap();
    assert_eq!((sampler.counts().no_access, sampler.take_pairs().len()), (1, 0));
}

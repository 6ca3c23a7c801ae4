//! The sampler on a simulated machine: each access takes one nanosecond, and stops take many.

use crate::watch::access::{AccessReader, Registers};
use crate::watch::sampler::*;
use crate::watch::trap_decode::Trap;
use mgz_models::util::random::SplitMix;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io;

/// Effect of a fake program's instruction on the word at rbx, or on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Load,
    Store,
    /// A load and a store.
    Add,
    Push,
    Pop,
}

impl Kind {
    /// Code of four bytes.
    fn code(self) -> [u8; 4] {
        match self {
            Kind::Load => [0x48, 0x8b, 0x43, 0],
            Kind::Store => [0x48, 0x89, 0x43, 0],
            Kind::Add => [0x48, 0x01, 0x43, 0],
            // The prefixes have no effect.
            Kind::Push => [0x3e, 0x48, 0xff, 0xf0],
            Kind::Pop => [0x3e, 0x48, 0x8f, 0xc0],
        }
    }

    fn parts(self) -> &'static [bool] {
        match self {
            Kind::Load => &[false],
            Kind::Store => &[true],
            Kind::Add => &[false, true],
            Kind::Push | Kind::Pop => &[],
        }
    }
}

/// Runs a list of instructions.
struct Fake {
    program: Vec<(u64, Kind)>,
    at: usize,
    accesses: Accesses,
    cpu_ns: u64,
    /// CPU time that a step adds to the thread.
    step_ns: u64,
    counting: bool,
    paused: bool,
    slots: BTreeMap<usize, u64>,
    hits: Vec<(usize, Hit)>,
    refuse: bool,
    /// Number of the step to interrupt.
    interrupt_at: Option<usize>,
}

const CODE: u64 = 0x1000;
/// An address that the programs here do not access otherwise.
const STACK: u64 = 0x7f_0000;

fn ip(at: usize) -> u64 {
    CODE + 4 * at as u64
}

impl Fake {
    fn new(addresses: Vec<u64>) -> Fake {
        Fake::of(addresses.into_iter().map(|a| (a, Kind::Load)).collect())
    }

    fn of(program: Vec<(u64, Kind)>) -> Fake {
        Fake {
            program,
            at: 0,
            accesses: Accesses::default(),
            cpu_ns: 0,
            step_ns: 1000,
            counting: true,
            paused: false,
            slots: BTreeMap::new(),
            hits: Vec::new(),
            refuse: false,
            interrupt_at: None,
        }
    }

    /// Registers before or after the current instruction.
    fn general(&self, behind: bool) -> [u64; 16] {
        let (address, kind) = self.program[self.at];
        let mut general = [0; 16];
        general[3] = address;
        general[4] = match (kind, behind) {
            (Kind::Push, false) | (Kind::Pop, true) => address + 8,
            (Kind::Push, true) | (Kind::Pop, false) => address,
            _ => STACK,
        };
        general
    }

    fn access(&mut self) {
        let (address, kind) = self.program[self.at];
        let general = self.general(true);
        self.at += 1;
        if self.paused {
            return;
        }
        self.cpu_ns += 1;
        for &written in kind.parts() {
            if written {
                self.accesses.stores += 1
            } else {
                self.accesses.loads += 1
            }
        }
        let clock = self.now();
        let hit = Hit {
            clock,
            general,
            ip: ip(self.at),
        };
        self.hits.extend(
            self.slots
                .iter()
                .filter(|(_, word)| **word == address & !7)
                .map(|(slot, _)| (*slot, hit)),
        );
    }

    fn now(&self) -> Clock {
        Clock {
            cpu_ns: self.cpu_ns,
            accesses: self.counting.then_some(self.accesses),
        }
    }

    fn run(&mut self, sampler: &mut Sampler, accesses: usize) -> bool {
        (0..accesses).all(|_| {
            let go = self.at + 1 < self.program.len();
            if go {
                self.access();
                if !self.hits.is_empty() {
                    sampler.stopped(self);
                }
            }
            go
        })
    }
}

impl Stopped for Fake {
    fn registers(&mut self) -> io::Result<Registers> {
        if self.at >= self.program.len() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Registers {
            rip: ip(self.at),
            general: self.general(false),
            ..Registers::default()
        })
    }
    fn read(&mut self, address: u64, into: &mut [u8]) -> usize {
        let byte = |address: u64| {
            let (at, byte) = (address.checked_sub(CODE)? / 4, address % 4);
            Some(self.program.get(at as usize)?.1.code()[byte as usize])
        };
        (0..into.len())
            .take_while(|&i| byte(address + i as u64).map(|b| into[i] = b).is_some())
            .count()
    }
    fn step(&mut self) -> io::Result<Stepped> {
        if self.interrupt_at == Some(self.at) {
            return Ok(Stepped::Interrupted);
        }
        self.access();
        if !self.paused {
            self.cpu_ns += self.step_ns;
        }
        Ok(Stepped::Done)
    }
    fn pause(&mut self, on: bool) {
        self.paused = on;
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

fn plan(watchpoints: usize, near: u64, seed: u64) -> SamplerPlan {
    SamplerPlan {
        watchpoints,
        near,
        seed,
        costs: Costs::default(),
    }
}

/// Runs to the end with stops every `gap` accesses. Returns the pairs and the sampler.
fn watched(fake: &mut Fake, plan: SamplerPlan, gap: usize) -> (Vec<Pair>, Sampler) {
    let mut sampler = Sampler::new(plan);
    while fake.run(&mut sampler, gap) {
        if sampler.sample(fake).is_err() {
            break;
        }
    }
    sampler.end(fake);
    (sampler.take_pairs(), sampler)
}

/// Accesses of a program in order: instruction, word, whether it is a store.
fn listed(program: &[(u64, Kind)]) -> Vec<(usize, u64, bool)> {
    program
        .iter()
        .enumerate()
        .flat_map(|(i, &(address, kind))| {
            kind.parts()
                .iter()
                .map(move |&written| (i, address, written))
        })
        .collect()
}

fn at(ip: u64) -> usize {
    ((ip - CODE) / 4) as usize
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_distance_is_that_of_the_next_access_and_of_the_next_load(
        seed: u64, words in 1u64..200, gap in 1usize..300, watchpoints in 1usize..5, near in 0u64..40, loads in 0u64..9,
    ) {
        let mut random = SplitMix::new(seed);
        let program: Vec<(u64, Kind)> = (0..4000)
            .map(|_| {
                let kind = if random.below(8) < loads { Kind::Load } else { [Kind::Store, Kind::Add, Kind::Push, Kind::Pop][random.below(4) as usize] };
                (0x10_0000 + random.below(words) * 8, kind)
            })
            .collect();
        let list = listed(&program);
        let mut fake = Fake::of(program.clone());
        let (pairs, sampler) = watched(&mut fake, plan(watchpoints, near, seed), gap);
        let sums = sampler.sums();
        prop_assert_eq!(pairs.iter().filter(|p| p.counts != CountingStreams::Loads).count() as u64 + sums.no_access, sums.stops);
        prop_assert_eq!(sums.unclear, 0);
        let mut halves: BTreeMap<u64, i32> = BTreeMap::new();
        for pair in pairs {
            let used = list.iter().position(|&(i, _, written)| i == at(pair.use_ip) && written == pair.write).unwrap();
            prop_assert_eq!(list[used].1, pair.address);
            let next = |loads: bool| (used + 1..list.len()).find(|&i| list[i].1 == pair.address && !(loads && list[i].2));
            let between = |to: usize| {
                let stores = list[used + 1..=to].iter().filter(|l| l.2).count() as u64;
                Accesses { loads: (to - used) as u64 - stores, stores }
            };
            match pair.counts {
                CountingStreams::Both => prop_assert!(!pair.write),
                CountingStreams::Accesses => *halves.entry(pair.sample).or_default() += i32::from(!pair.write),
                CountingStreams::Loads => *halves.entry(pair.sample).or_default() -= 1,
            }
            let next = next(pair.counts == CountingStreams::Loads);
            match pair.outcome {
                SampleOutcome::Near | SampleOutcome::Watched => {
                    let next = next.unwrap();
                    // The byte before it may look like a prefix.
                    prop_assert!((pair.reuse_ip..=pair.reuse_ip + 3).contains(&ip(list[next].0)), "{:?}", pair);
                    prop_assert_eq!(pair.counted, Some(between(next)), "{:?}", pair);
                    if pair.counts == CountingStreams::Both {
                        prop_assert!(!list[next].2, "{:?}", pair);
                    }
                }
                _ => {
                    let age = pair.counted.unwrap().all();
                    prop_assert!(next.is_none_or(|n| (n - used) as u64 > age), "it was reused before: {:?}", pair);
                    prop_assert_eq!(pair.reuse_ip, 0);
                }
            }
        }
        prop_assert!(halves.values().all(|&n| n == 0), "a load whose next access is a store has two fates: {:?}", halves);
    }
}

#[test]
fn a_word_that_is_only_stored_to_is_given_up() {
    let program = (0..5000)
        .map(|i| {
            if i == 3 || i % 5 > 0 {
                (0x10_0000, if i == 3 { Kind::Load } else { Kind::Store })
            } else {
                (0x20_0000 + i * 8, Kind::Load)
            }
        })
        .collect();
    let mut fake = Fake::of(program);
    let mut sampler = Sampler::new(plan(4, 2, 0));
    // Some seed chooses the load at 3.
    for seed in 0..100 {
        sampler = Sampler::new(plan(4, 2, seed));
        fake.at = 0;
        sampler.sample(&mut fake).unwrap();
        if sampler.take_pairs().iter().any(|p| at(p.use_ip) == 3) {
            break;
        }
    }
    fake.run(&mut sampler, 5000);
    let pairs = sampler.take_pairs();
    assert_eq!(
        pairs
            .iter()
            .map(|p| (p.outcome, p.counts))
            .collect::<Vec<_>>(),
        [(SampleOutcome::Crowded, CountingStreams::Loads)]
    );
    assert!(fake.slots.is_empty(), "its watchpoint is free");
    assert!(
        (255..=256).contains(&sampler.sums().other_hits),
        "{:?}",
        sampler.sums()
    );
}

/// The access to a trap's word by the instructions around it.
fn touched(
    code: &[u8],
    end: usize,
    general: [u64; 16],
    word: u64,
    memory: &[(u64, u64)],
) -> Option<(bool, bool, u64)> {
    let mut read = |address: u64, into: &mut [u8]| {
        if let Some((_, value)) = memory.iter().find(|m| m.0 == address) {
            into.copy_from_slice(&value.to_le_bytes()[..into.len()]);
            return into.len();
        }
        (0..into.len())
            .take_while(|&i| {
                address
                    .checked_add(i as u64)
                    .and_then(|a| a.checked_sub(CODE))
                    .and_then(|a| code.get(a as usize))
                    .map(|b| into[i] = *b)
                    .is_some()
            })
            .count()
    };
    let after = Registers {
        general,
        rip: CODE + end as u64,
        ..Registers::default()
    };
    let trap = Trap {
        after,
        word,
        bytes: WORD,
        read: &mut read,
    };
    trap.touch(&mut AccessReader::default())
        .map(|t| (t.read, t.written, t.ip))
}

#[test]
fn the_instruction_behind_which_a_trap_came_is_found() {
    let nops = [0x90; 32];
    let code = |insn: &[u8]| [&nops[..], insn, &nops[..]].concat();
    let registers = |list: &[(usize, u64)]| {
        let mut general = [0x55_0000; 16];
        list.iter().for_each(|&(r, v)| general[r] = v);
        general
    };
    let here = CODE + 32;
    let see = |insn: &[u8], list: &[(usize, u64)], word: u64| {
        touched(&code(insn), 32 + insn.len(), registers(list), word, &[])
    };
    // mov rax, [rbx+8]; mov [rbx+8], eax; add [rbx+8], al; xchg [rbx], rcx; cmp qword [rbx], 0
    assert_eq!(
        see(&[0x48, 0x8b, 0x43, 8], &[(3, 0x2000)], 0x2008),
        Some((true, false, here))
    );
    assert_eq!(
        see(&[0x89, 0x43, 8], &[(3, 0x2000)], 0x2008),
        Some((false, true, here))
    );
    assert_eq!(
        see(&[0x00, 0x43, 8], &[(3, 0x2000)], 0x2008),
        Some((true, true, here))
    );
    assert_eq!(
        see(&[0x48, 0x87, 0x0b], &[(3, 0x2008)], 0x2008),
        Some((true, true, here))
    );
    assert_eq!(
        see(&[0x48, 0x83, 0x3b, 0], &[(3, 0x2008)], 0x2008),
        Some((true, false, here))
    );
    // mov rax, [rax]: its register is overwritten. vpgatherdd xmm0, [rax+xmm1*4], xmm2
    assert_eq!(
        see(&[0x48, 0x8b, 0x00], &[(0, 77)], 0x2008),
        Some((true, false, here))
    );
    assert_eq!(
        see(
            &[0xc4, 0xe2, 0x69, 0x90, 0x04, 0x88],
            &[(0, 0x2000)],
            0x2008
        ),
        Some((true, false, here))
    );
    // The stack: push rax, pop rax, leave, push qword [rbx].
    assert_eq!(
        see(&[0x50], &[(4, 0x2008)], 0x2008),
        Some((false, false, here))
    );
    assert_eq!(
        see(&[0x58], &[(4, 0x2010)], 0x2008),
        Some((false, false, here))
    );
    assert_eq!(
        see(&[0xc9], &[(4, 0x2010)], 0x2008),
        Some((false, false, here))
    );
    assert_eq!(
        see(&[0xff, 0x33], &[(3, 0x2008)], 0x2008),
        Some((true, false, here))
    );
    // A local variable: mov [rsp+8], rcx.
    assert_eq!(
        see(&[0x48, 0x89, 0x4c, 0x24, 8], &[(4, 0x2000)], 0x2008),
        Some((false, true, here))
    );
    // rep stosq after its end; rep movsb in the middle, where the trap is at the instruction
    // itself.
    assert_eq!(
        see(&[0xf3, 0x48, 0xab], &[(1, 0), (7, 0x2010)], 0x2008),
        Some((false, true, here))
    );
    let moving = |si: u64, di: u64| {
        touched(
            &code(&[0xf3, 0xa4]),
            32,
            registers(&[(6, si), (7, di)]),
            0x2008,
            &[],
        )
    };
    assert_eq!(
        (moving(0x2009, 0x9000), moving(0x9000, 0x2010)),
        (Some((true, false, here)), Some((false, true, here)))
    );
    // A ret to this address; a call and a jump to it from elsewhere, some of them through memory.
    let back = CODE + 40;
    assert_eq!(
        touched(
            &code(&[]),
            40,
            registers(&[(4, 0x2010)]),
            0x2008,
            &[(0x2008, back)]
        ),
        Some((false, false, 0))
    );
    let calls = [&nops[..], &[0xff, 0x13], &nops[..]].concat();
    let called = |rbx: u64, rsp: u64| {
        touched(
            &calls,
            60,
            registers(&[(3, rbx), (4, rsp)]),
            0x2008,
            &[(rsp, CODE + 34), (0x2008, CODE + 60)],
        )
    };
    assert_eq!(
        called(0x2008, 0x3000),
        Some((true, false, CODE + 32)),
        "call [rbx]"
    );
    assert_eq!(
        touched(
            &calls,
            60,
            registers(&[(3, 0x4000), (4, 0x2008)]),
            0x2008,
            &[(0x2008, CODE + 34)]
        ),
        Some((false, false, CODE + 32)),
        "what a call leaves"
    );
    assert_eq!(
        touched(&code(&[]), 40, registers(&[]), 0x2008, &[(0x2008, back)]),
        Some((true, false, 0)),
        "jmp [0x2008]"
    );
    // No instruction there accesses the word.
    assert_eq!(see(&[0x48, 0x8b, 0x43, 8], &[(3, 0x2000)], 0x3008), None);
}

fn loads(loads: u64) -> Accesses {
    Accesses { loads, stores: 0 }
}

#[test]
fn a_near_reuse_takes_no_watchpoint() {
    let mut fake = Fake::new((0..1000).map(|i| 0x1000 + i % 4 * 8).collect());
    let (pairs, _) = watched(&mut fake, plan(1, 10, 3), 50);
    assert!(
        pairs
            .iter()
            .all(|p| p.outcome == SampleOutcome::Near && p.counted == Some(loads(4))),
        "{pairs:?}"
    );
    assert!(pairs.len() > 10);
}

#[test]
fn the_example_of_the_paper_live() {
    // The accesses are a1 b1 c1 b2 a2. The use is chosen at random among the first ones, and each
    // choice has its distance.
    let (a, b, c) = (0x100, 0x200, 0x300);
    let mut seen = BTreeMap::new();
    for seed in 0..200 {
        let mut fake = Fake::new(vec![a, b, c, b, a, 0x400]);
        let mut sampler = Sampler::new(plan(4, 0, seed));
        sampler.sample(&mut fake).ok();
        fake.run(&mut sampler, 10);
        sampler.end(&mut fake);
        for pair in sampler.take_pairs() {
            seen.entry((pair.address, at(pair.use_ip)))
                .or_insert((pair.outcome, pair.counted));
        }
    }
    assert_eq!(
        seen.get(&(a, 0)),
        Some(&(SampleOutcome::Watched, Some(loads(4))))
    );
    assert_eq!(
        seen.get(&(b, 1)),
        Some(&(SampleOutcome::Watched, Some(loads(2))))
    );
    assert_eq!(seen.get(&(c, 2)).map(|s| s.0), Some(SampleOutcome::Ended));
}

#[test]
fn without_counters_time_is_left() {
    let mut fake = Fake {
        counting: false,
        ..Fake::new((0..10_000).map(|i| 0x1000 + i % 500 * 8).collect())
    };
    let (pairs, sampler) = watched(&mut fake, plan(2, 20, 1), 700);
    let reused: Vec<&Pair> = pairs
        .iter()
        .filter(|p| p.outcome == SampleOutcome::Watched)
        .collect();
    assert!(reused.len() > 3);
    assert!(
        reused
            .iter()
            .all(|p| p.counted.is_none() && p.stepped.loads + p.cpu_ns == 500),
        "{reused:?}"
    );
    assert!(sampler.sums().steps > 100 && !fake.paused);
}

#[test]
fn refused_watchpoints_and_interrupted_steps_are_counted() {
    let addresses: Vec<u64> = (0..2000).map(|i| 0x1000 + i * 8).collect();
    let mut fake = Fake {
        refuse: true,
        ..Fake::new(addresses.clone())
    };
    let (pairs, sampler) = watched(&mut fake, plan(4, 5, 1), 100);
    assert_eq!(sampler.sums().refused, pairs.len() as u64);
    assert!(pairs.iter().all(|p| p.outcome == SampleOutcome::Skipped));
    let mut fake = Fake {
        interrupt_at: Some(100),
        ..Fake::new(addresses)
    };
    let mut sampler = Sampler::new(plan(4, 5, 1));
    fake.run(&mut sampler, 100);
    sampler.sample(&mut fake).unwrap();
    assert_eq!(
        (sampler.sums().no_access, sampler.take_pairs().len()),
        (1, 0)
    );
}

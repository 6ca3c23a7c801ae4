//! Test of expansion against a model machine, which runs a random program instruction by
//! instruction: it writes slots like probes, takes signals anywhere, and logs each load when it is
//! executed.

use crate::expand::tests::*;

/// A load's truth: link-time address of the instruction, address, size.
type Load = (u64, u64, u32);

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// An instruction of the model: probes, then one load.
struct Insn {
    /// Records written before it: (number in the region, slots).
    probes: Vec<(u8, u32)>,
    site: Site,
}

struct Program {
    sidecar: Sidecar,
    regions: Vec<Vec<Insn>>,
}

/// Every region begins with a record, so that the order of its first load is known.
fn program(random: &mut Random) -> Program {
    let mut maker = Maker::new();
    let mut regions = Vec::new();
    for r in 0..1 + random.below(5) {
        let mut insns: Vec<Insn> = Vec::new();
        let mut records: Vec<(u64, u32)> = Vec::new();
        let count = 1 + random.below(6);
        let plain_only = random.one_in(2);
        for i in 0..count {
            let mut probes = Vec::new();
            let mut add = |slots: u32, records: &mut Vec<(u64, u32)>| {
                probes.push((records.len() as u8, slots));
                records.push((i, slots));
                records.len() as u8 - 1
            };
            let disp = random.below(256) as i64 - 128;
            let site = match if plain_only {
                random.below(4)
            } else {
                random.below(7)
            } {
                _ if i == 0 => site(add(1, &mut records), disp),
                0 => Site {
                    flags: SiteFlags::IMPLIED,
                    ..site(NO_RECORD, 0)
                },
                1 => Site {
                    flags: SiteFlags::STATIC,
                    ..site(NO_RECORD, disp)
                },
                2 => {
                    let single = records
                        .iter()
                        .position(|r| r.1 == 1)
                        .expect("the first has one slot");
                    site(single as u8, disp)
                }
                3 => Site {
                    b: 0,
                    scale: 1 << random.below(4),
                    ..site(add(1, &mut records), disp)
                },
                4 if i == count - 1 => {
                    let a = add(1, &mut records);
                    Site {
                        kind: SiteKind::String as u8,
                        b: add(1, &mut records),
                        ..site(a, 0)
                    }
                }
                5 => Site {
                    kind: SiteKind::Gather as u8,
                    scale: 8,
                    ..site(add(3, &mut records), 0)
                },
                _ => Site {
                    kind: SiteKind::Xlat as u8,
                    b: 0,
                    ..site(add(1, &mut records), disp)
                },
            };
            insns.push(Insn { probes, site });
        }
        let first = maker.0.sites.len() as u32;
        for (i, insn) in insns.iter().enumerate() {
            if insn.site.kind == SiteKind::Gather as u8 {
                maker.0.gathers.push(Gather {
                    site: first + i as u32,
                    lanes: 4,
                    mask_bytes: 4,
                    index_bytes: 16,
                });
            }
        }
        let sites: Vec<(u64, Site)> = insns
            .iter()
            .enumerate()
            .map(|(i, insn)| (i as u64, insn.site))
            .collect();
        maker.region(0x1000 * (r + 1), &records, &sites);
        // Loads before it that are counted with it.
        maker
            .0
            .regions
            .last_mut()
            .expect("it was just made")
            .implied_const += random.below(3) as u32;
        regions.push(insns);
    }
    Program {
        sidecar: maker.0,
        regions,
    }
}

#[derive(Default)]
struct Machine {
    slots: Vec<Slot>,
    loads: Vec<Load>,
    implied: u64,
    given_up: u64,
    /// True if signals may arrive.
    signals: bool,
}

impl Machine {
    /// Runs some passes; handlers of signals run deeper.
    fn run(&mut self, program: &Program, random: &mut Random, depth: u32) {
        for _ in 0..1 + random.below(6) {
            let region = random.below(program.regions.len() as u64) as usize;
            for _ in 0..1 + random.below(3) {
                self.pass(program, random, region, depth);
            }
            self.maybe_signal(program, random, depth, 0x9_0000, 0);
        }
    }

    /// Sometimes inserts a signal. False if the interrupted code does not continue.
    fn maybe_signal(
        &mut self,
        program: &Program,
        random: &mut Random,
        depth: u32,
        ip: u64,
        clone: u64,
    ) -> bool {
        if !self.signals || depth == 3 || !random.one_in(12) {
            return true;
        }
        self.slots
            .push(mark(MARK_SIGNAL_ENTER, BIAS + ip, mark_aux(10, clone)));
        self.run(program, random, depth + 1);
        let goes_on = !random.one_in(3);
        self.slots.push(mark(
            if goes_on {
                MARK_SIGNAL_RETURN
            } else {
                MARK_CUT
            },
            BIAS + ip,
            0,
        ));
        goes_on
    }

    fn pass(&mut self, program: &Program, random: &mut Random, number: usize, depth: u32) {
        let region = program.sidecar.regions[number];
        let mut payloads: Vec<u64> = Vec::new();
        let own = program.regions[number]
            .iter()
            .filter(|insn| insn.site.flags & SiteFlags::IMPLIED != 0)
            .count();
        let before = u64::from(region.implied_const) - own as u64;
        for (i, insn) in program.regions[number].iter().enumerate() {
            let site = &program.sidecar.sites[region.first_site as usize + i];
            let mut lanes = [(0i32, false); 4];
            for &(record, slots) in &insn.probes {
                let clone = program.sidecar.records
                    [(region.first_record + u32::from(record)) as usize]
                    .clone_ip;
                if !self.maybe_signal(program, random, depth, site.ip, clone) {
                    return self.give_up(program, number, i);
                }
                let payload = if random.one_in(2) {
                    random.below(1000)
                } else {
                    random.next()
                };
                if payloads.is_empty() {
                    self.implied += before;
                }
                payloads.push(payload);
                self.slots
                    .push(slot(region.first_record + u32::from(record), payload));
                if slots == 3 {
                    lanes = lanes.map(|_| (random.next() as i32, random.one_in(2)));
                    for words in [
                        lanes.map(|l| l.0),
                        lanes.map(|l| if l.1 { i32::MIN } else { 0 }),
                    ] {
                        if !self.maybe_signal(program, random, depth, site.ip, clone + 1) {
                            return self.give_up(program, number, i);
                        }
                        self.slots.push(raw(words));
                    }
                }
            }
            if !self.maybe_signal(program, random, depth, site.ip, site.clone_ip) {
                return self.give_up(program, number, i);
            }
            let p = |r: u8| payloads.get(usize::from(r)).copied().unwrap_or(0);
            if site.flags & SiteFlags::IMPLIED != 0 {
                self.implied += 1;
            } else if site.kind == SiteKind::Gather as u8 {
                for lane in lanes.iter().filter(|l| l.1) {
                    self.loads.push((
                        site.ip,
                        p(site.a).wrapping_add((i64::from(lane.0) * 8) as u64),
                        8,
                    ));
                }
            } else if site.kind == SiteKind::String as u8 {
                if p(site.b) > 0 {
                    let bytes = u128::from(p(site.b)) * 8;
                    self.loads
                        .push((site.ip, p(site.a), bytes.min(u128::from(u32::MAX)) as u32));
                }
            } else if site.kind == SiteKind::Xlat as u8 {
                self.loads.push((
                    site.ip,
                    p(site.a)
                        .wrapping_add(p(site.b) % 256)
                        .wrapping_add_signed(site.disp),
                    8,
                ));
            } else {
                let fixed = if site.flags & SiteFlags::STATIC != 0 {
                    BIAS
                } else {
                    0
                };
                let scaled = (0..site.scale).fold(0u64, |sum, _| sum.wrapping_add(p(site.b)));
                self.loads.push((
                    site.ip,
                    p(site.a)
                        .wrapping_add(scaled)
                        .wrapping_add_signed(site.disp)
                        .wrapping_add(fixed),
                    8,
                ));
            }
        }
    }

    fn give_up(&mut self, program: &Program, number: usize, from: usize) {
        let left = program.regions[number][from..]
            .iter()
            .filter(|i| i.site.flags & SiteFlags::IMPLIED == 0);
        self.given_up += left.count() as u64;
    }
}

fn loads(rows: &RowBatch) -> Vec<Load> {
    (0..rows.len())
        .map(|i| (rows.ip[i], rows.address[i], rows.size[i]))
        .collect()
}

/// Runs a program long enough and returns it with the machine's log.
fn ran(seed: u64, signals: bool) -> (Program, Machine) {
    let mut random = Random(seed);
    let program = program(&mut random);
    let mut machine = Machine {
        signals,
        ..Machine::default()
    };
    for _ in 0..4 {
        machine.run(&program, &mut random, 0);
    }
    (program, machine)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_load_comes_out_once_in_order(seed: u64, signals: bool, cut in 1usize..40) {
        let (program, machine) = ran(seed, signals);
        let tables = Tables::new([&program.sidecar]).unwrap();
        let mut expander = Expander::new(&tables, &[Placement { sidecar: 0, module: 0, bias: BIAS }]);
        let mut out = RowBatch::default();
        let mut at = 0;
        for part in machine.slots.chunks(cut) {
            expander.segment(&header(SegmentKind::Full, at, part), part, &mut 0, &mut out);
            at += part.len() as u64;
        }
        expander.finish(&mut out);
        let got = loads(&out);
        let differs = got.iter().zip(&machine.loads).position(|(g, w)| g != w);
        prop_assert_eq!(differs.map(|i| (i, got[i], machine.loads[i])), None);
        prop_assert_eq!(got.len(), machine.loads.len());
        let counters = expander.counters();
        let placed: u64 = out.implied_const.iter().map(|&n| u64::from(n)).sum();
        prop_assert_eq!(placed, counters.implied);
        prop_assert_eq!(counters.implied + counters.implied_unplaced, machine.implied);
        prop_assert_eq!(counters.unknown, 0);
        prop_assert_eq!(counters.torn, 0);
        // A handler that interrupts a pass before its first record leaves no trace. Later cuts are
        // counted.
        prop_assert!(counters.cut <= machine.given_up);
    }

    /// Compares columns of staged rows in pieces with all columns at once.
    #[test]
    fn columns_can_be_had_by_pieces(seed: u64, cut in 1usize..40, piece in 1usize..50, windows: bool) {
        let (program, machine) = ran(seed, true);
        let tables = Tables::new([&program.sidecar]).unwrap();
        let kind = if windows { SegmentKind::Window } else { SegmentKind::Full };
        let place = |module| [Placement { sidecar: 0, module, bias: BIAS }];
        let (mut one, mut other) = (Expander::new(&tables, &place(0)), Expander::new(&tables, &place(0)));
        let (mut whole, mut staged) = (RowBatch::default(), Staged::default());
        let (mut samples, mut at) = ((7, 7), 0);
        for part in machine.slots.chunks(cut) {
            let header = header(kind, at, part);
            one.segment(&header, part, &mut samples.0, &mut whole);
            other.stage(&header, part, &mut samples.1, &mut staged);
            at += part.len() as u64;
            let module = (at / 64) as u16;
            one.place(&place(module));
            other.place(&place(module));
        }
        one.finish(&mut whole);
        other.finish_staged(&mut staged);
        prop_assert_eq!(one.counters(), other.counters());
        let mut pieces = RowBatch::default();
        let mut known = Vec::new();
        for first in (0..staged.len()).step_by(piece) {
            let rows = first..staged.len().min(first + piece);
            staged.seq(rows.clone(), &mut pieces.seq);
            staged.sample(rows.clone(), &mut pieces.sample);
            staged.time_ns(rows.clone(), &mut pieces.time_ns);
            staged.module(rows.clone(), &mut pieces.module);
            staged.ip(&tables, rows.clone(), &mut pieces.ip);
            staged.site(&tables, rows.clone(), &mut pieces.site);
            staged.address(rows.clone(), &mut pieces.address);
            staged.size(&tables, rows.clone(), &mut pieces.size);
            staged.class(&tables, rows.clone(), &mut pieces.class);
            staged.store(&tables, rows.clone(), &mut pieces.store);
            staged.implied_const(&tables, rows.clone(), &mut pieces.implied_const);
            staged.loads(&tables, rows.clone(), |load| known.push((load.module, load.site, load.store, load.implied_const)));
            prop_assert_eq!(staged.sample_of(first), Some(whole.sample[first]));
            let same = |column: &[u32]| column.iter().all(|v| v == &column[0]).then_some(column[0]);
            prop_assert_eq!(staged.same_sample(&rows), same(&whole.sample[rows.clone()]));
            prop_assert_eq!(staged.same_module(&rows), same(&whole.module[rows.clone()].iter().map(|&m| m.into()).collect::<Vec<_>>()).map(|m| m as u16));
            let seq = &whole.seq[rows.clone()];
            prop_assert_eq!(staged.counting_seq(&rows), seq.iter().zip(seq[0]..).all(|(a, b)| *a == b).then_some(seq[0]));
        }
        prop_assert_eq!(&pieces, &whole);
        let loads: Vec<_> = (0..whole.len()).map(|i| (whole.module[i], whole.site[i], whole.store[i], whole.implied_const[i])).collect();
        prop_assert_eq!(known, loads);
        prop_assert_eq!(staged.sample_of(staged.len()), None);
    }

    #[test]
    fn a_window_is_a_slice_of_the_truth(seed: u64, from in 0.0f64..1.0, length in 1usize..200) {
        let (program, machine) = ran(seed, false);
        let start = (machine.slots.len() as f64 * from) as usize;
        let window = &machine.slots[start..machine.slots.len().min(start + length)];
        let tables = Tables::new([&program.sidecar]).unwrap();
        let mut expander = Expander::new(&tables, &[Placement { sidecar: 0, module: 0, bias: BIAS }]);
        let mut out = RowBatch::default();
        expander.segment(&header(SegmentKind::Window, start as u64, window), window, &mut 0, &mut out);
        let counters = expander.counters();
        let got = loads(&out);
        // Torn loads are missing in the first pass only; after that the rows are consecutive.
        let mut truth = machine.loads.iter();
        prop_assert!(got.iter().all(|load| truth.any(|t| t == load)), "a row that never happened, or out of order");
        let steady = got.len().saturating_sub(24);
        let tail = &got[got.len() - steady..];
        prop_assert!(tail.is_empty() || machine.loads.windows(tail.len()).any(|w| w == tail));
        prop_assert_eq!(counters.unknown, 0);
        prop_assert!(counters.torn + counters.cut <= 14);
    }
}

proptest! {
    #[test]
    fn no_slots_make_it_panic(seed: u64, noise in proptest::collection::vec((any::<u32>(), any::<u64>(), any::<u32>()), 0..200)) {
        let (program, machine) = ran(seed, true);
        let mut slots = machine.slots;
        for (at, payload, id) in noise {
            let at = at as usize % slots.len();
            slots[at] = match id % 4 {
                0 => Slot { payload, id: MARK_FIRST + id / 4 % 6, aux: id },
                1 => Slot { payload, id: ID + id / 4 % 40, aux: 0 },
                2 => Slot { payload: slots[at].payload, id: MARK_FIRST + id / 4 % 3, aux: id },
                _ => Slot { payload, id, aux: id },
            };
        }
        let (out, counters) = expand_kind(&program.sidecar, SegmentKind::Full, &slots);
        prop_assert_eq!(counters.rows, out.len() as u64);
    }
}

mod model;
use crate::expand::*;
use crate::sidecar::{
    CLASS_IRREGULAR, CLASS_STRIDED, Gather, NO_RECORD, NONE, Record, Region, Sidecar, Site,
    SiteFlags, SiteKind,
};
use mgz_abi::slot::{MARK_CUT, MARK_SIGNAL_ENTER, MARK_SIGNAL_RETURN, MARK_TIME, mark_aux};
use proptest::prelude::*;

const ID: u32 = 0x4000;
const BIAS: u64 = 0x5555_0000_0000;

/// Builds a sidecar region by region. Instructions are four bytes apart, in the clone sixteen
/// bytes.
struct Maker(Sidecar);

impl Maker {
    fn new() -> Maker {
        let mut sidecar = Sidecar::default();
        sidecar.header.id_first = ID;
        sidecar.functions.push(Default::default());
        Maker(sidecar)
    }

    /// `records`: instruction number and slots; `sites`: instruction number and site.
    fn region(&mut self, start: u64, records: &[(u64, u32)], sites: &[(u64, Site)]) -> &mut Self {
        let s = &mut self.0;
        let region = s.regions.len() as u32;
        let implied = sites
            .iter()
            .filter(|(_, site)| site.flags & SiteFlags::IMPLIED != 0)
            .count();
        s.regions.push(Region {
            first_record: s.records.len() as u32,
            record_count: records.len() as u32,
            first_site: s.sites.len() as u32,
            site_count: sites.len() as u32,
            implied_const: implied as u32,
            function: 0,
        });
        for (n, &(insn, slots)) in records.iter().enumerate() {
            // Each record has its own slot.
            let before = records[..n].iter().filter(|r| r.0 == insn).count() as u64;
            s.records.push(Record {
                region,
                slots,
                clone_ip: 0x10_0000 + start * 4 + insn * 16 + 2 * before,
                ip: start + insn * 4,
            });
        }
        for &(insn, site) in sites {
            let (ip, clone_ip) = (start + insn * 4, 0x10_0000 + start * 4 + insn * 16 + 8);
            s.sites.push(Site {
                region,
                ip,
                clone_ip,
                location: NONE,
                ..site
            });
        }
        self
    }
}

fn placed(sidecar: usize, module: u16, bias: u64) -> Placement {
    Placement {
        sidecar,
        module,
        bias,
    }
}

fn site(a: u8, disp: i64) -> Site {
    Site {
        a,
        b: NO_RECORD,
        scale: 1,
        disp,
        size: 8,
        class: CLASS_STRIDED,
        ..Site::default()
    }
}

fn slot(record: u32, payload: u64) -> Slot {
    Slot {
        payload,
        id: ID + record,
        aux: 0xdead,
    }
}

fn mark(id: u32, payload: u64, aux: u32) -> Slot {
    Slot { payload, id, aux }
}

fn header(kind: SegmentKind, first_slot: u64, slots: &[Slot]) -> SegmentHeader {
    SegmentHeader {
        kind,
        first_slot,
        begin_ns: 1000 + 10 * first_slot,
        end_ns: 1000 + 10 * (first_slot + slots.len() as u64),
        cause: 0,
        slots: slots.len() as u32,
        ..SegmentHeader::default()
    }
}

fn expand_kind(sidecar: &Sidecar, kind: SegmentKind, slots: &[Slot]) -> (RowBatch, Counters) {
    let sidecar = Sidecar::from_bytes(&sidecar.to_bytes().unwrap()).expect("a valid sidecar");
    let tables = Tables::new([&sidecar]).unwrap();
    let mut expander = Expander::new(&tables, &[placed(0, 3, BIAS)]);
    let mut out = RowBatch::default();
    expander.segment(&header(kind, 0, slots), slots, &mut 0, &mut out);
    expander.finish(&mut out);
    (out, *expander.counters())
}

fn expand(sidecar: &Sidecar, slots: &[Slot]) -> (RowBatch, Counters) {
    expand_kind(sidecar, SegmentKind::Window, slots)
}

#[test]
fn plain_sites_share_their_records() {
    let mut m = Maker::new();
    let scaled = Site {
        b: 1,
        scale: 8,
        size: 4,
        class: CLASS_IRREGULAR,
        flags: SiteFlags::STORE,
        ..site(0, -16)
    };
    let implied = Site {
        flags: SiteFlags::IMPLIED,
        ..site(NO_RECORD, 0)
    };
    m.region(
        0x100,
        &[(0, 1), (1, 1)],
        &[(0, site(0, 0)), (1, scaled), (2, implied), (3, site(1, 32))],
    );
    let (rows, counters) = expand(
        &m.0,
        &[slot(0, 0x1000), slot(1, 5), slot(0, 0x2000), slot(1, 6)],
    );
    assert_eq!(
        rows.address,
        [
            0x1000,
            0x1000 + 40 - 16,
            5 + 32,
            0x2000,
            0x2000 + 48 - 16,
            6 + 32
        ]
    );
    assert_eq!(rows.ip, [0x100, 0x104, 0x10c, 0x100, 0x104, 0x10c]);
    assert_eq!(rows.site, [0, 1, 3, 0, 1, 3]);
    assert_eq!(rows.implied_const, [1, 0, 0, 1, 0, 0]);
    assert_eq!(rows.size, [8, 4, 8, 8, 4, 8]);
    assert_eq!(rows.class, [1, 2, 1, 1, 2, 1]);
    assert_eq!(rows.store, [false, true, false, false, true, false]);
    assert_eq!(rows.module, [3; 6]);
    assert_eq!(rows.seq, [0, 1, 2, 3, 4, 5]);
    assert_eq!(
        counters,
        Counters {
            slots: 4,
            records: 4,
            rows: 6,
            implied: 2,
            samples: 1,
            ..Counters::default()
        }
    );
}

/// The two registers of a sum may be far outside of any address, as long as the sum is one.
#[test]
fn sums_of_payloads_that_share_a_slot_are_modulo_2_to_the_48() {
    let mut m = Maker::new();
    let sum = Site {
        b: 1,
        scale: 4,
        ..site(0, 8)
    };
    m.region(
        0x100,
        &[(0, 1), (0, 1), (1, 1)],
        &[(0, sum), (1, site(2, 0))],
    );
    m.0.records[1].slots = 0;
    let (base, index) = (0x1234_5678_9abc_def0u64, 0x0bcd_0000_0000_1111u64);
    let short = |v: u64| ((v << 16) as i64 >> 16) as u64;
    let (rows, _) = expand(
        &m.0,
        &[
            slot(0, short(base)),
            slot(1, short(index)),
            slot(2, 1 << 56),
        ],
    );
    assert_eq!(
        rows.address,
        [
            base.wrapping_add(index.wrapping_mul(4)).wrapping_add(8) & 0xffff_ffff_ffff,
            1 << 56
        ]
    );
    let (rows, _) = expand_kind(
        &m.0,
        SegmentKind::Full,
        &[slot(0, 0x5000), slot(1, short(-3i64 as u64)), slot(2, 7)],
    );
    assert_eq!(rows.address, [0x5000 - 12 + 8, 7]);
}

/// Rows before a time mark are earlier than the mark, and those behind it are not, regardless of
/// its position in a segment and however little time passes.
#[test]
fn marks_of_the_time_divide_the_rows() {
    let mut m = Maker::new();
    let implied = Site {
        flags: SiteFlags::IMPLIED,
        ..site(NO_RECORD, 0)
    };
    m.region(
        0x100,
        &[(0, 1), (1, 1)],
        &[(0, site(0, 0)), (1, site(1, 0)), (2, implied)],
    );
    let pass = |n: u64| [slot(0, n), slot(1, n)];
    let time = |ns: u64| vec![mark(MARK_TIME, ns, 0)];
    for (first, second) in [(1020, 1040), (1001, 1002), (1000, 1070), (1069, 1070)] {
        let slots: Vec<Slot> = [
            pass(1).to_vec(),
            time(first),
            pass(2).to_vec(),
            time(second),
            time(second + 1),
            pass(3).to_vec(),
            // A time far away from the segment, so not written by the runtime.
            time(1 << 40),
        ]
        .concat();
        // All in one segment, and one slot in each.
        for length in [slots.len(), 1] {
            let sidecar = Sidecar::from_bytes(&m.0.to_bytes().unwrap()).unwrap();
            let tables = Tables::new([&sidecar]).unwrap();
            let place = placed(0, 3, BIAS);
            let mut expander = Expander::new(&tables, &[place]);
            let mut rows = RowBatch::default();
            for (n, part) in slots.chunks(length).enumerate() {
                // The ends of segments are as close to the marks as possible.
                let header = SegmentHeader {
                    begin_ns: 1000,
                    end_ns: if length == 1 { 1000 } else { 1090 },
                    ..header(SegmentKind::Full, (n * length) as u64, part)
                };
                expander.segment(&header, part, &mut 0, &mut rows);
            }
            expander.finish(&mut rows);
            let counters = *expander.counters();
            assert_eq!(rows.address, [1, 1, 2, 2, 3, 3]);
            assert_eq!(rows.implied_const, [1, 0, 1, 0, 1, 0]);
            assert_eq!(rows.seq, [0, 1, 2, 3, 4, 5]);
            assert_eq!(
                (counters.records, counters.unknown, counters.cut),
                (6, 1, 0)
            );
            let times = &rows.time_ns;
            assert!(times.is_sorted(), "{times:?}");
            assert!(times[1] < first && first <= times[2], "{first}: {times:?}");
            assert!(
                times[3] < second && second < times[4],
                "{second}: {times:?}"
            );
        }
    }
}

/// A handler ran between the two records of a slot: the first is before it, and repeated behind it.
#[test]
fn a_record_that_is_repeated_is_left_out() {
    let mut m = Maker::new();
    m.region(
        0x100,
        &[(0, 1), (2, 1)],
        &[(0, site(0, 0)), (2, site(1, 0)), (3, site(0, 8))],
    );
    m.region(0x200, &[(0, 1)], &[(0, site(0, 0))]);
    m.0.records[1].slots = 0;
    let (rows, counters) = expand(
        &m.0,
        &[
            slot(0, 0x1000),
            mark(MARK_SIGNAL_ENTER, BIAS + 0x104, 0),
            slot(2, 0x5000),
            mark(MARK_SIGNAL_RETURN, BIAS + 0x104, 0),
            mark(MARK_REPEAT, 0, 0),
            slot(0, 0x1000),
            slot(1, 0x2000),
            slot(2, 0x6000),
        ],
    );
    assert_eq!(
        (rows.address, counters.torn, counters.cut),
        (vec![0x1000, 0x5000, 0x2000, 0x1008, 0x6000], 0, 0)
    );
    // A thread entered the clone between the two.
    let (rows, counters) = expand(
        &m.0,
        &[
            mark(MARK_REPEAT, 0, 0),
            slot(0, 0xdead),
            slot(1, 0x2000),
            slot(2, 0x6000),
        ],
    );
    assert_eq!(
        (rows.address, counters.torn, counters.cut),
        (vec![0x2000, 0x6000], 2, 0)
    );
}

/// Positions count slots of the ring: the next segment begins behind the shared slots.
#[test]
fn segments_follow_one_another_by_slots_of_the_ring() {
    let mut m = Maker::new();
    m.region(
        0x100,
        &[(0, 1), (1, 1)],
        &[(0, site(0, 0)), (1, site(1, 0))],
    );
    let tables = Tables::new([&m.0]).unwrap();
    let samples = |next: u64| {
        let mut expander = Expander::new(&tables, &[placed(0, 3, BIAS)]);
        let (mut out, mut sample) = (RowBatch::default(), 0);
        let slots = [slot(0, 1), slot(1, 2), slot(0, 3), slot(1, 4)];
        for first_slot in [10, next] {
            let header = SegmentHeader {
                kind: SegmentKind::Full,
                first_slot,
                slots: 4,
                ring_slots: 2,
                ..SegmentHeader::default()
            };
            expander.segment(&header, &slots, &mut sample, &mut out);
        }
        sample
    };
    assert_eq!((samples(12), samples(14)), (1, 2));
}

#[test]
fn static_sites_get_the_bias_and_short_addresses_are_cut_to_32_bits() {
    let mut m = Maker::new();
    let fixed = Site {
        flags: SiteFlags::STATIC,
        ..site(NO_RECORD, 0x4010)
    };
    let short = Site {
        flags: SiteFlags::ADDR32,
        ..site(0, 0x20)
    };
    m.region(0x100, &[(0, 1)], &[(0, fixed), (1, short)]);
    let (rows, _) = expand(&m.0, &[slot(0, 0xffff_ffff_ffff_fff0)]);
    assert_eq!(rows.address, [BIAS + 0x4010, 0x10]);
}

#[test]
fn string_instructions_give_one_row_of_count_times_size() {
    let mut m = Maker::new();
    let string = |kind: SiteKind, b: u8, flags: u8| Site {
        kind: kind as u8,
        b,
        flags,
        size: 4,
        ..site(0, 0)
    };
    m.region(
        0x100,
        &[(0, 1)],
        &[(0, string(SiteKind::String, NO_RECORD, 0))],
    );
    m.region(
        0x200,
        &[(0, 1), (0, 1)],
        &[(0, string(SiteKind::String, 1, 0))],
    );
    m.region(
        0x300,
        &[(0, 1), (0, 1), (0, 1)],
        &[(0, string(SiteKind::StringUntil, 1, 0))],
    );
    m.region(
        0x400,
        &[(0, 1), (0, 1)],
        &[(0, string(SiteKind::String, 1, SiteFlags::ADDR32))],
    );
    let slots = [
        slot(0, 0x1000), // once
        slot(1, 0x2000), // rep, 10 times
        slot(2, 10),
        slot(1, 0x2000), // rep, not at all
        slot(2, 0),
        slot(3, 0x3000), // repne, 100 before, 93 after
        slot(4, 100),
        slot(5, 93),
        slot(6, 0x1_0000_4000), // 32-bit addresses and count
        slot(7, 0x7_0000_0002),
        slot(1, 0x9000), // more than 4 GiB
        slot(2, 1 << 40),
    ];
    let (rows, counters) = expand(&m.0, &slots);
    assert_eq!(rows.address, [0x1000, 0x2000, 0x3000, 0x4000, 0x9000]);
    assert_eq!(rows.size, [4, 40, 28, 8, u32::MAX]);
    assert_eq!((counters.torn, counters.cut), (0, 0));
}

#[test]
fn implied_loads_of_a_pass_without_rows_go_to_the_next_row() {
    let mut m = Maker::new();
    let implied = Site {
        flags: SiteFlags::IMPLIED,
        ..site(NO_RECORD, 0)
    };
    let string = Site {
        kind: SiteKind::String as u8,
        b: 1,
        ..site(0, 0)
    };
    m.region(0x100, &[(1, 1), (1, 1)], &[(0, implied), (1, string)]);
    let zero = [slot(0, 0x2000), slot(1, 0)];
    let one = [slot(0, 0x2000), slot(1, 1)];
    let (rows, counters) = expand(&m.0, &[zero, zero, one, zero].concat());
    assert_eq!(rows.implied_const, [3]);
    assert_eq!((counters.implied, counters.implied_unplaced), (3, 1));
}

#[test]
fn bit_strings_and_xlat_reach_the_word_they_read() {
    let mut m = Maker::new();
    let bits = |size: u32| Site {
        kind: SiteKind::BitString as u8,
        b: 1,
        size,
        ..site(0, 0)
    };
    m.region(0x100, &[(0, 1), (0, 1)], &[(0, bits(4))]);
    m.region(0x200, &[(0, 1), (0, 1)], &[(0, bits(8))]);
    m.region(0x300, &[(0, 1), (0, 1)], &[(0, bits(2))]);
    m.region(
        0x400,
        &[(0, 1), (0, 1)],
        &[(
            0,
            Site {
                kind: SiteKind::Xlat as u8,
                b: 1,
                size: 1,
                ..site(0, 0)
            },
        )],
    );
    let slots = [
        slot(0, 0x1000),
        slot(1, 0xaaaa_0000_0000_0000 | 70), // only the low 32 bits count
        slot(0, 0x1000),
        slot(1, u64::from(-1i32 as u32)),
        slot(2, 0x1000),
        slot(3, -65i64 as u64),
        slot(4, 0x1000),
        slot(5, 0x8000), // −32768 as 16 bits
        slot(6, 0x1000),
        slot(7, 0x1ff),
    ];
    let (rows, _) = expand(&m.0, &slots);
    assert_eq!(
        rows.address,
        [0x1008, 0x1000 - 4, 0x1000 - 16, 0x1000 - 4096, 0x10ff]
    );
}

/// A raw slot made of four 32-bit words.
fn raw(words: [i32; 4]) -> Slot {
    let w = words.map(|w| w as u32);
    Slot {
        payload: u64::from(w[0]) | u64::from(w[1]) << 32,
        id: w[2],
        aux: w[3],
    }
}

/// Four lanes with masks and indices of 32 bits.
const GATHER: Gather = Gather {
    site: 0,
    lanes: 4,
    mask_bytes: 4,
    index_bytes: 16,
};

#[test]
fn gathers_give_a_row_per_active_lane() {
    let mut m = Maker::new();
    let gather = |flags: u8| Site {
        kind: SiteKind::Gather as u8,
        scale: 4,
        size: 4,
        flags,
        ..site(0, 0)
    };
    m.region(0x100, &[(0, 3)], &[(0, gather(0))]);
    m.region(0x200, &[(0, 3)], &[(0, gather(SiteFlags::INDEX64))]);
    m.0.gathers.push(GATHER);
    m.0.gathers.push(Gather {
        site: 1,
        lanes: 2,
        mask_bytes: 0,
        index_bytes: 16,
    });
    let slots = [
        slot(0, 0x1_0000),
        raw([0, -1, 300, i32::MAX]),
        raw([-1, i32::MIN, 5, 0x80000001u32 as i32]),
        slot(1, 0x2_0000),
        raw([7, 0, -2, -1]),
        raw([0b10, 0, 0, 0]),
    ];
    let (rows, counters) = expand(&m.0, &slots);
    assert_eq!(
        rows.address,
        [
            0x1_0000,
            0x1_0000 - 4,
            0x1_0000 + 4 * i32::MAX as u64,
            0x2_0000 - 8
        ]
    );
    assert_eq!(
        (counters.records, counters.unknown, counters.torn),
        (2, 0, 0)
    );
}

#[test]
fn a_window_may_begin_inside_a_gather() {
    let mut m = Maker::new();
    m.region(
        0x100,
        &[(0, 3)],
        &[(
            0,
            Site {
                kind: SiteKind::Gather as u8,
                scale: 4,
                size: 4,
                ..site(0, 0)
            },
        )],
    );
    m.region(0x200, &[(0, 1)], &[(0, site(0, 0))]);
    m.0.gathers.push(GATHER);
    // The second raw slot looks like a record of the module, but the next slots do not fit.
    let slots = [
        raw([0, 1, ID as i32 + 1, 3]),
        raw([-1, -1, 7, -1]),
        slot(1, 0x5000),
        slot(1, 0x6000),
    ];
    let tables = Tables::new([&m.0]).unwrap();
    let mut expander = Expander::new(&tables, &[placed(0, 0, BIAS)]);
    let mut rows = RowBatch::default();
    expander.segment(
        &header(SegmentKind::Window, 100, &slots),
        &slots,
        &mut 0,
        &mut rows,
    );
    let counters = expander.counters();
    assert_eq!(rows.address, [0x5000, 0x6000]);
    assert_eq!((counters.torn, counters.unknown), (2, 0));
}

/// A region of five loads from three records, with implied loads between them.
fn long() -> Maker {
    let mut m = Maker::new();
    let implied = Site {
        flags: SiteFlags::IMPLIED,
        ..site(NO_RECORD, 0)
    };
    m.region(
        0x100,
        &[(0, 1), (2, 1), (4, 1)],
        &[
            (0, site(0, 0)),
            (1, implied),
            (2, site(1, 0)),
            (3, site(0, 8)),
            (4, site(2, 0)),
            (5, implied),
            (6, Site { b: 1, ..site(2, 0) }),
        ],
    );
    m.region(0x200, &[(0, 1)], &[(0, site(0, 0))]);
    m
}

#[test]
fn a_torn_start_gives_the_rows_whose_records_are_there() {
    let (rows, counters) = expand(&long().0, &[slot(1, 0x20), slot(2, 0x3000), slot(3, 0x70)]);
    assert_eq!(rows.address, [0x20, 0x3000, 0x3020, 0x70]);
    assert_eq!(
        rows.implied_const,
        [1, 0, 0, 0],
        "only the implied load behind the first record"
    );
    assert_eq!((counters.torn, counters.cut), (2, 0));
}

#[test]
fn an_early_end_gives_the_rows_before_the_first_missing_record() {
    let (rows, counters) = expand(&long().0, &[slot(0, 0x10), slot(1, 0x20)]);
    assert_eq!(rows.address, [0x10, 0x20, 0x18]);
    assert_eq!(rows.implied_const, [1, 0, 0]);
    assert_eq!((counters.torn, counters.cut), (0, 2));
}

#[test]
fn a_record_of_another_pass_ends_the_one_before() {
    let (rows, counters) = expand(
        &long().0,
        &[
            slot(0, 0x10),
            slot(0, 0x11),
            slot(1, 0x20),
            slot(2, 0x30),
            slot(3, 0x70),
        ],
    );
    assert_eq!(rows.address, [0x10, 0x11, 0x20, 0x19, 0x30, 0x50, 0x70]);
    assert_eq!((counters.torn, counters.cut), (0, 4));
}

#[test]
fn a_signal_splits_a_pass_where_it_came() {
    // After record 2 was written and before the load at instruction 4.
    let at = BIAS + 0x100 + 16;
    let clone = 0x10_0000 + 0x400 + 64 + 8;
    let slots = |end: Slot| {
        vec![
            slot(0, 0x10),
            slot(1, 0x20),
            slot(2, 0x30),
            mark(MARK_SIGNAL_ENTER, at, mark_aux(11, clone)),
            slot(3, 0x70),
            end,
            slot(3, 0x71),
        ]
    };
    let (rows, counters) = expand(&long().0, &slots(mark(MARK_SIGNAL_RETURN, at, 0)));
    assert_eq!(rows.address, [0x10, 0x20, 0x18, 0x70, 0x30, 0x50, 0x71]);
    assert_eq!(rows.implied_const, [1, 0, 0, 0, 1, 0, 0]);
    assert_eq!(counters.cut, 0);
    let (rows, counters) = expand(&long().0, &slots(mark(MARK_CUT, at, 0)));
    assert_eq!(rows.address, [0x10, 0x20, 0x18, 0x70, 0x71]);
    assert_eq!(rows.implied_const, [1, 0, 0, 0, 0]);
    assert_eq!(counters.cut, 2);
}

#[test]
fn a_signal_before_the_next_pass_finds_the_last_one_over() {
    let m = long();
    // The same original address: before and after the record of instruction 0 was written.
    let at = BIAS + 0x200;
    let store = 0x10_0000 + 0x800;
    let slots = |clone: u64| {
        [
            slot(3, 0x70),
            mark(MARK_SIGNAL_ENTER, at, mark_aux(10, clone)),
            slot(0, 0x10),
            slot(1, 0x20),
            slot(2, 0x30),
            mark(MARK_SIGNAL_RETURN, at, 0),
            slot(3, 0x71),
        ]
    };
    let (rows, _) = expand(&m.0, &slots(store));
    assert_eq!(
        rows.address,
        [0x70, 0x10, 0x20, 0x18, 0x30, 0x50, 0x71],
        "the store of the id had not run: the pass before is over"
    );
    let (rows, _) = expand(&m.0, &slots(store + 1));
    assert_eq!(rows.address, [0x10, 0x20, 0x18, 0x30, 0x50, 0x70, 0x71]);
    let (rows, _) = expand(&m.0, &slots(0));
    assert_eq!(
        rows.address,
        [0x10, 0x20, 0x18, 0x30, 0x50, 0x70, 0x71],
        "unknown: as for a load that faults"
    );
}

#[test]
fn a_handler_left_by_a_jump_does_not_confuse_the_outer_return() {
    let (outer, inner) = (BIAS + 0x100 + 8, BIAS + 0x100 + 16);
    let slots = [
        slot(0, 0x10),
        mark(MARK_SIGNAL_ENTER, outer, mark_aux(1, 0)),
        slot(0, 0x11),
        slot(1, 0x21),
        mark(MARK_SIGNAL_ENTER, inner, mark_aux(2, 0)),
        slot(3, 0x70), // siglongjmp out of the inner handler
        mark(MARK_SIGNAL_RETURN, outer, 0),
        slot(1, 0x20),
        slot(2, 0x30),
    ];
    let (rows, counters) = expand(&long().0, &slots);
    assert_eq!(
        rows.address,
        [0x10, 0x11, 0x21, 0x19, 0x70, 0x20, 0x18, 0x30, 0x50]
    );
    assert_eq!(counters.cut, 2);
}

#[test]
fn unknown_ids_are_counted() {
    let (rows, counters) = expand(
        &long().0,
        &[
            slot(3, 1),
            Slot {
                id: 77,
                ..slot(0, 0)
            },
            slot(3, 2),
            slot(4, 9),
        ],
    );
    assert_eq!(rows.address, [1, 2]);
    assert_eq!(counters.unknown, 2);
}

#[test]
fn a_full_recording_goes_on_across_segments_and_a_gap_starts_a_new_sample() {
    let m = long();
    let tables = Tables::new([&m.0]).unwrap();
    let mut expander = Expander::new(&tables, &[placed(0, 0, BIAS)]);
    let mut out = RowBatch::default();
    let mut sample = 40;
    let mut feed = |first: u64, slots: &[Slot]| {
        expander.segment(
            &header(SegmentKind::Full, first, slots),
            slots,
            &mut sample,
            &mut out,
        );
    };
    feed(0, &[slot(0, 0x10), slot(1, 0x20)]);
    feed(2, &[slot(2, 0x30), slot(3, 0x70)]);
    feed(14, &[slot(3, 0x71)]);
    expander.finish(&mut out);
    assert_eq!(out.address, [0x10, 0x20, 0x18, 0x30, 0x50, 0x70, 0x71]);
    assert_eq!(out.sample, [40, 40, 40, 40, 40, 40, 41]);
    assert_eq!(out.seq, [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(expander.counters().samples, 2);
    assert!(out.time_ns.is_sorted());
}

#[test]
fn windows_have_seq_by_slot_and_times_between_their_ends() {
    let m = long();
    let tables = Tables::new([&m.0]).unwrap();
    let mut expander = Expander::new(&tables, &[placed(0, 0, BIAS)]);
    let mut out = RowBatch::default();
    let slots = [slot(3, 1), slot(3, 2), slot(3, 3), slot(3, 4)];
    let mut sample = 0;
    expander.segment(
        &header(SegmentKind::Window, 96, &slots),
        &slots,
        &mut sample,
        &mut out,
    );
    expander.segment(
        &header(SegmentKind::Window, 196, &slots),
        &slots,
        &mut sample,
        &mut out,
    );
    let seq = |first: u64| (0..4).map(move |i| first * 65536 + i);
    assert_eq!(out.seq, seq(96).chain(seq(196)).collect::<Vec<_>>());
    assert_eq!(out.sample, [0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(
        out.time_ns[..4],
        [1960, 1970, 1980, 2000],
        "the last row is only known to precede the end"
    );
}

#[test]
fn modules_are_told_apart_by_id() {
    let mut first = Maker::new();
    first.region(
        0x100,
        &[(0, 1)],
        &[(
            0,
            Site {
                flags: SiteFlags::STATIC,
                ..site(0, 1)
            },
        )],
    );
    let mut second = Maker::new();
    second.region(
        0x100,
        &[(0, 1)],
        &[(
            0,
            Site {
                flags: SiteFlags::STATIC,
                ..site(0, 2)
            },
        )],
    );
    second.0.header.id_first = 9;
    let tables = Tables::new([&first.0, &second.0]).unwrap();
    let placements = [placed(1, 7, 0x1000), placed(0, 8, 0x2000)];
    let mut expander = Expander::new(&tables, &placements);
    let mut out = RowBatch::default();
    let slots = [
        slot(0, 0),
        Slot {
            id: 9,
            ..slot(0, 0)
        },
        slot(0, 0),
    ];
    expander.segment(
        &header(SegmentKind::Window, 0, &slots),
        &slots,
        &mut 0,
        &mut out,
    );
    assert_eq!(out.address, [0x2001, 0x1002, 0x2001]);
    assert_eq!(out.module, [8, 7, 8]);
}

/// A region of `slots` slots, each of which is shared by `others` more records.
fn shared(slots: u64, others: u64) -> Maker {
    let slots = (0..slots).flat_map(|_| [1].into_iter().chain((0..others).map(|_| 0)));
    let records: Vec<(u64, u32)> = (0..).zip(slots).collect();
    let sites: Vec<(u64, Site)> = (0..records.len())
        .map(|n| (n as u64, site(n as u8, 8)))
        .collect();
    let mut m = Maker::new();
    m.region(0x100, &records, &sites);
    m
}

#[test]
fn the_longest_region_may_share_all_of_its_slots() {
    let m = shared(64, 1);
    let slots: Vec<Slot> = (0..128).map(|n| slot(n, 0x1000 * u64::from(n))).collect();
    let rows = |from: u64| (from..128).map(|n| 0x1000 * n + 8).collect::<Vec<_>>();
    let (out, counters) = expand(&m.0, &slots);
    assert_eq!(
        (out.address, counters.records, counters.torn),
        (rows(0), 128, 0)
    );
    let (out, counters) = expand(&m.0, &slots[77..]);
    assert_eq!(
        (out.address, counters.records, counters.torn),
        (rows(77), 51, 77)
    );
}

#[test]
fn a_sidecar_that_breaks_the_interface_is_refused() {
    let mut m = Maker::new();
    m.region(0x100, &[(0, 40), (0, 40)], &[]);
    assert!(
        Tables::new([&m.0]).is_err(),
        "more slots than a ring must hold"
    );
    assert!(
        Tables::new([&shared(65, 1).0]).is_err(),
        "as many, though all are shared"
    );
    assert!(
        Tables::new([&shared(50, 2).0]).is_err(),
        "three records in a slot"
    );
    let apart = |records| {
        let mut m = shared(records, 0);
        m.0.header.flavour = "pt".into();
        Tables::new([&m.0])
    };
    assert!(apart(128).is_ok(), "no ring must hold them");
    assert!(apart(129).is_err());
    let mut m = Maker::new();
    m.region(
        0x100,
        &[(0, 3)],
        &[(
            0,
            Site {
                kind: SiteKind::Gather as u8,
                ..site(0, 0)
            },
        )],
    );
    assert!(Tables::new([&m.0]).is_err(), "a gather without description");
}

proptest! {
    /// Times equal the exact fractions except for rounding, are in order, begin at the part's begin
    /// and never exceed its end.
    #[test]
    fn times_lie_evenly_in_their_part_of_a_segment(
        begin in prop_oneof![Just(0u64), any::<u64>()],
        span in prop_oneof![0u64..100, 0u64..10_000_000_000, Just(u64::MAX), any::<u64>()],
        first in prop_oneof![Just(0u32), 0u32..1000],
        slots in prop_oneof![1usize..100, 1usize..(1 << 22), Just(u32::MAX as usize - 1000)],
        at in prop::collection::vec(0.0..=1.0f64, 1..20),
    ) {
        let end = begin.saturating_add(span);
        let span = (end - begin).min(i64::MAX as u64);
        let clock = Clock::between((first as usize, begin), (first as usize + slots, end));
        let mut at: Vec<u32> = at.iter().map(|part| (part * slots as f64) as u32).collect();
        at.sort_unstable();
        let times: Vec<u64> = at.iter().map(|&slot| clock.at(first + slot)).collect();
        prop_assert!(times.is_sorted());
        for (&slot, &time) in at.iter().zip(&times) {
            let exact = (u128::from(span) * u128::from(slot) / slots as u128) as u64;
            // Greatest error from rounding the step up.
            let (added, exactly) = (slots as u64 >> clock.shift, (slots as u128).pow(2) < 1 << clock.shift);
            let slack = if exactly { 0 } else { added + 1 };
            prop_assert!(time <= end && (exact..=exact + slack).contains(&(time - begin)), "{time} {exact}");
        }
        prop_assert_eq!((clock.at(first), clock.at(first + slots as u32)), (begin, begin + span));
    }
}

//! Tests of fields with the values of kernels and perf.

use super::*;
use crate::sample::Identity;

/// A value from its fields: operation, level bits, level number, remote, snoop, TLB, hops.
fn source(op: u64, bits: u64, number: u64, remote: u64, snoop: u64, tlb: u64) -> DataSource {
    DataSource(op | bits << 5 | snoop << 19 | 1 << 24 | tlb << 26 | number << 33 | remote << 37)
}

const LOAD: u64 = 2;
const HIT: u64 = 2;
const MISS: u64 = 4;

#[test]
fn levels_of_pebs() {
    // Skylake and later: bits and numbers.
    let of = |bits, number, remote| source(LOAD, bits, number, remote, 2, 0x1a).level();
    assert_eq!(of(HIT | 0x8, 1, 0), Level::L1);
    assert_eq!(of(HIT | 0x10, 12, 0), Level::FillBuffer);
    assert_eq!(of(HIT | 0x20, 2, 0), Level::L2);
    assert_eq!(of(HIT | 0x40, 3, 0), Level::L3);
    assert_eq!(of(HIT | 0x80, 13, 0), Level::Memory);
    assert_eq!(of(HIT | 0x100, 13, 1), Level::RemoteMemory);
    assert_eq!(of(HIT | 0x400, 3, 1), Level::RemoteCache);
    assert_eq!(of(HIT | 0x2000, 15, 0), Level::Uncached);
    // "L3 miss", from an unknown source.
    assert_eq!(of(MISS | 0x40, 15, 0), Level::Past(3));
    // A store that missed the first level.
    assert_eq!(source(4, MISS | 0x8, 15, 0, 1, 1).level(), Level::Past(1));
}

#[test]
fn levels_of_older_kernels_come_from_bits_alone() {
    let of = |bits| source(LOAD, bits, 0, 0, 1, 1).level();
    assert_eq!(of(HIT | 0x8), Level::L1);
    assert_eq!(of(HIT | 0x80), Level::Memory);
    assert_eq!(of(HIT | 0x200), Level::RemoteMemory);
    assert_eq!(of(HIT | 0x800), Level::RemoteCache);
    assert_eq!(of(HIT | 0x1000), Level::Device);
    assert_eq!(of(HIT | 0x8 | 0x20), Level::Unknown, "two levels");
    assert_eq!(of(1), Level::Unknown, "not available");
    assert_eq!(of(0), Level::Unknown);
}

#[test]
fn levels_of_ibs() {
    let of = |bits, number, remote| source(LOAD, bits, number, remote, 1, 0xa).level();
    assert_eq!(of(HIT | 0x8, 1, 0), Level::L1);
    // A cache of another core complex: some cache, remote.
    assert_eq!(of(HIT | 0x400, 11, 1), Level::RemoteCache);
    assert_eq!(of(HIT, 11, 0), Level::AnyCache);
    assert_eq!(of(HIT, 14, 0), Level::Persistent);
    assert_eq!(of(HIT | 0x2000, 8, 0), Level::Uncached);
    assert_eq!(of(HIT | 0x1000, 10, 0), Level::Device);
    assert_eq!(source(LOAD, 1, 9, 0, 1, 1).level(), Level::Cxl);
    // An operation that accesses no memory.
    assert_eq!(source(1, 1, 15, 0, 1, 1).operation(), None);
}

#[test]
fn levels_of_spe_as_perf_makes_them() {
    let of = |bits| source(LOAD, bits, 0, 0, 1, 0x22).level();
    assert_eq!((of(HIT | 0x8), of(MISS | 0x8)), (Level::L1, Level::Past(1)));
    assert_eq!(
        (of(HIT | 0x40), of(MISS | 0x40)),
        (Level::L3, Level::Past(3))
    );
    assert_eq!(source(LOAD, HIT, 5, 0, 1, 1).level(), Level::L2FillBuffer);
    let peer = DataSource(source(LOAD, HIT | 0x40, 3, 1, 1, 1).0 | 2 << 38);
    assert_eq!(
        (peer.level(), peer.snoop()),
        (Level::RemoteCache, Some("peer"))
    );
}

#[test]
fn other_fields() {
    let at = |snoop, tlb| source(LOAD, HIT | 0x8, 1, 0, snoop, tlb);
    let snoops: Vec<_> = [1, 2, 4, 8, 16].map(|s| at(s, 1).snoop()).into();
    assert_eq!(
        snoops,
        [None, Some("none"), Some("hit"), Some("miss"), Some("hitm")]
    );
    let tlb = |bits| at(1, bits).tlb();
    assert_eq!(tlb(1), None);
    assert_eq!(tlb(0x1a).as_deref(), Some("L1 or L2 hit"));
    assert_eq!(tlb(0x14).as_deref(), Some("L2 miss"));
    assert_eq!(tlb(2).as_deref(), Some("hit"));
    assert_eq!(tlb(6), None, "a contradiction");
    assert_eq!(at(1, 1).locked(), None);
    assert_eq!(DataSource(2 << 24).locked(), Some(true));
    assert_eq!(DataSource(2 << 40).blocked(), Some("data"));
    assert_eq!(DataSource(5 << 40).blocked(), Some("address"));
    assert_eq!(DataSource(1 << 43).hops(), Some(0));
    assert_eq!(DataSource(0).hops(), None);
    assert_eq!(DataSource(0).is_remote(), None);
    assert_eq!(at(1, 1).is_remote(), Some(false));
}

#[test]
fn any_value_has_a_meaning_and_none_panics() {
    use proptest::prelude::*;
    proptest!(|(value: u64)| {
        let source = DataSource(value);
        let _ = (source.operation(), source.snoop(), source.tlb(), source.hops());
        let _ = (source.locked(), source.blocked(), source.is_remote());
        prop_assert!(!source.level().name().is_empty());
    });
}

#[test]
fn samples_of_pebs_and_ibs_are_drawn_from_what_their_events_say() {
    let attr = |pmu, config, config1| Attr {
        pmu,
        config,
        config1,
        ..Attr::default()
    };
    let of = |attr: &Attr, pmu: Option<&str>| Drawn::of(attr, pmu, "", false);
    assert_eq!(of(&attr(4, 0x1cd, 30), None), Drawn::SlowLoads(30));
    assert_eq!(of(&attr(4, 0x1cd, 3), Some("cpu")), Drawn::Loads);
    assert_eq!(of(&attr(10, 0x1cd, 3), Some("cpu_core")), Drawn::Loads);
    assert_eq!(of(&attr(4, 0x81d0, 0), Some("cpu")), Drawn::Loads);
    assert_eq!(of(&attr(4, 0x82d0, 0), None), Drawn::Stores);
    assert_eq!(of(&attr(10, 0x1cd, 3), None), Drawn::Unknown);
    assert_eq!(of(&attr(11, 0, 0), Some("ibs_op")), Drawn::Cycles);
    assert_eq!(of(&attr(11, 1 << 19, 0), Some("ibs_op")), Drawn::Operations);
    assert_eq!(
        of(&attr(11, 3 << 19 | 1 << 16, 0), Some("ibs_op")),
        Drawn::Unknown
    );
    let spe = attr(0, 1, 0);
    assert_eq!(Drawn::of(&spe, None, "memory", false), Drawn::Operations);
    assert_eq!(Drawn::of(&spe, None, "memory", true), Drawn::Unknown);
    assert_eq!(Drawn::of(&spe, None, "l1d-miss", false), Drawn::Unknown);
}

fn sample(id: u64, time: u64, address: u64) -> Sample {
    Sample {
        identity: Identity {
            task: Some((5, 6)),
            time: Some(time),
            id: Some(id),
            cpu: Some(1),
        },
        address: Some(address),
        source: Some(source(LOAD, HIT | 0x8, 1, 0, 1, 1).0),
        ..Sample::default()
    }
}

#[test]
fn two_events_of_one_access_are_one_sample() {
    let mut memory = MemorySamples::default();
    let event = |id| AttrWithIds {
        attr: Attr::default(),
        ids: vec![id],
    };
    let mut names = EventNames::default();
    names.names.insert(8, "l1d-access".into());
    names.names.insert(9, "memory".into());
    memory.push(&sample(8, 10, 64), 2, Some(0));
    memory.push(&sample(9, 10, 64), 2, Some(1));
    // The same event again, and another address.
    memory.push(&sample(9, 10, 64), 2, Some(1));
    memory.push(&sample(8, 10, 0), 2, Some(0));
    memory.settle(&[event(8), event(9)], &names);
    let found: Vec<_> = memory.list.iter().map(|s| (s.event, s.address)).collect();
    assert_eq!(found, [(1, Some(64)), (1, Some(64)), (0, None)]);
    assert_eq!((memory.repeated, memory.of_no_access), (1, 0));
    assert_eq!(
        memory
            .event(&memory.list[0])
            .map(|e| (e.name.as_str(), e.drawn)),
        Some(("memory", Drawn::Operations))
    );
}

fn words(list: &[u64]) -> Vec<u8> {
    list.iter().flat_map(|w| w.to_le_bytes()).collect()
}

#[test]
fn nodes_of_physical_memory() {
    let section = words(&[1, 0x1000, 2, 0, 3, 3, 0b101, 1, 70, 70, 1 << 63, 1]);
    let nodes = Nodes::read(&section).unwrap();
    let of = [0, 0x1fff, 0x2000, 63 * 0x1000, 64 * 0x1000].map(|a| nodes.of(a));
    assert_eq!(of, [Some(0), None, Some(0), Some(1), Some(1)]);
    for cut in 0..section.len() {
        assert_eq!(Nodes::read(&section[..cut]), None, "{cut} bytes");
    }
    let huge = words(&[1, 0x1000, u64::MAX, 0, u64::MAX, u64::MAX, 1]);
    assert_eq!(Nodes::read(&huge), None);
    assert_eq!(Nodes::default().of(5), None);
}

#[test]
fn names_of_pmus_and_events() {
    let text = |name: &str| {
        let mut out = 64u32.to_le_bytes().to_vec();
        out.extend_from_slice(name.as_bytes());
        out.resize(68, 0);
        out
    };
    let number = |n: u32| n.to_le_bytes().to_vec();
    let pmus = [
        number(2),
        number(4),
        text("cpu"),
        number(11),
        text("ibs_op"),
    ]
    .concat();
    let mut names = EventNames::default();
    assert!(names.read_pmus(&pmus));
    assert_eq!(names.pmus.get(&11).map(String::as_str), Some("ibs_op"));
    let event = |ids: &[u64], name: &str| {
        [
            vec![0; 16],
            number(ids.len() as u32),
            text(name),
            words(ids),
        ]
        .concat()
    };
    let events = [number(2), number(16), event(&[7, 8], "a"), event(&[], "b")].concat();
    assert!(names.read_events(&events));
    assert_eq!(names.names.get(&8).map(|n| &**n), Some("a"));
    // The second event has no ids, and is identified by its position.
    let of = |ids: [&[u64]; 2]| {
        let events = ids.map(|ids| AttrWithIds {
            attr: Attr::default(),
            ids: ids.to_vec(),
        });
        let found = names.events(&events).into_iter().map(|event| event.name);
        found.collect::<Vec<_>>()
    };
    assert_eq!(of([&[7], &[]]), ["a", "b"]);
    assert_eq!(of([&[], &[9]]), ["", ""]);
    let of_one = names.events(&[AttrWithIds {
        attr: Attr::default(),
        ids: Vec::new(),
    }]);
    assert_eq!(of_one[0].name, "", "one of two is not known");
    for cut in 0..events.len() {
        assert!(
            !EventNames::default().read_events(&events[..cut]),
            "{cut} bytes"
        );
    }
    for cut in 0..pmus.len() {
        assert!(
            !EventNames::default().read_pmus(&pmus[..cut]),
            "{cut} bytes"
        );
    }
}

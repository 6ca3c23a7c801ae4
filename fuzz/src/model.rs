//! A sidecar with every kind of site, and expansion of arbitrary slots with it.

use mgz_annotations_schema::Sidecar;
use mgz_abi::slot::{MARK_FIRST, Slot};
use mgz_annotations_schema::expand::{Expander, Placement, RowBatch, Tables};
use mgz_annotations_schema::sidecar::{Function, Gather, NO_RECORD, NONE, Record, Region, Site, SiteFlags, SiteKind};
use mgz_annotations_schema::spill::{SegmentHeader, SegmentKind};

/// First record id of [`sidecar`].
pub const ID_FIRST: u32 = 0x40;

/// Regions: two plain records with an implied load between; a counted string; a string that stops
/// early; a gather of four raw slots (as files of earlier versions have them); a bit string,
/// `xlat`, a static load and a load by a shared record.
pub fn sidecar() -> Sidecar {
    let mut s = Sidecar { functions: vec![Function { left: NONE, start: 0x1000, end: 0x2000, ..Function::default() }], ..Sidecar::default() };
    s.header.id_first = ID_FIRST;
    let site = |a: u8, b: u8, kind: SiteKind, flags: u8| Site { a, b, kind: kind as u8, flags, scale: 4, size: 8, location: NONE, class: 2, ..Site::default() };
    region(&mut s, &[1, 1], &[
        site(0, NO_RECORD, SiteKind::Plain, 0),
        site(NO_RECORD, NO_RECORD, SiteKind::Plain, SiteFlags::IMPLIED),
        site(0, 1, SiteKind::Plain, SiteFlags::ADDR32),
        site(1, NO_RECORD, SiteKind::Plain, SiteFlags::STORE),
    ]);
    region(&mut s, &[1, 1], &[site(0, 1, SiteKind::String, 0)]);
    region(&mut s, &[1, 1, 1], &[site(0, 1, SiteKind::StringUntil, 0)]);
    region(&mut s, &[5], &[site(0, NO_RECORD, SiteKind::Gather, SiteFlags::INDEX64)]);
    let gather = s.sites.len() as u32 - 1;
    s.gathers.push(Gather { site: gather, lanes: 4, mask_bytes: 8, index_bytes: 32 });
    region(&mut s, &[1, 1, 1], &[
        site(0, 1, SiteKind::BitString, 0),
        site(0, 2, SiteKind::Xlat, 0),
        site(NO_RECORD, NO_RECORD, SiteKind::Plain, SiteFlags::STATIC),
        site(2, NO_RECORD, SiteKind::Plain, 0),
    ]);
    s
}

fn region(s: &mut Sidecar, slots: &[u32], sites: &[Site]) {
    let number = s.regions.len() as u32;
    let start = 0x1000 + u64::from(number) * 0x100;
    s.regions.push(Region {
        function: 0,
        first_record: s.records.len() as u32,
        record_count: slots.len() as u32,
        first_site: s.sites.len() as u32,
        site_count: sites.len() as u32,
        implied_const: sites.iter().filter(|x| x.flags & SiteFlags::IMPLIED != 0).count() as u32,
    });
    for (i, &slots) in (0..).zip(slots) {
        s.records.push(Record { region: number, slots, ip: start + 4 * i, clone_ip: 0x9000 + start + 16 * i });
    }
    for (i, site) in (0..).zip(sites) {
        s.sites.push(Site { region: number, ip: start + 4 * i, clone_ip: 0x9000 + start + 16 * i + 8, ..*site });
    }
}

/// Slots from bytes, three or more bytes each: mostly ids of a module with `records` records, some markers
/// with addresses inside its code, some wild ones.
pub fn slots(bytes: &[u8], records: u32) -> Vec<Slot> {
    let mut out = Vec::new();
    let mut id = ID_FIRST;
    for chunk in bytes.chunks_exact(3) {
        let value = u64::from(u16::from_le_bytes([chunk[1], chunk[2]]));
        let (payload, aux) = match chunk[0] >> 6 {
            0 => (value, 0),
            1 => (0x1000 + value % 0x600, value as u32),
            2 => (value << 48 | value, value as u32),
            _ => (value.wrapping_neg(), u32::MAX),
        };
        id = match chunk[0] & 63 {
            n @ 0..40 => ID_FIRST + u32::from(n) % (records + 1),
            40..52 => id + 1,
            n @ 52..60 => MARK_FIRST + u32::from(n - 52),
            _ => value as u32 * 0x1_0001,
        };
        out.push(Slot { payload, id, aux });
        if id >= MARK_FIRST {
            id = ID_FIRST;
        }
    }
    out
}

/// Expands the slots as `full` and as windows, in parts. Checks properties that hold for any slots.
pub fn expand(sidecar: &Sidecar, slots: &[Slot]) {
    let Ok(tables) = Tables::new([sidecar]) else { return };
    for kind in [SegmentKind::Full, SegmentKind::Window] {
        let mut expander = Expander::new(&tables, &[Placement { sidecar: 0, module: 0, bias: 0 }]);
        let (mut rows, mut next_sample, mut first_slot) = (RowBatch::default(), 0, 0);
        for part in slots.chunks((slots.len() / 3).max(1)) {
            let header = SegmentHeader { kind, first_slot, begin_ns: first_slot, end_ns: first_slot + 50, slots: part.len() as u32, ..SegmentHeader::default() };
            expander.segment(&header, part, &mut next_sample, &mut rows);
            first_slot += part.len() as u64;
        }
        expander.finish(&mut rows);
        let counters = expander.counters();
        assert_eq!(counters.rows, rows.len() as u64);
        assert_eq!(counters.slots, slots.len() as u64);
        assert_eq!(counters.implied, rows.implied_const.iter().map(|&n| u64::from(n)).sum::<u64>());
        let lengths = [rows.seq.len(), rows.sample.len(), rows.time_ns.len(), rows.module.len(), rows.ip.len(), rows.site.len(), rows.size.len()];
        assert!(lengths.iter().all(|&n| n == rows.len()), "columns differ in length: {lengths:?}");
        assert!(rows.sample.is_sorted() && rows.sample.iter().all(|&n| n < next_sample));
        assert!(rows.seq.windows(2).all(|w| w[0] < w[1]), "seq must grow");
    }
}

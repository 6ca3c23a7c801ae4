//! Arbitrary slots must be read from a spill file unchanged.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mgz_abi::slot::Slot;
use mgz_annotations_schema::spill::{SegmentHeader, SpillReader, SpillWriter, ThreadKey};

/// Slots from bytes: mostly small steps from the previous slot, like real records, else raw.
fn slots(bytes: &[u8]) -> Vec<Slot> {
    let mut out = Vec::new();
    let mut last = Slot::default();
    for chunk in bytes.chunks_exact(4) {
        let value = u64::from(u16::from_le_bytes([chunk[2], chunk[3]]));
        last.id = last.id.wrapping_add(u32::from(chunk[0] >> 4));
        last.payload = match chunk[0] & 3 {
            0 => last.payload.wrapping_add(value),
            1 => last.payload.wrapping_sub(value),
            2 => value << (chunk[1] % 64),
            _ => !(value << (chunk[1] % 64)),
        };
        last.aux = if chunk[0] & 12 == 12 { value as u32 } else { 0 };
        if chunk[1] == 255 {
            last.id = !last.id;
        }
        for _ in 0..=(chunk[1] >> 6) {
            out.push(last);
        }
    }
    out
}

fuzz_target!(|bytes: &[u8]| {
    let folder = std::env::temp_dir().join(format!("mgz-fuzz-spill-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder for the spill file");
    let slots = slots(bytes);
    let cut = slots.len() / 3;
    let mut writer = SpillWriter::create(&folder, ThreadKey { process: 7, thread: 8 }).expect("a new spill file");
    for part in [&slots[..cut], &slots[cut..]] {
        writer.write(&SegmentHeader { first_slot: 5, begin_ns: 1, end_ns: 2, ..SegmentHeader::default() }, part).expect("written");
    }
    let path = writer.path().to_owned();
    writer.finish().expect("finished");
    let mut reader = SpillReader::open(&path).expect("readable");
    let (mut all, mut part) = (Vec::new(), Vec::new());
    while let Some(header) = reader.next(&mut part).expect("undamaged") {
        assert_eq!(header.slots as usize, part.len());
        all.extend_from_slice(&part);
    }
    assert!(!reader.truncated());
    assert_eq!(all, slots);
    let _ = std::fs::remove_dir_all(&folder);
});

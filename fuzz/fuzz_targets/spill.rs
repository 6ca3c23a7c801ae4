//! Arbitrary spill files. Their check values are corrected first, so that the decoder sees the
//! damage.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mgz_annotations_schema::spill::SpillReader;
use mgz_fuzz::{MemoryFile, mend_spill_checks};

fuzz_target!(|bytes: &[u8]| {
    let mut mended = bytes.to_vec();
    // One in eight inputs keeps its checks as they are.
    if bytes.last().is_none_or(|b| b % 8 != 0) {
        mend_spill_checks(&mut mended);
    }
    let file = MemoryFile::new(&mended);
    let Ok(mut reader) = SpillReader::open(file.path()) else { return };
    let mut slots = Vec::new();
    while let Ok(Some(header)) = reader.next(&mut slots) {
        assert_eq!(header.slots as usize, slots.len());
    }
});

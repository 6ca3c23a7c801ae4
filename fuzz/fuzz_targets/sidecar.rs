//! Arbitrary sidecars. Those that the reader accepts must be safe to follow and must survive being
//! written again.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mgz_annotations_schema::Sidecar;
use mgz_abi::slot::Slot;
use mgz_fuzz::model;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(first) = Sidecar::from_bytes(bytes) {
        for site in &first.sites {
            let _ = &first.functions[site.function as usize];
            if let Some(region) = first.regions.get(site.region as usize) {
                let last = region.first_record as usize + region.record_count as usize;
                let _ = &first.records[region.first_record as usize..last];
            }
        }
        let again = first.to_bytes().expect("writing to memory");
        let second = Sidecar::from_bytes(&again).expect("what was accepted once is accepted when written again");
        assert_eq!(first.sites, second.sites);
        assert_eq!(first.records, second.records);
        assert_eq!(first.regions, second.regions);
        assert_eq!(first.map, second.map);
        // Slots that walk through its records, as far as they go.
        let ids = first.records.len().min(512) as u32;
        let mut slots: Vec<_> = (0..ids).map(|i| Slot { id: first.header.id_first.wrapping_add(i), payload: u64::from(i) << 12, aux: 0 }).collect();
        slots.extend(model::slots(&bytes[bytes.len() / 2..], ids).into_iter().take(512));
        model::expand(&first, &slots);
    }
});

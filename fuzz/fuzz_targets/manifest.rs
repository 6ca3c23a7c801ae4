//! Arbitrary trace manifests.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mgz_annotations_schema::manifest::Manifest;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(manifest) = serde_json::from_slice::<Manifest>(bytes) {
        let again = serde_json::to_vec(&manifest).expect("a manifest can be written");
        serde_json::from_slice::<Manifest>(&again).expect("and read again");
    }
});

//! Arbitrary slots, expanded by a sidecar with every kind of site.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mgz_annotations_schema::Sidecar;
use mgz_fuzz::model;
use std::sync::LazyLock;

static SIDECAR: LazyLock<Sidecar> = LazyLock::new(|| {
    let bytes = model::sidecar().to_bytes().expect("writing to memory");
    Sidecar::from_bytes(&bytes).expect("the model is well formed")
});

fuzz_target!(|bytes: &[u8]| {
    model::expand(&SIDECAR, &model::slots(bytes, SIDECAR.records.len() as u32));
});

//! Arbitrary jitdump files, and the names of addresses in it at all times.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mgz_generated_code::jitdump;
use mgz_generated_code::naming::ProcessCode;

fuzz_target!(|bytes: &[u8]| {
    let Some(dump) = jitdump::read(&mut &bytes[..]) else { return };
    assert!(dump.blocks.is_sorted_by_key(|b| b.begin_ns));
    let mut samples = Vec::new();
    for block in &dump.blocks {
        for time in [block.begin_ns, block.end_ns.saturating_sub(1), block.end_ns] {
            samples.extend([(time, block.start), (time, block.end.wrapping_sub(1)), (time, block.end)]);
        }
    }
    let mut code = ProcessCode::default();
    code.add_source(dump.blocks.clone());
    for ((time, address), name) in samples.iter().zip(code.names_of(&samples)) {
        let Some(name) = name else { continue };
        let is_own = |b: &&mgz_generated_code::GeneratedBlock| (b.start..b.end).contains(address) && b.name == *name;
        assert!(dump.blocks.iter().any(|b| is_own(&b)), "{time} {address:#x}: {name:?}");
    }
});

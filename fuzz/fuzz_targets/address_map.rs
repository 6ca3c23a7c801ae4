//! Arbitrary address maps: every walk ends, and both directions agree with it.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mgz_abi::address_map::AddrMap;

fuzz_target!(|bytes: &[u8]| {
    let Some(map) = AddrMap::new(bytes) else { return };
    for function in 0..map.len().min(64) {
        let Some(walk) = map.walk(function) else { continue };
        for step in walk.take(4096) {
            let _ = map.state(step.state);
        }
        if let Some(row) = map.function(function) {
            let _ = map.at_clone(row.clone_start.into());
            let _ = map.at_original(row.orig_start.into());
        }
    }
    for at in bytes.chunks_exact(4).take(32) {
        let ip = u64::from(u32::from_le_bytes([at[0], at[1], at[2], at[3]]));
        let _ = map.at_clone(ip);
        let _ = map.at_original(ip);
    }
});

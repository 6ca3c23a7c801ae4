//! Arbitrary perf maps, and the names of addresses in it.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mgz_generated_code::naming::ProcessCode;
use mgz_generated_code::perf_map;

fuzz_target!(|bytes: &[u8]| {
    let map = perf_map::parse(bytes);
    assert!(map.blocks.iter().all(|b| b.start < b.end && !b.name.function.is_empty()));
    let places: Vec<u64> = map.blocks.iter().flat_map(|b| [b.start, b.end - 1, b.end]).collect();
    let mut code = ProcessCode::default();
    code.add_source(map.blocks.clone());
    let named: Vec<_> = places.iter().map(|&place| code.last_name_of(place)).collect();
    // A first or last address has a name: its own, or that of a later line.
    assert!(named.chunks(3).all(|n| n[0].is_some() && n[1].is_some()));
    if let (Some(last), Some(block)) = (named.last(), map.blocks.last()) {
        assert_eq!(named[named.len() - 3], Some(&block.name), "the last line counts");
        assert!(last.is_none_or(|name| !name.function.is_empty()));
    }
});

//! A perf.data file from outside: every reader of it, and the packets inside.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mgz_collector::perfdata::import;

fuzz_target!(|bytes: &[u8]| {
    let mut out = std::io::sink();
    let _ = import::raw_bytes(bytes, &mut out);
});

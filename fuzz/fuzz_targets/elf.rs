//! Arbitrary ELF files, through the whole rewriter in both flavours. The output must be readable.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mgz_abi::module_note::{FLAVOUR_PT, FLAVOUR_SOFT};
use mgz_abi::address_map::AddrMap;
use mgz_elf::image::Elf;
use mgz_instrument::program::InstrumentOptions;
use mgz_instrument::pipeline::settings::Settings;
use mgz_instrument::pipeline::rewrite::rewrite;

fuzz_target!(|bytes: &[u8]| {
    for flavour in [FLAVOUR_SOFT, FLAVOUR_PT] {
        let Ok(done) = rewrite(bytes, &InstrumentOptions::new(flavour), &Settings::default(), |image| image) else { continue };
        // A huge .bss makes a file with a hole, which is not written out here.
        if done.begun.pieces.iter().any(|(offset, _)| *offset > 1 << 24) {
            continue;
        }
        let image = done.begun.to_bytes();
        let elf = Elf::parse(&image).expect("the new file is an ELF file");
        assert!(elf.check_instrumentable().is_err(), "the new file says that it is instrumented");
        let sidecar = done.annotations.sidecar().expect("the sidecar is accepted by its reader");
        let map = AddrMap::new(&sidecar.map).expect("the address map is accepted by its reader");
        let cloned = sidecar.functions.iter().filter(|f| f.clone_start != 0).count();
        assert_eq!(map.len(), cloned);
        for (number, function) in sidecar.functions.iter().filter(|f| f.clone_start != 0).enumerate() {
            let steps = map.walk(number).expect("each clone has its walk");
            let end = steps.fold(function.clone_start, |_, step| step.clone + u64::from(step.clone_len));
            assert!(end <= function.clone_end, "the walk ends at {end:#x}, behind the clone's end {:#x}", function.clone_end);
        }
    }
});

//! An ELF file in a process's memory, as GDB's interface for just-in-time compilers lists it.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mgz_generated_code::gdb_interface::{GdbList, ProcessMemory, functions};

/// The bytes lie at this address.
const BASE: u64 = 0x1000;

struct Bytes<'a>(&'a [u8]);

impl ProcessMemory for Bytes<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let found = address.checked_sub(BASE).and_then(|at| {
            let at = usize::try_from(at).ok()?;
            self.0.get(at..at.checked_add(into.len())?)
        });
        found.map(|bytes| into.copy_from_slice(bytes)).is_some()
    }
}

fuzz_target!(|bytes: &[u8]| {
    assert!(functions(bytes).iter().all(|b| b.start < b.end && !b.name.function.is_empty()));
    // The list is in the same bytes.
    let mut list = GdbList::default();
    for look in 1..3 {
        list.look(&Bytes(bytes), BASE, look);
    }
    assert!(list.blocks().iter().all(|b| b.begin_ns == 0 && b.end_ns == u64::MAX));
});

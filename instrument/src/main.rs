//! `mgz-instrument`: see [`mgz_instrument::cli`].

/// Functions are analysed in parallel, with many small allocations each.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let status = mgz_instrument::cli::main();
    // SAFETY: the call takes no pointers and does not return. All output is written, and the only
    // exit handler is the allocator's, which would clean up all memory needlessly.
    unsafe { libc::_exit(status) }
}

//! `mgz-instrument`: see [`mgz_instrument::cli`].

/// Functions are analysed in parallel, each in many small tables.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let status = mgz_instrument::cli::main();
    // SAFETY: the call takes no pointers and does not return; what is said is written, and nobody
    // else has asked to be called at the end but the allocator, which would sort out all memory for
    // the last time.
    unsafe { libc::_exit(status) }
}

//! `mgz-instrument`: see [`mgz_instrument::cli`].

/// Functions are analysed in parallel, each in many small tables.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    mgz_instrument::cli::main()
}

//! `mgz-instrument`: see [`mgz_instrument::cli`].

fn main() -> std::process::ExitCode {
    mgz_instrument::cli::main()
}

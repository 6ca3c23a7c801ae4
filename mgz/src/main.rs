//! `mgz`: see `mgz --help`.

use clap::Parser;

fn main() {
    std::process::exit(mgz::cli::main(mgz::cli::Cli::parse()));
}

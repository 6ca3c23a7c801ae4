//! `mgz-record`: see `mgz-record --help`.

use clap::Parser;
use mgz_collector::commands::{hot, import_probe, record};
use mgz_collector::util::args;
use mgz_collector::util::args::Cli;

fn main() {
    std::process::exit(run());
}

fn run() -> i32 {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            // By the convention of `env` and `timeout`; statuses below belong to the program.
            return if error.use_stderr() { 125 } else { 0 };
        }
    };
    let done = match &cli {
        Cli {
            completions: Some(shell),
            ..
        } => {
            args::completions(*shell, &mut std::io::stdout());
            Ok(0)
        }
        Cli { man: true, .. } => {
            // A reader that has gone is no failure.
            let _ = args::man(&mut std::io::stdout());
            Ok(0)
        }
        Cli { probe: true, .. } => import_probe::probe(&cli),
        Cli {
            import: Some(file), ..
        } => import_probe::import(&cli, file),
        Cli {
            recover: Some(trace),
            ..
        } => record::recover(&cli, trace),
        Cli { hot: true, .. } => hot::run(&cli),
        _ => record::record(&cli),
    };
    done.unwrap_or_else(|failure| {
        eprintln!("mgz-record: {}", failure.message);
        failure.status
    })
}

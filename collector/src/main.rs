//! `mgz-record`: see `mgz-record --help`.

use mgz_collector::commands::{hot, import_probe, record};
use mgz_collector::options::args::Cli;
use mgz_collector::options::effect::Way;
use mgz_collector::options::{args, effect};
use mgz_collector::util::failure::Failure;

fn main() {
    std::process::exit(run());
}

fn run() -> i32 {
    let cli = match Cli::read(std::env::args_os()) {
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
        Cli { probe: true, .. } => {
            checked(&cli, Way::PROBE).and_then(|()| import_probe::probe(&cli))
        }
        Cli {
            import: Some(file),
            raw,
            packets,
            ..
        } => {
            let way = if *raw || *packets {
                Way::IMPORT_TEXT
            } else {
                Way::IMPORT
            };
            checked(&cli, way).and_then(|()| import_probe::import(&cli, file))
        }
        Cli {
            recover: Some(trace),
            ..
        } => checked(&cli, Way::RECOVER).and_then(|()| record::recover(&cli, trace)),
        Cli { hot: true, .. } => checked(&cli, Way::HOT).and_then(|()| hot::run(&cli)),
        _ => record::record(&cli),
    };
    done.unwrap_or_else(|failure| {
        eprintln!("mgz-record: {}", failure.message);
        failure.status
    })
}

fn checked(cli: &Cli, way: Way) -> Result<(), Failure> {
    effect::check_and_tell(cli, way).map_err(|message| Failure {
        status: 125,
        message,
    })
}

//! `mgz-record`: see `mgz-record --help`.

use mgz_collector::commands::{hot, import_probe, record};
use mgz_collector::options::args;
use mgz_collector::options::args::Cli;
use mgz_collector::options::request::Request;

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
    let done = Request::new(&cli).and_then(|request| match request {
        Request::Completions(shell) => {
            args::completions(shell, &mut std::io::stdout());
            Ok(0)
        }
        Request::Man => {
            // A reader that has gone is no failure.
            let _ = args::man(&mut std::io::stdout());
            Ok(0)
        }
        Request::Probe => import_probe::probe(&cli),
        Request::Import(file) => import_probe::import(&cli, file),
        Request::Recover(trace) => record::recover(&cli, trace),
        Request::Hot => hot::run(&cli),
        Request::Record(request) => record::record(request),
    });
    done.unwrap_or_else(|failure| {
        eprintln!("mgz-record: {}", failure.message);
        failure.status
    })
}

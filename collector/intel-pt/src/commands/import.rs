//! `mgz-record --import`.

use crate::import::dump;
use mgz_collector::options::args::Cli;
use mgz_collector::util::failure::Failure;
use mgz_perf_data::PerfDataError;
use std::io;
use std::path::Path;

/// Makes a trace of a perf.data file, or prints its content: rows to standard output, and the
/// losses to standard error.
pub fn import(cli: &Cli, file: &Path) -> Result<i32, Failure> {
    if !cli.raw && !cli.packets {
        return crate::import::run(cli, file);
    }
    let mut out = io::stdout().lock();
    let done = if cli.packets {
        dump::packets(file, &mut out)
    } else {
        dump::raw(file, &mut out).map(|report| eprint!("{report}"))
    };
    match done {
        Ok(()) => Ok(0),
        Err(PerfDataError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(Failure {
            status: 125,
            message: format!("{}: {error}", file.display()),
        }),
    }
}

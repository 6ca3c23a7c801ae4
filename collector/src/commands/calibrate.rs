//! `--calibrate`: the program runs twice. The first run counts its loads, the second is recorded;
//! the trace of the second holds that of the first.

use crate::options::args::{Cli, Mode, OutputFormat};
use crate::trace::dir::Folder;
use crate::util::failure::Failure;
use mgz_annotations_schema::manifest::CALIBRATION_DIR;
use mgz_annotations_schema::tell;
use std::io::Seek;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::path::PathBuf;

/// Does both runs; returns the exit status of the second.
pub(crate) fn record_calibrated(
    cli: &Cli,
    run: impl Fn(&Cli) -> Result<i32, Failure>,
) -> Result<i32, Failure> {
    if matches!(cli.mode, Some(Mode::Full | Mode::Ring | Mode::Count)) {
        return Err(Failure::own(
            "--calibrate is for windows by time or loads; traces of the other modes have counts already: leave --calibrate or --mode out",
        ));
    }
    Folder::check(&cli.output, cli.force)?;
    let input = Input::new()?;
    let beside = beside(cli);
    let counting = Cli {
        calibrate: false,
        count: true,
        mode: Some(Mode::Count),
        output: beside.clone(),
        force: true,
        period: None,
        overhead: None,
        rate: None,
        trigger: None,
        loads_event: None,
        duration: None,
        heap: None,
        heap_hook: Vec::new(),
        given: Default::default(),
        ..cli.clone()
    };
    if cli.format == OutputFormat::Text {
        tell!("mgz-record: the program runs twice: now to count its loads, then to record it");
    }
    let status = run(&counting)?;
    if status != 0 && cli.format == OutputFormat::Text {
        tell!("mgz-record: the first run ended with status {status}");
    }
    input.rewind()?;
    let recorded = run(cli);
    let folder = Folder::existing(&beside);
    if recorded.is_err() {
        folder.remove();
        return recorded;
    }
    let into = cli.output.join(CALIBRATION_DIR);
    std::fs::rename(&beside, &into).map_err(|error| {
        Failure::own(format!(
            "{}: cannot be moved into {}: {error}; give it to mgz-analyze by --weights-from",
            beside.display(),
            cli.output.display()
        ))
    })?;
    recorded
}

/// Path of the first trace until the second one is complete: beside it, so that a rename moves it.
fn beside(cli: &Cli) -> PathBuf {
    let mut name = cli.output.file_name().unwrap_or_default().to_owned();
    name.push(format!(".counted-{}", std::process::id()));
    cli.output.with_file_name(name)
}

/// The program's input. Both runs must have the same.
enum Input {
    /// A file, with the offset at which the first run starts to read.
    File(u64),
    /// Nothing, or a terminal, where the user types twice.
    Other,
}

impl Input {
    fn new() -> Result<Input, Failure> {
        // SAFETY: zeros are a value of this plain struct.
        let mut info: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the struct lives across the call.
        if unsafe { libc::fstat(0, &raw mut info) } != 0 {
            return Ok(Input::Other);
        }
        match info.st_mode & libc::S_IFMT {
            libc::S_IFREG => Ok(stdin().stream_position().map_or(Input::Other, Input::File)),
            libc::S_IFIFO | libc::S_IFSOCK => Err(Failure::own(
                "--calibrate runs the program twice, and what comes through a pipe can be read once only; redirect its input from a file (< FILE), or from /dev/null if it reads none",
            )),
            _ => Ok(Input::Other),
        }
    }

    fn rewind(&self) -> Result<(), Failure> {
        let Input::File(at) = self else { return Ok(()) };
        stdin()
            .seek(std::io::SeekFrom::Start(*at))
            .map(drop)
            .map_err(|error| {
                Failure::own(format!(
                    "the program's input cannot be read again: {error}; redirect it from another file"
                ))
            })
    }
}

/// Standard input, which stays open.
fn stdin() -> ManuallyDrop<std::fs::File> {
    // SAFETY: the descriptor is open (`fstat` knew it) and is not closed by this.
    ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(0) })
}

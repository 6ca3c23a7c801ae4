//! `--analyze`: the trace lies in memory, and what stays of it is its analysis.

use crate::commands::record;
use crate::options::args::Cli;
use crate::options::request::Request;
use crate::program::modules;
use crate::target::signals::Held;
use crate::util::failure::Failure;
use crate::util::memory_folder::MemoryFolder;
use crate::util::text::words;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// Status of mgz-analyze for a wrong command line.
const USAGE: i32 = 2;

/// Records into memory and analyses that; returns the exit status to pass on.
pub fn record(cli: &Cli) -> Result<i32, Failure> {
    let analyzer = find()?;
    let text = cli.analyze.as_deref().unwrap_or_default();
    let options = words(text).ok_or_else(|| {
        Failure::own(format!("--analyze={text}: a quote is not closed; close it"))
    })?;
    // Whatever ends us from now on must leave nothing behind.
    let held = Held::new();
    let memory = MemoryFolder::new().map_err(|error| {
        Failure::own(format!("--analyze: no folder in memory can be made: {error}; record with -o and run mgz-analyze on the trace"))
    })?;
    let memory = memory.ok_or_else(|| {
        Failure::own("--analyze: there is no file system in memory that can be written (/dev/shm, $XDG_RUNTIME_DIR, $TMPDIR); mount one (mount -t tmpfs none /dev/shm), or record with -o and run mgz-analyze on the trace")
    })?;
    let trace = memory.path().join("trace");
    check_options(&analyzer, &options, &trace)?;
    let output = match &cli.analysis {
        Some(path) => Some(File::create(path).map_err(|error| {
            Failure::own(format!(
                "--analysis {}: cannot be written: {error}; name another file",
                path.display()
            ))
        })?),
        None => None,
    };
    let inner = Cli {
        output: trace.clone(),
        max_size: cli.max_size.or_else(|| Some(bound(memory.free))),
        ..cli.clone()
    };
    let Request::Record(request) = Request::new(&inner)? else {
        return Err(Failure::own("--analyze is for recording a program"));
    };
    let status = record::record(request)?;
    let analysed = analyse(&analyzer, &options, &trace, output, &held)
        .map_err(|error| Failure::own(format!("{}: {error}", analyzer.display())))?;
    if !analysed.success() {
        return Err(Failure::own(format!(
            "--analyze: the analysis failed ({analysed}; what mgz-analyze said stands above), and the trace was not kept; record with -o to keep it"
        )));
    }
    Ok(status)
}

/// mgz-analyze, beside this program or in PATH.
fn find() -> Result<PathBuf, Failure> {
    let beside = std::env::current_exe()
        .ok()
        .map(|own| own.with_file_name("mgz-analyze"))
        .filter(|path| path.is_file());
    beside
        .map_or_else(
            || {
                let path = std::env::var_os("PATH");
                modules::resolve(OsStr::new("mgz-analyze"), path.as_deref())
            },
            Ok,
        )
        .map_err(|_| {
            Failure::own("--analyze: mgz-analyze is neither beside mgz-record nor in PATH; install it, or record with -o")
        })
}

/// Lets mgz-analyze read its options before the program runs, which may take hours.
fn check_options(analyzer: &Path, options: &[String], trace: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::own(format!("{}: {error}", analyzer.display()));
    let tried = Command::new(analyzer)
        .args(options)
        .arg(trace)
        .stdin(Stdio::null())
        .output()
        .map_err(failed)?;
    match tried.status.code() {
        // There is no trace yet: that is what it should complain of.
        Some(1) => Ok(()),
        Some(USAGE) => Err(Failure::own(format!(
            "--analyze: mgz-analyze does not take these options:\n{}",
            String::from_utf8_lossy(&tried.stderr).trim_end()
        ))),
        _ => Err(Failure::own(
            "--analyze takes options of mgz-analyze for tables of a trace; what it does without a trace is asked of mgz-analyze itself",
        )),
    }
}

fn analyse(
    analyzer: &Path,
    options: &[String],
    trace: &Path,
    output: Option<File>,
    held: &Held,
) -> std::io::Result<ExitStatus> {
    use std::os::fd::AsFd;
    let output = match output {
        Some(file) => Stdio::from(file),
        None => Stdio::from(std::io::stderr().as_fd().try_clone_to_owned()?),
    };
    held.forget();
    let mut child = Command::new(analyzer)
        .args(options)
        .arg(trace)
        .stdin(Stdio::null())
        .stdout(output)
        .spawn()?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if held.came() {
            // Ctrl-C at a terminal has reached it as well.
            child.kill()?;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a trace may take in memory, where nothing is said: records give way to columns, of which a part
/// lies beside them for a moment, and the analysis needs some too.
fn bound(free: u64) -> u64 {
    const LEAST: u64 = 8 << 20;
    let available = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|l| l.starts_with("MemAvailable:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .map_or(1 << 30, |kib| kib << 10);
    let allowed = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(u64::MAX);
    (available.min(allowed) / 6).min(free / 2).max(LEAST)
}

//! `--analyze` and `--predict`: the trace lies in memory, and only its analysis stays.

use crate::commands::intel_pt::IntelPt;
use crate::commands::record;
use crate::convert::online::Online;
use crate::options::args::{Cli, Mode, OutputFormat};
use crate::options::request::Request;
use crate::program::path_search;
use crate::target::signals::HeldSignals;
use crate::util::failure::Failure;
use crate::util::memory_folder::MemoryFolder;
use crate::util::text::shell_words;
use mgz_annotations_schema::tell;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Commands of mgz-analyze that take complete traces only.
const COMPLETE_TRACE_COMMANDS: [&str; 4] = ["affinity", "cache", "predict", "spectra"];
/// Status of mgz-analyze for a wrong command line.
const USAGE: i32 = 2;

/// Records into memory and analyses that; returns the exit status to pass on.
pub fn record_and_analyze(cli: &Cli, pt: Option<IntelPt>) -> Result<i32, Failure> {
    let analyzer = find()?;
    if let Some(model) = cli.predict.as_ref().filter(|model| !model.is_file()) {
        return Err(Failure::own(format!(
            "--predict {}: there is no such file; train a model by mgz-analyze predict --train … --size-from sampling --save FILE",
            model.display()
        )));
    }
    let text = cli.analyze.as_deref().unwrap_or_default();
    let options = shell_words(text).ok_or_else(|| {
        Failure::own(format!("--analyze={text}: a quote is not closed; close it"))
    })?;
    // Options are checked before the program runs, which may take hours.
    if let Some(command) = options
        .first()
        .filter(|c| COMPLETE_TRACE_COMMANDS.contains(&c.as_str()))
        && cli.mode != Some(Mode::Full)
    {
        return Err(Failure::own(format!(
            "--analyze={command}: {command} needs every load of the run, and only --mode full records it; add it"
        )));
    }
    // Signals that end the recorder are held from here on, so that the folder in memory is removed.
    let held = HeldSignals::new();
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
    let mut inner = Cli {
        output: trace.clone(),
        max_size: cli.max_size.or_else(|| Some(bound(memory.free))),
        ..cli.clone()
    };
    let failed = |error| Failure::own(format!("{}: {error}", analyzer.display()));
    let mut beside = match takes_rows(cli, &analyzer, &options, &trace)? {
        true => Some(Beside::start(&analyzer, &options, &trace, &output, &held).map_err(failed)?),
        false => None,
    };
    inner.online = beside.as_ref().map(|beside| beside.online.clone());
    let Request::Record(request) = Request::new(&inner)? else {
        return Err(Failure::own("--analyze is for recording a program"));
    };
    let status = record::record_program(request, pt)?;
    if let (Some(beside), OutputFormat::Text) = (&beside, cli.format) {
        tell!("mgz-record: {}", beside.online.account());
    }
    let analysed = match &mut beside {
        Some(beside) => beside.finish(&held),
        None => start(&analyzer, &options, &trace, &output, &held, Stdio::null())
            .and_then(|mut child| wait(&mut child, &held)),
    };
    let analysed = analysed.map_err(failed)?;
    if !analysed.success() {
        return Err(Failure::own(format!(
            "--analyze: the analysis failed ({analysed}; see the message of mgz-analyze above), and the trace was not kept; record with -o to keep it"
        )));
    }
    Ok(status)
}

/// Says to mgz-analyze that rows come on its standard input.
const ONLINE_OPTION: &str = "--online";

/// True if the analysis can take rows while the program runs.
fn takes_rows(
    cli: &Cli,
    analyzer: &Path,
    options: &[String],
    trace: &Path,
) -> Result<bool, Failure> {
    if cli.mode != Some(Mode::Full) || cli.calibrate {
        return Ok(false);
    }
    let tried = Command::new(analyzer)
        .args(options)
        .arg(ONLINE_OPTION)
        .arg(trace)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::own(format!("{}: {error}", analyzer.display())))?;
    // No rows come on the empty input. Status 1 means that this is the only complaint.
    Ok(tried.status.code() == Some(1))
}

/// An analysis that runs beside the program.
struct Beside {
    child: Child,
    online: Arc<Online>,
}

impl Beside {
    fn start(
        analyzer: &Path,
        options: &[String],
        trace: &Path,
        output: &Option<File>,
        held: &HeldSignals,
    ) -> std::io::Result<Beside> {
        let options = [options, &[ONLINE_OPTION.to_owned()]].concat();
        let mut child = start(analyzer, &options, trace, output, held, Stdio::piped())?;
        let pipe = child.stdin.take().map(OwnedFd::from).map(File::from);
        let pipe = pipe.ok_or(std::io::ErrorKind::BrokenPipe)?;
        // A larger pipe needs fewer wake-ups. If the call fails, the pipe stays smaller.
        // SAFETY: an integer call on our own descriptor.
        unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, 1 << 20) };
        Ok(Beside {
            child,
            online: Arc::new(Online::new(pipe)?),
        })
    }

    /// Tells the analysis that the trace has the rest of the rows, and waits for its end.
    fn finish(&mut self, held: &HeldSignals) -> std::io::Result<ExitStatus> {
        // Writing fails if the analysis has ended. Its exit status then says why.
        let _ = self.online.finish();
        wait(&mut self.child, held)
    }
}

impl Drop for Beside {
    /// If there was nothing to analyze, the analysis has nothing to report, so it is killed.
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // It is our child and was not waited for.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
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
                path_search::resolve(OsStr::new("mgz-analyze"), path.as_deref())
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
        // There is no trace yet. Status 1 means that this is the only complaint.
        Some(1) => Ok(()),
        Some(USAGE) => Err(Failure::own(format!(
            "--analyze: mgz-analyze does not take these options:\n{}",
            String::from_utf8_lossy(&tried.stderr).trim_end()
        ))),
        _ => Err(Failure::own(
            "--analyze takes options of mgz-analyze for tables of a trace; call mgz-analyze itself for options that need no trace",
        )),
    }
}

fn start(
    analyzer: &Path,
    options: &[String],
    trace: &Path,
    output: &Option<File>,
    held: &HeldSignals,
    input: Stdio,
) -> std::io::Result<Child> {
    let output = match output {
        Some(file) => Stdio::from(file.try_clone()?),
        None => Stdio::from(std::io::stderr().as_fd().try_clone_to_owned()?),
    };
    held.forget();
    Command::new(analyzer)
        .args(options)
        .arg(trace)
        .stdin(input)
        .stdout(output)
        // Ctrl-C at a terminal ends only the program. Its analysis still runs.
        .process_group(0)
        .spawn()
}

/// Waits for the child's end. A signal that asks this process to end kills the child.
fn wait(child: &mut Child, held: &HeldSignals) -> std::io::Result<ExitStatus> {
    held.forget();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if held.came() {
            child.kill()?;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Default bound on a trace's size in memory. Columns replace the records, and some of both exist
/// at the same time. The analysis needs memory too.
fn bound(free: u64) -> u64 {
    const MIN_BOUND_BYTES: u64 = 8 << 20;
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
    (available.min(allowed) / 6)
        .min(free / 2)
        .max(MIN_BOUND_BYTES)
}

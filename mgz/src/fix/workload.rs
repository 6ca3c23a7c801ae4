//! Runs of a program with the user's arguments: time, status and output.

use crate::fix::params;
use crate::signals;
use anyhow::{Context, bail};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::IsTerminal;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Common parts of all runs.
pub struct Workload {
    /// Name of the program in `argv[0]`.
    name: OsString,
    arguments: Vec<OsString>,
    /// Standard input; an empty one if there is none.
    input: Option<PathBuf>,
    /// Files and folders that the program writes, which are compared too.
    files: Vec<PathBuf>,
    /// A copy of the input from a pipe.
    _copy: Option<tempfile::NamedTempFile>,
}

/// A completed run.
pub struct Ran {
    /// Wall time. It is the time that users wait, and includes the costs of threads and page
    /// faults, which CPU time includes only in part or twice.
    pub seconds: f64,
    /// CPU time, including that of children that the program has waited for.
    pub cpu_seconds: f64,
    /// Exit status.
    pub status: ExitStatus,
    /// Folder with `stdout`, `stderr` and copies of the compared files.
    pub output: TempDir,
}

/// Names of the files in [`Ran::output`].
pub const STREAMS: [&str; 2] = ["stdout", "stderr"];

impl Ran {
    /// True if its threads ran in parallel.
    pub fn is_parallel(&self) -> bool {
        self.cpu_seconds > params::PARALLEL * self.seconds
    }
}

impl Workload {
    /// A workload with the input of `--stdin`, else that of a redirection.
    pub fn new(
        name: &OsStr,
        arguments: &[OsString],
        input: Option<&Path>,
        files: &[PathBuf],
    ) -> anyhow::Result<Workload> {
        let (input, copy) = match input {
            Some(file) => {
                File::open(file).with_context(|| {
                    format!("{}: cannot be read as standard input", file.display())
                })?;
                (Some(file.to_path_buf()), None)
            }
            None => redirected_input()?,
        };
        Ok(Workload {
            name: name.to_owned(),
            arguments: arguments.to_vec(),
            input,
            files: files.to_vec(),
            _copy: copy,
        })
    }

    /// True if runs read a file.
    pub fn has_input(&self) -> bool {
        self.input.is_some()
    }

    /// Sets the streams of a command.
    pub fn redirect(&self, command: &mut Command, folder: &Path) -> anyhow::Result<()> {
        let input = match &self.input {
            Some(file) => File::open(file)
                .with_context(|| format!("{}: cannot be read any more", file.display()))?
                .into(),
            None => Stdio::null(),
        };
        let create = |name: &str| {
            let path = folder.join(name);
            File::create(&path).with_context(|| format!("{}: cannot be made", path.display()))
        };
        command
            .stdin(input)
            .stdout(create(STREAMS[0])?)
            .stderr(create(STREAMS[1])?);
        Ok(())
    }

    /// Runs a file once. `limit`: seconds after which it is killed.
    pub fn run(&self, file: &Path, limit: Option<f64>) -> anyhow::Result<Option<Ran>> {
        let output = tempfile::Builder::new()
            .prefix("mgz-fix-")
            .tempdir()
            .context("cannot make a temporary folder")?;
        let mut command = Command::new(file);
        command.arg0(&self.name).args(&self.arguments);
        self.redirect(&mut command, output.path())?;
        let limit = limit.map(Duration::from_secs_f64);
        let ended = signals::wait_in_session(&mut command, limit)
            .with_context(|| format!("{}: cannot be executed", file.display()))?;
        stop_if_asked()?;
        let Some(ended) = ended else {
            return Ok(None);
        };
        for (number, path) in self.files.iter().enumerate() {
            copy(path, &output.path().join(copied_name(number, path)))?;
        }
        Ok(Some(Ran {
            seconds: ended.wall.as_secs_f64(),
            cpu_seconds: ended.cpu.as_secs_f64(),
            status: ended.status,
            output,
        }))
    }
}

/// Begin of the recorder's own lines on standard error.
const BY_RECORDER: &str = "mgz-record: ";

/// The last line that a run has written to standard error, in [`Ran::output`].
pub fn last_line(output: &Path) -> String {
    last_line_where(output, |_| true).unwrap_or_default()
}

/// The last line of the program in a recorded run, or of the recorder if the program wrote none.
pub fn last_line_of_program(output: &Path) -> String {
    let own = last_line_where(output, |line| !line.starts_with(BY_RECORDER));
    own.unwrap_or_else(|| last_line(output))
}

fn last_line_where(output: &Path, is_taken: impl Fn(&str) -> bool) -> Option<String> {
    let said = std::fs::read(output.join(STREAMS[1])).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let mut lines = said.lines().rev().filter(|line| !line.trim().is_empty());
    lines.find(|line| is_taken(line)).map(str::to_owned)
}

/// Stops the command if a key or a signal has requested it.
pub fn stop_if_asked() -> anyhow::Result<()> {
    match signals::is_stopped() {
        true => bail!("stopped: the program is as it was, and nothing was written"),
        false => Ok(()),
    }
}

/// Seconds after which a candidate is killed, from the time of the original.
pub fn limit(original: f64) -> f64 {
    original * params::LIMIT_FACTOR + params::LIMIT_SECONDS
}

/// The status as text.
pub fn status_in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => "an unknown status".into(),
    }
}

/// Standard input, if it is a file or a pipe. A terminal is not given to the program.
fn redirected_input() -> anyhow::Result<(Option<PathBuf>, Option<tempfile::NamedTempFile>)> {
    use std::os::unix::fs::FileTypeExt;
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Ok((None, None));
    }
    let own = Path::new("/proc/self/fd/0");
    let Ok(meta) = std::fs::metadata(own) else {
        return Ok((None, None));
    };
    let kind = meta.file_type();
    if kind.is_file() {
        let file = std::fs::read_link(own).context("standard input has no name")?;
        // The name of a removed file is not valid.
        if file.exists() {
            return Ok((Some(file), None));
        }
    }
    if kind.is_char_device() {
        return Ok((None, None));
    }
    let mut copy = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    let cannot = "standard input cannot be copied, so that each run could read it";
    std::io::copy(&mut stdin.lock(), copy.as_file_mut()).context(cannot)?;
    Ok((Some(copy.path().to_path_buf()), Some(copy)))
}

/// Name of the copy of a compared file.
fn copied_name(number: usize, path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    format!("file{number}-{}", name.to_string_lossy())
}

/// Copies a file or a folder. A missing file is missing in the copy as well.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let cannot = || format!("{}: cannot be copied to compare it", from.display());
    let Ok(meta) = std::fs::metadata(from) else {
        return Ok(());
    };
    if !meta.is_dir() {
        std::fs::copy(from, to).with_context(cannot)?;
        return Ok(());
    }
    std::fs::create_dir(to).with_context(cannot)?;
    for entry in std::fs::read_dir(from).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

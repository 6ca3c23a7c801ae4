//! Finds and runs the binaries under test, and prints what was skipped.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Fails a test that has found these failures.
pub fn no_failures(list: &[String]) {
    assert!(
        list.is_empty(),
        "{} failures:\n{}",
        list.len(),
        list.join("\n")
    );
}

/// Folder of the binaries: the one that holds the running test's `deps/`.
pub fn binaries() -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let deps = test.parent().context("the test has no folder")?;
    let dir = if deps.ends_with("deps") {
        deps.parent().context("deps has no parent")?
    } else {
        deps
    };
    Ok(dir.to_path_buf())
}

/// Lets a command be interrupted, since a shell that runs the tests in the background ignores
/// interrupts.
pub fn interruptible(command: &mut Command) -> &mut Command {
    use std::os::unix::process::CommandExt;
    // SAFETY: only a call that is safe after a fork.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        })
    }
}

/// Path of a binary of this workspace. They are not built by `cargo test`.
pub fn binary(name: &str) -> PathBuf {
    let path = binaries().expect("the folder of the test").join(name);
    assert!(
        path.exists(),
        "{} does not exist: run `cargo build --release --workspace` first (scripts/test does)",
        path.display()
    );
    path
}

/// Waits until a condition holds. On a busy machine that may take long, so no test waits for a
/// fixed time. Panics after [`LIMIT`].
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until more than `enough` bytes of records are in a trace's spill files. (In mode `full` a
/// program may wait for its recorder most of the time, so its CPU time is no measure of its
/// progress.)
pub fn until_recorded(trace: &Path, enough: u64) {
    let bytes = || {
        let files = std::fs::read_dir(trace.join("spill")).ok()?;
        let sizes = files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len()));
        Some(sizes.sum::<u64>())
    };
    until("records in the trace", || bytes() > Some(enough));
}

/// CPU time of a process and its threads so far; `None` if it has ended.
pub fn cpu_time(pid: i32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    // User and kernel time; the kernel counts 100 ticks a second for user programs.
    Some(Duration::from_millis(10 * (ticks(11)? + ticks(12)?)))
}

/// Waits until a process has used some CPU time. Panics if it ends earlier.
pub fn until_used(pid: i32, time: Duration) {
    until("CPU time of the program", || {
        cpu_time(pid).expect("the program runs") >= time
    });
}

/// Reports visibly that something was not tested.
pub fn skip(why: &str) {
    // The test runner hides what passing tests print; stderr of the process itself is not captured.
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr().lock(), "SKIPPED: {why}");
}

/// Returns whether the whole matrix was requested (`MGZ_TESTS=full`).
pub fn full_matrix() -> bool {
    std::env::var_os("MGZ_TESTS").is_some_and(|v| v == "full")
}

/// Returns whether a program is installed.
pub fn have(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    program.contains('/') && Path::new(program).exists()
        || std::env::split_paths(&path).any(|d| d.join(program).is_file())
}

/// Exit status as the shell reports it: 128 + n for a signal.
pub fn code(output: &Output) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    output
        .status
        .code()
        .unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0))
}

/// Runs a command in its own session with a time limit; kills the whole session when the time is
/// up.
pub fn run_limited(command: &mut Command, limit: Duration) -> Result<Output> {
    run_with(command, None, limit)
}

/// Like [`run_limited`], with optional bytes on standard input.
pub fn run_with(command: &mut Command, input: Option<&[u8]>, limit: Duration) -> Result<Output> {
    run_beside(command, input, limit, |_| {})
}

/// Like [`run_with`], but runs a function concurrently with the process. The function receives the
/// process id and must end soon after the process has ended.
pub fn run_beside(
    command: &mut Command,
    input: Option<&[u8]>,
    limit: Duration,
    meanwhile: impl FnOnce(i32) + Send,
) -> Result<Output> {
    use std::io::{Read, Write};
    use std::os::unix::process::CommandExt;
    use std::process::Stdio;
    let name = format!("{command:?}");
    command
        .stdin(if input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: setsid is a plain system call.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run {name}"))?;
    let session = child.id() as i32;
    let stdin = child.stdin.take();
    let (mut out, mut err) = (
        child.stdout.take().context("stdout")?,
        child.stderr.take().context("stderr")?,
    );
    std::thread::scope(|scope| {
        if let (Some(mut pipe), Some(bytes)) = (stdin, input) {
            // A program may end without reading all its input.
            scope.spawn(move || drop(pipe.write_all(bytes)));
        }
        let stdout = scope.spawn(move || {
            let mut bytes = Vec::new();
            let _ = out.read_to_end(&mut bytes);
            bytes
        });
        let stderr = scope.spawn(move || {
            let mut bytes = Vec::new();
            let _ = err.read_to_end(&mut bytes);
            bytes
        });
        scope.spawn(move || meanwhile(session));
        let deadline = Instant::now() + limit;
        let mut late = false;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline && !late {
                late = true;
                // SAFETY: this function created the session and every group in it.
                unsafe { libc::kill(-session, libc::SIGKILL) };
                let _ = child.kill();
            }
            std::thread::sleep(Duration::from_millis(3));
        };
        if late {
            // SAFETY: as above; readers end once the last process that holds the pipes has ended.
            unsafe { libc::kill(-session, libc::SIGKILL) };
        }
        let output = Output {
            status,
            stdout: stdout.join().expect("reader"),
            stderr: stderr.join().expect("reader"),
        };
        if late {
            bail!(
                "{name} did not end within {limit:?}; stderr: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(output)
    })
}

/// Runs a command that must succeed.
pub fn succeed(command: &mut Command, limit: Duration) -> Result<Output> {
    let output = run_limited(command, limit)?;
    if !output.status.success() {
        bail!(
            "{command:?}: status {}\n{}",
            code(&output),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(output)
}

/// Writes a program that this process, or one that it starts, will run. An existing file keeps its
/// permissions. Another process does the writing, because a process that another test starts at
/// that time would inherit the writable descriptor from this one. Until such a process has reached
/// its `exec`, the kernel refuses to run the program ("text file busy").
pub fn write_program(path: &Path, bytes: &[u8]) -> Result<()> {
    let output = run_with(
        Command::new("cp").arg("/dev/stdin").arg(path),
        Some(bytes),
        LIMIT,
    )?;
    if !output.status.success() {
        bail!(
            "cannot write {}: {}",
            path.display(),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// A tool of this workspace as a command.
pub fn tool(name: &str) -> Command {
    Command::new(binary(name))
}

/// Two minutes: enough for every command that a test runs, even on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn programs_written_while_others_start_can_be_run() {
        let dir = tempfile::tempdir().unwrap();
        let program = std::fs::read("/bin/true").unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        run_limited(&mut Command::new("/bin/true"), LIMIT).unwrap();
                    }
                });
            }
            let ran = (0..100).map(|i| {
                let path = dir.path().join(i.to_string());
                write_program(&path, &program)?;
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
                succeed(&mut Command::new(&path), LIMIT)
            });
            let failed: Vec<String> = ran
                .filter_map(Result::err)
                .map(|e| format!("{e:#}"))
                .collect();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(failed.is_empty(), "{} of 100: {failed:?}", failed.len());
        });
    }
}

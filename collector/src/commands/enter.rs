//! `--attach` to a process in a container: the recorder enters its namespaces of process ids and
//! mounts, so that ids and paths mean the same to both. Only the folder of the trace stays that of
//! the caller.

use crate::commands::record;
use crate::options::args::Cli;
use crate::soft::attach::process::{inner_id, other_namespaces, way_in};
use crate::target::signals::Signals;
use crate::util::failure::Failure;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time between looks at a recorder in the container. Source: Chosen.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Enters the namespaces of the process of `--attach`, and changes the options accordingly. Another
/// namespace of process ids needs another process: the caller then waits for it and gets its exit
/// status, to be passed on. To be called before there are other threads.
pub fn enter_container(cli: &mut Cli) -> Result<Option<i32>, Failure> {
    let Some(pid) = cli.attach else {
        return Ok(None);
    };
    let others = other_namespaces(pid);
    if !others.contains(&"pid") && !others.contains(&"mnt") {
        return Ok(None);
    }
    if cli.analyze.is_some() {
        return Err(Failure::own(
            "--analyze: the process runs in a container, where mgz-analyze is not; record with -o and run mgz-analyze on the trace",
        ));
    }
    let (inner, output) = (inner_id(pid), held(&cli.output)?);
    let cannot =
        |error: io::Error| Failure::own(format!("process {pid}: {} ({error})", way_in(pid)));
    let is_elsewhere = others.contains(&"pid");
    if is_elsewhere {
        join_ids(pid, others.contains(&"user")).map_err(cannot)?;
        // SAFETY: this process has one thread, so the child may do anything.
        match unsafe { libc::fork() } {
            -1 => return Err(cannot(io::Error::last_os_error())),
            0 => {}
            child => return wait_for(child, cli).map(Some),
        }
        // SAFETY: integers only.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
    }
    match join(pid, "mnt", libc::CLONE_NEWNS) {
        Ok(()) => {}
        Err(error) if is_elsewhere => return Err(cannot(error)),
        // Paths mostly mean the same to a process that has some mounts of its own.
        Err(_) => return Ok(None),
    }
    let own = std::fs::read_link("/proc/self").unwrap_or_default();
    if own != Path::new(&std::process::id().to_string()) {
        return Err(Failure::own(format!(
            "process {pid}: its container has no /proc of its own, which attaching needs; mount one there (mount -t proc proc /proc)"
        )));
    }
    cli.attach = Some(inner);
    cli.entered_from = Some((pid, std::mem::replace(&mut cli.output, output)));
    Ok(None)
}

/// Makes further children members of the process's namespace of ids.
fn join_ids(pid: i32, has_other_users: bool) -> io::Result<()> {
    match join(pid, "pid", libc::CLONE_NEWPID) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) && has_other_users => {
            // Whoever made the container has rights in its namespace of users.
            join(pid, "user", libc::CLONE_NEWUSER)?;
            join(pid, "pid", libc::CLONE_NEWPID)
        }
        done => done,
    }
}

/// A path that still leads to `output` when its folder is out of sight. (The descriptor of the
/// folder stays open until the end.)
fn held(output: &Path) -> Result<PathBuf, Failure> {
    let folder = match output.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let held = File::options()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
        .open(folder)
        .map_err(|error| Failure::own(format!("{}: {error}", folder.display())))?;
    let name = output.file_name().unwrap_or_default();
    Ok(Path::new(&format!("/proc/self/fd/{}", held.into_raw_fd())).join(name))
}

fn join(pid: i32, name: &str, kind: libc::c_int) -> io::Result<()> {
    let namespace = File::open(format!("/proc/{pid}/ns/{name}"))?;
    // SAFETY: integers only.
    match unsafe { libc::setns(namespace.as_raw_fd(), kind) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits for the recorder in the container, passes signals on to it, and returns its exit status.
/// When the first process of a container ends, the kernel kills the recorder there too: then its
/// trace is completed here.
fn wait_for(child: libc::pid_t, cli: &Cli) -> Result<i32, Failure> {
    let failed = |error| {
        Failure::own(format!(
            "waiting for the recorder in the container: {error}"
        ))
    };
    let signals = Signals::install().map_err(failed)?;
    let mut status = 0;
    loop {
        // SAFETY: our own child; the status lives across the call.
        match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
            -1 => return Err(failed(io::Error::last_os_error())),
            0 => std::thread::sleep(LOOK_INTERVAL),
            _ => break,
        }
        for signal in signals.to_forward() {
            // SAFETY: our own child, not yet waited for.
            unsafe { libc::kill(child, signal) };
        }
    }
    if libc::WIFEXITED(status) {
        return Ok(libc::WEXITSTATUS(status));
    }
    match libc::WTERMSIG(status) {
        // Threads can only be made by a process whose children are in its own namespace.
        libc::SIGKILL => match join(std::process::id() as i32, "pid", libc::CLONE_NEWPID) {
            Ok(()) => record::recover(cli, &cli.output),
            Err(_) => Err(Failure::own(format!(
                "the container ended, and with it the recorder; complete the trace by `mgz-record --recover {}`",
                cli.output.display()
            ))),
        },
        signal => Ok(128 + signal),
    }
}

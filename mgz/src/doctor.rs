//! `mgz doctor`: what this machine can record, and the remedies for the rest.

use crate::{cache, cli, tools};
use mgz_collector::machine::capabilities;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Result of one check.
struct Finding {
    title: String,
    state: Result<String, (String, &'static str)>,
}

/// Prints all checks. Returns 0 if programs can be recorded here.
pub fn run_doctor() -> anyhow::Result<i32> {
    #[cfg(feature = "intel-pt")]
    let pt = Some(mgz_intel_pt::facts());
    #[cfg(not(feature = "intel-pt"))]
    let pt = None;
    let report = capabilities::probe(pt);
    let findings = findings(Path::new("/"));
    let mut text = String::new();
    for finding in &findings {
        match &finding.state {
            Ok(good) => {
                let _ = writeln!(text, "ok       {}: {good}", finding.title);
            }
            Err((bad, remedy)) => {
                let _ = writeln!(text, "missing  {}: {bad}", finding.title);
                let _ = writeln!(text, "         remedy: {remedy}");
            }
        }
    }
    let _ = write!(text, "\n{report}");
    cli::print(text.as_bytes())?;
    let tools_are_there = findings.iter().take(3).all(|f| f.state.is_ok());
    Ok(i32::from(report.backend == "none" || !tools_are_there))
}

fn findings(root: &Path) -> Vec<Finding> {
    let mut all: Vec<Finding> = ["mgz-instrument", "mgz-record", "mgz-analyze"]
        .map(tool)
        .into();
    all.extend([
        cache_folder(),
        ptrace_scope(&read(&root.join("proc/sys/kernel/yama/ptrace_scope"))),
        seccomp(&read(&root.join("proc/self/status"))),
        opener(),
        debuginfod(),
    ]);
    all
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn tool(name: &str) -> Finding {
    let state = match tools::find_tool(name) {
        Err(error) => Err((
            error.to_string(),
            "install all commands into one folder: cargo install, or copy them beside mgz",
        )),
        Ok(path) => match Command::new(&path).arg("--version").output() {
            Ok(out) if out.status.success() => Ok(format!(
                "{} ({})",
                String::from_utf8_lossy(&out.stdout).trim(),
                path.display()
            )),
            Ok(out) => Err((
                format!("{}: {}", path.display(), out.status),
                "build it for this machine",
            )),
            Err(error) => Err((
                format!("{}: {error}", path.display()),
                "build it for this machine",
            )),
        },
    };
    Finding {
        title: name.into(),
        state,
    }
}

/// Checks if instrumented programs can be cached.
fn cache_folder() -> Finding {
    const REMEDY: &str =
        "set XDG_CACHE_HOME to a folder that you may write to, or use mgz run --beside";
    let state = cache::folder()
        .map_err(|e| (e.to_string(), REMEDY))
        .and_then(|folder| {
            let tried = std::fs::create_dir_all(&folder)
                .and_then(|()| tempfile::tempfile_in(&folder).map(drop));
            match tried {
                Ok(()) => Ok(folder.display().to_string()),
                Err(error) => Err((format!("{}: {error}", folder.display()), REMEDY)),
            }
        });
    Finding {
        title: "cache of instrumented programs".into(),
        state,
    }
}

/// Checks if running processes can be recorded.
fn ptrace_scope(text: &str) -> Finding {
    let state = match text.trim() {
        "" | "0" => Ok("own processes can be attached to (mgz record --attach)".into()),
        "1" => Err((
            "ptrace_scope 1: only children and, as root, others can be attached to".into(),
            "only for --attach and --mode watch of running processes: sysctl kernel.yama.ptrace_scope=0, or run as root",
        )),
        "2" => Err((
            "ptrace_scope 2: only root can attach".into(),
            "only for --attach and --mode watch: run as root, or sysctl kernel.yama.ptrace_scope=0",
        )),
        _ => Err((
            format!("ptrace_scope {}: nobody can attach", text.trim()),
            "only for --attach and --mode watch: it can be set to 0 only by starting the machine anew",
        )),
    };
    Finding {
        title: "attaching".into(),
        state,
    }
}

/// Checks if this process is under a filter of system calls, as in containers.
fn seccomp(status: &str) -> Finding {
    let mode = status
        .lines()
        .find_map(|l| l.strip_prefix("Seccomp:"))
        .map(str::trim);
    let state = match mode {
        Some("2") => Err((
            "system calls are filtered here (seccomp), as in a container".into(),
            "where perf_event_open is refused, burst counts CPU time, which needs no rights; to allow it: docker run --security-opt seccomp=unconfined --cap-add PERFMON",
        )),
        _ => Ok("none".into()),
    };
    Finding {
        title: "filter of system calls".into(),
        state,
    }
}

fn opener() -> Finding {
    let state = match tools::in_path("xdg-open") {
        Some(path) => Ok(format!("{} opens reports", path.display())),
        None => Ok("no xdg-open: mgz run prints the report's path instead of opening it".into()),
    };
    Finding {
        title: "reports".into(),
        state,
    }
}

fn debuginfod() -> Finding {
    let state = match std::env::var_os("DEBUGINFOD_URLS").filter(|v| !v.is_empty()) {
        Some(_) if tools::in_path("debuginfod-find").is_none() => Err((
            "DEBUGINFOD_URLS is set, but debuginfod-find is not installed".into(),
            "install it (in Debian the package debuginfod)",
        )),
        Some(_) => Ok(
            "local files, and with --debuginfod (mgz run, mgz-instrument) the servers of DEBUGINFOD_URLS".into(),
        ),
        None => {
            Ok("local files: names and lines of system libraries need their -dbg packages".into())
        }
    };
    Finding {
        title: "debug information".into(),
        state,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_of_the_machine_has_its_remedy() {
        for (text, good) in [
            ("", true),
            ("0\n", true),
            ("1\n", false),
            ("2", false),
            ("3", false),
        ] {
            assert_eq!(ptrace_scope(text).state.is_ok(), good, "{text}");
        }
        assert!(seccomp("Name:\tx\nSeccomp:\t2\n").state.is_err());
        assert!(seccomp("Seccomp:\t0\n").state.is_ok());
    }
}

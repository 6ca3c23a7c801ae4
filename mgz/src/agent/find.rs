//! The processes that the rule of an agent names.

use crate::cli::Agent;
use mgz_collector::program::note::instrumented_note;
use std::io;
use std::path::{Path, PathBuf};

/// A process that the rule names.
#[derive(Debug)]
pub struct Found {
    /// Its id here.
    pub pid: i32,
    /// File name of its executable.
    pub name: String,
    /// Reason why it cannot be recorded, with the remedy.
    pub obstacle: Option<String>,
}

/// All processes that the rule names.
pub fn find(rule: &Agent) -> Vec<Found> {
    let own = std::process::id() as i32;
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|&pid| pid != own)
        .filter_map(|pid| examine(rule, pid))
        .collect()
}

fn examine(rule: &Agent, pid: i32) -> Option<Found> {
    if rule.pid.is_some_and(|asked| asked != pid) {
        return None;
    }
    // Threads of the kernel have none, and that of another user may be out of sight.
    let exe = std::fs::read_link(format!("/proc/{pid}/exe"));
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    let file = exe.as_ref().ok().and_then(|exe| exe.file_name());
    let name = file.map_or_else(
        || comm.trim().to_owned(),
        |name| name.to_string_lossy().into_owned(),
    );
    if let Some(pattern) = &rule.name
        && !pattern.0.is_match(&name)
        && !pattern.0.is_match(comm.trim())
    {
        return None;
    }
    if let Some(asked) = &rule.exe
        && exe.as_ref().ok() != Some(asked)
    {
        return None;
    }
    let obstacle = match exe.and_then(|_| is_instrumented(pid)) {
        Ok(true) => None,
        Ok(false) => Some("neither its executable nor a library of it is instrumented; start the file that mgz-instrument makes of it".to_owned()),
        // A thread of the kernel, or it has ended.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => Some(format!("it may not be examined ({error}); run mgz agent as that user, or as root")),
    };
    Some(Found {
        pid,
        name,
        obstacle,
    })
}

/// True if a file with code of the process is instrumented.
fn is_instrumented(pid: i32) -> io::Result<bool> {
    let has_note = |path: &Path| instrumented_note(path).is_ok_and(|note| note.is_some());
    if has_note(format!("/proc/{pid}/exe").as_ref()) {
        return Ok(true);
    }
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mut files: Vec<PathBuf> = maps.lines().filter_map(mapped_code).collect();
    files.dedup();
    let seen = |file: &PathBuf| PathBuf::from(format!("/proc/{pid}/root{}", file.display()));
    Ok(files.iter().any(|file| has_note(&seen(file))))
}

/// The file of a line of `/proc/PID/maps` with executable memory.
fn mapped_code(line: &str) -> Option<PathBuf> {
    let mut fields = line.splitn(6, ' ');
    let protection = fields.nth(1)?;
    let path = fields.last()?.trim_start();
    (protection.contains('x') && path.starts_with('/')).then(|| path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_code_are_found_in_maps() {
        let line = "7f0000000000-7f0000001000 r-xp 00000000 fe:00 12                         /usr/lib/a b.so";
        assert_eq!(mapped_code(line), Some("/usr/lib/a b.so".into()));
        for other in [
            "7f0000000000-7f0000001000 r--p 00000000 fe:00 12                         /usr/lib/a.so",
            "7f0000000000-7f0000001000 r-xp 00000000 00:00 0                          [vdso]",
            "7f0000000000-7f0000001000 r-xp 00000000 00:00 0 ",
        ] {
            assert_eq!(mapped_code(other), None, "{other}");
        }
    }
}

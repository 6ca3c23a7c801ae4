//! The file that a program's name stands for.

use crate::program::refusal::Refusal;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Finds the file that `execvp` would run.
pub fn resolve(program: &OsStr, path_variable: Option<&OsStr>) -> Result<PathBuf, Refusal> {
    let shown = program.to_string_lossy().into_owned();
    if program.is_empty() {
        return Err(Refusal::NotFound("\"\"".into()));
    }
    if program.as_bytes().contains(&b'/') {
        return match executable(Path::new(program)) {
            Ok(()) => Ok(PathBuf::from(program)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(Refusal::NotFound(shown)),
            Err(e) => Err(Refusal::CannotExecute {
                path: shown,
                why: e.to_string(),
            }),
        };
    }
    let default = OsString::from("/bin:/usr/bin");
    let mut refused = None;
    for dir in std::env::split_paths(path_variable.unwrap_or(&default)) {
        let dir = if dir.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            dir
        };
        let path = dir.join(program);
        match executable(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                refused.get_or_insert(Refusal::CannotExecute {
                    path: path.display().to_string(),
                    why: e.to_string(),
                });
            }
            Err(_) => {}
        }
    }
    Err(refused.unwrap_or(Refusal::NotFound(shown)))
}

pub(super) fn executable(path: &Path) -> std::io::Result<()> {
    let meta = std::fs::metadata(path)?;
    let denied = |why: &str| {
        Err(std::io::Error::new(
            std::io::ErrorKind::PermissionDenied,
            why,
        ))
    };
    if meta.is_dir() {
        return denied("it is a folder");
    }
    if meta.permissions().mode() & 0o111 == 0 {
        return denied("permission denied (it has no execute bit)");
    }
    let name = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a zero-terminated path.
    match unsafe { libc::access(name.as_ptr(), libc::X_OK) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

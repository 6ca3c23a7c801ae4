//! Finds the three commands beside this one or in PATH.

use anyhow::{Context, bail};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Path of a command: beside this one, else in a folder of PATH.
pub fn find_tool(name: &str) -> anyhow::Result<PathBuf> {
    let beside = std::env::current_exe()
        .ok()
        .and_then(|own| Some(own.parent()?.join(name)))
        .filter(|path| path.is_file());
    match beside.or_else(|| in_path(name)) {
        Some(path) => Ok(path),
        None => {
            bail!("{name} is neither beside mgz nor in PATH; install it, or add its folder to PATH")
        }
    }
}

/// The first executable file of that name in PATH.
pub fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| is_executable(file))
}

/// True if this user may execute the file.
pub fn is_executable(file: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(text) = std::ffi::CString::new(file.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: the text ends with a zero and outlives the call.
    file.is_file() && unsafe { libc::access(text.as_ptr(), libc::X_OK) } == 0
}

/// Executes the command in place of this process. Returns only if that fails. `called`: the name that
/// the user typed, which its usage lines have.
pub fn become_tool(name: &str, called: &str, arguments: &[OsString]) -> anyhow::Result<i32> {
    let path = find_tool(name)?;
    let error = Command::new(&path).arg0(called).args(arguments).exec();
    Err(error).with_context(|| format!("{}: cannot be executed", path.display()))
}

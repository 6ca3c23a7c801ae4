//! Calls from code that was generated at run time.
//!
//! Such code is in no file. In place of one it has a path that tells its process, until its names
//! are known.

use crate::objects::heap::call_frame::CallFrame;
use mgz_generated_code::watch::NamedProcesses;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Module of generated code in tables.
pub const GENERATED: &str = "[generated code]";
/// Beginning of the path in place of a file.
const PREFIX: &str = "//generated/";

/// A call at an address in no file.
pub fn frame(process: u32, address: u64) -> CallFrame {
    CallFrame {
        file: Arc::new(PathBuf::from(format!("{PREFIX}{process}"))),
        address,
        python: None,
    }
}

/// True for the path of [`frame`].
pub fn is_generated(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.starts_with(PREFIX))
}

/// The function at an address of [`frame`], if its compiler names it.
pub fn function(names: &NamedProcesses, path: &Path, address: u64) -> Option<String> {
    let process = path.to_str()?.strip_prefix(PREFIX)?.parse().ok()?;
    let name = names.processes.get(&process)?.last_name_of(address)?;
    Some(name.function.clone())
}

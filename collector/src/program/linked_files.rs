//! The files that a program is linked to.

use mgz_elf::library_search::Search;
use std::path::{Path, PathBuf};

pub(crate) fn closure(program: &Path) -> Vec<PathBuf> {
    let libraries = Search::from_environment().closure(program, |_| true);
    let mut files = vec![program.to_path_buf()];
    files.extend(libraries.into_iter().filter_map(|l| l.path));
    files
}

/// The files that a program or library is linked to, itself included, by their real paths.
pub fn linked_closure(program: &Path) -> Vec<PathBuf> {
    closure(program)
        .iter()
        .map(|path| std::fs::canonicalize(path).unwrap_or_else(|_| path.clone()))
        .collect()
}

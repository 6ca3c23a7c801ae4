//! Sources of a program, read once.

use crate::fix::source::edit::Texts;
use crate::fix::source::params;
use crate::fix::source::token::SourceFile;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Files that were read, and the reasons why others were not.
#[derive(Debug)]
pub struct Sources {
    files: BTreeMap<PathBuf, Result<SourceFile, String>>,
    /// Build time of the program. Newer sources are not those of which it was built.
    built: Option<SystemTime>,
}

impl Sources {
    /// Sources of a program that was built at a time. `None`: times are not compared.
    pub fn new(built: Option<SystemTime>) -> Sources {
        Sources {
            files: BTreeMap::new(),
            built,
        }
    }

    /// A file with its tokens. The error is a sentence for the user.
    pub fn get(&mut self, path: &Path) -> Result<&SourceFile, String> {
        let built = self.built;
        let read = || read(path, built);
        let file = self.files.entry(path.to_path_buf()).or_insert_with(read);
        file.as_ref().map_err(Clone::clone)
    }

    /// Texts of all files that were read.
    pub fn texts(&self) -> Texts {
        let read = |(path, file): (&PathBuf, &Result<SourceFile, String>)| {
            Some((path.clone(), file.as_ref().ok()?.text.clone()))
        };
        self.files.iter().filter_map(read).collect()
    }
}

fn read(path: &Path, built: Option<SystemTime>) -> Result<SourceFile, String> {
    let shown = path.display();
    let unread = |why: std::io::Error| format!("{shown} cannot be read: {why}");
    let meta = std::fs::metadata(path).map_err(unread)?;
    if !meta.is_file() || meta.len() > params::MAX_SOURCE_BYTES {
        return Err(format!("{shown} is no source file, or too large"));
    }
    let is_newer = built
        .zip(meta.modified().ok())
        .is_some_and(|(built, changed)| changed > built);
    if is_newer {
        return Err(format!(
            "{shown} was changed after the program was built; build it again"
        ));
    }
    let bytes = std::fs::read(path).map_err(unread)?;
    let text = String::from_utf8(bytes).map_err(|_| format!("{shown} is no text in UTF-8"))?;
    SourceFile::new(path, text).map_err(|why| format!("{shown} cannot be read as C or C++: {why}"))
}

/// True for headers of the system and of compilers.
pub fn is_of_system(path: &Path) -> bool {
    let is_below = ["/usr/", "/lib/", "/opt/"]
        .iter()
        .any(|f| path.starts_with(f));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    is_below || name.starts_with('<')
}

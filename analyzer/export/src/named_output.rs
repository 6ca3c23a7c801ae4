//! Files and standard output, with errors that name them.

use anyhow::Context;
use std::fs::File;
use std::io::{Result, Write};
use std::path::Path;

/// A place for bytes whose errors begin with its name.
pub struct NamedOutput<W> {
    name: String,
    inner: W,
}

impl NamedOutput<File> {
    /// Creates a file.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(path: &Path) -> anyhow::Result<NamedOutput<File>> {
        let inner =
            File::create(path).with_context(|| format!("{}: cannot write", path.display()))?;
        let name = path.display().to_string();
        Ok(NamedOutput { name, inner })
    }
}

impl NamedOutput<std::io::Stdout> {
    /// Standard output.
    pub fn stdout() -> NamedOutput<std::io::Stdout> {
        NamedOutput {
            name: "standard output".into(),
            inner: std::io::stdout(),
        }
    }
}

impl<W> NamedOutput<W> {
    fn named(&self, error: &std::io::Error) -> std::io::Error {
        let text = format!("{}: cannot write: {error}", self.name);
        // (The kind tells a closed pipe from failures.)
        std::io::Error::new(error.kind(), text)
    }
}

impl<W: Write> Write for NamedOutput<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.inner.write(bytes).map_err(|error| self.named(&error))
    }

    fn flush(&mut self) -> Result<()> {
        self.inner.flush().map_err(|error| self.named(&error))
    }
}

/// Writes a whole file. If that fails, no part of it stays.
///
/// # Errors
/// The file cannot be written; the error names it.
pub fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let written = NamedOutput::create(path)?.write_all(bytes);
    if written.is_err() {
        remove_part(path);
    }
    Ok(written?)
}

/// Removes a file that could not be written as a whole. Devices and pipes stay.
pub fn remove_part(path: &Path) {
    if path.symlink_metadata().is_ok_and(|file| file.is_file()) {
        let _ = std::fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    /// `/dev/full` is a disk without room.
    #[test]
    fn errors_name_the_file() {
        let full = Path::new("/dev/full");
        let error = write_file(full, b"x").unwrap_err();
        assert!(
            error.to_string().starts_with("/dev/full: cannot write: "),
            "{error}"
        );
        let kind = error.downcast_ref::<std::io::Error>().unwrap().kind();
        assert_eq!(kind, ErrorKind::StorageFull);
        assert!(full.exists());
        let nowhere = write_file(Path::new("/nowhere/file"), b"x").unwrap_err();
        assert_eq!(nowhere.to_string(), "/nowhere/file: cannot write");
    }

    #[test]
    fn parts_of_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part");
        std::fs::write(&path, "x").unwrap();
        remove_part(&path);
        assert!(!path.exists());
    }
}

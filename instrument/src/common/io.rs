//! The files that are read and written: inputs are mapped and stay unchanged.

use memmap2::Mmap;
use std::fs::{File, Metadata};
use std::io::{Error, Result};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The content of a regular file, mapped, since a copy would double the memory.
pub struct Content {
    map: Mmap,
    file: File,
    was: Version,
}

/// Properties of a file that change when it is written to.
#[derive(PartialEq, Eq)]
struct Version {
    bytes: u64,
    modified: (i64, i64),
}

impl Version {
    fn of(meta: &Metadata) -> Version {
        Version {
            bytes: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        }
    }
}

impl Content {
    /// Maps a file; an error if it is not a regular one.
    pub fn read(path: &Path) -> Result<Content> {
        if !std::fs::metadata(path)?.is_file() {
            return Err(Error::other(
                "not a regular file; name an executable or a shared library",
            ));
        }
        let file = File::open(path)?;
        let was = Version::of(&file.metadata()?);
        // SAFETY: the map is private and read-only; a concurrent truncation of the file by another
        // process could fault, as for every program that maps its input. Outputs are never the
        // input (`check_output_path`), and they replace files by renaming. `is_unchanged` detects
        // writes by others before results are written.
        let map = unsafe { Mmap::map(&file) }?;
        Ok(Content { map, file, was })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// True if the file has not been written since it was mapped. After a write, data read at
    /// different times may be inconsistent.
    pub fn is_unchanged(&self) -> bool {
        self.file
            .metadata()
            .is_ok_and(|meta| Version::of(&meta) == self.was)
    }
}

/// The canonical folder and the name: the entry that renaming replaces.
fn entry(path: &Path) -> Option<(PathBuf, &std::ffi::OsStr)> {
    let folder = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    Some((folder.canonicalize().ok()?, path.file_name()?))
}

/// Why a file must not be written to `output`, if so: it is the input, or no regular file.
pub fn check_output_path(
    input: &Path,
    output: &Path,
    option: &str,
) -> std::result::Result<(), Refused> {
    if let (Ok(a), Ok(b)) = (std::fs::metadata(input), std::fs::metadata(output)) {
        if (a.dev(), a.ino()) == (b.dev(), b.ino()) {
            return Err(Refused::Usage(format!(
                "{} is the input itself, which is never changed; choose another {option}",
                output.display()
            )));
        }
        if !b.is_file() {
            return Err(Refused::Place(format!(
                "{} exists and is not a regular file; choose another {option}",
                output.display()
            )));
        }
    }
    Ok(())
}

/// As [`check_output_path`], for a program and its annotations, which must also be two files.
pub fn check_both(
    input: &Path,
    output: &Path,
    annotations: &Path,
) -> std::result::Result<(), Refused> {
    check_output_path(input, output, "-o OUT")?;
    check_output_path(input, annotations, "--annotations FILE")?;
    match (entry(output), entry(annotations)) {
        (Some(a), Some(b)) if a == b => Err(Refused::Usage(format!(
            "{} cannot be both the program and its annotations; choose another --annotations FILE",
            output.display()
        ))),
        _ => Ok(()),
    }
}

/// Why an output is not written.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// The path is a mistake.
    Usage(String),
    /// Something else is at the path.
    Place(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_neither_the_input_nor_one_file_for_two() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("in"), "program").unwrap();
        std::fs::hard_link(at("in"), at("hard")).unwrap();
        std::os::unix::fs::symlink("in", at("soft")).unwrap();
        std::fs::create_dir(at("sub")).unwrap();
        let check =
            |output: &str, annotations: &str| check_both(&at("in"), &at(output), &at(annotations));
        assert_eq!(check("out", "out.mgza"), Ok(()));
        for same in ["in", "hard", "soft", "sub/../in"] {
            assert!(matches!(check(same, "a"), Err(Refused::Usage(_))), "{same}");
            assert!(
                matches!(check("out", same), Err(Refused::Usage(_))),
                "{same}"
            );
        }
        // Neither file exists yet.
        assert!(matches!(check("out", "out"), Err(Refused::Usage(_))));
        assert!(matches!(check("out", "sub/../out"), Err(Refused::Usage(_))));
        assert!(matches!(check("out", "sub"), Err(Refused::Place(_))));
    }

    #[test]
    fn a_file_that_is_written_to_meanwhile_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in");
        std::fs::write(&path, "one program").unwrap();
        let long_ago =
            std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
        let content = Content::read(&path).unwrap();
        assert_eq!(
            (content.bytes(), content.is_unchanged()),
            (&b"one program"[..], true)
        );
        // Another file of the same name is kept.
        std::fs::write(folder.path().join("new"), "another one").unwrap();
        std::fs::rename(folder.path().join("new"), &path).unwrap();
        assert!(content.is_unchanged());
        let content = Content::read(&path).unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
        assert!(!content.is_unchanged());
        assert!(Content::read(folder.path()).is_err());
        std::fs::write(&path, "").unwrap();
        assert_eq!(Content::read(&path).unwrap().bytes(), b"");
    }
}

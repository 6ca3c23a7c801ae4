//! Cache of instrumented files, so that the second run of a program starts at once.
//!
//! An entry is a folder below `$XDG_CACHE_HOME/mgz` (or `~/.cache/mgz`). Its name is a hash of
//! everything that determines the result: the program's bytes and path, the options, and the
//! instrumenter. It is created under another name and then renamed, so an entry is always complete.

use anyhow::Context;
use mgz_collector::util::cache_folder::cache_folder;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::hash::Hasher;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use twox_hash::XxHash3_64;

/// Entries that were not used for this time are removed. Source: Chosen.
const MAX_UNUSED_TIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// File of an entry with the other sources of the result; its modification time is that of the last
/// use.
const SOURCES: &str = "sources.json";

/// A source of an entry other than the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// Path.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Its time of modification, nanoseconds.
    pub modified: i128,
}

impl SourceFile {
    /// The file as it is now.
    pub fn of(path: &Path) -> std::io::Result<SourceFile> {
        let file = std::fs::metadata(path)?;
        Ok(SourceFile {
            path: path.to_path_buf(),
            bytes: file.len(),
            modified: i128::from(file.mtime()) * 1_000_000_000 + i128::from(file.mtime_nsec()),
        })
    }
}

/// The folder of all entries.
pub fn folder() -> anyhow::Result<PathBuf> {
    cache_folder()
        .context("neither XDG_CACHE_HOME nor HOME is a folder, so there is no cache; set one of them, or use --beside")
}

/// Name of an entry.
pub fn key<'a>(program: &[u8], rest: impl IntoIterator<Item = &'a OsStr>) -> String {
    let [mut low, mut high] = [XxHash3_64::with_seed(0), XxHash3_64::with_seed(0x006d_677a)];
    for hash in [&mut low, &mut high] {
        hash.write(program);
    }
    for part in rest {
        for hash in [&mut low, &mut high] {
            hash.write(part.as_bytes());
            hash.write_usize(part.len());
        }
    }
    format!("{:016x}{:016x}", low.finish(), high.finish())
}

/// True if the entry exists and its sources are unchanged.
pub fn look_up(entry: &Path) -> bool {
    let file = entry.join(SOURCES);
    let sources = std::fs::read(&file)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Vec<SourceFile>>(&bytes).ok());
    let is_same = |s: &SourceFile| SourceFile::of(&s.path).is_ok_and(|now| now == *s);
    if !sources.is_some_and(|sources| sources.iter().all(is_same)) {
        return false;
    }
    // A read-only cache can still be used.
    let _ = std::fs::File::open(&file).and_then(|f| f.set_modified(SystemTime::now()));
    true
}

/// Creates an entry: `fill` writes the files into a folder, and returns their sources.
pub fn add_cache_entry(
    entry: &Path,
    fill: impl FnOnce(&Path) -> anyhow::Result<Vec<SourceFile>>,
) -> anyhow::Result<()> {
    let folder = entry.parent().context("the cache has no folder")?;
    std::fs::create_dir_all(folder)
        .with_context(|| format!("{}: cannot make the folder", folder.display()))?;
    clean(folder);
    let new = tempfile::Builder::new()
        .prefix("new-")
        .tempdir_in(folder)
        .with_context(|| format!("{}: cannot make a folder in it", folder.display()))?;
    let sources = fill(new.path())?;
    let text = serde_json::to_vec(&sources)?;
    std::fs::write(new.path().join(SOURCES), text)
        .with_context(|| format!("{}: cannot write", new.path().display()))?;
    // `rename` never replaces a folder with files.
    match std::fs::rename(new.path(), entry) {
        Ok(()) => {
            // The folder has moved, so there is nothing to remove.
            let _ = new.keep();
            Ok(())
        }
        // Another run has created it in the meantime, and may be starting the program from it.
        Err(_) if look_up(entry) => Ok(()),
        // The existing entry is out of date. Programs may be starting from it, so it is exchanged
        // atomically.
        Err(_) => exchange(new.path(), entry)
            .with_context(|| format!("{}: cannot be made", entry.display())),
    }
}

/// Exchanges two folders.
fn exchange(new: &Path, entry: &Path) -> std::io::Result<()> {
    let swapped = rustix::fs::renameat_with(
        rustix::fs::CWD,
        new,
        rustix::fs::CWD,
        entry,
        rustix::fs::RenameFlags::EXCHANGE,
    );
    if swapped.is_ok() {
        return Ok(());
    }
    // Not all file systems support the exchange.
    let old = new.with_extension("old");
    std::fs::rename(entry, &old)?;
    let placed = std::fs::rename(new, entry);
    let _ = std::fs::remove_dir_all(&old);
    placed
}

/// Removes entries that were not used for a long time, and remains of killed runs.
fn clean(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let used = std::fs::metadata(path.join(SOURCES))
            .or_else(|_| entry.metadata())
            .and_then(|m| m.modified());
        let is_old = used.is_ok_and(|t| t.elapsed().is_ok_and(|age| age > MAX_UNUSED_TIME));
        if is_old {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_programs_and_options_apart() {
        let key = |program: &[u8], rest: &[&str]| {
            super::key(program, rest.iter().map(|r| OsStr::new(*r)))
        };
        assert_eq!(key(b"a", &["x"]), key(b"a", &["x"]));
        let all = [
            key(b"a", &["x"]),
            key(b"b", &["x"]),
            key(b"a", &["y"]),
            key(b"a", &["x", ""]),
            key(b"a", &["", "x"]),
            key(b"a", &[]),
        ];
        let apart: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(apart.len(), all.len());
    }

    #[test]
    fn an_entry_is_good_while_its_sources_are_as_they_were() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("lib.so");
        std::fs::write(&source, "one").unwrap();
        let entry = dir.path().join("cache/key");
        assert!(!look_up(&entry));
        let fill = |folder: &Path| {
            std::fs::write(folder.join("app"), "code")?;
            Ok(vec![SourceFile::of(&source)?])
        };
        add_cache_entry(&entry, fill).unwrap();
        assert!(look_up(&entry) && entry.join("app").exists());
        std::fs::write(&source, "other").unwrap();
        assert!(!look_up(&entry));
        add_cache_entry(&entry, fill).unwrap();
        assert!(look_up(&entry));
        let names: Vec<_> = std::fs::read_dir(dir.path().join("cache"))
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(names, ["key"]);
    }

    #[test]
    fn runs_that_make_one_entry_at_once_all_find_it() {
        let dir = tempfile::tempdir().unwrap();
        let entry = dir.path().join("cache/key");
        let start = std::sync::Barrier::new(4);
        let run = || {
            start.wait();
            for _ in 0..50 {
                let fill = |folder: &Path| {
                    std::fs::write(folder.join("app"), "code")?;
                    Ok(Vec::new())
                };
                add_cache_entry(&entry, fill).unwrap();
                for _ in 0..20 {
                    assert!(entry.join("app").exists());
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(run);
            }
        });
    }

    #[test]
    fn an_entry_that_could_not_be_filled_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let entry = dir.path().join("key");
        let failed = add_cache_entry(&entry, |_| anyhow::bail!("declined"));
        assert!(failed.is_err() && !look_up(&entry));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

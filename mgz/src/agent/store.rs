//! The folder of recordings: named by time, bounded in size and age.

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Trace in the folder of a recording, where `mgz report` and `mgz serve` look for it.
pub const TRACE: &str = "trace";
/// Profile in the folder of a recording.
pub const PROFILE: &str = "profile.pb.gz";
/// Profile for OTLP in the folder of a recording, if one is sent.
pub const OTLP_PROFILE: &str = "profile.otlp";
/// Start of the names of recordings that are being made.
const NEW: &str = ".new-";

/// The folder. It is locked as long as this exists.
pub struct Store {
    folder: PathBuf,
    _lock: File,
}

/// The folder of a recording that is being made. It is removed unless [`Store::keep`] names it.
pub struct NewRecording {
    path: PathBuf,
}

impl NewRecording {
    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for NewRecording {
    fn drop(&mut self) {
        // (A kept folder has another name.)
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// A recording in the folder.
struct Stored {
    path: PathBuf,
    bytes: u64,
    changed: SystemTime,
}

impl Store {
    /// Opens the folder, or makes it, and removes what a killed agent has left unfinished.
    pub fn open(folder: &Path) -> anyhow::Result<Store> {
        let shown = folder.display();
        std::fs::create_dir_all(folder)
            .with_context(|| format!("{shown}: cannot be made; choose another folder with -o"))?;
        let lock = File::open(folder).with_context(|| format!("{shown}: cannot be opened"))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            anyhow::bail!("{shown}: another mgz agent records there; give each its own -o");
        }
        for entry in std::fs::read_dir(folder)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(NEW) {
                std::fs::remove_dir_all(entry.path())
                    .with_context(|| format!("{}: cannot be removed", entry.path().display()))?;
            }
        }
        Ok(Store {
            folder: folder.to_path_buf(),
            _lock: lock,
        })
    }

    /// An empty folder for a recording that begins.
    pub fn begin(&self) -> std::io::Result<NewRecording> {
        let path = self.folder.join(format!("{NEW}recording"));
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Profiles are for the same eyes as traces.
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(NewRecording { path })
    }

    /// Gives a complete recording its name.
    pub fn keep(&self, new: NewRecording, name: &str) -> std::io::Result<PathBuf> {
        let path = self.folder.join(name);
        std::fs::rename(&new.path, &path)?;
        Ok(path)
    }

    /// Removes recordings that are older than `age`, and then the oldest ones until the rest has at
    /// most `bytes`. Other files in the folder stay. Returns the size of the rest.
    pub fn rotate(&self, bytes: u64, age: Duration) -> std::io::Result<u64> {
        let mut stored = self.stored()?;
        stored.sort_by(|a, b| a.path.cmp(&b.path));
        let mut total: u64 = stored.iter().map(|s| s.bytes).sum();
        for old in stored {
            let is_old = old.changed.elapsed().is_ok_and(|passed| passed > age);
            if is_old || total > bytes {
                std::fs::remove_dir_all(&old.path)?;
                total -= old.bytes;
            }
        }
        Ok(total)
    }

    fn stored(&self) -> std::io::Result<Vec<Stored>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.folder)?.flatten() {
            let path = entry.path();
            let manifest = path.join(TRACE).join("manifest.json");
            let Ok(manifest) = manifest.metadata() else {
                continue;
            };
            if !entry.file_name().to_string_lossy().starts_with(NEW) {
                found.push(Stored {
                    bytes: size_of(&path),
                    path,
                    changed: manifest.modified()?,
                });
            }
        }
        Ok(found)
    }
}

/// Bytes of all files below a folder.
fn size_of(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(data) if data.is_dir() => size_of(&entry.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOREVER: Duration = Duration::from_secs(1 << 40);

    #[test]
    fn old_recordings_give_way_and_other_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("recordings");
        let store = Store::open(&folder).unwrap();
        assert!(Store::open(&folder).is_err(), "two agents");
        std::fs::write(folder.join("mine"), vec![0; 5000]).unwrap();
        for name in ["1", "2", "3"] {
            let new = store.begin().unwrap();
            std::fs::create_dir(new.path().join(TRACE)).unwrap();
            let manifest = new.path().join(TRACE).join("manifest.json");
            std::fs::write(manifest, vec![0; 1000]).unwrap();
            std::fs::write(new.path().join(PROFILE), vec![0; 500]).unwrap();
            store.keep(new, name).unwrap();
        }
        let names = || {
            let mut names: Vec<_> = (std::fs::read_dir(&folder).unwrap())
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names.join(" ")
        };
        assert_eq!(store.rotate(4500, FOREVER).unwrap(), 4500);
        assert_eq!(store.rotate(3000, FOREVER).unwrap(), 3000);
        assert_eq!(names(), "2 3 mine");
        assert_eq!(store.rotate(2999, FOREVER).unwrap(), 1500);
        assert_eq!(names(), "3 mine");
        drop(store.begin().unwrap());
        assert_eq!(names(), "3 mine", "an unfinished recording");
        std::mem::forget(store.begin().unwrap());
        assert_eq!(names(), ".new-recording 3 mine", "of a killed agent");
        drop(store);
        let store = Store::open(&folder).unwrap();
        assert_eq!(names(), "3 mine");
        assert_eq!(store.rotate(1 << 30, Duration::ZERO).unwrap(), 0);
        assert_eq!(names(), "mine");
    }
}

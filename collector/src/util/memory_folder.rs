//! A folder in memory that is removed with its owner.

use crate::util::folder::make_dir;
use mgz_annotations_schema::tell;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const PREFIX: &str = "mgz-analyze.";
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;

/// A folder in memory that is removed on drop. A killed recorder's folder is removed when the next
/// one makes its own.
pub(crate) struct MemoryFolder {
    path: PathBuf,
    /// Lock that shows that the owner lives.
    _lock: File,
    /// Bytes that the file system had free.
    pub(crate) free: u64,
}

impl MemoryFolder {
    /// Makes it in the file system in memory that has the most room. `None` if there is none.
    pub(crate) fn new() -> io::Result<Option<MemoryFolder>> {
        let best = candidates()
            .filter_map(|path| room(&path).map(|free| (free, path)))
            .max_by_key(|(free, _)| *free);
        best.map(|(free, place)| MemoryFolder::within(&place, free))
            .transpose()
    }

    fn within(place: &Path, free: u64) -> io::Result<MemoryFolder> {
        remove_left_over(place);
        let mut number = 0;
        loop {
            let path = place.join(format!("{PREFIX}{}.{number}", std::process::id()));
            number += 1;
            if path.symlink_metadata().is_ok() {
                continue;
            }
            make_dir(&path)?;
            // Before it is locked, another recorder may remove it as left over. Then another folder
            // is made.
            let Ok(lock) = File::open(&path) else {
                continue;
            };
            if is_locked(&lock) && is_at(&lock, &path) {
                return Ok(MemoryFolder {
                    path,
                    _lock: lock,
                    free,
                });
            }
        }
    }

    /// Path of the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for MemoryFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tell!(
                "mgz-record: {}: cannot be removed: {error}; remove it by hand, since it takes memory",
                self.path.display()
            );
        }
    }
}

fn candidates() -> impl Iterator<Item = PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    ["/dev/shm", "/run/shm"]
        .into_iter()
        .map(PathBuf::from)
        .chain(runtime)
        .chain([std::env::temp_dir()])
        .filter(|path| path.is_absolute())
}

/// Free bytes of a file system, if it is in memory and writable.
fn room(path: &Path) -> Option<u64> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: zeros are a value of this plain struct.
    let mut info: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: text and struct live across the calls.
    let usable = unsafe {
        libc::statfs(path.as_ptr(), &raw mut info) == 0
            && libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) == 0
    };
    let in_memory = matches!(info.f_type as u64, TMPFS | RAMFS);
    // A tmpfs without a limit, and ramfs, report zero blocks.
    let free = match info.f_blocks {
        0 => u64::MAX,
        _ => info.f_bavail.saturating_mul(info.f_bsize as u64),
    };
    (usable && in_memory).then_some(free)
}

fn is_locked(folder: &File) -> bool {
    // SAFETY: an integer call on our own descriptor.
    unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// True if the folder is still the one with that name.
fn is_at(folder: &File, path: &Path) -> bool {
    let (Ok(open), Ok(there)) = (folder.metadata(), path.symlink_metadata()) else {
        return false;
    };
    open.nlink() > 0 && (open.dev(), open.ino()) == (there.dev(), there.ino())
}

/// Removes folders of ours whose owners are gone.
fn remove_left_over(place: &Path) {
    // SAFETY: a call without arguments.
    let user = unsafe { libc::geteuid() };
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let path = entry.path();
        let ours = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(PREFIX))
            && path
                .symlink_metadata()
                .is_ok_and(|meta| meta.is_dir() && meta.uid() == user);
        if ours && File::open(&path).is_ok_and(|folder| is_locked(&folder)) {
            // If it cannot be removed, less memory is free.
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_owner_or_by_the_next_one() {
        let place = tempfile::tempdir().unwrap();
        let first = MemoryFolder::within(place.path(), 0).unwrap();
        std::fs::write(first.path().join("x"), "x").unwrap();
        // One folder is left from a killed recorder, and one is not ours.
        let left = place.path().join(format!("{PREFIX}1.0"));
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join("x"), "x").unwrap();
        std::fs::create_dir(place.path().join("other")).unwrap();
        let second = MemoryFolder::within(place.path(), 0).unwrap();
        assert!(first.path().join("x").exists() && second.path().exists());
        assert!(!left.exists() && place.path().join("other").exists());
        drop((first, second));
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }
}

//! Spill files that become smaller while they are read.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Minimum number of bytes that are given back at a time. Source: Chosen.
const MIN_RELEASED_BYTES: u64 = 1 << 18;
/// The file's header stays, so that the file remains recognizable. This is a multiple of the page
/// size, since the file system frees whole pages only.
const KEPT_HEADER_BYTES: u64 = 1 << 16;

/// Gives back the part of a file that has been read.
pub(crate) struct Release {
    file: File,
    done: u64,
}

impl Release {
    /// Nothing is given back yet.
    pub(crate) fn new(path: &Path) -> io::Result<Release> {
        Ok(Release {
            file: OpenOptions::new().write(true).open(path)?,
            done: KEPT_HEADER_BYTES,
        })
    }

    /// The bytes before `end` are not needed any more. A file system that cannot free them keeps
    /// them, which costs memory and nothing else.
    pub(crate) fn upto(&mut self, end: u64) {
        let end = end / KEPT_HEADER_BYTES * KEPT_HEADER_BYTES;
        if end < self.done + MIN_RELEASED_BYTES {
            return;
        }
        // SAFETY: integers, and a descriptor of our own.
        unsafe {
            libc::fallocate(
                self.file.as_raw_fd(),
                libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                self.done as libc::off_t,
                (end - self.done) as libc::off_t,
            );
        }
        self.done = end;
    }
}

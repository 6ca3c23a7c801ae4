//! A thread's counters ([`mgz_abi::counters`]), from the recorder's side. They take gigabytes of
//! the shared file, of which few pages exist. So they are read by system calls, and not mapped.

use mgz_abi::counters::{AREA, BYTES};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// The counters of a thread slot.
#[derive(Clone, Copy)]
pub struct Area<'a> {
    file: &'a OwnedFd,
    start: u64,
}

impl<'a> Area<'a> {
    /// The counters at an offset of a file.
    pub(crate) fn new(file: &'a OwnedFd, start: u64) -> Area<'a> {
        Area { file, start }
    }

    /// Passes ids with nonzero counters, ascending, and the counts. Their owner may be adding to
    /// them.
    pub fn read(self, to: &mut impl FnMut(u32, u64)) -> io::Result<()> {
        let end = self.start + AREA;
        let mut buffer = vec![0; 1 << 16];
        let mut at = self.start;
        while let Some(data) = self.seek(at, libc::SEEK_DATA)?.filter(|&data| data < end) {
            let hole = self.seek(data, libc::SEEK_HOLE)?.unwrap_or(end).min(end);
            at = data;
            while at < hole {
                let most = buffer.len().min((hole - at) as usize);
                let piece = &mut buffer[..most];
                read_at(self.file, piece, at)?;
                let first = (at - self.start) / BYTES as u64;
                for (id, bytes) in (first..).zip(piece.as_chunks::<BYTES>().0) {
                    let times = u64::from_le_bytes(*bytes);
                    if times != 0 {
                        to(id as u32, times);
                    }
                }
                at += most as u64;
            }
        }
        Ok(())
    }

    /// Sets all counters to zero, once no thread adds to them, and frees their memory.
    pub fn clear(self) {
        let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: an integer call on our own descriptor. (It is refused for ranges that do not
        // exist, and by seals that the file does not have.)
        unsafe {
            libc::fallocate(
                self.file.as_raw_fd(),
                how,
                self.start as libc::off_t,
                AREA as libc::off_t,
            )
        };
    }

    /// The next offset from `from` on that begins data or a hole; `None` behind the last data.
    fn seek(self, from: u64, what: libc::c_int) -> io::Result<Option<u64>> {
        // SAFETY: an integer call. (Nobody uses the descriptor's own offset.)
        let found = unsafe { libc::lseek(self.file.as_raw_fd(), from as libc::off_t, what) };
        match u64::try_from(found) {
            Ok(found) => Ok(Some(found)),
            Err(_) => match io::Error::last_os_error() {
                e if e.raw_os_error() == Some(libc::ENXIO) => Ok(None),
                e => Err(e),
            },
        }
    }
}

/// Fills the buffer from an offset on.
fn read_at(file: &OwnedFd, buffer: &mut [u8], at: u64) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        let rest = &mut buffer[done..];
        // SAFETY: the kernel writes at most as many bytes as are there.
        let read = unsafe {
            libc::pread(
                file.as_raw_fd(),
                rest.as_mut_ptr().cast(),
                rest.len(),
                (at + done as u64) as libc::off_t,
            )
        };
        match read {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n if n > 0 => done += n as usize,
            _ => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => {}
                e => return Err(e),
            },
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::soft::shared_memory::{Settings, SharedMemory};
    use mgz_abi::counters::{LIMIT, MIDDLE, area_offset, displacement};
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_was_added_is_read_and_cleared() {
        let shared = SharedMemory::new(Settings::count()).unwrap();
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(shared.path())
            .unwrap();
        let put = |slot: usize, id: u32, times: u64| {
            let middle = area_offset(shared.counters_at, slot) + MIDDLE;
            let at = middle.wrapping_add_signed(displacement(id).unwrap().into());
            file.write_all_at(&times.to_le_bytes(), at).unwrap();
        };
        let all = [
            (0, 7),
            (8191, 1),
            (8192, 2),
            (70_000, u64::MAX),
            (LIMIT - 1, 3),
        ];
        all.iter().for_each(|&(id, times)| put(5, id, times));
        put(4, LIMIT - 1, 9);
        put(6, 0, 9);
        let read = |slot| {
            let mut found = Vec::new();
            let area = shared.counters(slot).unwrap();
            area.read(&mut |id, times| found.push((id, times))).unwrap();
            found
        };
        assert_eq!(read(5), all);
        shared.counters(5).unwrap().clear();
        assert_eq!((read(5), read(4)), (vec![], vec![(LIMIT - 1, 9)]));
        assert_eq!(read(6), [(0, 9)]);
        assert!(
            SharedMemory::new(Settings::full())
                .unwrap()
                .counters(0)
                .is_none()
        );
    }
}

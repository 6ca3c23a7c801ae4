//! Memory of a process that runs.

/// Places per call. The kernel takes at most 1,024.
const MAX_PLACES: usize = 512;

/// Memory at addresses that may be invalid.
pub trait Memory {
    /// Fills the buffers from their addresses, in order. Returns the number of buffers filled.
    fn read_all(&self, places: &mut [(u64, &mut [u8])]) -> usize;

    /// Fills a buffer. Returns true if all of it was readable.
    fn read(&self, at: u64, out: &mut [u8]) -> bool {
        self.read_all(&mut [(at, out)]) == 1
    }

    /// A word.
    fn word(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }
}

/// The memory of a process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessMemory(pub u32);

impl Memory for ProcessMemory {
    fn read_all(&self, places: &mut [(u64, &mut [u8])]) -> usize {
        let mut done = 0;
        for part in places.chunks_mut(MAX_PLACES) {
            let (local, remote): (Vec<libc::iovec>, Vec<libc::iovec>) = part
                .iter_mut()
                .map(|(at, out)| {
                    let vector = |base: *mut libc::c_void, iov_len| libc::iovec {
                        iov_base: base,
                        iov_len,
                    };
                    (
                        vector(out.as_mut_ptr().cast(), out.len()),
                        vector(*at as *mut libc::c_void, out.len()),
                    )
                })
                .unzip();
            let count = part.len() as libc::c_ulong;
            // SAFETY: the local buffers are borrowed for the call; the kernel checks the other
            // process's addresses.
            let read = unsafe {
                libc::process_vm_readv(
                    self.0.cast_signed(),
                    local.as_ptr(),
                    count,
                    remote.as_ptr(),
                    count,
                    0,
                )
            };
            let mut left = usize::try_from(read).unwrap_or(0);
            let whole = part.iter().take_while(|(_, out)| {
                let is_whole = out.len() <= left;
                left = left.saturating_sub(out.len());
                is_whole
            });
            let filled = whole.count();
            done += filled;
            if filled < part.len() {
                break;
            }
        }
        done
    }
}

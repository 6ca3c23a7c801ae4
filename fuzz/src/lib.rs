//! Common code of the fuzz targets.
//!
//! Each target feeds arbitrary bytes to one reader. A reader may refuse them; it must not panic,
//! hang, or take memory out of proportion (`scripts/fuzz` bounds both).

pub mod libipt;
pub mod model;

use std::io::Write;
use std::os::fd::FromRawFd;
use std::path::{Path, PathBuf};

/// A file in memory for readers that need a path.
pub struct MemoryFile {
    // Keeps the descriptor, and with it the path, alive.
    _file: std::fs::File,
    path: PathBuf,
}

impl MemoryFile {
    /// A file with these bytes.
    pub fn new(bytes: &[u8]) -> MemoryFile {
        // SAFETY: the name is a valid C string; the call has no other preconditions.
        let fd = unsafe { libc::memfd_create(c"fuzz".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0, "memfd_create: {}", std::io::Error::last_os_error());
        // SAFETY: the descriptor was just made and has no other owner.
        let mut file = unsafe { std::fs::File::from_raw_fd(fd) };
        file.write_all(bytes).expect("a file in memory can be written");
        MemoryFile { _file: file, path: format!("/proc/self/fd/{fd}").into() }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

const FILE_HEADER: usize = 24;
const SEGMENT_HEADER: usize = 72;

/// Corrects the check values of all segments of a spill file, so that damage reaches the decoder.
///
/// It is written from the documented format, independently of the reader's code.
pub fn mend_spill_checks(bytes: &mut [u8]) {
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize;
    if bytes.len() < FILE_HEADER {
        return;
    }
    let mut at = word(bytes, 12).max(FILE_HEADER);
    while at + SEGMENT_HEADER <= bytes.len() {
        let lengths = [12, 64, 16, 20].map(|offset| word(bytes, at + offset));
        let end = at + SEGMENT_HEADER + lengths.iter().sum::<usize>();
        if end > bytes.len() {
            return;
        }
        bytes[at + 48..at + 56].fill(0);
        let mut lanes = [1u64, 2, 3, 4];
        let mut from = at;
        for length in [SEGMENT_HEADER, lengths[0], lengths[1], lengths[2], lengths[3]] {
            for (i, chunk) in bytes[from..from + length].chunks(8).enumerate() {
                let mut padded = [0; 8];
                padded[..chunk.len()].copy_from_slice(chunk);
                lanes[i % 4] = mix(lanes[i % 4], u64::from_le_bytes(padded));
            }
            from += length;
        }
        let check = lanes.into_iter().fold(0, mix);
        bytes[at + 48..at + 56].copy_from_slice(&check.to_le_bytes());
        at = end;
    }
}

fn mix(lane: u64, word: u64) -> u64 {
    (lane ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgz_annotations_schema::Sidecar;
    use mgz_abi::address_map::AddrMap;
    use mgz_annotations_schema::spill::SpillReader;

    /// A seed that its reader refuses would not help the fuzzer to reach the reader's code.
    #[test]
    fn readers_accept_the_seeds() {
        let folder = std::env::temp_dir().join(format!("mgz-fuzz-seeds-{}", std::process::id()));
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/seeds.py");
        let made = std::process::Command::new("python3").arg(script).arg(&folder).args(["sidecar", "spill", "address_map"]).status().unwrap();
        assert!(made.success());
        let seed = |target: &str, name: &str| std::fs::read(folder.join(target).join(format!("seed-{name}"))).unwrap();

        let sidecar = Sidecar::from_bytes(&seed("sidecar", "raw")).unwrap();
        assert_eq!((sidecar.sites.len(), sidecar.records.len(), sidecar.gathers.len()), (1, 1, 1));

        let bytes = seed("address_map", "two");
        let map = AddrMap::new(&bytes).unwrap();
        assert_eq!(map.len(), 2);
        assert_eq!(map.walk(0).unwrap().count(), 4);
        assert_eq!(map.at_original(0x1000).unwrap().0.clone, 0x9000);

        let mut spill = seed("spill", "two");
        let mut mended = spill.clone();
        mend_spill_checks(&mut mended);
        assert_eq!(mended, spill, "the checks were right before");
        let lengths = |bytes: &[u8]| {
            let file = MemoryFile::new(bytes);
            let (mut reader, mut slots, mut out) = (SpillReader::open(file.path()).unwrap(), Vec::new(), Vec::new());
            while let Ok(Some(_)) = reader.next(&mut slots) {
                out.push((slots.len(), slots.last().copied().unwrap()));
            }
            out
        };
        let found = lengths(&spill);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].0, found[0].1.payload, found[0].1.id), (40, 0x1000 + 8 * 39, 4));
        assert_eq!((found[1].0, found[1].1.payload, found[1].1.id), (3, 1 << 47, 9));
        // A changed begin time is refused with the old check value, and accepted with the corrected
        // one.
        spill[FILE_HEADER + 32] ^= 1;
        assert_eq!(lengths(&spill).len(), 0);
        mend_spill_checks(&mut spill);
        assert_eq!(lengths(&spill).len(), 2);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

//! Size of the images of programs and libraries in memory.

use object::LittleEndian;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use std::collections::HashMap;

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

/// Sizes of images by path, read once.
#[derive(Debug, Default)]
pub struct Extents {
    known: HashMap<String, u64>,
}

impl Extents {
    /// Bytes from the first page of a file's image to its last one; 0 if the file is no ELF file or
    /// cannot be read. `pid`: a process that has the file mapped; its root may be another one.
    pub fn of(&mut self, pid: u32, path: &str) -> u64 {
        if let Some(&bytes) = self.known.get(path) {
            return bytes;
        }
        let inside = format!("/proc/{pid}/root{path}");
        let file = std::fs::File::open(inside).or_else(|_| std::fs::File::open(path));
        // SAFETY: the map is private and read-only; a concurrent truncation of the file by another
        // process could fault, as for every program that maps its input.
        let data = file.and_then(|file| unsafe { memmap2::Mmap::map(&file) });
        let bytes = data.map_or(0, |data| extent_of(&data));
        self.known.insert(path.to_owned(), bytes);
        bytes
    }
}

/// Bytes of an image, from its program headers.
fn extent_of(data: &[u8]) -> u64 {
    let header = FileHeader64::<LittleEndian>::parse(data);
    let headers = header.and_then(|h| h.program_headers(LittleEndian, data));
    let loaded = headers.iter().copied().flatten();
    let ends = loaded
        .filter(|h| h.p_type(LittleEndian) == PT_LOAD)
        .map(|h| {
            let start = h.p_vaddr(LittleEndian);
            (start, start.saturating_add(h.p_memsz(LittleEndian)))
        })
        .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    ends.map_or(0, |(start, end)| {
        let end = end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(end);
        end - start / PAGE_BYTES * PAGE_BYTES
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_as_large_as_its_mappings() {
        let own = std::env::current_exe().unwrap();
        let mut extents = Extents::default();
        let bytes = extents.of(std::process::id(), own.to_str().unwrap());
        let file = std::fs::metadata(&own).unwrap().len();
        assert!(
            bytes > PAGE_BYTES && bytes % PAGE_BYTES == 0 && bytes < 4 * file,
            "{bytes}"
        );
        assert_eq!(extent_of(b"no program"), 0);
        assert_eq!(extents.of(std::process::id(), "/nonexistent"), 0);
    }
}

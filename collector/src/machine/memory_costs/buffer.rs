//! Memory that is accessed, in pages of one size.

use super::kernels::LINE_WORDS;
use memmap2::{Advice, MmapMut};

/// Bytes of a huge page.
pub const HUGE_PAGE: usize = 2 << 20;
const WORD: usize = size_of::<usize>();
/// Memory counts as huge pages if at least this share of it is in them.
const MIN_HUGE_SHARE: f64 = 0.95;

/// Size of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// 4 KiB.
    Small,
    /// 2 MiB.
    Huge,
}

/// Memory of one kind of pages, aligned to huge pages.
pub struct Buffer {
    map: MmapMut,
    /// First aligned byte.
    begin: usize,
    bytes: usize,
}

impl Buffer {
    /// A buffer of some bytes, rounded up to whole lines, all of them written. None if the kernel
    /// does not give the memory or its kind of pages.
    pub fn new(bytes: usize, pages: Pages) -> Option<Buffer> {
        let bytes = bytes.next_multiple_of(LINE_WORDS * WORD);
        let mapped = bytes.next_multiple_of(HUGE_PAGE) + HUGE_PAGE;
        let map = MmapMut::map_anon(mapped).ok()?;
        let advised = map.advise(match pages {
            Pages::Small => Advice::NoHugePage,
            Pages::Huge => Advice::HugePage,
        });
        // A kernel without huge pages refuses both.
        if advised.is_err() && pages == Pages::Huge {
            return None;
        }
        let begin = map.as_ptr().align_offset(HUGE_PAGE);
        let mut buffer = Buffer { map, begin, bytes };
        buffer.words_mut().fill(1);
        let is_huge = || buffer.huge_bytes() as f64 >= MIN_HUGE_SHARE * bytes as f64;
        match pages {
            Pages::Huge if !is_huge() => None,
            _ => Some(buffer),
        }
    }

    /// The words.
    pub fn words(&self) -> &[usize] {
        bytemuck::cast_slice(&self.map[self.begin..self.begin + self.bytes])
    }

    /// The words.
    pub fn words_mut(&mut self) -> &mut [usize] {
        let range = self.begin..self.begin + self.bytes;
        bytemuck::cast_slice_mut(&mut self.map[range])
    }

    /// Bytes of it that the kernel has put into huge pages.
    fn huge_bytes(&self) -> u64 {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        huge_bytes_at(&maps, self.words().as_ptr() as u64)
    }
}

/// Bytes of huge pages in the mapping that has an address, by the text of `/proc/self/smaps`.
fn huge_bytes_at(maps: &str, address: u64) -> u64 {
    let mut is_here = false;
    for line in maps.lines() {
        let range = (line.split_whitespace().next())
            .and_then(|word| word.split_once('-'))
            .and_then(|(from, to)| {
                let number = |text| u64::from_str_radix(text, 16).ok();
                number(from).zip(number(to))
            });
        if let Some((from, to)) = range {
            is_here = (from..to).contains(&address);
        }
        let huge = (line.strip_prefix("AnonHugePages:")).filter(|_| is_here);
        if let Some(huge) = huge {
            let kib = huge.trim().trim_end_matches("kB").trim().parse::<u64>();
            return kib.unwrap_or(0) << 10;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_has_whole_lines_at_a_huge_page() {
        let mut buffer = Buffer::new(100, Pages::Small).unwrap();
        assert_eq!(buffer.words().len(), 2 * LINE_WORDS);
        assert_eq!(buffer.words().as_ptr() as usize % HUGE_PAGE, 0);
        buffer.words_mut()[15] = 3;
        assert_eq!(buffer.words().iter().sum::<usize>(), 18);
    }

    #[test]
    fn huge_pages_are_those_of_the_mapping() {
        let maps = "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \n\
                    Rss: 4096 kB\nAnonHugePages:      2048 kB\n\
                    7f0000400000-7f0000800000 rw-p 00000000 00:00 0 \n\
                    AnonHugePages:         0 kB\n";
        assert_eq!(huge_bytes_at(maps, 0x7f00_0000_1000), 2 << 20);
        assert_eq!(huge_bytes_at(maps, 0x7f00_0040_0000), 0);
        assert_eq!(huge_bytes_at(maps, 0), 0);
    }
}

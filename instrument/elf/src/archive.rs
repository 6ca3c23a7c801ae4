//! ZIP archives at the end of programs, with offsets from the file's first byte (`zip -A`). A copy
//! at another place needs other offsets.

use crate::bytes;
use std::ops::Range;

const END: [u8; 4] = *b"PK\x05\x06";
const END_LEN: usize = 22;
const ENTRY: [u8; 4] = *b"PK\x01\x02";
const ENTRY_LEN: usize = 46;
const LOCAL_MAGIC: [u8; 4] = *b"PK\x03\x04";
/// Longest comment at the end of an archive.
const COMMENT: usize = 0xffff;

/// The end of an archive at its new place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Start of the archive's directory in the original file.
    pub from: u64,
    /// Bytes from there to the end of the file, with increased offsets.
    pub bytes: Vec<u8>,
}

/// The end of the archive that ends the file and lies in `payload`, for a copy `by` bytes further
/// on. `None` if there is none, if its offsets are of another kind (and so remain valid), or if the
/// new offsets do not fit.
pub fn moved(data: &[u8], payload: &Range<u64>, by: u64) -> Option<Moved> {
    let end = end_record(data)?;
    let word = |at: usize| bytes::u32(data, at).map(u64::from);
    let (size, from) = (word(end + 12)?, word(end + 16)?);
    // (The 64-bit form has a record between the two.)
    if from < payload.start || from.checked_add(size)? != end as u64 {
        return None;
    }
    let start = usize::try_from(from).ok()?;
    let mut moved = data[start..].to_vec();
    let mut add = |at: usize| {
        let value = u32::try_from(word(at)?.checked_add(by)?).ok()?;
        // (The largest value means that the offset is stored elsewhere.)
        let place = moved.get_mut(at - start..at - start + 4)?;
        place.copy_from_slice(&value.to_le_bytes());
        (value != u32::MAX).then_some(())
    };
    let mut at = start;
    while at < end {
        let header = data.get(at..at.checked_add(ENTRY_LEN)?)?;
        let local = word(at + 42)?;
        let begins = bytes::range(data, local, LOCAL_MAGIC.len() as u64) == Some(&LOCAL_MAGIC[..]);
        if !header.starts_with(&ENTRY) || local < payload.start || !begins {
            return None;
        }
        add(at + 42)?;
        let lengths = [28, 30, 32].map(|field| bytes::u16(data, at + field));
        for length in lengths {
            at += usize::from(length?);
        }
        at += ENTRY_LEN;
    }
    add(end + 16)?;
    (at == end).then_some(Moved { from, bytes: moved })
}

/// Offset of the record that ends an archive and the file.
fn end_record(data: &[u8]) -> Option<usize> {
    let last = data.len().checked_sub(END_LEN)?;
    let first = last.saturating_sub(COMMENT);
    (first..=last).rev().find(|&at| {
        data[at..].starts_with(&END)
            && bytes::u16(data, at + 20)
                .is_some_and(|comment| at + END_LEN + usize::from(comment) == data.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUB: usize = 1000;

    /// An archive with two entries and a comment. Offsets count from `base` on.
    fn file(base: usize) -> Vec<u8> {
        let mut data = vec![0x90; STUB];
        let mut directory = Vec::new();
        let mut count = 0u16;
        for name in ["a", "other"] {
            let offset = (base + data.len() - STUB) as u32;
            data.extend_from_slice(&LOCAL_MAGIC);
            data.extend_from_slice(&[0; 22]);
            data.extend_from_slice(&(name.len() as u16).to_le_bytes());
            data.extend_from_slice(&[0; 2]);
            data.extend_from_slice(name.as_bytes());
            directory.extend_from_slice(&ENTRY);
            directory.extend_from_slice(&[0; 24]);
            directory.extend_from_slice(&(name.len() as u16).to_le_bytes());
            directory.extend_from_slice(&[0; 12]);
            directory.extend_from_slice(&offset.to_le_bytes());
            directory.extend_from_slice(name.as_bytes());
            count += 1;
        }
        let at = (base + data.len() - STUB) as u32;
        data.extend_from_slice(&directory);
        data.extend_from_slice(&END);
        data.extend_from_slice(&[0; 4]);
        data.extend_from_slice(&count.to_le_bytes());
        data.extend_from_slice(&count.to_le_bytes());
        data.extend_from_slice(&(directory.len() as u32).to_le_bytes());
        data.extend_from_slice(&at.to_le_bytes());
        data.extend_from_slice(&3u16.to_le_bytes());
        data.extend_from_slice(b"end");
        data
    }

    fn payload(data: &[u8]) -> Range<u64> {
        STUB as u64..data.len() as u64
    }

    #[test]
    fn offsets_from_the_files_first_byte_move_with_the_archive() {
        let data = file(STUB);
        let by = 5000;
        let moved = moved(&data, &payload(&data), by).unwrap();
        // The result equals an archive whose stub is longer by `by`.
        let longer = file(STUB + by as usize);
        assert_eq!(moved.bytes, longer[moved.from as usize..]);
        assert_ne!(moved.bytes, data[moved.from as usize..]);
    }

    #[test]
    fn others_are_left_as_they_are() {
        let data = file(0);
        assert_eq!(moved(&data, &payload(&data), 5000), None);
        let data = file(STUB);
        assert_eq!(moved(&data, &payload(&data), 1 << 32), None);
        assert_eq!(moved(&data[..STUB + 20], &payload(&data), 5000), None);
        assert_eq!(moved(&[], &(0..0), 1), None);
        let behind = [&data[..], b"x"].concat();
        assert_eq!(moved(&behind, &payload(&behind), 5000), None);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let data = file(STUB);
        for at in STUB..data.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = data.clone();
                damaged[at] = value;
                let _ = moved(&damaged, &payload(&data), 5000);
                let _ = moved(&damaged[..at], &payload(&data), 5000);
            }
        }
    }
}

//! Packed files: gzip, xz, zip, lz4 and snappy, by their first bytes.

use anyhow::Context;
use flate2::bufread::{DeflateDecoder, MultiGzDecoder};
use indicatif::ProgressBar;
use liblzma::bufread::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};
use std::fs::File;
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Seek, SeekFrom, Take};
use std::path::Path;

/// Bytes read from a file at once.
const BUFFER: usize = 1 << 18;
/// Bytes of a zip file's end record, without its comment.
const END_BYTES: usize = 22;
/// Bytes of a zip file's comment at most.
const MAX_COMMENT_BYTES: usize = 0xffff;
/// Bytes of a central directory at most; more is damage.
const MAX_DIRECTORY_BYTES: u64 = 1 << 28;
/// Memory of a decoder of xz, bytes. Source: `xz -9` makes files that take 65 MiB.
const MAX_XZ_MEMORY_BYTES: u64 = 1 << 30;

/// A file whose read bytes advance a progress bar.
struct Watched {
    file: File,
    bar: ProgressBar,
}

impl Read for Watched {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(out)?;
        self.bar.inc(read as u64);
        Ok(read)
    }
}

impl Seek for Watched {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.file.seek(to)
    }
}

/// Opens a file for reading its unpacked bytes. `-` is standard input, which is not unpacked.
pub fn open(path: &Path, bar: &ProgressBar) -> anyhow::Result<Box<dyn Read>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(std::io::stdin()));
    }
    let named = || format!("{}: cannot be read", path.display());
    let file = Watched {
        file: File::open(path).with_context(named)?,
        bar: bar.clone(),
    };
    let mut plain = BufReader::with_capacity(BUFFER, file);
    let head = plain.fill_buf().with_context(named)?;
    let begins = |magic: &[u8]| head.starts_with(magic);
    Ok(if begins(&[0x1f, 0x8b]) {
        Box::new(MultiGzDecoder::new(plain))
    } else if begins(b"\xfd7zXZ\0") {
        let decoder = Stream::new_stream_decoder(MAX_XZ_MEMORY_BYTES, CONCATENATED)
            .map_err(Error::from)
            .with_context(named)?;
        Box::new(XzDecoder::new_stream(plain, decoder))
    } else if begins(b"PK\x03\x04") {
        Box::new(ZipEntries::new(plain).with_context(named)?)
    } else if begins(&[0x04, 0x22, 0x4d, 0x18]) {
        Box::new(lz4::Decoder::new(plain).with_context(named)?)
    } else if begins(b"\xff\x06\x00\x00sNaPpY") {
        Box::new(snap::read::FrameDecoder::new(plain))
    } else {
        Box::new(plain)
    })
}

fn damaged(what: &str) -> Error {
    Error::new(
        ErrorKind::InvalidData,
        format!("the zip file is damaged: {what}"),
    )
}

/// Entry of a zip file (PKWARE's APPNOTE, 4.3.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ZipEntry {
    method: u16,
    crc: u32,
    packed: u64,
    unpacked: u64,
    /// Offset of the entry's local header.
    header: u64,
}

/// Unpacked bytes of all entries of a zip file, in the order of its directory.
struct ZipEntries<R: BufRead + Seek> {
    entries: std::vec::IntoIter<ZipEntry>,
    /// `None` while an entry is read, and after an error.
    idle: Option<R>,
    current: Option<OpenEntry<R>>,
}

struct OpenEntry<R: BufRead> {
    data: EntryData<R>,
    entry: ZipEntry,
    crc: crc32fast::Hasher,
    read: u64,
}

enum EntryData<R: BufRead> {
    Stored(Take<R>),
    Deflated(Box<DeflateDecoder<Take<R>>>),
}

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let bytes = bytes.get(at..at + len).unwrap_or_default();
    bytes
        .iter()
        .rev()
        .fold(0, |sum, &b| sum << 8 | u64::from(b))
}

impl<R: BufRead + Seek> ZipEntries<R> {
    fn new(mut file: R) -> std::io::Result<ZipEntries<R>> {
        let entries = directory(&mut file)?;
        Ok(ZipEntries {
            entries: entries.into_iter(),
            idle: Some(file),
            current: None,
        })
    }

    /// Opens the next entry. False if there is none.
    fn next_entry(&mut self) -> std::io::Result<bool> {
        let (Some(mut file), Some(entry)) = (self.idle.take(), self.entries.next()) else {
            return Ok(false);
        };
        file.seek(SeekFrom::Start(entry.header))?;
        let mut header = [0; 30];
        file.read_exact(&mut header)?;
        if number(&header, 0, 4) != 0x0403_4b50 {
            return Err(damaged("an entry is not where its directory says"));
        }
        let skipped = number(&header, 26, 2) + number(&header, 28, 2);
        file.seek_relative(skipped as i64)?;
        let packed = file.take(entry.packed);
        let data = match entry.method {
            0 => EntryData::Stored(packed),
            8 => EntryData::Deflated(Box::new(DeflateDecoder::new(packed))),
            method => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("the zip file has packing method {method}, which is not read"),
                ));
            }
        };
        self.current = Some(OpenEntry {
            data,
            entry,
            crc: crc32fast::Hasher::new(),
            read: 0,
        });
        Ok(true)
    }
}

impl<R: BufRead> OpenEntry<R> {
    /// Checks the entry at its end, and returns the file.
    fn end(self) -> std::io::Result<R> {
        if self.read != self.entry.unpacked || self.crc.finalize() != self.entry.crc {
            return Err(damaged("the checksum of an entry is wrong"));
        }
        Ok(match self.data {
            EntryData::Stored(data) => data.into_inner(),
            EntryData::Deflated(data) => data.into_inner().into_inner(),
        })
    }
}

impl<R: BufRead + Seek> Read for ZipEntries<R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(open) = &mut self.current {
                let read = match &mut open.data {
                    EntryData::Stored(data) => data.read(out)?,
                    EntryData::Deflated(data) => data.read(out)?,
                };
                if read > 0 {
                    open.crc.update(&out[..read]);
                    open.read += read as u64;
                    return Ok(read);
                }
            }
            if let Some(open) = self.current.take() {
                self.idle = Some(open.end()?);
            }
            if !self.next_entry()? {
                return Ok(0);
            }
        }
    }
}

/// Entries of a zip file by its central directory.
fn directory<R: Read + Seek>(file: &mut R) -> std::io::Result<Vec<ZipEntry>> {
    let length = file.seek(SeekFrom::End(0))?;
    let tail_length = length.min((END_BYTES + MAX_COMMENT_BYTES) as u64);
    let mut tail = vec![0; tail_length as usize];
    file.seek(SeekFrom::Start(length - tail_length))?;
    file.read_exact(&mut tail)?;
    let end =
        memchr::memmem::rfind(&tail, b"PK\x05\x06").filter(|&at| at + END_BYTES <= tail.len());
    let end = end.ok_or_else(|| damaged("it has no directory; it may be cut off"))?;
    let mut count = number(&tail, end + 10, 2);
    let mut bytes = number(&tail, end + 12, 4);
    let mut offset = number(&tail, end + 16, 4);
    // If numbers are too large, a locator of the 64-bit end record comes before this record.
    if end >= 20 && number(&tail, end - 20, 4) == 0x0706_4b50 {
        let mut wide = [0; 56];
        file.seek(SeekFrom::Start(number(&tail, end - 12, 8)))?;
        file.read_exact(&mut wide)?;
        if number(&wide, 0, 4) != 0x0606_4b50 {
            return Err(damaged("its 64-bit end record is missing"));
        }
        (count, bytes, offset) = (
            number(&wide, 32, 8),
            number(&wide, 40, 8),
            number(&wide, 48, 8),
        );
    }
    if bytes > MAX_DIRECTORY_BYTES || bytes > length {
        return Err(damaged("its directory is too large"));
    }
    let mut directory = vec![0; bytes as usize];
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(&mut directory)?;
    let mut entries = Vec::new();
    let mut rest = &directory[..];
    for _ in 0..count {
        let (entry, next) = entry(rest).ok_or_else(|| damaged("its directory is cut off"))?;
        entries.push(entry);
        rest = next;
    }
    Ok(entries)
}

/// Parses an entry of the directory. Also returns the bytes after it.
fn entry(bytes: &[u8]) -> Option<(ZipEntry, &[u8])> {
    let head = bytes.get(..46)?;
    let [name, extra, comment] = [28, 30, 32].map(|at| number(head, at, 2) as usize);
    if number(head, 0, 4) != 0x0201_4b50 {
        return None;
    }
    let next = bytes.get(46 + name + extra + comment..)?;
    let mut of = ZipEntry {
        method: number(head, 10, 2) as u16,
        crc: number(head, 16, 4) as u32,
        packed: number(head, 20, 4),
        unpacked: number(head, 24, 4),
        header: number(head, 42, 4),
    };
    let mut extra = bytes.get(46 + name..46 + name + extra)?;
    while extra.len() >= 4 {
        let (id, size) = (number(extra, 0, 2), number(extra, 2, 2) as usize);
        let Some(mut data) = extra.get(4..4 + size) else {
            break;
        };
        if id == 1 {
            // Fields that are all ones have their values here, as 64-bit numbers.
            for field in [&mut of.unpacked, &mut of.packed, &mut of.header] {
                if *field == 0xffff_ffff {
                    *field = number(data.get(..8)?, 0, 8);
                    data = &data[8..];
                }
            }
        }
        extra = &extra[4 + size..];
    }
    Some((of, next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::DeflateEncoder;
    use std::io::{Cursor, Write};

    /// A zip file of these entries, every second one stored.
    fn zip(parts: &[&[u8]]) -> Vec<u8> {
        let (mut out, mut directory) = (Vec::new(), Vec::new());
        for (i, part) in parts.iter().enumerate() {
            let (method, packed) = match i % 2 {
                0 => {
                    let mut deflate = DeflateEncoder::new(Vec::new(), Compression::default());
                    deflate.write_all(part).unwrap();
                    (8u16, deflate.finish().unwrap())
                }
                _ => (0, part.to_vec()),
            };
            let crc = crc32fast::hash(part);
            let mut common = vec![20, 0, 0, 0];
            common.extend(method.to_le_bytes());
            common.extend([0; 4]);
            common.extend(crc.to_le_bytes());
            common.extend((packed.len() as u32).to_le_bytes());
            common.extend((part.len() as u32).to_le_bytes());
            common.extend([1, 0, 0, 0]);
            directory.extend(b"PK\x01\x02\x14\x00");
            directory.extend(&common);
            directory.extend([0; 10]);
            directory.extend((out.len() as u32).to_le_bytes());
            directory.push(b'x');
            out.extend(b"PK\x03\x04");
            out.extend(&common);
            out.push(b'x');
            out.extend(packed);
        }
        let at = out.len() as u32;
        out.extend(&directory);
        out.extend(b"PK\x05\x06\0\0\0\0");
        out.extend([parts.len() as u8, 0, parts.len() as u8, 0]);
        out.extend((directory.len() as u32).to_le_bytes());
        out.extend(at.to_le_bytes());
        out.extend([0, 0]);
        out
    }

    fn unpack(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut all = Vec::new();
        ZipEntries::new(Cursor::new(bytes))?.read_to_end(&mut all)?;
        Ok(all)
    }

    #[test]
    fn entries_are_read_one_after_another() {
        let long = b"abc".repeat(10_000);
        let bytes = zip(&[&long, b"stored", b"", b"last"]);
        let expected: Vec<u8> = [&long[..], b"stored", b"last"].concat();
        assert_eq!(unpack(&bytes).unwrap(), expected);
        assert!(unpack(&zip(&[])).unwrap().is_empty());
    }

    #[test]
    fn damage_is_an_error_and_no_panic() {
        let bytes = zip(&[&b"abc".repeat(300), b"stored", b"more"]);
        for at in 0..bytes.len() {
            let _ = unpack(&bytes[..at]);
            for bit in [1, 0x80] {
                let mut other = bytes.clone();
                other[at] ^= bit;
                let _ = unpack(&other);
            }
        }
        assert!(unpack(&bytes[..bytes.len() - 5]).is_err());
        let mut wrong = bytes.clone();
        // Damages the first byte of the stored data.
        let at = memchr::memmem::find(&wrong, b"stored").unwrap();
        wrong[at] ^= 1;
        assert!(unpack(&wrong).unwrap_err().to_string().contains("checksum"));
    }
}

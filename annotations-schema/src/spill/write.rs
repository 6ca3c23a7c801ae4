//! Writing spill files: any thread encodes segments, and they are appended in order.

use crate::spill::encode::Encoder;
use crate::spill::{
    Check, FILE_HEADER, FILE_MAGIC, MAX_SEGMENT_SLOTS, SEGMENT_HEADER, SEGMENT_MAGIC,
    SPILL_EXTENSION, SPILL_VERSION, SegmentHeader, SegmentKind, ThreadKey,
};
use mgz_abi::slot::Slot;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, IoSlice, Result, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// An encoded segment, made by any thread in any order. It is reused for other segments only to
/// save allocations.
#[derive(Default)]
pub struct EncodedSegment {
    encoder: Encoder,
    header: Vec<u8>,
}

impl EncodedSegment {
    /// Begins a segment of about `expected` slots; earlier content is discarded. Without this call
    /// the expected size is unknown.
    pub fn begin(&mut self, expected: usize) {
        self.header.clear();
        self.encoder.begin(expected);
    }

    /// Encodes further slots.
    pub fn push(&mut self, slots: &[Slot]) {
        self.encoder.push(slots);
    }

    /// Ends the segment; returns its number of slots. `header.slots` is ignored: the number of
    /// encoded slots counts. More than [`MAX_SEGMENT_SLOTS`] are refused.
    pub fn finish(&mut self, header: &SegmentHeader) -> Result<usize> {
        let slots = self.encoder.finish();
        if slots > MAX_SEGMENT_SLOTS {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "too many slots for one spill segment",
            ));
        }
        let streams = self.encoder.streams();
        let mut bytes = [0u8; SEGMENT_HEADER];
        bytes[..4].copy_from_slice(SEGMENT_MAGIC);
        bytes[4] = u8::from(header.kind == SegmentKind::Window);
        bytes[5] = header.cause;
        bytes[6] = self.encoder.bits();
        let [control, ids, data, aux] = streams.map(<[u8]>::len);
        for (at, length) in [
            (8, slots),
            (12, control),
            (16, data),
            (20, aux),
            (64, ids),
            (68, header.ring_slots as usize),
        ] {
            // MAX_SEGMENT_SLOTS keeps every stream below 4 GiB.
            bytes[at..at + 4].copy_from_slice(&(length as u32).to_le_bytes());
        }
        for (i, word) in [header.first_slot, header.begin_ns, header.end_ns]
            .into_iter()
            .enumerate()
        {
            bytes[24 + 8 * i..32 + 8 * i].copy_from_slice(&word.to_le_bytes());
        }
        bytes[56..64].copy_from_slice(&header.pace.word().to_le_bytes());
        bytes[72..80].copy_from_slice(&header.period.to_le_bytes());
        let mut check = Check::new();
        check.part(&bytes);
        streams.iter().for_each(|stream| check.part(stream));
        bytes[48..56].copy_from_slice(&check.value().to_le_bytes());
        self.header.clear();
        self.header.extend_from_slice(&bytes);
        Ok(slots)
    }

    /// The finished segment as a separate spill file.
    pub fn alone(&self, key: ThreadKey) -> Vec<u8> {
        let parts = self.parts();
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        let mut bytes = Vec::with_capacity(FILE_HEADER + length);
        file_header(key, &mut bytes);
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes
    }

    /// The header and the streams of a finished segment.
    fn parts(&self) -> [&[u8]; 5] {
        assert!(!self.header.is_empty(), "the segment was not ended");
        let [control, ids, data, aux] = self.encoder.streams();
        [&self.header, control, ids, data, aux]
    }
}

/// Writes one thread's spill file. Each segment reaches the kernel before `append` and `write`
/// return.
pub struct SpillWriter {
    file: File,
    path: PathBuf,
    /// The encoder of [`SpillWriter::write`].
    encoded: Option<Box<EncodedSegment>>,
    /// Bytes of complete segments and the file header.
    good: u64,
}

impl SpillWriter {
    /// Creates a new file for this thread in `dir`. A second file for the same ids (ids are reused
    /// by the system) gets a new name; nothing is overwritten. Mode 0600.
    pub fn create(dir: &Path, key: ThreadKey) -> Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        let mut n = 0;
        let (mut file, path) = loop {
            let path = dir.join(format!(
                "{}-{}-{n}.{SPILL_EXTENSION}",
                key.process, key.thread
            ));
            match OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
            {
                Ok(file) => break (file, path),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => n += 1,
                Err(e) => return Err(e),
            }
        };
        let mut header = Vec::with_capacity(FILE_HEADER);
        file_header(key, &mut header);
        file.write_all(&header)?;
        Ok(SpillWriter {
            file,
            path,
            encoded: None,
            good: FILE_HEADER as u64,
        })
    }

    /// Encodes and appends a segment; returns its size in bytes. See [`EncodedSegment::finish`] and
    /// [`SpillWriter::append`].
    pub fn write(&mut self, header: &SegmentHeader, slots: &[Slot]) -> Result<u64> {
        let encoded = self.encoded.get_or_insert_default();
        encoded.begin(slots.len());
        encoded.push(slots);
        encoded.finish(header)?;
        append(&mut self.file, &mut self.good, encoded)
    }

    /// Appends a segment; returns its size in bytes. After an error the file is truncated to its
    /// last complete segment and may be written to again.
    pub fn append(&mut self, segment: &EncodedSegment) -> Result<u64> {
        append(&mut self.file, &mut self.good, segment)
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes written so far, headers included.
    pub fn bytes(&self) -> u64 {
        self.good
    }

    /// Closes the file; returns its size in bytes.
    pub fn finish(self) -> Result<u64> {
        Ok(self.good)
    }
}

/// Header of a thread's file.
fn file_header(key: ThreadKey, out: &mut Vec<u8>) {
    out.extend_from_slice(FILE_MAGIC);
    for word in [SPILL_VERSION, FILE_HEADER as u32, key.process, key.thread] {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

/// Writes a segment behind the `good` bytes of a file.
fn append(file: &mut File, good: &mut u64, segment: &EncodedSegment) -> Result<u64> {
    let parts = segment.parts();
    let length = parts.iter().map(|s| s.len()).sum::<usize>() as u64;
    match write_all(file, parts) {
        Ok(()) => {
            *good += length;
            Ok(length)
        }
        Err(error) => {
            // If even this fails, the reader still recognises the torn tail.
            let _ = file.set_len(*good);
            let _ = file.seek(SeekFrom::Start(*good));
            Err(error)
        }
    }
}

/// `write_all` for several buffers in one system call if possible.
fn write_all(file: &mut File, buffers: [&[u8]; 5]) -> Result<()> {
    let mut slices = buffers.map(IoSlice::new);
    let mut rest = &mut slices[..];
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match file.write_vectored(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => IoSlice::advance_slices(&mut rest, n),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

//! Reading a sequence of records.
//!
//! Compressed records contain pieces of one zstd stream, which unpacks to further records. One of
//! those may begin in one piece and end in the next.

use crate::{u16_at, u32_at, u64_at};
use mgz_perf::records::kind;
use std::sync::Arc;
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

/// Bytes that live in the file, or that were unpacked from it.
#[derive(Clone, Debug)]
pub enum RecordBytes<'a> {
    /// In the file.
    File(&'a [u8]),
    /// Unpacked.
    Unpacked(Arc<[u8]>),
}

impl std::ops::Deref for RecordBytes<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            RecordBytes::File(bytes) => bytes,
            RecordBytes::Unpacked(bytes) => bytes,
        }
    }
}

/// One record.
#[derive(Clone, Debug)]
pub struct PerfRecord<'a> {
    /// Type, see [`kind`].
    pub kind: u32,
    /// The record's `misc` field.
    pub misc: u16,
    /// Bytes behind the 8-byte header.
    pub body: RecordBytes<'a>,
    /// PT data that follows an AUXTRACE record.
    pub trailer: &'a [u8],
    /// Its offset in the file (for unpacked records: of the compressed one).
    pub at: usize,
}

/// Problems found by the reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    /// Bytes at the end that belong to a record that is cut off.
    pub cut_bytes: u64,
    /// Reading stopped at this offset, at a record whose size is impossible.
    pub stopped_at: Option<usize>,
    /// Compressed records that could not be unpacked.
    pub bad_compressed: u64,
}

/// Maximum unpacked size of a file, as a multiple of its size (perf reaches about 20).
const MAX_EXPANSION: u64 = 512;

/// Reads the records of one file.
pub struct Records<'a> {
    file: &'a [u8],
    at: usize,
    end: usize,
    unpacked: Vec<u8>,
    unpacked_at: usize,
    /// Offset of the compressed record that `unpacked` came from.
    source: usize,
    decoder: Option<Decoder<'static>>,
    unpacked_total: u64,
    problems: Problems,
}

impl<'a> Records<'a> {
    /// Records in `range` of the file.
    pub fn new(file: &'a [u8], range: std::ops::Range<usize>) -> Self {
        let end = range.end.min(file.len());
        Records {
            file,
            at: range.start.min(end),
            end,
            unpacked: Vec::new(),
            unpacked_at: 0,
            source: 0,
            decoder: None,
            unpacked_total: 0,
            problems: Problems::default(),
        }
    }

    /// Problems so far.
    pub fn problems(&self) -> &Problems {
        &self.problems
    }

    /// The next record in the unpacked bytes.
    fn next_unpacked(&mut self) -> Option<PerfRecord<'a>> {
        let rest = self.unpacked.get(self.unpacked_at..)?;
        let size = usize::from(u16_at(rest, 6)?);
        if size < 8 {
            self.problems.bad_compressed += 1;
            self.unpacked.clear();
            self.unpacked_at = 0;
            return None;
        }
        let record = rest.get(..size)?;
        let record = PerfRecord {
            kind: u32_at(record, 0)?,
            misc: u16_at(record, 4)?,
            body: RecordBytes::Unpacked(record[8..].into()),
            trailer: &[],
            at: self.source,
        };
        self.unpacked_at += size;
        Some(record)
    }

    /// Unpacks one compressed record, and appends it to the rest of the previous one.
    fn unpack(&mut self, packed: &[u8]) {
        self.unpacked.drain(..self.unpacked_at);
        self.unpacked_at = 0;
        let budget = (self.file.len() as u64)
            .saturating_mul(MAX_EXPANSION)
            .saturating_add(1 << 20);
        let decoder = match self.decoder.take() {
            Some(decoder) => Ok(decoder),
            None => Decoder::new(),
        };
        let Ok(mut decoder) = decoder else {
            self.problems.bad_compressed += 1;
            return;
        };
        let mut input = InBuffer::around(packed);
        let mut chunk = vec![0u8; 1 << 16];
        loop {
            let mut output = OutBuffer::around(&mut chunk[..]);
            let step = decoder.run(&mut input, &mut output);
            let got = output.pos();
            self.unpacked_total += got as u64;
            if step.is_err() || self.unpacked_total > budget {
                self.problems.bad_compressed += 1;
                return;
            }
            self.unpacked.extend_from_slice(&chunk[..got]);
            if got < chunk.len() && input.pos() >= packed.len() {
                break;
            }
            if got == 0
                && input.pos() < packed.len()
                && step.is_ok_and(|hint| hint == 0)
                && decoder.reinit().is_err()
            {
                break;
            }
        }
        self.decoder = Some(decoder);
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = PerfRecord<'a>;

    fn next(&mut self) -> Option<PerfRecord<'a>> {
        loop {
            if let Some(record) = self.next_unpacked() {
                return Some(record);
            }
            let rest = &self.file[self.at..self.end];
            if rest.is_empty() {
                self.problems.cut_bytes += (self.unpacked.len() - self.unpacked_at) as u64;
                self.unpacked.clear();
                self.unpacked_at = 0;
                return None;
            }
            let header = u32_at(rest, 0).zip(u16_at(rest, 4)).zip(u16_at(rest, 6));
            let size = header.map_or(0, |(_, size)| usize::from(size));
            if header.is_some() && size < 8 {
                self.problems.stopped_at = Some(self.at);
                self.problems.cut_bytes += rest.len() as u64;
                self.at = self.end;
                continue;
            }
            let Some((((kind, misc), _), body)) = header.zip(rest.get(8..size)) else {
                self.problems.cut_bytes += rest.len() as u64;
                self.at = self.end;
                continue;
            };
            let at = self.at;
            self.at += size;
            let trailing = match kind {
                kind::AUXTRACE => u64_at(body, 0).unwrap_or(0),
                // The size is rounded up to 8 by perf itself.
                kind::TRACING_DATA => u64::from(u32_at(body, 0).unwrap_or(0)),
                _ => 0,
            };
            let left = self.end - self.at;
            let present = usize::try_from(trailing).unwrap_or(usize::MAX).min(left);
            self.problems.cut_bytes += trailing - present as u64;
            let trailer = &self.file[self.at..self.at + present];
            self.at += present;
            match kind {
                kind::COMPRESSED => {
                    self.source = at;
                    self.unpack(body);
                }
                kind::COMPRESSED2 => {
                    self.source = at;
                    let packed = u64_at(body, 0)
                        .and_then(|size| body.get(8..)?.get(..usize::try_from(size).ok()?));
                    match packed {
                        Some(packed) => self.unpack(packed),
                        None => self.problems.bad_compressed += 1,
                    }
                }
                _ => {
                    return Some(PerfRecord {
                        kind,
                        misc,
                        body: RecordBytes::File(body),
                        trailer,
                        at,
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let size = (8 + body.len()) as u16;
        [
            &kind.to_le_bytes()[..],
            &0u16.to_le_bytes(),
            &size.to_le_bytes(),
            body,
        ]
        .concat()
    }

    fn all(bytes: &[u8]) -> (Vec<(u32, Vec<u8>)>, Problems) {
        let mut records = Records::new(bytes, 0..bytes.len());
        let list = records
            .by_ref()
            .map(|r| (r.kind, r.body.to_vec()))
            .collect();
        (list, records.problems().clone())
    }

    #[test]
    fn trailing_data_is_not_taken_for_records() {
        let mut bytes = record(kind::AUXTRACE, &3u64.to_le_bytes());
        bytes.extend_from_slice(&[9, 9, 9]);
        bytes.extend_from_slice(&record(kind::COMM, b"x"));
        let (list, problems) = all(&bytes);
        assert_eq!(list[1], (kind::COMM, b"x".to_vec()));
        assert_eq!(problems, Problems::default());
    }

    #[test]
    fn a_record_of_impossible_size_ends_the_reading_and_is_reported() {
        let mut bytes = record(kind::COMM, b"x");
        let at = bytes.len();
        bytes.extend_from_slice(&[1, 0, 0, 0, 0, 0, 7, 0, 1, 2]);
        let (list, problems) = all(&bytes);
        assert_eq!(list.len(), 1);
        assert_eq!(
            problems,
            Problems {
                cut_bytes: 10,
                stopped_at: Some(at),
                bad_compressed: 0
            }
        );
        assert_eq!(all(&bytes[..at - 1]).1.cut_bytes, at as u64 - 1);
    }

    #[test]
    fn records_are_unpacked_even_across_compressed_records() {
        let plain = [record(kind::COMM, &[7; 300]), record(kind::AUX, &[8; 40])].concat();
        let mut encoder = zstd::stream::raw::Encoder::new(1).unwrap();
        let mut bytes = Vec::new();
        for (number, piece) in [&plain[..100], &plain[100..320], &plain[320..]]
            .into_iter()
            .enumerate()
        {
            let mut out = vec![0u8; 4096];
            let mut output = OutBuffer::around(&mut out[..]);
            encoder
                .run(&mut InBuffer::around(piece), &mut output)
                .unwrap();
            encoder.flush(&mut output).unwrap();
            let len = output.pos();
            if number == 1 {
                // The newer form has the length and padding.
                let body = [&(len as u64).to_le_bytes()[..], &out[..len], &[0; 5]].concat();
                bytes.extend_from_slice(&record(kind::COMPRESSED2, &body));
            } else {
                bytes.extend_from_slice(&record(kind::COMPRESSED, &out[..len]));
            }
        }
        let (list, problems) = all(&bytes);
        assert_eq!(list, [(kind::COMM, vec![7; 300]), (kind::AUX, vec![8; 40])]);
        assert_eq!(problems, Problems::default());
    }

    #[test]
    fn a_bomb_is_refused() {
        let packed = zstd::bulk::compress(&vec![0u8; 64 << 20], 19).unwrap();
        assert!(packed.len() < 60_000);
        let (list, problems) = all(&record(kind::COMPRESSED, &packed));
        assert!(list.is_empty());
        assert!(problems.bad_compressed > 0);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_loop(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400), types in proptest::collection::vec(proptest::sample::select(vec![9u32, 11, 66, 71, 81, 83]), 0..5)) {
            let mut all_bytes = Vec::new();
            for kind in types { all_bytes.extend_from_slice(&record(kind, &bytes[..bytes.len().min(40)])); }
            all_bytes.extend_from_slice(&bytes);
            let count = Records::new(&all_bytes, 0..all_bytes.len()).count();
            assert!(count <= all_bytes.len() * 600);
        }
    }
}

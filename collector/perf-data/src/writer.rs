//! Writer of perf.data files (tools/perf/Documentation/perf.data-file-format.txt). The importer and
//! perf can both read its files.
//!
//! The file is valid at any moment except for the last few records: the header has the size after
//! every round, so a killed recorder leaves a readable file. The features, which lie behind the
//! records, are written at the end, and the header refers to them only then.

use mgz_perf::attr::ATTR_BYTES;
use mgz_perf::records::{kind, record_bytes};
use std::fs::File;
use std::io;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// An event for the header.
#[derive(Clone, Debug)]
pub struct Described {
    /// Its attribute.
    pub attr: [u8; ATTR_BYTES],
    /// Ids of its counters.
    pub ids: Vec<u64>,
    /// Name of the event.
    pub name: String,
}

/// Features of the header, by number (tools/perf/util/header.h).
pub mod feature {
    #![allow(missing_docs, reason = "the names are perf's")]
    pub const BUILD_ID: u32 = 2;
    pub const OSRELEASE: u32 = 4;
    pub const VERSION: u32 = 5;
    pub const ARCH: u32 = 6;
    pub const NRCPUS: u32 = 7;
    pub const CMDLINE: u32 = 11;
    pub const EVENT_DESC: u32 = 12;
    pub const AUXTRACE: u32 = 18;
}

const HEADER: u64 = 104;
/// Offset in the header of the size of the records.
const DATA_SIZE_AT: u64 = 48;
const FEATURES_AT: u64 = 72;
/// Bytes that are collected before they are written.
const BUFFER: usize = 1 << 20;
/// perf's own record that ends a round: all records from before the previous round have been
/// written.
const FINISHED_ROUND: u32 = 68;
/// Length of an AUXTRACE record without its data, bytes; the index contains it.
const AUXTRACE_RECORD: u64 = 48;

/// A file that is being written.
pub struct Writer {
    file: File,
    buffer: Vec<u8>,
    events: Vec<Described>,
    data_at: u64,
    /// Bytes of records in the file, without the buffer.
    written: u64,
    /// Bytes of records according to the header.
    committed: u64,
    in_round: bool,
    /// AUXTRACE records: offset in the file, bytes.
    index: Vec<(u64, u64)>,
}

fn words(list: &[u64]) -> Vec<u8> {
    list.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// A text in the format of features: length and zero-padded bytes.
fn feature_text(text: &str) -> Vec<u8> {
    let padded = (text.len() + 1).next_multiple_of(64);
    let mut out = (padded as u32).to_le_bytes().to_vec();
    out.extend_from_slice(text.as_bytes());
    out.resize(4 + padded, 0);
    out
}

impl Writer {
    /// Creates the file, readable only by the user.
    pub fn create(path: &Path, events: Vec<Described>) -> io::Result<Writer> {
        let mut file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)?;
        let mut ids = Vec::new();
        let mut attrs = Vec::new();
        for event in &events {
            attrs.extend_from_slice(&event.attr);
            attrs.extend(words(&[
                HEADER + ids.len() as u64,
                event.ids.len() as u64 * 8,
            ]));
            ids.extend(words(&event.ids));
        }
        let attrs_at = HEADER + ids.len() as u64;
        let data_at = attrs_at + attrs.len() as u64;
        let mut head = b"PERFILE2".to_vec();
        head.extend(words(&[
            HEADER,
            ATTR_BYTES as u64 + 16,
            attrs_at,
            attrs.len() as u64,
            data_at,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ]));
        debug_assert_eq!(head.len() as u64, HEADER);
        head.extend(ids);
        head.extend(attrs);
        file.write_all(&head)?;
        Ok(Writer {
            file,
            buffer: Vec::new(),
            events,
            data_at,
            written: 0,
            committed: 0,
            in_round: false,
            index: Vec::new(),
        })
    }

    /// Bytes of the file so far.
    pub fn size(&self) -> u64 {
        self.data_at + self.written + self.buffer.len() as u64
    }

    /// Writes complete records unchanged.
    pub fn records(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.in_round = true;
        if self.buffer.len() + bytes.len() > BUFFER {
            self.flush()?;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes one record. The body's length must be a multiple of 8 and fit into 16 bits with the
    /// header.
    pub fn record(&mut self, kind: u32, misc: u16, body: &[u8]) -> io::Result<()> {
        self.records(&record_bytes(kind, misc, body)?)
    }

    /// Writes PT data in an AUXTRACE record. `cpu`: that of the buffer; `tsc`: the time, without
    /// which perf cannot read time stamps. The data is padded to whole words.
    pub fn auxtrace(
        &mut self,
        offset: u64,
        tsc: u64,
        buffer: u32,
        cpu: u32,
        parts: [&[u8]; 2],
    ) -> io::Result<()> {
        let length = (parts[0].len() + parts[1].len()) as u64;
        let padded = length.next_multiple_of(8);
        self.index.push((self.size(), AUXTRACE_RECORD));
        let who = u64::from(buffer) | u64::from(u32::MAX) << 32;
        self.record(
            kind::AUXTRACE,
            0,
            &words(&[padded, offset, tsc, who, u64::from(cpu)]),
        )?;
        for part in parts {
            self.flush_if_large(part)?;
        }
        self.records(&[0; 8][..(padded - length) as usize])
    }

    /// Large pieces are written to the file directly.
    fn flush_if_large(&mut self, part: &[u8]) -> io::Result<()> {
        if part.len() < BUFFER / 2 {
            return self.records(part);
        }
        self.flush()?;
        self.file.write_all(part)?;
        self.written += part.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Ends a round, in which every ring was emptied once, and makes everything written so far
    /// valid.
    pub fn end_round(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.in_round) {
            return Ok(());
        }
        self.record(FINISHED_ROUND, 0, &[])?;
        self.in_round = false;
        self.commit()
    }

    /// Makes everything written so far valid.
    pub fn commit(&mut self) -> io::Result<()> {
        self.flush()?;
        self.file
            .write_all_at(&self.written.to_le_bytes(), DATA_SIZE_AT)?;
        self.committed = self.written;
        Ok(())
    }

    /// Discards the invalid end of the file after an error, so that the rest is valid.
    pub fn roll_back(&mut self) {
        self.buffer.clear();
        self.written = self.committed;
        let end = self.data_at + self.written;
        self.index.retain(|(at, _)| *at < end);
        // If even this fails, the header still describes the records correctly.
        let _ = self.file.set_len(end);
        let _ = self.file.seek(SeekFrom::Start(end));
    }

    /// Writes the features. Without them (the disk may be full) the file is still valid.
    pub fn finish(&mut self, about: &About) -> io::Result<()> {
        self.commit()?;
        let mut list = vec![
            (feature::BUILD_ID, about.build_ids.concat()),
            (feature::OSRELEASE, feature_text(&about.release)),
            (
                feature::VERSION,
                feature_text(concat!("mgz-record ", env!("CARGO_PKG_VERSION"))),
            ),
            (feature::ARCH, feature_text("x86_64")),
            (
                feature::NRCPUS,
                [about.cpus.to_le_bytes(), about.cpus.to_le_bytes()].concat(),
            ),
            (feature::CMDLINE, {
                let mut out = (about.command.len() as u32).to_le_bytes().to_vec();
                about
                    .command
                    .iter()
                    .for_each(|arg| out.extend(feature_text(arg)));
                out
            }),
            (feature::EVENT_DESC, {
                let mut out = (self.events.len() as u32).to_le_bytes().to_vec();
                out.extend_from_slice(&(ATTR_BYTES as u32).to_le_bytes());
                for event in &self.events {
                    out.extend_from_slice(&event.attr);
                    out.extend_from_slice(&(event.ids.len() as u32).to_le_bytes());
                    out.extend(feature_text(&event.name));
                    out.extend(words(&event.ids));
                }
                out
            }),
            (feature::AUXTRACE, {
                let mut out = words(&[self.index.len() as u64]);
                self.index
                    .iter()
                    .for_each(|(at, size)| out.extend(words(&[*at, *size])));
                out
            }),
        ];
        list.retain(|(feature, _)| match *feature {
            feature::BUILD_ID => !about.build_ids.is_empty(),
            feature::AUXTRACE => !self.index.is_empty(),
            _ => true,
        });
        let table_at = self.data_at + self.written;
        let mut at = table_at + 16 * list.len() as u64;
        let mut table = Vec::new();
        let mut set = 0u64;
        for (number, bytes) in &list {
            table.extend(words(&[at, bytes.len() as u64]));
            at += bytes.len() as u64;
            set |= 1 << number;
        }
        list.iter()
            .for_each(|(_, bytes)| table.extend_from_slice(bytes));
        self.file.write_all_at(&table, table_at)?;
        self.file.write_all_at(&set.to_le_bytes(), FEATURES_AT)
    }
}

/// Content of the features.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Release of the kernel.
    pub release: String,
    /// Number of online CPUs.
    pub cpus: u32,
    /// The traced command line.
    pub command: Vec<String>,
    /// Build ids, as records.
    pub build_ids: Vec<Vec<u8>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::layout;
    use crate::records::Records;
    use mgz_perf::attr::Attr;

    fn writer(dir: &Path) -> (Writer, std::path::PathBuf) {
        let path = dir.join("perf.data");
        let event = |kind, ids: &[u64]| Described {
            attr: Attr::inherited(kind, 1).bytes(),
            ids: ids.to_vec(),
            name: format!("event{kind}"),
        };
        (
            Writer::create(&path, vec![event(8, &[1, 2]), event(1, &[3, 4])]).unwrap(),
            path,
        )
    }

    fn kinds(bytes: &[u8]) -> Vec<u32> {
        let layout = layout(bytes).unwrap();
        Records::new(bytes, layout.data).map(|r| r.kind).collect()
    }

    #[test]
    fn the_file_is_valid_after_every_round() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, path) = writer(dir.path());
        writer.record(kind::COMM, 0, &[0; 16]).unwrap();
        writer.end_round().unwrap();
        writer.end_round().unwrap();
        writer.record(kind::COMM, 0, &[0; 16]).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let found = layout(&bytes).unwrap();
        assert!(!found.incomplete);
        assert_eq!(
            found
                .events
                .iter()
                .map(|e| e.ids.clone())
                .collect::<Vec<_>>(),
            [[1, 2], [3, 4]]
        );
        assert_eq!(
            kinds(&bytes),
            [kind::COMM, FINISHED_ROUND],
            "an empty round leaves no trace"
        );
        writer.auxtrace(0, 1, 0, 3, [&[7; 5], &[8; 6]]).unwrap();
        writer.end_round().unwrap();
        writer.record(kind::EXIT, 0, &[0; 16]).unwrap();
        writer.roll_back();
        writer.record(kind::FORK, 0, &[0; 16]).unwrap();
        let build_id = record_bytes(kind::BUILD_ID, 2, &[0; 32]).unwrap();
        writer
            .finish(&About {
                release: "6.1".into(),
                cpus: 4,
                command: vec!["a".into(), "b".into()],
                build_ids: vec![build_id],
            })
            .unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let found = layout(&bytes).unwrap();
        assert_eq!(found.build_ids.len(), 40);
        assert_eq!(
            kinds(&bytes),
            [
                kind::COMM,
                FINISHED_ROUND,
                kind::COMM,
                kind::AUXTRACE,
                FINISHED_ROUND,
                kind::FORK
            ]
        );
        let aux = Records::new(&bytes, found.data)
            .find(|r| r.kind == kind::AUXTRACE)
            .unwrap();
        assert_eq!(
            aux.trailer,
            [7, 7, 7, 7, 7, 8, 8, 8, 8, 8, 8, 0, 0, 0, 0, 0]
        );
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn large_pieces_and_small_ones_keep_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, path) = writer(dir.path());
        let large = vec![5u8; BUFFER + 8];
        for number in 0..40u64 {
            writer
                .record(kind::COMM, 0, &vec![0; 8 * (number as usize + 1)])
                .unwrap();
            writer
                .auxtrace(
                    number,
                    1,
                    0,
                    0,
                    [&large[..8 * (1 + number as usize * 3000)], &[]],
                )
                .unwrap();
        }
        writer.finish(&About::default()).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let layout = layout(&bytes).unwrap();
        let list: Vec<_> = Records::new(&bytes, layout.data).collect();
        assert_eq!(list.len(), 80);
        for (number, pair) in list.chunks(2).enumerate() {
            assert_eq!(
                (pair[0].body.len(), pair[1].trailer.len()),
                (8 * (number + 1), 8 * (1 + number * 3000))
            );
        }
        assert!(record_bytes(1, 0, &[0; 70_000]).is_err());
    }
}

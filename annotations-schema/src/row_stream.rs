//! The stream of rows from the recorder to an analysis that runs concurrently with the program.
//!
//! A row has only the data that cache simulations and reuse distances need. It has no time, and
//! instead of its instruction a code number by which results are grouped. The rows are those of a
//! trace, in the same order.
//!
//! # Format (all numbers little-endian)
//!
//! `MGZROWS2`, then batches: number of rows u32 (not 0), process u32, thread u32, sample u32,
//! number of codes u32; then these codes, which get the next numbers: module u16, site u32, class
//! u8, and a byte that is 1 for a store; then the columns: addresses u64, sizes u32, codes u32,
//! implied Constant loads u16, and for each row a byte that is 1 for a store. A batch without rows,
//! four zero bytes, marks the end of the rows. A stream without this mark was cut off.

use std::io::{Error, ErrorKind, Read, Result, Write};

const MAGIC: &[u8; 8] = b"MGZROWS2";
/// Encoded size of a row, bytes.
const ROW: usize = 8 + 4 + 4 + 2 + 1;
/// Encoded size of a code, bytes.
const CODE: usize = 2 + 4 + 1 + 1;
/// A larger number in a stream counts as damage. Source: Chosen.
const MAX_ROWS_PER_BATCH: usize = 1 << 24;

/// Code of rows, identified by one of its instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCode {
    /// Index into the manifest's modules.
    pub module: u16,
    /// Site number in the module's sidecar.
    pub site: u32,
    /// `CLASS_*`.
    pub class: u8,
    /// True for a store.
    pub store: bool,
}

/// Rows of one sample of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// System process id.
    pub process: u32,
    /// System thread id.
    pub thread: u32,
    /// Number of the sample in its thread.
    pub sample: u32,
    /// New codes; they get the next numbers.
    pub codes: Vec<RowCode>,
    /// Start addresses.
    pub address: Vec<u64>,
    /// Sizes, bytes.
    pub size: Vec<u32>,
    /// Numbers of the codes.
    pub code: Vec<u32>,
    /// Numbers of Constant loads that the rows represent besides themselves.
    pub implied: Vec<u16>,
    /// True for stores.
    pub store: Vec<bool>,
}

impl Batch {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.address.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.address.is_empty()
    }

    /// Removes the rows and keeps the memory.
    pub fn clear(&mut self) {
        self.codes.clear();
        self.address.clear();
        self.size.clear();
        self.code.clear();
        self.implied.clear();
        self.store.clear();
    }

    /// Removes all rows of stores.
    pub fn drop_stores(&mut self) {
        fn keep<T: Copy>(values: &mut Vec<T>, store: &[bool]) {
            let mut stores = store.iter();
            values.retain(|_| !stores.next().is_some_and(|&store| store));
        }
        if self.store.contains(&true) {
            keep(&mut self.address, &self.store);
            keep(&mut self.size, &self.store);
            keep(&mut self.code, &self.store);
            keep(&mut self.implied, &self.store);
            self.store.retain(|&store| !store);
        }
    }
}

/// Writes a stream of rows.
pub struct RowWriter<W: Write> {
    to: W,
    buffer: Vec<u8>,
}

impl<W: Write> RowWriter<W> {
    /// Begins a stream.
    pub fn new(mut to: W) -> Result<RowWriter<W>> {
        to.write_all(MAGIC)?;
        Ok(RowWriter {
            to,
            buffer: Vec::new(),
        })
    }

    /// Writes rows. An empty batch is not written.
    pub fn batch(&mut self, rows: &Batch) -> Result<()> {
        let mut from = 0;
        while from < rows.len() {
            let to = rows.len().min(from + MAX_ROWS_PER_BATCH);
            self.part(rows, from..to)?;
            from = to;
        }
        Ok(())
    }

    fn part(&mut self, rows: &Batch, range: std::ops::Range<usize>) -> Result<()> {
        let (rows_here, out) = (range.len(), &mut self.buffer);
        out.clear();
        let codes = if range.start == 0 {
            &rows.codes[..]
        } else {
            &[]
        };
        let (count, codes_here) = (rows_here as u32, codes.len() as u32);
        for word in [count, rows.process, rows.thread, rows.sample, codes_here] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for code in codes {
            out.extend_from_slice(&code.module.to_le_bytes());
            out.extend_from_slice(&code.site.to_le_bytes());
            out.extend_from_slice(&[code.class, u8::from(code.store)]);
        }
        let columns = out.len();
        out.resize(columns + rows_here * ROW, 0);
        let (address, rest) = out[columns..].split_at_mut(rows_here * 8);
        let (size, rest) = rest.split_at_mut(rows_here * 4);
        let (code, rest) = rest.split_at_mut(rows_here * 4);
        let (implied, store) = rest.split_at_mut(rows_here * 2);
        for (to, value) in address
            .chunks_exact_mut(8)
            .zip(&rows.address[range.clone()])
        {
            to.copy_from_slice(&value.to_le_bytes());
        }
        for (to, value) in size.chunks_exact_mut(4).zip(&rows.size[range.clone()]) {
            to.copy_from_slice(&value.to_le_bytes());
        }
        for (to, value) in code.chunks_exact_mut(4).zip(&rows.code[range.clone()]) {
            to.copy_from_slice(&value.to_le_bytes());
        }
        for (to, value) in implied
            .chunks_exact_mut(2)
            .zip(&rows.implied[range.clone()])
        {
            to.copy_from_slice(&value.to_le_bytes());
        }
        for (to, &value) in store.iter_mut().zip(&rows.store[range]) {
            *to = u8::from(value);
        }
        self.to.write_all(out)
    }

    /// Writes the mark that all rows were sent.
    pub fn finish(mut self) -> Result<()> {
        self.to.write_all(&0u32.to_le_bytes())?;
        self.to.flush()
    }
}

/// Reads a stream of rows.
pub struct RowReader<R: Read> {
    from: R,
    begun: bool,
    buffer: Vec<u8>,
    /// Number of codes so far.
    codes: u32,
}

impl<R: Read> RowReader<R> {
    /// A reader of a stream from its start.
    pub fn new(from: R) -> RowReader<R> {
        RowReader {
            from,
            begun: false,
            buffer: Vec::new(),
            codes: 0,
        }
    }

    /// Reads rows into `out` and replaces its content; false at the end. A stream that is cut off
    /// is an error.
    pub fn batch(&mut self, out: &mut Batch) -> Result<bool> {
        out.clear();
        if !self.begun {
            let mut magic = [0; MAGIC.len()];
            self.from.read_exact(&mut magic)?;
            if &magic != MAGIC {
                return Err(Error::new(ErrorKind::InvalidData, "not a stream of rows"));
            }
            self.begun = true;
        }
        let rows = self.word()? as usize;
        if rows == 0 {
            return Ok(false);
        }
        if rows > MAX_ROWS_PER_BATCH {
            return Err(Error::new(
                ErrorKind::InvalidData,
                "a batch is longer than any",
            ));
        }
        (out.process, out.thread) = (self.word()?, self.word()?);
        out.sample = self.word()?;
        let codes = self.word()?;
        self.fill(codes as usize, CODE)?;
        out.codes
            .extend(self.buffer.chunks_exact(CODE).map(|c| RowCode {
                module: u16::from_le_bytes([c[0], c[1]]),
                site: u32::from_le_bytes([c[2], c[3], c[4], c[5]]),
                class: c[6],
                store: c[7] != 0,
            }));
        self.codes = self.codes.saturating_add(codes);
        self.fill(rows, ROW)?;
        let (address, rest) = self.buffer.split_at(rows * 8);
        let (size, rest) = rest.split_at(rows * 4);
        let (code, rest) = rest.split_at(rows * 4);
        let (implied, store) = rest.split_at(rows * 2);
        let address = address.as_chunks().0.iter().copied();
        out.address.extend(address.map(u64::from_le_bytes));
        let size = size.as_chunks().0.iter().copied();
        out.size.extend(size.map(u32::from_le_bytes));
        let code = code.as_chunks().0.iter().copied();
        out.code.extend(code.map(u32::from_le_bytes));
        let implied = implied.as_chunks().0.iter().copied();
        out.implied.extend(implied.map(u16::from_le_bytes));
        out.store.extend(store.iter().map(|&store| store != 0));
        match out.code.iter().all(|&code| code < self.codes) {
            true => Ok(true),
            false => Err(Error::new(ErrorKind::InvalidData, "a code is not known")),
        }
    }

    /// Reads `count` items of `bytes` bytes. Memory grows with the bytes read, so a damaged count
    /// allocates none.
    fn fill(&mut self, count: usize, bytes: usize) -> Result<()> {
        self.buffer.clear();
        let all = count.saturating_mul(bytes);
        (&mut self.from)
            .take(all as u64)
            .read_to_end(&mut self.buffer)?;
        match self.buffer.len() < all {
            true => Err(ErrorKind::UnexpectedEof.into()),
            false => Ok(()),
        }
    }

    fn word(&mut self) -> Result<u32> {
        let mut word = [0; 4];
        self.from.read_exact(&mut word)?;
        Ok(u32::from_le_bytes(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(thread: u32, rows: std::ops::Range<u64>) -> Batch {
        Batch {
            process: 7,
            thread,
            sample: thread + 5,
            codes: Vec::new(),
            code: rows.clone().map(|i| (i % 2) as u32).collect(),
            address: rows.clone().map(|i| i << 40 | i).collect(),
            size: rows.clone().map(|i| 1 << (i % 32)).collect(),
            implied: rows.clone().map(|i| i as u16).collect(),
            store: rows.map(|i| i % 3 == 0).collect(),
        }
    }

    fn written() -> (Vec<u8>, [Batch; 2]) {
        let mut sent = [batch(1, 0..1000), batch(2, 70_000..70_001)];
        let code = |site: u32| RowCode {
            module: 3,
            site,
            class: site as u8,
            store: site == 2,
        };
        sent[0].codes = vec![code(1), code(2)];
        sent[1].codes = vec![code(70_000)];
        sent[1].code[0] = 2;
        let mut bytes = Vec::new();
        let mut writer = RowWriter::new(&mut bytes).unwrap();
        writer.batch(&sent[0]).unwrap();
        writer.batch(&Batch::default()).unwrap();
        writer.batch(&sent[1]).unwrap();
        writer.finish().unwrap();
        (bytes, sent)
    }

    #[test]
    fn rows_come_as_they_were_sent() {
        let (bytes, sent) = written();
        let mut reader = RowReader::new(&bytes[..]);
        let mut got = Batch::default();
        for batch in &sent {
            assert!(reader.batch(&mut got).unwrap());
            assert_eq!(&got, batch);
        }
        assert!(!reader.batch(&mut got).unwrap());
        assert!(got.is_empty());
    }

    #[test]
    fn loads_are_left_alone() {
        let mut rows = batch(1, 0..7);
        rows.drop_stores();
        assert_eq!(rows.code, [1, 0, 0, 1]);
        assert_eq!(rows.implied, [1, 2, 4, 5]);
        assert_eq!(rows.store, [false; 4]);
        assert_eq!((rows.len(), rows.size.len()), (4, 4));
    }

    #[test]
    fn what_is_cut_off_or_damaged_is_an_error() {
        let (bytes, _) = written();
        for length in [0, 5, 8, 10, 21, 29, 40, 4000, bytes.len() - 1] {
            let mut reader = RowReader::new(&bytes[..length]);
            let mut got = Batch::default();
            let end = loop {
                match reader.batch(&mut got) {
                    Ok(true) => {}
                    other => break other,
                }
            };
            assert!(end.is_err(), "{length}");
        }
        let mut unknown = bytes.clone();
        // The number of codes of the first batch.
        unknown[24] = 1;
        assert!(
            RowReader::new(&unknown[..])
                .batch(&mut Batch::default())
                .is_err()
        );
        let mut wild = bytes;
        wild[8..12].fill(0xff);
        assert!(
            RowReader::new(&wild[..])
                .batch(&mut Batch::default())
                .is_err()
        );
        wild[0] = 0;
        assert!(
            RowReader::new(&wild[..])
                .batch(&mut Batch::default())
                .is_err()
        );
    }
}

//! `jit-PID.dump`: the binary file of perf's interface for just-in-time compilers.
//!
//! A header, then records of a common form: its kind, its length, and the time. A compiler maps a
//! page of the file as code, by which profilers find it. The times are those of CLOCK_MONOTONIC,
//! unless the header marks them as processor time stamps.

use crate::{GeneratedBlock, GeneratedName, NameSource};
use std::collections::HashMap;
use std::io::Read;

const MAGIC: u32 = 0x4a69_5444;
const HEADER_BYTES: usize = 40;
const RECORD_HEADER_BYTES: usize = 16;
/// Flag of the header: times are processor time stamps.
const ARCHITECTURE_TIMES: u64 = 1;
/// Bytes of a record that are kept; the rest is code. Source: Chosen; names are shorter.
const MAX_KEPT_BYTES: u64 = 64 << 10;

const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
const CODE_DEBUG_INFO: u32 = 2;
const CODE_CLOSE: u32 = 3;

/// Content of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Jitdump {
    /// Id of the process that has written it.
    pub process: u32,
    /// Functions in the order of their times. Without times, in the order of their records.
    pub blocks: Vec<GeneratedBlock>,
    /// The writer has closed the file.
    pub is_closed: bool,
    /// The last record is truncated or invalid. The records before it are used.
    pub is_cut: bool,
}

/// Reads a file; `None` if it has no header of this machine's byte order. Bytes of code are skipped.
pub fn read(file: &mut impl Read) -> Option<Jitdump> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact(&mut header).ok()?;
    let fields = Fields(&header);
    if fields.u32_at(0) != Some(MAGIC) {
        return None;
    }
    let whole = u64::from(fields.u32_at(8).unwrap_or(0));
    skip(file, whole.saturating_sub(HEADER_BYTES as u64));
    let mut reader = Reader {
        has_times: fields.u64_at(32).unwrap_or(0) & ARCHITECTURE_TIMES == 0,
        ..Reader::default()
    };
    reader.dump.process = fields.u32_at(20).unwrap_or(0);
    while !reader.dump.is_closed && !reader.dump.is_cut {
        let Some(record) = next(file) else {
            break;
        };
        match record {
            Some(record) => reader.take(&record),
            None => reader.dump.is_cut = true,
        }
    }
    Some(reader.finish())
}

struct Record {
    kind: u32,
    time: u64,
    body: Vec<u8>,
}

/// The next record: nothing at the end of the file, `Some(None)` if it is incomplete.
fn next(file: &mut impl Read) -> Option<Option<Record>> {
    let mut header = Vec::new();
    let read = file
        .take(RECORD_HEADER_BYTES as u64)
        .read_to_end(&mut header);
    match read {
        Ok(0) => return None,
        Ok(RECORD_HEADER_BYTES) => {}
        _ => return Some(None),
    }
    let fields = Fields(&header);
    let (kind, size, time) = (fields.u32_at(0)?, fields.u32_at(4)?, fields.u64_at(8)?);
    let Some(length) = u64::from(size).checked_sub(RECORD_HEADER_BYTES as u64) else {
        return Some(None);
    };
    let kept = length.min(MAX_KEPT_BYTES);
    let mut body = Vec::new();
    if file.take(kept).read_to_end(&mut body).ok() != Some(kept as usize)
        || skip(file, length - kept) < length - kept
    {
        return Some(None);
    }
    Some(Some(Record { kind, time, body }))
}

/// Skips bytes; returns their number.
fn skip(file: &mut impl Read, bytes: u64) -> u64 {
    std::io::copy(&mut file.take(bytes), &mut std::io::sink()).unwrap_or(0)
}

#[derive(Default)]
struct Reader {
    dump: Jitdump,
    has_times: bool,
    /// File and line of functions whose code records follow, by code address.
    places: HashMap<u64, (String, u32)>,
    /// The last block of each code index.
    of_index: HashMap<u64, usize>,
}

impl Reader {
    fn take(&mut self, record: &Record) {
        let body = Fields(&record.body);
        let time = match self.has_times {
            true => record.time,
            false => 0,
        };
        let understood = match record.kind {
            CODE_LOAD => self.load(body, time),
            CODE_MOVE => self.moved(body, time),
            CODE_DEBUG_INFO => self.debug_info(body),
            CODE_CLOSE => {
                self.dump.is_closed = true;
                Some(())
            }
            // Unwinding data, and what later versions add.
            _ => Some(()),
        };
        self.dump.is_cut |= understood.is_none();
    }

    fn load(&mut self, body: Fields<'_>, time: u64) -> Option<()> {
        let (start, bytes, index) = (body.u64_at(16)?, body.u64_at(24)?, body.u64_at(32)?);
        let text = body.text_at(40)?;
        let mut name = GeneratedName::of_text(&text, NameSource::Jitdump);
        let place = self.places.remove(&start);
        if name.file.is_empty()
            && let Some((file, line)) = place
        {
            (name.file, name.line) = (file, line);
        }
        let end = start.checked_add(bytes)?;
        self.of_index.insert(index, self.dump.blocks.len());
        self.dump.blocks.push(GeneratedBlock {
            start,
            end,
            begin_ns: time,
            end_ns: u64::MAX,
            name,
        });
        Some(())
    }

    fn moved(&mut self, body: Fields<'_>, time: u64) -> Option<()> {
        let (old, new) = (body.u64_at(16)?, body.u64_at(24)?);
        let (bytes, index) = (body.u64_at(32)?, body.u64_at(40)?);
        let end = new.checked_add(bytes)?;
        // Code without a load record has no name.
        let Some(&at) = self.of_index.get(&index) else {
            return Some(());
        };
        let block = self.dump.blocks.get_mut(at).filter(|b| b.start == old);
        let Some(block) = block else {
            return Some(());
        };
        block.end_ns = time;
        let name = block.name.clone();
        self.of_index.insert(index, self.dump.blocks.len());
        self.dump.blocks.push(GeneratedBlock {
            start: new,
            end,
            begin_ns: time,
            end_ns: u64::MAX,
            name,
        });
        Some(())
    }

    /// Keeps the first location, which is the function's.
    fn debug_info(&mut self, body: Fields<'_>) -> Option<()> {
        let (code, entries) = (body.u64_at(0)?, body.u64_at(8)?);
        if entries > 0 {
            let line = body.u32_at(24)?;
            let file = body.text_at(32)?;
            self.places.insert(code, (file, line));
        }
        Some(())
    }

    fn finish(self) -> Jitdump {
        let mut dump = self.dump;
        // Threads may write records out of order. (The sort is stable.)
        dump.blocks.sort_by_key(|b| b.begin_ns);
        // Without times, the old location of a moved function is dropped.
        if !self.has_times {
            dump.blocks.retain(|b| b.end_ns != 0);
        }
        dump
    }
}

/// Little-endian fields at offsets.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32_at(self, at: usize) -> Option<u32> {
        let bytes = self.0.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    fn u64_at(self, at: usize) -> Option<u64> {
        let bytes = self.0.get(at..at.checked_add(8)?)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    /// A zero-terminated text.
    fn text_at(self, at: usize) -> Option<String> {
        let text = self.0.get(at..)?;
        let end = text.iter().position(|&b| b == 0)?;
        Some(String::from_utf8_lossy(&text[..end]).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(flags: u64) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [MAGIC, 1, HEADER_BYTES as u32, 62, 0, 77] {
            out.extend(word.to_le_bytes());
        }
        out.extend(5u64.to_le_bytes());
        out.extend(flags.to_le_bytes());
        out
    }

    fn record(kind: u32, time: u64, body: &[u8]) -> Vec<u8> {
        let mut out = kind.to_le_bytes().to_vec();
        out.extend((RECORD_HEADER_BYTES as u32 + body.len() as u32).to_le_bytes());
        out.extend(time.to_le_bytes());
        out.extend(body);
        out
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    fn load(time: u64, start: u64, bytes: u64, index: u64, name: &str) -> Vec<u8> {
        let mut body = words(&[77, start, start, bytes, index]);
        body.extend(name.as_bytes());
        body.push(0);
        body.extend(vec![0x90; bytes as usize]);
        record(CODE_LOAD, time, &body)
    }

    fn debug(time: u64, start: u64, line: u32, file: &str) -> Vec<u8> {
        let mut body = words(&[start, 1, start, u64::from(line)]);
        body.extend(file.as_bytes());
        body.push(0);
        record(CODE_DEBUG_INFO, time, &body)
    }

    fn sample() -> Vec<u8> {
        let moved = words(&[77, 0x1000, 0x1000, 0x9000, 0x20, 1]);
        [
            header(0),
            debug(10, 0x1000, 7, "a.lua"),
            load(10, 0x1000, 0x20, 1, "first"),
            record(4, 15, &[0; 24]),
            record(CODE_MOVE, 20, &moved),
            load(30, 0x1000, 0x10, 2, "second"),
            record(CODE_CLOSE, 40, &[]),
        ]
        .concat()
    }

    #[test]
    fn code_has_a_name_for_some_time() {
        let dump = read(&mut &sample()[..]).unwrap();
        let of = |b: &GeneratedBlock| {
            let place = (b.name.function.clone(), b.name.file.clone(), b.name.line);
            (b.start, b.end, b.begin_ns, b.end_ns, place)
        };
        let first = ("first".to_owned(), "a.lua".to_owned(), 7);
        let second = ("second".to_owned(), String::new(), 0);
        assert_eq!(
            dump.blocks.iter().map(of).collect::<Vec<_>>(),
            [
                (0x1000, 0x1020, 10, 20, first.clone()),
                (0x9000, 0x9020, 20, u64::MAX, first),
                (0x1000, 0x1010, 30, u64::MAX, second),
            ]
        );
        assert_eq!(
            (dump.process, dump.is_closed, dump.is_cut),
            (77, true, false)
        );
    }

    #[test]
    fn times_of_a_processor_are_not_used() {
        let mut bytes = sample();
        bytes[32] = 1;
        let dump = read(&mut &bytes[..]).unwrap();
        let found: Vec<(u64, u64)> = dump.blocks.iter().map(|b| (b.start, b.begin_ns)).collect();
        assert_eq!(found, [(0x9000, 0), (0x1000, 0)]);
    }

    #[test]
    fn cut_files_keep_their_whole_records() {
        let whole = sample();
        for length in 0..whole.len() {
            match read(&mut &whole[..length]) {
                Some(dump) => assert!(dump.blocks.len() <= 3 && !dump.is_closed, "{length}"),
                None => assert!(length < HEADER_BYTES, "{length}"),
            }
        }
        let mut wrong = whole.clone();
        wrong[0] = 0;
        assert_eq!(read(&mut &wrong[..]), None);
        // A record with a length below that of its header.
        let mut short = header(0);
        short.extend(words(&[u64::from(CODE_LOAD) | 8 << 32, 1]));
        assert!(read(&mut &short[..]).unwrap().is_cut);
    }
}

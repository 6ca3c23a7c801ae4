//! Traces of DynamoRIO's drmemtrace, after its post-processing (`trace_entry_t` records).

use crate::accesses::dr;
use crate::import::writer::{ImportedAccess, TraceWriter};
use crate::import::{Imported, fill, unpack};
use anyhow::{Context, bail};
use indicatif::ProgressBar;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// The newest version of the format that is known.
const MAX_VERSION: u64 = 7;
/// Ends of the names of files.
const ENDS: [&str; 6] = [
    ".trace",
    ".trace.gz",
    ".trace.zip",
    ".trace.lz4",
    ".trace.sz",
    ".memtrace.sz",
];
/// Kinds of files that lack some accesses: filtered, instructions only, data filtered.
const PARTIAL: u64 = 0x1 | 0x4 | 0x100;
/// Prefetches and flushes of software and hardware, encodings: these are no accesses of the
/// program.
const NO_ACCESS: [std::ops::RangeInclusive<u16>; 5] = [2..=9, 18..=21, 27..=27, 32..=46, 47..=47];

/// The files of a trace: those of a folder, of its folder `trace`, or the file itself.
pub fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_path_buf()]);
    }
    let inner = path.join("trace");
    let folder = if inner.is_dir() {
        inner
    } else {
        path.to_path_buf()
    };
    let entries = std::fs::read_dir(&folder)
        .with_context(|| format!("{}: cannot be read", folder.display()))?;
    let mut all: Vec<PathBuf> = entries
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.is_file())
        .collect();
    all.sort();
    all.retain(|p| ENDS.iter().any(|end| p.to_string_lossy().ends_with(end)));
    if all.is_empty() {
        bail!(
            "{}: no *.trace or packed *.trace.zip, .gz, .lz4, .sz is in it; give the folder drmemtrace.*.dir after its post-processing",
            folder.display()
        );
    }
    Ok(all)
}

fn record(bytes: &[u8; dr::RECORD]) -> (u16, u16, u64) {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[4..]);
    (
        u16::from_le_bytes([bytes[0], bytes[1]]),
        u16::from_le_bytes([bytes[2], bytes[3]]),
        u64::from_le_bytes(value),
    )
}

/// True if this is the first record of a trace.
pub fn is_header(bytes: &[u8; dr::RECORD]) -> bool {
    let (kind, _, version) = record(bytes);
    kind == dr::HEADER && (1..=MAX_VERSION).contains(&version)
}

/// Accesses of a file, up to its next timestamp at a time. Timestamps are microseconds.
struct Stream {
    path: PathBuf,
    input: Box<dyn Read>,
    process: u32,
    thread: u32,
    ip: u64,
    /// Bytes of the last instruction.
    length: u64,
    /// Number of the instruction, or nanoseconds in traces with timestamps.
    time: u64,
    begun: bool,
    ended: bool,
}

/// Times of threads. A thread's records may be in several files (one for each core).
#[derive(Default)]
struct Clock {
    /// The first timestamp.
    first: u64,
    /// The last time of each process and thread.
    last: HashMap<(u32, u32), u64>,
}

impl Clock {
    fn leave(&mut self, stream: &Stream) {
        let last = self
            .last
            .entry((stream.process, stream.thread))
            .or_default();
        *last = stream.time.max(*last);
    }

    fn enter(&self, stream: &mut Stream) {
        let last = self.last.get(&(stream.process, stream.thread));
        stream.time = stream.time.max(last.copied().unwrap_or(0));
    }
}

/// Reads the files of a trace, in the order of their timestamps.
pub fn read_drmemtrace(
    files: &[PathBuf],
    bar: &ProgressBar,
    out: &mut TraceWriter,
) -> anyhow::Result<Imported> {
    let (mut found, mut clock) = (Imported::default(), Clock::default());
    let mut streams = Vec::new();
    let mut next = BinaryHeap::new();
    for path in files {
        let mut stream = Stream {
            path: path.clone(),
            input: Box::new(BufReader::with_capacity(1 << 16, unpack::open(path, bar)?)),
            process: 1,
            thread: 1,
            ip: 0,
            length: 0,
            time: 0,
            begun: false,
            ended: false,
        };
        // Reads the accesses before the first timestamp, or all if there is none.
        if let Some(time) = stream.read_on(&mut clock, out, &mut found)? {
            next.push(Reverse((time, streams.len())));
        }
        streams.push(stream);
    }
    clock.first = next.peek().map_or(0, |n| n.0.0);
    while let Some(Reverse((time, at))) = next.pop() {
        let stream = &mut streams[at];
        stream.time = stream
            .time
            .max(time.saturating_sub(clock.first).saturating_mul(1000));
        if let Some(time) = stream.read_on(&mut clock, out, &mut found)? {
            next.push(Reverse((time, at)));
        }
    }
    Ok(found)
}

impl Stream {
    /// Reads up to the next timestamp and returns it. `None` at the end.
    fn read_on(
        &mut self,
        clock: &mut Clock,
        out: &mut TraceWriter,
        found: &mut Imported,
    ) -> anyhow::Result<Option<u64>> {
        clock.enter(self);
        while let Some(bytes) = self.next(found)? {
            let (kind, size, value) = record(&bytes);
            match kind {
                dr::READ | dr::WRITE => {
                    found.accesses += 1;
                    out.add(ImportedAccess {
                        process: self.process,
                        thread: self.thread,
                        ip: self.ip,
                        address: value,
                        size: size.into(),
                        store: kind == dr::WRITE,
                        time: self.time,
                    })?;
                }
                dr::THREAD | dr::PID => {
                    clock.leave(self);
                    let id = u32::try_from(value).context("a process or thread id is too large")?;
                    match kind {
                        dr::THREAD => self.thread = id,
                        _ => self.process = id,
                    }
                    clock.enter(self);
                }
                dr::MARKER if size == dr::MARKER_TIMESTAMP => {
                    clock.leave(self);
                    return Ok(Some(value));
                }
                // Further instructions, given by their lengths. Accesses belong to the last one.
                dr::INSTR_BUNDLE => {
                    for &next in &bytes[4..4 + usize::from(size).min(8)] {
                        self.instruction(self.ip.wrapping_add(self.length), next.into());
                    }
                }
                kind if dr::is_instruction(kind) => self.instruction(value, size.into()),
                dr::FOOTER => self.ended = true,
                kind => self.check(kind, size, value, found)?,
            }
        }
        clock.leave(self);
        Ok(None)
    }

    fn instruction(&mut self, ip: u64, length: u64) {
        (self.ip, self.time, self.length) = (ip, self.time + 1, length);
    }

    /// The next record. `None` at the end.
    fn next(&mut self, found: &mut Imported) -> anyhow::Result<Option<[u8; dr::RECORD]>> {
        let shown = || format!("{}: cannot be read", self.path.display());
        let mut bytes = [0; dr::RECORD];
        let got = fill(&mut self.input, &mut bytes).with_context(shown)?;
        if got < bytes.len() {
            found.cut += u64::from(!self.ended || got > 0);
            return Ok(None);
        }
        if !self.begun && record(&bytes).0 != dr::HEADER {
            bail!(
                "{}: it does not begin as a trace of drmemtrace after post-processing; run drrun -t drmemtrace -indir on its folder once, which makes one",
                self.path.display()
            );
        }
        self.begun = true;
        Ok(Some(bytes))
    }

    /// Checks a record that holds no access.
    fn check(&self, kind: u16, size: u16, value: u64, found: &mut Imported) -> anyhow::Result<()> {
        match kind {
            dr::HEADER if value > MAX_VERSION => bail!(
                "{}: version {value} of drmemtrace's format is newer than those that are known (up to {MAX_VERSION}); use a newer mgz, or an older DynamoRIO",
                self.path.display()
            ),
            dr::MARKER if size == dr::MARKER_FILETYPE && value & PARTIAL != 0 => bail!(
                "{}: the trace was filtered (file type {value:#x}) and does not have every access; record it without -L0D_filter",
                self.path.display()
            ),
            dr::HEADER | dr::MARKER | dr::THREAD_EXIT => {}
            kind if NO_ACCESS.iter().any(|r| r.contains(&kind)) => {}
            _ => found.strange += 1,
        }
        Ok(())
    }
}

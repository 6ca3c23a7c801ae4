//! The stepper's input (code to watch) and output (events), as files, because the stepper is a
//! separate process: ptrace binds a tracee to one thread, and a test runner has many.

use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Code of one file in which loads are logged.
#[derive(Clone, Debug, Default)]
pub struct WatchedCode {
    /// The mapped file.
    pub path: PathBuf,
    /// Link-time address ranges, with true for a clone's range.
    pub ranges: Vec<(u64, u64, bool)>,
    /// For clones: `(clone address, original address)` of each load.
    pub copies: Vec<(u64, u64)>,
    /// For clones: the file before instrumentation, whose bytes have the original operand.
    pub original: Option<PathBuf>,
}

impl WatchedCode {
    /// Text form, read by [`WatchedCode::parse`].
    pub fn to_text(&self) -> String {
        let mut text = format!("file {}\n", self.path.display());
        if let Some(original) = &self.original {
            let _ = writeln!(text, "original {}", original.display());
        }
        for (start, end, clone) in &self.ranges {
            let _ = writeln!(
                text,
                "{} {start:x} {end:x}",
                if *clone { "clone" } else { "code" }
            );
        }
        for (at, of) in &self.copies {
            let _ = writeln!(text, "copy {at:x} {of:x}");
        }
        text
    }

    /// Reads any number of consecutive watches.
    pub fn parse(text: &str) -> Result<Vec<WatchedCode>> {
        let mut all: Vec<WatchedCode> = Vec::new();
        for line in text.lines() {
            let (word, rest) = line.split_once(' ').context("a line without a value")?;
            if word == "file" {
                all.push(WatchedCode {
                    path: rest.into(),
                    ..WatchedCode::default()
                });
                continue;
            }
            let watch = all.last_mut().context("the first line is not a file")?;
            if word == "original" {
                watch.original = Some(rest.into());
                continue;
            }
            let (a, b) = rest.split_once(' ').context("two numbers expected")?;
            let (a, b) = (u64::from_str_radix(a, 16)?, u64::from_str_radix(b, 16)?);
            match word {
                "code" => watch.ranges.push((a, b, false)),
                "clone" => watch.ranges.push((a, b, true)),
                "copy" => watch.copies.push((a, b)),
                _ => bail!("unknown word {word:?}"),
            }
        }
        for watch in &mut all {
            watch.ranges.sort_unstable();
            watch.copies.sort_unstable();
        }
        Ok(all)
    }
}

/// Kinds of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A load in original code.
    Original,
    /// A load in a clone, at a site.
    Clone,
    /// A load in a clone at an address without a site; `ip` is the clone address.
    Unlisted,
    /// A `ptwrite`: `ip` is its clone address, `value` the payload.
    PtWrite,
    /// A watched file was found at a new address; `value` is its load bias.
    Module,
    /// A watched instruction faulted instead of retiring. `ip` is its executed address (in a clone,
    /// the clone's address), and `value` the signal.
    Fault,
}

/// One event of the stepper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepperEvent {
    /// Process id.
    pub process: u32,
    /// Thread id.
    pub thread: u32,
    /// The kind of event.
    pub kind: EventKind,
    /// Index of the [`WatchedCode`].
    pub watch: u16,
    /// Bytes read.
    pub size: u32,
    /// Link-time address of the instruction.
    pub ip: u64,
    /// Address read, or payload.
    pub value: u64,
}

/// Bytes of an event in the file.
const EVENT_BYTES: usize = 32;

impl StepperEvent {
    /// Appends the event to a buffer.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.process.to_le_bytes());
        out.extend_from_slice(&self.thread.to_le_bytes());
        out.extend_from_slice(&self.size.to_le_bytes());
        out.extend_from_slice(&self.watch.to_le_bytes());
        out.extend_from_slice(&(self.kind as u16).to_le_bytes());
        out.extend_from_slice(&self.ip.to_le_bytes());
        out.extend_from_slice(&self.value.to_le_bytes());
    }

    /// Reads all events of a file.
    pub fn read(path: &Path) -> Result<Vec<StepperEvent>> {
        let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
        if !bytes.len().is_multiple_of(EVENT_BYTES) {
            bail!("{} is cut off", path.display());
        }
        let u32_at =
            |b: &[u8], i: usize| u32::from_le_bytes(b[i..i + 4].try_into().expect("four bytes"));
        let u64_at =
            |b: &[u8], i: usize| u64::from_le_bytes(b[i..i + 8].try_into().expect("eight bytes"));
        let event = |b: &[u8]| {
            let kinds = [
                EventKind::Original,
                EventKind::Clone,
                EventKind::Unlisted,
                EventKind::PtWrite,
                EventKind::Module,
                EventKind::Fault,
            ];
            let word = u32_at(b, 12);
            StepperEvent {
                process: u32_at(b, 0),
                thread: u32_at(b, 4),
                size: u32_at(b, 8),
                watch: word as u16,
                kind: kinds[(word >> 16) as usize % 6],
                ip: u64_at(b, 16),
                value: u64_at(b, 24),
            }
        };
        Ok(bytes.chunks_exact(EVENT_BYTES).map(event).collect())
    }
}

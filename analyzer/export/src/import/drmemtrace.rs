//! Traces of DynamoRIO's drmemtrace, after its post-processing (`trace_entry_t` records).

use crate::accesses::dr;
use crate::import::writer::{ImportedAccess, TraceWriter};
use anyhow::{Context, bail};
use flate2::bufread::MultiGzDecoder;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// The newest version of the format that is known.
const MAX_VERSION: u64 = 6;
/// Kinds of files that do not have every access: filtered, instructions only, data filtered.
const PARTIAL: u64 = 0x1 | 0x4 | 0x100;
/// Prefetches and flushes of software and hardware, encodings: no accesses of the program.
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
    let ends = |path: &Path, end: &str| path.to_string_lossy().ends_with(end);
    if all
        .iter()
        .any(|p| ends(p, ".trace.zip") || ends(p, ".trace.lz4"))
    {
        bail!(
            "{}: its files are packed by zip or lz4, which are not read; unpack them, or have drmemtrace write .gz",
            folder.display()
        );
    }
    all.retain(|p| ends(p, ".trace") || ends(p, ".trace.gz"));
    if all.is_empty() {
        bail!(
            "{}: no *.trace or *.trace.gz is in it; give the folder drmemtrace.*.dir after its post-processing",
            folder.display()
        );
    }
    Ok(all)
}

/// Result of reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrMemTraceCounts {
    /// Files that end without their last record.
    pub cut: u64,
    /// Records of a kind that is not known.
    pub strange: u64,
    /// Accesses.
    pub accesses: u64,
}

/// A record: kind, size, value.
fn record(bytes: &[u8; dr::RECORD]) -> (u16, u16, u64) {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[4..]);
    (
        u16::from_le_bytes([bytes[0], bytes[1]]),
        u16::from_le_bytes([bytes[2], bytes[3]]),
        u64::from_le_bytes(value),
    )
}

/// Reads one file.
pub fn read_drmemtrace(
    path: &Path,
    out: &mut TraceWriter,
    found: &mut DrMemTraceCounts,
) -> anyhow::Result<()> {
    let file =
        std::fs::File::open(path).with_context(|| format!("{}: cannot be read", path.display()))?;
    let mut plain = BufReader::with_capacity(1 << 20, file);
    let head = plain
        .fill_buf()
        .with_context(|| format!("{}: cannot be read", path.display()))?;
    let packed = head.starts_with(&[0x1f, 0x8b]);
    let mut input: Box<dyn Read> = match packed {
        true => Box::new(BufReader::with_capacity(
            1 << 20,
            MultiGzDecoder::new(plain),
        )),
        false => Box::new(plain),
    };
    let (mut process, mut thread, mut ip, mut time) = (1u32, 1u32, 0u64, 0u64);
    let (mut begun, mut ended) = (false, false);
    // Bytes of the last instruction.
    let mut length = 0u64;
    loop {
        let mut bytes = [0; dr::RECORD];
        let mut got = 0;
        while got < bytes.len() {
            let more = input
                .read(&mut bytes[got..])
                .with_context(|| format!("{}: cannot be read", path.display()))?;
            if more == 0 {
                break;
            }
            got += more;
        }
        if got < bytes.len() {
            found.cut += u64::from(!ended || got > 0);
            break;
        }
        let (kind, size, value) = record(&bytes);
        if !begun {
            if kind != dr::HEADER {
                bail!(
                    "{}: it does not begin as a trace of drmemtrace after post-processing; run drrun -t drmemtrace -indir on its folder once, which makes one",
                    path.display()
                );
            }
            begun = true;
        }
        match kind {
            dr::READ | dr::WRITE => {
                found.accesses += 1;
                out.add(ImportedAccess {
                    process,
                    thread,
                    ip,
                    address: value,
                    size: size.into(),
                    store: kind == dr::WRITE,
                    time,
                })?;
            }
            dr::INSTR..=dr::INSTR_RETURN
            | dr::INSTR_NO_FETCH
            | 30
            | dr::INSTR_SYSENTER
            | dr::INSTR_TAKEN
            | dr::INSTR_UNTAKEN => (ip, time, length) = (value, time + 1, size.into()),
            // Further instructions, given by their lengths. Accesses belong to the last one.
            dr::INSTR_BUNDLE => {
                for &next in &bytes[4..4 + usize::from(size).min(8)] {
                    (ip, time) = (ip.wrapping_add(length), time + 1);
                    length = next.into();
                }
            }
            dr::THREAD => thread = u32::try_from(value).context("a thread id is too large")?,
            dr::PID => process = u32::try_from(value).context("a process id is too large")?,
            dr::HEADER if value > MAX_VERSION => bail!(
                "{}: version {value} of drmemtrace's format is newer than those that are known (up to {MAX_VERSION}); use a newer mgz, or an older DynamoRIO",
                path.display()
            ),
            dr::MARKER if size == dr::MARKER_FILETYPE && value & PARTIAL != 0 => bail!(
                "{}: the trace was filtered (file type {value:#x}) and does not have every access; record it without -L0D_filter",
                path.display()
            ),
            dr::FOOTER => ended = true,
            dr::HEADER | dr::MARKER | dr::THREAD_EXIT => {}
            kind if NO_ACCESS.iter().any(|r| r.contains(&kind)) => {}
            _ => found.strange += 1,
        }
    }
    Ok(())
}

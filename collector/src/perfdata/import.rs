//! `mgz-record --import`: what is printed and written.

use super::PerfDataError;
use super::events::{self, Totals};
use super::session::{FileLoss, Session};
use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

/// The header line of [`raw`].
pub const RAW_HEADER: &str = "sample\ttime_ns\ttid\tip\tpayload";

/// What [`raw`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawReport {
    /// Counts over PT data.
    pub totals: Totals,
    /// What was lost outside of PT data.
    pub file: FileLoss,
}

impl fmt::Display for RawReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Totals {
            samples,
            empty_samples,
            bytes,
            events,
            loss,
            ..
        } = self.totals;
        writeln!(
            f,
            "{events} ptwrites in {samples} samples ({bytes} bytes of PT data; {empty_samples} samples without a ptwrite)"
        )?;
        let totals = &self.totals;
        let mut line = |count: u64, text: String| {
            if count > 0 {
                writeln!(f, "{text}")
            } else {
                Ok(())
            }
        };
        line(
            loss.before_psb_bytes,
            format!(
                "before the first PSB: {} bytes with about {} ptwrites could not be read",
                loss.before_psb_bytes, totals.before_psb_ptwrites
            ),
        )?;
        line(
            loss.bad_packets,
            format!(
                "bad packets: {} ({} bytes skipped)",
                loss.bad_packets, loss.bad_bytes
            ),
        )?;
        line(
            loss.overflows,
            format!(
                "overflows: the hardware lost packets {} times",
                loss.overflows
            ),
        )?;
        line(
            loss.torn_at_end,
            format!(
                "torn at a window's end: {} ptwrites without IP, dropped",
                loss.torn_at_end
            ),
        )?;
        line(
            loss.torn,
            format!(
                "torn inside a window: {} ptwrites without IP, dropped",
                loss.torn
            ),
        )?;
        line(
            totals.torn_by_switch,
            format!(
                "torn by a context switch: {} ptwrites, dropped",
                totals.torn_by_switch
            ),
        )?;
        line(
            loss.cut_bytes,
            format!("cut packets at a window's end: {} bytes", loss.cut_bytes),
        )?;
        line(
            totals.overlaps,
            format!(
                "overlaps: {} windows repeat {} bytes with {} ptwrites, counted once",
                totals.overlaps, totals.overlap_bytes, totals.overlap_events
            ),
        )?;
        line(
            totals.holes,
            format!("holes in a full trace: {}", totals.holes),
        )?;
        let file = &self.file;
        line(
            u64::from(file.incomplete),
            "the file is not complete: perf did not finish it, or it was cut".into(),
        )?;
        line(
            file.cut_bytes,
            format!(
                "{} bytes of the file are in no whole record",
                file.cut_bytes
            ),
        )?;
        line(
            file.stopped_at.map_or(0, |_| 1),
            format!(
                "a record of impossible size at offset {:#x}: what follows was not read",
                file.stopped_at.unwrap_or(0)
            ),
        )?;
        line(
            file.bad_compressed,
            format!(
                "{} compressed records could not be unpacked",
                file.bad_compressed
            ),
        )?;
        line(
            file.bad_records,
            format!("{} records are malformed", file.bad_records),
        )?;
        line(
            file.unknown_ids,
            format!("{} records name an unknown event", file.unknown_ids),
        )?;
        line(
            file.odd_samples,
            format!(
                "{} samples have fields that are not known",
                file.odd_samples
            ),
        )?;
        line(
            file.lost_records,
            format!("the kernel lost {} records", file.lost_records),
        )?;
        line(
            file.lost_samples,
            format!("the kernel lost {} samples", file.lost_samples),
        )?;
        line(
            file.throttled,
            format!("sampling was throttled {} times", file.throttled),
        )?;
        line(
            file.aux_truncated,
            format!(
                "PT data was lost {} times because perf did not keep up",
                file.aux_truncated
            ),
        )?;
        line(
            file.aux_partial,
            format!("PT data has gaps in {} places", file.aux_partial),
        )?;
        line(
            file.noted_errors,
            format!("perf noted {} errors while recording", file.noted_errors),
        )
    }
}

/// The bytes of a file or, for `-`, of standard input (pipe form).
pub enum Input {
    /// A mapped file.
    Mapped(memmap2::Mmap),
    /// Read bytes.
    Read(Vec<u8>),
}

impl std::ops::Deref for Input {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Input::Mapped(map) => map,
            Input::Read(bytes) => bytes,
        }
    }
}

impl Input {
    /// Opens a perf.data file, or standard input for `-`.
    pub fn open(path: &Path) -> Result<Input, PerfDataError> {
        let mut bytes = Vec::new();
        if path.as_os_str() == "-" {
            std::io::stdin().lock().read_to_end(&mut bytes)?;
            return Ok(Input::Read(bytes));
        }
        let mut file = File::open(path)?;
        if file.metadata()?.is_file() {
            // SAFETY: the mapping is private and read-only. If another process shortens the file meanwhile, access
            // faults, as with every mapped input; no memory of ours is affected.
            return Ok(Input::Mapped(unsafe { memmap2::Mmap::map(&file)? }));
        }
        file.read_to_end(&mut bytes)?;
        Ok(Input::Read(bytes))
    }
}

/// Prints one row per `ptwrite` under [`RAW_HEADER`]. An unknown IP is printed as 0.
pub fn raw(path: &Path, out: &mut dyn Write) -> Result<RawReport, PerfDataError> {
    raw_bytes(&Input::open(path)?, out)
}

/// As [`raw`], from bytes.
pub fn raw_bytes(file: &[u8], out: &mut dyn Write) -> Result<RawReport, PerfDataError> {
    let session = Session::read(file)?;
    let mut out = BufWriter::with_capacity(1 << 16, out);
    writeln!(out, "{RAW_HEADER}")?;
    let totals = events::for_each(&session, &mut |events| {
        for e in events {
            writeln!(
                out,
                "{}\t{}\t{}\t{:#x}\t{:#x}",
                e.sample,
                e.time_ns,
                e.tid,
                e.ip.unwrap_or(0),
                e.payload
            )?;
        }
        Ok(())
    })?;
    out.flush()?;
    Ok(RawReport {
        totals,
        file: session.loss,
    })
}

/// Dumps the packets of all PT data, under a line for each window or piece.
pub fn packets(path: &Path, out: &mut dyn Write) -> Result<(), PerfDataError> {
    let file = Input::open(path)?;
    let session = Session::read(&file)?;
    let mut out = BufWriter::with_capacity(1 << 16, out);
    for window in &session.windows {
        let (pid, tid) = window.identity.task.unwrap_or((0, 0));
        writeln!(
            out,
            "# sample {} of thread {pid}/{tid}, {} bytes",
            window.number,
            window.bytes.len()
        )?;
        crate::pt::dump_packets(&window.bytes, &mut out)?;
    }
    for full in session.full.values() {
        for piece in &full.pieces {
            writeln!(
                out,
                "# piece {} at offset {:#x}, {} bytes",
                piece.number,
                piece.offset,
                piece.bytes.len()
            )?;
            crate::pt::dump_packets(piece.bytes, &mut out)?;
        }
    }
    out.flush()?;
    Ok(())
}

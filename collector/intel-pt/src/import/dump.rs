//! `mgz-record --import`: the printed and written output.

use mgz_perf_data::events::Totals;
use mgz_perf_data::session::{FileLoss, Session};
use mgz_perf_data::{PerfDataError, events};
use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

/// The header line of [`raw`].
pub const RAW_HEADER: &str = "sample\ttime_ns\ttid\tip\tpayload";

/// Report of [`raw`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawReport {
    /// Counts of the PT data.
    pub totals: Totals,
    /// Losses outside of PT data.
    pub file: FileLoss,
    /// PT data comes in pieces of a full trace, not in samples or snapshots.
    pub full: bool,
    /// The recording was made without `ptw`, so it cannot contain a `ptwrite`.
    pub without_ptw: bool,
}

/// Message about a recording that was made without `ptw`.
pub const WITHOUT_PTW: &str = "Intel PT was recorded without its term `ptw`, so that no ptwrite is in it; record with -e intel_pt/ptw,fup_on_ptw,branch=0/u";

impl fmt::Display for RawReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Totals {
            samples,
            empty_samples,
            bytes,
            events,
            ..
        } = self.totals;
        let unit = if self.full { "pieces" } else { "samples" };
        writeln!(
            f,
            "{events} ptwrites in {samples} {unit} ({bytes} bytes of PT data; {empty_samples} {unit} without a ptwrite)"
        )?;
        if self.without_ptw {
            writeln!(f, "{WITHOUT_PTW}")?;
        }
        let lines = self.in_pt_data().into_iter().chain(self.in_file());
        for (_, line) in lines.filter(|(count, _)| *count > 0) {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

impl RawReport {
    /// Losses in PT data, each with a line for the user. Losses of 0 are included.
    fn in_pt_data(&self) -> Vec<(u64, String)> {
        let totals = &self.totals;
        let loss = &totals.loss;
        vec![
            (
                loss.before_psb_bytes,
                format!(
                    "before the first PSB: {} bytes with about {} ptwrites could not be read",
                    loss.before_psb_bytes, totals.before_psb_ptwrites
                ),
            ),
            (
                loss.bad_packets,
                format!(
                    "bad packets: {} ({} bytes skipped)",
                    loss.bad_packets, loss.bad_bytes
                ),
            ),
            (
                loss.overflows,
                format!(
                    "overflows: the hardware lost packets {} times",
                    loss.overflows
                ),
            ),
            (
                loss.torn_at_end,
                format!(
                    "torn at a window's end: {} ptwrites without IP, dropped",
                    loss.torn_at_end
                ),
            ),
            (
                loss.torn,
                format!(
                    "torn inside a window: {} ptwrites without IP, dropped",
                    loss.torn
                ),
            ),
            (
                totals.torn_by_switch,
                format!(
                    "torn by a context switch: {} ptwrites, dropped",
                    totals.torn_by_switch
                ),
            ),
            (
                loss.cut_bytes,
                format!("cut packets at a window's end: {} bytes", loss.cut_bytes),
            ),
            (
                totals.overlaps,
                format!(
                    "overlaps: {} windows repeat {} bytes with {} ptwrites, counted once",
                    totals.overlaps, totals.overlap_bytes, totals.overlap_events
                ),
            ),
            (
                totals.holes,
                format!("holes in a full trace: {}", totals.holes),
            ),
        ]
    }

    /// Losses in the rest of the file, in the same form.
    fn in_file(&self) -> Vec<(u64, String)> {
        let file = &self.file;
        vec![
            (
                u64::from(file.incomplete),
                "the file is not complete: perf did not finish it, or it was cut".into(),
            ),
            (
                file.cut_bytes,
                format!(
                    "{} bytes of the file are in no whole record",
                    file.cut_bytes
                ),
            ),
            (
                file.stopped_at.map_or(0, |_| 1),
                format!(
                    "a record of impossible size at offset {:#x}: what follows was not read",
                    file.stopped_at.unwrap_or(0)
                ),
            ),
            (
                file.bad_compressed,
                format!(
                    "{} compressed records could not be unpacked",
                    file.bad_compressed
                ),
            ),
            (
                file.bad_records,
                format!("{} records are malformed", file.bad_records),
            ),
            (
                file.unknown_ids,
                format!("{} records name an unknown event", file.unknown_ids),
            ),
            (
                file.bad_sections,
                format!(
                    "{} sections of the file's header are cut off or lie outside of it",
                    file.bad_sections
                ),
            ),
            (
                file.guest_samples + file.guest_mappings,
                format!(
                    "of virtual machines, left out: {} samples, {} mappings",
                    file.guest_samples, file.guest_mappings
                ),
            ),
            (
                file.odd_samples,
                format!(
                    "{} samples have fields that are not known",
                    file.odd_samples
                ),
            ),
            (
                file.lost_records,
                format!("the kernel lost {} records", file.lost_records),
            ),
            (
                file.lost_samples,
                format!("the kernel lost {} samples", file.lost_samples),
            ),
            (
                file.throttled,
                format!("sampling was throttled {} times", file.throttled),
            ),
            (
                file.aux_truncated,
                format!(
                    "PT data was lost {} times because perf did not keep up",
                    file.aux_truncated
                ),
            ),
            (
                file.aux_empty,
                format!(
                    "{} of these times no size was told: there was no room at all, or a buffer filled up at once and all of it is missing",
                    file.aux_empty
                ),
            ),
            (
                file.aux_partial,
                format!("PT data has gaps in {} places", file.aux_partial),
            ),
            (
                file.noted_errors,
                format!("perf noted {} errors while recording", file.noted_errors),
            ),
        ]
    }
}

/// The bytes of a recording: those of a file, of the files of a folder, or (`-`, in pipe form) of
/// standard input.
pub struct Input {
    /// The file with the header comes first.
    files: Vec<DumpFile>,
}

enum DumpFile {
    Mapped(memmap2::Mmap),
    Read(Vec<u8>),
}

impl DumpFile {
    fn bytes(&self) -> &[u8] {
        match self {
            DumpFile::Mapped(map) => map,
            DumpFile::Read(bytes) => bytes,
        }
    }
}

impl Input {
    /// Opens a perf.data file, a folder of `perf record --threads`, or standard input for `-`.
    pub fn open(path: &Path) -> Result<Input, PerfDataError> {
        if path.as_os_str() == "-" {
            let mut bytes = Vec::new();
            std::io::stdin().lock().read_to_end(&mut bytes)?;
            return Ok(Input {
                files: vec![DumpFile::Read(bytes)],
            });
        }
        if !std::fs::metadata(path)?.is_dir() {
            return Ok(Input {
                files: vec![part(path)?],
            });
        }
        let header = path.join("data");
        if !header.is_file() {
            return Err(PerfDataError::NotPerfDataFolder);
        }
        let mut others = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("data."));
            if let Some(number) = number.and_then(|number| number.parse::<u64>().ok()) {
                others.push((number, entry.path()));
            }
        }
        others.sort();
        let mut files = vec![part(&header)?];
        for (_, other) in others {
            files.push(part(&other)?);
        }
        Ok(Input { files })
    }

    /// The bytes, by file.
    pub fn files(&self) -> Vec<&[u8]> {
        self.files.iter().map(DumpFile::bytes).collect()
    }
}

fn part(path: &Path) -> Result<DumpFile, PerfDataError> {
    let mut file = File::open(path)?;
    let about = file.metadata()?;
    // Threads of perf that had nothing to write leave empty files.
    if about.is_file() && about.len() > 0 {
        // SAFETY: the mapping is private and read-only. If another process shortens the file
        // meanwhile, access faults, as with every mapped input; no memory of ours is
        // affected.
        return Ok(DumpFile::Mapped(unsafe { memmap2::Mmap::map(&file)? }));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(DumpFile::Read(bytes))
}

/// Prints one row per `ptwrite` under [`RAW_HEADER`]. An unknown IP is printed as 0.
pub fn raw(path: &Path, out: &mut dyn Write) -> Result<RawReport, PerfDataError> {
    raw_files(&Input::open(path)?.files(), out)
}

/// As [`raw`], from the bytes of a file.
pub fn raw_bytes(file: &[u8], out: &mut dyn Write) -> Result<RawReport, PerfDataError> {
    raw_files(&[file], out)
}

fn raw_files(files: &[&[u8]], out: &mut dyn Write) -> Result<RawReport, PerfDataError> {
    let session = Session::read_all(files)?;
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
        full: session.is_full(),
        without_ptw: totals.events == 0 && session.ptwrites_on == Some(false),
        totals,
        file: session.loss,
    })
}

/// Dumps the packets of all PT data, under a line for each window or piece.
pub fn packets(path: &Path, out: &mut dyn Write) -> Result<(), PerfDataError> {
    let input = Input::open(path)?;
    let session = Session::read_all(&input.files())?;
    let mut out = BufWriter::with_capacity(1 << 16, out);
    for window in &session.windows {
        let (pid, tid) = window.identity.task.unwrap_or((0, 0));
        writeln!(
            out,
            "# sample {} of thread {pid}/{tid}, {} bytes",
            window.number,
            window.bytes.len()
        )?;
        mgz_pt::dump_packets(&window.bytes, &mut out)?;
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
            mgz_pt::dump_packets(piece.bytes, &mut out)?;
        }
    }
    out.flush()?;
    Ok(())
}

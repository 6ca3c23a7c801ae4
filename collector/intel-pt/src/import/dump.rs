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
        let offset = self.file.stopped_at.unwrap_or(0);
        for (numbers, text) in self.in_pt_data().iter().chain(&self.in_file()) {
            if numbers.iter().any(|&n| n > 0) {
                let fill = |text: String, n: &u64| text.replacen("{}", &n.to_string(), 1);
                let line = numbers.iter().fold(text.to_string(), fill);
                writeln!(f, "{}", line.replace("{offset}", &format!("{offset:#x}")))?;
            }
        }
        Ok(())
    }
}

/// Numbers of a loss, which are all 0 if there is none, and a line for the user with `{}` for each.
type Loss = ([u64; 3], &'static str);

const fn one(number: u64) -> [u64; 3] {
    [number, 0, 0]
}

impl RawReport {
    /// Losses in PT data.
    fn in_pt_data(&self) -> [Loss; 9] {
        let totals = &self.totals;
        let loss = &totals.loss;
        [
            (
                [loss.before_psb_bytes, totals.before_psb_ptwrites, 0],
                "before the first PSB: {} bytes with about {} ptwrites could not be read",
            ),
            (
                [loss.bad_packets, loss.bad_bytes, 0],
                "bad packets: {} ({} bytes skipped)",
            ),
            (
                one(loss.overflows),
                "overflows: the hardware lost packets {} times",
            ),
            (
                one(loss.torn_at_end),
                "torn at a window's end: {} ptwrites without IP, dropped",
            ),
            (
                one(loss.torn),
                "torn inside a window: {} ptwrites without IP, dropped",
            ),
            (
                one(totals.torn_by_switch),
                "torn by a context switch: {} ptwrites, dropped",
            ),
            (
                one(loss.cut_bytes),
                "cut packets at a window's end: {} bytes",
            ),
            (
                [totals.overlaps, totals.overlap_bytes, totals.overlap_events],
                "overlaps: {} windows repeat {} bytes with {} ptwrites, counted once",
            ),
            (one(totals.holes), "holes in a full trace: {}"),
        ]
    }

    /// Losses in the rest of the file.
    fn in_file(&self) -> [Loss; 16] {
        let file = &self.file;
        [
            (
                one(file.incomplete.into()),
                "the file is not complete: perf did not finish it, or it was cut",
            ),
            (
                one(file.cut_bytes),
                "{} bytes of the file are in no whole record",
            ),
            (
                one(file.stopped_at.is_some().into()),
                "a record of impossible size at offset {offset}: what follows was not read",
            ),
            (
                one(file.bad_compressed),
                "{} compressed records could not be unpacked",
            ),
            (one(file.bad_records), "{} records are malformed"),
            (one(file.unknown_ids), "{} records name an unknown event"),
            (
                one(file.bad_sections),
                "{} sections of the file's header are cut off or lie outside of it",
            ),
            (
                [file.guest_samples, file.guest_mappings, 0],
                "of virtual machines, left out: {} samples, {} mappings",
            ),
            (
                one(file.odd_samples),
                "{} samples have fields that are not known",
            ),
            (one(file.lost_records), "the kernel lost {} records"),
            (one(file.lost_samples), "the kernel lost {} samples"),
            (one(file.throttled), "sampling was throttled {} times"),
            (
                one(file.aux_truncated),
                "PT data was lost {} times because perf did not keep up",
            ),
            (
                one(file.aux_empty),
                "{} of these times no size was told: there was no room at all, or a buffer filled up at once and all of it is missing",
            ),
            (one(file.aux_partial), "PT data has gaps in {} places"),
            (
                one(file.noted_errors),
                "perf noted {} errors while recording",
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

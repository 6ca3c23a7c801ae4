//! Formats that have every access in order (lackey, din, drmemtrace, ChampSim, Ramulator 2), or
//! only the accesses that miss in simulated caches.

use crate::named_output::{NamedOutput, remove_part};
use anyhow::Context;
use mgz_analyzer::commands::stream::{AccessSegment, segments};
use mgz_analyzer::data::chunk::Chunk;
use mgz_analyzer::data::memory_units::LINE_BYTES;
use mgz_analyzer::data::rows::{ColumnSlices, Run};
use mgz_analyzer::input::{ColumnSet, Trace};
use mgz_annotations_schema::sidecar::Sidecar;
use mgz_model_commands::cache::evaluate::space;
use mgz_model_commands::ordered::Ordered;
use mgz_models::cache::{LevelSpec, System};
use std::collections::HashSet;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Bytes that are written at once. Source: Chosen.
const BUFFER_BYTES: usize = 1 << 20;

/// A format of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// ` L address,size` and ` S address,size`, as valgrind writes them.
    Lackey,
    /// `0 address` and `1 address`, as Dinero reads them.
    Din,
    /// Records of 12 bytes, a file for each thread.
    Drmemtrace,
    /// Instructions of 64 bytes, a file for each thread.
    Champsim,
    /// `LD address` and `ST address`.
    Ramulator2,
}

impl Format {
    /// True if each thread has its own file.
    pub fn by_thread(self) -> bool {
        match self {
            Format::Drmemtrace | Format::Champsim => true,
            Format::Lackey | Format::Din | Format::Ramulator2 => false,
        }
    }

    /// Note on data that readers of the format expect and the file lacks.
    pub fn lacks(self) -> Option<&'static str> {
        match self {
            Format::Champsim => Some(
                "the file has accesses alone: no branches, no registers, no other instructions; instructions per cycle mean nothing",
            ),
            Format::Drmemtrace => {
                Some("the file has only the instructions that access memory, with lengths of 1")
            }
            Format::Lackey | Format::Din | Format::Ramulator2 => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Access {
    address: u64,
    size: u32,
    store: bool,
    ip: u64,
}

/// Kinds of drmemtrace's records.
pub mod dr {
    /// A load.
    pub const READ: u16 = 0;
    /// A store.
    pub const WRITE: u16 = 1;
    /// The first of the kinds that are instructions, and the last of that range.
    pub const INSTR: u16 = 10;
    /// See `INSTR`.
    pub const INSTR_RETURN: u16 = 16;
    /// A bundle of instructions.
    pub const INSTR_BUNDLE: u16 = 17;
    /// The thread of the following records.
    pub const THREAD: u16 = 22;
    /// The thread has ended.
    pub const THREAD_EXIT: u16 = 23;
    /// The process of the following records.
    pub const PID: u16 = 24;
    /// The first record.
    pub const HEADER: u16 = 25;
    /// The last record.
    pub const FOOTER: u16 = 26;
    /// A marker.
    pub const MARKER: u16 = 28;
    /// An instruction without a fetch.
    pub const INSTR_NO_FETCH: u16 = 29;
    /// `sysenter`.
    pub const INSTR_SYSENTER: u16 = 31;
    /// Conditional branches that were taken, or not.
    pub const INSTR_TAKEN: u16 = 48;
    /// See `INSTR_TAKEN`.
    pub const INSTR_UNTAKEN: u16 = 49;
    /// Marker: microseconds.
    pub const MARKER_TIMESTAMP: u16 = 2;
    /// Marker: type of the file.
    pub const MARKER_FILETYPE: u16 = 9;
    /// Marker: bytes of a line of the caches.
    pub const MARKER_LINE: u16 = 10;
    /// Marker: version of the format.
    pub const MARKER_VERSION: u16 = 12;
    /// The version that is written: instructions are addresses alone.
    pub const VERSION: u64 = 3;
    /// x86-64, and not all instructions are in it.
    pub const FILETYPE: u64 = 0x40 | 0x80;
    /// Bytes of a record.
    pub const RECORD: usize = 12;
    /// An instruction of an online trace that may be fetched or not.
    const INSTR_MAYBE_FETCH: u16 = 30;

    /// True for records of one instruction, with its address.
    pub fn is_instruction(kind: u16) -> bool {
        matches!(
            kind,
            INSTR
                ..=INSTR_RETURN
                    | INSTR_NO_FETCH
                    | INSTR_MAYBE_FETCH
                    | INSTR_SYSENTER
                    | INSTR_TAKEN
                    | INSTR_UNTAKEN
        )
    }
}

/// Offsets in ChampSim's records of instructions.
pub mod champsim {
    /// Bytes of a record.
    pub const RECORD: usize = 64;
    /// 1 for branches.
    pub const IS_BRANCH: usize = 8;
    /// 1 for branches that were taken.
    pub const BRANCH_TAKEN: usize = 9;
    /// Addresses that are written; 0 for none.
    pub const DESTINATIONS: usize = 16;
    /// Number of these addresses.
    pub const DESTINATION_COUNT: usize = 2;
    /// Addresses that are read; 0 for none.
    pub const SOURCES: usize = 32;
    /// Number of these addresses.
    pub const SOURCE_COUNT: usize = 4;
}

fn dr_record(out: &mut dyn Write, kind: u16, size: u16, value: u64) -> std::io::Result<()> {
    let mut bytes = [0; dr::RECORD];
    bytes[..2].copy_from_slice(&kind.to_le_bytes());
    bytes[2..4].copy_from_slice(&size.to_le_bytes());
    bytes[4..].copy_from_slice(&value.to_le_bytes());
    out.write_all(&bytes)
}

fn dr_begin(out: &mut dyn Write, run: &Run) -> std::io::Result<()> {
    dr_record(out, dr::HEADER, 0, dr::VERSION)?;
    dr_record(out, dr::MARKER, dr::MARKER_VERSION, dr::VERSION)?;
    dr_record(out, dr::MARKER, dr::MARKER_FILETYPE, dr::FILETYPE)?;
    dr_record(out, dr::MARKER, dr::MARKER_LINE, LINE_BYTES)?;
    dr_record(out, dr::THREAD, 0, run.thread.into())?;
    dr_record(out, dr::PID, 0, run.process.into())
}

fn write(out: &mut dyn Write, format: Format, access: Access) -> std::io::Result<()> {
    let Access {
        address,
        size,
        store,
        ip,
    } = access;
    match format {
        Format::Lackey => writeln!(
            out,
            " {} {address:08x},{size}",
            if store { 'S' } else { 'L' }
        ),
        Format::Din => writeln!(out, "{} {address:x}", u8::from(store)),
        Format::Ramulator2 => writeln!(out, "{} 0x{address:x}", if store { "ST" } else { "LD" }),
        Format::Drmemtrace => {
            let kind = if store { dr::WRITE } else { dr::READ };
            dr_record(out, dr::INSTR_NO_FETCH, 1, ip)?;
            // An access that is too long for one record is split.
            let (mut at, mut left) = (address, size);
            loop {
                let part = left.min(u32::from(u16::MAX));
                dr_record(out, kind, part as u16, at)?;
                (at, left) = (at.wrapping_add(part.into()), left - part);
                if left == 0 {
                    return Ok(());
                }
            }
        }
        Format::Champsim => {
            let mut bytes = [0; champsim::RECORD];
            bytes[..8].copy_from_slice(&ip.to_le_bytes());
            let field = match store {
                true => champsim::DESTINATIONS,
                false => champsim::SOURCES,
            };
            bytes[field..field + 8].copy_from_slice(&address.to_le_bytes());
            out.write_all(&bytes)
        }
    }
}

/// Files and totals of an export.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// Files.
    pub files: Vec<PathBuf>,
    /// Loads.
    pub loads: u64,
    /// Stores.
    pub stores: u64,
    /// Loads that are executed with recorded ones and have no row: they are not in the file.
    pub implied: u64,
    /// Sentences.
    pub notes: Vec<String>,
    /// Part of the trace could not be read.
    pub damaged: bool,
}

/// Simulated caches before the writer, as in `mgz-analyze cache`.
struct Filter {
    caches: Option<System>,
    levels: usize,
    line: u64,
}

impl Filter {
    /// Empty caches of `threads` threads, which share the last level. Without levels every access
    /// is passed.
    fn new(levels: &[LevelSpec], threads: usize) -> anyhow::Result<Filter> {
        let shared = if threads > 1 {
            levels.len().saturating_sub(1)
        } else {
            0
        };
        let caches = (!levels.is_empty()).then(|| System::new(levels, shared, threads));
        Ok(Filter {
            caches: caches.transpose().map_err(anyhow::Error::msg)?,
            levels: levels.len(),
            line: levels.last().map_or(LINE_BYTES, |l| l.shape.line),
        })
    }

    /// The access as it leaves the caches; none if it hits. `space` distinguishes addresses of
    /// different processes, `site` is its instruction.
    fn pass(&mut self, thread: usize, space: u64, site: u32, access: Access) -> Option<Access> {
        let Some(caches) = &mut self.caches else {
            return Some(access);
        };
        let Access {
            address,
            size,
            store,
            ip,
        } = access;
        let reached = caches.access(thread, address ^ space, size, store, site);
        (reached == self.levels).then_some(Access {
            address: address & !(self.line - 1),
            size: self.line as u32,
            store,
            ip,
        })
    }
}

/// Link-time addresses of instructions, by their number in the whole trace.
fn instructions(trace: &Trace) -> Vec<u64> {
    let (mut known, mut all) = (HashSet::new(), Vec::new());
    for module in &trace.manifest.modules {
        // Two entries of the same file share their numbers.
        if !module.sidecar_id.is_empty() && !known.insert(&module.sidecar_id) {
            continue;
        }
        if let Ok(sidecar) = Sidecar::read(&trace.folder.join(&module.sidecar)) {
            all.extend(sidecar.sites.iter().map(|s| s.ip.wrapping_add(module.bias)));
        }
    }
    all
}

fn create(path: &Path) -> anyhow::Result<Box<dyn Write + Send>> {
    let file = NamedOutput::create(path)?;
    Ok(Box::new(BufWriter::with_capacity(BUFFER_BYTES, file)))
}

fn standard_output() -> Box<dyn Write + Send> {
    Box::new(BufWriter::new(NamedOutput::stdout()))
}

/// Writes a trace's accesses. Without a path, they go to standard output. With caches in `behind`,
/// only their misses are written.
pub fn export(
    trace: &Trace,
    format: Format,
    path: Option<&Path>,
    behind: &[LevelSpec],
) -> anyhow::Result<Written> {
    let mut written = Written::default();
    let several = trace.manifest.threads.len() > 1;
    let done = match format.by_thread() || !several {
        true => in_rows(trace, format, path, behind, &mut written),
        false => in_time(trace, format, path, behind, &mut written),
    };
    if done.is_err() {
        written.files.iter().for_each(|file| remove_part(file));
    }
    done?;
    if written.implied > 0 {
        written.notes.push(format!(
            "{} loads of scalars at constant places ran with others and have no address of their own: they are not in the file",
            written.implied
        ));
    }
    Ok(written)
}

fn file_of(format: Format, path: &Path, run: &Run, several: bool) -> PathBuf {
    match format {
        Format::Drmemtrace => path
            .join("trace")
            .join(format!("drmemtrace.{}.{}.trace", run.process, run.thread)),
        _ if several => {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{}", run.thread));
            name.into()
        }
        _ => path.to_path_buf(),
    }
}

/// Writes rows in the order in which they are sorted.
struct RowWriter<'a> {
    format: Format,
    path: Option<&'a Path>,
    behind: &'a [LevelSpec],
    /// True if the trace has several threads.
    several: bool,
    /// Addresses of instructions by their number.
    instructions: Vec<u64>,
    caches: Filter,
    thread: Option<(u32, u32)>,
    out: Box<dyn Write + Send>,
    written: &'a mut Written,
}

/// Writes a trace's accesses thread after thread.
fn in_rows(
    trace: &Trace,
    format: Format,
    path: Option<&Path>,
    behind: &[LevelSpec],
    written: &mut Written,
) -> anyhow::Result<()> {
    if format == Format::Drmemtrace {
        let folder = path
            .context("drmemtrace is a folder: give it with -o")?
            .join("trace");
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("{}: cannot make the folder", folder.display()))?;
    }
    let source = trace.source(ColumnSet::default());
    let mut writer = RowWriter {
        format,
        path,
        behind,
        several: trace.manifest.threads.len() > 1,
        instructions: instructions(trace),
        caches: Filter::new(behind, 1)?,
        thread: None,
        out: Box::new(std::io::sink()),
        written,
    };
    let mut last = None;
    for piece in 0..source.pieces() {
        for chunk in source.read(&[piece]) {
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err((sentence, _)) => {
                    writer.written.notes.push(sentence);
                    writer.written.damaged = true;
                    continue;
                }
            };
            for segment in segments(&chunk, &mut last) {
                writer.segment(&chunk, &segment)?;
            }
        }
    }
    writer.end_thread()?;
    written.notes.extend(source.notes());
    Ok(())
}

impl RowWriter<'_> {
    fn end_thread(&mut self) -> std::io::Result<()> {
        if let (Format::Drmemtrace, Some((_, thread))) = (self.format, self.thread) {
            dr_record(&mut *self.out, dr::THREAD_EXIT, 0, thread.into())?;
            dr_record(&mut *self.out, dr::FOOTER, 0, 0)?;
        }
        self.out.flush()
    }

    fn begin_thread(&mut self, run: &Run) -> anyhow::Result<()> {
        self.end_thread()?;
        self.thread = Some((run.process, run.thread));
        if self.format.by_thread() && self.several {
            // Each thread has its own caches.
            self.caches = Filter::new(self.behind, 1)?;
        }
        if self.format.by_thread() || self.written.files.is_empty() {
            self.out = match self.path {
                Some(path) => {
                    let file = file_of(self.format, path, run, self.several);
                    self.written.files.push(file.clone());
                    create(&file)?
                }
                None => standard_output(),
            };
        }
        if self.format == Format::Drmemtrace {
            dr_begin(&mut *self.out, run)?;
        }
        Ok(())
    }

    /// Writes the accesses of a segment. Stores are written in program order between the loads.
    fn segment(&mut self, chunk: &Chunk, segment: &AccessSegment<'_>) -> anyhow::Result<()> {
        let run = segment.run;
        if self.thread != Some((run.process, run.thread)) {
            self.begin_thread(run)?;
        }
        self.written.implied += segment.implied();
        let (loads, stores) = (
            chunk.loads.sites(run.loads.clone()),
            chunk.stores.sites(run.stores.clone()),
        );
        let before = chunk
            .loads_before
            .get(run.stores.clone())
            .unwrap_or_default();
        let base = run.loads.start as u32;
        let mut store = 0;
        for load in 0..=segment.loads.len() {
            while before
                .get(store)
                .is_some_and(|&b| b.saturating_sub(base) as usize <= load)
            {
                self.access(&segment.stores, store, stores, true)?;
                store += 1;
            }
            if load < segment.loads.len() {
                self.access(&segment.loads, load, loads, false)?;
            }
        }
        Ok(())
    }

    /// Writes an access, unless it hits in the caches.
    fn access(
        &mut self,
        rows: &ColumnSlices<'_>,
        at: usize,
        sites: &[u32],
        store: bool,
    ) -> std::io::Result<()> {
        let site = sites.get(at).copied().unwrap_or(u32::MAX);
        let ip = self.instructions.get(site as usize).copied();
        let access = Access {
            address: rows.address[at],
            size: rows.size[at],
            store,
            ip: ip.unwrap_or(0),
        };
        let Some(access) = self.caches.pass(0, 0, site, access) else {
            return Ok(());
        };
        match store {
            true => self.written.stores += 1,
            false => self.written.loads += 1,
        }
        write(&mut *self.out, self.format, access)
    }
}

/// All threads in the order of their times.
fn in_time(
    trace: &Trace,
    format: Format,
    path: Option<&Path>,
    behind: &[LevelSpec],
    written: &mut Written,
) -> anyhow::Result<()> {
    let source = trace.source(ColumnSet { time: true });
    let mut ordered = Ordered::new(&*source);
    let threads = ordered.threads();
    let first = threads.first().map_or(0, |t| t.0);
    written.notes.push("threads are in one file in the order of their recorded times, which are approximate between threads".into());
    let mut out: Box<dyn Write + Send> = match path {
        Some(path) => {
            written.files.push(path.to_path_buf());
            create(path)?
        }
        None => standard_output(),
    };
    let mut caches = Filter::new(behind, threads.len())?;
    if !behind.is_empty() {
        written
            .notes
            .push("all threads share the last level of the simulated caches; each has those in front to itself".into());
    }
    let (mut failed, mut implied, mut counts) = (None, 0, [0u64; 2]);
    ordered.visit(true, &|_| (), &mut |thread, rows, range| {
        let space = space(rows.process, first);
        for row in range {
            implied += u64::from(rows.implied[row]);
            let access = Access {
                address: rows.address[row],
                size: rows.size[row],
                store: rows.group[row].is_store(),
                ip: 0,
            };
            if failed.is_none()
                && let Some(access) = caches.pass(thread, space, rows.site[row], access)
            {
                counts[usize::from(access.store)] += 1;
                failed = write(&mut *out, format, access).err();
            }
        }
    });
    written.implied = implied;
    [written.loads, written.stores] = counts;
    let mut damage = std::mem::take(&mut ordered.damage);
    // Unreadable parts are found twice: when threads are looked up, and when rows are read.
    damage.sort();
    damage.dedup();
    written.damaged = !damage.is_empty();
    written.notes.append(&mut damage);
    written.notes.extend(source.notes());
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(out.flush()?),
    }
}

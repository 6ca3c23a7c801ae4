//! Data for the formats of profilers: loads by place, class, object, thread and time.

use crate::module_files::ModuleFiles;
use mgz_analyzer::commands::stream::AccessSegment;
use mgz_analyzer::commands::visit;
use mgz_analyzer::data::call_paths::{Call, CallPaths};
use mgz_analyzer::data::code_map::{CodeMap, LineName};
use mgz_analyzer::data::group::{AccessClass, Group};
use mgz_analyzer::data::memory_units::LINE_BYTES;
use mgz_analyzer::data::object_map::{Object, Recent, Resolver, UNKNOWN};
use mgz_analyzer::data::rows::Run;
use mgz_analyzer::input::call_paths::read_call_paths;
use mgz_analyzer::input::{ColumnSet, Trace, objects};
use mgz_analyzer::output::document::Document;
use mgz_analyzer::report::Analysis;
use mgz_analyzer::util::fast_hash::Mixed;
use mgz_annotations_schema::TraceMode;
use std::collections::{HashMap, HashSet};

/// Maximum number of slices of the time of a thread in a complete trace.
const SLICES: u64 = 1000;
/// Bytes of a block of reuse: the default of the tables.
const BLOCK: u64 = LINE_BYTES;
/// Name of the frame above a function whose callers are unknown.
const UNKNOWN_CALLERS: &str = "[callers unknown]";

/// A frame of a call stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Function.
    pub function: String,
    /// File name of the module; empty if unknown.
    pub module: String,
    /// Source file; empty if unknown.
    pub file: String,
    /// Line; 0 if unknown.
    pub line: u32,
    /// True for a function of Python.
    pub python: bool,
}

/// Place of loads: its frames, innermost first. All except the last are inlined.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FrameChain {
    /// Frames.
    pub frames: Vec<Frame>,
    /// Function of the machine code.
    pub function: String,
    /// Callers of that function, innermost first, each at the line of its call.
    pub callers: Vec<Frame>,
}

impl FrameChain {
    /// Frames and callers, innermost first.
    pub fn stack(&self) -> impl DoubleEndedIterator<Item = &Frame> {
        self.frames.iter().chain(&self.callers)
    }
}

/// Loads of one place, class, object and thread.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Index into the places.
    pub place: usize,
    /// 0 Constant, 1 Strided, 2 Irregular.
    pub class: AccessClass,
    /// Index into the objects.
    pub object: u32,
    /// Index into the threads.
    pub thread: usize,
    /// Loads, implied ones included.
    pub loads: u64,
    /// Bytes that its rows read; those of implied loads are not known.
    pub bytes: u64,
    /// Distinct addresses.
    pub footprint: u64,
    /// Touches of a block of [`BLOCK`] bytes that the window has touched before.
    pub reuses: u64,
}

/// Loads of a stretch of time.
#[derive(Clone, Debug)]
pub struct Slice {
    /// Index into the threads.
    pub thread: usize,
    /// CLOCK_MONOTONIC.
    pub from_ns: u64,
    /// See `from_ns`.
    pub to_ns: u64,
    /// Loads by place, in the order in which they first occur.
    pub loads: Vec<(usize, u64)>,
}

impl Slice {
    /// Loads in it.
    pub fn all(&self) -> u64 {
        self.loads.iter().map(|l| l.1).sum()
    }
}

/// A thread.
#[derive(Clone, Debug)]
pub struct ThreadName {
    /// System process id.
    pub process: u32,
    /// System thread id.
    pub thread: u32,
    /// Its name; may be empty.
    pub name: String,
}

/// A profile.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// The traced command.
    pub command: Vec<String>,
    /// Name of the host; may be empty.
    pub host: String,
    /// Start of the recording, RFC 3339; empty if unknown.
    pub started: String,
    /// Length of the recording, seconds; 0 if unknown.
    pub seconds: f64,
    /// Number of the process in a job of many.
    pub rank: Option<u32>,
    /// Mode of the trace.
    pub mode: TraceMode,
    /// Files of the modules that frames name.
    pub files: ModuleFiles,
    /// Places.
    pub places: Vec<FrameChain>,
    /// Objects; the first is none.
    pub objects: Vec<Object>,
    /// Threads.
    pub threads: Vec<ThreadName>,
    /// Loads.
    pub samples: Vec<Sample>,
    /// Loads in time, in the order of threads and time.
    pub slices: Vec<Slice>,
    /// Predicted misses per load by place: name of the level and ratios; empty if nothing is known.
    pub misses: Vec<(String, Vec<f64>)>,
    /// Nanoseconds of a load of each place, if windows are triggered by time.
    pub load_ns: Option<Vec<f64>>,
    /// Notes on the numbers.
    pub notes: Vec<String>,
    /// Part of the trace could not be read.
    pub damaged: bool,
}

impl Profile {
    /// The command as a line.
    pub fn command_line(&self) -> String {
        self.command.join(" ")
    }

    /// File name of the program; empty if unknown.
    pub fn program(&self) -> String {
        let loaded = self.command.first();
        loaded.map_or_else(String::new, |path| self.files.original_name(path))
    }

    /// Absolute path of the program's original. `None` if unknown.
    pub fn executable(&self) -> Option<String> {
        let file = self.files.file(&self.program()).path;
        let paths = [Some(file), self.command.first().cloned()];
        paths.into_iter().flatten().find(|p| p.starts_with('/'))
    }
}

/// The frames of a line piece with these callers.
fn frames(code: &CodeMap, piece: usize, callers: Vec<Frame>) -> FrameChain {
    let piece = &code.pieces[piece];
    let function = code.functions[piece.function as usize].clone();
    let line: &LineName = &code.lines[piece.line as usize];
    let mut all = vec![Frame {
        function: line.function.clone(),
        module: line.module.clone(),
        file: line.file.clone(),
        line: line.line,
        python: false,
    }];
    all.extend(piece.chain.iter().map(|caller| Frame {
        function: caller.function.clone(),
        module: function.module.clone(),
        file: caller.file.clone(),
        line: caller.line,
        python: false,
    }));
    FrameChain {
        frames: all,
        function: function.function,
        callers,
    }
}

/// Callers of the function of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Callers {
    /// The trace has no call paths.
    #[default]
    Absent,
    /// The path of the window is unknown, or it does not lead to the function.
    Unknown,
    /// Callers starting at this call.
    Of(u32),
}

impl Callers {
    /// Callers of a function in a window that began in the call `leaf`.
    fn new(paths: &CallPaths, leaf: u32, function: &str) -> Callers {
        paths
            .find(leaf, function)
            .map_or(Callers::Unknown, Callers::Of)
    }

    /// Their frames, innermost first.
    fn frames(self, paths: Option<&CallPaths>, files: &mut ModuleFiles) -> Vec<Frame> {
        match (self, paths) {
            (Callers::Of(call), Some(paths)) => caller_frames(paths, call, files),
            (Callers::Unknown, _) => vec![Frame {
                function: UNKNOWN_CALLERS.into(),
                module: String::new(),
                file: String::new(),
                line: 0,
                python: false,
            }],
            _ => Vec::new(),
        }
    }
}

fn caller_frames(paths: &CallPaths, call: u32, files: &mut ModuleFiles) -> Vec<Frame> {
    let calls: Vec<&Call> = (paths.outwards(call))
        .map(|c| &paths.calls[c as usize])
        .collect();
    let mut frame = |pair: &[&Call]| Frame {
        function: pair[1].function.clone(),
        module: match pair[1].module.as_str() {
            "" => String::new(),
            loaded => files.name(loaded),
        },
        file: match pair[0].call_file.as_str() {
            "" => pair[1].file.clone(),
            file => file.into(),
        },
        line: pair[0].call_line,
        python: pair[1].python,
    };
    calls.windows(2).map(&mut frame).collect()
}

/// Loads of one group, object and thread, with the same callers.
#[derive(Default)]
struct Counted {
    loads: u64,
    bytes: u64,
    addresses: HashSet<u64, Mixed>,
    reuses: u64,
}

#[derive(Default)]
struct Building {
    places: HashMap<FrameChain, usize>,
    of_piece: HashMap<(u32, Callers), usize, Mixed>,
    threads: Vec<(u32, u32)>,
    samples: HashMap<(Group, Callers, u32, u32), Counted>,
    /// Blocks touched in the current window.
    met: HashSet<u64, Mixed>,
    slices: Vec<Slice>,
    /// Rows of the open slice so far, and rows of a full slice.
    rows: (u64, u64),
}

impl Building {
    /// Touches of an access that are reuses. An access touches every block that it overlaps.
    fn reuses(&mut self, address: u64, size: u32) -> u64 {
        let last = address.saturating_add(u64::from(size.max(1)) - 1) / BLOCK;
        (address / BLOCK..=last)
            .map(|block| u64::from(!self.met.insert(block)))
            .sum()
    }

    fn place(
        &mut self,
        (code, paths): (&CodeMap, Option<&CallPaths>),
        profile: &mut Profile,
        (group, callers): (Group, Callers),
    ) -> usize {
        let key = (group.piece(), callers);
        if let Some(&place) = self.of_piece.get(&key) {
            return place;
        }
        let frames = frames(
            code,
            group.piece() as usize,
            callers.frames(paths, &mut profile.files),
        );
        let next = profile.places.len();
        let place = *self.places.entry(frames.clone()).or_insert(next);
        if place == next {
            profile.places.push(frames);
        }
        self.of_piece.insert(key, place);
        place
    }

    /// The index of a thread. Rows are sorted by thread, so it is nearly always the last one.
    fn thread(&mut self, id: (u32, u32)) -> usize {
        let known = self.threads.iter().rposition(|t| *t == id);
        known.unwrap_or_else(|| {
            self.threads.push(id);
            self.threads.len() - 1
        })
    }

    /// Begins a slice if the open one is full or belongs to another thread or window.
    fn slice(&mut self, thread: usize, run: &Run, starts: bool, from_ns: u64) {
        let full = self.rows.0 >= self.rows.1;
        let other = self.slices.last().is_none_or(|s| s.thread != thread);
        if other || full || starts {
            self.rows.0 = 0;
            if let Some(last) = self.slices.last_mut().filter(|_| !other && full) {
                last.to_ns = last.to_ns.min(from_ns).max(last.from_ns);
            }
            self.slices.push(Slice {
                thread,
                from_ns,
                to_ns: run.last_time,
                loads: Vec::new(),
            });
        }
    }

    /// Adds loads to the open slice.
    fn add_to_slice(&mut self, by_place: Vec<(usize, u64)>, last_time: u64) {
        let Some(slice) = self.slices.last_mut() else {
            return;
        };
        slice.to_ns = last_time.max(slice.from_ns);
        for (place, loads) in by_place {
            match slice.loads.iter_mut().find(|p| p.0 == place) {
                Some(known) => known.1 += loads,
                None => slice.loads.push((place, loads)),
            }
        }
    }
}

/// Reads the rows of a trace into a profile.
struct Reading<'a> {
    trace: &'a Trace,
    profile: Profile,
    building: Building,
    resolver: Option<Resolver>,
    recent: Recent,
    paths: Option<CallPaths>,
    /// Callers by function and by the call in which a window began.
    callers: HashMap<(u32, u32), Callers, Mixed>,
    /// Rows of each thread, by process and thread.
    rows_of: HashMap<(u32, u32), u64>,
}

impl Reading<'_> {
    /// Adds the rows of a segment.
    fn add(&mut self, segment: &AccessSegment<'_>) {
        let run = segment.run;
        let id = (run.process, run.thread);
        let thread = self.building.thread(id);
        if segment.starts {
            self.building.met.clear();
        }
        self.building.rows.1 = match self.profile.mode.has_all_loads() {
            true => (self.rows_of.get(&id).copied().unwrap_or(0) / SLICES).max(1 << 12),
            false => u64::MAX,
        };
        let all = segment.loads.len();
        let step = run.last_time.saturating_sub(run.first_time) as f64 / (all.max(2) - 1) as f64;
        let time = |row: usize| run.first_time + (row as f64 * step) as u64;
        let mut starts = segment.starts;
        let mut at = 0;
        while at < all {
            self.building.slice(thread, run, starts, time(at));
            starts = false;
            let room = self.building.rows.1 - self.building.rows.0;
            let end = all.min(at + usize::try_from(room).unwrap_or(usize::MAX));
            let mut by_place: Vec<(usize, u64)> = Vec::new();
            for row in at..end {
                let (place, loads) = self.add_row(segment, row, thread, time(row));
                match by_place.iter_mut().rev().find(|p| p.0 == place) {
                    Some(known) => known.1 += loads,
                    None => by_place.push((place, loads)),
                }
            }
            self.building.rows.0 += (end - at) as u64;
            self.building.add_to_slice(by_place, run.last_time);
            at = end;
        }
    }

    /// Adds a row to its sample. Returns its place and its loads.
    fn add_row(
        &mut self,
        segment: &AccessSegment<'_>,
        row: usize,
        thread: usize,
        time: u64,
    ) -> (usize, u64) {
        let rows = &segment.loads;
        let (group, address, size) = (rows.group[row], rows.address[row], rows.size[row]);
        let loads = 1 + u64::from(rows.implied[row]);
        let object = self.resolver.as_ref().map_or(UNKNOWN, |resolver| {
            resolver.find_recent(&mut self.recent, segment.run.process, address, time)
        });
        let reuses = self.building.reuses(address, size);
        let callers = self.callers(segment.run.sample, group);
        let key = (group, callers, object, thread as u32);
        let entry = self.building.samples.entry(key).or_default();
        entry.loads += loads;
        entry.bytes += u64::from(size);
        entry.addresses.insert(address);
        entry.reuses += reuses;
        let of = (&self.trace.code, self.paths.as_ref());
        let place = (self.building).place(of, &mut self.profile, (group, callers));
        (place, loads)
    }

    /// Callers of a group's function in a sample.
    fn callers(&mut self, sample: u32, group: Group) -> Callers {
        let Some(paths) = &self.paths else {
            return Callers::Absent;
        };
        let code = &self.trace.code;
        let Some(piece) = code.pieces.get(group.piece() as usize) else {
            return Callers::Unknown;
        };
        let leaf = paths.of(sample);
        let known = self.callers.entry((leaf, piece.function));
        *known.or_insert_with(|| match code.functions.get(piece.function as usize) {
            Some(of) => Callers::new(paths, leaf, &of.function),
            None => Callers::Unknown,
        })
    }

    /// Lists threads, samples and slices.
    fn finish(self) -> Profile {
        let (mut profile, building) = (self.profile, self.building);
        let told = self.trace.manifest.threads.iter();
        let names: HashMap<(u32, u32), &str> = told
            .map(|t| ((t.process, t.thread), t.name.as_str()))
            .collect();
        profile.threads = building
            .threads
            .iter()
            .map(|&(process, thread)| ThreadName {
                process,
                thread,
                name: names.get(&(process, thread)).unwrap_or(&"").to_string(),
            })
            .collect();
        let mut samples: Vec<_> = building.samples.into_iter().collect();
        samples.sort_unstable_by_key(|s| s.0);
        for ((group, callers, object, thread), counted) in samples {
            let place = building.of_piece.get(&(group.piece(), callers));
            let place = place.copied().unwrap_or(0);
            profile.samples.push(Sample {
                place,
                class: group.class(),
                object,
                thread: thread as usize,
                loads: counted.loads,
                bytes: counted.bytes,
                footprint: counted.addresses.len() as u64,
                reuses: counted.reuses,
            });
        }
        profile.slices = building.slices;
        profile
    }
}

/// Reads a trace. `analysis` supplies time and misses of the whole.
pub fn build(trace: &Trace, analysis: &Analysis) -> Profile {
    let manifest = &trace.manifest;
    let mut profile = Profile {
        command: trace.command(),
        host: manifest.host.clone(),
        started: manifest.started.clone(),
        seconds: manifest.wall_seconds,
        rank: manifest.rank,
        mode: manifest.mode.clone(),
        files: ModuleFiles::read(trace),
        ..Profile::default()
    };
    let resolver = objects::read_objects(&trace.folder).unwrap_or_else(|sentence| {
        profile.notes.push(sentence);
        None
    });
    profile.objects = match &resolver {
        Some(resolver) => resolver.objects.clone(),
        None => vec![Object::not_known()],
    };
    let paths = read_call_paths(&trace.folder).unwrap_or_else(|sentence| {
        profile.notes.push(sentence);
        None
    });
    let mut rows_of: HashMap<(u32, u32), u64> = HashMap::new();
    for thread in &manifest.threads {
        *rows_of.entry((thread.process, thread.thread)).or_default() += thread.rows;
    }
    let mut reading = Reading {
        trace,
        profile,
        building: Building::default(),
        resolver,
        recent: Recent::default(),
        paths,
        callers: HashMap::default(),
        rows_of,
    };
    let mut document = Document::new("export");
    let columns = ColumnSet { time: true };
    let damaged = visit(trace, columns, &mut document, &mut |segment| {
        reading.add(segment)
    });
    let mut profile = reading.finish();
    profile.damaged = damaged;
    profile.notes.extend(document.warnings);
    costs(&mut profile, analysis, manifest.cpu_seconds);
    profile
}

/// Misses and time per load of each place, from the rows of the line table.
fn costs(profile: &mut Profile, analysis: &Analysis, cpu_seconds: f64) {
    let line_of = |place: &FrameChain| {
        let frame = &place.frames[0];
        (
            frame.function.clone(),
            frame.module.clone(),
            frame.file.clone(),
            frame.line,
        )
    };
    let mut rows = HashMap::new();
    for row in &analysis.lines {
        let key = (
            row.function.clone(),
            row.module.clone(),
            row.file.clone(),
            row.line,
        );
        rows.insert(key, row);
    }
    let found: Vec<_> = profile
        .places
        .iter()
        .map(|p| rows.get(&line_of(p)).copied())
        .collect();
    let levels = analysis
        .summary
        .misses
        .as_ref()
        .map_or(&[][..], |m| &m.levels);
    for (at, level) in levels.iter().enumerate() {
        let ratio = |row: &Option<&mgz_analyzer::report::LineRow>| {
            let misses = row.as_ref()?.loads.misses.as_ref()?;
            misses.levels.get(at)?.ratio.map(|r| r[1])
        };
        let ratios = found.iter().map(|row| ratio(row).unwrap_or(0.0)).collect();
        profile.misses.push((level.level.clone(), ratios));
    }
    if analysis.summary.trace.by_time && cpu_seconds > 0.0 {
        let of = |row: &Option<&mgz_analyzer::report::LineRow>| {
            let row = row.as_ref()?;
            let loads = (row.loads.metrics.accesses + row.loads.metrics.implied) as f64;
            (loads > 0.0).then_some(row.loads.time.value? / 100.0 * cpu_seconds * 1e9 / loads)
        };
        profile.load_ns = Some(found.iter().map(|row| of(row).unwrap_or(0.0)).collect());
    }
    profile.notes.push("footprints do not add up: the sum over places, objects or threads counts an address once for each of them".into());
    if !profile.mode.has_all_loads() {
        profile
            .notes
            .push("loads and footprints are those that were recorded, a sample of the run".into());
    }
    if !profile.misses.is_empty() {
        profile
            .notes
            .push("misses are predicted from reuse distances, not measured".into());
    }
}

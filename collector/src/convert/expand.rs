//! The reading half: spill files to groups of rows, in order.

use crate::convert::convert_error::ConvertError;
use crate::convert::online::Carried;
use crate::convert::release::Release;
use crate::convert::stretches::Stretches;
use crate::convert::windows::WindowCollector;
use crate::convert::{ConvertOutcome, SampleSeen, ThreadRows};
use mgz_abi::slot::Slot;
use mgz_annotations_schema::TraceMode;
use mgz_annotations_schema::expand::{Expander, ModuleMap, Placement, Staged, Tables};
use mgz_annotations_schema::lock::locked;
use mgz_annotations_schema::manifest::Manifest;
use mgz_annotations_schema::sidecar::Sidecar;
use mgz_annotations_schema::spill::{SegmentHeader, SegmentKind, SpillError, SpillFile, ThreadKey};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Rows of a row group.
#[derive(Default)]
pub(crate) struct RowGroup {
    /// (end, thread): rows from the previous end up to this one belong to the thread.
    pub threads: Vec<(usize, ThreadKey)>,
    pub rows: Staged,
}

impl RowGroup {
    fn clear(&mut self) {
        self.threads.clear();
        self.rows.clear();
    }

    /// For each of these rows, appends the value of `of` for its thread.
    pub(crate) fn by_thread(
        &self,
        rows: Range<usize>,
        out: &mut Vec<u32>,
        of: impl Fn(&ThreadKey) -> u32,
    ) {
        let mut at = rows.start;
        for (end, key) in &self.threads[self.threads.partition_point(|run| run.0 <= rows.start)..] {
            let end = (*end).min(rows.end);
            out.resize(out.len() + end.saturating_sub(at), of(key));
            at = at.max(end);
        }
    }

    /// The thread of these rows, if all have the same one.
    pub(crate) fn same_thread(&self, rows: &Range<usize>) -> Option<ThreadKey> {
        let run = self
            .threads
            .get(self.threads.partition_point(|run| run.0 <= rows.start))?;
        (run.0 >= rows.end).then_some(run.1)
    }

    /// Rows without a thread so far belong to this one.
    fn belongs_to(&mut self, key: ThreadKey) {
        self.threads.push((self.rows.len(), key));
    }
}

/// Groups whose rows are written: their memory is used again. Growing fresh columns step by step
/// copies them several times, and each page of fresh memory is a fault.
#[derive(Default)]
pub(crate) struct Pool(Mutex<Vec<RowGroup>>);

impl Pool {
    /// An empty group.
    pub(crate) fn take(&self) -> RowGroup {
        locked(&self.0).pop().unwrap_or_default()
    }

    /// Takes a group back.
    pub(crate) fn give_back(&self, mut group: RowGroup) {
        group.clear();
        locked(&self.0).push(group);
    }
}

/// Everything needed to produce rows.
pub(crate) struct ExpansionSource {
    pub(crate) tables: Tables,
    modules: ModuleMap,
    files: Vec<(ThreadKey, PathBuf)>,
    /// `burst`.
    windows: Option<WindowCollector>,
    /// See [`crate::convert::ConvertOptions::release`].
    pub(crate) release: bool,
    /// State of the expansion of a thread's first records, if that ran during the recording.
    carried: Mutex<Option<Carried>>,
}

impl ExpansionSource {
    pub(crate) fn new(
        manifest: &Manifest,
        sidecars: &BTreeMap<String, Sidecar>,
        files: Vec<(ThreadKey, PathBuf)>,
        carried: Option<Carried>,
    ) -> Result<ExpansionSource, ConvertError> {
        // The carried expander refers to tables by position.
        let before = carried.as_ref().map_or(&[][..], |c| &c.sidecars);
        let behind = sidecars.keys().filter(|id| !before.contains(id));
        let ids: Vec<&String> = before.iter().chain(behind).collect();
        let ordered = ids.iter().filter_map(|id| sidecars.get(*id));
        let tables = Tables::new(ordered).map_err(|error| ConvertError::Sidecar {
            path: "annotations".into(),
            error,
        })?;
        let numbers: BTreeMap<&str, usize> = ids
            .iter()
            .enumerate()
            .map(|(i, id)| (id.as_str(), i))
            .collect();
        let modules = ModuleMap::new(&manifest.modules, |module| {
            numbers.get(module.sidecar_id.as_str()).copied()
        });
        let windows =
            (manifest.mode == TraceMode::Burst).then(|| WindowCollector::new(manifest, sidecars));
        Ok(ExpansionSource {
            tables,
            modules,
            files,
            windows,
            release: false,
            carried: Mutex::new(carried),
        })
    }

    /// Expands everything; `emit` takes row groups of at least `group_rows` rows (the last may have
    /// fewer). When it returns false the work is given up.
    pub(crate) fn expand(
        &self,
        group_rows: usize,
        pool: &Pool,
        emit: impl FnMut(RowGroup) -> bool,
    ) -> ConvertOutcome {
        let mut carried = locked(&self.carried).take();
        let mut threads: BTreeMap<ThreadKey, &[(ThreadKey, PathBuf)]> = self
            .files
            .chunk_by(|a, b| a.0 == b.0)
            .map(|files| (files[0].0, files))
            .collect();
        // The carried thread may have no further files, only loads in flight.
        if let Some(carried) = &carried {
            threads.entry(carried.key).or_default();
        }
        let mut expansion = Expansion {
            source: self,
            group_rows,
            pool,
            emit,
            outcome: ConvertOutcome {
                windows: self.windows.clone(),
                ..ConvertOutcome::default()
            },
            next_sample: carried.as_ref().map_or(0, |c| c.next_sample),
            group: RowGroup::default(),
            slots: Vec::new(),
            placements: Vec::new(),
            now: Vec::new(),
            stretches: Stretches::default(),
        };
        for (key, files) in threads {
            if !expansion.thread(key, files, carried.take_if(|c| c.key == key)) {
                return expansion.outcome;
            }
        }
        if !expansion.group.rows.is_empty() {
            (expansion.emit)(expansion.group);
        }
        expansion.outcome
    }
}

/// An expansion that is under way.
struct Expansion<'a, F> {
    source: &'a ExpansionSource,
    group_rows: usize,
    pool: &'a Pool,
    emit: F,
    outcome: ConvertOutcome,
    next_sample: u32,
    /// Rows that are not emitted yet.
    group: RowGroup,
    /// Slots of the current segment.
    slots: Vec<Slot>,
    /// Places of the modules that the expander knows.
    placements: Vec<Placement>,
    /// Places of the modules at the end of the current segment.
    now: Vec<Placement>,
    stretches: Stretches,
}

/// The thread whose files are expanded.
struct CurrentThread<'a> {
    key: ThreadKey,
    expander: Expander<'a>,
    /// The next slot, if records before these files were expanded.
    in_flight: Option<u64>,
}

impl<'a, F: FnMut(RowGroup) -> bool> Expansion<'a, F> {
    /// Expands the files of one key. The result is false if the work is given up.
    fn thread(
        &mut self,
        key: ThreadKey,
        files: &[(ThreadKey, PathBuf)],
        carried: Option<Carried>,
    ) -> bool {
        let mut thread = self.begin(key, carried);
        for (_, path) in files {
            if !self.file(&mut thread, path) {
                return false;
            }
        }
        if files.is_empty() {
            self.finish(&mut thread);
        }
        let counters = thread.expander.counters();
        self.outcome.counters.add(counters);
        self.outcome.threads.insert(
            key,
            ThreadRows {
                rows: counters.rows,
                samples: counters.samples,
                records: counters.records,
            },
        );
        self.group.belongs_to(key);
        true
    }

    /// Makes the expander of a thread, or takes over the one that was carried.
    fn begin(&mut self, key: ThreadKey, carried: Option<Carried>) -> CurrentThread<'a> {
        let source = self.source;
        source
            .modules
            .at(key.process, u64::MAX, &mut self.placements);
        let Some(carried) = carried else {
            return CurrentThread {
                key,
                expander: Expander::new(&source.tables, &self.placements),
                in_flight: None,
            };
        };
        self.outcome.stores += carried.stores;
        self.outcome.damaged_segments += carried.damaged;
        let mut expander = carried.expander.with_tables(&source.tables);
        expander.place(&self.placements);
        CurrentThread {
            key,
            expander,
            in_flight: Some(carried.next_slot),
        }
    }

    /// Expands one file. The result is false if the work is given up.
    fn file(&mut self, thread: &mut CurrentThread<'_>, path: &Path) -> bool {
        let Some(file) = open(thread.key, path, &mut self.outcome) else {
            return true;
        };
        // A spill file without write permission is read all the same.
        let mut release = match self.source.release {
            true => Release::new(path).ok(),
            false => None,
        };
        // The file continues the loads in flight, unless it begins before them. In that case, the
        // loads in flight belong to an earlier thread.
        let first_slot = file.segments().first().map_or(0, |s| s.header.first_slot);
        if thread
            .in_flight
            .take()
            .is_some_and(|next| first_slot < next)
        {
            self.finish(thread);
        }
        for segment in file.segments() {
            if let Err(error) = file.decode(segment, &mut self.slots) {
                self.outcome.damaged_segments += 1;
                self.outcome
                    .problem(format!("{}: {error}; it is left out", path.display()));
                continue;
            }
            if let Some(release) = &mut release {
                release.upto(segment.end());
            }
            if !self.segment(thread, &segment.header) {
                return false;
            }
        }
        // The next file of the same ids is another thread.
        let first = self.finish(thread);
        self.stretches
            .finish(&self.group.rows, first, &mut self.outcome.samples);
        true
    }

    /// Expands the decoded segment. The result is false if the work is given up.
    fn segment(&mut self, thread: &mut CurrentThread<'_>, header: &SegmentHeader) -> bool {
        let key = thread.key;
        let source = self.source;
        source.modules.at(key.process, header.end_ns, &mut self.now);
        if self.now != self.placements {
            thread.expander.place(&self.now);
            std::mem::swap(&mut self.now, &mut self.placements);
        }
        let first = self.group.rows.len();
        thread.expander.stage(
            header,
            &self.slots,
            &mut self.next_sample,
            &mut self.group.rows,
        );
        self.count_stores(first);
        let seen = |sample| SampleSeen {
            thread: key,
            sample,
            first_slot: header.first_slot,
            end_ns: header.end_ns,
        };
        let rows = &self.group.rows;
        let samples = &mut self.outcome.samples;
        match header.kind {
            SegmentKind::Window => samples.extend(rows.sample_of(first).map(seen)),
            SegmentKind::Full => {
                // Number of the sample that was begun last.
                let seen = seen(self.next_sample.wrapping_sub(1));
                self.stretches.segment(rows, first, seen, samples);
            }
        }
        if let Some(windows) = &mut self.outcome.windows {
            windows.add(key, header, &source.tables, rows, first);
        }
        self.group.rows.len() < self.group_rows || self.send(key)
    }

    /// Adds the rows that the expander still holds. The result is the number of the first.
    fn finish(&mut self, thread: &mut CurrentThread<'_>) -> usize {
        let first = self.group.rows.len();
        thread.expander.finish_staged(&mut self.group.rows);
        self.count_stores(first);
        first
    }

    /// Counts the stores among the rows from `first` on.
    fn count_stores(&mut self, first: usize) {
        let (tables, rows) = (&self.source.tables, &self.group.rows);
        if tables.has_stores() {
            self.outcome.stores += rows.stores(tables, first..rows.len());
        }
    }

    /// Emits the group and takes an empty one.
    fn send(&mut self, key: ThreadKey) -> bool {
        self.group.belongs_to(key);
        (self.emit)(std::mem::replace(&mut self.group, self.pool.take()))
    }
}

fn open(key: ThreadKey, path: &Path, outcome: &mut ConvertOutcome) -> Option<SpillFile> {
    let file = match SpillFile::open(path) {
        Ok(file) => file,
        Err(error) => {
            outcome.damaged_segments += 1;
            outcome.problem(format!("{}: {error}; it is left out", path.display()));
            return None;
        }
    };
    if file.truncated() {
        outcome.torn_files += 1;
        outcome.problem(format!("{}: it ends inside a segment (the recorder was killed, or the disk was full); what precedes is used", path.display()));
    }
    if let Some(offset) = file.bad_tail() {
        outcome.damaged_segments += 1;
        let error = SpillError::Damaged {
            offset,
            what: "does not begin as a segment does",
        };
        outcome.problem(format!(
            "{}: {error}; what follows is left out",
            path.display()
        ));
    }
    if file.key() != key && !(file.segments().is_empty()) {
        outcome.damaged_segments += file.segments().len() as u64;
        outcome.problem(format!(
            "{}: it belongs to another thread than its name says; it is left out",
            path.display()
        ));
        return None;
    }
    Some(file)
}

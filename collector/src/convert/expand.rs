//! The reading half: spill files to groups of rows, in order.

use crate::convert::online::Carried;
use crate::convert::release::Release;
use crate::convert::stretches::Stretches;
use crate::convert::windows::Collector;
use crate::convert::{ConvertError, Outcome, SampleSeen, ThreadRows};
use mgz_abi::slot::Slot;
use mgz_annotations_schema::TraceMode;
use mgz_annotations_schema::expand::{Expander, ModuleMap, Placement, Staged, Tables};
use mgz_annotations_schema::manifest::Manifest;
use mgz_annotations_schema::sidecar::Sidecar;
use mgz_annotations_schema::spill::{SegmentKind, SpillError, SpillFile, ThreadKey};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Rows of a row group.
#[derive(Default)]
pub(crate) struct Group {
    /// (end, thread): the thread of the rows from the end before up to this end.
    pub threads: Vec<(usize, ThreadKey)>,
    pub rows: Staged,
}

impl Group {
    fn clear(&mut self) {
        self.threads.clear();
        self.rows.clear();
    }

    /// Appends what `of` takes from the threads of these rows.
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

    /// The thread of all these rows, if it is the same.
    pub(crate) fn same_thread(&self, rows: &Range<usize>) -> Option<ThreadKey> {
        let run = self
            .threads
            .get(self.threads.partition_point(|run| run.0 <= rows.start))?;
        (run.0 >= rows.end).then_some(run.1)
    }

    /// The rows that have no thread yet are this one's.
    fn belongs_to(&mut self, key: ThreadKey) {
        self.threads.push((self.rows.len(), key));
    }
}

/// Groups whose rows are written: their memory is used again. Growing fresh columns step by step
/// copies them several times, and each page of fresh memory is a fault.
#[derive(Default)]
pub(crate) struct Pool(Mutex<Vec<Group>>);

impl Pool {
    /// An empty group.
    pub(crate) fn take(&self) -> Group {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
            .unwrap_or_default()
    }

    /// Takes a group back.
    pub(crate) fn give_back(&self, mut group: Group) {
        group.clear();
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(group);
    }
}

/// All that is needed to produce rows.
pub(crate) struct Source {
    pub(crate) tables: Tables,
    modules: ModuleMap,
    files: Vec<(ThreadKey, PathBuf)>,
    /// `burst`.
    windows: Option<Collector>,
    /// See [`crate::convert::Options::release`].
    pub(crate) release: bool,
    /// A thread's first records were expanded before.
    carried: Mutex<Option<Carried>>,
}

impl Source {
    pub(crate) fn new(
        manifest: &Manifest,
        sidecars: &BTreeMap<String, Sidecar>,
        files: Vec<(ThreadKey, PathBuf)>,
        carried: Option<Carried>,
    ) -> Result<Source, ConvertError> {
        // The carried expander knows the tables by their positions.
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
            (manifest.mode == TraceMode::Burst).then(|| Collector::new(manifest, sidecars));
        Ok(Source {
            tables,
            modules,
            files,
            windows,
            release: false,
            carried: Mutex::new(carried),
        })
    }

    /// Number of stores among the rows from `first` on.
    fn stores(&self, rows: &Staged, first: usize) -> u64 {
        match self.tables.has_stores() {
            true => rows.stores(&self.tables, first..rows.len()),
            false => 0,
        }
    }

    /// Expands everything; `emit` takes row groups of at least `group_rows` rows (the last may have
    /// fewer). When it returns false the work is given up.
    pub(crate) fn expand(
        &self,
        group_rows: usize,
        pool: &Pool,
        mut emit: impl FnMut(Group) -> bool,
    ) -> Outcome {
        let mut outcome = Outcome {
            windows: self.windows.clone(),
            ..Outcome::default()
        };
        let mut carried = self
            .carried
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let mut next_sample = carried.as_ref().map_or(0, |c| c.next_sample);
        let mut group = Group::default();
        let mut slots: Vec<Slot> = Vec::new();
        let mut placements: Vec<Placement> = Vec::new();
        let mut now: Vec<Placement> = Vec::new();
        let mut threads: BTreeMap<ThreadKey, &[(ThreadKey, PathBuf)]> = self
            .files
            .chunk_by(|a, b| a.0 == b.0)
            .map(|files| (files[0].0, files))
            .collect();
        // It may have left nothing but loads in flight.
        if let Some(carried) = &carried {
            threads.entry(carried.key).or_default();
        }
        let mut stretches = Stretches::default();
        for (key, files) in threads {
            self.modules.at(key.process, u64::MAX, &mut placements);
            let mut in_flight = None;
            let mut expander = match carried.take_if(|c| c.key == key) {
                Some(carried) => {
                    in_flight = Some(carried.next_slot);
                    outcome.stores += carried.stores;
                    outcome.damaged_segments += carried.damaged;
                    let mut expander = carried.expander.with_tables(&self.tables);
                    expander.place(&placements);
                    expander
                }
                None => Expander::new(&self.tables, &placements),
            };
            for (_, path) in files {
                let Some(file) = open(key, path, &mut outcome) else {
                    continue;
                };
                // A spill file without write permission is read all the same.
                let mut release = match self.release {
                    true => Release::new(path).ok(),
                    false => None,
                };
                // The file continues the loads in flight, unless it begins before them. Then they
                // were all of an earlier thread.
                let first_slot = file.segments().first().map_or(0, |s| s.header.first_slot);
                if in_flight.take().is_some_and(|next| first_slot < next) {
                    let first = group.rows.len();
                    expander.finish_staged(&mut group.rows);
                    outcome.stores += self.stores(&group.rows, first);
                }
                for segment in file.segments() {
                    if let Err(error) = file.decode(segment, &mut slots) {
                        outcome.damaged_segments += 1;
                        outcome.problem(format!("{}: {error}; it is left out", path.display()));
                        continue;
                    }
                    self.modules
                        .at(key.process, segment.header.end_ns, &mut now);
                    if now != placements {
                        expander.place(&now);
                        std::mem::swap(&mut now, &mut placements);
                    }
                    if let Some(release) = &mut release {
                        release.upto(segment.end());
                    }
                    let first = group.rows.len();
                    expander.stage(&segment.header, &slots, &mut next_sample, &mut group.rows);
                    outcome.stores += self.stores(&group.rows, first);
                    if segment.header.kind == SegmentKind::Window
                        && let Some(sample) = group.rows.sample_of(first)
                    {
                        outcome.samples.push(SampleSeen {
                            thread: key,
                            sample,
                            first_slot: segment.header.first_slot,
                            end_ns: segment.header.end_ns,
                        });
                    }
                    if segment.header.kind == SegmentKind::Full {
                        stretches.segment(
                            &group.rows,
                            first,
                            SampleSeen {
                                thread: key,
                                // The last that was begun.
                                sample: next_sample.wrapping_sub(1),
                                first_slot: segment.header.first_slot,
                                end_ns: segment.header.end_ns,
                            },
                            &mut outcome.samples,
                        );
                    }
                    if let Some(windows) = &mut outcome.windows {
                        windows.add(key, &segment.header, &self.tables, &group.rows, first);
                    }
                    if group.rows.len() >= group_rows && !send(&mut group, key, pool, &mut emit) {
                        return outcome;
                    }
                }
                // The next file of the same ids is another thread.
                let first = group.rows.len();
                expander.finish_staged(&mut group.rows);
                outcome.stores += self.stores(&group.rows, first);
                stretches.finish(&group.rows, first, &mut outcome.samples);
            }
            if files.is_empty() {
                let first = group.rows.len();
                expander.finish_staged(&mut group.rows);
                outcome.stores += self.stores(&group.rows, first);
            }
            let counters = expander.counters();
            outcome.counters.add(counters);
            outcome.threads.insert(
                key,
                ThreadRows {
                    rows: counters.rows,
                    samples: counters.samples,
                    records: counters.records,
                },
            );
            group.belongs_to(key);
        }
        if !group.rows.is_empty() {
            emit(group);
        }
        outcome
    }
}

fn send(
    group: &mut Group,
    key: ThreadKey,
    pool: &Pool,
    emit: &mut impl FnMut(Group) -> bool,
) -> bool {
    group.belongs_to(key);
    emit(std::mem::replace(group, pool.take()))
}

fn open(key: ThreadKey, path: &std::path::Path, outcome: &mut Outcome) -> Option<SpillFile> {
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

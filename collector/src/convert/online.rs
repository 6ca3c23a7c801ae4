//! Records that become rows while the program runs, and go to an analysis at once.
//!
//! `--analyze` keeps a trace in memory until the program ends. Where an analysis takes one row
//! after the other, in the order of time, the rows of the first thread need not wait until a second
//! thread begins, since later threads have later rows. From then on records are kept as always, and
//! the state of the expansion continues with them ([`Carried`]). Both parts together are the rows
//! of the trace.
//!
//! Workers give encoded segments ([`Online::take`]); a thread of its own expands them and writes
//! the rows to a pipe ([`Online::run`]). Memory is bounded: when the pipe is full, segments wait.
//! When enough segments wait, the workers and the program wait too.
//!
//! Two errors must be excluded. First, records of a module that is announced but not yet reported
//! must not count as unknown. So each segment carries the number of modules announced before it,
//! and is expanded when all of these are known. Second, the thread that reports modules must not
//! wait for room, or both sides would wait for each other. So `take` does not block while this side
//! waits for modules.

use mgz_abi::slot::Slot;
use mgz_annotations_schema::expand::{CodeNumbers, Expander, ModuleMap, Placement, Staged, Tables};
use mgz_annotations_schema::lock::locked;
use mgz_annotations_schema::manifest::Module;
use mgz_annotations_schema::row_stream::{Batch, RowCode, RowWriter};
use mgz_annotations_schema::sidecar::Sidecar;
use mgz_annotations_schema::spill::{EncodedSegment, ThreadKey, decode_alone};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Result};
use std::ops::Range;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Maximum number of encoded bytes that wait.
const MAX_WAITING: usize = 8 << 20;
/// Maximum number of rows in a batch. The reader decodes the next batch while it processes this
/// one.
const BATCH_ROWS: usize = 1 << 15;

/// State that workers, the supervisor and the expanding thread share.
pub struct Online {
    state: Mutex<State>,
    changed: Condvar,
    rows: Mutex<Option<RowWriter<File>>>,
}

#[derive(Default)]
struct State {
    /// Segments, each with the number of modules that had been announced when it was taken.
    waiting: VecDeque<(usize, Vec<u8>)>,
    /// Their bytes.
    bytes: usize,
    /// Modules reported so far, and the number of rows of the module table that they cover.
    modules: Vec<Module>,
    /// Number of times that modules were reported.
    news: u64,
    told: usize,
    /// The thread whose records these are.
    key: Option<ThreadKey>,
    /// The first segment waits for modules.
    starving: bool,
    /// There will be no more segments.
    over: bool,
    /// Nobody reads the rows any more.
    broken: bool,
    /// Number of rows sent.
    sent: u64,
    /// More threads have begun.
    others: bool,
}

impl fmt::Debug for Online {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Online").finish_non_exhaustive()
    }
}

/// State of an expansion in flight when records are kept from then on.
pub struct Carried {
    pub(crate) key: ThreadKey,
    pub(crate) expander: Expander<'static>,
    /// Identities of the sidecars, in the order of the expander's tables.
    pub(crate) sidecars: Vec<String>,
    /// Number of the next sample.
    pub(crate) next_sample: u32,
    /// Slot after the last one expanded. A segment that begins before it belongs to another thread.
    pub(crate) next_slot: u64,
    pub(crate) stores: u64,
    /// Segments that could not be decoded.
    pub(crate) damaged: u64,
}

impl Online {
    /// Rows go to `pipe`.
    pub fn new(pipe: File) -> Result<Online> {
        Ok(Online {
            state: Mutex::default(),
            changed: Condvar::new(),
            rows: Mutex::new(Some(RowWriter::new(pipe)?)),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// True if this thread's records, from the first one on, are to be passed on. This holds for
    /// one thread only.
    pub(crate) fn begin(&self, key: ThreadKey) -> bool {
        let mut state = self.state();
        let first = state.key.is_none();
        state.key = state.key.or(Some(key));
        first
    }

    /// Takes the thread's next segment, when there is room. `announced` modules may have records in
    /// it. `BrokenPipe`: the reader is gone.
    pub(crate) fn take(&self, announced: usize, segment: &EncodedSegment) -> Result<()> {
        let mut state = self.state();
        while state.bytes >= MAX_WAITING && !state.starving && !state.broken {
            state = self.wait(state);
        }
        if state.broken {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let bytes = segment.alone(state.key.unwrap_or_default());
        state.bytes += bytes.len();
        state.waiting.push_back((announced, bytes));
        self.changed.notify_all();
        Ok(())
    }

    /// More threads have begun, so from here on the order of rows is known only at the end.
    pub(crate) fn others_began(&self) {
        self.state().others = true;
    }

    /// Sentence for the user about the result.
    pub fn account(&self) -> String {
        let state = self.state();
        let rest = if state.others {
            "; those behind lay in memory until the program's end, since others began to run beside its first thread"
        } else {
            ""
        };
        format!(
            "{} loads and stores were analysed while the program ran{rest}",
            state.sent
        )
    }

    /// Replaces the list of modules known so far.
    pub(crate) fn know(&self, modules: &[Module]) {
        let mut state = self.state();
        modules.clone_into(&mut state.modules);
        state.news += 1;
    }

    /// All modules in the first `rows` rows of the module table have been reported.
    pub(crate) fn told(&self, rows: usize) {
        let mut state = self.state();
        if state.told != rows {
            state.told = rows;
            self.changed.notify_all();
        }
    }

    /// There will be no more segments.
    pub(crate) fn close(&self) {
        self.state().over = true;
        self.changed.notify_all();
    }

    /// Tells the analysis that the trace is complete and has the rows that were not sent.
    pub fn finish(&self) -> Result<()> {
        let rows = locked(&self.rows).take();
        rows.map_or(Ok(()), RowWriter::finish)
    }

    /// The next segment, and the list of modules if it has changed since the `known`th report.
    fn next(&self, known: &mut u64) -> Option<(Vec<u8>, Option<Vec<Module>>)> {
        let mut state = self.state();
        loop {
            state.starving = false;
            match state.waiting.front() {
                None if state.over => return None,
                Some(&(announced, _)) if state.told < announced && !state.over => {
                    state.starving = true;
                    self.changed.notify_all();
                }
                None => {}
                Some(_) => break,
            }
            state = self.wait(state);
        }
        let modules = (*known != state.news).then(|| state.modules.clone());
        *known = state.news;
        let (_, bytes) = state.waiting.pop_front()?;
        state.bytes -= bytes.len();
        self.changed.notify_all();
        Some((bytes, modules))
    }

    /// Expands incoming segments, until [`Online::close`], with the sidecars of the trace in the
    /// making. `None` if nothing has come.
    ///
    /// # Errors
    ///
    /// A sentence about a sidecar that cannot be read: from then on, nothing is taken.
    pub fn run(&self, trace: &Path) -> std::result::Result<Option<Carried>, String> {
        /// On a panic, waiting threads are released.
        struct Guard<'a>(&'a Online);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                self.0.give_up();
            }
        }
        let guard = Guard(self);
        let done = self.expand(trace)?;
        std::mem::forget(guard);
        Ok(done)
    }

    /// Refuses further segments and releases waiting threads.
    fn give_up(&self) {
        let mut state = self.state();
        state.broken = true;
        state.waiting.clear();
        state.bytes = 0;
        self.changed.notify_all();
    }

    fn expand(&self, trace: &Path) -> std::result::Result<Option<Carried>, String> {
        let (mut known, mut news) = (Known::default(), 0);
        let mut work: Option<(Carried, Vec<Placement>)> = None;
        let (mut slots, mut now) = (Vec::<Slot>::new(), Vec::new());
        let (mut staged, mut batch) = (Staged::default(), Batch::default());
        while let Some((bytes, modules)) = self.next(&mut news) {
            let changed = match modules {
                Some(modules) => known.update(trace, &modules)?,
                None => false,
            };
            let tables = known.tables;
            let (carried, placements) = work.get_or_insert_with(|| {
                let key = self.state().key.unwrap_or_default();
                let carried = Carried {
                    key,
                    expander: Expander::new(tables, &[]),
                    sidecars: Vec::new(),
                    next_sample: 0,
                    next_slot: 0,
                    stores: 0,
                    damaged: 0,
                };
                (carried, Vec::new())
            });
            if changed {
                let empty = Expander::new(tables, &[]);
                let before = std::mem::replace(&mut carried.expander, empty);
                carried.expander = before.with_tables(tables);
                carried.sidecars.clone_from(&known.ids);
                placements.clear();
            }
            let header = match decode_alone(&bytes, &mut slots) {
                Ok(header) => header,
                Err(_) => {
                    carried.damaged += 1;
                    continue;
                }
            };
            known.map.at(carried.key.process, header.end_ns, &mut now);
            if *placements != now {
                carried.expander.place(&now);
                placements.clone_from(&now);
            }
            let Carried {
                expander,
                next_sample,
                next_slot,
                ..
            } = carried;
            *next_slot = header.first_slot + header.written();
            expander.stage(&header, &slots, next_sample, &mut staged);
            carried.stores += match tables.has_stores() {
                true => staged.stores(tables, 0..staged.len()),
                false => 0,
            };
            self.send(carried.key, &mut known, &staged, &mut batch);
            staged.clear();
        }
        Ok(work.map(|(carried, _)| carried))
    }

    /// Sends the rows. If the reader is gone, further segments are refused.
    fn send(&self, key: ThreadKey, known: &mut Known, staged: &Staged, batch: &mut Batch) {
        let mut rows = locked(&self.rows);
        let Some(writer) = &mut *rows else { return };
        let (mut from, tables) = (0, known.tables);
        while from < staged.len() {
            let (sample, end) = staged.rest_of_sample(from);
            let range = from..end.min(from + BATCH_ROWS);
            from = range.end;
            batch.clear();
            (batch.process, batch.thread, batch.sample) = (key.process, key.thread, sample);
            staged.address(range.clone(), &mut batch.address);
            staged.size(tables, range.clone(), &mut batch.size);
            staged.implied_const(tables, range.clone(), &mut batch.implied);
            staged.store(tables, range.clone(), &mut batch.store);
            known.code(staged, range, batch);
            if writer.batch(batch).is_err() {
                *rows = None;
                return self.give_up();
            }
            self.state().sent += batch.len() as u64;
        }
    }
}

/// The code encountered so far.
struct Known {
    map: ModuleMap,
    /// Identities of the tables, in their order. New ones only go to the end, so the positions that
    /// an expander knows stay valid.
    ids: Vec<String>,
    sidecars: Vec<Sidecar>,
    tables: &'static Tables,
    /// Index of the sidecar, by module number in the manifest.
    modules: Vec<Option<usize>>,
    /// Numbers of codes sent so far. The analysis distinguishes code by these fields only.
    sent: HashMap<Kind, u32>,
    numbers: CodeNumbers,
}

/// Key of a code: module; function, source position and loop in the sidecar; class; and true for a
/// store.
type Kind = (u16, Option<(u32, u32, u32)>, u8, bool);

impl Default for Known {
    fn default() -> Known {
        Known {
            map: ModuleMap::default(),
            ids: Vec::new(),
            sidecars: Vec::new(),
            tables: Box::leak(Box::default()),
            modules: Vec::new(),
            sent: HashMap::new(),
            numbers: CodeNumbers::default(),
        }
    }
}

impl Known {
    /// Makes the codes of rows.
    fn code(&mut self, staged: &Staged, rows: Range<usize>, batch: &mut Batch) {
        let Known {
            sidecars,
            modules,
            sent,
            ..
        } = self;
        let new = &mut batch.codes;
        let number = |code: RowCode| {
            let sidecar = modules.get(usize::from(code.module)).copied().flatten();
            let site = sidecar.and_then(|at| sidecars[at].sites.get(code.site as usize));
            let place = site.map(|site| (site.function, site.location, site.in_loop));
            let next = sent.len() as u32;
            *sent
                .entry((code.module, place, code.class, code.store))
                .or_insert_with(|| {
                    new.push(code);
                    next
                })
        };
        staged.code(
            self.tables,
            rows,
            &mut self.numbers,
            number,
            &mut batch.code,
        );
    }

    /// Adds new modules. True if the tables have changed.
    fn update(&mut self, trace: &Path, modules: &[Module]) -> std::result::Result<bool, String> {
        let before = self.ids.len();
        for module in modules {
            if module.sidecar.is_empty() || self.ids.contains(&module.sidecar_id) {
                continue;
            }
            let path = trace.join(&module.sidecar);
            let sidecar =
                Sidecar::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            self.sidecars.push(sidecar);
            self.ids.push(module.sidecar_id.clone());
        }
        let ids = &self.ids;
        let sidecar_of = |module: &Module| ids.iter().position(|id| *id == module.sidecar_id);
        self.map = ModuleMap::new(modules, sidecar_of);
        self.modules = modules.iter().map(sidecar_of).collect();
        if ids.len() == before {
            return Ok(false);
        }
        let tables = Tables::new(&self.sidecars).map_err(|error| error.to_string())?;
        // A run has few libraries, and loads in flight refer to them until the expander's end.
        self.tables = Box::leak(Box::new(tables));
        Ok(true)
    }
}

//! From `ptwrite`s to slots: address to record, cut into slices of one thread.

use crate::import::modules::{Modules, PlacedModule};
use mgz_abi::slot::Slot;
use mgz_perf_data::events::{Before, PtwriteEvent};
use mgz_perf_data::mapping::Spaces;

/// Relation of a slice to the records before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Records may be missing before it.
    Loss,
    /// Another thread ran before on this stream, or the thread may have run on another CPU.
    Switch,
    /// It directly follows the record before it on this stream, of the same thread.
    Continues,
}

/// Consecutive records of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Process; 0 if unknown.
    pub pid: u32,
    /// Thread; 0 if unknown.
    pub tid: u32,
    /// Relation to the records before it.
    pub start: Start,
    /// perf's clock at the first record; 0 if unknown.
    pub begin_ns: u64,
    /// perf's clock at the last record.
    pub end_ns: u64,
    /// A slot for each `ptwrite`; `aux` is the number of the part of the record.
    pub slots: Vec<Slot>,
    /// Mappings that the records lie in, by number, each once.
    pub mappings: Vec<usize>,
    /// Number of the window (or piece) of the last record.
    pub window: u32,
}

/// The events of a unit as slices, with counts.
#[derive(Clone, Debug, Default)]
pub struct Slices {
    /// The slices, in the order of the stream.
    pub list: Vec<Slice>,
    /// `ptwrite`s without an address.
    pub without_ip: u64,
    /// `ptwrite`s at addresses that are in no sidecar.
    pub unresolved: u64,
    /// `ptwrite`s of files that several sidecars fit.
    pub doubtful: u64,
    /// There is a loss behind the last slice.
    pub lost_after: bool,
}

/// Maximum number of slots of a slice. Times are interpolated within a slice.
const MAX_SLOTS: usize = 8192;

/// The last results of [`Spaces::find_near`], with the range in which they are valid.
#[derive(Clone, Copy)]
struct Known {
    pid: u32,
    from: u64,
    until: u64,
    start: u64,
    end: u64,
    mapping: usize,
    placed: PlacedModule,
}

struct Finder<'s> {
    spaces: &'s Spaces,
    modules: &'s Modules,
    known: [Option<Known>; 4],
    next: usize,
}

impl Finder<'_> {
    #[inline]
    fn find(&mut self, pid: u32, time: u64, ip: u64) -> Option<(usize, PlacedModule)> {
        let holds = |k: &&Known| {
            k.pid == pid
                && ip.wrapping_sub(k.start) < k.end - k.start
                && k.from <= time
                && time < k.until
        };
        if let Some(known) = self.known.iter().flatten().find(holds) {
            return Some((known.mapping, known.placed));
        }
        self.look_up(pid, time, ip)
    }

    #[cold]
    fn look_up(&mut self, pid: u32, time: u64, ip: u64) -> Option<(usize, PlacedModule)> {
        let mapping = self.spaces.find_near(pid, time, ip)?;
        let placed = self.modules.placed(mapping)?;
        let at = &self.spaces.mappings()[mapping];
        let until = self.spaces.next_change(pid, time);
        self.known[self.next] = Some(Known {
            pid,
            from: time,
            until,
            start: at.start,
            end: at.end,
            mapping,
            placed,
        });
        self.next = (self.next + 1) % self.known.len();
        Some((mapping, placed))
    }
}

/// Resolves the events of one unit.
pub fn slices(spaces: &Spaces, modules: &Modules, events: &[PtwriteEvent]) -> Slices {
    let mut out = Slices::default();
    let mut finder = Finder {
        spaces,
        modules,
        known: [None; 4],
        next: 0,
    };
    let mut thread = events.first().map_or((0, 0), |e| (e.pid, e.tid));
    // Start of the next slice; `None` inside of a slice.
    let mut start = Some(Start::Continues);
    // The last placement of each sidecar.
    let mut placements: Vec<PlacedModule> = Vec::new();
    for event in events {
        let switched = thread != (event.pid, event.tid) || event.before == Before::Switch;
        thread = (event.pid, event.tid);
        match (event.before, start) {
            (Before::Loss, _) => start = Some(Start::Loss),
            (_, None | Some(Start::Continues)) if switched => start = Some(Start::Switch),
            _ => {}
        }
        let Some(ip) = event.ip else {
            out.without_ip += 1;
            continue;
        };
        // An event without a time is looked up at the end of the recording.
        let time = if event.time_ns == 0 {
            u64::MAX
        } else {
            event.time_ns
        };
        let found = finder
            .find(event.pid, time, ip)
            .and_then(|(mapping, placed)| Some((mapping, placed, modules.record(placed, ip)?)));
        let Some((mapping, placed, place)) = found else {
            let doubtful = modules.has_doubts()
                && spaces
                    .find_near(event.pid, time, ip)
                    .is_some_and(|mapping| modules.is_doubtful(mapping));
            out.doubtful += u64::from(doubtful);
            out.unresolved += u64::from(!doubtful);
            continue;
        };
        match placements.iter_mut().find(|p| p.sidecar == placed.sidecar) {
            Some(before) if *before != placed => {
                // From here on the file is mapped elsewhere. A slice has only one placement of each
                // file.
                *before = placed;
                start = start.or(Some(Start::Continues));
            }
            Some(_) => {}
            None => placements.push(placed),
        }
        if out.list.last().is_some_and(|s| s.slots.len() >= MAX_SLOTS) {
            start = start.or(Some(Start::Continues));
        }
        if let Some(start) = start.take() {
            let (pid, tid) = thread;
            out.list.push(Slice {
                pid,
                tid,
                start,
                begin_ns: event.time_ns,
                end_ns: event.time_ns,
                slots: Vec::new(),
                mappings: Vec::new(),
                window: event.sample,
            });
        }
        if let Some(slice) = out.list.last_mut() {
            slice.end_ns = event.time_ns;
            slice.window = event.sample;
            slice.slots.push(Slot {
                payload: event.payload,
                id: place.id,
                aux: place.part,
            });
            if slice.mappings.last() != Some(&mapping) && !slice.mappings.contains(&mapping) {
                slice.mappings.push(mapping);
            }
        }
    }
    out.lost_after = start == Some(Start::Loss);
    out
}

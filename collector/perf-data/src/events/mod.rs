//! `ptwrite`s of a session, in parallel, in the order of the file.
//!
//! Windows are read one by one, each from its first PSB. A part that a window shares with the one
//! before it in the same stream is decoded (for the state) but not returned again. A full trace is
//! cut at PSBs, since no packet crosses them; bytes between a piece's last PSB and the next piece
//! are carried over.
//!
//! The results come in [`PartResult`]s, each decoded (and processed by the caller) on one core.
//! Every `ptwrite` has a flag that tells if it directly follows the one before it in its stream,
//! since records must not be joined across a loss.

pub(crate) mod stream;
pub(crate) mod window;

use crate::session::{Session, Stream};
use mgz_pt::Loss;
use std::ops::AddAssign;

/// Gap between a `ptwrite` and the one before it in its stream (unit).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Before {
    /// Nothing.
    #[default]
    Nothing,
    /// The thread may have run on another CPU in between, or another thread ran here.
    Switch,
    /// Other `ptwrite`s may be missing.
    Loss,
}

/// An executed `ptwrite`, with its position in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PtwriteEvent {
    /// Number of the window or piece.
    pub sample: u32,
    /// Process; 0 if unknown.
    pub pid: u32,
    /// Thread; 0 if unknown.
    pub tid: u32,
    /// Gap before it.
    pub before: Before,
    /// perf's clock; 0 if unknown.
    pub time_ns: u64,
    /// Run-time address of the `ptwrite`.
    pub ip: Option<u64>,
    /// Operand.
    pub payload: u64,
}

/// Counts of all PT data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Windows, or pieces of a full trace.
    pub samples: u64,
    /// Windows without a new `ptwrite`.
    pub empty_samples: u64,
    /// Windows in which the processor lost packets.
    pub overflowed_samples: u64,
    /// Bytes of PT data.
    pub bytes: u64,
    /// Number of `ptwrite`s.
    pub events: u64,
    /// Losses in the streams.
    pub loss: Loss,
    /// `ptwrite`s among the bytes before the first PSB (estimated, since the boundaries of packets
    /// are unknown there).
    pub before_psb_ptwrites: u64,
    /// Windows that begin with bytes of the one before.
    pub overlaps: u64,
    /// Bytes that were in the window before.
    pub overlap_bytes: u64,
    /// `ptwrite`s in these bytes, which are not returned again.
    pub overlap_events: u64,
    /// Number of holes in full traces.
    pub holes: u64,
    /// Pairs whose halves belong to two threads, dropped.
    pub torn_by_switch: u64,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        self.samples += other.samples;
        self.empty_samples += other.empty_samples;
        self.overflowed_samples += other.overflowed_samples;
        self.bytes += other.bytes;
        self.events += other.events;
        self.loss += other.loss;
        self.before_psb_ptwrites += other.before_psb_ptwrites;
        self.overlaps += other.overlaps;
        self.overlap_bytes += other.overlap_bytes;
        self.overlap_events += other.overlap_events;
        self.holes += other.holes;
        self.torn_by_switch += other.torn_by_switch;
    }
}

/// Result from one window, or from one part of a full trace.
#[derive(Clone, Debug)]
pub struct PartResult<T> {
    /// The stream it comes from.
    pub stream: Stream,
    /// The first `ptwrite` directly follows the last one of the stream's previous unit, unless that
    /// unit has `lost_after` set. (Without a previous unit: it is the first of the recording.)
    pub continues: bool,
    /// `ptwrite`s may be missing after the last one.
    pub lost_after: bool,
    /// Result of the caller's function for the events.
    pub data: T,
}

/// Receives the events of one window, or some events of a full trace, in order.
pub type Sink<'s> = dyn FnMut(&[PtwriteEvent]) -> std::io::Result<()> + 's;

/// Bytes that are decoded before their events are passed on: bounds memory. Source: Chosen.
const MAX_BYTES_PER_BATCH: usize = 16 << 20;

/// Reads all PT data of a session. Events come window by window in the order of the file, then full
/// traces stream by stream.
pub fn for_each(session: &Session<'_>, sink: &mut Sink<'_>) -> std::io::Result<Totals> {
    let order: Vec<_> = (0..session.windows.len()).collect();
    for_each_unit(session, &order, &|events| events, &mut |unit| {
        sink(&unit.data)
    })
}

/// As [`for_each`], with windows in the order given (numbers in [`Session::windows`]; those of one
/// stream must come in the order of the file). `work` is applied to each unit's events where they
/// are decoded, on all cores.
pub fn for_each_unit<T: Send>(
    session: &Session<'_>,
    order: &[usize],
    work: &(dyn Fn(Vec<PtwriteEvent>) -> T + Sync),
    sink: &mut dyn FnMut(PartResult<T>) -> std::io::Result<()>,
) -> std::io::Result<Totals> {
    let mut totals = Totals::default();
    let windows: Vec<_> = order
        .iter()
        .filter_map(|&n| session.windows.get(n))
        .collect();
    window::read_windows(session, &windows, work, &mut totals, sink)?;
    for (stream, full) in &session.full {
        if session.is_snapshot() {
            let list: Vec<_> = full
                .pieces
                .iter()
                .map(|piece| window::snapshot(*stream, full, piece))
                .collect();
            window::read_windows(
                session,
                &list.iter().collect::<Vec<_>>(),
                work,
                &mut totals,
                sink,
            )?;
        } else {
            stream::read_stream(session, *stream, full, work, &mut totals, sink)?;
        }
    }
    Ok(totals)
}

fn time(session: &Session<'_>, tsc: Option<u64>) -> Option<u64> {
    session
        .conversion
        .zip(tsc)
        .map(|(conversion, tsc)| conversion.ns(tsc))
}

/// A thread with its process, if that is known by now.
fn with_process(session: &Session<'_>, (pid, tid): (u32, u32)) -> (u32, u32) {
    match pid {
        0 => (session.process_of.get(&tid).copied().unwrap_or(0), tid),
        _ => (pid, tid),
    }
}

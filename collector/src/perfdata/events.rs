//! `ptwrite`s of a session, in parallel, in the order of the file.
//!
//! Windows are read one by one, each from its first PSB; what a window shares with the one before it in
//! the same stream is read (for the state) and not given again. A full trace is cut at PSBs, since nothing
//! crosses them; what stands between a piece's last PSB and the next piece is carried over.

use super::overlap::{Overlap, overlap};
use super::session::{FullStream, Piece, Session, Stream, Window};
use crate::pt::{Loss, Ptwrites, estimate_unsynchronised, find_psb};
use rayon::prelude::*;
use std::collections::HashMap;
use std::ops::AddAssign;

/// An executed `ptwrite`, with its place in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Number of the window or piece.
    pub sample: u32,
    /// Process; 0 if unknown.
    pub pid: u32,
    /// Thread; 0 if unknown.
    pub tid: u32,
    /// perf's clock; 0 if unknown.
    pub time_ns: u64,
    /// Run-time address of the `ptwrite`.
    pub ip: Option<u64>,
    /// Operand.
    pub payload: u64,
}

/// Counts over all PT data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Windows, or pieces of a full trace.
    pub samples: u64,
    /// Windows that add no `ptwrite` to those before.
    pub empty_samples: u64,
    /// Bytes of PT data.
    pub bytes: u64,
    /// `ptwrite`s.
    pub events: u64,
    /// What was lost in the streams.
    pub loss: Loss,
    /// `ptwrite`s among the bytes before the first PSB (estimated, since nothing says where packets begin).
    pub before_psb_ptwrites: u64,
    /// Windows that begin with bytes of the one before.
    pub overlaps: u64,
    /// Bytes that were in the window before.
    pub overlap_bytes: u64,
    /// `ptwrite`s not given again for that reason.
    pub overlap_events: u64,
    /// Places where a full trace has a hole.
    pub holes: u64,
    /// Pairs whose halves belong to two threads, dropped.
    pub torn_by_switch: u64,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        self.samples += other.samples;
        self.empty_samples += other.empty_samples;
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

/// Receives the events of one window, or some of a full trace's, in order.
pub type Sink<'s> = dyn FnMut(&[Event]) -> std::io::Result<()> + 's;

/// Windows that are decoded before their events are passed on: bounds memory.
const BATCH: usize = 256;
/// A full trace is decoded in parts of about this size.
const PART: usize = 1 << 20;

/// Reads all PT data of a session. Events come window by window in the order of the file, then full
/// traces stream by stream.
pub fn for_each(session: &Session<'_>, sink: &mut Sink<'_>) -> std::io::Result<Totals> {
    let mut totals = Totals::default();
    windows(session, &session.windows, &mut totals, sink)?;
    for (stream, full) in &session.full {
        if session.is_snapshot() {
            let list: Vec<_> = full.pieces.iter().map(|piece| snapshot(*stream, full, piece)).collect();
            windows(session, &list, &mut totals, sink)?;
        } else {
            whole(session, full, &mut totals, sink)?;
        }
    }
    Ok(totals)
}

fn snapshot<'a>(stream: Stream, full: &FullStream<'a>, piece: &Piece<'a>) -> Window<'a> {
    let mut identity = super::sample::Identity { cpu: full.cpu, ..Default::default() };
    identity.task = full.thread.map(|tid| (0, tid));
    Window { stream, number: piece.number, bytes: super::records::Bytes::File(piece.bytes), identity }
}

fn windows(session: &Session<'_>, windows: &[Window<'_>], totals: &mut Totals, sink: &mut Sink<'_>) -> std::io::Result<()> {
    let mut last: HashMap<Stream, usize> = HashMap::new();
    let before: Vec<_> = windows.iter().enumerate().map(|(n, w)| last.insert(w.stream, n)).collect();
    let overlaps: Vec<_> = windows.par_iter().zip(&before).map(|(w, before)| before.and_then(|n| overlap(&windows[n].bytes, &w.bytes))).collect();
    // A pair torn at a window's end is whole in the next window, if that begins before.
    let mut continued = vec![false; windows.len()];
    for (n, _) in overlaps.iter().enumerate().filter(|(_, overlap)| overlap.is_some()) {
        if let Some(old) = before[n] {
            continued[old] = true;
        }
    }
    for from in (0..windows.len()).step_by(BATCH) {
        let range = from..(from + BATCH).min(windows.len());
        let batch: Vec<_> = range.into_par_iter().map(|n| window(session, &windows[n], overlaps[n], continued[n])).collect();
        for (events, counts) in batch {
            *totals += counts;
            sink(&events)?;
        }
    }
    Ok(())
}

fn window(session: &Session<'_>, window: &Window<'_>, overlap: Option<Overlap>, continued: bool) -> (Vec<Event>, Totals) {
    let bytes = &window.bytes[..];
    let mut totals = Totals { samples: 1, bytes: bytes.len() as u64, ..Totals::default() };
    let shared = window.identity.cpu.filter(|&cpu| session.is_shared(cpu));
    let task = window.identity.task.unwrap_or((0, 0));
    let seen = overlap.map_or(0, |o| o.seen);
    let mut events = Vec::new();
    let mut ptwrites = Ptwrites::new(bytes, session.clock);
    for ptwrite in ptwrites.by_ref() {
        if ptwrite.end <= seen {
            totals.overlap_events += 1;
            continue;
        }
        let time = time(session, ptwrite.tsc).or(window.identity.time);
        let (pid, tid) = shared.zip(time).and_then(|(cpu, time)| session.thread_at(cpu, time)).unwrap_or(task);
        let pid = if pid == 0 { session.process_of.get(&tid).copied().unwrap_or(0) } else { pid };
        events.push(Event { sample: window.number, pid, tid, time_ns: time.unwrap_or(0), ip: ptwrite.ip, payload: ptwrite.payload });
    }
    totals.loss = ptwrites.loss();
    if continued {
        totals.loss.torn_at_end = 0;
    }
    let head = match overlap {
        None => &bytes[..totals.loss.before_psb_bytes as usize],
        Some(overlap) => {
            totals.overlaps = 1;
            totals.overlap_bytes = seen as u64;
            totals.loss.before_psb_bytes = totals.loss.before_psb_bytes.min(overlap.unseen_head as u64);
            &bytes[..totals.loss.before_psb_bytes as usize]
        }
    };
    totals.before_psb_ptwrites = estimate_unsynchronised(head).0;
    totals.events = events.len() as u64;
    totals.empty_samples = u64::from(events.is_empty());
    (events, totals)
}

fn time(session: &Session<'_>, tsc: Option<u64>) -> Option<u64> {
    session.conversion.zip(tsc).map(|(conversion, tsc)| conversion.ns(tsc))
}

/// Bytes of a stream that are being put together, with the pieces they came from.
#[derive(Default)]
struct Assembly {
    bytes: Vec<u8>,
    /// Stream offset of the first byte.
    start: u64,
    /// Offsets in `bytes` from which on they belong to a piece.
    numbers: Vec<(usize, u32)>,
    /// Some byte before was handed on, so that the first is a PSB's.
    synchronised: bool,
}

/// Cuts for [`Ptwrites`] in `bytes[..end]`: each begins at a PSB, but for the first.
fn cuts(bytes: &[u8], end: usize) -> Vec<std::ops::Range<usize>> {
    let mut cuts = Vec::new();
    let mut from = 0;
    while from < end {
        let to = find_psb(bytes, from.saturating_add(PART)).filter(|&at| at < end).unwrap_or(end);
        cuts.push(from..to);
        from = to;
    }
    cuts
}

/// Offset of the last PSB.
fn last_psb(bytes: &[u8]) -> Option<usize> {
    let mut span = 4096;
    loop {
        let from = bytes.len().saturating_sub(span);
        let mut last = None;
        let mut at = from;
        while let Some(found) = find_psb(bytes, at) {
            last = Some(found);
            at = found + 16;
        }
        if last.is_some() || from == 0 {
            return last;
        }
        span = span.saturating_mul(2);
    }
}

fn whole(session: &Session<'_>, full: &FullStream<'_>, totals: &mut Totals, sink: &mut Sink<'_>) -> std::io::Result<()> {
    let mut assembly = Assembly::default();
    let mut expected = None;
    for piece in &full.pieces {
        totals.samples += 1;
        totals.bytes += piece.bytes.len() as u64;
        let mut bytes = piece.bytes;
        let mut offset = piece.offset;
        match expected {
            Some(end) if offset < end => {
                // Read twice: by the offset it is known exactly what.
                let twice = usize::try_from(end - offset).unwrap_or(usize::MAX).min(bytes.len());
                totals.overlaps += 1;
                totals.overlap_bytes += twice as u64;
                bytes = &bytes[twice..];
                offset += twice as u64;
            }
            Some(end) if offset > end => {
                totals.holes += 1;
                flush(session, full, &mut assembly, true, totals, sink)?;
                assembly = Assembly::default();
            }
            _ => {}
        }
        expected = Some(expected.unwrap_or(0).max(offset.saturating_add(bytes.len() as u64)));
        if assembly.bytes.is_empty() {
            assembly.start = offset;
        }
        assembly.numbers.push((assembly.bytes.len(), piece.number));
        assembly.bytes.extend_from_slice(bytes);
        if assembly.bytes.len() >= 16 * PART {
            flush(session, full, &mut assembly, false, totals, sink)?;
        }
    }
    flush(session, full, &mut assembly, true, totals, sink)
}

/// Decodes what was put together; keeps the bytes from the last PSB on, unless it is the end.
fn flush(session: &Session<'_>, full: &FullStream<'_>, assembly: &mut Assembly, end: bool, totals: &mut Totals, sink: &mut Sink<'_>) -> std::io::Result<()> {
    let len = assembly.bytes.len();
    // A PSB may be cut itself, so it must not be looked for in the last bytes.
    let until = if end { len } else { last_psb(&assembly.bytes).filter(|&at| at > 0).unwrap_or(0) };
    if until == 0 {
        return Ok(());
    }
    let parts = cuts(&assembly.bytes, until);
    let this = &*assembly;
    let results: Vec<_> = parts.par_iter().map(|part| decode_part(session, full, this, part.clone(), end && part.end == len)).collect();
    for (events, counts) in results {
        *totals += counts;
        sink(&events)?;
    }
    assembly.bytes.drain(..until);
    assembly.start += until as u64;
    assembly.synchronised = true;
    let number = assembly.numbers.iter().rev().find(|(from, _)| *from <= until).map(|(_, number)| *number);
    assembly.numbers.retain(|(from, _)| *from > until);
    assembly.numbers.iter_mut().for_each(|(from, _)| *from -= until);
    if let Some(number) = number {
        assembly.numbers.insert(0, (0, number));
    }
    Ok(())
}

fn decode_part(session: &Session<'_>, full: &FullStream<'_>, assembly: &Assembly, part: std::ops::Range<usize>, last: bool) -> (Vec<Event>, Totals) {
    let bytes = &assembly.bytes[part.clone()];
    let mut totals = Totals::default();
    let mut events = Vec::new();
    let mut ptwrites = Ptwrites::new(bytes, session.clock);
    let writer = |at: u64| {
        let n = full.writers.partition_point(|(end, ..)| *end <= at);
        full.writers.get(n).filter(|(_, start, ..)| *start <= at).map(|&(_, _, pid, tid)| (pid, tid))
    };
    for ptwrite in ptwrites.by_ref() {
        let time = time(session, ptwrite.tsc);
        let position = |at: usize| assembly.start + (part.start + at) as u64;
        let task = if let Some(tid) = full.thread {
            Some((0, tid))
        } else if full.writers.is_empty() {
            full.cpu.zip(time).and_then(|(cpu, time)| session.thread_at(cpu, time))
        } else {
            let (first, last) = (writer(position(ptwrite.start)), writer(position(ptwrite.end - 1)));
            if first != last {
                totals.torn_by_switch += 1;
                continue;
            }
            first.or_else(|| full.cpu.zip(time).and_then(|(cpu, time)| session.thread_at(cpu, time)))
        };
        let (pid, tid) = task.unwrap_or((0, 0));
        let pid = if pid == 0 { session.process_of.get(&tid).copied().unwrap_or(0) } else { pid };
        let at = assembly.numbers.partition_point(|(from, _)| *from < part.start + ptwrite.end).saturating_sub(1);
        let sample = assembly.numbers.get(at).map_or(0, |(_, number)| *number);
        events.push(Event { sample, pid, tid, time_ns: time.unwrap_or(0), ip: ptwrite.ip, payload: ptwrite.payload });
    }
    totals.loss = ptwrites.loss();
    if !last {
        // A PSB follows, which ends a pair as anything else does.
        totals.loss.torn += std::mem::take(&mut totals.loss.torn_at_end);
    }
    if !assembly.synchronised && part.start == 0 {
        totals.before_psb_ptwrites = estimate_unsynchronised(&bytes[..totals.loss.before_psb_bytes as usize]).0;
    }
    totals.events = events.len() as u64;
    (events, totals)
}


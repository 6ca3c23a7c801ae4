//! Full traces: a stream in pieces, which are concatenated and cut at PSBs.

use crate::events::{
    Before, MAX_BYTES_PER_BATCH, PartResult, PtwriteEvent, Totals, time, window, with_process,
};
use crate::session::{AuxSpan, FullStream, Session, Stream};
use mgz_pt::{Ptwrites, estimate_unsynchronised, find_psb};
use rayon::prelude::*;
use std::collections::BTreeSet;
use std::ops::Range;

/// A full trace is decoded in parts of about this size. Source: Chosen.
const BYTES_PER_PART: usize = 1 << 20;

/// Concatenated bytes of a stream, with the pieces they came from.
#[derive(Default)]
struct Assembly {
    bytes: Vec<u8>,
    /// Stream offset of the first byte.
    start: u64,
    /// Offsets in `bytes` at which pieces begin, and the pieces' numbers.
    numbers: Vec<(usize, u32)>,
    /// Earlier bytes were already decoded, so the first byte is a PSB's.
    synchronised: bool,
    /// The bytes begin behind a hole.
    behind_hole: bool,
}

impl Assembly {
    /// Adds bytes at a stream offset, behind the existing ones.
    fn add(&mut self, offset: u64, number: u32, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.bytes.is_empty() {
            self.start = offset;
        }
        self.numbers.push((self.bytes.len(), number));
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes `count` zeros from the end; false if there are other bytes.
    fn drop_padding(&mut self, count: usize) -> bool {
        let keep = self
            .bytes
            .len()
            .checked_sub(count)
            .filter(|&keep| self.bytes[keep..].iter().all(|&b| b == 0));
        keep.is_some_and(|keep| {
            self.bytes.truncate(keep);
            true
        })
    }
}

/// Sums over the parts that were read.
#[derive(Default)]
struct Told {
    totals: Totals,
    /// Pieces in which a `ptwrite` ends.
    seen: BTreeSet<u32>,
}

/// Data shared by the parts of one stream.
struct Context<'s, 'a, T> {
    session: &'s Session<'a>,
    stream: Stream,
    full: &'s FullStream<'a>,
    work: &'s (dyn Fn(Vec<PtwriteEvent>) -> T + Sync),
}

/// Reads a full trace's stream.
pub fn read_stream<T: Send>(
    session: &Session<'_>,
    stream: Stream,
    full: &FullStream<'_>,
    work: &(dyn Fn(Vec<PtwriteEvent>) -> T + Sync),
    totals: &mut Totals,
    sink: &mut dyn FnMut(PartResult<T>) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let context = Context {
        session,
        stream,
        full,
        work,
    };
    // The kernel may report missing data before the first byte.
    let lost_first =
        |piece: &AuxSpan<'_>| full.cuts.first().is_some_and(|&cut| cut <= piece.offset);
    let mut assembly = Assembly {
        behind_hole: full.pieces.first().is_some_and(lost_first),
        ..Assembly::default()
    };
    let mut told = Told::default();
    let mut expected = None;
    for piece in &full.pieces {
        told.totals.samples += 1;
        told.totals.bytes += piece.bytes.len() as u64;
        let mut bytes = piece.bytes;
        let mut offset = piece.offset;
        match expected {
            // perf fills pieces up to whole words with zeros, which the next piece overwrites.
            Some(end)
                if offset < end
                    && end - offset < 8
                    && assembly.drop_padding((end - offset) as usize) => {}
            Some(end) if offset < end => {
                // These bytes were read twice, as their offset shows.
                let twice = usize::try_from(end - offset)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                told.totals.overlaps += 1;
                told.totals.overlap_bytes += twice as u64;
                bytes = &bytes[twice..];
                offset = offset.saturating_add(twice as u64);
            }
            Some(end) if offset > end => {
                told.totals.holes += 1;
                context.flush(&mut assembly, true, &mut told, sink)?;
                assembly = Assembly {
                    behind_hole: true,
                    ..Assembly::default()
                };
            }
            _ => {}
        }
        let end = offset.saturating_add(bytes.len() as u64);
        expected = Some(expected.unwrap_or(0).max(end));
        // If the kernel reports missing data, the last packet may be cut, and must not include the
        // next bytes.
        let first = full.cuts.partition_point(|&cut| cut <= offset);
        for &cut in full.cuts[first..].iter().take_while(|&&cut| cut <= end) {
            let (before, behind) = bytes.split_at((cut - offset) as usize);
            assembly.add(offset, piece.number, before);
            context.flush(&mut assembly, true, &mut told, sink)?;
            assembly = Assembly {
                behind_hole: true,
                ..Assembly::default()
            };
            (bytes, offset) = (behind, cut);
        }
        assembly.add(offset, piece.number, bytes);
        if assembly.bytes.len() >= MAX_BYTES_PER_BATCH {
            context.flush(&mut assembly, false, &mut told, sink)?;
        }
    }
    context.flush(&mut assembly, true, &mut told, sink)?;
    told.totals.empty_samples = (full.pieces.len() - told.seen.len()) as u64;
    *totals += told.totals;
    Ok(())
}

/// Cuts for [`Ptwrites`] in `bytes[..end]`: each except the first begins at a PSB.
fn cuts(bytes: &[u8], end: usize) -> Vec<Range<usize>> {
    let mut cuts = Vec::new();
    let mut from = 0;
    while from < end {
        let to = find_psb(bytes, from.saturating_add(BYTES_PER_PART))
            .filter(|&at| at < end)
            .unwrap_or(end);
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

impl<T: Send> Context<'_, '_, T> {
    /// Decodes the concatenated bytes; keeps those from the last PSB on, unless this is the end.
    fn flush(
        &self,
        assembly: &mut Assembly,
        end: bool,
        told: &mut Told,
        sink: &mut dyn FnMut(PartResult<T>) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let len = assembly.bytes.len();
        // A PSB may be cut itself, so the last bytes are not searched.
        let until = if end {
            len
        } else {
            last_psb(&assembly.bytes).filter(|&at| at > 0).unwrap_or(0)
        };
        if until == 0 {
            return Ok(());
        }
        let parts = cuts(&assembly.bytes, until);
        let this = &*assembly;
        let results: Vec<_> = parts
            .par_iter()
            .map(|part| {
                let (events, lost_after, counts) =
                    self.part(this, part.clone(), end && part.end == len);
                let mut seen: Vec<u32> = events.iter().map(|e| e.sample).collect();
                seen.dedup();
                let continues = !this.behind_hole || this.synchronised || part.start > 0;
                (
                    PartResult {
                        stream: self.stream,
                        continues,
                        lost_after,
                        data: (self.work)(events),
                    },
                    counts,
                    seen,
                )
            })
            .collect();
        for (unit, counts, seen) in results {
            told.totals += counts;
            told.seen.extend(seen);
            sink(unit)?;
        }
        assembly.bytes.drain(..until);
        assembly.start = assembly.start.saturating_add(until as u64);
        assembly.synchronised = true;
        let number = assembly
            .numbers
            .iter()
            .rev()
            .find(|(from, _)| *from <= until)
            .map(|(_, number)| *number);
        assembly.numbers.retain(|(from, _)| *from > until);
        assembly
            .numbers
            .iter_mut()
            .for_each(|(from, _)| *from -= until);
        if let Some(number) = number {
            assembly.numbers.insert(0, (0, number));
        }
        Ok(())
    }

    fn part(
        &self,
        assembly: &Assembly,
        part: Range<usize>,
        last: bool,
    ) -> (Vec<PtwriteEvent>, bool, Totals) {
        let (session, full) = (self.session, self.full);
        let bytes = &assembly.bytes[part.clone()];
        let mut totals = Totals::default();
        let mut events = Vec::new();
        let mut ptwrites = Ptwrites::new(bytes, session.clock);
        // Both overflow only in invalid files.
        let position = |at: usize| assembly.start.wrapping_add((part.start + at) as u64);
        let mut cuts = full.cuts[full.cuts.partition_point(|&cut| cut <= position(0))..]
            .iter()
            .copied()
            .peekable();
        let (mut told, mut lost, mut turn) = (0, false, None);
        window::for_each(&mut ptwrites, |ptwrite, last_loss| {
            lost |= last_loss > told;
            told = told.max(last_loss);
            while cuts.next_if(|&cut| cut < position(ptwrite.end)).is_some() {
                lost = true;
            }
            let time = time(session, ptwrite.tsc);
            let by_time = || {
                full.cpu
                    .zip(time)
                    .and_then(|(cpu, time)| session.thread_at(cpu, time))
            };
            let turn_by_time = || {
                full.cpu
                    .zip(time)
                    .and_then(|(cpu, time)| session.turn_at(cpu, time))
            };
            let mut now = None;
            let task = if let Some(tid) = full.thread {
                Some((0, tid))
            } else if full.writers.is_empty() {
                now = turn_by_time().map(|turn| turn as usize);
                by_time()
            } else {
                let (first, last) = (
                    full.writer(position(ptwrite.start)),
                    full.writer(position(ptwrite.end - 1)),
                );
                now = last.map(|last| last.0);
                let (first, last) = (first.map(|w| w.1), last.map(|w| w.1));
                if first != last {
                    totals.torn_by_switch += 1;
                    lost = true;
                    return;
                }
                first.or_else(by_time)
            };
            let (pid, tid) = with_process(session, task.unwrap_or((0, 0)));
            let at = assembly
                .numbers
                .partition_point(|(from, _)| *from < part.start + ptwrite.end)
                .saturating_sub(1);
            let sample = assembly.numbers.get(at).map_or(0, |(_, number)| *number);
            // At the start of a part of a CPU's stream, the previous thread is unknown.
            let switched = turn
                .replace(now)
                .map_or(full.thread.is_none(), |t| t != now);
            let before = match (std::mem::take(&mut lost), switched) {
                (true, _) => Before::Loss,
                (false, true) => Before::Switch,
                (false, false) => Before::Nothing,
            };
            events.push(PtwriteEvent {
                sample,
                pid,
                tid,
                before,
                time_ns: time.unwrap_or(0),
                ip: ptwrite.ip,
                payload: ptwrite.payload,
            });
        });
        lost |= ptwrites.last_loss() > told
            || cuts.next_if(|&cut| cut <= position(bytes.len())).is_some();
        totals.loss = ptwrites.loss();
        lost |= totals.loss.torn_at_end > 0;
        if !last {
            // A PSB follows. It tears a pair like any other packet, and a packet that it cuts off
            // is damage.
            totals.loss.torn += std::mem::take(&mut totals.loss.torn_at_end);
            let cut = std::mem::take(&mut totals.loss.cut_bytes);
            totals.loss.bad_packets += u64::from(cut > 0);
            totals.loss.bad_bytes += cut;
            lost |= cut > 0;
        }
        if !assembly.synchronised && part.start == 0 {
            totals.before_psb_ptwrites =
                estimate_unsynchronised(&bytes[..totals.loss.before_psb_bytes as usize]).0;
        }
        totals.events = events.len() as u64;
        (events, lost, totals)
    }
}

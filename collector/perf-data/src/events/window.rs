//! Windows: AUX data in samples, and snapshots.

use crate::events::{
    Before, MAX_BYTES_PER_BATCH, PartResult, PtwriteEvent, Totals, time, with_process,
};
use crate::overlap::{Overlap, overlap};
use crate::records::RecordBytes;
use crate::sample::Identity;
use crate::session::{AuxSpan, AuxWindow, FullStream, Session, Stream};
use mgz_pt::{Ptwrites, estimate_unsynchronised};
use rayon::prelude::*;
use std::collections::HashMap;

/// A snapshot as a window.
pub fn snapshot<'a>(stream: Stream, full: &FullStream<'a>, piece: &AuxSpan<'a>) -> AuxWindow<'a> {
    let identity = Identity {
        cpu: full.cpu,
        task: full.thread.map(|tid| (0, tid)),
        ..Identity::default()
    };
    AuxWindow {
        stream,
        number: piece.number,
        bytes: RecordBytes::File(piece.bytes),
        identity,
        sampling: None,
        period: 0,
        chain: None,
        stack: None,
    }
}

/// Reads windows, batch by batch.
pub fn read_windows<T: Send>(
    session: &Session<'_>,
    windows: &[&AuxWindow<'_>],
    work: &(dyn Fn(Vec<PtwriteEvent>) -> T + Sync),
    totals: &mut Totals,
    sink: &mut dyn FnMut(PartResult<T>) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut last: HashMap<Stream, usize> = HashMap::new();
    let before: Vec<_> = windows
        .iter()
        .enumerate()
        .map(|(n, w)| last.insert(w.stream, n))
        .collect();
    let overlaps: Vec<_> = windows
        .par_iter()
        .zip(&before)
        .map(|(w, before)| before.and_then(|n| overlap(&windows[n].bytes, &w.bytes)))
        .collect();
    // A pair torn at a window's end is complete in the next window, if that begins earlier.
    let mut continued = vec![false; windows.len()];
    for (n, _) in overlaps
        .iter()
        .enumerate()
        .filter(|(_, overlap)| overlap.is_some())
    {
        if let Some(old) = before[n] {
            continued[old] = true;
        }
    }
    let mut from = 0;
    while from < windows.len() {
        let mut bytes = 0;
        let fits = windows[from..].iter().take_while(|w| {
            let first = bytes == 0;
            bytes += w.bytes.len().max(1);
            first || bytes <= MAX_BYTES_PER_BATCH
        });
        let to = from + fits.count();
        let batch: Vec<_> = (from..to)
            .into_par_iter()
            .map(|n| {
                let (events, lost_after, counts) =
                    one(session, windows[n], overlaps[n], continued[n]);
                (
                    PartResult {
                        stream: windows[n].stream,
                        continues: overlaps[n].is_some(),
                        lost_after,
                        data: work(events),
                    },
                    counts,
                )
            })
            .collect();
        for (unit, counts) in batch {
            *totals += counts;
            sink(unit)?;
        }
        from = to;
    }
    Ok(())
}

fn one(
    session: &Session<'_>,
    window: &AuxWindow<'_>,
    overlap: Option<Overlap>,
    continued: bool,
) -> (Vec<PtwriteEvent>, bool, Totals) {
    let bytes = &window.bytes[..];
    let mut totals = Totals {
        samples: 1,
        bytes: bytes.len() as u64,
        ..Totals::default()
    };
    let shared = window.identity.cpu.filter(|&cpu| session.is_shared(cpu));
    let mut turn = None;
    let task = window.identity.task.unwrap_or((0, 0));
    let seen = overlap.map_or(0, |o| o.seen);
    let mut events = Vec::new();
    let mut ptwrites = Ptwrites::new(bytes, session.clock);
    // Losses in the part that the previous window shares were already reported.
    let mut told = seen;
    for_each(&mut ptwrites, |ptwrite, last_loss| {
        if ptwrite.end <= seen {
            totals.overlap_events += 1;
            return;
        }
        let mut before = if last_loss > told {
            Before::Loss
        } else {
            Before::Nothing
        };
        told = told.max(last_loss);
        let time = time(session, ptwrite.tsc).or(window.identity.time);
        let task = shared
            .zip(time)
            .and_then(|(cpu, time)| session.thread_at(cpu, time))
            .unwrap_or(task);
        let now = window
            .identity
            .cpu
            .zip(time)
            .and_then(|(cpu, time)| session.turn_at(cpu, time));
        if turn.replace(now).is_some_and(|t| t != now) {
            before = before.max(Before::Switch);
        }
        let (pid, tid) = with_process(session, task);
        events.push(PtwriteEvent {
            sample: window.number,
            pid,
            tid,
            before,
            time_ns: time.unwrap_or(0),
            ip: ptwrite.ip,
            payload: ptwrite.payload,
        });
    });
    totals.loss = ptwrites.loss();
    let lost_after = ptwrites.last_loss() > told || (totals.loss.torn_at_end > 0 && !continued);
    if continued {
        totals.loss.torn_at_end = 0;
    }
    if let Some(overlap) = overlap {
        totals.overlaps = 1;
        totals.overlap_bytes = seen as u64;
        totals.loss.before_psb_bytes = totals.loss.before_psb_bytes.min(overlap.unseen_head as u64);
    }
    let head = &bytes[..totals.loss.before_psb_bytes as usize];
    totals.before_psb_ptwrites = estimate_unsynchronised(head).0;
    totals.events = events.len() as u64;
    totals.empty_samples = u64::from(events.is_empty());
    totals.overflowed_samples = u64::from(totals.loss.overflows > 0);
    (events, lost_after, totals)
}

/// Calls `f` with each `ptwrite` and the end of the last loss before it.
pub fn for_each(ptwrites: &mut Ptwrites<'_>, mut f: impl FnMut(mgz_pt::Ptwrite, usize)) {
    while let Some(ptwrite) = ptwrites.next() {
        f(ptwrite, ptwrites.last_loss());
    }
}

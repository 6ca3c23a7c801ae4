//! `mgz-record --analyze='cache …'`: rows that are simulated while the program runs.
//!
//! The recorder sends what a complete trace would begin with; what it keeps instead follows in the
//! trace, which is complete when it says so. See `collector/src/convert/online.rs`.

use crate::commands::cache::CacheArguments;
use crate::commands::cache::exact::Begun;
use crate::commands::ordered::Stretch;
use anyhow::Context;
use mgz_annotations_schema::row_stream::{Batch, RowReader};
use mgz_models::cache::LevelSpec;
use std::io::Read;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Why these arguments need the whole trace, if they do.
pub(super) fn refusal(arguments: &CacheArguments, levels: &[LevelSpec]) -> Option<&'static str> {
    let whole = [
        (arguments.misses, "--misses"),
        (arguments.models, "--models"),
        (arguments.sets.is_some(), "--sets"),
        (arguments.weights_from.is_some(), "--weights-from"),
        (!arguments.mimic.is_empty(), "--mimic"),
        (arguments.turns.is_some(), "--turns"),
        (levels.iter().any(|l| l.prefetch.stride), "stride"),
    ];
    whole.into_iter().find(|w| w.0).map(|w| w.1)
}

/// Simulates what comes on standard input, to its end.
pub(super) fn simulate(levels: &[LevelSpec], arguments: &CacheArguments) -> anyhow::Result<Begun> {
    let mut begun = Begun::new(levels, arguments)?;
    let mut stretch = Stretch::default();
    // Two batches are there at a time: one is read while the other is looked at.
    let (full, batches) = sync_channel::<Batch>(0);
    let (empty, spare) = sync_channel::<Batch>(2);
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || read(std::io::stdin().lock(), full, &spare));
        for rows in batches {
            let rows = stretch.take(rows, arguments.stores);
            begun.rows(&stretch);
            // At the end nobody takes it any more.
            let _ = empty.try_send(rows);
        }
        match reader.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
    .context(
        "mgz-record ended before it had sent all rows; record with -o and analyse the trace",
    )?;
    Ok(begun)
}

fn read(from: impl Read, to: SyncSender<Batch>, spare: &Receiver<Batch>) -> std::io::Result<()> {
    let mut reader = RowReader::new(from);
    loop {
        let mut batch = spare.try_recv().unwrap_or_default();
        if !reader.batch(&mut batch)? || to.send(batch).is_err() {
            return Ok(());
        }
    }
}

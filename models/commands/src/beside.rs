//! `mgz-record --analyze='cache …'` and `'reuse …'`: rows that are analysed while the program runs.
//!
//! The recorder sends the first rows of a complete trace. The trace has the rest, and is complete
//! if its manifest says so. See `collector/src/convert/online.rs`.

use anyhow::Context;
use clap::CommandFactory;
use mgz_annotations_schema::row_stream::{Batch, RowReader};
use std::io::Read;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Ends the program with a usage error if any of these options was requested: each needs the whole
/// trace.
pub(crate) fn refuse(whole: &[(bool, &str)]) {
    if let Some((_, what)) = whole.iter().find(|asked| asked.0) {
        let text = format!("--online cannot be used with {what}");
        let kind = clap::error::ErrorKind::ArgumentConflict;
        mgz_analyzer::cli::Arguments::command()
            .error(kind, text)
            .exit();
    }
}

/// Passes all rows from standard input to `each`, which returns the buffer for reuse.
pub(crate) fn take_batches(each: &mut dyn FnMut(Batch) -> Batch) -> anyhow::Result<()> {
    // There are two batches: one is read while the other is processed.
    let (full, batches) = sync_channel::<Batch>(0);
    let (empty, spare) = sync_channel::<Batch>(2);
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || read(std::io::stdin().lock(), full, &spare));
        for rows in batches {
            // At the end the receiver is gone.
            let _ = empty.try_send(each(rows));
        }
        match reader.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
    .context("mgz-record ended before it had sent all rows; record with -o and analyse the trace")
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

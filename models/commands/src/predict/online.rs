//! `predict --online`: the whole run is predicted while it runs, from rows on standard input.
//!
//! The prediction is printed as soon as the sampled input size is known. It is printed again if more
//! of the run contradicts the size. Later rows are only taken, so that the recorder does not wait.

use crate::beside;
use crate::predict::{
    Meter, ModelFile, PredictArguments, Results, begun_table, ensure_sampled, input_size,
    program_of, same_program,
};
use anyhow::Context;
use mgz_analyzer::cli::OutputFormat;
use mgz_analyzer::commands::open_rest;
use mgz_analyzer::output::document::{Document, value};
use serde_json::Value;
use std::io::Write;
use std::path::Path;

/// Name of the run in tables.
const THIS_RUN: &str = "this run";
/// A size is checked until the run is this number of times as long as when it showed. Source:
/// Chosen.
const CHECKED_LENGTH: u64 = 16;

/// The last prediction.
struct Shown {
    document: Document,
    size: f64,
    /// Accesses so far.
    accesses: u64,
}

/// Runs the command. `trace` is complete when the rows end.
pub(super) fn predict_online(
    arguments: &PredictArguments,
    model: &ModelFile,
    trace: &Path,
) -> anyhow::Result<(Document, bool)> {
    ensure_sampled(model, trace)?;
    let at_once = arguments.common.format == OutputFormat::Table;
    let mut meter = Meter::new(model.block);
    let (mut sample, mut shown) = (None, None::<Shown>);
    beside::take_batches(&mut |mut rows| {
        let last = shown.as_ref();
        if last.is_some_and(|last| meter.accesses > CHECKED_LENGTH * last.accesses) {
            return rows;
        }
        if sample != Some(rows.sample) {
            sample = Some(rows.sample);
            meter.begin();
        }
        if !model.stores {
            rows.drop_stores();
        }
        meter.add(&rows.address, &rows.size, &rows.code);
        let (samplers, blocks) = (&meter.sink.samplers, meter.sink.firsts);
        if let Ok((size, known)) = input_size(model, samplers, blocks, false)
            && last.is_none_or(|last| last.size != size)
        {
            let accesses = meter.accesses;
            let document = document(arguments, model, size, [known, accesses]);
            if at_once {
                print(&document.text(arguments.common.rows, None));
            }
            shown = Some(Shown {
                document,
                size,
                accesses,
            });
        }
        rows
    })?;
    let shown = shown.with_context(|| {
        format!(
            "{}: the sampled input size does not show in this run; train with --size-from data",
            trace.display()
        )
    })?;
    let mut rest = Document::new("predict");
    let recorded = open_rest(trace, false, &mut rest)?;
    same_program(&model.program, &program_of(&recorded), trace)?;
    Ok((if at_once { rest } else { shown.document }, false))
}

/// The prediction by the best method. `shown`: the number of accesses that revealed the size, and
/// that of all so far.
fn document(
    arguments: &PredictArguments,
    model: &ModelFile,
    size: f64,
    shown: [u64; 2],
) -> Document {
    let mut document = Document::new("predict");
    let [known, accesses] = shown.map(Value::from);
    let row = vec![Value::from(THIS_RUN), value(size), known, accesses];
    document.tables.push(begun_table(vec![row]));
    let mut results = Results::default();
    results.predict(model, size, THIS_RUN, arguments);
    results.keep_last_method();
    results.finish(&mut document);
    document
}

/// Prints at once. If nobody reads it, the rows are still taken.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
